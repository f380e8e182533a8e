"""Take the steps of instances in a draft: placements, the addresses that are given for them, their names, and what nodes are told.

A step is in the commit of the report that it comes of, or in one of the leader's; neither has a history, nor the ledger's number. So it
tests every key that it changes. What it rests on is what all nodes say of the guest: whatever changes that changes the placement in the
same commit, if only to the same, so of two such steps at once the second is taken by what the first has left. What else it has read may
change at the same time: then the leader takes the step that is missing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from netregistry.model import keys
from netregistry.model.underlay import LAST, MOST_ADDRESSES, Confirmed, Name, NodePrefix, Placement, There, Zone
from netregistry.refusal import Refused
from netregistry.steady import SLACK
from netregistry.stores.base import LARGEST, MOST, checked, commit_size
from netregistry.underlay import healing, names, renaming, saga, sight

if TYPE_CHECKING:
    from collections.abc import Iterable

    from netregistry.draft import Commit, Draft
    from netregistry.model.underlay import Endpoint, Had, Underlay

SPARE = 96  #: addresses that a node may have beside those that were given


class Placing:
    """Steps that are taken in a draft, as many as have room beside other ``tests`` and ``changes``, of ``size``, of the same commit.

    ``ends``: what has had its time may be over by this clock.
    """

    def __init__(self, draft: Draft, tests: int = 0, changes: int = 0, size: int = 0, ends: bool = False) -> None:
        self._draft, self._others, self._ends = draft, (tests, changes, size), ends
        self._settled: dict[str, set[Had]] = {}  # what nodes have had before a restore, and placements have now
        self.underlay: Underlay | None = draft.get(keys.UNDERLAY)
        self.failed: dict[tuple[str, str], Exception] = {}  #: instances whose step is not taken by a fault, and why

    def advance(self, cluster: str, instance: str, said: bool = False) -> bool:
        """Take the step of an instance that is due. Tell whether there was room for it, or none was due.

        ``said``: the commit says something else of the instance than before, so steps that are taken elsewhere without that are to fail.

        Whatever goes wrong with it is its own: the draft stays as it was, and the steps of others may be taken.
        """
        if self.underlay is None:
            return True
        before = self._draft.kept()
        try:
            settled = self._advance(self.underlay, cluster, instance)
            if said:
                self._touch(keys.placement(cluster, instance))
            fits = self._draft.kept() == before or self._fits()  # nothing need not be weighed: of a node's hundreds few take a step
        except Refused:  # something of it cannot be read, or it is too much
            fits = False
        except Exception as error:
            self.failed[cluster, instance], fits = error, False
        if not fits:
            self._draft.restore(before)
            return False
        for node, had in settled.items():
            self._settled.setdefault(node, set()).update(had)
        return True

    def commit(self) -> Commit:
        """Give the commit of the draft. What a node has had is taken from its record here at once: each step weighs what changes in it."""
        for node, had in self._settled.items():
            said: Confirmed = self._draft.get(keys.confirmed(node))
            self._draft.put(keys.confirmed(node), said._replace(had=tuple(each for each in said.had if each not in had)))
        self._settled = {}
        return self._draft.bare()

    def _touch(self, key: str) -> None:
        """Write a placement as it is, where no step has changed it."""
        placement: Placement | None = self._draft.get(key)
        if placement is not None and not self._draft.touched(key):
            self._draft.expect(key)
            self._draft.put(key, placement._replace(generation=placement.generation + 1))

    def _fits(self) -> bool:
        commit = self._draft.bare()
        tests, changes, size = self._others
        try:
            checked(*commit)
        except ValueError:  # what an instance has is too much for one value
            return False
        return len(commit.tests) + tests <= MOST and len(commit.changes) + changes <= MOST and commit_size(*commit) + size <= LARGEST

    def _advance(self, underlay: Underlay, cluster: str, instance: str) -> dict[str, list[Had]]:
        """Take a step; give what its nodes have had before a restore, and need not keep by themselves any more."""
        draft, key = self._draft, keys.placement(cluster, instance)
        if key in draft.view.unreadable or renaming.is_split(draft, cluster, instance):
            return {}
        before: Placement = draft.get(key) or Placement(cluster, instance)
        guest = sight.guest(draft, cluster, instance)
        if any(keys.speakers(node) in draft.view.unreadable for node in guest.nodes):
            return {}  # nobody knows what is to speak for it
        world = self._world(underlay)
        heard = (*guest.running, *guest.incoming, *guest.stopped)
        found, settled = healing.regained(draft, before, heard, underlay.rests, world.served)
        if self._ends:
            found = _shortened(found, draft.now, underlay.rests)
        begun = before if found == before else found._replace(generation=before.generation + 1)
        after = saga.step(begun, guest, world)
        for said in map(keys.confirmed, settled):
            draft.expect(said)
            draft.put(said, draft.get(said))
        if not after.endpoints:
            after = Placement(cluster, instance, before.generation)
        moved = self._named(underlay, after)
        empty = not after.endpoints and draft.get(key) is not None
        if moved is None and after == before and not empty:
            return settled
        draft.expect(key)  # also where names alone change: what they lead to must be as it is
        generation = moved or 0
        told = _told(before, after)
        if moved is not None:
            told |= {each.node for each in after.endpoints}
        if after.endpoints != before.endpoints:
            zone: Zone = draft.get(keys.zone(underlay.zone)) or Zone()
            new = frozenset(each.address for each in before.endpoints if each.state == "retired")
            after = after._replace(endpoints=tuple(_dated(each, new, generation or zone.generation) for each in after.endpoints))
        if after != before and after.endpoints:
            draft.put(key, after)
        elif empty:
            draft.delete(key)  # also one from which an operator has taken the last address
        for node in sorted(told):
            self._tell(node)
        return settled

    def _named(self, underlay: Underlay, after: Placement) -> int | None:
        """Let the names of a placement lead where they are to; give the zone's generation from then on, None where nothing has changed.

        A name that another instance has stays that one's. Names of a zone that is the underlay's no more go, and those of a migration to
        what its node says is not there any more.
        """
        draft, zone = self._draft, underlay.zone
        named = {keys.name(zone, name): each for name, each in names.wanted(after, zone).items()}
        wanted = {key: each for key, each in named.items() if self._may_lead(key, each, after)}
        held = draft.members("names", after.cluster, after.instance)
        gone = [key for key in held if key not in wanted]
        put = {key: each for key, each in wanted.items() if self._leads_elsewhere(key, each, after)}
        generations = {each: self._next(each) for each in dict.fromkeys(key.split("/")[1] for key in (*gone, *put))}
        for key in gone:
            draft.expect(key)
            draft.delete(key)
        for key, each in put.items():
            draft.expect(key)
            draft.put(key, Name(each.address, each.node, generations[zone], after.cluster, after.instance))
        return generations.get(zone, 0) if generations else None

    def _may_lead(self, key: str, each: Endpoint, after: Placement) -> bool:
        """Tell whether a name may lead to an endpoint: it is there, or its guest's name leads there already."""
        if saga.reached(each, self._there(each.node)):
            return True
        there: Name | None = self._draft.get(key)
        return there is not None and there.address == each.address and each.node == after.leads

    def _leads_elsewhere(self, key: str, each: Endpoint, after: Placement) -> bool:
        there: Name | None = self._draft.get(key)
        if there is None:
            return key not in self._draft.view.unreadable
        return (there.cluster, there.instance) == (after.cluster, after.instance) and there.address != each.address

    def _next(self, zone: str) -> int:
        """Advance the generation of a zone: once in a commit."""
        draft, key = self._draft, keys.zone(zone)
        before: Zone = draft.get(key) or Zone()
        if draft.touched(key):
            return before.generation
        draft.expect(key)
        draft.put(key, before._replace(generation=before.generation + 1))
        return before.generation + 1

    def _tell(self, node: str) -> None:
        """Advance the generation of a node's prefix: what it is told has changed. Once in a commit."""
        draft, key = self._draft, keys.prefix(node)
        before: NodePrefix | None = draft.get(key)
        there: NodePrefix | None = draft.view.get(key)
        if before is not None and there is not None and before.generation == there.generation:
            draft.expect(key)
            draft.put(key, before._replace(generation=before.generation + 1))

    # -- what steps are made of

    def _world(self, underlay: Underlay) -> saga.World:
        draft, wanted = self._draft, keys.zone(underlay.zone)
        zone: Zone = draft.get(wanted) or Zone()
        others: list[Zone] = [draft.get(key) for key in draft.view.all("zones") if key != wanted]
        left = any(each.behind(draft.view.epoch) for each in others)  # a name server may have names of a zone of before, that lead anywhere

        def cleared(generation: int) -> bool:
            return not left and not zone.behind(draft.view.epoch, generation)

        return saga.World(
            there=self._there,
            give=self._give,
            told=self._next_told,
            released=self._released,
            cleared=cleared,
            now=draft.now,
            rests=underlay.rests,
            ttl=float(underlay.ttl),
            served=left or bool(zone.published),
            kept=max((one.kept for each in (zone, *others) for one in each.published), default=0.0),
            ends=self._ends,
        )

    def _there(self, node: str) -> There:
        said: Confirmed | None = self._draft.get(keys.confirmed(node))
        return said.there if said is not None else There()

    def _released(self, node: str) -> bool:
        prefix: NodePrefix | None = self._draft.get(keys.prefix(node))
        return prefix is not None and prefix.released

    def _next_told(self, node: str) -> int:
        """Give the generation of a node's prefix behind this commit, if the node is told anything by it; 0 for one that is gone."""
        there, after = self._draft.view.get(keys.prefix(node)), self._draft.get(keys.prefix(node))
        if there is None or after is None:
            return 0
        if self._draft.node(node) is None:
            return 0
        return int(after.generation if after.generation != there.generation else there.generation + 1)

    def _give(self, node: str) -> str:
        """Give a new address of a node's prefix; "" for none.

        After a restore the counter may be what it was long ago: nothing is given before the node has said what it has.
        """
        draft, key = self._draft, keys.prefix(node)
        prefix: NodePrefix | None = draft.get(key)
        said: Confirmed | None = draft.get(keys.confirmed(node))
        there = draft.node(node)
        if prefix is None or prefix.freed or prefix.next >= LAST or there is None or is_full(draft, node):
            return ""
        if draft.view.epoch not in (there.epoch, said.epoch if said is not None else ""):
            return ""
        draft.expect(key)
        draft.put(key, prefix._replace(next=prefix.next + 1))
        return prefix.at(prefix.next)


def _shortened(before: Placement, now: float, rests: float) -> Placement:
    """Let no quarantine last longer from now on than the setting says: it began while the clock was fast, or by another setting."""

    def ended(each: Endpoint) -> Endpoint:
        late = each.state == "retired" and each.until > now + rests + SLACK
        return each._replace(since=min(each.since, now), until=now + rests) if late else each

    return before._replace(endpoints=tuple(map(ended, before.endpoints)))


def _dated(each: Endpoint, before: frozenset[str], generation: int) -> Endpoint:
    """Note from which generation of the zone on no name leads to an endpoint that is retired now."""
    return each._replace(generation=generation) if each.state == "retired" and each.address not in before else each


def _told(before: Placement, after: Placement) -> set[str]:
    """Give the nodes that are to be told of a step."""
    found = {each.node for each in set(before.endpoints) ^ set(after.endpoints)}
    if (before.leads, before.incoming) != (after.leads, after.incoming):
        found |= {each for each in (before.leads, before.incoming, after.leads, after.incoming) if each}
    return found


def is_full(draft: Draft, node: str) -> bool:
    """Tell whether a node has as many addresses as it can report; those in quarantine are there still."""
    placements: list[Placement] = [draft.get(key) for key in draft.members("placed", node)]
    return sum(each.node == node for placement in placements for each in placement.endpoints) >= MOST_ADDRESSES - SPARE


def instances(draft: Draft, nics: Iterable[str]) -> list[tuple[str, str]]:
    """Give the instances of NICs, each once: clusters and names."""
    found = (draft.nic(nic) for nic in nics)
    return list(dict.fromkeys((nic.cluster, nic.instance) for nic in found if nic is not None and nic.instance))
