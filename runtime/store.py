"""The records of this node: nics/<key>.json, the links by device and by instance, and what does not parse (runtime.layout: where).

Everything is written by temporary file and rename. Callers hold the locks of the device and the UUID they write.
"""

from __future__ import annotations

from runtime import validate
from runtime.errors import HostRefused, NicInvalid, RecordTooNew, RecordUnreadable, escaped
from runtime.folder import Folder
from runtime.layout import OWED, Layout
from runtime.links import Links, unmoved
from runtime.locks import Locks
from runtime.names import file_name
from runtime.owners import Owners
from runtime.record import APPLYING, CHANGING, LONGEST, UP, from_json, to_json
from runtime.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from runtime.locks import Gates, Locking
    from runtime.owed import Owed
    from runtime.paths import Paths
    from runtime.record import Record

    Parse = Callable[[bytes], Record]


class Store:
    """The records of one network namespace, ``netns`` (SO_NETNS_COOKIE), in the boot ``boot``.

    ``readonly``: nothing is created, moved or changed, and writing methods raise AssertionError. ``problems`` gathers what was wrong
    with files met on the way, one line each. ``gates``, ``locking``: see runtime.locks. ``parse``: what makes a record of a file's bytes,
    where one is asked for: it may remember it.
    """

    def __init__(
        self,
        paths: Paths,
        netns: int,
        boot: str,
        readonly: bool = False,
        gates: Gates | None = None,
        parse: Parse = from_json,
        locking: Locking = Locks,
    ) -> None:
        self.paths, self.netns, self.boot, self.readonly = paths, netns, boot, readonly
        self.problems: list[str] = []
        self._gates, self._parse, self._locking = gates, parse, locking
        self.kept: tuple[str, ...] = ()  #: see runtime.locks
        self._layout = Layout(paths.state, netns, boot, readonly)
        self._links = Links(self._layout)
        self.owners = Owners(self._layout, self.exists)
        self._owed: Owed | None = None

    def close(self) -> None:
        """Close what is open; it is opened again where it is needed."""
        self._layout.close()

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def locks(self, deadline: float, clock: Callable[[], float], sleep: Callable[[float], None]) -> Locks:
        """The locks beside these records; see runtime.locks. Raises HostRefused."""
        return self._locking(self._layout.make("locks"), deadline, clock, sleep, self.paths.proc, self._gates, self.kept)

    def folder(self, name: str) -> Folder:
        """The folder ``name`` of the layout, made if need be; it is the store's to close. For those who watch it. Raises HostRefused."""
        return self._layout.make(name)

    def stands(self) -> bool:
        """Whether what is open of it is what would be opened now."""
        return self._layout.stands()

    def path(self, key: str) -> str:
        """The path of the record's file, for those who are told where it is."""
        nics = self._layout.find("nics")
        return f"{nics.path if nics is not None else self.paths.state + '/nics'}/{key}.json"

    # -- reading

    def exists(self, key: str) -> bool:
        """Is there a record file of this key, readable or not?"""
        nics = self._layout.find("nics")
        return nics is not None and nics.exists(f"{key}.json")

    def elsewhere(self, key: str) -> bool:
        """Tell whether another network namespace that shares the state directory has a record of this key."""
        return is_key(key) and self._layout.elsewhere(f"nics/{key}.json")

    def read(self, key: str, parse: Parse | None = None) -> Record | None:
        """The record; None where there is none, or where it did not parse and so was moved to quarantine. ``parse``: instead of our own.

        Raises RecordTooNew, and HostRefused where the state directory cannot be read.
        """
        if not is_key(key):
            return None
        nics = self._layout.find("nics")
        return self._read(nics, f"{key}.json", parse) if nics is not None else None

    def _read(self, nics: Folder, name: str, parse: Parse | None = None) -> Record | None:
        try:
            data = nics.read(name, 2 * LONGEST)
            if data is None:
                return None
            record = (parse or self._parse)(data)
            if f"{record.key}.json" != name:
                raise RecordUnreadable(f"it is the record of {escaped(record.key)}")
            return record
        except RecordTooNew as error:
            raise RecordTooNew(f"{nics.path}/{name}: {error}") from None
        except RecordUnreadable as error:
            self.quarantine(name, str(error))
            return None

    def by_device(self, tap: str) -> Record | None:
        """The record of the NIC that came up last on this device. Raises as read."""
        record = self._led_to(self._links.of_device(tap)) if _valid(validate.interface, tap) else None
        return record if record is not None and record.device == tap else None

    def key_of(self, tap: str) -> str:
        """Give the key of the record that this device leads to, readable or not; "" where it leads to none."""
        return self._links.of_device(tap) if _valid(validate.interface, tap) else ""

    def devices(self) -> list[str]:
        """List the names of the devices of all NICs on record. Raises HostRefused."""
        return self._links.devices()

    def by_instance(self, name: str, index: int) -> Record | None:
        """The record of the NIC that came up last with this position in this instance. Raises as read."""
        record = self._led_to(self._links.of_instance(name, index)) if _valid(validate.instance, name) else None
        return record if record is not None and (record.nic.instance, record.nic.index) == (name, index) else None

    def _led_to(self, key: str) -> Record | None:
        """A process that is moving a record aside, or was killed at it, has made the links first."""
        return self.read(key) or (self.read(unmoved(key)) if unmoved(key) != key else None)

    def keys(self) -> list[str]:
        """List the keys of all records, without a look at them. Raises HostRefused."""
        nics = self._layout.find("nics")
        return [name[: -len(".json")] for name in nics.names() if _of_record(name)] if nics is not None else []

    def all(self) -> tuple[list[Record], list[str]]:
        """Every record, and what is wrong with the others, one line each. Those that do not parse are moved to quarantine."""
        problems: list[str] = []
        return list(self.each(problems)), problems

    def each(self, problems: list[str], newer: list[str] | None = None) -> Iterator[Record]:
        """As ``all``, one after the other, for who keeps none: those of a large node take much memory.

        ``problems``: what is wrong. ``newer``: takes the names of those that a newer version has written.
        """
        nics = self._layout.find("nics")
        if nics is None:
            return
        for name in nics.names():
            if not _of_record(name):
                problems.append(_stranger(nics, name))
                continue
            before = len(self.problems)
            try:
                record = self._read(nics, name, from_json)
            except RecordTooNew as error:
                problems.append(str(error))
                if newer is not None:
                    newer.append(name)
                continue
            problems += self.problems[before:]
            del self.problems[before:]
            if record is not None:
                yield record

    def owes(self) -> bool:
        """Tell whether anything may be owed to others (runtime.owed). Costs next to nothing where nothing is."""
        try:
            folder = self._layout.find("owed") if self._owed is None else None
            return self._owed is not None or (folder is not None and bool(folder.names()))
        except HostRefused:
            return True  # who looks closer says why

    @property
    def owed(self) -> Owed:
        """What is owed to others."""
        if self._owed is None:
            from runtime.owed import Owed  # on most nodes nothing ever is

            self._owed = Owed(self._layout, lambda folder, name, why: self._put_aside(folder, name, why, OWED), self.problems)
        return self._owed

    def newer(self) -> dict[str, str]:
        """What is said of each record that a newer version has written, by its key."""
        nics, found = self._layout.find("nics"), dict[str, str]()
        for name in nics.names() if nics is not None else ():
            try:
                if nics is not None and _of_record(name):
                    self._read(nics, name, from_json)
            except RecordTooNew as error:
                found[name[:-5]] = str(error)
        return found

    def strangers(self) -> list[str]:
        """What is said of the files among the records that have no record's name, one line each."""
        nics = self._layout.find("nics")
        return [_stranger(nics, name) for name in nics.names() if not _of_record(name)] if nics is not None else []

    def refuse_newer(self, name: str) -> None:
        """Raise RecordTooNew where a UUID, device, instance or INSTANCE/INDEX leads to a record that a newer version has written.

        Of such a record nothing else is known. Raises as read.
        """
        instance, slash, index = name.rpartition("/")
        found = [name.lower()]
        if _valid(validate.interface, name):
            found.append(self._links.of_device(name))
        if _valid(validate.instance, name):
            found += self._links.of_instances(name)
        if slash and _valid(validate.instance, instance) and index.isascii() and index.isdecimal():
            found.append(self._links.of_instance(instance, int(index[:9])))
        for key in found:
            self._led_to(key)

    # -- writing

    def write(self, record: Record, earlier: Record | None = None) -> None:
        """Writes the record and its links; links that an earlier state of it had elsewhere go.

        ``earlier``: what is there now, from a caller that has just read or written it under the locks; it is read here if not given.

        The links come first: a process killed in between leaves a link to nothing, never a record that the next NIC on its device
        would not find.
        Raises NicInvalid (too large), RecordTooNew (a newer version's record is in the way) and HostRefused.
        """
        data = to_json(record)
        nics = self._layout.make("nics")
        earlier = earlier or self._read(nics, f"{record.key}.json")
        of = record.uuid if record.moved else None  # what is moved aside takes no link from a NIC that has come up since
        if earlier is None or (record.state in (APPLYING, UP, CHANGING) and _links_of(earlier) != _links_of(record)):
            self._links.make(record, of)  # one that is on its way out takes no link back from the NIC that has it by now
        nics.write(f"{record.key}.json", data)
        if earlier is None or record.state in (APPLYING, UP, CHANGING):
            # a clock set forward makes our new links look old, and leading nowhere, to whoever cleans up just now
            self._links.make(record, of)
        if earlier is not None:
            if earlier.device != record.device:
                self._links.remove_device(earlier)
            if (earlier.nic.instance, earlier.nic.index) != (record.nic.instance, record.nic.index):
                self._links.remove_instance(earlier)

    def remove(self, record: Record, other: Record | None = None) -> None:
        """Removes the record, those links that still point at it, and its instance's folder if that is empty. Raises HostRefused.

        ``other``: another record of the same NIC on the same device, to which the links lead then: the device's next NIC is to find it.
        """
        if other is not None and self._links.of_device(record.device) == record.key:
            self._links.make(other, record.key)
        nics = self._layout.make("nics")
        if self._owed is None or not self._owed.keep(record.key, nics):
            nics.remove(f"{record.key}.json")  # first, as in write
        self._links.remove_device(record)
        self._links.remove_instance(record)

    def move_aside(self, record: Record, between: Callable[[Record], None] = lambda moved: None) -> Record:
        """Moves the record of a NIC that comes up elsewhere to nics/<uuid>.<ifindex>.json, closing; returns it as it is now.

        A kill on the way leaves both files, which say the same. ``between`` is called while both are there: its owners' links are the
        caller's to make. Raises as write, and what ``between`` raises.
        """
        if record.moved:
            return record
        moved = record.closed(moved=True)
        left = self.read(moved.key)  # the NIC was here before, and something of that could not be undone
        if left is not None:
            moved = moved._replace(operations=(*moved.operations, *(each for each in left.operations if each not in moved.operations)))
        self.write(moved)
        if left is not None:
            # write lets the links of what is on its way out be: the device's next NIC would find nothing
            self._links.make(moved, record.key)
        between(moved)
        self._layout.make("nics").remove(f"{record.key}.json")
        return moved

    # -- what does not parse

    def quarantine(self, name: str, why: str) -> None:
        """Moves nics/``name`` to quarantine, bytes intact, and reports it in ``problems``."""
        nics = self._layout.find("nics")
        if nics is None:
            self.problems.append(f"{self.paths.state}/{name} does not parse: {why}")
        else:
            self._put_aside(nics, name, why)

    def _put_aside(self, folder: Folder, name: str, why: str, kind: str = "") -> None:
        """Move a file to quarantine; ``kind`` begins its name there."""
        where = f"{folder.path}/{name}" if name.isascii() and name.isprintable() else escaped(f"{folder.path}/{name}", 400)
        if self.readonly:
            self.problems.append(f"{where} does not parse: {why}")
            return
        try:
            kept = self._layout.make("quarantine")
            stem = f"{kind}{file_name(name)}.{int(folder.modified(name))}"  # room for the time and the counter, however long the name
            number = 0
            while kept.exists(f"{stem}.{number}"):
                number += 1
            folder.move(name, kept, f"{stem}.{number}")
        except HostRefused as error:
            self.problems.append(f"{where} does not parse ({why}) and cannot be moved to quarantine: {error}")
            return
        self.problems.append(f"{where} does not parse ({why}): moved to quarantine/{stem}.{number}")

    def quarantined(self) -> list[str]:
        """The names of the records in quarantine: name, time of its last change (seconds since the epoch), and a counter.

        A file of what is owed is no NIC's that is up: nothing on the host is kept for it.
        """
        kept = self._layout.find("quarantine")
        return [name for name in kept.names() if not name.startswith(OWED)] if kept is not None else []

    def clean_temporary(self, now: float, age: float = 60.0, modified: Callable[[Folder, str], float] = Folder.modified) -> list[str]:
        """Removes temporary files that processes left behind ``age`` seconds ago; ``now`` in seconds since the epoch, as ``modified``."""
        removed = []
        for folder in self._layout.folders():
            for name in folder.temporary():
                if now - modified(folder, name) >= age and folder.remove(name):
                    removed.append(f"{folder.path}/{name}")
        return removed

    def clean_links(self, now: float, age: float = 60.0, modified: Callable[[Folder, str], float] = Folder.modified) -> list[str]:
        """Removes links by device and by instance that have led to no record since ``age`` seconds before ``now``, and empty folders.

        One that a process has left which was killed as it moved a record aside leads to that record again, which is where it was.
        """
        return self._links.clean(now - age, self.exists, self.read, modified)


def is_key(text: str) -> bool:
    """Is it a record's key: a UUID, or a UUID, a dot and an interface's index?"""
    uuid, dot, ifindex = text.partition(".")
    canonical = len(uuid) == 36 and uuid == uuid.lower() and _valid(validate.uuid, uuid)
    return canonical and (not dot or (ifindex.isascii() and ifindex.isdigit() and len(ifindex) <= 10))


def _of_record(name: str) -> bool:
    """Tell whether a file has a record's name."""
    return name.endswith(".json") and is_key(name[:-5])


def _stranger(nics: Folder, name: str) -> str:
    return f"{nics.path}/{escaped(name)} is no record's name: left alone"


def _valid(rule: Callable[[str], str], text: str) -> bool:
    try:
        rule(text)
    except NicInvalid:
        return False
    return True


def _links_of(record: Record) -> tuple[object, ...]:
    """What its links lead from and to."""
    return record.key, record.device, record.nic.instance, record.nic.index
