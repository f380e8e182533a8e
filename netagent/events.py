"""What can happen on a node, as values. A subscription makes them from what the kernel, Open vSwitch or inotify(7) tells."""

from __future__ import annotations

from typing import Literal, NamedTuple

#: Something that a NIC's record may be about, as it is named in events: its sort, and which one. See netagent.index.marks_of.
Mark = tuple[str, object]

#: Sorts of marks: a device by index, and by name; the settings of a device (its index); a VLAN of a bridge's port (index and VID, 0 for
#: all) or, with index 0, of a VLAN interface on whichever device; the ports of a bridge (its index) that may be uplinks; a family's
#: uplinks; an address or a prefix; a table of nftables (family and name); a bridge of Open vSwitch; an instance that migrates in; a mark
#: of packets by which a policy rule selects (its bits, and which bits count); what a NIC stands on, by its name (a bridge); OpenFlow
#: flows (of which bridge, and their cookie); a MAC address that has a static forwarding entry.
INDEX, NAME, SETTINGS, VLAN, PORTS, UPLINKS = "index", "name", "settings", "vlan", "ports", "uplinks"
ADDRESS, TABLE, SWITCH, INSTANCE, FWMARK = "address", "table", "switch", "instance", "fwmark"
BASE, FLOWS, MAC = "base", "flows", "mac"


class LinkGone(NamedTuple):
    """A network device is gone from this namespace (RTM_DELLINK): for good, since the kernel gives no index twice."""

    ifindex: int


class Gone(NamedTuple):
    """Something was removed: what bears one of ``marks`` may not hold any more."""

    marks: tuple[Mark, ...]
    sort: Literal["gone"] = "gone"  #: tuples of one content are equal, and of equal events a source tells one


class Changed(NamedTuple):
    """Something was made or altered, as every up does too: what bears one of ``marks`` and is settled may not hold any more."""

    marks: tuple[Mark, ...]
    sort: Literal["changed"] = "changed"


class Came(NamedTuple):
    """Tell that what NICs stand on is there (again): what waited for it is tried at once, and what went with it was undone by nobody."""

    marks: tuple[Mark, ...]
    sort: Literal["came"] = "came"


class RecordChanged(NamedTuple):
    """The file of a record was written, moved or removed."""

    key: str


class LockClosed(NamedTuple):
    """A process has closed a file of the lock set of UUIDs: a hook has ended, or died."""

    number: int


class Overrun(NamedTuple):
    """Events were lost: everything must be looked at. ``source``: whose."""

    source: str


Event = LinkGone | Gone | Changed | Came | RecordChanged | LockClosed | Overrun
