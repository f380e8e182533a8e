"""Take a frame in at a device, before anything knows whose port it is (__netif_receive_skb_core())."""

from __future__ import annotations

from netcommon.host.api.facts import Link
from netcommon.views.trace.beside import goes_on
from netcommon.views.trace.kinds import beneath
from netcommon.views.trace.packet import TO_OTHERS
from netcommon.views.trace.walk import Walk

ETHERNET, TAG = 14, 4  #: bytes of headers that do not count for an MTU


def ingress(walk: Walk, link: Link) -> bool:
    """Meet what sees frames there, then devices that lie upon it; tell whether it goes on."""
    return _seen(walk, link) and goes_on(walk, link)


def ingress_below(walk: Walk, link: Link) -> None:
    """Meet what sees frames at the devices by which those of a bond, a team or a VLAN interface come: it may be any of them."""
    for each in beneath(walk.view, link):
        _seen(walk, each)


def _seen(walk: Walk, link: Link) -> bool:
    """Meet programs of XDP and TCX, filters, then nftables' ingress; tell whether it goes on."""
    trail, view, packet = walk.trail, walk.view, walk.packet
    if walk.device(link).xdp:
        trail.doubt(link.name, f"XDP program of {link.name}", "what it does is not known here: bpftool net")
    walk.programs(link)
    for found in view.filters(link.index):
        if not found.egress:
            walk.filter(link, found.preference, found.rate)
    return walk.hooks.device(link, packet)


def fits(walk: Walk, link: Link) -> bool:
    """Tell whether a frame is short enough to be handed on by a device that does not cut it (is_skb_forwardable())."""
    return walk.packet.body <= link.mtu + ETHERNET + TAG


def taken(walk: Walk, link: Link) -> bool:
    """Tell whether the node's own stack takes what ``link`` hands up: for a MAC that is its own, or a group's, and without a VLAN tag."""
    packet, trail = walk.packet, walk.trail
    if walk.tag[1]:
        trail.drops(link.name, f"device {link.name}", f"nothing on the node is in VLAN {walk.tag[1]} of it")
        return False
    if walk.aim == TO_OTHERS:
        why = f"{packet.target_mac} is not the device's MAC ({link.address}): the stack does not take it"
        trail.drops(link.name, f"device {link.name}", why)
        return False
    return True
