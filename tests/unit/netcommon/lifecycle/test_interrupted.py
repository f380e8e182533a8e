"""A signal, or the end of a hook's time, at any moment: the whole call ends, nothing swallows it, and what was done is what is answered."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from netcommon.host.api.host import Answer
from netcommon.host.api.requests import Request
from netcommon.lifecycle import change as changes
from netcommon.lifecycle import down as downs
from netcommon.lifecycle import up as ups
from netcommon.lifecycle.bring_up import BringUp
from netcommon.lifecycle.change import change, setting
from netcommon.lifecycle.context import Node
from netcommon.lifecycle.gc import gc
from netcommon.lifecycle.site_scripts import Scripts
from netcommon.operations.base import Operation
from runtime import wanted
from runtime.errors import Interrupted
from runtime.nic import Nic
from runtime.record import UP, Record
from runtime.wanted import Wanted
from tests.support.bootstrap import ROOT
from tests.support.sim import Sim, nic


def guest(number: int, **more: str) -> Nic:
    uuid = f"{number:08x}-0000-4000-8000-000000000000"
    mac = f"aa:00:00:00:00:{number:02x}"
    return nic("routed", INTERFACE=f"tap{number}", INTERFACE_UUID=uuid, MAC=mac, INSTANCE=f"web{number}", IP=f"10.0.0.{number}", **more)


def interrupting(sim: Sim, at: int) -> Callable[[], bool]:
    """Let the request number ``at`` from now on be the last one; the answer tells whether it came to that."""
    left = [at]

    def fail(_request: Request) -> Answer | None:
        left[0] -= 1
        if left[0] == -1:
            raise Interrupted("ended by signal 15")
        return None

    sim.host.fail = fail
    return lambda: left[0] < 0


def ends_afterwards(_node: object, _call: object) -> None:
    raise Interrupted("ended by signal 15")


def test_an_answer_stands_whatever_ends_what_follows_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sim = Sim(str(tmp_path))
    sim.tap("tap1")
    for module in (ups, downs, changes):
        monkeypatch.setattr(module, "give_back", ends_afterwards)
    assert sim.up(guest(1)).changed and sim.record(guest(1).uuid).state == UP
    node = sim.node
    assert change(node, guest(1).uuid, sim.call(), setting(node, {"spoof_guard": "no"}, (), 0.0)).changed
    assert sim.down(guest(1)).changed and not sim.records()
    assert len([line for line in sim.lines if "ended by signal 15" in line]) == 3


def test_an_up_stands_from_when_that_is_on_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ganeti's file, and what else is told of it, come after that; a signal then leaves the record, and the answer, as they are."""
    sim = Sim(str(tmp_path))
    sim.tap("tap1")

    def told(_attempt: BringUp, _record: object) -> None:
        raise Interrupted("ended by signal 15")

    monkeypatch.setattr(BringUp, "_announce", told)
    assert sim.up(guest(1)).changed and sim.record(guest(1).uuid).state == UP
    assert sim.up(nic("routed", **{**guest(1).environment, "IP": "10.0.0.9"})).changed
    assert sim.record(guest(1).uuid).state == UP and sim.record(guest(1).uuid).before is None
    assert len([line for line in sim.lines if "after the NIC's own work" in line]) == 2


def test_a_signal_when_the_intent_is_on_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And nothing is done yet: what is on record is as it was, of a first up and of another one."""
    sim = Sim(str(tmp_path))
    sim.tap("tap1")
    before, intend = sim.picture(), BringUp._intend

    def told(attempt: BringUp, record: Record, operations: list[Operation]) -> None:
        intend(attempt, record, operations)
        raise Interrupted("ended by signal 15")

    with monkeypatch.context() as patched:
        patched.setattr(BringUp, "_intend", told)
        with pytest.raises(Interrupted):
            sim.up(guest(1))
    assert (sim.records(), sim.files(), sim.picture()) == ([], [], before)
    sim.up(guest(1))
    was = sim.record(guest(1).uuid), sim.files(), sim.picture()
    with monkeypatch.context() as patched:
        patched.setattr(BringUp, "_intend", told)
        with pytest.raises(Interrupted):
            sim.up(nic("routed", **{**guest(1).environment, "IP": "10.0.0.9"}))
    assert (sim.record(guest(1).uuid), sim.files(), sim.picture()) == was


def test_a_signal_when_the_last_file_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The change holds, and its file says so: that is what is answered."""
    sim = Sim(str(tmp_path))
    sim.tap("tap1")
    sim.up(guest(1))
    keep, written = changes._keep, list[Wanted]()

    def kept(node: Node, nic: Nic, before: Wanted, after: Wanted) -> None:
        keep(node, nic, before, after)
        written.append(after)
        if len(written) == 2:
            raise Interrupted("ended by signal 15")

    monkeypatch.setattr(changes, "_keep", kept)
    assert change(sim.node, guest(1).uuid, sim.call(), setting(sim.node, {"spoof_guard": "no"}, (), 0.0)).changed
    assert wanted.read(sim.paths, guest(1).uuid, []) == written[-1] and written[-1].pending is None
    assert [line for line in sim.lines if "ended by signal 15" in line] != []


def test_a_signal_before_the_last_file_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The change holds, and is answered as done: it is kept before the call ends, and a reboot does not forget it."""
    sim = Sim(str(tmp_path))
    sim.tap("tap1")
    sim.up(guest(1))
    keep, came = changes._keep, list[Wanted]()

    def kept(node: Node, nic: Nic, before: Wanted, after: Wanted) -> None:
        came.append(after)
        if len(came) == 2:
            raise Interrupted("ended by signal 15")
        keep(node, nic, before, after)

    monkeypatch.setattr(changes, "_keep", kept)
    assert change(sim.node, guest(1).uuid, sim.call(), setting(sim.node, {"spoof_guard": "no"}, (), 0.0)).changed
    there = wanted.read(sim.paths, guest(1).uuid, [])
    assert there.pending is None and [each.option for each in there.local] == ["spoof_guard"]
    sim.reboot()
    sim.tap("tap1")
    sim.up(guest(1))
    assert [each.option for each in sim.record(guest(1).uuid).nic.wanted] == ["spoof_guard"]


def test_ctrl_c_when_a_change_holds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The record says that it holds, and so does the file."""
    sim = Sim(str(tmp_path))
    sim.tap("tap1")
    sim.up(guest(1))

    def told(_attempt: BringUp, _record: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(BringUp, "_announce", told)
    with pytest.raises(KeyboardInterrupt):
        change(sim.node, guest(1).uuid, sim.call(), setting(sim.node, {"spoof_guard": "no"}, (), 0.0))
    there = wanted.read(sim.paths, guest(1).uuid, [])
    assert there.pending is None and [each.option for each in there.local] == ["spoof_guard"]
    assert [each.option for each in sim.record(guest(1).uuid).nic.wanted] == ["spoof_guard"]


def test_gc_goes_on_with_no_other_nic(tmp_path: Path) -> None:
    sim = Sim(str(tmp_path))
    for number in (1, 2, 3):
        sim.tap(f"tap{number}")
        sim.up(guest(number))
        sim.host.remove_link(f"tap{number}")
    interrupting(sim, 0)
    with pytest.raises(Interrupted):
        gc(sim.node, sim.call())
    assert len(sim.records()) == 2
    sim.host.fail = lambda _request: None
    gc(sim.node, sim.call())
    assert not sim.records()


def test_an_up_that_cleans_up_first_ends_at_each_request(tmp_path: Path) -> None:
    """It never ends well after it, unless all of its own was done; and the next one does."""
    for at in range(60):
        sim = Sim(str(tmp_path / str(at)))
        sim.tap("tap1")
        sim.up(guest(1))
        sim.host.remove_link("tap1")
        sim.tap("tap1")
        came = interrupting(sim, at)
        try:
            sim.up(guest(2)._replace(interface="tap1", environment={**guest(2).environment, "INTERFACE": "tap1"}))
            assert not came() or any("after the NIC's own work" in line for line in sim.lines), at
        except Interrupted:
            assert came()
        sim.host.fail = lambda _request: None
        assert sim.up(guest(2)._replace(interface="tap1", environment={**guest(2).environment, "INTERFACE": "tap1"})) is not None
        sim.gc()
        assert [record.uuid for record in sim.records()] == [guest(2).uuid]
        if not came():
            break
    assert at > 5 and not came()


@pytest.mark.parametrize("mode", ["routed, all options", "bridged, trunk", "openvswitch, guarded"])
def test_a_down_ends_what_it_has_begun(mode: str, tmp_path: Path) -> None:
    """At each request: the NIC is up as before, or down; there are no halves for gc to find."""
    for at in range(60):
        sim = Sim(str(tmp_path / str(at)))
        sim.up(nic(mode))
        was = sim.picture()
        came = interrupting(sim, at)
        try:
            sim.down(nic(mode))
            assert not came() or any("after the NIC's own work" in line for line in sim.lines), at
        except Interrupted:
            assert came()
        sim.host.fail = lambda _request: None
        if sim.records():
            assert (sim.record().state, sim.picture()) == (UP, was), at
        else:
            assert sim.picture() == sim.before, at
        if not came():
            break
    assert at > 1 and not came()


def test_a_down_told_to_end_in_the_sites_scripts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They have begun, so the network does not stay as if nothing had."""

    def told(_scripts: Scripts) -> None:
        raise Interrupted("ended by signal 15")

    sim = Sim(str(tmp_path))
    sim.up(nic("routed, table"))
    sim.node.store.write(sim.record()._replace(scripts=True))
    monkeypatch.setattr(Scripts, "down", told)
    with pytest.raises(Interrupted):
        sim.down(nic("routed, table"))
    assert sim.records() == [] and sim.picture() == sim.before


def test_a_signal_while_the_answer_is_said() -> None:
    """The work has ended: the status is what it came to, and nothing else is said."""
    code = """
import os, signal
from netcommon.doors import call
finish = call.Door.finish
def late(door):
    os.kill(os.getpid(), signal.SIGTERM)
    finish(door)
call.Door.finish = late
call.run("kvm-ifup", lambda door, environ, argv: 0)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=ROOT, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_hook_takes_back_what_it_has_begun(number: signal.Signals) -> None:
    """A terminal's signals reach the hooks of a QEMU that runs in it; what the caller ignores is no signal."""
    code = f"""
import os, signal
from netcommon.doors import call
def work(door, environ, argv):
    try:
        os.kill(os.getpid(), {int(number)})
        return 0
    finally:
        os.kill(os.getpid(), {int(number)})
        print("undone", flush=True)
call.run("kvm-ifup", work)
"""
    heeding = f"import signal\nsignal.signal({int(number)}, signal.SIG_DFL)\n{code}"  # whatever our own caller ignores
    done = subprocess.run([sys.executable, "-c", heeding], capture_output=True, text=True, check=False, cwd=ROOT, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (75, "undone\n", f"netcommon: error: ended by signal {int(number)}\n")
    if number != signal.SIGTERM:
        ignoring = f"import signal\nsignal.signal({int(number)}, signal.SIG_IGN)\n{code}"
        done = subprocess.run([sys.executable, "-c", ignoring], capture_output=True, text=True, check=False, cwd=ROOT, timeout=60)
        assert (done.returncode, done.stdout, done.stderr) == (0, "undone\n", "")


@pytest.mark.parametrize("first", ["SIGTERM", "SIGALRM"])
def test_a_second_signal_leaves_the_way_back_its_time(first: str) -> None:
    """What was begun is undone whatever else comes, in its time: what then still hangs is ended again, as often as it takes."""
    code = f"""
import os, signal
from netcommon.doors import call
call.WAY_BACK, call.OVERTIME = 0.3, 0.0
def work(door, environ, argv):
    try:
        call.limit(0.1)
        while True:
            if "{first}" == "SIGTERM":
                os.kill(os.getpid(), signal.SIGTERM)
            signal.pause()
    finally:
        for _again in range(3):
            os.kill(os.getpid(), signal.SIGTERM)
        print("undone", flush=True)
        while True:
            signal.pause()
call.run("kvm-ifup", work)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=ROOT, timeout=60)
    assert (done.returncode, done.stdout) == (75, "undone\n"), done.stderr
    assert done.stderr == "netcommon: error: the time limit of the hook is over\n"
