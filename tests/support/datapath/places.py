"""Name the devices and addresses of a drawn node, which are always the same: what is drawn is what stands in a frame's way.

tap0 is the guest's, tap1 another guest's, up0 leads outside by the guest's bridge or table, up1 by the node's own second uplink.
"""

from __future__ import annotations

from typing import NamedTuple

GUEST_MAC, PEER_MAC, BRIDGE_MAC = "aa:00:00:00:00:01", "aa:00:00:00:00:02", "02:00:00:00:0b:00"
UP_MAC, OUT_MAC, UP1_MAC, OUT1_MAC = "02:00:00:00:0a:00", "02:00:00:00:0a:01", "02:00:00:00:0c:00", "02:00:00:00:0c:01"
TAP1_MAC, NOBODY_MAC, BROADCAST = "02:00:00:00:0d:00", "aa:00:00:00:00:99", "ff:ff:ff:ff:ff:ff"

GUEST4, PEER4, OUT4 = "10.0.0.5", "10.0.0.6", "10.0.0.9"
GUEST6, PEER6, OUT6 = "fd00::5", "fd00::6", "fd00::9"
BRIDGE4, BRIDGE6 = "10.0.0.1", "fd00::1"  #: the node's, on br0
UP4, GATEWAY4, UP6, GATEWAY6 = "192.0.2.2", "192.0.2.1", "2001:db8:f::2", "2001:db8:f::1"  #: on up0, where it is no port
UP14, GATEWAY14, UP16, GATEWAY16 = "203.0.113.2", "203.0.113.1", "2001:db8:e::2", "2001:db8:e::1"  #: on up1
LINK6 = "fe80::78"  #: a neighbour's, on each link
LOOP4, LOOP6 = "10.9.9.9", "fd09::9"  #: the node's, on lo

#: Destinations far outside: one that no change is about, then one in each place where changes put routes of their own.
FAR4 = ("198.51.100.1", "198.51.100.65", "198.51.100.129", "198.51.100.193")
FAR6 = ("2001:db8:aaaa::1", "2001:db8:aaaa:1::1", "2001:db8:aaaa:2::1", "2001:db8:aaaa:3::1")
NETS4 = ("", "198.51.100.64/26", "198.51.100.128/26", "198.51.100.192/26")
NETS6 = ("", "2001:db8:aaaa:1::/64", "2001:db8:aaaa:2::/64", "2001:db8:aaaa:3::/64")

BRIDGED, ROUTED = "bridged", "routed"
MODES = (BRIDGED, ROUTED)
TABLE = "77"  #: of the changes


class Place(NamedTuple):
    """Hold what the mode decides."""

    mode: str
    inner: str  #: the device of the node's stack that a guest's frame comes to
    node4: str
    node6: str
    near4: str  #: somebody outside, in the network of up0 or of the bridge
    near6: str
    macs: dict[str, str]  #: of who may be addressed, by a word


def place(mode: str) -> Place:
    """Return the addresses of one mode."""
    macs = {"guest": GUEST_MAC, "peer": PEER_MAC, "nobody": NOBODY_MAC, "all": BROADCAST, "uplink": UP_MAC, "tap1": TAP1_MAC}
    if mode == BRIDGED:
        return Place(mode, "br0", BRIDGE4, BRIDGE6, OUT4, OUT6, {**macs, "node": BRIDGE_MAC, "out": OUT_MAC})
    return Place(mode, "tap0", UP4, UP6, GATEWAY4, GATEWAY6, {**macs, "node": BRIDGE_MAC, "out": OUT_MAC})
