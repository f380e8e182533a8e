"""The host's own stack behind the guard: it learns no forged neighbour and no router, by whatever group the frame comes."""

from __future__ import annotations

import pytest
from scapy.layers.inet6 import ICMPv6ND_NS, ICMPv6ND_RA, ICMPv6NDOptSrcLLAddr

from tests.kernel.guard import paths
from tests.support.attacks import NO_GUARD, SETTINGS, Setting
from tests.support.attacks_base import EUI64, FOREIGN4, FOREIGN6, HOST4, HOST6, MAC, kind
from tests.support.attacks_ip4 import arp
from tests.support.attacks_ip6 import ip6
from tests.support.netns import ask, routed_here, run, sysctl
from tests.support.sample import FULL

LINK = ICMPv6NDOptSrcLLAddr(lladdr=MAC)
FORGED = (
    kind("ARP", arp(FOREIGN4)),
    kind("NS", ip6(FOREIGN6, ICMPv6ND_NS(tgt=HOST6) / LINK)),
    kind("RA", ip6(EUI64, ICMPv6ND_RA() / LINK)),
)
NEIGHBOURS, ALL = {FOREIGN4, FOREIGN6}, {FOREIGN4, FOREIGN6, "router"}
LEARNED = {"no guard": ALL, "no switch": set[str](), "allow_ip_spoofing": NEIGHBOURS, "allow_dhcp_spoofing": ALL}
SETTINGS_HERE = [setting for setting in (NO_GUARD, *SETTINGS) if setting.name in LEARNED]


def learned() -> set[str]:
    """Addresses of the forged frames that the host knows now, and whether it has a router."""
    known = {entry["dst"] for entry in ask("ip", "-j", "neigh") if "lladdr" in entry}
    routers = ask("ip", "-j", "-6", "route", "show", "default", "proto", "ra")
    return (known & NEIGHBOURS) | ({"router"} if routers else set())


@pytest.mark.parametrize("end", ["all", "nearest bridge", *(["host"] if FULL else [])])
@pytest.mark.parametrize("setting", SETTINGS_HERE if FULL else SETTINGS_HERE[:2], ids=lambda setting: setting.name)
@pytest.mark.parametrize("network", ["bridged", "routed"], indirect=True)
def test_what_the_host_learns(network: paths.Network, setting: Setting, end: str) -> None:
    network.up(setting)
    # What is for the nearest bridge comes in on the port itself.
    device = "br0" if network.mode == "bridged" and end != "nearest bridge" else "tap0"
    for address in (f"{HOST4}/32", f"{HOST6}/128"):
        run("ip", "address", "add", address, "dev", device, *(("nodad",) if ":" in address else ()))
        routed_here(device, address)
    sysctl(f"net/ipv6/conf/{device}/accept_ra", "2")
    network.seen({key: frame for key, frame in paths.batch(network.ends, FORGED).items() if key[1] == end})
    assert learned() == LEARNED[setting.name]
