"""Encode questions for what lies upon a device, here and in other network namespaces, and read the answers (linux/net_namespace.h).

A namespace is told by the id that this one has given it: to each into which a device was moved from here, or has the other end of a veth.
"""

from __future__ import annotations

from collections.abc import Iterable
from struct import Struct, error

from netcommon.host.api.datapath import UPPERS, Upper
from netcommon.host.rtnetlink.attributes import Encoded, MalformedError, attribute, attributes, number, string, u32
from netcommon.host.rtnetlink.decode import IFLA_LINK_NETNSID, INFO_DATA, link
from netcommon.host.rtnetlink.encode import (
    AF_BRIDGE,
    IFINFO,
    IFLA_LINKINFO,
    INFO_KIND,
    MAC_SIZE,
    NDMSG,
    RTM_GETLINK,
    RTM_GETNEIGH,
    dump_links,
)
from netcommon.host.rtnetlink.encode_port import NDA_LLADDR

RTM_GETNSID = 90
RTGENMSG, ID = Struct("=Bxxx"), Struct("=i")  #: struct rtgenmsg: family; an id
NETNSA_NSID, NETNSA_FD = 1, 3
NO_ID = -1  #: NETNSA_NSID_NOT_ASSIGNED
IFLA_TARGET_NETNSID = 46
IFLA_MACVLAN_MODE = 1
NTF_SELF = 0x02


def dump_namespaces() -> Encoded:
    """Ask for the ids of all namespaces that have one here."""
    return Encoded(RTM_GETNSID, 0, RTGENMSG.pack(0))


def own_namespace(descriptor: int) -> Encoded:
    """Ask for the id that this namespace, which ``descriptor`` is, has given itself."""
    return Encoded(RTM_GETNSID, 0, RTGENMSG.pack(0) + number(NETNSA_FD, descriptor))


def namespace(body: bytes) -> int:
    """Read RTM_NEWNSID: an id, or NO_ID. Raises MalformedError."""
    try:
        return int(ID.unpack(attributes(body, RTGENMSG.size).get(NETNSA_NSID, b""))[0])
    except error:
        raise MalformedError("a network namespace without an id") from None


def dump_links_of(there: int) -> Encoded:
    """Ask for all links of another namespace."""
    asked = dump_links()
    return Encoded(RTM_GETLINK, 0, asked.body + attribute(IFLA_TARGET_NETNSID, ID.pack(there)))


def uppers(bodies: Iterable[bytes], here: int | None = None) -> dict[int, list[Upper]]:
    """Read RTM_NEWLINK messages of this namespace, or of another one that calls this one ``here``: by device what lies upon it.

    Raises MalformedError.
    """
    found: dict[int, list[Upper]] = {}
    for body in bodies:
        if len(body) < IFINFO.size:
            raise MalformedError("a message shorter than its header")
        fields = attributes(body, IFINFO.size)
        info = attributes(fields.get(IFLA_LINKINFO, b""))
        below = ID.unpack(fields[IFLA_LINK_NETNSID])[0] if IFLA_LINK_NETNSID in fields else None
        if string(info.get(INFO_KIND)) not in UPPERS or below != here:
            continue
        each = link(body)
        mode = u32(attributes(info.get(INFO_DATA, b"")).get(IFLA_MACVLAN_MODE)) if each.kind in ("macvlan", "macvtap") else 0
        upper = Upper(each.name, each.kind, each.address, each.up, each.protocol, each.vlan, mode, here is not None)
        found.setdefault(each.lower, []).append(upper)
    return found


def dump_addresses(index: int) -> Encoded:
    """Ask for the addresses that the device takes from the wire beside its own (struct ndmsg's family AF_BRIDGE)."""
    return Encoded(RTM_GETNEIGH, 0, NDMSG.pack(AF_BRIDGE, index, 0, 0, 0))


def address(body: bytes, index: int) -> str:
    """Read RTM_NEWNEIGH: a MAC address of ``dump_addresses``; "" for a group's, or of another table. Raises MalformedError."""
    try:
        _, at, _, flags, _ = NDMSG.unpack_from(body)
    except error:
        raise MalformedError("a message shorter than its header") from None
    mac = attributes(body, NDMSG.size).get(NDA_LLADDR, b"")
    return mac.hex(":") if at == index and flags & NTF_SELF and len(mac) == MAC_SIZE and not mac[0] & 1 else ""
