"""What rtnetlink tells (rtnetlink(7)): devices, rules, routes, addresses, VLANs, qdiscs, and the settings of devices.

Of routes and forwarding entries the kernel passes on to us what may be ours, or in the place of ours: a node that learns a whole routing
table, or ten thousand MAC addresses, does not wake the agent up but for routes to single addresses. It tells nothing of proxy neighbours
of IPv4: what of those is missing, the next resync finds.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator, Mapping
from struct import error
from sys import byteorder

from netagent.events import (
    ADDRESS,
    BASE,
    FWMARK,
    INDEX,
    MAC,
    NAME,
    PORTS,
    SETTINGS,
    UPLINKS,
    VLAN,
    Came,
    Changed,
    Event,
    Gone,
    LinkGone,
    Mark,
    Overrun,
)
from netagent.sources.listener import BUFFER, EQUAL, LOAD_BYTE, LOAD_HALF, NOTHING, RETURN, WHOLE, Instruction, Listener, Lost
from netcommon.host.api.facts import AF_INET, AF_INET6, PROTOCOL, Link
from netcommon.host.rtnetlink import decode, nexthop
from netcommon.host.rtnetlink.attributes import MalformedError, attributes, string, u32
from netcommon.host.rtnetlink.decode import INFO_SLAVE_KIND
from netcommon.host.rtnetlink.encode import (
    AF_BRIDGE,
    IFF_UP,
    IFINFO,
    IFLA_ADDRESS,
    IFLA_AF_SPEC,
    IFLA_IFALIAS,
    IFLA_IFNAME,
    IFLA_LINKINFO,
    IFLA_MASTER,
    IFLA_MTU,
    INFO_KIND,
    NDMSG,
    RTM_DELLINK,
    RTM_DELNEIGH,
    RTM_DELROUTE,
    RTM_DELRULE,
    RTM_NEWLINK,
    RTM_NEWNEIGH,
    RTM_NEWROUTE,
    RTM_NEWRULE,
    RTM_NEWVLAN,
)
from netcommon.operations.vlan import may_lead_outside

SOURCE = "rtnetlink"

#: RTNLGRP_*: links, forwarding entries, traffic control, and of IPv4 and IPv6 addresses, routes, rules and devices' settings; nexthops;
#: VLANs.
GROUPS = (1, 3, 4, 5, 9, 7, 11, 8, 19, 24, 25, 32, 33)

RTM_NEWADDR, RTM_DELADDR = 20, 21
RTM_NEWQDISC, RTM_DELQDISC = 36, 37
RTM_NEWTFILTER, RTM_DELTFILTER = 44, 45
RTM_NEWNETCONF = 80
RTM_DELVLAN = 113
NETCONFA_IFINDEX = 1

#: struct tcmsg: family, padding, index, handle, parent, info. Attributes of a qdisc that are not statistics.
TCM_IFINDEX, TCM_HANDLE, TCM_INFO, TCMSG_SIZE = 4, 8, 16, 20
TCA_KIND, TCA_OPTIONS = 1, 2
NDA_LLADDR = 2
#: What no NIC's record is about, but what there is on the node.
OF_THE_NODE = Changed(())
RTPROT_KERNEL = 2  #: of the routes that come with addresses
IFLA_PROTINFO, IFLA_CARRIER = 12, 33

#: The first attribute of IFLA_PROTINFO, a byte, says whether the port forwards: what spanning tree and the carrier make of it.
IFLA_BRPORT_STATE, STATE = (1).to_bytes(2, byteorder), 8

#: Datagrams that are read at a time: other descriptors are looked at in between.
AT_ONCE = 4096

#: What comes after the header: struct rtmsg (family, destination's length, protocol), struct ndmsg (family, state's low byte).
TYPE, FAMILY, DST_LEN, RT_PROTOCOL, ND_STATE = 4, 16, 16 + 1, 16 + 5, 16 + 8 + (byteorder == "big")
NUD_NOARP = 0x40  #: of an entry that somebody has made, and that is not the device's own


def _host_order(kind: int) -> int:
    """A type as a filter loads it, which takes numbers for big-endian."""
    return socket.htons(kind)


#: A datagram holds one message. (operation, jump if true, jump if false, operand)
FILTER: tuple[Instruction, ...] = (
    (LOAD_HALF, 0, 0, TYPE),
    (EQUAL, 5, 0, _host_order(RTM_NEWROUTE)),
    (EQUAL, 2, 0, _host_order(RTM_DELROUTE)),
    (EQUAL, 13, 0, _host_order(RTM_NEWNEIGH)),
    (EQUAL, 12, 16, _host_order(RTM_DELNEIGH)),
    (LOAD_BYTE, 0, 0, RT_PROTOCOL),  # 5: a route that is gone: ours
    (EQUAL, 14, 2, PROTOCOL),
    (LOAD_BYTE, 0, 0, RT_PROTOCOL),  # 7: a new one: not ours
    (EQUAL, 13, 0, PROTOCOL),
    (LOAD_BYTE, 0, 0, DST_LEN),  # 9: of others a default one, or one to a single address that somebody has made: it may be a guest's
    (EQUAL, 10, 0, 0),
    (EQUAL, 3, 0, 128),
    (EQUAL, 0, 9, 32),
    (LOAD_BYTE, 0, 0, FAMILY),  # 13: a /32 of IPv6 is a provider's network
    (EQUAL, 0, 7, AF_INET),
    (LOAD_BYTE, 0, 0, RT_PROTOCOL),  # 15
    (EQUAL, 5, 4, RTPROT_KERNEL),
    (LOAD_BYTE, 0, 0, FAMILY),  # 17: a forwarding entry: a static one
    (EQUAL, 0, 3, AF_BRIDGE),
    (LOAD_BYTE, 0, 0, ND_STATE),
    (EQUAL, 0, 1, NUD_NOARP),
    (RETURN, 0, 0, WHOLE),  # 21
    (RETURN, 0, 0, NOTHING),
)


class KernelEvents(Listener):
    """A subscription to rtnetlink in the caller's network namespace. Raises HostRefused."""

    def __init__(self, buffer: int = BUFFER) -> None:
        """``buffer``: bytes of messages that the kernel keeps for us."""
        super().__init__(socket.NETLINK_ROUTE, GROUPS, FILTER, buffer)
        self._links: dict[int, tuple[object, ...]] = {}  #: of each device what was last told of it
        self._ports: dict[int, int] = {}  #: of each port of a bridge a hash of what was last told of it as such
        self._nexthops: dict[int, nexthop.Nexthop] = {}  #: by its id what was last told of each
        self._qdiscs: dict[int, dict[bytes, int]] = {}  #: of each device's qdiscs, by handle and parent, a hash of what was last told of it

    def read(self) -> list[Event]:
        """What has happened since it was last read, a part of it where it is much."""
        found: list[Event] = []
        try:
            for kind, _flags, body in self.messages(AT_ONCE):
                try:
                    found += self._event(kind, body)
                except (MalformedError, error, IndexError):
                    found.append(Overrun(SOURCE))  # what we cannot read may be about us
        except Lost:
            self._links.clear()
            self._ports.clear()
            self._nexthops.clear()
            self._qdiscs.clear()
            found.append(Overrun(SOURCE))
        return found

    def _event(self, kind: int, body: bytes) -> Iterator[Event]:
        if kind in (RTM_NEWLINK, RTM_DELLINK):
            yield from self._link(kind, body)
        elif kind in (RTM_NEWRULE, RTM_DELRULE):
            rule = decode.rule(body)
            if rule.iif:
                ways = ((UPLINKS, rule.family),) if rule.protocol != PROTOCOL else ()  # packets come in for guests by the table's uplinks
                yield _either(kind == RTM_DELRULE, (NAME, rule.iif), *ways)
                if kind == RTM_DELRULE and rule.protocol != PROTOCOL:
                    yield Came(((NAME, rule.iif),))  # what stood in the way of ours is gone
            elif rule.mask:
                yield _either(kind == RTM_DELRULE, (FWMARK, (rule.mark, rule.mask)))
            else:
                yield OF_THE_NODE
        elif kind in (RTM_NEWROUTE, RTM_DELROUTE):
            yield from _route(kind, body)
        elif kind in (nexthop.RTM_NEWNEXTHOP, nexthop.RTM_DELNEXTHOP):
            yield from self._nexthop(kind, body)
        elif kind == RTM_DELNEIGH:
            if body[0] == AF_BRIDGE:
                yield Gone(((INDEX, NDMSG.unpack_from(body)[1]),))
        elif kind == RTM_NEWNEIGH:  # a static entry that was made or replaced, perhaps on another port
            if body[0] == AF_BRIDGE and (mac := attributes(body, NDMSG.size).get(NDA_LLADDR)):
                yield Changed(((MAC, mac.hex(":")),))
        elif kind in (RTM_NEWADDR, RTM_DELADDR):
            # struct ifaddrmsg: family, length, flags, scope, index
            yield Gone(((INDEX, int.from_bytes(body[4:8], byteorder)),)) if kind == RTM_DELADDR else OF_THE_NODE
        elif kind in (RTM_NEWVLAN, RTM_DELVLAN):
            for index, vlan in decode.vlans(body):
                yield _either(kind == RTM_DELVLAN, (VLAN, (index, vlan.vid)), (VLAN, (index, 0)))
        elif kind in (RTM_NEWTFILTER, RTM_DELTFILTER):
            yield _either(kind == RTM_DELTFILTER, (INDEX, _tc_device(body)))
        elif kind in (RTM_NEWQDISC, RTM_DELQDISC):
            yield from self._qdisc(kind, body)
        elif kind == RTM_NEWNETCONF:
            index = u32(attributes(body, 4).get(NETCONFA_IFINDEX))
            if 0 < index < 1 << 31:  # "all" and "default" are negative
                yield Changed(((INDEX, index), (SETTINGS, index)))

    def _link(self, kind: int, body: bytes) -> Iterator[Event]:
        family, _, index, flags, _ = IFINFO.unpack_from(body)
        found = attributes(body, IFINFO.size)
        name = string(found.get(IFLA_IFNAME))
        if family == AF_BRIDGE:  # a port's flags and VLANs; or it is none any more
            yield from self._port(kind, index, found)
            return
        info = attributes(found.get(IFLA_LINKINFO, b""))
        sort = string(info.get(INFO_KIND))
        if kind == RTM_DELLINK:
            self._links.pop(index, None)
            self._ports.pop(index, None)
            self._qdiscs.pop(index, None)
            yield LinkGone(index)
            if sort == "vlan":
                yield Gone(((VLAN, (0, decode.link(body).vlan)),))
            return
        wanted = (IFLA_ADDRESS, IFLA_IFALIAS, IFLA_CARRIER)
        vlans = _vlans(info) if sort == "bridge" else ()
        as_port = found.get(IFLA_MASTER), found.get(IFLA_MTU)
        told = (name, as_port, flags & IFF_UP, *(found.get(each) for each in wanted), vlans)
        before = self._links.get(index)
        names = dict.fromkeys((name, str(before[0]) if before else name))  # the earlier name is what records have
        if before != told:  # the kernel says so of much that is nothing to us
            self._links[index] = told
            of_vrf = ((UPLINKS, AF_INET), (UPLINKS, AF_INET6)) if "vrf" in (sort, string(info.get(INFO_SLAVE_KIND))) else ()
            yield Changed(((INDEX, index), *((NAME, each) for each in names), *of_vrf))
            joined = IFLA_MASTER in found and (before is None or before[1] != told[1])
            if joined or sort == "vlan":
                yield from _among_vlans(decode.link(body), joined)
        if before is None or (before[0], before[-1]) != (told[0], told[-1]):  # it is new, or has that name or VLANs only now
            yield Came(((BASE, name), *((NAME, each) for each in names)))

    def _port(self, kind: int, index: int, found: Mapping[int, bytes]) -> Iterator[Event]:
        """Of thousands of new taps the kernel tells for most of a minute, a hundred a second, that a bridge has seen their carrier."""
        if kind == RTM_DELLINK:
            self._ports.pop(index, None)
            yield Gone(((INDEX, index),))
            return
        flags = found.get(IFLA_PROTINFO, b"")
        flags = flags[STATE:] if flags[2:4] == IFLA_BRPORT_STATE else flags
        told = hash((found.get(IFLA_MASTER), found.get(IFLA_AF_SPEC), flags))  # VLANs may be kilobytes
        if self._ports.get(index) != told:
            self._ports[index] = told
            yield Changed(((INDEX, index),))

    def _nexthop(self, kind: int, body: bytes) -> Iterator[Event]:
        """Default routes may name it, of which the kernel tells nothing then. A gateway alone is no news."""
        told = nexthop.decode(body)
        ways = ((UPLINKS, AF_INET), (UPLINKS, AF_INET6))
        if kind == nexthop.RTM_DELNEXTHOP:
            self._nexthops.pop(told.id, None)
            yield Gone(ways)
        elif self._nexthops.get(told.id) != told:
            self._nexthops[told.id] = told
            yield Came(ways)

    def _qdisc(self, kind: int, body: bytes) -> Iterator[Event]:
        """Whoever asks for one qdisc is answered so that all can hear it: what was told before is no news, or each look would be followed
        by the next one.
        """
        index, place = _tc_device(body), body[TCM_HANDLE:TCM_INFO]
        if kind == RTM_DELQDISC:
            self._qdiscs.get(index, {}).pop(place, None)
            yield Gone(((INDEX, index),))
            return
        found = attributes(body, TCMSG_SIZE)
        told = hash((found.get(TCA_KIND), found.get(TCA_OPTIONS)))  # the rest is statistics
        if self._qdiscs.setdefault(index, {}).get(place) != told:
            self._qdiscs[index][place] = told
            yield Changed(((INDEX, index),))


def _tc_device(body: bytes) -> int:
    return int.from_bytes(body[TCM_IFINDEX : TCM_IFINDEX + 4], byteorder)


def _among_vlans(link: Link, joined: bool) -> Iterator[Event]:
    """Tell what a device is to others: it takes a VLAN as a VLAN interface, or it joined a bridge whose uplink it may be.

    With another MTU it is as one that has only joined: the kernel does not tell the other ports that they may take longer frames now.
    """
    if link.vlan:
        yield Changed(((VLAN, (0, link.vlan)),))
    if joined and link.master and may_lead_outside(link):
        yield Came(((PORTS, link.master),))


def _either(gone: bool, *marks: Mark) -> Event:
    return Gone(marks) if gone else Changed(marks)


def _vlans(info: Mapping[int, bytes]) -> tuple[bytes | None, ...]:
    """Tell whether a bridge has VLANs, and of which protocol, by its IFLA_LINKINFO."""
    data = attributes(info.get(decode.INFO_DATA, b""))
    return data.get(decode.BR_VLAN_FILTERING), data.get(decode.BR_VLAN_PROTOCOL)


def _route(kind: int, body: bytes) -> Iterator[Event]:
    route = decode.route(body)
    if route is None:
        return
    if route.destination.endswith("/0"):
        yield (Gone if kind == RTM_DELROUTE else Came)(((UPLINKS, route.family),))
    elif route.protocol != PROTOCOL:  # it stands in the place of a guest's, or does no more
        yield (Came if kind == RTM_DELROUTE else Changed)(((ADDRESS, route.destination),))
    if kind == RTM_DELROUTE and route.protocol == PROTOCOL:
        yield Gone((((INDEX, route.index),) if route.index else ()) + ((ADDRESS, route.destination),))
