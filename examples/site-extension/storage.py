"""A site's own mode: a NIC with MODE=ext and LINK=storage reaches the node's storage address by its own tap, and nothing beyond it."""

from __future__ import annotations

from netcommon.host.api.facts import AF_INET
from netcommon.operations.address import DeviceAddress
from netcommon.operations.link import MTU, UP, LinkSetting, device_link
from netcommon.operations.route import GuestRoute
from netcommon.operations.sysctl import DeviceSysctl
from runtime.errors import NicInvalid
from runtime.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from netcommon.host.api.host import View
    from netcommon.operations.base import Operation
    from netcommon.options.model import Options
    from netcommon.settings.model import Settings
    from runtime.nic import Nic


def plan(nic: Nic, settings: Settings, options: Options) -> list[Operation]:
    """What joins the NIC; down, plan, check, repair and gc are made of the same list."""
    if nic.link != "storage":
        return []  # another extension's, or a script's
    if not nic.ip or ":" in nic.ip or "/" in nic.ip:
        raise NicInvalid("IP", nic.ip, "the guest's IPv4 address in the storage network")
    given, tap = settings.extensions["storage"].get("parameters", {}), nic.interface
    return [
        FixedMtu(tap, MTU, given.get("mtu", 9000)),
        DeviceSysctl(AF_INET, tap, "forwarding", "0"),
        LinkSetting(tap, UP, True),
        DeviceAddress(AF_INET, tap, given.get("address", "192.0.2.1"), 32),
        GuestRoute(AF_INET, nic.ip + "/32", "", tap),
    ]


class FixedMtu(LinkSetting):
    """An operation of the site's own: a device that is on no bridge has an MTU of its own."""

    __slots__ = ()
    KIND = "storage/mtu"

    def resolve(self, view: View, warnings: list[str]) -> Sequence[Operation]:
        link = device_link(view, self.device)
        return [self._replace(ifindex=link.index, value=self.wanted, was=link.mtu)]


OPERATIONS = (FixedMtu,)
