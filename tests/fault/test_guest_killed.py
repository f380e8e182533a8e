"""A guest killed with SIGKILL, under the agent: how long it takes from the kernel's event to a host without a trace of its NIC."""

from __future__ import annotations

import os
import signal
import statistics
import time
from collections.abc import Mapping
from functools import partial

import pytest

from tests.kernel.agent.test_gone import BAR, Gone, removed
from tests.kernel.test_doors_parallel import environment
from tests.support import figures
from tests.support.agent import MOST_NODES, NODE_DESCRIPTORS, agent, seconds_until, watched
from tests.support.netns import slowness
from tests.support.node import Node
from tests.support.rundoor import rundoor
from tests.support.sample import FULL
from tests.support.snapshot import diff, snapshot
from tests.support.tap import Tap

KILLS = 100 if FULL else 10
SLOWEST = 1.0  #: seconds, on a machine that other tests and programs use too
NICS: Mapping[str, Mapping[str, str]] = {"routed": {}, "bridged": {"MODE": "bridged", "LINK": "br0"}}


def guest() -> int:
    """A process that holds tap0, as QEMU does."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            held = Tap("tap0")
            os.write(writer, b"x")
            while held.descriptors:
                signal.pause()
        finally:
            os._exit(1)
    os.close(writer)
    assert os.read(reader, 1) == b"x", "there is no tap"
    os.close(reader)
    return child


@pytest.mark.no_agent("starts agents of its own")
@pytest.mark.parametrize("kind", NICS)
def test_killed_guests(node: Node, kind: str) -> None:
    """The median is within the bar; the slowest, on a machine that does other things too, within its own."""
    node.router()
    node.bridge("br0")
    nic, took = environment(0, **NICS[kind]), []
    gone = Gone()
    try:
        with agent() as running, watched() as seen:
            for number in range(KILLS + 1):
                child = guest()
                assert rundoor("kvm-ifup", nic).status == 0
                record = seen.records["tap0"]
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)
                seconds_until(partial(removed, seen.node.store.path(record.key)), 5, f"kill {number}: {running.output}")
                took.append(time.monotonic() - gone.when(record.ifindex))
                if number == 0:  # the first makes what stays: folders, and tables with rules alone
                    before = snapshot()
                    took.clear()
            assert diff(before, snapshot()) == []
            assert running.nodes <= MOST_NODES
            assert running.descriptors <= 20 + NODE_DESCRIPTORS * running.nodes, "it keeps what it has opened for a guest"
    finally:
        gone.close()
    median, most = statistics.median(took), max(took)
    late = sum(one > BAR * slowness() for one in took)
    note = f"{kind}: median {median * 1e3:.1f} ms, maximum {most * 1e3:.1f} ms"
    print(note)
    failed = int(median > BAR * slowness() or most > SLOWEST * slowness())
    figures.add("guest-killed", KILLS, failed, failed, f"{note}, {late} later than 100 ms" if late else note)
    assert not failed, note
