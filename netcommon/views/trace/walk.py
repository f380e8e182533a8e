"""One frame on its way through the node: what it has met, and the devices that it leaves by."""

from __future__ import annotations

from collections.abc import Mapping

from netcommon.host.api.datapath import DeviceState, Question, Way
from netcommon.host.api.facts import AF_INET, AF_INET6, Link
from netcommon.host.api.host import View
from netcommon.host.rtnetlink.encode_tc import PREFERENCE
from netcommon.views import format as words
from netcommon.views.topology.segments import is_guests
from netcommon.views.trace.egress_queue import queued
from netcommon.views.trace.inside import asked
from netcommon.views.trace.kinds import beneath, handed, swallowed
from netcommon.views.trace.netfilter import Hooks
from netcommon.views.trace.packet import TO_GROUP, TO_OTHERS, TO_US, Packet
from netcommon.views.trace.trail import FOREIGN, GUEST, KERNEL, OURS, OUTSIDE, Arrival, Trail

NET = {AF_INET: "ipv4", AF_INET6: "ipv6"}


class Walk:
    """One frame on its way. ``names``: devices of NICs on record, and whose they are."""

    def __init__(self, view: View, packet: Packet, names: Mapping[str, str]) -> None:
        self.view, self.packet, self.names = view, packet, names
        self.trail = Trail()
        self.hooks = Hooks(view, self.trail)
        self.aim = TO_GROUP if packet.to_group else TO_OTHERS
        self.tag = packet.tag_protocol, packet.vid  #: EtherType and VID of the tag that it has by now; (0, 0): none
        self.way_in: Link | None = None  #: the device by which it has come

    def aimed(self, link: Link) -> None:
        """Note that ``link`` has taken it from the wire, or is the bridge in which it is: a frame for its MAC is for the node's stack."""
        if self.packet.target_mac == link.address:
            self.aim = TO_US

    def device(self, link: Link) -> DeviceState:
        """Tell how the device takes and hands on frames; one that has just gone: as a new one."""
        return self.view.device_state(link.index) or DeviceState()

    def way(self, family: int, target: str, source: str, iif: Link | None, tos: int = 0, whole: bool = False) -> Way:
        """Ask the kernel for the way of this frame. ``whole``: rules may look at what is in the packet too."""
        inside = asked(self.packet if whole else None, self.view.rules(family), family)
        if inside.untold:
            self.trail.doubt("node", "ip rule", inside.untold)
        upper, ports = inside.upper, inside.ports
        origin = "" if source in ("0.0.0.0", "::") else source  # noqa: S104 - it has none
        return self.view.way(Question(family, target, origin, iif.index if iif else 0, self.hooks.mark, tos, upper, *ports))

    def value(self, link: Link, family: int, name: str, all_too: bool = True) -> int:
        """Read a setting of the device as a number; with ``all_too`` that of all devices if it is higher. 0 where there is none."""
        places = (link.name, "all") if all_too else (link.name,)
        found = [self.view.sysctl(f"net/{NET[family]}/conf/{where}/{name}") or "0" for where in places]
        return max(int(each) if each.lstrip("-").isdigit() else 0 for each in found)

    def filter(self, link: Link, preference: int, rate: int) -> None:
        meets = f"tc filter of {link.name}, ingress, preference {preference}"
        whose = OURS if preference == PREFERENCE else FOREIGN
        if rate:
            self.trail.passes(link.name, meets, f"passes up to {words.rate(rate)}, drops what is more", whose)
        else:
            self.trail.doubt(link.name, meets, "what it does is not known here: tc -s filter show dev it ingress", whose)

    def programs(self, link: Link, egress: bool = False) -> None:
        """Doubt what programs of TCX at the device do."""
        found, side = self.view.programs(link.index, egress), "egress" if egress else "ingress"
        meets = f"TCX programs of {link.name}, {side}"
        if found is None:
            self.trail.doubt(link.name, meets, "the kernel does not say whether there are any: bpftool net")
        elif found:
            self.trail.doubt(link.name, meets, "what they do is not known here: bpftool net")

    def leave(self, link: Link, how: str = "") -> None:
        """The node hands the frame to a device: of a tap, its guest receives it."""
        trail, view = self.trail, self.view
        if not self.sends(link, self.packet):
            return
        swallows, hands = swallowed(link), handed(link)
        if swallows:
            trail.drops(link.name, f"device {link.name}", swallows)
            return
        if hands:
            trail.lost(link.name, f"{link.kind} {link.name}", hands, KERNEL)
            return
        other = view.link_at(link.lower) if link.kind == "veth" and link.lower and not link.foreign_lower else None
        if other is not None:
            port = view.link_at(other.master) if other.master else None
            where = f", a port of {port.name}," if port is not None else ""
            does = f"sends it{how}: its other end {other.name}{where} is on this node and receives it, which is not followed further"
            trail.lost(link.name, f"device {link.name}", does, KERNEL)
            return
        end = self.end(link)
        trail.arrives(link.name, f"device {link.name}", f"sends it{how}: {end}", end + how)
        trail.arrivals.append(self.arrival(link))

    def sends(self, link: Link, packet: Packet) -> bool:
        """Tell whether the device sends ``packet`` (__dev_queue_xmit()): its egress, then its queue; say what it meets there."""
        trail = self.trail
        if not link.up:
            trail.drops(link.name, f"device {link.name}", "it is switched off")
            return False
        if not self._seen_leaving(link, packet):
            return False
        if not self.device(link).carrier:
            trail.drops(link.name, f"device {link.name}", "it has no carrier: nothing is sent by it")
            return False
        if not queued(trail, link, self.view.root_qdisc(link.index), packet.body):
            return False
        for each in beneath(self.view, link):
            self._seen_leaving(each, packet)
            if self.view.root_qdisc(each.index) is not None:
                trail.doubt(each.name, f"qdisc of {each.name}", f"what goes by {link.name} may wait in it, or be dropped there", FOREIGN)
        return True

    def _seen_leaving(self, link: Link, packet: Packet) -> bool:
        """Meet programs of TCX, filters and nftables' egress; tell whether it goes on."""
        self.programs(link, egress=True)
        for found in self.view.filters(link.index):
            if found.egress:
                meets = f"tc filter of {link.name}, egress, preference {found.preference}"
                self.trail.doubt(link.name, meets, "what it does is not known here: tc -s filter show dev it egress")
        return self.hooks.device(link, packet, egress=True)

    def arrival(self, link: Link) -> Arrival:
        """Tell where a frame is that has left the node by the device."""
        return Arrival(link.name, GUEST if self.names.get(link.name) or is_guests(link) else OUTSIDE)

    def end(self, link: Link) -> str:
        """Who is behind a device."""
        name = self.names.get(link.name, "")
        if name:
            return f"{name} receives it, by {link.name}"
        return f"the guest of {link.name} receives it" if is_guests(link) else f"it leaves the node by {link.name}"
