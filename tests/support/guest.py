"""A guest without QEMU: it holds a tap, answers ARP, neighbour solicitations and echo requests, and can ping.

It works in a thread of its own, because the host's programs (ping) must get their answers while the test waits for them.
"""

from __future__ import annotations

import contextlib
import ipaddress
import os
import queue
import select
import threading
import time
from collections.abc import Iterator
from types import TracebackType
from typing import Self

from tests.support import frames
from tests.support.frames import Arp, Frame, Icmp
from tests.support.netns import slowness
from tests.support.tap import VNET_HEADER, Tap


class Guest:
    """``addresses`` without prefix. ``gateway``: where packets go for which no neighbour answers; ``vlan``: it speaks tagged."""

    def __init__(self, tap: Tap, mac: str, *addresses: str, gateways: tuple[str, ...] = (), vlan: int = 0) -> None:
        self.tap, self.mac, self.addresses, self.gateways, self.vlan = tap, mac, addresses, gateways, vlan
        self.seen: list[Frame] = []  #: everything that came, in order
        self._answers: queue.Queue[Frame] = queue.Queue()
        self._sequence = 0
        self._stop_read, self._stop_write = os.pipe()
        self._thread = threading.Thread(target=self._serve, daemon=True, name=f"guest {tap.name}")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None) -> None:
        os.write(self._stop_write, b"x")
        self._thread.join()
        os.close(self._stop_read)
        os.close(self._stop_write)

    def _serve(self) -> None:
        descriptor = self.tap.descriptor
        while True:
            # A tap whose device was deleted polls readable and answers EBADFD: nothing more will come.
            ready = select.select([descriptor, self._stop_read], [], [])[0]
            if self._stop_read in ready:
                return
            try:
                raw = os.read(descriptor, 65600)[len(VNET_HEADER) :]
            except BlockingIOError:
                continue
            except OSError:
                return
            frame = Frame.parse(raw)
            self.seen.append(frame)
            if frame.vlan == self.vlan and frame.source != self.mac:
                with contextlib.suppress(OSError):
                    self._handle(frame)

    def _handle(self, frame: Frame) -> None:
        if frame.type == frames.ARP:
            arp = Arp.parse(frame.payload)
            if arp.operation == frames.ARP_REQUEST and arp.target in self.addresses:
                reply = Arp(frames.ARP_REPLY, self.mac, arp.target, arp.sender_mac, arp.sender)
                self.send(arp.sender_mac, frames.ARP, reply.raw())
        elif frame.type in (frames.IPV4, frames.IPV6) and (packet := Icmp.parse(frame.payload)):
            self._handle_icmp(frame, packet)
        self._answers.put(frame)

    def _handle_icmp(self, frame: Frame, packet: Icmp) -> None:
        if packet.type == frames.SOLICITATION:
            target = str(ipaddress.IPv6Address(packet.body[4:20]))
            if target in self.addresses and packet.source != "::":
                option = b"\x02\x01" + frames.mac_bytes(self.mac)
                body = b"\x60\0\0\0" + packet.body[4:20] + option
                self.send_icmp(frame.source, Icmp(target, packet.source, frames.ADVERTISEMENT, body))
        elif packet.type == (frames.ECHO_REQUEST if packet.version == 4 else frames.ECHO6_REQUEST) and packet.destination in self.addresses:
            kind = frames.ECHO_REPLY if packet.version == 4 else frames.ECHO6_REPLY
            self.send_icmp(frame.source, Icmp(packet.destination, packet.source, kind, packet.body))

    def send(self, destination: str, kind: int, payload: bytes) -> None:
        """Sends one frame from the guest's MAC. Raises OSError while the tap is down."""
        self.tap.send(Frame(destination, self.mac, self.vlan, kind, payload).raw())

    def send_icmp(self, destination: str, packet: Icmp) -> None:
        """Sends an ICMP or ICMPv6 packet to a MAC."""
        self.send(destination, frames.IPV4 if packet.version == 4 else frames.IPV6, packet.raw())

    def announce(self, address: str) -> None:
        """A gratuitous ARP, as a guest that starts."""
        self.send(frames.BROADCAST, frames.ARP, Arp(frames.ARP_REQUEST, self.mac, address, "00:00:00:00:00:00", address).raw())

    def resolve(self, address: str, seconds: float = 1) -> str | None:
        """The MAC that answers for ``address``, by ARP or neighbour solicitation; None where nobody does."""
        source = self._source(address)
        if ":" in address:
            group, mac = frames.solicited_node(address)
            body = bytes(4) + ipaddress.IPv6Address(address).packed + b"\x01\x01" + frames.mac_bytes(self.mac)
            self.send_icmp(mac, Icmp(source, group, frames.SOLICITATION, body))
        else:
            self.send(frames.BROADCAST, frames.ARP, Arp(frames.ARP_REQUEST, self.mac, source, "00:00:00:00:00:00", address).raw())
        for frame in self._until(seconds):
            if frame.type == frames.ARP and (arp := Arp.parse(frame.payload)).operation == frames.ARP_REPLY and arp.sender == address:
                return arp.sender_mac
            packet = Icmp.parse(frame.payload) if frame.type == frames.IPV6 and ":" in address else None
            if packet and packet.type == frames.ADVERTISEMENT and packet.body[4:20] == ipaddress.IPv6Address(address).packed:
                return frame.source
        return None

    def ping(self, address: str, seconds: float = 2) -> bool:
        """Whether ``address`` answers one echo request: by way of a gateway of its family, or directly if there is none or it is near."""
        hops = [gateway for gateway in self.gateways if (":" in gateway) == (":" in address)]
        near = ipaddress.ip_network(f"{self._source(address)}/{64 if ':' in address else 24}", strict=False)
        if not hops or ipaddress.ip_address(address) in near:
            hops.insert(0, address)
        mac = next((found for hop in hops if (found := self.resolve(hop, seconds / len(hops)))), None)
        if mac is None:
            return False
        self._sequence += 1
        request = frames.echo(self._source(address), address, self._sequence)
        expected = frames.echo(address, self._source(address), self._sequence, reply=True)
        self.send_icmp(mac, request)
        return any(frame.type in (frames.IPV4, frames.IPV6) and Icmp.parse(frame.payload) == expected for frame in self._until(seconds))

    def _source(self, address: str) -> str:
        return next(own for own in self.addresses if (":" in own) == (":" in address))

    def _until(self, seconds: float) -> Iterator[Frame]:
        limit = time.monotonic() + seconds * slowness()
        while (left := limit - time.monotonic()) > 0:
            with contextlib.suppress(queue.Empty):
                yield self._answers.get(timeout=left)
