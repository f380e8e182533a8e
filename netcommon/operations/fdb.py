"""The static entry of a guest's MAC address in its bridge's forwarding database (bridge(8), "fdb")."""

from __future__ import annotations

from netcommon.host.api.facts import LEARNED, STATIC
from netcommon.host.api.requests import AddFdb, DeleteFdb
from netcommon.operations.base import ABSENT, FINDINGS, FOREIGN, Operation
from netcommon.operations.link import bridge_link, device_link, link_of
from runtime.errors import HostRefused
from runtime.typed import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    from netcommon.host.api.facts import FdbEntry, Link
    from netcommon.host.api.host import View
    from netcommon.host.api.requests import Request


class StaticEntryFields(NamedTuple):
    """The fields of StaticEntry."""

    device: str
    bridge: str
    mac: str
    vid: int  #: 0: every VLAN of the port, or the bridge as a whole while it is not VLAN-aware
    uuid: str  #: the NIC's
    guest: str = ""  #: instance and index of the NIC; without an index: the emulated twin of one (netcommon.doors.xen)
    ifindex: int = 0
    master: int = 0
    found: str = ABSENT


class StaticEntry(StaticEntryFields, Operation):
    """Frames for the guest's address go to its tap, whoever else sends from that address: the entry is sticky.

    Without that, one such frame (a forged one, or the guest's own that a switch reflects) would move the entry away, and with learning
    off on the tap nothing would bring it back. The kernel has no place for a mark here, but an entry is one of a port, and goes with it.
    """

    __slots__ = ()
    KIND = "fdb-entry"
    REPAIRED = "the static entry of the guest's MAC"
    MIGRATION = "this node's frames for the guest would go to a tap that it is not behind yet"
    CHOSEN = frozenset({"ifindex", "master", "found"})
    BEFORE = frozenset({"found"})
    VALUES = (("found", FINDINGS),)

    def delivers(self) -> bool:
        """Tell that it does: a port that learns nothing, and gets nothing that is unknown, gets what this entry leads to it."""
        return True

    def locked(self) -> tuple[str, ...]:
        """Of two NICs with one MAC that come at a time the second is refused, as one that comes later is."""
        return (f"fdb-{self.bridge}-{self.mac}",)

    def exclusive(self) -> bool:
        """The guest's address is where the guest is: while it migrates in, behind the uplink."""
        return True

    def resolve(self, view: View, warnings: list[str]) -> Sequence[Operation]:
        link = device_link(view, self.device)
        bridge = bridge_link(view, self.bridge, self.master, link)
        made = self._replace(ifindex=link.index, master=bridge.index)
        vids = made._vids(view, bridge) if link.master == bridge.index or self.vid or not bridge.vlan_filtering else []
        if bridge.vlan_filtering and not self.vid and bridge.default_pvid not in vids:
            vids.append(bridge.default_pvid)  # which the port has or is about to get: an entry in its others alone is not this one
        there = [entry for vid in vids if (entry := view.fdb_entry(bridge.index, self.mac, vid)) is not None]
        left = 0
        for entry in there:
            if entry.kind != LEARNED and entry.index != link.index:
                left += self._left(view.link_at(entry.index), entry, warnings)
        foreign = bool(vids) and left + len([entry for entry in there if _ours(entry, link.index)]) == len(vids)
        return [made._replace(found=FOREIGN if foreign else ABSENT)]

    def _left(self, other: Link | None, entry: FdbEntry, warnings: list[str]) -> bool:
        """Whether an entry on another port stays there: that of the device whose emulated twin this is.

        One of this NIC's own earlier tap, of its twin, or of a tap that nobody holds, is taken over; another is refused.
        """
        name = other.name if other else f"device {entry.index}"
        text = f"{self.mac}, the MAC of the NIC on {self.device}, has a {entry.kind} entry on {name}, another port of {self.bridge}"
        if entry.kind == STATIC and other:
            uuid, _, guest = other.alias.partition(" ")
            kin = bool(self.guest) and self.guest.partition("/")[0] == guest.partition("/")[0]
            if kin and self._twin and "/" in guest:
                return True
            if uuid == self.uuid or other.holders == 0 or (kin and not self._twin and "/" not in guest):
                if text not in warnings:
                    warnings.append(text + ": it is taken over")
                return False
        raise HostRefused(text, f"bridge fdb del {self.mac} dev {name} master, or correct the NIC's MAC")

    @property
    def _twin(self) -> bool:
        """Whether it is of an emulated twin: the entry leads to the paravirtual device, as a routed address does."""
        return bool(self.guest) and "/" not in self.guest

    def _vids(self, view: View, bridge: Link) -> list[int]:
        """The VLANs in which the entry shall be, 0 while the bridge has none."""
        if not bridge.vlan_filtering:
            return [] if self.vid else [0]
        return [self.vid] if self.vid else [vlan.vid for vlan in view.vlans(self.ifindex)]

    def apply(self) -> Sequence[Request]:
        return [] if self.found == FOREIGN else [AddFdb(self.ifindex, self.mac, self.vid)]

    def differs(self, view: View) -> str:
        link, bridge = link_of(view, self.ifindex, self.device), view.link_at(self.master)
        if link is None or bridge is None or link.master != self.master:
            return f"it is no port of {self.bridge}"
        for vid in self._vids(view, bridge):
            entry = view.fdb_entry(self.master, self.mac, vid)
            where = f" in VLAN {vid}" if vid else ""
            if entry is None:
                return f"the entry{where} is gone"
            if self._twin and self.found == FOREIGN and entry.kind == STATIC:
                continue
            if not _ours(entry, self.ifindex) or not (entry.sticky or self.found == FOREIGN):
                at = view.link_at(entry.index)
                return f"the entry{where} is {entry.kind}, on {at.name if at else f'device {entry.index}'}"
        return ""

    def revert(self, view: View) -> Sequence[Request]:
        link, bridge = link_of(view, self.ifindex, self.device), view.link_at(self.master)
        if self.found == FOREIGN or link is None or bridge is None or link.master != self.master:
            return []
        there = [view.fdb_entry(self.master, self.mac, vid) for vid in self._vids(view, bridge)]
        ours = any(entry and _ours(entry, self.ifindex) and entry.sticky for entry in there)  # another one is of somebody else
        return [DeleteFdb(self.ifindex, self.mac, self.vid)] if ours else []

    def place(self) -> str:
        return f"fdb {self.ifindex} {self.master} {self.mac} {self.vid}"

    def sentence(self) -> str:
        return f"The bridge {self.bridge} knows for good that {self.mac} is behind this device."

    def describe(self) -> str:
        vlan = f" vlan {self.vid}" if self.vid else ""
        return f"bridge fdb replace {self.mac} dev {self.device} master static sticky{vlan}"

    def undo(self) -> str:
        return f"bridge fdb del {self.mac} dev {self.device} master" + (f" vlan {self.vid}" if self.vid else "")


def _ours(entry: FdbEntry, index: int) -> bool:
    return entry.kind == STATIC and entry.index == index
