"""Give each node a /64 of the site's underlay when it joins, and take it back, after a quarantine, when it is forgotten.

Who has which prefix changes with the ledger alone, so two requests at once never give one twice. The counter of a prefix advances with
reports, too, which do not touch the ledger: whoever writes a prefix tests that it is as it was.
"""

from __future__ import annotations

from ipaddress import IPv6Address, IPv6Network
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from netregistry.draft import Draft
from netregistry.model import keys, kinds
from netregistry.model.codec import Invalid, read, read_fields, write
from netregistry.model.history import Identity
from netregistry.model.underlay import RELEASED, Given, NodePrefix, Opened, Underlay, Zone
from netregistry.refusal import Refused
from netregistry.request import Done
from netregistry.steady import SLACK
from netregistry.underlay import foreign, healing

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from netregistry.model.underlay import Confirmed, Endpoint, Placement
    from netregistry.request import Part
    from netregistry.view import View

MOST_RESTING = 10_000  #: prefixes in quarantine that are looked at
AT_ONCE = 50  #: prefixes that are given or taken back by one commit


class _What(NamedTuple):
    address: kinds.Address


def init(draft: Draft, part: Part) -> Done:
    """Say which prefix the underlay has; nodes that have joined are given their part. The same once more changes nothing.

    What is not said stays as it is. More nodes than one commit has room for are given theirs by the leader.
    """
    fields = read_fields(Underlay, part.body, Underlay._fields)
    before: Underlay | None = draft.get(keys.UNDERLAY)
    if before is None and "prefix" not in fields:
        raise Invalid("prefix", None, "a value: it is missing")
    after = before._replace(**fields) if before is not None else Underlay(**fields)
    if before is None or after.prefix != before.prefix:
        if before is not None:
            _is_nobodys(draft, before)
        _fits(draft, after)
        known = any(node.epoch not in ("", draft.view.epoch) for node in draft.view.all("nodes").values())
        draft.put(keys.OPENED, Opened(draft.view.epoch, draft.now if known else 0.0))  # they may have /64s of before a restore
    draft.put(keys.UNDERLAY, after)
    given(draft, islice(_lacking(draft), AT_ONCE))
    return Done(200, keys.UNDERLAY, write(after))


def _is_nobodys(draft: Draft, underlay: Underlay) -> None:
    """Let another prefix take the place of one of which no node has anything. Raises Refused."""
    unreadable = sum(keys.kind(key) == "prefixes" for key in draft.view.unreadable)
    if nodes := len(draft.view.all("prefixes")) + unreadable:
        remedy = "netcommon registry node forget NODE, and behind its quarantine it has none (netcommon registry underlay quarantine)"
        detail = f"the underlay is {underlay.prefix}, and nodes have their /64s of it ({nodes}): another one takes its place when none has"
        raise Refused("exists", f"{detail}. {remedy}", field="prefix")
    if draft.get(keys.GIVEN) is not None:
        draft.delete(keys.GIVEN)


def _fits(draft: Draft, underlay: Underlay) -> None:
    """Raise Invalid where guests' networks or nodes have addresses of the prefix, or where there are more nodes than /64s."""
    for key, network in draft.view.all("networks").items():
        if network.subnet6 and IPv6Network(network.subnet6).overlaps(underlay.network):
            name = network.name or key.partition("/")[2]
            raise Invalid("prefix", underlay.prefix, f"a prefix beside those of networks: {name} has {network.subnet6}")
    for node, address, _number in foreign.addresses(draft, underlay):
        there = draft.node(node)
        name = there.name if there is not None else node
        raise Invalid("prefix", underlay.prefix, f"a prefix of which nothing else has addresses: node {name} has {address}")
    nodes = len(draft.view.all("nodes"))
    if nodes > underlay.most:
        raise Invalid("prefix", underlay.prefix, f"a shorter one: there are {nodes} nodes, and {underlay.most} prefixes of /64 in it")


def given(draft: Draft, nodes: Iterable[str]) -> None:
    """Give nodes their prefixes, as long as there are any; one that was forgotten, and joins again in time, has the one that it had.

    So has one that says which it has. Others wait, after a restore, until nodes have said that.
    """
    underlay: Underlay | None = draft.get(keys.UNDERLAY)
    if underlay is None:
        return
    numbers = iter(()) if healing.withheld(draft.view, draft.get) else _free(draft, underlay)
    for node in nodes:
        key = keys.prefix(node)
        if key in draft.view.unreadable:
            continue  # nobody knows what it has
        before: NodePrefix | None = draft.get(key)
        if before is not None and healing.spoken_for(draft).get(before.prefix, node) != node:
            draft.expect(key)
            draft.delete(key)  # another one has it, by what that says
            before = None
        if before is not None:
            draft.expect(key)
            draft.put(key, before._replace(freed=0.0, until=0.0, generation=before.generation + 1))
        elif (said := _as_said(draft, underlay, node)) is not None:
            healing.take(draft, node, said.prefix)
            draft.expect(key)
            draft.put(key, said)
        elif (number := next(numbers, -1)) >= 0:
            draft.expect(key)
            draft.put(key, NodePrefix(number, underlay.of(number)))
        if draft.get(keys.stranger(node)) is not None:
            draft.delete(keys.stranger(node))


def _as_said(draft: Draft, underlay: Underlay, node: str) -> NodePrefix | None:
    """Give the prefix of a node as it says that it has it; None where it says nothing, or another node has that one."""
    prefix = healing.taken(draft, underlay, node, healing.said_by(draft, node))
    said: Confirmed | None = draft.get(keys.confirmed(node))
    return prefix if prefix is None or said is None else healing.beyond(prefix, said.there, said.had)


def _free(draft: Draft, underlay: Underlay) -> Iterator[int]:
    """Give the numbers that no node has or says it has: those that nobody has had first, so that what was given back rests longest."""
    taken = healing.numbers(draft, underlay)
    had: Given = draft.get(keys.GIVEN) or Given()
    highest = max(*taken, had.highest, -1)
    networks = foreign.numbers(draft, underlay)
    yield from (number for number in range(highest + 1, underlay.most) if number not in networks)
    taken |= networks
    yield from (number for number in range(min(highest + 1, underlay.most)) if number not in taken)


def freed(draft: Draft, node: str) -> None:
    """Begin the quarantine of a forgotten node's prefix."""
    underlay: Underlay | None = draft.get(keys.UNDERLAY)
    key = keys.prefix(node)
    before: NodePrefix | None = draft.get(key)
    if underlay is not None and before is not None and not before.freed:
        draft.expect(key)
        draft.put(key, before._replace(freed=draft.now, until=draft.now + underlay.rests, generation=before.generation + 1))


def release(draft: Draft, part: Part) -> Done:
    """End the quarantine of an endpoint's address, or of a prefix by its first address; or let nothing wait for a zone of before.

    A node that is told to remove an address, and does not say that it has, is not waited for any more.
    """
    if (key := keys.zone(part.target)) in draft.view.all("zones"):
        return _given_up(draft, key, part.target)
    address = read(_What, {"address": part.target}).address
    for key, prefix in draft.view.all("prefixes").items():
        if IPv6Network(prefix.prefix).network_address == IPv6Address(address):
            return _released(draft, key, prefix)
    for key, stranger in draft.view.all("strangers").items():
        if IPv6Network(stranger.prefix).network_address == IPv6Address(address):
            draft.expect(key)
            draft.delete(key)
            return Done(200, key, {"released": stranger.prefix})
    for key, placement in draft.view.all("endpoints").items():
        for each in placement.endpoints:
            if each.address == address:
                return _let_go(draft, key, placement, each)
    raise Refused("missing", f"{address} is no address of an endpoint, and no prefix of a node")


def _given_up(draft: Draft, key: str, zone: str) -> Done:
    """Let nobody wait for the name servers of a zone."""
    if draft.view.underlay is not None and draft.view.underlay.zone == zone:
        raise Refused("in-use", f"{zone} is the underlay's zone: its names are published there")
    before: Zone = draft.get(key)
    draft.expect(key)
    draft.put(key, before._replace(published=()))
    return Done(200, key, {"released": zone})


def _released(draft: Draft, key: str, prefix: NodePrefix) -> Done:
    if not prefix.freed:
        raise Refused("in-use", f"{prefix.prefix} is in no quarantine: a node has it")
    draft.expect(key)
    draft.put(key, prefix._replace(until=RELEASED))  # the leader takes it away, and the endpoints in it first: there may be thousands
    return Done(200, key, {"released": prefix.prefix})


def _let_go(draft: Draft, key: str, placement: Placement, each: Endpoint) -> Done:
    if each.live:
        raise Refused("in-use", f"{each.address} is in no quarantine: it is the {each.kind} of {placement.instance}")
    of = keys.prefix(each.node)
    prefix: NodePrefix | None = draft.get(of)
    after: Endpoint | None = None
    if each.state == "retired" and prefix is not None and draft.node(each.node) is not None:
        draft.expect(of)
        draft.put(of, prefix._replace(generation=prefix.generation + 1))
        after = each._replace(state="leaving", since=draft.now, generation=prefix.generation + 1)
    kept = (after if one == each else one for one in placement.endpoints)
    found = tuple(one for one in kept if one is not None)
    draft.expect(key)
    draft.put(key, placement._replace(endpoints=found, generation=placement.generation + 1))
    return Done(200, key, {"released": each.address})


def settle(draft: Draft, part: Part) -> Done:
    """Give prefixes to nodes that have none, and take them from those that are forgotten.

    A service of an older version lets nodes join and forgets them without a thought of prefixes.
    """
    view = draft.view
    if view.underlay is None:
        return Done(200, "", {"given": 0, "freed": 0})
    left = tuple(islice(orphans(view), AT_ONCE))
    for node in left:
        freed(draft, node)
    lacking = tuple(islice(_lacking(draft), AT_ONCE - len(left)))
    given(draft, lacking)
    return Done(200, "", {"given": len(lacking), "freed": len(left)})


def end(draft: Draft, part: Part) -> Done:
    """Let others have prefixes after a quarantine. None lasts longer from now on than the setting says (netregistry.rules.ends)."""
    view, underlay = draft.view, draft.view.underlay
    if underlay is None:
        return Done(200, "", {"ended": 0, "shortened": 0})
    ended = tuple(islice(over(view, draft.now), AT_ONCE))
    for key in ended:
        draft.expect(key)
        draft.delete(key)
    _remember(draft, (view.all("prefixes")[key].number for key in ended))
    long = far(view, draft.now, AT_ONCE - len(ended))
    for key in long:
        prefix: NodePrefix = draft.get(key)
        draft.expect(key)
        draft.put(key, prefix._replace(freed=min(prefix.freed, draft.now), until=draft.now + underlay.rests))
    return Done(200, "", {"ended": len(ended), "shortened": len(long)})


def _remember(draft: Draft, numbers: Iterable[int]) -> None:
    """Note that /64s were somebody's, which nobody has any more."""
    before: Given = draft.get(keys.GIVEN) or Given()
    highest = max((before.highest, *numbers))
    if highest > before.highest and keys.GIVEN not in draft.view.unreadable:
        draft.put(keys.GIVEN, Given(highest))


def without(view: View) -> Iterator[str]:
    """Give the nodes that have no prefix, or one that was freed by a service which did not know that they have joined again."""
    prefixes = view.all("prefixes")
    for key in view.all("nodes"):
        node = key.partition("/")[2]
        prefix = prefixes.get(keys.prefix(node))
        if (prefix is None or prefix.freed) and keys.prefix(node) not in view.unreadable:
            yield node


def _lacking(draft: Draft) -> Iterator[str]:
    """Give those of them that can be given one now: that which they had or say they have, and then any other."""
    view, underlay = draft.view, draft.get(keys.UNDERLAY)
    others = list[str]()
    for node in without(view):
        if draft.get(keys.prefix(node)) is not None or _as_said(draft, underlay, node) is not None:
            yield node
        else:
            others.append(node)
    if others and not healing.withheld(view, draft.get) and next(_free(draft, underlay), None) is not None:
        yield from others


def orphans(view: View) -> Iterator[str]:
    """Give the forgotten nodes whose prefix was not freed."""
    for key, prefix in view.all("prefixes").items():
        node = key.partition("/")[2]
        if not prefix.freed and view.node(node) is None:
            yield node


def over(view: View, now: float) -> Iterator[str]:
    """Give the prefixes whose quarantine is over; one of which there are endpoints still comes behind these."""
    for key in view.due(NodePrefix, now, MOST_RESTING):
        node = key.partition("/")[2]
        if view.node(node) is None and not view.has("placed", node):
            yield key


def far(view: View, now: float, most: int) -> tuple[str, ...]:
    """Give prefixes whose quarantine lasts longer than the setting says."""
    return view.far(NodePrefix, now + underlay.rests + SLACK, most) if (underlay := view.underlay) is not None else ()


def due(view: View, now: float) -> bool:
    """Tell whether ``settle`` has something to do."""
    if view.underlay is None:
        return False
    return next(orphans(view), None) is not None or next(_lacking(Draft(view, "", Identity("leader"), now)), None) is not None
