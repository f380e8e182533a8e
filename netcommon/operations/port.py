"""What a port of a Linux bridge does with frames (bridge(8), "link"): isolation, learning, flooding, multicast."""

from __future__ import annotations

from netcommon.host.api.facts import Port
from netcommon.host.api.requests import SetPort
from netcommon.operations.base import Operation
from netcommon.operations.link import bridge_link, device_link, link_of
from runtime.typed import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    from netcommon.host.api.host import View
    from netcommon.host.api.requests import Request

ISOLATED, LEARNING, FLOOD = "isolated", "learning", "flood"
MCAST_FLOOD, FASTLEAVE, MCAST_TO_UNICAST, MCAST_ROUTER = "mcast_flood", "fastleave", "mcast_to_unicast", "mcast_router"

#: How a flag keeps the guest to its own: to ports that are not isolated, to its own MAC, to what is meant for it.
CONFINED = {ISOLATED: True, LEARNING: False, FLOOD: False, MCAST_FLOOD: False, MCAST_ROUTER: False}

#: What each flag means, for people who do not know the commands: when it is on, and when it is off.
SENTENCES = {
    ISOLATED: ("The guest reaches only ports of its bridge that are not isolated.", "The guest reaches every port of its bridge."),
    LEARNING: ("The bridge learns addresses from what the guest sends.", "The bridge learns nothing from what the guest sends."),
    FLOOD: (
        "Frames for addresses that the bridge does not know go to the guest too.",
        "Frames for addresses that the bridge does not know do not go to the guest.",
    ),
    MCAST_FLOOD: ("Multicast that nobody asked for goes to the guest too.", "Multicast that nobody asked for does not go to the guest."),
    FASTLEAVE: ("A multicast group ends with the guest's first leave.", "A multicast group does not end with the guest's first leave."),
    MCAST_TO_UNICAST: ("Multicast is sent to the guest's own MAC.", "Multicast is sent to the guest as multicast."),
    MCAST_ROUTER: (
        "The guest gets all multicast if it asks as a router does.",
        "The guest gets no group of others by asking as a router does.",
    ),
}


class PortFlagFields(NamedTuple):
    """The fields of PortFlag."""

    device: str
    bridge: str
    flag: str
    wanted: bool
    ifindex: int = 0
    master: int = 0
    was: bool = False  #: as a port of this bridge


class PortFlag(PortFlagFields, Operation):
    """One flag of the tap as a port of the bridge; a new port has the kernel's defaults again."""

    __slots__ = ()
    KIND = "port-flag"
    REPAIRED = "the flags of the NIC's port, such as isolated"
    MIGRATION = (
        "learning and flooding, which are off only where there is a static entry; the others (isolation, multicast) at once: "
        "they are to hold from the guest's first frame on"
    )
    CHOSEN = frozenset({"ifindex", "master", "was"})
    BEFORE = frozenset({"was"})
    VALUES = (("flag", frozenset(Port._fields)),)

    def exclusive(self) -> bool:
        """A port that learns nothing, or gets nothing that is unknown, needs the guest's static entry, and that may be on one node only."""
        return self.flag in (LEARNING, FLOOD)

    def confines(self) -> str:
        """Say that it keeps the guest from others on its bridge, or from what is theirs: a tap that is a port without that must be down."""
        return "its own port" if CONFINED.get(self.flag) == self.wanted else ""

    def anywhere(self) -> Operation:
        return self._replace(bridge="")

    def of_port(self) -> bool:
        return True

    def resolve(self, view: View, warnings: list[str]) -> Sequence[Operation]:
        link = device_link(view, self.device)
        bridge = bridge_link(view, self.bridge, self.master, link)
        now = view.port(link.index) if link.master == bridge.index else None
        return [self._replace(ifindex=link.index, master=bridge.index, was=getattr(now or Port(), self.flag))]

    def apply(self) -> Sequence[Request]:
        return [SetPort(self.ifindex, self.flag, self.wanted)]

    def differs(self, view: View) -> str:
        link = link_of(view, self.ifindex, self.device)
        port = view.port(self.ifindex) if link is not None and link.master == self.master else None
        if port is None:
            return f"it is no port of {self.bridge}"
        return "" if getattr(port, self.flag) == self.wanted else f"it is {self._word(not self.wanted)}"

    def revert(self, view: View) -> Sequence[Request]:
        link = link_of(view, self.ifindex, self.device)
        port = view.port(self.ifindex) if link is not None and link.master == self.master else None
        mine = port is not None and getattr(port, self.flag) == self.wanted != self.was
        return [SetPort(self.ifindex, self.flag, self.was)] if mine else []

    def place(self) -> str:
        return f"port {self.ifindex} {self.master} {self.flag}"

    def sentence(self) -> str:
        return SENTENCES[self.flag][0 if self.wanted else 1]

    def describe(self) -> str:
        return f"bridge link set dev {self.device} {self.flag} {self._word(self.wanted)}"

    def undo(self) -> str:
        return f"bridge link set dev {self.device} {self.flag} {self._word(self.was) if self.ifindex else '<as it was>'}"

    def _word(self, value: bool) -> str:
        """Give the value as bridge(8) takes it: mcast_router has more than two, of which 1 is a new port's."""
        if self.flag == MCAST_ROUTER:
            return "1" if value else "0"
        return "on" if value else "off"
