"""A netlink socket that only listens (netlink(7)): multicast groups, a large buffer, and the news when that was not large enough."""

from __future__ import annotations

import errno
import socket
from array import array
from collections.abc import Container, Iterable, Iterator, Sequence
from struct import Struct, pack

from netcommon.host.rtnetlink.attributes import HEADER
from netcommon.host.rtnetlink.socket import SO_RCVBUFFORCE, SOL_NETLINK
from runtime.errors import HostRefused

NETLINK_ADD_MEMBERSHIP = 1
SO_ATTACH_FILTER = 26
BUFFER = 16 << 20  #: bytes, of which the kernel uses what there is to keep; the usual buffer is full after some 46 NICs' events
RECEIVE = 1 << 16
NLMSG_MIN_TYPE = 16

#: A filter's instruction (struct sock_filter, linux/filter.h), and those of its operations that we use.
INSTRUCTION, PROGRAM = Struct("=HBBI"), Struct("@HxxxxxxP")
LOAD_BYTE, LOAD_HALF, EQUAL, RETURN = 0x30, 0x28, 0x15, 0x06
NUMBER, NUMBER_X, TO_X, LOAD_WORD_X = 0x00, 0x01, 0x07, 0x40  #: set the accumulator, or X; copy it there; load a word from behind X
FIND = 0x20  #: with ATTRIBUTE finds the attribute of type X behind the accumulator, and gives where it is, 0 for none
ATTRIBUTE = 0xFFFFF000 + 12  #: SKF_AD_OFF + SKF_AD_NLATTR
WHOLE, NOTHING = 0xFFFFFFFF, 0

Instruction = tuple[int, int, int, int]


class Lost(Exception):
    """The socket's buffer was full: the kernel has dropped messages (ENOBUFS)."""


class Listener:
    """A socket in the caller's network namespace. Raises HostRefused where the kernel has none of the groups."""

    def __init__(self, protocol: int, groups: Iterable[int], program: Sequence[Instruction] = (), buffer: int = BUFFER) -> None:
        """``groups``: numbers; one that this kernel does not know is left out. ``program``: a filter, which is given each datagram."""
        try:
            self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK, protocol)
        except OSError as error:
            raise HostRefused(f"netlink {protocol}: no socket: {error.strerror}") from None
        try:
            try:
                self._socket.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, buffer)
            except PermissionError:
                self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
            if program:
                self._attach(program)
            self._socket.bind((0, 0))
            joined = [group for group in groups if self._join(group)]
        except OSError as error:
            self._socket.close()
            raise HostRefused(f"netlink {protocol}: cannot listen: {error.strerror}") from None
        if not joined:
            self._socket.close()
            raise HostRefused(f"netlink {protocol}: this kernel has none of the groups to listen to")

    def _join(self, group: int) -> bool:
        try:
            self._socket.setsockopt(SOL_NETLINK, NETLINK_ADD_MEMBERSHIP, group)
        except OSError as error:
            if error.errno in (errno.EINVAL, errno.ENOENT, errno.EPROTONOSUPPORT):
                return False
            raise
        return True

    def _attach(self, program: Sequence[Instruction]) -> None:
        code = array("B", b"".join(INSTRUCTION.pack(*each) for each in program))
        self._socket.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, pack("@HxxxxxxP", len(program), code.buffer_info()[0]))

    @property
    def descriptor(self) -> int:
        return self._socket.fileno()

    def close(self) -> None:
        self._socket.close()

    def messages(self, most: int, own: Container[int] = ()) -> Iterator[tuple[int, int, bytes]]:
        """Type, flags and body of what has come, of ``most`` datagrams at the most; what is left keeps the descriptor readable.

        What the sockets with the numbers ``own`` have asked for is left out. Raises Lost, once for each time that it happened; what comes
        after can be read then.
        """
        for _ in range(most):
            try:
                data, sender = self._socket.recvfrom(RECEIVE)
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno == errno.ENOBUFS:
                    raise Lost from None
                raise
            if sender[0]:
                continue  # another process may write to our port; the kernel's is 0
            offset = 0
            while offset + HEADER.size <= len(data):
                length, kind, flags, _sequence, port = HEADER.unpack_from(data, offset)
                if length < HEADER.size or offset + length > len(data):
                    break
                if kind >= NLMSG_MIN_TYPE and port not in own:
                    yield kind, flags, data[offset + HEADER.size : offset + length]
                offset += (length + 3) & ~3
