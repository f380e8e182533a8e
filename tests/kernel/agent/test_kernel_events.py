"""What the agent makes of the kernel's events of a bridge's ports: each change that may be drift, and none that is the bridge's own."""

from __future__ import annotations

import select
from collections.abc import Callable, Iterator
from itertools import count

import pytest

from netagent.events import INDEX, Changed, Event, Gone
from netagent.kernel_events import KernelEvents
from tests.support.netns import ask, run, wait_until
from tests.support.node import Node

CHANGES = count()


@pytest.fixture
def port(node: Node) -> int:
    """The index of tap0, a port of br0."""
    node.bridge("br0")
    node.tap("tap0")
    run("ip", "link", "set", "tap0", "master", "br0", "up")
    return int(ask("ip", "-j", "link", "show", "dev", "tap0")[0]["ifindex"])


@pytest.fixture
def events(port: int) -> Iterator[KernelEvents]:
    made = KernelEvents()
    yield made
    made.close()


def state() -> str:
    return str(ask("bridge", "-j", "link", "show", "dev", "tap0")[0]["state"])


def told(events: KernelEvents, index: int, change: Callable[[], object]) -> list[Event]:
    """What it says about the device from before ``change`` until a change of another device after it is seen."""
    change()
    run("ip", "link", "set", "lo", "alias", f"after {next(CHANGES)}")
    found: list[Event] = []
    lo = (INDEX, 1)

    def marks(event: Event) -> tuple[object, ...]:
        return event.marks if isinstance(event, Changed | Gone) else ()

    while not any(lo in marks(event) for event in found):
        assert select.select([events.descriptor], [], [], 5)[0], "the kernel tells nothing"
        found += events.read()
    return [event for event in found if (INDEX, index) in marks(event)]


def carrier(there: bool) -> None:
    """As a guest does, or QEMU that ends: then the bridge looks at the port, some time later (linkwatch)."""
    run("ip", "link", "set", "tap0", "carrier", "on" if there else "off")
    wait_until(lambda: (state() == "forwarding") == there, 5, "the bridge has seen it")


def test_what_spanning_tree_says_is_nothing(events: KernelEvents, port: int) -> None:
    carrier(True)
    told(events, port, lambda: run("bridge", "link", "set", "dev", "tap0", "isolated", "on"))
    first = told(events, port, lambda: carrier(False))
    second = told(events, port, lambda: carrier(True))
    assert [event for event in (*first, *second) if event == Changed(((INDEX, port),))] == []


@pytest.mark.parametrize("flag", ["isolated", "hairpin", "learning", "flood", "mcast_flood", "guard", "neigh_suppress"])
def test_each_flag_is_told_each_time(events: KernelEvents, port: int, flag: str) -> None:
    now = ask("bridge", "-d", "-j", "link", "show", "dev", "tap0")[0][flag]
    told(events, port, lambda: run("bridge", "link", "set", "dev", "tap0", "cost", "7"))
    for value in (not now, now, not now):
        word = "on" if value else "off"
        assert told(events, port, lambda word=word: run("bridge", "link", "set", "dev", "tap0", flag, word)), word  # type: ignore[misc]
        assert told(events, port, lambda word=word: run("bridge", "link", "set", "dev", "tap0", flag, word)) == []  # type: ignore[misc]


def test_a_port_that_leaves_and_comes_back(events: KernelEvents, port: int) -> None:
    told(events, port, lambda: run("bridge", "link", "set", "dev", "tap0", "isolated", "on"))
    for _ in range(2):
        assert Gone(((INDEX, port),)) in told(events, port, lambda: run("ip", "link", "set", "tap0", "nomaster"))
        assert told(events, port, lambda: run("ip", "link", "set", "tap0", "master", "br0"))
