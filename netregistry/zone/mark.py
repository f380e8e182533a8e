"""Say in the zone itself whose it is and how far it is: one TXT record at ``_generation.ZONE``, which every update tests and replaces.

An underscore keeps it apart from every host name (RFC 8552). ``part`` is not 0 while a server is brought from one generation to another in
several messages: what is there then is no generation's, and whoever finds it reads the zone whole. No text ever comes twice with another
meaning: generations go up, and so do the parts below one.
"""

from __future__ import annotations

from typing import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

LABEL = "_generation"
WORD = "netcommon"
FIELDS = ("registry", "epoch", "generation", "part", "over")
LONGEST = 20  #: digits of a number
UNUSUAL = frozenset('"\\')  #: characters that a zone file escapes


class Mark(NamedTuple):
    """Tell whose a zone is (``owner``: which registry's), of which of its epochs, and how far.

    ``over``: from which epoch the zone was taken, "" for none: by that a service of that epoch tells a living copy from a snapshot.
    """

    owner: str
    epoch: str
    generation: int
    part: int = 0
    over: str = ""

    @property
    def strings(self) -> tuple[str, ...]:
        """Give the TXT record's strings."""
        said = tuple(f"{name}={value}" for name, value in zip(FIELDS, self, strict=True))
        return (WORD, *said[:3], *(each for each, value in zip(said[3:], self[3:], strict=True) if value))

    @property
    def text(self) -> str:
        """Give the TXT record in a zone file's spelling."""
        return " ".join(f'"{each}"' for each in self.strings)

    def behind(self, there: Mark | None) -> Mark:
        """Give it as it takes the place of another one; what was taken over stays said as long as the epoch lasts."""
        if there is None:
            return self
        return self._replace(over=there.over if there.epoch == self.epoch else there.epoch)


def read(strings: Sequence[str]) -> Mark | None:
    """Give the mark that a TXT record is; None where it is not word for word what would be written here."""
    said = dict(each.partition("=")[::2] for each in strings[1:])
    if not {"registry", "epoch", "generation"} <= said.keys():
        return None
    try:
        mark = Mark(said["registry"], said["epoch"], _number(said["generation"]), _number(said.get("part", "0")), said.get("over", ""))
    except ValueError:
        return None
    plain = all(each.isascii() and each.isprintable() and not UNUSUAL & set(each) for each in strings)
    return mark if plain and mark.strings == tuple(strings) else None


def _number(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) <= LONGEST):
        raise ValueError
    return int(text)


def name_of(zone: str) -> str:
    """Give the name at which the mark of a zone stands."""
    return f"{LABEL}.{zone}"
