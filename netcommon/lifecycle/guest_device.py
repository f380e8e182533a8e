"""Decide whether a guest may still be behind a device: the one place that does, by what the kernel tells, never by today's settings.

A guest is certainly gone when its device is; what is undone of one that runs cuts it off, or leaves it on its network with no guard. So
doubt counts as a guest: what is kept for nothing is named, and goes when the device does.

The kernel never gives a device's index again by itself (dev_new_index: it counts on, in each network namespace). Only who makes a device by
netlink, or moves it between namespaces, can choose one; a tap is made by an ioctl, and a vif by Xen.
"""

from __future__ import annotations

from netcommon.operations.link import is_mark, marked
from runtime.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from netcommon.host.api.facts import Link
    from netcommon.host.api.host import View
    from runtime.record import Record

#: The device of a userspace datapath of Open vSwitch (ofproto-dpif.c: "ovs-" and its type), which is no port in its database.
DATAPATH = "ovs-netdev"

#: Kinds of devices that are no taps, and made for guests: what holds one's character device is not told with it.
CHARACTER_DEVICES = frozenset({"macvtap", "ipvtap"})

#: The address that Xen gives the host's side of a guest's device (drivers/net/xen-netback/interface.c); its kind is "".
XENS = "fe:ff:ff:ff:ff:ff"


def is_renamed(record: Record, link: Link) -> bool:
    """Tell whether the device that has the index of the record's, in its boot, is that one, though it has neither its name nor our mark.

    The mark may never have been there (the setting tap_alias, then or now; mode ext; a site's own script), or have been overwritten.
    """
    if marked(link):
        return False  # another NIC's, or of one that was taken down
    return is_guests(link) or not (link.alias or has_marked(record))


def has_marked(record: Record) -> bool:
    """Tell whether our mark is among what was made for the record."""
    return any(map(is_mark, record.operations))


def is_guests(link: Link) -> bool:
    """Tell whether a device is of a sort that guests have: a tap with a hardware address (a VPN's tun has none), or as Xen makes them."""
    if link.holders >= 0:
        return bool(link.address)
    return link.kind in CHARACTER_DEVICES or link.address == XENS or link.name.startswith("vif")


def may_have_guest(view: View, link: Link) -> bool:
    """Tell whether a guest may be behind a device, whichever: nobody need have said whose it is.

    A tap that nobody holds has none. Of what is no tap the kernel does not tell. Open vSwitch's own taps are the node's.
    """
    if link.holders == 0:
        return False
    if marked(link):
        return True
    if not is_guests(link) or link.name == DATAPATH:
        return False
    port = view.ovs_held(link.name) if link.holders > 0 else None
    return port is None or not port.internal
