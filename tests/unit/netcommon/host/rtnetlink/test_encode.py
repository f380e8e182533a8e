"""Each message we encode is, byte for byte, what pyroute2 makes of the same fields; and what pyroute2 encodes, we read."""

from __future__ import annotations

import ipaddress
import random
from struct import error
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyroute2.netlink.rtnl.fibmsg import fibmsg
from pyroute2.netlink.rtnl.ifinfmsg import ifinfmsg
from pyroute2.netlink.rtnl.ndmsg import ndmsg
from pyroute2.netlink.rtnl.rtmsg import rtmsg

from netcommon.host.api.facts import DOT1AD, BridgeVlan, Link, Neighbour, Route, Rule
from netcommon.host.api.requests import (
    AddNeighbour,
    AddRoute,
    AddRule,
    AddVlan,
    DeleteNeighbour,
    DeleteRoute,
    DeleteRule,
    DeleteVlan,
    Request,
    SetLink,
    SetSysctl,
)
from netcommon.host.rtnetlink import decode, encode
from netcommon.host.rtnetlink.attributes import Encoded, MalformedError, attributes, message, pack_address, show_address, split_prefix
from tests.support.pyroute import (
    CREATE,
    DELLINK,
    DELNEIGH,
    DELROUTE,
    DELRULE,
    EXCL,
    GETLINK,
    GETNEIGH,
    GETROUTE,
    GETRULE,
    NEWLINK,
    NEWNEIGH,
    NEWROUTE,
    NEWRULE,
    REPLACE,
    SETLINK,
    theirs,
)

SKIP_STATS = ["IFLA_EXT_MASK", 8]


def link(number: int, index: int, flags: int, change: int, *attrs: list[Any], family: int = 0) -> bytes:
    return theirs(ifinfmsg, number, 0, {"family": family, "index": index, "flags": flags, "change": change}, *attrs)


def rule(number: int, flags: int, family: int, table: int) -> bytes:
    fields = {"family": family, "action": 1, "table": table if table < 256 else 0}
    name, preference, protocol = ["FRA_IIFNAME", "tap0"], ["FRA_PRIORITY", 500], ["FRA_PROTOCOL", 174]
    return theirs(fibmsg, number, flags, fields, name, preference, ["FRA_TABLE", table], protocol)


def route(number: int, flags: int, family: int, table: int, scope: int, length: int, *attrs: list[Any]) -> bytes:
    fields = {"family": family, "dst_len": length, "table": table if table < 256 else 0, "proto": 174, "scope": scope, "type": 1}
    return theirs(rtmsg, number, flags, fields, *attrs, ["RTA_TABLE", table])


def neighbour(number: int, flags: int, family: int, address: str) -> bytes:
    fields = {"family": family, "ifindex": 9, "state": 0x80, "flags": 8}
    return theirs(ndmsg, number, flags, fields, ["NDA_DST", address], ["NDA_PROTOCOL", 174])


def vlan(number: int, flags: int, vid: int) -> bytes:
    info = ["IFLA_BRIDGE_VLAN_INFO", {"flags": flags, "vid": vid}]
    spec = ["IFLA_AF_SPEC", {"attrs": [["IFLA_BRIDGE_FLAGS", 1], info]}]
    return link(number, 9, 0, 0, spec, family=7)


FOUR = Route(2, 100, "10.0.0.5/32", 9)
SIX = Route(10, 70000, "2001:db8::5/128", 9, metric=7, scope=0, gateway="2001:db8::1")
NEIGHBOUR = Neighbour(2, "10.0.0.5", 9)
NEIGHBOUR6 = Neighbour(10, "2001:db8::5", 9)
MAC = "fe:00:00:00:00:01"

CASES: dict[str, tuple[Request, bytes]] = {
    "nothing": (SetLink(9), link(SETLINK, 9, 0, 0)),
    "up": (SetLink(9, up=True), link(SETLINK, 9, 1, 1)),
    "down": (SetLink(9, up=False), link(SETLINK, 9, 0, 1)),
    "address": (SetLink(9, address=MAC), link(SETLINK, 9, 0, 0, ["IFLA_ADDRESS", MAC])),
    "mtu": (SetLink(9, mtu=9000), link(SETLINK, 9, 0, 0, ["IFLA_MTU", 9000])),
    "master": (SetLink(9, master=4), link(SETLINK, 9, 0, 0, ["IFLA_MASTER", 4])),
    "no master": (SetLink(9, master=0), link(SETLINK, 9, 0, 0, ["IFLA_MASTER", 0])),
    "all of a link": (
        SetLink(9, MAC, 1400, True, 4),
        link(SETLINK, 9, 1, 1, ["IFLA_ADDRESS", MAC], ["IFLA_MTU", 1400], ["IFLA_MASTER", 4]),
    ),
    "rule": (AddRule(Rule(2, 500, "tap0", 100)), rule(NEWRULE, CREATE | EXCL, 2, 100)),
    "rule of IPv6, large table": (AddRule(Rule(10, 500, "tap0", 70000)), rule(NEWRULE, CREATE | EXCL, 10, 70000)),
    "delete rule": (DeleteRule(Rule(2, 500, "tap0", 100)), rule(DELRULE, 0, 2, 100)),
    "route": (AddRoute(FOUR), route(NEWROUTE, CREATE | REPLACE, 2, 100, 253, 32, ["RTA_DST", "10.0.0.5"], ["RTA_OIF", 9])),
    "route with all there is": (
        AddRoute(SIX),
        route(
            NEWROUTE,
            CREATE | REPLACE,
            10,
            70000,
            0,
            128,
            ["RTA_DST", "2001:db8::5"],
            ["RTA_GATEWAY", "2001:db8::1"],
            ["RTA_OIF", 9],
            ["RTA_PRIORITY", 7],
        ),
    ),
    "route to everything": (
        AddRoute(FOUR._replace(destination="0.0.0.0/0")),
        route(NEWROUTE, CREATE | REPLACE, 2, 100, 253, 0, ["RTA_OIF", 9]),
    ),
    "delete route": (DeleteRoute(FOUR), route(DELROUTE, 0, 2, 100, 253, 32, ["RTA_DST", "10.0.0.5"], ["RTA_OIF", 9])),
    "proxy neighbour": (AddNeighbour(NEIGHBOUR), neighbour(NEWNEIGH, CREATE | REPLACE, 2, "10.0.0.5")),
    "proxy neighbour of IPv6": (AddNeighbour(NEIGHBOUR6), neighbour(NEWNEIGH, CREATE | REPLACE, 10, "2001:db8::5")),
    "delete proxy neighbour": (DeleteNeighbour(NEIGHBOUR), neighbour(DELNEIGH, 0, 2, "10.0.0.5")),
    "VLAN": (AddVlan(9, BridgeVlan(10)), vlan(SETLINK, 0, 10)),
    "VLAN, untagged": (AddVlan(9, BridgeVlan(4094, pvid=True, untagged=True)), vlan(SETLINK, 2 | 4, 4094)),
    "delete VLAN": (DeleteVlan(9, 10), vlan(DELLINK, 0, 10)),
}


def ours(encoded: Encoded) -> bytes:
    return message(encoded.type, encoded.flags, encoded.body, 77)


@pytest.mark.parametrize(("request_", "expected"), CASES.values(), ids=CASES.keys())
def test_request(request_: Request, expected: bytes) -> None:
    assert ours(encode.encode(request_)).hex(" ") == expected.hex(" ")


@pytest.mark.parametrize("alias", ["", "web1/0 ä", "x" * 255])
def test_alias_carries_no_nul(alias: str) -> None:
    """pyroute2 ends the text with a NUL, which would make 255 bytes one too many, and an empty alias not empty."""
    made = attributes(encode.encode(SetLink(9, alias=alias)).body, 16)
    assert made == {20: alias.encode()}


QUESTIONS = {
    "link by name": (encode.get_link(name="tap0"), link(GETLINK, 0, 0, 0, ["IFLA_IFNAME", "tap0"], SKIP_STATS)),
    "link by index": (encode.get_link(index=9), link(GETLINK, 9, 0, 0, SKIP_STATS)),
    "links": (encode.dump_links(), link(GETLINK, 0, 0, 0, SKIP_STATS)),
    "ports": (encode.dump_links(4), link(GETLINK, 0, 0, 0, ["IFLA_MASTER", 4], SKIP_STATS)),
    "rules": (encode.dump_rules(10), theirs(fibmsg, GETRULE, 0, {"family": 10})),
    "routes": (encode.dump_routes(10), theirs(rtmsg, GETROUTE, 0, {"family": 10})),
    "routes of a table": (encode.dump_routes(2, 100), theirs(rtmsg, GETROUTE, 0, {"family": 2}, ["RTA_TABLE", 100])),
    "neighbours": (encode.dump_neighbours(2), theirs(ndmsg, GETNEIGH, 0, {"family": 2, "flags": 8})),
    "a device's": (encode.dump_neighbours(2, 9), theirs(ndmsg, GETNEIGH, 0, {"family": 2, "flags": 8}, ["NDA_IFINDEX", 9])),
}


@pytest.mark.parametrize(("encoded", "expected"), QUESTIONS.values(), ids=QUESTIONS.keys())
def test_question(encoded: Encoded, expected: bytes) -> None:
    assert ours(encoded).hex(" ") == expected.hex(" ")


def test_vlans_of_a_device() -> None:
    """pyroute2 knows no RTM_GETVLAN: struct br_vlan_msg is a family, three bytes of nothing, and an index."""
    assert ours(encode.dump_vlans(9)).hex() == "18000000" + "7200" + "0100" + "4d000000" + "00000000" + "07000000" + "09000000"


@pytest.mark.parametrize(
    "wrong",
    [
        SetLink(9, address="fe:00"),
        SetLink(9, address="fe:00:00:00:00:00:01:02"),
        SetLink(9, address="not a MAC"),
        SetLink(9, mtu=-1),
        SetLink(1 << 31, up=True),
        AddRoute(FOUR._replace(destination="10.0.0.5/33")),
        AddRoute(FOUR._replace(destination="10.0.0.5/-1")),
        AddRoute(FOUR._replace(destination="2001:db8::5/32")),
        AddRoute(FOUR._replace(table=1 << 32)),
        AddNeighbour(NEIGHBOUR._replace(address="10.0.0.256")),
        AddVlan(9, BridgeVlan(70000)),
        SetSysctl("net/ipv4/ip_forward", "1"),
    ],
)
def test_what_does_not_fit(wrong: Request) -> None:
    with pytest.raises((ValueError, OSError, error)):
        encode.encode(wrong)


BRIDGE_DATA = {"attrs": [["IFLA_BR_VLAN_FILTERING", 1], ["IFLA_BR_VLAN_DEFAULT_PVID", 1]]}
AD_BRIDGE_DATA = {"attrs": [["IFLA_BR_VLAN_FILTERING", 1], ["IFLA_BR_VLAN_PROTOCOL", 0x88A8]]}
AD_VLAN_DATA = {"attrs": [["IFLA_VLAN_ID", 10], ["IFLA_VLAN_PROTOCOL", 0x88A8]]}
TUN_DATA = {"attrs": [["IFLA_TUN_MULTI_QUEUE", 1], ["IFLA_TUN_NUM_QUEUES", 2], ["IFLA_TUN_NUM_DISABLED_QUEUES", 1]]}


def body(whole: bytes) -> bytes:
    return whole[16:]


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        (link(NEWLINK, 9, 0, 0, ["IFLA_IFNAME", "eth0"], ["IFLA_MTU", 1400]), Link(9, "eth0", mtu=1400)),
        (
            link(
                NEWLINK,
                9,
                0x1003,
                0,
                ["IFLA_IFNAME", "br0"],
                ["IFLA_MTU", 1500],
                ["IFLA_ADDRESS", MAC],
                ["IFLA_LINKINFO", {"attrs": [["IFLA_INFO_KIND", "bridge"], ["IFLA_INFO_DATA", BRIDGE_DATA]]}],
            ),
            Link(9, "br0", "bridge", MAC, up=True, vlan_filtering=True, default_pvid=1),
        ),
        (
            link(
                NEWLINK,
                9,
                0,
                0,
                ["IFLA_IFNAME", "tap0"],
                ["IFLA_MTU", 1500],
                ["IFLA_MASTER", 4],
                ["IFLA_IFALIAS", "web1/0"],
                ["IFLA_LINKINFO", {"attrs": [["IFLA_INFO_KIND", "tun"], ["IFLA_INFO_DATA", TUN_DATA], ["IFLA_INFO_SLAVE_KIND", "bridge"]]}],
            ),
            Link(9, "tap0", "tun", master=4, port_kind="bridge", alias="web1/0", holders=3),
        ),
        (
            link(
                NEWLINK,
                9,
                0,
                0,
                ["IFLA_IFNAME", "eth0.10"],
                ["IFLA_MTU", 1500],
                ["IFLA_LINK", 4],
                ["IFLA_LINK_NETNSID", 0],
                ["IFLA_LINKINFO", {"attrs": [["IFLA_INFO_KIND", "vlan"], ["IFLA_INFO_DATA", {"attrs": [["IFLA_VLAN_ID", 10]]}]]}],
            ),
            Link(9, "eth0.10", "vlan", vlan=10, lower=4, foreign_lower=True),
        ),
        *(
            (
                link(
                    NEWLINK,
                    9,
                    0,
                    0,
                    ["IFLA_IFNAME", "x"],
                    ["IFLA_MTU", 1500],
                    ["IFLA_LINKINFO", {"attrs": [["IFLA_INFO_KIND", kind], ["IFLA_INFO_DATA", data]]}],
                ),
                Link(9, "x", kind, vlan_filtering=kind == "bridge", vlan=10 * (kind == "vlan"), protocol=DOT1AD),
            )
            for kind, data in (("bridge", AD_BRIDGE_DATA), ("vlan", AD_VLAN_DATA))
        ),
        (
            link(
                NEWLINK,
                9,
                0x1041,
                0,
                ["IFLA_IFNAME", "blue"],
                ["IFLA_MTU", 65575],
                ["IFLA_LINKINFO", {"attrs": [["IFLA_INFO_KIND", "vrf"], ["IFLA_INFO_DATA", {"attrs": [["IFLA_VRF_TABLE", 1300]]}]]}],
            ),
            Link(9, "blue", "vrf", mtu=65575, up=True, table=1300),
        ),
    ],
)
def test_link_is_read(said: bytes, expected: Link) -> None:
    assert decode.link(body(said)) == expected


@pytest.mark.parametrize(("request_", "expected"), CASES.values(), ids=CASES.keys())
def test_what_is_asked_for_is_what_would_be_read(request_: Request, expected: bytes) -> None:
    match request_:
        case AddRule(rule) | DeleteRule(rule):
            assert decode.rule(body(expected)) == rule
        case AddRoute(route) | DeleteRoute(route):
            assert decode.route(body(expected)) == route
        case AddNeighbour(neighbour) | DeleteNeighbour(neighbour):
            assert decode.neighbour(body(expected)) == neighbour


def test_vlan_ranges_are_spread() -> None:
    head = bytes.fromhex("07000000" + "09000000")
    one = bytes.fromhex("0c000180" + "08000100" + "06000100")  # VID 1, pvid and untagged
    some = bytes.fromhex("14000180" + "08000100" + "00000a00" + "06000200" + "0c000000")  # 10 to 12
    read = list(decode.vlans(head + one + some))
    assert read == [(9, BridgeVlan(1, True, True)), (9, BridgeVlan(10)), (9, BridgeVlan(11)), (9, BridgeVlan(12))]
    mapped = bytes.fromhex("20000180" + "08000100" + "00000a00" + "06000200" + "0b000000" + "0c000480" + "08000100" + "f2030000")
    assert list(decode.vlans(head + mapped)) == [(9, BridgeVlan(10, tunnel=1010)), (9, BridgeVlan(11, tunnel=1011))]


@pytest.mark.parametrize(("read", "size"), [(decode.link, 16), (decode.rule, 12), (decode.route, 12), (decode.neighbour, 12)])
def test_nonsense_is_called_so(read: Any, size: int) -> None:
    """Whatever bytes follow the header, only MalformedError comes out."""
    chance = random.Random(1)
    seen = 0
    for _ in range(3000):
        header = bytes((chance.choice((2, 10)),)) + bytes(size - 1)
        data = header + bytes(chance.randrange(40) for _ in range(chance.randrange(60)))
        try:
            read(data[: chance.randrange(len(data) + 1)])
        except MalformedError:
            seen += 1
    assert seen > 100


@given(st.binary(min_size=16, max_size=16) | st.integers(0, 1 << 33).map(lambda low: low.to_bytes(16, "big")))
def test_addresses_of_ipv6_are_canonical(packed: bytes) -> None:
    shown = show_address(10, packed)
    assert shown == str(ipaddress.IPv6Address(packed))
    assert pack_address(10, shown) == packed


@given(st.ip_addresses(v=4), st.integers(0, 32))
def test_prefixes_of_ipv4(address: ipaddress.IPv4Address, length: int) -> None:
    assert split_prefix(2, f"{address}/{length}") == (address.packed, length)
    assert split_prefix(2, str(address)) == (address.packed, 32)
    assert show_address(2, address.packed) == str(address)
