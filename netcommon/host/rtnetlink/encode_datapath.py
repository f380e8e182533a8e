"""Encode questions for routes and groups, and read answers and states of devices (rtnetlink(7); linux/if_link.h, linux/rtnetlink.h).

Held against pyroute2's encoding in tests/unit/netcommon/host/rtnetlink/test_encode_datapath.py.
"""

from __future__ import annotations

from collections.abc import Iterable
from struct import Struct, error

from netcommon.host.api.datapath import ASKABLE, FORWARDING, WITH_PORTS, BridgeState, DeviceState, PortState, Question, Way
from netcommon.host.api.facts import AF_INET, AF_INET6
from netcommon.host.rtnetlink.attributes import (
    LENGTHS,
    Encoded,
    MalformedError,
    attribute,
    attributes,
    each,
    number,
    pack_address,
    show_address,
    string,
    u32,
)
from netcommon.host.rtnetlink.decode import (
    ANYWHERE,
    ENTRY,
    ENTRY_INFO,
    ENTRY_RANGE,
    IFLA_CARRIER,
    INFO_DATA,
    INFO_SLAVE_KIND,
    RTA_MULTIPATH,
    RTA_NH_ID,
    RTA_VIA,
    nexthops,
)
from netcommon.host.rtnetlink.encode import (
    BRVLAN,
    IFINFO,
    IFLA_LINKINFO,
    INFO_KIND,
    NDA_DST,
    NDMSG,
    RTA_DST,
    RTA_GATEWAY,
    RTA_OIF,
    RTA_TABLE,
    RTM_GETNEIGH,
    RTM_GETROUTE,
    RTMSG,
    VLAN_INFO,
)
from netcommon.host.rtnetlink.encode_port import INFO_SLAVE_DATA

RTA_SRC, RTA_IIF, RTA_METRICS, RTA_MARK, RTA_ENCAP_TYPE, RTA_UID, RTA_IP_PROTO, RTA_SPORT, RTA_DPORT = 2, 3, 8, 16, 21, 25, 27, 28, 29
RTM_F_LOOKUP_TABLE, RTM_F_FIB_MATCH = 0x1000, 0x2000
RTAX_MTU = 2
PORT = Struct("!H")
ECN = 3  #: the bits of a TOS that no route looks at, and the kernel does not take

NUD_INCOMPLETE, NUD_FAILED = 0x01, 0x20  #: asked for, and no answer (yet)

RTM_GETMULTICAST = 58
IFADDR = Struct("=BBBBI")  #: struct ifaddrmsg: family, length, flags, scope, index
IFA_MULTICAST = 7

IFLA_XDP, XDP_ATTACHED = 43, 2
STATE, HAIRPIN, PROXY_ARP, PROXY_ARP_WIFI, BCAST_FLOOD, PORT_GROUPS, NEIGH_SUPPRESS, BACKUP, LOCKED = 1, 4, 10, 12, 30, 31, 32, 34, 39
AGEING, STP, BRIDGE_GROUPS, SNOOPING, QUERIER, CALL4, CALL6, CALL_ARP, OPTIONS, QUERIER_STATE = 4, 5, 9, 23, 25, 36, 37, 38, 46, 47
VLAN_SNOOPING, MST, LOCAL_VLAN_0 = 2, 4, 16  #: bits of OPTIONS (enum br_boolopt_id)
IFF_NOARP, IFF_PROMISC = 0x80, 0x100
LAST_VID, VID = 4094, Struct("=H")
ENTRY_STATE = 3  #: of a VLAN (BRIDGE_VLANDB_ENTRY_STATE)


def question(asked: Question, match: bool = False) -> Encoded:
    """Make RTM_GETROUTE. ``match``: for the route itself, not what it comes to. Raises OSError, struct.error for what is no address."""
    family = asked.family
    bits = 8 * LENGTHS[family]
    flags = (RTM_F_LOOKUP_TABLE if family == AF_INET else 0) | (RTM_F_FIB_MATCH if match else 0)
    body = RTMSG.pack(family, bits, bits if asked.source else 0, asked.tos & ~ECN, 0, 0, 0, 0, flags)
    body += attribute(RTA_DST, pack_address(family, asked.target))
    if asked.source:
        body += attribute(RTA_SRC, pack_address(family, asked.source))
    if asked.iif:
        body += number(RTA_IIF, asked.iif)
    body += number(RTA_MARK, asked.mark) + number(RTA_UID, 0)
    if asked.protocol in ASKABLE[family]:
        body += attribute(RTA_IP_PROTO, bytes((asked.protocol,)))
        if asked.protocol in WITH_PORTS:
            body += attribute(RTA_SPORT, PORT.pack(asked.source_port)) + attribute(RTA_DPORT, PORT.pack(asked.target_port))
    return Encoded(RTM_GETROUTE, 0, body)


def way(body: bytes) -> Way:
    """Read RTM_NEWROUTE as an answer to ``question``. Raises MalformedError."""
    try:
        family, length, _, _, table, protocol, _, kind, _ = RTMSG.unpack_from(body)
    except error:
        raise MalformedError("a message shorter than its header") from None
    if family not in ANYWHERE:
        raise MalformedError("a route of another family")
    found = attributes(body, RTMSG.size)
    destination = ANYWHERE[family] if RTA_DST not in found else f"{show_address(family, found[RTA_DST])}/{length}"
    gateway = show_address(family, found[RTA_GATEWAY]) if RTA_GATEWAY in found else ""
    if RTA_VIA in found:
        gateway = show_address(AF_INET6, found[RTA_VIA][2:])
    mtu = u32(attributes(found.get(RTA_METRICS, b"")).get(RTAX_MTU))
    paths = tuple(nexthops(found.get(RTA_MULTIPATH, b"")))
    nexthop = u32(found.get(RTA_NH_ID)) if family == AF_INET6 else 0
    index, table, wrapped = u32(found.get(RTA_OIF)), u32(found.get(RTA_TABLE), table), RTA_ENCAP_TYPE in found
    return Way(0, kind, index, gateway, table, destination, protocol, mtu, paths, nexthop, wrapped)


def shared(body: bytes) -> int:
    """Read from RTM_NEWROUTE the id of the nexthop that a route names; 0 for none. Raises MalformedError."""
    return u32(attributes(body, RTMSG.size).get(RTA_NH_ID))


def dump_groups() -> Encoded:
    """Ask for the groups of IPv6 that devices are members of."""
    return Encoded(RTM_GETMULTICAST, 0, IFADDR.pack(AF_INET6, 0, 0, 0, 0))


def group(body: bytes) -> tuple[int, str]:
    """Read RTM_GETMULTICAST: a device's index and a group. Raises MalformedError."""
    if len(body) < IFADDR.size:
        raise MalformedError("a message shorter than its header")
    return IFADDR.unpack_from(body)[4], show_address(AF_INET6, attributes(body, IFADDR.size).get(IFA_MULTICAST, b""))


def device(body: bytes) -> DeviceState:
    """Read RTM_NEWLINK. What an old kernel does not tell is as in a new device. Raises MalformedError."""
    if len(body) < IFINFO.size:
        raise MalformedError("a message shorter than its header")
    found = attributes(body, IFINFO.size)
    info = attributes(found.get(IFLA_LINKINFO, b""))
    port = _port(attributes(info.get(INFO_SLAVE_DATA, b""))) if string(info.get(INFO_SLAVE_KIND)) == "bridge" else None
    bridge = _bridge(attributes(info.get(INFO_DATA, b""))) if string(info.get(INFO_KIND)) == "bridge" else None
    xdp = attributes(found.get(IFLA_XDP, b"")).get(XDP_ATTACHED, b"\0")
    flags = IFINFO.unpack_from(body)[3]
    carrier, noarp, promiscuous = found.get(IFLA_CARRIER, b"\1") != b"\0", bool(flags & IFF_NOARP), bool(flags & IFF_PROMISC)
    return DeviceState(carrier, xdp != b"\0", port, bridge, not noarp, promiscuous)


def _port(data: dict[int, bytes]) -> PortState:
    def on(kind: int, default: bool = False) -> bool:
        return data[kind] != b"\0" if kind in data else default

    state = data.get(STATE, bytes((FORWARDING,)))[0]
    flags = on(NEIGH_SUPPRESS), on(PROXY_ARP), on(PROXY_ARP_WIFI)
    return PortState(state, on(HAIRPIN), on(LOCKED), on(BCAST_FLOOD, True), *flags, _mask(data.get(PORT_GROUPS)), BACKUP in data)


def _bridge(data: dict[int, bytes]) -> BridgeState:
    def on(kind: int) -> bool:
        return any(data.get(kind, b""))

    snooping = data.get(SNOOPING, b"\0") != b"\0"
    querier = on(QUERIER) or bool(data.get(QUERIER_STATE))
    options = _mask(data.get(OPTIONS))
    more = (bool(options & bit) for bit in (VLAN_SNOOPING, MST, LOCAL_VLAN_0))
    ageing = AGEING not in data or on(AGEING)
    called = on(CALL4), on(CALL6), on(CALL_ARP)
    return BridgeState(on(STP), _mask(data.get(BRIDGE_GROUPS)), snooping, querier, called, ageing, *more)


def _mask(value: bytes | None) -> int:
    """Read a number of 16 bits in the machine's order, which is little endian on all that run this."""
    return int.from_bytes((value or b"")[:2], "little")


def vlan_states(bodies: Iterable[bytes]) -> dict[int, dict[int, int]]:
    """Read RTM_NEWVLAN messages: by device and VID the states of VLANs that are not forwarding. Raises MalformedError."""
    states: dict[int, dict[int, int]] = {}
    try:
        for body in bodies:
            _, index = BRVLAN.unpack_from(body)
            for kind, one in each(body, BRVLAN.size):
                found = attributes(one) if kind == ENTRY else {}
                state = found.get(ENTRY_STATE, bytes((FORWARDING,)))[0]
                if ENTRY_INFO in found and state != FORWARDING:
                    first = VLAN_INFO.unpack(found[ENTRY_INFO])[1]
                    last = VID.unpack(found[ENTRY_RANGE])[0] if ENTRY_RANGE in found else first
                    states.setdefault(index, {}).update(dict.fromkeys(range(first, min(last, LAST_VID) + 1), state))
    except (error, IndexError):
        raise MalformedError("a VLAN of an unexpected form") from None
    return states


def get_neighbour(family: int, index: int, address: str) -> Encoded:
    """Ask for the entry of one neighbour on a device."""
    return Encoded(RTM_GETNEIGH, 0, NDMSG.pack(family, index, 0, 0, 0) + attribute(NDA_DST, pack_address(family, address)))


def unanswered(body: bytes) -> bool:
    """Tell from RTM_NEWNEIGH whether a neighbour was asked for and has not answered. Raises MalformedError."""
    try:
        return bool(NDMSG.unpack_from(body)[2] & (NUD_INCOMPLETE | NUD_FAILED))
    except error:
        raise MalformedError("a message shorter than its header") from None
