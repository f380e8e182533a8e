"""Read a scenario from a file; refuse what is wrong with its line.

A scenario is a TOML document: how many nodes there are, networks, the nodes' settings, and [[steps]], each a task of mockcloud/instances
or a fault, at a time or when so many actions of nodes were run.
"""

from __future__ import annotations

import math
import os
import tomllib
from contextlib import suppress
from functools import partial
from ipaddress import IPv6Network
from typing import TYPE_CHECKING, Any, NamedTuple

from mockcloud.etcd import MOST as MOST_MEMBERS
from mockcloud.hardware import PROFILES
from mockcloud.instances.table import TASKS
from mockcloud.parameters import FIELDS, FLAG, HIGHEST, NUMBER, SEVERAL, TAGS, TEXT, fits
from mockcloud.scenarios.faults import FAULTS, Parameter, commands
from mockcloud.scenarios.lines import Path, line_of, lines
from mockcloud.scenarios.possible import PATTERN, of_network, of_settings, of_task
from mockcloud.underlay import MOST_OTHERS, MOST_SERVERS, OF_REGISTRY, checked
from netregistry.model.codec import Invalid
from runtime.errors import HostRefused, NetcommonError, NicInvalid, escaped

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

LONGEST = 1 << 20  #: bytes
MOST_NODES, MOST_STEPS = 1000, 10_000
LATEST = 10 * 86400.0  #: seconds of virtual time that a scenario may last
SETTLE = 700.0  #: seconds from when all is quiet to the last look: agents compare all with the registry 2 to 10 minutes after their start
EXPECTED = {
    TEXT: "a text",
    NUMBER: f"a whole number from 0 to {HIGHEST}",
    FLAG: "true or false",
    TAGS: "a list of texts",
    FIELDS: "a table of texts",
    SEVERAL: "a list of tables of texts",
}


class ScenarioInvalid(NetcommonError):
    """A scenario file is wrong: every mistake with its line, and what was expected."""

    status = NicInvalid.status
    advice = "docs/mockcloud.md says what a scenario may hold"


class Step(NamedTuple):
    """One step. ``at``: seconds after the beginning; ``step``: or after so many actions. ``what``: the name of the task, or of the fault.

    ``given``: its parameters; a task's may name instances by a pattern, and its node. ``nodes``, ``chance``, ``number``: on which it
    is done: those that match, each by chance, so many of them. ``lasts``: seconds until a fault ends.
    """

    what: str
    at: float = 0.0
    step: int = 0
    given: dict[str, Any] = {}  # noqa: RUF012 - never changed
    nodes: str = "*"
    chance: float = 1.0
    number: int = 0
    lasts: float = 10.0

    @property
    def is_fault(self) -> bool:
        """Tell whether it is a fault, and not a task."""
        return self.what in FAULTS


class Scenario(NamedTuple):
    """All of it. ``settings``: the text of the nodes' config.toml; ``settle``: seconds of calm before the last look; ``etcd``: how many
    members keep the registry, by the clock of this machine; 0: it is in this process, and time is virtual. ``underlay``: with which its
    registry begins, {} for none (mockcloud.underlay).
    """

    nodes: int = 3
    profile: str = "plain"
    settings: str = ""
    settle: float = SETTLE
    networks: dict[str, dict[str, str]] = {}  # noqa: RUF012 - never changed
    steps: tuple[Step, ...] = ()
    etcd: int = 0
    underlay: dict[str, Any] = {}  # noqa: RUF012 - never changed


class Wrong(Exception):
    """A value is wrong; it says what was expected."""


def read(path: str) -> Scenario:
    """Read a file. Raises ScenarioInvalid; HostRefused where it cannot be read."""
    try:
        with open(path, "rb") as file:
            data = file.read(LONGEST + 1)
    except OSError as error:
        raise HostRefused(f"cannot read {escaped(path)}: {error.strerror}") from None
    name = _named(os.path.basename(path))
    if len(data) > LONGEST:
        raise ScenarioInvalid(f"{name}: is larger than {LONGEST} bytes")
    try:
        return parsed(data.decode("utf-8"), name)
    except UnicodeDecodeError as error:
        raise ScenarioInvalid(f"{name}:{data.count(10, 0, error.start) + 1}: is not UTF-8") from None


def parsed(text: str, name: str = "scenario") -> Scenario:
    """Read a scenario. Raises ScenarioInvalid, which says every mistake, one a line."""
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        reason, _, place = str(error).rpartition(" (at ")
        line = int(place[5:].split(",")[0]) if place.startswith("line ") else text.rstrip().count("\n") + 1
        raise ScenarioInvalid(f"{name}:{line}: {reason} in {escaped(text.split(chr(10))[line - 1].strip())}") from None
    except RecursionError:
        raise ScenarioInvalid(f"{name}:1: nested too deeply") from None
    except ValueError:
        raise ScenarioInvalid(f"{name}:1: has a number of thousands of digits") from None
    reader = _Reader(document)
    try:
        found = reader.scenario()
        where = lines(text) if reader.problems else {}
    except RecursionError:
        raise ScenarioInvalid(f"{name}:1: nested too deeply") from None
    if reader.problems:
        told = sorted((line_of(where, path), what) for path, what in reader.problems)
        raise ScenarioInvalid("\n".join(f"{name}:{line}: {what}" for line, what in told))
    return found


def _named(name: str) -> str:
    return name if name.isascii() and name.isprintable() and not set(name) & set(" :'\"") else escaped(name)


class _Reader:
    """Reads a document, and gathers what is wrong with it."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        self._document = document
        self.problems: list[tuple[Path, str]] = []
        self._etcd: int | None = 0  # how many members the etcd has; None: that is wrong
        self._nodes, self._networks = 0, list[str]()

    def scenario(self) -> Scenario:
        made: dict[str, Any] = {}
        keys: dict[str, Callable[[Any], Any]] = {
            "nodes": lambda value: _whole(value, 1, MOST_NODES),
            "profile": lambda value: _one_of(value, PROFILES),
            "etcd": lambda value: _whole(value, 1, MOST_MEMBERS),
            "settings": lambda value: _text(value, False),
            "settle": lambda value: number(value, 0.0, LATEST),
        }
        for key, value in self._document.items():
            if key in keys:
                self._take(made, (), key, value, keys[key])
            elif key not in TABLES:
                self._unknown((key,), key, (*keys, *TABLES))
        self._etcd = made.get("etcd", None if "etcd" in self._document else 0)
        if "settings" in made:
            self.problems += ((("settings",), text) for text in of_settings(made["settings"]))
        self._nodes = made.get("nodes", MOST_NODES if "nodes" in self._document else Scenario().nodes)
        networks = self._tables("networks", self._document.get("networks", {}))
        for name, fields in networks.items():
            self.problems += ((("networks", name, *place), text) for place, text in of_network(name, fields))
        self._networks = [*networks]
        if "underlay" in self._document:
            made["underlay"] = self._underlay(self._document["underlay"])
            self._room(made["underlay"].get("prefix", ""), networks, made.get("nodes", Scenario().nodes))
        steps = self._document.get("steps", [])
        if not isinstance(steps, list) or not all(isinstance(each, dict) for each in steps):
            self.problems.append((("steps",), "steps: expected tables [[steps]]"))
            steps = []
        elif len(steps) > MOST_STEPS:
            self.problems.append((("steps", MOST_STEPS), f"steps: expected at most {MOST_STEPS}"))
            steps = []
        return Scenario(**made, networks=networks, steps=tuple(self._step(("steps", place), each) for place, each in enumerate(steps)))

    def _underlay(self, said: Any) -> dict[str, Any]:
        if not isinstance(said, dict):
            self.problems.append((("underlay",), f"underlay = {escaped(said)}: expected a table [underlay]"))
            return {}
        takes: dict[str, Callable[[Any], Any]] = {name: partial(_of_underlay, name) for name in OF_REGISTRY}
        takes |= {"servers": lambda value: _whole(value, 1, MOST_SERVERS), "others": lambda value: _whole(value, 0, MOST_OTHERS)}
        found: dict[str, Any] = {}
        for key, value in said.items():
            if key in takes:
                self._take(found, ("underlay",), key, value, takes[key])
            else:
                self._unknown(("underlay", key), key, tuple(takes))
        if "prefix" not in said:
            self.problems.append((("underlay",), "underlay: expected prefix = a text"))
        if "servers" in said and self._etcd:
            self.problems.append((("underlay", "servers"), f"servers needs a registry in this process: expected no etcd = {self._etcd}"))
        return found

    def _room(self, prefix: str, networks: Mapping[str, Mapping[str, str]], nodes: int) -> None:
        """Refuse a prefix of an underlay that the registry would refuse for what else there is."""
        if not prefix:
            return
        site, place = IPv6Network(prefix), ("underlay", "prefix")
        for name, fields in networks.items():
            with suppress(ValueError):  # the registry says what is wrong with a network
                if "subnet6" in fields and IPv6Network(fields["subnet6"]).overlaps(site):
                    beside = f"a prefix beside those of networks: {_named(name)} has {fields['subnet6']}"
                    self.problems.append((place, f"prefix = {escaped(prefix)}: expected {beside}"))
        if nodes > (most := 1 << 64 - site.prefixlen):
            few = f"a shorter one: there are {nodes} nodes, and {most} prefixes of /64 in it"
            self.problems.append((place, f"prefix = {escaped(prefix)}: expected {few}"))

    def _tables(self, name: str, said: Any) -> dict[str, dict[str, str]]:
        if not isinstance(said, dict):
            self.problems.append(((name,), f"{name} = {escaped(said)}: expected tables [{name}.NAME]"))
            return {}
        found: dict[str, dict[str, str]] = {}
        for each, fields in said.items():
            place = (name, each)
            if not isinstance(fields, dict):
                self.problems.append((place, f"{name}.{_named(each)} = {escaped(fields)}: expected a table [{name}.NAME]"))
                continue
            found[each] = {}
            for field, value in fields.items():
                if field not in NETWORK:
                    self._unknown((*place, field), field, NETWORK)
                else:
                    self._take(found[each], place, field, value, _text)
        return found

    # -- steps

    def _step(self, place: Path, said: Mapping[str, Any]) -> Step:
        named = [key for key in ("task", "fault") if key in said]
        if len(named) != 1:
            self.problems.append((place, "a step: expected task = NAME or fault = NAME, one of the two"))
            return Step("")
        kind, what = named[0], said[named[0]]
        known: Mapping[str, Any] = TASKS if kind == "task" else FAULTS
        if not isinstance(what, str) or what not in known:
            self.problems.append(((*place, kind), f"{kind} = {escaped(what)}: expected one of {', '.join(known)}"))
            return Step("")
        if "at" in said and "step" in said:
            self.problems.append(((*place, "step"), "a step: expected at = SECONDS or step = NUMBER, one of the two"))
        keys: dict[str, Callable[[Any], Any]] = {
            "at": lambda value: number(value, 0.0, LATEST),
            "step": lambda value: _whole(value, 1, 1 << 31),
            "nodes": _text,
            "chance": lambda value: number(value, 0.0, 1.0),
            "count": lambda value: _whole(value, 1, MOST_NODES),
        }
        takes: dict[str, Callable[[Any], Any]]
        if kind == "fault":
            fault = FAULTS[what]
            takes = {name: of_parameter(each) for name, each in fault.takes.items()}
            keys |= {"for": lambda value: number(value, 0.0, LATEST)} if fault.ends is not None else {}
        else:
            takes = {name: _of_task(sort) for name, sort in TASKS[what].takes.items()}
        made: dict[str, Any] = {}
        given: dict[str, Any] = {}
        for key, value in said.items():
            if key in takes:
                self._take(given, place, key, value, takes[key])
            elif key in keys:
                self._take(made, place, key, value, keys[key])
            elif key != kind:
                self._unknown((*place, key), key, (*takes, *keys))
        self._choosing(place, what, said)
        if kind == "task":
            for key in TASKS[what].needs:
                if key not in said:
                    self.problems.append((place, f"{what}: expected {key} = {takes[key].__doc__ or 'a value'}"))
            self.problems += (((*place, *where), text) for where, text in of_task(what, given, self._networks, self._nodes))
            if what == "update" and said.get("fields") and "nic" not in said:
                self.problems.append(((*place, "fields"), f"update: expected nic = {takes['nic'].__doc__}, whose fields these are"))
        else:
            self._possible(place, what, given)
        for key, field in (("for", "lasts"), ("count", "number")):
            if key in made:
                made[field] = made.pop(key)
        return Step(what, given=given, **made)

    def _choosing(self, place: Path, what: str, said: Mapping[str, Any]) -> None:
        """Refuse what chooses among nodes or instances where nothing is to be chosen."""
        if what in FAULTS:
            why = "" if FAULTS[what].of_node else f"none: {what} strikes the registry, and no node"
        else:
            why = "" if set(str(said.get("name", ""))) & PATTERN else "a name that is a pattern, among whose instances it chooses"
        for key in CHOOSING if why else ():
            if key in said:
                self.problems.append(((*place, key), f"{key} = {escaped(said[key])}: expected {why}"))

    def _possible(self, place: Path, fault: str, given: Mapping[str, Any]) -> None:
        """Refuse a fault that cannot strike the registry that the file says there is."""
        if fault == "names" and "underlay" not in self._document:
            self.problems.append(((*place, "fault"), "names needs name servers: expected a table [underlay]"))
        members = self._etcd
        if members is None:
            return
        if FAULTS[fault].own and members:
            self.problems.append(((*place, "fault"), f"{fault} needs a registry in this process: expected no etcd = {members}"))
        if fault != "etcd":
            return
        if not members:
            self.problems.append(((*place, "fault"), "etcd needs a registry in an etcd: expected etcd = NUMBER before the tables"))
        try:
            commanded = commands(given).lose
        except NicInvalid as wrong:
            self.problems.append(((*place, wrong.variable), str(wrong)))
            return
        if 0 < members < given.get("members", 1) and not commanded:
            self.problems.append(((*place, "members"), f"members = {given['members']}: expected at most {members}, as the etcd has"))

    def _take(self, into: dict[str, Any], place: Path, key: str, value: Any, take: Callable[[Any], Any]) -> None:
        try:
            into[key] = take(value)
        except Wrong as wrong:
            self.problems.append(((*place, key), f"{key} = {escaped(value)}: expected {wrong}"))

    def _unknown(self, place: Path, key: str, known: tuple[str, ...] | list[str]) -> None:
        self.problems.append((place, f"unknown setting {_named(key)}; known: {', '.join(sorted(known))}"))


NETWORK = ("subnet", "subnet6", "gateway", "gateway6")
TABLES = ("underlay", "networks", "steps")
CHOOSING = ("nodes", "chance", "count")  #: on which nodes, or to which instances, a step is done


def _of_underlay(name: str, value: Any) -> Any:
    """Take a field of the registry's underlay. Raises Wrong."""
    try:
        return checked({name: value})[name]
    except Invalid as error:
        raise Wrong(error.expected) from None


def number(value: Any, least: float, most: float) -> float:
    """Take a number within bounds. Raises Wrong."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or not least <= value <= most:
        raise Wrong(f"a number from {least:g} to {most:g}")
    return float(value)


def _whole(value: Any, least: int, most: int) -> int:
    if type(value) is not int or not least <= value <= most:
        raise Wrong(f"a whole number from {least} to {most}")
    return value


def _one_of(value: Any, known: Mapping[str, Any] | tuple[str, ...]) -> str:
    if not isinstance(value, str) or value not in known:
        raise Wrong(f"one of {', '.join(known)}")
    return value


def _text(value: Any, line: bool = True) -> str:
    if not isinstance(value, str) or (line and not value.isprintable()):
        raise Wrong("a text")
    return value


def _of_task(sort: str) -> Callable[[Any], Any]:
    def take(value: Any) -> Any:
        if not fits(sort, value):
            raise Wrong(EXPECTED[sort])
        return value

    take.__doc__ = EXPECTED[sort]
    return take


def of_parameter(parameter: Parameter) -> Callable[[Any], Any]:
    """Give what takes a value of a fault's parameter, or raises Wrong."""

    def take(value: Any) -> Any:
        if parameter.choices:
            return _one_of(value, parameter.choices)
        if isinstance(parameter.default, str):
            return _text(value)
        if isinstance(parameter.default, int):
            return _whole(value, int(parameter.least), int(parameter.most))
        return number(value, parameter.least, parameter.most)

    return take
