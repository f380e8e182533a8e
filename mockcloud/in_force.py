"""Hold what protects and limits the guest of a NIC against its node's kernel: its routes, its spoof guard, its firewall, its rates.

What is wanted is read from the registry, from what its guest was started with, and from the node's settings as they are written; which of
them counts netcommon.options says. It is looked for in the tables of the kernel.
"""

from __future__ import annotations

import os
import struct
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from mockcloud.stored import Interface
from mockcloud.variables import variables
from netcommon.host.api.datapath import UNICAST
from netcommon.host.api.facts import AF_INET, AF_INET6
from netcommon.options.addresses import Addresses, addresses_of
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

INET, BRIDGE, NETDEV = 1, 7, 5  #: families of nftables (linux/netfilter.h)
LENGTHS = {AF_INET: "/32", AF_INET6: "/128"}  #: of a route to one host
OF_ADDRESSES = frozenset({"addresses", "prefixes", "eui64"})  #: options that give a guest addresses besides its IP


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
            yield from _of_routes(view, wanted.addresses if mode == "routed" else Addresses(), link)
        if mode in ("bridged", "routed"):
            yield from _of_options(view, wanted, link)


def _of_routes(view: View, wanted: Addresses, link: Link) -> Iterator[str]:
    own = {each for family in LENGTHS for each in wanted.destinations(family)}
    there = {
        route.destination for family in LENGTHS for route in view.routes(family) if route.type == UNICAST and route.index == link.index
    }
    hosts = {route.destination for route in host_routes(view) if route.index == link.index}
    yield from (f"{each} is not routed to it" for each in sorted(own - there))
    yield from (f"{each} is routed to it, and is not its own" for each in sorted(hosts - own))


def _of_options(view: View, wanted: Wanted, link: Link) -> Iterator[str]:
    options, has = wanted.options, dict[str, bool]()
    if options.spoof_guard:
        has["spoof_guard"] = any(link.name == each.device and each.table.startswith("netcommon-guard-") for each in view.nft_chains(NETDEV))
    if options.firewall != "unprotected":
        key = struct.pack("=I", link.index)
        has["firewall"] = any(
            key in element.key
            for family in (INET, BRIDGE)
            for table in view.nft_tables(family)
            if table.name.startswith(f"netcommon-fw-{options.firewall}-")
            for element in view.nft_elements(family, table.name)
        )
    if options.rate_in:
        shaper = view.root_qdisc(link.index)
        has["rate_in"] = shaper is not None and shaper.rate == options.rate_in
    if options.rate_out:
        has["rate_out"] = any(each.rate == options.rate_out for each in view.filters(link.index) if not each.egress)
    for name, there in has.items():
        if not there and name not in wanted.unsure:
            yield f"{name} = {shown(name, getattr(options, name))} is wanted, and not there"
