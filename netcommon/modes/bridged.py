"""Mode bridged: the tap is a port of the Linux bridge LINK (gnt-instance(8)); VLAN asks for a VLAN-aware one."""

from __future__ import annotations

from netcommon.operations.base import Operation
from netcommon.operations.bridge import BridgePort
from netcommon.operations.link import ADDRESS, MTU, UP, LinkSetting
from netcommon.options import Options
from netcommon.settings import Settings
from runtime.nic import Nic


def plan(nic: Nic, settings: Settings, options: Options) -> list[Operation]:
    """The device comes up last: with VLANs it must not be a port of the default VLAN for an instant."""
    tap, bridge = nic.interface, nic.link
    operations: list[Operation] = [
        LinkSetting(tap, ADDRESS),
        LinkSetting(tap, MTU, bridge=bridge),
        BridgePort(tap, bridge),
    ]
    if nic.vlan:
        from netcommon.operations.vlan import PortVlans, UplinkVlan

        operations.append(PortVlans(tap, bridge, nic.vlan.access or 0, nic.vlan.trunks))
        uplinks = settings.uplinks.get(bridge, ())
        operations += [UplinkVlan(bridge, vid, uplinks) for vid in nic.vlan.vids]
    return [*operations, LinkSetting(tap, UP, True)]
