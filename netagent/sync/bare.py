"""Find taps of which nothing on the node tells whose they are, and say which NICs they may be.

Devices bear no mark of ours where the setting tap_alias is off, and those of mode ext (netcommon.lifecycle.context.alive); nor do those of
NICs that came up before it was turned on, or that the site's own script sets up.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from netcommon.host.api.facts import AF_INET
from netcommon.operations.link import marked

if TYPE_CHECKING:
    from collections.abc import Container, Mapping

    from netcommon.host.api.facts import Link
    from netcommon.host.api.host import View
    from netcommon.lifecycle.context import Node


#: The device of a userspace datapath of Open vSwitch (ofproto-dpif.c: "ovs-" and its type), which is no port in its database.
DATAPATH = "ovs-netdev"


class Bare(NamedTuple):
    """A tap in use, on no record and without our mark. ``bridge``: that of the kernel of which it is a port, "" for none.

    ``loose``: it is a port of nothing, and the node has no IPv4 address on it: it may have been in a bridge that was made anew.
    """

    device: str
    bridge: str = ""
    loose: bool = False


def bears_mark(node: Node, mode: object) -> bool:
    """Tell whether the device of a NIC of a mode bears our mark on this node, if it came up by the settings of now."""
    return node.settings.tap_alias and mode != "ext"


def is_bare(view: View, link: Link) -> bool:
    """Tell whether a tap is in use, says of nobody's NIC that it is its device, and may be a guest's.

    What has no hardware address carries no frames (a VPN's tun); an internal port of Open vSwitch's userspace datapath is the node's own.
    """
    if link.holders < 1 or marked(link) or not link.address or link.name == DATAPATH:
        return False
    port = view.ovs_held(link.name)
    return port is None or not port.internal


def bare(view: View, link: Link) -> Bare:
    """Give a bare tap with its place."""
    master = view.link_at(link.master) if link.master else None
    if master is not None:
        return Bare(link.name, master.name if master.kind == "bridge" else "")
    own = any(each.family == AF_INET for each in view.addresses(link.index))
    return Bare(link.name, loose=not own and view.ovs_held(link.name) is None)


def may_have(nic: Mapping[str, Any], tap: Bare, bridges: Container[str]) -> bool:
    """Tell whether a tap may be that of a NIC, as the registry has it, by where such a NIC's belongs; of mode ext nobody knows where.

    ``bridges``: of the kernel, that the node has. One that was renamed keeps its ports, and one that is made anew has none at first.
    """
    mode, link = nic.get("mode"), nic.get("link")
    if mode == "bridged":
        return tap.bridge == link or link not in bridges if tap.bridge else tap.loose
    return not tap.bridge or mode not in ("routed", "openvswitch")
