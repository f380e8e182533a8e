"""Watch an EtcdStore: every commit whole, once, in order, from whichever member answers.

All keys of etcd are watched, also for a prefix. So there is something to be told of every revision, and what is missing is seen by its
number: nothing rests on etcd telling it, whose watchers may lose a deletion at a compaction (its issue 18089). For the same reason its own
notifications of progress, which come every ten minutes unless etcd is told otherwise, are taken for a sign of life and nothing else. A
heartbeat is more: the majority was asked for its newest revision, and all up to that was delivered.

An etcd may go back: its disks, or the virtual machines, are set back to what they were, or a snapshot takes the place of its members. Then
revisions are given a second time, for other commits. A watch notices that its own revision is yet to come, or that what was told of it is
not what etcd has there now: no watch goes on from one history in the other.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from typing import TYPE_CHECKING, NoReturn, Self

from netregistry.stores import etcd_answers as answers
from netregistry.stores.base import Ahead, Batch, Changed, Compacted, Lost, Unavailable
from netregistry.stores.etcd_answers import Garbled
from netregistry.stores.etcd_stream import Cut
from runtime.errors import escaped

if TYPE_CHECKING:
    from collections.abc import Callable

    from netregistry.stores.etcd_answers import Document
    from netregistry.stores.etcd_stream import Stream

SILENT = 2.0  #: seconds in which a stream tells what the majority has; longer than that it is not waited for
FAST = 1000  #: revisions a second at least, by which a stream that is far behind may be late: etcd reads all before it tells the first
HISTORY = b"/history/"
STREAMS = 3  #: that are begun, one after the other, for one answer


class EtcdWatch:
    """As netregistry.stores.base.Watch says.

    ``begin``: begins a stream that tells what was done from a revision on (Compacted, Ahead, Unavailable), where the one before has written
    a key and its value, if those are given; ``newest``: asks the majority for its newest revision; ``change``: makes what is told of a key
    and its value, None where that is not watched; ``own``: gives a message back if it is of the right cluster; ``cut``: hears at which
    member a stream has ended; ``gone_back``: hears that etcd's newest revision is behind one that it has told, and raises.
    """

    def __init__(
        self,
        begin: Callable[[int, tuple[bytes, bytes] | None], Stream],
        newest: Callable[[], int],
        change: Callable[[bytes, bytes | None], Changed | None],
        own: Callable[[Document], Document],
        cut: Callable[[str], None],
        gone_back: Callable[[int, int], NoReturn],
        start: int,
    ) -> None:
        self._gone_back = gone_back
        self._begin, self._newest, self._change, self._own, self._cut = begin, newest, change, own, cut
        self._position = start - 1  # all up to this revision was taken from streams
        self._found: deque[Batch] = deque()
        self._last: tuple[bytes, bytes] | None = None  # a key and its value of that revision, as it was told
        self._told: dict[bytes, bytes] = {}  # of the next one
        self._part: list[Changed] = []  # of the next revision, of which more may come
        self._partly = False
        self._cuts = 0  # streams that have ended since one has told something
        self._ended = threading.Event()
        self._stream: Stream | None = None
        self._new = True  # no stream has begun: where the start is yet to come, whoever asked for it is wrong
        self._open()

    @property
    def ended(self) -> bool:
        return self._ended.is_set()

    def next(self, seconds: float) -> Batch:
        """Give the next commit, or a heartbeat; see netregistry.stores.base.Watch. Raises Unavailable, too."""
        until = time.monotonic() + seconds
        self._open()
        while not self._found and (left := until - time.monotonic()) > 0:
            self._read(left)
        if not self._found:
            if self._open().ready:  # it may have been cut, by an etcd that has gone back and come as far again
                self._read(0.0)
                self._open()
            newest = self._newest()
            if newest < self._position:
                self._gone_back(self._position, newest)
            self._catch_up(newest)
        return self._found.popleft() if self._found else Batch(self._position, ())

    def _catch_up(self, newest: int) -> None:
        """Read until there is a commit, or all up to a revision was told. A stream that does not tell it is begun anew."""
        while True:
            until = time.monotonic() + SILENT + (newest - self._position) / FAST
            while not self._found and self._position < newest and (left := until - time.monotonic()) > 0:
                self._read(left)
            if self._found or self._position >= newest:
                return
            self._end(f"it is at revision {newest}, and its stream tells nothing behind {self._position}")

    def _open(self) -> Stream:
        """Give the stream; begin one behind what was taken in, where there is none. Raises Lost, Compacted, Unavailable, HostRefused."""
        if self._ended.is_set():
            raise Lost("the watch was closed")
        if self._stream is None:
            self._part, self._partly, self._told = [], False, {}
            try:
                self._stream = self._begin(self._position + 1, self._last)
            except Ahead as ahead:
                if self._new:
                    raise
                self._gone_back(self._position, ahead.newest)
            self._new = False
            if self._ended.is_set():  # meanwhile, by somebody who has not seen it
                self._stream.close()
        return self._stream

    def _read(self, seconds: float) -> None:
        """Take in one line, if one comes. Raises as ``_open`` does."""
        stream = self._open()
        try:
            line = stream.line(seconds)
            if line is not None:
                self._take(answers.document(line))
        except (Cut, Garbled) as error:
            if self._ended.is_set():
                raise Lost("the watch was closed") from None
            self._end(str(error))

    def _end(self, why: str) -> None:
        """End the stream; the next one begins behind what was taken in, at another member. Raises Unavailable where that was tried."""
        stream, self._stream = self._stream, None
        if stream is not None:
            self._cut(stream.where)
            stream.close()
        self._cuts += 1
        if self._cuts >= STREAMS:
            self._cuts = 0
            raise Unavailable(f"etcd ends every watch: {why}")

    def _take(self, message: Document) -> None:
        """Take in one message. Raises Garbled, Cut, Lost, Compacted, HostRefused."""
        if "error" in message:
            raise Cut(answers.refusal(message).message)
        result = self._own(answers.mapping(message, "result"))
        if answers.truth(result, "canceled"):
            if floor := answers.number(result, "compact_revision"):
                raise Compacted(floor)
            why = result.get("cancel_reason", "")
            raise Cut(f"it has ended the watch: {escaped(why)}")
        more = answers.truth(result, "fragment")
        for event in answers.sequence(result, "events"):
            self._heard(event)
        if self._partly and not more:
            self._whole()

    def _heard(self, event: Document) -> None:
        """Take in one change: of the revision that is being told, or of the next one, with which that is whole."""
        kind = event.get("type", "PUT")
        if kind not in ("PUT", "DELETE"):
            raise Garbled(f"it tells of {escaped(repr(kind))}, expected PUT or DELETE")
        key, value, revision = answers.pair(answers.mapping(event, "kv"))
        if self._partly and revision > self._position + 1:
            self._whole()
        if revision <= self._position:
            raise Garbled(f"it tells of revision {revision} again")
        if revision > self._position + 1:
            raise Lost(f"etcd has told nothing of the revisions from {self._position + 1} to {revision - 1}")
        self._partly = True
        changed = self._change(key, None if kind == "DELETE" else value)
        if changed is not None:
            self._part.append(changed)
        if kind == "PUT":
            self._told[key] = value

    def _whole(self) -> None:
        """Give the revision that was told, if anything of it is watched."""
        self._position += 1
        self._cuts = 0
        # an entry of the history has an id of its own, which no other history has; the first key does where there is none
        self._last = min(self._told.items(), key=lambda told: (HISTORY not in told[0], told[0]), default=None)
        if self._part:
            self._found.append(Batch(self._position, tuple(self._part)))
        self._part, self._partly, self._told = [], False, {}

    def close(self) -> None:
        """End it; see netregistry.stores.base.Watch."""
        self._ended.set()
        stream = self._stream
        if stream is not None:
            stream.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
