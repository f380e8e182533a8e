"""Note which name servers have the zone of endpoints' names, up to which generation: what is retired waits for all of them. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from netregistry.draft import Commit
from netregistry.model import keys
from netregistry.model.codec import dump
from netregistry.model.underlay import Published, RegistryId, Zone
from netregistry.stores.base import Expect, Put
from netregistry.zone.unheard import Unheard

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from netregistry.draft import Draft
    from netregistry.model.node import Node
    from netregistry.model.underlay import Confirmed, Placement
    from netregistry.view import View

LONGEST_ID = 16  #: characters
MOST_EPOCHS = 100  #: earlier ones that are remembered


def names(view: View, zone: str, virtual: bool = False) -> dict[str, str]:
    """Give the names of a zone, and their addresses; ``virtual``: those on nodes of a mock cloud, too.

    Nobody answers on a simulated node. One that was forgotten is of no kind any more: a name that leads there still is nobody's to publish.
    """
    place = f"names/{zone}/"
    found = {key.removeprefix(place): name for key, name in view.all("names").items() if key.startswith(place)}
    return {key: name.address for key, name in found.items() if virtual or _is_real(view, name.node)}


def unheard(view: View, changed: Iterable[str]) -> Unheard:
    """Give which names may be changed at name servers as long as nodes have time to say what they have.

    ``changed``: names that steps of this epoch have changed. An endpoint that a node says it has, and of whose guest it is still to say
    that it is there, is in no placement yet.
    """
    prefixes, pending, there = set[str](), set[str](), set[str]()
    for key, prefix in view.all("prefixes").items():
        said: Confirmed | None = view.get(keys.confirmed(key.partition("/")[2]))
        if said is not None and said.epoch == view.epoch:
            prefixes.add(prefix.prefix)
            pending.update(each.address for each in said.had)
            there.update(said.there.addresses)
    return Unheard.of(changed, prefixes, pending, there)


def _is_real(view: View, uuid: str) -> bool:
    return _real(view.node(uuid))


def _real(node: Node | None) -> bool:
    return node is not None and node.kind != "virtual"


def turned(draft: Draft, uuid: str, before: Node | None, after: Node | None) -> None:
    """Advance the generation of each zone with a name that leads to a node, where names on it are published from now on, or no more."""
    if _real(before) == _real(after):
        return
    zones = set[str]()
    for place in draft.members("placed", uuid):
        placement: Placement = draft.get(place)
        found = {key: draft.get(key) for key in draft.members("names", placement.cluster, placement.instance)}
        zones |= {key.split("/")[1] for key, name in found.items() if name.node == uuid}
    for key in map(keys.zone, sorted(zones)):
        there: Zone = draft.get(key) or Zone()
        draft.expect(key)
        draft.put(key, there._replace(generation=there.generation + 1))


def registry_id(view: View) -> str:
    """Give the id of the registry: that which is noted, or that which is to be.

    By its oldest authority, which it has had since it was made, so that a copy from before it was noted has the same; without any, as
    where a test has made it, by its epoch.
    """
    noted: RegistryId | None = view.get(keys.REGISTRY_ID)
    if noted is not None:
        return noted.id
    oldest = min(view.all("authorities").values(), key=lambda each: each.made, default=None)
    return (oldest.fingerprint if oldest is not None else view.epoch)[:LONGEST_ID]


def identified(view: View, _now: float) -> Commit | None:
    """Give the commit that notes the id of the registry; None where it is noted, or what is noted cannot be read."""
    key = keys.REGISTRY_ID
    if view.at(key):
        return None
    return Commit((Expect(key, 0),), (Put(key, dump(RegistryId(registry_id(view)))),))


def servers(view: View, those: Iterable[str], now: float) -> Commit | None:
    """Give the commit by which the zone is published by these servers, and by no others; None where it is so.

    Of one that is new nobody knows what it has, nor of any in a new epoch. For one that is no more nobody waits, neither for a zone that
    was the underlay's before.
    """
    if view.underlay is None:
        return None
    wanted, servers = view.underlay.zone, tuple(those)
    changed = dict[str, Zone]()
    for zone in dict.fromkeys((*([wanted] if wanted else []), *others(view))):
        before: Zone = view.get(keys.zone(zone)) or Zone()
        were = {each.server for each in before.published}
        known = {each.server: each for each in before.published if each.epoch == view.epoch}
        there = [server for server in servers if zone == wanted or server in were]
        after = tuple(known.get(server) or Published(server, -1, now, view.epoch) for server in there)
        if set(after) != set(before.published):
            ended = (each.epoch for each in before.published if each.epoch not in ("", view.epoch))
            epochs = tuple(dict.fromkeys((*before.epochs, *ended)))[-MOST_EPOCHS:]
            changed[zone] = before._replace(published=after, epochs=epochs)
    return _put(view, changed) if changed else None


def others(view: View) -> dict[str, Zone]:
    """Give the zones that were the underlay's before. Their names go one by one, and then from the servers that have them."""
    wanted = keys.zone(view.underlay.zone if view.underlay is not None else "")
    return {key.partition("/")[2]: zone for key, zone in view.all("zones").items() if key != wanted}


def noted(view: View, server: str, zone: str, generation: int, now: float) -> Commit | None:
    """Give the commit by which a server has a zone up to a generation; None where that is known, or it publishes it no more.

    A generation of -1 is always news: it has lost what it had.
    """
    before: Zone | None = view.get(keys.zone(zone))
    if view.underlay is None or before is None or generation > before.generation:
        return None
    made = Published(server, generation, now, view.epoch)
    after = tuple(_behind(made, each) if each.server == server and _is_news(made, each) else each for each in before.published)
    return _put(view, {zone: before._replace(published=after)}) if after != before.published else None


def _behind(made: Published, before: Published) -> Published:
    """Give what is noted of a server behind what was: where it had lost the zone, or nobody knew, it has had it since now alone."""
    return made._replace(kept=made.time if before.epoch != made.epoch or before.generation < 0 else before.kept)


def _is_news(made: Published, before: Published) -> bool:
    return before.epoch != made.epoch or before.generation < made.generation or made.generation < 0 <= before.generation


def _put(view: View, zones: Mapping[str, Zone]) -> Commit:
    found = {keys.zone(zone): after for zone, after in zones.items()}
    return Commit(tuple(Expect(key, view.at(key)) for key in found), tuple(Put(key, dump(after)) for key, after in found.items()))
