"""Mark the instances of which a step may be due, commit by commit: there are thousands, and most commits concern one or none."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

from netregistry.model import keys
from netregistry.model.underlay import Confirmed, NodePrefix, Placement
from netregistry.underlay import names, sight

if TYPE_CHECKING:
    from collections.abc import Iterable

    from netregistry.model.nic import Nic
    from netregistry.stores.base import Batch
    from netregistry.view import View

Instance = tuple[str, str]  #: cluster and name
LIVES = frozenset(("alive", "nodes"))  #: kinds of keys of a node that say whether what it has reported counts


class Marks:
    """The instances to look at, the first that was marked first."""

    def __init__(self) -> None:
        self._marked: dict[Instance, None] = {}

    def __bool__(self) -> bool:
        return bool(self._marked)

    def some(self, most: int) -> list[Instance]:
        """Give so many of them."""
        return list(islice(self._marked, most))

    def over(self, instance: Instance) -> None:
        """Take a mark away: no step was due."""
        self._marked.pop(instance, None)

    def mark(self, instance: Instance) -> None:
        self._marked[instance] = None

    def all(self, view: View) -> None:
        """Mark all that have endpoints, or may get some."""
        if view.underlay is None:
            self._marked.clear()
            return
        for placement in view.all("endpoints").values():
            self._marked[placement.cluster, placement.instance] = None
        for name in view.all("names").values():
            self._marked[name.cluster, name.instance] = None
        self._had(view.all("confirmed").values())
        for speakers in view.all("speakers").values():
            for each in speakers.nics:
                self._of_nic(view.nic(each.nic))

    def hear(self, view: View, batch: Batch | None) -> None:
        """Take in what the view has taken in: one commit; None: all of it anew."""
        if batch is None:
            self.all(view)
            return
        if view.underlay is None:
            return
        for key, _value in batch.changes:
            self._hear(view, key)

    def _hear(self, view: View, key: str) -> None:
        kind, _, rest = key.partition("/")
        if kind == "seen":
            self._of_nic(view.nic(rest.partition("/")[2]))
        elif kind == "nics":
            for nic in (view.replaced[key][0], view.get(key)):
                self._of_nic(nic)
        elif kind in LIVES or (kind == "reports" and _another_life(view, key)):
            self._on(view, rest)
            self._arriving(view, rest, view.get(keys.confirmed(rest)))
        elif kind == "speakers":
            for speakers in (view.replaced[key][0], view.get(key)):
                for each in speakers.nics if speakers is not None else ():
                    self._of_nic(view.nic(each.nic))
        elif kind in ("confirmed", "prefixes"):
            before, after = view.replaced[key][0], view.get(key)
            if _gives_now(before, after):
                self._on(view, rest)  # those that wait for their first address are placed nowhere
            elif isinstance(before, Confirmed) and isinstance(after, Confirmed):
                self._marked |= dict.fromkeys(sight.concerned(view, rest, before, after))
            elif not _is_told_alone(before, after):
                self._placed(view, rest)
            for confirmed in (view.replaced[key][0], view.get(key)) if kind == "confirmed" else ():
                self._arriving(view, rest, confirmed)
            self._had(said for said in (view.get(key),) if kind == "confirmed" and said is not None)
        elif kind == "endpoints" and (placement := view.get(key)) is not None:
            self._marked[placement.cluster, placement.instance] = None
        elif kind == "names" and view.get(key) is None:
            zone, _, freed = rest.partition("/")
            for instance in names.instances(freed, zone):  # by its name: another one may have it now, whoever had it
                self._placements(view, view.members("called", instance))
        elif kind == "zones":  # a name server may have the zone now without what was retired
            self._placements(view, view.members("uncleared"))
        elif kind == keys.UNDERLAY:
            self.all(view)

    def _arriving(self, view: View, uuid: str, confirmed: Confirmed | None) -> None:
        """Mark the instances that come to a node by Ganeti's files: they say no more than the name."""
        for instance in confirmed.there.arriving if confirmed is not None and view.node(uuid) is not None else ():
            self._marked |= dict.fromkeys(sight.called(view, instance))

    def _of_nic(self, nic: Nic | None) -> None:
        if nic is not None and nic.instance:
            self._marked[nic.cluster, nic.instance] = None

    def _on(self, view: View, node: str) -> None:
        """Mark those that a node has reported, or that have something there."""
        for seen in view.members("on", node):
            self._of_nic(view.nic(seen.rpartition("/")[2]))
        self._placed(view, node)

    def _had(self, said: Iterable[Confirmed]) -> None:
        """Mark the instances of which nodes have endpoints from before a restore."""
        for each in said:
            for had in each.had:
                self._marked[had.cluster, had.instance] = None

    def _placed(self, view: View, node: str) -> None:
        self._placements(view, view.members("placed", node))

    def _placements(self, view: View, found: Iterable[str]) -> None:
        for key in found:
            placement = view.get(key)
            self._marked[placement.cluster, placement.instance] = None

    def ended(self, view: View, now: float, most: int) -> None:
        """Mark those of which something retired has had its time."""
        self._placements(view, view.due(Placement, now, most))


def _another_life(view: View, key: str) -> bool:
    """Tell whether a node's reports are of another life than those before."""
    before, after = view.replaced[key][0], view.get(key)
    return (before.incarnation if before is not None else "") != (after.incarnation if after is not None else "")


def _is_told_alone(before: object, after: object) -> bool:
    """Tell whether nothing of a prefix is another one but what was told of it, and given of it: no step rests on that."""
    return (
        isinstance(before, NodePrefix)
        and isinstance(after, NodePrefix)
        and before._replace(generation=after.generation, next=after.next) == after
    )


def _gives_now(before: object, after: object) -> bool:
    """Tell whether a node can be given addresses now that could not be before: it has a prefix, or has said in this epoch what it has."""
    if isinstance(after, Confirmed):
        return not isinstance(before, Confirmed) or before.epoch != after.epoch
    return isinstance(after, NodePrefix) and not after.freed and (not isinstance(before, NodePrefix) or before.freed > 0)
