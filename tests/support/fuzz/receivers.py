"""Those who receive what a guest sends: other guests' taps, the node's packet sockets."""

from __future__ import annotations

import errno
import fcntl
import os
import select
import socket
import struct
from collections.abc import Iterable, Iterator
from typing import NamedTuple, Protocol

from tests.support.fuzz.offload import FORMAT, parsed
from tests.support.fuzz.oracle import PLAIN, Header
from tests.support.netns import slowness
from tests.support.tap import Tap

TUNSETOFFLOAD = 0x400454D0
#: TUN_F_CSUM, TSO4, TSO6, TSO_ECN; USO4, USO6 from Linux 6.2 on: what QEMU offers to a Linux guest.
OFFLOADS, NEWER = 0x01 | 0x02 | 0x04 | 0x08, 0x20 | 0x40
SO_RCVBUFFORCE, SOL_PACKET, PACKET_AUXDATA = 33, 263, 8
OUTGOING = 4
VLAN_VALID, TPID_VALID = 0x10, 0x40
LARGEST = 70000
QUEUE = "20000"  #: frames that a tap holds until they are read: more than a batch makes


class Silence(AssertionError):
    """Not even what every guest may send arrives."""


class Arrival(NamedTuple):
    """A frame that has arrived, the header it came with, and at whom."""

    receiver: str
    header: Header
    frame: bytes


class Receiver(Protocol):
    """One who receives."""

    name: str

    def until(self, sentinel: bytes) -> Iterator[Arrival]:
        """What has come before a frame with ``sentinel`` in it; of sockets, what is there. Raises Silence where that never comes."""

    def ready(self, seconds: float) -> bool:
        """Tell whether something comes within that time."""


class TapReceiver:
    """Another guest, or the world behind an uplink. ``able``: it takes frames that are not segmented, and checksums not yet made."""

    def __init__(self, tap: Tap, able: bool = False) -> None:
        self.tap, self.name = tap, tap.name + ("+offloads" if able else "")
        if able:
            try:
                fcntl.ioctl(tap.descriptor, TUNSETOFFLOAD, OFFLOADS | NEWER)
            except OSError as error:
                if error.errno != errno.EINVAL:
                    raise
                fcntl.ioctl(tap.descriptor, TUNSETOFFLOAD, OFFLOADS)

    def until(self, sentinel: bytes) -> Iterator[Arrival]:
        descriptor, name, skip = self.tap.descriptor, self.name, FORMAT.size
        while True:
            try:
                raw = os.read(descriptor, LARGEST)
            except BlockingIOError:
                if not select.select([descriptor], [], [], 5 * slowness())[0]:
                    raise Silence(name) from None
                continue
            if sentinel in raw:
                return
            header = PLAIN if raw.startswith(bytes(8)) else parsed(raw)
            yield Arrival(name, header, raw[skip:])

    def ready(self, seconds: float) -> bool:
        return bool(select.select([self.tap.descriptor], [], [], seconds)[0])


class SocketReceiver:
    """Programs on the node itself that listen on ``device``, each for a protocol. Tags that the kernel puts aside are put back."""

    def __init__(self, name: str, device: str, protocols: Iterable[int], waits: bool = False) -> None:
        self.name, self.sockets, self.waits = name, list[socket.socket](), waits
        for protocol in protocols:
            made = socket.socket(socket.AF_PACKET, socket.SOCK_RAW | socket.SOCK_NONBLOCK, 0)
            made.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 1 << 26)
            made.setsockopt(SOL_PACKET, PACKET_AUXDATA, 1)
            made.bind((device, protocol))
            self.sockets.append(made)

    def until(self, sentinel: bytes) -> Iterator[Arrival]:
        for each in self.sockets:
            while True:
                try:
                    frame, words, _, address = each.recvmsg(LARGEST, 64)
                except BlockingIOError:
                    if not self.waits:
                        break
                    if not select.select([each], [], [], 5 * slowness())[0]:
                        raise Silence(self.name) from None
                    continue
                except OSError as error:
                    if error.errno != errno.ENETDOWN:  # said once by each socket when its device was down
                        raise
                    continue
                if sentinel in frame:
                    break
                if address[2] != OUTGOING:
                    yield Arrival(self.name, PLAIN, tagged(frame, words))

    def ready(self, seconds: float) -> bool:
        return bool(select.select(self.sockets, [], [], seconds)[0])

    def close(self) -> None:
        """Lets go of the sockets."""
        for each in self.sockets:
            each.close()


def tagged(frame: bytes, words: list[tuple[int, int, bytes]]) -> bytes:
    """The frame with the tag that the kernel has put aside (packet(7), PACKET_AUXDATA)."""
    for level, kind, data in words:
        if (level, kind) == (SOL_PACKET, PACKET_AUXDATA):
            status, _, _, _, _, tag, protocol = struct.unpack("=IIIHHHH", data[:20])
            if status & VLAN_VALID:
                kind_of_tag = protocol if status & TPID_VALID else 0x8100
                return frame[:12] + struct.pack("!HH", kind_of_tag, tag) + frame[12:]
    return frame
