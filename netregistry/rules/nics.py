"""Add, change and delete NICs as they are wanted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from netcommon.options.tags import value_of
from netregistry.model import keys, kinds
from netregistry.model.codec import Invalid, read_fields, write
from netregistry.model.nic import Nic
from netregistry.refusal import Refused
from netregistry.request import ANY, Done, matched
from netregistry.rules import allocation, claims, masters
from netregistry.rules.networks import forced, moved
from netregistry.rules.reports import MOST_NICS
from netregistry.steady import past
from runtime.errors import NicInvalid

if TYPE_CHECKING:
    from collections.abc import Iterable

    from netregistry.draft import Draft
    from netregistry.model.network import Network
    from netregistry.request import Part

FIELDS = tuple(name for name in Nic._fields if name not in ("uuid", "cluster", "master", "made"))
AT_FIRST = ("uuid", "cluster")
ALLOCATED = ("mac", "ipv4", "ipv6")  #: what ``allocate`` in a body may name
#: ``found`` in a body: the NIC is there already, and what it has counts even where somebody else has it.
BESIDE = ("allocate", "found")
#: What a NIC is known by, and what it has: of one that was taken over it changes only when the node that had it has let it go.
IDENTITY = frozenset(("belongs", "instance", "owner", "mac", "network", "ip", "addresses"))
SETTLED = 60.0  #: seconds after which a node that has a NIC of its own has reported it
MOST_ADDRESSES = 16
#: What a network has a say in.
PLACED = ("network", "cluster", "owner", "ip", "addresses")


def add(draft: Draft, part: Part) -> Done:
    """Make a NIC. Its master is who asks; without a MAC one is given out.

    A node takes over a NIC that another one has defined, and has no more: its guest has migrated. Nothing else of it changes by that.

    A node may say (``match``) of which of its reports, the NIC's among them, it is: one that comes after later ones, or after somebody has
    deleted the NIC, is not done. An id alone does not tell that of a request that was never done, and that nobody remembers.
    """
    allocate, found, rest = _beside(draft, part.body)
    fields = read_fields(Nic, rest, (*AT_FIRST, *FIELDS))
    role = draft.who.role
    if role == "importer":
        fields["cluster"] = draft.who.name
    elif role == "node":
        node = draft.node(draft.who.name)
        if node is None:
            raise Refused("missing", f"node {draft.who.name} has not joined, or was forgotten")
        if (count := len(draft.members("mastered", masters.identity(draft.who))) + 1) > MOST_NICS:
            raise Refused("too-large", f"node {node.name} would be the master of {count} NICs: {MOST_NICS} are at most", count=count)
        if fields.setdefault("cluster", node.cluster) != node.cluster:
            command = f"netcommon registry node set {node.name} cluster={fields['cluster']}"
            detail = f"node {node.name} is of the cluster {node.cluster or 'none'}, and so are its NICs: {command}"
            raise Refused("forbidden", detail, master="registry", field="cluster", command=command)
        if part.match:
            matched(draft, keys.reports(node.uuid), part.match)
            draft.expect(keys.reports(node.uuid))
            if part.match != ANY and all(where != node.uuid for where, _report, _at in draft.view.seen(fields.get("uuid", ""))):
                raise Refused("stale", "the node has not reported this NIC")
    elif not fields.get("cluster"):
        network = draft.network(fields.get("network", ""))
        fields["cluster"] = network.cluster if network else ""
    if not fields.get("uuid"):
        fields["uuid"] = draft.new_uuid()
    if (there := draft.nic(fields["uuid"])) is not None:
        if role != "node" or not found or not _left_behind(draft, there):
            raise Refused("exists", f"there is a NIC {there.uuid}")
        taken = there._replace(master=masters.identity(draft.who))
        draft.put(keys.nic(taken.uuid), taken)
        return Done(200, keys.nic(taken.uuid), write(taken))
    if role == "node":
        _here_alone(draft, fields["uuid"])
    made = Nic(**fields)._replace(master=masters.identity(draft.who), made=draft.now)
    masters.nic(draft, made, [name for name in fields if name in FIELDS], draft.who)
    if not made.mac and not found and "mac" not in allocate:
        allocate = ("mac", *allocate)
    return _written(draft, None, made, fields, allocate, found)


def set_(draft: Draft, part: Part) -> Done:
    """Change fields of a NIC; with ``allocate`` in the body also what is given out anew."""
    before = _there(draft, part.target)
    matched(draft, keys.nic(before.uuid), part.match)
    allocate, found, rest = _beside(draft, part.body, before.network)
    fields = read_fields(Nic, rest, FIELDS)
    touched = [name for name in fields if fields[name] != getattr(before, name)]
    masters.nic(draft, before, [*touched, *(("mac",) if "mac" in allocate else ())], draft.who)
    if draft.who.role == "node" and (allocate or IDENTITY.intersection(touched)):
        _let_go(draft, before)
    return _written(draft, before, before._replace(**fields), fields, allocate, found)


def delete(draft: Draft, part: Part) -> Done:
    """Delete a NIC, and free what it has. ``force``: its Ganeti cluster is gone for good."""
    nic = _there(draft, part.target)
    key = keys.nic(nic.uuid)
    matched(draft, key, part.match)
    masters.nic_whole(draft, nic, draft.who, forced(part))
    if draft.who.role == "node":
        _nowhere(draft, nic)
        _let_go(draft, nic)
    if draft.who.role != "importer":  # whose NICs no node adds
        _overtake(draft, nic)
    claims.change(draft, nic, None, False)
    draft.delete(key)
    return Done(200, key, write(nic))


def _left_behind(draft: Draft, nic: Nic) -> bool:
    """Tell whether the guest of another node's NIC has come to who asks, of the same cluster, by what that other node has said.

    It ran there while who asks had it, or was getting it; then it stopped. Or that node has let it go: reports it no more, or was fenced.
    One that is but stopped there is that node's: its guest is off, and nobody else's. What who asks says is not enough: that can be
    said of any guest that is off.
    """
    kind, _, node = nic.master.partition(":")
    asking, reports = draft.node(draft.who.name), {where: report for where, report, _revision in draft.view.seen(nic.uuid)}
    here, there = reports.get(draft.who.name), reports.get(node)
    if kind != "node" or node == draft.who.name or here is None or asking is None or asking.cluster != nic.cluster:
        return False
    draft.expect(keys.seen(draft.who.name, nic.uuid))
    draft.expect(keys.seen(node, nic.uuid))  # it may start again
    if here.moved_to == node:  # it was taken over from who asks, and is back
        return here.state == "running"
    if here.state == "stopped":
        return False
    if there is not None:
        return there.state == "stopped" and there.moved_to == draft.who.name
    if draft.node(node) is None:
        return True
    latest = draft.view.reports(node)
    return latest is not None and latest.time >= nic.made + SETTLED


def _here_alone(draft: Draft, uuid: str) -> None:
    """Raise Refused where another node has a NIC that nobody wants, and has had it for longer: that node, or its cluster, makes it known.

    As "exists", after which an agent asks again: a guest that has come by a migration is here alone when the other node says that it
    stopped. Who says later that he has it keeps nobody from what is his.
    """
    me, seen = draft.who.name, {where: report for where, report, _revision in draft.view.seen(uuid)}
    here = seen.pop(me, None)
    for where, report in seen.items():
        there = draft.node(where)
        if there is None:
            continue
        draft.expect(keys.seen(where, uuid))  # it may start again
        later = here is not None and here.state != "stopped" and (past(report.came, draft.now), where) > (past(here.came, draft.now), me)
        if report.state != "stopped" and not later:
            detail = (
                f"NIC {uuid} is {report.state} on {there.name}, as that reports: it is for {there.name}, or its cluster, to make it known"
            )
            raise Refused("exists", detail, node=where)


def _let_go(draft: Draft, nic: Nic) -> None:
    """Raise Refused where the node from which who asks has taken the NIC over has it still, though stopped: it is defined there."""
    for where, report, _revision in draft.view.seen(nic.uuid):
        if where != draft.who.name and report.state == "stopped" and report.moved_to == draft.who.name:
            there = draft.node(where)
            name = there.name if there else where
            remedy = f"netcommon define --remove there, or netcommon registry nic set or delete {nic.uuid} as an operator"
            raise Refused("in-use", f"{name} has it still, stopped: {remedy}", node=where)


def _nowhere(draft: Draft, nic: Nic) -> None:
    """Raise Refused where a node has it: its guest has migrated, and the node that defined it has no definition any more; or it is back."""
    if missing := draft.view.unheard():  # the registry was restored, and knows less than it did
        raise Refused("waiting", "not every live node has reported since the registry was restored", nodes=list(missing))
    draft.expect(keys.seen(draft.who.name, nic.uuid))  # no report of its own comes in between
    for node, report, _revision in draft.view.seen(nic.uuid):
        if report.state != "stopped":
            there = draft.node(node)
            raise Refused("in-use", f"it is {report.state} on {there.name if there else node}", node=node)


def _overtake(draft: Draft, nic: Nic) -> None:
    """Let no node add the NIC again by a request from before its deletion: that is of reports which are not the node's latest any more."""
    for node, _report, _revision in draft.view.seen(nic.uuid):
        key, before = keys.reports(node), draft.view.reports(node)
        if before is not None and node != draft.who.name:
            draft.expect(key)
            draft.put(key, before._replace(request=draft.request))


def _beside(draft: Draft, body: Any, network: str = "") -> tuple[tuple[str, ...], bool, Any]:
    """Part the body of a request into what is to be given out, whether the NIC was found, and its fields. Raises Invalid, Refused."""
    if not isinstance(body, dict):
        raise Invalid("body", body, "an object")
    for name in body:
        if name in masters.PER_NETWORK:
            _per_network(draft, name, body.get("network", network))
    allocate, found = body.get("allocate", []), body.get("found", False)
    if not isinstance(allocate, list) or any(each not in ALLOCATED for each in allocate) or len(set(allocate)) != len(allocate):
        raise Invalid("allocate", allocate, f"a list of {', '.join(ALLOCATED)}, none twice")
    if not isinstance(found, bool) or (found and draft.who.role == "operator"):
        raise Invalid("found", found, "true from a node or an importer alone")
    found = found or draft.who.role == "importer"
    return tuple(allocate), found, {name: value for name, value in body.items() if name not in BESIDE}


def _per_network(draft: Draft, name: str, uuid: object) -> None:
    network = draft.network(uuid) if isinstance(uuid, str) else None
    command = f"netcommon registry network set {network.name if network else 'NETWORK'} {name}=..."
    raise Refused("forbidden", f"{name} is of a network, and never of one NIC: {command}", field=name, master="network", command=command)


def _written(draft: Draft, before: Nic | None, after: Nic, fields: dict[str, Any], allocate: Iterable[str], found: bool) -> Done:
    """Check a NIC as it is to be, take what it claims, and write it."""
    network = draft.network(after.network) if after.network else None
    if after.network and network is None:
        raise Invalid("network", after.network, "the UUID of a network that is there")
    if draft.who.role == "importer" and before is not None and before.network != after.network:
        after = moved(draft, after, draft.network(before.network))
    # what somebody else has changed since then (owners, subnets, which options there are) is not held against another field
    # and what an importer has found is there, by its own cluster's word
    node, placed = draft.who.role == "node", before is None or any(getattr(before, each) != getattr(after, each) for each in PLACED)
    if network is not None and placed and (node or not found):
        _may_be_in(network, after, found)
    if network is not None and placed and node and found:
        _is_a_guests(network, before, after)
    if before is None or before.options != after.options:
        _options_are_some(draft, after)
    for each in allocate:
        after = _given(draft, after, network, each)
    if len(after.addresses) > MOST_ADDRESSES:
        raise Invalid("addresses", len(after.addresses), f"at most {MOST_ADDRESSES}")
    if after.primary and not after.instance:
        raise Invalid("primary", True, "a NIC of an instance")
    claims.change(draft, before, after, found)
    keep(draft, after)
    return Done(200 if before else 201, keys.nic(after.uuid), write(after))


def keep(draft: Draft, nic: Nic) -> None:
    """Write a NIC; where it is the primary one of its instance, no other is."""
    if nic.primary:
        for other in draft.nics("instance", nic.cluster, nic.instance):
            if other.primary and other.uuid != nic.uuid:
                draft.put(keys.nic(other.uuid), other._replace(primary=False))
    draft.put(keys.nic(nic.uuid), nic)


def _may_be_in(network: Network, nic: Nic, found: bool) -> None:
    """Raise Refused where the network is not for such a NIC. ``found``: an address of a family without subnet is no reason."""
    if network.cluster and network.cluster != nic.cluster:
        raise Refused("forbidden", f"{network.name} is of the cluster {network.cluster}", field="network", master=network.cluster)
    if network.owners and nic.owner not in network.owners:
        raise Refused("forbidden", f"{network.name} is for NICs of {', '.join(network.owners)}", field="owner", owners=list(network.owners))
    for each in nic.all_addresses:
        if not network.holds(each) and not (found and kinds.family(each) not in network.families):
            subnets = " and ".join(subnet for subnet in (network.subnet, network.subnet6) if subnet) or "no subnet"
            raise Invalid("ip" if each == nic.ip else "addresses", each, f"an address in {network.name}, which has {subnets}")


def _is_a_guests(network: Network, before: Nic | None, nic: Nic) -> None:
    """Raise Invalid where a node would have, by a NIC that it has found, an address that no guest is given in the network.

    Such a NIC is known all the same, outside of that network: its agent adds it without one.
    """
    had = before.all_addresses if before is not None and before.network == nic.network else ()
    for each in nic.all_addresses:
        if each not in had and network.has(each):
            expected = f"an address for a guest: this is {network.name}'s own, a gateway or one that no host can have"
            raise Invalid("ip" if each == nic.ip else "addresses", each, expected)


def _options_are_some(draft: Draft, nic: Nic) -> None:
    """Raise Invalid for an option that is none, Refused for one that is of networks."""
    names = [option.name for option in nic.options]
    if len(set(names)) != len(names):
        raise Invalid("options", ", ".join(names), "each option once")
    for place, option in enumerate(nic.options):
        if option.name in masters.PER_NETWORK:
            _per_network(draft, option.name, nic.network)
        try:
            value_of(option.name, option.value)
        except NicInvalid as error:
            raise Invalid(f"options[{place}].{'name' if error.variable == 'option' else 'value'}", error.value, error.expected) from None


def _given(draft: Draft, nic: Nic, network: Network | None, what: str) -> Nic:
    """Give the NIC with a MAC or an address that nobody has. Ganeti's own ``ip`` is Ganeti's; others are had beside it."""
    if what == "mac":
        prefix = (network.mac_prefix if network else "") or draft.view.settings.mac_prefix
        if not prefix:
            raise Refused("full", "neither the network nor the settings name a prefix of MACs (mac_prefix)")
        return nic._replace(mac=allocation.mac(draft, prefix, nic.scope + nic.uuid))
    if network is None:
        raise Invalid("allocate", what, "a NIC with a network")
    found = allocation.address(draft, network, 4 if what == "ipv4" else 6)
    if nic.ip or nic.master.startswith("ganeti:"):
        return nic._replace(addresses=(*nic.addresses, found))
    return nic._replace(ip=found)


def _there(draft: Draft, uuid: str) -> Nic:
    nic = draft.nic(uuid)
    if nic is None:
        raise Refused("missing", f"there is no NIC {uuid!a:.80}")
    return nic
