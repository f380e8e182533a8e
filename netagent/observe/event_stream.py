"""Following what happens to NICs: from the agent's journal, and where no agent runs, from the files of the records alone."""

from __future__ import annotations

import os
import select
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from netagent.events import Overrun, RecordChanged
from netagent.index import Entry, entry_of
from netagent.observe.control import ask
from netagent.observe.history import CAME_UP, LOST, change
from netagent.sources.inotify import FileEvents
from runtime import inotify
from runtime.errors import HostRefused, NetcommonError
from runtime.record import UP
from runtime.store import Store, is_key

#: How often the agent is asked (seconds); and how often whether it runs again, or the folder of the records is there.
INTERVAL, AGAIN = 0.25, 2.0

#: It has so long to answer (seconds).
PATIENCE = 2.0

Told = dict[str, Any]


class Place(NamedTuple):
    """Where the reader has come to."""

    begun: float = 0.0  #: when that agent started; 0: none was asked yet
    number: int = 0


class OfAgent:
    """What the agent of a network namespace tells. ``state`` is the state directory."""

    def __init__(self, state: str, netns: int, question: Callable[..., Told] = ask) -> None:
        self._state, self._netns, self._ask = state, netns, question
        self.place = Place()

    def read(self) -> list[Told]:
        """What has happened since the last call; the first one is given all that the agent still has.

        Raises HostRefused where no agent runs, TryAgain where it does not answer.
        """
        answer = self._question(self.place.number)
        begun = float(answer["begun"])
        if self.place.begun and begun != self.place.begun and self.place.number:
            answer = self._question(0)  # another agent, which counts from the beginning
        events: list[Told] = list(answer["events"])
        missed, last = int(answer["missed"]), events[-1]["number"] if events else int(answer["last"])
        first = not self.place.begun
        self.place = Place(begun, last)
        if missed and not first:
            text = f"{missed} events were not told: the agent keeps so many at most, and has had more since it was asked last"
            return [_told(events[0]["when"] if events else begun, LOST, text=text), *events]
        return events

    def _question(self, number: int) -> Told:
        answer = self._ask(self._state, self._netns, f"events {number}", PATIENCE)
        try:
            good = isinstance(answer["events"], list) and answer["format"] == 1 and all(isinstance(one, dict) for one in answer["events"])
            float(answer["begun"]), int(answer["missed"]), int(answer["last"]), [int(one["number"]) for one in answer["events"]]
        except (KeyError, TypeError, ValueError):
            good = False
        if not good:
            raise HostRefused("the agent that runs is of another version, which tells no such events", "restart it")
        return answer


class OfRecords:
    """Ups and downs, from the files of the records (inotify(7)). ``wall``: seconds since the epoch."""

    def __init__(self, store: Store, wall: Callable[[], float]) -> None:
        self._store, self._wall = store, wall
        self._files = FileEvents()
        self._watched = False
        self._known: dict[str, Entry] = {}
        self._begin()

    def close(self) -> None:
        self._files.close()

    def _begin(self) -> bool:
        """Watches the folder, if it is there; what lies in it is known from then on."""
        folder = os.path.dirname(self._store.path("any"))
        self._watched = self._files.watch("nics", folder, inotify.NAMES, _changed)
        if self._watched:
            self._known = {record.key: entry_of(record) for record in self._store.all()[0]}
        return self._watched

    def wait(self, seconds: float) -> None:
        """Until something happens, for so long at most."""
        select.select([self._files.descriptor], [], [], max(seconds, 0.0))

    def read(self) -> list[Told]:
        """What has happened since the last call."""
        if not self._watched:
            before = dict(self._known)
            return self._compared(before) if self._begin() else []
        events = self._files.read()
        if any(isinstance(event, Overrun) for event in events):
            before, self._watched = dict(self._known), False
            self._begin()
            return self._compared(before)
        keys = dict.fromkeys(event.key for event in events if isinstance(event, RecordChanged))
        return [told for key in keys for told in self._reread(key)]

    def _compared(self, before: dict[str, Entry]) -> list[Told]:
        """What is different from ``before``."""
        now, self._known = self._known, before
        made = [told for key in {**before, **now} for told in self._became(key, now.get(key))]
        self._known = now
        return made

    def _reread(self, key: str) -> list[Told]:
        try:
            record = self._store.read(key)
        except NetcommonError as error:
            self._store.problems.append(str(error))
            record = None
        return self._became(key, None if record is None else entry_of(record))

    def _became(self, key: str, entry: Entry | None) -> list[Told]:
        before = self._known.pop(key, None)
        if entry is not None:
            self._known[key] = entry
        kind, one = change(before, entry), entry or before
        return [_told(self._wall(), kind, one.label, one.device, one.uuid)] if kind and one is not None else []


def recorded(store: Store) -> list[Told]:
    """What the records themselves tell of the past: when those that are up came up, oldest first."""
    records = sorted(store.all()[0], key=lambda each: each.created)
    return [_told(each.created, CAME_UP, each.nic.label, each.device, each.uuid, "by its record") for each in records if each.state == UP]


def _told(when: float, kind: str, label: str = "", device: str = "", uuid: str = "", text: str = "") -> Told:
    return {"number": 0, "when": round(when, 3), "kind": kind, "label": label, "device": device, "uuid": uuid, "text": text}


def _changed(name: str) -> RecordChanged | None:
    key, dot, suffix = name.rpartition(".")
    return RecordChanged(key) if dot and suffix == "json" and is_key(key) else None


class Follower:
    """Both, the agent first. ``say``: is told when it goes from one to the other; ``now``: monotonic seconds."""

    def __init__(self, agent: OfAgent, records: Callable[[], OfRecords], say: Callable[[str], None], now: Callable[[], float]) -> None:
        self._agent, self._make, self._say, self._now = agent, records, say, now
        self._records: OfRecords | None = None
        self._asked = 0.0  #: when the agent was asked last, while it did not answer

    @property
    def alone(self) -> bool:
        """No agent runs."""
        return self._records is not None

    def past(self) -> list[Told]:
        """What the agent still has; nothing where none runs."""
        return self._try(self._whole)

    def _whole(self) -> list[Told]:
        found: list[Told] = []
        while more := self._agent.read():
            found += more
        return found

    def read(self) -> list[Told]:
        """What has happened since; does not wait."""
        if self._records is None:
            return self._try(self._agent.read)
        found = self._records.read()
        if self._now() - self._asked >= AGAIN:
            self._asked = self._now()
            try:
                found += self._agent.read()
            except NetcommonError:
                return found
            self._say("an agent runs: all that it tells is followed from here on")
            self._records.close()
            self._records = None
        return found

    def wait(self, sleep: Callable[[float], None]) -> None:
        """Until it is worth while to read again."""
        if self._records is None:
            sleep(INTERVAL)
        else:
            self._records.wait(AGAIN)

    def _try(self, read: Callable[[], Iterable[Told]]) -> list[Told]:
        try:
            return list(read())
        except NetcommonError as error:
            self._say(f"{error}: only ups and downs are seen, by the files of the records; no drift, repairs or alarms")
            self._records, self._asked = self._make(), self._now()
            return []

    def close(self) -> None:
        if self._records is not None:
            self._records.close()
