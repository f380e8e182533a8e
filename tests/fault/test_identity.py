"""Which tap is whose, when names, indices, addresses and UUIDs are used again: no call does anything to a tap that is not its NIC's.

By chance, in thousands of orders: on the simulated host with taps that go, and come back under the same name, between any two requests
of a call; and on the real kernel with hooks that race.
"""

from __future__ import annotations

import random
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

from netcommon.host.api.facts import Link
from netcommon.host.api.host import Answer
from netcommon.host.api.requests import Request
from runtime.environment import DownHint, nic_from_environment
from runtime.errors import NetcommonError
from runtime.nic import Nic
from runtime.record import UP
from tests.kernel.test_doors_parallel import environment, good
from tests.support import figures
from tests.support.node import Node
from tests.support.rundoor import BASE, HOOKS, rundoor
from tests.support.sample import FULL
from tests.support.sim import MODES, UUIDS, Sim
from tests.support.snapshot import diff, snapshot
from tests.support.tap import Tap

TAPS = ("tap0", "tap1", "tap2")
ROUNDS, STEPS = (500 if FULL else 15), 14
CHOICES = [mode for mode in MODES if mode not in ("routed, prefix", "ext")]


class World:
    """One machine, and a random life of three NICs on three taps, in which whatever can be mixed up is."""

    def __init__(self, folder: str, seed: int) -> None:
        self.random = random.Random(seed)
        self.sim = Sim(folder)
        self.sim.host.remove_link("tap0")
        self.before = self.sim.picture()
        self.pristine: dict[str, Link] = {}
        self.sysctls: dict[str, dict[str, str]] = {}
        self.taken: set[int] = set()  #: the taps that a NIC was ever to be brought up on
        self.log: list[str] = []
        for tap in TAPS:
            self.plug(tap)

    def plug(self, tap: str) -> None:
        """A new guest's tap, as QEMU makes it."""
        if self.sim.index(tap) >= 0:
            self.sim.host.remove_link(tap)
        self.pristine[tap] = self.sim.tap(tap)
        self.sysctls[tap] = self.settings(tap)

    def settings(self, tap: str) -> dict[str, str]:
        values = self.sim.host.kernel.settings._values
        return {path: value for path, value in values.items() if f"/{tap}/" in path}

    def nic(self, number: int) -> Nic:
        """NIC ``number``, whose tap, index and MAC may be another's; one in four is a copy of another, UUID and all."""
        chance = self.random
        said = number if chance.randrange(4) else chance.randrange(3)
        return nic_from_environment(
            {
                **MODES[chance.choice(CHOICES)],
                "INTERFACE": chance.choice(TAPS),
                "INTERFACE_UUID": UUIDS[said],
                "INSTANCE": f"web{chance.randrange(2)}",
                "INTERFACE_INDEX": str(chance.randrange(3)),
                "MAC": f"aa:00:00:00:00:0{chance.randrange(1, 4)}",
                "VLAN": "",
                "TAGS": "",
            }
        )

    def hint(self) -> DownHint:
        """Any part of a description, of any of the NICs, right or wrong."""
        chance = self.random

        def perhaps(value: str) -> str:
            return value if chance.randrange(3) else ""

        uuid, device = perhaps(chance.choice(UUIDS[:3])), perhaps(chance.choice(TAPS))
        index = chance.randrange(3) if chance.randrange(2) or not (uuid or device) else None
        return DownHint(uuid, device, f"web{chance.randrange(2)}", index, perhaps(f"aa:00:00:00:00:0{chance.randrange(1, 4)}"))

    def step(self) -> None:
        """One call, or one thing that happens to a tap."""
        chance = self.random
        match chance.randrange(8):
            case 0:
                tap = chance.choice(TAPS)
                self.log.append(f"{tap} goes")
                self.sim.host.remove_link(tap)
            case 1:
                tap = chance.choice(TAPS)
                self.log.append(f"{tap} is a new one")
                self.plug(tap)
            case 2 | 3 | 4:
                nic = self.nic(chance.randrange(3))
                self.log.append(f"up of {nic.uuid[:8]} on {nic.interface} as {nic.label} in {nic.mode}")
                index = self.sim.index(nic.interface)
                self.during(lambda: self.sim.up(nic), {index})
                self.taken.add(index)
            case 5 | 6:
                hint = self.hint()
                context = chance.choice(("shutdown", "hot-remove", "migrate", "migrate-failed"))
                self.log.append(f"down of {hint} in {context}")
                self.during(lambda: self.sim.down(hint, context), set())
            case _:
                self.log.append("gc")
                self.during(self.sim.gc, set())

    def during(self, call: object, own: set[int]) -> None:
        """The call, with a tap that is replaced right before one of its requests now and then; every request is judged."""
        assert callable(call)
        mine = {record.ifindex for record in self.sim.records()} | own
        swap = self.random.randrange(12) if not self.random.randrange(3) else -1
        strange: list[Request] = []
        count = 0

        def judge(request: Request) -> Answer | None:
            nonlocal count
            if count == swap:
                tap = self.random.choice(TAPS)
                self.log.append(f"  {tap} is replaced before {request}")
                self.plug(tap)
            count += 1
            index = getattr(request, "index", None)
            link = self.sim.host.kernel.links.get(index) if isinstance(index, int) else None
            if link is not None and link.name in TAPS and index not in mine:
                strange.append(request)
            return None

        self.sim.host.fail = judge
        try:
            call()
        except NetcommonError as error:
            self.log.append(f"  {error}")
        finally:
            self.sim.host.fail = lambda _request: None
        assert strange == [], (strange, self.log)
        self.judge_taps()

    def judge_taps(self) -> None:
        """A tap that no NIC has been brought up on is as its hypervisor made it."""
        known = {record.ifindex for record in self.sim.records()} | self.taken
        for tap in TAPS:
            link = self.sim.host.kernel.named(tap)
            if link is None or link.index in known:
                continue
            assert link == self.pristine[tap], (link, self.log)
            assert self.settings(tap) == self.sysctls[tap], (tap, self.log)

    def end(self) -> None:
        """All guests are gone: nothing of ours is left, and nothing else has changed."""
        for tap in TAPS:
            self.sim.host.remove_link(tap)
        self.sim.gc()
        assert self.sim.picture() == self.before, self.log
        assert self.sim.files() == [], self.log
        self.sim.node.store.close()


def test_random_orders(tmp_path: Path) -> None:
    for seed in range(ROUNDS):
        world = World(str(tmp_path / str(seed)), seed)
        for _ in range(STEPS):
            world.step()
        world.end()
    figures.add("identity", ROUNDS * STEPS, 0, 0)


class Started(NamedTuple):
    """A hook that was started, and what it was."""

    what: str
    process: subprocess.Popen[bytes]


def start(what: str, door: str, variables: dict[str, str], *arguments: str) -> Started:
    argv = [str(HOOKS / door), *arguments]
    process = subprocess.Popen(argv, env={**BASE, **variables}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, cwd="/")
    return Started(what, process)


def finish(started: Sequence[Started]) -> list[tuple[str, int, str]]:
    return [(each.what, each.process.wait(60), each.process.communicate()[0].decode()) for each in started]


KINDS = {"routed": {}, "bridged": {"MODE": "bridged", "LINK": "br0", "IP": ""}}


@pytest.mark.parametrize("kind", KINDS)
def test_the_end_of_the_old_device_races_the_up_of_the_new(node: Node, kind: str) -> None:
    """Guest A ends, its tap goes, guest B's tap gets its name, and its index in the instance, its MAC too; down of A comes late.

    Whatever comes first, B is whole at the end, and A is gone.
    """
    node.bridge("br0")
    chance = random.Random(kind)
    old = environment(0, **KINDS[kind])
    new = {**old, "INTERFACE_UUID": "99999999-0667-415f-9a43-786dc01cbf24", "INSTANCE": "other"}
    tap = Tap("tap0")
    assert rundoor("kvm-ifup", old).status == 0
    assert rundoor("kvm-ifdown", old, "tap0", "hot-remove").status == 0
    tap.close()
    before = snapshot(())
    rounds = 40 if FULL else 2
    for number in range(rounds):
        tap = Tap("tap0")
        assert rundoor("kvm-ifup", old).status == 0
        hint = chance.choice((old, {**old, "INTERFACE_INDEX": "1"}, {"INTERFACE_UUID": old["INTERFACE_UUID"]}))
        if chance.randrange(2):
            early = [start("down of the old", "kvm-ifdown", hint, "tap0", "true")]
            limit = time.monotonic() + chance.random() * 0.3  # any instant of it will do
            while time.monotonic() < limit and early[0].process.poll() is None:
                pass
            tap.close()
        else:
            tap.close()
            early = [start("down of the old", "kvm-ifdown", hint, "tap0", "true")]
        tap = Tap("tap0")
        calls = [
            ("up of the new", "kvm-ifup", new, ("tap0",)),
            ("down of the old", "kvm-ifdown", hint, ("tap0", "true")),
            ("down of the old", "kvm-ifdown", hint, ("tap0", "false")),
        ]
        chance.shuffle(calls)
        said = finish([*early, *(start(what, door, variables, *arguments) for what, door, variables, arguments in calls)])
        assert [status for what, status, _ in said if what == "up of the new"] == [0], (number, said)
        assert good() == ["tap0"], (number, said)
        (record,) = Path("/run/netcommon/nics").glob("*.json")
        assert record.name == f"{new['INTERFACE_UUID']}.json" and f'"state":"{UP}"' in record.read_text(), (number, said)
        assert rundoor("kvm-ifdown", new, "tap0", "hot-remove").status == 0
        tap.close()
        assert diff(before, snapshot(())) == [], (number, said)
    figures.add("identity", rounds, 0, 0)


def test_wrong_descriptions_on_the_real_kernel(node: Node) -> None:
    """Two guests with two NICs each; downs that mix up their taps, indices, MACs and UUIDs never touch the wrong one."""
    node.bridge("br0")
    nics = [environment(number, **KINDS["bridged" if number % 2 else "routed"]) for number in range(4)]
    for nic in nics:
        node.tap(nic["INTERFACE"])
        assert rundoor("kvm-ifup", nic).status == 0
    chance = random.Random(1)
    rounds = 100 if FULL else 3
    everything = snapshot(())
    for number in range(rounds):
        one, other = chance.sample(nics, 2)
        mixed = dict(one)
        for name in chance.sample(("INTERFACE", "INTERFACE_INDEX", "MAC", "INSTANCE"), chance.randrange(1, 4)):
            mixed[name] = other[name]
        if chance.randrange(2):
            del mixed["INTERFACE_UUID"]  # design-ifdown.rst's own calls have none
        down = rundoor("kvm-ifdown", mixed, mixed["INTERFACE"], chance.choice(("true", "false")))
        assert down.status in (0, 64), (number, mixed, down)
        for nic in nics:
            there = Path(f"/run/netcommon/nics/{nic['INTERFACE_UUID']}.json")
            meant = nic["INTERFACE_UUID"] == mixed.get("INTERFACE_UUID") or (
                "INTERFACE_UUID" not in mixed and all(mixed[name] == nic[name] for name in ("INTERFACE", "MAC", "INSTANCE"))
            )
            assert there.exists() or meant, (number, mixed, nic, down)
            assert rundoor("kvm-ifup", nic).status == 0
        changes = [line for line in diff(everything, snapshot(())) if ": order [" not in line]  # of rules of one preference, of tables
        assert changes == [], (number, mixed)
    figures.add("identity", rounds, 0, 0)
