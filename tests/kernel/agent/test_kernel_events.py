"""Say what the agent makes of the kernel's events: each change that may be drift, and none that is the bridge's own, or the agent's."""

from __future__ import annotations

import select
from collections.abc import Callable, Iterator
from itertools import count

import pytest

from netagent.events import BASE, INDEX, NAME, PORTS, TABLE, UPLINKS, Came, Changed, Event, Gone
from netagent.sources.nft_events import NftEvents
from netagent.sources.rtnetlink import KernelEvents
from netcommon.host.api.facts import AF_INET, AF_INET6
from netcommon.host.api.nftables import INET, MARK, Drop, NftTable, Put
from netcommon.host.api.requests import NftChange
from netcommon.host.nftables.client import Nftables
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
    return [event for event in heard(events, change) if (INDEX, index) in marks(event)]


def marks(event: Event) -> tuple[object, ...]:
    return event.marks if isinstance(event, Changed | Gone) else ()


def heard(events: KernelEvents, change: Callable[[], object]) -> list[Event]:
    """The same, about all devices."""
    change()
    run("ip", "link", "set", "lo", "alias", f"after {next(CHANGES)}")
    found: list[Event] = []
    lo = (INDEX, 1)
    while not any(lo in marks(event) for event in found):
        assert select.select([events.descriptor], [], [], 5)[0], "the kernel tells nothing"
        found += events.read()
    return found


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


def test_what_may_be_an_uplink_is_told_of_when_it_joins_a_bridge(events: KernelEvents, port: int) -> None:
    """Once for each time, and when its MTU is another, whatever else is said of it; of taps, which come by the thousand, never."""
    run("ip", "link", "add", "vx0", "type", "vxlan", "id", "5", "dstport", "4789")
    bridge = ask("ip", "-j", "link", "show", "dev", "br0")[0]["ifindex"]
    joined = Came(((PORTS, bridge),))
    for _ in range(2):
        found = heard(events, lambda: run("ip", "link", "set", "vx0", "master", "br0"))
        assert found.count(joined) == 1
        assert joined not in heard(events, lambda: run("ip", "link", "set", "vx0", "up"))
        for size in ("1400", "1450"):
            assert heard(events, lambda size=size: run("ip", "link", "set", "vx0", "mtu", size)).count(joined) == 1  # type: ignore[misc]
        found = heard(events, lambda: run("ip", "link", "set", "vx0", "nomaster", "down"))
        assert joined not in found and any((NAME, "vx0") in marks(event) for event in found)
    heard(events, lambda: run("ip", "link", "set", "tap0", "nomaster"))
    assert joined not in heard(events, lambda: run("ip", "link", "set", "tap0", "master", "br0"))


def comes(events: KernelEvents, *change: str) -> list[Came]:
    """Give what it says has come."""
    found: list[Event] = []
    run(*change)
    run("ip", "link", "set", "lo", "alias", f"after {next(CHANGES)}")
    while not any(isinstance(event, Changed) and (INDEX, 1) in event.marks for event in found):
        assert select.select([events.descriptor], [], [], 5)[0], "the kernel tells nothing"
        found += events.read()
    return [event for event in found if isinstance(event, Came) and (NAME, "lo") not in event.marks]


OF_THE_NODE = {
    "a rule": ("rule", "add", "from", "192.0.2.99", "table", "77"),
    "a rule of IPv6": ("-6", "rule", "add", "from", "2001:db8::99", "table", "77"),
    "an address": ("address", "add", "192.0.2.99/24", "dev", "lo"),
}


@pytest.mark.parametrize("change", OF_THE_NODE)
def test_what_no_nic_is_about_is_told_as_well(events: KernelEvents, change: str) -> None:
    """A registry is told of the node's addresses and tables; the device that ends ``heard`` has no such event."""
    heard(events, lambda: None)
    assert Changed(()) in heard(events, lambda: run("ip", *OF_THE_NODE[change]))


def test_what_nics_stand_on_comes(events: KernelEvents, port: int) -> None:
    """A device by its name, however it has got it; a default route of a family."""
    comes(events, "ip", "link", "set", "br0", "up")
    assert Came(((BASE, "br9"), (NAME, "br9"))) in comes(events, "ip", "link", "add", "br9", "type", "bridge")
    assert comes(events, "ip", "link", "set", "br9", "mtu", "1400") == []
    assert Came(((BASE, "br8"), (NAME, "br8"), (NAME, "br9"))) in comes(events, "ip", "link", "set", "br9", "name", "br8")
    comes(events, "ip", "addr", "add", "192.0.2.2/24", "dev", "br0")
    assert Came(((UPLINKS, AF_INET),)) in comes(events, "ip", "route", "add", "default", "dev", "br0", "table", "100")
    assert Came(((UPLINKS, AF_INET6),)) in comes(events, "ip", "-6", "route", "add", "default", "dev", "br0", "table", "100")
    assert comes(events, "ip", "route", "del", "default", "dev", "br0", "table", "100") == []
    assert comes(events, "ip", "route", "add", "198.51.100.0/24", "dev", "br0") == []


def test_the_agents_own_changes_of_nftables_are_no_events(node: Node) -> None:
    """It has looked at what it has made: else each repair would be a reason for looks at all that share the table."""
    table = NftTable(INET, f"{MARK}-test", comment=MARK)
    changes, theirs = Nftables(5), Nftables(5)
    events = NftEvents({changes.netlink.port()})
    for client in (changes, theirs):
        for step in (Put(table), Drop(table)):
            assert client.execute(NftChange("a test", (step,), "")).ok
    marks = ((TABLE, (INET, table.name)),)
    assert events.read() == [Changed(marks), Gone(marks)], "those of somebody else alone"
    events.close()
    changes.close()
    theirs.close()
