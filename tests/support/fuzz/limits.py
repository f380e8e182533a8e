"""The documented limits of the guard (docs/spoof-guard.md, Offloads and Limits; docs/openvswitch.md), each with its proof.

Common to all but the checksum's: the frame as it was sent, read as far as it goes, breaks no rule. So the guard was shown something right,
and what arrives differs by what the kernel, or its IP header, has made of it.
"""

from __future__ import annotations

from tests.support.fuzz.facts import NO6
from tests.support.fuzz.offload import NEEDS_CSUM, UDP_EACH, UDP_WHOLE
from tests.support.fuzz.oracle import CHADDR, IPV4, IPV6, PLAIN, QTAG, SERVER, STAG, UDP, Header, judge
from tests.support.fuzz.oracle6 import FRAGMENT, SERVER6, walk
from tests.support.fuzz.place import Place, Sent
from tests.support.fuzz.reason import PROMISE, Reason
from tests.support.fuzz.receivers import Arrival

CHECKSUM = "checksum offload: the two bytes that it wrote made the difference"
PIECE = "UDP fragmentation offload: a piece shorter than a UDP header, which nobody takes"
FIRST = "UDP fragmentation offload: the first fragment of a message to a DHCP server, compared as a whole"
SHARED = "UDP fragmentation offload over IPv6 on Open vSwitch's kernel datapath: the ports after the first share its bytes"
LATER = "UDP segmentation offload: a later datagram to a DHCP server"
SHORT = "UDP segmentation offload: the first datagram to a DHCP server is cut short, and no message"
PADDING = "bytes beyond the IP length: the guard read them, the datagram has none of them, and no message"
REMEMBERED = "Open vSwitch's kernel datapath: an entry made of another frame of the guest's took a good one, until it had gone"
ANSWER = "the node's own answer to an echo request from ::, by its default route"

FRAGMENTS = frozenset({"dhcp-fragment", "dhcp-short", "dhcp6-message"})  #: what the first fragment to a server has too little of
#: What a message to a server says.
MESSAGES = frozenset({"dhcp6-message", "chaddr", "relayed", "dhcp-short", "dhcp-operation", "dhcp-server"})
EMPTY = frozenset({"malformed", "dhcp-short", "dhcp6-message"})  #: what a datagram lacks whose end is before its message's


class Limits:
    """The limits of a place's guard."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self.written = 0 if place.takes(Header(NEEDS_CSUM, csum_offset=80)) else 20  #: first byte that a checksum may be written to

    def name(self, sent: Sent, arrival: Arrival, reason: Reason) -> str | None:
        """The limit by which a frame that was sent alone has come through; None: there is none."""
        header, frame = sent
        if self.place.mode == "routed" and answered(frame, arrival.frame):
            return ANSWER
        if header.flags & NEEDS_CSUM and self._without_checksum(sent, arrival, reason):
            return CHECKSUM
        if self._broken(stretched(frame), arrival._replace(header=PLAIN)):
            return None
        if self.place.upcalls and header.kind == UDP_WHOLE and header.flags & NEEDS_CSUM and shifted(frame, arrival.frame):
            return SHARED
        if header.kind == UDP_WHOLE and (limit := self._piece(sent, arrival, reason)) is not None:
            return limit
        if header.kind == UDP_EACH and (limit := self._segment(sent, arrival, reason)) is not None:
            return limit
        if reason.rule in EMPTY and reason.level == PROMISE and stretched(frame) != frame:
            if family(frame)[0] == IPV4:
                return PADDING if len(payload(arrival.frame)) < 8 + CHADDR else None
            return PADDING if len(payload(arrival.frame)) < 9 and not fragment(frame) else None  # what follows may complete it
        return None

    def by_checksum(self, sent: Sent, arrival: Arrival, reason: Reason) -> bool:
        """Tell whether the arrival is what was sent but for the checksum, and without that would have broken nothing."""
        header, frame = sent
        if not header.flags & NEEDS_CSUM or not self._but_two(frame, arrival.frame, header):
            return False
        return reason.rule not in self._broken(frame, arrival)

    def _without_checksum(self, sent: Sent, arrival: Arrival, reason: Reason) -> bool:
        """Tell whether the frame arrives without offload too, is the same but for two bytes there, and breaks nothing."""
        header, frame = sent
        for simpler in (header._replace(flags=header.flags & ~NEEDS_CSUM), PLAIN):
            for other in self.place.exchange([(simpler, frame)]):
                same = other.receiver == arrival.receiver and self._but_two(other.frame, arrival.frame, header)
                if same and reason.rule not in self._broken(other.frame, other):
                    return True
        return False

    def _piece(self, sent: Sent, arrival: Arrival, reason: Reason) -> str | None:
        """What UDP fragmentation offload has made of a whole datagram."""
        header, frame = sent
        came = payload(arrival.frame)
        if header.gso_size < 8 and reason.level == PROMISE and len(came) < 8:
            return PIECE
        whole = fragment(frame) is False and fragment(arrival.frame)
        if whole and reason.rule in FRAGMENTS and to_server(arrival.frame) and ports(arrival.frame) == ports(frame):
            return FIRST
        return None

    def _segment(self, sent: Sent, arrival: Arrival, reason: Reason) -> str | None:
        """What UDP segmentation offload has made of one datagram: many of the same addresses and ports."""
        header, frame = sent
        if reason.rule not in MESSAGES or not to_server(arrival.frame) or ports(arrival.frame) != ports(frame):
            return None
        first = payload(stretched(frame))[8 : 8 + header.gso_size]
        if payload(arrival.frame)[8:] != first:
            return LATER
        return SHORT if reason.level == PROMISE else None

    def _but_two(self, one: bytes, other: bytes, header: Header) -> bool:
        """Tell whether two frames are the same but for the two bytes where the checksum is written."""
        place = header.csum_start + header.csum_offset
        if place < self.written or place + 2 > len(other):
            return False
        return one[:place] == other[:place] and one[place + 2 :] == other[place + 2 :]

    def _broken(self, frame: bytes, arrival: Arrival) -> set[str]:
        """The rules that a frame would break in the arrival's place."""
        return {each.rule for each in judge(frame, self.place.seen_by(arrival), arrival.header)}


def remembered(place: Place, sent: Sent) -> list[Arrival] | None:
    """List what arrives of a good frame once the entry that takes it has gone; None: no entry takes it, or the flows do not let it pass.

    ovs-vswitchd has read a frame with its checksum written, the kernel's key is that of the frame without (docs/openvswitch.md).
    """
    if place.entries is None:
        return None
    before = place.entries.drops()
    late = place.exchange([sent])
    met = {entry for entry, count in place.entries.drops().items() if count > before.get(entry, count)}
    if not met or not place.entries.passes(sent[1]):
        return None
    place.entries.gone(met)
    return late + place.exchange([sent])


def answered(frame: bytes, came: bytes) -> bool:
    """Tell whether ``came`` is an echo reply of whom ``frame`` was sent to from ``::``: no router forwards what is to ``::``."""
    one, other = frame[14:], came[14:]
    if family(frame) != (IPV6, 14) or family(came) != (IPV6, 14) or len(one) < 40:
        return False
    return one[8:24] == NO6 and other[6:8] == b"\x3a\x40" and other[8:40] == one[24:40] + NO6 and other[40:42] == b"\x81\0"


def family(frame: bytes) -> tuple[bytes, int]:
    """The type of what is behind the tags, and where it begins."""
    start = 14
    while frame[start - 2 : start] in (QTAG, STAG):
        start += 4
    return frame[start - 2 : start], start


def shifted(frame: bytes, came: bytes) -> bool:
    """Tell whether ``came`` begins some eight bytes further on in the headers of ``frame``, but for what the kernel has written there."""
    kind, start = family(frame)
    length = range(start + 4, start + 7)  #: and the next header
    places = range(8, start + 40 - 16, 8)
    return kind == IPV6 and any(
        all(at in length or byte == frame[at] for at, byte in enumerate(came[: start + 40 - place], place)) for place in places
    )


def stretched(frame: bytes) -> bytes:
    """The frame with the IP length that it has itself: what the kernel writes when it cuts one up, and the guard reads in any case."""
    kind, start = family(frame)
    size = len(frame) - start
    if kind == IPV4 and 20 <= size < 65536:
        return frame[: start + 2] + size.to_bytes(2, "big") + frame[start + 4 :]
    if kind == IPV6 and 40 <= size < 65536 + 40:
        return frame[: start + 4] + (size - 40).to_bytes(2, "big") + frame[start + 6 :]
    return frame


def payload(frame: bytes) -> bytes:
    """What is behind the IP headers, of UDP, and within the IP length; nothing of a later fragment."""
    kind, start = family(frame)
    packet = frame[start:]
    if kind == IPV4 and len(packet) >= 20 and packet[9] == UDP and not int.from_bytes(packet[6:8], "big") & 0x1FFF:
        return packet[(packet[0] & 15) * 4 : int.from_bytes(packet[2:4], "big")]
    if kind == IPV6 and len(packet) >= 40 and (way := walk(packet)) is not None and way.protocol == UDP:
        return packet[way.at : way.end]
    return b""


def fragment(frame: bytes) -> bool:
    """Tell whether it is one of several."""
    kind, start = family(frame)
    packet = frame[start:]
    if kind == IPV4:
        return bool(int.from_bytes(packet[6:8], "big") & 0x3FFF)
    way = walk(packet)
    return way is None or FRAGMENT in way.chain


def ports(frame: bytes) -> tuple[bytes, bytes]:
    """The addresses of an IP packet, and the ports of its UDP."""
    kind, start = family(frame)
    first, size = (12, 8) if kind == IPV4 else (8, 32)
    return frame[start + first : start + first + size], payload(stretched(frame))[:4]


def to_server(frame: bytes) -> bool:
    """Tell whether it is UDP to a DHCP or DHCPv6 server, and not from one."""
    server = (SERVER if family(frame)[0] == IPV4 else SERVER6).to_bytes(2, "big")
    found = payload(frame)
    return found[2:4] == server != found[:2]


def without_id(frame: bytes) -> bytes:
    """The frame without the identification of an IPv6 fragment, which the kernel makes up anew each time."""
    kind, start = family(frame)
    packet = frame[start:]
    if kind != IPV6 or len(packet) < 40:
        return frame
    protocol, at = packet[6], 40
    while protocol in (0, 43, 60) and at + 8 <= len(packet):
        protocol, at = packet[at], at + (packet[at + 1] + 1) * 8
    if protocol != FRAGMENT:
        return frame
    at += start
    return frame[: at + 4] + bytes(len(frame[at + 4 : at + 8])) + frame[at + 8 :]
