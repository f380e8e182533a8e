"""Ends of what was changed for a while: of many NICs at once, in a hook that was called for another one, after a reboot, cut short."""

from __future__ import annotations

import errno
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace

import pytest

from netcommon.doctor import files
from netcommon.doctor.finding import Patient
from netcommon.doors import call as door
from netcommon.doors import ganeti
from netcommon.host.api.host import Answer
from netcommon.host.api.requests import Request, service
from netcommon.host.simulated.host import MemoryHost
from netcommon.lifecycle import changed_options
from netcommon.lifecycle.change import change, setting
from netcommon.lifecycle.context import Call, Node
from netcommon.lifecycle.down import down
from netcommon.lifecycle.ends import end_due, end_some
from netcommon.lifecycle.gc import FAILED, KEPT, gc
from netcommon.process.run import Outcome
from netcommon.settings.model import Settings
from runtime import wanted
from runtime.environment import DownHint
from runtime.errors import HostRefused, Interrupted
from runtime.folder import Folder
from runtime.nic import Nic
from runtime.paths import Paths
from runtime.record import CHANGING, CLOSING, UP, Record
from tests.support.sim import Sim, nic

pytestmark = pytest.mark.sampled(2)

NICS = 12


def uuid(number: int) -> str:
    return f"{number:08x}-0000-4000-8000-000000000000"


def guest(number: int, mode: str = "bridged", **more: str) -> Nic:
    mac = f"aa:00:00:00:00:{number:02x}"
    return nic(mode, **more, INTERFACE=f"tap{number}", INTERFACE_UUID=uuid(number), MAC=mac, INSTANCE=f"web{number}")


@pytest.fixture
def sim(tmp_path: Path) -> Iterator[Sim]:
    """Give a machine on which an option of each of NICS NICs ends in 60 s."""
    made = Sim(str(tmp_path))
    for number in range(NICS):
        made.tap(f"tap{number}")
        made.up(guest(number))
        change(made.node, uuid(number), made.call(), setting(made.node, {"isolated": "yes"}, (), 60.0))
    yield made
    made.host.fail = lambda _request: None


def later(sim: Sim, seconds: float = 61.0, each: float = 0.0) -> Node:
    """Give the node so many seconds later, by both clocks; each request takes ``each`` seconds."""
    node, spent = sim.node, [seconds]

    def slow(_request: Request) -> Answer | None:
        spent[0] += each
        return None

    sim.host.fail = slow
    clock = node.clock
    return node._replace(clock=clock._replace(now=lambda: clock.now() + spent[0], wall=lambda: clock.wall() + spent[0]))


def holding(sim: Sim, begin: int = 0) -> list[int]:
    return [number for number in range(begin, NICS) if sim.record(uuid(number)).nic.wanted]


def test_a_hook_ends_what_it_has_the_time_for(sim: Sim) -> None:
    """The next ones go on with the rest, and whoever has the time ends all."""
    node = later(sim, each=0.15)
    before = node.clock.now()
    end_some(node, sim.call()._replace(deadline=before + 30))
    assert node.clock.now() - before < 1.0
    left = holding(sim)
    assert NICS - 4 <= len(left) < NICS and wanted.over(sim.paths, wanted.Moment("boot-1", node.clock.now(), node.clock.wall()))
    end_some(node, sim.call()._replace(deadline=node.clock.now() + 30))
    assert len(holding(sim)) < len(left)
    left = holding(sim)
    assert len(end_due(node, sim.call()._replace(deadline=node.clock.now() + 30))) == len(left)
    assert holding(sim) == [] and wanted.first_end(sim.paths) is None


def test_a_hook_waits_little_for_another_nic(sim: Sim) -> None:
    with sim.node.store.locks(time.monotonic() + 5, time.monotonic, time.sleep) as held:
        held.uuids({uuid(number) for number in range(NICS)})
        node = later(sim)
        before = time.monotonic()
        end_some(node, sim.call()._replace(deadline=node.clock.now() + 30))
        assert time.monotonic() - before < 1.5
    assert len(holding(sim)) == NICS and not [line for line in sim.lines if "error" in line.lower()]


def test_gc_waits_little_for_a_nic_that_is_worked_on(sim: Sim) -> None:
    """It is left for the next time; the others' options end, and gc goes on with what it is called for."""
    with sim.node.store.locks(time.monotonic() + 5, time.monotonic, time.sleep) as held:
        held.uuids({uuid(0)})
        node = later(sim)
        before = time.monotonic()
        found = gc(node, sim.call()._replace(deadline=node.clock.now() + 600))
        assert time.monotonic() - before < 5.0
    assert holding(sim) == [0]
    assert [one.action for one in found if uuid(0) in one.text] == [KEPT] and not [one for one in found if one.action == FAILED]


def test_a_hook_runs_no_scripts_of_another_nic(sim: Sim) -> None:
    """They may last: who has the time ends the options and runs them. What a NIC that is down has kept ends all the same."""
    sim.down(guest(0), "shutdown", final=True)
    folder, ran = Path(sim.paths.etc, "ifchange.d"), list[str]()
    folder.mkdir(parents=True)
    (folder / "slow").write_text("#!/bin/sh\nsleep 8\n")
    (folder / "slow").chmod(0o755)

    def execute(argv: Sequence[str], *_more: object) -> Outcome:
        ran.append(argv[0])
        return Outcome(0)

    node = later(sim)._replace(execute=execute)
    for _hook in range(NICS):
        end_some(node, sim.call()._replace(deadline=node.clock.now() + 30))
    assert ran == [] and holding(sim, 1) == list(range(1, NICS))
    assert len(wanted.uuids(sim.paths)) == NICS - 1
    end_due(node, sim.call()._replace(deadline=node.clock.now() + 30))
    assert len(ran) == NICS - 1 and holding(sim, 1) == []


def test_a_hook_asks_no_service_for_another_nic(sim: Sim) -> None:
    """Open vSwitch may not answer: its NICs are left to who has the time, and the others come to their end."""
    sim.down(guest(0), "hot-remove", final=True)
    sim.tap("tap0")
    sim.up(guest(0, "openvswitch"))
    change(sim.node, uuid(0), sim.call(), setting(sim.node, {"rate_in": "8mbit"}, (), 60.0))
    node, asked = later(sim), list[str]()

    def hangs(request: Request) -> Answer | None:
        asked.append(service(request))
        return Answer(errno.ETIMEDOUT, "ovs-vswitchd does not answer") if asked[-1] in ("ovsdb", "openflow") else None

    sim.host.fail = hangs
    for _hook in range(NICS):
        end_some(node, sim.call()._replace(deadline=node.clock.now() + 30))
    assert asked and not {"ovsdb", "openflow"} & {*asked}
    assert holding(sim) == [0] and sim.record(uuid(0)).state == UP
    sim.host.fail = lambda _request: None
    end_due(node, sim.call()._replace(deadline=node.clock.now() + 30))
    assert holding(sim) == []


def test_a_hook_brings_no_cut_off_change_back_whose_scripts_are_owed(sim: Sim) -> None:
    """The way back of a second up that was described anew tells the scripts of down and of up."""
    record = sim.record(uuid(0))
    moved = guest(0, LINK="br1")._replace(wanted=record.nic.wanted)
    cut = record._replace(state=CHANGING, scripts=True, nic=moved, before=record._replace(scripts=True))
    sim.node.store.write(cut)
    assert sim.record(uuid(0)).described_anew
    node = later(sim)
    for _hook in range(NICS):
        end_some(node, sim.call()._replace(deadline=node.clock.now() + 30))
    assert holding(sim) == [0] and sim.record(uuid(0)).state == CHANGING
    end_due(node, sim.call()._replace(deadline=node.clock.now() + 30))
    assert holding(sim) == [] and sim.record(uuid(0)).state == UP


@pytest.mark.parametrize("refused", range(3))
def test_the_way_back_is_whole_though_the_time_is_over(sim: Sim, refused: int) -> None:
    """A request takes longer than a hook has for other NICs, and a later one is refused."""
    sim.host.fail = lambda _request: None
    for number in range(1, NICS):
        change(sim.node, uuid(number), sim.call(), setting(sim.node, {}, ("isolated",)))
    before, node = sim.picture(), later(sim, each=0.5)
    slow, asked = sim.host.fail, list[Request]()

    def fail(request: Request) -> Answer | None:
        asked.append(request)
        return slow(request) if len(asked) != refused + 1 else Answer(errno.EPERM, "no")

    sim.host.fail = fail
    end_some(node, sim.call()._replace(deadline=node.clock.now() + 30))
    record = sim.record(uuid(0))
    assert record.state == UP and record.before is None
    if len(asked) > refused:
        assert sim.picture() == before and record.nic.wanted and wanted.read(sim.paths, uuid(0), []).local
    else:
        assert holding(sim) == []


@pytest.mark.parametrize("after", range(4))
def test_a_signal_ends_it(sim: Sim, after: int) -> None:
    """The NIC under work is as before or as after, and no other is begun."""
    node, asked = later(sim), list[Request]()

    def ended(request: Request) -> Answer | None:
        asked.append(request)
        if len(asked) == after + 1:
            raise Interrupted("ended by signal 15")
        return None

    sim.host.fail = ended
    with pytest.raises(Interrupted):
        end_due(node, sim.call()._replace(deadline=node.clock.now() + 30))
    left = holding(sim)
    assert NICS - after - 1 <= len(left) <= NICS
    for number in range(NICS):
        assert bool(wanted.read(sim.paths, uuid(number), []).local) == (number in left)
    sim.host.fail = lambda _request: None
    end_due(node, sim.call()._replace(deadline=node.clock.now() + 30))
    assert holding(sim) == []


@pytest.mark.parametrize("end", [end_due, end_some])
def test_ends_wait_for_settings_that_can_be_read(sim: Sim, end: Callable[[Node, Call], object]) -> None:
    """By the defaults that serve meanwhile a NIC would lose what the settings keep its guest to."""
    node = later(sim)
    before, call = sim.picture(), sim.call()._replace(deadline=node.clock.now() + 30)
    end(node._replace(settings=Settings(broken="config.toml:4: unknown setting nic.bogus")), call)
    assert len(holding(sim)) == NICS and sim.picture() == before
    assert any("holds still: config.toml:4: unknown setting nic.bogus" in line for line in sim.lines)
    assert wanted.over(sim.paths, wanted.Moment("boot-1", node.clock.now(), node.clock.wall()))
    end_due(node, call)
    assert holding(sim) == []


def test_the_hook_of_another_nic_succeeds_all_the_same(sim: Sim) -> None:
    node = later(sim)

    def ended(_request: Request) -> Answer | None:
        raise Interrupted("the time limit of the hook is over")

    sim.host.fail = ended
    door.end_due(node, sim.call()._replace(deadline=node.clock.now() + 30))
    assert any("may last longer: the time limit of the hook is over" in line for line in sim.lines)


def test_signals_are_told_apart() -> None:
    kept = [(number, signal.getsignal(number)) for number in (signal.SIGALRM, signal.SIGTERM)]
    try:
        for number, _handler in kept:
            door.limit(60)
            with pytest.raises(Interrupted):
                signal.raise_signal(number)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        for number, handler in kept:
            signal.signal(number, handler)


def test_after_a_reboot_a_hook_does_nothing_before_the_first_end(sim: Sim, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither files are read nor written; from the first end by wall time on they are, and end."""
    work: list[str] = []
    sim.reboot()
    node = later(sim, 30.0)
    with monkeypatch.context() as patch:
        for name in ("names", "read", "write", "link", "remove"):
            patch.setattr(Folder, name, lambda *_arguments, **_more: work.append("work"))
        door.end_due(node, sim.call()._replace(deadline=node.clock.now() + 30))
    assert work == []
    node = later(sim, 61.0)
    door.end_due(node, sim.call()._replace(deadline=node.clock.now() + 30))
    assert len(wanted.uuids(sim.paths)) < NICS


def test_an_earlier_end_after_a_reboot_is_met(sim: Sim) -> None:
    """Beside ends of the former boot, wall time tells a hook of one of this boot."""
    sim.reboot()
    sim.tap("tap0")
    sim.up(guest(0))
    change(sim.node, uuid(0), sim.call(), setting(sim.node, {"rate_in": "8mbit"}, (), 20.0))
    node = later(sim, 10.0)
    assert not wanted.over(sim.paths, wanted.Moment("boot-2", node.clock.now(), node.clock.wall()))
    node = later(sim, 21.0)
    door.end_due(node, sim.call()._replace(deadline=node.clock.now() + 30))
    assert [each.option for each in sim.record(uuid(0)).nic.wanted] == ["isolated"]


def test_a_lost_link_is_made_anew_by_who_looks_at_all_files(sim: Sim) -> None:
    Path(sim.paths.wanted, "ends").unlink()
    assert end_due(later(sim, 30.0), sim.call()) == []
    assert wanted.first_end(sim.paths) is not None
    Path(sim.paths.wanted, "ends").unlink()
    node = later(sim)
    assert len(end_due(node, sim.call()._replace(deadline=node.clock.now() + 30))) == NICS and holding(sim) == []


@pytest.mark.parametrize("what", ["lost", "damaged"])
def test_what_no_file_holds_ends(sim: Sim, what: str) -> None:
    """Where the file is lost the record alone has the option: who looks for ends takes it from the NIC."""
    path = Path(sim.paths.wanted, f"{uuid(3)}.json")
    if what == "damaged":
        path.write_text("{")
    else:
        path.unlink()
    found = end_due(later(sim, 1.0), sim.call()._replace(deadline=sim.node.clock.now() + 30))
    assert [each for each, _became in found] == [uuid(3)]
    assert holding(sim) == [number for number in range(NICS) if number != 3]
    assert end_due(later(sim, 1.0), sim.call()) == []


def test_another_namespaces_nics_keep_theirs(sim: Sim) -> None:
    """The namespaces share both folders: neither ends nor a hot-remove there touch what is of a NIC that is up here."""
    other = Sim.__new__(Sim)
    other.__dict__.update(sim.__dict__, _store=None, host=MemoryHost({}, "boot-1", 2))
    node = later(other)
    assert node.store.read(uuid(0)) is None
    call = sim.call("hot-remove")._replace(deadline=node.clock.now() + 30)
    assert end_due(node, call) == []
    down(node, DownHint(uuid(0), "tap0"), call)
    assert len(wanted.uuids(sim.paths)) == NICS
    node = later(sim)
    assert len(end_due(node, call)) == NICS and holding(sim) == []


@pytest.mark.parametrize("end", [end_due, end_some])
def test_what_is_pending_in_another_namespace_is_left_alone(sim: Sim, end: Callable[[Node, Call], object]) -> None:
    """A kill has come after the NIC's record said that it has the option: only there it can be told that it holds."""
    before = wanted.read(sim.paths, uuid(0), [])
    wanted.write(sim.paths, uuid(0), wanted.Wanted(pending=before))
    other = Sim.__new__(Sim)
    other.__dict__.update(sim.__dict__, _store=None, host=MemoryHost({}, "boot-1", 2))
    node = later(other)
    for _hook in range(NICS):
        end(node, sim.call()._replace(deadline=node.clock.now() + 30))
    assert wanted.read(sim.paths, uuid(0), []).pending == before
    assert changed_options.read(sim.node, uuid(0), []) == before and holding(sim) == list(range(NICS))


@pytest.mark.parametrize("seen", range(3))
@pytest.mark.parametrize("named", ["", uuid(0)])
def test_a_late_down_of_an_earlier_device_keeps_the_options_of_a_guest_that_is_back(sim: Sim, seen: int, named: str) -> None:
    """Another process finishes the closing record of its former device after the down has read it ``seen`` times."""
    sim.down(guest(0), "shutdown")
    assert sim.record(uuid(0)).state == CLOSING
    sim.tap("tap99")
    sim.up(guest(0)._replace(interface="tap99"))
    (old,) = [record for record in sim.records() if record.moved]
    node = sim.node
    real, reads = node.store._read, list[str]()

    def read(nics: Folder, name: str, parse: Callable[[bytes], Record] | None = None) -> Record | None:
        if name == f"{old.key}.json":
            reads.append(name)
            if len(reads) > seen:
                nics.remove(name)
        return real(nics, name, parse)

    node.store._read = read  # type: ignore[method-assign]
    down(node, DownHint(named, "tap0"), sim.call("hot-remove"))
    assert reads and wanted.read(sim.paths, uuid(0), []).local


@pytest.mark.parametrize(
    ("operation", "stays"),
    [
        ("OP_INSTANCE_MIGRATE", False),
        ("OP_INSTANCE_FAILOVER", False),
        ("OP_INSTANCE_REMOVE", False),
        ("OP_INSTANCE_SHUTDOWN", True),
        ("OP_INSTANCE_REBOOT", True),
        ("", True),
    ],
)
def test_ganetis_hook_knows_whether_a_guest_has_left(sim: Sim, monkeypatch: pytest.MonkeyPatch, operation: str, stays: bool) -> None:
    """On Ganeti 3.0 and 3.1 nothing else says so: the devices are gone after each of these operations. Other guests keep theirs."""
    monkeypatch.setattr(ganeti, "complete_instance", lambda _node, _name, _call: True)
    sim.host.remove_link("tap0")
    called = SimpleNamespace(paths=sim.paths, log=sim.log, node=lambda strict: sim.node, call=sim.call)
    monkeypatch.setattr(ganeti, "stand", lambda _paths, _log: True)
    assert ganeti.hook(called, {"GANETI_INSTANCE_NAME": "web0", "GANETI_OP_CODE": operation}) == 0  # type: ignore[arg-type]
    assert wanted.uuids(sim.paths) == [uuid(number) for number in range(0 if stays else 1, NICS)]
    assert sim.node.store.read(uuid(0)) is None


@pytest.mark.parametrize("operation", ["OP_INSTANCE_MIGRATE", "OP_INSTANCE_FAILOVER", "OP_INSTANCE_REMOVE", "OP_INSTANCE_SHUTDOWN"])
def test_ganetis_hook_comes_after_gc(sim: Sim, monkeypatch: pytest.MonkeyPatch, operation: str) -> None:
    """No record tells of the NICs that are gone; Ganeti names them. One that is up, as on the target, keeps what was changed of it."""
    monkeypatch.setattr(ganeti, "complete_instance", lambda _node, _name, _call: True)
    monkeypatch.setattr(ganeti, "stand", lambda _paths, _log: True)
    for number in (0, 1, 3):
        sim.host.remove_link(f"tap{number}")
    gc(sim.node, sim.call())
    called = SimpleNamespace(paths=sim.paths, log=sim.log, node=lambda strict: sim.node, call=sim.call)
    nics = {f"GANETI_INSTANCE_NIC{index}_UUID": uuid(number).upper() for index, number in enumerate((0, 1, 2))}
    environ = {"GANETI_INSTANCE_NAME": "web0", "GANETI_OP_CODE": operation, **nics}
    assert ganeti.hook(called, environ) == 0  # type: ignore[arg-type]
    assert wanted.uuids(sim.paths) == [uuid(number) for number in range(0 if operation == "OP_INSTANCE_SHUTDOWN" else 2, NICS)]
    hostile = {**environ, "GANETI_INSTANCE_NIC0_UUID": "../../../etc/passwd", "GANETI_INSTANCE_NIC1_UUID": uuid(3)}
    assert ganeti.hook(called, hostile) == 0  # type: ignore[arg-type]


@pytest.mark.parametrize("what", ["0775", "link", "file"])
def test_an_up_takes_nothing_from_a_folder_that_others_can_write(sim: Sim, what: str) -> None:
    """The NIC comes up, with its tags' options, and the log says why; doctor names the folder."""
    sim.down(guest(0), "shutdown", final=True)
    folder = Path(sim.paths.wanted)
    if what == "0775":
        folder.chmod(0o775)
    else:
        folder.rename(folder.with_name("elsewhere"))
        folder.symlink_to("elsewhere") if what == "link" else folder.write_text("")
    sim.up(guest(0))
    assert sim.record(uuid(0)).nic.wanted == () and any("whatever was changed" in line for line in sim.lines)
    patient = Patient(sim.paths, "/", "/", sim.settings, sim.host.view())
    assert any("count for nothing" in found.text and "chmod 755" in found.remedy for found in files.permissions(patient))
    with pytest.raises(HostRefused):
        change(sim.node, uuid(0), sim.call(), setting(sim.node, {"isolated": "yes"}, ()))


@pytest.mark.parametrize("unset", [False, True], ids=["set", "unset"])
def test_what_could_not_be_written_down_is_written_later(tmp_path: Path, unset: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk was full when the change held: once there is room, whoever has the time writes it, and a reboot does not forget it."""
    sim = Sim(str(tmp_path))
    sim.up(guest(0))
    if unset:
        change(sim.node, uuid(0), sim.call(), setting(sim.node, {"isolated": "yes"}, ()))
    write, written = wanted.write, list[str]()

    def full(paths: Paths, key: str, there: wanted.Wanted) -> None:
        written.append(key)
        if len(written) > 1:
            raise HostRefused("no space left on device")
        write(paths, key, there)

    edit = setting(sim.node, {}, ("isolated",)) if unset else setting(sim.node, {"isolated": "yes"}, ())
    with monkeypatch.context() as patched:
        patched.setattr(wanted, "write", full)
        assert change(sim.node, uuid(0), sim.call(), edit).changed
        end_due(sim.node, sim.call())
    assert [line for line in sim.lines if "still written down as pending" in line]
    assert wanted.read(sim.paths, uuid(0), []).pending is not None
    assert end_due(sim.node, sim.call()) == []
    assert wanted.read(sim.paths, uuid(0), []).pending is None
    sim.reboot()
    sim.tap("tap0")
    sim.up(guest(0))
    assert [each.option for each in sim.record(uuid(0)).nic.wanted] == ([] if unset else ["isolated"])


def test_what_is_pending_of_a_nic_that_is_worked_on_is_left_alone(sim: Sim) -> None:
    there = wanted.read(sim.paths, uuid(0), [])
    wanted.write(sim.paths, uuid(0), there._replace(pending=there._replace(local=())))
    sim.lines.clear()
    with sim.node.store.locks(time.monotonic() + 5, time.monotonic, time.sleep) as held:
        held.uuids({uuid(0)})
        assert end_due(sim.node, sim.call()) == [] and sim.lines == []
        assert wanted.read(sim.paths, uuid(0), []).pending is not None
    end_due(sim.node, sim.call())
    assert wanted.read(sim.paths, uuid(0), []) == there
