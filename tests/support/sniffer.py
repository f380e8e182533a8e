"""What arrives on a device, with the kernel's own time of arrival: nothing depends on when the test looks."""

from __future__ import annotations

import select
import socket
import struct
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

from tests.support.netns import Namespace, slowness

ETH_P_ALL = 3
SO_TIMESTAMPNS = 35
OUTGOING = 4  #: PACKET_OUTGOING


class Heard(NamedTuple):
    """One frame; ``time`` in seconds since the epoch."""

    time: float
    frame: bytes


class Sniffer:
    """Everything that arrives on ``device`` of ``namespace`` from now on (packet(7))."""

    def __init__(self, namespace: Namespace, device: str = "eth0") -> None:
        with namespace.entered():
            self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL))
            self._socket.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
            self._socket.bind((device, 0))

    def __enter__(self) -> Sniffer:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def until(self, moment: float, wanted: Callable[[bytes], bool]) -> list[Heard]:
        """The frames that are ``wanted`` and have arrived by ``moment`` (seconds since the epoch)."""
        return list(self._until(moment, wanted))

    def first(self, count: int, wanted: Callable[[bytes], bool], seconds: float = 5) -> list[Heard]:
        """The first ``count`` of those; fewer if they do not come within ``seconds``."""
        found: list[Heard] = []
        for heard in self._until(time.time() + seconds * slowness(), wanted):
            found.append(heard)
            if len(found) == count:
                break
        return found

    def _until(self, moment: float, wanted: Callable[[bytes], bool]) -> Iterator[Heard]:
        while select.select([self._socket], [], [], max(moment - time.time(), 0))[0]:
            frame, ancillary, _flags, address = self._socket.recvmsg(65536, 256)
            seconds, nanoseconds = struct.unpack("@ll", ancillary[0][2])
            heard = Heard(seconds + nanoseconds / 1e9, frame)
            if heard.time > moment:
                return
            if address[2] != OUTGOING and wanted(frame):
                yield heard
