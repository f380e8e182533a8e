"""Tell where the kernel drops what a routed guest sends, though all that was done for its NIC holds: rp_filter (ip-sysctl.rst).

The kernel looks up the guest's address as if a packet for it came in by the device by which the guest's own goes out, without the mark
that it had, and compares the device of that way with the guest's (fib_validate_source()). In a table of its own the guest's route is found
from there only if a rule leads there. Both lookups are the kernel's own: it is asked for the way of packets from the guest, and where it
takes some nowhere, for the way back by each device of the table's default route.
"""

from __future__ import annotations

import errno

from netcommon.host.api.datapath import Question
from netcommon.host.api.facts import AF_INET, PROTOCOL
from netcommon.operations.mark import TapMark, value_of
from netcommon.operations.route import GuestRoute
from netcommon.operations.routed_uplink import DEFAULT, UNICAST
from runtime.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from netcommon.host.api.facts import Link, Route
    from netcommon.host.api.host import View
    from netcommon.operations.base import Operation

#: What the kernel says of a packet that its reverse path filter drops: which of them differs by its version, and EINVAL may mean more.
FILTERED = frozenset({errno.EXDEV, errno.EINVAL})

#: There is no way to the guest: no route, one of type unreachable or prohibit, or a rule of such an action.
NOWHERE = frozenset({errno.ENETUNREACH, errno.EHOSTUNREACH, errno.EACCES})

#: Addresses all over the Internet, as targets of a guest's packets: of a route with several ways each leads by one of them.
ANYWHERE = tuple(
    f"{first}.{first + 7}.{255 - first}.{first}" for first in (4, 8, 12, 16, 23, 31, 45, 62, 77, 89, 93, 109, 138, 151, 185, 212)
)


def dropped(view: View, operations: Sequence[Operation], own: int, every: int) -> list[tuple[str, str]]:
    """Find the guest's addresses of which the kernel drops what goes out by a default route of its table: why, and what helps.

    ``own``, ``every``: rp_filter of the guest's device, and of all devices. Raises TryAgain.
    """
    routes = [one for one in operations if isinstance(one, GuestRoute) and one.family == AF_INET]
    mark = next((value_of(one.number, one.mask) for one in operations if isinstance(one, TapMark)), 0)
    lost = [(route, found) for route in routes if (found := _lost(view, route, mark))]
    return [_said(route, found, own, every) for route, found in lost]


def _lost(view: View, route: GuestRoute, mark: int) -> list[Link]:
    """Return the uplinks by which nothing of what comes from the address of ``route`` gets out, for the filter drops it."""
    defaults = _defaults(view, route.number)
    source, filtered = route.destination.partition("/")[0], ""
    indices = dict.fromkeys(index for each in defaults for index in each.paths or (each.index,))
    left = {index: link for index in indices if (link := view.link_at(index)) is not None and link.up}
    for target in _targets(defaults, source):
        if not left:
            break
        way = view.way(Question(AF_INET, target, source, route.ifindex, mark))
        if way.errno in FILTERED:
            filtered = filtered or target
        elif not way.errno:
            left.pop(way.index, None)  # what goes by it passes
    if not filtered:
        return []
    seen = mark if mark and _looks_at_marks(view, route.device) else 0
    back = Question(AF_INET, source, filtered, mark=seen)
    return [link for link in left.values() if _fails(view, route, back._replace(iif=link.index), mark)]


def _defaults(view: View, table: int) -> list[Route]:
    """Return the default routes of the guest's table that count: those of the lowest metric."""
    there = [each for each in view.routes(AF_INET, table, DEFAULT[AF_INET]) if each.protocol != PROTOCOL]
    first = min((each.metric for each in there), default=0)
    return [each for each in there if each.metric == first and each.type == UNICAST]


def _targets(defaults: Sequence[Route], source: str) -> Iterator[str]:
    """Yield addresses to which a guest's packets may go, the gateways first: one is enough where there is no other way."""
    for gateway in dict.fromkeys(each.gateway for each in defaults):
        if "." in gateway and gateway != source:  # a route may lead by an IPv6 neighbour (RTA_VIA), or name none
            yield gateway
    yield from ANYWHERE


def _looks_at_marks(view: View, device: str) -> bool:
    """Tell whether the way back is looked up with the mark of the packet (src_valid_mark)."""
    return any(view.sysctl(f"net/ipv4/conf/{each}/src_valid_mark") == "1" for each in (device, "all"))


def _fails(view: View, route: GuestRoute, back: Question, mark: int) -> bool:
    """Tell whether what leads ``back`` to the guest's address, from an uplink, is none that the filter of the guest's device takes."""
    way = view.way(back)
    if way.errno in FILTERED:
        # the lookup ended in a blackhole; or the uplink has such a filter too, for which a way that a mark has led by does not count
        return not mark or not _filters(view, back.iif)
    return way.errno in NOWHERE or (not way.errno and way.type == UNICAST and route.ifindex not in (way.index, *way.paths))


def _filters(view: View, index: int) -> bool:
    link = view.link_at(index)
    names = ("all", *([link.name] if link else ()))
    return any(view.sysctl(f"net/ipv4/conf/{name}/rp_filter") != "0" for name in names)


def _said(route: GuestRoute, lost: Sequence[Link], own: int, every: int) -> tuple[str, str]:
    device, source = route.device, route.destination.partition("/")[0]
    name, uplinks = device.replace(".", "/"), " and ".join(link.name for link in lost)
    text = f"rp_filter of {device} is {max(own, every)}: the kernel drops what comes from {source} and goes out by {uplinks}, "
    text += "for what comes in there finds no way to it through this device"
    remedies = []
    if own:
        remedies.append(f'the option rp_filter = "off", or sysctl -w net.ipv4.conf.{name}.rp_filter=0 (default.rp_filter=0 for later ones)')
    if every:
        remedies.append("sysctl -w net.ipv4.conf.all.rp_filter=0")
    rules = [f"ip -4 rule add iif {link.name} lookup {route.table}" for link in lost if route.table]
    return text, " and ".join(remedies) + (f"; or {' and '.join(rules)}" if rules else "")
