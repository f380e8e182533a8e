"""Describe what a simulated node is made of: its bridges, uplinks and routing tables, and its admin NIC."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from netcommon.host.api.facts import AF_INET, Address, Link
from netcommon.host.simulated import address
from netcommon.host.simulated.host import MemoryHost

if TYPE_CHECKING:
    from collections.abc import Mapping

ADMIN = "eth0"  #: the device of a node's own NIC
FORWARDING = ("ipv4/ip_forward", "ipv6/conf/all/forwarding", "ipv6/conf/all/proxy_ndp")


class Profile(NamedTuple):
    """One sort of hardware. ``bridges``: each with its uplink; ``tables``: routing tables by name."""

    bridges: Mapping[str, str]
    tables: Mapping[str, int]


PROFILES: dict[str, Profile] = {
    "plain": Profile({"br0": "eth-br0", "br1": "eth-br1"}, {"guests": 100}),
    "single": Profile({"br0": "eth1"}, {}),
}


class Admin(NamedTuple):
    """A node's own NIC: its MAC, its address and the length of that prefix."""

    mac: str
    address: str
    length: int


def build(profile: Profile, boot: str, number: int, admin: Admin | None = None) -> MemoryHost:
    """Make the host of a node, as it is after a boot. ``number``: of its network namespace."""
    host = MemoryHost(dict(profile.tables), boot, number)
    if admin is not None:
        made = host.add_link(Link(0, ADMIN, address=admin.mac, up=True))
        address.add(host.kernel, Address(AF_INET, admin.address, admin.length, made.index))
    for bridge, uplink in profile.bridges.items():
        master = host.add_bridge(bridge).index
        host.add_link(Link(0, uplink, up=True, master=master))
    for setting in FORWARDING:
        host.kernel.settings.write(f"net/{setting}", "1")
    return host
