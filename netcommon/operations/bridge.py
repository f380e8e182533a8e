"""A port of a Linux bridge (ip-link(8), "master")."""

from __future__ import annotations

from netcommon.host.api.requests import SetLink
from netcommon.operations.base import Operation
from netcommon.operations.link import MASTER, LinkSetting, bridge_link, device_link, link_of, marked
from runtime.errors import HostRefused
from runtime.typed import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    from netcommon.host.api.facts import Link
    from netcommon.host.api.host import View
    from netcommon.host.api.requests import Request


class BridgePortFields(NamedTuple):
    """The fields of BridgePort."""

    device: str
    bridge: str
    ifindex: int = 0
    master: int = 0
    was: int = 0


class BridgePort(BridgePortFields, Operation):
    """The tap is a port of the bridge. The kernel ends this by itself when the tap goes."""

    __slots__ = ()
    KIND = "bridge-port"
    REPAIRED = "the device is a port of its bridge"
    MIGRATION = "the bridge learns the guest from its own frames, and QEMU announces it (RARP) when it runs here"
    CHOSEN = frozenset({"ifindex", "master", "was"})
    BEFORE = frozenset({"was"})

    def joins(self) -> bool:
        return True

    def replugs(self) -> bool:
        return True

    def unplugged(self) -> Operation:
        """A bridge has the MTU of its smallest port: the device must not be one when it gets that of a smaller bridge."""
        return LinkSetting(self.device, MASTER, 0, ifindex=self.ifindex, value=0)

    def network(self) -> tuple[object, ...]:
        return (self.master,)

    def taken_over(self, view: View) -> Operation:
        return self._replace(was=0) if self.was == self.master else self

    def resolve(self, view: View, warnings: list[str]) -> Sequence[Operation]:
        link = device_link(view, self.device)
        bridge = bridge_link(view, self.bridge, self.master, link)
        if link.port_kind == "openvswitch" and not marked(link):
            raise HostRefused(f"{self.device} is a port of Open vSwitch", f"ovs-vsctl del-port {self.device}, or correct the NIC's MODE")
        if not bridge.up:
            warnings.append(": ".join(shut(bridge)))
        return [self._replace(ifindex=link.index, master=bridge.index, was=link.master)]

    def apply(self) -> Sequence[Request]:
        return [SetLink(self.ifindex, master=self.master)]

    def differs(self, view: View) -> str:
        link = link_of(view, self.ifindex, self.device)
        if link is None:
            return "the device is gone"
        if link.master == self.master:
            return ""
        other = view.link_at(link.master) if link.master else None
        return f"it is a port of {other.name if other else 'no bridge'}"

    def revert(self, view: View) -> Sequence[Request]:
        link = link_of(view, self.ifindex, self.device)
        if link is None or link.master != self.master or self.was == self.master:
            return []
        return [SetLink(self.ifindex, master=self.was if self.was and view.link_at(self.was) else 0)]

    def place(self) -> str:
        return f"bridge-port {self.ifindex}"

    def sentence(self) -> str:
        return f"The device is plugged into the bridge {self.bridge}."

    def describe(self) -> str:
        return f"ip link set dev {self.device} master {self.bridge}"

    def undo(self) -> str:
        return f"ip link set dev {self.device} nomaster"


def shut(bridge: Link) -> tuple[str, str]:
    """Say that a bridge is down, and what helps: all of its ports are disabled then (br_stp_disable_bridge() in net/bridge/br_stp_if.c)."""
    return f"bridge {bridge.name} is down, and forwards nothing", f"ip link set dev {bridge.name} up"
