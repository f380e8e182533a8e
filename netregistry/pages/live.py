"""Tell open pages that what they show has changed. Which page shows what is told by its topic."""

from __future__ import annotations

from typing import TYPE_CHECKING

from netregistry.model import keys
from netregistry.model.claim import Claim

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from netregistry.stores.base import Batch
    from netregistry.view import View

MOST = 64  #: pages that are told of changes at the same time
EACH = 16  #: of them, by certificates of one identity
PACE = 2.0  #: seconds between two changes that one page is told of
BEAT = 3.0  #: seconds from one sign of life to the next
LOST = 10.0  #: seconds without one after which a page says so

EVERYTHING = "all"
#: Topics of lists; others are the keys of objects: "nics/UUID".
LISTS = ("nics", "nodes", "networks", "conflicts", "history", EVERYTHING)


class Hearer:
    """One open page. ``wake``: called, in any thread, when what it shows has changed."""

    def __init__(self, topic: str, wake: Callable[[], None]) -> None:
        self.topic, self.wake = topic, wake


class Hearers:
    """The open pages. Added and removed by the thread that has the connections, told by the one that has the view."""

    def __init__(self) -> None:
        self._all: tuple[Hearer, ...] = ()  # replaced as a whole: the other thread goes through the one that it has

    def __len__(self) -> int:
        return len(self._all)

    def add(self, hearer: Hearer) -> None:
        self._all = (*self._all, hearer)

    def remove(self, hearer: Hearer) -> None:
        self._all = tuple(each for each in self._all if each is not hearer)

    def wake(self) -> None:
        """Wake all."""
        for each in self._all:
            each.wake()

    def hear(self, view: View, batch: Batch | None) -> None:
        """Wake those that show what the view has just taken in: one commit; None: all of it anew."""
        hearers = self._all
        if not hearers:
            return
        if batch is None:
            self.wake()
            return
        topics = {topic for change in batch.changes for topic in topics_of(view, change.key)}
        for each in hearers:
            if each.topic in topics:
                each.wake()


def topics_of(view: View, key: str) -> Iterator[str]:
    """Give the topics of pages on which something is seen of what was written at a key by the latest commit."""
    kind, _, rest = key.partition("/")
    before, after = view.replaced[key][0] if key in view.replaced else None, view.get(key)
    if kind not in SHOWN:
        return
    yield EVERYTHING
    if kind == "nics":
        yield from ("nics", "networks", key)
        for nic in (before, after):
            if nic is not None and nic.network:
                yield keys.network(nic.network)
    elif kind == "seen":
        node, _, uuid = rest.partition("/")
        yield from ("nics", "nodes", "conflicts", keys.nic(uuid), keys.node(node))
    elif kind in ("alive", "gone", "reports", "nodes"):
        yield from ("nodes", keys.node(rest))
        if kind in ("alive", "nodes"):
            yield from ("nics", "conflicts")
            for seen in view.members("on", rest):
                yield keys.nic(seen.rpartition("/")[2])
    elif kind == "networks":
        yield from ("networks", "nics", key)
        for nic in view.members("network", rest):
            yield nic
    elif kind in ("macs", "addresses"):
        yield from ("conflicts", "networks", keys.network(rest.partition("/")[0]))
        for claim in (before, after):
            if isinstance(claim, Claim):
                yield from (keys.nic(nic) for nic in (claim.holder, *claim.contenders) if nic)
    elif kind == "history":
        yield "history"


#: What pages show; of the lease of a leader, for one, they show nothing.
SHOWN = frozenset(("nics", "seen", "alive", "gone", "reports", "nodes", "networks", "macs", "addresses", "history"))
