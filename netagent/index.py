"""The NICs on record, in memory: what the agent must know to tell at once whom an event is about. The records themselves stay on disk."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from netagent.events import ADDRESS, BASE, FLOWS, FWMARK, INDEX, INSTANCE, MAC, NAME, PORTS, SETTINGS, SWITCH, TABLE, UPLINKS, VLAN, Mark
from netcommon.host.api.nftables import ARP, BRIDGE, INET, NETDEV
from netcommon.host.nftables.profile_table import OWN
from netcommon.operations.access import place_of as access_table
from netcommon.operations.flows import cookie_of
from netcommon.operations.gateway_arp import NAME as ARP_TABLE
from netcommon.operations.guard.egress_filter import NAME as DELIVERY
from netcommon.operations.mark import name_of, shifted
from runtime.record import UP, Record

Stored = Mapping[str, Any]


class Entry(NamedTuple):
    """One record, as far as events go. ``marks``: what it is about."""

    key: str
    uuid: str
    device: str
    ifindex: int
    state: str
    instance: str
    marks: frozenset[Mark]
    label: str = ""  #: of the NIC, for people
    before: frozenset[Mark] = frozenset()  #: what it was about before the change that it is in

    @property
    def settled(self) -> bool:
        """Whether no hook has anything left to do for it."""
        return self.state == UP

    @property
    def incoming(self) -> bool:
        """Tell whether its guest is still migrating in, so that something may be owed."""
        return any(sort == INSTANCE for sort, _which in self.marks)

    @property
    def switched(self) -> bool:
        """Tell whether it is about a bridge of Open vSwitch."""
        return any(sort == SWITCH for sort, _which in self.marks)


class Nics:
    """The entries by key, and by what they are about."""

    def __init__(self) -> None:
        self._entries: dict[str, Entry] = {}
        self._about: dict[Mark, dict[str, None]] = {}  #: keys, in the order in which their records came
        self._marks: dict[Mark, Mark] = {}  #: equal marks of many records are one object

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, key: str) -> bool:
        return key in self._entries

    def get(self, key: str) -> Entry | None:
        return self._entries.get(key)

    def keys(self) -> list[str]:
        """The keys of all records."""
        return list(self._entries)

    def all(self) -> list[Entry]:
        """All entries. For any thread."""
        return list(self._entries.values())

    def put(self, entry: Entry) -> None:
        """A record is now as ``entry`` says."""
        old = self._entries.get(entry.key)
        if old is not None and old.marks == entry.marks:
            self._entries[entry.key] = entry._replace(marks=old.marks)
            return
        self._forget(entry.key, old.marks if old else ())
        marks = frozenset(self._marks.setdefault(mark, mark) for mark in entry.marks)
        self._entries[entry.key] = entry._replace(marks=marks)
        for mark in marks:
            self._about.setdefault(mark, {})[entry.key] = None

    def drop(self, key: str) -> Entry | None:
        """The record is gone from disk."""
        old = self._entries.pop(key, None)
        if old is not None:
            self._forget(key, old.marks)
        return old

    def _forget(self, key: str, marks: Iterable[Mark]) -> None:
        for mark in marks:
            keys = self._about.get(mark, {})
            keys.pop(key, None)
            if not keys:
                self._about.pop(mark, None)
                self._marks.pop(mark, None)

    def about(self, marks: Iterable[Mark]) -> Iterator[Entry]:
        """Every record that bears one of ``marks``, each once."""
        found: dict[str, None] = {}
        for mark in marks:
            found.update(self._about.get(mark, {}))
        return (self._entries[key] for key in found)

    def of_instance(self, instance: str) -> Iterator[Entry]:
        """Give the entries of an instance's NICs."""
        return (entry for entry in self.all() if entry.instance == instance)

    def switched(self) -> bool:
        """Tell whether any of them is about a bridge of Open vSwitch. For any thread."""
        return any(entry.switched for entry in self.all())

    def states(self) -> Mapping[str, int]:
        """How many records are in each state. For any thread."""
        return Counter(entry.state for entry in self.all())


def entry_of(record: Record) -> Entry:
    """The entry of a record."""
    nic, before = record.nic, frozenset() if record.before is None else frozenset(marks_of(record.before))
    marks = frozenset(marks_of(record)) | before
    return Entry(record.key, record.uuid, record.device, record.ifindex, record.state, nic.instance, marks, nic.label, before)


def marks_of(record: Record) -> set[Mark]:
    """What ``record`` is about: whatever an event may name. From its operations as they are stored, also those of unknown kinds.

    An uplink, which many share, is there by its name, and for what of it they need: not everything that happens to it is about them.
    """
    found: set[Mark] = {(INDEX, record.ifindex), (NAME, record.device)}
    if record.incoming:
        found.add((INSTANCE, record.nic.instance))
    for stored in record.operations:
        for field in ("device", "port"):
            if isinstance(name := stored.get(field), str) and name:
                found.add((NAME, name))
        found |= _of_kind(str(stored.get("kind")), stored)
    return found


def _of_kind(kind: str, stored: Stored) -> set[Mark]:
    if kind == "guard-table":
        return {(TABLE, (NETDEV, stored.get("name")))}
    if kind == "delivery-table":
        return {(TABLE, (BRIDGE, DELIVERY))}
    if kind in ("mark-table", "mark", "mark-rule"):
        number, mask = stored.get("number"), stored.get("mask")
        if type(number) is not int or type(mask) is not int or not mask:
            return set()
        if kind == "mark-rule":
            return {(FWMARK, (shifted(number, mask), mask))}
        return {(TABLE, (family, name_of(number, mask))) for family in (INET, ARP)}
    if kind == "gateway-arp-table":
        return {(TABLE, (ARP, ARP_TABLE))}
    if kind == "access-table":
        return {(TABLE, access_table(family))} if type(family := stored.get("nfproto")) is int else set()
    if kind in ("firewall", "firewall-nic"):
        return {(TABLE, (stored.get("nfproto"), stored.get("table"))), (TABLE, (INET, f"{stored.get('table')}{OWN}"))}
    if kind in ("ovs-port", "flows", "flows-end"):
        switch: set[Mark] = {(SWITCH, stored.get("switch") or stored.get("bridge"))}
        owner, device = stored.get("owner"), stored.get("device")
        if kind == "flows" and isinstance(owner, str) and isinstance(device, str):
            switch.add((FLOWS, (stored.get("switch"), cookie_of(owner, device))))
        return switch
    if kind == "bridge-port":
        # of a port that comes, or gets another MTU: the device's may be less by then than the bridge's other ports have
        return {(BASE, stored.get("bridge")), (PORTS, stored.get("master"))}
    if kind == "fdb-entry":
        return {(MAC, stored.get("mac"))}
    if kind in ("blackhole", "route", "prefix-route"):
        return {(ADDRESS, stored.get("destination"))}
    if kind == "bridge-vlans":
        return {(VLAN, (stored.get("ifindex"), 0))}
    if kind == "uplink-vlan":  # where the settings name the uplinks, they may be of kinds that no event of a bridge's ports is told of
        uplinks = stored.get("uplinks")
        named = {(NAME, name) for name in uplinks if isinstance(name, str)} if isinstance(uplinks, list | tuple) else set()
        return {(VLAN, (stored.get("ifindex"), stored.get("vid"))), (VLAN, (0, stored.get("vid"))), *named}
    if kind == "neighbour":
        return {(UPLINKS, stored.get("family"))}
    if kind == "uplink-sysctl":
        return {(UPLINKS, stored.get("family")), (SETTINGS, stored.get("ifindex"))}
    return set()
