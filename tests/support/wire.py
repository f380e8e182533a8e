"""Frames sent and received at the ends of a network: taps, and the far ends of wires, with their VLAN tags (packet(7))."""

from __future__ import annotations

import select
import socket
import struct
import time
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Protocol

from tests.support.frames import BROADCAST, Frame
from tests.support.netns import Namespace, slowness

ETH_P_ALL = 3
SOL_PACKET, PACKET_AUXDATA = 263, 8
AUXDATA = struct.Struct("=IIIHHHH")  #: struct tpacket_auxdata: status, two lengths, two offsets, TCI, TPID
TP_STATUS_VLAN_VALID = 0x10
PACKET_OUTGOING = 4


class Wire:
    """Frames on ``device`` of ``namespace``. The kernel takes a frame's tag off before a packet socket sees it: it is put back here."""

    def __init__(self, namespace: Namespace, device: str = "eth0") -> None:
        with namespace.entered():
            self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL))
        self._socket.setsockopt(SOL_PACKET, PACKET_AUXDATA, 1)
        self._socket.bind((device, ETH_P_ALL))

    def __enter__(self) -> Wire:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._socket.close()

    def send(self, frame: bytes) -> None:
        self._socket.send(frame)

    def receive(self, wanted: Callable[[bytes], bool] = lambda frame: True, seconds: float = 1) -> bytes | None:
        """The first frame from the wire that is ``wanted``; None where none comes in time."""
        limit = time.monotonic() + seconds * slowness()
        while (left := limit - time.monotonic()) > 0:
            if not select.select([self._socket], [], [], left)[0]:
                break
            data, ancillary, _flags, address = self._socket.recvmsg(65600, 256)
            if address[2] == PACKET_OUTGOING:
                continue
            frame = _tagged(data, ancillary)
            if wanted(frame):
                return frame
        return None


def _tagged(data: bytes, ancillary: list[tuple[int, int, bytes]]) -> bytes:
    for level, kind, value in ancillary:
        if (level, kind) == (SOL_PACKET, PACKET_AUXDATA):
            status, _, _, _, _, tci, tpid = AUXDATA.unpack_from(value)
            if status & TP_STATUS_VLAN_VALID:
                return data[:12] + struct.pack("!HH", tpid, tci) + data[12:]
    return data


TEST = 0x88B5  #: an Ethernet type for local experiments (IEEE 802)
QUIET = 0.1  #: seconds without a frame after which nothing more is on its way


class End(Protocol):
    """Where frames go in and come out: a tap that the test holds, or the far end of a wire."""

    def send(self, frame: bytes) -> None: ...
    def receive(self, wanted: Callable[[bytes], bool] = ..., seconds: float = ...) -> bytes | None: ...


def frame(source: str, destination: str = BROADCAST, vlan: int = 0) -> Frame:
    """A frame of no protocol."""
    return Frame(destination, source, vlan, TEST, b"")


def exchange(ends: Mapping[str, End], sent: Sequence[tuple[str, Frame]]) -> list[dict[str, int]]:
    """Sends all frames, each from an end, in order; for each, which ends got it, and with which VLAN tag (0: none)."""
    arrived: list[dict[str, int]] = [{} for _ in sent]
    for number, (name, made) in enumerate(sent):
        ends[name].send(made._replace(payload=struct.pack("!I", number)).raw())
    for name, end in ends.items():
        while (raw := end.receive(_is_test, QUIET)) is not None:
            got = Frame.parse(raw)
            number = int.from_bytes(got.payload[:4], "big")
            assert name not in arrived[number], f"{name} got frame {number} twice"
            arrived[number][name] = got.vlan
    return arrived


def _is_test(raw: bytes) -> bool:
    return Frame.parse(raw).type == TEST
