"""Compare the kernel's neighbour tables with what the guests of this node may fill them with."""

from __future__ import annotations

from collections.abc import Iterator

from netcommon.addresses import Addresses, addresses_of
from netcommon.doctor.finding import Finding, Patient
from netcommon.host.facts import AF_INET, AF_INET6
from netcommon.options import options_of
from runtime.errors import NicInvalid

#: A table for each family, for all network namespaces of the kernel: its name in /proc/sys/net and in messages.
TABLES = {AF_INET: "ipv4", AF_INET6: "ipv6"}

#: One NIC's entries at most, in terms of ``new_sources``: as many at once, and those of the two minutes that an unused entry may
#: last (gc_stale_time, and the kernel's next look at the table; neigh_periodic_work() in net/core/neighbour.c).
MINUTES = 3


def check(patient: Patient) -> Iterator[Finding]:
    """Yield one finding for each family that has a table (gc_thresh3 is its size, arp(7))."""
    own, new = {AF_INET: 0, AF_INET6: 0}, []
    for record in patient.records:
        try:
            options = options_of(record.nic, patient.settings)
            known = addresses_of(record.nic, options)
        except NicInvalid:  # the next up says so
            continue
        if record.nic.mode == "routed":
            for family in own:
                own[family] += _entries(known, family)
        if options.spoof_guard and options.new_sources:
            new.append(options.new_sources)
    for family, name in TABLES.items():
        size = patient.view.sysctl(f"net/{name}/neigh/default/gc_thresh3")
        if size and size.isascii() and size.isdecimal():
            yield _finding(name, int(size), own[family], sorted(new, reverse=True))


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
        return Finding("ok", "neighbours", f"{setting} is {size}: enough for all guests, whatever addresses they use")
    text = f"{setting} is {size}: beside {own} {entries} of routed guests it has room for {guests} of {len(new)} NICs"
    return Finding("info", "neighbours", f"{text} that use new addresses as fast as new_sources lets them", _remedy(name, wanted))


def _remedy(name: str, wanted: int) -> str:
    place = f"net.{name}.neigh.default.gc_thresh"
    return f"sysctl -w {place}3={wanted} {place}2={wanted // 2}, and the same in /etc/sysctl.d; or a lower new_sources"
