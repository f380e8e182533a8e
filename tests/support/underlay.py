"""A registry with an underlay, nodes whose agents do as they are told, and guests that come, go and move."""

from __future__ import annotations

from collections.abc import Generator, Iterable
from typing import Any

from netregistry.core import CatchUp, Effect, Result
from netregistry.draft import Commit
from netregistry.model import keys
from netregistry.model.history import Identity
from netregistry.model.underlay import NodePrefix, Placement
from netregistry.stores.base import Delete
from netregistry.stream import Stream
from tests.support.registry import NODES, Registry

SITE, ZONE = "fd12:3456:789a::/48", "hosts.example.com"
LIFE = "eeeeeeee-0000-4000-8000-00000000000"
KINDS = ("console",)


class Site(Registry):
    """``nodes``: so many, all alive."""

    def __init__(self, nodes: int = 3, **more: Any) -> None:
        super().__init__(**more)
        self.do("underlay.init", "", {"prefix": SITE, "zone": ZONE, "minimum_age": 100, "ttl": 10})
        self.who: list[Identity] = []
        for number in range(nodes):
            self.who.append(self.join(number))
            self.lives(number)

    def lives(self, number: int, life: int = 0) -> None:
        """Let a node be alive; with another ``life`` it has been started anew."""
        key = keys.alive(NODES[number])
        if self.local.view.get(key) is not None:
            self.local.run(_gone(key))
        self.local.sign_on(self.who[number], f"{LIFE}{life}", 8e4)

    def dies(self, number: int) -> None:
        """Let a node's lease end."""
        self.local.run(_gone(keys.alive(NODES[number])))
        self.passes(0)

    def guest(self, instance: str, **more: Any) -> str:
        """Give the UUID of the NIC of an instance that is wanted."""
        return self.nic(instance=instance, index=0, **more).uuid

    def says(self, number: int, nic: str, state: str, kinds: Iterable[str] = KINDS, **more: Any) -> None:
        """Let a node report a NIC; "": not any more."""
        if not state:
            response = self.report(self.who[number], removed=(nic,))
        else:
            response = self.report(self.who[number], {"nic": nic, "state": state, "endpoints": list(kinds), **more})
        assert response.status == 200, response

    def confirms(self, *numbers: int) -> None:
        """Let nodes do what they are told, and say so."""
        for number in numbers:
            line = self.told(number)
            there = {"generation": line["generation"], "addresses": [each["address"] for each in line["endpoints"]]}
            response = self.report(self.who[number], underlay=there)
            assert response.status == 200, response

    def moved(self, instance: str = "web1") -> str:
        """Let a guest move from node 0 to node 1, where its name leads then; give its NIC."""
        nic = self.guest(instance)
        self.says(0, nic, "running")
        self.confirms(0)
        self.says(1, nic, "incoming")
        self.confirms(1)
        self.says(1, nic, "running")
        self.says(0, nic, "")
        assert self.names() == {f"{instance}.console": 1}
        return nic

    def loses(self, number: int) -> None:
        """Let a node say that none of its endpoints is there: their device is down, or somebody has deleted them for good."""
        there = {"generation": self.told(number)["generation"], "addresses": [self.prefix(number).itself]}
        response = self.report(self.who[number], underlay=there)
        assert response.status == 200, response

    def told(self, number: int) -> dict[str, Any]:
        """Give what a node is told."""
        return told_to(self, number)

    def placement(self, instance: str) -> Placement | None:
        found: Placement | None = self.local.view.get(keys.placement("", instance))
        return found

    def names(self) -> dict[str, int]:
        """Give all names, without the zone, and the number of the node that each leads to."""
        return {key.split("/")[2].removesuffix(f".{ZONE}"): NODES.index(name.node) for key, name in self.local.view.all("names").items()}

    def prefix(self, number: int) -> NodePrefix:
        found: NodePrefix = self.local.view.get(keys.prefix(NODES[number]))
        return found


def _gone(key: str) -> Generator[Effect, Result, None]:
    yield Commit((), (Delete(key),))
    yield CatchUp()


def told_to(registry: Registry, number: int) -> dict[str, Any]:
    """Give what a node is told of the underlay, as its stream says at its beginning."""
    lines = Stream(NODES[number], underlay=True).begin(registry.local.view)
    (line,) = (line for line in lines if line.what == "underlay")
    value: dict[str, Any] = line.value
    return value
