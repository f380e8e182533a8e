"""Find the lines of a TOML document at which its tables and keys stand, for whoever says what is wrong with them."""

from __future__ import annotations

import tomllib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

MOST = 1 << 21  #: characters that are looked at: of a value over thousands of lines each line is parsed with those before

#: Names of tables and keys; a table of an array has its number, from 0, behind the array's name.
Path = tuple[str | int, ...]


def lines(text: str) -> dict[Path, int]:
    """Give the line of each table and of each key in it. The document is a valid one."""
    found: dict[Path, int] = {}
    numbers: dict[str, int] = {}
    table: Path = ()
    pending, first, tried = "", 1, 0
    for number, line in enumerate(text.split("\n"), 1):
        first = first if pending else number
        pending += line + "\n"
        tried += len(pending)
        if tried > MOST:
            break
        try:
            statement = tomllib.loads(pending)
        except tomllib.TOMLDecodeError:
            continue
        said, pending = pending.lstrip(), ""
        if said.startswith("["):
            table = _header(statement, numbers, said.startswith("[["))
            found.setdefault(table, first)
        else:
            for name in statement:
                found.setdefault((*table, name), first)
    return found


def line_of(found: Mapping[Path, int], path: Path) -> int:
    """Give the line of a place, or of the nearest table around it."""
    while path and path not in found:
        path = path[:-1]
    return found.get(path, 1)


def _header(statement: dict[str, Any], numbers: dict[str, int], array: bool) -> Path:
    path: Path = ()
    inner: Any = statement
    while isinstance(inner, dict) and inner:
        ((name, inner),) = inner.items()
        path = (*path, name)
        if isinstance(inner, list):
            inner = inner[0]
        if name in numbers and not (array and inner == {}):
            path = (*path, numbers[name])
    if array:
        name = str(path[-1])
        numbers[name] = numbers.get(name, -1) + 1
        path = (*path, numbers[name])
    return path
