"""netcommon trace of packets whose way rules or a hash choose by what is in them, of which the kernel takes only a part in a question."""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable

import pytest

from netcommon.host.rtnetlink import encode
from netcommon.host.rtnetlink.attributes import attribute, message, number
from tests.support.datapath import places as at
from tests.support.datapath.frames import ICMP, UDP, ip4, ip6, summed, upper
from tests.support.datapath.said import Frames, Said, outcome, said
from tests.support.frames import IPV4, IPV6, checksum

pytestmark = pytest.mark.no_agent("trace asks no agent")

FAR4, FAR6, NET4, NET6 = at.FAR4[0], at.FAR6[0], "198.51.100.0/24", "2001:db8:aaaa::/64"
TABLE4 = f"route add default via {at.GATEWAY14} table {at.TABLE}"
TABLE6 = f"-6 route add default via {at.GATEWAY16} dev up1 table {at.TABLE}"
GRE, ESP, SCTP, FRAGMENT = 47, 50, 132, 44
CREATE = 0x405  #: NLM_F_CREATE, with an acknowledgement
PORTS = struct.pack("!HH", 40000, 53)
BODIES: dict[int, Callable[[bytes], bytes]] = {
    GRE: lambda token: b"\0\0\x88\xb5" + token,
    ESP: lambda token: b"\0\0\0\7\0\0\0\1" + token,
    SCTP: lambda token: PORTS + bytes(8) + token,
}


def inside(*protocols: int) -> Frames:
    frames = Frames(at.ROUTED)
    for protocol in protocols:
        frames.sent(at.GUEST4, FAR4, protocol, BODIES[protocol](frames.token()))
        frames.sent(at.GUEST6, FAR6, protocol, BODIES[protocol](frames.token()))
    return frames


def rules(selector: str) -> list[str]:
    return [f"{family}rule add {selector} lookup {at.TABLE} preference 200" for family in ("", "-6 ")] + [TABLE4, TABLE6]


@pytest.mark.parametrize("protocol", ["gre", "esp", "sctp"])
def test_a_rule_of_a_protocol_that_is_in_no_question(protocol: str) -> None:
    """In doubt is the protocol that the rule names alone, since another may stand for the rest."""
    found = outcome(said(inside(GRE, ESP, SCTP), rules(f"ipproto {protocol}")))
    named = ("gre", "esp", "sctp").index(protocol)
    assert found == [("up1", False) if number // 2 == named else ("up0", True) for number in range(6)]


def test_a_rule_of_udp() -> None:
    """The kernel takes a question that names no protocol for one about UDP; ARP's is none either."""
    frames = inside(GRE, ESP, SCTP)
    found = outcome(said(frames, rules("ipproto udp")))
    assert found == [("up0", True)] * 6


def test_all_are_named() -> None:
    """No protocol is left that could stand for another one."""
    lines = [line for name in ("tcp", "udp", "icmp") for line in (f"rule add ipproto {name} lookup {at.TABLE} preference 200",)]
    frames = Frames(at.ROUTED)
    frames.sent(at.GUEST4, FAR4, GRE, BODIES[GRE](frames.token()))
    assert outcome(said(frames, [*lines, TABLE4])) == [("up0", False)]


def test_a_rule_of_ports() -> None:
    """SCTP and ESP have what the router takes for ports, GRE has none."""
    found = outcome(said(inside(GRE, ESP, SCTP), rules("dport 53")))
    assert found == [("up0", True), ("up0", True), ("up0", False), ("up0", False), ("up1", False), ("up1", False)]


def datagram(frames: Frames, six: bool, ports: bytes = PORTS) -> bytes:
    body = ports + struct.pack("!HH", 16, 0) + frames.token()
    return summed(body, *((at.GUEST6, FAR6) if six else (at.GUEST4, FAR4)), UDP, 6)


def test_fragments_and_port_0() -> None:
    """The router looks for ports in no fragment, the first included; and 0 is a port."""
    frames = Frames(at.ROUTED)
    for offset in (0x2000, 0x0009, 0x2009):
        packet = bytearray(ip4(at.GUEST4, FAR4, UDP, datagram(frames, six=False)))
        packet[6:8], packet[10:12] = offset.to_bytes(2, "big"), bytes(2)
        packet[10:12] = checksum(bytes(packet[:20]))
        frames.raw("from", IPV4, bytes(packet), f"fragment {offset:#x}")
    for field in (1, 0x48, 0):
        piece = struct.pack("!BBHI", UDP, 0, field, 7) + datagram(frames, six=True)
        frames.raw("from", IPV6, ip6(at.GUEST6, FAR6, FRAGMENT, piece), f"fragment {field:#x}")
    for six, source, target in ((False, at.GUEST4, FAR4), (True, at.GUEST6, FAR6)):
        frames.sent(source, target, UDP, datagram(frames, six, b"\0\0\0\x35"))
        frames.sent(source, target, UDP, datagram(frames, six))
    found = said(frames, rules("ipproto udp dport 53"))
    assert all(each.right for each in found)  # if connection tracking lets fragments go on, which is said with each of them
    assert ["".join(each.arrived) for each in found] == ["up0"] * 6 + ["up1"] * 4


def test_what_fills_a_short_frame_up_is_no_port() -> None:
    frames = Frames(at.ROUTED)
    packet = ip4(at.GUEST4, FAR4, UDP, b"\0\1") + b"\0\x35" + frames.token()
    frames.raw("from", IPV4, packet, "two bytes of UDP")
    found = said(frames, rules("ipproto udp dport 53"))
    assert found[0].path.ends == (f"it leaves the node by up0 to {at.GATEWAY4}",) and not found[0].reserved


def rule_of_label(label: int) -> None:
    """Add a rule that ip(8) of some years ago does not know: by FRA_FLOWLABEL and FRA_FLOWLABEL_MASK."""
    values = ((26, label.to_bytes(4, "big")), (27, (0xFFFFF).to_bytes(4, "big")))
    body = encode.RULE.pack(socket.AF_INET6, 0, 0, 0, 0, 0, 0, encode.FR_ACT_TO_TBL, 0) + b"".join(attribute(*each) for each in values)
    body += number(encode.FRA_TABLE, int(at.TABLE)) + number(encode.FRA_PRIORITY, 200)
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE) as asked:
        asked.send(message(encode.RTM_NEWRULE, CREATE, body, 1))
        assert asked.recv(4096)[16:20] == bytes(4)


def test_flow_labels() -> None:
    """Of a kernel whose rules know them (since Linux 6.14)."""
    frames = Frames(at.ROUTED)
    for label in (0x12345, 0x12346, 0):
        body = upper(UDP, at.GUEST6, FAR6, frames.token(), 9)
        frames.raw("from", IPV6, struct.pack("!I", 6 << 28 | label) + ip6(at.GUEST6, FAR6, UDP, body)[4:], f"label {label:#x}")
    found = outcome(said(frames, [TABLE6], more=lambda: rule_of_label(0x12345)))
    assert found == [("up1", False), ("up0", False), ("up0", True)]


# -- several ways


def ways(number: int, policy: str, make: Callable[[Frames, int], object]) -> list[Said]:
    frames = Frames(at.ROUTED)
    for each in range(1, number + 1):
        make(frames, each)
    both = f"nexthop via {at.GATEWAY4} dev up0 nexthop via {at.GATEWAY14} dev up1"
    return said(frames, [f"route add {NET4} {both}"], [("net/ipv4/fib_multipath_hash_policy", policy)])


def target(number: int) -> str:
    return f"198.51.100.{number}"


@pytest.mark.parametrize("policy", ["0", "1", "2"])
@pytest.mark.parametrize("protocol", [UDP, ICMP, SCTP, GRE])
def test_which_of_several_ways(policy: str, protocol: int) -> None:
    def make(frames: Frames, number: int) -> None:
        body = BODIES[protocol](frames.token()) if protocol in BODIES else None
        if protocol == GRE:
            body = b"\0\0\x08\0" + ip4(f"10.7.7.{number}", "10.8.8.8", UDP, bytes(8) + frames.token())
        frames.sent(at.GUEST4, target(number), protocol, body)

    found = outcome(ways(12, policy, make))
    assert {place for place, _sure in found} == {"up0", "up1"}
    assert {sure for _place, sure in found} == {policy == "0" or (policy == "2" and protocol in (UDP, ICMP))}


def test_an_error_goes_as_what_it_quotes() -> None:
    def make(frames: Frames, number: int) -> None:
        quoted = ip4(f"10.7.7.{number}", at.GUEST4, UDP, bytes(8) + frames.token())
        body = b"\3\1" + checksum(b"\3\1" + bytes(6) + quoted) + bytes(4) + quoted
        frames.sent(at.GUEST4, target(number), ICMP, body)

    found = ways(12, "0", make)
    assert all(each.reserved for each in found)


@pytest.mark.parametrize("compatible", ["0", "1"])
@pytest.mark.parametrize("six", [False, True])
def test_a_group_of_nexthops(six: bool, compatible: str) -> None:
    """A route may tell its id alone: the group is asked for its members."""
    frames = Frames(at.ROUTED)
    for each in range(1, 9):
        frames.sent(*((at.GUEST6, f"2001:db8:aaaa::{each:x}") if six else (at.GUEST4, target(each))))
    gateways = ((at.GATEWAY6, "up0"), (at.GATEWAY16, "up1")) if six else ((at.GATEWAY4, "up0"), (at.GATEWAY14, "up1"))
    lines = [f"nexthop add id {each} via {gateway} dev {device}" for each, (gateway, device) in enumerate(gateways, 1)]
    lines += ["nexthop add id 3 group 1/2", f"{'-6 ' if six else ''}route add {NET6 if six else NET4} nhid 3"]
    policy = ("net/ipv4/fib_multipath_hash_policy", "1")
    found = outcome(said(frames, lines, [("net/ipv4/nexthop_compat_mode", compatible), policy]))
    assert {place for place, _sure in found} == {"up0", "up1"} and not any(sure for _place, sure in found)
