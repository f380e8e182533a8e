"""Keep the state of each NIC, so that a list by state does not work it out for each NIC anew."""

from __future__ import annotations

from bisect import bisect_left, insort
from typing import TYPE_CHECKING

from netregistry import state
from netregistry.model import keys
from netregistry.model.claim import Claim

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from netregistry.model.nic import Nic, Report
    from netregistry.state import State
    from netregistry.stores.base import Batch
    from netregistry.view import View


class States:
    """The state of each wanted NIC, by its key; kept by ``hear`` as a view is."""

    def __init__(self, view: View) -> None:
        self._states: dict[str, State] = {}
        self._members: dict[State, list[str]] = {}  # sorted
        self.hear(view, None)

    def hear(self, view: View, batch: Batch | None) -> None:
        """Take in what the view has taken in: one commit; None: all of it anew."""
        if batch is None:
            self._states, self._members = {}, {}
            affected: Iterable[str] = sorted(view.all("nics"))
        else:
            affected = {key for change in batch.changes for key in _affected(view, change.key)}
        for key in affected:
            nic = view.get(key)
            self._put(key, None if nic is None else state.shown(view, nic).state)

    def _put(self, key: str, after: State | None) -> None:
        before = self._states.get(key)
        if before == after:
            return
        if before is not None:
            members = self._members[before]
            del members[bisect_left(members, key)]
        if after is None:
            del self._states[key]
        else:
            self._states[key] = after
            insort(self._members.setdefault(after, []), key)

    def of(self, key: str) -> State | None:
        """Give the state of a NIC by its key; None where there is none."""
        return self._states.get(key)

    def members(self, wanted: State) -> Sequence[str]:
        """Give the keys of the NICs in a state, in order. Not to be changed."""
        return self._members.get(wanted, ())

    def count(self, wanted: State) -> int:
        """Count the NICs in a state."""
        return len(self._members.get(wanted, ()))


def _affected(view: View, key: str) -> Iterator[str]:
    """Give the keys of the NICs whose state depends on what was written at a key: on all that netregistry.state reads."""
    kind, _, rest = key.partition("/")
    if kind == "nics":
        yield key
        for nic in (view.replaced[key][0], view.get(key)):
            if nic is not None:
                yield from _had(view, nic, (report for _node, report, _at in view.seen(nic.uuid)))
    elif kind == "seen":
        yield from _reported(view, rest.partition("/")[2], (view.replaced[key][0], view.get(key)))
    elif kind in ("alive", "nodes") or (kind == "reports" and _lives_again(view, key)):
        for seen in view.members("on", rest):
            yield from _reported(view, seen.rpartition("/")[2], (view.get(seen),))
    elif kind in ("macs", "addresses"):
        for claim in (view.replaced[key][0], view.get(key)):
            if isinstance(claim, Claim):
                yield from (keys.nic(nic) for nic in (claim.holder, claim.last, *claim.contenders) if nic)
        for seen in view.having(rest.partition("/")[2]):
            yield keys.nic(seen.rpartition("/")[2])


def _reported(view: View, uuid: str, reports: Iterable[Report | None]) -> Iterator[str]:
    """Give the key of a NIC of which something is reported, and of those that hold what it has."""
    yield keys.nic(uuid)
    for kept in view.members("kept", uuid):
        yield keys.nic(view.get(kept).holder)
    nic = view.nic(uuid)
    if nic is not None:
        yield from _had(view, nic, (report for report in reports if report is not None))


def _had(view: View, nic: Nic, reports: Iterable[Report]) -> Iterator[str]:
    """Give the keys of the NICs that hold what a NIC is reported with, in its own scope."""
    for report in reports:
        for key in keys.own(nic.scope, report):
            claim = view.claim(key)
            if claim is not None and claim.holder:
                yield keys.nic(claim.holder)


def _lives_again(view: View, key: str) -> bool:
    """Tell whether these reports of a node are the first of its present life: from then on what it has reported counts again."""
    before, after = view.replaced[key][0], view.get(key)
    return getattr(before, "incarnation", "") != getattr(after, "incarnation", "")
