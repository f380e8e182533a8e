"""Hold what leads to a routed guest, and what its packets are looked up in, against what is wanted of its NIC: routes and policy rules.

What must be so is derived from what docs/routed.md promises, and by nothing of the plan that made it.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

from mockcloud.in_device import ARP, MAIN, OURS, blackholes, looks, table_of
from mockcloud.wanted import OF_ADDRESSES
from netcommon.host.api.datapath import UNICAST
from netcommon.host.api.facts import AF_INET, AF_INET6
from netcommon.options.addresses import Addresses

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from mockcloud.wanted import Wanted
    from netcommon.host.api.facts import Link, Route, Rule
    from netcommon.host.api.host import View
    from netcommon.settings.model import Settings

LENGTHS = {AF_INET: "/32", AF_INET6: "/128"}  #: of a route to one host
NAMES = {AF_INET: "IPv4", AF_INET6: "IPv6"}
ANY_SENDER = frozenset({"allow_ip_spoofing", "allow_dhcp_spoofing"})  #: with one of these both families are forwarded
MARKS, TAPS = "netcommon-mark-", "taps"  #: how tables begin that mark what comes in by devices, and the set of these
INET = 1  #: a family of nftables (linux/netfilter.h)
PREROUTING, ARP_IN = 0, 0  #: hooks in which marks are given (linux/netfilter.h, linux/netfilter_arp.h)


def host_routes(view: View) -> Iterator[Route]:
    """Give the routes that forward to one host. Those of a device's own link-local address, local and anycast, are the kernel's."""
    for family, length in LENGTHS.items():
        yield from (route for route in view.routes(family) if route.type == UNICAST and route.destination.endswith(length))


def mark_of(table: int, mask: int) -> int:
    """Give the mark of what is looked up in a table: its number, in the row of bits of ``mask``."""
    return table * (mask & -mask)


def of_routing(view: View, wanted: Wanted, link: Link, nic: Mapping[str, Any], settings: Settings) -> Iterator[str]:
    """Name each wrong or missing route and rule of a NIC; in a mode other than routed, any of ours. ``nic``: as its guest was started."""
    routed = nic["mode"] == "routed"
    if wanted.unsure & OF_ADDRESSES:
        return
    table = table_of(view, nic["link"]) if routed else MAIN
    yield from _of_routes(view, wanted.addresses if routed else Addresses(), link, table)
    if routed and wanted.options.blackhole and "blackhole" not in wanted.unsure:
        yield from _of_blackholes(view, wanted, table)
    if not wanted.unsure & ANY_SENDER:
        anything = any(getattr(wanted.options, name) for name in ANY_SENDER)
        families = {*LENGTHS} if anything else {*wanted.addresses.families}
        yield from _of_rules(view, families if routed and table != MAIN else set(), link, table, settings)


def _of_routes(view: View, wanted: Addresses, link: Link, table: int) -> Iterator[str]:
    """Compare the routes to a NIC's device with the NIC's addresses. A route is ours by its mark alone: the kernel makes some itself."""
    own = {each for family in LENGTHS for each in wanted.destinations(family)}
    every = [route for family in LENGTHS for route in view.routes(family)]
    routes = [route for route in every if route.type == UNICAST and route.index == link.index]
    ours = [route for route in routes if route.protocol == OURS]
    by = {
        each: hosts[0] for family in LENGTHS if (hosts := wanted.hosts(family)) for each in wanted.prefixes(family)
    }  # the guest is the router
    there = {route.destination: route.metric for route in routes if (route.table, route.tos) == (table, 0)}
    more = {route.destination for route in (*ours, *host_routes(view)) if route.index == link.index}
    yield from (f"{each} is not routed to it" for each in sorted(own - there.keys()))
    yield from (f"{each} is routed to it, and is not its own" for each in sorted(more - own))
    for route in ours:
        if route.destination in own and route.table != table:
            yield f"{route.destination} is routed to it in table {route.table}, too"
        elif route.destination in own and route.gateway != by.get(route.destination, ""):
            gateway = by.get(route.destination) or "none"
            yield f"{route.destination} is routed to it by the gateway {route.gateway or 'none'}, and by {gateway} is wanted"
    for route in every:
        if route.type != UNICAST and route.table == table and route.destination in own and route.metric <= there.get(route.destination, -1):
            yield f"{route.destination} is routed to it behind a route that leads nowhere"


def _of_blackholes(view: View, wanted: Wanted, table: int) -> Iterator[str]:
    """Behind each of a guest's routes there is one that leads nowhere: of the next metric, for the kernel takes the least."""
    metrics = {AF_INET: 1, AF_INET6: 1025}  # of the guest's own 0, and in IPv6 the kernel's usual one
    has = {(each.destination, each.metric) for each in blackholes(view) if each.table == table}
    for family, metric in metrics.items():
        for each in wanted.addresses.destinations(family):
            if (each, metric) not in has:
                yield f"blackhole = true is wanted, and none is behind its route of {each}"


def _of_rules(view: View, families: set[int], link: Link, table: int, settings: Settings) -> Iterator[str]:
    """Say of each family what does not lead to the NIC's table, or to another one. ``families``: those of which something leads there."""
    for family, name in NAMES.items():
        own = [rule for rule in view.rules(family) if rule.iif == link.name and (rule.plain or rule.protocol == OURS)]
        leading = [rule for rule in own if rule.table == table] + [rule for rule in view.rules(family) if _marks(view, rule, link, table)]
        if family in families:
            off = family == AF_INET6 and view.sysctl("net/ipv6/conf/all/forwarding") is None
            if not leading and not off:
                yield f"no rule leads what it sends by {name} to table {table}"
            for rule in leading:
                if rule.protocol == OURS and rule.preference != settings.rule_preference:
                    yield f"the rule for what it sends by {name} is of preference {rule.preference}, not {settings.rule_preference}"
        for rule in own:
            if rule.protocol == OURS and (rule.table != table or family not in families):
                yield f"a rule leads what it sends by {name} to table {rule.table}, which is not wanted"


def _marks(view: View, rule: Rule, link: Link, table: int) -> bool:
    """Tell whether a rule is for the mark of a table, and what comes in by a device is given that; in IPv4 ARP too."""
    if not rule.mask or rule.iif or (rule.table, rule.mark) != (table, mark_of(table, rule.mask)):
        return False
    name, key = f"{MARKS}{table}-{rule.mask:x}", struct.pack("=I", link.index)
    places = {INET: PREROUTING, ARP: ARP_IN} if rule.family == AF_INET else {INET: PREROUTING}
    return all(
        looks(view, family, name, hook, TAPS) and any((each.set, each.key) == (TAPS, key) for each in view.nft_elements(family, name))
        for family, hook in places.items()
    )
