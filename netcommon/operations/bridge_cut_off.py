"""Tell why a port of a Linux bridge has no network though it is there as it was made: no hook loads this."""

from __future__ import annotations

from netcommon.host.api.datapath import FORWARDING, LEARNING, LISTENING
from netcommon.host.api.facts import LOCAL, STATIC
from netcommon.operations.bridge import BridgePort, shut
from netcommon.operations.link import marked
from netcommon.operations.node_reached import node_reached
from runtime.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from netcommon.host.api.facts import FdbEntry, Link
    from netcommon.host.api.host import View
    from netcommon.operations.base import Operation

#: By the numbers of netcommon.host.api.datapath.
STATES = ("disabled", "listening", "learning", "forwarding", "blocking")


def cut_off(view: View, mac: str, operations: Iterable[Operation]) -> list[tuple[str, str]]:
    """Return why a NIC that is a port as it was made has no network all the same, and what helps. ``mac``: its guest's.

    Raises TryAgain.
    """
    found: list[tuple[str, str]] = []
    for one in operations:
        link = view.link_at(one.ifindex) if isinstance(one, BridgePort) and not one.differs(view) else None
        bridge = view.link_at(link.master) if link is not None else None
        if link is None or bridge is None:
            continue
        if not bridge.up:
            found.append(shut(bridge))
            continue
        entry = _entry(view, bridge, link, mac)
        found += [*_stopped(view, bridge, link, entry), *_isolated(view, bridge, link), *_drawn_off(view, bridge, link, mac, entry)]
    return found


def _stopped(view: View, bridge: Link, link: Link, entry: FdbEntry | None) -> list[tuple[str, str]]:
    """Look at the port's state. A device that is down or has no carrier has none, and with STP a port listens and learns at first."""
    seen = view.device_state(link.index)
    if seen is None or seen.port is None or not (link.up and seen.carrier):
        return []
    state, name = seen.port.state, link.name
    above = view.device_state(bridge.index)
    stp = above is not None and above.bridge is not None and above.bridge.stp
    if state != FORWARDING and not (stp and state in (LISTENING, LEARNING)):
        remedy = f"bridge link set dev {name} state {FORWARDING}"
        if stp:
            remedy += f", or see what {bridge.name} takes for a loop (STP)"
        return [(f"{name} is {STATES[state]} as a port of {bridge.name}, which takes none of its frames", remedy)]
    if seen.port.locked and (entry is None or entry.index != link.index):
        text = f"{name} is locked as a port of {bridge.name}, which takes frames of no MAC there that it has no entry for"
        return [(text, f"bridge link set dev {name} locked off")]
    return []


def _isolated(view: View, bridge: Link, link: Link) -> list[tuple[str, str]]:
    """Compare the port with all others: two isolated ports exchange nothing, and the node's own side of the bridge is never isolated."""
    port = view.port(link.index)
    if port is None or not port.isolated:
        return []
    others = [each for each in view.ports(bridge.index) if each.index != link.index]
    ways = [each for each in others if each.holders < 0 and not marked(each)]
    if not ways or not all((other := view.port(each.index)) is not None and other.isolated for each in others):
        return []
    if node_reached(view, bridge):
        return []
    names = " and ".join(each.name for each in ways)
    text = f"{link.name} is isolated as a port of {bridge.name}, and so is {names}, by which {bridge.name} leads on"
    return [(text, f"bridge link set dev {ways[0].name} isolated off")]


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
        there = view.link_at(entry.index)
        if not has and there is not None:
            text = f"a permanent entry of {there.name} has {bridge.name} take what is for the guest's MAC {mac} for its own"
            return [(text, f"bridge fdb del {mac} dev {there.name} master")]
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
