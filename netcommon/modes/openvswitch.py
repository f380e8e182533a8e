"""Mode openvswitch: the tap is a port of the Open vSwitch bridge LINK; VLAN as access, trunk or hybrid port."""

from __future__ import annotations

from netcommon.operations.base import Operation
from netcommon.operations.link import UP, LinkSetting
from netcommon.operations.ovs import Port
from netcommon.options import Options
from netcommon.settings import Settings
from runtime.nic import Nic


def plan(nic: Nic, settings: Settings, options: Options) -> list[Operation]:
    """vlan_mode is always said: Open vSwitch takes a tag with trunks for an access port otherwise (ovs-vswitchd.conf.db(5))."""
    access, trunks = nic.vlan
    modes = {(True, False): "access", (False, True): "trunk", (True, True): "native-untagged"}
    ids = (("netcommon-instance", nic.label),)
    port = Port(nic.interface, nic.link, nic.uuid, access, trunks, modes.get((access is not None, bool(trunks)), ""), ids)
    return [LinkSetting(nic.interface, UP, True), port]
