"""Taps as QEMU makes and holds them (tun(4), Documentation/networking/tuntap.rst)."""

from __future__ import annotations

import fcntl
import os
import select
import struct
import time
from collections.abc import Callable

from tests.support.netns import run, slowness

TUNSETIFF = 0x400454CA
TUNSETPERSIST = 0x400454CB
IFF_TAP = 0x0002
IFF_MULTI_QUEUE = 0x0100
IFF_NO_PI = 0x1000
IFF_VNET_HDR = 0x4000
VNET_HEADER = bytes(10)  #: struct virtio_net_hdr: no offload asked for


class Tap:
    """A tap and the descriptor that holds it: what QEMU's process has open. ``close`` makes a non-persistent one vanish."""

    def __init__(self, name: str = "tap0", persistent: bool = False, queues: int = 1) -> None:
        flags = IFF_TAP | IFF_NO_PI | IFF_VNET_HDR | (IFF_MULTI_QUEUE if queues > 1 else 0)
        self.name = name
        self.persistent = persistent
        self.descriptors: list[int] = []
        for _ in range(queues):
            descriptor = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
            self.descriptors.append(descriptor)
            fcntl.ioctl(descriptor, TUNSETIFF, struct.pack("16sH22x", name.encode(), flags))
        if persistent:
            fcntl.ioctl(self.descriptor, TUNSETPERSIST, 1)

    @property
    def descriptor(self) -> int:
        """The first queue's descriptor."""
        return self.descriptors[0]

    @property
    def up(self) -> bool:
        """Whether the administrator's flag is up."""
        return "UP" in run("ip", "-br", "link", "show", "dev", self.name).split("<")[1].split(">")[0].split(",")

    def send(self, frame: bytes, header: bytes = VNET_HEADER) -> None:
        """The guest sends one Ethernet frame. Raises OSError (EIO while the tap is down)."""
        os.write(self.descriptor, header + frame)

    def receive(self, wanted: Callable[[bytes], bool] = lambda frame: True, seconds: float = 1) -> bytes | None:
        """The first frame to the guest that is ``wanted``; None where none comes in time."""
        limit = time.monotonic() + seconds * slowness()
        while (left := limit - time.monotonic()) > 0:
            if not select.select([self.descriptor], [], [], left)[0]:
                break
            frame = os.read(self.descriptor, 65600)[len(VNET_HEADER) :]
            if wanted(frame):
                return frame
        return None

    def drain(self) -> list[bytes]:
        """Everything that has come so far."""
        frames = []
        while (frame := self.receive(seconds=0.001)) is not None:
            frames.append(frame)
        return frames

    def close(self) -> None:
        """Lets go of every queue, as a QEMU that ends. A persistent tap stays, as a device; call ``delete`` for that."""
        while self.descriptors:
            os.close(self.descriptors.pop())

    def persist(self) -> None:
        """Let it stay as a device, for whoever opens it next."""
        fcntl.ioctl(self.descriptor, TUNSETPERSIST, 1)
        self.persistent = True
        self.close()

    def delete(self) -> None:
        """Ends a persistent tap."""
        if self.descriptors:
            fcntl.ioctl(self.descriptor, TUNSETPERSIST, 0)
        self.close()
