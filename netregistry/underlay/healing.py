"""Heal what the registry knows of nodes' prefixes and endpoints by what the nodes say, after a restore from a copy that is older.

With its first word in an epoch a node says which /64 it has, and which endpoints were told to it. The /64 is its own as long as no other
node has it, its counter goes on behind its addresses, and each endpoint that no placement has is put back into that of its instance. Until
that is done it is told to the node on: nothing goes from a node by what a copy does not know.
"""

from __future__ import annotations

from ipaddress import IPv6Network
from typing import TYPE_CHECKING, Any

from netregistry.draft import Commit
from netregistry.model import keys
from netregistry.model.codec import dump
from netregistry.model.underlay import EACH, FIRST, Endpoint, NodePrefix, Opened, Placement
from netregistry.stores.base import Expect, Put
from netregistry.underlay import saga

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from netregistry.draft import Draft
    from netregistry.model.underlay import Confirmed, Had, There, Underlay
    from netregistry.view import View

WAIT = 60.0  #: seconds of an epoch in which nodes say which /64s they have, and none is given, at least
HELD = 55.0  #: seconds of these in which names are held: none leads to where a node has nothing when /64s are given again
MOST_NAMED = 5  #: nodes that a text names
UNSURE = frozenset(("prefixes", "strangers", keys.OPENED))  #: kinds of keys: one that cannot be read may say that any /64 is somebody's


def numbers(draft: Draft, underlay: Underlay) -> set[int]:
    """Give the numbers of the /64s that nodes have, and of those that they say they have."""
    given = (draft.get(key) for key in (*draft.view.all("prefixes"), *draft.written("prefixes")))
    return {each.number for each in given if each is not None} | {underlay.number_of(each) for each in spoken_for(draft)} - {-1}


def spoken_for(draft: Draft) -> dict[str, str]:
    """Give each /64 that a node says it has, known to the registry or not, and the node."""
    said: dict[str, Confirmed | None] = {key: draft.get(key) for key in (*draft.view.all("confirmed"), *draft.written("confirmed"))}
    found: dict[str, str] = {}
    for key in draft.view.all("strangers"):
        stranger, node = draft.get(key), key.partition("/")[2]
        if stranger is not None and draft.node(node) is None:
            found[stranger.prefix] = node
    for key, each in said.items():
        node = key.partition("/")[2]
        if each is not None and each.there.prefix and draft.node(node) is not None:
            found[each.there.prefix] = node
    return found


def said_by(draft: Draft, node: str) -> str:
    """Give the /64 that a node says it has; "" for none. What it has said to the registry that was here before a restore counts too."""
    said: Confirmed | None = draft.get(keys.confirmed(node))
    if said is not None and said.there.prefix:
        return said.there.prefix
    stranger = draft.get(keys.stranger(node))
    return stranger.prefix if stranger is not None else ""


def taken(draft: Draft, underlay: Underlay, node: str, prefix: str) -> NodePrefix | None:
    """Give a /64 as a node says that it has it; None where it is none of the site's, or another node's, or nobody can tell.

    What rests is its former owner's no more where another one says that it has it: it was given again after the copy was made. Its counter
    is behind that of the former owner, of whose endpoints a copy may know.
    """
    number, former = underlay.number_of(prefix) if prefix else -1, node
    if number < 0 or any(keys.kind(key) == "prefixes" for key in draft.view.unreadable):
        return None
    found = NodePrefix(number, underlay.of(number))
    for key in _others(draft, node, found.prefix):
        former = key.partition("/")[2]
        if draft.node(former) is not None:
            return None
        found = found._replace(next=draft.get(key).next)
    return found if spoken_for(draft).get(found.prefix, node) in (node, former) else None


def take(draft: Draft, node: str, prefix: str) -> None:
    """Let a /64 that a node has be no forgotten one's any more: it does not rest, and what that one says of it is nothing."""
    strangers = (key for key in draft.view.all("strangers") if draft.get(key) is not None and draft.get(key).prefix == prefix)
    for key in (*_others(draft, node, prefix), *strangers):
        draft.expect(key)
        draft.delete(key)


def _others(draft: Draft, node: str, prefix: str) -> list[str]:
    """Give the keys of other nodes' prefixes that are this /64."""
    found = ((key, draft.get(key)) for key in (*draft.view.all("prefixes"), *draft.written("prefixes")) if key != keys.prefix(node))
    return list(dict.fromkeys(key for key, each in found if each is not None and each.prefix == prefix))


def owner(view: View, node: str, prefix: str) -> str:
    """Give the node of the registry that has a /64 which another one says it has; "" for none.

    Where that one had it, and was forgotten, any other that says so has it.
    """
    found = (key.partition("/")[2] for key, each in view.all("prefixes").items() if each.prefix == prefix)
    if other := next((each for each in found if view.node(each) is not None), ""):
        return other
    before: NodePrefix | None = view.get(keys.prefix(node))
    if before is None or before.prefix != prefix:
        return ""
    said = (key.partition("/")[2] for key, each in view.all("strangers").items() if each.prefix == prefix)
    return next((each for each in said if each != node), "")


def beyond(prefix: NodePrefix, there: There, had: Iterable[Had] = ()) -> NodePrefix:
    """Give a prefix whose counter is behind all that its node has of it, and whose generation is behind what that has done."""
    return prefix.behind(there.generation, (*there.addresses, *(each.address for each in had)))


def lost(draft: Draft, node: str, prefix: NodePrefix, had: Iterable[Had]) -> tuple[Had, ...]:
    """Give those of a node's endpoints that are in its prefix, and in no placement of their instance, whatever its cluster is called."""
    placements: list[Placement] = [draft.get(key) for key in draft.members("placed", node)]
    known = {(placement.instance, each.address) for placement in placements for each in placement.endpoints}
    missing = (each for each in had if each.instance and (each.instance, each.address) not in known)
    return tuple(each for each in missing if prefix.number_of(each.address) >= FIRST)


def _anothers(draft: Draft, before: Placement) -> set[str]:
    """Give the addresses of a placement that are another instance's by what their nodes had before a restore.

    The copy was put back behind one that was older, by which they were given again.
    """
    own = {each.address: each.node for each in before.endpoints}
    found = set[str]()
    for node in dict.fromkeys(own.values()):
        said: Confirmed | None = draft.get(keys.confirmed(node))
        if said is not None and said.epoch == draft.view.epoch:
            had = draft.derived(_of_addresses, keys.confirmed(node))
            found |= {each for each, at in own.items() if at == node and had.get(each, set()) - {before.instance}}
    return found


def _of_addresses(_key: str, said: Confirmed) -> dict[str, set[str]]:
    """Give the instances of which a node has had an address before a restore, by that."""
    found: dict[str, set[str]] = {}
    for each in said.had:
        found.setdefault(each.address, set()).add(each.instance)
    return found


def _of_instances(_key: str, said: Confirmed) -> dict[tuple[str, str], list[Had]]:
    """Give what a node has had before a restore, by clusters and names of instances."""
    found: dict[tuple[str, str], list[Had]] = {}
    for each in said.had:
        found.setdefault((each.cluster, each.instance), []).append(each)
    return found


def _given_up(draft: Draft, node: str, had: Had) -> None:
    """Let other instances have an address no more that a node has had for this one; what they have instead their own steps say."""
    for key in draft.members("placed", node):
        other: Placement = draft.get(key)
        kept = tuple(each for each in other.endpoints if each.address != had.address)
        if other.instance != had.instance and kept != other.endpoints:
            draft.expect(key)
            draft.put(key, other._replace(endpoints=kept, generation=other.generation + 1))


def regained(draft: Draft, before: Placement, nodes: Iterable[str], rests: float, served: bool) -> tuple[Placement, dict[str, list[Had]]]:
    """Give a placement with the endpoints that nodes have had of it before a restore, and which ones these are, by node.

    ``nodes``: those that are alive and say anything of its guest. A node says first what it has, and then of which guests: until that was
    said, or a while is over, an endpoint stays as it is.
    """
    anothers = _anothers(draft, before)
    found = [each for each in before.endpoints if each.address not in anothers and _stays(draft, each)]
    known = {each.address for each in found}
    settled: dict[str, list[Had]] = {}
    over = not opening(draft.view)
    for key in draft.members("had", before.cluster, before.instance):
        node, said = key.partition("/")[2], draft.get(key)
        prefix: NodePrefix | None = draft.get(keys.prefix(node))
        if draft.node(node) is None or said.epoch != draft.view.epoch or prefix is None:
            continue
        taken = []
        for each in draft.derived(_of_instances, key).get((before.cluster, before.instance), ()):
            if not _is_in(prefix, each.address):
                taken.append(each)  # it is of an underlay of before
                continue
            if not (over or each.retired or node in nodes):
                continue
            if each.address not in known:
                if not saga.has_room(found, node):
                    continue  # it stays as its node has it
                _given_up(draft, node, each)
                told = _endpoint(draft, node, each, each.address in said.there.addresses, rests, served)
                found = [*(_behind(one, told, rests, served) for one in found), told]
            taken.append(each)
        if taken:
            settled[node] = taken
    return before._replace(endpoints=tuple(found)), settled


def _stays(draft: Draft, each: Endpoint) -> bool:
    """Tell whether an endpoint's address is one of its node's prefix, or of nobody's where that has none."""
    prefix: NodePrefix | None = draft.get(keys.prefix(each.node))
    if prefix is not None:
        return _is_in(prefix, each.address)
    return not _others(draft, each.node, str(IPv6Network((each.address, EACH), strict=False)))


def _is_in(prefix: NodePrefix, address: str) -> bool:
    """Tell whether an address is one of a node's prefix, which may be another one than a copy, or the node, has said before."""
    return address.startswith(prefix.prefix.partition("/")[0]) or prefix.number_of(address) >= 0


def _endpoint(draft: Draft, node: str, each: Had, there: bool, rests: float, served: bool) -> Endpoint:
    """Give an endpoint as its node says that it is. One that is retired rests from now on: nobody knows since when it has."""
    now = draft.now
    if each.retired:
        return Endpoint(each.kind, node, each.address, "retired", now, cleared=0.0 if served else now, until=now + rests)
    return Endpoint(each.kind, node, each.address, "there" if there else "wanted", now)


def _behind(each: Endpoint, told: Endpoint, rests: float, served: bool) -> Endpoint:
    """Give an endpoint as it is behind one that its node was told and a copy does not know: of a kind it has one of a guest, the latest."""
    if not (each.live and told.live and (each.node, each.kind) == (told.node, told.kind)):
        return each
    return each._replace(state="retired", since=told.since, cleared=0.0 if served else told.since, until=told.since + rests)


def _waits(opened: Opened | None, epoch: str) -> bool:
    """Tell whether nodes still have time to say what they have."""
    return opened is None or opened.epoch != epoch or opened.since > 0


def opened(view: View, now: float, over: bool) -> Commit | None:
    """Give the commit that notes that an epoch has begun, or that the time is ``over`` that nodes have in it; None where that is noted.

    It rests on nothing else: whatever cannot be read, that time ends.
    """
    key = keys.OPENED
    there: Opened | None = view.get(key)
    anew = there is None or there.epoch != view.epoch
    if not opening(view) or not (anew or over):
        return None
    return Commit((Expect(key, view.at(key)),), (Put(key, dump(Opened(view.epoch, now if anew else 0.0))),))


def opening(view: View) -> bool:
    """Tell whether nodes still have time to say what they have; never for good: what cannot be read says nothing of that."""
    return view.underlay is not None and keys.OPENED not in view.unreadable and _waits(view.get(keys.OPENED), view.epoch)


def withheld(view: View, get: Callable[[str], Any] | None = None) -> str:
    """Say why no /64 is given that no node says it has; "": they are given. ``get``: reads what is to be written, too."""
    if unsure := next((key for key in view.unreadable if keys.kind(key) in UNSURE), ""):
        return f"no /64 is given: what the registry holds at {unsure} cannot be read, and it may be any: netcommon registry restore"
    if _waits((get or view.get)(keys.OPENED), view.epoch):
        return "no /64 is given yet: the registry was restored or moved, and nodes have a minute to say which ones they have"
    if missing := view.unheard():
        named = ", ".join(_names(view, missing[:MOST_NAMED]))
        named += f" and {len(missing) - MOST_NAMED} more" if len(missing) > MOST_NAMED else ""
        return f"no /64 is given before all live nodes have said what they have, since the registry was restored or moved: {named}"
    return ""


def _names(view: View, nodes: Iterable[str]) -> Iterator[str]:
    return (there.name if (there := view.node(node)) is not None else node for node in nodes)


def strangers(view: View) -> Iterator[str]:
    """Say which nodes have a /64 that the registry does not know, each in one line."""
    for key, stranger in view.all("strangers").items():
        node = key.partition("/")[2]
        if view.node(node) is None:
            first = stranger.prefix.partition("/")[0]
            yield (
                f"{stranger.prefix} is of node {node}, which this registry does not know: let it join again (netcommon registry node "
                f"join), or stop it, and netcommon registry underlay quarantine --release {first}"
            )
