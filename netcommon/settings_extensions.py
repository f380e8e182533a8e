"""Kinds of the [extensions.NAME] settings."""

from __future__ import annotations

from math import isfinite

from runtime.typed import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from typing import Any

LONGEST = 64  #: characters of an extension's name


class Parameters(NamedTuple):
    """A table of the site's own: plain values, and lists of them, which become tuples."""

    @property
    def expected(self) -> str:
        return "a table of strings, numbers, true or false, and lists of those"

    def read(self, value: Any) -> object:
        if not isinstance(value, dict):
            raise ValueError
        return {name: _plain(each) for name, each in value.items()}


def _plain(value: object) -> object:
    if isinstance(value, list) and not any(isinstance(each, list) for each in value):
        return tuple(map(_plain, value))
    if type(value) not in (str, int, float, bool) or (isinstance(value, float) and not isfinite(value)):
        raise ValueError
    return value


def is_extension(name: str) -> bool:
    """Whether a module can be called so: ASCII letters, digits and underscores, not a digit or an underscore first."""
    return name.isascii() and name.isidentifier() and name[0] != "_" and len(name) <= LONGEST
