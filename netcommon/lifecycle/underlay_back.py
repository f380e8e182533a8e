"""Keep a node's /64 back that the node's own network has addresses of, and for how long.

A network that is away has not given its prefix up: a link is down, a bond is made anew, DHCP is late after a boot. Whoever put the /64 up
then would take the network's router for the node itself when it is back, and what is up nothing takes away. So that is over only when the
device has had addresses of other networks alone for a while, when the registry gives another prefix, or when an administrator says so.
"""

from __future__ import annotations

from netcommon.host.api.facts import AF_INET6
from netcommon.lifecycle.underlay_overlap import overlap
from runtime import underlay_back
from runtime.errors import RecordTooNew, RecordUnreadable
from runtime.typed import TYPE_CHECKING
from runtime.underlay_back import KeptBack

if TYPE_CHECKING:
    from netcommon.host.api.host import View
    from netcommon.lifecycle.context import Node
    from netcommon.lifecycle.underlay_overlap import Overlap
    from runtime.underlay import Underlay

LASTS = 300.0  #: seconds: a device with two prefixes may get one of them minutes after the other
LINK_LOCAL = "fe80:"  #: what every device has


def in_the_way(node: Node, view: View, known: Underlay, is_up: bool) -> str:
    """Say why a node's /64 is not put up, or which network of the node it overlaps where any of it ``is_up``; "" for nothing.

    What is up stays, and what is kept back is kept in mind. Raises HostRefused where that cannot be read or written.
    """
    found = overlap(view, known, node.settings.underlay_device)
    remedy = "give that another prefix, or the underlay"
    if is_up:
        underlay_back.remove(node.paths)
        return f"{known.prefix} overlaps the node's own network: {found.device} has {found.what}: {remedy}" if found is not None else ""
    path = f"{node.paths.lib}/{underlay_back.NAME}"
    try:
        before = underlay_back.read(node.paths)
    except (RecordTooNew, RecordUnreadable) as error:
        return f"{known.prefix} is not put up: {path} does not say for which network it was kept back: {error}: remove that file"
    kept = _kept(node, view, known, found, before)
    if kept is None:
        underlay_back.remove(node.paths)
        return ""
    if kept != before:
        underlay_back.write(node.paths, kept)
    if found is not None:
        return f"{known.prefix} is not put up, since the node's own network has addresses of it: {found.device} has {found.what}: {remedy}"
    return (
        f"{known.prefix} is not put up, since the node's own network had addresses of it: {kept.device} had {kept.what}: it comes when "
        f"{kept.device} has had those of other networks alone for {LASTS / 60:.0f} minutes, or {path} is removed"
    )


def _kept(node: Node, view: View, known: Underlay, found: Overlap | None, before: KeptBack | None) -> KeptBack | None:
    """Give what is kept in mind from now on; None where the /64 is not kept back, or no longer."""
    if found is not None:
        return KeptBack(known.prefix, found.device, found.what)
    if before is None or before.prefix != known.prefix:
        return None
    if not _has_others(view, before.device):
        return before._replace(boot="", since=0.0)
    now = node.clock.now()
    if before.boot != node.identity.boot:
        return before._replace(boot=node.identity.boot, since=now)
    return before if now - before.since < LASTS else None


def _has_others(view: View, device: str) -> bool:
    """Tell whether a device is there, up, and has an address of any network."""
    link = view.link(device)
    if link is None or not link.up:
        return False
    return any(each.family == AF_INET6 and not each.address.startswith(LINK_LOCAL) for each in view.addresses(link.index))
