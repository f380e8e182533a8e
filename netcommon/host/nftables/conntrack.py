"""Ask connection tracking for the entry of one connection, and whether that changes addresses or ports (nfnetlink_conntrack.h)."""

from __future__ import annotations

from struct import Struct

from netcommon.host.api.datapath import Connection
from netcommon.host.api.facts import AF_INET
from netcommon.host.rtnetlink.attributes import Encoded, MalformedError, attribute, attributes, pack_address

GET = 1 << 8 | 1  #: NFNL_SUBSYS_CTNETLINK, IPCTNL_MSG_CT_GET
NFGENMSG, PORT, STATUS = Struct("=BBH"), Struct("!H"), Struct("!I")  #: struct nfgenmsg: family, version, resource
NESTED = 0x8000
CTA_TUPLE_ORIG, CTA_STATUS = 1, 3
CTA_TUPLE_IP, CTA_TUPLE_PROTO = 1, 2
ADDRESSES = {AF_INET: (1, 2), 10: (3, 4)}  #: CTA_IP_V4_SRC and _DST, CTA_IP_V6_SRC and _DST
CTA_PROTO_NUM, CTA_PROTO_SRC_PORT, CTA_PROTO_DST_PORT = 1, 2, 3
ECHO = {1: (4, 5, 6), 58: (7, 8, 9)}  #: by protocol CTA_PROTO_ICMP_ID, _TYPE and _CODE; ICMPv6's
IPS_SRC_NAT, IPS_DST_NAT = 0x10, 0x20


def get(of: Connection) -> Encoded:
    """Ask for the entry of a packet's connection, whichever way the packet goes. Raises OSError, struct.error for what does not fit."""
    pairs = zip(ADDRESSES[of.family], (of.source, of.target), strict=True)
    addresses = b"".join(attribute(kind, pack_address(of.family, each)) for kind, each in pairs)
    upper = attribute(CTA_PROTO_NUM, bytes((of.protocol,)))
    if of.protocol in ECHO:
        identifier, kind, code = ECHO[of.protocol]
        upper += attribute(identifier, PORT.pack(of.identifier)) + attribute(kind, bytes((of.kind,))) + attribute(code, bytes((of.code,)))
    else:
        ports = zip((CTA_PROTO_SRC_PORT, CTA_PROTO_DST_PORT), of.ports, strict=True)
        upper += b"".join(attribute(kind, PORT.pack(port)) for kind, port in ports)
    both = attribute(CTA_TUPLE_IP | NESTED, addresses) + attribute(CTA_TUPLE_PROTO | NESTED, upper)
    return Encoded(GET, 0, NFGENMSG.pack(of.family, 0, 0) + attribute(CTA_TUPLE_ORIG | NESTED, both))


def translates(body: bytes) -> bool:
    """Read an entry: whether it changes addresses or ports of its packets. Raises MalformedError."""
    status = attributes(body, NFGENMSG.size).get(CTA_STATUS, b"")
    if len(status) != STATUS.size:
        raise MalformedError("a connection without a state")
    return bool(STATUS.unpack(status)[0] & (IPS_SRC_NAT | IPS_DST_NAT))
