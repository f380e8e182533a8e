"""Check what a node tells of itself: its own NICs with their addresses and state, and what there is for guests; nothing of the guests'."""

from __future__ import annotations

import uuid
from types import SimpleNamespace
from typing import Any, cast

import pytest

from netagent.sync.about import about
from netcommon.host.api.facts import AF_INET, AF_INET6, Address, Link, Rule
from netregistry.model.codec import read, write
from netregistry.model.node import About
from runtime.errors import HostRefused
from tests.support.registry import NODES

LINKS = [
    Link(1, "lo", address="00:00:00:00:00:00", up=True),
    Link(2, "eth0", address="52:54:00:00:00:01", up=True),
    Link(3, "eth1", address="52:54:00:00:00:02"),
    Link(4, "blue", kind="bridge", address="52:54:00:00:00:01", up=True),
    Link(5, "eth0.7", kind="vlan", address="52:54:00:00:00:01", up=True, vlan=7),
    Link(6, "tap0", kind="tun", address="fe:00:00:00:00:01", up=True),
    Link(7, "ib0", address="80:00:02:08:fe:80:00:00:00:00:00:00:00:02:c9:03:00:00:00:01"),
]
ADDRESSES = [
    Address(AF_INET, "127.0.0.1", 8, 1),
    Address(AF_INET, "192.0.2.1", 24, 4),
    Address(AF_INET6, "2001:db8::1", 64, 2),
    Address(AF_INET6, "2001:db8::1", 128, 4),
    Address(AF_INET6, "fe80::5054:ff:fe00:1", 64, 2),
    Address(AF_INET6, "fe80::fc00:ff:fe00:1", 64, 6),
]
RULES = {
    AF_INET: [Rule(AF_INET, 100, "tap0", 100), Rule(AF_INET, 32766, "", 254)],
    AF_INET6: [Rule(AF_INET6, 100, "tap0", 100), Rule(AF_INET6, 9, "", 0)],
}
TABLES = {"guests": 100, "main": 254, "\x1bodd": 7}


def view(switches: Any, links: list[Link] | None = None) -> Any:
    return cast(
        Any,
        SimpleNamespace(
            links=lambda: links or LINKS,
            addresses=lambda: ADDRESSES,
            rules=lambda family: RULES[family],
            ovs_switches=switches,
            named_tables=lambda: TABLES,
        ),
    )


def test_what_there_is() -> None:
    said = about(view(lambda: [SimpleNamespace(name="ovs0")]), NODES[0])
    assert [(each.name, each.mac, each.up, each.addresses) for each in said.interfaces] == [
        ("eth0", "52:54:00:00:00:01", True, ("2001:db8::1", "fe80::5054:ff:fe00:1")),
        ("eth1", "52:54:00:00:00:02", False, ()),
    ]
    assert [each.uuid for each in said.interfaces] == [
        str(uuid.uuid5(uuid.UUID(NODES[0]), each)) for each in ("52:54:00:00:00:01", "52:54:00:00:00:02")
    ], "of the node and the NIC, whatever its name is"
    assert (said.bridges, said.switches, said.vlans, said.tables) == (("blue",), ("ovs0",), (7,), ("100", "254", "guests", "main"))
    assert said.addresses == ("192.0.2.1", "2001:db8::1") and {"blue", "ovs0", "guests"} <= set(said.provided)


def test_a_switch_that_does_not_answer_hides_nothing_else() -> None:
    def silent() -> Any:
        raise HostRefused("no answer")

    assert about(view(silent), NODES[0])._replace(provided=()) == about(view(list), NODES[0])._replace(provided=())


@pytest.mark.parametrize("name", ["br\x01", "br\udc80", "\u202e", "a b", '"', "br\u00e9", "-"])
@pytest.mark.parametrize("kind", ["bridge", "", "switch"])
def test_a_name_that_no_registry_takes_hides_nothing_else(name: str, kind: str) -> None:
    """The kernel lets whoever makes a device name it nearly as he likes."""
    odd = [] if kind == "switch" else [Link(9, name, kind=kind, address="52:54:00:00:00:09", up=True)]
    said = about(view(lambda: [SimpleNamespace(name=name)] if kind == "switch" else [], [*LINKS, *odd]), NODES[0])
    assert read(About, write(said)) == said, "the registry takes it"
    assert {"eth0", "eth1"} <= {each.name for each in said.interfaces} and "blue" in said.bridges and "blue" in said.provided
