"""Attack frames: IPv6, neighbour discovery and DHCPv6 (RFC 8200, 4861, 6980, 7113, 8415)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from scapy.layers.dhcp6 import DHCP6_Advertise, DHCP6_RelayReply, DHCP6_Solicit
from scapy.layers.inet import UDP
from scapy.layers.inet6 import (
    ICMPv6EchoRequest,
    ICMPv6MLQuery,
    ICMPv6MLReport2,
    ICMPv6ND_NA,
    ICMPv6ND_NS,
    ICMPv6ND_RA,
    ICMPv6ND_Redirect,
    ICMPv6ND_RS,
    ICMPv6NDOptDstLLAddr,
    ICMPv6NDOptPrefixInfo,
    ICMPv6NDOptSrcLLAddr,
    ICMPv6NDOptUnknown,
    IPv6,
    IPv6ExtHdrDestOpt,
    IPv6ExtHdrFragment,
    IPv6ExtHdrHopByHop,
    IPv6ExtHdrRouting,
    PadN,
    RouterAlert,
)
from scapy.layers.l2 import Ether
from scapy.packet import Raw

from tests.support.attacks_base import (
    EUI64,
    FOREIGN6,
    FOREIGN_MAC,
    IN_PREFIX6,
    MAC,
    OTHER_LOCAL,
    OWN6,
    PEER6,
    SOLICITED,
    Kind,
    To,
    kind,
)

Build = Callable[[To], Any]
ICMP6, DESTINATION, UDP_NUMBER = 58, 60, 17
AUTHENTICATION = 51
#: A nonce (RFC 3971), or any option before the one that matters.
NONCE = ICMPv6NDOptUnknown(type=14, len=1, data=b"\1\2\3\4\5\6")


def ip6(source: str, payload: Any, mac: str = MAC, **fields: Any) -> Build:
    """An IPv6 packet from ``source``; hop limit 255, as neighbour discovery wants it."""
    return lambda to: (
        Ether(src=mac, dst=to.mac6, type=0x86DD) / IPv6(src=source, **{"dst": to.ip6, "fl": to.number, "hlim": 255, **fields}) / payload
    )


def piece(source: str, whole: Any, start: int, end: int | None = None, following: int = ICMP6, **fields: Any) -> Build:
    """The bytes from ``start`` to ``end`` of what follows the IPv6 header of ``whole``, as a fragment."""

    def build(to: To) -> Any:
        body = bytes(IPv6(src=source, dst=fields.get("dst", to.ip6)) / whole)[40:]
        assert len(body) > start
        header = IPv6ExtHdrFragment(nh=following, offset=start // 8, m=int(end is not None), id=7)
        return ip6(source, header / Raw(body[start:end]), **fields)(to)

    return build


def authenticated(following: int, source: str, payload: Any) -> Build:
    """A packet whose payload, of the protocol ``following``, is behind an authentication header (RFC 4302) of 24 bytes."""

    def build(to: To) -> Any:
        body = bytes(IPv6(src=source, dst=to.ip6) / payload)[40:]
        return ip6(source, Raw(bytes((following, 4)) + bytes(22) + body), nh=AUTHENTICATION)(to)

    return build


def plain() -> Any:
    """What has nothing to do with any rule."""
    return UDP(sport=1000, dport=2000) / Raw(b"netcommon" * 4)


def advertisement(target: str, *options: Any) -> Any:
    """A neighbour advertisement that overrides."""
    made = ICMPv6ND_NA(tgt=target, R=0, S=0, O=1)
    for option in options:
        made /= option
    return made


def solicitation(target: str, *options: Any) -> Any:
    """A neighbour solicitation."""
    made = ICMPv6ND_NS(tgt=target)
    for option in options:
        made /= option
    return made


def own(option: Any) -> Any:
    """A link-layer option with the NIC's MAC."""
    return option(lladdr=MAC)


def foreign(option: Any) -> Any:
    """A link-layer option with somebody else's MAC."""
    return option(lladdr=FOREIGN_MAC)


def _ip6() -> Iterator[Kind]:
    yield kind("IPv6, own address", ip6(OWN6, plain()))
    yield kind("IPv6, own address, echo request", ip6(OWN6, ICMPv6EchoRequest(data=b"netcommon")))
    yield kind("IPv6, own address, options", ip6(OWN6, IPv6ExtHdrDestOpt() / plain()))
    yield kind("IPv6, address of the prefix", ip6(IN_PREFIX6, plain()))
    yield kind("IPv6, no address", ip6("::", plain()))
    yield kind("IPv6, link-local address of the MAC", ip6(EUI64, plain()))
    yield kind("IPv6, other link-local address", ip6(OTHER_LOCAL, plain()), "local")
    yield kind("IPv6, foreign address", ip6(FOREIGN6, plain()), "ip6")
    yield kind("IPv6, foreign address, options", ip6(FOREIGN6, IPv6ExtHdrHopByHop() / IPv6ExtHdrDestOpt() / plain()), "ip6")
    yield kind("IPv6, beside the prefix", ip6("2001:db8:1:1::5", plain()), "ip6")
    yield kind("IPv6, mapped IPv4 address", ip6("::ffff:10.0.0.1", plain()), "ip6")
    yield kind("IPv6, loopback address", ip6("::1", plain()), "ip6")
    yield kind("IPv6, group address", ip6("ff02::1", plain()), "ip6")
    yield kind("IPv6, site-local address", ip6("fec0::1", plain()), "ip6")
    yield kind("IPv6, foreign MAC", ip6(OWN6, plain(), FOREIGN_MAC), "mac")
    yield kind("IPv6, first fragment", piece(OWN6, plain(), 0, 16, UDP_NUMBER))
    yield kind("IPv6, later fragment", piece(OWN6, plain(), 16, None, UDP_NUMBER))
    yield kind("IPv6, foreign address, later fragment", piece(FOREIGN6, plain(), 16, None, UDP_NUMBER), "ip6")
    yield kind("IPv6, cut off", lambda to: Raw(bytes(ip6(OWN6, plain())(to))[:22]), "never")
    report = IPv6ExtHdrHopByHop(options=[RouterAlert()]) / ICMPv6MLReport2()
    yield kind("MLD report", ip6(EUI64, report, hlim=1))
    alert = IPv6ExtHdrHopByHop(options=[RouterAlert()])
    yield kind("MLD query", ip6(EUI64, alert / ICMPv6MLQuery(), hlim=1), "never")
    yield kind("MLD query of a group", ip6(EUI64, alert / ICMPv6MLQuery(mladdr="ff02::1:3"), hlim=1), "never")
    yield kind("MLD query, first fragment", piece(EUI64, ICMPv6MLQuery(), 0, 16, hlim=1), "never")
    yield kind("MLD report without an address", ip6("::", report, hlim=1))


def _neighbours() -> Iterator[Kind]:
    source, target = ICMPv6NDOptSrcLLAddr, ICMPv6NDOptDstLLAddr
    long = ICMPv6NDOptUnknown(type=2, len=2, data=bytes.fromhex(FOREIGN_MAC.replace(":", "")) + bytes(8))
    empty = ICMPv6NDOptUnknown(type=14, len=0, data=bytes(6))
    yield kind("NS", ip6(OWN6, solicitation(PEER6, own(source))))
    yield kind("NS, duplicate address detection", ip6("::", solicitation(OWN6)))
    yield kind("NS, duplicate address detection with nonce", ip6("::", solicitation(EUI64, NONCE)))
    yield kind("NS, duplicate address detection of a foreign address", ip6("::", solicitation(FOREIGN6)), "ip6")
    yield kind("NS, foreign source MAC option", ip6(OWN6, solicitation(PEER6, foreign(source))), "mac")
    yield kind("NS, foreign source MAC option after another", ip6(OWN6, solicitation(PEER6, NONCE, foreign(source))), "mac")
    yield kind("NS, foreign source MAC option, link-local", ip6(EUI64, solicitation(PEER6, foreign(source))), "mac")
    yield kind("NS, foreign address", ip6(FOREIGN6, solicitation(PEER6, own(source))), "ip6")
    yield kind("NA, own target", ip6(OWN6, advertisement(OWN6, own(target))))
    yield kind("NA, own target without option", ip6(OWN6, advertisement(OWN6)))
    yield kind("NA, target of the prefix", ip6(OWN6, advertisement(IN_PREFIX6, own(target))))
    yield kind("NA, link-local target of the MAC", ip6(EUI64, advertisement(EUI64, own(target))))
    yield kind("NA, other link-local target", ip6(EUI64, advertisement(OTHER_LOCAL, own(target))), "local")
    yield kind("NA, foreign target", ip6(OWN6, advertisement(FOREIGN6, own(target))), "ip6")
    yield kind("NA, foreign target, link-local source", ip6(EUI64, advertisement(FOREIGN6, own(target))), "ip6")
    yield kind("NA, foreign target without option", ip6(OWN6, advertisement(FOREIGN6)), "ip6")
    yield kind("NA, foreign target MAC option", ip6(OWN6, advertisement(OWN6, foreign(target))), "mac")
    yield kind("NA, foreign target MAC option after own", ip6(OWN6, advertisement(OWN6, own(target), foreign(target))), "mac")
    yield kind("NA, foreign target MAC option after another", ip6(OWN6, advertisement(OWN6, NONCE, foreign(target))), "mac")
    yield kind("NA, foreign target and MAC option", ip6(OWN6, advertisement(FOREIGN6, foreign(target))), "ip6", "mac")
    hidden = advertisement(FOREIGN6, own(target))
    yield kind("NA, foreign target, behind options", ip6(OWN6, IPv6ExtHdrDestOpt() / hidden), "ip6")
    yield kind("NA, foreign target, behind hop-by-hop", ip6(OWN6, IPv6ExtHdrHopByHop() / hidden), "ip6")
    yield kind("NA, foreign target, behind a routing header", ip6(OWN6, IPv6ExtHdrRouting(segleft=0) / hidden), "ip6")
    yield kind("NA, foreign target, hop limit 64", ip6(OWN6, hidden, hlim=64), "ip6")
    yield kind("NA, foreign target MAC option of twice the length", ip6(OWN6, advertisement(OWN6, long)), "mac")
    yield kind("NS, foreign source MAC option after one without length", ip6(OWN6, solicitation(PEER6, empty, foreign(source))), "mac")
    yield kind("NA, foreign target, in fragments", piece(OWN6, hidden, 0, 24), "never")
    yield kind("NA, foreign target, in one fragment", ip6(OWN6, IPv6ExtHdrFragment(id=7) / hidden), "never")


def _routers() -> Iterator[Kind]:
    ra = ICMPv6ND_RA() / ICMPv6NDOptPrefixInfo(prefix="2001:db8:bad::") / own(ICMPv6NDOptSrcLLAddr)
    yield kind("RS", ip6(EUI64, ICMPv6ND_RS() / own(ICMPv6NDOptSrcLLAddr)))
    yield kind("RS without an address", ip6("::", ICMPv6ND_RS()))
    yield kind("RS, foreign source MAC option", ip6(EUI64, ICMPv6ND_RS() / foreign(ICMPv6NDOptSrcLLAddr)), "mac")
    yield kind("RA", ip6(EUI64, ra), "dhcp")
    yield kind("RA, own global address", ip6(OWN6, ra), "dhcp")
    yield kind("RA, bare", ip6(EUI64, ICMPv6ND_RA()), "dhcp")
    yield kind("RA, behind hop-by-hop", ip6(EUI64, IPv6ExtHdrHopByHop() / ra), "dhcp")
    yield kind("RA, behind options", ip6(EUI64, IPv6ExtHdrDestOpt() / ra), "dhcp")
    yield kind("RA, behind both, twice", ip6(EUI64, IPv6ExtHdrHopByHop() / IPv6ExtHdrDestOpt() / IPv6ExtHdrDestOpt() / ra), "dhcp")
    long = IPv6ExtHdrDestOpt(options=[PadN(optdata=bytes(250)) for _ in range(4)])
    yield kind("RA, behind a routing header", ip6(EUI64, IPv6ExtHdrRouting(segleft=0) / ra), "dhcp")
    yield kind("RA, behind 1 KiB of options", ip6(EUI64, long / ra), "dhcp")
    yield kind("RA, behind two headers of one fragment", ip6(EUI64, IPv6ExtHdrFragment(id=7) / IPv6ExtHdrFragment(id=8) / ra), "never")
    yield kind("RA, first fragment", piece(EUI64, ra, 0, 24), "never")
    yield kind("RA, in one fragment", ip6(EUI64, IPv6ExtHdrFragment(id=7) / ra), "never")
    yield kind("RA, in fragments behind options", piece(EUI64, IPv6ExtHdrDestOpt() / ra, 0, 24, DESTINATION), "never")
    yield kind("RA, headers cut by the fragment", piece(EUI64, IPv6ExtHdrDestOpt() / ra, 0, 8, DESTINATION), "never")
    yield kind("redirect", ip6(EUI64, ICMPv6ND_Redirect(tgt=OWN6, dst=PEER6)), "dhcp")


def _dhcp6() -> Iterator[Kind]:
    answer = UDP(sport=547, dport=546) / DHCP6_Advertise()
    yield kind("DHCPv6 client", ip6(EUI64, UDP(sport=546, dport=547) / DHCP6_Solicit()))
    yield kind("DHCPv6 server", ip6(EUI64, answer), "dhcp")
    yield kind("DHCPv6 server, own global address", ip6(OWN6, answer), "dhcp")
    yield kind("DHCPv6 server, other source port", ip6(EUI64, UDP(sport=1000, dport=546) / DHCP6_Advertise()), "dhcp")
    yield kind("DHCPv6 server to a relay", ip6(OWN6, UDP(sport=547, dport=547) / DHCP6_RelayReply()), "dhcp")
    yield kind("DHCPv6 server, behind options", ip6(EUI64, IPv6ExtHdrDestOpt() / answer), "dhcp")
    long = answer / Raw(bytes(40))
    yield kind("DHCPv6 server, first fragment", piece(EUI64, long, 0, 24, UDP_NUMBER), "dhcp")
    yield kind("DHCPv6 server, whole in a first fragment", piece(EUI64, long, 0, 1 << 16, UDP_NUMBER), "dhcp")
    yield kind("DHCPv6 server, first fragment to a solicited-node address", piece(EUI64, long, 0, 24, UDP_NUMBER, dst=SOLICITED), "dhcp")
    # What is not in the first fragment comes in a later one (RFC 7112).
    yield kind("DHCPv6 server, ports in the second fragment", piece(EUI64, IPv6ExtHdrDestOpt() / long, 0, 8, DESTINATION), "never")


#: Headers that a receiver may look behind, though most filters take them for the last one (RFC 6275, 7401, 5533).
HIDING = {"mobility": 135, "HIP": 139, "shim6": 140}


def behind(number: int, following: int, inner: Any) -> Build:
    """Build ``inner`` behind an extension header of 8 bytes of the kind ``number``, whose next header is ``following``."""
    return ip6(EUI64, Raw(bytes((following, 0, 0, 0, 0, 0, 0, 0)) + bytes(IPv6(src=EUI64, dst="ff02::1") / inner)[40:]), nh=number)


def _hidden() -> Iterator[Kind]:
    """What is behind a header that only receivers read: IPv6 has no way of its own to skip an unknown one in the guard."""
    ra = ICMPv6ND_RA() / ICMPv6NDOptPrefixInfo(prefix="2001:db8:bad::")
    for name, number in HIDING.items():
        yield kind(f"RA, behind {name}", behind(number, ICMP6, ra), "never")
        yield kind(f"NA, foreign target, behind {name}", behind(number, ICMP6, advertisement(FOREIGN6)), "never")
        yield kind(f"DHCPv6 server, behind {name}", behind(number, UDP_NUMBER, UDP(sport=547, dport=546) / DHCP6_Advertise()), "never")
    answer, target = UDP(sport=547, dport=546) / DHCP6_Advertise(), advertisement(FOREIGN6, own(ICMPv6NDOptDstLLAddr))
    yield kind("IPv6, own address, authentication", authenticated(UDP_NUMBER, OWN6, plain()))
    yield kind("RA, behind authentication", authenticated(ICMP6, EUI64, ra), "dhcp")
    yield kind("NA, foreign target, behind authentication", authenticated(ICMP6, OWN6, target), "ip6")
    yield kind("DHCPv6 server, behind authentication", authenticated(UDP_NUMBER, EUI64, answer), "dhcp")


def kinds() -> Iterator[Kind]:
    """All of IPv6's."""
    yield from _hidden()
    yield from _ip6()
    yield from _neighbours()
    yield from _routers()
    yield from _dhcp6()
