"""A change of a NIC that is up holds whole, or the NIC is what it was: whatever is refused, and wherever the hook is killed."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from netcommon.host.api.host import Answer
from netcommon.host.api.requests import Request
from netcommon.lifecycle.check import check, repair
from runtime.errors import HostRefused, NetcommonError, TryAgain
from runtime.nic import Nic
from runtime.record import CHANGING, UP
from tests.support.sample import sample
from tests.support.sim import Mortal, Sim, nic
from tests.unit.netcommon.lifecycle.test_up import CHANGES, pair, settled

ERRNOS = (errno.EINVAL, errno.EBUSY, errno.EPERM, errno.ENOMEM)

Picture = tuple[object, object, object]


def two(change: str) -> tuple[Nic, Nic]:
    first, second = pair(change)
    assert isinstance(first, Nic) and isinstance(second, Nic)
    return first, second


_machines: list[Sim] = []


@pytest.fixture(autouse=True)
def _closed() -> Iterator[None]:
    """The failures that a test has caught hold its machines, and so their descriptors, until they are collected."""
    yield
    while _machines:
        _machines.pop().close()


def made(folder: Path, first: Nic) -> Sim:
    sim = Sim(str(folder))
    _machines.append(sim)
    sim.up(first)
    sim.requests()
    return sim


def picture(sim: Sim) -> Picture:
    return sim.picture(), settled(sim), sim.files()


def ends(folder: Path, first: Nic, second: Nic) -> tuple[Picture, Picture, int]:
    """What the node is like before and after the change, and how many requests that takes."""
    sim = made(folder, first)
    was = picture(sim)
    sim.up(second)
    return was, picture(sim), len(sim.requests())


@pytest.mark.parametrize("number", ERRNOS, ids=errno.errorcode.get)
@pytest.mark.parametrize("change", CHANGES)
def test_each_request_refused(tmp_path: Path, change: str, number: int) -> None:
    """One refusal, of any request: as it was, or done where the refusal means that it is so already."""
    first, second = two(change)
    was, now, count = ends(tmp_path / "whole", first, second)
    for place in range(count):
        sim = made(tmp_path / str(place), first)
        with sim.failing(place, Answer(number, os.strerror(number)), times=1) as refused:
            try:
                sim.up(second)
                assert picture(sim) == now, refused
            except NetcommonError as error:
                assert isinstance(error, TryAgain) == (number in (errno.EBUSY, errno.ENOMEM))
                assert picture(sim) == was, refused
        assert sim.record().state == UP


@pytest.mark.parametrize("change", CHANGES)
def test_the_way_back_refused_too(tmp_path: Path, change: str) -> None:
    """Two refusals: the record keeps both lists if it must, the device stays up, and the next repair leads to what it was."""
    first, second = two(change)
    was, _now, count = ends(tmp_path / "whole", first, second)
    for place in sample(range(count), 3):
        probe = made(tmp_path / f"{place}-probe", first)
        with probe.failing(place, Answer(errno.EINVAL, "no"), times=1), pytest.raises(HostRefused):
            probe.up(second)
        for later in range(len(probe.requests()) - place - 1):
            sim = made(tmp_path / f"{place}-{later}", first)
            twice_refused(sim, second, place, later)
            record = sim.record()
            assert record.state in (UP, CHANGING)
            assert sim.gc() == [] or all(found.action == "kept" for found in sim.gc())
            if record.state == CHANGING:
                assert record.before is not None
                assert repair(sim.node, record.key, sim.call()).changed
            assert picture(sim) == was, (place, later)


def twice_refused(sim: Sim, second: Nic, place: int, later: int) -> None:
    """The request ``place`` is refused, and of the way back the one ``later``."""
    seen: list[Request] = []

    def fail(request: Request) -> Answer | None:
        seen.append(request)
        return Answer(errno.EINVAL, "no") if len(seen) in (place + 1, place + 2 + later) else None

    sim.host.fail = fail
    with pytest.raises(HostRefused):
        sim.up(second)
    sim.host.fail = lambda _request: None


def lives(folder: Path, first: Nic, second: Nic) -> range:
    """Every number of changes, of the host or of a file, after which the hook can be killed."""
    sim = made(folder, first)
    with Mortal(sim) as mortal:
        sim.up(second)
    assert len(mortal.steps) > 2
    return range(len(mortal.steps))


@pytest.mark.parametrize("after", ["repair", "gc and repair", "up", "up of the first", "refused up"])
@pytest.mark.parametrize("change", CHANGES)
def test_killed_anywhere(tmp_path: Path, change: str, after: str) -> None:
    """Never undone: the next repair, or up, leads to what it was, or to what it was to become."""
    first, second = two(change)
    was, now, _count = ends(tmp_path / "whole", first, second)
    for life in sample(lives(tmp_path / "lives", first, second), 5):
        sim = made(tmp_path / str(life), first)
        with Mortal(sim, life) as mortal:
            sim.up(second)
            raise AssertionError("it was not killed")
        assert len(mortal.steps) == life
        assert sim.record().state in (UP, CHANGING)
        if after == "up":
            sim.up(second)
            assert picture(sim)[:2] == now[:2], life
            continue
        if after == "up of the first":
            sim.up(first)
            assert picture(sim)[:2] == was[:2], life
            continue
        if after == "refused up":
            with sim.failing(0, Answer(errno.EINVAL, "no"), times=1):
                try:
                    sim.up(second)
                except HostRefused:
                    assert picture(sim)[:2] == was[:2], life
            continue
        if after == "gc and repair":
            assert all(found.action != "removed" or "no record" in found.why for found in sim.gc())
        repair(sim.node, sim.record().key, sim.call())
        assert sim.record().state == UP
        assert picture(sim)[:2] in (was[:2], now[:2]), life
        assert check(sim.node, sim.host.view(), sim.record()).good
        sim.down(second)
        sim.gc()
        assert (sim.picture(), sim.files()) == (sim.before, []), life


def test_a_drift_that_cannot_be_mended_takes_nothing_down(tmp_path: Path) -> None:
    """An identical up that is refused leaves the NIC up, and what held goes on holding."""
    one = nic("routed, table")
    sim = made(tmp_path, one)
    was = picture(sim)
    rule = next(rule for rule in sim.host.kernel.rules if rule.iif == "tap0")
    sim.host.kernel.rules.remove(rule)
    with sim.failing(0, Answer(errno.EPERM, "no")), pytest.raises(HostRefused):
        sim.up(one)
    assert sim.record().state == CHANGING
    assert sim.host.kernel.links[sim.record().ifindex].up
    assert repair(sim.node, sim.record().key, sim.call()).changed
    assert picture(sim) == was


def test_it_goes_with_its_device_all_the_same(tmp_path: Path) -> None:
    """One that could not be put back is undone whole when its device goes."""
    first, second = two("table")
    sim = made(tmp_path, first)
    seen: list[Request] = []

    def fail(request: Request) -> Answer | None:
        seen.append(request)
        return Answer(errno.EPERM, "no") if len(seen) > 2 else None

    sim.host.fail = fail
    with pytest.raises(HostRefused):
        sim.up(second)
    sim.host.fail = lambda _request: None
    assert sim.record().state == CHANGING
    sim.host.remove_link("tap0")
    sim.gc()
    assert sim.files() == []
