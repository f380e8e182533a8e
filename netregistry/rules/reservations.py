"""Reserve MACs and addresses, and release them: the target is the claim's key, "addresses/SCOPE/ADDRESS" or "macs/SCOPE/MAC"."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from netregistry.model import keys, kinds
from netregistry.model.codec import Invalid, read, write
from netregistry.refusal import Refused
from netregistry.request import Done
from netregistry.rules import claims

if TYPE_CHECKING:
    from netregistry.draft import Draft
    from netregistry.request import Part


class Reservation(NamedTuple):
    """Why something is not to be given out, and for the NICs of which instance it is kept; without one for nobody."""

    reason: kinds.Name
    cluster: kinds.Cluster = ""
    instance: kinds.Instance = ""


class Address(NamedTuple):
    address: kinds.Address


class Mac(NamedTuple):
    mac: kinds.Mac


def reserve(draft: Draft, part: Part) -> Done:
    """Keep something from being given out; a NIC that has it keeps it."""
    key = _key(draft, part.target)
    wanted = read(Reservation, part.body)
    return Done(200, key, write(claims.reserve(draft, key, wanted.reason, wanted.cluster, wanted.instance)))


def release(draft: Draft, part: Part) -> Done:
    """Let something be given out again: end its reservation, else its quarantine, or forget that it was used."""
    key = _key(draft, part.target, anywhere=True)
    claims.release(draft, key)
    return Done(200, key, None)


def _key(draft: Draft, target: str, anywhere: bool = False) -> str:
    """Give the key of a claim in canonical form. ``anywhere``: also outside of its network's subnets. Raises Invalid, Refused."""
    kind, _, rest = target.partition("/")
    scope, _, what = rest.partition("/")
    if kind == "addresses":
        what = read(Address, {"address": what}).address
        network = draft.network(scope)
        if network is not None and not anywhere and not network.holds(what):
            raise Invalid("target", what, f"an address in {network.name}")
        key = keys.address(scope, what)
    elif kind == "macs":
        what = read(Mac, {"mac": what}).mac
        key = keys.mac(scope, what)
    else:
        raise Invalid("target", target, "addresses/SCOPE/ADDRESS or macs/SCOPE/MAC")
    known = draft.network(scope) is not None or scope == kinds.NO_SCOPE or bool(draft.view.members("cluster", scope))
    if not what or not known:
        raise Refused("missing", f"there is no network or cluster {scope!a:.80}")
    return key
