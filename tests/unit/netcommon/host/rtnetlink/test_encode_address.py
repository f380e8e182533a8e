"""Requests for addresses, and what routed NICs need of routes and proxy neighbours: byte for byte as pyroute2 encodes it, and read back."""

from __future__ import annotations

from typing import Any

import pytest
from pyroute2.netlink.rtnl.ifaddrmsg import ifaddrmsg
from pyroute2.netlink.rtnl.ndmsg import ndmsg
from pyroute2.netlink.rtnl.rtmsg import rtmsg

from netcommon.host.api.facts import Address, Neighbour, Route
from netcommon.host.api.requests import AddAddress, AddNeighbour, AddRoute, DeleteAddress, DeleteRoute, Request, SetLink
from netcommon.host.rtnetlink import decode, encode, encode_address
from netcommon.host.rtnetlink.attributes import Encoded, MalformedError, message
from tests.support.pyroute import CREATE, DELROUTE, NEWNEIGH, NEWROUTE, REPLACE, theirs

NEWADDR, DELADDR, GETADDR = 20, 21, 22
PROTO = b"\x05\0\x0b\0\xae\0\0\0"  #: IFA_PROTO, which pyroute2 does not know everywhere
LIFE = b"\x14\0\x06\0" + bytes(4) + b"\xff" * 4 + bytes(8)  #: IFA_CACHEINFO: preferred for no time, valid for ever
FOUR, SIX = Address(2, "169.254.169.254", 32, 9), Address(10, "fe80::1", 64, 9)


def address(number: int, flags: int, made: Address, *attrs: list[Any]) -> bytes:
    fields = {"family": made.family, "prefixlen": made.length, "flags": 0, "scope": 0, "index": made.index}
    return theirs(ifaddrmsg, number, flags, fields, ["IFA_LOCAL", made.address], ["IFA_ADDRESS", made.address], *attrs)


def longer(whole: bytes, more: bytes) -> bytes:
    """A message with another attribute at its end."""
    return (len(whole) + len(more)).to_bytes(4, "little") + whole[4:] + more


def blackhole(number: int, flags: int) -> bytes:
    fields = {"family": 10, "dst_len": 128, "table": 100, "proto": 174, "scope": 0, "type": 6}
    attrs = (["RTA_DST", "2001:db8::5"], ["RTA_PRIORITY", 1025], ["RTA_TABLE", 100])
    return theirs(rtmsg, number, flags, fields, *attrs)


def router() -> bytes:
    fields = {"family": 10, "ifindex": 9, "state": 0x80, "flags": 0x88}
    return theirs(ndmsg, NEWNEIGH, CREATE | REPLACE, fields, ["NDA_DST", "2001:db8::1"], ["NDA_PROTOCOL", 174])


NOWHERE = Route(10, 100, "2001:db8::5/128", 0, scope=0, metric=1025, type=6)
CASES: dict[str, tuple[Request, bytes]] = {
    "add": (AddAddress(FOUR), longer(address(NEWADDR, CREATE | REPLACE, FOUR, ["IFA_FLAGS", 0x200]), PROTO)),
    "add, IPv6": (AddAddress(SIX), longer(address(NEWADDR, CREATE | REPLACE, SIX, ["IFA_FLAGS", 0x202]), PROTO)),
    "add, deprecated": (
        AddAddress(SIX._replace(deprecated=True)),
        longer(address(NEWADDR, CREATE | REPLACE, SIX, ["IFA_FLAGS", 0x202]), PROTO + LIFE),
    ),
    "delete": (DeleteAddress(FOUR), address(DELADDR, 0, FOUR)),
    "delete, IPv6": (DeleteAddress(SIX), address(DELADDR, 0, SIX)),
    "blackhole": (AddRoute(NOWHERE), blackhole(NEWROUTE, CREATE | REPLACE)),
    "delete blackhole": (DeleteRoute(NOWHERE), blackhole(DELROUTE, 0)),
    "proxy for a router": (AddNeighbour(Neighbour(10, "2001:db8::1", 9, router=True)), router()),
}


@pytest.mark.parametrize("name", CASES)
def test_as_pyroute2(name: str) -> None:
    request, expected = CASES[name]
    made = encode.encode(request)
    assert message(made.type, made.flags, made.body, 77) == expected


def test_dump_of_one_device() -> None:
    made = encode_address.dump_addresses(9)
    assert message(made.type, made.flags, made.body, 77) == theirs(
        ifaddrmsg, GETADDR, 0, {"family": 0, "prefixlen": 0, "flags": 0, "scope": 0, "index": 9}
    )


@pytest.mark.parametrize("made", [FOUR, SIX])
def test_read_back(made: Address) -> None:
    assert encode_address.decode(encode.encode(AddAddress(made)).body) == made
    assert encode_address.decode(encode.encode(DeleteAddress(made)).body) == made._replace(protocol=0)  # as an old kernel tells it


@pytest.mark.parametrize("body", [b"", b"\2\x20\0\0\x09\0\0\0", b"\2\x20\0\0\x09\0\0\0\x05\0\2\0\1\0\0\0"])
def test_what_cannot_be_read(body: bytes) -> None:
    with pytest.raises(MalformedError):
        encode_address.decode(body)


def test_only_its_own() -> None:
    with pytest.raises(ValueError, match="not a request for an address"):
        encode_address.encode(SetLink(9))


def test_multipath_routes() -> None:
    """The interfaces of all nexthops."""
    hops = [{"oif": 3, "hops": 0, "flags": 0, "attrs": []}, {"oif": 5, "hops": 0, "flags": 0, "attrs": [("RTA_GATEWAY", "fe80::1")]}]
    fields = {"family": 10, "dst_len": 0, "table": 254, "proto": 3, "scope": 0, "type": 1}
    whole = theirs(rtmsg, NEWROUTE, 0, fields, ["RTA_MULTIPATH", hops], ["RTA_TABLE", 254])
    assert decode.route(whole[16:]) == Route(10, 254, "::/0", 0, 3, 0, paths=(3, 5))
    broken = Encoded(NEWROUTE, 0, encode.RTMSG.pack(10, 0, 0, 0, 254, 3, 0, 1, 0) + b"\x0c\0\x09\0" + bytes(8))
    with pytest.raises(MalformedError, match="nexthop"):
        decode.route(broken.body)
