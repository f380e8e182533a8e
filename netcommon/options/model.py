"""Options of a NIC: what a site may ask for beyond what the hypervisor's description says.

In rising order of precedence: the default, the settings' [nic], the settings' [networks.NAME] (by the network's name or UUID), the
network's tags, the instance's tags. What each option means and may be is in netcommon.options_schema; the syntax of tags in
netcommon.tags. Both are imported only where somebody gives an option.
"""

from __future__ import annotations

from runtime.typed import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from netcommon.settings import Settings
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
    dhcp: str = "none"


DEFAULTS = Options()

#: What Ganeti calls the taps of its instance communication NICs.
COMMUNICATION = "gnt.com."


def is_communication(nic: Nic) -> bool:
    """Whether it is a NIC of Ganeti's instance communication: by the tap's name and the mode, as Ganeti's own script tells it."""
    return nic.mode == "routed" and nic.interface.startswith(COMMUNICATION)


def options_of(nic: Nic, settings: Settings) -> Options:
    """The effective options of ``nic``. Raises NicInvalid for a tag with our prefix that is not understood.

    An instance communication NIC has but spoof_guard and node_access: what else it needs is known, and neither rates nor switches meant
    for guests' networks are for the way to the node.
    """
    start = settings.tag_prefix + ":"
    tagged = any(tag.startswith(start) for tag in (*nic.tags, *nic.network.tags))
    if not (tagged or settings.nic or settings.networks):
        return DEFAULTS
    from netcommon.tags import given

    found = Options(**{each.name: each.value for each in given(nic, settings)})
    if not is_communication(nic):
        return found
    return DEFAULTS._replace(spoof_guard=found.spoof_guard, node_access=found.node_access)
