"""Push what a registry wants: NICs that are up become that, whole or not at all; what is wanted of others is on disk when they come."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from netcommon.host.api.host import Answer
from netcommon.lifecycle.changed_options import moment, read
from netcommon.lifecycle.check import check, repair
from netcommon.lifecycle.context import Call, Node, Outcome
from netcommon.lifecycle.ends import end_due
from netcommon.lifecycle.push import Pushed, applied, drop, drop_network, in_network, keep, keep_network, push, retain
from netcommon.options.networks import said
from netcommon.options.sources import given
from runtime import networks, wanted
from runtime.errors import HostRefused, NicInvalid, RecordTooNew, TryAgain
from runtime.networks import network_of
from runtime.nic import LOCAL, REGISTRY, Changed
from runtime.record import UP, from_json, to_json
from runtime.registry_wanted import RegistryOption, RegistryWanted
from tests.support.sample import sample
from tests.support.sim import UUIDS, Mortal, Sim, nic
from tests.unit.netcommon.lifecycle.test_change import BASES, machine, operations, texts, to
from tests.unit.netcommon.lifecycle.test_damaged_twin import REAL, twin
from tests.unit.netcommon.lifecycle.test_up import settled

BLUE = "b1b1b1b1-0667-415f-9a43-786dc01cbf24"
RED = "c2c2c2c2-0667-415f-9a43-786dc01cbf24"
SAID: dict[str, Any] = {"name": "blue", "gateway": "10.0.0.1", "resolvers": ["10.0.0.54"], "mtu": 1300}
OPTIONS = {"rate_in": "8mbit", "addresses": "10.0.0.9", "spoof_guard": "no"}


def asked(number: int = 7, network: str = "", until: float = 0.0, /, **options: str) -> RegistryWanted:
    return RegistryWanted(f"e:{number}", tuple(RegistryOption(name, value, until) for name, value in options.items()), network)


def pushed(sim: Sim, number: int = 7, network: str = "", until: float = 0.0, /, **options: str) -> Pushed:
    return push(sim.node, UUIDS[0], asked(number, network, until, **options), sim.call())


def after(sim: Sim, seconds: float, wall: float | None = None) -> tuple[Node, Call]:
    """Give the node and a call so many seconds later, by both clocks, or by the wall clock otherwise."""
    node = sim.node
    clock = node.clock._replace(
        now=lambda: node.clock.now() + seconds, wall=lambda: node.clock.wall() + (seconds if wall is None else wall)
    )
    later = node._replace(clock=clock)
    return later, sim.call()._replace(deadline=clock.now() + 5)


@pytest.mark.parametrize("mode", BASES)
def test_a_nic_that_is_up(tmp_path: Path, mode: str) -> None:
    """It is what it would be with those options, and what it was when the registry wants none; its next up is the same."""
    sim, fresh = machine(tmp_path / "a", mode), machine(tmp_path / "b", mode)
    to(fresh, **OPTIONS)
    was, held = sim.picture(), operations(sim)
    assert pushed(sim, **OPTIONS)[:1] == (True,)
    assert (sim.picture(), operations(sim)) == (fresh.picture(), operations(fresh)) != (was, held)
    assert check(sim.node, sim.host.view(), sim.record()).good and applied(sim.node, UUIDS[0], []) == "e:7"
    sim.requests()
    assert not sim.up(BASES[mode]).changed and not pushed(sim, 8, **OPTIONS).changed and sim.requests() == []
    assert applied(sim.node, UUIDS[0], []) == "e:8"
    assert pushed(sim, 9).changed
    assert (sim.picture(), operations(sim)) == (was, held)
    sim.down(BASES[mode])
    assert sim.picture() == sim.before


def test_which_is_stronger(tmp_path: Path) -> None:
    """This node's own change, what the registry wants, and the tags; each place is named."""
    sim = Sim(str(tmp_path))
    sim.up(nic("bridged", TAGS="netcommon:0:rate_in:4mbit"))
    assert "rate_in is 8mbit, was 4mbit" in pushed(sim, rate_in="8mbit").text
    assert "rate_in is 9mbit, was 8mbit" in to(sim, rate_in="9mbit", seconds=60.0).text
    assert not pushed(sim, 8, rate_in="7mbit").changed, "the local one hides it"
    found = [each for each in given(sim.record().nic, sim.settings) if each.name == "rate_in"]
    assert [each.value for each in found] == [4_000_000, 7_000_000, 9_000_000]
    assert found[1].origin == "set by the registry, revision e:8" and found[2].origin.startswith("set by change, until ")
    ((_uuid, outcome),) = end_due(*after(sim, 61))
    assert isinstance(outcome, Outcome) and "rate_in is 7mbit, was 9mbit" in outcome.text
    assert "rate_in is 4mbit, was 7mbit" in pushed(sim, 9).text


@pytest.mark.parametrize("mode", BASES)
def test_refused_at_any_request(tmp_path: Path, mode: str) -> None:
    """The NIC, its record and what is kept are as they were, and so is what the next up does."""
    whole = machine(tmp_path / "whole", mode)
    pushed(whole, 6, rate_out="4mbit")
    whole.requests()
    pushed(whole, **OPTIONS)
    for place in range(len(whole.requests())):
        sim = machine(tmp_path / str(place), mode)
        pushed(sim, 6, rate_out="4mbit")
        sim.requests()
        was = sim.picture(), settled(sim), wanted.all_of(sim.paths, [])
        with sim.failing(place, Answer(errno.EPERM, "no"), times=1), pytest.raises(HostRefused):
            pushed(sim, **OPTIONS)
        assert (sim.picture(), settled(sim), wanted.all_of(sim.paths, [])) == was
        assert sim.record().state == UP and applied(sim.node, UUIDS[0], []) == "e:6"
        sim.close()


@pytest.mark.parametrize("mode", BASES)
def test_killed_anywhere(tmp_path: Path, mode: str) -> None:
    """The next repair leads to what it was, or to what it was to become, and the revision says which of them."""
    whole = machine(tmp_path / "whole", mode)
    pushed(whole, 6, rate_out="4mbit")
    was = whole.picture()
    with Mortal(whole) as mortal:
        pushed(whole, rate_in="8mbit")
    now = whole.picture()
    for life in sample(range(len(mortal.steps)), 9):
        sim = machine(tmp_path / str(life), mode)
        pushed(sim, 6, rate_out="4mbit")
        with Mortal(sim, life):
            pushed(sim, rate_in="8mbit")
            raise AssertionError("it was not killed")
        repair(sim.node, UUIDS[0], sim.call())
        assert check(sim.node, sim.host.view(), sim.record()).good
        assert sim.picture() == {"e:6": was, "e:7": now}[applied(sim.node, UUIDS[0], [])], life
        expected = sim.picture()
        sim.up(BASES[mode])
        assert sim.picture() == expected, life
        pushed(sim, rate_in="8mbit")
        assert sim.picture() == now and wanted.read(sim.paths, UUIDS[0], []).pending is None
        sim.close()


@pytest.mark.parametrize(
    ("one", "why"),
    [
        (asked(**{"rate in": "1mbit"}), "option"),
        (asked()._replace(revision="7"), "revision"),
        (asked(7, "blue"), "network"),
        (asked(7, "", float("nan"), rate_in="1mbit"), "rate_in"),
    ],
)
def test_what_no_nic_can_have(tmp_path: Path, one: RegistryWanted, why: str) -> None:
    """Of one that is up and of one that is not: nothing is kept, and nothing is put aside."""
    sim = machine(tmp_path, "bridged")
    to(sim, rate_out="4mbit")
    keep(sim.node, UUIDS[1], asked(3, isolated="yes"), sim.call())
    sim.requests()
    was = sim.picture(), settled(sim), wanted.all_of(sim.paths, [])
    for uuid in UUIDS[:2]:
        with pytest.raises(NicInvalid, match=why):
            push(sim.node, uuid, one, sim.call())
    assert (sim.picture(), settled(sim), wanted.all_of(sim.paths, [])) == was and sim.requests() == []
    assert not os.path.exists(f"{sim.paths.wanted}/quarantine")


@pytest.mark.parametrize("unknown", [{"no_such": "1"}, {"rate_in": "fast"}, {"isolated": ""}, {"mtu": "1400"}])
def test_what_this_version_does_not_know_is_no_others_affair(tmp_path: Path, unknown: dict[str, str]) -> None:
    """It is kept for one that does. The NIC has the rest, by a push and by an up, and its record does not say that it has all."""
    sim, fresh = machine(tmp_path / "a", "bridged"), machine(tmp_path / "b", "bridged")
    rest = {"rate_out": "4mbit", "static_fdb": "yes"}
    pushed(fresh, 7, **rest)
    pushed(sim, 7, **unknown, **rest)
    for _twice in range(2):
        assert sim.picture() == fresh.picture() and applied(sim.node, UUIDS[0], []) == "e:0"
        assert {each.option: each.value for each in sim.record().nic.wanted} == rest
        there = wanted.read(sim.paths, UUIDS[0], [])
        assert {each.option: each.value for each in there.registry} == {**unknown, **rest}
        assert (there.revision, there.pending) == ("e:7", None)
        for one in (sim, fresh):
            one.down(BASES["bridged"], "migrate")
            one.up(BASES["bridged"])
    pushed(sim, 8, **unknown, **rest, spoof_guard="yes")
    assert {each.option for each in sim.record().nic.wanted} == {*rest, "spoof_guard"}
    assert not os.path.exists(f"{sim.paths.wanted}/quarantine")


# -- NICs that are not here


def test_a_guest_comes_with_what_is_kept(tmp_path: Path) -> None:
    """From its first up on; when it leaves, what a registry wants stays, and what was changed here goes."""
    sim, fresh = Sim(str(tmp_path / "a")), machine(tmp_path / "b", "bridged")
    to(fresh, **OPTIONS)
    assert keep(sim.node, UUIDS[0], asked(**OPTIONS), sim.call()) and not keep(sim.node, UUIDS[0], asked(**OPTIONS), sim.call())
    assert push(sim.node, UUIDS[1], asked(isolated="yes"), sim.call()).kept
    for _twice in range(2):
        sim.up(BASES["bridged"])
        assert (sim.picture(), operations(sim)) == (fresh.picture(), operations(fresh))
        with pytest.raises(TryAgain, match="is up"):
            keep(sim.node, UUIDS[0], asked(8), sim.call())
        to(sim, rate_out="4mbit")
        sim.down(BASES["bridged"], "migrate")
        there = wanted.read(sim.paths, UUIDS[0], [])
        assert there.local == () and {each.option for each in there.registry} == set(OPTIONS) and there.revision == "e:7"
    assert sim.picture() == sim.before
    assert drop(sim.node, UUIDS[0], sim.call()) and drop(sim.node, UUIDS[1], sim.call())
    assert wanted.all_of(sim.paths, []) == {} and os.listdir(sim.paths.wanted) == []


def test_what_is_no_more_wanted_of_a_nic_that_is_up(tmp_path: Path) -> None:
    """It stays what it is, also for the agent's look for options that no file holds."""
    sim = machine(tmp_path, "bridged")
    pushed(sim, rate_in="8mbit")
    was = sim.picture(), settled(sim)
    assert not drop(sim.node, UUIDS[0], sim.call())
    assert retain(sim.node, (), (), sim.call()) == [(("nic", UUIDS[0]), "")] and end_due(sim.node, sim.call()) == []
    assert (sim.picture(), settled(sim)) == was and applied(sim.node, UUIDS[0], []) == "e:7"


def test_all_others_are_forgotten(tmp_path: Path) -> None:
    sim = machine(tmp_path, "bridged")
    to(sim, rate_out="4mbit")
    for number in range(1, 4):
        keep(sim.node, UUIDS[number], asked(isolated="yes"), sim.call())
    keep_network(sim.node, network_of(BLUE, "e:5", SAID))
    keep_network(sim.node, network_of(RED, "e:5", SAID))
    assert retain(sim.node, {UUIDS[2]}, {RED}, sim.call()) == []
    assert {uuid: one.revision for uuid, one in wanted.all_of(sim.paths, []).items()} == {UUIDS[0]: "", UUIDS[2]: "e:7"}
    assert networks.uuids(sim.paths) == [RED]


@pytest.mark.parametrize("damage", ["cut", "huge", "link", "newer"])
def test_whatever_lies_there(tmp_path: Path, damage: str) -> None:
    """A damaged file is put aside and written anew; a newer version's stays, and the NIC is left alone."""
    for here in (True, False):
        sim = machine(tmp_path / str(here), "bridged") if here else Sim(str(tmp_path / str(here)))
        push(sim.node, UUIDS[0], asked(3), sim.call())
        path = Path(sim.paths.wanted, f"{UUIDS[0]}.json")
        if damage == "cut":
            path.write_bytes(path.read_bytes()[:-9])
        elif damage == "huge":
            path.write_bytes(path.read_bytes() + b" " * wanted.LONGEST)
        elif damage == "link":
            path.rename(tmp_path / f"elsewhere-{here}")
            path.symlink_to(tmp_path / f"elsewhere-{here}")
        else:
            path.write_bytes(path.read_bytes().replace(b'"schema":2', b'"schema":9'))
        sim.requests()
        if damage == "newer":
            with pytest.raises(RecordTooNew):
                pushed(sim, rate_in="8mbit")
            assert b'"schema":9' in path.read_bytes() and sim.requests() == []
            continue
        pushed(sim, rate_in="8mbit")
        assert applied(sim.node, UUIDS[0], []) == "e:7" and os.listdir(path.parent / "quarantine") == [f"{path.name}-0"]
        assert any("damaged" in line for line in sim.lines)
        assert bool(sim.requests()) == here


def test_a_nic_in_another_network_namespace(tmp_path: Path) -> None:
    """Its record is not ours to read: while it is being changed, what became of that nobody here can tell."""
    theirs, ours = machine(tmp_path, "bridged"), Sim(str(tmp_path), netns=2)
    keep(ours.node, UUIDS[0], asked(3, rate_in="1mbit"), ours.call())
    there = wanted.read(ours.paths, UUIDS[0], [])
    wanted.write(ours.paths, UUIDS[0], there._replace(pending=there))
    with pytest.raises(TryAgain, match="another network namespace"):
        keep(ours.node, UUIDS[0], asked(4), ours.call())
    theirs.close()


def test_an_emulated_twin_follows_its_nic(tmp_path: Path) -> None:
    """One of Xen's, which has no file of its own: it has what its NIC has, and ends with it."""
    sim = Sim(str(tmp_path))
    sim.tap("tap1")
    both = REAL, twin()
    for one in both:
        sim.up(one)
    push(sim.node, REAL.uuid, asked(7, "", sim.node.clock.wall() + 100, rate_in="8mbit"), sim.call())
    assert [[each.value for each in sim.record(one.uuid).nic.wanted] for one in both] == [["8mbit"], ["8mbit"]]
    assert {sim.record(one.uuid).nic.revision for one in both} == {"e:7"} and wanted.uuids(sim.paths) == [REAL.uuid]
    end_due(*after(sim, 101))
    assert [sim.record(one.uuid).nic.wanted for one in both] == [(), ()]


# -- tags


def tagged(sim: Sim, number: int, *tags: str, uuid: str = UUIDS[0]) -> Pushed:
    """Push a NIC of a Ganeti cluster with these tags."""
    return push(sim.node, uuid, asked(number)._replace(tags=tags), sim.call())


@pytest.mark.parametrize("mode", BASES)
def test_a_tag_that_changes_reaches_a_nic_that_is_up(tmp_path: Path, mode: str) -> None:
    """It is what a second up with that tag makes of it; the record has the tags, for whoever plans it anew."""
    sim, fresh = machine(tmp_path / "a", mode), machine(tmp_path / "b", mode)
    tags = "a netcommon:0:spoof_guard:no"
    fresh.up(BASES[mode]._replace(tags=tuple(tags.split()), environment={**BASES[mode].environment, "TAGS": tags}))
    was = sim.picture()
    tagged(sim, 6, *BASES[mode].tags)
    assert "spoof_guard is" in tagged(sim, 7, *tags.split()).text
    assert sim.picture() == fresh.picture() != was and sim.record().nic.tags == fresh.record().nic.tags
    assert sim.record().nic.environment["TAGS"] == tags
    sim.requests()
    assert not tagged(sim, 8, *reversed(tags.split())).changed and sim.requests() == [], "the order of tags says nothing"
    assert tagged(sim, 9, *BASES[mode].tags).changed and sim.record().nic.tags == BASES[mode].tags and sim.picture() == was


def test_what_its_hypervisor_has_said_since_stays(tmp_path: Path) -> None:
    """An up brings the tags of today; what the registry tells is not put in their place until it has once told these, or later ones."""
    sim = Sim(str(tmp_path))
    sim.up(nic("bridged", TAGS="a"))
    assert not tagged(sim, 7, "netcommon:0:rate_in:8mbit").changed and sim.record().nic.tags == ("a",), "it may be older than the up"
    sim.up(nic("bridged", TAGS="netcommon:0:rate_in:9mbit"))
    to(sim, isolated="yes")
    push(sim.node, UUIDS[0], asked(8, mcast_flood="no")._replace(tags=("netcommon:0:rate_in:8mbit",)), sim.call())
    assert sim.record().nic.tags == ("netcommon:0:rate_in:9mbit",)
    tagged(sim, 9, "netcommon:0:rate_in:7mbit")
    assert sim.record().nic.tags == ("netcommon:0:rate_in:9mbit",), "it may be older than the up: the registry was behind"
    tagged(sim, 10, "netcommon:0:rate_in:9mbit")
    tagged(sim, 11, "netcommon:0:rate_in:7mbit")
    assert sim.record().nic.tags == ("netcommon:0:rate_in:7mbit",)
    pushed(sim, 12)
    assert sim.record().nic.tags == ("netcommon:0:rate_in:7mbit",), "nobody says any more"


def test_a_registry_that_was_restored_takes_no_tag_away(tmp_path: Path) -> None:
    """Take what it tells in another epoch for older than what the NIC has; what changes in that one since is news."""
    sim = Sim(str(tmp_path))
    sim.up(nic("bridged", TAGS="a", NETWORK_NAME="blue", NETWORK_UUID=BLUE, NETWORK_TAGS="a"))

    def told(revision: str, *tags: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
        keep_network(sim.node, network_of(BLUE, revision, {"name": "blue", "tags": list(tags), "master": "ganeti:c1"}))
        push(sim.node, UUIDS[0], RegistryWanted(revision, tags=tags), sim.call())
        return sim.record().nic.tags, sim.record().nic.network.tags

    told("one:5", "a")
    assert told("one:6", "a", "x") == (("a", "x"),) * 2
    for revision in ("two:2", "two:2", "two:3"):
        assert told(revision, "a") == (("a", "x"),) * 2
    told("two:4", "a", "x")
    assert told("two:5") == ((), ())


def test_tags_are_read_by_the_position_that_is_told_with_them(tmp_path: Path) -> None:
    """An earlier NIC of the guest was taken away: by Ganeti the second one is the first, and a tag of the first NIC is its own."""
    sim = Sim(str(tmp_path))
    sim.up(nic("bridged", INTERFACE_INDEX="1", TAGS="netcommon:1:rate_in:8mbit"))

    def told(number: int, position: int | None, *tags: str) -> tuple[int | None, list[str]]:
        push(sim.node, UUIDS[0], asked(number)._replace(tags=tags, position=position), sim.call())
        record = sim.record()
        assert record.nic.environment["INTERFACE_INDEX"] == str(record.nic.index)
        return record.nic.index, [each.name for each in given(record.nic, sim.settings) if each.name in ("rate_in", "isolated")]

    tags = "netcommon:0:isolated:yes", "netcommon:1:rate_in:8mbit"
    assert told(6, 1, "netcommon:1:rate_in:8mbit") == (1, ["rate_in"])
    assert told(7, 1, *tags) == (1, ["rate_in"])
    assert told(8, 0, *tags) == (0, ["isolated"])
    assert told(9, 0, tags[1]) == (0, [])
    assert told(10, None, *tags) == (0, ["isolated"]), "an older service does not say it"
    told(11, 0, *tags)
    sim.up(nic("bridged", INTERFACE_INDEX="2", TAGS=" ".join(tags)))
    assert told(12, 1, *tags) == (2, []), "it may be older than the up"


def test_a_tag_that_is_refused_is_tried_again(tmp_path: Path) -> None:
    """The NIC and what is kept are as before, so that the same push is the same change."""
    sim = machine(tmp_path, "bridged")
    tagged(sim, 6, *sim.record().nic.tags)
    was = sim.picture(), settled(sim), wanted.all_of(sim.paths, [])
    with pytest.raises(NicInvalid):
        tagged(sim, 7, "netcommon:0:rate_in:fast")
    sim.requests()
    with sim.failing(0, Answer(errno.EPERM, "no"), times=1), pytest.raises(HostRefused):
        tagged(sim, 7, "netcommon:0:rate_in:8mbit")
    assert (sim.picture(), settled(sim), wanted.all_of(sim.paths, [])) == was
    assert tagged(sim, 7, "netcommon:0:rate_in:8mbit").changed


def test_a_networks_tag_reaches_the_nics_in_it(tmp_path: Path) -> None:
    """Of a network of a Ganeti cluster; those of another master's count where its NICs are defined."""
    sim = Sim(str(tmp_path))
    sim.up(nic("bridged", NETWORK_NAME="blue", NETWORK_UUID=BLUE, NETWORK_TAGS="a"))
    tags = {**SAID, "tags": ["a", "netcommon:rate_in:8mbit"]}
    keep_network(sim.node, network_of(BLUE, "e:7", {**SAID, "tags": ["a"], "master": "ganeti:c1"}))
    pushed(sim, 7)
    for master, there in (("ganeti:c1", ("a", "netcommon:rate_in:8mbit")), ("registry", ("a", "netcommon:rate_in:8mbit"))):
        keep_network(sim.node, network_of(BLUE, "e:8", {**tags, "master": master}))
        pushed(sim, 7)
        assert sim.record().nic.network.tags == there
    assert [each.origin for each in given(sim.record().nic, sim.settings) if each.name == "rate_in"] != []
    assert sim.record().nic.environment["NETWORK_TAGS"] == "a netcommon:rate_in:8mbit"
    for revision, of_today in (("e:9", tags["tags"]), ("e:10", [])):
        keep_network(sim.node, network_of(BLUE, revision, {**SAID, "master": "ganeti:c1", "tags": of_today}))
        pushed(sim, 7)
    assert sim.record().nic.network.tags == ()


@pytest.mark.parametrize("ip", ["", "10.0.0.5", "2001:db8::5/64"])
def test_a_network_goes_with_the_address(tmp_path: Path, ip: str) -> None:
    """A NIC whose address is another one is told nothing of the network before its next start; one that has none follows at once."""
    sim = Sim(str(tmp_path))
    sim.up(nic("bridged", IP=ip))
    keep_network(sim.node, network_of(BLUE, "e:5", SAID))
    keep_network(sim.node, network_of(RED, "e:6", {**SAID, "gateway": "10.9.9.1"}))

    def told(number: int, network: str, wanted_ip: str) -> str:
        push(sim.node, UUIDS[0], asked(number, network)._replace(ip=wanted_ip), sim.call())
        return "" if (found := sim.record().nic.told) is None else found.gateway

    assert told(6, BLUE, "10.9.9.9") == ("" if ip else "10.0.0.1")
    assert told(7, BLUE, ip.partition("/")[0]) == "10.0.0.1"
    assert told(8, RED, "10.9.9.9") == ("10.0.0.1" if ip else "10.9.9.1")
    to(sim, rate_in="8mbit")
    keep_network(sim.node, network_of(BLUE, "e:9", {**SAID, "gateway": "10.0.0.2"}))
    assert told(8, RED, "10.9.9.9") == ("10.0.0.2" if ip else "10.9.9.1"), "what is said of its own network reaches it"
    assert told(10, "", "10.9.9.9") == ("10.0.0.2" if ip else "")
    sim.down(nic("bridged", IP=ip))
    push(sim.node, UUIDS[0], asked(11, RED)._replace(ip="10.9.9.9"), sim.call())
    sim.up(nic("bridged", IP="10.9.9.9"))
    assert sim.record().nic.told is not None and sim.record().nic.told.gateway == "10.9.9.1"


def test_an_emulated_twin_has_the_tags_of_its_nic(tmp_path: Path) -> None:
    sim = Sim(str(tmp_path))
    sim.tap("tap1")
    both = REAL, twin()
    for one in both:
        sim.up(one)
    tagged(sim, 6, *REAL.tags, uuid=REAL.uuid)
    tagged(sim, 7, "netcommon:0:rate_in:8mbit", uuid=REAL.uuid)
    assert [sim.record(one.uuid).nic.tags for one in both] == [("netcommon:0:rate_in:8mbit",)] * 2


# -- ends


def test_an_end_is_met_with_the_registry_away(tmp_path: Path) -> None:
    """In this boot by its clock, whatever the wall clock is set to, and after a reboot by the wall clock; of a NIC that is not here too."""
    sim = machine(tmp_path, "bridged")
    was = sim.picture()
    until = sim.node.clock.wall() + 100
    pushed(sim, 7, "", until, isolated="yes")
    keep(sim.node, UUIDS[1], asked(7, "", until, isolated="yes"), sim.call())
    assert end_due(*after(sim, 50, wall=1e6)) == [] and sim.picture() != was
    assert {uuid for uuid, _outcome in end_due(*after(sim, 101, wall=-1e6))} == set(UUIDS[:2])
    assert sim.picture() == was and sim.record().nic.wanted == ()
    assert all(one.registry == () and one.revision == "e:0" for one in wanted.all_of(sim.paths, []).values())
    sim.requests()
    pushed(sim, 7, "", sim.node.clock.wall() - 1, isolated="yes")
    assert sim.requests() == [] and sim.picture() == was, "one that has ended already"
    assert applied(sim.node, UUIDS[0], []) == "e:0", "the registry wants it until it ends it itself"
    pushed(sim, 8)
    assert applied(sim.node, UUIDS[0], []) == "e:8"


@pytest.mark.parametrize("first", ["the agent", "the guest"])
@pytest.mark.parametrize("wrong", [7200.0, -7200.0])
def test_an_end_is_not_met_for_good_by_a_clock_that_is_wrong_after_a_boot(tmp_path: Path, wrong: float, first: str) -> None:
    """It is said to be a part of what is wanted until it is told again, and all of it then; also of a NIC that is not here."""
    sim = machine(tmp_path, "bridged")
    until = sim.node.clock.wall() + 3600
    pushed(sim, 7, "", until, isolated="yes", mcast_flood="no")
    keep(sim.node, UUIDS[1], asked(7, "", until, isolated="yes"), sim.call())
    sim.reboot()
    sim.tap("tap0")
    right, sim.wall = sim.wall, sim.wall + wrong
    if first == "the agent":
        end_due(sim.node, sim.call())
    sim.up(BASES["bridged"])
    assert sim.record().nic.wanted == () and applied(sim.node, UUIDS[0], []) == "e:0"
    end_due(sim.node, sim.call())
    assert wanted.read(sim.paths, UUIDS[1], []) == wanted.Wanted(revision="e:0")
    sim.wall = right
    pushed(sim, 7, "", until, isolated="yes", mcast_flood="no")
    keep(sim.node, UUIDS[1], asked(7, "", until, isolated="yes"), sim.call())
    assert [each.option for each in sim.record().nic.wanted] == ["isolated", "mcast_flood"] and applied(sim.node, UUIDS[0], []) == "e:7"
    assert wanted.read(sim.paths, UUIDS[1], []).revision == "e:7"


def test_the_same_end_told_again_is_the_same_end(tmp_path: Path) -> None:
    sim = machine(tmp_path, "bridged")
    until = sim.node.clock.wall() + 100
    pushed(sim, 7, "", until, rate_in="8mbit")
    before = wanted.read(sim.paths, UUIDS[0], [])
    later, call = after(sim, 60, wall=5000.0)
    push(later, UUIDS[0], asked(7, "", until, rate_in="8mbit"), call)
    assert wanted.read(sim.paths, UUIDS[0], []) == before


# -- networks


@pytest.mark.parametrize("named", ["by its hypervisor", "by the registry"])
def test_what_guests_of_a_network_are_told(tmp_path: Path, named: str) -> None:
    """The registry's word, before the settings'; the hypervisor's gateway before both. No other NIC is touched."""
    sim = Sim(str(tmp_path))
    sim.settings = sim.settings._replace(nic={"dhcp": "dnsmasq"})
    sim.tap("tap1")
    variables = {"IP": "10.0.0.5"} | ({"NETWORK_UUID": BLUE, "NETWORK_NAME": "blue"} if named == "by its hypervisor" else {})
    sim.up(nic("bridged", **variables))
    sim.up(nic("bridged", INTERFACE="tap1", INTERFACE_UUID=UUIDS[1], INTERFACE_INDEX="1", NETWORK_NAME="other"))
    pushed(sim, 7, BLUE)
    other = sim.record(UUIDS[1])
    assert keep_network(sim.node, network_of(BLUE, "e:8", SAID)) == (UUIDS[0],) == in_network(sim.node, BLUE)
    assert pushed(sim, 7, BLUE).changed and not pushed(sim, 7, BLUE).changed
    (file,) = [file for file in sim.host.view().files() if file.name == "blue"]
    for line in ("tag:blue,option:router,10.0.0.1", "tag:blue,option:dns-server,10.0.0.54", "tag:blue,option:mtu,1300"):
        assert line in file.content.splitlines()
    assert sim.record(UUIDS[1]) == other
    keep_network(
        sim.node, network_of(BLUE, "e:9", {**SAID, "resolvers": ["10.0.0.55"], "routes": [{"prefix": "10.1.0.0/16", "via": "10.0.0.2"}]})
    )
    pushed(sim, 7, BLUE)
    (content,) = [file.content for file in sim.host.view().files() if file.name == "blue"]
    assert "10.0.0.55" in content and "10.0.0.54" not in content
    assert "option:classless-static-route,10.1.0.0/16,10.0.0.2,0.0.0.0/0,10.0.0.1" in content
    assert not sim.up(nic("bridged", **variables)).changed, "the next up has it too"
    assert check(sim.node, sim.host.view(), sim.record()).good
    assert drop_network(sim.node, BLUE) == (UUIDS[0],) and networks.uuids(sim.paths) == [BLUE], "a NIC is up in it"
    sim.down(sim.record().nic, "shutdown", final=True)
    assert drop_network(sim.node, BLUE) == () and networks.uuids(sim.paths) == []
    sim.down(other.nic)
    assert sim.picture()["files"] == sim.before["files"]


def test_who_says_what_of_a_network(tmp_path: Path) -> None:
    sim = Sim(str(tmp_path))
    sim.settings = sim.settings._replace(network_fields={"blue": {"mtu": 1400, "search": ("example.com",), "gateway": "10.0.0.9"}})
    keep_network(sim.node, network_of(BLUE, "e:8", {**SAID, "gateway6": "2001:db8::1"}))
    sim.up(nic("bridged", NETWORK_NAME="blue", NETWORK_UUID=BLUE, NETWORK_GATEWAY="10.0.0.77"))
    found = {each.name: (each.value, each.origin) for each in said(sim.record().nic, sim.settings)}
    assert found == {
        "mtu": (1300, "set by the registry, revision e:8"),
        "search": (("example.com",), "[networks.blue]"),
        "gateway": ("10.0.0.77", "NETWORK_GATEWAY"),
        "gateway6": ("2001:db8::1", "set by the registry, revision e:8"),
        "resolvers": (("10.0.0.54",), "set by the registry, revision e:8"),
    }


def test_the_gateway_of_a_routed_guest(tmp_path: Path) -> None:
    """The node answers for the gateway that the registry gives, as for one of the hypervisor's."""
    sim, fresh = Sim(str(tmp_path / "a")), Sim(str(tmp_path / "b"))
    plain: Mapping[str, str] = {"NETWORK_UUID": BLUE, "NETWORK_NAME": "blue", "NETWORK_SUBNET": "10.0.0.0/24"}
    sim.settings = fresh.settings = sim.settings._replace(nic={"gateway_arp": True})
    fresh.up(nic("routed, table", **plain, NETWORK_GATEWAY="10.0.0.1"))
    sim.up(nic("routed, table", **plain))
    assert sim.picture() != fresh.picture()
    keep_network(sim.node, network_of(BLUE, "e:8", SAID))
    pushed(sim)
    assert sim.picture() == fresh.picture()
    sim.down(sim.record().nic)
    sim.up(nic("routed, table", **plain))
    assert sim.picture() == fresh.picture()


def test_a_network_whose_file_is_damaged(tmp_path: Path) -> None:
    """The guests are told what the settings say, and that is said."""
    sim = Sim(str(tmp_path))
    keep_network(sim.node, network_of(BLUE, "e:8", SAID))
    Path(sim.paths.wanted, "networks", f"{BLUE}.json").write_text("{")
    sim.up(nic("bridged, told", NETWORK_UUID=BLUE))
    assert sim.record().nic.told is None and any("damaged" in line and BLUE in line for line in sim.lines)
    assert any("10.0.0.53" in text for text in texts(sim))
    os.chmod(f"{sim.paths.wanted}/networks", 0o777)
    sim.down(nic("bridged, told"))
    assert sim.up(nic("bridged, told", NETWORK_UUID=BLUE)).changed
    assert any("whatever the registry says" in line for line in sim.lines)


def test_the_record_says_what_is_told(tmp_path: Path) -> None:
    """And an older version reads it, which knows nothing of that."""
    sim = Sim(str(tmp_path))
    keep_network(sim.node, network_of(BLUE, "e:8", SAID))
    sim.up(nic("bridged", NETWORK_UUID=BLUE))
    record = sim.record()
    assert record.nic.told == network_of(BLUE, "e:8", SAID) and from_json(to_json(record)) == record
    stored = json.loads(to_json(record))
    assert stored.pop("told")["resolvers"] == ["10.0.0.54"]
    older = from_json(json.dumps(stored).encode())
    assert older == record._replace(nic=record.nic._replace(told=None))


# -- what needs a restart


@pytest.mark.parametrize(
    ("fields", "restart"),
    [
        ({}, ()),
        ({"mac": "aa:00:00:12:34:56", "ip": "10.0.0.5", "mode": "bridged", "link": "brv", "vlan": ".10", "model": "virtio"}, ()),
        ({"mac": "", "mode": "", "link": "", "model": ""}, ()),
        ({"mac": "aa:00:00:12:34:57"}, ("mac",)),
        ({"ip": "10.0.0.6"}, ("ip",)),
        ({"ip": "", "vlan": ""}, ("ip", "vlan")),
        ({"mode": "routed", "link": "guests"}, ("mode", "link")),
        ({"vlan": ".11"}, ("vlan",)),
    ],
)
def test_what_needs_a_restart(tmp_path: Path, fields: dict[str, str], restart: tuple[str, ...]) -> None:
    """It is said, the guest is left alone, and the rest of what is wanted holds."""
    sim = Sim(str(tmp_path))
    sim.up(nic("bridged, access", IP="10.0.0.5", MAC="aa:00:00:12:34:56"))
    one = asked(rate_in="8mbit")._replace(fields=tuple(fields.items()))
    done = push(sim.node, UUIDS[0], one, sim.call())
    assert done.restart == restart and done.changed and ("pending restart: " + ", ".join(restart) in done.text) == bool(restart)
    assert sim.record().nic.wanted == (Changed("rate_in", "8mbit", REGISTRY),)
    assert (sim.record().nic.mac, sim.record().nic.ip) == ("aa:00:00:12:34:56", "10.0.0.5")


def test_what_is_pending_counts_by_all_that_it_is(tmp_path: Path) -> None:
    """A push that was killed once the NIC had it all: what is of this node and what is the registry's are told apart."""
    sim = machine(tmp_path, "bridged")
    to(sim, rate_out="4mbit")
    pushed(sim, rate_in="8mbit")
    there = wanted.read(sim.paths, UUIDS[0], [])
    wanted.write(sim.paths, UUIDS[0], there._replace(registry=(), revision="e:6", pending=there))
    assert read(sim.node, UUIDS[0], []) == there
    swapped = wanted.Wanted(there.registry, there.local, "e:9")
    wanted.write(sim.paths, UUIDS[0], there._replace(pending=swapped))
    assert read(sim.node, UUIDS[0], []) == there
    assert there.force(moment(sim.node)) == (Changed("rate_in", "8mbit", REGISTRY), Changed("rate_out", "4mbit", LOCAL))
