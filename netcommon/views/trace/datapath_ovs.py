"""A frame at a port of Open vSwitch: the port and its flows are shown; what the flows do with it, Open vSwitch itself tells best."""

from __future__ import annotations

from netcommon.host.api.facts import FLOW_MARK, FLOW_MARK_MASK, Link, OvsPort
from netcommon.host.api.host import View
from netcommon.operations.ovs import bond_of
from netcommon.views import format as words
from netcommon.views.trace.trail import FOREIGN, OURS
from netcommon.views.trace.walk import Walk


def port_of(view: View, name: str) -> OvsPort | None:
    """Give the port that takes what a device receives: its own, or the bond's whose member it is."""
    return view.ovs_port(name) or bond_of(view, name)


def by_open_vswitch(view: View, name: str, flow: str) -> str:
    """Give the command by which Open vSwitch follows a flow that comes in by ``name``; "" where that is no port of it."""
    port = port_of(view, name)
    real = view.ovs_switch(port.bridge) if port is not None else None
    return f"ovs-appctl ofproto/trace {real.name} {flow}" if real is not None else ""


def switch(walk: Walk, link: Link, port: OvsPort | None) -> None:
    """The port has received it. Its VLAN, how many flows it has, and the command that follows them."""
    trail, view = walk.trail, walk.view
    if port is None:
        trail.lost(link.name, f"port {link.name} of Open vSwitch", "its database has no such port")
        return
    real = view.ovs_switch(port.bridge)
    name = port.bridge if real is None else real.name
    whose = OURS if port.owner else FOREIGN
    said = words.vlan(port.tag, port.trunks) or "every VLAN"
    meets = f"port {link.name} of OVS bridge {port.bridge}"
    if port.error or port.ofport < 0:
        trail.drops(link.name, meets, f"it does not work: {port.error or 'it could not be made'}", whose)
        return
    how = f"bond {port.name}, of which it is a member" if port.members else f"number {port.ofport}"
    trail.passes(link.name, meets, f"takes it as {how}, in {said}", whose)
    mine = [flow for flow in view.flows(name) if flow.cookie & FLOW_MARK_MASK == FLOW_MARK] if port.ofport > 0 else []
    flows = [flow for flow in mine if flow.port == port.ofport]
    if flows:
        said = f"{words.several(len(flows), 'flow')} that netcommon made for the port are looked through; others of the bridge may be too"
        trail.passes(link.name, f"flows of port {port.ofport} of OVS bridge {name}, cookie {flows[0].cookie:#x}", said, OURS)
    trace = f'ovs-appctl ofproto/trace {name} "in_port={link.name if port.members else port.ofport}" {walk.packet.link.hex()}'
    trail.lost(link.name, f"flows of OVS bridge {name}", f"only Open vSwitch itself can tell what they do with it: {trace}", FOREIGN)
