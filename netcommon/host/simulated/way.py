"""Find the way of a packet on a simulated node: policy rules, the longest prefix, and the reverse path filter (net/ipv4/fib_frontend.c)."""

from __future__ import annotations

from netcommon.host.api.facts import AF_INET
from netcommon.host.rtnetlink.attributes import split_prefix
from runtime.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from netcommon.host.api.facts import Route
    from netcommon.host.simulated.kernel import Kernel

UNICAST = 1
MAIN, MAIN_PREFERENCE = 254, 32766


def way(kernel: Kernel, source: str, target: str, index: int, mark: int) -> Route | None:
    """See View.way; IPv4 alone."""
    device = kernel.links.get(index)
    route = _lookup(kernel, target, index, mark) if device is not None and device.up else None
    if device is None or route is None or route.type != UNICAST:
        return None
    filtered = max(int(kernel.settings.get(f"net/ipv4/conf/{each}/rp_filter") or 0) for each in ("all", device.name))
    if filtered:
        back = _lookup(kernel, source, next(iter(_ways(route))), 0)
        meant = back is not None and back.type == UNICAST
        loose = filtered > 1 and any((each.family, each.index) == (AF_INET, index) for each in kernel.addresses)
        if not meant or (back is not None and index not in _ways(back) and not loose):
            return None
    return route


def _ways(route: Route) -> tuple[int, ...]:
    return route.paths or (route.index,)


def _lookup(kernel: Kernel, target: str, index: int, mark: int) -> Route | None:
    device = kernel.links.get(index)
    name = device.name if device else ""
    chosen = [
        (rule.preference, rule.table)
        for rule in kernel.rules
        if rule.family == AF_INET and rule.plain and rule.iif in ("", name) and mark & rule.mask == rule.mark
    ]
    for _, table in sorted([*chosen, (MAIN_PREFERENCE, MAIN)]):
        found = [route for route in kernel.routes if (route.family, route.table) == (AF_INET, table) and _holds(route.destination, target)]
        if found:
            return min(found, key=lambda route: (-int(route.destination.partition("/")[2]), route.metric))
    return None


def _holds(destination: str, target: str) -> bool:
    network, length = split_prefix(AF_INET, destination)
    address = split_prefix(AF_INET, target)[0]
    shift = 32 - length
    return int.from_bytes(network, "big") >> shift == int.from_bytes(address, "big") >> shift
