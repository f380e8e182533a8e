"""Find networks, NICs, nodes and what is not given out by any part of a name, MAC, address or UUID, and list keys in order.

None of that looks at each object.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from typing import TYPE_CHECKING, Any

from netregistry.model import keys
from netregistry.model.nic import Nic

if TYPE_CHECKING:
    from collections.abc import Iterator

    from netregistry.model.claim import Claim
    from netregistry.model.network import Network
    from netregistry.stores.base import Batch
    from netregistry.view import View

KINDS = ("networks", "nics", "nodes")
CLAIMS = ("macs", "addresses")  #: found as long as no NIC has them and they are not given out: reserved, or in quarantine


class Index:
    """For each key of KINDS, and of CLAIMS, the text that it is found by; kept by ``hear`` as a view is.

    A NIC is found by what it wants, and by what it is reported with.
    """

    def __init__(self, view: View) -> None:
        self.changed = dict.fromkeys(KINDS, 0)  #: how often what something of a kind is found by has
        self._texts: dict[str, dict[str, str]] = {}
        self._sorted: dict[str, list[str]] = {}
        self.hear(view, None)

    def hear(self, view: View, batch: Batch | None) -> None:
        """Take in what the view has taken in: one commit; None: all of it anew."""
        if batch is None:
            self._texts = {kind: {key: text(value, view) for key, value in view.all(kind).items()} for kind in KINDS}
            self._sorted = {kind: sorted(found) for kind, found in self._texts.items()}
            self.changed = {kind: count + 1 for kind, count in self.changed.items()}
            for kind in CLAIMS:
                self._texts[kind] = {key: words for key, value in view.all(kind).items() if (words := of_claim(key, value))}
            return
        for change in batch.changes:
            if (kind := keys.kind(change.key)) in KINDS:
                self._put(view, kind, change.key)
            elif kind == "seen":
                self._put(view, "nics", keys.nic(change.key.rpartition("/")[2]))
            elif kind in CLAIMS:
                self._texts[kind].pop(change.key, None)
                if words := of_claim(change.key, view.get(change.key)):
                    self._texts[kind][change.key] = words

    def _put(self, view: View, kind: str, key: str) -> None:
        texts, order, value = self._texts[kind], self._sorted[kind], view.get(key)
        words = text(value, view) if value is not None else None
        if words == texts.get(key):
            return
        self.changed[kind] += 1
        if words is None:
            del texts[key], order[bisect_left(order, key)]
            return
        if key not in texts:
            insort(order, key)
        texts[key] = words

    def keys(self, kind: str) -> list[str]:
        """Give the keys of a kind in order. Not to be changed."""
        return self._sorted[kind]

    def find(self, part: str) -> Iterator[tuple[str, str, str]]:
        """Give kind, key and the word that has the part, of all that has it."""
        part = part.lower()
        for kind in (*KINDS, *CLAIMS):
            for key, words in self._texts[kind].items():
                if part in words:
                    yield kind, key, next((word for word in words.split("\n") if part in word), "")


def text(value: Any, view: View) -> str:
    """Give the words by which something is found, one a line, in lower case."""
    words = dict.fromkeys(_words(value))
    if isinstance(value, Nic):
        for seen in view.members("seen", value.uuid):
            words |= dict.fromkeys(view.get(seen).uses)
    return "\n".join(word for word in words if word).lower()


def of_claim(key: str, claim: Claim | None) -> str:
    """Give the words by which a MAC or an address is found that is not given out; "" for one that is, or that a NIC has."""
    if claim is None or claim.standing not in ("reserved", "quarantined"):
        return ""
    return f"{key.rpartition('/')[2]}\n{claim.reserved}\n{claim.instance}".lower().strip()


def _words(value: Network | Nic | Any) -> Iterator[str]:
    yield value.uuid
    yield value.name
    for field in ("mac", "subnet", "subnet6", "gateway", "gateway6", "label"):
        yield getattr(value, field, "")
    yield from getattr(value, "all_addresses", ())
