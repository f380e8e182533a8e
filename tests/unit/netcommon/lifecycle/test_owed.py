"""Killed anywhere while a NIC lets go of an address that it had taken from another: whoever comes next gives it back."""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

import runtime.folder
from netcommon.host.api.facts import AF_INET, Address
from netcommon.host.api.host import Answer
from netcommon.lifecycle import batch, check, down, up
from netcommon.lifecycle.change import change, setting
from netcommon.lifecycle.check import repair
from netcommon.lifecycle.context import alive
from runtime.environment import DownHint
from runtime.errors import HostRefused, Interrupted, NetcommonError
from runtime.locks import DEVICE, UUID, number
from runtime.nic import Nic
from runtime.record import APPLYING, CHANGING, UP
from tests.support.sample import sample
from tests.support.sim import UUIDS, Killed, Mortal, Sim, nic

pytestmark = pytest.mark.sampled(2)

OTHER = {"INTERFACE": "tap1", "INTERFACE_UUID": UUIDS[1], "INSTANCE": "web2", "MAC": "aa:00:00:00:00:02"}
ANOTHER = "00000004-0000-4000-8000-000000000004"
FIRST, TAKES = nic("routed"), nic("routed", **OTHER)
THIRD = nic("routed", INTERFACE="tap2", INTERFACE_UUID=UUIDS[2], INSTANCE="web3", MAC="aa:00:00:00:00:03", IP="10.0.0.7")
FOURTH = nic("routed", INTERFACE="tap1", INTERFACE_UUID=ANOTHER, INSTANCE="web4", MAC="aa:00:00:00:00:04", IP="10.0.0.8")


def hint(one: Nic) -> DownHint:
    return DownHint(one.uuid, one.interface, one.instance, one.index, one.mac)


def not_taken(sim: Sim) -> None:
    sim.tap("tap1")
    sim.tap("tap2")
    sim.up(FIRST)
    sim.up(THIRD)


def taken(sim: Sim) -> None:
    """The second NIC has the first one's address."""
    not_taken(sim)
    sim.up(TAKES)


def taken_by_a_change(sim: Sim) -> None:
    """The second NIC has it besides its own."""
    not_taken(sim)
    sim.up(nic("routed", **{**OTHER, "IP": "10.0.0.6"}))
    changes(sim, {"addresses": "10.0.0.5"})


def unplugged(sim: Sim) -> None:
    taken(sim)
    sim.host.remove_link("tap1")


def another_on_its_device(sim: Sim) -> None:
    unplugged(sim)
    sim.tap("tap1")


class Late(Mortal):
    """A process that is killed as soon as the second NIC has the address."""

    def step(self, what: str) -> None:
        if leads_to(self.sim) == "tap1":
            raise Killed(what)


def cut_off(sim: Sim) -> None:
    """The second NIC was about to take the address, and its record says so."""
    not_taken(sim)
    sim.up(nic("routed", **{**OTHER, "IP": "10.0.0.6"}))
    with Late(sim):
        changes(sim, {"addresses": "10.0.0.5"})
    assert sim.record(UUIDS[1]).state == CHANGING and leads_to(sim) == "tap1"


def changes(sim: Sim, sets: dict[str, str], *unset: str) -> None:
    node = sim.node
    change(node, UUIDS[1], sim.call(), setting(node, sets, unset))


def refused(sim: Sim) -> None:
    """An up that takes the address, is refused, and rolled back."""
    mortal, late = sim.host.fail, iter([None])

    def fail(request: object) -> Answer | None:
        answer = mortal(request)  # type: ignore[arg-type]
        return Answer(errno.EINVAL, "no") if leads_to(sim) == "tap1" and next(late, 0) is None else answer

    sim.host.fail = fail
    with pytest.raises(NetcommonError):
        sim.up(nic("routed", **OTHER, TAGS="netcommon:0:prefixes:10.9.0.0/24"))


#: What comes before, and what is killed.
STORIES: dict[str, tuple[Callable[[Sim], None], Callable[[Sim], object]]] = {
    "change": (taken_by_a_change, lambda sim: changes(sim, {}, "addresses")),
    "up with another address": (taken, lambda sim: sim.up(nic("routed", **{**OTHER, "IP": "10.0.0.9"}))),
    "up in another mode": (taken, lambda sim: sim.up(nic("bridged", **OTHER))),
    "up of another NIC on its device": (another_on_its_device, lambda sim: sim.up(FOURTH)),
    "up that is refused": (not_taken, refused),
    "up after a change that was cut off": (cut_off, lambda sim: sim.up(nic("routed", **{**OTHER, "IP": "10.0.0.8"}))),
    "repair after a change that was cut off": (cut_off, lambda sim: repair(sim.node, UUIDS[1], sim.call())),
    "down": (taken, lambda sim: sim.down(TAKES)),
    "many downs": (taken, lambda sim: list(batch.down_all(sim.node, [hint(TAKES)], lambda _hint: sim.call("hot-remove")))),
    "down without a device": (unplugged, lambda sim: sim.down(TAKES)),
    "gc": (unplugged, lambda sim: sim.gc()),
}


def repaired(sim: Sim) -> None:
    with suppress(NetcommonError):  # of one that is on its way out
        repair(sim.node, UUIDS[1], sim.call())


#: Who comes next.
NEXT: dict[str, Callable[[Sim], object]] = {
    "gc": lambda sim: sim.gc(),
    "another NIC's up": lambda sim: sim.up(THIRD),
    "another NIC's down": lambda sim: sim.down(THIRD),
    "the same down": lambda sim: sim.down(TAKES),
    "repair of the same": repaired,
    "repair of another": lambda sim: list(batch.repair_all(sim.node, [UUIDS[2]], lambda _record: sim.call())),
}


def leads_to(sim: Sim) -> str:
    """The device that has the address."""
    indices = {route.index for route in sim.host.view().routes(AF_INET, None, "10.0.0.5/32")}
    return ", ".join(link.name for index in indices if (link := sim.host.view().link_at(index)) is not None)


def owed(sim: Sim) -> list[str]:
    """What is on disk of it."""
    return [name for name in sim.files() if name.startswith("owed/")]


def wrong(sim: Sim) -> str:
    """Say where the address leads, if not to the NIC that came last of those that have it on record."""
    having = [record for record in sim.records() if any(each.get("destination") == "10.0.0.5/32" for each in record.operations)]
    wanted = max(having, key=lambda record: record.monotonic).device
    return "" if leads_to(sim) == wanted else f"it leads to {leads_to(sim) or 'nobody'}, not to {wanted}"


def lives(story: str, folder: Path) -> range:
    before, doing = STORIES[story]
    sim = Sim(str(folder / "whole"))
    before(sim)
    with Mortal(sim) as mortal:
        doing(sim)
    assert wrong(sim) == "" and leads_to(sim) == "tap0" and not owed(sim)
    sim.close()
    return range(len(mortal.steps))


def killed(story: str, folder: Path, life: int) -> Sim:
    before, doing = STORIES[story]
    sim = Sim(str(folder / str(life)))
    before(sim)
    with Mortal(sim, life):
        doing(sim)
        raise AssertionError("it was not killed")
    return sim


@pytest.mark.parametrize("following", NEXT)
@pytest.mark.parametrize("story", STORIES)
def test_whoever_comes_next(tmp_path: Path, story: str, following: str) -> None:
    """A record that is final by then says who has the address; one that is not is for gc and repair, which end it as ever."""
    every, window = lives(story, tmp_path), 0
    chosen = {*sample(every, 5), *sample(every[-25:], 9)}
    for life in sorted(chosen):
        sim = killed(story, tmp_path, life)
        window += leads_to(sim) == "" and {record.state for record in sim.records()} == {UP}
        NEXT[following](sim)
        if not all(record.state == UP and alive(sim.node, sim.host.view(), record) for record in sim.records()):
            sim.gc()
            for record in sim.records():
                if record.state == CHANGING:
                    repair(sim.node, record.key, sim.call())
        assert wrong(sim) == "", life
        sim.gc()
        assert not owed(sim), life
        sim.close()
    assert window, "no kill came between the record's last word and the giving back"


@contextmanager
def at_work(sim: Sim, one: Nic) -> Iterator[None]:
    """Another process holds the locks of the NIC."""
    names = [f"{which}-{number(name):02d}" for which, name in ((DEVICE, one.interface), (UUID, one.uuid))]
    held = [os.open(Path(sim.paths.state, "locks", name), os.O_RDONLY | os.O_CREAT) for name in names]
    try:
        for descriptor in held:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        for descriptor in held:
            os.close(descriptor)


def test_one_that_is_at_work_gets_it_later(tmp_path: Path) -> None:
    """The other NIC's hook has hung: nobody waits for it, and what is owed is there when it ends."""
    sim = Sim(str(tmp_path))
    taken(sim)
    with at_work(sim, FIRST):
        assert sim.down(TAKES).changed
        assert leads_to(sim) == "" and owed(sim)
    sim.up(FIRST)
    assert leads_to(sim) == "tap0" and not owed(sim)


@pytest.mark.parametrize("state", [APPLYING, CHANGING])
def test_one_that_is_not_up_yet_gets_it_later(tmp_path: Path, state: str) -> None:
    """The other NIC's up runs the site's scripts, or its change was killed: what is owed is there when it is up."""
    sim = Sim(str(tmp_path))
    taken(sim)
    record = sim.record(FIRST.uuid)
    sim.node.store.write(record._replace(state=state, before=record if state == CHANGING else None))
    assert sim.down(TAKES).changed
    assert leads_to(sim) == "" and owed(sim)
    repair(sim.node, FIRST.uuid, sim.call()) if state == CHANGING else sim.up(FIRST)
    sim.up(THIRD)
    assert leads_to(sim) == "tap0" and not owed(sim)


def test_a_call_gives_a_share_of_its_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """There may be hundreds that are to have their addresses back: what is left stays owed."""
    sim = Sim(str(tmp_path))
    taken(sim)
    with monkeypatch.context() as none:
        none.setattr(check, "PATIENCE", 0.0)
        none.setattr(check, "SHARE", 0.0)
        assert sim.down(TAKES).changed
    assert leads_to(sim) == "" and owed(sim)
    sim.up(THIRD)
    assert leads_to(sim) == "tap0" and not owed(sim)


def test_the_records_are_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However much is owed: a node of hundreds of NICs may owe hundreds."""
    sim = Sim(str(tmp_path))
    taken(sim)
    debt = sim.record(TAKES.uuid)
    for count in range(5):
        left = nic("routed", **{**OTHER, "INTERFACE_UUID": f"0000000{count}-0000-4000-8000-00000000000a"})
        sim.node.store.owed.note(debt._replace(nic=left), count)
    assert len(owed(sim)) == 5
    read: list[str] = []
    real = runtime.folder.Folder.read

    def counted(self: runtime.folder.Folder, name: str, limit: int) -> bytes | None:
        read.append(name)
        return real(self, name, limit)

    with monkeypatch.context() as counting:
        counting.setattr(runtime.folder.Folder, "read", counted)
        check.restore(sim.node, sim.call())
    assert not owed(sim) and read.count(f"{THIRD.uuid}.json") == 1


def test_the_one_that_takes_all_the_time_keeps_no_other_from_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whose locks are held for ever is waited for each time: a call begins anywhere, not with the same one."""
    sim = Sim(str(tmp_path))
    taken(sim)
    debt = sim.record(TAKES.uuid)
    for count in range(3):
        left = nic("routed", **{**OTHER, "INTERFACE_UUID": f"0000000{count}-0000-4000-8000-00000000000a"})
        sim.node.store.owed.note(debt._replace(nic=left), count)
    first: set[str] = set()
    monkeypatch.setattr(check, "PATIENCE", 0.0)
    monkeypatch.setattr(check, "SHARE", 0.0001)
    monkeypatch.setattr(check, "_restored", lambda _node, one, *_more: first.add(one.uuid))
    monkeypatch.setattr(check, "at_work", lambda *_given: False)
    for count in range(3):
        times = iter([count / 1000 + 0.0001, count / 1000 + 0.0001])
        clock = sim.node.clock._replace(now=lambda times=times: next(times, 1e9))  # type: ignore[misc]
        check.restore(sim.node._replace(clock=clock), sim.call())
    assert len(first) == 3


def test_a_signal_ends_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of several NICs none gets anything after that, and what is owed stays; the down itself was done by then."""
    sim = Sim(str(tmp_path))
    taken(sim)

    def ended(*_given: object) -> None:
        raise Interrupted("ended by signal 15")

    with monkeypatch.context() as signalled:
        signalled.setattr(check, "_repaired", ended)
        assert sim.down(TAKES).changed
    assert owed(sim) and any("ended by signal 15" in line for line in sim.lines)
    sim.up(THIRD)
    assert leads_to(sim) == "tap0" and not owed(sim)


def test_what_one_at_work_owes_is_left_to_it(tmp_path: Path) -> None:
    """It has noted that, and let go of nothing yet: were it taken for given back, a kill would find nothing."""
    life = next(life for life in lives("down", tmp_path) if owed(killed("down", tmp_path / "noted", life)))
    sim = killed("down", tmp_path, life)
    with at_work(sim, TAKES):
        sim.up(THIRD)
        assert owed(sim) and leads_to(sim) == "tap1"


def test_it_is_given_back_although_it_could_not_be_noted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk is full: then a kill alone would leave the other NIC without its address."""
    sim = Sim(str(tmp_path))
    taken(sim)
    real = runtime.folder.Folder.write

    def full(self: runtime.folder.Folder, name: str, *more: object, **named: object) -> None:
        if self.path.endswith("/owed"):
            raise HostRefused("no space left on device")
        real(self, name, *more, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(runtime.folder.Folder, "write", full)
    sim.down(TAKES)
    assert leads_to(sim) == "tap0" and any("no space left" in line for line in sim.lines)


class Full(Mortal):
    """A filesystem without room: what needs some fails from the ``life``-th time on, ``often`` times."""

    def __init__(self, sim: Sim, needing: Sequence[str], life: int | None = None, often: int = 1 << 30) -> None:
        super().__init__(sim, life)
        self.needing, self.often = needing, often

    def step(self, what: str) -> None:
        if what in self.needing:
            self.steps.append(what)
            if self.life is not None and self.life < len(self.steps) <= self.life + self.often:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize("often", [1, 1 << 30])
@pytest.mark.parametrize("needing", [("write",), ("create", "mkdir", "symlink", "link")], ids=["blocks", "inodes"])
@pytest.mark.parametrize("leaves", ["down", "many downs"])
def test_a_full_disk(tmp_path: Path, leaves: str, needing: Sequence[str], often: int) -> None:
    """Whatever could not be written, as tmpfs refuses it: what is not given back stays owed, and the next call gives it back."""
    doing = STORIES[leaves][1]

    def begin(folder: str) -> Sim:
        sim = Sim(str(tmp_path / folder))
        taken(sim)
        Path(sim.paths.state, "owed").mkdir(mode=0o755)
        return sim

    sim = begin("whole")
    with Full(sim, needing) as full:
        doing(sim)
    sim.close()
    assert full.steps
    for life in range(len(full.steps)):
        sim = begin(str(life))
        with Full(sim, needing, life, often), suppress(NetcommonError):
            doing(sim)
        assert leads_to(sim) == "tap0" or owed(sim), life
        sim.up(THIRD)
        assert leads_to(sim) == "tap0" and not owed(sim), life
        assert [record.uuid for record in sim.records()] == [FIRST.uuid, THIRD.uuid]
        sim.close()


def test_what_the_host_refuses_for_good_is_owed_no_more(tmp_path: Path) -> None:
    """The address is the node's own by now: no call would succeed, and check says what the NIC lacks."""
    sim = Sim(str(tmp_path))
    taken(sim)
    sim.host.kernel.addresses.append(Address(AF_INET, "10.0.0.5", 32, sim.index("br0"), protocol=0))
    assert sim.down(TAKES).changed
    assert leads_to(sim) == "" and not owed(sim)
    assert any("may have lost its address" in line for line in sim.lines)
    assert not check.check(sim.node, sim.host.view(), sim.record(FIRST.uuid)).good


def test_what_is_damaged_is_put_aside(tmp_path: Path) -> None:
    """Bytes intact; what a newer version has written is left to that; the call does its own work."""
    sim = Sim(str(tmp_path))
    taken(sim)
    folder = Path(sim.paths.state, "owed")
    folder.mkdir()
    names = [f"{UUIDS[1]}.1.json", "strange", f"{UUIDS[0]}.2.json"]
    for name, text in zip(names, ("?", "{}", '{"schema": 9999}'), strict=True):
        (folder / name).write_text(text)
        (folder / name).chmod(0o600)
    assert sim.down(TAKES).changed and leads_to(sim) == "tap0"
    assert [each.name for each in folder.iterdir()] == names[2:]
    assert sorted(each.read_text() for each in Path(sim.paths.state, "quarantine").iterdir()) == ["?", "{}"]


@pytest.mark.parametrize("name", ["x" * 250, "ü" * 120, "\udcff.json", "a\nb", f"{UUIDS[1]}.{'9' * 200}.json"], ids=repr)
def test_a_name_that_none_of_ours_has(tmp_path: Path, name: str) -> None:
    """As long as a name may be, or no text: it is put aside once, in one line, and keeps nobody from anything."""
    sim = Sim(str(tmp_path))
    taken(sim)
    folder = Path(sim.paths.state, "owed")
    folder.mkdir()
    (folder / name).write_text("?")
    (folder / name).chmod(0o600)
    node = sim.node
    assert up.up(node, THIRD, sim.call()).text
    assert not list(folder.iterdir())
    (aside,) = Path(sim.paths.state, "quarantine").iterdir()
    assert aside.read_text() == "?" and len(os.fsencode(aside.name)) <= 255
    (problem,) = node.store.problems
    assert "moved to quarantine" in problem and problem.isprintable() and problem.isascii()
    assert sim.down(TAKES).changed and leads_to(sim) == "tap0"


def test_a_file_that_cannot_be_read_keeps_nobody_from_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An input/output error: it is said, and what that file says stays owed."""
    sim = Sim(str(tmp_path))
    taken(sim)
    folder = Path(sim.paths.state, "owed")
    folder.mkdir()
    (folder / "0").touch(mode=0o600)
    real = runtime.folder.Folder.read

    def failing(self: runtime.folder.Folder, name: str, limit: int) -> bytes | None:
        if name == "0":
            raise runtime.folder.refused("cannot read", f"{self.path}/{name}", OSError(errno.EIO, os.strerror(errno.EIO)))
        return real(self, name, limit)

    monkeypatch.setattr(runtime.folder.Folder, "read", failing)
    node = sim.node
    assert down.down(node, hint(TAKES), sim.call("hot-remove")).changed
    assert leads_to(sim) == "tap0" and owed(sim) == ["owed/0"]
    assert any("Input/output error" in problem for problem in node.store.problems)


def test_a_folder_that_is_none_fails_no_call(tmp_path: Path) -> None:
    """It is said, and what there is to give back is given back all the same."""
    sim = Sim(str(tmp_path))
    taken(sim)
    Path(sim.paths.state, "owed").symlink_to(tmp_path)
    assert not sim.up(THIRD).changed
    assert any("cannot be told" in line and "is not a folder" in line for line in sim.lines), sim.lines
    assert sim.down(TAKES).changed and leads_to(sim) == "tap0"


def test_of_another_boot_nothing_is_owed(tmp_path: Path) -> None:
    """Its routes have gone with its devices."""
    sim = killed("down", tmp_path, lives("down", tmp_path)[-2])
    assert owed(sim)
    sim.reboot()
    sim.gc()
    assert not owed(sim) and leads_to(sim) == ""


def test_where_nothing_was_taken_nothing_is_written(tmp_path: Path) -> None:
    sim = Sim(str(tmp_path))
    sim.up(FIRST)
    sim.up(nic("routed", IP="10.0.0.9"))
    sim.down(FIRST)
    assert not Path(sim.paths.state, "owed").exists()
