"""A NIC that is up is changed, and the hook is killed, or refused, at any system call: it is what it was, or what it was to become.

The change is an up of the same NIC with other variables. kill -9 comes before every system call that changes something; the errors are
those of test_kernel_errors. Between the fault and what sets it right gc runs, which must leave a NIC alone whose device is there.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, NamedTuple

import pytest

from tests.fault.test_kernel_errors import ERRORS, ONCE, Point
from tests.kernel.test_doors_parallel import collect
from tests.support import figures, strace
from tests.support.cases import CASES, UNGUARDED, Host, network, stored
from tests.support.netns import slowness, wait_until
from tests.support.routed import mend
from tests.support.rundoor import perform
from tests.support.sample import FULL
from tests.support.snapshot import Snapshot, diff, snapshot

#: The case that the NIC is up in, and what changes.
CHANGES: Mapping[str, tuple[str, Mapping[str, str]]] = {
    "address": ("routed4", {"IP": "10.0.0.9"}),
    "table": ("routed4", {"LINK": "101"}),
    "options": ("spoof-guarded", {"TAGS": "netcommon:*:rate_in:9mbit netcommon:*:allow_ip_spoofing"}),
    "guard": ("bridged", {"TAGS": "netcommon:*:isolated:no"}),
    "VLAN": ("openvswitch", {"VLAN": ".11:21"}),
    "to bridged": ("routed4", CASES["spoof-guarded"]),
    "to routed": ("bridged", CASES["routed4"] | {"MODE": "routed", "LINK": "100", "IP": "10.0.0.1"}),
    "from openvswitch": ("spoof-guarded openvswitch", {**CASES["spoof-guarded"], "VLAN": ""}),
    "VLANs of the bridge": ("bridged+VLAN", {"VLAN": ".11:20", "TAGS": UNGUARDED}),
}
NAMES = [
    pytest.param(case, name, marks=[pytest.mark.vm, pytest.mark.slow] if "VLANs" in name else [], id=name)
    for name, (case, _changes) in CHANGES.items()
]

MOST = 30  #: points of each change and errors in a full run, about


class State(NamedTuple):
    """The network and the records, as an undisturbed up leaves them."""

    network: Snapshot
    records: Mapping[str, Any]


class Change:
    """A node on which a NIC is up, and the variables of the change; what both look like undisturbed."""

    def __init__(self, host: Host, changes: Mapping[str, str]) -> None:
        self.host, self.first, self.second = host, host.nic, {**host.nic, **changes}
        self.before = State(host.whole, host.record)
        self.ready()
        assert perform("kvm-ifup", self.second).status == 0
        self.after = State(network(), stored())
        assert diff(self.before.network, self.after.network)
        host.down()
        collect()
        self.bare = snapshot()  # folders that only the change makes stay
        self.moments = self.traced()

    def ready(self) -> None:
        """The NIC is up as before the change, on a tap that has seen nothing else."""
        self.host.down()
        collect()
        self.host.up()

    def traced(self) -> list[strace.Moment]:
        self.ready()
        return strace.moments("kvm-ifup", self.second, ("tap0",))

    def unlike(self, states: tuple[State, ...]) -> list[str]:
        """Say how the node differs from each of them, "" if it is like one."""
        now = State(network(), stored())
        found = [[*diff(state.network, now.network), *diff(dict(state.records), dict(now.records))] for state in states]
        return [] if [] in found else [text for one in found for text in (*one, "or:")]

    def settled(self) -> list[str]:
        """Say what is wrong after gc and repair; then the NIC goes down, and what is left of it."""
        collect()
        said = mend()
        if "openvswitch" in (self.first["MODE"], self.second["MODE"]):
            with suppress(AssertionError):  # the switch takes a device in by itself
                wait_until(lambda: not self.unlike((self.before, self.after)), 3)
        wrong = self.unlike((self.before, self.after))
        assert perform("kvm-ifdown", self.first, "tap0", "hot-remove").status == 0
        collect()
        self.host.plug()
        return [*wrong, *said] if wrong else diff(self.bare, snapshot())


@pytest.fixture
def change(host: Host, name: str) -> Change:
    return Change(host, CHANGES[name][1])


@pytest.mark.no_agent("kills the hook's own process, and repair finds what it left")
@pytest.mark.parametrize(("case", "name"), NAMES)
def test_killed(case: str, name: str, change: Change) -> None:
    """kill -9 before any system call that changes something."""
    turn = list(CHANGES).index(name)
    every = change.moments
    chosen = every[turn % 2 :: 2] if FULL and slowness() == 1 else [every[int(len(every) * (turn * 5 % 9 + 0.5) / 9)]]
    failures = []
    for moment in chosen:
        change.ready()
        status = strace.killed("kvm-ifup", change.second, ("tap0",), moment)
        wait_until(lambda: not strace.orphans(), 20, "what the killed hook had started")
        wrong = change.settled() if status == -9 else [f"it was not killed, but ended with {status}"]
        if wrong:
            failures.append((str(moment), wrong))
    figures.add("change", len(chosen), len(failures), len(failures), "killed", len(every))
    assert failures == []


@pytest.mark.parametrize(("case", "name"), NAMES)
def test_refused(case: str, name: str, change: Change) -> None:
    """A request that cannot be sent, an answer that does not come: once, and from then on."""
    chosen, every = points(change, list(CHANGES).index(name))
    failures = []
    for point in chosen:
        when = f"{point.number}{'+' if point.ever else ''}"
        change.ready()
        ended, count = strace.disturbed("kvm-ifup", change.second, ("tap0",), point.call, f"error={point.error}", when)
        wait_until(lambda: not strace.orphans(), 20, "what the hook had started")
        where = f"status {ended.status}, {count} calls disturbed, {ended.stderr!r}"
        wrong = [] if ended.status in (0, 69, 75) and count else [where]
        if ended.status and not ended.stderr:
            wrong.append("it failed without a word")
        if ended.status == 0:
            wrong += change.unlike((change.after,)) if change.second["MODE"] != "openvswitch" else []
        wrong += change.settled()
        if wrong:
            failures.append((point, where, wrong))
    figures.add("change", len(chosen), len(failures), len(failures), "refused", every)
    assert failures == []


def points(change: Change, turn: int) -> tuple[list[Point], int]:
    """Spread over all there are, and how many those are; in a default run one."""
    found: list[Point] = []
    for call, errors in ERRORS.items() if FULL else [list(ERRORS.items())[turn % len(ERRORS)]]:
        change.ready()
        count = strace.counted("kvm-ifup", change.second, ("tap0",), call)
        every = (Point(call, *each) for each in itertools.product(range(1, count + 1), errors, (False, True)))
        found += [point for point in every if not (point.ever and point.error in ONCE)]
    most = MOST if slowness() == 1 else MOST // 10
    chosen = found[:: max(len(found) // most, 1) | 1]
    return (chosen if FULL else [chosen[len(chosen) * (turn % 3 + 1) // 4]]), len(found)
