"""A NIC on the target of a migration: what may be on one node only is owed until the guest is here, and nothing is announced before."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from netcommon.host.api.facts import AF_INET, LEARNED, PROTOCOL, Route
from netcommon.host.api.host import Answer, RouteList
from netcommon.host.api.requests import AddRoute, DeleteRoute, Request, SendFrame
from netcommon.host.simulated.view import MemoryView
from netcommon.lifecycle.change import Difference, change, setting
from netcommon.lifecycle.check import Report, check, repair
from netcommon.lifecycle.migration import STARTS, arriving, awaited
from netcommon.lifecycle.migration_completion import complete_instance
from runtime import definitions
from runtime.errors import HostRefused
from runtime.nic import Nic
from runtime.record import CHANGING, UP, from_json, to_json
from tests.support.cut_off import cut_off
from tests.support.sim import Mortal, Sim, nic

ROUTED = nic("routed, table", TAGS="netcommon:0:announce:true")
STATIC = "netcommon:0:static_fdb"
BRIDGED = nic("bridged", TAGS=STATIC)
PARENT = 77


def ganeti(sim: Sim, *running: str) -> None:
    """Ganeti's KVM driver is at work on the node, and has these instances running."""
    folder = Path(sim.paths.kvm_run, "conf")
    folder.mkdir(parents=True, exist_ok=True)
    for name in running:
        (folder / f"{name}.runtime").write_text("[[], [], {}, []]")


def qemu(sim: Sim, *arguments: str) -> None:
    """The process that calls us."""
    folder = Path(sim.paths.proc, str(PARENT))
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "cmdline").write_bytes(b"".join(os.fsencode(each) + b"\0" for each in arguments))


def looked(sim: Sim) -> Report:
    node = sim.node
    return check(node, node.host.view(), sim.record())


def frames(sim: Sim) -> int:
    """How many have been sent by now."""
    return len([request for request in sim.host.requests if isinstance(request, SendFrame)])


def pinned(sim: Sim) -> bool:
    """Whether the bridge has a static entry for the guest."""
    entry = sim.host.view().fdb_entry(sim.index("br0"), BRIDGED.mac, 0)
    return entry is not None and entry.kind != LEARNED


def test_ganeti_migrates_a_bridged_nic_in(sim: Sim) -> None:
    """From the first up, through a second one and a repair, which change nothing, to the hook after the migration; then down."""
    ganeti(sim, "other")
    sim.up(BRIDGED)
    assert sim.record().incoming and sim.record().state == UP and not pinned(sim)
    assert looked(sim).good and len(looked(sim).owed) == 3
    for outcome in (sim.up(BRIDGED), repair(sim.node, sim.record().key, sim.call())):
        assert not outcome.changed and sim.record().incoming and not pinned(sim)
    assert complete_instance(sim.node, "web1", sim.call()) and sim.record().incoming
    ganeti(sim, "web1")
    assert not looked(sim).good and looked(sim).drift[0][1] == "owed, for its guest has arrived"
    assert complete_instance(sim.node, "web1", sim.call())
    assert pinned(sim) and not sim.record().incoming
    assert looked(sim).good and looked(sim).owed == ()
    whole = sim.picture()
    assert complete_instance(sim.node, "web1", sim.call()) and sim.picture() == whole
    sim.down(BRIDGED, "migrate")
    assert sim.picture() == sim.before and sim.files() == []


def test_a_migration_that_failed_leaves_nothing(sim: Sim) -> None:
    ganeti(sim)
    sim.up(BRIDGED)
    sim.down(BRIDGED, "migrate-failed")
    assert sim.picture() == sim.before and sim.files() == []


@pytest.mark.parametrize("kept", ["Ganeti is not here", "it starts it", "defined by hand", "no instance"])
def test_a_start_is_no_migration(sim: Sim, kept: str) -> None:
    """Ganeti writes the .runtime file before it calls us, and NICs that are defined by hand are none of its."""
    if kept != "Ganeti is not here":
        ganeti(sim, *(["web1"] if kept == "it starts it" else []))
    wanted = nic("bridged", TAGS=STATIC, **({"INSTANCE": ""} if kept == "no instance" else {}))
    if kept == "defined by hand":
        definitions.write(sim.paths, wanted)
    qemu(sim, "/usr/bin/qemu-system-x86_64", "-name", "web1")
    sim.up(wanted, parent=PARENT)
    assert not sim.record().incoming and pinned(sim)


@pytest.mark.parametrize("argument", ["-incoming", "--incoming"])
def test_plain_qemu_that_waits_for_a_guest(sim: Sim, argument: str) -> None:
    """Owed until the next up that does not come from it; a repair cannot know."""
    qemu(sim, "/usr/bin/qemu-system-x86_64", argument, "tcp:0:4444")
    sim.up(ROUTED, parent=PARENT)
    assert sim.record().incoming and not guest_route(sim) and frames(sim) == 0 and sim.scheduled == []
    assert not repair(sim.node, sim.record().key, sim.call()).changed and not guest_route(sim)
    assert sim.up(ROUTED).changed
    assert guest_route(sim) and not sim.record().incoming and frames(sim) == 2


def test_plain_qemu_that_waits_for_a_guest_to_which_nothing_is_owed(sim: Sim) -> None:
    """It is on its way all the same, which a registry is told, until the next up that does not come from it."""
    wanted = nic("bridged", IP="")
    qemu(sim, "/usr/bin/qemu-system-x86_64", "-incoming", "tcp:0:4444")
    sim.up(wanted, parent=PARENT)
    assert sim.record().incoming and looked(sim).owed == ()
    assert not repair(sim.node, sim.record().key, sim.call()).changed and sim.record().incoming
    assert not sim.up(wanted).changed and not sim.record().incoming


def test_guests_for_whom_a_qemu_of_ganetis_waits(sim: Sim) -> None:
    """It has a process of its own, and no runtime file yet; one that has ended, or that does not wait, is none."""
    assert arriving(sim.node) == ()
    ganeti(sim, "here")
    folder = Path(sim.paths.kvm_run, "pid")
    folder.mkdir()
    for name, pid in {"here": "77", "comes": "77", "ended": "78", "starts": "79", "empty": "", "strange": "x"}.items():
        (folder / name).write_text(f"{pid}\n")
    for pid, words in {77: ["-incoming", "tcp:0:8102"], 79: ["-S"]}.items():
        place = Path(sim.paths.proc, str(pid))
        place.mkdir(parents=True)
        (place / "cmdline").write_bytes(b"".join(os.fsencode(each) + b"\0" for each in ["qemu-system-x86_64", *words]))
    assert arriving(sim.node) == ("comes",)
    ganeti(sim, "comes")
    assert arriving(sim.node) == ()


def guest_route(sim: Sim) -> bool:
    return any(route.destination == "10.0.0.5/32" and route.protocol == PROTOCOL for route in sim.host.kernel.routes)


def test_ganeti_brings_a_routed_nic_up_when_its_guest_is_here(sim: Sim) -> None:
    """Although the .runtime file is not."""
    ganeti(sim)
    sim.up(ROUTED)
    assert guest_route(sim) and not sim.record().incoming and frames(sim) == 2


def test_the_phases_of_ganeti_3_2(sim: Sim) -> None:
    sim.up(ROUTED, phase="pre")
    assert not guest_route(sim) and frames(sim) == 0 and looked(sim).good
    sim.up(ROUTED, phase="post")
    assert guest_route(sim) and frames(sim) == 2 and len(sim.scheduled) == 1
    whole = sim.picture()
    assert not sim.up(ROUTED, phase="pre").changed  # late, or repeated: the guest is here
    assert sim.picture() == whole and not sim.record().incoming
    assert not sim.up(ROUTED).changed and frames(sim) == 2
    assert not sim.up(ROUTED, phase="post").changed and frames(sim) == 4


def test_what_cannot_be_completed_does_not_cut_the_guest_off(sim: Sim) -> None:
    """It is on the record, check tells it, and the next repair does it."""
    sim.up(ROUTED, phase="pre")
    before = sim.picture()
    ganeti(sim, "web1")
    sim.host.fail = lambda request: Answer(1, "no") if isinstance(request, AddRoute) else None
    assert not complete_instance(sim.node, "web1", sim.call())
    with pytest.raises(HostRefused):
        repair(sim.node, sim.record().key, sim.call())
    assert sim.picture()["links"] == before["links"] and sim.record().state == UP
    sim.host.fail = lambda request: None
    assert [does for does, _text in looked(sim).drift] == ["ip -4 route replace 10.0.0.5/32 dev tap0 table guests protocol 174"]
    assert repair(sim.node, sim.record().key, sim.call()).changed and guest_route(sim)
    sim.down(ROUTED)
    assert sim.picture() == sim.before


def test_said_again_only_while_the_nic_is_up_on_this_device(sim: Sim) -> None:
    sim.up(ROUTED)
    ((delays, again),) = sim.scheduled
    assert delays == (0.1, 0.3, 0.6, 0.9) and frames(sim) == 2
    assert again() and frames(sim) == 4
    node = sim.node  # as the process that says it again has it
    record = sim.record()
    for changed in (record._replace(state="closing"), record._replace(ifindex=record.ifindex + 1), record._replace(boot="another")):
        node.store.write(changed)
        assert not again() and frames(sim) == 4
    node.store.write(record)
    assert again() and frames(sim) == 6
    sim.down(ROUTED)
    assert not again() and frames(sim) == 6


def test_an_uplink_that_came_while_the_nic_did(sim: Sim) -> None:
    """There was none when the host was looked at."""
    (default,) = [route for route in sim.host.view().routes(AF_INET) if route.destination == "0.0.0.0/0"]
    sim.host.execute([DeleteRoute(default)], stop=True)

    def then(request: Request) -> Answer | None:
        if isinstance(request, AddRoute) and request.route != default:
            sim.host.fail = lambda _request: None
            sim.host.execute([AddRoute(default)], stop=True)
        return None

    sim.host.fail = then
    sim.up(ROUTED)
    assert frames(sim) == 2 and len(sim.scheduled) == 1


def test_what_cannot_be_said_is_a_warning_and_is_said_again(sim: Sim) -> None:
    def fail(request: Request) -> Answer | None:
        return Answer(100, "eth-br0: Network is down") if isinstance(request, SendFrame) else None

    sim.host.fail = fail
    assert sim.up(ROUTED).changed and sim.record().state == UP
    assert sim.log.problems[-1].endswith("announce 10.0.0.5 on the uplinks of table guests: eth-br0: Network is down")
    sim.host.fail = lambda _request: None
    ((_delays, again),) = sim.scheduled
    assert again() and sim.host.wire.frames


def test_who_is_announced_looks_at_all_routes_once(sim: Sim, monkeypatch: pytest.MonkeyPatch) -> None:
    """For the route that shall be made, and for the uplinks. Each look lists the table, which has thousands on some nodes."""
    asked: list[object] = []
    routes, listed = MemoryView.routes, MemoryView.route_list

    def counted(
        view: MemoryView, family: int, table: int | None = None, to: str | None = None, metric: int | None = None
    ) -> Sequence[Route]:
        asked.append((family, table, to))
        return routes(view, family, table, to, metric)

    def counted_list(view: MemoryView, family: int, table: int | None = None) -> RouteList:
        asked.append((family, table))
        with monkeypatch.context() as inside:
            inside.setattr(MemoryView, "routes", routes)  # by which the simulation lists them
            return listed(view, family, table)

    monkeypatch.setattr(MemoryView, "routes", counted)
    monkeypatch.setattr(MemoryView, "route_list", counted_list)
    sim.up(ROUTED)
    ((delays, again),) = sim.scheduled
    assert all(again() for _ in delays) and frames(sim) == 2 * (1 + len(delays))
    assert asked == [(AF_INET, 100)]


def test_an_uplink_that_goes_is_told_no_more(sim: Sim) -> None:
    sim.up(ROUTED)
    ((_delays, again),) = sim.scheduled
    sim.host.remove_link("eth-br0")
    assert again() and frames(sim) == 2


def changed(sim: Sim, *unset: str, **options: str) -> None:
    node = sim.node
    change(node, sim.record().key, sim.call(), setting(node, options, unset))


def test_a_change_takes_nothing_over_that_is_owed(sim: Sim) -> None:
    """Say nothing of the guest with a change of an option; it is not foretold either."""
    sim.up(ROUTED, phase="pre")
    assert sim.record().incoming and sim.host.view().routes(AF_INET, sim.index("tap0")) == []
    told: list[Difference] = []
    node = sim.node
    change(node, sim.record().key, sim.call(), setting(node, {"rate_in": "8mbit"}, ()), held_back=told.append)
    changed(sim, rate_in="8mbit")
    assert sim.record().incoming and sim.host.view().routes(AF_INET, sim.index("tap0")) == [] and frames(sim) == 0
    assert not any(operation.exclusive() for operation in told[0].made)
    change(sim.node, sim.record().key, sim.call())
    assert sim.record().incoming and sim.host.view().routes(AF_INET, sim.index("tap0")) == [] and frames(sim) == 0
    sim.up(ROUTED, phase="post")
    assert not sim.record().incoming and frames(sim) > 0 and sim.record().nic.wanted


def test_a_change_of_a_nic_that_had_nothing_to_wait_for(sim: Sim) -> None:
    """Let wait what it gets while its guest is on the way, as what an up gives it; what it has when Ganeti stops the guest it keeps."""
    plain = nic("bridged")
    ganeti(sim, "other")
    sim.up(plain)
    assert not sim.record().incoming
    changed(sim, static_fdb="yes")
    assert sim.record().incoming and not pinned(sim) and looked(sim).good
    ganeti(sim, "web1")
    assert complete_instance(sim.node, "web1", sim.call()) and pinned(sim)
    Path(sim.paths.kvm_run, "conf", "web1.runtime").unlink()
    changed(sim, rate_in="8mbit")
    assert pinned(sim) and not sim.record().incoming


def on_its_way(sim: Sim) -> None:
    ganeti(sim, "other")
    sim.up(BRIDGED)


@pytest.mark.parametrize("by", ["a change", "an up"])
def test_a_change_that_was_cut_off_keeps_no_guest_from_arriving(tmp_path: Path, by: str) -> None:
    """The hook after the migration puts the NIC back first, says so, and then does what was owed."""
    whole = Sim(str(tmp_path / "whole"))
    ganeti(whole, "web1")
    whole.up(BRIDGED)
    assert pinned(whole)
    doing = {"a change": lambda sim: changed(sim, rate_in="8mbit"), "an up": lambda sim: sim.up(BRIDGED, phase="post")}
    sim = cut_off(tmp_path, on_its_way, doing[by])
    assert complete_instance(sim.node, "web1", sim.call()) and sim.record().state == CHANGING, "it is still on its way"
    ganeti(sim, "web1")
    assert complete_instance(sim.node, "web1", sim.call())
    assert sim.record().state == UP and not sim.record().incoming and sim.picture() == whole.picture()
    assert looked(sim).good and any("cut off" in line for line in sim.lines)


def test_a_nic_that_cannot_be_put_back_is_not_completed(tmp_path: Path) -> None:
    """The hook says so, and fails."""
    sim = cut_off(tmp_path, on_its_way, lambda sim: changed(sim, rate_in="8mbit"))
    ganeti(sim, "web1")
    with sim.failing(0, Answer(errno.EIO, "no")):
        assert not complete_instance(sim.node, "web1", sim.call())
    assert sim.record().state == CHANGING and any("what was owed is not done" in line for line in sim.lines)
    assert complete_instance(sim.node, "web1", sim.call()) and pinned(sim)


def test_a_change_of_a_nic_whose_call_alone_says_that_its_guest_is_on_the_way(sim: Sim) -> None:
    """Record the phase of Ganeti 3.2 though nothing is owed yet; what is owed since is done with the second call."""
    plain = nic("bridged")
    sim.up(plain, phase="pre")
    assert sim.record().incoming and looked(sim).good and looked(sim).owed == ()
    changed(sim, static_fdb="yes")
    assert not pinned(sim) and looked(sim).good and looked(sim).owed != ()
    sim.up(plain, phase="post")
    assert pinned(sim) and not sim.record().incoming
    assert not sim.up(plain, phase="pre").changed and not sim.record().incoming  # late, or repeated
    sim.down(plain)
    assert sim.picture() == sim.before


def test_the_second_call_ends_the_way_of_a_guest_that_is_owed_nothing(sim: Sim) -> None:
    plain = nic("bridged")
    sim.up(plain, phase="pre")
    assert not sim.up(plain, phase="post").changed and not sim.record().incoming
    changed(sim, static_fdb="yes")
    assert pinned(sim)


ON_ITS_WAY = [pytest.param(BRIDGED, id="bridged"), pytest.param(ROUTED, id="routed")]


def waits(sim: Sim, guest: Nic) -> None:
    """The guest is on its way, and Ganeti has it here a moment later."""
    ganeti(sim, "other")
    sim.up(guest, phase="pre")
    assert sim.record().incoming
    ganeti(sim, "web1")


def completed(sim: Sim, again: str, guest: Nic) -> None:
    """What completes it after a failure: the hook of Ganeti once more, a repair, an up."""
    if again == "hook":
        assert complete_instance(sim.node, "web1", sim.call())
    elif again == "repair":
        repair(sim.node, sim.record().key, sim.call())
    else:
        sim.up(guest, phase="post")


@pytest.mark.parametrize("again", ["hook", "repair", "up"])
@pytest.mark.parametrize("guest", ON_ITS_WAY)
def test_what_was_owed_is_owed_until_all_of_it_holds(tmp_path: Path, guest: Nic, again: str) -> None:
    """Whatever request is refused: check says once what is left, and whoever completes it again does all of it, and tells of it."""
    whole = Sim(str(tmp_path / "whole"))
    waits(whole, guest)
    whole.requests()
    assert complete_instance(whole.node, "web1", whole.call())
    told, asked = frames(whole), len(whole.requests())
    assert asked
    for number in range(asked):
        sim = Sim(str(tmp_path / str(number)))
        waits(sim, guest)
        with sim.failing(number, Answer(errno.EPERM, "no")) as refused:
            assert not complete_instance(sim.node, "web1", sim.call())
        assert refused and sim.record().incoming and frames(sim) == 0
        drift = [does for does, _text in looked(sim).drift]
        assert drift and len(set(drift)) == len(drift) and looked(sim).owed == ()
        sim.lines.clear()
        completed(sim, again, guest)
        assert not sim.record().incoming and sim.picture() == whole.picture() and looked(sim).good
        assert not any("drifted" in line for line in sim.lines) and frames(sim) == told
        sim.down(guest)
        assert sim.picture() == sim.before


@pytest.mark.parametrize("guest", ON_ITS_WAY)
def test_a_completion_that_was_killed_is_completed(tmp_path: Path, guest: Nic) -> None:
    whole = Sim(str(tmp_path / "whole"))
    waits(whole, guest)
    assert complete_instance(whole.node, "web1", whole.call())
    for life in range(100):
        sim = Sim(str(tmp_path / str(life)))
        waits(sim, guest)
        with Mortal(sim, life) as process:
            complete_instance(sim.node, "web1", sim.call())
        assert complete_instance(sim.node, "web1", sim.call())
        assert not sim.record().incoming and sim.picture() == whole.picture() and looked(sim).good
        if len(process.steps) < life:
            return
    raise AssertionError("it was killed each time")


def test_who_repairs_something_else_completes_nothing(sim: Sim) -> None:
    """What is owed of it stays owed: another NIC's address given back is a repair of that alone."""
    waits(sim, BRIDGED)
    repair(sim.node, sim.record().key, sim.call(), lambda operation: not operation.exclusive())
    assert sim.record().incoming and not pinned(sim)
    assert complete_instance(sim.node, "web1", sim.call()) and pinned(sim) and not sim.record().incoming


@pytest.mark.parametrize("mode", ["bridged", "bridged, static"])
@pytest.mark.parametrize("incoming", [False, True])
def test_plain_qemu_beside_ganeti(sim: Sim, mode: str, incoming: bool) -> None:
    """QEMU itself calls for its NIC: no runtime file of Ganeti's will ever tell that the guest is here."""
    ganeti(sim, "other")
    qemu(sim, "/usr/bin/qemu-system-x86_64", *(["-incoming", "tcp:0:4444"] if incoming else []))
    made = nic("bridged", TAGS=STATIC if mode != "bridged" else "")
    sim.up(made, parent=PARENT)
    record = sim.record()
    assert record.incoming == incoming and not record.ganeti
    assert awaited(sim.node, record) == record.incoming
    assert pinned(sim) == (mode != "bridged" and not incoming)


def test_a_guest_of_ganeti_is_awaited_as_long_as_its_process_waits(sim: Sim) -> None:
    """From before Ganeti starts the process, which it does after the scripts, to the runtime file; also by a record of an older version."""
    ganeti(sim, "other")
    sim.up(nic("bridged", TAGS=""))
    written = json.loads(to_json(sim.record()))
    del written["ganeti"]
    record = from_json(json.dumps(written).encode())
    assert record == sim.record() and record.ganeti
    assert awaited(sim.node, record)
    later = record._replace(monotonic=record.monotonic - STARTS)
    assert not awaited(sim.node, later), "nobody of Ganeti's waits for it"
    for folder, name, text in (("proc", "4711", ""), ("pid", "web1", "4711\n")):
        place = Path(sim.paths.proc if folder == "proc" else f"{sim.paths.kvm_run}/{folder}")
        place.mkdir(parents=True, exist_ok=True)
        if text:
            (place / name).write_text(text)
        else:
            (place / name).mkdir()
    assert awaited(sim.node, later)
    ganeti(sim, "web1")
    assert not awaited(sim.node, later)


def test_a_nic_that_was_defined_is_none_of_ganeti_s(sim: Sim) -> None:
    """Its definition may go while its guest runs."""
    ganeti(sim, "other")
    made = nic("bridged", TAGS="")
    definitions.write(sim.paths, made)
    sim.up(made)
    definitions.remove(sim.paths, made.uuid)
    assert not awaited(sim.node, sim.record()) and not sim.record().ganeti
