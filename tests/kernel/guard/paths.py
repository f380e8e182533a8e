"""Every path that a guest's frame can take, and who sees what on it: another guest, the host itself, the world outside.

A frame has reached the host when a socket of its protocol got it, as a daemon's (lldpd's, a DHCP server's) or the kernel's own protocol
would. Nothing waits by the clock: after the frames come some that surely arrive (``sentinel``), and on one path frames keep their order.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import select
import socket
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple, Protocol

from tests.support import attacks_ip4, attacks_ip6
from tests.support.attacks import ENDS, GROUPS, KINDS, Setting
from tests.support.attacks_base import (
    HOST_MAC,
    MAC,
    OWN4,
    OWN6,
    PEER_MAC,
    Kind,
    To,
    identity,
    kind,
    raw,
)
from tests.support.netns import Namespace, slowness
from tests.support.processor import pinned
from tests.support.rundoor import rundoor
from tests.support.tap import Tap

ETH_P_ALL, ETH_P_802_3, ETH_P_802_2 = 3, 1, 4
SO_RCVBUFFORCE = 33
OUTGOING = 4  #: PACKET_OUTGOING
INSTANT = 0.001  #: seconds between two frames of a guest that never stops
BATCH = 60  #: frames between two sentinels: fewer than any queue on the way holds
SENTINELS = 50000  #: their numbers: above those of all other frames
_count = itertools.count()
Seen = dict[tuple[str, str], frozenset[str]]


class Path(Protocol):
    """One way's end."""

    def drain(self, sentinel: bytes, seconds: float = 5) -> Iterator[bytes]:
        """Every frame until ``sentinel`` (an identity). Raises AssertionError when that does not come."""

    def close(self) -> None:
        """Lets go of what it holds."""


class TapPath:
    """What another guest's tap gets."""

    def __init__(self, tap: Tap) -> None:
        self.tap = tap

    def drain(self, sentinel: bytes, seconds: float = 5) -> Iterator[bytes]:
        while (frame := self.tap.receive(seconds=seconds)) is not None:
            if identity(frame) == sentinel:
                return
            yield frame
        raise AssertionError(f"nothing more arrives at {self.tap.name}")

    def close(self) -> None:
        self.tap.close()


class SocketPath:
    """What packet sockets (packet(7)) get: one for each of ``protocols``, on ``device`` ("": on any)."""

    def __init__(self, protocols: Iterable[int], device: str = "", namespace: Namespace | None = None) -> None:
        self.sockets: list[socket.socket] = []
        with namespace.entered() if namespace else contextlib.nullcontext():
            for protocol in protocols:
                made = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(protocol))
                made.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 1 << 22)
                if device:
                    made.bind((device, protocol))
                self.sockets.append(made)

    def drain(self, sentinel: bytes, seconds: float = 5) -> Iterator[bytes]:
        """The sentinel is the last frame sent: when it has come to one socket, what came to others is there."""
        while ready := select.select(self.sockets, [], [], seconds * slowness())[0]:
            for each in ready:
                frame, address = each.recvfrom(65600)
                if address[2] == OUTGOING:
                    continue
                if identity(frame) == sentinel:
                    yield from self._rest()
                    return
                yield frame
        raise AssertionError("nothing more arrives")

    def _rest(self) -> Iterator[bytes]:
        while ready := select.select(self.sockets, [], [], 0)[0]:
            for each in ready:
                frame, address = each.recvfrom(65600)
                if address[2] != OUTGOING:
                    yield frame

    def close(self) -> None:
        for each in self.sockets:
            each.close()


class Network(NamedTuple):
    """A mode's network around a guest on tap0, whose NIC is not up yet."""

    mode: str
    tap: Tap
    paths: Mapping[str, Path]
    senders: Mapping[str, Callable[[bytes], object]]  #: for each path, how its end sends a frame
    changes: Mapping[str, str]  #: of the NIC's variables
    ends: tuple[To, ...] = ENDS  #: where frames to one end go
    six: bool = False  #: the guest has IPv6 alone, and so have the frames that surely arrive

    def up(self, setting: Setting, **changes: str) -> None:
        """kvm-ifup, as Ganeti calls it."""
        made = {
            "INTERFACE": "tap0",
            "MAC": MAC,
            "IP": setting.ip,
            "VLAN": "",
            "INSTANCE": "web1",
            "INTERFACE_INDEX": "0",
            "INTERFACE_UUID": "5d2c0d6e-0000-4000-8000-000000000001",
            "TAGS": f"{setting.tags} netcommon:0:tap_mac:{HOST_MAC}",
            **self.changes,
            **changes,
        }
        done = rundoor("kvm-ifup", {name: value for name, value in made.items() if value or name == "VLAN"})
        assert (done.status, done.stderr) == (0, ""), done

    def close(self) -> None:
        """Lets go of the sockets; taps are the node's."""
        for path in self.paths.values():
            path.close()

    def learn(self) -> None:
        """The switch hears of every end: what is sent to one of them goes nowhere else."""
        for end in self.ends:
            self.senders[end.name](raw(kind("hello", attacks_ip4.ip4("0.0.0.0", attacks_ip4.plain(), end.mac)), GROUPS[0]))

    def received(self, frames: Mapping[str, tuple[str, bytes]]) -> set[str]:
        """Sends frames to the guest, each from the path named with it; which ones the guest got."""
        keys = {identity(frame): name for name, (_, frame) in frames.items()}
        assert len(keys) == len(frames), "two frames that cannot be told apart"
        found = set()
        with pinned():
            for path, frame in frames.values():
                self.senders[path](frame)
                for _ in range(2):
                    last = self._sentinel("", PEER_MAC)
                    self.senders[path](last)
                    found |= {keys[key] for key in map(identity, TapPath(self.tap).drain(identity(last))) if key in keys}
        return found

    def seen(self, frames: Mapping[tuple[str, str], bytes]) -> Seen:
        """Sends the frames; on which paths each arrived."""
        keys = {identity(frame): key for key, frame in frames.items()}
        assert len(keys) == len(frames), "two frames that cannot be told apart"
        found: dict[tuple[str, str], set[str]] = {key: set() for key in frames}
        sent = list(frames.values())
        with pinned():
            for start in range(0, len(sent), BATCH):
                for frame in sent[start : start + BATCH]:
                    self.tap.send(frame)
                for name, arrived in self._arrived():
                    if (key := keys.get(arrived)) is not None:
                        found[key].add(name)
        return {key: frozenset(names) for key, names in found.items()}

    def seen_during(self, frame: bytes, action: Callable[[], object]) -> frozenset[str]:
        """The guest sends ``frame`` over and over while ``action`` runs; on which paths any of them arrived."""
        ended = threading.Event()

        def chatter() -> None:
            over = False
            while not over:  # once more when it has ended, so that a slow machine sends one too
                over = ended.wait(INSTANT)
                with contextlib.suppress(OSError):  # EIO: the tap is down
                    self.tap.send(frame)

        thread = threading.Thread(target=chatter)
        thread.start()
        try:
            action()
        finally:
            ended.set()
            thread.join()
        with pinned():
            return frozenset(name for name, arrived in self._arrived() if arrived == identity(frame))

    def _arrived(self) -> Iterator[tuple[str, bytes]]:
        """Each path's name with the identity of what has arrived there."""
        # Open vSwitch takes in several frames at once and sorts them by flow: one sent when another has arrived comes last.
        for _ in range(2):
            for name, path in self.paths.items():
                last = self._sentinel(name)
                self.tap.send(last)
                for frame in path.drain(identity(last)):
                    yield name, identity(frame)

    def _sentinel(self, path: str, mac: str = MAC) -> bytes:
        """A frame that no guard stops, to the end of ``path``, and that was not sent before."""
        to = next((end for end in self.ends if end.name == path and self.mode == "routed"), GROUPS[0])
        made = attacks_ip6.ip6(OWN6, attacks_ip6.plain(), mac) if self.six else attacks_ip4.ip4(OWN4, attacks_ip4.plain(), mac)
        return raw(kind("sentinel", made), to._replace(number=SENTINELS + next(_count) % 15000))


@functools.cache
def batch(ends: tuple[To, ...] = ENDS, kinds: tuple[Kind, ...] = KINDS) -> dict[tuple[str, str], bytes]:
    """Each of ``kinds`` to each group and each of ``ends``, by the names of both."""
    pairs = [(made, to) for made in kinds for to in (*GROUPS, *ends)]
    return {(made.name, to.name): raw(made, to._replace(number=number)) for number, (made, to) in enumerate(pairs, 1)}
