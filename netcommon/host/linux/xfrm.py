"""Ask the kernel for its policies of IPsec (linux/xfrm.h): which packets it drops, or puts into others, behind all that routes decide."""

from __future__ import annotations

import errno
from collections.abc import Sequence
from struct import Struct, error

from netcommon.host.api.datapath import Transform
from netcommon.host.api.facts import AF_INET, AF_INET6
from netcommon.host.rtnetlink.attributes import Encoded, MalformedError, attributes, show_address, u32
from netcommon.host.rtnetlink.socket import NETLINK_CAP_ACK, NETLINK_EXT_ACK, Netlink, Reply, untold
from runtime.errors import HostRefused, TryAgain

GET_POLICY, GET_DEFAULT = 0x15, 0x28  #: XFRM_MSG_GETPOLICY, XFRM_MSG_GETDEFAULT
#: struct xfrm_userpolicy_info: its selector's addresses, family, lengths of prefixes and protocol; where its direction is; its size.
SELECTOR, DIRECTION, SIZE = Struct("=16s16s8xHBBB"), 160, 168
DEFAULTS = Struct("=BBB")  #: struct xfrm_userpolicy_default: what is in, forwarded, out
BLOCK = 1  #: XFRM_USERPOLICY_BLOCK
XFRMA_MARK, XFRMA_IF_ID = 21, 31
MARK = Struct("=II")
WORDS = ("in", "out", "fwd")  #: by XFRM_POLICY_IN, _OUT and _FWD
NO_XFRM = frozenset({errno.EPROTONOSUPPORT, errno.EAFNOSUPPORT})


class Xfrm(Netlink):
    """A socket to IPsec's policies."""

    PROTOCOL = 6  #: NETLINK_XFRM
    NAME = "xfrm"
    OPTIONS = (NETLINK_EXT_ACK, NETLINK_CAP_ACK)


def transforms(timeout: float) -> Sequence[Transform]:
    """Return all policies, and one for all packets where those without any are dropped by default. Raises TryAgain, HostRefused."""
    asked = Xfrm(timeout)
    try:
        found = asked.dump(Encoded(GET_POLICY, 0, bytes(SIZE)))
        default = asked.get(Encoded(GET_DEFAULT, 0, bytes(DEFAULTS.size)))
    except HostRefused as problem:
        if isinstance(problem.__cause__, OSError) and problem.__cause__.errno in NO_XFRM:  # a kernel without IPsec
            return []
        raise
    finally:
        asked.close()
    if isinstance(found, Reply):
        raise untold("policies of IPsec", found)
    try:
        made = [each for body in found if (each := policy(body)) is not None]
        return made + (blocked(default) if isinstance(default, bytes) else [])
    except MalformedError as problem:
        raise TryAgain(f"the kernel's answer makes no sense: {problem}") from problem


def policy(body: bytes) -> Transform | None:
    """Read XFRM_MSG_NEWPOLICY; None for one of sockets, or of a device of kind xfrm alone. Raises MalformedError."""
    try:
        target, source, family, target_length, source_length, protocol = SELECTOR.unpack_from(body)
        direction = body[DIRECTION]
        found = attributes(body, SIZE)
        mark, mask = MARK.unpack(found[XFRMA_MARK]) if XFRMA_MARK in found else (0, 0)
    except (error, IndexError):
        raise MalformedError("a policy of IPsec that is cut off") from None
    if direction >= len(WORDS) or u32(found.get(XFRMA_IF_ID)) or family not in (AF_INET, AF_INET6):
        return None
    size = 4 if family == AF_INET else 16
    where, whence = show_address(family, target[:size]), show_address(family, source[:size])
    ends = f"{whence}/{source_length}", f"{where}/{target_length}"
    return Transform(WORDS[direction], family, *ends, protocol, mark, mask)


def blocked(body: bytes) -> list[Transform]:
    """Read XFRM_MSG_GETDEFAULT. Raises MalformedError."""
    if len(body) < DEFAULTS.size:
        raise MalformedError("defaults of IPsec that are cut off")
    values = dict(zip(("in", "fwd", "out"), DEFAULTS.unpack_from(body), strict=True))
    return [Transform(word, family) for word, value in values.items() if value == BLOCK for family in (AF_INET, AF_INET6)]
