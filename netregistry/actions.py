"""List what can be asked of a registry: each action with its rule, who may ask, and the schema of its body."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from netregistry.model.codec import schema
from netregistry.model.history import Settings
from netregistry.model.importing import Reading
from netregistry.model.network import Network
from netregistry.model.nic import Nic
from netregistry.model.node import Node
from netregistry.request import Part
from netregistry.rules import ends, imports, networks, nics, nodes, reservations, settings

if TYPE_CHECKING:
    from collections.abc import Callable

    from netregistry.draft import Draft
    from netregistry.request import Done

MOST_PARTS = 50  #: requests of a batch


class Action(NamedTuple):
    """One thing that can be asked. ``roles``: who may."""

    rule: Callable[[Draft, Part], Done]
    roles: frozenset[str]
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


WRITERS, BOTH = frozenset(("operator", "importer", "node")), frozenset(("operator", "importer"))
OPERATORS, NODES = frozenset(("operator",)), frozenset(("operator", "node"))
LEADER = frozenset(("leader",))

ACTIONS: dict[str, Action] = {
    "network.add": Action(networks.add, BOTH, lambda: _network(networks.AT_FIRST)),
    "network.set": Action(networks.set_, BOTH, lambda: _network(())),
    "network.delete": Action(networks.delete, BOTH, _deletion),
    "nic.add": Action(nics.add, WRITERS, lambda: _nic(nics.AT_FIRST)),
    "nic.set": Action(nics.set_, WRITERS, lambda: _nic(())),
    "nic.delete": Action(nics.delete, WRITERS, _deletion),
    "claim.reserve": Action(reservations.reserve, OPERATORS, lambda: schema(reservations.Reservation)),
    "claim.release": Action(reservations.release, OPERATORS, _nothing),
    "node.join": Action(nodes.join, NODES, lambda: schema(Node, ("uuid", *nodes.FIELDS), ("uuid", "name"))),
    "node.set": Action(nodes.set_, NODES, lambda: schema(Node, nodes.FIELDS, ())),
    "node.fence": Action(nodes.fence, OPERATORS, _deletion),
    "node.forget": Action(nodes.forget, OPERATORS, _deletion),
    "importer.hold": Action(imports.hold, BOTH, lambda: schema(Reading)),
    "settings.set": Action(settings.set_, OPERATORS, lambda: schema(Settings, Settings._fields, ())),
    "options.end": Action(ends.options, LEADER, _nothing),
    "quarantine.end": Action(ends.quarantine, LEADER, _nothing),
    "claims.sweep": Action(ends.sweep, LEADER, _nothing),
}
