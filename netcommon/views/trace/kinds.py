"""Tell by its kind what a device does with a frame that the node hands to it: not every device leads out of the node (drivers/net)."""

from __future__ import annotations

from collections.abc import Iterator

from netcommon.host.api.facts import Link
from netcommon.host.api.host import View

LOOPBACK = 1  #: the index of lo in each network namespace (LOOPBACK_IFINDEX)

#: Kinds by which a frame leaves the node as it is. "": hardware; what is tun has a program, or a guest, at its other end.
LEADING_OUT = frozenset({"", "bond", "dsa", "failover", "ipoib", "ppp", "team", "tun", "veth"})

#: Kinds that tie several devices together: a frame goes by any of them.
TYING = ("bond", "team")

SWALLOWING = {
    "dummy": "it is a dummy: what is sent by it is dropped",
    "ifb": "it is an ifb, which sends only what a filter has redirected to it: the rest is dropped",
    "nlmon": "it shows netlink's messages: what is sent by it is dropped",
}

HANDING = {
    "bridge": "the node sends it into the bridge, which is not followed further",
    "vlan": "the node sends it by the device below, which is not followed further",
    "vrf": "its way is looked up again in the table of the VRF, which is not followed",
}
OTHERS = "what it does with the frame, and by which device that goes on, is not known here"


def swallowed(link: Link) -> str:
    """Tell why nothing that is sent by the device goes anywhere; "" where it does, or may."""
    if link.index == LOOPBACK:
        return "it comes in again by lo, for the same route, until its time to live is over"
    return SWALLOWING.get(link.kind, "")


def handed(link: Link) -> str:
    """Tell what the device does with a frame that has not left the node yet; "" where it has."""
    return "" if link.kind in LEADING_OUT else HANDING.get(link.kind, OTHERS)


def beneath(view: View, link: Link) -> Iterator[Link]:
    """Yield the devices of this namespace by which frames of a bond, a team or a VLAN interface come and go."""
    below = view.link_at(link.lower) if link.kind == "vlan" and not link.foreign_lower else None
    for each in [*([below] if below is not None else []), *(view.ports(link.index) if link.kind in TYING else [])]:
        yield each
        yield from beneath(view, each)
