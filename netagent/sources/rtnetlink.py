"""What rtnetlink tells (rtnetlink(7)): devices, rules, routes, addresses, VLANs, qdiscs, and the settings of devices.

Of routes and forwarding entries the kernel passes on to us what may be ours, or in the place of ours: a node that learns a whole routing
table, or ten thousand MAC addresses, does not wake the agent up but for routes to single addresses, and those to a /64 with the last metric
that there is, which the rest of an underlay's prefix has. It tells nothing of proxy neighbours
of IPv4: what of those is missing, the next resync finds.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator, Mapping
from struct import error
from sys import byteorder

from netagent.events import INDEX, UPLINKS, Came, Event, Gone, Overrun
from netagent.sources import kernel_meaning as meaning
from netagent.sources.kernel_meaning import KernelMeaning, Seen
from netagent.sources.listener import (
    ATTRIBUTE,
    BUFFER,
    EQUAL,
    FIND,
    LOAD_BYTE,
    LOAD_HALF,
    LOAD_WORD_X,
    NOTHING,
    NUMBER,
    NUMBER_X,
    RETURN,
    TO_X,
    WHOLE,
    Instruction,
    Listener,
    Lost,
)
from netcommon.host.api.facts import AF_INET, AF_INET6, PROTOCOL, REST
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
    RTA_PRIORITY,
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
RTPROT_KERNEL = 2  #: of the routes that come with addresses
IFLA_PROTINFO, IFLA_CARRIER = 12, 33

#: The first attribute of IFLA_PROTINFO, a byte, says whether the port forwards: what spanning tree and the carrier make of it.
IFLA_BRPORT_STATE, STATE = (1).to_bytes(2, byteorder), 8

#: Datagrams that are read at a time: other descriptors are looked at in between.
AT_ONCE = 4096

#: What comes after the header: struct rtmsg (family, destination's length, protocol), struct ndmsg (family, state's low byte).
TYPE, FAMILY, DST_LEN, RT_PROTOCOL, ND_STATE = 4, 16, 16 + 1, 16 + 5, 16 + 8 + (byteorder == "big")
ATTRIBUTES, ATTRIBUTE_SIZE = 16 + 12, 4  #: where those of a route begin, and of each the value in it
NUD_NOARP = 0x40  #: of an entry that somebody has made, and that is not the device's own


def _host_order(kind: int) -> int:
    """A type as a filter loads it, which takes numbers for big-endian."""
    return socket.htons(kind)


#: A datagram holds one message. (operation, jump if true, jump if false, operand)
FILTER: tuple[Instruction, ...] = (
    (LOAD_HALF, 0, 0, TYPE),
    (EQUAL, 5, 0, _host_order(RTM_NEWROUTE)),
    (EQUAL, 2, 0, _host_order(RTM_DELROUTE)),
    (EQUAL, 21, 0, _host_order(RTM_NEWNEIGH)),
    (EQUAL, 20, 24, _host_order(RTM_DELNEIGH)),
    (LOAD_BYTE, 0, 0, RT_PROTOCOL),  # 5: a route that is gone: ours
    (EQUAL, 22, 2, PROTOCOL),
    (LOAD_BYTE, 0, 0, RT_PROTOCOL),  # 7: a new one: not ours
    (EQUAL, 21, 0, PROTOCOL),
    (LOAD_BYTE, 0, 0, DST_LEN),  # 9: of others a default one, or one to a single address that somebody has made: it may be a guest's
    (EQUAL, 18, 0, 0),
    (EQUAL, 11, 0, 128),
    (EQUAL, 8, 0, 32),
    (EQUAL, 0, 16, 64),
    (NUMBER_X, 0, 0, RTA_PRIORITY),  # 14: or one to a /64 with the metric of that for the rest of an underlay's prefix
    (NUMBER, 0, 0, ATTRIBUTES),
    (FIND, 0, 0, ATTRIBUTE),
    (EQUAL, 12, 0, 0),
    (TO_X, 0, 0, 0),
    (LOAD_WORD_X, 0, 0, ATTRIBUTE_SIZE),
    (EQUAL, 8, 9, socket.htonl(REST)),
    (LOAD_BYTE, 0, 0, FAMILY),  # 21: a /32 of IPv6 is a provider's network
    (EQUAL, 0, 7, AF_INET),
    (LOAD_BYTE, 0, 0, RT_PROTOCOL),  # 23
    (EQUAL, 5, 4, RTPROT_KERNEL),
    (LOAD_BYTE, 0, 0, FAMILY),  # 25: a forwarding entry: a static one
    (EQUAL, 0, 3, AF_BRIDGE),
    (LOAD_BYTE, 0, 0, ND_STATE),
    (EQUAL, 0, 1, NUD_NOARP),
    (RETURN, 0, 0, WHOLE),  # 29
    (RETURN, 0, 0, NOTHING),
)


class KernelEvents(Listener):
    """A subscription to rtnetlink in the caller's network namespace. Raises HostRefused."""

    def __init__(self, buffer: int = BUFFER) -> None:
        """``buffer``: bytes of messages that the kernel keeps for us."""
        super().__init__(socket.NETLINK_ROUTE, GROUPS, FILTER, buffer)
        self._meaning = KernelMeaning()
        self._nexthops: dict[int, nexthop.Nexthop] = {}  #: by its id what was last told of each

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
            self._meaning.forget()
            self._nexthops.clear()
            found.append(Overrun(SOURCE))
        return found

    def _event(self, kind: int, body: bytes) -> Iterator[Event]:
        if kind in (RTM_NEWLINK, RTM_DELLINK):
            yield from self._link(kind, body)
        elif kind in (RTM_NEWRULE, RTM_DELRULE):
            yield from meaning.of_rule(decode.rule(body), kind == RTM_DELRULE)
        elif kind in (RTM_NEWROUTE, RTM_DELROUTE):
            route = decode.route(body)
            if route is not None:
                yield from meaning.of_route(route, kind == RTM_DELROUTE)
        elif kind in (nexthop.RTM_NEWNEXTHOP, nexthop.RTM_DELNEXTHOP):
            yield from self._nexthop(kind, body)
        elif kind in (RTM_NEWNEIGH, RTM_DELNEIGH):
            if body[0] == AF_BRIDGE:
                mac = attributes(body, NDMSG.size).get(NDA_LLADDR, b"") if kind == RTM_NEWNEIGH else b""
                yield from meaning.of_entry(NDMSG.unpack_from(body)[1], mac.hex(":"), kind == RTM_DELNEIGH)
        elif kind in (RTM_NEWADDR, RTM_DELADDR):
            # struct ifaddrmsg: family, length, flags, scope, index
            yield from meaning.of_address(int.from_bytes(body[4:8], byteorder), kind == RTM_DELADDR)
        elif kind in (RTM_NEWVLAN, RTM_DELVLAN):
            for index, vlan in decode.vlans(body):
                yield from meaning.of_vlan(index, vlan.vid, kind == RTM_DELVLAN)
        elif kind in (RTM_NEWTFILTER, RTM_DELTFILTER):
            yield meaning.either(kind == RTM_DELTFILTER, (INDEX, _tc_device(body)))
        elif kind in (RTM_NEWQDISC, RTM_DELQDISC):
            yield from self._qdisc(kind, body)
        elif kind == RTM_NEWNETCONF:
            yield from meaning.of_settings(u32(attributes(body, 4).get(NETCONFA_IFINDEX)))

    def _link(self, kind: int, body: bytes) -> Iterator[Event]:
        family, _, index, flags, _ = IFINFO.unpack_from(body)
        found = attributes(body, IFINFO.size)
        if family == AF_BRIDGE:  # a port's flags and VLANs; or it is none any more
            yield from self._port(kind, index, found)
            return
        info = attributes(found.get(IFLA_LINKINFO, b""))
        sort = string(info.get(INFO_KIND))
        if kind == RTM_DELLINK:
            yield from self._meaning.link_gone(index, decode.link(body).vlan if sort == "vlan" else 0)
            return
        seen = Seen(
            string(found.get(IFLA_IFNAME)),
            (found.get(IFLA_MASTER), found.get(IFLA_MTU)),
            flags & IFF_UP,
            found.get(IFLA_ADDRESS),
            found.get(IFLA_IFALIAS),
            found.get(IFLA_CARRIER),
            _vlans(info) if sort == "bridge" else (),
        )
        yield from self._meaning.link(index, seen, sort, string(info.get(INFO_SLAVE_KIND)), lambda: decode.link(body))

    def _port(self, kind: int, index: int, found: Mapping[int, bytes]) -> Iterator[Event]:
        if kind == RTM_DELLINK:
            yield from self._meaning.port_gone(index)
            return
        flags = found.get(IFLA_PROTINFO, b"")
        flags = flags[STATE:] if flags[2:4] == IFLA_BRPORT_STATE else flags
        # VLANs may be kilobytes
        yield from self._meaning.port(index, hash((found.get(IFLA_MASTER), found.get(IFLA_AF_SPEC), flags)))

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
        index, place = _tc_device(body), body[TCM_HANDLE:TCM_INFO]
        if kind == RTM_DELQDISC:
            yield from self._meaning.qdisc_gone(index, place)
            return
        found = attributes(body, TCMSG_SIZE)
        yield from self._meaning.qdisc(index, place, hash((found.get(TCA_KIND), found.get(TCA_OPTIONS))))  # the rest is statistics


def _tc_device(body: bytes) -> int:
    return int.from_bytes(body[TCM_IFINDEX : TCM_IFINDEX + 4], byteorder)


def _vlans(info: Mapping[int, bytes]) -> tuple[bytes | None, ...]:
    """Tell whether a bridge has VLANs, and of which protocol, by its IFLA_LINKINFO."""
    data = attributes(info.get(decode.INFO_DATA, b""))
    return data.get(decode.BR_VLAN_FILTERING), data.get(decode.BR_VLAN_PROTOCOL)
