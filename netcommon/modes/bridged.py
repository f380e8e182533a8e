"""Mode bridged: the tap is a port of the Linux bridge LINK (gnt-instance(8)); VLAN asks for a VLAN-aware one. See docs/vlan.md."""

from __future__ import annotations

from netcommon.operations.bridge import BridgePort
from netcommon.operations.link import ADDRESS, MTU, UP, LinkSetting
from runtime.errors import NicInvalid
from runtime.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from netcommon.operations.base import Operation
    from netcommon.options.model import Options
    from netcommon.settings.model import Settings
    from runtime.nic import Nic

#: Its features, in the order in which they are applied.
FEATURES = ("guard", "firewall", "access", "rate", "dhcp")
MARKED = True  #: the device gets an alias of ours


def plan(nic: Nic, settings: Settings, options: Options) -> list[Operation]:
    """The device comes up last: with VLANs it must not be a port of the default VLAN for an instant.

    Raises NicInvalid for a static entry of a NIC without MAC.
    """
    tap, bridge = nic.interface, nic.link
    operations: list[Operation] = [
        LinkSetting(tap, ADDRESS),
        LinkSetting(tap, MTU, bridge=bridge),
        BridgePort(tap, bridge),
    ]
    if nic.vlan:
        from netcommon.operations.vlan import PortVlans, UplinkVlan

        operations.append(PortVlans(tap, bridge, nic.vlan.access or 0, nic.vlan.trunks, options.default_vlan))
        uplinks = settings.uplinks.get(bridge, ())
        operations += [UplinkVlan(bridge, vid, uplinks, tap) for vid in nic.vlan.vids]
    if options.static_fdb:
        operations += _static(nic, options)  # before the flags: from then on the tap gets nothing else
    operations += _flags(tap, bridge, options)
    return [*operations, LinkSetting(tap, UP, True)]


def _flags(tap: str, bridge: str, options: Options) -> list[Operation]:
    """Those that differ from the kernel's for a new port."""
    from netcommon.host.api.facts import Port
    from netcommon.operations import port

    wanted = {
        port.ISOLATED: options.isolated,
        port.MCAST_FLOOD: options.mcast_flood,
        port.FASTLEAVE: options.mcast_fast_leave,
        port.MCAST_TO_UNICAST: options.mcast_to_unicast,
        port.MCAST_ROUTER: options.allow_mcast_router or not options.spoof_guard,
        port.LEARNING: not options.static_fdb,
        port.FLOOD: not options.static_fdb,
    }
    usual = Port()._asdict()
    return [port.PortFlag(tap, bridge, flag, value) for flag, value in wanted.items() if value != usual[flag]]


def _static(nic: Nic, options: Options) -> list[Operation]:
    """In each VLAN of the NIC; 0 is every VLAN that the port has besides, which is the default one."""
    from netcommon.operations.fdb import StaticEntry

    if not nic.mac:
        raise NicInvalid("MAC", "", "a MAC address, for the option static_fdb")
    vids = [*nic.vlan.vids, *([0] if options.default_vlan or not nic.vlan else [])]
    return [StaticEntry(nic.interface, nic.link, nic.mac, vid, nic.uuid, nic.label) for vid in vids]
