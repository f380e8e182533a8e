"""Describe what a simulated node is made of: its bridges, uplinks and routing tables, and its admin NIC."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from netcommon.host.api.facts import AF_INET, Address, Link
from netcommon.host.simulated import address
from netcommon.host.simulated.host import MemoryHost
from netcommon.settings.model import Settings

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

ADMIN = "eth0"  #: the device of a node's own NIC
TAP = re.compile("tap[0-9]+", re.ASCII)  #: names of taps, as mockcloud.hypervisor gives them out
OWN = "admin"  #: what that NIC is called in the registry
FORWARDING = ("ipv4/ip_forward", "ipv6/conf/all/forwarding", "ipv6/conf/all/proxy_ndp")


class Profile(NamedTuple):
    """One sort of hardware. ``bridges``: each with its uplink; ``tables``: routing tables by name; ``switches``: of Open vSwitch."""

    bridges: Mapping[str, str]
    tables: Mapping[str, int]
    switches: tuple[str, ...] = ()


PROFILES: dict[str, Profile] = {
    "plain": Profile({"br0": "eth-br0", "br1": "eth-br1"}, {"guests": 100}),
    "single": Profile({"br0": "eth1"}, {}),
    "switched": Profile({"br0": "eth-br0"}, {"guests": 100}, ("ovs0",)),
}


class Admin(NamedTuple):
    """A NIC of the node itself: its MAC, its address and the length of that prefix."""

    mac: str
    address: str
    length: int


class External(NamedTuple):
    """A further NIC of the node itself, in a network whose name its device has."""

    name: str
    own: Admin


def build(profile: Profile, boot: str, number: int, admin: Admin | None = None, external: Iterable[External] = ()) -> MemoryHost:
    """Make the host of a node, as it is after a boot. ``number``: of its network namespace."""
    host = MemoryHost(dict(profile.tables), boot, number)
    if admin is not None:
        add(host, ADMIN, admin)
    for each in external:
        add(host, each.name, each.own)
    for bridge, uplink in profile.bridges.items():
        master = host.add_bridge(bridge).index
        host.add_link(Link(0, uplink, up=True, master=master))
    for switch in profile.switches:
        host.add_ovs_bridge(switch)
    for setting in FORWARDING:
        host.kernel.settings.write(f"net/{setting}", "1")
    host.files.folders |= {*Settings().folders}  # an administrator has made those of DHCP servers
    return host


def add(host: MemoryHost, name: str, own: Admin) -> None:
    """Give a host a NIC of its own."""
    made = host.add_link(Link(0, name, address=own.mac, up=True))
    address.add(host.kernel, Address(AF_INET, own.address, own.length, made.index))


def taken(name: str) -> str:
    """Say which nodes have a device of the name, "" for none."""
    if name in ("lo", ADMIN):
        return "every node has one"
    if TAP.fullmatch(name):
        return "taps of guests are called so"
    if name == OWN:
        return f"the NIC behind {ADMIN} is called so"
    return next(
        (
            f"nodes of the profile {one} have one"
            for one, each in PROFILES.items()
            if name in (*each.bridges, *each.bridges.values(), *each.switches)
        ),
        "",
    )
