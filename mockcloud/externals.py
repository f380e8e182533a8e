"""Have the registry of a cloud give out what a node's own NIC in a network has, and say what can be done where nothing is left."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mockcloud.hardware import External
from netregistry.client import Problem
from runtime.errors import HostRefused

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mockcloud.networks import Networks


class NoRoom(HostRefused):
    """Refuse a NIC of a node's own, for which a network has no address left. ``why``: without the remedy."""

    def __init__(self, why: str, remedy: str) -> None:
        super().__init__(why, remedy)
        self.why = why


def external(networks: Networks, node: str, hostname: str, name: str, network: Mapping[str, Any]) -> External:
    """Let the registry give out what a node's own NIC in a network has. Raises NoRoom, Problem."""
    try:
        return External(name, networks.own(node, hostname, name, network))
    except Problem as refused:
        if refused.kind != "full":
            raise
        why = f"{hostname} gets no NIC of its own in {name}: {refused}"
        raise NoRoom(why, f"mockcloud nics {name} --remove takes these NICs from all nodes") from None
