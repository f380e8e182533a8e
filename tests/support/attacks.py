"""The kinds of frames with which the spoof guard is attacked, and the verdict that the specification gives each.

The specification: Ethernet source is the NIC's MAC; IPv4 source one of its addresses or 0.0.0.0; ARP's sender likewise; IPv6 source one
of its addresses, ``::`` or link-local; neighbour advertisements' targets and link-layer options likewise; a family of which no address is
known gets the MAC checks only; only IPv4, IPv6 and ARP, and no VLAN tag but one of the port's; no DHCP or DHCPv6 server, no router
advertisement, DHCP's chaddr is the MAC. What it does not say is decided here:

- QEMU's own RARP after a migration passes: it comes from the guest's side and forges nothing;
- redirects belong to router advertisements;
- a message behind extension headers is that message, but neighbour discovery in fragments is dropped whatever the switches say (RFC 6980);
- ARP whose sender cannot be told breaks both rules of ARP's sender;
- link_local = "eui64" holds where no other IPv6 address is known too: the MAC's is always known;
- a tag chooses a network: allow_restricted_traffic does not free it.
"""

from __future__ import annotations

from typing import NamedTuple

from tests.support import attacks_ip4, attacks_ip6, attacks_other
from tests.support.attacks_base import (
    ALL4,
    ALL6,
    ALL_MAC,
    HOST4,
    HOST6,
    HOST_MAC,
    NEAREST,
    OUT4,
    OUT6,
    OUT_MAC,
    OWN4,
    OWN6,
    PEER4,
    PEER6,
    PEER_MAC,
    PREFIX4,
    PREFIX6,
    SPANNING_TREE,
    To,
)

KINDS = (*attacks_ip4.kinds(), *attacks_ip6.kinds(), *attacks_other.kinds())

#: Where each frame is sent: to all, to the two groups that a bridge treats as its own business, and to each end alone.
GROUPS = (To("all", ALL_MAC, ALL4, ALL6), To("nearest bridge", NEAREST, ALL4, ALL6), To("spanning tree", SPANNING_TREE, ALL4, ALL6))
ENDS = (To("host", HOST_MAC, HOST4, HOST6), To("peer", PEER_MAC, PEER4, PEER6), To("out", OUT_MAC, OUT4, OUT6))

ADDRESSES6 = f"netcommon:0:addresses:{OWN6} netcommon:0:prefixes:{PREFIX6}"
ADDRESSES = f"{ADDRESSES6} netcommon:0:prefixes:{PREFIX4}"


class Setting(NamedTuple):
    """A guard's settings: the NIC's IP and tags, and which rules (attacks_base.RULES) are off under them.

    ``unknown``: those that are off because no address of the family is known. They hold for a routed guest, which has no other addresses.
    """

    name: str
    tags: str
    off: frozenset[str]
    ip: str = OWN4
    unknown: frozenset[str] = frozenset()

    def off_in(self, mode: str) -> frozenset[str]:
        """The rules that are off for a NIC of ``mode``."""
        return self.off - self.unknown if mode == "routed" else self.off


def _setting(name: str, tags: str, *off: str, ip: str = OWN4, addresses: str = ADDRESSES, unknown: str = "") -> Setting:
    guard = "netcommon:0:spoof_guard:true"
    closed = frozenset({unknown} - {""})
    return Setting(name, " ".join(filter(None, (guard, addresses, tags))), closed.union(off), ip, closed)


_SWITCHES = ("allow_mac_spoofing", "allow_ip_spoofing", "allow_dhcp_spoofing", "allow_restricted_traffic", "allow_unfiltered_promisc")
SETTINGS = (
    _setting("no switch", "", "local"),
    _setting("allow_mac_spoofing", "netcommon:0:allow_mac_spoofing", "mac", "local"),
    _setting("allow_ip_spoofing", "netcommon:0:allow_ip_spoofing", "ip4", "ip6", "local"),
    _setting("allow_dhcp_spoofing", "netcommon:0:allow_dhcp_spoofing", "dhcp", "ip4", "ip6", "local"),
    _setting("allow_restricted_traffic", "netcommon:0:allow_restricted_traffic", "type", "local"),
    _setting("allow_unfiltered_promisc", "netcommon:0:allow_unfiltered_promisc", "local"),
    _setting("all switches", " ".join(f"netcommon:0:{switch}" for switch in _SWITCHES), "mac", "ip4", "ip6", "local", "dhcp", "type"),
    _setting("link_local eui64", "netcommon:0:link_local:eui64"),
    _setting("eui64, allow_ip_spoofing", "netcommon:0:link_local:eui64 netcommon:0:allow_ip_spoofing", "ip4", "ip6", "local"),
    _setting("no address known", "", "ip4", "ip6", "local", ip="", addresses=""),
    _setting("eui64, no address known", "netcommon:0:link_local:eui64", "ip4", "ip6", ip="", addresses=""),
    _setting("eui64, IPv4 alone known", "netcommon:0:link_local:eui64", unknown="ip6", addresses=f"netcommon:0:prefixes:{PREFIX4}"),
    _setting("IPv4 alone known", "", "local", addresses=f"netcommon:0:prefixes:{PREFIX4}", unknown="ip6"),
    _setting("IPv6 alone known", "", "local", ip="", addresses=ADDRESSES6, unknown="ip4"),
)
#: Of a NIC with addresses of both families: without the guard, too, a routed guest's packets of another one go nowhere.
NO_GUARD = Setting(
    "no guard", f"netcommon:0:spoof_guard:false {ADDRESSES}", frozenset({"mac", "ip4", "ip6", "local", "dhcp", "type", "never"})
)
