"""List what can be asked of a registry: each action with its rule and the schema of its body."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from netregistry.model.codec import schema
from netregistry.model.history import Settings
from netregistry.model.importing import Reading
from netregistry.model.network import Network
from netregistry.model.nic import Nic
from netregistry.model.node import Node
from netregistry.model.underlay import Underlay
from netregistry.request import Part
from netregistry.rules import authorities, ends, holders, imports, networks, nics, nodes, reservations, settings, tokens, underlay

if TYPE_CHECKING:
    from collections.abc import Callable

    from netregistry.draft import Draft
    from netregistry.request import Done

MOST_PARTS = 50  #: requests of a batch
#: Requests that are no part of a batch: the service reads certificates and keys before, and signs after; and two authorities are the most.
ALONE = frozenset(("authority.add", "certificate.join", "certificate.renew"))


class Action(NamedTuple):
    """One thing that can be asked; netregistry.roles says by whom."""

    rule: Callable[[Draft, Part], Done]
    body: Callable[[], dict[str, Any]]


class Batch(NamedTuple):
    """Several requests that are done together, or not at all, one after the other."""

    parts: tuple[Part, ...]


def _nic(first: tuple[str, ...]) -> dict[str, Any]:
    found = schema(Nic, (*first, *nics.FIELDS), ())
    found["properties"] |= {
        "allocate": {"type": "array", "items": {"enum": list(nics.ALLOCATED)}, "uniqueItems": True},
        "found": {"type": "boolean", "description": "It is there already: from nodes and importers."},
    }
    return found


def _deletion() -> dict[str, Any]:
    return {"type": ["object", "null"], "properties": {"force": {"type": "boolean"}}, "additionalProperties": False}


def _nothing() -> dict[str, Any]:
    return {}


def _network(first: tuple[str, ...]) -> dict[str, Any]:
    return schema(Network, (*first, *networks.FIELDS), ("name",) if first else ())


ACTIONS: dict[str, Action] = {
    "network.add": Action(networks.add, lambda: _network(networks.AT_FIRST)),
    "network.set": Action(networks.set_, lambda: _network(())),
    "network.delete": Action(networks.delete, _deletion),
    "nic.add": Action(nics.add, lambda: _nic(nics.AT_FIRST)),
    "nic.set": Action(nics.set_, lambda: _nic(())),
    "nic.delete": Action(nics.delete, _deletion),
    "claim.reserve": Action(reservations.reserve, lambda: schema(reservations.Reservation)),
    "claim.release": Action(reservations.release, _nothing),
    "node.join": Action(nodes.join, lambda: schema(Node, ("uuid", *nodes.FIELDS), ("uuid", "name"))),
    "node.set": Action(nodes.set_, lambda: schema(Node, nodes.FIELDS, ())),
    "node.fence": Action(nodes.fence, _deletion),
    "node.forget": Action(nodes.forget, _deletion),
    "importer.hold": Action(imports.hold, lambda: schema(Reading)),
    "settings.set": Action(settings.set_, lambda: schema(Settings, Settings._fields, ())),
    "underlay.init": Action(underlay.init, lambda: schema(Underlay, Underlay._fields, ("prefix",))),
    "underlay.release": Action(underlay.release, _nothing),
    "options.end": Action(ends.options, _nothing),
    "quarantine.end": Action(ends.quarantine, _nothing),
    "claims.sweep": Action(ends.sweep, _nothing),
    "underlay.settle": Action(underlay.settle, _nothing),
    "underlay.end": Action(underlay.end, _nothing),
    "token.add": Action(tokens.add, lambda: schema(tokens.NewToken)),
    "token.revoke": Action(tokens.revoke, _nothing),
    "certificate.join": Action(tokens.join, lambda: schema(tokens.Joining)),
    "certificate.renew": Action(holders.renew, lambda: schema(holders.Renewing)),
    "certificate.revoke": Action(holders.revoke, lambda: schema(holders.Whose)),
    "certificates.sweep": Action(holders.sweep, _nothing),
    "authority.add": Action(authorities.add, lambda: schema(authorities.NewAuthority)),
    "authority.retire": Action(authorities.retire, _deletion),
}
