"""Tell which devices upon a device take its frame before a bridge or the node's stack does (vlan_do_receive(), rx_handler)."""

from __future__ import annotations

from collections.abc import Sequence

from netcommon.host.api.datapath import BY_SOURCE, PASSTHRU, Upper
from netcommon.host.api.facts import Link
from netcommon.views.trace.packet import BROADCAST
from netcommon.views.trace.trail import FOREIGN, KERNEL
from netcommon.views.trace.walk import Walk

MACVLANS = ("macvlan", "macvtap")


def goes_on(walk: Walk, link: Link) -> bool:
    """Tell whether the frame goes on at ``link`` itself; say what takes it, or a copy of it, or may do so."""
    uppers = walk.view.uppers(link.index)
    tag = walk.packet.tag
    priority = (int.from_bytes(tag[:2], "big"), 0) if tag and not walk.packet.vid else walk.tag
    for each in uppers:
        if each.kind == "vlan" and (each.protocol, each.vid) in (walk.tag, priority):
            walk.trail.lost(link.name, f"VLAN interface {_named(each)}", "the frame goes on there, which is not followed", KERNEL)
            return False
    if link.master:  # then none of the rest can be there: a bridge takes all that its port receives
        return True
    return all(_passed(walk, link, each) for each in uppers if each.kind != "vlan") and _known(walk, link, uppers)


def _passed(walk: Walk, link: Link, upper: Upper) -> bool:
    packet, trail, meets = walk.packet, walk.trail, f"{upper.kind} {_named(upper)}"
    if upper.kind not in MACVLANS:
        if upper.up:
            trail.doubt(link.name, meets, "it takes what is for its addresses, or is of its protocol, which is not looked at", FOREIGN)
        return True
    if upper.mode == PASSTHRU or (upper.up and upper.address == packet.target_mac and upper.mode != BY_SOURCE):
        trail.lost(link.name, meets, "the frame goes on there, which is not followed", KERNEL)
        return False
    if upper.up and (packet.to_group or upper.mode == BY_SOURCE):
        trail.doubt(link.name, meets, "it gets a copy if it listens to that group or source: where that goes is not followed", KERNEL)
    return True


def _known(walk: Walk, link: Link, uppers: Sequence[Upper]) -> bool:
    """Tell whether nobody else has had the device take frames for the target: as a macvlan does in a namespace that has no id here."""
    packet = walk.packet
    others = walk.view.addresses_taken(link.index) - {each.address for each in uppers} - {link.address}
    meets = f"addresses of {link.name}"
    if packet.target_mac in others:
        does = f"somebody has it take frames for {packet.target_mac}, as a macvlan in another network namespace does, which may get it"
        walk.trail.lost(link.name, meets, does)
        return False
    if others and packet.to_group:
        kind = "broadcast" if packet.target_mac == BROADCAST else "multicast"
        does = f"it takes frames for others, as macvlans in other network namespaces do, which may get a copy of a {kind}"
        walk.trail.doubt(link.name, meets, does)
    return True


def _named(upper: Upper) -> str:
    return f"{upper.name} in another network namespace" if upper.elsewhere else upper.name
