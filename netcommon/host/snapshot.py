"""A view of one moment: each table is read once, whole, when first asked for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar, cast

from netcommon.host.base import View
from netcommon.host.facts import BridgeVlan, Link, Neighbour, OvsPort, Route, Rule

Value = TypeVar("Value")


class Source(View, Protocol):
    """A live view that can also tell everything at once."""

    def every_vlan(self) -> Sequence[tuple[int, BridgeVlan]]:
        """Pairs of device index and VLAN of all bridge ports."""
        ...

    def every_ovs_port(self) -> Sequence[OvsPort]:
        """All ports, with our mark or without."""
        ...


class Snapshot:
    """Answers from tables of ``view`` that are read when first needed; those are complete, or TryAgain is raised."""

    def __init__(self, view: Source) -> None:
        self._view = view
        self._read: dict[object, object] = {}

    def _once(self, key: object, read: Callable[[], Value]) -> Value:
        if key not in self._read:
            self._read[key] = read()
        return cast(Value, self._read[key])

    def links(self) -> Sequence[Link]:
        return self._once("links", self._view.links)

    def link(self, name: str) -> Link | None:
        return self._once("names", lambda: {link.name: link for link in self.links()}).get(name)

    def link_at(self, index: int) -> Link | None:
        return self._once("indices", lambda: {link.index: link for link in self.links()}).get(index)

    def ports(self, bridge: int) -> Sequence[Link]:
        if bridge <= 0:
            return []
        return self._once("ports", lambda: _grouped(self.links(), lambda link: link.master)).get(bridge, [])

    def rules(self, family: int, iif: str | None = None) -> Sequence[Rule]:
        rules = self._once(("rules", family), lambda: self._view.rules(family))
        if iif is None:
            return rules
        return self._once(("iif", family), lambda: _grouped(rules, lambda rule: rule.iif)).get(iif, [])

    def routes(self, family: int, table: int | None = None, destination: str | None = None) -> Sequence[Route]:
        routes = self._once(("routes", family), lambda: self._view.routes(family))
        if destination is not None:
            by_destination = self._once(("destination", family), lambda: _grouped(routes, lambda route: route.destination))
            routes = by_destination.get(destination, [])
        elif table is not None:
            return self._once(("table", family), lambda: _grouped(routes, lambda route: route.table)).get(table, [])
        return [route for route in routes if table in (None, route.table)]

    def neighbours(self, family: int, index: int | None = None) -> Sequence[Neighbour]:
        entries = self._once(("neighbours", family), lambda: self._view.neighbours(family))
        if index is None:
            return entries
        return self._once(("proxied", family), lambda: _grouped(entries, lambda entry: entry.index)).get(index, [])

    def vlans(self, index: int) -> Sequence[BridgeVlan]:
        by_index = self._once("vlans", lambda: _grouped(self._view.every_vlan(), lambda pair: pair[0]))
        return [vlan for _, vlan in by_index.get(index, [])]

    def sysctl(self, path: str) -> str | None:
        return self._once(("sysctl", path), lambda: self._view.sysctl(path))

    def table(self, name: str) -> int | None:
        return self._view.table(name)

    def ovs_bridge(self, name: str) -> bool:
        return self._once(("bridge", name), lambda: self._view.ovs_bridge(name))

    def ovs_port(self, name: str) -> OvsPort | None:
        return self._once("all ports", lambda: {port.name: port for port in self._every_port()}).get(name)

    def ovs_ports(self) -> Sequence[OvsPort]:
        return [port for port in self._every_port() if port.owner]

    def _every_port(self) -> Sequence[OvsPort]:
        return self._once("ovs", self._view.every_ovs_port)


def _grouped(values: Sequence[Value], key: Callable[[Value], object]) -> dict[object, list[Value]]:
    groups: dict[object, list[Value]] = {}
    for value in values:
        groups.setdefault(key(value), []).append(value)
    return groups
