"""Hold what protects and limits the guest of a NIC against its node's kernel: its routes, its spoof guard, its firewall, its rates.

What is wanted is read from the registry and the node's settings as they are written, and looked for in the tables of the kernel.
"""

from __future__ import annotations

import re
import struct
import tomllib
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from netcommon.host.api.datapath import UNICAST
from netcommon.host.api.facts import AF_INET, AF_INET6

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from mockcloud.node import MockNode
    from netcommon.host.api.facts import Link, Route
    from netcommon.host.api.host import View

INET, BRIDGE, NETDEV = 1, 7, 5  #: families of nftables (linux/netfilter.h)
LENGTHS = {AF_INET: "/32", AF_INET6: "/128"}  #: of a route to one host
RATE = re.compile("([0-9]+)(kbit|mbit|gbit)", re.ASCII)
BITS = {"kbit": 10**3, "mbit": 10**6, "gbit": 10**9}
NONE = ("", "0", "no", "off", "false", "unprotected")  #: values that want nothing
TAG = re.compile("netcommon:([^:]*):([^:]*):(.*)", re.ASCII | re.DOTALL)


def settings_of(folder: Path) -> dict[str, Any]:
    """Give what the settings of a node say of NICs; nothing where they are none."""
    with suppress(OSError, UnicodeDecodeError, tomllib.TOMLDecodeError):
        found = tomllib.loads((folder / "etc/netcommon/config.toml").read_text(encoding="utf-8")).get("nic", {})
        return found if isinstance(found, dict) else {}
    return {}


def host_routes(view: View) -> Iterator[Route]:
    """Give the routes that forward to one host. Those of a device's own link-local address, local and anycast, are the kernel's."""
    for family, length in LENGTHS.items():
        yield from (route for route in view.routes(family) if route.type == UNICAST and route.destination.endswith(length))


def lacking(node: MockNode, item: Mapping[str, Any], nic: Mapping[str, Any], link: Link, settings: Mapping[str, Any]) -> Iterator[str]:
    """Say what is not so of a NIC that runs. ``item``: what the registry wants of it; ``nic``: as its guest was started."""
    with node.inside:
        yield from _of_routes(node, nic, link)
        if nic["mode"] in ("bridged", "routed"):
            yield from _of_options(node, _wanted(item, nic, settings), link)


def _of_routes(node: MockNode, nic: Mapping[str, Any], link: Link) -> Iterator[str]:
    view = node.machine.view()
    hosts = {route.destination for route in host_routes(view) if route.index == link.index}
    wanted = {each + LENGTHS[AF_INET6 if ":" in each else AF_INET] for each in _hosts(nic)} if nic["mode"] == "routed" else set[str]()
    yield from (f"{each} is not routed to it" for each in sorted(wanted - hosts))
    yield from (f"{each} is routed to it, and is not its own" for each in sorted(hosts - wanted))


def _hosts(nic: Mapping[str, Any]) -> list[str]:
    """Give the addresses of a NIC that are one host's, without their length."""
    said = (each.partition("/") for each in (nic["ip"], *nic["addresses"]) if each)
    return [host for host, _slash, length in said if length in ("", "32", "128")]


def _wanted(item: Mapping[str, Any], nic: Mapping[str, Any], settings: Mapping[str, Any]) -> dict[str, str]:
    """Give the options whose values are known from outside: the operator's for good, and settings that no tag speaks of."""
    tagged = {found[2] for tag in (*nic["tags"], *item["nic"]["tags"]) if (found := TAG.fullmatch(tag))}
    made = {name: str(value).lower() for name, value in settings.items() if name not in tagged}
    said = {each["name"]: each for each in item["nic"]["options"]}
    made = {name: value for name, value in made.items() if name not in said}
    return made | {name: each["value"] for name, each in said.items() if not each["until"]}


def _of_options(node: MockNode, wanted: Mapping[str, str], link: Link) -> Iterator[str]:
    view, has = node.machine.view(), dict[str, bool]()
    if wanted.get("spoof_guard", "no") not in NONE:
        has["spoof_guard"] = any(link.name == each.device and each.table.startswith("netcommon-guard-") for each in view.nft_chains(NETDEV))
    if (profile := wanted.get("firewall", "")) not in NONE:
        key = struct.pack("=I", link.index)
        has["firewall"] = any(
            key in element.key
            for family in (INET, BRIDGE)
            for table in view.nft_tables(family)
            if table.name.startswith(f"netcommon-fw-{profile}-")
            for element in view.nft_elements(family, table.name)
        )
    if rate := RATE.fullmatch(wanted.get("rate_in", "")):
        shaper = view.root_qdisc(link.index)
        has["rate_in"] = shaper is not None and shaper.rate == int(rate[1]) * BITS[rate[2]]
    if rate := RATE.fullmatch(wanted.get("rate_out", "")):
        has["rate_out"] = any(each.rate == int(rate[1]) * BITS[rate[2]] for each in view.filters(link.index) if not each.egress)
    yield from (f"{name} = {wanted[name]} is wanted, and not there" for name, there in has.items() if not there)
