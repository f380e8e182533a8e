"""A frame walked through the node from the device that receives it, in the order in which the kernel meets things (Linux 6.x).

__netif_receive_skb_core(): traffic control's ingress, then nftables' netdev ingress, then whose port the device is; from there on
netcommon.views.walk_bridge or walk_route.
"""

from __future__ import annotations

from collections.abc import Mapping

from netcommon.host.base import View
from netcommon.host.encode_tc import HANDLE, PREFERENCE
from netcommon.host.facts import Link
from netcommon.views import words
from netcommon.views.netfilter import Hooks
from netcommon.views.packet import Packet
from netcommon.views.path import FOREIGN, OURS, Trail
from netcommon.views.segments import is_guests


class Walk:
    """One frame on its way. ``names``: devices of NICs on record, and whose they are."""

    def __init__(self, view: View, packet: Packet, names: Mapping[str, str]) -> None:
        self.view, self.packet, self.names = view, packet, names
        self.trail = Trail()
        self.hooks = Hooks(view, self.trail)

    def enter(self, link: Link) -> None:
        """The device receives the frame: of a tap, its guest has sent it."""
        trail, view = self.trail, self.view
        if not link.up:
            trail.drops(link.name, f"device {link.name}", f"it is switched off (ip link set dev {link.name} up)")
            return
        trail.passes(link.name, f"device {link.name}", "it receives the frame")
        for found in view.filters(link.index):
            if not found.egress:
                self._filter(link, found.preference, found.rate)
        if not self.hooks.device(link, self.packet):
            return
        port = view.ovs_port(link.name)
        if port is not None or link.port_kind == "openvswitch":
            from netcommon.views.walk_ovs import switch

            switch(self, link, port)
            return
        master = view.link_at(link.master) if link.master else None
        if master is None:
            from netcommon.views.walk_route import receive

            receive(self, link)
        elif master.kind == "bridge":
            from netcommon.views.walk_bridge import bridge

            bridge(self, link, master)
        else:
            trail.lost(link.name, f"{master.kind or 'device'} {master.name}", "what it does with a frame is not known here")

    def _filter(self, link: Link, preference: int, rate: int) -> None:
        meets = f"tc filter of {link.name}, ingress, preference {preference}"
        whose = OURS if preference == PREFERENCE else FOREIGN
        if rate:
            self.trail.passes(link.name, meets, f"passes up to {words.rate(rate)}, drops what is more", whose)
        else:
            self.trail.doubt(link.name, meets, "what it does is not known here: tc -s filter show dev it ingress", whose)

    def leave(self, link: Link, how: str = "") -> None:
        """The node hands the frame to a device: of a tap, its guest receives it."""
        trail, view = self.trail, self.view
        if not link.up:
            trail.drops(link.name, f"device {link.name}", "it is switched off")
            return
        for found in view.filters(link.index):
            if found.egress:
                meets = f"tc filter of {link.name}, egress, preference {found.preference}"
                trail.doubt(link.name, meets, "what it does is not known here: tc -s filter show dev it egress")
        if not self.hooks.device(link, self.packet, egress=True):
            return
        queue = view.root_qdisc(link.index)
        if queue is not None:
            whose = OURS if queue.handle == HANDLE else FOREIGN
            does = f"sends at most {words.rate(queue.rate)}; what is more waits, then is dropped" if queue.rate else "queues it"
            trail.passes(link.name, f"qdisc {queue.kind} {queue.handle >> 16:x}: of {link.name}", does, whose)
        end = self.end(link)
        trail.arrives(link.name, f"device {link.name}", f"sends it{how}: {end}", end + how)

    def end(self, link: Link) -> str:
        """Who is behind a device."""
        name = self.names.get(link.name, "")
        if name:
            return f"{name} receives it, by {link.name}"
        return f"the guest of {link.name} receives it" if is_guests(link) else f"it leaves the node by {link.name}"
