"""change: every option of a NIC that is up, to another value and back; kept, pending, for a while, refused, killed."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from netcommon.host.api.host import Answer
from netcommon.host.api.requests import DeleteFdb
from netcommon.lifecycle.change import Difference, change, differ, setting, unchanged
from netcommon.lifecycle.changed_options import moment, read, take_back
from netcommon.lifecycle.check import check, repair
from netcommon.lifecycle.context import Outcome
from netcommon.lifecycle.ends import end_due
from netcommon.operations.guard.table import GuardTable, NicGuard
from netcommon.options.sources import given
from netcommon.process.run import Outcome as Ran
from netcommon.settings.model import Settings
from runtime import trust, wanted
from runtime.environment import environment_of, nic_from_environment
from runtime.errors import HostRefused, NicInvalid, RecordTooNew
from runtime.nic import LOCAL, Changed, Nic
from runtime.record import CHANGING, CLOSING, UP
from runtime.store import Store
from tests.support.options import every, text
from tests.support.sample import sample
from tests.support.sim import UUIDS, Killed, Mortal, Sim, nic
from tests.unit.netcommon.lifecycle.test_up import settled

pytestmark = pytest.mark.sampled(2)

#: A NIC of each mode in which every option of that mode can be had.
BASES: Mapping[str, Nic] = {
    "bridged": nic("bridged, access", IP="10.0.0.5", NETWORK_SUBNET6="fd01::/64", NETWORK_SUBNET="10.0.0.0/24", NETWORK_GATEWAY="10.0.0.1"),
    "routed": nic(
        "routed, table", NETWORK_SUBNET6="fd01::/64", NETWORK_GATEWAY6="fd01::1", NETWORK_SUBNET="10.0.0.0/24", NETWORK_GATEWAY="10.0.0.1"
    ),
    "openvswitch": nic("openvswitch", IP="10.0.0.5", NETWORK_SUBNET6="fd01::/64", NETWORK_SUBNET="10.0.0.0/24"),
}
ANY: Mapping[str, Nic] = {**BASES, "ext": nic("ext")}


CASES = [pytest.param(*each, id=f"{each.mode}-{each.name}={each.text}") for each in every()]


def machine(folder: Path, mode: str, **options: object) -> Sim:
    sim = Sim(str(folder))
    sim.host.templates["ovs/site.j2"] = "priority=5 actions=drop"
    sim.settings = sim.settings._replace(nic=options)
    sim.up(ANY[mode])
    sim.requests()
    return sim


def to(sim: Sim, *unset: str, seconds: float = 0.0, **options: str) -> Outcome:
    node = sim.node
    return change(node, UUIDS[0], sim.call(), setting(node, options, unset, seconds))


def operations(sim: Sim) -> object:
    found = settled(sim)
    assert isinstance(found, dict)
    return found["operations"]


def told(settings: Settings, mtu: int) -> Settings:
    """Those in which the guests of the network "told" are told this MTU."""
    return settings._replace(network_fields={"told": {"mtu": mtu}})


def texts(sim: Sim) -> list[str]:
    return [file.content for file in sim.host.view().files()]


@pytest.mark.parametrize(("mode", "name", "value"), CASES)
def test_every_option_and_back(tmp_path: Path, mode: str, name: str, value: object) -> None:
    """The host and the record are those of an up with that value, then those of the start."""
    sim, fresh = machine(tmp_path / "a", mode), machine(tmp_path / "b", mode, **{name: value})
    was, held = sim.picture(), operations(sim)
    assert to(sim, **{name: text(value)}).changed
    assert (sim.picture(), operations(sim)) == (fresh.picture(), operations(fresh))
    assert check(sim.node, sim.host.view(), sim.record()).good
    again = sim.up(ANY[mode])
    assert not again.changed, "the next up of the same NIC has it too"
    assert differ(sim.node, [sim.record()]) == 0
    assert to(sim, name).changed
    assert (sim.picture(), operations(sim)) == (was, held)
    assert wanted.all_of(sim.paths, []) == {}
    sim.down(ANY[mode])
    assert sim.picture() == sim.before


def test_it_is_stronger_than_tags_and_says_where_it_comes_from(tmp_path: Path) -> None:
    sim = Sim(str(tmp_path))
    sim.up(nic("bridged", TAGS="netcommon:0:rate_in:4mbit"))
    assert "rate_in is 8mbit, was 4mbit" in to(sim, rate_in="8mbit").text
    (tag, one) = [each for each in given(sim.record().nic, sim.settings) if each.name == "rate_in"]
    assert (tag.value, one.value, one.origin) == (4_000_000, 8_000_000, "set by change")
    sim.down(nic("bridged"), "shutdown", final=True)
    assert not sim.records()
    sim.up(nic("bridged", TAGS="netcommon:0:rate_in:2mbit"))
    assert sim.record().nic.wanted == (Changed("rate_in", "8mbit"),)


@pytest.mark.parametrize("context", ["hot-remove", "migrate"])
def test_it_goes_with_the_nic(tmp_path: Path, context: str) -> None:
    sim = machine(tmp_path, "bridged")
    to(sim, rate_in="8mbit")
    assert os.listdir(sim.paths.wanted) == [f"{UUIDS[0]}.json"]
    sim.down(BASES["bridged"], context)
    assert os.listdir(sim.paths.wanted) == []


@pytest.mark.parametrize("mode", BASES)
def test_refused_at_any_request(tmp_path: Path, mode: str) -> None:
    """The NIC, its record and what is kept are as they were."""
    options = {"rate_in": "8mbit", "addresses": "10.0.0.9", "spoof_guard": "no"}
    whole = machine(tmp_path / "whole", mode)
    to(whole, **options)
    for place in range(len(whole.requests())):
        sim = machine(tmp_path / str(place), mode)
        to(sim, rate_out="4mbit")
        sim.requests()
        was = sim.picture(), settled(sim), wanted.all_of(sim.paths, [])
        with sim.failing(place, Answer(errno.EINVAL, "no"), times=1), pytest.raises(HostRefused):
            to(sim, **options)
        assert (sim.picture(), settled(sim), wanted.all_of(sim.paths, [])) == was
        assert sim.record().state == UP
        sim.close()


@pytest.mark.parametrize("mode", BASES)
def test_killed_anywhere(tmp_path: Path, mode: str) -> None:
    """The next repair leads to what it was, or to what it was to become; hooks ignore what is pending."""
    whole = machine(tmp_path / "whole", mode)
    was = whole.picture()
    with Mortal(whole) as mortal:
        to(whole, rate_in="8mbit")
    now = whole.picture()
    for life in sample(range(len(mortal.steps)), 9):
        sim = machine(tmp_path / str(life), mode)
        with Mortal(sim, life):
            to(sim, rate_in="8mbit")
            raise AssertionError("it was not killed")
        repair(sim.node, UUIDS[0], sim.call())
        assert sim.picture() in (was, now), life
        assert check(sim.node, sim.host.view(), sim.record()).good
        expected = now if read(sim.node, UUIDS[0], []).local else was
        assert sim.picture() == expected, life
        sim.up(BASES[mode])
        assert sim.picture() == expected, life
        to(sim, rate_in="8mbit")
        assert sim.picture() == now and wanted.read(sim.paths, UUIDS[0], []).pending is None
        sim.close()


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"no_such": "1"}, "option"),
        ({"rate_in": "fast"}, "rate_in"),
        ({"isolated": ""}, "isolated"),
        ({"addresses": "10.0.0.9,10.0.0.9"}, "addresses"),
    ],
)
def test_what_no_nic_can_have(tmp_path: Path, options: dict[str, str], why: str) -> None:
    sim = machine(tmp_path, "bridged")
    was = sim.picture(), settled(sim)
    with pytest.raises(NicInvalid, match=why):
        to(sim, **options)
    assert (sim.picture(), settled(sim)) == was and wanted.all_of(sim.paths, []) == {} and sim.requests() == []


def test_a_nic_that_is_not_up(tmp_path: Path) -> None:
    sim = Sim(str(tmp_path))
    with pytest.raises(NicInvalid, match="is up"):
        to(sim, rate_in="8mbit")
    sim.up(nic("bridged"))
    sim.host.remove_link("tap0")
    with pytest.raises(NicInvalid, match="is up"):
        to(sim, rate_in="8mbit")


def test_a_damaged_file_goes_to_quarantine(tmp_path: Path) -> None:
    """And the NIC comes up with its tags' options."""
    sim = Sim(str(tmp_path))
    folder = Path(sim.paths.wanted)
    folder.mkdir(parents=True)
    (folder / f"{UUIDS[0]}.json").write_text("{")
    sim.up(nic("bridged"))
    assert sim.record().nic.wanted == ()
    assert (folder / "quarantine" / f"{UUIDS[0]}.json-0").read_text() == "{"
    assert any("damaged" in line for line in sim.lines)


#: What a newer version may have set: an option, and a value, that this one does not know.
NEWER = [("no_such", "1"), ("link_local", "no_such")]


def add(sim: Sim, option: str, value: str) -> str:
    """Put an option into the NIC's file, as it is written; return the file's text."""
    path = Path(sim.paths.wanted, f"{UUIDS[0]}.json")
    stored = json.loads(path.read_text())
    stored["local"][option] = {"value": value, "end": None, "then": None}
    path.write_text(json.dumps(stored))
    return path.read_text()


@pytest.mark.parametrize(("option", "value"), NEWER)
def test_an_option_of_a_newer_version_is_not_lost(tmp_path: Path, option: str, value: str) -> None:
    """Refuse a change, which would undo what that version did for it, by its name; the file stays, and so do the NIC's other options."""
    sim = machine(tmp_path, "bridged")
    to(sim, rate_in="8mbit")
    text_of, was, _done = add(sim, option, value), sim.picture(), sim.requests()
    path = Path(sim.paths.wanted, f"{UUIDS[0]}.json")
    with pytest.raises(HostRefused, match=f"{option}='{value}'.*--unset {option}") as refused:
        to(sim, isolated="yes")
    assert refused.value.status == 69
    with pytest.raises(HostRefused, match=option):
        change(sim.node, UUIDS[0], sim.call())
    assert path.read_text() == text_of and sim.picture() == was and sim.requests() == []
    sim.down(BASES["bridged"], "shutdown", final=True)
    sim.up(BASES["bridged"])
    assert path.read_text() == text_of and [one.option for one in sim.record().nic.wanted] == ["rate_in"]
    assert any(f"--unset {option}" in line for line in sim.lines)
    sim.down(BASES["bridged"], "shutdown", final=True)
    assert take_back(sim.node, UUIDS[0], ("rate_in",), sim.call()).changed
    assert kept(sim) == [(option, value)], "of a NIC that is not up nothing else is lost either"
    sim.up(BASES["bridged"])
    to(sim, option, rate_in="8mbit")
    assert kept(sim) == [("rate_in", "8mbit")]


def test_what_a_newer_version_did_is_not_undone_by_an_end(tmp_path: Path) -> None:
    """The NIC has the option on its record: planned anew it would be without, so the end of another waits."""
    sim = machine(tmp_path, "bridged")
    to(sim, seconds=60.0, rate_in="8mbit")
    text_of, record = add(sim, "no_such", "1"), sim.record()
    sim.node.store.write(record._replace(nic=record.nic._replace(wanted=(*record.nic.wanted, Changed("no_such", "1", LOCAL, 0.0)))))
    was = sim.picture()
    node = sim.node
    there = node._replace(clock=node.clock._replace(now=lambda: node.clock.now() + 61))
    ((_uuid, became),) = end_due(there, sim.call()._replace(deadline=there.clock.now() + 5))
    assert isinstance(became, HostRefused) and "no_such" in str(became)
    assert Path(sim.paths.wanted, f"{UUIDS[0]}.json").read_text() == text_of and sim.picture() == was


# -- for a while


def test_it_ends_by_itself(tmp_path: Path) -> None:
    sim = machine(tmp_path, "bridged")
    was = operations(sim)
    to(sim, rate_out="4mbit")
    lasting = operations(sim)
    to(sim, seconds=100, rate_in="8mbit")
    assert operations(sim) != lasting and end_due(sim.node, sim.call()) == []
    node = sim.node
    later = node._replace(clock=node.clock._replace(now=lambda: node.clock.now() + 101))
    ((uuid, outcome),) = end_due(later, sim.call()._replace(deadline=later.clock.now() + 5))
    assert uuid == UUIDS[0] and isinstance(outcome, Outcome) and outcome.changed
    assert operations(sim) == lasting
    assert [one.option for one in wanted.read(sim.paths, UUIDS[0], []).local] == ["rate_out"]
    assert wanted.first_end(sim.paths) is None
    to(sim, "rate_out")
    assert operations(sim) == was


@pytest.mark.parametrize(
    ("boot", "wall", "over"),
    [("boot-1", -1e6, False), ("boot-1", 1e6, False), ("boot-2", 50, False), ("boot-2", 150, True), ("boot-2", -1e6, True)],
)
def test_clocks(boot: str, wall: float, over: bool) -> None:
    """In the boot in which it was set the wall clock means nothing; in another one, one that is set back keeps nothing for ever."""
    since = wanted.Moment("boot-1", 1000.0, 1.7e9)
    end = wanted.End(since, wanted.Moment("boot-1", 1100.0, 1.7e9 + 100))
    assert end.over(wanted.Moment(boot, 1050.0 if boot == "boot-1" else 5.0, 1.7e9 + wall)) == over


def test_after_a_reboot_it_is_told_by_the_new_clock(tmp_path: Path) -> None:
    """So nobody looks again and again whether an end of an earlier boot has come."""
    sim = machine(tmp_path, "bridged")
    to(sim, seconds=1000, rate_in="8mbit")
    node = sim.node
    later = node._replace(identity=node.identity._replace(boot="boot-2"))
    assert end_due(later, sim.call()) == []
    first = wanted.first_end(sim.paths)
    assert first is not None and first.boot == "boot-2" and 0 < first.monotonic - node.clock.now() <= 1000
    assert not wanted.due(sim.paths, wanted.Moment("boot-2", node.clock.now(), node.clock.wall()))


# -- settings and tags


def test_todays_settings_and_new_tags(tmp_path: Path) -> None:
    sim = machine(tmp_path / "a", "bridged")
    assert differ(sim.node, [sim.record()]) == 0
    sim.settings = sim.settings._replace(nic={"isolated": True})
    assert differ(sim.node, [sim.record()]) == 1
    assert change(sim.node, UUIDS[0], sim.call()).changed
    assert differ(sim.node, [sim.record()]) == 0 and not change(sim.node, UUIDS[0], sim.call()).changed
    assert change(sim.node, UUIDS[0], sim.call(), tags=["netcommon:0:isolated:no", "role:web"]).changed
    assert sim.record().nic.tags == ("netcommon:0:isolated:no", "role:web")
    again = nic_from_environment({**environment_of(BASES["bridged"]), "TAGS": "netcommon:0:isolated:no role:web"})
    assert not sim.up(again).changed


def test_an_entry_in_every_vlan_of_the_port(tmp_path: Path) -> None:
    """With static_fdb, the default VLAN has the guest's entry when the port gets it, and the other VLANs keep theirs when it goes."""
    sim, fresh = machine(tmp_path / "a", "bridged", static_fdb=True), machine(tmp_path / "b", "bridged", static_fdb=True, default_vlan=True)
    was = sim.picture()
    to(sim, default_vlan="yes")
    assert sim.picture() == fresh.picture() != was
    to(sim, "default_vlan")
    assert sim.picture() == was


@pytest.mark.parametrize("held", [True, False])
def test_a_kill_between_the_record_and_what_is_kept(tmp_path: Path, held: bool) -> None:
    """A pending change counts if the record says that the NIC has it; and an end that was pending is met all the same."""
    sim = machine(tmp_path, "openvswitch")
    real = wanted.write

    def dies(paths: object, uuid: str, one: wanted.Wanted) -> None:
        if one.pending is None or not held:
            raise Killed
        real(paths, uuid, one)  # type: ignore[arg-type]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(wanted, "write", dies)
        with Mortal(sim):
            to(sim, rate_in="8mbit", seconds=60.0)
    assert [one.option for one in read(sim.node, UUIDS[0], []).local] == ["rate_in"] * held
    assert not sim.up(BASES["openvswitch"]).changed, "the next up keeps what it has"
    node = sim.node
    later = node._replace(clock=node.clock._replace(now=lambda: node.clock.now() + 61))
    ended = end_due(later, sim.call()._replace(deadline=later.clock.now() + 5))
    assert [uuid for uuid, _outcome in ended] == [UUIDS[0]] * held
    assert (sim.record().nic.wanted == () and wanted.all_of(sim.paths, []) == {}) or not held


@pytest.mark.parametrize("after", ["up", "gone", "reboot", "full"])
def test_what_held_and_was_pending_is_remembered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after: str) -> None:
    """Whatever the record says next: the change held, and only the last word of it is not on disk."""
    sim = machine(tmp_path, "bridged")
    to(sim, seconds=60.0, isolated="yes")
    real = wanted.write

    def fails(paths: object, uuid: str, one: wanted.Wanted) -> None:
        if one.pending is None:
            raise HostRefused("no space left on device")
        real(paths, uuid, one)  # type: ignore[arg-type]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(wanted, "write", fails)
        assert to(sim, rate_in="8mbit").changed, "it holds, whatever becomes of the file"
        if after == "full":
            sim.up(BASES["bridged"])  # which cannot write it either
    assert wanted.read(sim.paths, UUIDS[0], []).pending is not None
    if after == "gone":
        sim.host.remove_link("tap0")
        sim.gc()
    if after == "reboot":
        sim.reboot()
    sim.tap("tap0") if after in ("gone", "reboot") else None
    sim.up(BASES["bridged"])
    there = wanted.read(sim.paths, UUIDS[0], [])
    assert {one.option for one in there.local} == {"isolated", "rate_in"} and there.pending is None
    node = sim.node
    later = node._replace(clock=node.clock._replace(now=lambda: node.clock.now() + 61, wall=lambda: node.clock.wall() + 61))
    end_due(later, sim.call()._replace(deadline=later.clock.now() + 5))
    assert not sim.up(BASES["bridged"]).changed
    assert [one.option for one in sim.record().nic.wanted] == ["rate_in"]


@pytest.mark.parametrize("context", ["hot-remove", "migrate"])
@pytest.mark.parametrize("way", ["gc first", "killed"])
def test_it_goes_with_a_nic_that_others_take_down(tmp_path: Path, context: str, way: str) -> None:
    """gc or the agent may be quicker than the down, or finish what one began that was killed."""
    sim = machine(tmp_path, "bridged")
    to(sim, allow_ip_spoofing="yes")
    if way == "killed":
        with Mortal(sim, 6):
            sim.down(BASES["bridged"], context)
            raise AssertionError("it was not killed")
    sim.host.remove_link("tap0")
    sim.gc()
    assert not sim.records()
    if way == "gc first":
        sim.down(BASES["bridged"], context)
    assert wanted.all_of(sim.paths, []) == {}


def test_a_nic_whose_guest_shuts_down(tmp_path: Path) -> None:
    """It can have no change, and stays closing when something ends, also where a change was killed before."""
    sim = machine(tmp_path, "bridged")
    was = operations(sim)
    to(sim, seconds=60.0, allow_ip_spoofing="yes")
    sim.shutdown(BASES["bridged"])
    assert sim.record().state == CLOSING
    with pytest.raises(NicInvalid, match="is up"):
        to(sim, rate_in="8mbit")
    node = sim.node
    later = node._replace(clock=node.clock._replace(now=lambda: node.clock.now() + 61))
    ((_uuid, outcome),) = end_due(later, sim.call()._replace(deadline=later.clock.now() + 5))
    assert isinstance(outcome, Outcome) and outcome.changed
    assert sim.record().state == CLOSING and operations(sim) == was and wanted.all_of(sim.paths, []) == {}
    sim.host.remove_link("tap0")
    sim.gc()
    assert not sim.records()


def test_a_change_that_was_killed_before_the_guest_shut_down(tmp_path: Path) -> None:
    for life in range(50):
        sim = machine(tmp_path / str(life), "bridged")
        with Mortal(sim, life):
            to(sim, rate_in="8mbit")
        if sim.record().state == CHANGING:
            break
    sim.shutdown(BASES["bridged"])
    assert sim.record().closing
    with pytest.raises(NicInvalid, match="is up"):
        to(sim, isolated="yes")
    assert sim.record().closing
    repair(sim.node, UUIDS[0], sim.call())
    assert sim.record().state == CLOSING


def test_only_who_reads_a_damaged_file_for_its_nic_puts_it_aside(tmp_path: Path) -> None:
    """And says so; a look leaves it, and so does a change of another NIC."""
    sim = machine(tmp_path, "bridged")
    folder = Path(sim.paths.wanted)
    to(sim, rate_in="8mbit")
    other = UUIDS[1]
    (folder / f"{other}.json").write_text("{")
    to(sim, isolated="yes")
    assert (folder / f"{other}.json").read_text() == "{"
    readonly = sim.node._replace(store=Store(sim.paths, 1, "boot-1", readonly=True))
    problems: list[str] = []
    assert read(readonly, other, problems) == wanted.NOTHING and "damaged" in problems[0]
    assert (folder / f"{other}.json").read_text() == "{"
    os.symlink("boot-1 1.0 1.0", folder / "now")
    (folder / "now").rename(folder / "ends")
    end_due(sim.node, sim.call())
    assert any("damaged" in line for line in sim.lines) and (folder / "quarantine" / f"{other}.json-0").read_text() == "{"


def test_a_file_of_a_newer_version_is_not_written_over(tmp_path: Path) -> None:
    sim = machine(tmp_path, "bridged")
    to(sim, rate_in="8mbit")
    path = Path(sim.paths.wanted, f"{UUIDS[0]}.json")
    newer = path.read_text().replace('"schema":2', '"schema":3')
    assert newer != path.read_text()
    path.write_text(newer)
    was = sim.picture()
    with pytest.raises(RecordTooNew, match="newer"):
        to(sim, isolated="yes")
    with pytest.raises(RecordTooNew, match="newer"):
        change(sim.node, UUIDS[0], sim.call())
    assert path.read_text() == newer and sim.picture() == was


def test_ends_of_two_boots(tmp_path: Path) -> None:
    """They cannot be compared by the boots' clocks, so somebody looks at once, and then both are of this boot."""
    sim = machine(tmp_path, "bridged")
    to(sim, seconds=1000.0, rate_in="8mbit")
    at = wanted.Moment("boot-0", 5e5, sim.node.clock.wall() - 10)
    old = wanted.Entry("isolated", "yes", wanted.End(at, at._replace(monotonic=6e5, wall=at.wall + 5)))
    wanted.write(sim.paths, UUIDS[1], wanted.Wanted((old,)))
    now = moment(sim.node)
    assert wanted.due(sim.paths, now)
    end_due(sim.node, sim.call())
    first = wanted.first_end(sim.paths)
    assert not wanted.due(sim.paths, now) and first is not None and first.boot == "boot-1"
    assert list(wanted.all_of(sim.paths, [])) == [UUIDS[0]]


def test_scripts_are_told_what_the_settings_have_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The values before are those with which the NIC came up, or was changed last; options of other modes are none of its own."""
    sim, told = machine(tmp_path, "bridged", rate_in=4_000_000), list[dict[str, str]]()
    script = Path(sim.paths.etc, "ifchange.d", "10-site")
    script.parent.mkdir(parents=True)
    script.write_text("#!/bin/sh\n")
    script.chmod(0o755)
    monkeypatch.setattr(trust, "distrust", lambda _path: "")

    def run(_argv: Sequence[str], environment: Mapping[bytes, bytes], *_rest: object) -> Ran:
        names = ("NETCOMMON_CHANGED", "NETCOMMON_OLD_", "NETCOMMON_NEW_")
        told.append({name.decode(): value.decode() for name, value in environment.items() if name.decode().startswith(names)})
        return Ran(0)

    def done(nic: dict[str, object], *words: dict[str, str]) -> str:
        sim.settings = sim.settings._replace(nic=nic)
        node, found = sim.node._replace(execute=run), list[Difference]()
        edit = setting(node, words[0], ()) if words else unchanged
        change(node, UUIDS[0], sim.call(), edit, held_back=found.append)
        outcome = change(node, UUIDS[0], sim.call(), edit)
        names = [name for name, _was, _now in found[0].options]
        assert (told[-1]["NETCOMMON_CHANGED"].split() if told else []) == names
        return outcome.text

    assert "rate_in is 8mbit, was 4mbit" in done({"rate_in": 8_000_000, "rp_filter": "strict"})
    assert told.pop() == {"NETCOMMON_CHANGED": "rate_in", "NETCOMMON_OLD_RATE_IN": "4000000", "NETCOMMON_NEW_RATE_IN": "8000000"}
    assert "is so already" in done({"rate_in": 8_000_000}) and not told
    done({}, {"isolated": "yes"})
    assert told.pop()["NETCOMMON_CHANGED"].split() == ["rate_in", "isolated"]
    assert sim.record().by_settings == {}
    record = sim.record()
    sim.node.store.write(record._replace(by_settings=None))  # as an older version has written it
    assert "brought up to date" in done({"rate_in": 8_000_000}) and not told


def test_what_todays_settings_say_too_is_said(tmp_path: Path) -> None:
    sim = machine(tmp_path, "bridged")
    sim.settings = sim.settings._replace(nic={"isolated": True})
    to(sim, rate_in="8mbit")
    assert any("brought up to date with today's settings too" in line and "isolated" in line for line in sim.lines)
    sim.lines.clear()
    to(sim, rate_in="9mbit")
    assert not any("today's settings" in line for line in sim.lines)


def test_who_set_a_nic_up_is_told_by_its_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A script that is put in place, or removed, while NICs are up says nothing of them."""
    monkeypatch.setattr(trust, "distrust", lambda _path: "")
    sim, script = machine(tmp_path, "bridged"), Path(tmp_path, "site-up")
    script.write_text("#!/bin/sh\n")
    script.chmod(0o755)
    override = Path(sim.paths.ganeti_etc, "network", "bridged", "up")
    override.parent.mkdir(parents=True)
    to(sim, isolated="yes", seconds=60.0)
    override.symlink_to(script)
    assert to(sim, rate_in="8mbit").changed
    later(sim, 61.0)
    assert [each.option for each in sim.record().nic.wanted] == ["rate_in"]
    sim.tap("tap1")
    other = nic("bridged", INTERFACE="tap1", INTERFACE_UUID=UUIDS[1], MAC="aa:00:00:00:00:02", INSTANCE="web2")
    sim.up(other)
    assert sim.record(UUIDS[1]).operations == () and differ(sim.node, [sim.record(UUIDS[1])]) == 0
    override.unlink()
    before = sim.picture()
    with pytest.raises(HostRefused, match="set up by a script of the site's"):
        change(sim.node, UUIDS[1], sim.call())
    assert sim.picture() == before and differ(sim.node, [sim.record(UUIDS[1])]) == 0


def said_too(sim: Sim) -> list[str]:
    """Give what was said to be done beside what was asked."""
    found = [line.partition("today's settings too: ")[2] for line in sim.lines if "today's settings too" in line]
    sim.lines.clear()
    return found


def test_the_end_says_what_else_it_has_changed(tmp_path: Path) -> None:
    sim = machine(tmp_path, "bridged")
    to(sim, rate_in="8mbit", seconds=60.0)
    sim.settings = sim.settings._replace(nic={"isolated": True})
    sim.lines.clear()
    later(sim, 61.0)
    assert said_too(sim) == ["isolated is true, was false; bridge link set dev tap0 isolated on"]


def test_nothing_is_said_that_was_not_done(tmp_path: Path) -> None:
    """Do not make again what has drifted and was to go, nor call what was asked for the settings'."""
    sim = machine(tmp_path, "bridged")
    to(sim, static_fdb="yes")
    entry = DeleteFdb(sim.record().ifindex, BASES["bridged"].mac, 10)
    assert all(answer.ok for answer in sim.host.execute([entry], stop=True))
    sim.lines.clear()
    to(sim, "static_fdb")
    assert said_too(sim) == []


def test_a_device_that_was_renamed_is_no_difference(tmp_path: Path) -> None:
    """Only what is still called by the old name is made anew: tables of the spoof guard name the device."""
    sim = machine(tmp_path, "bridged")
    sim.host.rename_link("tap0", "web")
    found: list[Difference] = []
    change(sim.node, UUIDS[0], sim.call(), held_back=found.append)
    assert {type(each) for each in (*found[0].gone, *found[0].made)} <= {GuardTable, NicGuard}
    sim.lines.clear()
    to(sim, rate_in="8mbit")
    (line,) = said_too(sim)
    assert "nft" in line and "ip link" not in line and "bridge" not in line
    assert differ(sim.node, [sim.record()]) == 0
    sim.lines.clear()
    to(sim, rate_in="9mbit")
    assert said_too(sim) == []


def test_two_nics_of_a_network_and_a_killed_change(tmp_path: Path) -> None:
    """The network's file says what one of them says, and both are content with it, whatever is repaired how often."""
    for life in range(4, 40):
        sim = Sim(str(tmp_path / str(life)))
        sim.settings = told(sim.settings, 1400)
        first, second = nic("bridged, told"), nic("bridged, told", INTERFACE="tap1", INTERFACE_UUID=UUIDS[1], MAC="aa:00:00:00:00:02")
        sim.tap("tap1")
        sim.up(first)
        sim.settings = told(sim.settings, 1300)
        with Mortal(sim, life):
            change(sim.node, UUIDS[0], sim.call())
            break
        sim.up(second)
        for _again in range(3):
            for uuid in UUIDS[:2]:
                repair(sim.node, uuid, sim.call())
        for uuid in UUIDS[:2]:
            found = check(sim.node, sim.host.view(), sim.record(uuid))
            assert found.good, (life, found.drift)
            assert not repair(sim.node, uuid, sim.call()).changed, life
        sim.close()
    else:
        raise AssertionError("it was killed each time")


def test_a_killed_change_of_what_a_network_is_told(tmp_path: Path) -> None:
    """Where nobody else has read it, it says again what it said."""
    for life in range(4, 40):
        sim = Sim(str(tmp_path / str(life)))
        sim.settings = told(sim.settings, 1400)
        sim.up(nic("bridged, told"))
        sim.settings = told(sim.settings, 1300)
        with Mortal(sim, life):
            change(sim.node, UUIDS[0], sim.call())
            break
        if sim.record().state == CHANGING:
            repair(sim.node, UUIDS[0], sim.call())
            assert any("mtu,1400" in text for text in texts(sim)) and not any("mtu,1300" in text for text in texts(sim)), life
            assert check(sim.node, sim.host.view(), sim.record()).good
        assert change(sim.node, UUIDS[0], sim.call()).changed or life > 10
        assert any("mtu,1300" in text for text in texts(sim)), life
        sim.close()
    else:
        raise AssertionError("it was killed each time")


def later(sim: Sim, seconds: float) -> None:
    """Ends what is due so many seconds from now."""
    node = sim.node
    there = node._replace(clock=node.clock._replace(now=lambda: node.clock.now() + seconds))
    end_due(there, sim.call()._replace(deadline=there.clock.now() + 5))


def test_for_a_while_over_what_was_set_for_good(tmp_path: Path) -> None:
    """Then it is as before; what is unset meanwhile does not come back."""
    sim = machine(tmp_path, "bridged")
    to(sim, isolated="yes")
    was = operations(sim)
    to(sim, seconds=60.0, isolated="no")
    to(sim, seconds=90.0, isolated="no")
    assert operations(sim) != was
    later(sim, 91)
    assert operations(sim) == was and [one[:2] for one in sim.record().nic.wanted] == [("isolated", "yes")]
    to(sim, seconds=60.0, isolated="no")
    to(sim, "isolated")
    later(sim, 61)
    assert wanted.all_of(sim.paths, []) == {} and operations(sim) != was


@pytest.mark.parametrize("boot", ["a\0b", "a b", "\ud800", "x" * 5000, "", "é"])
def test_an_end_in_a_boot_that_there_is_not(tmp_path: Path, boot: str) -> None:
    """Change, leave and end the other NICs all the same, whosever end it is."""
    sim = machine(tmp_path, "bridged")
    moments = {name: {"boot": boot, "monotonic": 1.0, "wall": 4e9} for name in ("since", "until")}
    wrong = {"schema": 1, "local": {"isolated": {"value": "yes", "end": moments, "then": None}}, "registry": {}, "pending": None}
    folder = Path(sim.paths.wanted)
    folder.mkdir(parents=True)
    (folder / f"{UUIDS[4]}.json").write_text(json.dumps(wrong))
    was = operations(sim)
    to(sim, seconds=60.0, rate_in="8mbit")
    later(sim, 61)
    assert operations(sim) == was and (folder / "quarantine" / f"{UUIDS[4]}.json-0").exists()
    to(sim, isolated="yes")
    sim.down(BASES["bridged"])
    assert wanted.all_of(sim.paths, []) == {}


def test_a_link_of_the_ends_that_says_nothing(tmp_path: Path) -> None:
    """Somebody looks, rather than that nothing ends for ever."""
    sim = machine(tmp_path, "bridged")
    was = operations(sim)
    to(sim, seconds=60.0, rate_in="8mbit")
    path = Path(sim.paths.wanted, "ends")
    path.unlink()
    path.symlink_to("one two three four")
    later(sim, 61)
    assert operations(sim) == was


@pytest.mark.parametrize(("option", "value"), NEWER)
def test_an_option_that_there_is_not_keeps_no_other(tmp_path: Path, option: str, value: str) -> None:
    """The other one ends; it stays in the file itself."""
    sim = machine(tmp_path, "bridged")
    was = operations(sim)
    to(sim, seconds=60.0, allow_ip_spoofing="yes")
    add(sim, option, value)
    later(sim, 61)
    assert operations(sim) == was and kept(sim) == [(option, value)] and any(option in line for line in sim.lines)


# -- what a NIC cannot have any more


def as_switched(**changes: str) -> Nic:
    """The same NIC defined anew on Open vSwitch, where there is neither a firewall profile nor a limit of access to the node."""
    return nic("openvswitch", **changes)


def kept(sim: Sim) -> list[tuple[str, str]]:
    return [(one.option, one.value) for one in wanted.read(sim.paths, UUIDS[0], []).local]


@pytest.mark.parametrize("running", [False, True], ids=["a start", "a second up"])
def test_what_a_nic_cannot_have_any_more_keeps_it_from_no_start(tmp_path: Path, running: bool) -> None:
    """It is left out, and named with what takes it back; the rest counts. In the former mode it counts again."""
    sim = Sim(str(tmp_path))
    sim.up(nic("bridged"))
    to(sim, node_access="none", firewall="protected", rate_in="8mbit")
    if not running:
        sim.down(nic("bridged"), "shutdown", final=True)
    sim.lines.clear()
    assert sim.up(as_switched()).changed
    assert sim.record().nic.wanted == (Changed("rate_in", "8mbit"),) and sim.record().state == UP
    errors = [line for line in sim.lines if line.startswith("error")]
    for option in ("node_access", "firewall"):
        (named,) = [line for line in errors if f"--unset {option}" in line]
        assert UUIDS[0] in named and "set by change" in named
    assert len(errors) == 2 and check(sim.node, sim.host.view(), sim.record()).good
    end_due(sim.node, sim.call())
    assert kept(sim) == [("node_access", "none"), ("firewall", "protected"), ("rate_in", "8mbit")], "it may be had again"
    sim.up(nic("bridged"))
    assert {one.option for one in sim.record().nic.wanted} == {"node_access", "firewall", "rate_in"}


def test_a_change_of_a_nic_that_cannot_have_what_is_kept(tmp_path: Path) -> None:
    """Others can be changed, what is asked for is refused as ever, and unset is unset."""
    sim = Sim(str(tmp_path))
    sim.up(nic("bridged"))
    to(sim, node_access="none", firewall="protected")
    sim.up(as_switched())
    assert "rate_in is 8mbit" in to(sim, rate_in="8mbit").text
    for asked in ({"node_access": "none"}, {"firewall": "limited"}):
        with pytest.raises(NicInvalid, match="MODE"):
            to(sim, **asked)
    assert sim.record().nic.wanted == (Changed("rate_in", "8mbit"),)
    taken = to(sim, "node_access")
    assert taken.changed and "node_access" in taken.text
    assert kept(sim) == [("firewall", "protected"), ("rate_in", "8mbit")]


def test_a_killed_change_beside_what_a_nic_cannot_have(tmp_path: Path) -> None:
    """What was pending is decided by what the NIC has of it: that it cannot have the rest says nothing."""
    held = []
    for life in range(100):
        sim = Sim(str(tmp_path / str(life)))
        sim.up(nic("bridged"))
        to(sim, firewall="protected")
        sim.up(as_switched())
        with Mortal(sim, life) as process:
            to(sim, rate_in="8mbit")
        sim.up(as_switched())
        has = {one.option: one.value for one in sim.record().nic.wanted}
        assert dict(kept(sim)) == {"firewall": "protected", **has}
        held.append(bool(has))
        if len(process.steps) < life:
            break
    assert held == sorted(held) and held.count(True) > 2, "from when the record said so, also while the file did not yet"


def test_the_only_address_of_a_routed_nic_is_not_left_out(tmp_path: Path) -> None:
    """Without it the NIC could not be had at all; what it cannot have beside it is."""
    sim = Sim(str(tmp_path))
    sim.up(nic("routed"))
    to(sim, tap_mac="aa:00:00:00:00:07", addresses="10.0.0.9")
    sim.down(nic("routed"), "shutdown", final=True)
    sim.up(nic("routed", IP="", MAC="aa:00:00:00:00:07"))
    assert sim.record().nic.wanted == (Changed("addresses", "10.0.0.9"),)
    sim.down(nic("routed"), "shutdown", final=True)
    to_uuid = take_back(sim.node, UUIDS[0], ("addresses",), sim.call())
    assert to_uuid.changed
    with pytest.raises(NicInvalid, match="IP"):
        sim.up(nic("routed", IP="", MAC="aa:00:00:00:00:07"))


def test_unset_of_a_nic_that_is_not_up(tmp_path: Path) -> None:
    """Not of one that is up by then, nor of one that is up in another network namespace; a newer version's file stays."""
    sim = Sim(str(tmp_path))
    sim.up(nic("bridged"))
    to(sim, node_access="none", rate_in="8mbit")
    with pytest.raises(NicInvalid, match="not up"):
        take_back(sim.node, UUIDS[0], ("rate_in",), sim.call())
    sim.down(nic("bridged"), "shutdown", final=True)
    assert take_back(sim.node, UUIDS[0], ("node_access",), sim.call()).changed
    assert kept(sim) == [("rate_in", "8mbit")]
    assert not take_back(sim.node, UUIDS[0], ("node_access",), sim.call()).changed
    file = Path(sim.paths.wanted, f"{UUIDS[0]}.json")
    newer = json.dumps({**json.loads(file.read_text()), "schema": wanted.SCHEMA + 1})
    file.write_text(newer)
    with pytest.raises(RecordTooNew):
        take_back(sim.node, UUIDS[0], ("rate_in",), sim.call())
    assert file.read_text() == newer
