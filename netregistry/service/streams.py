"""Keep the streams that are open: what each node is still to be sent, and nothing beyond a bound."""

from __future__ import annotations

import json
import threading
from collections import Counter, deque
from itertools import islice
from typing import TYPE_CHECKING

from netregistry.refusal import Refused
from netregistry.service.recent import Recent, told
from netregistry.stream import Line, Stream, hearers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from netregistry.model.certificate import Credential
    from netregistry.stores.base import Batch
    from netregistry.view import View

PARTS = 10  #: in which all streams are given a sign of life: requests come in between
_ENCODER = json.JSONEncoder(separators=(",", ":"))  # json.dumps makes one for each line
BOUND = 4 << 20  #: bytes that wait for one hearer, beside what it is told at first
TOGETHER = 256 << 20  #: bytes that wait for all of them
OF_ONE = 16  #: streams of one identity that are no sign of life
PIECE = 64 << 10  #: bytes that are taken at once: what is on its way to a hearer is in memory twice, in the clear and not


class Channel:
    """One open stream. Written by the thread that has the view, read by the one that has the connections.

    ``credential``: by which it was opened; None over the UNIX socket. ``silent``: tells whether the hearer's machine answers no more.
    ``underlay``: it is told what the node is to have of the underlay.
    """

    def __init__(
        self,
        node: str,
        incarnation: str,
        wake: Callable[[], None],
        credential: Credential | None = None,
        silent: Callable[[], bool] = lambda: False,
        underlay: bool = False,
    ) -> None:
        self.node, self.incarnation, self.wake, self.credential, self.silent = node, incarnation, wake, credential, silent
        self.stream = Stream(node, underlay)
        self.ended = ""  #: why no more comes
        self.dropped = False  #: nor what waited
        self.beaten = float("-inf")  #: when it was last given a sign of life
        self.waiting = 0  #: bytes
        self._first = 0  #: those of them that it is told at first
        self._lines: deque[bytes] = deque()
        self._lock = threading.Lock()

    def put(self, lines: list[bytes], first: bool = False) -> None:
        """Let lines be sent. A hearer that is too slow is cut off: it goes on where it was."""
        size = sum(map(len, lines))
        with self._lock:
            if self.ended:
                return
            if not first and self.waiting - self._first + size > BOUND:
                self._drop(f"too slow: more than {BOUND} bytes are waiting")
                return
            self._lines += lines
            self.waiting += size
            self._first += size if first else 0

    def end(self, why: str) -> None:
        """Send what waits, and then no more."""
        with self._lock:
            self.ended = self.ended or why

    def cut(self, why: str) -> None:
        """Send no more, nor what waits."""
        with self._lock:
            self._drop(self.ended or why)

    def _drop(self, why: str) -> None:
        self.ended, self.dropped = why, True
        self._lines.clear()
        self.waiting = self._first = 0

    def take(self) -> bytes:
        """Give what waits, whole lines of PIECE bytes or one more: the rest is taken when these are sent."""
        found: list[bytes] = []
        with self._lock:
            size = 0
            while self._lines and size < PIECE:
                found.append(self._lines.popleft())
                size += len(found[-1])
            self.waiting -= size
            self._first = max(self._first - size, 0)
        return b"".join(found)

    @property
    def whose(self) -> tuple[str, str]:
        """Give who hears it: by the certificate, else the node."""
        return ("node", self.node) if self.credential is None else (self.credential.role, self.credential.name)


class Streams:
    """All open streams; kept by ``hear`` as a view is. ``most``: open at once. Everything but ``count`` is for the view's thread."""

    def __init__(self, view: View, most: int) -> None:
        self.recent = Recent(view)
        self.cut = 0  #: hearers that were too slow
        self.revoked = 0  #: those whose certificate counted no more
        self.ended = False  #: no more are opened
        self._most = most
        self._sign: tuple[str, list[bytes]] = "", []  # the latest sign of life: of which revision, and its line
        self._channels: dict[Channel, None] = {}
        self._of: dict[str, dict[Channel, None]] = {}  # by their node

    @property
    def count(self) -> int:
        return len(self._channels)

    @property
    def waiting(self) -> int:
        """The most bytes that wait for one of them."""
        return max((channel.waiting for channel in tuple(self._channels)), default=0)

    def nodes(self) -> dict[str, str]:
        """Give the nodes that are alive by a stream, and their incarnations. One that is cut off is not, though its stream is open."""
        alive = (channel for channel in self._channels if channel.incarnation and not channel.ended)
        return {channel.node: channel.incarnation for channel in alive if not channel.silent()}

    def all(self) -> tuple[Channel, ...]:
        return tuple(self._channels)

    def of(self, node: str) -> list[Channel]:
        """Give the streams by which a node is alive."""
        return [channel for channel in self._of.get(node, ()) if channel.incarnation]

    def open(self, view: View, channel: Channel, start: str) -> None:
        """Begin a stream, behind the revision ``start`` or ("") at the beginning. Raises Refused."""
        if self.ended:
            raise Refused("unavailable", "the service stops: try again", retry_after=2)
        looks = channel.credential is not None and not channel.incarnation
        if looks and sum(other.whose == channel.whose and not other.incarnation for other in self._channels) >= OF_ONE:
            raise Refused("too-many", f"{OF_ONE} streams of {channel.whose[0]} {channel.whose[1]} are open", retry_after=30)
        full, many = (
            len(self._channels) >= self._most,
            Refused("too-many", f"{self._most} streams are open: try again later", retry_after=30),
        )
        if full and not channel.incarnation:
            raise many
        # may be refused: nobody makes room for that
        first = self.recent.resumed(view, channel.stream, start) if start else channel.stream.begin(view)
        lines = [_encoded(line) for line in first]
        if full and not self._made_room():
            raise many
        channel.put(lines, first=True)
        for other in self.of(channel.node) if channel.incarnation else ():
            self.close(other, "the same agent has opened another one")
        self._channels[channel] = None
        self._of.setdefault(channel.node, {})[channel] = None
        self._bound()

    def _made_room(self) -> bool:
        """End one of the streams that are no node's sign of life, of the identity that has the most of them; tell whether there was any."""
        each = Counter(channel.whose for channel in self._channels if not channel.incarnation)
        if not each:
            return False
        ((most, _count),) = each.most_common(1)
        self.close(
            next(channel for channel in self._channels if channel.whose == most and not channel.incarnation),
            f"{self._most} streams are open, and a node needs one: try again later",
        )
        return True

    def _bound(self) -> None:
        """Cut off who keeps too much waiting in all: of those for whom the most does, the slowest first. So nobody does it to others."""
        while sum(channel.waiting for channel in self._channels) > TOGETHER:
            each = Counter[tuple[str, str]]()
            for channel in self._channels:
                each[channel.whose] += channel.waiting
            ((most, _bytes),) = each.most_common(1)
            channel = max((channel for channel in self._channels if channel.whose == most), key=lambda channel: channel.waiting)
            channel.cut(f"too slow: more than {TOGETHER} bytes are waiting for all")
            self.cut += 1
            self._forget(channel)
            channel.wake()

    def close(self, channel: Channel, why: str = "") -> None:
        """Forget a stream; ``why`` cuts it off first: what would wait for it on is in no bound, and who hears it need not be let in now."""
        if why:
            channel.cut(why)
            channel.wake()
        self._forget(channel)

    def hear(self, view: View, batch: Batch | None) -> None:
        """Tell everybody what the view has taken in: one commit. None: all of it anew; everybody begins anew then, too."""
        self.recent.hear(view, batch)
        if batch is None:
            for channel in self.all():
                self.close(channel, "the registry was read anew")
            return
        encoded: dict[Line, bytes] = {}
        for channel in [channel for node in hearers(view, batch) for channel in self._of.get(node, ())]:
            lines = told(channel.stream.next(view, batch), view.epoch, batch.revision)
            self._send(channel, list(_cached(lines, encoded)))

    def due(self, now: float, every: float) -> list[Channel]:
        """Take those to which a sign of life is due, the longest due first, and no more of them than a part of all at once."""
        most = -(-len(self._channels) // PARTS)
        found = [channel for channel in islice(self._channels, most) if now - channel.beaten >= every]
        for channel in found:
            channel.beaten = now
            self._channels[channel] = self._channels.pop(channel)
        return found

    def beat(self, view: View, channels: Iterable[Channel] | None = None) -> None:
        """Send signs of life, to all or to some, which say up to which revision all was told."""
        self._bound()
        revision = f"{view.epoch}:{view.revision}"
        if revision != self._sign[0]:
            self._sign = revision, [_encoded(Line("ready", revision=revision))]
        for channel in self.all() if channels is None else channels:
            self._send(channel, self._sign[1])

    def _send(self, channel: Channel, lines: list[bytes]) -> None:
        if not lines:
            return
        channel.put(lines)
        if channel.ended:
            self.cut += 1
            self._forget(channel)
        channel.wake()

    def _forget(self, channel: Channel) -> None:
        if channel in self._channels:
            del self._channels[channel], self._of[channel.node][channel]
            if not self._of[channel.node]:
                del self._of[channel.node]


def _cached(lines: Iterable[Line], known: dict[Line, bytes]) -> Iterator[bytes]:
    """Encode lines; what several nodes are told once: a line of one commit is known by all but what it holds."""
    for line in lines:
        key = line._replace(value=None, beside=None)
        if key not in known:
            known[key] = _encoded(line)
        yield known[key]


def _encoded(line: Line) -> bytes:
    fields = {name: value for name, value in zip(line._fields, line, strict=True) if value not in ("", None) or name == "event"}
    return _ENCODER.encode(fields).encode("ascii") + b"\n"
