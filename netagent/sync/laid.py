"""Say as values what a node's synchronisation has to do with an underlay (netagent.sync.messages has the rest)."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

LARGEST = 600_000  #: bytes of a node's endpoints in one request


class Had(NamedTuple):
    """Hold an endpoint that the node was told."""

    cluster: str
    instance: str
    kind: str
    address: str
    retired: bool = False


class Standing(NamedTuple):
    """Hold what of the underlay is there on the node: by which generation of what was told, and which addresses.

    ``prefix``: that the node was told that it has; ``had``: the endpoints that it was told, and ``epoch``: in which.
    ``arriving``: instances whose guests are on their way here by Ganeti's files.
    """

    generation: int = 0
    addresses: tuple[str, ...] = ()
    prefix: str = ""
    had: tuple[Had, ...] = ()
    epoch: str = ""
    arriving: tuple[str, ...] = ()

    def shown(self, prefix: bool) -> Standing:
        """Give what the registry has of it again. ``prefix``: it takes that, too."""
        return Standing(self.generation, self.addresses, self.prefix if prefix else "", arriving=self.arriving)

    def said(self, prefix: bool, first: bool) -> dict[str, Any]:
        """Give it as it is said. ``prefix``: of that as well; ``first``: and all that the node had before this epoch."""
        found: dict[str, Any] = {"generation": self.generation, "addresses": list(self.addresses)}
        if self.arriving:
            found["arriving"] = list(self.arriving)
        if prefix and self.prefix:
            found["prefix"] = self.prefix
            found |= {"had": list(_fitting(self.had))} if first and self.had else {}
        return found


def _fitting(had: tuple[Had, ...]) -> Iterator[dict[str, Any]]:
    """Give as many as have room in one request, those to which names lead first: a registry takes a mebibyte."""
    room = LARGEST
    for each in sorted(had, key=lambda each: each.retired):
        said = each._asdict()
        room -= len(json.dumps(said))
        if room < 0:
            return
        yield said


class UnderlayMarked(NamedTuple):
    """Say that what is there of the underlay on the node has changed."""


class SetUnderlay(NamedTuple):
    """Keep what is said of the node's underlay; ``value`` is the registry's, fields that are unknown included."""

    key: tuple[str, str]
    value: Mapping[str, Any]
    revision: str


class DropUnderlay(NamedTuple):
    """Forget what was said of the node's underlay: the node has none any more."""

    key: tuple[str, str]
    revision: str
