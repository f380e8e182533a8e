"""Compare the kernel's neighbour tables with what the guests of this node may fill them with."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from netcommon.doctor.finding import Finding, Patient
from netcommon.host.api.facts import AF_INET, AF_INET6
from netcommon.operations.guard.table import NicGuard
from netcommon.options.addresses import Addresses, addresses_of
from netcommon.options.sources import options_of
from runtime.errors import NicInvalid

#: A table for each family, for all network namespaces of the kernel: its name in /proc/sys/net and in messages.
TABLES = {AF_INET: "ipv4", AF_INET6: "ipv6"}

#: One NIC's entries at most, in terms of ``new_sources``: as many at once, those of the minute in which an address counts as known, and
#: of the two that an unused entry may last (gc_stale_time, and the kernel's next look; neigh_periodic_work() in net/core/neighbour.c).
MINUTES = 4


def check(patient: Patient) -> Iterator[Finding]:
    """Yield one finding for each family that has a table (gc_thresh3 is its size, arp(7))."""
    own, new = {AF_INET: 0, AF_INET6: 0}, []
    for record in patient.records:
        new += [limit for stored in record.operations if stored.get("kind") == NicGuard.KIND if (limit := _limit(stored))]
        if record.nic.mode != "routed":
            continue
        try:
            known = addresses_of(record.nic, options_of(record.nic, patient.settings))
        except NicInvalid:  # the next up says so
            continue
        for family in own:
            own[family] += _entries(known, family)
    for family, name in TABLES.items():
        size = patient.view.sysctl(f"net/{name}/neigh/default/gc_thresh3")
        if size and size.isascii() and size.isdecimal():
            yield _finding(name, int(size), own[family], sorted(new, reverse=True))


def _limit(stored: Mapping[str, object]) -> int:
    """Return ``new_sources`` of a stored guard, 0 where it has none: a guest without a limit may use any number."""
    limit = stored.get("new_sources")
    return limit if isinstance(limit, int) else 0


def _entries(known: Addresses, family: int) -> int:
    """Count the entries for a routed guest's own addresses: in IPv6 it has a link-local one too."""
    return len(known.hosts(family)) + (family == AF_INET6 and family in known.families)


def _finding(name: str, size: int, own: int, new: list[int]) -> Finding:
    setting, entries = f"net.{name}.neigh.default.gc_thresh3", "entry" if own == 1 else "entries"
    wanted = own + MINUTES * sum(new)
    if own > size:
        text = f"{setting} is {size}, and the routed guests' addresses alone need {own}: some are unreachable from the node"
        return Finding("warning", "neighbours", text, _remedy(name, wanted))
    room, guests = size - own, 0
    while guests < len(new) and room >= MINUTES * new[guests]:
        room -= MINUTES * new[guests]
        guests += 1
    if guests == len(new):
        return Finding("ok", "neighbours", f"{setting} is {size}: enough for every NIC that new_sources limits")
    text = f"{setting} is {size}: beside {own} {entries} of routed guests it has room for {guests} of {len(new)} NICs"
    return Finding("info", "neighbours", f"{text} that use new addresses as fast as new_sources lets them", _remedy(name, wanted))


def _remedy(name: str, wanted: int) -> str:
    place = f"net.{name}.neigh.default.gc_thresh"
    return f"sysctl -w {place}3={wanted} {place}2={wanted // 2}, and the same in /etc/sysctl.d; or a lower new_sources"
