"""Mode routed: the guest's addresses are routed to its tap, in the table LINK or in main (gnt-instance(8)). See docs/routed.md."""

from __future__ import annotations

from netcommon.host.api.facts import AF_INET, AF_INET6
from netcommon.operations.base import Operation
from netcommon.operations.link import ADDRESS, MASTER, UP, LinkSetting
from netcommon.operations.route import GuestRoute
from netcommon.operations.rule import PolicyRule
from netcommon.operations.sysctl import DISABLE_IPV6, RP_FILTER, DeviceSysctl, no_ipv6
from netcommon.options.addresses import LINK_LOCAL_GATEWAY, addresses_of, routed_families
from runtime.errors import NicInvalid
from runtime.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from netcommon.options.addresses import Addresses
    from netcommon.options.model import Options
    from netcommon.settings.model import Settings
    from runtime.nic import Nic

#: Its features, in the order in which they are applied.
FEATURES = ("guard", "gateway_arp", "firewall", "access", "rate", "dhcp", "tap_mac", "announce")
MARKED = True  #: the device gets an alias of ours

LINK_LOCAL_LENGTH = 64
REVERSE_PATH = {"off": "0", "strict": "1", "loose": "2"}  #: rp_filter (ip-sysctl.rst)


def plan(nic: Nic, settings: Settings, options: Options) -> list[Operation]:
    """Plan it so that what decides where the guest's packets go stands before the device comes up: without it they would go by table main.

    The routes come last: from then on the guest is reached. Raises NicInvalid for a NIC without any address.
    """
    tap, addresses = nic.interface, addresses_of(nic, options)
    _check(nic, options, addresses)
    families = routed_families(addresses, options)
    operations = [*_settings(tap, options, addresses, families), *([LinkSetting(tap, ADDRESS, options.tap_mac)] if options.tap_mac else [])]
    operations += _selected(nic, settings, families)
    operations += [LinkSetting(tap, MASTER, 0), LinkSetting(tap, UP, True)]
    if AF_INET6 in addresses.families:
        operations += _gateway6(nic, options, addresses)
    operations += _proxies(nic, options, addresses)
    if options.blackhole:
        from netcommon.operations.blackhole import Blackhole

        operations += [Blackhole(family, each, nic.link) for family in addresses.families for each in addresses.destinations(family)]
    return [*operations, *_routes(nic, addresses)]


def _settings(tap: str, options: Options, addresses: Addresses, families: tuple[int, ...]) -> list[Operation]:
    """Those of the tap, as Ganeti's script makes them.

    What is sent in a family without an address is dropped by the spoof guard. Without the guard the node forwards nothing of it: IPv6 has
    no such switch for one device, which has no IPv6 then.
    """
    # first: without IPv6 the kernel takes no route to the device, and a node may have it off for devices that are made
    made: list[Operation] = [DeviceSysctl(AF_INET6, tap, DISABLE_IPV6, "0")] if AF_INET6 in addresses.families else []
    if AF_INET in families or options.spoof_guard:
        made += [DeviceSysctl(AF_INET, tap, "proxy_arp", "1"), DeviceSysctl(AF_INET, tap, "forwarding", "1")]
    else:
        made.append(DeviceSysctl(AF_INET, tap, "forwarding", "0"))
    if AF_INET6 in families or options.spoof_guard:
        made += [DeviceSysctl(AF_INET6, tap, "proxy_ndp", "1"), DeviceSysctl(AF_INET6, tap, "forwarding", "1")]
    else:
        made.append(no_ipv6(tap))
    if options.rp_filter in REVERSE_PATH:
        made.append(DeviceSysctl(AF_INET, tap, RP_FILTER, REVERSE_PATH[options.rp_filter]))
    if options.accept_local:
        made.append(DeviceSysctl(AF_INET, tap, "accept_local", "1"))
    return made


def _selected(nic: Nic, settings: Settings, families: tuple[int, ...]) -> list[Operation]:
    """Give what has the guest's packets looked up in its table: a rule of its own, or the mark that all NICs of the table share.

    Without a table too: table main needs no rule, but must not have another one's rule before it.
    """
    tap, mask, preference = nic.interface, settings.rule_mark, settings.rule_preference
    if not (mask and nic.link):
        return [PolicyRule(family, tap, nic.link, preference) for family in families]
    from netcommon.host.api.nftables import ARP, INET
    from netcommon.operations.mark import MarkTable, TapMark
    from netcommon.operations.mark_rule import MarkRule

    arp = AF_INET in families
    made: list[Operation] = [MarkRule(family, nic.link, mask, preference) for family in families]
    made += [MarkTable(tap, family, nic.link, mask) for family in ((INET, ARP) if arp else (INET,))]
    return [*made, TapMark(tap, nic.link, mask, arp, preference)]


def _check(nic: Nic, options: Options, addresses: Addresses) -> None:
    if not addresses.families:
        raise NicInvalid("IP", "", "an address: a routed NIC needs one, here or by its options addresses, prefixes or eui64")
    if options.tap_mac and options.tap_mac == nic.mac:
        raise NicInvalid("MAC", nic.mac, "another MAC than the host's side has by the option tap_mac")


def _is_link_local(address: str) -> bool:
    """fe80::/10."""
    return address[:3] in ("fe8", "fe9", "fea", "feb") and address[4:5] == ":"


def _gateway6(nic: Nic, options: Options, addresses: Addresses) -> list[Operation]:
    """What answers the guest's solicitations for its gateway: IPv6 has nothing like proxy_arp, each address needs an entry.

    A link-local gateway is an address of the tap itself.
    """
    tap, gateway = nic.interface, nic.network.gateway6
    own = [LINK_LOCAL_GATEWAY] if options.gateway_link_local else []
    if gateway and _is_link_local(gateway) and gateway not in own:
        own.append(gateway)
    made: list[Operation] = []
    if own:
        from netcommon.operations.address import DeviceAddress

        made += [DeviceAddress(AF_INET6, tap, address, LINK_LOCAL_LENGTH) for address in own]
    if gateway and gateway not in own and gateway not in addresses.ipv6:
        from netcommon.operations.neighbour import GatewayNeighbour

        made.append(GatewayNeighbour(gateway, tap))
    return made


def _proxies(nic: Nic, options: Options, addresses: Addresses) -> list[Operation]:
    """What answers for the guest's addresses on the uplinks.

    Not for prefixes, which are routed to the node, or nowhere; nor for a link-local address, which another host of the uplink may have.
    """
    families = {"off": (), "ndp": (AF_INET6,), "both": (AF_INET, AF_INET6)}[options.uplink_proxy]
    hosts = [(family, host) for family in families for host in addresses.hosts(family) if not _is_link_local(host)]
    if not hosts:
        return []
    from netcommon.operations.neighbour import ProxyNeighbour
    from netcommon.operations.sysctl import PROXY_NDP, UplinkSysctl

    made: list[Operation] = [ProxyNeighbour(family, host, nic.link) for family, host in hosts]
    if hosts[-1][0] == AF_INET6:
        made.insert(0, UplinkSysctl(AF_INET6, PROXY_NDP, nic.link))
    return made


def _routes(nic: Nic, addresses: Addresses) -> list[Operation]:
    """Each prefix goes by the guest's first address of its family, which is its router; without one it is on the tap itself."""
    tap, made = nic.interface, list[Operation]()
    for family in addresses.families:
        hosts = addresses.destinations(family)[: len(addresses.hosts(family))]
        made += [GuestRoute(family, each, nic.link, tap) for each in hosts]
        if not addresses.hosts(family):
            made += [GuestRoute(family, each, nic.link, tap) for each in addresses.prefixes(family)]
        elif addresses.prefixes(family):
            from netcommon.operations.route import PrefixRoute

            gateway = addresses.hosts(family)[0]
            made += [PrefixRoute(family, each, gateway, nic.link, tap) for each in addresses.prefixes(family)]
    return made
