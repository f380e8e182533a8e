"""Settings that have got another name: what stands in the file under the old one counts, and it is said how it is called now.

Options of NICs are not renamed, since tags of instances and networks name them too: a cluster's tags are not in our hands.
"""

from __future__ import annotations

from runtime.typed import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from typing import Any

    Path = tuple[str, ...]


class Renamed(NamedTuple):
    """One setting that was renamed: its old place in the file, its new one, and the version that brought it.

    A table named "bridges.*" stands for any number of tables, as in netcommon.settings.schema.Key; then both are.
    """

    table: str
    name: str
    new_table: str
    new_name: str
    since: str


#: In the order in which they were renamed: what was renamed twice has two rows. A row stays for as long as its old name is not used anew.
RENAMED: tuple[Renamed, ...] = ()


class Moved(NamedTuple):
    """A file's document with every setting at its new place."""

    document: Mapping[str, Any]
    old: Mapping[Path, Path]  #: new place -> the place in the file
    notes: tuple[str, ...]  #: what to tell the administrator, one line each
    problems: tuple[tuple[Path, str], ...]  #: place in the file, and what is wrong


def moved(document: Mapping[str, Any], rows: Iterable[Renamed] | None = None) -> Moved:
    """``document`` is left as it is. ``rows``: RENAMED."""
    rows = RENAMED if rows is None else tuple(rows)
    changed: dict[str, Any] = dict(document)
    old: dict[Path, Path] = {}
    notes: list[str] = []
    problems: list[tuple[Path, str]] = []
    for row in rows:
        for place in list(_places(changed, row.table, row.name)):
            new = _matching(place, row)
            was = old.pop(place, place)
            value = _take(changed, place)
            if _has(changed, new):
                problems.append((was, f"{'.'.join(was)} is the old name of {'.'.join(new)}, which is there too: take one of them out"))
                continue
            _put(changed, new, value)
            old[new] = was
    for new, was in old.items():
        since = next(row.since for row in reversed(rows) if _matches(new, row.new_table, row.new_name))
        notes.append(f"{'.'.join(was)} is called {'.'.join(new)} since version {since}: rename it in the settings file")
    return Moved(changed, old, tuple(notes), tuple(problems))


def _places(document: Mapping[str, Any], table: str, name: str) -> Iterator[Path]:
    """Where the document has it."""
    outer, star, _ = table.partition(".*")
    body = document.get(outer)
    if not isinstance(body, dict):
        return
    if not star:
        if name in body:
            yield outer, name
        return
    for each, inner in body.items():
        if isinstance(inner, dict) and name in inner:
            yield outer, each, name


def _matches(place: Path, table: str, name: str) -> bool:
    outer, star, _ = table.partition(".*")
    return place[0] == outer and place[-1] == name and len(place) == (3 if star else 2)


def _matching(place: Path, row: Renamed) -> Path:
    """The new place of what stands at ``place``."""
    return (row.new_table.removesuffix(".*"), *place[1:-1], row.new_name)


def _has(document: Mapping[str, Any], place: Path) -> bool:
    here: Any = document
    for step in place:
        if not isinstance(here, dict) or step not in here:
            return False
        here = here[step]
    return True


def _take(document: dict[str, Any], place: Path) -> Any:
    """Takes it out; a table that is empty then goes with it."""
    step = place[0]
    if len(place) == 1:
        return document.pop(step)
    inner = dict(document[step])
    value = _take(inner, place[1:])
    if inner:
        document[step] = inner
    else:
        del document[step]
    return value


def _put(document: dict[str, Any], place: Path, value: Any) -> None:
    step = place[0]
    if len(place) == 1:
        document[step] = value
        return
    inner = document.get(step, {})
    if not isinstance(inner, dict):
        return  # told of as no table
    document[step] = inner = dict(inner)
    _put(inner, place[1:], value)
