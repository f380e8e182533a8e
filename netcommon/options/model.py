"""The options of a NIC, as values: what a site may ask for beyond what the hypervisor's description says.

What each option means and may be is in netcommon.options.schema, where they come from in netcommon.options.sources.
"""

from __future__ import annotations

from runtime.typed import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from runtime.nic import Nic


class Options(NamedTuple):
    """The effective options of one NIC. Rates are bits a second, 0 no limit."""

    spoof_guard: bool = True
    allow_mac_spoofing: bool = False
    allow_ip_spoofing: bool = False
    allow_dhcp_spoofing: bool = False
    allow_restricted_traffic: bool = False
    allow_unfiltered_promisc: bool = False
    allow_mcast_router: bool = False
    link_local: str = "any"
    new_sources: int = 64
    firewall: str = "unprotected"
    node_access: tuple[str, ...] = ("all",)
    rate_in: int = 0
    rate_out: int = 0
    addresses: tuple[str, ...] = ()
    prefixes: tuple[str, ...] = ()
    eui64: bool = False
    blackhole: bool = False
    announce: bool = True
    tap_mac: str = ""
    gateway_arp: bool = False
    gateway_link_local: bool = False
    uplink_proxy: str = "ndp"
    rp_filter: str = "default"
    accept_local: bool = False
    default_vlan: bool = False
    isolated: bool = False
    static_fdb: bool = False
    mcast_flood: bool = True
    mcast_fast_leave: bool = False
    mcast_to_unicast: bool = False
    flows: tuple[str, ...] = ()
    endpoints: tuple[str, ...] = ()
    dhcp: str = "none"


DEFAULTS = Options()

#: What Ganeti calls the taps of its instance communication NICs.
COMMUNICATION = "gnt.com."

#: The mode of such a NIC, and the options that mean something there: what else it needs is known, and neither rates nor switches meant
#: for guests' networks are for the way to the node.
INSTANCE_COMMUNICATION = "instance_communication"
COMMUNICATION_OPTIONS = ("spoof_guard", "node_access")


def mode_of(nic: Nic) -> str:
    """Return the mode by which ``nic`` is planned: the name of a module of netcommon.modes.

    It is the hypervisor's, but for a NIC of Ganeti's instance communication: that is told by its mode and the tap's name, as Ganeti's own
    script tells it.
    """
    return INSTANCE_COMMUNICATION if nic.mode == "routed" and nic.interface.startswith(COMMUNICATION) else nic.mode
