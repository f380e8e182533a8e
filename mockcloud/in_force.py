"""Hold what is wanted of a NIC against its node: what protects and limits its guest.

It is looked for in the tables of the kernel, and in those of Open vSwitch; mockcloud.in_routing, mockcloud.in_device and mockcloud.in_dhcp
have the rest.
"""

from __future__ import annotations

import struct
from ipaddress import ip_network
from socket import inet_pton
from typing import TYPE_CHECKING, Any

from mockcloud.in_device import looks, of_device
from mockcloud.in_dhcp import of_dhcp
from mockcloud.in_routing import of_routing
from mockcloud.in_switch import of_switch
from mockcloud.wanted import OF_GUARD
from netcommon.host.api.facts import AF_INET, AF_INET6
from netcommon.options.addresses import link_local
from netcommon.options.shown import shown

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from mockcloud.left_over import Running
    from mockcloud.node import MockNode
    from mockcloud.wanted import Wanted
    from netcommon.host.api.facts import Link
    from netcommon.host.api.host import View
    from netcommon.host.api.nftables import NftChain
    from netcommon.settings.model import Settings

GUARD = "netcommon-guard-"  #: tables of spoof guards begin so
FIREWALL = "netcommon-fw-"  #: tables of profiles begin so
ACCESS = "netcommon-access"  #: the table of node_access; that of family bridge has -bridge behind it
INET, BRIDGE, NETDEV = 1, 7, 5  #: families of nftables (linux/netfilter.h)
PROTOCOLS = {"tcp": 6, "udp": 17}
INPUT, FORWARD, POSTROUTING = 1, 2, 4  #: hooks of inet and bridge (linux/netfilter.h, linux/netfilter_bridge.h)
INGRESS = 0  #: that of netdev
TICK = 64  #: nanoseconds, in which the kernel counts buckets (PSCHED_SHIFT)
HEADER, LONGEST = 14, 1 << 16  #: bytes before what an MTU counts, and of what a guest hands over as one frame
DELIVERY = "netcommon-delivery"  #: the table of what bridges deliver to guarded guests, of family bridge


def lacking(node: MockNode, running: Running, interface: Mapping[str, Any], settings: Settings) -> Iterator[str]:
    """Say what is not so of a NIC that runs. ``interface``: as its guest was started."""
    wanted, nic, link, told = running
    mode = nic["mode"]
    if wanted.refused:
        return
    with node.inside:
        view = node.machine.view()
        yield from of_routing(view, wanted, link, nic, settings)
        yield from of_device(view, wanted, link, nic, told)
        yield from of_dhcp(view, wanted, link, interface, told, settings, node.paths.etc)
        port = view.ovs_port(link.name) if mode == "openvswitch" else None
        if port is not None:
            yield from of_switch(view, wanted, port, nic)
        switch = view.ovs_switch(nic["link"]) if port is not None else None
        if mode in ("bridged", "routed") or (switch is not None and not switch.userspace):  # what the kernel forwards it filters, too
            yield from _said(wanted, _of_kernel(view, wanted, link, mode))
            yield from _of_buckets(view, wanted, link) if mode != "openvswitch" else ()
            if wanted.options.spoof_guard and not wanted.unsure & OF_GUARD:
                yield from _of_guard(view, wanted, link, nic["mac"], mode)


def _said(wanted: Wanted, holds: Mapping[str, bool]) -> Iterator[str]:
    """Say of options which do not hold; of those that nobody is sure of nothing."""
    for name, there in holds.items():
        if not there and name not in wanted.unsure:
            value = getattr(wanted.options, name)
            lacks = value and value not in ("unprotected", ("all",))
            yield f"{name} = {shown(name, value)} is wanted, and {'not' if lacks else 'something is'} there"


def _of_kernel(view: View, wanted: Wanted, link: Link, mode: str) -> dict[str, bool]:
    """Tell by name which options are in force in the kernel's tables, and nothing more than they say."""
    options, has = wanted.options, dict[str, bool]()
    guards = [each for each in view.nft_chains(NETDEV) if link.name == each.device and each.table.startswith(GUARD)]
    has["spoof_guard"] = any(each.hook == INGRESS and _works(view, each) for each in guards) == options.spoof_guard
    key = struct.pack("=I", link.index)
    profiles = {
        table.name.removeprefix(FIREWALL).partition("-")[0]
        for family in (INET, BRIDGE)
        for table in view.nft_tables(family)
        if table.name.startswith(FIREWALL) and looks(view, family, table.name, FORWARD, "nics")
        for element in view.nft_elements(family, table.name)
        if element.set == "nics" and element.key == key
    }
    has["firewall"] = profiles == {options.firewall} - {"unprotected"}
    reached = _reached(options.node_access)
    limited = {family: reached if mode == "bridged" or (mode == "routed" and family == INET) else set() for family in (INET, BRIDGE)}
    has["node_access"] = all(
        _let_in(view, family, key) == services and (not services or looks(view, family, _access(family), INPUT, "nics"))
        for family, services in limited.items()
    )
    if mode != "openvswitch":
        shaper = view.root_qdisc(link.index)
        has["rate_in"] = (shaper.rate if shaper is not None else 0) == options.rate_in
        has["rate_out"] = {each.rate for each in view.filters(link.index) if not each.egress and each.rate} == {options.rate_out} - {0}
    return has


def _of_buckets(view: View, wanted: Wanted, link: Link) -> Iterator[str]:
    """Say of a limit by what no frame passes: what is longer than a policer's bucket it drops, and a shaper cuts no more than the MTU."""
    shaper, frame = view.root_qdisc(link.index), link.mtu + HEADER
    small = shaper is not None and shaper.rate and (shaper.buffer * TICK < _lasts(frame, shaper.rate) or shaper.limit < frame)
    if shaper is not None and small and "rate_in" not in wanted.unsure:
        yield f"what its guest receives goes by a bucket of {shaper.buffer} ticks and {shaper.limit} bytes, which holds no frame"
    for each in view.filters(link.index):
        if not each.egress and each.rate and each.burst * TICK < _lasts(LONGEST, each.rate) and "rate_out" not in wanted.unsure:
            yield f"what its guest sends goes by a bucket of {each.burst} ticks, which does not hold what is sent as one frame"


def _lasts(size: int, rate: int) -> int:
    """Tell how many nanoseconds so many bytes take at a rate."""
    return size * 8 * 10**9 // rate


def _works(view: View, chain: NftChain) -> bool:
    """Tell whether a chain of a guard and all that are not called by the kernel itself, but by others of its table, have rules."""
    table = view.nft_table(NETDEV, chain.table)
    filled = {rule.chain for rule in view.nft_rules(NETDEV, chain.table)}
    called = {each.name for each in view.nft_chains_of(NETDEV, chain.table) if each.hook < 0}
    return table is not None and not table.dormant and filled >= {chain.name, *called}


def _reached(services: tuple[str, ...]) -> set[tuple[str, bytes]]:
    """Give the sets, each with the rest of a key, in which a guest is that reaches these services of its node, and no others."""
    if "all" in services:
        return set()
    found = {("nics", b"")}
    for protocol, _slash, port in (each.partition("/") for each in services if each != "none"):
        found.add(("services", struct.pack("=B3x", PROTOCOLS[protocol]) + struct.pack("!H2x", int(port))) if port else ("ping", b""))
    return found


def _access(family: int) -> str:
    return ACCESS if family == INET else f"{ACCESS}-bridge"


def _let_in(view: View, family: int, key: bytes) -> set[tuple[str, bytes]]:
    """Give the sets, each with the rest of a key, in which a device is."""
    elements = view.nft_elements(family, _access(family))
    return {(each.set, each.key[4:]) for each in elements if each.set in ("nics", "services", "ping") and each.key[:4] == key}


def _of_guard(view: View, wanted: Wanted, link: Link, mac: str, mode: str) -> Iterator[str]:
    """Say what a spoof guard lets pass that it should not, or does not let pass that it should."""
    has: dict[str, set[bytes]] = {}
    limits, ranges = set[int](), list[tuple[bytes, bytes]]()
    for table in view.nft_tables(NETDEV):
        for element in view.nft_elements(NETDEV, table.name) if table.name.startswith(GUARD) else ():
            if element.key[:4] == struct.pack("=I", link.index):
                has.setdefault(element.set, set()).add(element.key[4:])
                ranges += [(element.key[4:], element.end[4:])] if element.set in ("prefixes4", "prefixes6") else []
                limits |= {element.limit} if element.set == "new-sources" else set()
    known, options = wanted.addresses, wanted.options
    macs = {_of_mac(mac)} if mac else set[bytes]()
    yield from () if has.get("macs", set()) == macs else ("its guard knows another MAC",)
    hosts = {"ipv4": {inet_pton(AF_INET, each) for each in known.ipv4}, "ipv6": {inet_pton(AF_INET6, each) for each in known.ipv6}}
    own = {inet_pton(AF_INET6, each) for each in filter(None, (link_local(mac) if mac else "",))}
    yield from (f"its guard knows other addresses of {name}" for name, each in hosts.items() if has.get(name, set()) - own != each - own)
    prefixes = [*map(_range, (*known.prefixes4, *known.prefixes6))]
    yield from () if _same(ranges, prefixes) else ("its guard knows other prefixes",)
    vlans = {struct.pack("!H2x", vid) for vid in (wanted.vlan.trunks if mode != "routed" else ())}
    yield from () if has.get("vlans", set()) == vlans else ("its guard knows other VLANs",)
    anything = options.allow_ip_spoofing or options.allow_dhcp_spoofing
    free = {
        "free-mac": options.allow_mac_spoofing or not mac,
        "free-ipv4": anything or (mode != "routed" and AF_INET not in known.families),
        "free-ipv6": anything or (mode != "routed" and AF_INET6 not in known.families),
        "free-dhcp": options.allow_dhcp_spoofing,
        "free-type": options.allow_restricted_traffic,
        "free-query": options.allow_mcast_router,
        "any-link-local": anything or options.link_local == "any" or not mac,
        "no-mac": not mac,
    }
    yield from (f"its guard says {'' if name in has else 'not '}{name}" for name, may in free.items() if (name in has) != may)
    vague = free["free-ipv4"] or free["free-ipv6"] or free["any-link-local"] or known.prefixes4 or known.prefixes6
    limit = {options.new_sources} - {0} if vague and not anything else set()
    yield from () if limits == limit else (f"new_sources = {options.new_sources} is wanted, and its guard has {limits or 'no limit'}",)
    if mode == "bridged" and "allow_unfiltered_promisc" not in wanted.unsure:
        yield from _of_delivery(view, not options.allow_unfiltered_promisc and bool(mac), link, macs)


def _of_delivery(view: View, wanted: bool, link: Link, macs: set[bytes]) -> Iterator[str]:
    """Say whether a bridge delivers frames for others to a guest that is to get none."""
    key = struct.pack("=I", link.index)
    has = {each.key[4:] for each in view.nft_elements(BRIDGE, DELIVERY) if (each.set, each.key[:4]) == ("own", key)}
    if has != (macs if wanted else set()) or (wanted and not looks(view, BRIDGE, DELIVERY, POSTROUTING, "own")):
        yield f"allow_unfiltered_promisc = {str(not wanted).lower()} is wanted, and {'not' if wanted else 'something is'} there"


def _range(prefix: str) -> tuple[bytes, bytes]:
    """Give the first and the last address of a prefix."""
    network = ip_network(prefix)
    return network.network_address.packed, network.broadcast_address.packed


def _same(ranges: list[tuple[bytes, bytes]], prefixes: list[tuple[bytes, bytes]]) -> bool:
    """Tell whether ranges are of these prefixes and of no more: of two that overlap the wider one is both."""
    every = all(any(first <= one and last <= end for first, end in ranges) for one, last in prefixes)
    return every and all(each in prefixes for each in ranges)


def _of_mac(mac: str) -> bytes:
    """Give a MAC as a set has it."""
    return bytes.fromhex(mac.replace(":", "")) + bytes(2)
