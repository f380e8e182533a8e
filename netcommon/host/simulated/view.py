"""What can be read of a simulated node."""

from __future__ import annotations

from netcommon.host.base import Listed
from netcommon.host.simulated_local import SimulatedLocal
from netcommon.host.simulated_nft import SimulatedNft
from netcommon.host.simulated_reach import SimulatedReach
from netcommon.host.tables import number_of
from runtime.errors import TryAgain
from runtime.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from netcommon.host.base import RouteList
    from netcommon.host.counters import Counters
    from netcommon.host.facts import (
        Address,
        BridgeVlan,
        FdbEntry,
        Filter,
        Flow,
        Link,
        Neighbour,
        OvsBridge,
        OvsPort,
        OvsShaper,
        Port,
        Qdisc,
        Route,
        Rule,
    )
    from netcommon.host.memory import MemoryHost
    from netcommon.host.simulated import Kernel
    from netcommon.host.simulated_ovs import Switch


class MemoryView(SimulatedNft, SimulatedReach, SimulatedLocal):
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

    def links_of(self, kind: str) -> Sequence[Link]:
        return [link for link in self._kernel.links.values() if link.kind == kind]

    def rules(self, family: int, iif: str | None = None) -> Sequence[Rule]:
        return [rule for rule in self._kernel.rules if rule.family == family and iif in (None, rule.iif)]

    def routes(self, family: int, table: int | None = None, destination: str | None = None) -> Sequence[Route]:
        return [
            route
            for route in self._kernel.routes
            if route.family == family and table in (None, route.table) and destination in (None, route.destination)
        ]

    def route_list(self, family: int, table: int | None = None) -> RouteList:
        return Listed(self, family, table)

    def neighbours(self, family: int, index: int | None = None) -> Sequence[Neighbour]:
        return [each for each in self._kernel.neighbours if each.family == family and index in (None, each.index)]

    def addresses(self, index: int | None = None) -> Sequence[Address]:
        return [each for each in self._kernel.addresses if index in (None, each.index)]

    def vlans(self, index: int) -> Sequence[BridgeVlan]:
        return sorted(self._kernel.vlans.get(index, {}).values())

    def every_vlan(self) -> Sequence[tuple[int, BridgeVlan]]:
        """Pairs of device index and VLAN of all bridge ports."""
        return [(index, vlan) for index in self._kernel.vlans for vlan in self.vlans(index)]

    def carriers(self, vid: int) -> Sequence[int]:
        return [index for index, vlans in self._kernel.vlans.items() if vid in vlans]

    def port(self, index: int) -> Port | None:
        return self._kernel.bridge_ports.port(index)

    def fdb_entry(self, bridge: int, mac: str, vid: int) -> FdbEntry | None:
        return self._kernel.bridge_ports.entry(bridge, mac, vid)

    def root_qdisc(self, index: int) -> Qdisc | None:
        return self._kernel.tc.roots.get(index)

    def clsact(self, index: int) -> Qdisc | None:
        return self._kernel.tc.ingress.get(index)

    def filters(self, index: int) -> Sequence[Filter]:
        return self._kernel.tc.filters(index)

    def counters(self) -> Mapping[int, Counters]:
        from netcommon.host.counters import Counters

        kernel = self._kernel
        return {index: kernel.counters.get(index, Counters()) for index in kernel.links}

    def sysctl(self, path: str) -> str | None:
        return self._kernel.settings.get(path)

    def legacy_tables(self) -> Sequence[str]:
        return ()

    def table(self, name: str) -> int | None:
        known = self._host.tables.get(name)
        return number_of(name) if known is None else known

    def template(self, name: str) -> str:
        from netcommon.templates import read

        own = self._host.templates.get(name)
        return read(name, "/nonexistent") if own is None else own

    def ovs_bridge(self, name: str) -> bool:
        switch = self._switch
        return switch is not None and switch.has_bridge(name)

    def ovs_port(self, name: str) -> OvsPort | None:
        switch = self._switch
        return None if switch is None else switch.port(name)

    def ovs_held(self, name: str) -> OvsPort | None:
        switch = self._host.switch
        return switch.port(name) if switch.condition.there and switch.condition.database else None

    def ovs_ports(self) -> Sequence[OvsPort]:
        return [port for port in self.every_ovs_port() if port.owner]

    def ovs_switch(self, name: str) -> OvsBridge | None:
        switch = self._switch
        return None if switch is None else switch.switch(name)

    def ovs_switches(self) -> Sequence[OvsBridge]:
        switch = self._switch
        return [] if switch is None else switch.switches()

    def ovs_away(self) -> bool:
        return self._host.switch.away

    def ovs_shapers(self) -> Sequence[OvsShaper]:
        switch = self._switch
        return [] if switch is None else switch.unused_shapers()

    def flows(self, bridge: str, cookie: int = 0) -> Sequence[Flow]:
        self._host.reads += 1
        return self._host.openflow.flows(bridge, cookie)

    def flow_texts(self, flows: Sequence[str]) -> Sequence[str]:
        return self._host.openflow.texts(flows)

    def every_ovs_port(self) -> Sequence[OvsPort]:
        """All ports, with our mark or without."""
        switch = self._switch
        return [] if switch is None else switch.ports()
