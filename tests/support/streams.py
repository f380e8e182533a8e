"""Guests that never stop sending: what of it is heard, the longest silence, and whether a forged frame passes."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.kernel.test_doors_parallel import environment
from tests.support import frames
from tests.support.forged import ethernet, ipv4, udp
from tests.support.netns import run, wait_until
from tests.support.node import Node
from tests.support.rundoor import perform
from tests.support.tap import Tap

EACH = 0.001  #: seconds between two frames of a guest
QUIET = 0.02  #: seconds after the last frame of one guest in which a switch has passed on those of the others
END = b"the end"  #: the last frame's text

#: A MAC that no guest has.
OTHER = "aa:00:00:00:00:77"


def mac(number: int) -> str:
    return f"aa:00:00:00:00:{number:02x}"


def next_hop(number: int, mode: str) -> str:
    """The MAC to which guest ``number`` sends what is for the guest that listens: that one's, or the node's."""
    return Path(f"/sys/class/net/tap{number}/address").read_text().strip() if mode == "routed" else mac(2)


class Sender:
    """Makes the datagrams of guest ``number`` for the guest that listens."""

    def __init__(self, number: int, mode: str) -> None:
        self._number, self._to = number, next_hop(number, mode)

    def frame(self, text: bytes, source: str = "", source_mac: str = "") -> bytes:
        """Make a frame of its own addresses, or of others."""
        packet = ipv4(source or f"10.0.0.{self._number + 1}", udp(1, 2, text), destination="10.0.0.3")
        return ethernet(frames.IPV4, packet, source_mac or mac(self._number), self._to)


class Streams:
    """Guests 0 and 1 send frames; guest 2 hears them. Guest 0 sends as many with another MAC, which no guest here may."""

    def __init__(self, taps: list[Tap], mode: str) -> None:
        self._taps, self._over = taps, threading.Event()
        self._senders = [Sender(number, mode) for number in (0, 1)]
        self.sent, self.heard, self.forged = [0, 0], [0, 0], 0
        self.strange = 0  #: frames with another MAC that were heard
        self.silence = [0.0, 0.0]  #: the longest, in seconds
        self._last = [0.0, 0.0]
        self._threads = [threading.Thread(target=self._send), threading.Thread(target=self._hear)]

    def __enter__(self) -> Streams:
        for thread in self._threads:
            thread.start()
        wait_until(lambda: min(self.heard) > 10, 10, "the guests are heard")
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()

    def _send(self) -> None:
        own = [self._senders[number].frame(b"stream %d" % number) for number in (0, 1)]
        strange = self._senders[0].frame(b"strange", source_mac=OTHER)
        due = time.monotonic()
        while not self._over.is_set():
            for number in (0, 1):
                self._taps[number].send(own[number])
                self.sent[number] += 1
            self._taps[0].send(strange)
            due = max(due + EACH, time.monotonic() - EACH)
            self._over.wait(max(due - time.monotonic(), 0))
        self._taps[1].send(self._senders[1].frame(END))

    def _hear(self) -> None:
        """Hear all that was sent before the end; where the end itself is lost, that is when nothing more has come for a while."""
        ended = False
        while (found := self._taps[2].receive(_is_ours, QUIET if ended else 0.5)) or not (ended or self._over.is_set()):
            if found and END in found:
                ended = True
            elif found and b"forged" in found:
                self.forged += 1
            elif found and b"strange" in found:
                self.strange += 1
            elif found:
                number, now = found[found.index(b"stream ") + 7] - 48, time.monotonic()
                self.silence[number] = max(self.silence[number], now - (self._last[number] or now))
                self._last[number] = now
                self.heard[number] += 1

    def passes(self) -> bool:
        """Tell whether a forged frame of guest 0 is heard, before some of its own that are sent after it."""
        forged, heard = self.forged, self.heard[0]
        self._taps[0].send(self._senders[0].frame(b"forged", "10.0.0.77"))
        wait_until(lambda: self.heard[0] > heard + 5, 5, "the guest is heard")
        return self.forged > forged


def _is_ours(found: bytes) -> bool:
    return any(word in found for word in (b"stream ", b"forged", b"strange", END))


@contextmanager
def guests(node: Node, mode: str, link: str) -> Iterator[list[Tap]]:
    """Three guests that are up, guarded, with 10.0.0.1 to 10.0.0.3."""
    taps = [node.tap(f"tap{number}") for number in range(3)]
    for number in range(3):
        nic = environment(number, MODE=mode, LINK=link, IP=f"10.0.0.{number + 1}", MAC=mac(number))
        assert perform("kvm-ifup", nic).status == 0
    if mode == "routed":  # nobody answers behind a tap of a test
        run("ip", "neighbour", "replace", "10.0.0.3", "lladdr", mac(2), "dev", "tap2", "nud", "permanent")
    yield taps
