"""Keep what was changed of a NIC while it ran: /var/lib/netcommon/wanted/<uuid>.json. It is stronger than tags, and outlives a reboot.

One object for each NIC, also for those of the cluster that are not here: a guest that comes has its values from its first frame on.

    local      options that somebody has set on this node (netcommon change), the strongest
    registry   those that a registry has set
    revision   of what the registry wants, EPOCH:REVISION; EPOCH:0 where this is not all of it; "" where it has said nothing
    network    the UUID of the NIC's network in the registry; "" for none
    tags       those of a Ganeti cluster's NIC, as the registry was told of them last; null where it was not
    position   that NIC's in its instance by then, by which its tags are read; null where the registry was not told
    ip         the NIC's address in that network, which it may not have before its next start; "" where none was told
    pending    what all of these are to become, while a change is under way; null otherwise. Hooks ignore it

An option has a value, as a tag would give it, and may end by itself: at a time of the boot clock in the boot in which it was set, and in
every other boot by wall time. Both are kept, so that a clock set forward or back keeps nothing for ever. A link ``ends`` holds the
first of all ends, or an earlier time: who looks whether something is due reads that alone.
"""

from __future__ import annotations

from runtime import validate
from runtime.errors import HostRefused, NicInvalid, RecordTooNew, RecordUnreadable, escaped
from runtime.folder import Folder
from runtime.jsontext import dumps, versioned
from runtime.kept import ENDS, LONGEST, SCHEMA, are_tags, is_ip, is_option, is_position, of_json
from runtime.kept import FIELDS as FIELDS_NOW
from runtime.nic import LOCAL, REGISTRY, Changed
from runtime.typed import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from typing import Any

    from runtime.paths import Paths

SEVERAL = "several"  #: the boot of a link where the ends are of several boots
BOOT = 64  #: characters of a boot's id

#: The fields of each schema, beside "schema" and "pending".
FIELDS = {1: ("local", "registry"), SCHEMA: FIELDS_NOW}


class Moment(NamedTuple):
    """One time, by the boot clock (monotonic seconds, of the boot whose id is ``boot``) and by the wall clock (seconds since the epoch)."""

    boot: str
    monotonic: float
    wall: float


#: What a link tells that cannot be read: it is due in every boot.
UNREADABLE = Moment("unreadable", 0.0, 0.0)


class End(NamedTuple):
    """When an option ends by itself, and when it was set."""

    since: Moment
    until: Moment

    def over(self, now: Moment) -> bool:
        """Tell whether it has ended. In another boot a time before that at which it was set tells nothing: then it has ended too."""
        if now.boot == self.until.boot:
            return now.monotonic >= self.until.monotonic
        return not self.since.wall <= now.wall < self.until.wall

    def left(self, now: Moment) -> float:
        """The seconds until then; 0 or less: it has ended."""
        if self.over(now):
            return 0.0
        return self.until.monotonic - now.monotonic if now.boot == self.until.boot else self.until.wall - now.wall


class Entry(NamedTuple):
    """One option that was set: its name, its value as a tag would give it, and when it ends, None for never.

    ``then``: the value that it was set to for good before, and has again after its end; None for none.
    """

    option: str
    value: str
    end: End | None = None
    then: str | None = None

    def at(self, now: Moment) -> Entry | None:
        """Give what is in force of it; None where it has ended."""
        if self.end is None or not self.end.over(now):
            return self
        return None if self.then is None else Entry(self.option, self.then)


class Wanted(NamedTuple):
    """All that is wanted of one NIC beyond what its hypervisor says: by somebody on this node, and by a registry."""

    local: tuple[Entry, ...] = ()
    registry: tuple[Entry, ...] = ()
    revision: str = ""
    network: str = ""
    tags: tuple[str, ...] | None = None
    position: int | None = None
    ip: str = ""
    pending: Wanted | None = None  #: what it is to become, which has nothing pending

    def force(self, now: Moment) -> tuple[Changed, ...]:
        """Give what is in force, weakest first; not what is pending."""
        return tuple(
            _changed(entry, source)
            for source, entries in ((REGISTRY, self.registry), (LOCAL, self.local))
            for each in entries
            if (entry := each.at(now)) is not None
        )

    @property
    def whole(self) -> tuple[Changed, ...]:
        """Give what would be in force if nothing had ended, weakest first."""
        return tuple(_changed(entry, source) for source, entries in ((REGISTRY, self.registry), (LOCAL, self.local)) for entry in entries)

    @property
    def by_registry(self) -> Wanted:
        """The same without what was set on this node."""
        return self._replace(local=(), pending=None)

    def without(self, now: Moment) -> Wanted:
        """The same without what has ended; what that had hidden holds again.

        Where that is anything of a registry's, the rest is not all that it wants, and is kept so (``in_part``): it ends its values itself,
        and a clock that is wrong for a moment, as at a boot, must not end them for good.
        """
        kept = [tuple(one for each in part if (one := each.at(now)) is not None) for part in (self.local, self.registry)]
        revision = self.revision if kept[1] == self.registry else in_part(self.revision)
        return self._replace(local=kept[0], registry=kept[1], revision=revision)

    def rebased(self, now: Moment) -> Wanted:
        """The same, with each end that was set in an earlier boot told by this boot's clock too."""

        def today(one: Entry) -> Entry:
            end = one.end
            if end is None or end.until.boot == now.boot or end.over(now):
                return one
            return one._replace(end=End(end.since, Moment(now.boot, now.monotonic + end.left(now), end.until.wall)))

        return self._replace(local=tuple(map(today, self.local)), registry=tuple(map(today, self.registry)))

    @property
    def empty(self) -> bool:
        return not any(self)


def _changed(entry: Entry, source: str) -> Changed:
    return Changed(entry.option, entry.value, source, until_of(entry))


def until_of(entry: Entry) -> float:
    """Give when an option ends (seconds since the epoch); 0: never."""
    return entry.end.until.wall if entry.end else 0.0


def in_part(revision: str) -> str:
    """Give the revision of a NIC that has not all that a registry wants as of ``revision``: 0 of its epoch, which nobody has."""
    return f"{revision.rpartition(':')[0]}:0" if revision else ""


NOTHING = Wanted()


def to_json(wanted: Wanted) -> bytes:
    """The file's bytes, ASCII."""
    pending = None if wanted.pending is None else _fields(wanted.pending)
    return dumps({"schema": SCHEMA, **_fields(wanted), "pending": pending}).encode("ascii") + b"\n"


def _fields(wanted: Wanted) -> dict[str, object]:
    local, registry = ({one.option: _entry(one) for one in part} for part in (wanted.local, wanted.registry))
    said = {"revision": wanted.revision, "network": wanted.network, "tags": wanted.tags, "position": wanted.position}
    return {"local": local, "registry": registry, **said, "ip": wanted.ip}


def _entry(one: Entry) -> dict[str, object]:
    end = None if one.end is None else {"since": one.end.since._asdict(), "until": one.end.until._asdict()}
    return {"value": one.value, "end": end, "then": one.then}


def from_json(data: bytes) -> Wanted:
    """Reads the bytes of a file. Raises RecordTooNew for a newer version's, RecordUnreadable for whatever else is none."""
    stored = versioned(data, SCHEMA)
    schema = stored.pop("schema")
    if schema not in FIELDS or "pending" not in stored:
        raise RecordUnreadable("not the fields of its schema")
    pending = stored.pop("pending")
    if schema == 1 and pending is not None:  # it was what "local" was to become
        pending = {"local": pending, "registry": stored.get("registry")}
    found = _whole(stored, schema)
    return found if pending is None else found._replace(pending=_whole(pending, schema))


def _whole(stored: Any, schema: int) -> Wanted:
    if not isinstance(stored, dict) or set(stored) != set(FIELDS[schema]):
        raise RecordUnreadable("not the fields of its schema")
    revision, network = stored.get("revision", ""), stored.get("network", "")
    if not (isinstance(revision, str) and (not revision or validate.is_revision(revision))):
        raise RecordUnreadable("revision: not EPOCH:REVISION")
    if not (isinstance(network, str) and (not network or validate.is_uuid(network))):
        raise RecordUnreadable("network: no UUID")
    position = stored.get("position")
    if not is_position(position):
        raise RecordUnreadable("position: no NIC's")
    ip = stored.get("ip", "")
    if not _is_ip(ip):
        raise RecordUnreadable("ip: no address")
    return Wanted(_part(stored["local"]), _part(stored["registry"]), revision, network, _tags(stored.get("tags")), position, ip)


def _is_ip(stored: object) -> bool:
    try:
        return is_ip(stored)
    except NicInvalid:
        return False


def _tags(stored: Any) -> tuple[str, ...] | None:
    try:
        good = are_tags(stored)
    except (TypeError, NicInvalid):
        good = False
    if not good:
        raise RecordUnreadable("tags: no list of tags")
    return of_json(stored)


def _part(stored: Any) -> tuple[Entry, ...]:
    if not isinstance(stored, dict):
        raise RecordUnreadable("a part is no object")
    return tuple(_read_entry(name, each) for name, each in stored.items())


def _read_entry(name: str, stored: Any) -> Entry:
    if not (isinstance(stored, dict) and set(stored) == {"value", "end", "then"} and isinstance(stored["value"], str)):
        raise RecordUnreadable(f"{escaped(name)}: not a value, an end, and what holds then")
    if not is_option(name):
        raise RecordUnreadable(f"{escaped(name)} is no option's name")
    end, then = stored["end"], stored["then"]
    if not (then is None or (isinstance(then, str) and end is not None)):
        raise RecordUnreadable(f"{name}: what holds after its end is none")
    if end is None:
        return Entry(name, stored["value"])
    if not isinstance(end, dict) or set(end) != {"since", "until"}:
        raise RecordUnreadable(f"{name}: its end is none")
    return Entry(name, stored["value"], End(_moment(name, end["since"]), _moment(name, end["until"])), then)


def _moment(name: str, stored: Any) -> Moment:
    if not isinstance(stored, dict) or set(stored) != set(Moment._fields) or type(stored["boot"]) is not str:
        raise RecordUnreadable(f"{name}: no time")
    times = [stored[field] for field in ("monotonic", "wall")]
    if not all(type(each) in (int, float) and plausible(each) for each in times):
        raise RecordUnreadable(f"{name}: no time in seconds")
    boot = stored["boot"]
    if not (boot.isascii() and boot.isprintable() and 0 < len(boot) <= BOOT and " " not in boot):  # it goes into a link
        raise RecordUnreadable(f"{name}: {escaped(boot)} is no boot's id")
    return Moment(boot, float(times[0]), float(times[1]))


# -- the folder


def read(paths: Paths, uuid: str, problems: list[str], readonly: bool = False) -> Wanted:
    """Read what was changed of the NIC; nothing where there is no file.

    A file that is damaged goes to quarantine (not if ``readonly``), and one of a newer version stays: ``problems`` says so, and nothing
    counts as changed.

    Raises HostRefused where the folder cannot be read, or others could have written there.
    """
    folder = Folder.find(paths.wanted)
    if folder is None:
        return NOTHING
    with folder:
        return _read(folder, uuid, problems, readonly)


def refuse_newer(paths: Paths, uuid: str) -> None:
    """Raise RecordTooNew where a newer version has written what was changed of the NIC: who writes it anew would lose that."""
    folder = Folder.find(paths.wanted)
    if folder is not None:
        with folder:
            try:
                _parsed(folder, uuid)
            except RecordTooNew as error:
                raise RecordTooNew(f"{folder.path}/{uuid}.json: {error}") from None
            except RecordUnreadable:
                pass  # read() puts it aside


def _parsed(folder: Folder, uuid: str) -> Wanted:
    data = folder.read(f"{uuid}.json", LONGEST)
    return NOTHING if data is None else from_json(data)


def _read(folder: Folder, uuid: str, problems: list[str], readonly: bool = False) -> Wanted:
    name = f"{uuid}.json"
    try:
        return _parsed(folder, uuid)
    except RecordTooNew as error:
        problems.append(f"{folder.path}/{name} is left alone: {error}")
    except RecordUnreadable as error:
        problems.append(folder.damaged(name, str(error), "the NIC has its tags' and settings' options", readonly))
    return NOTHING


def write(paths: Paths, uuid: str, wanted: Wanted) -> None:
    """Writes it, to outlive a power failure; nothing to say means no file. Raises HostRefused."""
    validate.uuid(uuid)
    with Folder.make(paths.wanted, sync=True) as folder:
        if wanted.empty:
            folder.remove(f"{uuid}.json")
            folder.flush()
        else:
            folder.write(f"{uuid}.json", to_json(wanted), sync=True)
        _note_end(folder, wanted)


def remove(paths: Paths, uuid: str) -> bool:
    """Forgets what was changed of the NIC; True if there was anything. Raises HostRefused."""
    folder = Folder.find(paths.wanted)
    if folder is None:
        return False
    with folder:
        gone = folder.remove(f"{validate.uuid(uuid)}.json")
        if gone:
            folder.flush()
        return gone


def uuids(paths: Paths) -> list[str]:
    """List the NICs of which anything was changed, without a look at what. Raises HostRefused."""
    folder = Folder.find(paths.wanted)
    if folder is None:
        return []
    with folder:
        return _uuids(folder)


def all_of(paths: Paths, problems: list[str]) -> dict[str, Wanted]:
    """Everything that was changed, by the NICs' UUIDs. Raises HostRefused."""
    folder = Folder.find(paths.wanted)
    if folder is None:
        return {}
    with folder:
        return {uuid: found for uuid in _uuids(folder) if not (found := _read(folder, uuid, problems)).empty}


def first_end(paths: Paths) -> Moment | None:
    """Tell before when no option ends; None if none does. A link that says nothing is due at once. The look costs next to nothing."""
    folder = Folder.find(paths.wanted)
    if folder is None:
        return None
    with folder:
        return _told(folder)


def _told(folder: Folder) -> Moment | None:
    """Read the link. Whatever else is in its place, or is no time, is due at once: whoever looks then makes it anew."""
    told = folder.target(ENDS)
    if not told and not folder.exists(ENDS):
        return None
    try:
        boot, monotonic, wall = told.split(" ")
        found = Moment(boot, float(monotonic), float(wall))
    except ValueError:
        return UNREADABLE
    return found if boot and plausible(found.monotonic) and plausible(found.wall) else UNREADABLE


def plausible(seconds: float) -> bool:
    """Tell whether this is a time: NaN and infinity do not pass the comparison."""
    return 0 <= seconds <= 1e15


def due(paths: Paths, now: Moment) -> bool:
    """Tell whether an option may have ended. Raises HostRefused."""
    end = first_end(paths)
    return end is not None and (now.boot != end.boot or now.monotonic >= end.monotonic)


def over(paths: Paths, now: Moment) -> bool:
    """Tell whether an option has ended, for who leaves files as they are. Raises HostRefused.

    In another boot than that of the ends, wall time tells. So a hook has nothing to do after a reboot, before the first end.
    """
    end = first_end(paths)
    return end is not None and (now.monotonic >= end.monotonic if now.boot == end.boot else now.wall >= end.wall)


def note_ends(paths: Paths) -> list[str]:
    """Make the link of the first end anew, by all files, if it is another one; list the NICs of which a change is pending.

    Raises HostRefused.
    """
    folder = Folder.find(paths.wanted)
    if folder is None:
        return []
    with folder:
        return _note_ends(folder)


def _note_end(folder: Folder, wanted: Wanted) -> None:
    """Make the link tell of the ends of one file, which has just been written.

    A link that tells of an earlier end stays: whoever looks then makes it anew. So a change of one NIC reads the file of no other.
    """
    told, untils = _told(folder), [end.until for end in ends(wanted)]
    if told == UNREADABLE:
        try:
            _note_ends(folder)
        except HostRefused:
            pass  # it is due at once as it is, so no end is missed
    elif any(told is None or end.wall < told.wall or _unlike(end, told) for end in untils):
        _note_ends(folder)


def _unlike(end: Moment, told: Moment) -> bool:
    return told.boot != SEVERAL and (end.boot != told.boot or end.monotonic < told.monotonic)


def _note_ends(folder: Folder) -> list[str]:
    """Make the link tell of the first end. Each clock's is told by itself. Lists the NICs of which a change is pending.

    Ends of several boots cannot be compared by their boots' clocks: then it tells of no boot, and is due at once, but for ``over``.

    No lock is held: another process may write a file, and read the link, between our look at the files and our change of the link. So
    the files are read again after each change, until the link is what they say.
    """
    if not folder.target(ENDS) and folder.exists(ENDS):
        folder.put_aside(ENDS)  # such as a folder: no link could replace that
    while True:
        untils, pending = list[Moment](), list[str]()
        for uuid in _uuids(folder):
            there = _read(folder, uuid, [], readonly=True)
            untils += [end.until for end in ends(there)]
            pending += [uuid] if there.pending is not None else []
        if not untils:
            if not folder.remove(ENDS):
                return pending
            continue
        boots = {until.boot for until in untils}
        monotonic, wall = min(until.monotonic for until in untils), min(until.wall for until in untils)
        target = f"{boots.pop() if len(boots) == 1 else SEVERAL} {monotonic:.6f} {wall:.6f}"
        if folder.target(ENDS) == target:
            return pending
        folder.link(ENDS, target)


def ends(wanted: Wanted) -> Iterator[End]:
    """Give all ends of a NIC, of what is pending too."""
    pending = wanted.pending or NOTHING
    return (entry.end for part in (*wanted[:2], *pending[:2]) for entry in part if entry.end is not None)


def _uuids(folder: Folder) -> list[str]:
    return [name[:-5] for name in folder.names() if name.endswith(".json") and validate.is_uuid(name[:-5])]


def changed(entries: Iterable[Entry], sets: Mapping[str, str], unset: Iterable[str], end: End | None) -> tuple[Entry, ...]:
    """``entries`` with some options set, all of which end at ``end``, and others unset."""
    entries, unset = list(entries), set(unset)
    kept = [one for one in entries if one.option not in sets and one.option not in unset]
    lasting = {one.option: one.value if one.end is None else one.then for one in entries} if end is not None else {}
    return (*kept, *(Entry(option, value, end, lasting.get(option)) for option, value in sets.items()))
