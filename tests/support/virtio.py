"""A QEMU whose guest is the test itself: it drives a virtio-net device as a hostile driver would.

The processor of the guest halts at once; the test writes to the machine's ports and memory over a socket (docs/devel/testing/qtest.rst of
QEMU), for the device's legacy interface (virtio 1.2, 4.1.4.8). So what reaches the tap has gone through QEMU's own device and back end,
with whatever header the driver has put before a frame.
"""

from __future__ import annotations

import socket
import struct
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from tests.support.netns import slowness, wait_until

QEMU = "/usr/bin/qemu-system-x86_64"
ADDRESS, DATA = 0xCF8, 0xCFC  #: ports of PCI's configuration space
SLOT, PORTS = 3, 0xC000
COMMAND, BASE = 0x04, 0x10
IO_AND_MASTER = 0x5
#: Of the device's ports (virtio 1.2, 4.1.4.8).
GUEST_FEATURES, QUEUE_ADDRESS, QUEUE_SIZE, QUEUE_SELECT, QUEUE_NOTIFY, STATUS = 4, 8, 12, 14, 16, 18
ACKNOWLEDGE, DRIVER, DRIVER_OK = 1, 2, 4
OFFLOADS = 1 << 0 | 1 << 11 | 1 << 12 | 1 << 14  #: VIRTIO_NET_F_CSUM, _HOST_TSO4, _HOST_TSO6, _HOST_UFO
RECEIVE, SEND = 0, 1
PAGE, LARGEST, WAITING = 4096, 4096, 32
HEADER = 10  #: bytes of struct virtio_net_hdr without merged buffers
WRITABLE = 2  #: VRING_DESC_F_WRITE
FIRMWARE = bytes(0xFFF0) + b"\xfa\xf4\xeb\xfd".ljust(16, b"\0")  #: at the reset vector: cli, hlt, and back to it
DESCRIPTOR = struct.Struct("<QIHH")


class Queue:
    """A virtqueue of the legacy layout: descriptors, what is available, and on a page of its own what was used."""

    def __init__(self, guest: VirtioGuest, number: int, memory: int) -> None:
        self.guest, self.number, self.memory, self.made, self.seen = guest, number, memory, 0, 0
        guest.ask(f"outw {PORTS + QUEUE_SELECT:#x} {number}")
        self.size = int(guest.ask(f"inw {PORTS + QUEUE_SIZE:#x}"), 16)
        self.available = memory + 16 * self.size
        self.used = (self.available + 6 + 2 * self.size + PAGE - 1) & -PAGE
        self.buffers = self.used + 4 * PAGE
        guest.ask(f"outl {PORTS + QUEUE_ADDRESS:#x} {memory // PAGE:#x}")

    def put(self, data: bytes | None) -> None:
        """Hand the device one buffer: to be read, or to be written (None)."""
        place = self.made % WAITING
        size, flags = (LARGEST, WRITABLE) if data is None else (len(data), 0)
        if data:
            self.guest.write(self.buffers + place * LARGEST, data)
        self.guest.write(self.memory + 16 * place, DESCRIPTOR.pack(self.buffers + place * LARGEST, size, flags, 0))
        self.guest.write(self.available + 4 + 2 * (self.made % self.size), struct.pack("<H", place))
        self.made += 1
        self.guest.write(self.available + 2, struct.pack("<H", self.made & 0xFFFF))
        self.guest.ask(f"outw {PORTS + QUEUE_NOTIFY:#x} {self.number}")

    def done(self) -> int:
        """Count the buffers that the device has finished with, of all."""
        now = int.from_bytes(self.guest.read(self.used + 2, 2), "little")
        return self.seen + ((now - self.seen) & 0xFFFF)

    def taken(self) -> bytes | None:
        """The next buffer that the device has written, None where there is none."""
        if self.done() == self.seen:
            return None
        place, length = struct.unpack("<II", self.guest.read(self.used + 4 + 8 * (self.seen % self.size), 8))
        self.seen += 1
        data = self.guest.read(self.buffers + place * LARGEST, length)
        self.put(None)
        return data


class VirtioGuest:
    """The guest behind ``tap``, a persistent one that nobody holds."""

    def __init__(self, tap: str, mac: str) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="netcommon-qtest-")
        path = f"{self._folder.name}/qtest"
        firmware = Path(self._folder.name, "firmware")
        firmware.write_bytes(FIRMWARE)
        argv = [QEMU, "-nodefaults", "-no-user-config", "-display", "none", "-machine", "pc", "-accel", "tcg", "-m", "16"]
        argv += ["-bios", str(firmware)]
        argv += ["-qtest", f"unix:{path},server=on,wait=off", "-qtest-log", "/dev/null"]
        argv += ["-netdev", f"tap,id=net,ifname={tap},script=no,downscript=no,vnet_hdr=on,vhost=off"]
        argv += ["-device", f"virtio-net-pci,netdev=net,mac={mac},addr={SLOT},disable-modern=on,mrg_rxbuf=off,romfile="]
        self._process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        wait_until(lambda: Path(path).exists() or self._ended(), 20, "QEMU's socket")
        self._socket.connect(path)
        self._socket.settimeout(20 * slowness())
        self._answers = self._socket.makefile("r")
        self._configure(BASE, PORTS)
        self._configure(COMMAND, IO_AND_MASTER)
        self.ask(f"outb {PORTS + STATUS:#x} 0")
        self.ask(f"outb {PORTS + STATUS:#x} {ACKNOWLEDGE | DRIVER}")
        self.ask(f"outl {PORTS + GUEST_FEATURES:#x} {OFFLOADS:#x}")
        self._queues = [Queue(self, number, (1 + 4 * number) << 20) for number in (RECEIVE, SEND)]
        self.ask(f"outb {PORTS + STATUS:#x} {ACKNOWLEDGE | DRIVER | DRIVER_OK}")
        for _ in range(WAITING):
            self._queues[RECEIVE].put(None)

    def _ended(self) -> bool:
        assert self._process.poll() is None, self._process.stdout and self._process.stdout.read()
        return False

    def _configure(self, register: int, value: int) -> None:
        self.ask(f"outl {ADDRESS:#x} {1 << 31 | SLOT << 11 | register:#x}")
        self.ask(f"outl {DATA:#x} {value:#x}")

    def ask(self, command: str) -> str:
        """Send one command of qtest; what it answers behind "OK"."""
        self._socket.sendall(command.encode() + b"\n")
        word, _, said = self._answers.readline().strip().partition(" ")
        assert word == "OK", f"{command}: {word} {said}"
        return said

    def write(self, address: int, data: bytes) -> None:
        self.ask(f"write {address:#x} {len(data):#x} 0x{data.hex()}")

    def read(self, address: int, size: int) -> bytes:
        return bytes.fromhex(self.ask(f"read {address:#x} {size:#x}")[2:])

    def send(self, frame: bytes, header: bytes = bytes(HEADER)) -> None:
        """One frame behind a struct virtio_net_hdr of the driver's choice; the device has taken it on return."""
        queue = self._queues[SEND]
        queue.put(header + frame)
        wait_until(lambda: queue.done() == queue.made, 20, "the device takes the frame")
        queue.seen = queue.made

    def receive(self, wanted: Callable[[bytes], bool], seconds: float) -> bytes | None:
        """The next frame for the guest that is ``wanted``; None where none comes in time."""
        limit = time.monotonic() + seconds * slowness()
        while True:
            data = self._queues[RECEIVE].taken()
            if data is not None and wanted(data[HEADER:]):
                return data[HEADER:]
            if data is None and time.monotonic() >= limit:
                return None

    def close(self) -> None:
        """End QEMU."""
        self._answers.close()
        self._socket.close()
        self._process.terminate()
        self._process.communicate(timeout=20)
        self._folder.cleanup()
