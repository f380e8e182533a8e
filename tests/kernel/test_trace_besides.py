"""netcommon trace where NAT, IPsec, a router of multicast, a routing header or duplicate address detection decide about a packet."""

from __future__ import annotations

import contextlib
import socket
import struct
from pathlib import Path

import pytest

from tests.support.datapath import places as at
from tests.support.datapath.frames import ICMP, UDP, ip4, ip6, packed, summed, upper
from tests.support.datapath.said import Frames, outcome, said
from tests.support.frames import IPV4, IPV6, checksum, mac_bytes
from tests.support.netns import ask, routed_here, run, sysctl, wait_until

pytestmark = pytest.mark.no_agent("trace asks no agent")

FAR4, FAR6 = at.FAR4[0], at.FAR6[0]
GUESTS_PORT, FAR_PORT = 40000, 9
MASQUERADE = "table ip n {{ chain c {{ type nat hook postrouting priority 100; oifname {} masquerade; }}\n}}"


def datagram(source: str, target: str, ports: tuple[int, int], payload: bytes) -> bytes:
    body = struct.pack("!HHHH", *ports, 8 + len(payload), 0) + payload
    return ip4(source, target, UDP, summed(body, source, target, UDP, 6))


def connected() -> None:
    """The guest speaks with somebody outside: its address is the node's there."""
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as sent:  # in place of the tap: what it sends comes in by a pair of devices
        run("ip", "link", "add", "in0", "type", "veth", "peer", "name", "in1")
        for name in ("in0", "in1"):
            run("ip", "link", "set", name, "up")
        sysctl("net/ipv4/conf/in1/rp_filter", "0")
        sent.bind(("in0", 0))
        inward = mac_bytes(str(ask("ip", "-j", "link", "show", "dev", "in1")[0]["address"]))
        packet = datagram(at.GUEST4, FAR4, (GUESTS_PORT, FAR_PORT), b"hello")
        sent.send(inward + mac_bytes(at.GUEST_MAC) + b"\x08\0" + packet)
        wait_until(lambda: f"dport={GUESTS_PORT}" in Path("/proc/thread-self/net/nf_conntrack").read_text(), 5, "the connection is tracked")


@pytest.mark.parametrize("hook", ["up0", "up1"])
def test_answers_to_a_masqueraded_guest(hook: str) -> None:
    """They are for an address of the node, and reach the guest; no chain where they come in says so."""
    frames = Frames(at.ROUTED)
    reply = datagram(FAR4, at.UP4, (FAR_PORT, GUESTS_PORT), frames.token())
    frames.raw("to", IPV4, reply, "answer", at.UP_MAC)
    frames.raw("to", IPV4, datagram(FAR4, at.UP4, (FAR_PORT, 77), frames.token()), "another's", at.UP_MAC)
    quoted = datagram(at.UP4, FAR4, (GUESTS_PORT, FAR_PORT), frames.token())
    error = b"\3\1" + checksum(b"\3\1" + bytes(6) + quoted) + bytes(4) + quoted
    frames.raw("to", IPV4, ip4(at.GATEWAY4, at.UP4, ICMP, error), "an error about it", at.UP_MAC)
    found = said(frames, nft=MASQUERADE.format(hook), more=connected)
    translated = hook == "up0"
    assert [each.reserved for each in found] == [translated, False, translated]
    assert [each.right for each in found][1] and ("".join(found[0].arrived) == "tap0") == translated


@pytest.mark.parametrize("direction", ["fwd", "out", "in"])
@pytest.mark.parametrize("family", ["-4", "-6"])
def test_policies_of_ipsec(family: str, direction: str) -> None:
    """One that a packet is for leaves it in doubt, and no other packet."""
    six = family == "-6"
    source, peer, node, far = (at.GUEST6, at.PEER6, at.UP6, FAR6) if six else (at.GUEST4, at.PEER4, at.UP4, FAR4)
    frames = Frames(at.ROUTED)
    for whence, where in ((source, far), (peer, far), (source, node)):
        frames.sent(whence, where)
    width = "128" if six else "32"
    ends = f"src {source}/{width} dst {'::/0' if six else '0.0.0.0/0'}"
    found = outcome(said(frames, [f"xfrm policy add {ends} dir {direction} action block"]))
    blocked = 2 if direction == "in" else 0
    assert found == [("" if place == blocked else there, place != blocked) for place, there in enumerate(("up0", "up0", "node"))]


def test_all_is_blocked_by_default() -> None:
    frames = Frames(at.ROUTED)
    frames.sent(at.GUEST4, FAR4)
    frames.sent(at.GUEST4, at.UP4)
    assert outcome(said(frames, ["xfrm policy setdefault fwd block"])) == [("", False), ("node", True)]


@pytest.mark.parametrize("routed", [True, False])
def test_a_router_of_multicast(routed: bool) -> None:
    group = "239.1.1.1"
    frames = Frames(at.ROUTED)
    frames.sent(at.GUEST4, group, mac="01:00:5e:01:01:01")
    frames.sent(at.GUEST4, FAR4)
    with contextlib.ExitStack() as held:

        def routes() -> None:
            router = held.enter_context(socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_IGMP))
            router.setsockopt(socket.IPPROTO_IP, 200, struct.pack("=i", 1))  # MRT_INIT
            for number, name in enumerate(("tap0", "up0", "up1")):  # MRT_ADD_VIF, by indices of devices
                router.setsockopt(socket.IPPROTO_IP, 202, struct.pack("=HBBIi4x", number, 8, 1, 0, socket.if_nametoindex(name)))
            ways = struct.pack("=4s4sH32s2xIIIi", packed(at.GUEST4), packed(group), 0, b"\0\1\1".ljust(32, b"\0"), 0, 0, 0, 0)
            router.setsockopt(socket.IPPROTO_IP, 204, ways)  # MRT_ADD_MFC

        found = outcome(said(frames, more=routes if routed else lambda: None))
    assert found == [("up0up1" if routed else "", not routed), ("up0", True)]


def test_further_stations() -> None:
    """A packet for the node with a segment routing header goes on to its next segment."""
    frames = Frames(at.ROUTED)
    inner = upper(UDP, at.GUEST6, at.UP6, frames.token(), 9)
    header = struct.pack("!BBBBBBH", UDP, 4, 4, 1, 1, 0, 0) + packed(FAR6) + packed(at.UP6)
    frames.raw("from", IPV6, ip6(at.GUEST6, at.UP6, 43, header + inner), "two segments")
    settings = [(f"net/ipv6/conf/{name}/seg6_enabled", "1") for name in ("all", "tap0")]
    assert outcome(said(frames, settings=settings)) == [("up0", False)]


@pytest.mark.parametrize("words", ["nodad", "", "optimistic"])
def test_an_address_that_may_be_anothers(words: str) -> None:
    """Nobody answers for an address that is tentative; an optimistic one is used meanwhile."""
    own = "fd00:7::1"
    frames = Frames(at.ROUTED)
    options = b"\x01\x01" + mac_bytes(at.GUEST_MAC) + b"\xfd\x02" + frames.token() + bytes(6)
    body = b"\x87\0\0\0" + bytes(4) + packed(own) + options
    group = "ff02::1:ff00:1"
    packet = ip6(at.GUEST6, group, 58, summed(body, at.GUEST6, group, 58, 2), 255)
    shot = frames.raw("from", IPV6, packet, "solicits", "33:33:ff:00:00:01")
    frames.made[-1] = shot._replace(asks=own)

    def late() -> None:
        for name, value in (("accept_dad", "1"), ("dad_transmits", "1000"), ("optimistic_dad", "1"), ("use_optimistic", "1")):
            with contextlib.suppress(FileNotFoundError):
                sysctl(f"net/ipv6/conf/tap0/{name}", value)
        run("ip", "-6", "address", "add", f"{own}/64", "dev", "tap0", *words.split())
        if words == "nodad":  # which the kernel sees to a moment later
            wait_until(lambda: "tentative" not in run("ip", "-6", "address", "show", "to", own), 5, "the address is used")
            routed_here("tap0", f"{own}/64")

    (found,) = outcome(said(frames, more=late))
    assert found[1] and (words == "optimistic" or found[0] == ("answer" if words else ""))  # a kernel may know no optimistic ones
