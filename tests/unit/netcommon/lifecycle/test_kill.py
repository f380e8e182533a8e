"""A hook killed before any change of the host or of a file: one gc brings the node back, or one up to where it would have been."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from netcommon.lifecycle.check import check
from netcommon.scripts import site as custom
from runtime.environment import DownHint
from runtime.nic import Nic
from tests.support.sample import sample
from tests.support.sim import MODES, UUIDS, Killed, Mortal, Sim, nic, plain

pytestmark = pytest.mark.sampled(2)

OTHER = {"INTERFACE_UUID": UUIDS[1], "INSTANCE": "web2", "MAC": "aa:00:00:00:00:02"}

#: What the killed hook was at: what came before it, the hook itself, and the NIC that it was for.
Story = tuple[Callable[[Sim], object], Callable[[Sim], object], Nic]


def nothing(sim: Sim) -> None:
    """Nothing came before."""


def replug(sim: Sim) -> None:
    sim.host.remove_link("tap0")
    sim.tap("tap0")


def stories() -> dict[str, Story]:
    found: dict[str, Story] = {}
    for mode in MODES:
        one = nic(mode)
        found[f"up, {mode}"] = (nothing, lambda sim, one=one: sim.up(one), one)
        found[f"down, {mode}"] = (lambda sim, one=one: sim.up(one), lambda sim, one=one: sim.down(one), one)
    for first, second in (
        ("bridged", "routed, table"),
        ("routed, IPv6", "bridged, hybrid"),
        ("openvswitch, hybrid", "bridged"),
        ("bridged, access", "openvswitch, access"),
        ("bridged, hybrid", "bridged, trunk"),
    ):
        one, two = nic(first), nic(second)
        found[f"{first} to {second}"] = (lambda sim, one=one: sim.up(one), lambda sim, two=two: sim.up(two), two)
    for mode in ("bridged, hybrid", "routed, table", "openvswitch"):
        one, two = nic(mode), nic(mode, **OTHER)

        def died(sim: Sim, one: Nic = one) -> None:
            sim.up(one)
            replug(sim)

        found[f"up after another's death, {mode}"] = (died, lambda sim, two=two: sim.up(two), two)
        found[f"up after its own death, {mode}"] = (died, lambda sim, one=one: sim.up(one), one)
        found[f"gc after a death, {mode}"] = (died, lambda sim: sim.gc(), one)
    return found


STORIES = stories()


def lives(story: Story, folder: Path) -> range:
    """Every number of changes after which the hook can be killed."""
    before, hook, _nic = story
    sim = Sim(str(folder))
    before(sim)
    with Mortal(sim) as mortal:
        hook(sim)
    assert len(mortal.steps) > 5
    return range(len(mortal.steps))


def killed(story: Story, folder: Path, life: int) -> Sim:
    before, hook, _nic = story
    sim = Sim(str(folder))
    before(sim)
    with Mortal(sim, life) as mortal:
        hook(sim)
        raise AssertionError("it was not killed")
    assert len(mortal.steps) == life
    return sim


def foreign(sim: Sim) -> object:
    """What of the picture is not the taps'."""
    return [rule for rule in sim.host.kernel.rules if rule.protocol != 174], sim.host.kernel.neighbours


@pytest.mark.parametrize("name", STORIES)
def test_gc_brings_the_host_back(tmp_path: Path, name: str) -> None:
    """The devices gone, one gc leaves nothing: no object, no record, no link, no temporary file."""
    for life in sample(lives(STORIES[name], tmp_path / "whole"), 3):
        sim = killed(STORIES[name], tmp_path / str(life), life)
        sim.host.remove_link("tap0")
        sim.gc()
        left = sim.picture()
        empty = Sim(str(tmp_path / f"{life}-empty"))
        empty.host.remove_link("tap0")
        assert left == empty.picture(), life
        assert sim.files() == [], life


@pytest.mark.parametrize("name", [name for name in STORIES if name.startswith(("up, ", "down, "))])
def test_gc_while_the_device_lives(tmp_path: Path, name: str) -> None:
    """A hook that died half-way is undone from the living device as well; one that had not begun to write has changed nothing."""
    for life in sample(lives(STORIES[name], tmp_path / "whole"), 5):
        sim = killed(STORIES[name], tmp_path / str(life), life)
        whole = [record for record in sim.records() if record.state == "up"]
        sim.gc()
        if whole:
            assert check(sim.node, sim.host.view(), sim.record()).good
        else:
            assert sim.picture() == sim.before, life
            assert sim.files() == [], life


@pytest.mark.parametrize("name", STORIES)
def test_up_again_makes_it_whole(tmp_path: Path, name: str) -> None:
    """One up leads to the state and the record of an undisturbed one, and the down after it to nothing."""
    one = STORIES[name][2]
    fresh = Sim(str(tmp_path / "fresh"))
    if "death" in name:
        replug(fresh)
    fresh.up(one)
    for life in sample(lives(STORIES[name], tmp_path / "whole"), 3):
        sim = killed(STORIES[name], tmp_path / str(life), life)
        sim.up(one)
        assert sim.picture() == fresh.picture(), life
        assert bare(sim) == bare(fresh), life
        sim.down(one)
        sim.gc()
        sim.host.remove_link("tap0")
        empty = Sim(str(tmp_path / f"{life}-empty"))
        empty.host.remove_link("tap0")
        assert sim.picture() == empty.picture(), life
        assert sim.files() == [], life


def bare(sim: Sim) -> list[object]:
    found: list[object] = []
    for record in sim.records():
        fields = plain(record)
        found.append(
            {**fields, "operations": [{name: value for name, value in each.items() if name != "now"} for each in fields["operations"]]}
        )
    return found


@pytest.mark.parametrize("mode", ["bridged, access", "routed, table", "openvswitch"])
def test_a_guest_that_comes_after_a_killed_one_is_left_whole(tmp_path: Path, mode: str) -> None:
    """Another NIC comes up on the same living device; neither gc nor the late down of the first one touches it."""
    story = STORIES[f"up, {mode}"]
    second = nic(mode, **OTHER)
    fresh = Sim(str(tmp_path / "fresh"))
    fresh.up(second)
    for life in lives(story, tmp_path / "whole"):
        sim = killed(story, tmp_path / str(life), life)
        sim.up(second)
        sim.down(nic(mode))
        sim.gc()
        assert sim.picture() == fresh.picture(), life
        assert check(sim.node, sim.host.view(), sim.record(UUIDS[1])).good
        assert [record.uuid for record in sim.records()] == [UUIDS[1]]


def test_a_kill_while_a_record_is_moved_aside(tmp_path: Path) -> None:
    """The NIC comes up on a second tap while the first is alive; killed anywhere: an up and the end of both taps leave nothing."""

    def before(sim: Sim) -> None:
        sim.tap("tap1")
        sim.up(nic("routed, table"))

    second = nic("routed, table", INTERFACE="tap1")
    story: Story = (before, lambda sim: sim.up(second), second)
    for life in lives(story, tmp_path / "whole"):
        sim = killed(story, tmp_path / str(life), life)
        sim.up(second)
        assert check(sim.node, sim.host.view(), sim.record()).good
        assert sorted(record.device for record in sim.records()) == ["tap0", "tap1"]
        sim.host.remove_link("tap0")
        sim.gc()
        assert [record.device for record in sim.records()] == ["tap1"]
        sim.down(second)
        sim.host.remove_link("tap1")
        sim.gc()
        assert sim.files() == [], life
        assert not [rule for rule in sim.host.kernel.rules if rule.protocol == 174]


@pytest.mark.parametrize("mode", ["bridged, trunk", "routed, table", "openvswitch, hybrid"])
def test_killed_while_its_record_moves_aside(tmp_path: Path, mode: str) -> None:
    """The NIC comes up on a second tap while the first lives; at every kill both taps go, and one gc leaves nothing.

    A kill between the two names of the record leaves both, and what they share with each other is nobody else's.
    """
    one, two = nic(mode), nic("bridged", INTERFACE="tap1")

    def before(sim: Sim) -> None:
        sim.up(one)
        sim.tap("tap1")

    story: Story = (before, lambda sim: sim.up(two), two)
    for life in lives(story, tmp_path / "whole"):
        sim = killed(story, tmp_path / str(life), life)
        sim.host.remove_link("tap0")
        sim.host.remove_link("tap1")
        sim.gc()
        empty = Sim(str(tmp_path / f"{life}-empty"))
        empty.host.remove_link("tap0")
        assert sim.picture() == empty.picture(), life
        assert sim.files() == [], life


def test_a_down_killed_at_a_sites_script_is_finished(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The record says that the NIC is on its way out before the first script runs: gc finishes the down, the scripts included."""
    sim, told = Sim(str(tmp_path)), tmp_path / "told"
    script = Path(sim.paths.etc, "ifdown.d/10-site")
    script.parent.mkdir(parents=True)
    script.write_text(f"#!/bin/sh\necho down >>{told}\n")
    script.chmod(0o755)
    sim.up(nic("bridged"))

    def kill(*_: object) -> None:
        raise Killed("while a script runs")

    with Mortal(sim), monkeypatch.context() as patched:
        patched.setattr(custom, "run_each", kill)
        sim.down(nic("bridged"))
    assert not told.exists()
    sim.gc()
    assert told.read_text() == "down\n"
    assert sim.picture() == sim.before and sim.files() == []


@pytest.mark.parametrize("mode", ["bridged, hybrid", "routed, all options"])
def test_who_is_killed_as_a_nic_comes_up_elsewhere_loses_nobodys_share(tmp_path: Path, mode: str) -> None:
    """Its record on the first tap is moved aside: who shares an uplink's VLAN or switch with it takes neither for the administrator's."""
    for life in range(20):  # that is when
        sim = Sim(str(tmp_path / str(life)))
        for tap in ("tap1", "tap2"):
            sim.tap(tap)
            sim.host.remove_link(tap)
        sim.host.remove_link("tap0")
        alone = sim.picture()
        for tap in ("tap0", "tap1", "tap2"):
            sim.tap(tap)
        sim.up(nic(mode))
        with Mortal(sim, life) as mortal:
            sim.up(nic("bridged", INTERFACE="tap1"))
        assert len(mortal.steps) == life
        sim.gc()
        changes = {"INTERFACE": "tap2", "INTERFACE_INDEX": "1", **OTHER}
        changes |= {"IP": "10.0.0.7", "TAGS": "netcommon:1:uplink_proxy:both netcommon:1:addresses:fd00::7"} if "routed" in mode else {}
        sim.up(nic(mode, **changes))
        sim.host.remove_link("tap0")
        sim.gc()
        for name in (UUIDS[0], UUIDS[1]):
            sim.down(DownHint(name))
        for tap in ("tap1", "tap2"):
            sim.host.remove_link(tap)
        sim.gc()
        assert sim.picture() == alone, (life, mortal.steps[-1:])


@pytest.mark.parametrize("mode", ["bridged", "routed, table", "openvswitch"])
def test_who_is_killed_as_a_nic_comes_up_elsewhere_leaves_its_first_tap_known(tmp_path: Path, mode: str) -> None:
    """The next NIC on that tap finds the record that is in its way, also after a gc, so no two NICs have one device on record."""
    for life in range(20):
        sim = Sim(str(tmp_path / str(life)))
        sim.tap("tap1")
        sim.up(nic(mode))
        with Mortal(sim, life) as mortal:
            sim.up(nic(mode, INTERFACE="tap1"))
        assert len(mortal.steps) == life
        for _ in range(2):
            (first,) = {record.uuid for record in sim.records() if record.device == "tap0"}
            assert first == UUIDS[0]
            found, placed = sim.node.store.by_device("tap0"), sim.node.store.by_instance("web1", 0)
            assert found is not None and found.uuid == UUIDS[0], (life, mortal.steps)
            # one that has been moved aside leaves the position to the NIC's other record, and gc may have ended that
            assert found.moved or (placed is not None and placed.uuid == UUIDS[0]), (life, mortal.steps)
            sim.gc()
        sim.up(nic(mode, INTERFACE_INDEX="1", **OTHER))
        assert {record.uuid for record in sim.records() if record.device == "tap0"} == {UUIDS[1]}, (life, mortal.steps)
        for tap in ("tap0", "tap1"):
            sim.host.remove_link(tap)
        sim.gc()
        assert sim.files() == [], life
