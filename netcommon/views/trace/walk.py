"""One frame on its way through the node: what it has met, and the devices that it leaves by."""

from __future__ import annotations

from collections.abc import Mapping

from netcommon.host.api.facts import Link
from netcommon.host.api.host import View
from netcommon.host.rtnetlink.encode_tc import HANDLE, PREFERENCE
from netcommon.views import format as words
from netcommon.views.topology.segments import is_guests
from netcommon.views.trace.netfilter import Hooks
from netcommon.views.trace.packet import Packet
from netcommon.views.trace.trail import FOREIGN, OURS, Trail


class Walk:
    """One frame on its way. ``names``: devices of NICs on record, and whose they are."""

    def __init__(self, view: View, packet: Packet, names: Mapping[str, str]) -> None:
        self.view, self.packet, self.names = view, packet, names
        self.trail = Trail()
        self.hooks = Hooks(view, self.trail)

    def filter(self, link: Link, preference: int, rate: int) -> None:
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
