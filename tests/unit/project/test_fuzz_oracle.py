"""The fuzz's oracle judges every known attack bad and every good frame good, and a seed makes the same frames each time."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from random import Random

import pytest

from tests.support.attacks import GROUPS, KINDS, SETTINGS, Setting
from tests.support.attacks_base import RULES, Kind, raw
from tests.support.attacks_other import vlans
from tests.support.fuzz import facts, grammar, honest, limits, pools
from tests.support.fuzz.layer4 import udp
from tests.support.fuzz.oracle import PLAIN, Header, judge
from tests.support.fuzz.place import Place, Sent
from tests.support.fuzz.reason import Reason
from tests.support.fuzz.receivers import Arrival
from tests.support.fuzz.shrink import shrunk

ALL = GROUPS[0]._replace(number=1)
TRUNK = 10


@pytest.mark.parametrize("setting", SETTINGS, ids=lambda setting: setting.name)
def test_every_known_kind(setting: Setting) -> None:
    """What no switch frees is bad in any case; a kind that breaks several rules is bad while any of them holds."""
    wrong = []
    for kind in KINDS:
        reasons = judge(raw(kind, ALL), facts.of(setting, "bridged"))
        # An extension header before neighbour discovery is dropped by every guard of nftables: the page says so, the kinds do not.
        reasons = [reason for reason in reasons if reason.rule != "nd-extension"]
        if bool(reasons) != bool(kind.broken - setting.off):
            wrong.append((kind.name, reasons))
    assert wrong == []


@pytest.mark.parametrize("kind", tuple(vlans(TRUNK)), ids=lambda kind: kind.name)
def test_tags(kind: Kind) -> None:
    of_trunk = facts.of(SETTINGS[0], "bridged", frozenset({TRUNK}))
    assert bool(judge(raw(kind, ALL), of_trunk)) == bool(kind.broken)


@pytest.mark.parametrize("mode", ["bridged", "routed", "openvswitch"])
def test_honest_frames_are_good(mode: str) -> None:
    known = facts.of(SETTINGS[0], mode)
    made = honest.Grammar(mode, known)
    rng = Random(1)
    for _ in range(2000):
        each = made.frame(rng)
        header, frame = each.sent
        # whole, as it is sent: pieces are judged where they arrive
        assert judge(frame, known, header) == [], each.name


def test_each_rule_has_frames() -> None:
    """The generator breaks every rule, and most often just a few at once."""
    rng, known = Random(2), facts.of(SETTINGS[0], "bridged")
    broken = set[str]()
    clean = 0
    for _ in range(20000):
        header, frame = grammar.frame(rng, pools.WORLDS["bridged"])
        reasons = judge(frame, known, header)
        broken |= {reason.rule for reason in reasons}
        clean += not reasons
    assert broken >= {"mac", "type", "vlan", "arp-mac", "arp-ip", "ip4", "ip6", "dhcp-server", "chaddr", "dhcp-fragment", "ufo"}
    assert broken >= {"ra", "nd-target", "nd-option", "nd-options", "nd-fragment", "headers-cut", "dhcp6-server", "dhcp6-message"}
    assert 0.1 < clean / 20000 < 0.6


def test_a_seed_says_it_all() -> None:
    def frames(seed: int) -> list[tuple[Header, bytes]]:
        rng = Random(seed)
        return [grammar.frame(rng, pools.WORLDS["routed"]) for _ in range(500)]

    assert frames(7) == frames(7) != frames(8)


def test_shrinking() -> None:
    """What matters stays: here a byte with its place, and a field of the header."""
    sent = Header(1, 3, 42, 8, 34, 6), bytes(range(200))
    header, frame = shrunk(sent, lambda each: each[0].gso_type == 3 and len(each[1]) > 40 and each[1][30] == 30)
    assert header == Header(gso_type=3) and frame == bytes(range(12)) + bytes(18) + b"\x1e" + bytes(10)


class NoPlace(Place):
    """A place without a network: what arrives is what a test says."""

    def __init__(self) -> None:
        self.mode, self.facts, self.upcalls = "bridged", facts.of(SETTINGS[0], "bridged"), False

    def takes(self, header: Header) -> bool:
        return False

    def exchange(self, frames: Sequence[Sent]) -> list[Arrival]:
        return []


OWN, FOREIGN = (bytes((1, 1, 6, 0)) + bytes(24) + mac + bytes(210) for mac in (pools.MAC, pools.FOREIGN_MAC))
UFO, USO = Header(gso_type=3, gso_size=16), Header(1, 5, 42, 252, 34, 6)


def ip4(body: bytes, field: int = 0, length: int = 0) -> bytes:
    head = struct.pack("!BBHHHBBH", 0x45, 0, length or 20 + len(body), 1, field, 64, 17, 0) + pools.OWN4 + b"\xff" * 4
    return b"\xff" * 6 + pools.MAC + b"\x08\0" + head + body


GOOD = ip4(udp(68, 67, OWN))


@pytest.mark.parametrize(
    ("sent", "came", "limit"),
    [
        ((UFO, GOOD), ip4(udp(68, 67, OWN)[:16], 0x2000), limits.FIRST),
        ((UFO, GOOD), ip4(udp(67, 68, OWN)[:16], 0x2000), None),
        ((UFO, ip4(udp(68, 67, FOREIGN))), ip4(udp(68, 67, FOREIGN)[:16], 0x2000), None),
        ((UFO, ip4(udp(68, 67, OWN)[:16], 0x2000)), ip4(udp(68, 67, OWN)[:16], 0x2000), None),
        ((UFO._replace(gso_size=7), ip4(udp(1, 2, b"\0\x43" * 8))), ip4(b"\0\x43" * 3 + b"\0", 0x2000), limits.PIECE),
        ((UFO._replace(gso_size=7), ip4(udp(1, 2, b"\0\x43" * 8))), ip4(b"\0\x43" * 4, 0x2000), None),
        ((USO, ip4(udp(68, 67, OWN[:244] + FOREIGN))), ip4(udp(68, 67, FOREIGN)), limits.LATER),
        ((USO, ip4(udp(68, 67, OWN[:244] + FOREIGN))), ip4(udp(67, 68, FOREIGN)), None),
        ((USO._replace(gso_size=16), GOOD), ip4(udp(68, 67, OWN[:16])), limits.SHORT),
        ((PLAIN, ip4(udp(68, 67, OWN), length=28)), ip4(udp(68, 67, b"")), limits.PADDING),
        ((PLAIN, ip4(udp(68, 67, FOREIGN), length=28)), ip4(udp(68, 67, b"")), None),
        ((PLAIN, GOOD), ip4(udp(68, 67, FOREIGN)), None),
    ],
)
def test_limits_have_proofs(sent: Sent, came: bytes, limit: str | None) -> None:
    """Each is the limit of its own frames alone: what the guard should have dropped as it was sent is none, nor is another port."""
    place = NoPlace()
    arrival = Arrival("tap1", PLAIN, came)
    reasons = judge(came, place.seen_by(arrival))
    assert reasons
    assert {limits.Limits(place).name(sent, arrival, reason) for reason in reasons} == {limit}


def test_the_nodes_own_answer() -> None:
    """To a ping from ``::``, behind a router; one from an address of another's, or that the guest sends itself, is none."""
    nobody, host = bytes(16), pools.PEER6

    def ping(kind: int, source: bytes, target: bytes) -> bytes:
        return b"\xfe" * 6 + pools.MAC + b"\x86\xdd" + struct.pack("!IHBB", 6 << 28, 8, 58, 64) + source + target + bytes((kind, *bytes(7)))

    place = NoPlace()
    reason = Reason("ip6", "foreign IPv6 source")
    for mode, sent, came, limit in (
        ("routed", ping(128, nobody, host), ping(129, host, nobody), limits.ANSWER),
        ("bridged", ping(128, nobody, host), ping(129, host, nobody), None),
        ("routed", ping(128, pools.OWN6, host), ping(129, host, nobody), None),
        ("routed", ping(128, nobody, host), ping(129, host, pools.PEER6), None),
        ("routed", ping(129, host, nobody), ping(129, host, nobody), None),
    ):
        place.mode = mode
        assert limits.Limits(place).name((PLAIN, sent), Arrival("up0", PLAIN, came), reason) == limit


def test_what_ports_share() -> None:
    """The frame begins further on, on Open vSwitch's kernel datapath; elsewhere that is no limit, nor is a foreign source any other way."""
    body = udp(1000, 2000, bytes(64))
    head = struct.pack("!IHBB", 6 << 28, len(body), 17, 64) + pools.OWN6 + pools.PEER6
    frame = b"\x33\x33\0\0\0\1" + pools.MAC + b"\x86\xdd" + head + body
    cut = frame[:18] + b"\0\x18\x2c" + frame[21:54] + bytes.fromhex("1100000112345678") + body[:16]
    place = NoPlace()
    for came, upcalls, limit in (
        (cut[8:], True, limits.SHARED),
        (cut[8:], False, None),
        (cut[:6] + pools.FOREIGN_MAC + cut[12:], True, None),
    ):
        place.upcalls = upcalls
        arrival = Arrival("tap2", PLAIN, came)
        reason = judge(came, place.seen_by(arrival))[0]
        assert limits.Limits(place).name((Header(1, 3, 62, 16, 54, 6), frame), arrival, reason) == limit


def test_a_checksum_is_two_bytes() -> None:
    place = NoPlace()
    for offset, far, known in ((6, 0, True), (6, 1, False), (-14, 0, False)):
        sent = Header(1, csum_start=20, csum_offset=offset), GOOD  # half of the IPv4 source; the Ethernet source
        at = 20 + offset
        came = GOOD[:at] + b"\xab\xcd" + GOOD[at + 2 : 60] + bytes((GOOD[60] ^ far,)) + GOOD[61:]
        arrival = Arrival("tap1", PLAIN, came)
        reasons = judge(came, place.seen_by(arrival))
        assert [limits.Limits(place).by_checksum(sent, arrival, reason) for reason in reasons[:1]] == [known]


def test_the_rules_are_known() -> None:
    assert facts.of(SETTINGS[0], "bridged").rules == frozenset(RULES) - {"local"}
