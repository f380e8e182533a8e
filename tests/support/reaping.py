"""A simulated node with a reaper, and what can happen to it in any order: for tests of the rules by which something is reaped."""

from __future__ import annotations

import fcntl
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import strategies as st

from netagent.observe.alarms import Alarms
from netagent.observe.metrics import Metrics
from netagent.reap import nic_files
from netagent.reap.reaper import Reaper
from netcommon.host.api.facts import AF_INET6, Link, Neighbour, OvsPort, Rule
from netcommon.host.api.host import View
from netcommon.host.linux.snapshot import Snapshot
from netcommon.lifecycle import execute, gc, inventory
from netcommon.lifecycle.context import PRE, Clock, alive
from netcommon.lifecycle.gc import Found
from netcommon.log import recording
from netcommon.operations.base import Owned
from netcommon.settings.model import Settings
from runtime.errors import NetcommonError
from runtime.locks import number
from runtime.nic import Nic
from runtime.record import APPLYING, CLOSING, REVERTING, UP, Record
from tests.support.sim import UUIDS, Mortal, Sim, nic

GRACE, CAP = 120.0, 100
KINDS = ("routed, table", "bridged, access", "openvswitch, guarded", "routed, all options")
Event = tuple[str, int]


class World:
    """Four NICs, each of a kind and on a tap of its own, and the reaper's clock, which only ``wait`` moves."""

    def __init__(self, root: str, cap: int = CAP, grace: float = GRACE) -> None:
        limits = {"agent_reap_cap": cap, "agent_reap_grace": grace, "agent_reap_interval": 600.0}
        self.sim = Sim(root, Settings(service_timeout=2, hook_timeout=5)._replace(**limits))  # type: ignore[arg-type]
        self.sim.host.remove_link("tap0")
        self.before = self.sim.picture()
        self.now = 1000.0
        self.cpu: Callable[[], float] = lambda: 0.0
        self.log, self.lines = recording()
        self.metrics = Metrics()
        self.alarms = Alarms(self.log, self.metrics)
        self.reaper = self.restarted()
        self._held: dict[str, int] = {}

    def close(self) -> None:
        for name in list(self._held):
            os.close(self._held.pop(name))
        if self.sim._store is not None:
            self.sim._store.close()

    def used(self) -> float:
        """CPU seconds, by ``cpu``, which a test may replace."""
        return self.cpu()

    def restarted(self) -> Reaper:
        """Another agent, which knows nothing."""
        self.reaper = Reaper(Clock(lambda: self.now, cpu=self.used), Random(1), self.alarms, self.metrics)
        return self.reaper

    def reap(self) -> list[Found]:
        self.sim.wall += 1000
        return self.reaper.run(self.sim.node, self.sim.call())

    # -- what there is

    def nic(self, which: int) -> Nic:
        """The NIC of that number: routed ones have an address of their own."""
        kind = KINDS[which]
        own = {"INTERFACE": f"tap{which}", "INTERFACE_UUID": UUIDS[which], "INSTANCE": f"web{which}", "MAC": f"aa:00:00:00:00:0{which}"}
        return nic(kind, **own, **({"IP": f"10.0.0.{which + 5}"} if kind.startswith("routed") else {}))

    def record(self, which: int) -> Record | None:
        return self.sim.node.store.read(UUIDS[which])

    def there(self, which: int) -> bool:
        return self.sim.host.kernel.named(f"tap{which}") is not None

    def locked(self, uuid: str) -> bool:
        return f"uuid-{number(uuid):02d}" in self._held

    def owned(self) -> dict[str, Owned]:
        """What bears our mark, by identity."""
        return {thing.identity: thing for thing in inventory.look(self.sim.node).owned}

    def at_work(self, thing: Owned) -> bool:
        """Whether a hook holds the lock of the thing's device, or of the NIC that its mark names."""
        return f"device-{number(thing.device):02d}" in self._held or bool(thing.owner and self.locked(thing.owner))

    def ownerless(self) -> set[str]:
        """What bears our mark, is on no record, and nobody can need."""
        node = self.sim.node
        seen = inventory.look(node)
        return {thing.identity for thing, stays in inventory.unrecorded(seen, inventory.records(node)) if not stays}

    def needed(self) -> dict[str, tuple[bytes, list[str]]]:
        """The records that must be left alone now: the bytes of their files, and what of them does not hold on the host."""
        node, found = self.sim.node, {}
        for record in node.store.all()[0]:
            link = node.host.view().link_at(record.ifindex)
            living = alive(node, node.host.view(), record) and link is not None
            closing = record.state == CLOSING and link is not None and link.holders != 0
            if self.locked(record.uuid) or (living and (record.state == UP or closing)):
                drift = [f"{one.describe()}: {text}" for one, text in execute.drift(node.host.view(), execute.decode(record)[0])]
                found[record.key] = Path(node.store.path(record.key)).read_bytes(), drift
        return found

    def clean(self) -> None:
        """Every guest goes, whatever happened is over, and the reaper runs until it has nothing to do."""
        self.sim.host.busy = False
        for name in list(self._held):
            os.close(self._held.pop(name))
        for which in range(4):
            self.sim.host.remove_link(f"tap{which}")
            self._pid(which).unlink(missing_ok=True)
        for _ in range(8):
            self.now += GRACE
            if not self.reap() and not self.alarms.active():
                break

    # -- what happens

    def play(self, events: Sequence[Event]) -> Iterator[str]:
        """Lets the events happen, one after the other; yields the name of each when it has."""
        for name, which in events:
            getattr(self, f"on_{name}")(which)
            yield name

    def on_up(self, which: int, **more: Any) -> None:
        if self.locked(UUIDS[which]) or self.sim.host.busy:
            return
        if not self.there(which):
            self.sim.tap(f"tap{which}")
        with suppress(NetcommonError):
            self.sim.up(self.nic(which), **more)

    def on_incoming(self, which: int) -> None:
        """A guest that migrates in: what may be on one node only is owed."""
        self.on_up(which, phase=PRE)

    def on_kill(self, which: int) -> None:
        self.sim.host.remove_link(f"tap{which}")

    def on_down(self, which: int) -> None:
        if not self.locked(UUIDS[which]) and not self.sim.host.busy:
            with suppress(NetcommonError):
                self.sim.down(self.nic(which))

    def on_close(self, which: int) -> None:
        """Ganeti 3.2 asks the guest to power off."""
        if not self.locked(UUIDS[which]) and not self.sim.host.busy:
            with suppress(NetcommonError):
                self.sim.shutdown(self.nic(which))

    def on_die(self, which: int) -> None:
        """A hook is killed in the middle of an up or a down; at another place for each NIC and each state of it."""
        if self.locked(UUIDS[which]) or self.sim.host.busy:
            return
        if not self.there(which):
            self.sim.tap(f"tap{which}")
        found = self.record(which)
        with Mortal(self.sim, 9 + 2 * which), suppress(NetcommonError):
            if found is not None and found.state == UP:
                self.sim.down(self.nic(which))
            else:
                self.sim.up(self.nic(which))

    def on_lose(self, which: int) -> None:
        """A record is gone as if it had never been; none of a NIC whose VLAN or sysctl on an uplink can bear no mark."""
        if which in (0, 2):
            Path(self.sim.paths.state, "nics", f"{UUIDS[which]}.json").unlink(missing_ok=True)

    def on_stray(self, which: int) -> None:
        """Marked things without a record; the device of none of them is there."""
        kernel = self.sim.host.kernel
        rule = Rule(AF_INET6, 500, f"tap9{which}", 100)
        if rule not in kernel.rules:
            kernel.add_rule(rule)
        kernel.add_neighbour(Neighbour(AF_INET6, f"fd00::9{which}", self.sim.index("eth-br1")))
        self.sim.host.switch.put(OvsPort(f"tap8{which}", "ovs0", external_ids=(("netcommon-uuid", UUIDS[4]),)))

    def on_hold(self, which: int) -> None:
        """A hook is at work: it holds the locks of the device and the NIC."""
        self.sim.node.store._layout.make("locks")
        for name in (f"device-{number(f'tap{which}'):02d}", f"uuid-{number(UUIDS[which]):02d}"):
            if name not in self._held:
                self._held[name] = os.open(f"{self.sim.paths.state}/locks/{name}", os.O_RDWR | os.O_CREAT, 0o600)
                fcntl.flock(self._held[name], fcntl.LOCK_EX)

    def on_release(self, which: int) -> None:
        for name in (f"device-{number(f'tap{which}'):02d}", f"uuid-{number(UUIDS[which]):02d}"):
            if name in self._held:
                os.close(self._held.pop(name))

    def _pid(self, which: int) -> Path:
        return Path(self.sim.paths.kvm_run, "pid", f"web{which}")

    def on_arrive(self, which: int) -> None:
        """QEMU of an instance that migrates in has its tap, Ganeti's runtime file is not there yet; and a rule waits for the tap's name."""
        self.on_kill(which)
        self.sim.tap(f"tap{which}", 7000 + which)
        rule = Rule(AF_INET6, 500, f"tap{which}", 100)
        if rule not in self.sim.host.kernel.rules:
            self.sim.host.kernel.add_rule(rule)
        for path in (self._pid(which), Path(self.sim.paths.proc, str(7000 + which), "x")):
            path.parent.mkdir(parents=True, exist_ok=True)
        self._pid(which).write_text(f"{7000 + which}\n")

    def on_fail(self, _which: int) -> None:
        """The kernel interrupts every dump, and OVSDB does not answer."""
        self.sim.host.busy = True

    def on_heal(self, _which: int) -> None:
        self.sim.host.busy = False

    def on_wait(self, which: int) -> None:
        """A fifth of the grace period, ..., or more than all of it."""
        self.now += (0.2, 0.5, 0.8, 1.1)[which] * GRACE

    def on_restart(self, _which: int) -> None:
        self.restarted()

    def on_reap(self, _which: int) -> None:
        self.reap()


class Hollow(Snapshot):
    """A snapshot in which the kernel tells of no device but the loopback."""

    def links(self) -> list[Link]:
        return [Link(1, "lo")]


def hollow(sim: Sim) -> Callable[[], View]:
    """In place of the host's ``snapshot``."""
    return lambda: Hollow(sim.host.view())


def histories(*names: str, length: int = 14, nics: int = 4, least: int = 1) -> st.SearchStrategy[list[Event]]:
    """Events of these names, about any of the first ``nics`` NICs, in any order."""
    return st.lists(st.tuples(st.sampled_from(names), st.integers(0, nics - 1)), min_size=least, max_size=length)


@contextmanager
def world(cap: int = CAP) -> Iterator[World]:
    """A new world, gone at the end. Nobody waits for a lock there: who holds one holds it for long."""
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(gc, "PATIENCE", 0.0)
        patch.setattr(nic_files, "PATIENCE", 0.0)
        made = World(folder, cap)
        try:
            yield made
        finally:
            made.close()


UNFINISHED = (APPLYING, REVERTING)
