"""``netcommon change``, or what a registry wants, is killed, or refused, at any system call while the guest sends without a pause.

Beside it is a guest that nobody touches.

The NIC is what it was or what it was to become, at the latest after one repair, and so is what is kept of its options; the guest is silent
no longer than the one beside it, and nothing passes that both the old rules and the new ones refuse.
"""

from __future__ import annotations

import itertools
import signal
import subprocess
from collections.abc import Iterator, Mapping

import pytest

from netcommon.lifecycle.change import change, setting
from netcommon.lifecycle.context import Call
from netcommon.log import recording
from tests.fault.test_change import State
from tests.fault.test_kernel_errors import ERRORS, ONCE, Point
from tests.kernel.test_doors_parallel import collect, environment
from tests.support import figures, strace
from tests.support.agent import contention
from tests.support.bootstrap import VENV
from tests.support.cases import network, stored
from tests.support.netns import slowness, wait_until
from tests.support.node import Node
from tests.support.pushing import ALONE, pushed
from tests.support.routed import mend, ours
from tests.support.sample import sample
from tests.support.snapshot import diff
from tests.support.streams import Streams, guests
from tests.support.tap import Tap

NETCOMMON, PYTHON = str(VENV / "bin/netcommon"), str(VENV / "bin/python")
UUID = environment(0)["INTERFACE_UUID"]
#: Who changes the NIC: the command, or a push.
WAYS = ("change", "push")
#: What is changed in each mode: what the guest may send, and what of its device or port goes with it.
WORDS: Mapping[str, tuple[str, ...]] = {
    "bridged": ("allow_ip_spoofing=yes", "isolated=yes", "rate_in=900mbit", "mcast_flood=no", "static_fdb=yes"),
    "routed": ("allow_ip_spoofing=yes", "addresses=10.0.0.9", "rate_in=900mbit", "blackhole=yes"),
    "openvswitch": ("allow_ip_spoofing=yes", "rate_out=900mbit"),
}
LINKS = {"bridged": "br0", "routed": "main", "openvswitch": "ovs0"}
SILENCE = 0.05  #: seconds that a guest may be silent longer than the one beside it
MOST = 40  #: errors of each mode in a full run, about
SAMPLED, WHOLE = 2, 16  #: kills, and errors, of each mode in a default run, and in a full one


class Changed:
    """Three guests, and the change of the first."""

    def __init__(self, taps: list[Tap], mode: str, way: str) -> None:
        self.taps, self.mode, self.way, self.program = taps, mode, way, NETCOMMON
        self.there: tuple[str, ...] = ("change", "tap0", *WORDS[mode])
        if way == "push":
            self.program, self.there = PYTHON, (ALONE, UUID, "e:2", *WORDS[mode])
            self.go_back()
        self.before = self.state()
        self.run(*self.there)
        self.after = self.state()
        assert diff(self.before.network, self.after.network)
        self.go_back()
        assert self.unlike() == []

    def state(self) -> State:
        return State(network(), stored())

    def run(self, *words: str) -> None:
        done = subprocess.run([self.program, *words], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done

    def go_back(self) -> None:
        """Let the NIC be again what it was, in this process."""
        if self.way == "push":
            pushed(UUID, "e:1")
            return
        names = [each.partition("=")[0] for each in WORDS[self.mode]]
        with ours() as node:
            change(node, UUID, Call(recording()[0], node.clock.now() + 20), setting(node, {}, names))

    def unlike(self) -> list[str]:
        """Say how the node differs from what it was and from what it was to become, if it is neither."""
        now = self.state()
        found = [[*diff(state.network, now.network), *diff(dict(state.records), dict(now.records))] for state in (self.before, self.after)]
        return [] if [] in found else [text for one in found for text in (*one, "or:")]

    def settled(self, streams: Streams) -> list[str]:
        """Say what is wrong after the fault, and after gc and one repair; then the NIC is what it was."""
        collect()
        said = mend()
        wrong = self.unlike()
        wrong += said if wrong else []
        streams.passes()  # it is heard again, or this fails
        self.go_back()
        now = self.state()
        return [*wrong, *diff(self.before.network, now.network), *diff(dict(self.before.records), dict(now.records))]


def silent(streams: Streams) -> list[str]:
    """Say by how much the guest was silent longer than the one beside it, and what passed that may not."""
    own, beside = streams.silence
    found = [f"{streams.strange} frames of another MAC passed"] if streams.strange else []
    late = own - beside
    if late > SILENCE * slowness() and late > SILENCE * slowness() * contention():  # which takes a while to say
        found.append(f"silent for {own:.3f} s, the guest beside it {beside:.3f} s")
    return found


@pytest.fixture
def changed(node: Node, mode: str, way: str, request: pytest.FixtureRequest) -> Iterator[Changed]:
    if mode == "bridged":
        node.bridge("br0")
    elif mode == "openvswitch":
        request.getfixturevalue("ovs").bridge("ovs0")
    else:
        node.router()
    with guests(node, mode, LINKS[mode]) as taps:
        yield Changed(taps, mode, way)


@pytest.mark.no_agent("kills the command's own process, and repair finds what it left")
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("mode", WORDS)
def test_killed(changed: Changed, mode: str, way: str) -> None:
    """kill -9 before any system call that changes something."""
    every = strace.moments(changed.program, {}, changed.there)
    changed.go_back()
    failures, longest = [], 0.0
    chosen = sample(every, SAMPLED, WHOLE)
    for moment in chosen:
        with Streams(changed.taps, mode) as streams:
            status = strace.killed(changed.program, {}, changed.there, moment)
            wait_until(lambda: not strace.orphans(), 20, "what the killed command had started")
            wrong = changed.settled(streams) if status == -9 else [f"it was not killed, but ended with {status}"]
        longest = max(longest, streams.silence[0] - streams.silence[1])
        if wrong := [*wrong, *silent(streams)]:
            failures.append((str(moment), wrong))
    print(f"{mode}, {way}: {len(chosen)} kills of {len(every)}; silent at most {longest * 1e3:.0f} ms longer than the guest beside it")
    figures.add("change-command", len(chosen), len(failures), len(failures), "killed", len(every))
    assert failures == []


@pytest.mark.parametrize("way", WAYS[:1])  # an agent that is told to end does not end what it is at
@pytest.mark.parametrize("mode", WORDS)
def test_told_to_end(changed: Changed, mode: str) -> None:
    """SIGTERM before any system call that changes something: it ends by itself what it has begun, or takes it back."""
    every = strace.moments(NETCOMMON, {}, changed.there)
    changed.go_back()
    failures = []
    chosen = sample(every, SAMPLED, WHOLE)
    for moment in chosen:
        with Streams(changed.taps, mode) as streams:
            ended = strace.told_to_end(NETCOMMON, {}, changed.there, moment)
            wrong = changed.unlike()
            late = ended.status == 0 and "after the NIC's own work" in ended.stderr
            wrong += [] if "ended by signal 15" in ended.stderr and (late or ended.status == -signal.SIGTERM) else [str(ended)]
            changed.go_back()
            streams.passes()
        if wrong := [*wrong, *changed.unlike(), *silent(streams)]:
            failures.append((str(moment), wrong))
    figures.add("change-command", len(chosen), len(failures), len(failures), "told to end", len(every))
    assert failures == []


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("mode", WORDS)
def test_refused(changed: Changed, mode: str, way: str) -> None:
    """A request that cannot be sent, an answer that does not come: once, and from then on."""
    chosen, every = points(changed)
    failures = []
    for point in chosen:
        when = f"{point.number}{'+' if point.ever else ''}"
        with Streams(changed.taps, mode) as streams:
            ended, count = strace.disturbed(changed.program, {}, changed.there, point.call, f"error={point.error}", when)
            wait_until(lambda: not strace.orphans(), 20, "what the command had started")
            where = f"status {ended.status}, {count} calls disturbed, {ended.stderr!r}"
            wrong = [] if ended.status in (0, 69, 75) and count else [where]
            wrong += ["it failed without a word"] if ended.status and not ended.stderr else []
            wrong += changed.settled(streams)
        if wrong := [*wrong, *silent(streams)]:
            failures.append((str(point), [where, *wrong]))
    figures.add("change-command", len(chosen), len(failures), len(failures), "refused", every)
    assert failures == []


def points(changed: Changed) -> tuple[list[Point], int]:
    """Spread over all there are, and how many those are."""
    found: list[Point] = []
    for call, errors in ERRORS.items():
        count = strace.counted(changed.program, {}, changed.there, call)
        changed.go_back()
        every = (Point(call, *each) for each in itertools.product(range(1, count + 1), errors, (False, True)))
        found += [point for point in every if not (point.ever and point.error in ONCE)]
    spread = found[:: max(len(found) // MOST, 1) | 1]
    return sample(spread, SAMPLED, WHOLE), len(found)
