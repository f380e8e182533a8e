"""The constant rules of node_access: which of a guest's packets reach the node itself. docs/node-access.md explains them.

In family inet, what comes in by a tap of the set "nics" and is delivered to the node is allowed or dropped. What a bridge hands up to its
own device has lost its tap by then, and may be for another machine, by routing: family bridge, which knows the tap, marks what is not
allowed, and inet drops what of it is for the node. A packet that cannot be read is not allowed.
"""

from __future__ import annotations

from struct import Struct

from netcommon.host.api.nftables import (
    BRIDGE,
    BRIDGE_INPUT,
    BRIDGE_OUTPUT,
    IFINDEX_TYPE,
    INET,
    INET_FORWARD,
    INET_INPUT,
    INET_POSTROUTING,
    INET_PREROUTING,
    IPV4_TYPE,
    IPV6_TYPE,
    PROTOCOL_TYPE,
    SERVICE_TYPE,
    NftChain,
    NftRule,
    NftSet,
)
from netcommon.host.nftables.expressions import (
    ACCEPT,
    DIFFERENT,
    DROP,
    GOTO,
    GREATER_EQUAL,
    LESS_EQUAL,
    LINK_HEADER,
    META_IIF,
    META_L4PROTO,
    META_MARK,
    META_OIF,
    META_PKTTYPE,
    META_PROTOCOL,
    META_SKUID,
    NETWORK_HEADER,
    TRANSPORT_HEADER,
    altered,
    assign,
    compare,
    extension,
    kind_of_destination,
    load,
    mask,
    meta,
    remember,
    verdict,
    within,
)

NAMES = {INET: "netcommon-access", BRIDGE: "netcommon-access-bridge"}
WITHOUT = "or let the guest reach the node, node_access = all"

#: Sets: the devices; a device and a service that its guest may reach; devices whose guests may ping.
NICS, SERVICES, PING = "nics", "services", "ping"
SETS = frozenset({NICS, SERVICES, PING})  #: those that have elements of NICs
#: Whom the node's own programs have sent UDP by a device: device, guest's address, node's port, guest's port.
ASKED4, ASKED6 = "asked4", "asked6"
KEPT, MOST = 60_000, 65536  #: milliseconds, elements
DEVICE, PORT = (IFINDEX_TYPE, 4), (SERVICE_TYPE, 2)

#: The bit of the packet mark that says that a bridged guest may not reach the node with the packet.
FOREIGN = 0x40000000
WORD = Struct("=I")
#: Before all else there: what rules of others make of marks comes after. LATE: after the rules of others.
FIRST, LATE = -450, 300
INPUT = -10

TCP, UDP, ICMP, ICMPV6, IGMP = b"\x06", b"\x11", b"\x01", b"\x3a", b"\x02"
IP4, IP6, ARP, RARP = b"\x08\x00", b"\x86\xdd", b"\x08\x06", b"\x80\x35"
TAGGED = (b"\x81\x00", b"\x88\xa8")  #: behind a first tag, which the kernel has taken off
FRAGMENT4 = load(NETWORK_HEADER, 6, 2) + mask(b"\x3f\xff") + compare(b"\0\0", DIFFERENT)
FRAGMENT6 = extension(44, 0, 1)
ANSWERS = load(TRANSPORT_HEADER, 13, 1) + mask(b"\x14") + compare(b"\0", DIFFERENT)  #: ACK or RST: no connection begins with it
#: First and last types. Of ICMP: echo reply; unreachable; time exceeded, parameter problem.
ICMP_NEEDED = ((0, 0), (3, 3), (11, 12))
#: Of ICMPv6: errors; echo reply, MLD, router solicitation; neighbour solicitation and advertisement; MLDv2 report.
ICMPV6_NEEDED = ((1, 4), (129, 133), (135, 136), (143, 143))
GROUP = load(LINK_HEADER, 0, 1) + mask(b"\x01") + compare(b"\x01")
DHCP = meta(META_L4PROTO) + compare(UDP) + load(TRANSPORT_HEADER, 2, 2) + compare(b"\0\x43")
#: RTN_UNICAST, RTN_BLACKHOLE, RTN_UNREACHABLE, RTN_PROHIBIT, RTN_THROW: no address of the node, none of a group.
ELSEWHERE = (1, 6, 7, 8, 9)
MARKED = meta(META_MARK) + mask(WORD.pack(FOREIGN)) + compare(bytes(4), DIFFERENT)

Rule = tuple[str, bytes]


def _mark(bits: int) -> bytes:
    return meta(META_MARK) + altered(WORD.pack(~FOREIGN & 0xFFFFFFFF), WORD.pack(bits)) + assign(META_MARK)


def _protocol(value: bytes) -> bytes:
    return meta(META_PROTOCOL) + compare(value)


def _l4(value: bytes) -> bytes:
    return meta(META_L4PROTO) + compare(value)


def _types(protocol: bytes, needed: tuple[tuple[int, int], ...]) -> list[bytes]:
    kind = _l4(protocol) + load(TRANSPORT_HEADER, 0, 1)
    ranges = [compare(bytes((first,)), GREATER_EQUAL) + compare(bytes((last,)), LESS_EQUAL) for first, last in needed]
    return [kind + each + verdict(ACCEPT) for each in ranges]


def _policy() -> list[Rule]:
    """Yield what is allowed, by families of addresses; ends in the chain "denied"."""
    service = meta(META_IIF) + meta(META_L4PROTO, 1) + load(TRANSPORT_HEADER, 2, 2, 2) + within(SERVICES) + verdict(ACCEPT)
    answers = _l4(TCP) + ANSWERS + verdict(ACCEPT)
    ping = load(TRANSPORT_HEADER, 0, 1), meta(META_IIF) + within(PING) + verdict(ACCEPT)
    four = [FRAGMENT4 + verdict(GOTO, "denied"), answers, *_types(ICMP, ICMP_NEEDED), _l4(IGMP) + verdict(ACCEPT), service]
    four += [_l4(ICMP) + ping[0] + compare(b"\x08") + ping[1], _asked(12, 4, ASKED4), verdict(GOTO, "denied")]
    six = [FRAGMENT6 + verdict(GOTO, "denied"), answers, *_types(ICMPV6, ICMPV6_NEEDED), service]
    six += [_l4(ICMPV6) + ping[0] + compare(b"\x80") + ping[1], _asked(8, 16, ASKED6), verdict(GOTO, "denied")]
    return [*(("ipv4", each) for each in four), *(("ipv6", each) for each in six)]


def _asked(offset: int, length: int, name: str) -> bytes:
    """An answer to what the node has asked: from the port and to the port that it was asked from and at."""
    ports = load(TRANSPORT_HEADER, 2, 2, 1 + length // 4) + load(TRANSPORT_HEADER, 0, 2, 2 + length // 4)
    return _l4(UDP) + meta(META_IIF) + load(NETWORK_HEADER, offset, length, 1) + ports + within(name) + verdict(ACCEPT)


def _asking(chain: str) -> list[Rule]:
    """Notes the UDP that the node's programs send guests, but for answers of services that the guest may reach: no guest fills the sets."""
    service = meta(META_OIF) + meta(META_L4PROTO, 1) + load(TRANSPORT_HEADER, 0, 2, 2) + within(SERVICES, True)
    own = meta(META_OIF) + within(NICS) + _l4(UDP) + service + meta(META_SKUID)  # neither forwarded nor of a tunnel: no program's
    rules = []
    for protocol, offset, length, name in ((IP4, 16, 4, ASKED4), (IP6, 24, 16, ASKED6)):
        ports = load(TRANSPORT_HEADER, 0, 2, 1 + length // 4) + load(TRANSPORT_HEADER, 2, 2, 2 + length // 4)
        key = meta(META_OIF) + load(NETWORK_HEADER, offset, length, 1) + ports
        rules.append((chain, _protocol(protocol) + own + key + remember(name, again=True)))
    return rules


def _inet() -> list[Rule]:
    elsewhere = b"".join(compare(WORD.pack(kind), DIFFERENT) for kind in ELSEWHERE)
    drop = verdict(GOTO, "drop-node")
    return [
        ("prerouting", MARKED + verdict(GOTO, "marked")),
        ("marked", kind_of_destination() + elsewhere + drop),
        ("input", MARKED + drop),
        ("input", meta(META_IIF) + within(NICS) + verdict(GOTO, "guest")),
        ("guest", _protocol(IP4) + verdict(GOTO, "ipv4")),
        ("guest", _protocol(IP6) + verdict(GOTO, "ipv6")),
        ("guest", drop),
        ("forward", MARKED + _mark(0)),
        *_asking("postrouting"),
        ("denied", drop),
        ("drop-node", verdict(DROP)),
    ]


def _bridge() -> list[Rule]:
    """Packet sockets on the bridge get what is only marked: DHCP servers have such, so what only they can want is dropped here."""
    other = meta(META_PKTTYPE) + compare(b"\x03")  # PACKET_OTHERHOST: for a device on the bridge, or for who looks at all of it
    return [
        ("input", meta(META_IIF) + within(NICS) + verdict(GOTO, "guest")),
        ("guest", _protocol(ARP) + verdict(ACCEPT)),
        ("guest", _protocol(RARP) + verdict(ACCEPT)),
        ("guest", _protocol(IP4) + verdict(GOTO, "ipv4")),
        ("guest", _protocol(IP6) + verdict(GOTO, "ipv6")),
        *(("guest", _protocol(tag) + verdict(GOTO, "foreign")) for tag in TAGGED),
        ("guest", other + verdict(ACCEPT)),
        ("guest", verdict(GOTO, "drop-node")),
        *_asking("output"),
        ("denied", GROUP + DHCP + verdict(GOTO, "drop-node")),
        ("denied", verdict(GOTO, "foreign")),
        ("foreign", _mark(FOREIGN)),
        ("drop-node", verdict(DROP)),
    ]


HOOKS = {
    INET: {
        "prerouting": (INET_PREROUTING, FIRST),
        "input": (INET_INPUT, INPUT),
        "forward": (INET_FORWARD, FIRST),
        "postrouting": (INET_POSTROUTING, LATE),
    },
    BRIDGE: {"input": (BRIDGE_INPUT, LATE), "output": (BRIDGE_OUTPUT, LATE)},
}
SHARED = ("drop-node", "denied", "ipv4", "ipv6", "guest")
CHAINS = {INET: (*SHARED, "marked"), BRIDGE: ("foreign", *SHARED)}


def sets(family: int) -> list[NftSet]:
    """The sets of a family's table, all empty."""
    table = NAMES[family]
    made = [NftSet(family, table, NICS, (DEVICE,)), NftSet(family, table, PING, (DEVICE,))]
    made.append(NftSet(family, table, SERVICES, (DEVICE, (PROTOCOL_TYPE, 1), PORT)))
    for name, address in ((ASKED4, (IPV4_TYPE, 4)), (ASKED6, (IPV6_TYPE, 16))):
        made.append(NftSet(family, table, name, (DEVICE, address, PORT, PORT), timeout=KEPT, size=MOST))
    return made


def chains(family: int) -> list[NftChain]:
    """Its chains, in the order in which they are made."""
    hooked = [NftChain(family, NAMES[family], name, *hook) for name, hook in HOOKS[family].items()]
    return [*(NftChain(family, NAMES[family], name) for name in CHAINS[family]), *hooked]


def rules(family: int) -> list[NftRule]:
    """Its rules, those of a chain in their order."""
    made = [*(_inet() if family == INET else _bridge()), *_policy()]
    return [NftRule(family, NAMES[family], chain, expressions) for chain, expressions in made]
