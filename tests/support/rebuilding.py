"""Guests that send all the time, and what of it arrives outside, while what they stand on is taken away and made anew.

A process of its own sends a thousand times a second, from each guest, a frame that it must not send, and honest ones between them; each
bears the time at which it was sent. The worlds outside hear them, and send to the guests. So nothing here asks the product anything.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import struct
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from tests.support import frames
from tests.support.forged import ethernet, ipv4, ipv6, udp
from tests.support.frames import ADVERTISEMENT, ARP_REPLY, ARP_REQUEST, SOLICITATION, Arp, Frame, Icmp
from tests.support.netns import Namespace, slowness
from tests.support.sniffer import ETH_P_ALL, OUTGOING
from tests.support.tap import Tap

SO_RCVBUFFORCE = 33
PAUSE = 0.01  #: seconds between two datagrams to each guest
PACE = 0.001  #: seconds between two forged frames of a guest, which takes turns between the families
HONEST = 10  #: every so many frames the guests send honest ones
SIGN = b"netcommon rebuilding"
STAMP = struct.Struct("!20scc?d")  #: SIGN; which guest; b"4" or b"6"; forged; CLOCK_MONOTONIC (seconds)

FAR4, FAR6 = "198.51.100.1", "2001:db8:aaaa::1"  #: what routed guests send to
OTHER4, OTHER6, OTHER_MAC = "192.0.2.99", "2001:db8:f::99", "aa:00:00:00:00:99"
PORT = 2000
FAMILIES = ("4", "6")


class Guest(NamedTuple):
    """A guest: a letter for its name, the tap that is its NIC, its own addresses, and where it sends to."""

    name: str
    tap: Tap
    mac: str
    ip4: str
    ip6: str
    gateway: str = frames.BROADCAST
    forged_mac: str = ""  #: "": it forges by its IP address alone


class Sent(NamedTuple):
    """A frame that has arrived; ``time`` is that of its sending, in seconds of CLOCK_MONOTONIC, ``where`` who heard it."""

    guest: str
    family: str
    forged: bool
    time: float
    where: str


def stamp(guest: str, family: str, forged: bool = False) -> bytes:
    return STAMP.pack(SIGN, guest.encode(), family.encode(), forged, time.monotonic())


def frame_of(guest: Guest, family: str, forged: bool) -> bytes:
    """Give what the guest sends; forged: by another's address, and MAC where it has one to forge with."""
    payload = udp(1000, PORT, stamp(guest.name, family, forged))
    source = (forged and guest.forged_mac) or guest.mac
    if family == "4":
        packet = ipv4(OTHER4 if forged else guest.ip4, payload, destination=FAR4)
        return ethernet(frames.IPV4, packet, source, guest.gateway)
    packet = ipv6(OTHER6 if forged else guest.ip6, payload, socket.IPPROTO_UDP, FAR6, 64)
    return ethernet(frames.IPV6, packet, source, guest.gateway)


def heard_in(raw: bytes, where: str) -> Sent | None:
    """Give what a frame says, None where it is none of ours."""
    at = raw.find(SIGN)
    if at < 0 or len(raw) < at + STAMP.size:
        return None
    _sign, guest, family, forged, moment = STAMP.unpack_from(raw, at)
    return Sent(guest.decode(), family.decode(), forged, moment, where)


def answer(guest: Guest, raw: bytes) -> bytes | None:
    """The guest's answer to a question for its MAC, as its kernel gives it."""
    frame = Frame.parse(raw)
    if frame.type == frames.ARP:
        asked = Arp.parse(frame.payload)
        if asked.operation == ARP_REQUEST and asked.target == guest.ip4:
            told = Arp(ARP_REPLY, guest.mac, guest.ip4, asked.sender_mac, asked.sender)
            return Frame(frame.source, guest.mac, 0, frames.ARP, told.raw()).raw()
    elif frame.type == frames.IPV6 and (question := Icmp.parse(frame.payload)) and question.type == SOLICITATION:
        target = question.body[4:20]
        if target == socket.inet_pton(socket.AF_INET6, guest.ip6):
            body = b"\x60\0\0\0" + target + b"\x02\x01" + frames.mac_bytes(guest.mac)
            told6 = Icmp(guest.ip6, question.source, ADVERTISEMENT, body)
            return Frame(frame.source, guest.mac, 0, frames.IPV6, told6.raw()).raw()
    return None


class Guests:
    """The process that is all guests at once. ``arrived`` gives what has come to them from outside."""

    def __init__(self, guests: Sequence[Guest]) -> None:
        self.guests = guests
        self._end, told = os.pipe()
        os.set_blocking(self._end, False)
        self._rest = b""
        self._child = os.fork()
        if not self._child:
            status = 1
            try:
                os.close(self._end)
                self._live(told)
                status = 0
            finally:
                os._exit(status)
        os.close(told)

    def _live(self, told: int) -> None:
        """In the child, until the parent has gone: sends at its pace, answers, and tells what has arrived."""
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
        parent = os.getppid()
        by_descriptor = {guest.tap.descriptor: guest for guest in self.guests}
        turn, due = 0, time.monotonic()
        while os.getppid() == parent:
            now = time.monotonic()
            if now >= due:
                due = max(due + PACE * slowness(), now - 0.05)  # what a busy machine has kept from us is not made good in one burst
                turn += 1
                self._send(FAMILIES[turn % 2], True)
                if turn % HONEST < 2:
                    self._send(FAMILIES[turn % 2], False)
            for descriptor in select.select(list(by_descriptor), [], [], max(due - time.monotonic(), 0))[0]:
                self._take(by_descriptor[descriptor], told)

    def _send(self, family: str, forged: bool) -> None:
        for guest in self.guests:
            with contextlib.suppress(OSError):  # down: EIO
                guest.tap.send(frame_of(guest, family, forged))

    def _take(self, guest: Guest, told: int) -> None:
        try:
            raw = os.read(guest.tap.descriptor, 65600)[10:]
        except OSError:
            return
        sent = heard_in(raw, guest.name)
        if sent is not None and sent.guest == guest.name and not sent.forged:
            os.write(told, struct.pack("!ccd", guest.name.encode(), sent.family.encode(), sent.time))
        elif (reply := answer(guest, raw)) is not None:
            with contextlib.suppress(OSError):
                guest.tap.send(reply)

    def arrived(self) -> Iterator[Sent]:
        """Give what has come to guests since the last time."""
        with contextlib.suppress(BlockingIOError):
            while more := os.read(self._end, 65536):
                self._rest += more
        size = struct.calcsize("!ccd")
        whole = len(self._rest) // size * size
        for name, family, moment in struct.iter_unpack("!ccd", self._rest[:whole]):
            yield Sent(name.decode(), family.decode(), False, moment, name.decode())
        self._rest = self._rest[whole:]

    def close(self) -> None:
        os.kill(self._child, signal.SIGKILL)
        os.waitpid(self._child, 0)
        os.close(self._end)


class Outside:
    """A world outside: all that arrives in its namespace, on whichever device (packet(7)), and what is sent from it to guests."""

    def __init__(self, name: str, namespace: Namespace) -> None:
        self.name, self.namespace = name, namespace
        with namespace.entered():
            self.socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL))
            self._to = {"4": socket.socket(socket.AF_INET, socket.SOCK_DGRAM), "6": socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)}
        self.socket.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 64 << 20)
        for each in (self.socket, *self._to.values()):
            each.setblocking(False)

    def heard(self) -> Iterator[Sent]:
        """Give what has come since the last time."""
        with contextlib.suppress(BlockingIOError):
            while True:
                raw, address = self.socket.recvfrom(2048)
                sent = heard_in(raw, self.name)
                if address[2] != OUTGOING and sent is not None:
                    yield sent

    def send(self, guest: Guest) -> None:
        """One datagram of each family, as far as the world has a way there."""
        for family, address in (("4", guest.ip4), ("6", guest.ip6)):
            with contextlib.suppress(OSError):
                self._to[family].sendto(stamp(guest.name, family), (address, PORT))

    def close(self) -> None:
        for each in (self.socket, *self._to.values()):
            each.close()


class Watcher:
    """Knows of each guest and family when an honest frame, either way, last came through; and which forged ones did."""

    def __init__(self, guests: Guests, worlds: Mapping[str, Outside]) -> None:
        self.guests, self.worlds = guests, worlds
        self._next = 0.0
        self.forged: list[Sent] = []
        self.elsewhere: list[Sent] = []  #: honest, but in a world that is not the guest's
        self.last: dict[tuple[str, str, str], float] = {
            (guest.name, family, way): 0.0 for guest in guests.guests for family in FAMILIES for way in ("out", "in")
        }

    def look(self) -> None:
        """Takes in what has come, and sends one more to each guest."""
        for world in self.worlds.values():
            for sent in world.heard():
                if sent.forged:
                    self.forged.append(sent)
                elif self.worlds.get(sent.guest) is not world:
                    self.elsewhere.append(sent)
                else:
                    self._note((sent.guest, sent.family, "out"), sent.time)
        if (now := time.monotonic()) >= self._next:
            self._next = now + PAUSE
            for guest in self.guests.guests:
                self.worlds[guest.name].send(guest)
        for sent in self.guests.arrived():
            self._note((sent.guest, sent.family, "in"), sent.time)

    def _note(self, what: tuple[str, str, str], moment: float) -> None:
        self.last[what] = max(self.last[what], moment)

    def mute(self, since: float) -> list[str]:
        """Which ways nothing has come through that was sent after ``since``."""
        return [" ".join(what) for what, moment in self.last.items() if moment <= since]

    def whole(self, since: float, seconds: float) -> tuple[float, list[str]]:
        """Waits until every way works: for how long it did not after ``since``, and which did not until the end of ``seconds``."""
        limit = since + seconds * slowness()
        while True:
            self.look()
            mute = self.mute(since)
            if not mute or time.monotonic() > limit:
                firsts = [moment - since for moment in self.last.values()]
                return max(firsts), mute
            self._await()

    def during(self, seconds: float, then: Callable[[], bool] = lambda: False) -> None:
        """Looks for so long, or until ``then``."""
        limit = time.monotonic() + seconds
        while time.monotonic() < limit and not then():
            self.look()
            self._await()

    def _await(self) -> None:
        """Waits until something is heard outside, or it is time to send again."""
        select.select([world.socket for world in self.worlds.values()], [], [], PAUSE)

    def close(self) -> None:
        self.guests.close()
        for world in self.worlds.values():
            world.close()
