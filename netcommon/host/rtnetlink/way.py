"""Ask the kernel which way a packet would take (RTM_GETROUTE with an incoming device, as `ip route get ... from ... iif ...` does)."""

from __future__ import annotations

from netcommon.host.api.facts import AF_INET, AF_INET6
from netcommon.host.rtnetlink import decode
from netcommon.host.rtnetlink.attributes import LENGTHS, Encoded, attribute, number, pack_address
from netcommon.host.rtnetlink.encode import RTA_DST, RTM_GETROUTE, RTMSG
from runtime.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from netcommon.host.api.facts import Route
    from netcommon.host.rtnetlink.socket import Netlink

RTA_SRC, RTA_IIF, RTA_MARK = 2, 3, 16
RTM_F_CLONED = 0x200  #: of every answer to such a question; the decoder takes it for a cached route


def get(source: str, target: str, index: int, mark: int) -> Encoded:
    """Ask for the way of a packet that comes in by a device. Raises OSError for what is no address."""
    family = AF_INET6 if ":" in target else AF_INET
    bits = 8 * LENGTHS[family]
    body = RTMSG.pack(family, bits, bits, 0, 0, 0, 0, 0, 0)
    body += attribute(RTA_DST, pack_address(family, target)) + attribute(RTA_SRC, pack_address(family, source)) + number(RTA_IIF, index)
    return Encoded(RTM_GETROUTE, 0, body + (number(RTA_MARK, mark) if mark else b""))


def way(netlink: Netlink, source: str, target: str, index: int, mark: int) -> Route | None:
    """See View.way. Raises TryAgain, MalformedError."""
    found = netlink.get(get(source, target, index, mark))
    if not isinstance(found, bytes):
        return None  # the error is that of the lookup: which one says why differs by the kernel's version
    header = bytearray(found[: RTMSG.size])
    flags = RTMSG.unpack(header)[-1]
    RTMSG.pack_into(header, 0, *RTMSG.unpack(header)[:-1], flags & ~RTM_F_CLONED)
    return decode.route(bytes(header) + found[RTMSG.size :])
