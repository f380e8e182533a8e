"""Follow an instance from node to node: what its placement becomes by what nodes say of it. Pure; each step may come late, or twice.

Ganeti and QEMU decide on migrations, and nobody tells the registry. It goes by what live nodes report of the instance, and by which
addresses they have confirmed, and not by the order in which that came: the same state gives the same step, and a report that repeats what
is known gives none.

* **incoming**: the node to which the guest comes is to have endpoints; when they are there names of the migration lead to them. Where no
  NIC tells yet that it comes, Ganeti's files do, and nobody knows what speaks for it there: what does where it is.
* **arrived**: it runs there: the names lead to them instead of where they led, in the same step in which those of the migration go.
* **failed**: the node has it no more: the names of the migration go, and its endpoints there are retired.
* **source gone**: the names lead to where it runs.

No name comes to lead to an endpoint that its node has not confirmed, so they stay where they are until those of the next node are there.
Nor does one to an endpoint that is gone by what its node has said since: names of the migration go then, until it is there again. That of a
guest which is nowhere else stays all the same: the address is nobody else's, and resolvers would remember that there is no such name.
What is retired stays until every name server has the zone without its names, resolvers have forgotten them, and a minimum age is over. Then
its node is told to remove it, and when that is confirmed it is forgotten.

Of two migrations at once the one that was told first is followed. A node without a lease says nothing, and takes nothing away either.

Any node can say that a guest comes to it. One that says it has arrived is believed at once, for its source may be slow, and as long as that
has its time to say that it is gone. Where that goes on to say that the guest runs there the names go back to it, as soon as it has made
new addresses for them: a source that hangs does not. The other one is *refuted* from then on, and so is one that has said beside the
guest's own node, for a while, that it runs there: its word is nothing until that node says that the guest is gone, or is dead by an
operator's word. A while is one in which both were heard: what a node has said in the life before its lease ended proves nothing yet.

One that is refuted may say that it does not run the guest: it has none, or the guest comes to it anew. Then it is *doubted* as long as
the guest is where it is: it is followed as any other one, but takes names only when the guest's own node says that the guest is gone, or
is away. So a word that was wrong once keeps no later migration without a name, and nobody takes names by it again and again.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from netregistry.model.underlay import MOST_OF_ONE, MOST_ON_NODE, Endpoint, Placement, There
from netregistry.steady import past

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

DOUBTED = 10.0  #: seconds for which a node may say that a guest runs there, beside its own one, and be followed when that is away
MOST_REFUTED = 8  #: nodes, the latest
NOTHING: Mapping[str, tuple[str, ...]] = MappingProxyType({})


class Guest(NamedTuple):
    """Hold what nodes say of an instance. Each tuple has the nodes in the order in which they have come to say so.

    ``unknown``: those without a lease that had it; ``came``: to a node, from which one, of those who know it; ``kinds``: what speaks for it
    on each node that reports it; ``arriving``: those of ``incoming`` that report none of its NICs, and say by Ganeti's files that it comes.
    ``since``: from when on each that is alive was heard to say what it says.
    """

    running: tuple[str, ...] = ()
    incoming: tuple[str, ...] = ()
    stopped: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()
    came: Mapping[str, str] = MappingProxyType({})
    kinds: Mapping[str, tuple[str, ...]] = NOTHING
    arriving: tuple[str, ...] = ()
    since: Mapping[str, float] = MappingProxyType({})

    @property
    def nodes(self) -> tuple[str, ...]:
        return (*self.running, *self.incoming, *self.stopped, *self.unknown)


class World(NamedTuple):
    """Hold what else a step is made of.

    ``there``: gives what a node has said of its addresses; ``give``: gives a new one of its prefix, "" where there is none to give;
    ``told``: gives the generation of its prefix as this step is told, 0 where nobody is to be told; ``released``: tells whether all goes
    that is retired, of a forgotten node; ``cleared``: tells whether each name server has the zone of a generation. ``rests``, ``ttl``:
    seconds for which what is retired stays, at least, and behind its last name; ``served``: there are name servers; ``ends``: that may be
    over by this clock; ``kept``: since when none of these has lost anything.
    """

    there: Callable[[str], There]
    give: Callable[[str], str]
    told: Callable[[str], int]
    released: Callable[[str], bool]
    cleared: Callable[[int], bool]
    now: float
    rests: float
    ttl: float
    served: bool
    ends: bool = False
    kept: float = 0.0


def followed(leads: str, incoming: str, left: str, guest: Guest) -> tuple[str, str]:
    """Give the node to which names should lead, and the one to which the guest comes; "" for none."""
    target = leads
    if incoming in guest.running and (leads not in guest.running or guest.came.get(incoming) == leads):
        target, incoming = incoming, ""
    elif target not in guest.running:
        if guest.running:
            target = left if left in guest.running else guest.running[-1]
        elif target not in guest.nodes:
            target = guest.stopped[-1] if guest.stopped else "" if incoming not in guest.nodes else target
    else:
        target = _moved(target, left, guest)
    if incoming == target or (incoming not in guest.incoming and incoming not in guest.unknown):
        incoming = ""
    return target, incoming or next((node for node in guest.incoming if node != target), "")


def _moved(node: str, left: str, guest: Guest) -> str:
    """Give the node on which the guest runs that came from ``node``, though that one says that it runs there still.

    It is not the one which the guest has ``left``: that came from here, perhaps, when the guest was there for the last time.
    """
    return next((other for other in reversed(guest.running) if other != left and guest.came.get(other) == node), node)


class Marked(NamedTuple):
    """Hold whose word of a guest does not count as that of others: Placement has both. ``own``: the node that says against it."""

    own: str
    refuted: tuple[str, ...]
    doubted: tuple[str, ...]


def _marked(before: Placement, guest: Guest, world: World) -> Marked:
    """Give the nodes whose word is refuted by that of the guest's own node, or of the one from which they have taken its names."""
    leads, left = before.leads, before.left
    own = left if leads in before.refuted else leads
    holds = own in guest.running or own in guest.unknown
    found = before.refuted if holds else ()
    settles = leads in guest.running and guest.came.get(leads) == left
    if leads and left in guest.running and not settles and leads not in guest.unknown:
        found = (*found, leads)
    elif leads in guest.running and leads not in found:
        beside = (each for each in guest.running if guest.came.get(each) != leads and _is_late(guest, (each, leads), world))
        found = (*found, *(each for each in beside if each not in (leads, left)))
    taken_back = [each for each in found if each != leads and each not in guest.running and each not in guest.unknown]
    doubted = (*(before.doubted if holds else ()), *taken_back)
    refuted = tuple(each for each in dict.fromkeys(found) if each not in taken_back)
    return Marked(own, refuted[-MOST_REFUTED:], tuple(each for each in dict.fromkeys(doubted) if each not in refuted)[-MOST_REFUTED:])


def _is_late(guest: Guest, nodes: Iterable[str], world: World) -> bool:
    """Tell whether all of some nodes were heard for a while to say what they say.

    Since a time that is not yet they do by a clock that was fast: a while ago, where things may end by what it is now.
    """
    begun = max(past(since, world.now) if world.ends else since for since in (guest.since.get(each, world.now) for each in nodes))
    return world.now > begun + DOUBTED


def _believed(before: Placement, marks: Marked, guest: Guest) -> Guest:
    """Give what is to be followed of what nodes say. Whom names lead to is believed while nobody says anything else.

    To one that is doubted the guest is on its way as long as the guest's own node says that it runs there.
    """
    away = [each for each in marks.refuted if each != before.leads or before.left in guest.running]
    running, incoming = (tuple(node for node in each if node not in away) for each in (guest.running, guest.incoming))
    waiting = tuple(each for each in running if each in marks.doubted and marks.own in guest.running)
    running = tuple(each for each in running if each not in waiting)
    return guest._replace(running=running, incoming=(*incoming, *waiting)) if away or waiting else guest


def step(before: Placement, guest: Guest, world: World) -> Placement:
    """Give what a placement becomes; the same one where nothing is to be done."""
    after = before._replace(endpoints=tuple(each for one in before.endpoints if (each := _aged(one, world)) is not None))
    for _ in range(4):  # what is decided makes something else possible: once, or twice where somebody else comes
        again = _step(after, guest, world)
        if again == after:
            break
        after = again
    return after if after == before else after._replace(generation=before.generation + 1)


def _step(before: Placement, guest: Guest, world: World) -> Placement:
    marks = _marked(before, guest, world)
    believed = _believed(before, marks, guest)
    target, coming = followed(before.leads, before.incoming, before.left, believed)
    endpoints = [_confirmed(each, world) for each in before.endpoints]
    for node in dict.fromkeys((target, coming)):
        there = {each.kind for each in endpoints if each.live and each.node == node}
        for kind in _wanted(node, before, guest):
            if kind not in there and has_room(endpoints, node) and (address := world.give(node)):
                endpoints.append(Endpoint(kind, node, address, since=world.now))
    leads, incoming = before.leads, coming
    returns = before.leads in marks.refuted and target != before.leads
    if _ready(before.leads, target, endpoints, world) and not (returns and _lacks_all(target, guest, endpoints)):
        leads = target
    elif target == before.incoming != leads:
        incoming = target  # it is on its way until names can lead to it
    used = {node: _kinds(node, guest) for node in (leads, incoming, target, coming) if node}
    kept = tuple(each if not each.live or _used(each, used) else _retired(each, world) for each in endpoints)
    left = before.left if before.left in guest.running or before.left in guest.unknown else ""
    doubted = marks.doubted
    if leads != before.leads:
        left = before.leads if before.leads in guest.running and not returns else ""
        doubted = doubted if returns else ()
    return before._replace(leads=leads, incoming=incoming, left=left, endpoints=kept, refuted=marks.refuted, doubted=doubted)


def _lacks_all(node: str, guest: Guest, endpoints: Iterable[Endpoint]) -> bool:
    """Tell whether a node wants endpoints and has none."""
    return bool(guest.kinds.get(node)) and not any(each.live and each.node == node for each in endpoints)


def _wanted(node: str, before: Placement, guest: Guest) -> Iterable[str]:
    """Give what is to speak for a guest on a node on which it is, or to which it comes."""
    if node in guest.arriving:
        return [each.kind for each in before.endpoints if each.live and each.node == before.leads]
    return guest.kinds.get(node, ()) if node in guest.running or node in guest.incoming else ()


def has_room(endpoints: Sequence[Endpoint], node: str) -> bool:
    """Tell whether an instance may have one more endpoint on a node; those that are retired count until they are forgotten."""
    return len(endpoints) < MOST_OF_ONE and sum(each.node == node for each in endpoints) < MOST_ON_NODE


def _kinds(node: str, guest: Guest) -> tuple[str, ...] | None:
    """Give what is to speak for a guest on a node; None where that is as it was: nothing tells, or it is off and says nothing."""
    says = guest.kinds.get(node, ())
    is_said = node in guest.running or (node in guest.incoming and node not in guest.arriving)
    return says if says or is_said else None


def reached(each: Endpoint, there: There) -> bool:
    """Tell whether an endpoint is there by what its node has said last, and not by what it has said once. ``there``: of its node."""
    return each.state == "there" and each.address in there.addresses


def _confirmed(each: Endpoint, world: World) -> Endpoint:
    if each.state == "wanted" and each.address in world.there(each.node).addresses:
        return each._replace(state="there", since=world.now)
    return each


def _ready(leads: str, target: str, endpoints: Iterable[Endpoint], world: World) -> bool:
    """Tell whether names can lead to another node: all is there that is wanted, or they lead nowhere now, or will."""
    live = [each for each in endpoints if each.live]
    if not any(each.node == leads and each.state == "there" for each in live):
        return True
    return all(reached(each, world.there(each.node)) for each in live if each.node == target)


def _used(each: Endpoint, used: Mapping[str, tuple[str, ...] | None]) -> bool:
    """Tell whether an endpoint is needed on. ``used``: what speaks for the guest on each node that counts; None: as it was."""
    return each.node in used and ((wanted := used[each.node]) is None or each.kind in wanted)


def _retired(each: Endpoint, world: World) -> Endpoint:
    cleared = 0.0 if world.served else world.now
    return each._replace(state="retired", since=world.now, cleared=cleared, until=world.now + world.rests)


def _aged(each: Endpoint, world: World) -> Endpoint | None:
    """Give what a retired endpoint, or one that is leaving, becomes; None: it is forgotten."""
    if each.live:
        return each
    if world.released(each.node):
        return None
    told = world.told(each.node)
    if each.state == "leaving":
        there = world.there(each.node)
        return None if not told or (there.generation >= each.generation and each.address not in there.addresses) else each
    if not world.cleared(each.generation):
        return each._replace(cleared=0.0) if each.cleared else each  # a name server has lost the zone since it was
    if not each.cleared or each.cleared < world.kept:
        cleared = world.kept if each.cleared else world.now
        each = each._replace(cleared=cleared, until=max(each.until, cleared + world.ttl))
    if not world.ends or world.now < each.until:
        return each
    return each._replace(state="leaving", since=world.now, generation=told) if told else None
