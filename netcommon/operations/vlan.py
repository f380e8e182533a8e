"""VLANs of a VLAN-aware bridge (bridge(8), "vlan"): those of the tap, and those that its uplinks must carry for it."""

from __future__ import annotations

from bisect import bisect_left

from netcommon.host.api.facts import DOT1Q, BridgeVlan
from netcommon.host.api.requests import AddVlan, DeleteVlan
from netcommon.operations.base import ABSENT, FINDINGS, FOREIGN, Operation, Waiting
from netcommon.operations.link import bridge_link, device_link, link_of, marked
from runtime.errors import HostRefused
from runtime.typed import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence, Set

    from netcommon.host.api.facts import Link
    from netcommon.host.api.host import View
    from netcommon.host.api.requests import Request

#: Kinds of devices that a guest is behind, or nothing at all.
DEAD_ENDS = frozenset({"tun", "dummy", "ifb"})


class PortVlansFields(NamedTuple):
    """The fields of PortVlans."""

    device: str
    bridge: str
    access: int = 0  #: 0: none
    trunks: tuple[int, ...] = ()
    keep_default: bool = False
    ifindex: int = 0
    master: int = 0
    default: int = 0  #: the bridge's default pvid, which every new port gets
    now: tuple[int, ...] = ()  #: the VIDs that the tap has when this is resolved
    was: tuple[tuple[int, bool, bool], ...] = ()  #: vid, pvid, untagged: what it has without us, as a port of this bridge


class PortVlans(PortVlansFields, Operation):
    """Exactly these VLANs on the tap: ``access`` is pvid and untagged, ``trunks`` are tagged.

    The default pvid goes, or with ``keep_default`` it stays untagged, and is the pvid where there is no ``access``.
    """

    __slots__ = ()
    KIND = "bridge-vlans"
    REPAIRED = "the VLANs of the NIC's port"
    MIGRATION = "of the tap alone"
    CHOSEN = frozenset({"ifindex", "master", "default", "now", "was"})
    BEFORE = frozenset({"was"})

    def confines(self) -> str:
        return "its VLANs"

    def of_port(self) -> bool:
        return True

    def network(self) -> tuple[object, ...]:
        return tuple(self.wanted())

    def taken_over(self, view: View) -> Operation:
        """A new port of the bridge was in its default VLAN: there a NIC goes back to that has none any more."""
        return self._replace(was=((self.default, True, True),) if self.default else ())

    def wanted(self) -> list[BridgeVlan]:
        """The VLANs the port shall have, in the order of the notation; the default one, known after resolve, comes last."""
        access = [BridgeVlan(self.access, pvid=True, untagged=True)] if self.access else []
        named = access + [BridgeVlan(vid) for vid in self.trunks]
        if not self.keep_default or self.default in (0, self.access, *self.trunks):
            return named
        return [*named, BridgeVlan(self.default, pvid=not self.access, untagged=True)]

    def resolve(self, view: View, warnings: list[str]) -> Sequence[Operation]:
        link = device_link(view, self.device)
        bridge = bridge_link(view, self.bridge, self.master, link)
        if not bridge.vlan_filtering:
            raise HostRefused(
                f"the NIC has VLANs, but bridge {self.bridge} is not VLAN-aware",
                f"ip link set dev {self.bridge} type bridge vlan_filtering 1",
            )
        if self.trunks and bridge.protocol != DOT1Q:
            raise HostRefused(
                f"the NIC has tagged VLANs, but bridge {self.bridge} takes no tags of 802.1Q, as guests send them: it is 802.1ad",
                f"ip link set dev {self.bridge} type bridge vlan_protocol 802.1Q, or give the NIC one VLAN, untagged, such as .10",
            )
        default = bridge.default_pvid
        now = view.vlans(link.index) if link.master == bridge.index else [BridgeVlan(default, True, True)] if default else []
        was = tuple((vlan.vid, vlan.pvid, vlan.untagged) for vlan in now)
        vids = tuple(vlan.vid for vlan in now)
        return [self._replace(ifindex=link.index, master=bridge.index, default=default, now=vids, was=was)]

    def apply(self) -> Sequence[Request]:
        wanted = self.wanted()
        surplus = {self.default, *self.now} - {0} - {vlan.vid for vlan in wanted}
        removed: list[Request] = [DeleteVlan(self.ifindex, vid) for vid in sorted(surplus)]
        return removed + [AddVlan(self.ifindex, vlan) for vlan in wanted]

    def differs(self, view: View) -> str:
        link, bridge = link_of(view, self.ifindex, self.device), view.link_at(self.master)
        if link and bridge and link.master == bridge.index and not bridge.vlan_filtering:
            return f"bridge {bridge.name} is not VLAN-aware any more: all its ports share one network"
        if bridge and self.trunks and bridge.protocol != DOT1Q:
            return f"bridge {bridge.name} is 802.1ad now, and takes no tags of 802.1Q"
        now = sorted(view.vlans(self.ifindex)) if link else []
        return "" if now == sorted(self.wanted()) else "its VLANs are " + (", ".join(map(_show, now)) or "none")

    def revert(self, view: View) -> Sequence[Request]:
        link = link_of(view, self.ifindex, self.device)
        if link is None or link.master != self.master:
            return []
        before = [BridgeVlan(*vlan) for vlan in self.was]
        there = {vlan.vid for vlan in view.vlans(self.ifindex)}
        mine = ({vlan.vid for vlan in self.wanted()} & there) - {vlan.vid for vlan in before}
        removed: list[Request] = [DeleteVlan(self.ifindex, vid) for vid in sorted(mine)]
        return removed + [AddVlan(self.ifindex, vlan, behind=bool(removed)) for vlan in before]

    def place(self) -> str:
        return f"bridge-vlans {self.ifindex} {self.master}"

    def sentence(self) -> str:
        from runtime.format import ranges

        said = [f"VLAN {self.access}"] if self.access else []
        said += [f"VLAN{'s' if len(self.trunks) > 1 else ''} {ranges(self.trunks)} (tagged)"] if self.trunks else []
        said += ["its default VLAN"] if self.keep_default else []
        return f"Of {self.bridge} the guest is in {' and '.join(said) or 'no VLAN'}, and in no other."

    def describe(self) -> str:
        unknown = ["<the default VLAN>"] if self.keep_default and not self.ifindex else []
        return f"bridge vlan on {self.device}: " + ", ".join([*map(_show, self.wanted()), *unknown])

    def undo(self) -> str:
        return f"bridge vlan on {self.device}: <as they were>"


class UplinkVlanFields(NamedTuple):
    """The fields of UplinkVlan."""

    bridge: str
    vid: int
    uplinks: tuple[str, ...] = ()  #: from the settings; empty: found on the host
    device: str = ""  #: the NIC's tap
    port: str = ""
    ifindex: int = 0
    master: int = 0
    found: str = ABSENT
    ways: tuple[str, ...] = ()  #: all uplinks there were, this one among them
    tap: int = 0  #: the index of ``device``


class UplinkVlan(UplinkVlanFields, Operation):
    """One VID on one uplink of the bridge, tagged, shared by all NICs of that VLAN.

    The kernel has no place for a mark here: what was there before us is known by the records alone.
    """

    __slots__ = ()
    KIND = "uplink-vlan"
    REPAIRED = "the guests' VLANs on a bridge's uplinks"
    MIGRATION = "the VLAN is to be there when the guest comes; a node without a guest in it only gets broadcasts"
    CHOSEN = frozenset({"port", "ifindex", "master", "found", "ways", "tap"})
    BEFORE = frozenset({"found"})
    VALUES = (("found", FINDINGS),)

    def shared(self) -> tuple[str, ...]:
        """By the uplink's index: a NIC that comes after a renaming knows it too, and no other device has it."""
        key = f"uplink-vlan-{self.bridge}-{self.vid}"
        return (f"{key}@:{self.ifindex}" if self.port else key,)

    def unmarked(self) -> bool:
        return True

    def resolve(self, view: View, warnings: list[str]) -> Sequence[Operation]:
        tap = view.link(self.device)  # a record of an earlier version names none
        bridge = bridge_link(view, self.bridge, self.master, tap)
        ports = _uplinks(view, bridge, self.uplinks)
        if not ports:
            return [Waiting(self, f"an uplink of {self.bridge}")]
        known = self._replace(master=bridge.index, ways=tuple(port.name for port in ports), tap=tap.index if tap else 0)
        made = []
        for port in ports:
            one = known._replace(port=port.name, ifindex=port.index)
            taken = one._taken(view, bridge)
            if taken:
                raise HostRefused(taken, "delete that, or use another VLAN")
            made.append(one._replace(found=ABSENT if one._there(view) is None else FOREIGN))
        return made

    def apply(self) -> Sequence[Request]:
        return [] if self.found == FOREIGN else [AddVlan(self.ifindex, BridgeVlan(self.vid))]

    def differs(self, view: View) -> str:
        now, bridge = self._uplinks_now(view), self._joined(view)
        moved = "" if not now or now == set(self.ways) else f"the uplinks of {self.bridge} are now {', '.join(sorted(now))}"
        if bridge is None:  # as long as there is no other uplink: it waits for this one
            return moved or (f"{self.bridge} was made anew" if now else "")
        taken = self._taken(view, bridge)
        return taken or (f"{self.port} does not carry VLAN {self.vid}" if self._there(view) is None else moved)

    def idle(self, view: View) -> str:
        return "" if self._joined(view) else f"it waits for an uplink of {self.bridge}: {self.port} is none now"

    def _joined(self, view: View) -> Link | None:
        """The bridge, while the uplink is a port of it, whatever it is called by now.

        One of another name, in which the tap is not, may be another bridge that has its index by now.
        """
        port, tap = view.link_at(self.ifindex), link_of(view, self.tap, self.device)
        bridge = view.link_at(self.master) if port is not None and port.master == self.master else None
        return None if bridge and tap and bridge.name != self.bridge and tap.master != self.master else bridge

    def _there(self, view: View) -> BridgeVlan | None:
        """The VLAN as the uplink has it, whoever added it."""
        vlans = view.vlans(self.ifindex)  # a trunk asks for each of thousands
        place = bisect_left(vlans, (self.vid,))
        return vlans[place] if place < len(vlans) and vlans[place].vid == self.vid else None

    def _taken(self, view: View, bridge: Link) -> str:
        """Say which VLAN interface gets the uplink's frames of the VLAN; "" where the bridge gets them."""
        taker = _taker(view, self.ifindex, self.vid, bridge.protocol)
        return f"VLAN {self.vid} of {self.port}, uplink of {self.bridge}, is taken by the VLAN interface {taker}" if taker else ""

    def _uplinks_now(self, view: View) -> set[str]:
        """The bridge's uplinks; none where that cannot be told at the moment: those on record are good enough then."""
        try:
            return {port.name for port in _uplinks(view, bridge_link(view, self.bridge, self.master, view.link(self.device)), self.uplinks)}
        except HostRefused:
            return set()

    def revert(self, view: View) -> Sequence[Request]:
        if self.found == FOREIGN or self._joined(view) is None:
            return []
        if self._there(view) != BridgeVlan(self.vid):
            return []  # gone; or somebody has made it untagged, or mapped it to a VNI, which would go with it
        ways = {self.port, *self.ways, *self._uplinks_now(view)}  # none of them needs another
        if any(self._needs(view.link_at(index), ways) for index in view.carriers(self.vid)):
            return []
        return [DeleteVlan(self.ifindex, self.vid)]

    def _needs(self, link: Link | None, ways: Set[str]) -> bool:
        """Whether what carries the VLAN is a port of the bridge, or the bridge itself, for which the uplink must go on carrying it.

        Other NICs of ours have their records, and may have left this uplink for another. This is for what others have put there meanwhile.
        """
        if link is None or self.master not in (link.master, link.index):
            return False
        return link.index != self.tap and link.name not in ways and not marked(link)

    def identity(self) -> str:
        return f"uplink-vlan {self.ifindex} {self.vid}"

    def place(self) -> str:
        return f"uplink-vlan {self.ifindex} {self.vid}"  # whatever the uplink is called by now

    def sentence(self) -> str:
        return f"VLAN {self.vid} leaves the node: the uplink {self.port or 'of ' + self.bridge} carries it."

    def describe(self) -> str:
        return f"bridge vlan add dev {self.port or f'<uplinks of {self.bridge}>'} vid {self.vid}"

    def undo(self) -> str:
        return f"bridge vlan del dev {self.port or f'<uplinks of {self.bridge}>'} vid {self.vid}, with the last NIC that needs it"


def _taker(view: View, port: int, vid: int, protocol: int) -> str:
    """The VLAN interface that gets the port's frames of a VLAN before the bridge does: on the port, or on a device below it (a bond's).

    One of another protocol than the bridge's gets frames that the bridge takes for untagged.
    """
    links = [link for link in view.links_of("vlan") if (link.vlan, link.protocol) == (vid, protocol) and not link.foreign_lower]
    lower = [port] if links else []
    for index in lower:
        lower += [link.index for link in view.ports(index) if link.index not in lower]
    return next((link.name for link in links if link.lower in lower), "")


def may_lead_outside(port: Link) -> bool:
    """Tell whether a bridge's port may be an uplink that no setting names."""
    return port.kind not in DEAD_ENDS and not port.name.startswith("vif")


def _uplinks(view: View, bridge: Link, named: Sequence[str]) -> list[Link]:
    """The ports of ``bridge`` that lead outside: those the settings name, else those that are no guest's and lead anywhere at all.

    A veth may lead outside (a nested node) or be another guest's. One alone, with no better port, is taken for the uplink; among
    several only the administrator can tell.
    """
    ports = list(view.ports(bridge.index))
    if named:
        found = [port for port in ports if port.name in named]
        missing = sorted(set(named) - {port.name for port in found})
        if missing:
            raise HostRefused(f"{missing[0]}, in the settings an uplink of {bridge.name}, is no port of it", "correct the settings")
        return found
    ports = [port for port in ports if may_lead_outside(port)]
    better = [port for port in ports if port.kind != "veth"]
    if better or len(ports) < 2:
        return better or ports
    names = ", ".join(port.name for port in ports)
    raise HostRefused(f"cannot tell the uplinks of {bridge.name} among {names}", f'name them, [bridges."{bridge.name}"] uplinks')


def _show(vlan: BridgeVlan) -> str:
    flags = " pvid" * vlan.pvid + " untagged" * vlan.untagged
    return f"{vlan.vid}{flags}"
