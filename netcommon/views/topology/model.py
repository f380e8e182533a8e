"""What tree and graph show: a node, its segments (bridges, tables), and the NICs on each. Plain values; a renderer needs nothing else."""

from __future__ import annotations

from typing import NamedTuple

#: Kinds of segments.
BRIDGE, OPENVSWITCH, TABLE, EXT = "bridge", "openvswitch", "table", "ext"
KINDS = (BRIDGE, OPENVSWITCH, TABLE, EXT)

#: Conditions of a NIC: all holds; something has drifted; its device is gone; it is not up (begun, changing, closing, reverting); what can
#: be told holds, but not all can.
GOOD, DRIFTED, GONE, UNFINISHED, UNTOLD = "good", "drifted", "gone", "unfinished", "untold"
CONDITIONS = (GOOD, DRIFTED, GONE, UNFINISHED, UNTOLD)


class Drift(NamedTuple):
    """One recorded operation that does not hold."""

    does: str  #: as an administrator would type it
    differs: str  #: what is so instead


class NicView(NamedTuple):
    """One NIC on record."""

    label: str  #: "web1/0"; the device where no instance is known
    instance: str
    number: int | None  #: the NIC's index in its instance
    key: str  #: the record's
    uuid: str
    device: str
    mode: str
    link: str
    mac: str
    addresses: tuple[str, ...]  #: of the guest, and prefixes that are routed to it
    access: int | None  #: its untagged VLAN
    trunks: tuple[int, ...]  #: its tagged VLANs
    guarded: bool  #: what it sends is checked for forged addresses
    exceptions: tuple[str, ...]  #: what the guard does not check
    firewall: str  #: the profile; "": none
    isolated: bool
    rate_in: int  #: limit of what the guest receives, bits a second; 0: none
    rate_out: int  #: limit of what the guest sends
    dhcp: bool  #: a DHCP server of the node's is told of it
    state: str  #: of the record: "applying", "up", "changing", "closing", "reverting"
    condition: str  #: one of CONDITIONS
    drift: tuple[Drift, ...]
    untold: tuple[Drift, ...]  #: of what nobody can tell whether it holds, and why: a service does not answer, or only to root
    unknown: tuple[str, ...]  #: kinds of operations that this version does not know
    owed: tuple[str, ...]  #: what is done when its guest, which is still migrating in, is here
    also: tuple[str, ...]  #: labels of the other NICs of its instance
    unguarded: bool = False  #: adopted: nothing keeps its guest from forging until its next start


class Port(NamedTuple):
    """A device of a segment that is no NIC on record."""

    name: str
    kind: str  #: as ip-link(8) says; "": hardware
    up: bool
    vlans: tuple[int, ...] = ()  #: those it carries, where its bridge is VLAN-aware


class Segment(NamedTuple):
    """What joins NICs: a Linux bridge, an Open vSwitch bridge, a routing table; or what a site's own script makes (ext)."""

    kind: str  #: one of KINDS
    name: str
    there: bool  #: it is on this host
    up: bool
    mtu: int  #: 0: it has none
    aware: bool  #: a bridge that knows VLANs
    number: int  #: of a table; 0 else
    uplinks: tuple[Port, ...]
    others: tuple[Port, ...]  #: its other ports: guests that nobody has on record, containers
    nics: tuple[NicView, ...]


class NodeView(NamedTuple):
    """A node at one moment."""

    name: str
    segments: tuple[Segment, ...]
    problems: tuple[str, ...]  #: records that could not be read, questions that were not answered

    @property
    def nics(self) -> tuple[NicView, ...]:
        return tuple(nic for segment in self.segments for nic in segment.nics)
