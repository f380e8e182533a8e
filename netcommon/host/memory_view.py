"""What can be read of a simulated node."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from netcommon.host.facts import BridgeVlan, Link, Neighbour, OvsPort, Route, Rule
from netcommon.host.simulated import Kernel
from netcommon.host.simulated_ovs import Switch
from netcommon.host.tables import number_of
from runtime.errors import TryAgain

if TYPE_CHECKING:
    from netcommon.host.memory import MemoryHost


class MemoryView:
    """The state of now. Raises TryAgain while the host is ``busy``."""

    def __init__(self, host: MemoryHost) -> None:
        self._host = host

    @property
    def _kernel(self) -> Kernel:
        self._host.reads += 1
        if self._host.busy:
            raise TryAgain("the simulated kernel is busy")
        return self._host.kernel

    @property
    def _switch(self) -> Switch | None:
        self._host.reads += 1
        condition = self._host.switch.condition
        if not condition.there:
            return None
        if not condition.database or self._host.busy:
            raise TryAgain("the simulated OVSDB does not answer")
        return self._host.switch

    def link(self, name: str) -> Link | None:
        return self._kernel.named(name)

    def link_at(self, index: int) -> Link | None:
        return self._kernel.links.get(index)

    def links(self) -> Sequence[Link]:
        return list(self._kernel.links.values())

    def ports(self, bridge: int) -> Sequence[Link]:
        return self._kernel.ports(bridge) if bridge > 0 else []

    def rules(self, family: int, iif: str | None = None) -> Sequence[Rule]:
        return [rule for rule in self._kernel.rules if rule.family == family and iif in (None, rule.iif)]

    def routes(self, family: int, table: int | None = None, destination: str | None = None) -> Sequence[Route]:
        return [
            route
            for route in self._kernel.routes
            if route.family == family and table in (None, route.table) and destination in (None, route.destination)
        ]

    def neighbours(self, family: int, index: int | None = None) -> Sequence[Neighbour]:
        return [each for each in self._kernel.neighbours if each.family == family and index in (None, each.index)]

    def vlans(self, index: int) -> Sequence[BridgeVlan]:
        return sorted(self._kernel.vlans.get(index, {}).values())

    def every_vlan(self) -> Sequence[tuple[int, BridgeVlan]]:
        """Pairs of device index and VLAN of all bridge ports."""
        return [(index, vlan) for index in self._kernel.vlans for vlan in self.vlans(index)]

    def sysctl(self, path: str) -> str | None:
        return self._kernel.settings.get(path)

    def table(self, name: str) -> int | None:
        known = self._host.tables.get(name)
        return number_of(name) if known is None else known

    def ovs_bridge(self, name: str) -> bool:
        switch = self._switch
        return switch is not None and switch.has_bridge(name)

    def ovs_port(self, name: str) -> OvsPort | None:
        switch = self._switch
        return None if switch is None else switch.port(name)

    def ovs_ports(self) -> Sequence[OvsPort]:
        return [port for port in self.every_ovs_port() if port.owner]

    def every_ovs_port(self) -> Sequence[OvsPort]:
        """All ports, with our mark or without."""
        switch = self._switch
        return [] if switch is None else switch.ports()
