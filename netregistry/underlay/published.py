"""Note which name servers have the zone of endpoints' names, up to which generation: what is retired waits for all of them. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from netregistry.draft import Commit
from netregistry.model import keys
from netregistry.model.codec import dump
from netregistry.model.underlay import Published, Zone
from netregistry.stores.base import Expect, Put

if TYPE_CHECKING:
    from collections.abc import Iterable

    from netregistry.view import View


def names(view: View, zone: str, virtual: bool = False) -> dict[str, str]:
    """Give the names of a zone, and their addresses; ``virtual``: those on nodes of a mock cloud, too.

    Nobody answers on a simulated node. One that was forgotten is of no kind any more: a name that leads there still is nobody's to publish.
    """
    place = f"names/{zone}/"
    found = {key.removeprefix(place): name for key, name in view.all("names").items() if key.startswith(place)}
    return {key: name.address for key, name in found.items() if virtual or _is_real(view, name.node)}


def _is_real(view: View, uuid: str) -> bool:
    node = view.node(uuid)
    return node is not None and node.kind != "virtual"


def servers(view: View, there: Iterable[str], now: float) -> Commit | None:
    """Give the commit by which the zone is published by these servers, and by no others; None where it is so.

    One that is new has nothing yet. For one that is no more nobody waits.
    """
    underlay = view.underlay
    if underlay is None or not underlay.zone:
        return None
    before: Zone = view.get(keys.zone(underlay.zone)) or Zone()
    known = {each.server: each for each in before.published}
    after = tuple(known.get(server) or Published(server, 0, now) for server in there)
    return _put(view, underlay.zone, before._replace(published=after)) if set(after) != set(before.published) else None


def noted(view: View, server: str, generation: int, now: float) -> Commit | None:
    """Give the commit by which a server has the zone up to a generation; None where that is known, or it publishes it no more."""
    underlay = view.underlay
    before: Zone | None = view.get(keys.zone(underlay.zone)) if underlay is not None else None
    if underlay is None or before is None or generation > before.generation:
        return None  # of another zone than now
    after = tuple(
        Published(server, generation, now) if each.server == server and each.generation < generation else each for each in before.published
    )
    return _put(view, underlay.zone, before._replace(published=after)) if after != before.published else None


def _put(view: View, zone: str, after: Zone) -> Commit:
    key = keys.zone(zone)
    return Commit((Expect(key, view.at(key)),), (Put(key, dump(after)),))
