"""Our requests as rtnetlink messages (rtnetlink(7)): the body of each, and its type and flags.

Each is held byte for byte against pyroute2's encoding in tests/unit/netcommon/host/rtnetlink/test_encode.py.
"""

from __future__ import annotations

from struct import Struct

from netcommon.host.api.requests import (
    AddNeighbour,
    AddRoute,
    AddRule,
    AddVlan,
    DeleteNeighbour,
    DeleteRoute,
    DeleteRule,
    DeleteVlan,
    SetLink,
)
from netcommon.host.rtnetlink.attributes import (
    NLM_F_CREATE,
    NLM_F_EXCL,
    NLM_F_REPLACE,
    U16,
    Encoded,
    as_bytes,
    attribute,
    number,
    pack_address,
    split_prefix,
    text,
)
from runtime.modules import load
from runtime.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from netcommon.host.api.facts import Neighbour, Route, Rule

RTM_NEWLINK, RTM_DELLINK, RTM_GETLINK, RTM_SETLINK = 16, 17, 18, 19
RTM_NEWROUTE, RTM_DELROUTE, RTM_GETROUTE = 24, 25, 26
RTM_F_LOOKUP_TABLE = 0x1000
RTM_NEWNEIGH, RTM_DELNEIGH, RTM_GETNEIGH = 28, 29, 30
RTM_NEWRULE, RTM_DELRULE, RTM_GETRULE = 32, 33, 34
RTM_NEWVLAN, RTM_GETVLAN = 112, 114

AF_BRIDGE = 7
IFINFO = Struct("=BxHiII")  #: struct ifinfomsg: family, type, index, flags, change
RTMSG = Struct("=BBBBBBBBI")  #: struct rtmsg: family, lengths, TOS, table, protocol, scope, type, flags
NDMSG = Struct("=BxxxiHBB")  #: struct ndmsg: family, index, state, flags, type
RULE = Struct("=BBBBBBBBI")  #: struct fib_rule_hdr: family, lengths, TOS, table, two reserved, action, flags
BRVLAN = Struct("=BxxxI")  #: struct br_vlan_msg: family, index
VLAN_INFO = Struct("=HH")  #: struct bridge_vlan_info: flags, VID

IFF_UP = 1
MAC_SIZE = 6
IFLA_ADDRESS, IFLA_IFNAME, IFLA_MTU, IFLA_LINK, IFLA_MASTER = 1, 3, 4, 5, 10
IFLA_LINKINFO, IFLA_IFALIAS, IFLA_AF_SPEC, IFLA_EXT_MASK = 18, 20, 26, 29
INFO_KIND = 1  #: in IFLA_LINKINFO
RTEXT_FILTER_SKIP_STATS = 8
IFLA_BRIDGE_FLAGS, IFLA_BRIDGE_VLAN_INFO = 0, 2
BRIDGE_FLAGS_MASTER = 1
BRIDGE_VLAN_INFO_PVID, BRIDGE_VLAN_INFO_UNTAGGED = 2, 4

FRA_IIFNAME, FRA_PRIORITY, FRA_FWMARK, FRA_TABLE, FRA_FWMASK, FRA_PROTOCOL = 3, 6, 10, 15, 16, 21
FR_ACT_TO_TBL = 1

RTA_DST, RTA_OIF, RTA_GATEWAY, RTA_PRIORITY, RTA_TABLE = 1, 4, 5, 6, 15
RT_TABLE_UNSPEC = 0
RTNH_F_ONLINK = 4

NDA_DST, NDA_IFINDEX, NDA_PROTOCOL = 1, 8, 12
NTF_PROXY, NTF_ROUTER = 0x08, 0x80
NUD_PERMANENT = 0x80


def set_link(request: SetLink) -> Encoded:
    """All of a link's changes in one message; the kernel does them in an order of its own, and not as one."""
    flags = IFF_UP if request.up else 0
    body = IFINFO.pack(0, 0, request.index, flags, 0 if request.up is None else IFF_UP)
    if request.address is not None:
        address = bytes.fromhex(request.address.replace(":", ""))
        if len(address) != MAC_SIZE:  # the kernel takes longer ones and drops the rest
            raise ValueError(f"no MAC address: {request.address}")
        body += attribute(IFLA_ADDRESS, address)
    if request.mtu is not None:
        body += number(IFLA_MTU, request.mtu)
    if request.master is not None:
        body += number(IFLA_MASTER, request.master)
    if request.alias is not None:
        # Without the terminating NUL, so that "" clears it and 255 bytes fit.
        body += attribute(IFLA_IFALIAS, as_bytes(request.alias))
    return Encoded(RTM_SETLINK, 0, body)


def _rule(rule: Rule) -> bytes:
    table = rule.table if rule.table < 256 else RT_TABLE_UNSPEC
    return (
        RULE.pack(rule.family, 0, 0, 0, table, 0, 0, FR_ACT_TO_TBL, 0)
        + (text(FRA_IIFNAME, rule.iif) if rule.iif else b"")
        + (number(FRA_FWMARK, rule.mark) + number(FRA_FWMASK, rule.mask) if rule.mask else b"")
        + number(FRA_PRIORITY, rule.preference)
        + number(FRA_TABLE, rule.table)
        + attribute(FRA_PROTOCOL, bytes((rule.protocol,)))
    )


def _route(route: Route) -> bytes:
    address, length = split_prefix(route.family, route.destination)
    table = route.table if route.table < 256 else RT_TABLE_UNSPEC
    body = RTMSG.pack(route.family, length, 0, 0, table, route.protocol, route.scope, route.type, 0)
    if length:
        body += attribute(RTA_DST, address)
    if route.gateway:
        body += attribute(RTA_GATEWAY, pack_address(route.family, route.gateway))
    if route.index:
        body += number(RTA_OIF, route.index)
    if route.metric:
        body += number(RTA_PRIORITY, route.metric)
    return body + number(RTA_TABLE, route.table)


def _neighbour(neighbour: Neighbour) -> bytes:
    return (
        NDMSG.pack(neighbour.family, neighbour.index, NUD_PERMANENT, NTF_PROXY | (NTF_ROUTER if neighbour.router else 0), 0)
        + attribute(NDA_DST, pack_address(neighbour.family, neighbour.address))
        + attribute(NDA_PROTOCOL, bytes((neighbour.protocol,)))
    )


def _vlan(index: int, vid: int, flags: int) -> bytes:
    spec = attribute(IFLA_BRIDGE_FLAGS, U16.pack(BRIDGE_FLAGS_MASTER))
    spec += attribute(IFLA_BRIDGE_VLAN_INFO, VLAN_INFO.pack(flags, vid))
    return IFINFO.pack(AF_BRIDGE, 0, index, 0, 0) + attribute(IFLA_AF_SPEC, spec)


#: Requests whose encoding is in a module of its own, which is loaded only for them.
ELSEWHERE = {
    **dict.fromkeys(("SetTbf", "DeleteTbf", "AddClsact", "DeleteClsact", "SetPolicer", "DeletePolicer"), "encode_tc"),
    **dict.fromkeys(("AddAddress", "DeleteAddress"), "encode_address"),
    **dict.fromkeys(("SetPort", "FlushPort", "AddFdb", "DeleteFdb"), "encode_port"),
}


def encode(request: object) -> Encoded:
    """The message of a request that is rtnetlink's. Raises ValueError, OSError or struct.error for values that do not fit in."""
    if isinstance(request, SetLink):
        return set_link(request)
    if isinstance(request, AddRule):
        return Encoded(RTM_NEWRULE, NLM_F_CREATE | NLM_F_EXCL, _rule(request.rule))
    if isinstance(request, DeleteRule):
        return Encoded(RTM_DELRULE, 0, _rule(request.rule))
    if isinstance(request, AddRoute):
        return Encoded(RTM_NEWROUTE, NLM_F_CREATE | (NLM_F_EXCL if request.new else NLM_F_REPLACE), _route(request.route))
    if isinstance(request, DeleteRoute):
        return Encoded(RTM_DELROUTE, 0, _route(request.route))
    if isinstance(request, AddNeighbour):
        return Encoded(RTM_NEWNEIGH, NLM_F_CREATE | NLM_F_REPLACE, _neighbour(request.neighbour))
    if isinstance(request, DeleteNeighbour):
        return Encoded(RTM_DELNEIGH, 0, _neighbour(request.neighbour))
    if isinstance(request, AddVlan):
        vlan = request.vlan
        flags = (BRIDGE_VLAN_INFO_PVID if vlan.pvid else 0) | (BRIDGE_VLAN_INFO_UNTAGGED if vlan.untagged else 0)
        return Encoded(RTM_SETLINK, 0, _vlan(request.index, vlan.vid, flags))
    if isinstance(request, DeleteVlan):
        return Encoded(RTM_DELLINK, 0, _vlan(request.index, request.vid, 0))
    module = ELSEWHERE.get(type(request).__name__)
    if module:
        found: Encoded = load("netcommon.host.rtnetlink." + module).encode(request)
        return found
    raise ValueError("not a request for rtnetlink")


def get_link(index: int = 0, name: str = "") -> Encoded:
    """One link by index or name, without statistics."""
    body = IFINFO.pack(0, 0, index, 0, 0)
    return Encoded(RTM_GETLINK, 0, body + (text(IFLA_IFNAME, name) if name else b"") + number(IFLA_EXT_MASK, RTEXT_FILTER_SKIP_STATS))


def dump_links(master: int = 0, kind: str = "") -> Encoded:
    """All links, a master's ports alone, or those of a kind: the kernel sorts them out, of a kind whose module it has."""
    body = IFINFO.pack(0, 0, 0, 0, 0) + (number(IFLA_MASTER, master) if master else b"")
    body += attribute(IFLA_LINKINFO, text(INFO_KIND, kind)) if kind else b""
    return Encoded(RTM_GETLINK, 0, body + number(IFLA_EXT_MASK, RTEXT_FILTER_SKIP_STATS))


def dump_rules(family: int) -> Encoded:
    return Encoded(RTM_GETRULE, 0, RULE.pack(family, 0, 0, 0, 0, 0, 0, 0, 0))


def dump_routes(family: int, table: int = 0, protocol: int = 0, kind: int = 0, index: int = 0) -> Encoded:
    """All routes, or those of one table, protocol, type and output interface."""
    body = RTMSG.pack(family, 0, 0, 0, 0, protocol, 0, kind, 0)
    return Encoded(RTM_GETROUTE, 0, body + b"".join(number(at, one) for at, one in ((RTA_TABLE, table), (RTA_OIF, index)) if one))


def get_route(family: int, address: bytes) -> Encoded:
    """The route by which the node itself would send to an address, and its table, which IPv6 tells unasked."""
    flags = RTM_F_LOOKUP_TABLE if len(address) == 4 else 0
    return Encoded(RTM_GETROUTE, 0, RTMSG.pack(family, 8 * len(address), 0, 0, 0, 0, 0, 0, flags) + attribute(RTA_DST, address))


def dump_neighbours(family: int, index: int = 0) -> Encoded:
    """All proxy neighbours, or those of one device."""
    body = NDMSG.pack(family, 0, 0, NTF_PROXY, 0)
    return Encoded(RTM_GETNEIGH, 0, body + (number(NDA_IFINDEX, index) if index else b""))


def dump_vlans(index: int = 0) -> Encoded:
    """The VLANs of one bridge or bridge port, or of all."""
    return Encoded(RTM_GETVLAN, 0, BRVLAN.pack(AF_BRIDGE, index))
