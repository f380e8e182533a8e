"""The options there are: a new one is a field of Options and a row of OPTIONS.

From the row follow its place in the settings file ([nic] and [networks.NAME]), in tags, and in ``netcommon plan``.
"""

from __future__ import annotations

from netcommon.options.model import COMMUNICATION_OPTIONS, INSTANCE_COMMUNICATION, mode_of
from netcommon.options.types import Address, Choice, EndpointKind, Mac, Prefix, Rate, Services, Several, Text, Truth, Whole
from runtime.typed import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from netcommon.options.types import TagKind
    from runtime.nic import Nic


class Option(NamedTuple):
    """One option: its name in settings and tags, which is its field of Options, what it may be, what it means, and in which modes.

    In another mode it is accepted, as a site's [nic] is for all of its NICs, and does nothing.
    """

    name: str
    kind: TagKind
    doc: str
    modes: tuple[str, ...] = ("bridged", "routed", "openvswitch")

    def means_something(self, nic: Nic) -> bool:
        """Tell whether it does anything for ``nic``."""
        return self.name in COMMUNICATION_OPTIONS if mode_of(nic) == INSTANCE_COMMUNICATION else nic.mode in self.modes

    def void(self, nic: Nic) -> str:
        """Say that it does nothing for ``nic``, "" where it does something."""
        if self.means_something(nic):
            return ""
        if mode_of(nic) == INSTANCE_COMMUNICATION:
            return "nothing for instance communication"
        return f"nothing in mode {nic.mode}, only in {', '.join(self.modes)}"


KERNEL = ("bridged", "routed")
BRIDGED = ("bridged",)
ROUTED = ("routed",)
OPENVSWITCH = ("openvswitch",)
EVERY = ("bridged", "routed", "openvswitch", "ext")

OPTIONS = (
    Option("spoof_guard", Truth(), "what the guest sends is checked for forged addresses"),
    Option("allow_mac_spoofing", Truth(), "the guest may send from any MAC address"),
    Option("allow_ip_spoofing", Truth(), "the guest may send from any IP address"),
    Option("allow_dhcp_spoofing", Truth(), "the guest may be a DHCP server, and send from any IP address"),
    Option("allow_restricted_traffic", Truth(), "the guest may send frames that are not IPv4, IPv6 or ARP"),
    Option("allow_unfiltered_promisc", Truth(), "the guest gets frames for other MAC addresses too", BRIDGED),
    Option("allow_mcast_router", Truth(), "the guest gets all multicast once it sends IGMP or MLD queries or PIM hellos"),
    Option("link_local", Choice(("any", "eui64")), "which IPv6 link-local addresses the guest may have: any, or its MAC's"),
    Option("new_sources", Whole(0, 4096), "how many new addresses a minute, of those not known exactly; 0: any number"),
    Option("firewall", Choice(("protected", "limited", "unprotected")), "the firewall profile in front of the guest", KERNEL),
    Option("node_access", Services(), "what the guest reaches of the node itself: all of it, none, or these services", KERNEL),
    Option("rate_in", Rate(), "limit of what the guest receives"),
    Option("rate_out", Rate(), "limit of what the guest sends"),
    Option("addresses", Several(Address()), "addresses of the guest besides IP"),
    Option("prefixes", Several(Prefix()), "prefixes routed to the guest, which it may send from"),
    Option("eui64", Truth(), "the guest has the IPv6 address of NETWORK_SUBNET6 and its MAC (RFC 4291)"),
    Option("blackhole", Truth(), "while the NIC is down its addresses are unreachable here, and not routed elsewhere", ROUTED),
    Option("announce", Truth(), "tell the neighbours of a routed guest that its addresses are here", ROUTED),
    Option("tap_mac", Mac(), "the same MAC on the host's side for every NIC, so that guests know their gateway after a migration", ROUTED),
    Option("gateway_arp", Truth(), "ask the guest in the gateway's name: it never learns the node's own address", ROUTED),
    Option("gateway_link_local", Truth(), "the guest's IPv6 gateway is fe80::1, on the host's side", ROUTED),
    Option("uplink_proxy", Choice(("off", "ndp", "both")), "the node answers on the uplink for the guest: by NDP, or ARP too", ROUTED),
    Option("rp_filter", Choice(("default", "off", "strict", "loose")), "reverse path filter of the host's side (ip-sysctl)", ROUTED),
    Option("accept_local", Truth(), "take packets from the node's own addresses (ip-sysctl)", ROUTED),
    Option("default_vlan", Truth(), "the tap keeps the bridge's default VLAN", BRIDGED),
    Option("isolated", Truth(), "isolated bridge port: it reaches only ports that are not", BRIDGED),
    Option("static_fdb", Truth(), "the bridge learns nothing from the guest and floods nothing to it: its MAC is a static entry", BRIDGED),
    Option("mcast_flood", Truth(), "multicast that nobody asked for is flooded to the guest", BRIDGED),
    Option("mcast_fast_leave", Truth(), "a multicast group ends with the guest's first leave", BRIDGED),
    Option("mcast_to_unicast", Truth(), "multicast is sent to the guest's own MAC", BRIDGED),
    Option("flows", Several(Text("the name of a flow template")), "templates of OpenFlow flows for the NIC", OPENVSWITCH),
    Option("endpoints", Several(EndpointKind()), "kinds of endpoints that the guest has on its node", EVERY),
    Option("dhcp", Choice(("none", "nfdhcpd", "dnsmasq")), "which DHCP server is told of the guest"),
)
