"""Tags that change in Ganeti reach NICs that are up, and where it cannot be known that they are the newer ones, that is shown."""

from __future__ import annotations

import os
from typing import Any

import pytest

from netcommon.lifecycle import up
from netcommon.lifecycle.context import Node
from netcommon.log import Log
from netregistry.client import Client
from runtime import networks
from runtime.nic import Nic
from runtime.store import Store
from tests.support.registry import NODES
from tests.support.service import Served
from tests.support.sim import UUIDS, Sim, nic
from tests.support.sync_agent import Agent, reports, shown

CLUSTER = "gnt.example.com"
BLUE = "b1b1b1b1-0667-415f-9a43-786dc01cbf24"
ISOLATED = "netcommon:0:isolated:yes"


@pytest.fixture
def importer(agent: Agent, sim: Sim, service: Served) -> Client:
    """Let the node be one of a Ganeti cluster; give the registry as its importer asks it."""
    os.makedirs(sim.paths.ganeti_run, exist_ok=True)
    service.client().change("PATCH", f"nodes/{NODES[0]}", {"cluster": CLUSTER})
    return service.client(f"importer:{CLUSTER}")


def imported(importer: Client, there: Nic, *tags: str, **fields: Any) -> None:
    said = {"uuid": there.uuid, "instance": there.instance, "index": there.index, "mac": there.mac, "tags": list(tags)}
    importer.change("POST", "nics", {**said, **fields})


def retagged(importer: Client, *tags: str, uuid: str = UUIDS[0], **fields: Any) -> None:
    importer.change("PATCH", f"nics/{uuid}", {"tags": list(tags), **fields})


def state(service: Served, uuid: str = UUIDS[0]) -> tuple[str, list[str]]:
    item = shown(service, uuid)
    assert item is not None
    return item["shown"]["state"], item["shown"].get("pending", [])


def isolated(service: Served, uuid: str = UUIDS[0]) -> bool:
    return any(each["name"] == "isolated" for each in reports(service)[uuid]["options"])


def test_tags_that_may_be_older_are_shown(agent: Agent, sim: Sim, service: Served, importer: Client) -> None:
    """The guest came up while the agent was away, and a tag changed then: nobody knows which was first. Its next start is in step."""
    there = nic("bridged", TAGS="x")
    imported(importer, there, "x")
    sim.up(there)
    retagged(importer, "x", ISOLATED)
    with agent.running() as sync:
        agent.until(lambda: UUIDS[0] in reports(service) and state(service) == ("pending restart", ["tags"]), "it is shown")
        assert sim.record().nic.tags == ("x",)
        sim.down(there)
        sim.up(nic("bridged", TAGS=f"x {ISOLATED}"))
        sync.marked(UUIDS[0])
        agent.until(lambda: state(service) == ("running", []), "it is over")
        retagged(importer, "x")
        agent.until(lambda: not isolated(service), "what changes since is news")
        agent.until(lambda: sync.machine.idle and state(service) == ("running", []), "nothing waits")
    assert agent.alarms.active() == {}


def test_tags_by_index_after_an_earlier_nic_was_taken_away(agent: Agent, sim: Sim, service: Served, importer: Client) -> None:
    """The NIC that Ganeti calls the second has the tag of the second, whatever it was at its up."""
    nics = [
        nic("bridged", INTERFACE=f"tap{n}", INTERFACE_INDEX=str(n), INTERFACE_UUID=UUIDS[n], MAC=f"aa:00:00:00:00:1{n}") for n in range(3)
    ]
    for number, there in enumerate(nics):
        if number:
            sim.tap(there.interface)
        imported(importer, there, *there.tags)
    with agent.running() as sync:
        for there in nics:
            sim.up(there)
            sync.marked(there.uuid)
        agent.until(lambda: len(sync.machine.inbox.nics) == 3 and sync.machine.idle, "they are known")
        sim.down(nics[0])
        sync.marked(UUIDS[0])
        importer.change("DELETE", f"nics/{UUIDS[0]}")
        for number in (1, 2):
            retagged(importer, *nics[0].tags, "netcommon:1:isolated:yes", uuid=UUIDS[number], index=number - 1)
        agent.until(lambda: isolated(service, UUIDS[2]), "the second one has it")
        agent.until(lambda: sync.machine.idle, "nothing is left")
        assert not isolated(service, UUIDS[1])
        assert [sim.record(UUIDS[number]).nic.index for number in (1, 2)] == [0, 1]
        assert [state(service, UUIDS[number]) for number in (1, 2)] == [("running", [])] * 2
    assert agent.alarms.active() == {}


def test_a_networks_tags_that_are_told_during_a_hook(
    agent: Agent, sim: Sim, service: Served, importer: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The hook has read what was said of the network before: the NIC is told what came since when it is up."""
    importer.change("POST", "networks", {"uuid": BLUE, "name": "blue", "subnet": "192.0.2.0/24", "tags": ["x"]})
    there = nic("bridged", NETWORK_UUID=BLUE, NETWORK_NAME="blue", NETWORK_TAGS="x")
    imported(importer, there, *there.tags, network=BLUE)
    with agent.running() as sync:
        sim.up(there)
        sync.marked(UUIDS[0])
        agent.until(lambda: sim.record().nic.told is not None and sync.machine.idle, "it is told")
        sim.down(there)
        sync.marked(UUIDS[0])
        agent.until(lambda: reports(service)[UUIDS[0]]["state"] == "stopped" and sync.machine.idle, "it has stopped")
        real = up.with_kept

        def between(node: Node, one: Nic, log: Log) -> Nic:
            found = real(node, one, log)
            importer.change("PATCH", f"networks/{BLUE}", {"tags": ["x", "netcommon:isolated:yes"]})
            agent.until(lambda: "netcommon:isolated:yes" in str(networks.read(sim.paths, BLUE, [])), "it lies on disk")
            return found

        monkeypatch.setattr(up, "with_kept", between)
        own = Store(sim.paths, sim.host.identity().netns, sim.host.identity().boot)
        up.up(sim.node._replace(store=own), there, sim.call(seconds=30))
        monkeypatch.setattr(up, "with_kept", real)
        sync.marked(UUIDS[0])
        agent.until(lambda: isolated(service), "it has the tag")
        agent.until(lambda: sync.machine.idle and state(service) == ("running", []), "nothing waits")


def test_a_network_goes_with_its_address(agent: Agent, sim: Sim, service: Served) -> None:
    """A NIC that is moved while it runs keeps its address until its next start, and so it is told its old network's router until then."""
    operator, there = service.client(), nic("bridged", IP="192.0.2.10")
    said = {"blue": ("192.0.2.0/24", "192.0.2.1"), "green": ("198.51.100.0/24", "198.51.100.1")}
    of = {
        name: operator.change("POST", "networks", {"name": name, "subnet": subnet, "gateway": router}).body["uuid"]
        for name, (subnet, router) in said.items()
    }

    def router() -> str:
        told = sim.record().nic.told
        return "" if told is None else told.gateway

    operator.change("PATCH", f"nodes/{NODES[0]}", {"cluster": CLUSTER})
    body = {"instance": there.instance, "index": 0, "mac": there.mac, "cluster": CLUSTER, "network": of["blue"], "ip": "192.0.2.10"}
    operator.change("POST", "nics", {"uuid": UUIDS[0], **body})
    with agent.running() as sync:
        sim.up(there)
        sync.marked(UUIDS[0])
        agent.until(lambda: router() == "192.0.2.1" and sync.machine.idle, "it is told")
        operator.change("PATCH", f"nics/{UUIDS[0]}", {"network": of["green"], "ip": "198.51.100.10"})
        agent.until(lambda: set(state(service)[1]) == {"ip", "network"}, "both wait")
        agent.until(lambda: sync.machine.idle, "nothing is left")
        assert router() == "192.0.2.1"
        operator.change("PATCH", f"networks/{of['green']}", {"mtu": 1400})
        operator.change("PATCH", f"nics/{UUIDS[0]}", {"options": [{"name": "isolated", "value": "yes"}]})
        agent.until(lambda: isolated(service) and sync.machine.idle, "it is changed")
        assert router() == "192.0.2.1"
        sim.down(there)
        sim.up(nic("bridged", IP="198.51.100.10"))
        sync.marked(UUIDS[0])
        agent.until(lambda: state(service) == ("running", []), "both are there")
        assert router() == "198.51.100.1"


def test_a_networks_tags_are_those_of_nics_that_the_hypervisor_has_put_into_it(
    agent: Agent, sim: Sim, service: Served, importer: Client
) -> None:
    """A NIC that only the registry has put into a Ganeti cluster's network is told its router, and has none of its tags."""
    importer.change("POST", "networks", {"uuid": BLUE, "name": "blue", "subnet": "192.0.2.0/24", "gateway": "192.0.2.1"})
    os.rmdir(sim.paths.ganeti_run)
    there = nic("bridged")
    with agent.running() as sync:
        sim.up(there)
        sync.marked(UUIDS[0])
        agent.until(lambda: shown(service), "it is made known")
        service.client().change("PATCH", f"nics/{UUIDS[0]}", {"network": BLUE})
        agent.until(lambda: sim.record().nic.told is not None and sync.machine.idle, "it is in it")
        importer.change("PATCH", f"networks/{BLUE}", {"tags": ["netcommon:isolated:yes"]})
        agent.until(lambda: "isolated" in str(sim.record().nic.told) and sync.machine.idle, "it is told")
        assert not isolated(service) and state(service) == ("running", [])
        before = sim.record().nic
        sim.down(there)
        sim.up(there)
        sync.marked(UUIDS[0])
        agent.until(lambda: reports(service)[UUIDS[0]]["state"] == "running" and sync.machine.idle, "it is up again")
        assert sim.record().nic == before
