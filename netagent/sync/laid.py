"""Say as values what a node's synchronisation has to do with an underlay (netagent.sync.messages has the rest)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping


class Standing(NamedTuple):
    """Hold what of the underlay is there on the node: by which generation of what was told, and which addresses.

    ``arriving``: instances whose guests are on their way here by Ganeti's files.
    """

    generation: int = 0
    addresses: tuple[str, ...] = ()
    arriving: tuple[str, ...] = ()

    @property
    def body(self) -> dict[str, Any]:
        """Give it as it is reported."""
        found = {"generation": self.generation, "addresses": list(self.addresses)}
        return {**found, "arriving": list(self.arriving)} if self.arriving else found


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
