"""How far a long piece of work is: said on stderr while somebody looks at it, never by a hook."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import IO, TypeVar

import click

from netcommon.cli.output import able
from netcommon.log import printable

T = TypeVar("T")

#: Seconds between two lines where they are not written over; on a terminal between two changes of the line.
LINES, CHANGES = 2.0, 0.1
LONGEST = 100  #: characters of what is said

#: For subcommands that may take long.
progress_option = click.option("--progress", is_flag=True, help="Say on stderr how far it is, also where that is no terminal.")


class Progress:
    """``label`` and what is being done. On a terminal that can do it one line, which is written over and wiped at the end; elsewhere, if it
    is ``wanted``, a line now and then; else nothing.
    """

    def __init__(
        self, label: str, total: int = 0, wanted: bool = False, stream: IO[str] | None = None, now: Callable[[], float] = time.monotonic
    ) -> None:
        self._label, self._total, self._now = label, total, now
        self._stream = sys.stderr if stream is None else stream
        self._terminal = able(self._stream, os.environ)
        self._shown = self._terminal or wanted
        self._next = self._started = now()

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *_error: object) -> None:
        if self._terminal and self._shown:
            self._write("\r\x1b[K")

    def at(self, done: int) -> None:
        """So many are done."""
        if self._shown and (done == 0 or self._due()):
            left = self._left(done)
            self._say(f"{self._label}: {done} of {self._total}" + (f", about {left} s left" if left else ""))

    def say(self, text: str) -> None:
        """What is being done, where nobody can tell how much there is."""
        if self._shown and self._due():
            self._say(f"{self._label}: {text}")

    def each(self, items: Sequence[T]) -> Iterator[T]:
        """The items, and how many of them are done."""
        for done, item in enumerate(items):
            self.at(done)
            yield item

    def _due(self) -> bool:
        return self._now() >= self._next

    def _left(self, done: int) -> int:
        """Seconds that the rest takes at the pace so far; 0 where that cannot be told yet, or is soon."""
        spent = self._now() - self._started
        return int(spent / done * (self._total - done)) if done and spent >= 1 else 0

    def _say(self, text: str) -> None:
        self._next = self._now() + (CHANGES if self._terminal else LINES)
        text = printable(text)[:LONGEST]
        self._write(f"\r\x1b[K{text}" if self._terminal else f"{text}\n")

    def _write(self, text: str) -> None:
        try:
            self._stream.write(text)
            self._stream.flush()
        except (OSError, ValueError):  # nobody looks any more: the work goes on
            self._shown = False


def each(items: Sequence[T], work: Callable[[T], None], label: str, wanted: bool = False) -> None:
    """Does ``work`` for each item, and says how far it is where there are several."""
    if len(items) < 2:
        for item in items:
            work(item)
        return
    with Progress(label, len(items), wanted) as progress:
        for item in progress.each(items):
            work(item)


def shown(labels: Iterable[tuple[str, T]], label: str, wanted: bool = False) -> Iterator[T]:
    """Things of unlike kinds, each said by its own text while it is being worked on."""
    with Progress(label, wanted=wanted) as progress:
        for text, thing in labels:
            progress.say(text)
            yield thing
