"""Tell where the kernel drops what a routed guest sends, though all that was done for its NIC holds: rp_filter (ip-sysctl.rst).

The kernel looks up the guest's address as if a packet for it came in by the device by which the guest's own goes out, without the mark
that it had, and compares the device of that way with the guest's (fib_validate_source()). In a table of its own the guest's route is found
from there only if a rule leads there. Both lookups are the kernel's own: it is asked for the way of packets from the guest, and where it
takes some nowhere, for the way back by each device of the table's default route.
"""

from __future__ import annotations

import errno

from netcommon.host.api.datapath import THROW, Question
from netcommon.host.api.facts import AF_INET, DROPPING, PROTOCOL
from netcommon.operations.mark import TapMark, value_of
from netcommon.operations.route import GuestRoute
from netcommon.operations.routed_uplink import DEFAULT, HALVES, UNICAST
from netcommon.operations.rule import LOOKUP, MAIN_PREFERENCE, PolicyRule
from runtime.typed import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from netcommon.host.api.facts import Link, Route, Rule
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


class Filter(NamedTuple):
    """How strict the kernel is with what the guest's device receives."""

    own: int  #: rp_filter of the device
    every: int  #: of all devices; the larger one counts
    kept: bool = False  #: an option of the NIC's gives the device its own, and a repair gives it again


def dropped(view: View, operations: Sequence[Operation], by: Filter) -> list[tuple[str, str]]:
    """Find the guest's addresses of which the kernel drops what goes out by a default route: why, and what helps. Raises TryAgain."""
    routes = [one for one in operations if isinstance(one, GuestRoute) and one.family == AF_INET]
    ours = next((one for one in operations if isinstance(one, TapMark | PolicyRule)), None)
    mark = value_of(ours.number, ours.mask) if isinstance(ours, TapMark) else 0
    last = ours.preference if ours is not None else MAIN_PREFERENCE
    lost = [(route, found) for route in routes if (found := _lost(view, route, mark, last))]
    return [_said(route, found, by) for route, found in lost]


def _lost(view: View, route: GuestRoute, mark: int, last: int) -> list[Link]:
    """Return the uplinks by which nothing of what comes from the address of ``route`` gets out, for the filter drops it."""
    defaults = _defaults(view, route, mark, last)
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


def _defaults(view: View, route: GuestRoute, mark: int, last: int) -> list[Route]:
    """Return the routes by which most of what the guest sends leaves the node: in its table, and in those that are looked up next.

    The next ones count as long as a table has no route to everywhere, or one that throws the packet back to the rules. ``last``: the
    preference of the rule that leads to the guest's table.
    """
    found, ended = _wide(view, route.number)
    tables = {route.number}
    for rule in () if ended else _later(view, route.device, mark, last):
        if rule.action in DROPPING:
            break
        if rule.action != LOOKUP or rule.table in tables:
            continue
        tables.add(rule.table)
        more, ended = _wide(view, rule.table)
        found += more
        if ended:
            break
    return found


def _wide(view: View, table: int) -> tuple[list[Route], bool]:
    """Return the routes of a table that either half of all addresses is led by, and whether no packet gets past them."""
    whole, *halves = (_first(view, table, each) for each in (DEFAULT[AF_INET], *HALVES[AF_INET]))
    used = [half or whole for half in halves]
    found = dict.fromkeys(each for half in used for each in half if each.type == UNICAST)
    return list(found), all(half and half[0].type != THROW for half in used)


def _first(view: View, table: int, destination: str) -> list[Route]:
    """Return the routes to a destination that count: those of the lowest metric."""
    there = [each for each in view.routes(AF_INET, table, destination) if each.protocol != PROTOCOL]
    first = min((each.metric for each in there), default=0)
    return [each for each in there if each.metric == first]


def _later(view: View, device: str, mark: int, last: int) -> list[Rule]:
    """Return the rules that take every packet of the device's, from the one that leads to its table on, in their order."""
    rules = [rule for iif in (device, "") for rule in view.rules(AF_INET, iif) if rule.preference >= last]
    firm = [rule for rule in rules if not (rule.narrowed or rule.inverted or rule.more) and (mark & rule.mask) == rule.mark]
    return sorted(firm, key=lambda rule: rule.preference)


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


def _said(route: GuestRoute, lost: Sequence[Link], by: Filter) -> tuple[str, str]:
    device, source = route.device, route.destination.partition("/")[0]
    name, uplinks = device.replace(".", "/"), " and ".join(link.name for link in lost)
    text = f"rp_filter of {device} is {max(by.own, by.every)}: the kernel drops what comes from {source} and goes out by {uplinks}, "
    text += "for what comes in there finds no way to it through this device"
    remedies = []
    if by.own and by.kept:
        remedies.append('the option rp_filter = "off" in the place of the one that the NIC has, which repair sets again')
    elif by.own:
        remedies.append(f'the option rp_filter = "off", or sysctl -w net.ipv4.conf.{name}.rp_filter=0 (default.rp_filter=0 for later ones)')
    if by.every:
        remedies.append("sysctl -w net.ipv4.conf.all.rp_filter=0")
    rules = [f"ip -4 rule add iif {link.name} lookup {route.table}" for link in lost if route.table]
    return text, " and ".join(remedies) + (f"; or {' and '.join(rules)}" if rules else "")
