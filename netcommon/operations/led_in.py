"""Tell where what comes in for a routed guest is not led to it, though all that was done for its NIC holds: no hook loads this.

The kernel is asked, for packets from anywhere, by each device by which they may come in: its answer heeds rules, routes and forwarding.
"""

from __future__ import annotations

import errno

from netcommon.host.api.datapath import UNICAST, Question
from netcommon.host.api.facts import AF_INET, DROPPING, PROTOCOL
from netcommon.operations.reverse_path import ANYWHERE, FILTERED
from netcommon.operations.route import GuestRoute
from netcommon.operations.routed_uplink import uplinks
from netcommon.operations.rule import LOOKUP, MAIN_PREFERENCE, does, removal
from netcommon.operations.sysctl import FORWARDING, RP_FILTER, path_of
from netcommon.operations.table import MAIN
from runtime.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from netcommon.host.api.facts import Link, Rule
    from netcommon.host.api.host import View
    from netcommon.operations.base import Operation

#: Addresses of the Internet, as sources.
ANYWHERE6 = ("2001:4860:4860::8844", "2a00:1450::5", "2400:cb00::9")


def unreached(view: View, operations: Iterable[Operation]) -> list[tuple[str, str]]:
    """Return for which of the guest's addresses nothing that comes in finds its way to it, why, and what helps. Raises TryAgain."""
    found: list[tuple[str, str]] = []
    for one in operations:
        if not isinstance(one, GuestRoute) or one.differs(view):
            continue
        ways = _ways_in(view, one)
        rules = [rule for name in ("", *(link.name for link in ways)) for rule in view.rules(one.family, name) if rule.protocol != PROTOCOL]
        if not ways or any(_meant(rule, one.number) for rule in rules):
            continue
        lost = [why for link in ways if (why := _lost(view, one, link))]
        if len(lost) == len(ways):
            found.append(_said(one, ways, lost[0], rules))
    return found


def _ways_in(view: View, route: GuestRoute) -> list[Link]:
    """Return the devices by which packets for the guest may come in: its uplinks, and those of rules into its table."""
    links = {link.index: link for link in uplinks(view, route.family, route.number).links}
    for name in view.ways_in(route.family, route.number):
        link = view.link(name)
        if link is not None and link.index != route.ifindex:
            links[link.index] = link
    return [link for link in links.values() if link.up]


def _meant(rule: Rule, number: int) -> bool:
    """Tell whether the rule lets packets pass by what is not asked for here: that others do not may be meant so."""
    into = rule.action == LOOKUP and rule.table == number
    return rule.action not in DROPPING and (rule.more or rule.inverted or bool(rule.mask) or (into and bool(rule.source)))


def _lost(view: View, route: GuestRoute, link: Link) -> str:
    """Say what becomes of packets that come in by ``link``; "" where some get to the guest, or that cannot be told."""
    ipv4, why = route.family == AF_INET, ""
    if ipv4 and view.sysctl(path_of(AF_INET, link.name, FORWARDING)) == "0":
        return ""  # which is said of the device
    filters = ipv4 and any(view.sysctl(path_of(AF_INET, name, RP_FILTER)) != "0" for name in (link.name, "all"))
    target = route.destination.partition("/")[0]
    for source in ANYWHERE[:3] if ipv4 else ANYWHERE6:
        way = view.way(Question(route.family, target, source, link.index))
        if way.errno:
            if filters and way.errno in FILTERED:
                return ""
            why = "there is no route to it" if way.errno == errno.ENETUNREACH else "a route or a policy rule drops it"
        elif way.type != UNICAST or route.ifindex in (way.index, *way.paths):
            return ""
        else:
            other = view.link_at(way.index)
            why = f"it goes on by {other.name if other is not None else f'device {way.index}'}"
    return why


def _said(route: GuestRoute, ways: Sequence[Link], why: str, rules: Sequence[Rule]) -> tuple[str, str]:
    names, version = [link.name for link in ways], 4 if route.family == AF_INET else 6
    text = f"what comes in by {' and '.join(names)} for {route.destination.partition('/')[0]} does not get to the guest: {why}"
    dropping = next((rule for rule in sorted(rules, key=lambda rule: rule.preference) if rule.action in DROPPING), None)
    if dropping is not None:
        return f"{text}; policy rule {dropping.preference}: {does(dropping)} is not ours", removal(dropping)
    if any(rule.action == LOOKUP and rule.table == route.number for rule in rules):
        return text, "netcommon trace --to guest shows which route or rule leads it there"
    if route.number == MAIN:
        return text, f"ip -{version} rule add lookup main preference {MAIN_PREFERENCE}"
    return text, " and ".join(f"ip -{version} rule add iif {name} lookup {route.table}" for name in names)
