"""Find devices of which nothing on the node tells whose they are, and say which NICs they may be.

Devices bear no mark of ours where the setting tap_alias is off, and those of mode ext (netcommon.lifecycle.context.alive); nor do those of
NICs that came up before it was turned on, or that the site's own script sets up.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from netcommon.host.api.facts import AF_INET
from netcommon.lifecycle.guest_device import may_have_guest
from netcommon.operations.link import marked

if TYPE_CHECKING:
    from collections.abc import Container, Mapping

    from netcommon.host.api.facts import Link
    from netcommon.host.api.host import View
    from netcommon.lifecycle.context import Node


#: RFC 3927: a DHCP client of the node's gives one to whatever device it finds, a guest's too.
LINK_LOCAL = "169.254."


class Bare(NamedTuple):
    """A device that may have a guest, on no record and without our mark. ``bridge``: that of the kernel of which it is a port, "" for none.

    ``loose``: it is a port of nothing, and the node has no IPv4 address on it that anybody gave it: it may have been in a bridge that was
    made anew.
    """

    device: str
    bridge: str = ""
    loose: bool = False


def bears_mark(node: Node, mode: object) -> bool:
    """Tell whether the device of a NIC of a mode bears our mark on this node, if it came up by the settings of now."""
    return node.settings.tap_alias and mode != "ext"


def is_bare(view: View, link: Link) -> bool:
    """Tell whether a guest may be behind a device that says of nobody's NIC that it is its device."""
    return not marked(link) and may_have_guest(view, link)


def serves(node: Node, view: View, link: Link, mode: object) -> bool:
    """Tell whether a NIC of a mode may be up on the device on which it is known to have been, and that is on no record.

    A down leaves the device down, and without our mark, while it is held still; one that never bore a mark may be up or down. Raises
    NetcommonError.
    """
    return (link.up or not bears_mark(node, mode)) and is_bare(view, link) and node.store.by_device(link.name) is None


def bare(view: View, link: Link) -> Bare:
    """Give a bare device with its place."""
    master = view.link_at(link.master) if link.master else None
    if master is not None:
        return Bare(link.name, master.name if master.kind == "bridge" else "")
    own = any(each.family == AF_INET and not each.address.startswith(LINK_LOCAL) for each in view.addresses(link.index))
    return Bare(link.name, loose=not own and view.ovs_held(link.name) is None)


def may_have(nic: Mapping[str, Any], tap: Bare, bridges: Container[str]) -> bool:
    """Tell whether a device may be that of a NIC, as the registry has it, by where such a NIC's belongs; of mode ext nobody knows where.

    ``bridges``: of the kernel, that the node has. One that was renamed keeps its ports, and one that is made anew has none at first.
    """
    mode, link = nic.get("mode"), nic.get("link")
    if mode == "bridged":
        return tap.bridge == link or link not in bridges if tap.bridge else tap.loose
    return not tap.bridge or mode not in ("routed", "openvswitch")
