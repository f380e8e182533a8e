"""Hold what protects and limits the guest of a NIC against its node's kernel: its routes, spoof guard, firewall, node access, rates, port.

It is looked for in the tables of the kernel, and in those of Open vSwitch.
"""

from __future__ import annotations

import struct
from socket import inet_pton
from typing import TYPE_CHECKING, Any

from mockcloud.in_switch import of_switch
from mockcloud.wanted import OF_ADDRESSES, OF_GUARD, wanted_by
from netcommon.host.api.datapath import UNICAST
from netcommon.host.api.facts import AF_INET, AF_INET6
from netcommon.options.addresses import Addresses, link_local
from netcommon.options.shown import shown

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from mockcloud.node import MockNode
    from mockcloud.wanted import Wanted
    from netcommon.host.api.facts import Link, Route
    from netcommon.host.api.host import View
    from netcommon.settings.model import Settings

FIREWALL = "netcommon-fw-"  #: tables of profiles begin so
ACCESS = "netcommon-access"  #: the table of node_access; that of family bridge has -bridge behind it
INET, BRIDGE, NETDEV = 1, 7, 5  #: families of nftables (linux/netfilter.h)
PROTOCOLS = {"tcp": 6, "udp": 17}
LENGTHS = {AF_INET: "/32", AF_INET6: "/128"}  #: of a route to one host
#: Options of a port of a bridge, and the kernel's names of them.
PORT = {"isolated": "isolated", "mcast_flood": "mcast_flood", "mcast_fast_leave": "fastleave", "mcast_to_unicast": "mcast_to_unicast"}


def host_routes(view: View) -> Iterator[Route]:
    """Give the routes that forward to one host. Those of a device's own link-local address, local and anycast, are the kernel's."""
    for family, length in LENGTHS.items():
        yield from (route for route in view.routes(family) if route.type == UNICAST and route.destination.endswith(length))


def lacking(node: MockNode, item: Mapping[str, Any], interface: Mapping[str, Any], link: Link, settings: Settings) -> Iterator[str]:
    """Say what is not so of a NIC that runs. ``item``, ``interface``: see wanted_by."""
    wanted, mode = wanted_by(item, interface, settings), interface["nic"]["mode"]
    if wanted.refused:
        return
    with node.inside:
        view = node.machine.view()
        if not wanted.unsure & OF_ADDRESSES:
            table = view.table(interface["nic"]["link"] or "main")
            yield from _of_routes(view, wanted.addresses if mode == "routed" else Addresses(), link, table)
        port = view.ovs_port(link.name) if mode == "openvswitch" else None
        if port is not None:
            yield from of_switch(view, wanted, port, interface["nic"])
        switch = view.ovs_switch(interface["nic"]["link"]) if port is not None else None
        if mode in ("bridged", "routed") or (switch is not None and not switch.userspace):  # what the kernel forwards it filters, too
            yield from _said(wanted, _of_kernel(view, wanted, link, mode))
            if mode == "bridged":
                yield from _of_port(view, wanted, link)
            if wanted.options.spoof_guard and not wanted.unsure & OF_GUARD:
                yield from _of_guard(view, wanted, link, interface["nic"]["mac"], mode)


def _of_routes(view: View, wanted: Addresses, link: Link, table: int | None) -> Iterator[str]:
    own = {each for family in LENGTHS for each in wanted.destinations(family)}
    routes = (route for family in LENGTHS for route in view.routes(family) if route.type == UNICAST and route.index == link.index)
    there = {route.destination for route in routes if route.table == table}
    hosts = {route.destination for route in host_routes(view) if route.index == link.index}
    yield from (f"{each} is not routed to it" for each in sorted(own - there))
    yield from (f"{each} is routed to it, and is not its own" for each in sorted(hosts - own))


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
    guarded = any(link.name == each.device and each.table.startswith("netcommon-guard-") for each in view.nft_chains(NETDEV))
    has["spoof_guard"] = guarded == options.spoof_guard
    key = struct.pack("=I", link.index)
    profiles = {
        table.name.removeprefix(FIREWALL).partition("-")[0]
        for family in (INET, BRIDGE)
        for table in view.nft_tables(family)
        if table.name.startswith(FIREWALL)
        for element in view.nft_elements(family, table.name)
        if element.set == "nics" and element.key == key
    }
    has["firewall"] = profiles == {options.firewall} - {"unprotected"}
    reached = _reached(options.node_access)
    has["node_access"] = all(
        _let_in(view, family, key) == (reached if mode == "bridged" or (mode == "routed" and family == INET) else set())
        for family in (INET, BRIDGE)
    )
    if mode != "openvswitch":
        shaper = view.root_qdisc(link.index)
        has["rate_in"] = (shaper.rate if shaper is not None else 0) == options.rate_in
        has["rate_out"] = {each.rate for each in view.filters(link.index) if not each.egress and each.rate} == {options.rate_out} - {0}
    return has


def _reached(services: tuple[str, ...]) -> set[tuple[str, bytes]]:
    """Give the sets, each with the rest of a key, in which a guest is that reaches these services of its node, and no others."""
    if "all" in services:
        return set()
    found = {("nics", b"")}
    for protocol, _slash, port in (each.partition("/") for each in services if each != "none"):
        found.add(("services", struct.pack("=B3x", PROTOCOLS[protocol]) + struct.pack("!H2x", int(port))) if port else ("ping", b""))
    return found


def _let_in(view: View, family: int, key: bytes) -> set[tuple[str, bytes]]:
    """Give the sets, each with the rest of a key, in which a device is."""
    elements = view.nft_elements(family, ACCESS if family == INET else f"{ACCESS}-bridge")
    return {(each.set, each.key[4:]) for each in elements if each.set in ("nics", "services", "ping") and each.key[:4] == key}


def _of_port(view: View, wanted: Wanted, link: Link) -> Iterator[str]:
    """Say what a port of a bridge does otherwise than is wanted."""
    port = view.port(link.index)
    for name, field in PORT.items() if port is not None else ():
        value = getattr(wanted.options, name)
        if getattr(port, field) != value and name not in wanted.unsure:
            yield f"{name} = {shown(name, value)} is wanted, and its port does otherwise"


def _of_guard(view: View, wanted: Wanted, link: Link, mac: str, mode: str) -> Iterator[str]:
    """Say what a spoof guard lets pass that it should not, or does not let pass that it should."""
    has: dict[str, set[bytes]] = {}
    for table in view.nft_tables(NETDEV):
        for element in view.nft_elements(NETDEV, table.name) if table.name.startswith("netcommon-guard-") else ():
            if element.key[:4] == struct.pack("=I", link.index):
                has.setdefault(element.set, set()).add(element.key[4:])
    known, options = wanted.addresses, wanted.options
    macs = {bytes.fromhex(mac.replace(":", "")) + bytes(2)} if mac else set[bytes]()
    yield from () if has.get("macs", set()) == macs else ("its guard knows another MAC",)
    hosts = {"ipv4": {inet_pton(AF_INET, each) for each in known.ipv4}, "ipv6": {inet_pton(AF_INET6, each) for each in known.ipv6}}
    own = {inet_pton(AF_INET6, each) for each in filter(None, (link_local(mac) if mac else "",))}
    yield from (f"its guard knows other addresses of {name}" for name, each in hosts.items() if has.get(name, set()) - own != each - own)
    anything = options.allow_ip_spoofing or options.allow_dhcp_spoofing
    free = {
        "free-mac": options.allow_mac_spoofing or not mac,
        "free-ipv4": anything or (mode != "routed" and AF_INET not in known.families),
        "free-ipv6": anything or (mode != "routed" and AF_INET6 not in known.families),
        "free-dhcp": options.allow_dhcp_spoofing,
        "free-type": options.allow_restricted_traffic,
        "free-query": options.allow_mcast_router,
        "no-mac": not mac,
    }
    yield from (f"its guard says {name}" for name, may in free.items() if name in has and not may)
