"""A frame walked through the node from the device that receives it, in the order in which the kernel meets things (Linux 6.x).

netcommon.views.trace.datapath_device has what every device does; from there on it is datapath_bridge, datapath_route or datapath_ovs.
"""

from __future__ import annotations

from netcommon.host.api.facts import Link
from netcommon.views.trace.datapath_bridge import bridge
from netcommon.views.trace.datapath_device import fits, ingress, ingress_below
from netcommon.views.trace.datapath_ovs import port_of, switch
from netcommon.views.trace.datapath_route import stack
from netcommon.views.trace.walk import Walk


def enter(walk: Walk, link: Link) -> None:
    """The device receives the frame: of a tap, its guest has sent it."""
    trail, view = walk.trail, walk.view
    if not link.up:
        trail.drops(link.name, f"device {link.name}", f"it is switched off (ip link set dev {link.name} up)")
        return
    if link.kind == "veth" and not fits(walk, link):
        trail.drops(link.name, f"device {link.name}", f"the frame is longer than its MTU of {link.mtu} bytes lets in")
        return
    trail.passes(link.name, f"device {link.name}", "it receives the frame")
    walk.aimed(link)
    walk.way_in = link
    ingress_below(walk, link)
    if not ingress(walk, link):
        return
    port = port_of(view, link.name)
    if port is not None or link.port_kind == "openvswitch":
        switch(walk, link, port)
        return
    master = view.link_at(link.master) if link.master else None
    if master is None:
        stack(walk, link)
    elif master.kind == "bridge":
        bridge(walk, link, master)
    else:
        trail.lost(link.name, f"{master.kind or 'device'} {master.name}", "what it does with a frame is not known here")
