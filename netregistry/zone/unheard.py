"""Hold names at a name server as they are there, as long as nodes have their time to say what they have after a restore.

A copy knows less than name servers have: where guests are that have come or moved since. So a name is changed there only where a step of
this epoch has changed it, for a node has reported something, and where the nodes to which it leads, before and after, have been heard.
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
    ``pending``: addresses of these of which they are still to say whose they are.
    """

    changed: frozenset[str]
    heard: frozenset[bytes]
    pending: frozenset[bytes]

    @classmethod
    def of(cls, changed: Iterable[str], prefixes: Iterable[str], pending: Iterable[str]) -> Self:
        """Make it of texts: names, /64s and addresses."""
        heard = frozenset(inet_pton(AF_INET6, each.partition("/")[0])[:OF_NODE] for each in prefixes)
        return cls(frozenset(changed), heard, frozenset(inet_pton(AF_INET6, each) for each in pending))

    def holds(self, name: str, before: str, after: str) -> bool:
        """Tell whether a name stays as it is at a server, where it leads to ``before``; "" for nowhere."""
        if before == after:
            return False  # its time to live, or what else is there
        return name not in self.changed or not all(self._is_heard(each) for each in (before, after) if each)

    def _is_heard(self, address: str) -> bool:
        try:
            packed = inet_pton(AF_INET6, address)
        except (OSError, ValueError):
            return False
        return packed[:OF_NODE] in self.heard and packed not in self.pending
