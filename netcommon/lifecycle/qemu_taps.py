"""Which tap is which NIC's, in a running QEMU of Ganeti: from its command line, its descriptors and the kernel, without guessing.

Ganeti 3.0 and 3.1 write down a tap's name by the NIC's index alone, and indices shift: after two removals and an addition on a guest
with three NICs, one of the files names another NIC's tap, and one tap is in none. What holds is the process itself: ``-netdev
tap,id=ID,fd=N`` on its command line and "iff:" in /proc/PID/fdinfo/N (Documentation/networking/tuntap.rst). A hot-plugged NIC is not on
the command line, and its descriptor may have the number of one that was unplugged; a tap that was made later has a higher interface
index, which tells them apart.
"""

from __future__ import annotations

import os
from itertools import pairwise

from netcommon.operations.table import table_number
from netcommon.options.addresses import addresses_of
from netcommon.options.model import DEFAULTS
from runtime.errors import HostRefused
from runtime.typed import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from netcommon.host.api.facts import Link
    from netcommon.host.api.host import View
    from runtime.nic import Nic


class Netdev(NamedTuple):
    """A tap on QEMU's command line: its id, the MAC of the device in front of it, and its descriptors (one for each queue)."""

    id: str
    mac: str
    descriptors: tuple[int, ...]


class Qemu(NamedTuple):
    """A running QEMU: its taps on the command line, in order, and those it holds now."""

    pid: int
    netdevs: tuple[Netdev, ...]
    taps: Mapping[int, str]  #: descriptor -> tap


class Asked(NamedTuple):
    """A NIC whose tap is wanted: ``nic`` without one, and QEMU's id of its device ("" in old runtime files)."""

    nic: Nic
    device_id: str = ""


class Match(NamedTuple):
    """The tap found for a NIC; "" and the reason where there is none for certain."""

    tap: str
    why: str


class NotRunning(HostRefused):
    """The instance has no process."""


def read_qemu(proc: str, pid: int, instance: str) -> Qemu:
    """The QEMU of ``instance``.

    Raises NotRunning where ``pid`` is gone; HostRefused, with the reason, where it is something else or must not be looked into.
    """
    folder = f"{proc}/{pid}"
    try:
        with open(f"{folder}/cmdline", "rb") as file:
            words = os.fsdecode(file.read()).split("\0")
        if os.stat(f"{folder}/ns/net").st_ino != os.stat(f"{proc}/self/ns/net").st_ino:
            raise HostRefused(f"process {pid} is in another network namespace")
        taps = _taps(f"{folder}/fdinfo")
    except FileNotFoundError:
        raise NotRunning(f"process {pid} is gone") from None
    except OSError as error:
        raise HostRefused(f"process {pid} cannot be looked into: {error.strerror}") from None
    if _after(words, "-name").partition(",")[0].removeprefix("guest=") != instance:
        raise HostRefused(f"process {pid} is not the QEMU of {instance}")
    return Qemu(pid, tuple(_netdevs(words)), taps)


def _after(words: Sequence[str], option: str) -> str:
    return next((value for name, value in pairwise(words) if name == option), "")


def _taps(folder: str) -> dict[int, str]:
    found = {}
    for name in os.listdir(folder):
        try:
            with open(f"{folder}/{name}", encoding="utf-8", errors="surrogateescape") as file:
                lines = file.read().split("\n")
        except FileNotFoundError:
            continue  # closed since we looked
        tap = next((line[4:].strip() for line in lines if line.startswith("iff:")), "")
        if tap and name.isdigit():
            found[int(name)] = tap
    return found


def _netdevs(words: Sequence[str]) -> Iterable[Netdev]:
    pairs = list(pairwise(words))
    devices = [_options(value) for name, value in pairs if name == "-device"]
    macs = {device["netdev"]: device.get("mac", "").lower() for device in devices if device.get("netdev")}
    for name, value in pairs:
        options = _options(value) if name == "-netdev" else {}
        numbers = (options.get("fds") or options.get("fd", "")).split(":")
        if "tap" in (options.get("type"), options.get("")) and options.get("id") and all(map(str.isdecimal, numbers)):
            yield Netdev(options["id"], macs.get(options["id"], ""), tuple(map(int, numbers)))


def _options(value: str) -> dict[str, str]:
    """QEMU's ``a,b=c``: the first word without a name is under ""."""
    found: dict[str, str] = {}
    for part in value.split(","):
        name, equals, text = part.partition("=")
        found.setdefault(name if equals else "", text if equals else name)
    return found


def match(view: View, qemu: Qemu, asked: Sequence[Asked], files: Mapping[str, str]) -> list[Match]:
    """The tap of each NIC, in order. ``asked`` must be all NICs of this QEMU; ``files``: Ganeti's nic/ files, index or UUID -> tap."""
    links = {tap: link for tap in sorted(set(qemu.taps.values())) if (link := view.link(tap)) is not None}
    found: list[Match | None] = [_started(view, qemu, one, links) for one in asked]
    taken = [one.tap for one in found if one and one.tap]
    found = [one if one is None or taken.count(one.tap) < 2 else Match("", f"several NICs seem to have {one.tap}") for one in found]
    left = {tap: link for tap, link in links.items() if tap not in taken}
    places: list[set[str]] = []
    for one, nic in zip(found, asked, strict=True):
        places.append(set() if one else {tap for tap, link in left.items() if in_place(view, nic.nic, link)})
    result = []
    for position, (one, nic) in enumerate(zip(found, asked, strict=True)):
        others = places[:position] + places[position + 1 :]
        result.append(one or _by_files(nic.nic, places[position], set().union(*others), left, files))
    return result


def _started(view: View, qemu: Qemu, asked: Asked, links: Mapping[str, Link]) -> Match | None:
    """The tap that QEMU got for this NIC when it started; None where the NIC was plugged in since, or may have been."""
    mine = [one for one in qemu.netdevs if one.mac == asked.nic.mac and asked.device_id in ("", one.id)]
    if len(mine) != 1 or not asked.nic.mac:
        return None
    taps = {qemu.taps.get(descriptor, "") for descriptor in mine[0].descriptors}
    tap = taps.pop()
    if taps or tap not in links or _reused(qemu, mine[0], tap, links):
        return None
    wrong = _misplaced(view, asked.nic, links[tap])
    return Match("", f"{tap} {wrong}") if wrong else Match(tap, f"descriptor {mine[0].descriptors[0]} of process {qemu.pid}")


def _reused(qemu: Qemu, netdev: Netdev, tap: str, links: Mapping[str, Link]) -> bool:
    """Whether the descriptor may be another tap's by now: one that was made after the start of a later device, or after a hotplug."""
    started = {descriptor for one in qemu.netdevs for descriptor in one.descriptors}
    after = qemu.netdevs[qemu.netdevs.index(netdev) + 1 :]
    later = {name for one in after for name in (qemu.taps.get(descriptor, "") for descriptor in one.descriptors)}
    later |= {name for descriptor, name in qemu.taps.items() if descriptor not in started}
    return any(links[name].index < links[tap].index for name in later - {tap} if name in links)


def in_place(view: View, nic: Nic, link: Link) -> bool:
    """Whether the kernel or Open vSwitch has the tap where the NIC's description says."""
    if nic.mode == "bridged":
        bridge = view.link(nic.link)
        return bridge is not None and link.master == bridge.index
    if nic.mode == "openvswitch":
        port = view.ovs_port(link.name)
        return port is not None and port.bridge == nic.link
    if nic.mode == "routed":
        found = addresses_of(nic, DEFAULTS)  # what IP says: Ganeti's script knows no options
        try:
            table = table_number(view, nic.link, [])
        except HostRefused:
            return False
        return any(
            route.index == link.index and route.destination in found.destinations(family)
            for family in found.families
            for route in view.routes_of(family, 0, 0, link.index, table)
        )
    return False  # only the site's script knows


def _misplaced(view: View, nic: Nic, link: Link) -> str:
    """What the tap is that the NIC's tap cannot be, in words; "" also where it is nothing at all yet."""
    master = view.link_at(link.master) if link.master else None
    if nic.mode == "openvswitch":
        port = view.ovs_port(link.name)
        return f"is a port of {port.bridge}, not of {nic.link}" if port and port.bridge != nic.link else ""
    if master is None or nic.mode == "ext" or (nic.mode == "bridged" and master.name == nic.link):
        return ""
    return f"is a port of {master.name}, not " + (f"of {nic.link}" if nic.mode == "bridged" else "routed")


def _by_files(nic: Nic, places: set[str], others: set[str], left: Mapping[str, Link], files: Mapping[str, str]) -> Match:
    """The tap that Ganeti's files name for a NIC plugged in since the start, if nothing else that QEMU holds could be it."""
    named = files.get(nic.uuid, "")
    if named and named in places and [tap for name, tap in files.items() if not name.isdigit()].count(named) == 1:
        return Match(named, f"Ganeti's file nic/{nic.instance}/{nic.uuid}")
    if not places:
        held = ", ".join(left) or "no other tap"
        return Match("", f"plugged in after the start, and none of its QEMU's taps ({held}) is where the NIC belongs")
    if len(places) > 1 or places & others:
        return Match("", f"plugged in after the start, and several NICs and taps ({', '.join(sorted(places))}) could belong together")
    (tap,) = places
    if tap not in files.values():
        return Match("", f"plugged in after the start, and no file of Ganeti's names {tap}")
    return Match(tap, f"the one tap left that is where the NIC belongs, and in Ganeti's nic/{nic.instance}/")
