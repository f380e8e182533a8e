"""An underlay for tests: what a registry says of a node's prefix and endpoints, and what is there of it."""

from __future__ import annotations

from typing import Any

from netcommon.host.api.facts import AF_INET6, PROTOCOL, REST
from netcommon.host.api.host import View
from runtime import membership, underlay
from runtime.paths import Paths
from runtime.underlay import Underlay
from tests.support.registry import NODES

EPOCH = "2b6f8c8e-6a52-4a0e-9d3f-3f5f1e0c7a11"
PREFIX = "fd00:1:2:7::/64"
OWN = "fd00:1:2:7::1"


def address(number: int) -> str:
    """Give the address of an endpoint, by its number from 0."""
    return f"fd00:1:2:7::1:{number:x}"


def endpoint(number: int, **changes: Any) -> dict[str, Any]:
    """Give one endpoint as a registry says it."""
    instance = f"web{number}"
    said = {"cluster": "", "instance": instance, "kind": "console", "address": address(number), "name": f"{instance}.console.example"}
    return {**said, "migrating": False, "state": "wanted", **changes}


def said(*endpoints: dict[str, Any], generation: int = 1, **changes: Any) -> dict[str, Any]:
    """Give what a registry says of the node."""
    return {"generation": generation, "prefix": PREFIX, "endpoints": list(endpoints), **changes}


def known(*numbers: int, node: str = NODES[0], generation: int = 1) -> Underlay:
    """Give what is known of a node with these endpoints."""
    return underlay.underlay_of(node, f"{EPOCH}:{generation}", said(*map(endpoint, numbers), generation=generation))


def join(paths: Paths, node: str = NODES[0]) -> None:
    """Let the node have joined a registry."""
    membership.write(paths, membership.Membership(node, "node0"))


def give(paths: Paths, *numbers: int, generation: int = 1) -> None:
    """Let a registry have said that the node has these endpoints; the node has joined it."""
    join(paths)
    underlay.write(paths, known(*numbers, generation=generation))


def marked(view: View, device: str = "lo") -> list[str]:
    """List the addresses on a device that bear our mark."""
    link = view.link(device)
    there = [] if link is None else view.addresses(link.index)
    return sorted(each.address for each in there if each.family == AF_INET6 and each.protocol == PROTOCOL and each.length == 128)


def is_rest_unreachable(view: View, prefix: str = PREFIX) -> bool:
    """Tell whether there is a route of ours for the rest of the prefix."""
    there = view.routes(AF_INET6, 254, prefix, REST)
    return any((route.type, route.metric, route.protocol) == (7, REST, PROTOCOL) for route in there)
