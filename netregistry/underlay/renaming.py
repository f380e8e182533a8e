"""Let an instance keep its endpoints and names when its cluster is called otherwise: they go with the first of its NICs, in one commit."""

from __future__ import annotations

from typing import TYPE_CHECKING

from netregistry.model import keys
from netregistry.model.codec import dump

if TYPE_CHECKING:
    from netregistry.draft import Draft
    from netregistry.model.importing import Import
    from netregistry.model.nic import Nic
    from netregistry.model.underlay import Name, NodePrefix, Placement


def size(draft: Draft, nic: Nic) -> tuple[int, int]:
    """Give how many things change with a NIC's cluster, and their bytes, about."""
    placement = _placement(draft, nic)
    if placement is None:
        return 0, 0
    return 2 + len(draft.members("names", nic.cluster, nic.instance)) + len(placement.nodes), len(dump(placement))


def renamed(draft: Draft, nic: Nic, new: str) -> None:
    """Let what the instance of a NIC has be of another cluster, unless an instance of that has endpoints by this name already."""
    placement, key = _placement(draft, nic), keys.placement(new, nic.instance)
    if placement is None or draft.get(key) is not None or key in draft.view.unreadable:
        return
    before = keys.placement(nic.cluster, nic.instance)
    held = draft.members("names", nic.cluster, nic.instance)
    for each in (before, key, *held):
        draft.expect(each)
    draft.delete(before)
    draft.put(key, placement._replace(cluster=new, generation=placement.generation + 1))
    for each in held:
        name: Name = draft.get(each)
        draft.put(each, name._replace(cluster=new))  # it leads where it led: the zone is as it was
    for node in placement.nodes:
        _tell(draft, keys.prefix(node))


def is_split(draft: Draft, cluster: str, instance: str) -> bool:
    """Tell whether some NICs of an instance have the one name of their cluster and some another: it is being renamed."""
    there: Import | None = draft.get(keys.imported(cluster)) if cluster else None
    names = draft.members("imported", there.uuid) if there is not None else ()
    return len(names) > 1 and sum(bool(draft.members("instance", each.partition("/")[2], instance)) for each in names) > 1


def _placement(draft: Draft, nic: Nic) -> Placement | None:
    key = keys.placement(nic.cluster, nic.instance)
    found: Placement | None = draft.get(key) if nic.instance and key not in draft.view.unreadable else None
    return found


def _tell(draft: Draft, key: str) -> None:
    """Advance the generation of a node's prefix: what it is told has changed. Once in a commit."""
    prefix: NodePrefix | None = draft.get(key)
    if prefix is not None and key not in draft.view.unreadable and not draft.touched(key):
        draft.expect(key)
        draft.put(key, prefix._replace(generation=prefix.generation + 1))
