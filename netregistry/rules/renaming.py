"""Rename a Ganeti cluster: gnt-cluster rename keeps its UUID, and what the registry has of it goes with the name.

That is done in parts, as much by one request as fits into a commit, and begun again wherever it was left: what has the new name already is
passed over. The import under the new name comes with the first part, and that under the old one goes with the last: until then the cluster
is imported under both, from which it is known what is to be renamed, whatever it is called by then.
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Any

from netregistry.model import keys
from netregistry.model.claim import Claim
from netregistry.model.codec import dump
from netregistry.model.network import Network
from netregistry.model.nic import Nic
from netregistry.refusal import Refused
from netregistry.rules import claims, nics
from netregistry.rules.ends import BYTES
from netregistry.underlay import renaming

if TYPE_CHECKING:
    from collections.abc import Iterator

    from netregistry.draft import Draft
    from netregistry.model.importing import Import
    from netregistry.view import View

MOST_OF_ONE = 40  #: things that change with one NIC at most: itself, and its MAC and addresses in both scopes


def others(draft: Draft, cluster: str, uuid: str) -> list[tuple[str, Import]]:
    """Give the other names under which a cluster is imported, and those imports: several where renamings were not ended."""
    found = sorted(draft.members("imported", uuid))
    return [(key.partition("/")[2], draft.get(key)) for key in found if key != keys.imported(cluster)]


def is_imported(draft: Draft, cluster: str) -> bool:
    """Tell whether there is a NIC or a network of which a cluster is the master."""
    things = map(draft.get, draft.members("cluster", cluster))
    return any(isinstance(each, Nic | Network) and each.master == f"ganeti:{cluster}" for each in things)


def count(view: View, old: str) -> int:
    """Count what is of a cluster."""
    return sum(1 for _ in chain(_things(view, old), _claimed(view, old)))


def renamed(draft: Draft, old: str, new: str) -> int:
    """Give things of a cluster another one for theirs, as many as fit; give how many are left. Raises Refused.

    Claims come when no NIC is left: what the last ones had by the old name was freed by then, and not before by the same commit.
    """
    things, claimed = list(_things(draft.view, old)), list(_claimed(draft.view, old))
    todo = things or claimed
    done = size = 0
    for key in todo:
        value = draft.get(key)
        things_beside, bytes_beside = renaming.size(draft, value) if isinstance(value, Nic) else (0, 0)
        size += len(dump(value)) + bytes_beside
        if done and (size > BYTES or draft.room < MOST_OF_ONE + things_beside):
            break
        _renamed(draft, key, value, old, new)
        done += 1
    return len(todo) - done + (len(claimed) if things else 0)


def _things(view: View, old: str) -> Iterator[str]:
    """Give what is of a cluster, and no claim: networks before NICs, and who holds something before who contends for it.

    NICs of one instance come together where that lets them.
    """
    of: dict[str, list[str]] = {"networks": [], "nics": [], "nodes": []}
    for key in view.members("cluster", old):
        of[keys.kind(key)].append(key)
    of["nics"].sort(key=lambda key: (_contends(view, view.get(key)), view.get(key).instance))
    return chain(*of.values())


def _contends(view: View, nic: Nic) -> bool:
    return nic.scope == nic.cluster and any((claim := view.claim(key)) is not None and claim.holder != nic.uuid for key in keys.claims(nic))


def _claimed(view: View, old: str) -> Iterator[str]:
    for key, claim in chain(view.all("macs").items(), view.all("addresses").items()):
        if claim.cluster == old or _scope(key) == old:
            yield key


def _renamed(draft: Draft, key: str, value: Any, old: str, new: str) -> None:
    if isinstance(value, Claim):
        _claim(draft, key, value, old, new)
        return
    after = value._replace(cluster=new)
    if isinstance(value, Nic | Network) and value.master == f"ganeti:{old}":
        after = after._replace(master=f"ganeti:{new}")
    if isinstance(value, Network) and draft.members("named", new, value.name):
        detail = f"there is a network {value.name} already in {new}: rename or delete that one before"
        raise Refused("exists", detail, field="name")
    if isinstance(value, Nic):
        claims.change(draft, value._replace(reserved=False), after, True)  # it keeps what it has: nothing is freed by that
        nics.keep(draft, after)
        renaming.renamed(draft, value, new)
    else:
        draft.put(key, after)


def _claim(draft: Draft, key: str, claim: Claim, old: str, new: str) -> None:
    """Let a claim be of the new name; beside one that is there already its reservation alone counts."""
    after = claim._replace(cluster=new) if claim.cluster == old else claim
    if _scope(key) == old:
        draft.delete(key)
        key = "/".join((keys.kind(key), new, key.split("/", 2)[2]))
        if (there := draft.claim(key)) is not None:
            kept = there if there.reserved else after
            after = there._replace(reserved=kept.reserved, cluster=kept.cluster, instance=kept.instance)
    draft.put(key, after)


def _scope(key: str) -> str:
    return key.split("/", 2)[1]
