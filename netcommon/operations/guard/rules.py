"""The constant rules of the spoof guard: tables of netdev, whose sets say what each NIC may do. docs/spoof-guard.md explains them.

Every guarded NIC has a base chain of its own, which sends what the guest transmits to the chain "guard", before anything else sees it:
the bridge, the host itself, routing. Sets are keyed by the device's index, which no other device gets, whatever its name. Who is in no
set may do nothing.

What bridges deliver to their guests passes a table of its own (netcommon.operations.guard.egress_filter).
"""

from __future__ import annotations

from netcommon.host.api.nftables import (
    ETHER_TYPE,
    IFINDEX_TYPE,
    IPV4_TYPE,
    IPV6_TYPE,
    NETDEV,
    SERVICE_TYPE,
    NftChain,
    NftRule,
    NftSet,
)
from netcommon.host.nftables.expressions import (
    ACCEPT,
    DIFFERENT,
    DROP,
    EQUAL,
    GOTO,
    GREATER_EQUAL,
    JUMP,
    LESS_EQUAL,
    LINK_HEADER,
    META_IIF,
    META_L4PROTO,
    META_PROTOCOL,
    NETWORK_HEADER,
    RETURN,
    TRANSPORT_HEADER,
    compare,
    extension,
    load,
    mask,
    meta,
    present,
    remember,
    verdict,
    within,
)

WITHOUT = "or switch the spoof guard off, spoof_guard = false in [nic] of the settings"

#: Why a frame is dropped: each NIC has a counter for each (the set "dropped-REASON").
REASONS = ("vlan", "mac", "type", "ip", "dhcp", "ra", "query", "malformed")

#: Why a frame of a limited NIC is dropped: it has begun to use too many addresses. Only limited NICs have this counter.
SOURCES = "sources"

#: The chain that tells a table of these rules and sets from one that an earlier version has made. Raised with every change.
LAYOUT = "layout-4"

#: Sets of devices that are free of a check.
FREE_MAC, FREE_IPV4, FREE_IPV6, FREE_DHCP, FREE_TYPE = "free-mac", "free-ipv4", "free-ipv6", "free-dhcp", "free-type"
FREE_QUERY, ANY_LINK_LOCAL, NO_MAC = "free-query", "any-link-local", "no-mac"
FLAGS = (FREE_MAC, FREE_IPV4, FREE_IPV6, FREE_DHCP, FREE_TYPE, FREE_QUERY, ANY_LINK_LOCAL, NO_MAC)

#: Sets of a device and what it may use.
MACS, IPV4, IPV6, PREFIXES4, PREFIXES6, VLANS = "macs", "ipv4", "ipv6", "prefixes4", "prefixes6", "vlans"
DEVICE = (IFINDEX_TYPE, 4)
KEYS = {
    MACS: (DEVICE, (ETHER_TYPE, 6)),
    IPV4: (DEVICE, (IPV4_TYPE, 4)),
    IPV6: (DEVICE, (IPV6_TYPE, 16)),
    PREFIXES4: (DEVICE, (IPV4_TYPE, 4)),
    PREFIXES6: (DEVICE, (IPV6_TYPE, 16)),
    VLANS: (DEVICE, (SERVICE_TYPE, 2)),
}
RANGES = (PREFIXES4, PREFIXES6)
#: Addresses that limited NICs have begun to use, and how many more each may begin to use. Rules fill the former.
SOURCES4, SOURCES6, NEW_SOURCES = "sources4", "sources6", "new-sources"
REMEMBERED = {SOURCES4: (DEVICE, (IPV4_TYPE, 4)), SOURCES6: (DEVICE, (IPV6_TYPE, 16))}
LASTING, MOST = 60_000, 1 << 16  #: milliseconds that an address is remembered, then it counts as new; how many a table remembers
#: The sets that have elements of NICs, which are ours alone.
SETS = frozenset({*KEYS, *FLAGS, NEW_SOURCES, *(f"dropped-{reason}" for reason in (*REASONS, SOURCES))})
CHAINS = (
    *("guard", "tagged", "reverse", "arp", "ipv4", "later4", "udp4", "dhcp4", "chaddr4"),
    *("ipv6", "agree6", "next6", "first6", "other6", "udp6", "dhcp6", "discovery", "router", "target"),
    *("sender", "source4", "source6"),
)

IIF = meta(META_IIF)
ARP_ETHERNET_IPV4 = bytes.fromhex("000108000604")  #: types and lengths of the addresses (RFC 826)
NO_FRAGMENT = load(NETWORK_HEADER, 6, 2) + mask(b"\x3f\xff") + compare(b"\0\0")
LATER_FRAGMENT4 = load(NETWORK_HEADER, 6, 2) + mask(b"\x1f\xff") + compare(b"\0\0", DIFFERENT)
FIRST_FRAGMENT6 = extension(44, 2, 2) + mask(b"\xff\xf8") + compare(b"\0\0")  #: the only one too: another fragment header may follow
LATER_FRAGMENT6 = extension(44, 2, 2) + mask(b"\xff\xf8") + compare(b"\0\0", DIFFERENT)
UDP, ICMPV6, IGMP = b"\x11", b"\x3a", b"\x02"
IGMP_QUERY, MLD_QUERY = b"\x11", b"\x82"  #: of all versions (RFC 3376, 4.1; RFC 3810, 5.1)
#: IPv6 headers that nf_tables takes for the last one, though receivers may look behind them: authentication, mobility, HIP and shim6
#: (RFC 4302, 6275, 7401, 5533); and what the guard has no rules for behind them either: TCP, ESP, nothing, SCTP.
HIDING = (b"\x33", b"\x87", b"\x8b", b"\x8c")
LAST = (UDP, ICMPV6, *HIDING)  #: the headers that the guard looks behind, or for
UNREAD = (b"\x06", b"\x32", b"\x3b", b"\x84")
FRAGMENT = b"\x2c"
SKIPPED = (b"\x00", b"\x2b", FRAGMENT, b"\x3c")  #: headers that it goes on behind: hop-by-hop, routing, fragment, destination options
ROUTER_SOLICITATION, ROUTER_ADVERTISEMENT, SOLICITATION, ADVERTISEMENT, REDIRECT = b"\x85", b"\x86", b"\x87", b"\x88", b"\x89"
SOURCE_ADDRESS, TARGET_ADDRESS, NONCE = b"\x01\x01", b"\x02\x01", b"\x0e\x01"  #: options of eight bytes (RFC 4861, 4.6.1; RFC 3971, 5.3.2)
UNSPECIFIED = bytes(16)
SPECIFIED = load(NETWORK_HEADER, 8, 16) + compare(UNSPECIFIED, DIFFERENT)  #: the source of an IPv6 packet
LINK_LOCAL_MASK, LINK_LOCAL = b"\xff\xc0" + bytes(14), b"\xfe\x80" + bytes(14)

Rule = tuple[str, bytes]


def chain_of(reason: str) -> str:
    """The chain that counts and drops."""
    return f"drop-{reason}"


def counter_of(reason: str) -> str:
    """The set whose elements count what was dropped of each device."""
    return f"dropped-{reason}"


def _drop(reason: str) -> bytes:
    return verdict(GOTO, chain_of(reason))


def _free(name: str, absent: bool = False) -> bytes:
    return IIF + within(name, absent)


def _ethertype(value: bytes) -> bytes:
    """Of the frame as it came; a tag stands before the type."""
    return load(LINK_HEADER, 12, 2) + compare(value)


def _protocol(value: bytes) -> bytes:
    """The type of what is in the frame, behind one tag."""
    return meta(META_PROTOCOL) + compare(value)


def _l4(value: bytes, operator: int = 0) -> bytes:
    return meta(META_L4PROTO) + compare(value, operator)


def _port(offset: int, number: int) -> bytes:
    return load(TRANSPORT_HEADER, offset, 2) + compare(number.to_bytes(2, "big"))


def _type(value: bytes, operator: int = 0) -> bytes:
    return load(TRANSPORT_HEADER, 0, 1) + compare(value, operator)


def _next(header: bytes) -> bytes:
    """The header that follows that of IPv6."""
    return load(NETWORK_HEADER, 6, 1) + compare(header)


def _neither(*values: bytes) -> bytes:
    """Go on where what has been loaded is none of these."""
    return b"".join(compare(value, DIFFERENT) for value in values)


def _length(value: int, operator: int = EQUAL) -> bytes:
    """Of what follows the IPv6 header."""
    return load(NETWORK_HEADER, 4, 2) + compare(value.to_bytes(2, "big"), operator)


def _link_layer(offset: int, option: bytes) -> bytes:
    """An option whose address is the NIC's MAC."""
    return load(TRANSPORT_HEADER, offset, 2) + compare(option) + IIF + load(TRANSPORT_HEADER, offset + 2, 6, 1) + within(MACS)


def _foreign(base: int, offset: int, length: int, exact: str, ranges: str, free: str) -> bytes:
    """An address that the NIC may not use."""
    return IIF + load(base, offset, length, 1) + within(exact, True) + within(ranges, True) + within(free, True)


def _ethernet() -> list[Rule]:
    return [
        ("guard", _ethertype(b"\x88\xa8") + _drop("vlan")),
        ("guard", _ethertype(b"\x81\x00") + verdict(JUMP, "tagged")),
        ("guard", _protocol(b"\x81\x00") + _drop("vlan")),
        ("guard", _protocol(b"\x88\xa8") + _drop("vlan")),
        ("guard", IIF + load(LINK_HEADER, 6, 6, 1) + within(MACS, True) + within(FREE_MAC, True) + _drop("mac")),
        ("guard", _protocol(b"\x08\x00") + verdict(GOTO, "ipv4")),
        ("guard", _protocol(b"\x86\xdd") + verdict(GOTO, "ipv6")),
        # a load beyond the end of a frame ends the rule: what is cut off is not let go for that
        ("guard", _protocol(b"\x08\x06") + load(NETWORK_HEADER, 24, 4) + verdict(GOTO, "arp")),
        ("guard", _protocol(b"\x08\x06") + _free(FREE_MAC) + _free(FREE_IPV4) + verdict(ACCEPT)),
        ("guard", _protocol(b"\x08\x06") + _drop("malformed")),
        ("guard", _protocol(b"\x80\x35") + verdict(JUMP, "reverse")),
        ("guard", _free(FREE_TYPE, True) + _drop("type")),
        ("tagged", IIF + load(LINK_HEADER, 14, 2, 1) + mask(b"\x0f\xff", 1) + within(VLANS) + verdict(RETURN)),
        ("tagged", _drop("vlan")),
        ("reverse", _announcement() + verdict(ACCEPT)),
    ]


def _announcement() -> bytes:
    """What QEMU itself sends through the tap when a guest has migrated here (RFC 903, net/announce.c of QEMU): a reverse request of
    its own MAC for its own MAC. Switches learn from it where the guest is now; it forges nothing.
    """
    request = load(NETWORK_HEADER, 0, 8) + compare(ARP_ETHERNET_IPV4 + b"\0\x03")
    nobody = load(NETWORK_HEADER, 14, 4) + compare(bytes(4)) + load(NETWORK_HEADER, 24, 4) + compare(bytes(4))
    own = [IIF + load(NETWORK_HEADER, offset, 6, 1) + within(MACS) for offset in (8, 18)]
    return request + nobody + own[0] + own[1]


def _arp() -> list[Rule]:
    kind = load(NETWORK_HEADER, 0, 6) + compare(ARP_ETHERNET_IPV4, DIFFERENT)
    sender = load(NETWORK_HEADER, 14, 4) + compare(bytes(4), DIFFERENT)
    probe = load(NETWORK_HEADER, 14, 4) + compare(bytes(4))
    return [
        # where both addresses are free there is nothing to look for
        ("arp", kind + _free(FREE_MAC, True) + _drop("malformed")),
        ("arp", kind + _free(FREE_IPV4, True) + _drop("malformed")),
        ("arp", IIF + load(NETWORK_HEADER, 8, 6, 1) + within(MACS, True) + within(FREE_MAC, True) + _drop("mac")),
        ("arp", sender + _foreign(NETWORK_HEADER, 14, 4, IPV4, PREFIXES4, FREE_IPV4) + _drop("ip")),
        ("arp", probe + _foreign(NETWORK_HEADER, 24, 4, IPV4, PREFIXES4, FREE_IPV4) + _drop("ip")),  # RFC 5227, 2.1.1
        ("arp", sender + _unknown(NETWORK_HEADER, 14, 4, IPV4, SOURCES4) + verdict(GOTO, "sender")),
        *_new("sender", NETWORK_HEADER, 14, 4, SOURCES4),
    ]


def _unknown(base: int, offset: int, length: int, exact: str, remembered: str) -> bytes:
    """An address that is not known by itself, but by a prefix, by its kind, or not at all, and that is not in use already."""
    return IIF + load(base, offset, length, 1) + within(exact, True) + within(remembered, True)


def _new(chain: str, base: int, offset: int, length: int, remembered: str) -> list[Rule]:
    """An address that is not known by itself: each one that a limited NIC begins to use counts (docs/spoof-guard.md, New addresses).

    The host makes a neighbour entry for each, in one table for all NICs. What the set has no room for counts as too many. Use makes
    nothing last longer: else a NIC could gather any number in time.
    """
    address = IIF + load(base, offset, length, 1)
    return [
        (chain, address + within(NEW_SOURCES) + remember(remembered) + verdict(RETURN)),
        (chain, IIF + within(counter_of(SOURCES)) + verdict(DROP)),
    ]


def _ipv4() -> list[Rule]:
    source = load(NETWORK_HEADER, 12, 4) + compare(bytes(4), DIFFERENT)
    request = load(TRANSPORT_HEADER, 8, 3) + compare(b"\x01\x01\x06")  # BOOTREQUEST, Ethernet, six bytes (RFC 2131, 2)
    unrelayed = load(TRANSPORT_HEADER, 32, 4) + compare(bytes(4))  # giaddr: servers choose the network by it
    whole = load(NETWORK_HEADER, 16, 4)  # the end of the header
    plain = load(NETWORK_HEADER, 0, 1) + mask(b"\x0f")  # the length of the header, in words of four bytes
    return [
        ("ipv4", source + _foreign(NETWORK_HEADER, 12, 4, IPV4, PREFIXES4, FREE_IPV4) + _drop("ip")),
        ("ipv4", _unknown(NETWORK_HEADER, 12, 4, IPV4, SOURCES4) + within(PREFIXES4) + verdict(JUMP, "source4")),
        # the protocol as the header has it: nf_tables knows none where the length of the header is wrong, which the kernel then mends
        ("ipv4", LATER_FRAGMENT4 + load(NETWORK_HEADER, 9, 1) + compare(UDP) + _free(FREE_DHCP, True) + verdict(GOTO, "later4")),
        # a bridge that snoops reads it as a whole message: it does not look at the offset (ip_mc_check_igmp() of the kernel)
        ("ipv4", LATER_FRAGMENT4 + load(NETWORK_HEADER, 9, 1) + compare(IGMP) + _free(FREE_QUERY, True) + _drop("query")),
        ("ipv4", LATER_FRAGMENT4 + whole + verdict(ACCEPT)),
        # a guest's virtio-net header of gso_type UDP has the kernel send a later fragment as the first one, ports and all
        ("later4", plain + compare(b"\x05", DIFFERENT) + _drop("dhcp")),  # the ports lie elsewhere
        ("later4", load(NETWORK_HEADER, 20, 2) + compare(b"\0\x43") + _drop("dhcp")),
        ("later4", load(NETWORK_HEADER, 22, 2) + compare(b"\0\x43", GREATER_EQUAL) + compare(b"\0\x44", LESS_EQUAL) + _drop("dhcp")),
        ("later4", whole + verdict(ACCEPT)),
        ("later4", _drop("malformed")),
        *_new("source4", NETWORK_HEADER, 12, 4, SOURCES4),
        ("ipv4", _l4(UDP) + load(TRANSPORT_HEADER, 0, 8) + verdict(GOTO, "udp4")),
        ("ipv4", _l4(IGMP) + _type(IGMP_QUERY) + _free(FREE_QUERY, True) + _drop("query")),
        ("ipv4", _l4(UDP, DIFFERENT) + verdict(ACCEPT)),
        ("ipv4", _drop("malformed")),  # no upper layer, or not the whole header of it
        ("udp4", _free(FREE_DHCP) + verdict(ACCEPT)),
        ("udp4", _port(0, 67) + _drop("dhcp")),
        ("udp4", _port(2, 68) + _drop("dhcp")),
        ("udp4", _port(2, 67) + verdict(GOTO, "dhcp4")),
        # what is cut off or in a later fragment cannot be compared: such a rule does not match
        ("dhcp4", NO_FRAGMENT + request + unrelayed + verdict(GOTO, "chaddr4")),
        ("dhcp4", _drop("dhcp")),
        ("chaddr4", IIF + load(TRANSPORT_HEADER, 36, 6, 1) + within(MACS) + verdict(ACCEPT)),
        ("chaddr4", _free(NO_MAC) + verdict(ACCEPT)),
        ("chaddr4", _drop("dhcp")),
    ]


def _foreign6(base: int, offset: int) -> tuple[bytes, bytes]:
    """A link-local address that the NIC may not use, and another one: each kind is freed by itself."""
    prefix = load(base, offset, 16) + mask(LINK_LOCAL_MASK)
    local = prefix + compare(LINK_LOCAL) + _foreign(base, offset, 16, IPV6, PREFIXES6, ANY_LINK_LOCAL)
    return local, prefix + compare(LINK_LOCAL, DIFFERENT) + _foreign(base, offset, 16, IPV6, PREFIXES6, FREE_IPV6)


def _ipv6() -> list[Rule]:
    local, other = _foreign6(NETWORK_HEADER, 8)
    unknown = _unknown(NETWORK_HEADER, 8, 16, IPV6, SOURCES6)
    last = extension(44, 0, 1) + _neither(*SKIPPED, *HIDING)
    message = load(TRANSPORT_HEADER, 8, 1)  # not of a server or relay (RFC 8415, 7.3)
    client = compare(b"\x01", GREATER_EQUAL) + compare(b"\x0b", LESS_EQUAL)
    client += compare(b"\x02", DIFFERENT) + compare(b"\x07", DIFFERENT) + compare(b"\x0a", DIFFERENT)
    return [
        ("ipv6", local + _drop("ip")),
        ("ipv6", SPECIFIED + other + _drop("ip")),
        ("ipv6", load(NETWORK_HEADER, 8, 16) + mask(LINK_LOCAL_MASK) + compare(LINK_LOCAL) + unknown + verdict(JUMP, "source6")),
        ("ipv6", SPECIFIED + unknown + within(PREFIXES6) + verdict(JUMP, "source6")),
        ("ipv6", verdict(JUMP, "agree6")),
        ("ipv6", verdict(GOTO, "next6")),
        *_new("source6", NETWORK_HEADER, 8, 16, SOURCES6),
        # nf_tables reads the first next header where a guest can have the kernel leave it unwritten (a frame longer than a page, with a
        # small hdr_len in its virtio-net header): what it makes of that must agree with the byte itself
        ("agree6", load(NETWORK_HEADER, 6, 1) + _neither(*LAST, *SKIPPED) + verdict(RETURN)),
        *(("agree6", _next(header) + _l4(header) + verdict(RETURN)) for header in LAST),
        *(("agree6", _next(header) + present(header[0]) + verdict(RETURN)) for header in SKIPPED),
        ("agree6", _drop("malformed")),
        ("next6", LATER_FRAGMENT6 + verdict(ACCEPT)),
        ("next6", FIRST_FRAGMENT6 + verdict(JUMP, "first6")),
        # nf_tables reads on beyond the length that the IP header tells: where one header follows, it lies within
        ("first6", _next(FRAGMENT) + last + _length(16, GREATER_EQUAL) + verdict(RETURN)),
        ("first6", _drop("malformed")),
        ("next6", _l4(UDP) + load(TRANSPORT_HEADER, 0, 8) + verdict(GOTO, "udp6")),
        ("next6", _l4(UDP, DIFFERENT) + compare(ICMPV6, DIFFERENT) + verdict(GOTO, "other6")),
        ("other6", meta(META_L4PROTO) + _neither(*HIDING) + verdict(ACCEPT)),
        ("other6", load(TRANSPORT_HEADER, 0, 1) + _neither(*UNREAD) + _drop("malformed")),
        ("other6", load(TRANSPORT_HEADER, 0, 1) + verdict(ACCEPT)),
        ("other6", _drop("malformed")),
        (
            "next6",
            load(TRANSPORT_HEADER, 0, 1)
            + compare(ROUTER_SOLICITATION, GREATER_EQUAL)
            + compare(REDIRECT, LESS_EQUAL)
            + verdict(GOTO, "discovery"),
        ),
        ("next6", _l4(ICMPV6) + _type(MLD_QUERY) + _free(FREE_QUERY, True) + _drop("query")),
        ("next6", _l4(ICMPV6) + load(TRANSPORT_HEADER, 0, 1) + verdict(ACCEPT)),
        ("next6", _drop("malformed")),  # a first fragment must hold all headers (RFC 7112)
        ("udp6", _free(FREE_DHCP) + verdict(ACCEPT)),
        ("udp6", _port(0, 547) + _drop("dhcp")),
        ("udp6", _port(2, 546) + _drop("dhcp")),
        ("udp6", _port(2, 547) + verdict(GOTO, "dhcp6")),
        ("dhcp6", extension(FRAGMENT[0], 0, 1) + _length(16) + _drop("dhcp")),  # it ends before the message
        ("dhcp6", message + client + verdict(ACCEPT)),
        ("dhcp6", _drop("dhcp")),
    ]


def _discovery() -> list[Rule]:
    """Neighbour discovery (RFC 4861), never behind extension headers or in fragments (RFC 6980), with the options that are checked."""
    bare = load(NETWORK_HEADER, 6, 1) + compare(ICMPV6, DIFFERENT)
    local, other = _foreign6(TRANSPORT_HEADER, 8)
    return [
        ("discovery", bare + _drop("malformed")),
        ("discovery", SPECIFIED + _unknown(NETWORK_HEADER, 8, 16, IPV6, SOURCES6) + verdict(JUMP, "source6")),
        ("discovery", _type(ROUTER_ADVERTISEMENT) + verdict(GOTO, "router")),
        ("discovery", _type(REDIRECT) + verdict(GOTO, "router")),
        ("discovery", _type(ADVERTISEMENT) + verdict(JUMP, "target")),
        # who looks for a duplicate of another's address keeps the other from using it (RFC 4862, 5.4.3)
        ("discovery", _type(SOLICITATION) + load(NETWORK_HEADER, 8, 16) + compare(UNSPECIFIED) + verdict(JUMP, "target")),
        ("discovery", _free(FREE_MAC) + verdict(ACCEPT)),
        ("discovery", _type(ROUTER_SOLICITATION) + _length(8) + verdict(ACCEPT)),
        ("discovery", _type(ROUTER_SOLICITATION) + _length(16) + _link_layer(8, SOURCE_ADDRESS) + verdict(ACCEPT)),
        ("discovery", _type(SOLICITATION, GREATER_EQUAL) + _length(24) + verdict(ACCEPT)),
        ("discovery", _type(SOLICITATION) + _length(32) + _link_layer(24, SOURCE_ADDRESS) + verdict(ACCEPT)),
        ("discovery", _type(SOLICITATION) + _length(32) + load(TRANSPORT_HEADER, 24, 2) + compare(NONCE) + verdict(ACCEPT)),
        ("discovery", _type(ADVERTISEMENT) + _length(32) + _link_layer(24, TARGET_ADDRESS) + verdict(ACCEPT)),
        ("discovery", _drop("mac")),
        ("router", _free(FREE_DHCP) + verdict(ACCEPT)),
        ("router", _drop("ra")),
        ("target", local + _drop("ip")),
        ("target", other + _drop("ip")),
    ]


def _drops() -> list[Rule]:
    rules = []
    for reason in REASONS:
        rules += [(chain_of(reason), IIF + within(counter_of(reason))), (chain_of(reason), verdict(DROP))]
    return rules


def sets(table: str) -> list[NftSet]:
    """The sets of the table, all empty."""
    made = [NftSet(NETDEV, table, name, key, interval=name in RANGES) for name, key in KEYS.items()]
    made += [NftSet(NETDEV, table, name, (DEVICE,)) for name in FLAGS]
    made += [NftSet(NETDEV, table, name, key, timeout=LASTING, size=MOST) for name, key in REMEMBERED.items()]
    made.append(NftSet(NETDEV, table, NEW_SOURCES, (DEVICE,), limit=True))
    return made + [NftSet(NETDEV, table, counter_of(reason), (DEVICE,), counter=True) for reason in (*REASONS, SOURCES)]


def chains(table: str) -> list[NftChain]:
    """Its chains."""
    return [NftChain(NETDEV, table, name) for name in (*CHAINS, *map(chain_of, REASONS))]


def rules(table: str) -> list[NftRule]:
    """Its rules, those of a chain in their order."""
    made = [*_drops(), *_ethernet(), *_arp(), *_ipv4(), *_ipv6(), *_discovery()]
    return [NftRule(NETDEV, table, chain, expressions) for chain, expressions in made]
