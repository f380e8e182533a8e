"""Devices that go without a down: QEMU was killed, the guest has powered off from inside, or Ganeti 3.0, which calls nothing."""

from __future__ import annotations

import os
import select
import signal
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from netagent.events import LinkGone
from netagent.sources.rtnetlink import KernelEvents
from tests.kernel.test_doors_parallel import environment
from tests.support.agent import Agent, Watched, agent, contention, seconds_until, watched
from tests.support.netns import run, slowness, wait_until
from tests.support.node import Node
from tests.support.rundoor import BASE, HOOKS, execute, rundoor
from tests.support.snapshot import diff, snapshot
from tests.support.tap import Tap

KILLS = 100

#: From the kernel's event to a clean host (seconds): median, and the slowest on a machine that others use too.
BAR, SLOWEST = 0.1, 0.5

SCRIPT = """#!/bin/sh
echo "$0 $1 $2" >>/run/site.log
"""


@pytest.fixture
def placed(node: Node) -> Node:
    """Each folder of ours is there: a NIC has been up and down."""
    node.router()
    node.tap("tap9")
    assert rundoor("kvm-ifup", environment(9)).status == 0
    assert rundoor("kvm-ifdown", environment(9), "tap9", "hot-remove").status == 0
    return node


class Gone:
    """Notes when the kernel tells that a device is gone."""

    def __init__(self) -> None:
        self._events = KernelEvents()
        self._seen: dict[int, float] = {}
        self._reader, self._writer = os.pipe()
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()

    def _listen(self) -> None:
        while self._reader not in select.select([self._events.descriptor, self._reader], [], [])[0]:
            now = time.monotonic()
            self._seen.update({event.ifindex: now for event in self._events.read() if isinstance(event, LinkGone)})

    def when(self, ifindex: int) -> float:
        wait_until(lambda: ifindex in self._seen, 5, f"the kernel's event for {ifindex}")
        return self._seen[ifindex]

    def close(self) -> None:
        os.write(self._writer, b"x")
        self._thread.join()
        self._events.close()
        os.close(self._reader)
        os.close(self._writer)


@pytest.fixture
def gone(node: Node) -> Iterator[Gone]:
    made = Gone()
    yield made
    made.close()


def test_a_killed_guest_leaves_nothing(placed: Node, gone: Gone) -> None:
    """A hundred times: from the kernel's event to the host without a trace of the NIC, but for what the agent was kept from a processor."""
    took = []
    with agent() as running, watched() as seen:
        before = snapshot()
        for number in range(KILLS):
            tap = Tap("tap0")
            assert rundoor("kvm-ifup", environment()).status == 0
            record, waited = seen.records["tap0"], running.waited()
            tap.close()
            seconds_until(partial(removed, seen.node.store.path(record.key)), 5, f"kill {number}: {running.output}")
            took.append(time.monotonic() - gone.when(record.ifindex) - (running.waited() - waited))
        assert diff(before, snapshot()) == []
    median, most = statistics.median(took), max(took)
    print(f"{KILLS} kills, from the kernel's event to a clean host: median {median * 1e3:.1f} ms, max {most * 1e3:.1f} ms")
    assert median < BAR * slowness() * contention() and most < SLOWEST * slowness() * contention()


def removed(path: str) -> bool:
    return not os.path.exists(path)


def test_the_scripts_that_are_owed_are_run(placed: Node) -> None:
    """In context device-gone, and a script that takes long keeps no other NIC waiting."""
    for name in ("kvm-ifup-custom", "kvm-ifdown-custom"):
        path = Path(f"/etc/ganeti/{name}")
        path.write_text(SCRIPT + ("[ $INTERFACE = tap0 ] && sleep 2\n:\n" if "ifdown" in name else ""))
        path.chmod(0o755)
    with agent(settings='[custom]\norder = "after"\n') as running, watched() as seen:
        taps = [Tap(f"tap{number}") for number in range(2)]
        for number in range(2):
            assert rundoor("kvm-ifup", environment(number)).status == 0
        for tap in taps:
            tap.close()
        seconds_until(lambda: "tap1" not in seen.records, 1.5, running.output)
        assert "tap0" in seen.records, "its script still runs"
        wait_until(lambda: not seen.records, 10, running.output)
    lines = Path("/run/site.log").read_text().splitlines()
    assert sum("ifup" in line for line in lines) == 2
    assert sorted(line.split()[-2:] for line in lines if "ifdown" in line) == [["tap0", "device-gone"], ["tap1", "device-gone"]]


def shutdown() -> None:
    """As Ganeti 3.2 calls down: by a process that does not hold the tap, while the guest still shuts down."""
    argv = ["timeout", "60", str(HOOKS / "kvm-ifdown"), "tap0"]
    assert execute(argv, {**BASE, **environment()}).status == 0


def test_a_closing_nic_is_finished_when_its_device_goes(placed: Node) -> None:
    with agent() as running, watched() as seen:
        before = snapshot()
        tap = Tap("tap0")
        assert rundoor("kvm-ifup", environment()).status == 0
        shutdown()
        assert seen.records["tap0"].state == "closing" and seen.drift() == []
        tap.close()
        took = seconds_until(lambda: not seen.records, 5, running.output)
        assert diff(before, snapshot()) == []
    print(f"a closing NIC was finished {took * 1e3:.1f} ms after its device went")


def test_a_closing_nic_is_finished_when_its_device_is_let_go(placed: Node) -> None:
    """A persistent tap: it stays, and what we did on it is undone."""
    with agent() as running, watched() as seen:
        tap = placed.tap("tap0", persistent=True)
        for state in ("up", "down"):  # its queueing discipline is there from the first time on
            run("ip", "link", "set", "tap0", state)
        before = snapshot()
        assert rundoor("kvm-ifup", environment()).status == 0
        shutdown()
        assert seen.records["tap0"].state == "closing"
        tap.close()
        seconds_until(lambda: not seen.records, 5, running.output)
        assert diff(before, snapshot()) == []
    Tap("tap0", persistent=True).delete()


def replaced_unseen(node: Node, running: Agent) -> None:
    """A NIC is up on tap0; the agent is stopped; the tap goes, and there is another one of its name."""
    tap = Tap("tap0")
    assert rundoor("kvm-ifup", environment()).status == 0
    running.signal(signal.SIGSTOP)
    tap.close()
    node.tap("tap0")


def test_the_same_name_with_another_index_is_another_device(placed: Node) -> None:
    """The agent sleeps while the tap goes and somebody else makes one of the same name: that one is not touched."""
    with agent() as running, watched() as seen:
        replaced_unseen(placed, running)
        # Without an address of the kernel's own, whose detection of duplicates would end while the agent works.
        # Before it is up: in one request the kernel takes a device up first.
        run("ip", "link", "set", "tap0", "addrgenmode", "none")
        run("ip", "link", "set", "tap0", "up", "alias", "somebody else's")
        run("ip", "address", "add", "203.0.113.9/32", "dev", "tap0")
        successor = run("ip", "-d", "addr", "show", "dev", "tap0")
        rules = run("ip", "rule")
        assert "iif tap0" in rules
        running.signal(signal.SIGCONT)
        seconds_until(lambda: not seen.records, 5, running.output)
        assert "iif tap0" not in run("ip", "rule")
        assert run("ip", "-d", "addr", "show", "dev", "tap0") == successor


def test_a_successor_of_ours_is_not_touched(placed: Node) -> None:
    """DELLINK of the old one is read when the new NIC on that name is up already."""
    with agent() as running, watched() as seen:
        replaced_unseen(placed, running)
        other = environment(5, INTERFACE="tap0")
        assert rundoor("kvm-ifup", other).status == 0
        running.signal(signal.SIGCONT)
        settled(running, lambda: list(seen.records) == ["tap0"] and seen.records["tap0"].uuid == other["INTERFACE_UUID"])
        assert seen.drift() == []


def settled(running: Agent, condition: Callable[[], bool]) -> None:
    """The condition holds, and still does after the agent has seen another NIC come and go."""
    wait_until(condition, 5, running.output)
    with watched() as seen:
        tap = Tap("tap8")
        assert rundoor("kvm-ifup", environment(8)).status == 0
        tap.close()
        seconds_until(lambda: "tap8" not in seen.records, 5, running.output)
    assert condition(), running.output


def test_many_at_once(placed: Node) -> None:
    """A node's worth of guests is killed in one go."""
    count = 60
    with agent() as running, watched() as seen:
        before = snapshot()
        taps = [Tap(f"tap{number}") for number in range(10, 10 + count)]
        for number in range(10, 10 + count):
            assert rundoor("kvm-ifup", environment(number)).status == 0
        surveys = running.surveys()
        for tap in taps:
            tap.close()
        took = seconds_until(lambda: not seen.records, 10, running.output)
        assert running.surveys() - surveys <= 2, "each of them goes by what the kernel says of it, not by a snapshot"
        assert diff(before, snapshot()) == []
    print(f"{count} taps that went at once: clean {took * 1e3:.0f} ms after the last")


def test_without_an_agent_nothing_changes(placed: Node) -> None:
    """What the tests above show is the agent's doing."""
    with watched() as seen:
        tap = Tap("tap0")
        assert rundoor("kvm-ifup", environment()).status == 0
        tap.close()
        with pytest.raises(AssertionError):
            seconds_until(lambda: not seen.records, 0.3)


def test_killed_in_between(placed: Node) -> None:
    """What happened while there was no agent is found by the next one."""
    with agent() as running, watched() as seen:
        before = snapshot()
        taps = [Tap(f"tap{number}") for number in range(3)]
        for number in range(3):
            assert rundoor("kvm-ifup", environment(number)).status == 0
        running.stop(signal.SIGKILL)
        taps[0].close()
        run("ip", "rule", "del", "iif", "tap1")
        assert seen.drift("tap1") and "tap0" in seen.records
        running.start()
        took = seconds_until(lambda: "tap0" not in seen.records and not seen.drift("tap1"), 5, running.output)
        print(f"killed, and started anew: all is right {took * 1e3:.0f} ms after it was ready")
        for tap in taps[1:]:
            tap.close()
        seconds_until(lambda: not seen.records, 5, running.output)
        assert [line for line in diff(before, snapshot()) if "/agent/" not in line] == []


def test_watched_sees(placed: Node) -> None:
    """The helper does see drift."""
    with watched() as seen:
        placed.tap("tap0")
        assert rundoor("kvm-ifup", environment()).status == 0
        assert Watched(seen.node).drift() == []
        run("ip", "rule", "del", "iif", "tap0")
        assert seen.drift() != []
