"""Hold names at a name server as they are there, as long as nodes have their time to say what they have after a restore.

A copy knows less than name servers have: where guests are that have come or moved since. So a name is changed there only where a step of
this epoch has changed it, for a node has reported something, and where the nodes to which it leads, before and after, have been heard. An
address that its node says it has not, as one that was forgotten in between, is held for nobody.
"""

from __future__ import annotations

from _socket import AF_INET6, inet_pton
from typing import NamedTuple, Self

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

OF_NODE = 8  #: bytes of an address that say of which node it is: its /64


class Unheard(NamedTuple):
    """Say which names may be changed meanwhile.

    ``changed``: those that a step of this epoch has changed, or removed; ``heard``: the /64s of nodes that have said what they have;
    ``pending``: addresses of these of which they are still to say whose they are; ``there``: those that they say are there.
    """

    changed: frozenset[str]
    heard: frozenset[bytes]
    pending: frozenset[bytes]
    there: frozenset[bytes] = frozenset()

    @classmethod
    def of(cls, changed: Iterable[str], prefixes: Iterable[str], pending: Iterable[str], there: Iterable[str] = ()) -> Self:
        """Make it of texts: names, /64s and addresses."""
        heard = frozenset(inet_pton(AF_INET6, each.partition("/")[0])[:OF_NODE] for each in prefixes)
        addresses = (frozenset(inet_pton(AF_INET6, each) for each in some) for some in (pending, there))
        return cls(frozenset(changed), heard, *addresses)

    def holds(self, name: str, before: str, after: str) -> bool:
        """Tell whether a name stays as it is at a server, where it leads to ``before``; "" for nowhere."""
        if before == after:
            return False  # its time to live, or what else is there
        if self._is(before) is False:
            return after != "" and not self._is(after)
        return name not in self.changed or not all(self._is_heard(each) for each in (before, after) if each)

    def _is(self, address: str) -> bool | None:
        """Tell whether an address is there, by its node's word; None: that has not said so yet."""
        packed = _packed(address)
        if packed[:OF_NODE] not in self.heard or packed in self.pending:
            return None
        return packed in self.there

    def _is_heard(self, address: str) -> bool:
        return self._is(address) is not None


def _packed(address: str) -> bytes:
    """Give an address as it is in messages; nothing for what is none."""
    try:
        return inet_pton(AF_INET6, address)
    except (OSError, ValueError):
        return b""
