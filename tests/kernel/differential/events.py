"""What the kernel announces: an ear on every group of rtnetlink (rtnetlink(7)), as ``ip monitor all`` has."""

from __future__ import annotations

import socket
import struct
from types import TracebackType

SOL_NETLINK = 270
NETLINK_ADD_MEMBERSHIP = 1
HIGHEST_GROUP = 38  #: RTNLGRP_STATS and above are not announced by what we watch
NTF_PROXY = 0x08

NAMES = {
    16: "RTM_NEWLINK", 17: "RTM_DELLINK", 20: "RTM_NEWADDR", 21: "RTM_DELADDR", 24: "RTM_NEWROUTE", 25: "RTM_DELROUTE",
    28: "RTM_NEWNEIGH", 29: "RTM_DELNEIGH", 32: "RTM_NEWRULE", 33: "RTM_DELRULE", 36: "RTM_NEWQDISC", 37: "RTM_DELQDISC",
    80: "RTM_NEWNETCONF", 81: "RTM_DELNETCONF", 112: "RTM_NEWVLAN", 113: "RTM_DELVLAN",
}  # fmt: skip

#: What the kernel announces by itself at any time: (type, reason).
UNCAUSED = (
    (28, "RTM_NEWNEIGH that is no proxy: learned"),
    (29, "RTM_DELNEIGH that is no proxy: forgotten"),
    (52, "RTM_NEWPREFIX: a router advertisement"),
    (68, "RTM_NEWNDUSEROPT: a router advertisement"),
    (84, "RTM_NEWMDB: multicast listeners, learned"),
    (85, "RTM_DELMDB: the same"),
)


class Ear:
    """Listens from ``with`` on; ``heard`` gives what changed until now."""

    def __init__(self) -> None:
        self.socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, socket.NETLINK_ROUTE)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
        self.socket.setblocking(False)
        self.socket.bind((0, 0))  # the kernel passes over a listener without an address of its own
        for group in range(1, HIGHEST_GROUP + 1):
            try:
                self.socket.setsockopt(SOL_NETLINK, NETLINK_ADD_MEMBERSHIP, group)
            except OSError:  # a group that this kernel has not yet
                continue

    def __enter__(self) -> Ear:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.socket.close()

    def heard(self) -> list[str]:
        """The names of the changes announced so far. The kernel announces before it answers who asked: there is nothing to wait for."""
        found: list[str] = []
        while True:
            try:
                data = self.socket.recv(1 << 20)
            except BlockingIOError:
                return found
            while len(data) >= 16:
                length, kind = struct.unpack_from("=IH", data)
                if not _uncaused(kind, data[16:length]):
                    found.append(NAMES.get(kind, f"type {kind}"))
                data = data[(length + 3) & ~3 :]


def _uncaused(kind: int, body: bytes) -> bool:
    """struct ndmsg: family, pad, pad, ifindex, state, flags, type."""
    proxy = kind in (28, 29) and body[10] & NTF_PROXY
    return kind in dict(UNCAUSED) and not proxy
