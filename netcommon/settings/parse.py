"""The settings file: what it may hold, and reading it with line numbers in every error.

The file is validated as a whole: every error is reported at once, and a file with an error is not used at all.
"""

from __future__ import annotations

import os
import tomllib

from netcommon.options.networks import remedy
from netcommon.options.types import is_interface
from netcommon.settings.deprecated import moved
from netcommon.settings.model import Settings
from netcommon.settings.schema import KEYS
from netcommon.settings.types import is_extension
from runtime.errors import SettingsInvalid, escaped
from runtime.trust import distrust
from runtime.typed import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Set
    from typing import Any

    from netcommon.settings.schema import Key

#: A settings file larger than this is a mistake (bytes).
LARGEST = 1 << 20

Path = tuple[str, ...]

#: What the names of tables must be, where they are not free.
NAMES = {
    "bridges": (is_interface, "interface name (at most 15 bytes)"),
    "extensions": (is_extension, "name of a module (letters, digits, underscores, at most 64)"),
}


class Loaded(NamedTuple):
    """A file read: the settings, the places it gives with their line, and its name."""

    settings: Settings = Settings()
    given: Mapping[Path, int] = {}
    file: str = ""


class Effective(NamedTuple):
    """One effective setting for people: "hook.timeout", its value, and "default" or "config.toml:12"."""

    key: str
    value: object
    source: str


class _Problem(NamedTuple):
    path: Path
    text: str


def read(descriptor: int, path: str) -> Loaded:
    """Reads and validates the open file, and closes it. Raises SettingsInvalid, which lists every error, one a line."""
    file = os.path.basename(path)
    text = _text(descriptor, path)
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        reason, _, place = str(error).rpartition(" (at ")
        line = int(place[5:].split(",")[0]) if place.startswith("line ") else text.rstrip().count("\n") + 1
        wrong = escaped(text.split("\n")[line - 1].strip())
        hint = ': a value is true, false, a number or "a text"' if reason == "Invalid value" else ""
        raise SettingsInvalid(f"{file}:{line}: {reason} in {wrong}{hint}") from None
    except RecursionError:
        raise SettingsInvalid(f"{file}:1: nested too deeply") from None
    except ValueError:
        raise SettingsInvalid(f"{file}:1: has a number of thousands of digits") from None
    try:
        current = moved(document)
        settings, given, problems = _validate(current.document)
        problems += [_Problem(*one) for one in current.problems]
        lines = _lines(text) if problems or given else {}
    except RecursionError:  # dotted keys nest without end, and cost tomllib no recursion
        raise SettingsInvalid(f"{file}:1: nested too deeply") from None
    if problems:
        told = sorted((_line(lines, current.old.get(problem.path, problem.path)), problem.text) for problem in problems)
        raise SettingsInvalid("\n".join(f"{file}:{line}: {what}" for line, what in told))
    settings = settings._replace(renamed=tuple(f"{file}: {note}" for note in current.notes))
    return Loaded(settings, {place: _line(lines, current.old.get(place, place)) for place in given}, file)


def effective(loaded: Loaded) -> list[Effective]:
    """Every setting with its source, in the schema's order."""
    found: list[Effective] = []
    for key in KEYS:
        for path, value in _expanded(key, loaded.settings):
            source = f"{loaded.file}:{loaded.given[path]}" if path in loaded.given else "default"
            found.append(Effective(_dotted(path), value, source))
    return found


def _expanded(key: Key, settings: Settings) -> Iterator[tuple[Path, object]]:
    """The setting's places in the file: one, or one for each table that a "*" stands for."""
    value = getattr(settings, key.field)
    if not key.table.endswith(".*"):
        yield (key.table, key.name), value.get(key.option, key.default) if key.option else value
        return
    for name, one in value.items():
        if not key.option:
            yield (key.table[:-2], name, key.name), one
        elif key.option in one:
            yield (key.table[:-2], name, key.name), one[key.option]


def _text(descriptor: int, path: str) -> str:
    """The file's text; only of a regular file that nobody but its trusted owner can write."""
    try:
        status = os.fstat(descriptor)
        if status.st_mode & 0o170000 != 0o100000:
            raise SettingsInvalid(f"{path}: is not a regular file")
        if status.st_uid and status.st_uid != os.geteuid():
            raise SettingsInvalid(f"{path}: is owned by user {status.st_uid}; expected root (chown root {path})")
        if status.st_mode & 0o002 or (status.st_mode & 0o020 and status.st_gid != 0):
            raise SettingsInvalid(f"{path}: can be written by others than root (chmod go-w {path})")
        data = os.pread(descriptor, LARGEST + 1, 0)
    finally:
        os.close(descriptor)
    if reason := distrust(path):
        raise SettingsInvalid(f"{path}: is not trusted: {reason}")
    if len(data) > LARGEST:
        raise SettingsInvalid(f"{path}: is larger than {LARGEST} bytes")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise SettingsInvalid(f"{os.path.basename(path)}:{data.count(10, 0, error.start) + 1}: is not UTF-8") from None


def _validate(document: Mapping[str, Any]) -> tuple[Settings, set[Path], list[_Problem]]:
    """Every value of the document against the schema."""
    values: dict[str, Any] = {}
    given: set[Path] = set()
    problems: list[_Problem] = []
    tables: dict[str, dict[str, Key]] = {}
    for key in KEYS:
        tables.setdefault(key.table, {})[key.name] = key
    for path, body, keys in _tables(document, tables, problems):
        for name, value in body.items():
            place = (*path, name)
            if name not in keys:
                elsewhere = remedy(name) if path == ("nic",) else ""
                hint = f": expected {elsewhere}" if elsewhere else _suggestion(name, keys.keys())
                problems.append(_Problem(place, f"unknown setting {_dotted(place)}{hint}"))
                continue
            key = keys[name]
            try:
                read = key.kind.read(value)
            except ValueError:
                problems.append(_Problem(place, f"{_dotted(place)} = {escaped(value)}: expected {key.kind.expected}"))
                continue
            given.add(place)
            steps = [key.field, *([path[-1]] if key.table.endswith(".*") else ()), *([key.option] if key.option else ())]
            within = values
            for step in steps[:-1]:
                within = within.setdefault(step, {})
            within[steps[-1]] = read
    settings = Settings(**values)
    if not problems and settings.service_timeout > settings.hook_timeout:
        place = next(place for place in (("hook", "service_timeout"), ("hook", "timeout")) if place in given)
        service, hook = settings.service_timeout, settings.hook_timeout
        problems.append(_Problem(place, f"hook.service_timeout ({service:g}) is more than hook.timeout ({hook:g})"))
    folders = settings.folders
    if not problems and len(set(folders)) != len(folders):
        twice = next(place for name in ("nfdhcpd_folder", "dnsmasq_folder", "dnsmasq_options_folder") if (place := ("dhcp", name)) in given)
        problems.append(_Problem(twice, f"two of the folders of [dhcp] are one: {', '.join(folders)}"))
    return settings, given, problems


def _tables(
    document: Mapping[str, Any], tables: Mapping[str, Mapping[str, Key]], problems: list[_Problem]
) -> Iterator[tuple[Path, Mapping[str, Any], Mapping[str, Key]]]:
    """Each table of the document that the schema knows, with its keys; the others become problems."""
    known = {table.removesuffix(".*") for table in tables}
    for name, body in document.items():
        if name not in known:
            what = f"table [{_dotted((name,))}]" if isinstance(body, dict) else f"setting {_dotted((name,))}"
            problems.append(_Problem((name,), f"unknown {what}{_suggestion(name, known)}"))
        elif not isinstance(body, dict):
            problems.append(_Problem((name,), f"{name} = {escaped(body)}: expected a table [{name}]"))
        elif name in tables:
            yield (name,), body, tables[name]
        else:
            for each, inner in body.items():
                place = (name, each)
                if not isinstance(inner, dict):
                    problems.append(_Problem(place, f"{_dotted(place)} = {escaped(inner)}: expected a table [{name}.NAME]"))
                elif name in NAMES and not NAMES[name][0](each):
                    problems.append(_Problem(place, f"table [{_dotted(place)}]: {escaped(each)} is no {NAMES[name][1]}"))
                elif name == "extensions" and "adds" not in inner:
                    expected = tables["extensions.*"]["adds"].kind.expected
                    problems.append(_Problem(place, f"table [{_dotted(place)}]: expected adds = {expected}"))
                else:
                    yield place, inner, tables[name + ".*"]


def _dotted(path: Path) -> str:
    return ".".join(part if part.isascii() and part.replace("-", "_").isidentifier() else escaped(part) for part in path)


def _suggestion(name: str, known: Set[str]) -> str:
    import difflib  # only an error pays for it

    near = difflib.get_close_matches(name, known, 1, 0.5)
    return f"; did you mean {near[0]}?" if near else f"; known: {', '.join(sorted(known))}"


def _lines(text: str) -> dict[Path, int]:
    """The line at which each table and key of a valid document is first named.

    A statement is the shortest run of lines that parses by itself, which also holds for strings and arrays over several lines.
    """
    found: dict[Path, int] = {}
    table: Path = ()
    pending, first, tried = "", 1, 0
    for number, line in enumerate(text.split("\n"), 1):
        if not pending:
            first = number
        pending += line + "\n"
        tried += len(pending)
        if tried > 2 * LARGEST:
            break  # values over thousands of lines: what comes after them is told by its table's line
        try:
            statement = tomllib.loads(pending)
        except tomllib.TOMLDecodeError:
            continue
        header = pending.lstrip().startswith("[")
        pending = ""
        paths = list(_paths((), statement))
        if header:
            table = paths[-1]
        for path in paths:
            found.setdefault(path if header else table + path, first)
    return found


def _paths(above: Path, value: object) -> Iterator[Path]:
    """Every path of nested tables below ``above``, the outer before the inner."""
    if isinstance(value, list) and value:
        value = value[-1]
    if isinstance(value, dict):
        for name, inner in value.items():
            yield (*above, name)
            yield from _paths((*above, name), inner)


def _line(lines: Mapping[Path, int], path: Path) -> int:
    """The line of ``path``, or of the nearest table around it."""
    while path and path not in lines:
        path = path[:-1]
    return lines.get(path, 1)
