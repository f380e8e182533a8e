"""A NIC's record: what was received, what is done on the host for it, and how far that got; and its JSON form."""

from __future__ import annotations

from runtime.environment import environment_of, nic_from_environment
from runtime.errors import NicInvalid, RecordTooNew, RecordUnreadable, escaped
from runtime.jsontext import Decoder, dumps
from runtime.nic import LOCAL, REGISTRY, Changed
from runtime.typed import TYPE_CHECKING, NamedTuple
from runtime.validate import is_revision

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from runtime.nic import NetworkWanted, Nic

#: Raised whenever an operation gets a field: an older version cannot read such a record, and has to leave it alone as a whole.
SCHEMA = 8

#: The longest record that is read or written, in bytes; one that is changing holds two.
LONGEST = 4 << 20

#: The life of a record. Only "up" is final; a record in another state whose lock nobody holds belongs to a hook that died,
#: except "closing", which waits for its device to go. One that is "changing" is up, and goes back to what it was before if need be.
APPLYING, UP, CHANGING, CLOSING, REVERTING = "applying", "up", "changing", "closing", "reverting"
STATES = (APPLYING, UP, CHANGING, CLOSING, REVERTING)


class Record(NamedTuple):
    """The record of one NIC on one device, as kept in nics/<uuid>.json."""

    nic: Nic
    ifindex: int
    boot: str  #: /proc/sys/kernel/random/boot_id
    netns: int  #: SO_NETNS_COOKIE
    state: str = APPLYING
    operations: tuple[Mapping[str, object], ...] = ()  #: in JSON form, kinds we do not know included
    door: str = ""  #: who called: "kvm-ifup", "cli", ...
    scripts: bool = False  #: the custom ifup scripts were begun, so the ifdown scripts are owed
    created: float = 0.0  #: seconds since the epoch; for people, never for decisions
    monotonic: float = 0.0  #: seconds since boot, when it came up
    schema: int = SCHEMA  #: of the file that it was read from; it is always written with the newest
    moved: bool = False  #: it lies in nics/<uuid>.<ifindex>.json, since the NIC has come up on another device
    incoming: bool = False  #: its guest is still migrating in: what may be on one node only is owed
    by_settings: Mapping[str, object] | None = None  #: options that the settings gave it, by name; None where an older version wrote it
    before: Record | None = None  #: the record as it was before the change that "changing" means; None in every other state
    ganeti: bool = True  #: its guest may be a Ganeti cluster's; also where an older version wrote it

    @property
    def uuid(self) -> str:
        return self.nic.uuid

    @property
    def device(self) -> str:
        return self.nic.interface

    @property
    def closing(self) -> bool:
        """Tell whether its device is waited for to go; one that is changing is brought back to that."""
        return CLOSING in (self.state, self.before.state if self.before is not None else "")

    @property
    def described_anew(self) -> bool:
        """Tell whether the change that it is in is one of the NIC's own description, of which the site's scripts are told."""
        return self.before is not None and self.before.nic.description != self.nic.description

    def closed(self, moved: bool = False) -> Record:
        """Give the record of a NIC whose guest shuts down, or that has come up on another device (``moved``)."""
        before = self.before
        if before is None:
            return self._replace(state=CLOSING, moved=moved or self.moved)
        return self._replace(before=before.closed(moved), moved=moved or self.moved)

    @property
    def key(self) -> str:
        """The record's file name without ".json", also its name among a shared key's owners."""
        return f"{self.uuid}.{self.ifindex}" if self.moved else self.uuid


def to_json(record: Record) -> bytes:
    """The record as ASCII JSON: the NIC as validated, and beside it the environment exactly as given.

    Raises NicInvalid where the environment is too large to keep.
    """
    before, own = record.before, _document(record)
    data = dumps(own).encode("ascii")
    if len(data) > LONGEST:
        raise NicInvalid("environment", f"{len(data)} bytes as JSON", f"at most {LONGEST} bytes for all variables together")
    return data if before is None else dumps(own | {"before": _document(before)}).encode("ascii")


def _document(record: Record) -> dict[str, object]:
    """Give the record as a JSON object, without what it was before."""
    nic = record.nic
    own = {"schema": SCHEMA, "nic": environment_of(nic), "environment": dict(nic.environment), "wanted": nic.wanted, "before": None}
    if nic.revision:  # an older version does without this and the next
        own["revision"] = nic.revision
    if nic.told is not None:
        from runtime.kept import document

        own["told"] = document(nic.told)
    return record._asdict() | own


def from_json(data: bytes) -> Record:
    """Reads a record of this schema or an older one.

    Raises RecordTooNew for a newer schema, and RecordUnreadable for whatever else is not a record: no other error.
    """
    if len(data) > 2 * LONGEST:
        raise RecordUnreadable(f"{len(data)} bytes are more than a record's {2 * LONGEST}")
    try:
        stored = Decoder(_once).whole(data.decode("ascii"))
    except (ValueError, RecursionError) as error:
        raise RecordUnreadable(f"not JSON: {_line(error)}") from None
    if not isinstance(stored, dict):
        raise RecordUnreadable("not a JSON object")
    schema = written = _typed(stored, "schema", int)
    if schema > SCHEMA:
        raise RecordTooNew(
            f"schema {schema} is newer than {SCHEMA}, the newest this version knows: it is left alone; install the version that wrote it, "
            "or a later one"
        )
    while schema < SCHEMA:
        upgrade = UPGRADES.get(schema)
        if upgrade is None:
            raise RecordUnreadable(f"schema {schema} is unknown")
        stored = upgrade(stored)
        schema += 1
    return _record(stored)._replace(schema=written)


def _from_0(stored: dict[str, Any]) -> dict[str, Any]:
    """Schema 0 knew neither scripts nor moved records, and had the door's name not yet."""
    return {"scripts": False, "moved": False, "door": ""} | stored


def _from_1(stored: dict[str, Any]) -> dict[str, Any]:
    """Schema 1 set up incoming guests whole."""
    return {"incoming": False} | stored


def _from_2(stored: dict[str, Any]) -> dict[str, Any]:
    """Schema 2 had fewer fields in its operations, which are read with their defaults."""
    return stored


def _from_3(stored: dict[str, Any]) -> dict[str, Any]:
    """Schema 3 had no operations that wait for what the host lacks."""
    return stored


def _from_4(stored: dict[str, Any]) -> dict[str, Any]:
    """Schema 4 had fewer fields in its operations, which are read with their defaults."""
    return stored


def _from_6(stored: dict[str, Any]) -> dict[str, Any]:
    """Schema 6 had no operations of a whole network, and fewer fields in those of files, which are read with their defaults."""
    return stored


def _from_5(stored: dict[str, Any]) -> dict[str, Any]:
    """Schema 5 kept neither what a NIC was before a change, nor options that were changed while it ran."""
    return {"before": None, "wanted": []} | stored


def _from_7(stored: dict[str, Any]) -> dict[str, Any]:
    """Schema 7 had fewer fields in the operations of Open vSwitch, which are read with their defaults."""
    return stored


#: From each older schema to the next one.
UPGRADES: dict[int, Callable[[dict[str, Any]], dict[str, Any]]] = dict(
    enumerate((_from_0, _from_1, _from_2, _from_3, _from_4, _from_5, _from_6, _from_7))
)


def _record(stored: Mapping[str, Any]) -> Record:
    made, earlier = _alone(stored), stored.get("before")
    if (made.state == CHANGING) != (earlier is not None):
        raise RecordUnreadable(f"state is {made.state}, and before is {'there' if earlier is not None else 'not there'}")
    if earlier is None:
        return made
    before = _alone(_typed(stored, "before", dict))
    if before.state not in (UP, CLOSING) or _place(before) != _place(made):
        raise RecordUnreadable("before: not of the same NIC on the same device, or neither up nor closing")
    return made._replace(before=before)


def _place(record: Record) -> tuple[object, ...]:
    return record.uuid, record.device, record.ifindex, record.boot, record.netns, record.moved


def _alone(stored: Mapping[str, Any]) -> Record:
    """Read all but what it was before."""
    try:
        nic = nic_from_environment(_texts(stored, "nic"))
    except NicInvalid as error:
        raise RecordUnreadable(f"nic: {error}") from None
    state = _typed(stored, "state", str)
    if state not in STATES:
        raise RecordUnreadable(f"state is {escaped(state)}, not one of {', '.join(STATES)}")
    operations = _typed(stored, "operations", list)
    if not all(isinstance(item, dict) and isinstance(item.get("kind"), str) for item in operations):
        raise RecordUnreadable("operations: not a list of objects with a kind")
    return Record(
        nic=nic._replace(environment=_texts(stored, "environment"), wanted=_wanted(stored), revision=_revision(stored), told=_told(stored)),
        ifindex=_number(stored, "ifindex"),
        boot=_typed(stored, "boot", str),
        netns=_number(stored, "netns"),
        state=state,
        operations=tuple(operations),
        door=_typed(stored, "door", str),
        scripts=_typed(stored, "scripts", bool),
        created=_seconds(stored, "created"),
        monotonic=_seconds(stored, "monotonic"),
        moved=_typed(stored, "moved", bool),
        incoming=_typed(stored, "incoming", bool),
        by_settings=_options(stored.get("by_settings")),
        ganeti=_typed(stored, "ganeti", bool) if "ganeti" in stored else True,
    )


def _options(stored: object) -> Mapping[str, object] | None:
    """Read options by name, whichever there are; lists are tuples, as settings have them."""
    if stored is None:
        return None
    if not isinstance(stored, dict):
        raise RecordUnreadable("by_settings: not an object")
    return {name: _option(value) for name, value in stored.items()}


def _option(value: object) -> object:
    if isinstance(value, list) and all(isinstance(each, str) for each in value):
        return tuple(value)
    if not isinstance(value, (bool, int, float, str)):
        raise RecordUnreadable("by_settings: not the value of an option")
    return value


def _wanted(stored: Mapping[str, Any]) -> tuple[Changed, ...]:
    rows = _typed(stored, "wanted", list)
    for row in rows:
        if not (isinstance(row, list) and len(row) == len(Changed._fields) and all(isinstance(each, str) for each in row[:3])):
            raise RecordUnreadable("wanted: not a list of options")
        if row[2] not in (LOCAL, REGISTRY) or type(row[3]) not in (int, float) or not 0 <= row[3] <= 1e15:
            raise RecordUnreadable("wanted: not a list of options")
    return tuple(Changed(row[0], row[1], row[2], float(row[3])) for row in rows)


def _revision(stored: Mapping[str, Any]) -> str:
    text = stored.get("revision", "")
    if not (isinstance(text, str) and (not text or is_revision(text))):
        raise RecordUnreadable("revision: not EPOCH:REVISION")
    return text


def _told(stored: Mapping[str, Any]) -> NetworkWanted | None:
    if stored.get("told") is None:
        return None
    from runtime import kept  # few NICs' networks are a registry's

    told = _typed(stored, "told", dict)
    last = _last_told[0]  # other threads read records too
    if last is None or last[0] != told:
        last = _last_told[0] = told, kept.told(told) or _told_in_full(told)
    return last[1]


#: What a record last told of a network, and what that is: a down reads its record five times, and many NICs of a node are in one network.
_last_told: list[tuple[Mapping[str, Any], NetworkWanted] | None] = [None]


def _told_in_full(told: Mapping[str, Any]) -> NetworkWanted:
    from runtime.networks import stored_of  # where it is not as this version writes it

    try:
        return stored_of(_typed(told, "uuid", str), _typed(told, "revision", str), told)
    except NicInvalid as error:
        raise RecordUnreadable(f"told: {error}") from None


def _typed(stored: Mapping[str, Any], field: str, kind: type) -> Any:
    value = stored.get(field)
    # bool is an int to isinstance
    if type(value) is not kind:
        raise RecordUnreadable(f"{field}: not there, or no {kind.__name__}")
    return value


def _number(stored: Mapping[str, Any], field: str) -> int:
    value: int = _typed(stored, field, int)
    if not 0 <= value < 1 << 64:
        raise RecordUnreadable(f"{field}: out of range")
    return value


def _seconds(stored: Mapping[str, Any], field: str) -> float:
    value = stored.get(field)
    # NaN and infinity do not pass the comparison
    if not (isinstance(value, (int, float)) and type(value) is not bool and abs(value) <= 1e15):
        raise RecordUnreadable(f"{field}: not a time in seconds")
    return float(value)


def _texts(stored: Mapping[str, Any], field: str) -> dict[str, str]:
    value: dict[str, str] = _typed(stored, field, dict)
    if not all(isinstance(item, str) for item in value.values()):
        raise RecordUnreadable(f"{field}: not an object of strings")
    names = "".join(value)
    try:
        # scripts are given it again: only what os.environ may hold (surrogates stand for bytes that are no UTF-8) can be
        usable = b"\0" not in (names + "".join(value.values())).encode("utf-8", "surrogateescape") and "=" not in names and "" not in value
    except UnicodeEncodeError:
        usable = False
    if not usable:
        raise RecordUnreadable(f"{field}: not an environment")
    return value


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        raise ValueError("a name stands twice in one object")
    return made


def _line(error: BaseException) -> str:
    return escaped(str(error) or type(error).__name__)
