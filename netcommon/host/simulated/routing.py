"""Route packets on a simulated node: a simple lookup, and what a kernel refuses before and after it (ip_route_input_slow())."""

from __future__ import annotations

import errno
import ipaddress
from collections.abc import Iterable, Sequence

from netcommon.host.api.datapath import (
    BLACKHOLE,
    LOCAL,
    MULTICAST,
    PROHIBIT,
    THROW,
    UNICAST,
    UNREACHABLE,
    BridgeState,
    DeviceState,
    PortState,
    Question,
    Way,
)
from netcommon.host.api.facts import AF_INET, Route, Rule
from netcommon.host.simulated.kernel import LOCAL as LOCAL_TABLE
from netcommon.host.simulated.kernel import Kernel

IpAddress = ipaddress.IPv4Address | ipaddress.IPv6Address
REFUSED = {BLACKHOLE: errno.EINVAL, UNREACHABLE: errno.EHOSTUNREACH, PROHIBIT: errno.EACCES}
ALL_NODES, SOLICITED = "ff02::1", ipaddress.IPv6Address("ff02::1:ff00:0").packed[:13]
LOOPBACK = 1  #: the index of lo


class Routing:
    """Follow rules by device or mark alone, each table by the longest prefix and then the lowest metric."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel

    def way(self, question: Question) -> Way:
        """Answer ``question``."""
        target = ipaddress.ip_address(question.target)
        source = ipaddress.ip_address(question.source) if question.source else None
        if target.is_multicast:
            return Way(type=MULTICAST, index=question.iif, table=LOCAL_TABLE)
        if question.iif and martian(source, target):
            return Way(errno.EINVAL)
        if any(each.address == str(target) for each in self._kernel.addresses):
            return Way(type=LOCAL, index=LOOPBACK, table=LOCAL_TABLE)
        if str(target) == "255.255.255.255":
            return Way(type=LOCAL, index=question.iif)
        route = self._lookup(question)
        out = LOOPBACK if route is None or route.type != UNICAST else (route.index or route.paths[0])
        if question.iif and question.family == AF_INET and not self._plausible(question, out):
            return Way(errno.EXDEV)
        if route is None:
            return Way(errno.ENETUNREACH)
        if route.type in REFUSED:
            return Way(REFUSED[route.type])
        if question.iif and route.type == UNICAST and question.family == AF_INET and not self._forwards(question.iif):
            return Way(errno.EHOSTUNREACH)
        first = route.index or (route.paths or (0,))[0]
        return Way(0, route.type, first, route.gateway, route.table, route.destination, route.protocol, 0, route.paths)

    def groups(self, index: int) -> Sequence[str]:
        """Return all nodes, and the groups in which the device's addresses and its proxy entries are asked for (RFC 4291, 2.8)."""
        if index not in self._kernel.links:
            return []
        pairs = [(each.index, each.address) for each in self._kernel.addresses]
        pairs += [(each.index, each.address) for each in self._kernel.neighbours]
        asked = [ipaddress.IPv6Address(address).packed for at, address in pairs if at == index and ":" in address]
        made = [str(ipaddress.IPv6Address(SOLICITED + address[13:])) for address in asked]
        return list(dict.fromkeys([ALL_NODES, *made]))

    def device_state(self, index: int) -> DeviceState | None:
        """Describe it as new devices are, with a cable in each."""
        link = self._kernel.links.get(index)
        if link is None:
            return None
        port = PortState() if link.port_kind == "bridge" else None
        bridge = self._kernel.bridge_states.get(index, BridgeState()) if link.kind == "bridge" else None
        return DeviceState(port=port, bridge=bridge)

    def _forwards(self, index: int) -> bool:
        link = self._kernel.links.get(index)
        return link is not None and self._kernel.settings.get(f"net/ipv4/conf/{link.name}/forwarding") != "0"

    def _plausible(self, question: Question, out: int) -> bool:
        """Tell whether rp_filter takes it: ``out`` is the device that it would go out by, from which the way back is looked up."""
        link = self._kernel.links.get(question.iif)
        places = ("all", link.name if link is not None else "")
        value = max(self._kernel.settings.get(f"net/ipv4/conf/{place}/rp_filter") or "0" for place in places)
        if value not in ("1", "2") or not question.source:
            return True
        found = self._lookup(Question(question.family, question.source, iif=out))
        if found is None or found.type != UNICAST:
            return False
        # without an address the device is asked for strictly all the same (fib_validate_source(), no_addr)
        loose = value == "2" and any(each.index == question.iif and each.family == AF_INET for each in self._kernel.addresses)
        return loose or question.iif in (found.index, *found.paths)

    def _lookup(self, question: Question) -> Route | None:
        address = ipaddress.ip_address(question.target)
        link = self._kernel.links.get(question.iif)
        name = link.name if link is not None else ""
        for rule in sorted(self._kernel.rules, key=lambda each: each.preference):
            if rule.family == question.family and self._matches(rule, name, question.mark):
                tables = (route for route in self._kernel.routes if (route.family, route.table) == (rule.family, rule.table))
                route = _best(tables, address)
                if route is not None and route.type != THROW:
                    return route
        return None

    @staticmethod
    def _matches(rule: Rule, iif: str, mark: int) -> bool:
        return rule.iif in ("", iif) and (not rule.mask or (mark & rule.mask) == rule.mark)


def martian(source: IpAddress | None, target: IpAddress) -> bool:
    """Tell whether no router takes a packet between these (RFC 1812, 5.3.7; RFC 4291, 2.5)."""
    if target.is_loopback or target.is_unspecified:
        return True
    if source is None:
        return str(target) != "255.255.255.255" and target.version == 4
    return source.is_loopback or source.is_multicast or str(source) == "255.255.255.255" or (source.version == 4 and int(source) >> 24 == 0)


def _best(routes: Iterable[Route], address: IpAddress) -> Route | None:
    best: tuple[int, int] | None = None
    chosen = None
    for route in routes:
        network = ipaddress.ip_network(route.destination, strict=False)
        if address in network and (best is None or (-network.prefixlen, route.metric) < best):
            best, chosen = (-network.prefixlen, route.metric), route
    return chosen
