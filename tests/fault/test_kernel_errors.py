"""Calls of the real kernel and of Open vSwitch's database that fail: a request that cannot be sent, an answer that does not come.

strace(1) makes a system call of a hook fail without doing it, once or from then on. The hook succeeds all the same, or it fails with
the status that says whether to try again and leaves nothing; once the kernel answers again, the next call does all. (Every call and
every error are tried on the simulated host, in test_host_errors.py; this is a sample of the same on the real one.)
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import pytest

from tests.kernel.test_doors_parallel import collect
from tests.support import figures, strace
from tests.support.cases import CASES, Host, sampled, stored
from tests.support.netns import run, slowness, wait_until
from tests.support.ovs import OpenVswitch
from tests.support.rundoor import perform
from tests.support.sample import FULL
from tests.support.snapshot import diff, snapshot

DOORS: Mapping[str, tuple[str, tuple[str, ...]]] = {"up": ("kvm-ifup", ("tap0",)), "down": ("kvm-ifdown", ("tap0", "hot-remove"))}

#: System calls, and the errors that the kernel may answer them with: netlink(7), recv(2), a full queue, a lost or late answer.
ERRORS: Mapping[str, tuple[str, ...]] = {
    "sendto": ("ENOBUFS", "EPERM", "ENOMEM", "ECONNREFUSED"),
    "recvfrom": ("ENOBUFS", "EAGAIN", "EINTR", "ENOMEM"),
    "socket": ("EMFILE", "ENOBUFS", "EPERM"),
}
SAMPLED = ("routed4", "openvswitch", "spoof-guarded")  #: cases of a default run
ONCE = ("EINTR",)  #: for ever it would be a signal for each call, and Python itself repeats those (PEP 475)
MOST = 30  #: points of each case and door in a full run, about


class Point(NamedTuple):
    """The ``number``-th ``call`` (and those after it, for ever) fails with ``error``."""

    call: str
    number: int
    error: str
    ever: bool


def undisturbed(host: Host, door: str, arguments: tuple[str, ...], call: str) -> int:
    """How often a hook makes this system call."""
    ready(host, door)
    return strace.counted(door, host.nic, arguments, call)


def points(host: Host, door: str, arguments: tuple[str, ...], turn: int) -> tuple[list[Point], int]:
    """Spread over all there are, and how many those are; in a default run over those of one system call, in turn."""
    found = []
    for call, errors in ERRORS.items() if FULL else [list(ERRORS.items())[turn % len(ERRORS)]]:
        count = min(undisturbed(host, door, arguments, call) for _ in range(2))  # the node's very first may ask once more
        assert count > 1, call
        every = (Point(call, *each) for each in itertools.product(range(1, count + 1), errors, (False, True)))
        found += [point for point in every if not (point.ever and point.error in ONCE)]
    most = MOST if slowness() == 1 else MOST // 10  # a hook takes seconds in the virtual machine
    chosen = found[:: max(len(found) // most, 1) | 1]  # an odd stride meets every error
    return (chosen if FULL else [chosen[len(chosen) * (turn % 3 + 1) // 4]]), len(found)


def ready(host: Host, door: str) -> None:
    """The state in which the hook is called."""
    if door == "kvm-ifdown":
        host.up()
    else:
        perform("kvm-ifdown", host.nic, "tap0", "hot-remove")


def tried(host: Host, door: str, arguments: tuple[str, ...], point: Point) -> list[str]:
    """What is wrong after the disturbed call and after the next one."""
    when = f"{point.number}{'+' if point.ever else ''}"
    ready(host, door)
    ended, count = strace.disturbed(door, host.nic, arguments, point.call, f"error={point.error}", when)
    wait_until(lambda: not strace.orphans(), 20, "what the hook had started")
    where = f"status {ended.status}, {count} calls disturbed, {ended.stderr!r}"
    if ended.status not in (0, 69, 75) or count == 0:
        return [where]
    wrong: list[str] = []
    if ended.status == 0:
        wrong = host.unlike_whole() if door == "kvm-ifup" else diff(host.bare, snapshot())
    elif not ended.stderr:
        wrong = ["it failed without a word"]
    elif door == "kvm-ifup" and not point.ever:
        collect()  # a rollback that lost an answer too leaves the rest to gc
        wrong = diff(host.bare, snapshot())
    if wrong:
        return [where, *wrong]
    if door == "kvm-ifup":
        host.up()
        wrong = host.unlike_whole() + diff(host.record, stored())
    host.down()
    collect()
    for state in ("up", "down"):  # a device that is down when its qdisc is deleted has its usual one from the next up on
        run("ip", "link", "set", "tap0", state)
    wrong += diff(host.bare, snapshot())
    return [where, *wrong] if wrong else []


@pytest.mark.parametrize("case", ["openvswitch"])
def test_the_switch_is_waited_for_again(case: str, host: Host, ovs: OpenVswitch) -> None:
    """The question whether ovs-vswitchd has closed the device is not sent, and it has not: closing it, it takes the device up once more."""
    door, arguments = DOORS["down"]
    ready(host, door)
    asked = [each.what for each in strace.calls(door, host.nic, arguments, "sendto")]
    number = next(number for number, what in enumerate(asked, 1) if "monitor" in what)
    ready(host, door)
    ovs.freeze()
    with ThreadPoolExecutor(1) as pool:
        hook = pool.submit(strace.disturbed, door, host.nic, arguments, "sendto", "error=ECONNREFUSED", str(number))
        wait_until(lambda: hook.done() or len(strace.so_far()) > number, 20, "what the hook does next")
        ovs.thaw()
        ended, count = hook.result()
    ovs.vsctl("--timeout=60", "set", "Open_vSwitch", ".", "external_ids:thawed=again")  # the switch has done what had waited
    assert (ended.status, count) == (0, 1), ended
    ovs.vsctl("remove", "Open_vSwitch", ".", "external_ids", "thawed")
    assert diff(host.bare, snapshot()) == []


@pytest.mark.parametrize("case", sampled(SAMPLED))
def test_kernel_errors(case: str, host: Host) -> None:
    failures, tries, every = [], 0, 0
    for turn, (door, arguments) in enumerate(DOORS.values(), list(CASES).index(case)):
        chosen, there = points(host, door, arguments, turn)
        tries, every = tries + len(chosen), every + there
        for point in chosen:
            wrong = tried(host, door, arguments, point)
            if wrong:
                failures.append((door, point, wrong))
                host.up()
                host.down()
                collect()
    figures.add("host-errors", tries, len(failures), len(failures), "and a sample on the real kernel", every)
    assert failures == []
