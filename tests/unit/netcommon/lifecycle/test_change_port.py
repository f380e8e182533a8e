"""Make a running NIC's port another, its VLANs too: at no step is it open to what both refuse, nor is its guest out of reach of both."""

from __future__ import annotations

import errno
import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from netcommon.host.api.host import Answer
from netcommon.host.api.requests import Request
from runtime.errors import HostRefused
from runtime.nic import Nic
from tests.support.sample import sample
from tests.support.sim import BASE, Sim, nic

MAC = BASE["MAC"]
VLANS = ("", ".10", ".20", ":10:20", ".10:20", ":20:30")
PORTS = ("", "isolated", "static_fdb", "mcast_flood:no", "isolated static_fdb", "allow_mcast_router mcast_flood:no isolated")

#: What may be: the VLAN and what of it.
Open = frozenset[tuple[int, str]]


def settings(vlan: str, options: str) -> Nic:
    tags = " ".join(f"netcommon:0:{option}" for option in f"{options} allow_mac_spoofing".split())
    return nic("bridged", LINK="brv", VLAN=vlan, TAGS=tags)


ALL = [settings(vlan, options) for vlan in VLANS for options in PORTS]


def name(one: Nic) -> str:
    return f"{one.environment.get('VLAN')} {one.tags}"


class Watched:
    """A node, and what its guest could send and get in every state that its port has been in while its device was up."""

    def __init__(self, folder: Path) -> None:
        self.sim = Sim(str(folder))
        self.open: set[tuple[int, str]] = set()
        self.out_of_reach: set[int] = set()

    def now(self) -> Open:
        """Give what bridge(8) says that a port so set lets pass."""
        kernel = self.sim.host.kernel
        index = self.sim.index("tap0")
        port, link = kernel.bridge_ports.port(index), kernel.links[index]
        if port is None or not link.up:
            return frozenset()
        may = {
            "to guests that are isolated": not port.isolated,
            "a forged MAC is learnt": port.learning,
            "unknown from all": port.flood,
            "unknown from guests that are isolated": port.flood and not port.isolated,
            "multicast from all": port.mcast_flood,
            "multicast from guests that are isolated": port.mcast_flood and not port.isolated,
            "multicast for a router": port.mcast_router,
        }
        return frozenset((vid, what) for vid in kernel.vlans.get(index, {}) for what, is_so in may.items() if is_so)

    def unreached(self) -> set[int]:
        """Give the VLANs in which a frame for the guest's MAC does not get to it though its device is up."""
        sim = self.sim
        kernel, index = sim.host.kernel, sim.index("tap0")
        port = kernel.bridge_ports.port(index)
        if port is None or not kernel.links[index].up:
            return set()
        view, bridge = sim.host.view(), sim.index("brv")
        vids = [vid for vid in kernel.vlans.get(index, {}) if not port.flood]
        return {vid for vid in vids if (entry := view.fdb_entry(bridge, MAC, vid)) is None or entry.index != index}

    @contextmanager
    def watching(self, refused: int = 0) -> Iterator[None]:
        """Look at it before each request; refuse the one with that number, from 1."""
        self.open, self.out_of_reach, self.requests = set(), set(), 0

        def look(_request: Request) -> Answer | None:
            self.open |= self.now()
            self.out_of_reach |= self.unreached()
            self.requests += 1
            return Answer(errno.EPERM, "Operation not permitted") if self.requests == refused else None

        self.sim.host.fail = look
        try:
            yield
        finally:
            self.sim.host.fail = lambda _request: None
            self.open |= self.now()
            self.out_of_reach |= self.unreached()


PAIRS = list(itertools.permutations(ALL, 2))


def test_every_way(tmp_path: Path) -> None:
    place = Watched(tmp_path)
    wrong, lost = {}, {}
    for before, after in sample(PAIRS, 120):
        place.sim.up(before)
        allowed, in_reach = place.now(), {vid for vid, _what in place.now()}
        with place.watching():
            place.sim.up(after)
        in_reach &= {vid for vid, _what in place.now()}
        assert place.unreached() == set()
        if more := place.open - allowed - place.now():
            wrong[name(before), name(after)] = sorted(more)
        if gone := place.out_of_reach & in_reach:
            lost[name(before), name(after)] = sorted(gone)
    assert (wrong, lost) == ({}, {})


def test_every_way_back(tmp_path: Path) -> None:
    place = Watched(tmp_path)
    wrong, lost = {}, {}
    for before, after in sample(PAIRS, 24, 250):
        place.sim.up(before)
        allowed = place.now()
        with place.watching():
            place.sim.up(after)
        also = place.now()
        in_both = {vid for vid, _what in allowed} & {vid for vid, _what in also}
        for number in range(1, place.requests + 1):
            place.sim.up(before)
            with place.watching(number), pytest.raises(HostRefused):
                place.sim.up(after)
            assert (place.now(), place.unreached()) == (allowed, set())
            if more := place.open - allowed - also:
                wrong[name(before), name(after), number] = sorted(more)
            if gone := place.out_of_reach & in_both:
                lost[name(before), name(after), number] = sorted(gone)
    assert (wrong, lost) == ({}, {})
