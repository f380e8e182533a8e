"""When the device of an Open vSwitch port is up: only while it is the NIC's port, and its flows are in place.

A frame of a device that is up and no port goes to the host itself, one of a port without flows to everybody.
"""

from __future__ import annotations

from netcommon.host.api.requests import SetLink
from netcommon.operations.base import Operation, Waiting, before
from netcommon.operations.link import UP, LinkSetting, device_link, link_of, marked, too_narrow
from netcommon.operations.ovs import standing
from runtime.typed import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    from netcommon.host.api.facts import Link, OvsPort
    from netcommon.host.api.host import View
    from netcommon.host.api.requests import Request


def _stray(view: View, device: str, bridge: str, owner: str) -> str:
    """Say what is wrong with a device that is up; nothing while only the database is away: the switch forwards as before."""
    return "" if standing(view, device, bridge, owner) or view.ovs_away() else "it is up without its port"


class ShutLinkFields(NamedTuple):
    """The fields of ShutLink."""

    device: str
    bridge: str
    owner: str  #: the NIC's UUID
    ifindex: int = 0
    was: bool = False  #: up
    now: bool = False  #: up, and not the NIC's port
    kept: bool = False  #: adopt has found a guest that runs; undone before that is over, its device is as it was


class ShutLink(ShutLinkFields, Operation):
    """Before the port is made, or made anew: the device is down, until OpenLink.

    Undone last: closing the device, vswitchd writes back the flags that it remembers, which may bring it up once more. One that was up
    comes up again only if nobody holds it: the guest would speak to the node itself.
    """

    __slots__ = ()
    KIND = "ovs-link-shut"
    REPAIRED = "the device is down while it is no port in Open vSwitch"
    MIGRATION = "the tap is down until its flows are in"
    CHOSEN = frozenset({"ifindex", "was", "now", "kept"})
    BEFORE = frozenset({"was", "kept"})

    def resolve(self, view: View, warnings: list[str]) -> Sequence[Operation]:
        link = device_link(view, self.device)
        stray = link.up and _stray(view, self.device, self.bridge, self.owner) != ""
        return [self._replace(ifindex=link.index, was=link.up, now=stray)]

    def running(self, view: View) -> Operation:
        return self._replace(kept=True)

    def taken_over(self, view: View) -> Operation:
        return self._replace(was=False, kept=False)

    def apply(self) -> Sequence[Request]:
        """Nothing for a port that stays: an adopted guest loses no frame."""
        return [SetLink(self.ifindex, up=False)] if self.now else []

    def differs(self, view: View) -> str:
        link = link_of(view, self.ifindex, self.device)
        if link is None:
            return "the device is gone"
        return _stray(view, self.device, self.bridge, self.owner) if link.up else ""

    def revert(self, view: View) -> Sequence[Request]:
        link = link_of(view, self.ifindex, self.device) if not self.kept else None
        return [SetLink(self.ifindex, up=self.was and not link.holders)] if link is not None and link.up else []

    def place(self) -> str:
        return f"link {self.ifindex} {UP}"

    def sentence(self) -> str:
        return f"The device is off while it is no port of {self.bridge}: no frame passes before all is in place."

    def describe(self) -> str:
        return f"ip link set dev {self.device} down, while it is no port of {self.bridge}"

    def undo(self) -> str:
        return f"ip link set dev {self.device} {before(self.ifindex, 'up' if self.was else 'down')}"


def _real(view: View, port: OvsPort) -> str:
    """Give the name of the real bridge that the port is of."""
    real = view.ovs_switch(port.bridge)
    return port.bridge if real is None else real.name


def _meet(bridge: str, one: OvsPort, other: OvsPort) -> bool:
    """Tell whether two ports of the real bridge have a VLAN in common, as far as tags and trunks say; one without either has all.

    Those of a fake bridge are told without its VLAN: what is no port of it meets them only where it has all.
    """
    if one.bridge != other.bridge:
        return all(each.bridge != bridge or not _vlans(each) for each in (one, other)) and bridge in (one.bridge, other.bridge)
    return not (_vlans(one) and _vlans(other)) or not _vlans(one).isdisjoint(_vlans(other))


def _vlans(port: OvsPort) -> frozenset[int]:
    return frozenset(port.trunks) | (frozenset() if port.tag is None else {port.tag})


class SwitchMtu(LinkSetting):
    """The MTU of the bridge's own device, once that is there. Of a fake bridge's and its parent's the larger.

    Before the port is made: whenever the least MTU of a bridge's ports changes, Open vSwitch gives it to the bridge's own device and
    those of its fake bridges, where they have no mtu_request. A fake bridge that is made later begins with 1500, and shrinks nothing.
    """

    __slots__ = ()
    KIND = "ovs-link-mtu"
    REPAIRED = "the device has the MTU of the Open vSwitch bridge"
    MIGRATION = "of the tap alone"

    def resolve(self, view: View, warnings: list[str]) -> Sequence[Operation]:
        link, mtu = device_link(view, self.device), self._mtu(view)
        return [self._replace(ifindex=link.index, value=mtu, was=link.mtu) if mtu else Waiting(self, f"the device {self.bridge}")]

    def _mtu(self, view: View) -> int:
        """Give the MTU of the bridge; 0 where it has no device."""
        real = view.ovs_switch(self.bridge)
        own = [view.link(name) for name in {self.bridge, self.bridge if real is None else real.name}]
        return max((each.mtu for each in own if each is not None), default=0)

    def idle(self, view: View) -> str:
        """The kernel's datapath forwards by the MTU of the port that a frame leaves by, as bridges do (ovs_vport_send())."""
        link = link_of(view, self.ifindex, self.device)
        narrow = [each for each in view.ports(link.master) if each.mtu < link.mtu and not marked(each)] if link and link.master else []
        port = view.ovs_port(self.device) if narrow else None
        if link is None or port is None or link.port_kind != "openvswitch":
            return ""
        bridge = _real(view, port)
        there: list[Link] = []
        for each in narrow:
            other = view.ovs_port(each.name)  # the bridges of one datapath have one master
            if other and not other.internal and _real(view, other) == bridge and _meet(bridge, port, other):
                there.append(each)
        return too_narrow(bridge, link, there)

    def sentence(self) -> str:
        return f"The device takes frames as long as its bridge does: mtu {self.value or 'of the bridge'}."


class OpenLinkFields(NamedTuple):
    """The fields of OpenLink."""

    device: str
    bridge: str
    owner: str  #: the NIC's UUID
    ifindex: int = 0
    kept: bool = False  #: as in ShutLink


class OpenLink(OpenLinkFields, Operation):
    """The device is up: last of all, so that no frame comes before the flows, and down again before any of that is undone."""

    __slots__ = ()
    KIND = "ovs-link-open"
    REPAIRED = "the device is up as a port whose flows are there"
    MIGRATION = "of the tap alone; Open vSwitch learns where the guest is from its frames"
    CHOSEN = frozenset({"ifindex", "kept"})
    BEFORE = frozenset({"kept"})

    def lets_in(self) -> bool:
        return True

    def running(self, view: View) -> Operation:
        return self._replace(kept=True)

    def taken_over(self, view: View) -> Operation:
        return self._replace(kept=False)

    def resolve(self, view: View, warnings: list[str]) -> Sequence[Operation]:
        return [self._replace(ifindex=device_link(view, self.device).index)]

    def apply(self) -> Sequence[Request]:
        return [SetLink(self.ifindex, up=True)]

    def differs(self, view: View) -> str:
        """What ShutLink takes down is to be brought up again, so what is wrong with that is with this."""
        link = link_of(view, self.ifindex, self.device)
        if link is None:
            return "the device is gone"
        return _stray(view, self.device, self.bridge, self.owner) if link.up else "it is down"

    def revert(self, view: View) -> Sequence[Request]:
        link = link_of(view, self.ifindex, self.device) if not self.kept else None
        return [SetLink(self.ifindex, up=False)] if link is not None and link.up else []

    def place(self) -> str:
        return f"link {self.ifindex} open"

    def sentence(self) -> str:
        return "The device is switched on, now that its port and flows are in place."

    def describe(self) -> str:
        return f"ip link set dev {self.device} up"

    def undo(self) -> str:
        return f"ip link set dev {self.device} down"
