"""Take MACs and addresses for NICs, and free them: in the draft of what claims them.

What is asked for (by an operator, by allocation) is refused where somebody has it. What exists already (what an importer or a node has
found) contends: it stands behind the holder, follows him when he goes, and shows as a conflict until then.

What is given up and still reported is nobody else's: its quarantine begins when no report says any more that a guest has it.
"""

from __future__ import annotations

from ipaddress import ip_address
from typing import TYPE_CHECKING

from netregistry import use
from netregistry.model import keys, kinds
from netregistry.model.claim import Claim
from netregistry.model.kinds import FOREVER
from netregistry.refusal import Refused
from runtime.moment import local_time

if TYPE_CHECKING:
    from netregistry.draft import Draft
    from netregistry.model.nic import Nic

MOST_CONTENDERS = 100
OF_NODES = 50  #: of them by nodes that have found something; the others are kept for importers
OF_ONE_NODE = 8


def change(draft: Draft, before: Nic | None, after: Nic | None, contends: bool) -> None:
    """Free what a NIC has no more, and take what it has now. Raises Refused."""
    left, taken = (keys.claims(nic) if nic is not None else [] for nic in (before, after))
    for key in left:
        if before is not None and key not in taken:
            free(draft, key, before)
    for key in taken:
        if after is not None and key not in left:
            take(draft, key, after, contends)


def take(draft: Draft, key: str, nic: Nic, contends: bool) -> None:
    """Let a NIC have a MAC or an address. Raises Refused where somebody else does, and it does not contend."""
    claim = draft.claim(key) or Claim()
    what = _what(key)
    if keys.kind(key) == "addresses" and not contends:
        network = draft.network(nic.network) if nic.network else None
        if network is not None and network.has(what):
            raise Refused("taken", f"{what} is {network.name}'s own: a gateway, or an address that no host can have", holder=network.uuid)
        if network is not None and network.bars(what):
            raise Refused("taken", f"{what} may be a guest's of {network.cluster}, as {network.name} says (barred)", holder=network.uuid)
        if network is not None and network.reserves(what):
            raise Refused("taken", f"{what} is among what {network.name} reserves (reserved)", holder=network.uuid)
    standing = claim.standing
    if standing == "held":
        if claim.holder == nic.uuid:
            return
        if not contends:
            raise Refused("taken", f"{what} belongs to {_named(draft, claim.holder)}", holder=claim.holder)
        _room_beside(draft, what, claim, nic)
        draft.put(key, claim._replace(contenders=(*(each for each in claim.contenders if each != nic.uuid), nic.uuid)))
        return
    if not contends:
        _unused(draft, key, nic)
    if not contends and standing == "reserved" and not (claim.instance and (claim.cluster, claim.instance) == (nic.cluster, nic.instance)):
        whose = f" for {claim.instance}" if claim.instance else ""
        raise Refused("taken", f"{what} is reserved{whose}: {claim.reserved}", reserved=claim.reserved)
    if not contends and standing == "quarantined" and claim.last != nic.uuid:
        raise Refused("taken", f"{what} was freed, and is in quarantine until {local_time(claim.until)}", until=claim.until)
    last = claim.last if claim.last != nic.uuid and use.has(draft, key, claim.last) else ""
    draft.put(key, claim._replace(holder=nic.uuid, contenders=(), freed=0.0, until=0.0, last=last))


def _room_beside(draft: Draft, what: str, claim: Claim, nic: Nic) -> None:
    """Raise Refused where too many contend for something already, of one node, of all nodes, or of all: no node keeps others out."""
    masters = [other.master for each in claim.contenders if each != nic.uuid and (other := draft.nic(each)) is not None]
    bounds = [(len(claim.contenders), MOST_CONTENDERS, "contenders")]
    if nic.master.startswith("node:"):
        bounds.append((masters.count(nic.master), OF_ONE_NODE, "contenders of this node"))
        bounds.append((sum(each.startswith("node:") for each in masters), OF_NODES, "contenders of nodes"))
    for count, most, which in bounds:
        if count >= most:
            raise Refused("taken", f"{what} has {most} {which} already")


def free(draft: Draft, key: str, nic: Nic) -> None:
    """Take from a NIC what it has, or contends for; nothing of what is another's."""
    claim = draft.claim(key)
    if claim is None:
        return
    # who is reported with it still is remembered: of several the first one
    used = next((each for each in (claim.last, nic.uuid) if use.has(draft, key, each)), "")
    if claim.holder != nic.uuid:
        if nic.uuid in claim.contenders:
            draft.put(key, claim._replace(contenders=tuple(each for each in claim.contenders if each != nic.uuid), last=used))
        return
    if claim.contenders:
        draft.put(key, claim._replace(holder=claim.contenders[0], contenders=claim.contenders[1:], last=used))
        return
    claim = claim._replace(holder="", last=used or nic.uuid)
    draft.put(key, claim)
    claim = quarantined(draft, key, claim)
    if nic.reserved and not claim.reserved:
        claim = claim._replace(reserved=f"{nic.label} had it", cluster=nic.cluster, instance=nic.instance)
    settle(draft, key, claim)


def settle(draft: Draft, key: str, claim: Claim) -> None:
    """Write a claim that nobody holds; delete one that is free and of what is never given out: nothing comes of remembering that."""
    if claim.standing == "free" and not _is_given_out(draft, key):
        draft.delete(key)
    else:
        draft.put(key, claim)


def _is_given_out(draft: Draft, key: str) -> bool:
    """Tell whether allocation may come to a MAC or an address: it is in a subnet of its network, or begins with a prefix of MACs."""
    kind, scope, what = key.split("/", 2)
    network = draft.network(scope)
    if kind == "macs":
        prefixes = (draft.view.settings.mac_prefix, network.mac_prefix if network is not None else "")
        return any(prefix and what.startswith(f"{prefix}:") for prefix in prefixes)
    return network is not None and any(ip_address(what) in subnet for subnet in kinds.subnets(network.subnet, network.subnet6))


def quarantined(draft: Draft, key: str, claim: Claim) -> Claim:
    """Give a claim as it is freed: its quarantine, if the settings have one, begins now, or when no NIC is reported with it any more."""
    seconds = draft.view.settings.quarantine
    until = draft.now + seconds if seconds else 0.0
    return claim._replace(freed=draft.now, until=FOREVER if use.still(draft, key) else until)


def reserve(draft: Draft, key: str, why: str, cluster: str, instance: str) -> Claim:
    """Keep a MAC or an address from being given out. Raises Refused where it is reserved already for something else."""
    claim = draft.claim(key) or Claim()
    if claim.reserved and (claim.reserved, claim.cluster, claim.instance) != (why, cluster, instance):
        raise Refused("taken", f"{_what(key)} is reserved: {claim.reserved}", reserved=claim.reserved)
    claim = claim._replace(reserved=why, cluster=cluster, instance=instance)
    draft.put(key, claim)
    return claim


def release(draft: Draft, key: str) -> None:
    """Take a reservation back, end a quarantine, or forget what is free; a holder keeps what it has.

    Raises Refused where there is none, and where a guest has it still: by its claim it is known whose it is.
    """
    claim = draft.claim(key)
    if claim is None or (claim.holder and not claim.reserved):
        _network_reserves(draft, key)
        raise Refused("missing", f"{_what(key)} is neither reserved nor in quarantine")
    user = next(use.users(draft, key), None)
    if not claim.reserved and user is not None:
        raise Refused("in-use", f"{_used(draft, key, *user)}: its quarantine begins when no node does", holder=user[0])
    if claim.standing == "free":
        draft.delete(key)
        return
    claim = claim._replace(reserved="", cluster="", instance="", until=claim.until if claim.reserved else 0.0)
    if claim.holder:
        draft.put(key, claim)
    elif claim.freed:
        settle(draft, key, claim if user is None else claim._replace(until=FOREVER))
    else:
        draft.delete(key)  # it was reserved, and never used


def _network_reserves(draft: Draft, key: str) -> None:
    """Raise Refused where it is the network that reserves an address, with the command by which that is changed."""
    kind, scope, what = key.split("/", 2)
    network = draft.network(scope)
    if kind == "addresses" and network is not None and network.bars(what):
        detail = f"{what} may be a guest's of the Ganeti cluster {network.cluster} (barred): its next import says what cannot be taken in"
        raise Refused("forbidden", detail, field="barred", master=network.master)
    if kind != "addresses" or network is None or not network.reserves(what):
        return
    command, whose = f"netcommon registry network set {network.name} reserved=...", "the network itself (reserved)"
    if network.shared:
        command = f"gnt-network modify --remove-reserved-ips={what} {network.name}"
        whose = f"the Ganeti cluster {network.master.partition(':')[2]}"
    raise Refused("forbidden", f"{what} is reserved by {whose}: {command}", field="reserved", master=network.master, command=command)


def _unused(draft: Draft, key: str, nic: Nic) -> None:
    """Raise Refused where another NIC is reported with it."""
    for uuid, node in use.users(draft, key):
        if uuid != nic.uuid:
            raise Refused("taken", _used(draft, key, uuid, node), holder=uuid)


def _used(draft: Draft, key: str, uuid: str, node: str) -> str:
    there = draft.node(node)
    where = there.name if there else node
    return f"{_what(key)} is in use: {where} reports that {_named(draft, uuid)} has it still"


def _what(key: str) -> str:
    return key.split("/", 2)[2]


def _named(draft: Draft, holder: str) -> str:
    nic = draft.nic(holder)
    return f"NIC {holder}" if nic is None or nic.label == holder else f"{nic.label} (NIC {holder})"
