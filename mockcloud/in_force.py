"""Hold what protects and limits the guest of a NIC against its node's kernel: its routes, its spoof guard, its firewall, its rates.

What is wanted is read from the registry, from what its guest was started with, and from the node's settings as they are written; which of
them counts netcommon.options says. It is looked for in the tables of the kernel.
"""

from __future__ import annotations

import os
import struct
from contextlib import suppress
from socket import inet_pton
from typing import TYPE_CHECKING, Any, NamedTuple

from mockcloud.stored import Interface
from mockcloud.variables import variables
from netcommon.host.api.datapath import UNICAST
from netcommon.host.api.facts import AF_INET, AF_INET6
from netcommon.options.addresses import Addresses, addresses_of, link_local
from netcommon.options.model import Options
from netcommon.options.shown import shown
from netcommon.options.sources import options_of
from netcommon.options.tags import KINDS, PROFILES
from netcommon.plan.planner import plan
from netcommon.settings import parse
from netcommon.settings.model import Settings
from netregistry.model.codec import read
from runtime.environment import nic_from_environment
from runtime.errors import NetcommonError
from runtime.nic import REGISTRY, Changed
from runtime.registry_wanted import wanted_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from mockcloud.node import MockNode
    from netcommon.host.api.facts import Link, Route
    from netcommon.host.api.host import View

FIREWALL = "netcommon-fw-"  #: tables of profiles begin so
INET, BRIDGE, NETDEV = 1, 7, 5  #: families of nftables (linux/netfilter.h)
LENGTHS = {AF_INET: "/32", AF_INET6: "/128"}  #: of a route to one host
OF_ADDRESSES = frozenset({"addresses", "prefixes", "eui64"})  #: options that give a guest addresses besides its IP
#: Options of a port of a bridge, and the kernel's names of them.
PORT = {"isolated": "isolated", "mcast_flood": "mcast_flood", "mcast_fast_leave": "fastleave", "mcast_to_unicast": "mcast_to_unicast"}
#: Options that say what a guest may send.
OF_GUARD = OF_ADDRESSES | {"spoof_guard", *(name for name in Options._fields if name.startswith("allow_"))}


class Wanted(NamedTuple):
    """Hold what is wanted of a NIC that runs. ``unsure``: options of which a value may be in force, or may not be yet, or no more.
    ``refused``: why a node cannot do it; then what was wanted before is in force.
    """

    options: Options
    addresses: Addresses
    unsure: frozenset[str]
    refused: str = ""


def settings_of(node: MockNode) -> Settings:
    """Give the settings of a node as they are written; where they cannot be used those that its agent has."""
    with suppress(NetcommonError, FileNotFoundError):
        return parse.read(os.open(node.paths.config, os.O_RDONLY | os.O_CLOEXEC), node.paths.config).settings
    return node.state.settings if os.path.exists(node.paths.config) else Settings()


def wanted_by(item: Mapping[str, Any], interface: Mapping[str, Any], settings: Settings) -> Wanted:
    """Give what is wanted of a NIC. ``item``: what the registry wants of it; ``interface``: as its guest was started."""
    said, had = wanted_of("", item["nic"]).options, read(Interface, interface)
    made = nic_from_environment(variables(had.nic, had.network, had.tap))
    made = made._replace(wanted=tuple(Changed(each.name, each.value, REGISTRY) for each in said))
    unsure = _pending(item["nic"], interface["nic"], settings) - {each.name for each in said}
    unsure |= {each.name for each in said if each.until}
    try:
        options = options_of(made, settings)
        plan(made, settings)
        return Wanted(options, addresses_of(made, options), unsure)
    except NetcommonError as error:
        return Wanted(Options(), Addresses(), unsure, str(error))


def _pending(now: Mapping[str, Any], then: Mapping[str, Any], settings: Settings) -> frozenset[str]:
    """Give the options of which tags speak that a NIC has otherwise than its guest was started with, or by its position, which shifts."""
    start = f"{settings.tag_prefix}:"
    by_position = {tag for tag in (*now["tags"], *then["tags"]) if tag.removeprefix(start).partition(":")[0].isdecimal()}
    words = {word for tag in {*now["tags"]} ^ {*then["tags"]} | by_position if tag.startswith(start) for word in tag.split(":")}
    return frozenset(words & KINDS.keys()) | ({"firewall"} if words & PROFILES else frozenset[str]())


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
        if mode in ("bridged", "routed"):
            yield from _of_options(view, wanted, link)
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


def _of_options(view: View, wanted: Wanted, link: Link) -> Iterator[str]:
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
    shaper = view.root_qdisc(link.index)
    has["rate_in"] = (shaper.rate if shaper is not None else 0) == options.rate_in
    has["rate_out"] = {each.rate for each in view.filters(link.index) if not each.egress and each.rate} == {options.rate_out} - {0}
    for name, there in has.items():
        if not there and name not in wanted.unsure:
            value = getattr(options, name)
            lacks = value and value != "unprotected"
            yield f"{name} = {shown(name, value)} is wanted, and {'not' if lacks else 'something is'} there"


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
        "free-ipv4": anything or (mode == "bridged" and AF_INET not in known.families),
        "free-ipv6": anything or (mode == "bridged" and AF_INET6 not in known.families),
        "free-dhcp": options.allow_dhcp_spoofing,
        "free-type": options.allow_restricted_traffic,
        "free-query": options.allow_mcast_router,
        "no-mac": not mac,
    }
    yield from (f"its guard says {name}" for name, may in free.items() if name in has and not may)
