"""Random histories of a node: whatever is called in whatever order, at the end nothing of ours is left, and what is not ours never moved.

Each request that a call makes is held against the devices that the call may touch: those of the NIC it is for.
"""

from __future__ import annotations

import tempfile
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from netcommon.host.api.requests import Request
from netcommon.lifecycle import execute
from runtime.environment import DownHint
from runtime.errors import NetcommonError
from runtime.nic import Nic
from tests.support.sample import FULL, drawn, sample
from tests.support.sim import MODES, UUIDS, Mortal, Sim, nic

pytestmark = pytest.mark.sampled(2)

NICS = st.integers(0, 2)
TAPS = st.sampled_from(["tap0", "tap1", "tap2"])
KINDS = st.sampled_from([mode for mode in MODES if mode != "routed, prefix"])
CONTEXTS = st.sampled_from(["shutdown", "hot-remove", "migrate"])
UPLINKS = {"eth-brv", "eth-br0", "nowhere"}


class History(RuleBasedStateMachine):
    """Three NICs and three taps of one machine."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.sim = Sim(self.folder.name)
        self.sim.host.remove_link("tap0")
        self.before = self.sim.picture()
        self.boots = 1
        for tap in ("tap0", "tap1", "tap2"):
            self.sim.tap(tap)

    def teardown(self) -> None:
        for tap in ("tap0", "tap1", "tap2"):
            self.sim.host.remove_link(tap)
        self.sim.gc()
        after = self.sim.picture()
        files = self.sim.files()
        if self.sim._store is not None:
            self.sim._store.close()
        self.folder.cleanup()
        assert after == self.before
        assert files == []

    def nic(self, number: int, tap: str, mode: str) -> Nic:
        """Each NIC has an address of its own, and all routed ones share the table."""
        changes = {
            "INTERFACE_UUID": UUIDS[number],
            "INTERFACE": tap,
            "INTERFACE_INDEX": str(number),
            "MAC": f"aa:00:00:00:00:0{number + 1}",
        }
        if MODES[mode]["MODE"] == "routed":
            changes["IP"] = f"fd00::{number}" if "IPv6" in mode else f"10.0.0.{number + 1}"
        return nic(mode, **changes)

    def devices(self, *uuids: str) -> set[str]:
        """The devices of these NICs by the records there are."""
        return {record.device for record in self.sim.records() if record.uuid in uuids}

    def observed(self, allowed: set[str], call: Any) -> None:
        """Runs ``call`` and holds every request's target, as it is at that moment, against ``allowed``."""
        strange: list[tuple[str, Request]] = []

        def watch(request: Request) -> None:
            target = self.sim.target(request)
            if target not in allowed | UPLINKS:
                strange.append((target, request))

        self.sim.host.fail = watch  # type: ignore[assignment]
        try:
            call()
        except NetcommonError:
            pass
        finally:
            self.sim.host.fail = lambda _request: None
        assert strange == []

    @rule(number=NICS, tap=TAPS, mode=KINDS)
    def up(self, number: int, tap: str, mode: str) -> None:
        one = self.nic(number, tap, mode)
        others = {record.uuid for record in self.sim.records() if record.device == tap}
        dead = self.devices(one.uuid, *others)
        self.observed({tap} | dead, lambda: self.sim.up(one))

    @rule(tap=TAPS)
    def plug(self, tap: str) -> None:
        if self.sim.index(tap) < 0:
            self.sim.tap(tap)

    @rule(tap=TAPS)
    def unplug(self, tap: str) -> None:
        self.sim.host.remove_link(tap)

    @rule(number=NICS, tap=st.one_of(st.just(""), TAPS), context=CONTEXTS)
    def down(self, number: int, tap: str, context: str) -> None:
        """With another's tap, too."""
        hint = DownHint(UUIDS[number], tap, "web1", number)
        self.observed(self.devices(UUIDS[number]), lambda: self.sim.down(hint, context))

    @rule(tap=TAPS, context=CONTEXTS)
    def down_by_device(self, tap: str, context: str) -> None:
        self.observed({tap}, lambda: self.sim.down(DownHint(device=tap), context))

    @rule()
    def gc(self) -> None:
        """Only what is closing, half done or gone."""
        abandoned = {
            record.device for record in self.sim.records() if record.state != "up" or self.sim.index(record.device) != record.ifindex
        }
        self.observed(abandoned, self.sim.gc)

    @rule(number=NICS, tap=TAPS, mode=KINDS, life=st.integers(0, 40))
    def killed_up(self, number: int, tap: str, mode: str, life: int) -> None:
        self.killed(life, lambda: self.sim.up(self.nic(number, tap, mode)))

    @rule(number=NICS, life=st.integers(0, 30))
    def killed_down(self, number: int, life: int) -> None:
        self.killed(life, lambda: self.sim.down(DownHint(UUIDS[number])))

    def killed(self, life: int, call: Any) -> None:
        with Mortal(self.sim, life):
            try:
                call()
            except NetcommonError:
                pass

    @rule()
    def reboot(self) -> None:
        self.boots += 1
        self.sim.reboot(f"boot-{self.boots}")

    @invariant()
    def what_is_not_ours_stays(self) -> None:
        kernel = self.sim.host.kernel
        assert [found for found in kernel.rules if found.protocol != 174] == self.before["rules"]
        assert sorted(found for found in kernel.routes if found.protocol != 174) == self.before["routes"]
        assert sorted(found for found in kernel.neighbours if found.protocol != 174) == self.before["neighbours"]
        assert {1, 20} <= set(kernel.vlans[self.sim.index("eth-brv")])
        assert [port.name for port in self.sim.host.switch.ports() if not port.owner] == ["eth-br1"]

    @invariant()
    def a_record_for_each_device_at_most(self) -> None:
        """Of two NICs' records for one living device one would undo the other's work; a kill may leave two of one NIC that say the same."""
        living = {(record.device, record.ifindex, record.uuid) for record in self.sim.records()}
        living = {each for each in living if self.sim.index(each[0]) == each[1]}
        assert len(living) == len({each[:2] for each in living})


@pytest.mark.parametrize("first", ["bridged", "openvswitch, dnsmasq"])
def test_up_elsewhere_after_a_kill(first: str) -> None:
    """Of the NIC's two records one has the file that is named after it, or both."""
    for life in range(41):
        history = History()
        history.killed_up(number=0, tap="tap0", mode=first, life=life)
        history.up(number=0, tap="tap1", mode="openvswitch, dnsmasq")
        history.down_by_device(tap="tap1", context="hot-remove")
        history.teardown()


@pytest.mark.parametrize("life", sample([*range(1, 25)], 6))
def test_another_comes_up_where_a_kill_has_left_two_records(life: int) -> None:
    """The NIC goes on owning what it shared (a setting of an uplink), at whatever moment the second up is killed too."""
    for first in (11, 15, 19):
        history = History()
        history.up(mode="routed, all options", number=0, tap="tap0")
        history.killed_up(life=first, mode="bridged", number=0, tap="tap1")
        history.killed_up(life=life, mode="bridged, access", number=2, tap="tap0")
        history.up(mode="routed, all options", number=2, tap="tap1")
        history.teardown()


def test_another_nic_has_the_device_where_kills_have_left_two_records_of_one() -> None:
    """Else gc would undo under it what the second of them says."""
    history = History()
    history.up(mode="ext", number=1, tap="tap2")
    kept = 0
    for first in range(1, 12):
        for second in range(10, 40, 3):
            history.killed_up(life=3, mode="bridged, access", number=1, tap="tap2")
            history.killed_up(life=first, mode="bridged", number=1, tap="tap0")
            history.killed_up(life=second, mode="bridged", number=1, tap="tap2")
            kept += sum(record.device == "tap2" for record in history.sim.records()) > 1
            history.up(mode="bridged", number=2, tap="tap2")
            history.a_record_for_each_device_at_most()
            history.sim.gc()
            (record,) = (each for each in history.sim.records() if each.uuid == UUIDS[2])
            assert execute.drift(history.sim.host.view(), execute.decode(record)[0]) == [] and record.state == "up"
            for number in range(3):
                history.down(number, "", "hot-remove")
            history.sim.gc()
            history.up(mode="ext", number=1, tap="tap2")
    assert kept > 3
    history.teardown()


def test_histories() -> None:
    run_state_machine_as_test(  # type: ignore[no-untyped-call]
        History,
        settings=settings(
            max_examples=drawn(60, 150, 1000),
            stateful_step_count=25,
            deadline=None,
            derandomize=not FULL,
            suppress_health_check=list(HealthCheck),
        ),
    )
