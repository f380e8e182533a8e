"""Names of routing tables, as iproute2 knows them (ip-route(8), /etc/iproute2/rt_tables)."""

from __future__ import annotations

import os

from runtime.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

BUILT_IN = {"local": 255, "main": 254, "default": 253}
LAST = 0xFFFFFFFF
CHAINS = 256


def number_of(text: str) -> int | None:
    """A table number, decimal or 0x...; None for anything else, 0 (no table) and leading zeros (octal to iproute2) included."""
    if not text.isascii() or len(text) > 10:
        return None
    if text.isdigit() and text[0] != "0":
        value = int(text)
    elif text[:2].lower() == "0x" and text[2:].isalnum():
        try:
            value = int(text[2:], 16)
        except ValueError:
            return None
    else:
        return None
    return value if 0 < value <= LAST else None


class Tables:
    """Reads the files once, when first asked for a name."""

    def __init__(self, folders: Sequence[str]) -> None:
        """``folders``: where rt_tables and rt_tables.d/*.conf may lie."""
        self._folders = folders
        self._names: dict[str, int] | None = None

    def number(self, name: str) -> int | None:
        """The table's number, None if there is none of that name.

        Of several numbers of one name it is that which ip(8) takes, which has them in a hash of 256 chains by number: the first chain
        counts, and in that the number that was read last (iproute2, lib/rt_names.c).
        """
        known = self.names().get(name)
        return number_of(name) if known is None else known

    def names(self) -> Mapping[str, int]:
        """Give all tables that have a name, with their numbers."""
        if self._names is None:
            names = dict(BUILT_IN)
            for folder in self._folders:
                for file in _files(folder):
                    for each, number in _entries(file):
                        if each not in names or number % CHAINS <= names[each] % CHAINS:
                            names[each] = number
            self._names = names
        return self._names


def _files(folder: str) -> Iterator[str]:
    yield folder + "/rt_tables"
    try:
        parts = sorted(os.listdir(folder + "/rt_tables.d"))
    except OSError:
        return
    for part in parts:
        if part.endswith(".conf") and not part.startswith("."):
            yield f"{folder}/rt_tables.d/{part}"


def _entries(file: str) -> Iterator[tuple[str, int]]:
    """Pairs of name and number; lines that make no sense are passed over, as ip(8) does."""
    try:
        with open(file, encoding="utf-8", errors="surrogateescape") as lines:
            for line in lines:
                words = line.split("#", 1)[0].split()
                number = number_of(words[0]) if len(words) == 2 else None
                if number is not None:
                    yield words[1], number
    except OSError:
        return
