"""Each rule of the reaper, for any order of events (tests/support/reaping.py)."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from netagent.reap.rules import Sightings, Sizes, emptied
from netagent.start_delay import start_delay
from netcommon.lifecycle import inventory
from netcommon.lifecycle.context import alive
from netcommon.settings.model import Settings
from runtime.paths import Paths
from tests.support.reaping import CAP, GRACE, UNFINISHED, UUIDS, World, histories, hollow, world
from tests.support.sample import FULL

#: Each example is a machine of its own.
some = settings(max_examples=300 if FULL else 40)

ALL = ("up", "incoming", "kill", "down", "close", "die", "lose", "stray", "hold", "release", "arrive", "wait", "reap", "restart")


def state(made: World) -> tuple[Any, list[str]]:
    """Everything on the host and on disk."""
    return made.sim.picture(), made.sim.files()


@some
@given(histories(*ALL, "fail", "heal", "reap"))
def test_never_before_a_complete_inventory(events: list[tuple[str, int]]) -> None:
    """A failed one deletes nothing, of records or anything else, raises an alarm, and counts for nothing; later all is cleaned up."""
    with world() as made:
        for name, which in events:
            before = state(made)
            for _ in made.play([(name, which)]):
                if name == "reap" and made.sim.host.busy:
                    assert state(made) == before
                    assert "inventory" in made.alarms.active()
                elif name == "reap":
                    assert "inventory" not in made.alarms.active()
        made.clean()
        assert made.sim.picture() == made.before


@some
@given(histories(*ALL), st.sampled_from(["devices", "records", "marks"]))
def test_a_suddenly_empty_inventory_deletes_nothing(events: list[tuple[str, int]], part: str) -> None:
    """Whichever part of it, whatever there is: it is not believed, where the other parts do not agree with it."""
    with world() as made, pytest.MonkeyPatch.context() as patch:
        list(made.play([*events, ("up", 0), ("reap", 0)]))
        made.on_release(0)
        made.on_up(0)
        made.reap()
        assert len(made.sim.records()) >= 1 and made.owned()
        before = state(made)
        nics = Path(made.sim.paths.state, "nics")
        look = inventory.look
        if part == "devices":
            patch.setattr(made.sim.host, "snapshot", hollow(made.sim))
        elif part == "marks":
            patch.setattr(inventory, "look", lambda node: look(node)._replace(owned=()))
        else:
            nics.rename(nics.with_name("hidden"))
        made.now += 10 * GRACE  # everything that was seen would be due
        picture = made.sim.picture()
        assert made.reap() == []
        assert made.sim.picture() == picture and "inventory-empty" in made.alarms.active()
        if part == "records":
            if nics.exists():
                nics.rmdir()  # made anew by whoever looked
            nics.with_name("hidden").rename(nics)
        patch.undo()
        assert state(made) == before
        made.reap()
        assert "inventory-empty" not in made.alarms.active()


sizes = st.builds(Sizes, st.integers(0, 2), st.integers(0, 2), st.integers(0, 2), st.integers(0, 2))


@given(st.none() | sizes, sizes)
def test_what_is_suddenly_empty(last: Sizes | None, now: Sizes) -> None:
    """Never at the first inventory, nor where nothing was there before, nor where there is nothing that it would condemn."""
    said = emptied(last, now)
    if last is None or all(part for part in now) or not any(now) or last == Sizes(0, 0, 0, 0):
        assert not said
    if last and last.records and not now.records and now.marked:
        assert said
    if last and last.devices and not now.devices and now.records:
        assert said


@some
@given(histories("up", "incoming", "close", "hold", "release", "kill", "die", "reap", "reap", length=30, nics=2, least=15))
def test_nics_that_come_up_close_or_migrate_in_are_no_candidates(events: list[tuple[str, int]]) -> None:
    """Whatever has happened before: what a hook works at, what is up, closing, or on its way here is the same after each run."""
    with world() as made:
        for name, which in events:
            if name != "reap":
                list(made.play([(name, which)]))
                continue
            needed, locked = made.needed(), [record.key for record in made.sim.records() if made.locked(record.uuid)]
            found = made.reap()
            assert {key: value for key, value in made.needed().items() if key in needed} == needed
            assert not [one.text for one in found for key in locked if f"({key})" in one.text]


@some
@given(histories("arrive", "stray", *(("wait", "reap") * 3), length=16))
def test_nothing_goes_of_a_guest_on_its_way_here(events: list[tuple[str, int]]) -> None:
    """Its tap is there, and nobody has called for it yet; what waits for its name may be its own. Once it is here, it may go."""
    with world() as made:
        for event in [*events, ("arrive", 0), ("reap", 0), ("wait", 3), ("reap", 0)]:
            arriving = {f"tap{number}" for number in range(4) if made._pid(number).exists()}
            waiting = {name for name, thing in made.owned().items() if thing.device in arriving}
            list(made.play([event]))
            if event[0] == "reap":
                assert waiting <= made.owned().keys()
        conf = Path(made.sim.paths.kvm_run, "conf")
        conf.mkdir(exist_ok=True)
        for number in range(4):
            (conf / f"web{number}.runtime").write_text("[[], [], {}, []]")
        for _ in range(2):
            made.reap()
            made.now += GRACE
        made.reap()
        assert made.owned() == {}


@some
@given(
    histories("up", "kill", "down", "lose", "stray", "arrive", "hold", "release", "restart", *(("wait", "reap") * 4), length=24, least=12)
)
def test_recordless_things_need_two_inventories(events: list[tuple[str, int]]) -> None:
    """The reaper removes a thing without an owner only if it had none in each inventory for the grace period, and then it does."""
    with world() as made:
        since: dict[str, float] = {}
        for name, which in events:
            list(made.play([(name, which)])) if name != "reap" else None
            if name == "restart":
                since.clear()
            if name != "reap":
                continue
            before = made.ownerless()
            since = {thing: since.get(thing, made.now) for thing in before}
            arriving = {f"tap{number}" for number in range(4) if made._pid(number).exists() and made.there(number)}
            things = made.owned()
            made.reap()
            after = made.owned()
            for thing in before:
                if thing not in after:
                    assert made.now - since[thing] >= GRACE, thing
                elif made.now - since[thing] >= GRACE and things[thing].device not in arriving and not made.alarms.active():
                    assert made.at_work(things[thing]), f"{thing} is left, though nobody is at work"
            since = {thing: when for thing, when in since.items() if things[thing].device not in arriving}


times = st.sampled_from([0.0, 1.0, 30.0, 60.0, 90.0, 119.0, GRACE, 200.0])


@given(st.lists(st.tuples(times, times, st.sets(st.sampled_from("abc"))), min_size=1, max_size=12))
def test_sightings(inventories: list[tuple[float, float, set[str]]]) -> None:
    """By definition: without an owner in each inventory since one that had ended the grace period before this one began."""
    made, seen, now = Sightings(), [], 0.0
    for pause, length, names in inventories:
        began, now = now + pause, now + pause + length
        due = made.update(names, began, now, GRACE)
        seen.append((now, names))
        for name in "abc":
            run = []
            for ended, others in reversed(seen):
                if name not in others:
                    break
                run.append(ended)
            assert (name in due) == bool(run and began - run[-1] >= GRACE)


@some
@given(histories("up", "kill", "down", "stray", "wait", length=8), histories("up", "down", "kill", "close", "die", length=4))
def test_the_host_is_read_first_and_the_records_second(events: list[tuple[str, int]], between: list[tuple[str, int]]) -> None:
    """Whatever hooks do between the two, nothing that they made is taken for nobody's, not even without any grace."""
    with world() as made, pytest.MonkeyPatch.context() as patch:
        made.sim.settings = made.sim.settings._replace(agent_reap_grace=0.0)
        list(made.play(events))
        read, called = inventory.records, []

        def late(node: Any) -> Any:
            if not called:
                called.append(True)
                list(made.play(between))
                node = made.sim.node  # each hook is a process of its own
            return read(node)

        patch.setattr(inventory, "records", late)
        order: list[str] = []
        look = inventory.look
        patch.setattr(inventory, "look", lambda node: (order.append("host"), look(node))[1])
        needed_after: dict[str, Any] = {}
        tell = made.reaper._tell
        patch.setattr(made.reaper, "_tell", lambda node, known: (needed_after.update(made.needed()), tell(made.sim.node, known)))
        made.reaper.run(made.sim.node, made.sim.call())
        assert order == ["host"] and called
        assert {key: value for key, value in made.needed().items() if key in needed_after} == needed_after


@some
@given(histories("up", "die", "kill", "close", "hold", "release", "wait", "restart", length=10))
def test_what_a_dead_hook_left_is_reverted_at_once(events: list[tuple[str, int]]) -> None:
    """In the very next run, tap present or not; and not while somebody holds the NIC's lock."""
    with world() as made:
        list(made.play(events))
        left = {record.key: made.locked(record.uuid) for record in made.sim.records() if record.state in UNFINISHED}
        devices = {record.key: f"tap{UUIDS.index(record.uuid)}" for record in made.sim.records()}
        made.reap()
        stay = {record.key for record in made.sim.records()}
        for key, locked in left.items():
            if locked:
                assert key in stay
            else:
                assert key not in stay or made._held, devices[key]


@some
@given(histories("up", "kill", "reap", "wait", length=10))
def test_records_whose_device_is_gone(events: list[tuple[str, int]]) -> None:
    """They go in the first run, and no others; with them all that is on them."""
    with world() as made:
        list(made.play(events))
        node = made.sim.node
        living = {record.key for record in made.sim.records() if alive(node, node.host.view(), record)}
        made.reap()
        assert {record.key for record in made.sim.records()} == living
        for which in range(4):
            made.on_kill(which)
        made.reap()
        assert made.sim.picture() == made.before and made.sim.records() == []


@some
@given(histories("up", "kill", "stray", "lose", length=14), st.integers(1, 4))
def test_one_run_removes_no_more_than_the_cap(events: list[tuple[str, int]], cap: int) -> None:
    """And the next ones go on, soon, until nothing is left."""
    with world(cap) as made:
        list(made.play(events))
        for which in range(4):
            made.on_kill(which)
        made.reap()
        total = len(made.sim.records()) + len(made.ownerless())
        for _ in range(total // cap + 3):
            made.now += GRACE
            removed = sum(found.action == "removed" for found in made.reap())
            assert removed <= cap
            if made.ownerless():
                assert made.reaper.due(made.now) <= GRACE
        assert made.sim.picture() == made.before and made.sim.records() == []


@some
@given(histories("up", "kill", "down", "lose", "reap", "wait", "hold", "release", length=12))
def test_lost_nic_files(events: list[tuple[str, int]]) -> None:
    """A file in Ganeti's nic/ is there while its NIC is on record, and gone two inventories after its tap; Ganeti's own files stay."""
    with world() as made:
        folder = Path(made.sim.paths.kvm_run, "nic")
        (folder / "web0").mkdir(parents=True)
        (folder / "web0" / "7").write_text("tap99")  # Ganeti's own
        Path(made.sim.paths.kvm_run, "conf").mkdir()
        for name, which in events:
            list(made.play([(name, which)]))
            if name == "reap":
                for record in made.sim.records():
                    own = folder / record.nic.instance / record.uuid
                    assert record.state != "up" or own.read_text() == record.device
        assert (folder / "web0" / "7").read_text() == "tap99"
        made.clean()
        assert [str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()] == ["web0/7"]


@given(st.floats(0, 3600), st.booleans(), st.booleans(), st.floats(0, 1, exclude_max=True), st.integers(0, 99))
def test_the_delay_at_the_start(fixed: float, booted: bool, ganeti: bool, chance: float, seed: int) -> None:
    """Within its setting; nothing is due before, and something is then. The next ones are not at the same moment on all nodes."""
    with world() as made:
        if ganeti:
            Path(made.sim.paths.ganeti_run).mkdir(parents=True, exist_ok=True)
        paths = made.sim.paths if ganeti else Paths.under(made.sim.paths.state + "/nowhere")
        auto = start_delay(Settings(), {"INVOCATION_ID": "x"} if booted else {}, paths, lambda: chance)
        assert 120 <= auto <= 600 if booted and ganeti else auto == 0
        assert 0 <= start_delay(Settings(agent_start_delay=fixed), {}, paths, lambda: chance) <= fixed
        from netagent.reap.reaper import Clock, Reaper

        reaper = Reaper(Clock(lambda: made.now), Random(seed), made.alarms, made.metrics, auto)
        assert reaper.due(made.now) == pytest.approx(auto) and reaper.due(made.now + auto) <= 1e-6
        reaper.run(made.sim.node, made.sim.call())
        assert 0.9 * 600 <= reaper.due(made.now) <= 1.1 * 600


def test_the_cap_of_the_default_is_no_obstacle_here() -> None:
    """The other tests rely on it."""
    assert Settings().agent_reap_cap == CAP and Settings().agent_reap_grace == GRACE
