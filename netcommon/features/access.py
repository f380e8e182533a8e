"""The option node_access: what the guest reaches of the node itself (docs/node-access.md)."""

from __future__ import annotations

from netcommon.features.base import Part
from netcommon.host.api.nftables import BRIDGE, INET
from netcommon.operations.access import AccessTable, NodeAccess
from netcommon.operations.access_rules import FOREIGN
from netcommon.options.model import INSTANCE_COMMUNICATION, mode_of
from runtime.errors import NicInvalid, SettingsInvalid
from runtime.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from netcommon.options.model import Options
    from netcommon.settings.model import Settings
    from runtime.nic import Nic

FAMILY = {"bridged": BRIDGE, "routed": INET}

#: The service of an instance communication NIC: the node's dnsmasq gives it its address.
DHCP = "udp/67"


def plan(nic: Nic, settings: Settings, options: Options) -> Part:
    """Before the device comes up: the guest reaches nothing before.

    Raises NicInvalid where the mode has no such limit, SettingsInvalid where the settings' own mark is in its way.

    The table of family inet comes first: it drops what that of family bridge only marks.
    """
    if nic.mode not in FAMILY:
        raise NicInvalid("MODE", nic.mode, "bridged or routed for a NIC with node_access, or node_access = all")
    if settings.rule_mark & FOREIGN:
        raise SettingsInvalid(f"[rules] mark = {settings.rule_mark:#x}: node_access needs the bit {FOREIGN:#x} of marks for itself")
    services = [each for each in options.node_access if each != "none"]
    if mode_of(nic) == INSTANCE_COMMUNICATION and DHCP not in services:
        services.append(DHCP)
    family = FAMILY[nic.mode]
    tables = [AccessTable(nic.interface, each) for each in (INET, BRIDGE) if each in (INET, family)]
    return Part(before=(*tables, NodeAccess(nic.interface, family, tuple(services))))
