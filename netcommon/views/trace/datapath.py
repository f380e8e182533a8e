"""A frame walked through the node from the device that receives it, in the order in which the kernel meets things (Linux 6.x).

__netif_receive_skb_core(): traffic control's ingress, then nftables' netdev ingress, then whose port the device is; from there on
netcommon.views.trace.datapath_bridge, datapath_route or datapath_ovs.
"""

from __future__ import annotations

from netcommon.host.api.facts import Link
from netcommon.views.trace.datapath_bridge import bridge
from netcommon.views.trace.datapath_ovs import switch
from netcommon.views.trace.datapath_route import receive
from netcommon.views.trace.walk import Walk


def enter(walk: Walk, link: Link) -> None:
    """The device receives the frame: of a tap, its guest has sent it."""
    trail, view = walk.trail, walk.view
    if not link.up:
        trail.drops(link.name, f"device {link.name}", f"it is switched off (ip link set dev {link.name} up)")
        return
    trail.passes(link.name, f"device {link.name}", "it receives the frame")
    for found in view.filters(link.index):
        if not found.egress:
            walk.filter(link, found.preference, found.rate)
    if not walk.hooks.device(link, walk.packet):
        return
    port = view.ovs_port(link.name)
    if port is not None or link.port_kind == "openvswitch":
        switch(walk, link, port)
        return
    master = view.link_at(link.master) if link.master else None
    if master is None:
        receive(walk, link)
    elif master.kind == "bridge":
        bridge(walk, link, master)
    else:
        trail.lost(link.name, f"{master.kind or 'device'} {master.name}", "what it does with a frame is not known here")
