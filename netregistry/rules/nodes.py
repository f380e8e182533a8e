"""Let nodes join, be alive, change, be fenced and be forgotten."""

from __future__ import annotations

from typing import TYPE_CHECKING

from netregistry.draft import Commit
from netregistry.model import keys
from netregistry.model.codec import Invalid, dump, read_fields, write
from netregistry.model.node import Alive, Node
from netregistry.refusal import Refused
from netregistry.request import Done, matched
from netregistry.rules.holders import revoked
from netregistry.rules.networks import forced
from netregistry.rules.underlay import freed, given
from netregistry.stores.base import Delete, Expect, Put
from netregistry.underlay.published import turned
from runtime.moment import local_time

if TYPE_CHECKING:
    from typing import Any

    from netregistry.draft import Draft
    from netregistry.model.history import Identity
    from netregistry.model.underlay import Confirmed
    from netregistry.request import Part
    from netregistry.view import View

FIELDS = ("name", "cluster", "kind", "provides")
#: What a node may say of itself.
OF_NODE = ("name", "kind")
FENCED = 100  #: reports
ITS_OWN = "each has a certificate of its own, which netcommon registry join URL TOKEN gets, on that node"


def join(draft: Draft, part: Part) -> Done:
    """Let a node join under the UUID that it keeps."""
    fields = read_fields(Node, part.body, ("uuid", *FIELDS))
    for name in ("uuid", "name"):
        if name not in fields:
            raise Invalid(name, None, "a value: it is missing")
    node = Node(**fields)._replace(joined=draft.now, epoch=draft.view.epoch)
    if draft.get(keys.stranger(node.uuid)) is not None:
        node = node._replace(epoch="")  # it has what it was given before a restore, and is to say what that is
    _itself(draft, node.uuid, "join")
    if draft.node(node.uuid) is not None:
        raise Refused("exists", f"node {node.uuid} has joined already: a copied machine needs an identity of its own", node=node.uuid)
    again = f"where this machine is to be it again, netcommon registry token create node {node.name}, and join by that"
    _named_once(draft, node, f": {again}; where it is gone for good, netcommon registry node forget {node.name}; else another name")
    if draft.view.members("on", node.uuid) or draft.view.reports(node.uuid) is not None:  # they would count as this node's
        raise Refused("busy", f"what {node.name} had reported before it was forgotten is being removed: try again in a moment")
    key = keys.node(node.uuid)
    draft.put(key, node)
    turned(draft, node.uuid, None, node)
    given(draft, (node.uuid,))
    return Done(201, key, write(node))


def so_already(node: Node, body: Any) -> None:
    """Raise Refused where who joins as a node that is there asks for other fields than it has, Invalid where they are none.

    It is asked for by whoever types at the node, with a token: what a node is and should provide is its operator's to change.
    """
    fields = read_fields(Node, body, ("uuid", *FIELDS))
    for name in (each for each in FIELDS if each in fields and not _same(fields[each], getattr(node, each))):
        there, wanted = (",".join(each) if isinstance(each, tuple) else each for each in (getattr(node, name), fields[name]))
        command = f"netcommon registry node set {node.name} {name}={wanted}"
        detail = f"node {node.uuid} has joined before, and its {name} is {there!a}, not {wanted!a}: {command}, or join without it"
        raise Refused("exists", detail, field=name, node=node.uuid, called=node.name, command=command)


def _same(one: Any, other: Any) -> bool:
    """Tell whether two values of a field say the same: tags have no order."""
    return set(one) == set(other) if isinstance(one, tuple) and isinstance(other, tuple) else bool(one == other)


def set_(draft: Draft, part: Part) -> Done:
    """Change what is said of a node. A node says its own name and kind."""
    before = _there(draft, part.target)
    key = keys.node(before.uuid)
    matched(draft, key, part.match)
    fields = read_fields(Node, part.body, FIELDS)
    _itself(draft, before.uuid, "set")
    for name in fields:
        if draft.who.role == "node" and name not in OF_NODE and fields[name] != getattr(before, name):
            command = f"netcommon registry node set {before.name} {name}=..."
            detail = f"{name} is for the registry's operator to decide: {command}"
            raise Refused("forbidden", detail, master="registry", field=name, command=command)
    node = before._replace(**fields)
    _named_once(draft, node)
    draft.put(key, node)
    turned(draft, node.uuid, before, node)
    return Done(200, key, write(node))


def forget(draft: Draft, part: Part) -> Done:
    """Forget a node: its reports count no more, and it cannot report. ``force``: also while it is alive.

    NICs whose master it is stay wanted, and the answer lists them: their addresses are freed by their deletion alone.
    """
    node = _there(draft, part.target)
    key = keys.node(node.uuid)
    matched(draft, key, part.match)
    alive = keys.alive(node.uuid)
    draft.expect(alive)  # it may come to life at another service
    if draft.view.alive(node.uuid) is not None:
        if not forced(part):
            raise Refused("in-use", f"node {node.name} is alive: stop its agent first, or force it", node=node.uuid)
        draft.delete(alive)  # who joins under its UUID next is another one, and need not wait for the end of its lease
    left = [nic.uuid for nic in draft.nics("mastered", f"node:{node.uuid}")]
    draft.delete(key)  # its reports are swept by the leader
    turned(draft, node.uuid, node, None)
    freed(draft, node.uuid)
    if draft.view.all("authorities"):
        revoked(draft, "node", node.uuid, forgets=True)  # it could join again by one, be it known here or, after a restore, not
    return Done(200, key, {"node": write(node), "nics": left})


def fence(draft: Draft, part: Part) -> Done:
    """Say of a node that is off that it has no NIC any more: its reports go, and those that it had sent before are not taken.

    No guest is on its way to it any more, either.

    FENCED of them go in one commit; the answer says how many are left. ``force``: also while its lease lasts.
    """
    node = _there(draft, part.target)
    matched(draft, keys.node(node.uuid), part.match)
    key, alive = keys.reports(node.uuid), keys.alive(node.uuid)
    draft.expect(alive)
    if draft.view.alive(node.uuid) is not None:
        if not forced(part):
            raise Refused("in-use", f"node {node.name} is alive: turn it off first, or force it", node=node.uuid)
        draft.delete(alive)
    draft.expect(key)
    found, before = sorted(draft.view.members("on", node.uuid)), draft.view.reports(node.uuid)
    for each in found[:FENCED]:
        draft.delete(each)
    if before is not None:
        draft.put(key, before._replace(request=draft.request))
    _nothing_comes(draft, node.uuid)
    nics = [each.rpartition("/")[2] for each in found[:FENCED]]
    return Done(200, keys.node(node.uuid), {"node": write(node), "nics": nics, "left": len(found) - len(nics)})


def _nothing_comes(draft: Draft, uuid: str) -> None:
    """Let no guest be on its way to a node by what that has said of Ganeti's files; one that is alive all the same says so again."""
    key = keys.confirmed(uuid)
    said: Confirmed | None = draft.get(key)
    if said is not None and said.there.arriving:
        draft.expect(key)
        draft.put(key, said._replace(there=said.there._replace(arriving=())))


def signed_on(view: View, who: Identity, incarnation: str, lease: int, now: float) -> Commit:
    """Give the commit by which a node is alive as long as a lease. Raises Refused where another one is alive under its identity."""
    node = view.node(who.name)
    if who.role != "node" or node is None:
        raise Refused("forbidden", f"{who.role} {who.name!a:.80} is no node that has joined", master="node")
    key, other = keys.alive(node.uuid), view.alive(node.uuid)
    if other is not None and other.incarnation != incarnation:
        since = local_time(other.since)
        detail = f"another agent is alive as {node.name} since {since}: give one of the two a new identity (netcommon registry node join)"
        raise Refused("twin", detail, node=node.uuid)
    value = dump(Alive(incarnation, other.since if other else now))
    tests = (Expect(key, view.at(key)), Expect(keys.node(node.uuid), view.at(keys.node(node.uuid))))
    return Commit(tests, (Put(key, value, lease), Delete(keys.gone(node.uuid))))


def _itself(draft: Draft, uuid: str, what: str) -> None:
    if draft.who.role == "node" and draft.who.name != uuid:
        raise another(uuid, f"may {what}")


def another(uuid: str, what: str) -> Refused:
    """Give the refusal of a node that asks for another one, ``uuid``. ``what``: it does for itself alone."""
    detail = f"a node {what} itself alone, and not {uuid!a:.80}: {ITS_OWN}"
    return Refused("forbidden", detail, master=f"node:{uuid}", reason="another")


def _named_once(draft: Draft, node: Node, remedy: str = "") -> None:
    if [each for each in draft.members("node", node.name) if each != keys.node(node.uuid)]:
        raise Refused("exists", f"there is a node {node.name} already{remedy}", field="name")


def _there(draft: Draft, uuid: str) -> Node:
    node = draft.node(uuid)
    if node is None:
        raise Refused("missing", f"there is no node {uuid!a:.80}")
    return node
