"""Addresses of devices as rtnetlink messages (rtnetlink(7), RTM_NEWADDR), encoded and decoded.

Held byte for byte against pyroute2's encoding in tests/unit/netcommon/host/rtnetlink/test_encode_address.py.
"""

from __future__ import annotations

from struct import Struct, error

from netcommon.host.api.facts import AF_INET6, Address
from netcommon.host.api.requests import AddAddress, DeleteAddress
from netcommon.host.rtnetlink.attributes import (
    NLM_F_CREATE,
    NLM_F_REPLACE,
    Encoded,
    MalformedError,
    attribute,
    attributes,
    number,
    pack_address,
    show_address,
    u32,
)

RTM_NEWADDR, RTM_DELADDR, RTM_GETADDR = 20, 21, 22
IFADDRMSG = Struct("=BBBBI")  #: struct ifaddrmsg: family, prefix length, flags, scope, index
IFA_ADDRESS, IFA_LOCAL, IFA_CACHEINFO, IFA_FLAGS, IFA_PROTO = 1, 2, 6, 8, 11
IFA_F_NODAD, IFA_F_OPTIMISTIC, IFA_F_DEPRECATED, IFA_F_TENTATIVE, IFA_F_NOPREFIXROUTE = 0x02, 0x04, 0x20, 0x40, 0x200
CACHEINFO = Struct("=IIII")  #: struct ifa_cacheinfo: seconds for which it is preferred, and valid; when it was made, and changed
FOREVER = 0xFFFFFFFF
RT_SCOPE_UNIVERSE = 0  #: what the kernel makes of an IPv6 address's scope is its own business


def encode(request: object) -> Encoded:
    """The message of a request for an address. Raises ValueError for another, OSError or struct.error for values that do not fit in."""
    if isinstance(request, AddAddress):
        address = request.address
        flags = IFA_F_NOPREFIXROUTE | (IFA_F_NODAD if address.family == AF_INET6 else 0)
        body = _address(address) + number(IFA_FLAGS, flags) + attribute(IFA_PROTO, bytes((address.protocol,)))
        if address.deprecated:
            body += attribute(IFA_CACHEINFO, CACHEINFO.pack(0, FOREVER, 0, 0))
        return Encoded(RTM_NEWADDR, NLM_F_CREATE | NLM_F_REPLACE, body)
    if isinstance(request, DeleteAddress):
        return Encoded(RTM_DELADDR, 0, _address(request.address))
    raise ValueError("not a request for an address")


def _address(address: Address) -> bytes:
    packed = pack_address(address.family, address.address)
    header = IFADDRMSG.pack(address.family, address.length, 0, RT_SCOPE_UNIVERSE, address.index)
    return header + attribute(IFA_LOCAL, packed) + attribute(IFA_ADDRESS, packed)


def dump_addresses(index: int = 0) -> Encoded:
    """All addresses of both families, or those of one device."""
    return Encoded(RTM_GETADDR, 0, IFADDRMSG.pack(0, 0, 0, 0, index))


def decode(body: bytes) -> Address:
    """RTM_NEWADDR. Raises MalformedError."""
    try:
        family, length, few, _, index = IFADDRMSG.unpack_from(body)
    except error:
        raise MalformedError("a message shorter than its header") from None
    found = attributes(body, IFADDRMSG.size)
    protocol = found.get(IFA_PROTO, b"")  # kernels before 5.18 have none
    shown = show_address(family, found.get(IFA_LOCAL, found.get(IFA_ADDRESS, b"")))
    deprecated = family == AF_INET6 and u32(found.get(IFA_FLAGS), few) & IFA_F_DEPRECATED != 0
    return Address(family, shown, length, index, protocol[0] if protocol else 0, deprecated)


def tentative(body: bytes) -> bool:
    """Read from RTM_NEWADDR whether the address may not be used yet; an optimistic one may. Raises MalformedError."""
    try:
        few = IFADDRMSG.unpack_from(body)[2]
    except error:
        raise MalformedError("a message shorter than its header") from None
    flags = u32(attributes(body, IFADDRMSG.size).get(IFA_FLAGS), few)
    return flags & (IFA_F_TENTATIVE | IFA_F_OPTIMISTIC) == IFA_F_TENTATIVE
