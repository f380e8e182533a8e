"""Follow a Ganeti node's configuration, and import it whenever it is another one, until told to end."""

from __future__ import annotations

import os
import select
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol

from netregistry.client import Problem
from netregistry.importer.ganeti_json import Unusable
from netregistry.importer.source import FILE, NotMaster
from runtime.errors import NetcommonError
from runtime.inotify import IN_CLOSE_WRITE, IN_IGNORED, IN_MOVED_TO, IN_Q_OVERFLOW, Inotify

if TYPE_CHECKING:
    from collections.abc import Callable

    from netcommon.process.notify import Notifier
    from netregistry.importer.configuration import Configuration
    from netregistry.importer.importer import Importer, Outcome
    from netregistry.importer.source import Source

LOOK = 60.0  #: seconds after which the configuration is read again though nothing has told of a change
AGAIN = 2.0  #: seconds until what failed is tried again
EPOCH = 5.0  #: seconds after which the registry is asked whether it is the one into which was imported, or was restored from a backup
PAUSE = 0.05  #: seconds between two readings at least, and as long as the one before has taken


class Log(Protocol):
    """Where lines go: netcommon.log.Log."""

    def info(self, text: str) -> None: ...

    def error(self, text: str) -> None: ...


class Watcher:
    """``importer``: gives that of a cluster by its name, the same one as long as it asks the same registry.

    ``ended``: a descriptor that can be read when it is over.
    """

    def __init__(self, source: Source, importer: Callable[[str], Importer], ended: int, notifier: Notifier, log: Log) -> None:
        self._source, self._importer, self._ended, self._notifier, self._log = source, importer, ended, notifier, log
        self._inotify = Inotify()
        self._watch: int | None = None
        self._last: Importer | None = None  # by which all was imported that is known; None: it was not
        self._apart: tuple[str, ...] = ()  # the nodes of which was said that they are of another cluster
        self._alarms: dict[str, str] = {}  # of what sort -> the line that was logged

    def run(self) -> None:
        """Import until ``ended``. Raises HostRefused where a folder cannot be watched."""
        try:
            told = False
            while True:
                begun = time.monotonic()
                self._followed()
                pause = self._once()
                if not told:
                    told = True
                    self._notifier.ready()
                took = time.monotonic() - begun
                if self._waited(max(PAUSE, took), pause):
                    return
        finally:
            self._notifier.stopping()
            self._inotify.close()

    def _once(self) -> float:
        """Read and import once; give the seconds until the next time, if nothing happens before."""
        self._last = None
        try:
            found, seen = self._source.read()
            importer = self._importer(found.cluster)
            outcome = importer.take(found, seen, time.monotonic())
        except NotMaster as error:
            self._alarms = {}  # what was wrong is no business of this node any more
            self._notifier.status(str(error))
            return LOOK
        except Unusable as error:
            self._alarm({"unusable": f"nothing is imported: {error}"})
            return LOOK
        except Problem as error:
            self._alarm({error.kind: f"nothing is imported: {error}"})
            return AGAIN if error.retry else LOOK
        except NetcommonError as error:
            self._alarm({type(error).__name__: f"nothing is imported: {error}"})
            return AGAIN
        self._last = importer
        self._done(found, outcome)
        return min(LOOK, max(0.0, importer.due - time.monotonic()))

    def _done(self, found: Configuration, outcome: Outcome) -> None:
        if outcome.apart != self._apart:
            self._apart = outcome.apart
            for line in warnings(found.cluster, outcome.apart):
                self._log.error(line)
        problems = [*found.problems, *(f"{uuid}: {why}" for uuid, why in sorted(outcome.refused.items()))]
        shown = "; ".join(problems[:5]) + (f"; and {len(problems) - 5} more" if len(problems) > 5 else "")
        self._alarm({f"partly {shown}": f"not all of the configuration is imported: {shown}"} if problems else {})
        if outcome.made or outcome.changed or outcome.deleted:
            self._log.info(
                f"imported configuration {found.serial} of {found.cluster}: "
                f"{outcome.made} made, {outcome.changed} changed, {outcome.deleted} deleted"
            )
        self._notifier.status(f"configuration {found.serial} of {found.cluster} is imported")

    def _alarm(self, alarms: dict[str, str]) -> None:
        """Log what is wrong once, until it is over or is something else."""
        for sort, line in alarms.items():
            if sort not in self._alarms:
                self._log.error(line)
            self._notifier.status(line)
        if self._alarms and not alarms:
            self._log.info("the configuration is imported again")
        self._alarms = alarms

    # -- waiting

    def _followed(self) -> None:
        """Watch the folder, also one that has come in its place."""
        if self._watch is None:
            self._watch = self._inotify.add(self._source.folder, IN_MOVED_TO | IN_CLOSE_WRITE, self._source.folder)

    def _waited(self, least: float, most: float) -> bool:
        """Wait until the file or the registry is another one, or the time is over; tell whether it is the end."""
        until = time.monotonic() + (most if self._watch is not None else min(most, AGAIN))
        ask = time.monotonic() + EPOCH
        changed = False
        if self._ready(least):
            return True
        while not changed and (now := time.monotonic()) < until:
            left = max(0.0, min(until, ask) - now)
            if self._ready(min(left, self._notifier.watchdog / 3 or left), self._inotify.descriptor):
                return True
            self._notifier.alive()
            changed = self._changed()
            if not changed and time.monotonic() >= ask:
                changed, ask = self._outdated(), time.monotonic() + EPOCH
        return False

    def _outdated(self) -> bool:
        """Tell whether the registry is another one than that into which was imported. Of one that is away the next import says so."""
        with suppress(NetcommonError):
            return self._last is not None and self._last.outdated()
        return False

    def _ready(self, seconds: float, *more: int) -> bool:
        """Wait for a descriptor; tell whether it is that of the end."""
        ready = select.poll()  # not select(2): a descriptor may have any number
        for descriptor in (self._ended, *more):
            ready.register(descriptor, select.POLLIN)
        return self._ended in dict(ready.poll(seconds * 1000))

    def _changed(self) -> bool:
        found = False
        for seen in self._inotify.read():
            if seen.mask & (IN_IGNORED | IN_Q_OVERFLOW):
                self._watch = None if seen.mask & IN_IGNORED else self._watch
                found = True
            found = found or seen.name == FILE
        return found


def warnings(cluster: str, apart: tuple[str, ...]) -> list[str]:
    """Say what is wrong with the nodes that have NICs of the cluster, and are of another one: a line, or none."""
    if not apart:
        return []
    which = ", ".join(apart[:5]) + (f", and {len(apart) - 5} more" if len(apart) > 5 else "")
    command = f"netcommon registry node set NODE cluster={cluster}"
    return [f"have NICs of {cluster}, are of another cluster or none, and are told nothing of guests that come: {which}: {command}"]


def pipe_of_signals() -> int:
    """Give a descriptor that can be read after SIGTERM or SIGINT."""
    import signal

    reader, writer = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: os.write(writer, b"."))
    return reader
