"""Read what lies upon a device, connections, policies of IPsec and tentative addresses from bytes, also from such that are cut off."""

from __future__ import annotations

import struct
from collections.abc import Callable
from ipaddress import ip_address
from typing import Any

import pytest
from pyroute2.netlink.rtnl.ifinfmsg import ifinfmsg
from pyroute2.netlink.rtnl.ndmsg import ndmsg

from netcommon.host.api.datapath import PASSTHRU, Connection, Transform, Upper
from netcommon.host.linux import xfrm
from netcommon.host.nftables import conntrack
from netcommon.host.rtnetlink import encode_address, encode_upper
from netcommon.host.rtnetlink.attributes import MalformedError, attribute
from tests.support.pyroute import NEWLINK, NEWNEIGH, theirs

SKIPPED = 16  #: bytes of a netlink header
MAC = "02:00:00:00:77:77"


def link(kind: str, below: int, **more: Any) -> bytes:
    info = {"attrs": [("IFLA_INFO_KIND", kind), *([("IFLA_INFO_DATA", {"attrs": more["data"]})] if "data" in more else [])]}
    fields = {"index": 9, "flags": 1}
    attrs = [("IFLA_IFNAME", "x0"), ("IFLA_ADDRESS", MAC), ("IFLA_LINK", below), ("IFLA_LINKINFO", info)]
    there = [("IFLA_LINK_NETNSID", more["there"])] if "there" in more else []
    return theirs(ifinfmsg, NEWLINK, 0, fields, *attrs, *there)[SKIPPED:]


def test_what_lies_upon_a_device() -> None:
    mode = [("IFLA_MACVLAN_MODE", "passthru")]
    bodies = [link("macvlan", 3, data=mode), link("macvlan", 3, there=4), link("veth", 3), link("ipvlan", 5)]
    macvlan = Upper("x0", "macvlan", MAC, True, 0x8100, 0, PASSTHRU)
    assert encode_upper.uppers(bodies) == {3: [macvlan], 5: [macvlan._replace(kind="ipvlan", mode=0)]}
    assert encode_upper.uppers(bodies, 4) == {3: [macvlan._replace(mode=0, elsewhere=True)]}
    assert encode_upper.uppers(bodies, 7) == {}


def test_namespaces() -> None:
    assert encode_upper.namespace(bytes(4) + attribute(1, struct.pack("=i", 7))) == 7
    assert encode_upper.namespace(bytes(4) + attribute(1, struct.pack("=i", -1))) == encode_upper.NO_ID


@pytest.mark.parametrize(
    ("mac", "index", "flags", "found"),
    [(MAC, 9, 2, MAC), (MAC, 8, 2, ""), (MAC, 9, 4, ""), ("33:33:00:00:00:01", 9, 2, "")],
)
def test_addresses_that_a_device_takes(mac: str, index: int, flags: int, found: str) -> None:
    fields = {"family": 7, "ifindex": index, "flags": flags, "state": 128}
    assert encode_upper.address(theirs(ndmsg, NEWNEIGH, 0, fields, ("NDA_LLADDR", mac))[SKIPPED:], 9) == found


@pytest.mark.parametrize(("flags", "found"), [(0x40, True), (0x48, True), (0x44, False), (0x80, False), (0x80000000, False)])
def test_tentative_addresses(flags: int, found: bool) -> None:
    """A kernel tells the flags in eight bits, and in 32 where it can."""
    body = struct.pack("=BBBBI", 10, 64, flags & 0xFF, 0, 9)
    assert encode_address.tentative(body) == (found if flags < 256 else False)
    assert encode_address.tentative(struct.pack("=BBBBI", 10, 64, 0, 0, 9) + attribute(8, struct.pack("=I", flags))) == found


@pytest.mark.parametrize(("status", "found"), [(0x18A, False), (0x19A, True), (0x1AA, True)])
def test_connections(status: int, found: bool) -> None:
    assert conntrack.translates(bytes(4) + attribute(3, struct.pack("!I", status))) == found


@pytest.mark.parametrize(
    ("asked", "addresses", "upper"),
    [
        (Connection(2, "10.0.0.5", "10.0.0.6", 17, (9, 53)), (1, 2), ((1, b"\x11"), (2, b"\0\x09"), (3, b"\0\x35"))),
        (Connection(2, "10.0.0.5", "10.0.0.6", 1, identifier=7, kind=8), (1, 2), ((1, b"\1"), (4, b"\0\7"), (5, b"\x08"), (6, b"\0"))),
        (Connection(10, "fd00::5", "fd00::6", 58, identifier=7, kind=128), (3, 4), ((1, b"\x3a"), (7, b"\0\7"), (8, b"\x80"), (9, b"\0"))),
    ],
)
def test_questions_for_connections(asked: Connection, addresses: tuple[int, int], upper: tuple[tuple[int, bytes], ...]) -> None:
    """As nfnetlink_conntrack.h numbers the attributes of a tuple."""
    pairs = zip(addresses, (asked.source, asked.target), strict=True)
    ends = attribute(0x8001, b"".join(attribute(kind, ip_address(each).packed) for kind, each in pairs))
    inside = attribute(0x8002, b"".join(attribute(*each) for each in upper))
    assert conntrack.get(asked).body == bytes((asked.family, 0, 0, 0)) + attribute(0x8001, ends + inside)


def policy(direction: int = 2, family: int = 2, more: bytes = b"") -> bytes:
    """Make struct xfrm_userpolicy_info with its attributes."""
    ends = (ip_address(each).packed.ljust(16, b"\0") for each in ("198.51.100.0", "10.0.0.5"))
    selector = struct.pack("=16s16sHHHHHBBBxxxiI", *ends, 0, 0, 0, 0, family, 24, 32, 17, 0, 0)
    return selector + bytes(64 + 32) + struct.pack("=IIBBBBxxxx", 0, 0, direction, 1, 0, 0) + more


def test_policies() -> None:
    assert len(policy()) == xfrm.SIZE
    wanted = Transform("fwd", 2, "10.0.0.5/32", "198.51.100.0/24", 17)
    assert xfrm.policy(policy()) == wanted
    assert xfrm.policy(policy(0, more=attribute(21, struct.pack("=II", 5, 0xFF)))) == wanted._replace(direction="in", mark=5, mask=0xFF)
    for other in (policy(4), policy(family=7), policy(more=attribute(31, struct.pack("=I", 1)))):
        assert xfrm.policy(other) is None
    assert [(each.direction, each.family) for each in xfrm.blocked(b"\1\2\1")] == [("in", 2), ("in", 10), ("out", 2), ("out", 10)]


READERS: dict[str, tuple[Callable[[bytes], Any], bytes]] = {
    "uppers": (lambda body: encode_upper.uppers([body]), link("macvlan", 3)[:15]),
    "namespace": (encode_upper.namespace, bytes(4) + attribute(1, b"\0")),
    "address": (lambda body: encode_upper.address(body, 9), bytes(5)),
    "tentative": (encode_address.tentative, bytes(5)),
    "connection": (conntrack.translates, bytes(4)),
    "policy": (xfrm.policy, policy()[:-10]),
    "mark": (xfrm.policy, policy(more=attribute(21, b"\0"))),
    "defaults": (xfrm.blocked, b"\1"),
}


@pytest.mark.parametrize(("reader", "body"), READERS.values(), ids=READERS.keys())
def test_what_is_cut_off(reader: Callable[[bytes], Any], body: bytes) -> None:
    with pytest.raises(MalformedError):
        reader(body)
