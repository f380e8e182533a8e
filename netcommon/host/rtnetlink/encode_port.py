"""Flags of bridge ports and entries of forwarding databases as rtnetlink messages (rtnetlink(7), family AF_BRIDGE).

Held byte for byte against pyroute2's encoding in tests/unit/netcommon/host/rtnetlink/test_encode_port.py.
"""

from __future__ import annotations

from struct import error

from netcommon.host.api.facts import LEARNED, LOCAL, STATIC, FdbEntry, Port
from netcommon.host.api.requests import AddFdb, DeleteFdb, FlushPort, SetPort
from netcommon.host.rtnetlink.attributes import (
    NLM_F_CREATE,
    NLM_F_REPLACE,
    U16,
    Encoded,
    MalformedError,
    attribute,
    attributes,
    each,
    number,
    string,
    u32,
)
from netcommon.host.rtnetlink.decode import ENTRY, ENTRY_INFO, ENTRY_RANGE, INFO_SLAVE_KIND
from netcommon.host.rtnetlink.encode import (
    AF_BRIDGE,
    BRVLAN,
    IFINFO,
    IFLA_LINKINFO,
    MAC_SIZE,
    NDMSG,
    RTM_DELNEIGH,
    RTM_GETNEIGH,
    RTM_NEWNEIGH,
    RTM_SETLINK,
    VLAN_INFO,
)
from runtime.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

NLA_F_NESTED = 0x8000
IFLA_PROTINFO = 12
INFO_SLAVE_DATA = 5
NDA_LLADDR, NDA_VLAN, NDA_MASTER, NDA_FLAGS_EXT = 2, 5, 9, 15
NTF_EXT_LOCKED = 0x02
NTF_MASTER, NTF_STICKY = 0x04, 0x40
NUD_NOARP, NUD_PERMANENT = 0x40, 0x80

#: The fields of Port as attributes (linux/if_link.h, IFLA_BRPORT_*).
FLAGS = {"isolated": 33, "learning": 8, "flood": 9, "mcast_flood": 27, "fastleave": 7, "mcast_to_unicast": 28, "mcast_router": 25}

#: IFLA_BRPORT_FLUSH: what the bridge has learnt behind the port goes, after the flags of the same message are set (br_setport).
FLUSH = 24

#: A kernel without multicast snooping neither shows nor takes this: there no port becomes a multicast router's, and none is repaired.
SNOOPING = "mcast_router"


def encode(request: object) -> Encoded:
    """The message of a request for a bridge port. Raises ValueError for another, ValueError or struct.error for values that do not fit."""
    if isinstance(request, SetPort):
        if request.flag not in FLAGS:
            raise ValueError(f"no flag of a bridge port: {request.flag}")
        flag = attribute(FLAGS[request.flag], bytes((request.value,)))
        # in one message: a frame in between would be learnt, and outlive it
        return _port(request.index, flag + (attribute(FLUSH, b"") if (request.flag, request.value) == ("learning", False) else b""))
    if isinstance(request, FlushPort):
        return _port(request.index, attribute(FLUSH, b""))
    if isinstance(request, AddFdb):
        flags = NTF_MASTER | NTF_STICKY
        return Encoded(RTM_NEWNEIGH, NLM_F_CREATE | NLM_F_REPLACE, _entry(request.index, request.mac, request.vid, NUD_NOARP, flags))
    if isinstance(request, DeleteFdb):
        return Encoded(RTM_DELNEIGH, 0, _entry(request.index, request.mac, request.vid, 0, NTF_MASTER))
    raise ValueError("not a request for a bridge port")


def _port(index: int, what: bytes) -> Encoded:
    return Encoded(RTM_SETLINK, 0, IFINFO.pack(AF_BRIDGE, 0, index, 0, 0) + attribute(IFLA_PROTINFO | NLA_F_NESTED, what))


def _entry(index: int, mac: str, vid: int, state: int, flags: int) -> bytes:
    address = bytes.fromhex(mac.replace(":", ""))
    if len(address) != MAC_SIZE:
        raise ValueError(f"no MAC address: {mac}")
    body = NDMSG.pack(AF_BRIDGE, index, state, flags, 0) + attribute(NDA_LLADDR, address)
    return body + (attribute(NDA_VLAN, U16.pack(vid)) if vid else b"")


def get_entry(bridge: int, mac: str, vid: int) -> Encoded:
    """Asks a bridge for its one entry for an address in a VLAN. Raises as ``encode``."""
    return Encoded(RTM_GETNEIGH, 0, _entry(0, mac, vid, 0, 0) + number(NDA_MASTER, bridge))


def port(body: bytes) -> Port | None:
    """The port's flags in RTM_NEWLINK; None where it is no port of a Linux bridge. Flags that an old kernel lacks are as in a new port.

    Only SNOOPING is off there: nothing can turn it on.

    Raises MalformedError.
    """
    if len(body) < IFINFO.size:
        raise MalformedError("a message shorter than its header")
    info = attributes(attributes(body, IFINFO.size).get(IFLA_LINKINFO, b""))
    if string(info.get(INFO_SLAVE_KIND)) != "bridge":
        return None
    data = attributes(info.get(INFO_SLAVE_DATA, b""))
    found = {name: data[kind] != b"\0" for name, kind in FLAGS.items() if kind in data}
    return Port(**{SNOOPING: False, **found})


def entry(body: bytes) -> FdbEntry:
    """RTM_NEWNEIGH of a bridge. Raises MalformedError."""
    try:
        _, index, state, flags, _ = NDMSG.unpack_from(body)
        found = attributes(body, NDMSG.size)
        vid = U16.unpack(found[NDA_VLAN])[0] if NDA_VLAN in found else 0
    except error:
        raise MalformedError("a message shorter than its header") from None
    more = u32(found.get(NDA_FLAGS_EXT))
    kind = LOCAL if state & NUD_PERMANENT else STATIC if state & NUD_NOARP else LEARNED
    return FdbEntry(found.get(NDA_LLADDR, b"").hex(":"), index, vid, kind, bool(flags & NTF_STICKY), bool(more & NTF_EXT_LOCKED))


def carriers(bodies: Iterable[bytes], vid: int) -> Iterator[int]:
    """The devices of RTM_NEWVLAN messages that carry ``vid``; ranges are not spread out. Raises MalformedError."""
    try:
        for body in bodies:
            _, index = BRVLAN.unpack_from(body)
            for kind, one in each(body, BRVLAN.size):
                found = attributes(one) if kind == ENTRY else {}
                if ENTRY_INFO in found:
                    first = VLAN_INFO.unpack(found[ENTRY_INFO])[1]
                    last = U16.unpack(found[ENTRY_RANGE])[0] if ENTRY_RANGE in found else first
                    if first <= vid <= last:
                        yield index
    except error:
        raise MalformedError("a VLAN of an unexpected form") from None
