"""The spoof guard of bridged and routed NICs: which addresses, VLANs and kinds of frames the guest may send (docs/spoof-guard.md).

That of Open vSwitch ports is made of flows (netcommon.modes.openvswitch_flows); where the kernel forwards, this stands before them.
"""

from __future__ import annotations

from netcommon.features.base import Part
from netcommon.host.api.facts import AF_INET, AF_INET6
from netcommon.operations.guard import rules as guard_rules
from netcommon.operations.guard.egress_filter import DeliveryTable
from netcommon.operations.guard.table import GuardTable, NicGuard, table_of
from netcommon.options.addresses import addresses_of, link_local
from runtime.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from netcommon.options.addresses import Addresses
    from netcommon.options.model import Options
    from netcommon.settings.model import Settings
    from runtime.nic import Nic


def plan(nic: Nic, settings: Settings, options: Options) -> Part:
    """Before anything else is done with the device: no frame of the guest passes unchecked. Raises NicInvalid as addresses_of does."""
    known = addresses_of(nic, options)
    hosts, free = (*known.ipv4, *known.ipv6), _free(nic, options, known)
    if guard_rules.ANY_LINK_LOCAL not in free:
        hosts = (*hosts, *(each for each in (link_local(nic.mac),) if each not in hosts))
    # who it is must be known; a routed guest gets what is routed to it, and nothing is flooded
    filtered = bool(nic.mac) and nic.mode == "bridged" and not options.allow_unfiltered_promisc
    switch = nic.link if nic.mode == "openvswitch" else ""
    guard = NicGuard(
        nic.interface,
        nic.uuid,
        nic.mac,
        hosts,
        (*known.prefixes4, *known.prefixes6),
        () if nic.mode == "routed" else nic.vlan.trunks,
        free,
        filtered,
        _new_sources(options, known, free),
        bridge=switch,
    )
    table = GuardTable(nic.interface, table_of(nic.interface), bridge=switch)
    return Part(before=(table, DeliveryTable(nic.interface), guard) if nic.mode == "bridged" else (table, guard))


def _new_sources(options: Options, known: Addresses, free: tuple[str, ...]) -> int:
    """Count the addresses that it may begin to use in a minute; no limit where it may use any, or none that is not known by itself."""
    anything = options.allow_ip_spoofing or options.allow_dhcp_spoofing
    unknown = {guard_rules.FREE_IPV4, guard_rules.FREE_IPV6, guard_rules.ANY_LINK_LOCAL}.intersection(free)
    return 0 if anything or not (unknown or known.prefixes4 or known.prefixes6) else options.new_sources


def _free(nic: Nic, options: Options, known: Addresses) -> tuple[str, ...]:
    """Give what of it is not checked: as the options say, and where nothing is known to compare with.

    A bridged guest may get addresses of its own from others; a routed one has those that are routed to it, and no other family.
    """
    any_address = options.allow_ip_spoofing or options.allow_dhcp_spoofing
    checked = known.families if nic.mode != "routed" else (AF_INET, AF_INET6)
    free = {
        guard_rules.FREE_MAC: options.allow_mac_spoofing or not nic.mac,
        guard_rules.FREE_IPV4: any_address or AF_INET not in checked,
        guard_rules.FREE_IPV6: any_address or AF_INET6 not in checked,
        guard_rules.FREE_DHCP: options.allow_dhcp_spoofing,
        guard_rules.FREE_TYPE: options.allow_restricted_traffic,
        guard_rules.FREE_QUERY: options.allow_mcast_router,
        guard_rules.ANY_LINK_LOCAL: any_address or options.link_local == "any" or not nic.mac,
        guard_rules.NO_MAC: not nic.mac,
    }
    return tuple(name for name in guard_rules.FLAGS if free[name])
