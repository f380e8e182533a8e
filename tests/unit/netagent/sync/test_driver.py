"""A node's synchronisation as the agent runs it: a real service over its socket, real records and definitions, on a simulated host."""

from __future__ import annotations

import errno
import time
from pathlib import Path

import pytest

from netagent.sync import connection, driver, hands
from netagent.sync.messages import AskNode, Failure
from netcommon.host.api.host import Answer
from netcommon.lifecycle.push import applied
from netregistry.service import queries
from runtime import definitions
from runtime.errors import TryAgain
from tests.support.registry import NODES
from tests.support.service import Served
from tests.support.sim import UUIDS, Sim, nic
from tests.support.sync_agent import Agent, item_revision, one, reports, shown


def test_a_nic_is_reported_made_known_set_and_stopped(agent: Agent, sim: Sim, service: Served) -> None:
    """The whole way: what comes up is known within seconds, what the operator wants is in force, and what stops is said to."""
    there = nic("bridged")
    with agent.running() as sync:
        sim.up(there)
        sync.marked(UUIDS[0])
        agent.until(lambda: shown(service), "it is made known")
        item = shown(service)
        assert item is not None and item["nic"]["master"] == f"node:{NODES[0]}"
        assert (item["nic"]["mac"], item["nic"]["instance"], item["nic"]["link"]) == (there.mac, there.instance, there.link)
        service.client().change("PATCH", f"nics/{UUIDS[0]}", {"options": [{"name": "isolated", "value": "yes"}]})
        agent.until(lambda: applied(sim.node, UUIDS[0], []) == item_revision(service), "it is set")
        agent.until(lambda: reports(service)[UUIDS[0]]["applied"] == item_revision(service), "that is reported")
        said = reports(service)[UUIDS[0]]
        assert said["state"] == "running" and said["tap"] == there.interface and said["options"][0]["name"] == "isolated"
        agent.until(lambda: (shown(service) or {})["shown"]["state"] == "running", "the node is alive")
        sim.down(there)
        sync.marked(UUIDS[0])
        agent.until(lambda: reports(service)[UUIDS[0]]["state"] == "stopped", "that it has stopped is reported")
        agent.until(lambda: sync.machine.idle, "nothing is left")
        status = sync.status()
        assert status["registry"] == "in step" and status["registry marks"] == 0
        assert agent.metrics.value("netcommon_registry_connected") == 1
    assert agent.alarms.active() == {}


def test_prefixes_that_are_a_guests_are_reported(agent: Agent, sim: Sim, service: Served) -> None:
    """Each address of them is routed to it: its IP says one, and an option another. Nobody else is given any of them."""
    client = service.client()
    said = {"name": "blue", "subnet": "10.9.0.0/24", "ranges": [{"first": "10.9.0.15", "last": "10.9.0.80"}]}
    blue = client.change("POST", "networks", said).body["uuid"]
    network = {"NETWORK_UUID": blue, "NETWORK_NAME": "blue", "NETWORK_SUBNET": "10.9.0.0/24"}
    there = nic("routed", IP="10.9.0.16/28", TAGS="netcommon:0:prefixes:10.9.0.64/28", **network)
    definitions.write(sim.paths, there)
    with agent.running() as sync:
        sim.up(there)
        sync.marked(UUIDS[0])
        agent.until(lambda: UUIDS[0] in reports(service), "it is reported")
        agent.until(lambda: sync.machine.idle, "nothing is left")
        assert reports(service)[UUIDS[0]]["prefixes"] == ["10.9.0.16/28", "10.9.0.64/28"]
        given = [client.change("POST", "nics", {"network": blue, "allocate": ["ipv4"]}).body["ip"] for _ in range(34)]
        assert given == [f"10.9.0.{number}" for number in (15, *range(32, 64), 80)]


def test_a_service_that_takes_no_prefixes_is_told_none(agent: Agent, sim: Sim, service: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """An older one would refuse all of such a report."""
    monkeypatch.setattr(queries, "ABILITIES", tuple(each for each in queries.ABILITIES if each != "prefixes"))
    with agent.running() as sync:
        sim.up(nic("routed", TAGS="netcommon:0:prefixes:10.9.0.64/28"))
        sync.marked(UUIDS[0])
        agent.until(lambda: UUIDS[0] in reports(service), "it is reported")
        assert "prefixes" not in reports(service)[UUIDS[0]] or reports(service)[UUIDS[0]]["prefixes"] == []


def test_the_options_in_force_are_reported_wherever_they_were_given(agent: Agent, sim: Sim, service: Served) -> None:
    """By the settings of its up, tags, and the registry; none that its mode does not have, and nothing that is only said since."""
    sim.settings = sim.settings._replace(nic={"mcast_flood": False, "eui64": True, "blackhole": True})
    lists = "netcommon:0:addresses:192.0.2.7 netcommon:0:addresses:192.0.2.8"
    tags = f"netcommon:0:isolated {lists} netcommon:*:eui64:false netcommon:1:limited"
    with agent.running() as sync:
        sim.up(nic("bridged", TAGS=tags))
        sim.settings = sim.settings._replace(nic={"static_fdb": True})
        sync.marked(UUIDS[0])
        agent.until(lambda: shown(service), "it is made known")
        by_tags = {"isolated": "true", "addresses": "192.0.2.7,192.0.2.8", "eui64": "false"}
        assert options(service) == {**by_tags, "mcast_flood": "false"}
        service.client().change("PATCH", f"nics/{UUIDS[0]}", {"options": [{"name": "isolated", "value": "no"}]})
        agent.until(lambda: reports(service)[UUIDS[0]]["applied"] == item_revision(service), "that is reported")
        assert options(service) == {**by_tags, "isolated": "no", "static_fdb": "true"}, "it was planned anew, by today's settings"
        service.client().change("PATCH", f"nics/{UUIDS[0]}", {"options": []})
        agent.until(lambda: options(service) == {**by_tags, "static_fdb": "true"}, "the tag's counts again")


def options(service: Served) -> dict[str, str]:
    return {each["name"]: each["value"] for each in reports(service)[UUIDS[0]]["options"]}


def test_what_the_host_refuses_is_reported_and_nothing_of_it_is_touched(agent: Agent, sim: Sim, service: Served) -> None:
    agent.rules = agent.rules._replace(every=3600.0)  # what was refused once is not tried again before that is told
    with agent.running() as sync:
        sim.up(nic("bridged"))
        sync.marked(UUIDS[0])
        agent.until(lambda: shown(service), "it is made known")
        before = sim.picture()
        agent.until(lambda: sync.machine.idle, "nothing is left")
        with sim.failing(0, Answer(errno.EPERM, "no"), times=1):
            service.client().change("PATCH", f"nics/{UUIDS[0]}", {"options": [{"name": "isolated", "value": "yes"}]})
            agent.until(lambda: reports(service)[UUIDS[0]]["refused"], "the refusal is reported")
        assert sim.picture() == before and "registry-refused" in agent.alarms.active()
        service.client().change("PATCH", f"nics/{UUIDS[0]}", {"options": []})
        agent.until(lambda: not reports(service)[UUIDS[0]]["refused"], "it is over")
        agent.until(lambda: "registry-refused" not in agent.alarms.active(), "the alarm too")


def test_what_has_ended_by_a_clock_that_is_wrong_is_refused_until_it_is_right(agent: Agent, sim: Sim, service: Served) -> None:
    """Not said to be applied, named with both values, and in force when the clock is right, though nothing else happens."""
    with agent.running() as sync:
        sim.up(one(0))
        sync.marked(UUIDS[0])
        agent.until(lambda: shown(service), "it is made known")
        sim.wall = time.time() + 7200
        client, until = service.client(), time.time() + 3600
        client.change("PATCH", f"nics/{UUIDS[0]}", {"options": [{"name": "isolated", "value": "yes", "until": until}]})
        agent.until(lambda: reports(service)[UUIDS[0]]["refused"], "the registry is told why it is not so")
        said = reports(service)[UUIDS[0]]
        assert said["applied"] == item_revision(service).partition(":")[0] + ":0" and said["options"] == []
        assert "isolated=yes" in said["refused"] and "isolated=yes" in agent.alarms.active()["registry-refused"]
        sim.wall = time.time()
        agent.until(lambda: reports(service)[UUIDS[0]]["applied"] == item_revision(service), "it is set")
        said = reports(service)[UUIDS[0]]
        assert [each["name"] for each in said["options"]] == ["isolated"] and said["refused"] == ""
        agent.until(lambda: "registry-refused" not in agent.alarms.active(), "nobody is alarmed any more")


def test_a_definition_that_is_gone_goes_and_one_that_is_there_stays(agent: Agent, sim: Sim, service: Served) -> None:
    """Also where somebody has removed the file: but not at once, and never while the NIC is up, or nothing is defined any more."""
    for number in range(3):
        definitions.write(sim.paths, one(number))
    with agent.running() as sync:
        for number in range(3):
            agent.until(lambda number=number: shown(service, UUIDS[number]), "what is defined is made known")
        agent.until(lambda: {each["state"] for each in reports(service).values()} == {"stopped"}, "none is up")
        sim.up(one(0))
        for number in (0, 1):
            (Path(sim.paths.definitions) / f"{UUIDS[number]}.toml").unlink()
        sync.marked(UUIDS[0])
        agent.until(lambda: shown(service, UUIDS[1]) is None, "what is gone goes")
        assert shown(service, UUIDS[0]) and shown(service, UUIDS[2]), "what is up, or defined, stays"
        sim.down(one(0))
        (Path(sim.paths.definitions) / f"{UUIDS[2]}.toml").unlink()
        agent.until(lambda: "registry-inventory" in agent.alarms.active(), "nothing is defined any more")
        assert shown(service, UUIDS[2])


def test_a_service_that_is_away(agent: Agent, sim: Sim, tmp_path: Path, service: Served) -> None:
    """Catch up with what happened meanwhile, on either side, by one look at what was known, and by none at all of it again."""
    with agent.running() as sync:
        sim.up(nic("bridged"))
        sync.marked(UUIDS[0])
        agent.until(lambda: shown(service), "it is made known")
        agent.until(lambda: sync.machine.idle, "nothing is left")
    revision = str(sync.machine.inbox.ready)
    sim.down(nic("bridged"))
    service.client().change("PATCH", f"nics/{UUIDS[0]}", {"options": [{"name": "isolated", "value": "yes"}]})
    watched: list[str] = []
    with agent.running() as again:
        session = again._session
        watch = session.watch
        session.watch = lambda start, underlay=False: (watched.append(start), watch(start, underlay))[1]  # type: ignore[func-returns-value, method-assign]
        agent.until(lambda: reports(service)[UUIDS[0]]["state"] == "stopped", "what has no record is stopped")
        agent.until(lambda: again.machine.idle and again.machine.inbox.complete, "it is caught up with")
        assert watched == [revision], "it went on where it was"
        assert applied(sim.node, UUIDS[0], []) == item_revision(service), "on disk for the next up"


def test_a_service_without_streams(agent: Agent, sim: Sim, service: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """An older one: the node is alive by its signs of life, what it has is reported, and nothing is asked for that there is not."""
    monkeypatch.setattr(queries, "ABILITIES", tuple(each for each in queries.ABILITIES if each != "watch"))
    with agent.running() as sync:
        sim.up(nic("bridged"))
        sync.marked(UUIDS[0])
        agent.until(lambda: UUIDS[0] in reports(service), "it is reported")
        agent.until(lambda: next(service.client().all("nodes"))["alive"], "the node is alive")
        assert service.client().get("status").body["streams"] == 0 and not sync.machine.line.stream
        assert reports(service)[UUIDS[0]]["state"] == "running" and agent.alarms.active() == {}


def test_a_nic_whose_record_is_lost_is_not_told_as_stopped(agent: Agent, sim: Sim, service: Served) -> None:
    """It runs, as its tap says; it is told as it was, and when its record is back as it is."""
    definitions.write(sim.paths, one(0))
    record = Path(sim.paths.state) / "nics" / f"{UUIDS[0]}.json"
    with agent.running() as sync:
        sim.up(one(0))
        sync.marked(UUIDS[0])
        agent.until(lambda: reports(service).get(UUIDS[0], {}).get("state") == "running", "it is reported")
        agent.until(lambda: sync.machine.idle, "nothing is left")
        kept = record.read_bytes()
        record.unlink()
        for tell in (sync.lost, lambda: sync.marked(UUIDS[0])):
            looks = len(agent.asked)
            tell()
            agent.until(lambda looks=looks: len(agent.asked) > looks + 1, "it is looked at")
        agent.until(lambda: "registry-inventory" in agent.alarms.active(), "there is an alarm")
        assert reports(service)[UUIDS[0]]["state"] == "running"
        record.write_bytes(kept)
        agent.until(lambda: sync.machine.idle, "nothing is left")
        sim.down(one(0))
        sync.marked(UUIDS[0])
        agent.until(lambda: reports(service)[UUIDS[0]]["state"] == "stopped", "a down is a down")


def test_a_worker_that_cannot_work_holds_nothing_up_for_good(agent: Agent, sim: Sim, service: Served) -> None:
    with agent.running() as sync:
        agent.until(lambda: sync.machine.idle, "it is in step")
        agent.broken = True
        sim.up(nic("bridged"))
        sync.marked(UUIDS[0])
        agent.until(lambda: sync.machine.outbox.unclear, "nothing can be told of it")
        agent.until(lambda: "registry-inventory" in agent.alarms.active(), "nor of anything")
        agent.broken = False
        agent.until(lambda: shown(service), "it is made known")
        agent.until(lambda: sync.machine.idle, "nothing is left")


def test_the_status_says_what_a_service_does_not_do(agent: Agent, sim: Sim, service: Served) -> None:
    with agent.running() as sync:
        agent.until(lambda: sync.machine.idle, "it is in step")
        sync.machine.line.failed(AskNode(), Failure("unavailable", "the store is full"), sync._now(), 60.0)
        assert sync.status()["registry"] == "in step, but for what it does not do: the store is full"


def test_no_registry_there(sim: Sim, tmp_path: Path) -> None:
    """The node is as it was; the alarm comes after a minute, which a clock would have to tell."""
    agent = Agent(sim, str(tmp_path / "nobody"))
    before = sim.picture()
    with agent.running() as sync:
        agent.until(lambda: sync.machine.line.reason, "nobody answers")
        assert "no registry is served" in str(sync.status()["registry"])
    assert sim.picture() == before


def test_nothing_is_done_for_a_registry_that_the_node_has_left(
    agent: Agent, sim: Sim, service: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither what was to be tried again, nor what comes from it late, nor a look at the node; and there is no alarm of it."""
    monkeypatch.setattr(driver, "ABOUT_SELDOM", 0.5)
    monkeypatch.setattr(connection, "SILENT", 0.5)

    def busy(*_args: object) -> None:
        raise TryAgain("somebody is at work on it")

    with agent.running() as sync:
        sim.up(nic("bridged"))
        sync.marked(UUIDS[0])
        agent.until(lambda: shown(service), "it is made known")
        agent.until(lambda: sync.machine.idle, "nothing is left")
        before = sim.picture()
        with monkeypatch.context() as patched:
            patched.setattr(hands, "push", busy)
            service.client().change("PATCH", f"nics/{UUIDS[0]}", {"options": [{"name": "isolated", "value": "yes"}]})
            agent.until(lambda: sync.machine.jobs._later, "it is to be tried again")
        agent.until(lambda: sync.machine.jobs._doing, "a worker is about to")
        asked = list(agent.asked)
        sync.close(0.0)
        for tell in (sync.lost, sync.changed, lambda: sync.marked(UUIDS[0]), lambda: sync.unworked(driver.INVENTORY, "no")):
            tell()
        agent.passes(2.0)
        assert agent.asked == asked and sim.picture() == before
        assert agent.alarms.active() == {} and agent.metrics.value("netcommon_registry_connected") == 0


def test_what_cannot_be_written_as_json_is_asked_for_again(agent: Agent, sim: Sim, service: Served) -> None:
    """Such as what a registry has nested deeper than this can: nothing of it ends the agent."""
    nested: list[object] = []
    for _ in range(100_000):
        nested = [nested]
    with agent.running() as sync:
        sync._save({"nested": nested})
    assert any("is asked for anew" in line for line in sim.lines)


def test_an_address_that_was_defined_anew_reaches_the_registry(agent: Agent, sim: Sim, service: Served) -> None:
    """Also where the agent did not run. What the operator has changed is not changed back, and said."""
    definitions.write(sim.paths, nic("bridged", IP="192.0.2.10"))
    with agent.running() as sync:
        agent.until(lambda: shown(service), "it is made known")
        agent.until(lambda: sync.machine.idle, "nothing is left")
        definitions.write(sim.paths, nic("bridged", IP="192.0.2.99"))
        sync.marked(UUIDS[0])
        agent.until(lambda: address(service) == "192.0.2.99", "it is brought there")
        agent.until(lambda: sync.machine.inbox.agreed == {UUIDS[0]: "192.0.2.99"} and sync.machine.idle, "both have the same")
    definitions.write(sim.paths, nic("bridged", IP="192.0.2.50"))
    with agent.running() as sync:
        agent.until(lambda: address(service) == "192.0.2.50", "also what was defined while the agent did not run")
        agent.until(lambda: sync.machine.idle, "nothing is left")
        assert agent.alarms.active() == {}
        service.client().change("PATCH", f"nics/{UUIDS[0]}", {"ip": "192.0.2.77"})
        agent.until(lambda: "192.0.2.77" in agent.alarms.active().get("registry-refused", ""), "the operator's is not the definition's")
        agent.passes(3)
        assert address(service) == "192.0.2.77" and "192.0.2.50 here" in agent.alarms.active()["registry-refused"]
    with agent.running() as sync:
        agent.until(lambda: "registry-refused" in agent.alarms.active(), "an agent that begins anew knows which one was changed")
        assert address(service) == "192.0.2.77"
        definitions.write(sim.paths, nic("bridged", IP="192.0.2.77"))
        sync.marked(UUIDS[0])
        agent.until(lambda: agent.alarms.active() == {}, "they agree")


def test_an_address_that_somebody_has_is_a_conflict(agent: Agent, sim: Sim, service: Served) -> None:
    definitions.write(sim.paths, nic("bridged", IP="192.0.2.10"))
    with agent.running() as sync:
        agent.until(lambda: sync.machine.inbox.agreed, "it is known")
        item = shown(service)
        assert item is not None
        service.client().change(
            "POST", "nics", {"instance": "db", "cluster": item["nic"]["cluster"], "ip": "192.0.2.99", "mac": "aa:00:00:00:77:01"}
        )
        definitions.write(sim.paths, nic("bridged", IP="192.0.2.99"))
        sync.marked(UUIDS[0])
        agent.until(lambda: address(service) == "192.0.2.99", "it is defined, whoever has it")
        found = [each["conflict"] for each in service.client().all("conflicts")]
        assert [(each["claim"].rpartition("/")[2], each["contenders"]) for each in found] == [("192.0.2.99", [UUIDS[0]])]


def address(service: Served) -> str:
    item = shown(service)
    return "" if item is None else str(item["nic"]["ip"])
