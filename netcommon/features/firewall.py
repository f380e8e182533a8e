"""Firewall profiles (snf-network's words): what may reach the guest. protected: answers alone; limited: also ping and administration."""

from __future__ import annotations

from netcommon.features.base import Part
from netcommon.host.api.nftables import BRIDGE, INET
from netcommon.host.nftables.profile_table import OWN_MARK
from netcommon.operations.firewall import FirewallMember, FirewallTable
from runtime.errors import NicInvalid, SettingsInvalid
from runtime.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from netcommon.options.model import Options
    from netcommon.settings.model import Settings
    from runtime.nic import Nic

FAMILY = {"bridged": BRIDGE, "routed": INET}


def plan(nic: Nic, settings: Settings, options: Options) -> Part:
    """Before the device comes up: no frame passes unfiltered.

    Raises NicInvalid where the mode has none, SettingsInvalid where the settings' own mark is in its way.
    """
    if nic.mode not in FAMILY:
        raise NicInvalid("MODE", nic.mode, f"bridged or routed for a NIC with the firewall profile {options.firewall}")
    if settings.rule_mark & OWN_MARK:
        raise SettingsInvalid(f"[rules] mark = {settings.rule_mark:#x}: firewall profiles need the bit {OWN_MARK:#x} for themselves")
    family = FAMILY[nic.mode]
    return Part(before=(FirewallTable(family, options.firewall), FirewallMember(nic.interface, family, options.firewall)))
