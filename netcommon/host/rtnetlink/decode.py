"""Decode what rtnetlink tells (rtnetlink(7)) into the facts of netcommon.host.api.facts.

Each function takes a message's body; all raise MalformedError.
"""

from __future__ import annotations

from struct import Struct, error

from netcommon.host.api.facts import AF_INET, AF_INET6, DOT1Q, BridgeVlan, Link, Neighbour, Route, Rule
from netcommon.host.rtnetlink.attributes import U16, MalformedError, attributes, each, show_address, string, u32
from netcommon.host.rtnetlink.encode import (
    BRIDGE_VLAN_INFO_PVID,
    BRIDGE_VLAN_INFO_UNTAGGED,
    BRVLAN,
    FR_ACT_TO_TBL,
    FRA_FWMARK,
    FRA_FWMASK,
    FRA_IIFNAME,
    FRA_PRIORITY,
    FRA_PROTOCOL,
    FRA_TABLE,
    IFF_UP,
    IFINFO,
    IFLA_ADDRESS,
    IFLA_IFALIAS,
    IFLA_IFNAME,
    IFLA_LINK,
    IFLA_LINKINFO,
    IFLA_MASTER,
    IFLA_MTU,
    INFO_KIND,
    NDA_DST,
    NDA_PROTOCOL,
    NDMSG,
    NTF_PROXY,
    NTF_ROUTER,
    RTA_DST,
    RTA_GATEWAY,
    RTA_OIF,
    RTA_PRIORITY,
    RTA_TABLE,
    RTMSG,
    RULE,
    VLAN_INFO,
)
from runtime.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

IFLA_PROMISCUITY, IFLA_CARRIER, IFLA_LINK_NETNSID = 30, 33, 37
INFO_DATA, INFO_SLAVE_KIND = 2, 4
TUN_PERSIST, TUN_MULTI_QUEUE, TUN_NUM_QUEUES, TUN_NUM_DISABLED_QUEUES = 6, 7, 8, 9
BR_VLAN_FILTERING, BR_VLAN_PROTOCOL, BR_VLAN_DEFAULT_PVID = 7, 8, 39
VLAN_ID, VLAN_PROTOCOL = 1, 5
VRF_TABLE = 1
FIB_RULE_IIF_DETACHED = 8
FRA_DST, FRA_SRC, FRA_GOTO, FRA_SUPPRESS_PREFIXLEN = 1, 2, 4, 14
FRA_IP_PROTO, FRA_SPORT_RANGE, FRA_DPORT_RANGE, FRA_FLOWLABEL = 22, 23, 24, 26
RTM_F_CLONED = 0x200
MAIN, LOCAL = 254, 255  #: RT_TABLE_*
OWN_TYPES = frozenset({2, 3, 4})  #: RTN_LOCAL, RTN_BROADCAST, RTN_ANYCAST
FIB_RULE_INVERT, FIB_RULE_UNRESOLVED = 2, 4
RTA_MULTIPATH, RTA_VIA, RTA_NH_ID = 9, 18, 30
RTNH = Struct("=HxxI")  #: struct rtnexthop: length, flags, hops, index
ENTRY, ENTRY_INFO, ENTRY_RANGE, ENTRY_TUNNEL, TUNNEL_ID = 1, 1, 2, 4, 1

#: The attributes of a rule that selects by nothing and looks up a table, those that one selects by; 0 pads.
PLAIN = frozenset({0, FRA_PRIORITY, FRA_TABLE, FRA_PROTOCOL, FRA_SUPPRESS_PREFIXLEN})
BY_DEVICE, BY_MARK = PLAIN | {FRA_IIFNAME}, PLAIN | {FRA_FWMARK, FRA_FWMASK}
TOLD = BY_DEVICE | BY_MARK | {FRA_GOTO}
NO_SUPPRESSION = 0xFFFFFFFF
ANYWHERE = {AF_INET: "0.0.0.0/0", AF_INET6: "::/0"}


def _unpack(header: Struct, body: bytes) -> tuple[int, ...]:
    try:
        return header.unpack_from(body)
    except error:
        raise MalformedError("a message shorter than its header") from None


def listened_to(body: bytes) -> bool:
    """Whether somebody wants every frame that the link of this RTM_NEWLINK receives, as a switch does of its ports."""
    found = attributes(body, IFINFO.size)
    return IFLA_PROMISCUITY not in found or u32(found[IFLA_PROMISCUITY]) > 0


def link(body: bytes) -> Link:
    """RTM_NEWLINK."""
    _, _, index, flags, _ = _unpack(IFINFO, body)
    found = attributes(body, IFINFO.size)
    info = attributes(found.get(IFLA_LINKINFO, b""))
    kind = string(info.get(INFO_KIND))
    data = attributes(info.get(INFO_DATA, b"")) if kind in ("tun", "bridge", "vlan", "vrf") else {}
    # by position: this is done for each of thousands of links
    return Link(
        index,
        string(found.get(IFLA_IFNAME)),
        kind,
        found.get(IFLA_ADDRESS, b"").hex(":"),
        u32(found.get(IFLA_MTU)),
        bool(flags & IFF_UP),
        u32(found.get(IFLA_MASTER)),
        string(info.get(INFO_SLAVE_KIND)),
        string(found.get(IFLA_IFALIAS)),
        kind == "bridge" and data.get(BR_VLAN_FILTERING, b"\0") != b"\0",
        _unpack(U16, data[BR_VLAN_DEFAULT_PVID])[0] if kind == "bridge" and BR_VLAN_DEFAULT_PVID in data else 0,
        _unpack(U16, data[VLAN_ID])[0] if kind == "vlan" and VLAN_ID in data else 0,
        u32(found.get(IFLA_LINK)),
        IFLA_LINK_NETNSID in found,
        _holders(data, found.get(IFLA_CARRIER, b"\0")) if kind == "tun" else -1,
        _protocol(data, BR_VLAN_PROTOCOL if kind == "bridge" else VLAN_PROTOCOL) if kind in ("bridge", "vlan") else DOT1Q,
        u32(data.get(VRF_TABLE)) if kind == "vrf" else 0,
    )


def _protocol(data: dict[int, bytes], attribute: int) -> int:
    """The ethertype of the tags that a bridge or a VLAN interface reads."""
    return int.from_bytes(data[attribute][:2], "big") if attribute in data else DOT1Q


def _holders(data: dict[int, bytes], carrier: bytes) -> int:
    """How many descriptors are attached to a tap. The kernel counts the queues of multi-queue ones only.

    A single-queue tap that is not persistent lives as long as its descriptor; a persistent one loses its carrier when the descriptor
    goes (drivers/net/tun.c, __tun_detach). A holder that took the carrier away itself (TUNSETCARRIER) is not seen.
    """
    if data.get(TUN_MULTI_QUEUE, b"\0") != b"\0":
        return u32(data.get(TUN_NUM_QUEUES)) + u32(data.get(TUN_NUM_DISABLED_QUEUES))
    if data.get(TUN_PERSIST, b"\0") == b"\0":
        return 1
    return int(carrier != b"\0")


def rule(body: bytes) -> Rule:
    """RTM_NEWRULE, whatever it selects by; one that selects by nothing is not plain."""
    family, dst, src, tos, table, _, _, action, flags = _unpack(RULE, body)
    found = attributes(body, RULE.size)
    suppresses = u32(found.get(FRA_SUPPRESS_PREFIXLEN), NO_SUPPRESSION) != NO_SUPPRESSION
    iif = string(found.get(FRA_IIFNAME))
    mark, mask = u32(found.get(FRA_FWMARK)), u32(found.get(FRA_FWMASK))
    plain = (
        found.keys() <= (BY_DEVICE if iif else BY_MARK)
        and bool(iif or mask)
        and not (dst or src or tos or flags & ~FIB_RULE_IIF_DETACHED)
        and action == FR_ACT_TO_TBL
        and not suppresses
    )
    protocol = found.get(FRA_PROTOCOL, b"\0")
    number = protocol[0] if protocol else 0
    number_of, inverted = u32(found.get(FRA_TABLE), table), bool(flags & FIB_RULE_INVERT)
    narrowed = bool(dst or src or tos or found.keys() - TOLD)
    source, target = (_network(family, found.get(key), length) for key, length in ((FRA_SRC, src), (FRA_DST, dst)))
    more = suppresses or bool(tos or found.keys() - TOLD - {FRA_SRC, FRA_DST})
    jump = 0 if flags & FIB_RULE_UNRESOLVED else u32(found.get(FRA_GOTO))
    preference = u32(found.get(FRA_PRIORITY))
    upper, ports = int.from_bytes(found.get(FRA_IP_PROTO, b"")[:1]), FRA_SPORT_RANGE in found or FRA_DPORT_RANGE in found
    inside = upper, ports, FRA_FLOWLABEL in found
    where = jump, source, target
    return Rule(family, preference, iif, number_of, number, plain, mark, mask, action, inverted, narrowed, *where, more, *inside)


def _network(family: int, address: bytes | None, length: int) -> str:
    return f"{show_address(family, address)}/{length}" if address and length else ""


def route(body: bytes) -> Route | None:
    """RTM_NEWROUTE; None for a cached one. A multipath route has index 0.

    So has one by the id of a nexthop where net.ipv4.nexthop_compat_mode is 0: ask for the nexthop (netcommon.host.rtnetlink.nexthop).
    """
    family, length, _, tos, table, protocol, scope, kind, flags = _unpack(RTMSG, body)
    if flags & RTM_F_CLONED or family not in ANYWHERE:
        return None
    found = attributes(body, RTMSG.size)
    address = found.get(RTA_DST)
    if address is not None and length > 8 * len(address):
        raise MalformedError(f"a destination of {length} bits")
    destination = ANYWHERE[family] if address is None else show_address(family, address) + f"/{length}"
    gateway = found.get(RTA_GATEWAY)
    shown = "" if gateway is None else show_address(family, gateway)
    if RTA_VIA in found:  # an IPv4 route by an IPv6 neighbour: struct rtvia is a family and an address
        shown = show_address(AF_INET6, found[RTA_VIA][2:])
    number = u32(found.get(RTA_TABLE), table)
    index, metric = u32(found.get(RTA_OIF)), u32(found.get(RTA_PRIORITY))
    paths = tuple(nexthops(found.get(RTA_MULTIPATH, b"")))
    return Route(family, number, destination, index, protocol, scope, shown, metric, kind, paths, u32(found.get(RTA_NH_ID)), tos)


def kept(body: bytes) -> int:
    """Return of an answer to ``encode.get_route`` the type of the route where it is one of table local, of those that end here, else 0.

    A policy rule may lead what the node itself sends to one of another table, which says nothing of what comes in. Without such rules the
    kernel says main for local, since they are one trie (net/ipv4/fib_trie.c).
    """
    _, _, _, _, table, _, _, kind, _ = _unpack(RTMSG, body)
    number = u32(attributes(body, RTMSG.size).get(RTA_TABLE), table)
    return int(kind) if kind in OWN_TYPES and number in (LOCAL, MAIN) else 0


def nexthops(data: bytes) -> Iterator[int]:
    """The output interface of each nexthop: struct rtnexthop with attributes after it, one after the other."""
    offset = 0
    while offset + RTNH.size <= len(data):
        length, index = RTNH.unpack_from(data, offset)
        if length < RTNH.size:
            raise MalformedError("a nexthop shorter than its header")
        yield index
        offset += (length + 3) & ~3


def neighbour(body: bytes) -> Neighbour | None:
    """RTM_NEWNEIGH; None for one that is no proxy entry."""
    family, index, _, flags, _ = _unpack(NDMSG, body)
    if not flags & NTF_PROXY or family not in ANYWHERE:
        return None
    found = attributes(body, NDMSG.size)
    protocol = found.get(NDA_PROTOCOL, b"")
    return Neighbour(family, show_address(family, found.get(NDA_DST, b"")), index, protocol[0] if protocol else 0, bool(flags & NTF_ROUTER))


def vlans(body: bytes) -> Iterator[tuple[int, BridgeVlan]]:
    """RTM_NEWVLAN: (device index, VLAN) pairs, ranges spread out.

    VIDs must rise, as the kernel tells them: so a message makes 4095 pairs at most.
    """
    _, index = _unpack(BRVLAN, body)
    highest = -1
    for kind, entry in each(body, BRVLAN.size):
        if kind != ENTRY:
            continue
        found = attributes(entry)
        flags, vid = _unpack(VLAN_INFO, found.get(ENTRY_INFO, b""))
        last = found.get(ENTRY_RANGE)
        end = vid if last is None else _unpack(U16, last)[0]
        if not highest < vid <= end < 1 << 12:
            raise MalformedError("VLANs out of order or range")
        highest = end
        tunnel = u32(attributes(found[ENTRY_TUNNEL]).get(TUNNEL_ID)) if ENTRY_TUNNEL in found else 0
        pvid, untagged = bool(flags & BRIDGE_VLAN_INFO_PVID), bool(flags & BRIDGE_VLAN_INFO_UNTAGGED)
        for each_vid in range(vid, end + 1):  # the VNIs of a range rise with its VIDs
            yield index, BridgeVlan(each_vid, pvid, untagged, tunnel + each_vid - vid if tunnel else 0)
