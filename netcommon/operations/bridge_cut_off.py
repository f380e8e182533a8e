"""Tell why a port of a Linux bridge has no network though it is there as it was made: no hook loads this."""

from __future__ import annotations

from netcommon.host.api.datapath import FORWARDING, LEARNING, LISTENING
from netcommon.host.api.facts import LOCAL, STATIC
from netcommon.operations.bridge import BridgePort, shut
from netcommon.operations.link import marked
from netcommon.operations.vlan import may_lead_outside
from runtime.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from netcommon.host.api.facts import FdbEntry, Link
    from netcommon.host.api.host import View
    from netcommon.operations.base import Operation

    #: By the names of bridges, their uplinks where the settings name them.
    Uplinks = Mapping[str, tuple[str, ...]]

#: By the numbers of netcommon.host.api.datapath.
STATES = ("disabled", "listening", "learning", "forwarding", "blocking")


def cut_off(view: View, mac: str, operations: Iterable[Operation], uplinks: Uplinks) -> list[tuple[str, str]]:
    """Return why a NIC that is a port as it was made has no network all the same, and what helps. ``mac``: its guest's.

    Raises TryAgain.
    """
    found: list[tuple[str, str]] = []
    for _operation, link, bridge in _joined(view, operations):
        if not bridge.up:
            found.append(shut(bridge))
            continue
        entry = _entry(view, bridge, link, mac)
        found += [*_stopped(view, bridge, link, entry), *_closed(view, bridge, link, uplinks), *_drawn_off(view, bridge, link, mac, entry)]
    return found


def alone(view: View, operations: Iterable[Operation], uplinks: Uplinks) -> list[tuple[str, str]]:
    """Return what a NIC is a port of that leads to nobody but other guests, which may be meant so: the operation, and what is so."""
    found: list[tuple[str, str]] = []
    for operation, link, bridge in _joined(view, operations):
        if bridge.up and not (bridge.name in uplinks or _ways(view, bridge, link, uplinks) or _own(view, bridge)):
            text = f"beyond the guests of this node: no port of {bridge.name} leads out of it, and {bridge.name} has no address"
            found.append((operation.describe(), text))
    return found


def _joined(view: View, operations: Iterable[Operation]) -> Iterator[tuple[Operation, Link, Link]]:
    """Yield each operation that has made a port, the port and its bridge, where it is one still."""
    for one in operations:
        link = view.link_at(one.ifindex) if isinstance(one, BridgePort) and not one.differs(view) else None
        bridge = view.link_at(link.master) if link is not None else None
        if link is not None and bridge is not None:
            yield one, link, bridge


def _stopped(view: View, bridge: Link, link: Link, entry: FdbEntry | None) -> list[tuple[str, str]]:
    """Look at what the port itself takes and is sent."""
    seen = view.device_state(link.index)
    if seen is None or seen.port is None:
        return []
    name, mine = link.name, entry is not None and entry.index == link.index
    if found := _halted(view, bridge, link):
        return [found]
    if bridge.vlan_filtering and not _vlans(view, link):
        remedy = f"bridge vlan add dev {name} vid {bridge.default_pvid or 1} pvid untagged, or the NIC's VLAN"
        return [(f"{name} is in no VLAN of {bridge.name}, which takes none of its frames", remedy)]
    if seen.port.locked and not mine:
        text = f"{name} is locked as a port of {bridge.name}, which takes frames of no MAC there that it has no entry for"
        return [(text, f"bridge link set dev {name} locked off")]
    port = view.port(link.index)
    if port is not None and not (port.learning or port.flood or entry):  # of an emulated device its NIC's port may have it
        text = f"{bridge.name} neither learns at {name} nor floods there: what is for the guest does not get to it"
        return [(text, f"bridge link set dev {name} learning on flood on")]
    return []


def _halted(view: View, bridge: Link, link: Link) -> tuple[str, str] | None:
    """Look at a port's state. A device that is down or has no carrier has none, and with STP a port listens and learns at first."""
    seen = view.device_state(link.index)
    if seen is None or seen.port is None or not (link.up and seen.carrier):
        return None
    state, above = seen.port.state, view.device_state(bridge.index)
    stp = above is not None and above.bridge is not None and above.bridge.stp
    if state == FORWARDING or (stp and state in (LISTENING, LEARNING)):
        return None
    remedy = f"bridge link set dev {link.name} state {FORWARDING}"
    if stp:
        remedy += f", or see what {bridge.name} takes for a loop (STP)"
    return f"{link.name} is {STATES[state]} as a port of {bridge.name}, which takes none of its frames", remedy


def _closed(view: View, bridge: Link, link: Link, uplinks: Uplinks) -> list[tuple[str, str]]:
    """Look at the ports by which the bridge leads out of the node: why each of them does not, where none does."""
    ways = _ways(view, bridge, link, uplinks)
    if not ways and bridge.name in uplinks:
        names = uplinks[bridge.name]
        text = f"nothing leads out of {bridge.name}: {' and '.join(names)}, by the settings its uplink, is no port of it"
        return [(text, f"ip link set dev {names[0]} master {bridge.name}")]
    reasons = [why for way in ways if (why := _shut_way(view, bridge, link, way))]
    if not reasons or len(reasons) < len(ways):
        return []
    return [(f"nothing leads out of {bridge.name}: {'; '.join(why for why, _remedy in reasons)}", reasons[0][1])]


def _ways(view: View, bridge: Link, link: Link, uplinks: Uplinks) -> list[Link]:
    """Return the ports by which a bridge leads out of the node: those the settings name, else those behind which is no guest.

    A veth is one where there is nothing better: it may lead to a container.
    """
    ports = [each for each in view.ports(bridge.index) if each.index != link.index]
    if named := uplinks.get(bridge.name):
        return [each for each in ports if each.name in named]
    ports = [each for each in ports if may_lead_outside(each) and each.holders < 0 and not marked(each)]
    return [each for each in ports if each.kind != "veth"] or ports


def _shut_way(view: View, bridge: Link, link: Link, way: Link) -> tuple[str, str] | None:
    """Say why what comes by ``link`` does not get out by ``way``, and what helps."""
    if not way.up:
        return f"{way.name} is down", f"ip link set dev {way.name} up"
    seen, port = view.device_state(way.index), view.port(way.index)
    if seen is None or seen.port is None or port is None:
        return None
    if not seen.carrier:
        return f"{way.name} has no carrier", f"see the cable of {way.name}, or what is at its other end"
    if found := _halted(view, bridge, way):
        return found
    if not (seen.port.bcast_flood or seen.port.neigh_suppress):  # a bridge that answers ARP itself need not flood it
        return f"no broadcast is sent by {way.name}, such as ARP", f"bridge link set dev {way.name} bcast_flood on"
    mine = view.port(link.index)
    if mine is not None and mine.isolated and port.isolated:
        text = f"{link.name} is isolated as a port of {bridge.name}, and so is {way.name}"
        return text, f"bridge link set dev {way.name} isolated off"
    if bridge.vlan_filtering and (vids := _vlans(view, link)) and not vids & _vlans(view, way):
        which = f"VLAN {min(vids)}" if len(vids) == 1 else f"any of the VLANs of {link.name}, such as {min(vids)}"
        return f"{way.name} does not carry {which}", f"bridge vlan add dev {way.name} vid {min(vids)}"
    return None


def _vlans(view: View, link: Link) -> set[int]:
    """Return the VIDs whose frames the port takes."""
    return {vlan.vid for vlan in view.vlans(link.index)} - view.vlan_states(link.index).keys()


def _own(view: View, bridge: Link) -> bool:
    """Tell whether the node itself is on the bridge: guests may reach the world by it."""
    return any(not each.address.startswith("fe80:") for each in view.addresses(bridge.index))


def _entry(view: View, bridge: Link, link: Link, mac: str) -> FdbEntry | None:
    """Return the entry for the guest's MAC, in the VLAN of its frames without a tag, else in the first one."""
    vlans = sorted(view.vlans(link.index), key=lambda vlan: not vlan.pvid) if bridge.vlan_filtering else []
    if not mac or (bridge.vlan_filtering and not vlans):
        return None
    return view.fdb_entry(bridge.index, mac, vlans[0].vid if vlans else 0)


def _drawn_off(view: View, bridge: Link, link: Link, mac: str, entry: FdbEntry | None) -> list[tuple[str, str]]:
    """Look at where frames for the guest go: to the node itself, where the bridge or one of its ports has the MAC, or firmly elsewhere."""
    if entry is not None and entry.kind == LOCAL:
        # a bridge that nobody has given a MAC has that of one of its ports
        has = [each.name for each in (*view.ports(bridge.index), bridge) if each.address == mac.lower()]
        name = has[0] if has else bridge.name
        text = f"{name} has the guest's MAC {mac}: {bridge.name} takes what is for the guest for its own"
        return [(text, f"ip link set dev {name} address ANOTHER, or correct the NIC's MAC")]
    if entry is not None and entry.kind == STATIC and entry.sticky and entry.index != link.index:
        other = view.link_at(entry.index)
        if other is not None and (marked(other) or other.holders >= 0):
            return []  # another NIC's, such as the paravirtual one's of an emulated twin
        where = other.name if other is not None else f"device {entry.index}"
        text = f"a static entry leads what is for the guest's MAC {mac} to {where}, whatever the guest sends"
        return [(text, f"bridge fdb del {mac} dev {where} master")]
    return []
