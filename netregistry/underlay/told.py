"""Say what a node is to have of the underlay, as its stream tells it. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from netregistry.model import keys
from netregistry.model.underlay import FIRST
from netregistry.underlay import names

if TYPE_CHECKING:
    from collections.abc import Mapping

    from netregistry.draft import Draft
    from netregistry.model.underlay import Confirmed, Endpoint, Had, Name, NodePrefix, Placement, Underlay


class Known(Protocol):
    """Read what it is made from: a View, or what one was."""

    epoch: str

    @property
    def unreadable(self) -> Mapping[str, str]: ...

    def get(self, key: str) -> Any: ...

    def at(self, key: str) -> int: ...

    def members(self, name: str, *of: str) -> tuple[str, ...]: ...


class Stand(NamedTuple):
    """Say by which revision a node is told what it has of the underlay, 0 for nothing; ``problem``: why nobody can tell, "" for no."""

    at: int = 0
    problem: str = ""


def stand(view: Known, node: str) -> Stand:
    """Tell how a node's underlay stands. What cannot be read is none that it has not: all would go from it that names lead to."""
    key, said = keys.prefix(node), view.get(keys.confirmed(node))
    prefix: NodePrefix | None = view.get(key)
    for each in (key, keys.UNDERLAY) if prefix is None or not prefix.freed else (key,):
        if each in view.unreadable and (prefix is not None or each == key):
            return Stand(view.at(key), f"what the registry holds at {each} cannot be read: what this node has stays as it is")
    if prefix is None and said is not None and said.epoch == view.epoch and (why := _unsettled(view, node, said.there.prefix)):
        return Stand(view.at(keys.confirmed(node)), f"{why}; what this node has stays as it is")
    return Stand(view.at(key)) if prefix is not None and not prefix.freed else Stand()


def _unsettled(view: Known, node: str, prefix: str) -> str:
    """Say why a /64 that a node says it has is not noted as that node's, and may be yet; "" where it says none, or it is to have none."""
    if prefix and view.get(keys.UNDERLAY) is None:
        return "the registry was restored from a copy of before its underlay: netcommon registry underlay init"
    return f"it is not noted yet that {prefix} is this node's: netcommon registry underlay show" if is_open(view, node, prefix) else ""


def is_open(view: Known | Draft, node: str, prefix: str) -> bool:
    """Tell whether a /64 that a node says it has is one of the site's, and no other node's by the registry."""
    underlay: Underlay | None = view.get(keys.UNDERLAY)
    if not prefix or underlay is None or (number := underlay.number_of(prefix)) < 0:
        return False
    owners = (key.partition("/")[2] for key in view.members("prefix", underlay.of(number)))
    return all(owner == node or view.get(keys.node(owner)) is None for owner in owners)


def of(view: Known, node: str) -> dict[str, Any]:
    """Give the prefix of a node that has one, and the endpoints that are to be there, those that are retired too.

    Those of before a restore, of which there is no placement again yet, stay.
    """
    underlay: Underlay = view.get(keys.UNDERLAY)
    said: Confirmed | None = view.get(keys.confirmed(node))
    prefix: NodePrefix = view.get(keys.prefix(node))
    placements: list[Placement] = [view.get(key) for key in sorted(view.members("placed", node))]
    shown = [
        _endpoint(view, placement, each, underlay.zone)
        for placement in placements
        for each in placement.endpoints
        if each.node == node and each.state != "leaving"
    ]
    known = {each["address"] for each in shown}
    had = (each for each in (said.had if said is not None else ()) if each.address not in known)
    shown += [_had(each) for each in had if prefix.number_of(each.address) >= FIRST]  # it may be of an underlay of before
    kept = _kept(view, node, prefix, said, placements)
    return {"generation": prefix.generation, "prefix": prefix.prefix, "endpoints": shown} | ({"kept": kept} if kept else {})


def _kept(view: Known, node: str, prefix: NodePrefix, said: Confirmed | None, placements: list[Placement]) -> list[str]:
    """Give what stays on a node as it is, since a placement cannot be read that may be of it."""
    if said is None or not any(keys.kind(key) == "endpoints" for key in view.unreadable):
        return []
    known = {each.address for placement in placements for each in placement.endpoints}
    known |= {each.address for each in said.had}
    return [each for each in said.there.addresses if each not in known and prefix.number_of(each) >= FIRST]


def _had(each: Had) -> dict[str, Any]:
    state = "retired" if each.retired else "there"
    of = {"cluster": each.cluster, "instance": each.instance, "kind": each.kind, "address": each.address}
    return {**of, "name": "", "migrating": False, "state": state}


def _endpoint(view: Known, placement: Placement, each: Endpoint, zone: str) -> dict[str, Any]:
    name = names.of(placement, each, zone)
    there: Name | None = view.get(keys.name(zone, name)) if name else None
    return {
        "cluster": placement.cluster,
        "instance": placement.instance,
        "kind": each.kind,
        "address": each.address,
        "name": name if there is not None and there.address == each.address else "",
        "migrating": each.live and each.node == placement.incoming,
        "state": each.state,
    }
