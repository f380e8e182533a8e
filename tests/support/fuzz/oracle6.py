"""The oracle's IPv6: sources, the way through extension headers, neighbour discovery, DHCPv6 (RFC 8200, 4861, 6980, 7112, 8415)."""

from __future__ import annotations

import itertools
from typing import NamedTuple

from tests.support.fuzz.facts import NO6, Facts
from tests.support.fuzz.reason import DECEIVES, PROMISE, Reason

UDP, ICMP6, FRAGMENT, AH = 17, 58, 44, 51
#: Hop-by-hop, routing, destination, mobility, HIP, shim6: the first byte is what follows, the second the length in 8 bytes less one.
EXTENSIONS = frozenset({0, 43, 60, 135, 139, 140})
HIDING = EXTENSIONS | {UDP, ICMP6, FRAGMENT, AH}  #: what the rest of a header chain that is cut off may lead to
RARE = frozenset({51, 135, 139, 140})
PLAIN_BEHIND = frozenset({6, 50, 59, 132})  #: TCP, ESP, nothing, SCTP
NAMES = {0: "hop-by-hop", 43: "routing", 60: "destination", 44: "fragment", 51: "AH", 135: "mobility", 139: "HIP", 140: "shim6"}
MLD_QUERY = 130
SOLICITED_ROUTER, ROUTER, SOLICITATION, ADVERTISEMENT, REDIRECT = 133, 134, 135, 136, 137
FIXED = {SOLICITED_ROUTER: 8, SOLICITATION: 24, ADVERTISEMENT: 24}  #: where options begin
LEAST = {ROUTER: 16, REDIRECT: 40}
SOURCE_LINK, TARGET_LINK, NONCE = 1, 2, 14
SERVER6, CLIENT6 = 547, 546
CLIENTS = frozenset({1, 3, 4, 5, 6, 8, 9, 11})  #: messages of clients
OTHERS = frozenset({2, 7, 10, 12, 13})  #: of servers and relay agents


class Walked(NamedTuple):
    """Where the walk through the headers of a packet has ended."""

    protocol: int
    at: int
    end: int
    chain: tuple[int, ...]
    more: bool  #: it is a first fragment, which others follow
    odd: bool  #: and one whose length is not a multiple of 8, which receivers must discard (RFC 8200, 4.5)


def judge(packet: bytes, facts: Facts, found: list[Reason]) -> None:
    """Adds what is wrong with an IPv6 packet. Of another version nobody reads it; flows see less of neighbour discovery, as documented."""
    made: list[Reason] = []
    _judge(packet, facts, made)
    if packet[:1] and packet[0] >> 4 != 6:
        made = [reason._replace(level=PROMISE) for reason in made]
    if facts.mode == "openvswitch":
        made = [
            reason for reason in made if reason.level == DECEIVES or not reason.rule.startswith(("nd-", "ra", "headers", "dhcp6", "query"))
        ]
    found += made


def _judge(packet: bytes, facts: Facts, found: list[Reason]) -> None:
    if len(packet) < 40:
        found.append(Reason("malformed", "IPv6, cut off", PROMISE))
        return
    if packet[8:24] != NO6 and not facts.knows6(packet[8:24]):
        found.append(Reason("ip6", "foreign IPv6 source"))
    way = walk(packet)
    if way is None:
        return
    if (after := _behind_rare(way)) is not None and after not in PLAIN_BEHIND and facts.mode != "openvswitch":
        found.append(Reason("hidden", f"{after} behind {names(way)}", PROMISE, hidden(way)))
    if way.more and way.protocol in HIDING and (way.at >= way.end or (way.protocol == UDP and way.at + 4 > way.end)):
        empty = way.chain[-1] == FRAGMENT and way.at >= way.end  # nothing of it is kept
        harmless = way.protocol == ICMP6 and packet[7] != 255  # neighbour discovery of another hop limit is discarded
        level = PROMISE if way.odd or empty or harmless else DECEIVES
        found.append(Reason("headers-cut", f"first fragment without all headers, after {names(way)}", level, hidden(way)))
    elif way.protocol == ICMP6 and way.at < way.end:
        _icmp6(packet, way, facts, found)
    elif way.protocol == UDP and way.at + 4 <= way.end and "dhcp" in facts.rules:
        _dhcp6(packet, way, facts, found)


def _behind_rare(way: Walked) -> int | None:
    """What follows the first header of those that few look behind; None where there is none. Linux does look behind AH."""
    headers = (*way.chain, way.protocol)
    return next((after for header, after in itertools.pairwise(headers) if header in RARE - {AH}), None)


def hidden(way: Walked) -> str:
    """Behind what kinds of headers: those that Linux walks through, or others too."""
    if not way.chain:
        return ""
    if RARE & {*way.chain, way.protocol}:
        return "behind AH, mobility, HIP or shim6"
    return "behind " + ("a hop-by-hop header that is not the first" if 0 in way.chain[1:] else "usual headers")


def names(way: Walked) -> str:
    """The extension headers, for a reader."""
    return " ".join(NAMES[each] for each in way.chain) or "no extension header"


def walk(packet: bytes) -> Walked | None:
    """Goes through the headers as far as the packet's length goes; None for a later fragment, of which nothing is known.

    Linux takes a packet of length 0 with a hop-by-hop header as a jumbogram, and trims nothing (ipv6_rcv).
    """
    length, protocol, at = int.from_bytes(packet[4:6], "big"), packet[6], 40
    end = len(packet) if length == 0 and protocol == 0 else min(len(packet), 40 + length)
    chain: list[int] = []
    more = odd = False
    while at + 8 <= end and (protocol in EXTENSIONS or protocol in (AH, FRAGMENT)):
        chain.append(protocol)
        if protocol == FRAGMENT:
            field = int.from_bytes(packet[at + 2 : at + 4], "big")
            if field & 0xFFF8:
                return None
            more, size = more or bool(field & 1), 8
            odd = odd or bool(field & 1 and (end - at) % 8)
        else:
            size = (packet[at + 1] + 2) * 4 if protocol == AH else (packet[at + 1] + 1) * 8
        protocol, at = packet[at], at + size
    if protocol in EXTENSIONS or protocol in (AH, FRAGMENT):
        at = end  # the chain does not end within the packet
    return Walked(protocol, at, end, tuple(chain), more, odd)


def _icmp6(packet: bytes, way: Walked, facts: Facts, found: list[Reason]) -> None:
    kind = packet[way.at]
    if kind == MLD_QUERY:
        level = DECEIVES if way.at + 24 <= way.end else PROMISE
        found.append(Reason("query", f"MLD query, {names(way)}", level, hidden(way)))
    if not SOLICITED_ROUTER <= kind <= REDIRECT:
        return
    level = DECEIVES if packet[7] == 255 else PROMISE  # RFC 4861, 6.1 and 7.1: others are discarded
    if way.more or (FRAGMENT in way.chain and facts.mode != "openvswitch"):
        found.append(Reason("nd-fragment", f"neighbour discovery {kind} behind {names(way)}", level, hidden(way)))
    elif way.chain and facts.mode != "openvswitch":
        found.append(Reason("nd-extension", f"neighbour discovery {kind} behind {names(way)}", PROMISE, hidden(way)))
    if kind in (ROUTER, REDIRECT):
        level = level if way.end - way.at >= LEAST[kind] else PROMISE  # RFC 4861, 6.1.2 and 8.1: shorter ones are discarded
        if "dhcp" in facts.rules:
            found.append(Reason("ra", f"{'router advertisement' if kind == ROUTER else 'redirect'}, {names(way)}", level, hidden(way)))
        return
    message = packet[way.at : way.end]
    # a solicitation from no address keeps the target's owner from taking it (RFC 4862, 5.4.3); no flow compares that
    claims = kind == ADVERTISEMENT or (kind == SOLICITATION and packet[8:24] == NO6 and facts.mode != "openvswitch")
    if claims and len(message) >= 24 and not facts.knows6(message[8:24]):
        exact = level if any(message[8:24]) else PROMISE
        found.append(Reason("nd-target", f"neighbour discovery {kind}, foreign target, {names(way)}", exact, hidden(way)))
    if "mac" in facts.rules:
        _options(message, kind, way, level, facts, found)


def _options(message: bytes, kind: int, way: Walked, level: str, facts: Facts, found: list[Reason]) -> None:
    """Receivers discard a message with an option without length, and a link-layer option whose length is not that of a MAC."""
    at, options = FIXED[kind], list[tuple[int, bytes]]()
    valid = True
    while at + 8 <= len(message):
        size = message[at + 1] * 8
        if size == 0 or at + size > len(message):
            valid = False
            size = 8
        options.append((message[at], message[at + 2 : at + size]))
        at += size
    seen = level if valid else PROMISE
    for option, value in options:
        if option in (SOURCE_LINK, TARGET_LINK) and value[:6] != facts.mac:
            read = option == (TARGET_LINK if kind == ADVERTISEMENT else SOURCE_LINK)  # receivers pass over the other one
            read = read and any(value)  # that of nobody: the guest harms its own addresses alone
            read = read and not (facts.mode == "openvswitch" and kind == SOLICITED_ROUTER)  # as documented
            exact = seen if read and len(value) == 6 else PROMISE
            text = f"neighbour discovery {kind}, option {option} with a foreign MAC, {names(way)}"
            found.append(Reason("nd-option", text, exact, hidden(way)))
    allowed = (TARGET_LINK,) if kind == ADVERTISEMENT else (SOURCE_LINK, NONCE) if kind == SOLICITATION else (SOURCE_LINK,)
    if len(options) > 1 or any(option not in allowed for option, _ in options):
        found.append(Reason("nd-options", f"neighbour discovery {kind}, options {[option for option, _ in options]}", PROMISE, hidden(way)))


def _dhcp6(packet: bytes, way: Walked, facts: Facts, found: list[Reason]) -> None:
    source, target = int.from_bytes(packet[way.at : way.at + 2], "big"), int.from_bytes(packet[way.at + 2 : way.at + 4], "big")
    if source == SERVER6 or target == CLIENT6:
        level = DECEIVES if way.at + 8 <= way.end else PROMISE  # shorter ones are discarded
        found.append(Reason("dhcp6-server", f"UDP from {source} to {target}, {names(way)}", level, hidden(way)))
    elif target == SERVER6 and facts.mode != "openvswitch":
        kind = packet[way.at + 8] if way.at + 8 < way.end else 0
        if kind not in CLIENTS:
            level = DECEIVES if kind in OTHERS else PROMISE
            found.append(Reason("dhcp6-message", f"message {kind} to a DHCPv6 server or relay, {names(way)}", level, hidden(way)))
