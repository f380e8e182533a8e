"""Find taps of which nothing on the node tells whose they are, and say which NICs they may be: of those whose devices bear no mark.

That are all where the setting tap_alias is off, and else those of mode ext (netcommon.lifecycle.context.alive).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from netcommon.operations.link import marked

if TYPE_CHECKING:
    from collections.abc import Mapping

    from netcommon.host.api.facts import Link
    from netcommon.host.api.host import View
    from netcommon.lifecycle.context import Node


#: The device of a userspace datapath of Open vSwitch (ofproto-dpif.c: "ovs-" and its type), which is no port in its database.
DATAPATH = "ovs-netdev"


class Bare(NamedTuple):
    """A tap in use, on no record and without our mark. ``bridge``: that of the kernel of which it is a port, "" for none.

    ``ext``: it may be of a NIC of mode ext alone.
    """

    device: str
    bridge: str = ""
    ext: bool = False


def bears_mark(node: Node, mode: object) -> bool:
    """Tell whether the device of a NIC of a mode bears our mark on this node."""
    return node.settings.tap_alias and mode != "ext"


def is_bare(view: View, link: Link) -> bool:
    """Tell whether a tap is in use, says of nobody's NIC that it is its device, and may be a guest's.

    What has no hardware address carries no frames (a VPN's tun); an internal port of Open vSwitch's userspace datapath is the node's own.
    """
    if link.holders < 1 or marked(link) or not link.address or link.name == DATAPATH:
        return False
    port = view.ovs_held(link.name)
    return port is None or not port.internal


def bare(node: Node, view: View, link: Link) -> Bare:
    """Give a bare tap with its place."""
    master = view.link_at(link.master) if link.master else None
    bridge = master.name if master is not None and master.kind == "bridge" else ""
    return Bare(link.name, bridge, ext=node.settings.tap_alias)


def may_have(nic: Mapping[str, Any], tap: Bare) -> bool:
    """Tell whether a tap may be that of a NIC, as the registry has it, by where such a NIC's belongs; of mode ext nobody knows where."""
    if tap.ext and nic.get("mode") != "ext":
        return False
    if nic.get("mode") == "bridged":
        return bool(tap.bridge == nic.get("link"))
    return not tap.bridge or nic.get("mode") not in ("routed", "openvswitch")
