"""Mode routed: the guest's address is routed to its tap, in the table LINK or in main (gnt-instance(8))."""

from __future__ import annotations

from ipaddress import ip_address, ip_network

from netcommon.host.facts import AF_INET, AF_INET6
from netcommon.operations.base import Operation
from netcommon.operations.link import UP, LinkSetting
from netcommon.operations.route import GuestRoute
from netcommon.operations.rule import PolicyRule
from netcommon.operations.sysctl import DeviceSysctl
from netcommon.options import Options
from netcommon.settings import Settings
from runtime.nic import Nic


def destination(ip: str) -> tuple[int, str]:
    """Family and route destination of the IP of a NIC: "10.0.0.5" and "10.0.0.5/24" mean the host, "10.0.0.0/24" the prefix."""
    address = ip_address(ip.partition("/")[0])
    family = AF_INET if address.version == 4 else AF_INET6
    network = ip_network(ip, strict=False)
    if network.network_address == address and network.prefixlen < network.max_prefixlen:
        return family, str(network)
    return family, f"{address}/{network.max_prefixlen}"


def plan(nic: Nic, settings: Settings, options: Options) -> list[Operation]:
    """Both families' settings of the tap are made, as Ganeti's script does; rule and route in the family of the address.

    The route comes last: from then on the guest is reached.
    """
    tap, (family, target) = nic.interface, destination(nic.ip)
    operations: list[Operation] = [
        LinkSetting(tap, UP, True),
        DeviceSysctl(AF_INET, tap, "proxy_arp", "1"),
        DeviceSysctl(AF_INET, tap, "forwarding", "1"),
        DeviceSysctl(AF_INET6, tap, "proxy_ndp", "1"),
        DeviceSysctl(AF_INET6, tap, "forwarding", "1"),
    ]
    if nic.link:
        operations.append(PolicyRule(family, tap, nic.link, settings.rule_preference))
    return [*operations, GuestRoute(family, target, nic.link, tap)]
