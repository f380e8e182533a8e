"""What was last wanted of the DNS per instance, on the master: written before the first update is sent, so that a run which failed, or
was killed, is known, and with it every name that may bear records of ours.

    /var/lib/netcommon/dns/INSTANCE.json
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, NamedTuple

from netcommon.dns import guest as guests
from netcommon.dns.guest import Guest
from netcommon.dns.names import hostname, is_label
from runtime.errors import NicInvalid, RecordUnreadable, escaped
from runtime.folder import Folder
from runtime.locks import Locks

FOLDER = "/var/lib/netcommon/dns"
LOCKS = "locks"
END = ".json"
VERSION = 1

#: A file of ours is smaller than this (bytes).
LARGEST = 1 << 18


class Intent(NamedTuple):
    """What shall hold for one instance, the names that may have records of ours, and whether all of it is known to be done."""

    guest: Guest
    names: tuple[str, ...] = ()
    former: tuple[str, ...] = ()  #: names the instance had before, whose marks may still be on records of it
    done: bool = False
    error: str = ""


class Store:
    """The intents in ``folder``. ``locks`` makes the locks of one run, given the folder they lie in."""

    def __init__(self, folder: str, locks: Callable[[Folder], Locks]) -> None:
        self._folder = Folder.make(folder, sync=True)
        self._locks_folder = self._folder.make_sub(LOCKS)
        self._locks = locks
        self.problems: list[str] = []

    def close(self) -> None:
        self._folder.close()
        self._locks_folder.close()

    def locked(self, *instances: str) -> Locks:
        """A lock on the work for these instances, to be used as a context. Raises TryAgain at the deadline."""
        held = self._locks(self._locks_folder)
        held.uuids(instances)
        return held

    def names(self) -> list[str]:
        """The instances on record, sorted."""
        return [name.removesuffix(END) for name in self._folder.names() if name.endswith(END)]

    def read(self, instance: str) -> Intent | None:
        """What is on record for ``instance``; None where there is nothing, or nothing that can be read (``problems`` says so)."""
        try:
            data = self._folder.read(instance + END, LARGEST)
            return None if data is None else _parsed(data, f"{self._folder.path}/{instance}{END}")
        except RecordUnreadable as error:
            self.problems.append(f"{error}: it counts for nothing until the instance's next change")
            return None

    def write(self, intent: Intent) -> None:
        """Puts ``intent`` in the place of what was on record for the instance. It survives a crash."""
        with self._writing():
            self._put(intent)

    def remove(self, instance: str) -> None:
        """Forgets the instance."""
        with self._writing():
            self._folder.remove(instance + END)

    def finish(self, intent: Intent, after: Intent | None) -> None:
        """Puts ``after`` in the place of ``intent``, None for nothing, unless a newer intent is there by now."""
        with self._writing():
            if self.read(intent.guest.name) != intent or after == intent:
                return
            if after is None:
                self._folder.remove(intent.guest.name + END)
            else:
                self._put(after)

    def _writing(self) -> Locks:
        held = self._locks(self._locks_folder)
        held.keys(["store"])
        return held

    def _put(self, intent: Intent) -> None:
        value = {"version": VERSION, **intent._asdict(), "guest": guests.dump(intent.guest)}
        self._folder.write(intent.guest.name + END, json.dumps(value, indent=1).encode(), sync=True)


def _parsed(data: bytes, path: str) -> Intent:
    """Raises RecordUnreadable."""
    try:
        value: Any = json.loads(data)
        if value["version"] != VERSION:
            raise RecordUnreadable(f"{escaped(path)} is of version {escaped(value['version'])}")
        names, former = ([str(name) for name in value[which]] for which in ("names", "former"))
        if not all(is_label(label.replace("_", "x").replace("/", "-")) for name in names for label in name.split(".")):
            raise ValueError
        return Intent(
            guests.load(value["guest"]),
            tuple(names),
            tuple(hostname(name, "former") for name in former),
            value["done"] is True,
            str(value["error"]),
        )
    except (KeyError, TypeError, ValueError, RecursionError, NicInvalid):
        raise RecordUnreadable(f"{escaped(path)} does not parse") from None
