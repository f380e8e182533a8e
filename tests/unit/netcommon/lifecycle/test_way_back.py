"""A change of a NIC that is up holds whole, or the NIC is what it was: whatever is refused, and wherever the hook is killed."""

from __future__ import annotations

import errno
import itertools
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from netcommon.host.api.facts import BridgeVlan, Link
from netcommon.host.api.host import Answer
from netcommon.host.api.requests import AddRule, DeleteRule, NftChange, PutFile, Request, SetLink
from netcommon.lifecycle import execute
from netcommon.lifecycle.check import check, repair
from netcommon.lifecycle.site_scripts import Scripts
from runtime.errors import HostRefused, Interrupted, NetcommonError, TryAgain
from runtime.nic import Nic
from runtime.owners import Owners
from runtime.record import CHANGING, CLOSING, UP
from tests.support.sample import sample
from tests.support.sim import UUIDS, Killed, Mortal, Sim, nic
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
    """Tell what the node is like before and after the change, and how many requests that takes."""
    sim = made(folder, first)
    was = picture(sim)
    sim.up(second)
    return was, picture(sim), len(sim.requests())


@pytest.mark.parametrize("change", CHANGES)
def test_told_to_end_at_each_link_of_an_owner(tmp_path: Path, change: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is an owner of what it had, and of nothing else: another NIC's down would leave that in its place."""
    first, second = two(change)
    claim, place = Owners.claim, itertools.count()
    for ended in place:
        sim = made(tmp_path / str(ended), first)
        was, left = picture(sim), iter(range(ended, -1, -1))

        def claimed(owners: Owners, key: str, record_key: str, left: Iterator[int] = left) -> None:
            claim(owners, key, record_key)
            if not next(left, 1):
                raise Interrupted("ended by signal 15")

        with monkeypatch.context() as patched:
            patched.setattr(Owners, "claim", claimed)
            try:
                sim.up(second)
                assert next(left, None) is not None, "the last of them was told to end"
                break
            except Interrupted:
                assert picture(sim) == was, ended


@pytest.mark.sampled(3)
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


@pytest.mark.sampled(2)
@pytest.mark.parametrize("after", ["repair", "gc and repair", "up", "up of the first", "refused up"])
@pytest.mark.parametrize("change", CHANGES)
def test_killed_anywhere(tmp_path: Path, change: str, after: str) -> None:
    """Never undone: the next repair, or up, leads to what it was, or to what it was to become."""
    first, second = two(change)
    was, now, _count = ends(tmp_path / "whole", first, second)
    for life in sample(lives(tmp_path / "lives", first, second), 3):
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


# -- what a hunt found


def killed_in(folder: Path, change: str) -> Iterator[tuple[int, Sim, Nic]]:
    """Machines whose change was killed, wherever that leaves it on record."""
    first, second = two(change)
    for life in sample(lives(folder / "lives", first, second), 4):
        sim = made(folder / str(life), first)
        with Mortal(sim, life):
            sim.up(second)
            raise AssertionError("it was not killed")
        if sim.record().state == CHANGING:
            yield life, sim, first


@pytest.mark.parametrize("change", ["mode", "mode back", "mode to OVS", "a VLAN", "bridge", "table"])
def test_a_guest_that_shuts_down_in_the_middle_of_a_change(tmp_path: Path, change: str) -> None:
    """It is still there: a repair brings its NIC back to what it was, closing; never into what was refused."""
    was = ends(tmp_path / "whole", *two(change))[0]
    for life, sim, first in killed_in(tmp_path, change):
        sim.shutdown(first)
        assert sim.record().closing and sim.record().state == CHANGING
        repair(sim.node, sim.record().key, sim.call())
        assert (sim.record().state, sim.picture()) == (CLOSING, was[0]), life
        sim.host.let_go("tap0")
        sim.gc()
        assert sim.records() == [], life


def test_the_guard_stays_where_the_way_back_is_barred(tmp_path: Path) -> None:
    """The old bridge has gone: the NIC stays where it is, with all that keeps the guest there to its own."""
    sim = made(tmp_path, nic("bridged", LINK="br1", TAGS="netcommon:0:spoof_guard:no"))
    second = nic("bridged, access")
    stages: list[object] = []

    def up_then_fails(self: Scripts) -> None:
        stages.append((sim.picture(), sim.host.kernel.links[sim.index("tap0")]))
        sim.host.remove_link("br1")
        raise HostRefused("the site's script failed")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Scripts, "up", up_then_fails)
        with pytest.raises(HostRefused, match="script failed"):
            sim.up(second)
    held = sim.host.kernel.links[sim.index("tap0")]
    assert sim.record().state == CHANGING and stages[0][1] == held, "nothing was done to it"  # type: ignore[index]
    assert sim.host.view().vlans(held.index) == [BridgeVlan(10, True, True)]


def test_frames_of_the_guest_meet_no_open_door_on_the_way_back(tmp_path: Path) -> None:
    """While it is in the bridge of the change, its VLANs and its guard do not go before the device is down."""
    for change in ("a VLAN", "mode back", "mode from OVS"):
        first, second = two(change)
        sim = made(tmp_path / change, first)

        def fails(self: Scripts) -> None:
            sim.requests()  # noqa: B023 - called at once
            raise HostRefused("the site's script failed")

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Scripts, "up", fails)
            with pytest.raises(HostRefused):
                sim.up(second)
        done = [request for request in sim.requests() if not isinstance(request, PutFile)]
        assert isinstance(done[0], SetLink) and done[0].up is False, (change, done[:3])


def test_a_nic_that_moves_between_tables_is_up_in_neither_with_the_guard_of_the_other(tmp_path: Path) -> None:
    """The rule of the table that it leaves goes while the device is down: by it, the guest would send what only the other table lets it."""
    guarded, free = nic("routed, table"), nic("routed", TAGS="netcommon:0:spoof_guard:no")
    for first, second in ((guarded, free), (free, guarded)):
        sim = made(tmp_path / first.link / "there", first)
        sim.up(second)
        done = [request for request in sim.requests() if isinstance(request, SetLink | AddRule | DeleteRule)]
        ups = [place for place, one in enumerate(done) if isinstance(one, SetLink) and one.up]
        rules = [place for place, one in enumerate(done) if not isinstance(one, SetLink)]
        assert isinstance(done[0], SetLink) and done[0].up is False and len(ups) == 1 and max(rules) < ups[0], done
        assert sim.host.kernel.links[sim.index("tap0")].up


def test_what_the_guest_is_kept_by_stays_where_the_way_back_cannot_put_back_the_rest(tmp_path: Path) -> None:
    """nftables takes nothing more: the guard of before cannot come again, and what the change has made beside it does not go."""
    guarded, isolated = nic("bridged"), nic("bridged", TAGS="netcommon:0:spoof_guard:no netcommon:0:isolated")
    bare = 0
    for first in range(1, 5):
        sim = made(tmp_path / str(first), guarded)
        wanted = execute.decode(sim.record())[0]
        changes: list[Request] = []

        def fail(request: Request, first: int = first, changes: list[Request] = changes) -> Answer | None:
            changes += [request] if isinstance(request, NftChange) else []
            return Answer(errno.ENOMEM, "Cannot allocate memory") if isinstance(request, NftChange) and len(changes) >= first else None

        sim.host.fail = fail
        with suppress(NetcommonError):
            sim.up(isolated)
        lost = [one for one, _text in execute.drift(sim.host.view(), wanted) if one.confines() and not one.of_port()]
        port = sim.host.view().port(sim.index("tap0"))
        assert port is not None and (port.isolated or not lost), f"neither is there, refused from change {first} of nftables on"
        bare += bool(lost) and sim.record().state == CHANGING
    assert bare, "the way back was refused too"


def test_what_it_had_taken_from_another_is_given_back(tmp_path: Path) -> None:
    sim = made(tmp_path, nic("routed, table"))
    sim.tap("tap1")
    other = nic("routed, table", INTERFACE="tap1", INTERFACE_UUID=UUIDS[1], INSTANCE="web2", MAC="aa:00:00:00:00:02", IP="10.0.0.6")
    sim.up(other)
    was = sim.picture()
    second = nic("routed, table", IP="10.0.0.6")
    for life in lives(tmp_path / "lives", nic("routed, table"), second):
        with Mortal(sim, life):
            sim.up(second)
            raise AssertionError("it was not killed")
        repair(sim.node, UUIDS[0], sim.call())
        assert sim.picture() == was, life


def test_the_scripts_of_down_are_on_record_before_they_run(tmp_path: Path) -> None:
    """A hook that dies in them leaves a change, and the scripts of up are told again that it is what it was."""
    first, second = two("IP")
    sim = made(tmp_path, first)
    sim.node.store.write(sim.record()._replace(scripts=True))
    seen: list[str] = []

    def dies(self: Scripts) -> None:
        seen.append(sim.record().state)
        raise Killed

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Scripts, "down", dies)
        with Mortal(sim):
            sim.up(second)
    assert seen == [CHANGING] and sim.record().state == CHANGING
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Scripts, "down", lambda self: seen.append("down"))
        patch.setattr(Scripts, "up", lambda self: seen.append("up"))
        repair(sim.node, UUIDS[0], sim.call())
    assert seen[1:] == ["down", "up"]


@pytest.mark.parametrize("how", ["killed", "refused"])
def test_what_the_way_back_has_made_elsewhere_is_ours_at_the_next_try(tmp_path: Path, how: str) -> None:
    """The uplink is another one by now, and the first try gets only so far: its VLAN on that one is not the administrator's."""
    first, second = nic("bridged, access"), nic("bridged")
    last = max(lives(tmp_path / "lives", first, second)) - 3
    tried = 0
    for place in range(24):
        sim = made(tmp_path / str(place), first)
        with Mortal(sim, last):
            sim.up(second)
            raise AssertionError("it was not killed")
        sim.host.remove_link("eth-brv")
        sim.host.add_link(Link(0, "eth2", "", up=True, master=sim.index("brv")))
        if how == "killed":
            with Mortal(sim, place):
                repair(sim.node, UUIDS[0], sim.call())
        else:
            with sim.failing(place, Answer(errno.EINVAL, "no"), times=99), suppress(NetcommonError):
                repair(sim.node, UUIDS[0], sim.call())
        if sim.record().state != CHANGING:
            continue
        tried += 1
        repair(sim.node, UUIDS[0], sim.call())
        uplink = sim.index("eth2")
        assert 10 in sim.host.kernel.vlans[uplink]
        sim.down(first)
        sim.gc()
        assert 10 not in sim.host.kernel.vlans.get(uplink, {}) and sim.records() == [], place
    assert tried > 3
