"""The option gateway_arp: the node asks a routed guest in the name of its gateway, and no guest learns the node's own address."""

from __future__ import annotations

from netcommon.features.base import Part
from netcommon.operations.gateway_arp import ArpTable, GatewayArp
from runtime.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from netcommon.options.model import Options
    from netcommon.settings.model import Settings
    from runtime.nic import Nic


def plan(nic: Nic, settings: Settings, options: Options) -> Part:
    """Nothing for a NIC whose network has no IPv4 gateway: there is no name to ask in."""
    if not nic.network.gateway:
        return Part()
    return Part(before=(ArpTable(nic.interface), GatewayArp(nic.interface, nic.network.gateway)))
