"""Add, change and delete networks."""

from __future__ import annotations

from ipaddress import IPv6Network
from typing import TYPE_CHECKING, Any

from netregistry.model import keys, kinds
from netregistry.model.codec import Invalid, read_fields, write
from netregistry.model.network import Network, checked
from netregistry.refusal import Refused
from netregistry.request import Done, matched
from netregistry.rules import claims, masters

if TYPE_CHECKING:
    from netregistry.draft import Draft
    from netregistry.model.nic import Nic
    from netregistry.model.underlay import Underlay
    from netregistry.request import Part

#: What may be said of a network; its cluster and UUID at its beginning alone.
FIELDS = tuple(name for name in Network._fields if name not in ("uuid", "cluster", "master", "imported", "barred"))
OF_IMPORTERS = (*FIELDS, "barred")
AT_FIRST = ("uuid", "cluster")
MOST_LISTED = 100


def add(draft: Draft, part: Part) -> Done:
    """Make a network. An importer's is of its own cluster."""
    imports = draft.who.role == "importer"
    may = OF_IMPORTERS if imports else FIELDS
    fields = read_fields(Network, part.body, (*AT_FIRST, *may))
    fields.setdefault("uuid", draft.new_uuid())
    if "name" not in fields:
        raise Invalid("name", None, "a value: it is missing")
    if imports:
        fields |= {"cluster": draft.who.name, "master": masters.identity(draft.who)}
    key = keys.network(fields["uuid"])
    if draft.get(key) is not None:
        raise Refused("exists", f"there is a network {fields['uuid']}")
    made = Network(**fields)
    masters.network(draft, made, [name for name in fields if name in may and imports], draft.who)
    return _written(draft, None, made, fields)


def set_(draft: Draft, part: Part) -> Done:
    """Change fields of a network."""
    before = _there(draft, part.target)
    matched(draft, keys.network(before.uuid), part.match)
    fields = read_fields(Network, part.body, OF_IMPORTERS if draft.who.role == "importer" else FIELDS)
    masters.network(draft, before, [name for name in fields if fields[name] != getattr(before, name)], draft.who)
    return _written(draft, before, before._replace(**fields), fields)


def _written(draft: Draft, before: Network | None, after: Network, fields: dict[str, Any]) -> Done:
    """Check a network as it is to be, and write it."""
    key, imports = keys.network(after.uuid), draft.who.role == "importer"
    if imports:
        given = {name for name in masters.ONCE_GANETI if after._asdict()[name] and (name in fields or name in after.imported)}
        after = after._replace(imported=tuple(sorted(given)))
    checked(after)
    if not imports and (before is None or before.subnet6 != after.subnet6):
        _beside_the_underlay(draft, after)
    if [each for each in draft.members("named", after.cluster, after.name) if each != key]:
        raise Refused(
            "exists", f"there is a network {after.name} already" + (f" in {after.cluster}" if after.cluster else ""), field="name"
        )
    if before is not None and not imports:
        _fits_its_nics(draft, before, after)
    draft.put(key, after)
    return Done(200 if before else 201, key, write(after))


def _beside_the_underlay(draft: Draft, network: Network) -> None:
    """Raise Invalid where a subnet has addresses of the underlay: of nodes, and not of guests."""
    underlay: Underlay | None = draft.get(keys.UNDERLAY)
    if underlay is not None and network.subnet6 and IPv6Network(network.subnet6).overlaps(underlay.network):
        raise Invalid("subnet6", network.subnet6, f"a prefix beside the underlay, which is {underlay.prefix}")


def _fits_its_nics(draft: Draft, before: Network, after: Network) -> None:
    """Raise Refused where a NIC has an address that would be outside, or the network's own."""
    if (before.subnet, before.subnet6) != (after.subnet, after.subnet6):
        outside = [(nic, each) for nic in draft.nics("network", after.uuid) for each in nic.all_addresses if not after.holds(each)]
        if outside:
            shown = ", ".join(f"{each} of {nic.label}" for nic, each in outside[:10])
            more = [nic.uuid for nic, _each in outside[:MOST_LISTED]]
            raise Refused("in-use", f"{len(outside)} addresses of NICs would be outside: {shown}", nics=more)
    for family in (4, 6):
        for number in sorted(after.excluded(family) - before.excluded(family)):
            found = kinds.text(number, family)
            claim = draft.claim(keys.address(after.uuid, found))
            if claim is not None and claim.holder:
                nic = draft.nic(claim.holder)
                raise Refused("taken", f"{found} belongs to {nic.label if nic else claim.holder}", holder=claim.holder)


def delete(draft: Draft, part: Part) -> Done:
    """Delete a network that no NIC is in, and the claims that are left of it. ``force``: its Ganeti cluster is gone for good."""
    network = _there(draft, part.target)
    key = keys.network(network.uuid)
    matched(draft, key, part.match)
    masters.network_whole(draft, network, draft.who, forced(part))
    nics = draft.nics("network", network.uuid)
    if nics:
        shown = ", ".join(nic.label for nic in nics[:10]) + (", ..." if len(nics) > 10 else "")
        detail = f"{len(nics)} NICs are in {network.name}: {shown}"
        raise Refused("in-use", detail, count=len(nics), nics=[nic.uuid for nic in nics[:MOST_LISTED]])
    draft.delete(key)  # claims without a holder are swept by the leader: there may be thousands
    return Done(200, key, write(network))


def moved(draft: Draft, nic: Nic, before: Network | None) -> Nic:
    """Take from a NIC that is in another network the further addresses that it would not be given there; it holds those that it keeps.

    Where it was, the others go to others. It keeps none of the network ``before`` where it is in none now.
    """
    network, kept = draft.network(nic.network), list[str]()
    for each in nic.addresses:
        if network.holds(each) if network is not None else before is None or not before.holds(each):
            try:
                claims.take(draft, keys.address(nic.scope, each), nic, False)
            except Refused as refused:
                if refused.kind != "taken":
                    raise
            else:
                kept.append(each)
    return nic._replace(addresses=tuple(kept))


def forced(part: Part) -> bool:
    """Read the body of a deletion: nothing, or {"force": true}. Raises Invalid."""
    if part.body in (None, {}):
        return False
    if not isinstance(part.body, dict) or set(part.body) != {"force"} or not isinstance(part.body["force"], bool):
        raise Invalid("body", part.body, 'nothing, or {"force": true}')
    return part.body["force"]


def _there(draft: Draft, uuid: str) -> Network:
    network = draft.network(uuid)
    if network is None:
        raise Refused("missing", f"there is no network {uuid!a:.80}")
    return network
