"""Tell what happens on a simulated node, each thing when it happens: what the kernel and the daemons of a real node would tell.

Nobody compares states to find out: whoever changes something says so, and an event costs what the change costs.
"""

from __future__ import annotations

from runtime.typed import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

    from netcommon.host.api.facts import Address, BridgeVlan, FdbEntry, Filter, Flow, Link, Port, Qdisc, Route, Rule
    from netcommon.host.api.nftables import NftChain, NftElement, NftRule, NftSet, NftTable

#: How a thing has changed.
MADE, ALTERED, GONE = "made", "altered", "gone"


class LinkState(NamedTuple):
    """A device. ``carrier``: somebody is at the other end."""

    link: Link
    carrier: bool


class PortState(NamedTuple):
    """The port that a device is of a bridge. ``root``: the address of the bridge, which is in what spanning tree says of each port."""

    index: int  # type: ignore[assignment]
    master: int = 0
    flags: Port | None = None
    vlans: tuple[BridgeVlan, ...] = ()
    root: str = ""


class PortVlan(NamedTuple):
    """A VLAN of a bridge's port, or of the bridge itself."""

    index: int  # type: ignore[assignment]
    vlan: BridgeVlan


class Setting(NamedTuple):
    """A setting below /proc/sys/net/*/conf of a device, of those that the kernel tells of (RTM_NEWNETCONF), or all of a new one."""

    index: int  # type: ignore[assignment]


class OvsRow(NamedTuple):
    """A row of Open vSwitch's database: of which ``table``, and its name. ``fake_bridge``: of a port that is a fake bridge."""

    table: str
    name: str
    fake_bridge: bool = False


if TYPE_CHECKING:
    OfKernel = Rule | Route | Address | FdbEntry | Qdisc | Filter
    OfTables = NftTable | NftChain | NftRule | NftSet | NftElement
    Thing = LinkState | PortState | PortVlan | Setting | OvsRow | Flow | OfKernel | OfTables


class Event(NamedTuple):
    """Say what happened. ``thing``: as it is now, or as it was where it is gone; ``by``: the number of the socket that asked, or 0."""

    how: str
    thing: Thing
    by: int = 0


class Telling:
    """Keep who hears of a node's events. ``by`` is told with each (Event)."""

    def __init__(self) -> None:
        self.hearers: list[Callable[[Event], None]] = []
        self.by = 0

    def __call__(self, how: str, thing: Thing) -> None:
        """Tell all of it."""
        if self.hearers:
            event = Event(how, thing, self.by)
            for hear in self.hearers:
                hear(event)
