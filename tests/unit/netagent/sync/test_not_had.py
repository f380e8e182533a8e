"""Leave out what a NIC cannot have of what is wanted of it: its guest starts without, the rest is in force, and that is reported."""

from __future__ import annotations

import errno
from typing import Any

import pytest

from netcommon.host.api.host import Answer
from netcommon.host.api.requests import Request, SetPort
from tests.support.registry import NODES
from tests.support.sim import UUIDS, Sim, nic
from tests.support.sync_agent import Agent, item_revision, reports, shown
from tests.unit.netagent.sync.test_held import CLUSTER, HOURLY, in_force, on_disk

GOOD = {"rate_in": "8mbit"}
#: What only the host refuses (a template that it has not, a flag that its kernel lacks), and what the NIC cannot have by its mode.
BAD = [("openvswitch", "flows", "nosuch"), ("bridged", "isolated", "yes"), ("openvswitch", "firewall", "protected")]


def operator_sets(agent: Agent, **options: str) -> None:
    said = [{"name": name, "value": value} for name, value in options.items()]
    agent.service.client().change("PATCH", f"nics/{UUIDS[0]}", {"options": said})


def lacking(request: Request) -> Answer | None:
    isolates = isinstance(request, SetPort) and request.flag == "isolated" and request.value
    return Answer(errno.EOPNOTSUPP, "not supported") if isolates else None


@pytest.fixture
def known(agent: Agent) -> Agent:
    """Give the agent of a node of a cluster, whose kernel has no isolated ports, and whose registry wants nothing yet of the first NIC."""
    agent.rules = agent.rules._replace(every=HOURLY)
    operator, there = agent.service.client(), nic("bridged")
    operator.change("PATCH", f"nodes/{NODES[0]}", {"cluster": CLUSTER})
    body = {"instance": there.instance, "index": 0, "mac": there.mac, "cluster": CLUSTER}
    operator.change("POST", "nics", {"uuid": UUIDS[0], **body})
    agent.sim.host.fail = lacking
    return agent


def is_said(agent: Agent, what: str) -> bool:
    """Tell whether the registry and people are told what the NIC has not, and that it is not as it is wanted."""
    report: dict[str, Any] = reports(agent.service).get(UUIDS[0], {})
    there = shown(agent.service)
    assert there is not None
    untrue = report.get("applied") == item_revision(agent.service) or there["shown"]["applied"] == there["revision"]
    return bool(what in report.get("refused", "") and UUIDS[0] in agent.alarms.active().get("registry-refused", "") and not untrue)


@pytest.mark.parametrize(("mode", "name", "value"), BAD)
@pytest.mark.parametrize("running", [True, False])
def test_a_guest_starts_without_what_its_nic_cannot_have(known: Agent, sim: Sim, mode: str, name: str, value: str, running: bool) -> None:
    """Try what was refused of the NIC while it ran, or came while it was elsewhere; and however often it starts."""
    agent, what = known, value if name == "flows" else name
    with agent.running() as sync:
        if running:
            sim.up(nic(mode))
            sync.marked(UUIDS[0])
            agent.until(lambda: UUIDS[0] in reports(agent.service) and sync.machine.idle, "it is known")
        operator_sets(agent, **GOOD, **{name: value})
        agent.until(lambda: is_said(agent, what) if running else on_disk(sim)[2] == {**GOOD, name: value}, "it is refused, or kept")
        for _twice in range(2):
            if running:
                sim.down(nic(mode))
                sync.marked(UUIDS[0])
                agent.until(lambda: reports(agent.service)[UUIDS[0]]["state"] == "stopped" and sync.machine.idle, "it has stopped")
                sim.wall += 1.0
            sim.up(nic(mode))
            assert in_force(sim)[0] == GOOD
            sync.marked(UUIDS[0])
            agent.until(lambda: is_said(agent, what) and sync.machine.idle, "what it has not is said")
            assert in_force(sim)[0] == GOOD
            running = True
        operator_sets(agent, **GOOD)
        agent.until(lambda: agent.alarms.active() == {}, "the alarm is over")
        agent.until(lambda: reports(agent.service)[UUIDS[0]]["applied"] == item_revision(agent.service), "it is as it is wanted")


def test_what_the_host_can_again_is_in_force(known: Agent, sim: Sim) -> None:
    """At once when its guest comes; of one that runs within the hour, or when anything else of it is wanted."""
    agent = known
    operator_sets(agent, **GOOD, isolated="yes")
    with agent.running() as sync:
        agent.until(lambda: on_disk(sim)[0] == item_revision(agent.service) and sync.machine.idle, "it is kept")
        sim.up(nic("bridged"))
        sim.host.fail = lambda _request: None
        sync.marked(UUIDS[0])
        agent.until(lambda: in_force(sim)[0] == {**GOOD, "isolated": "yes"}, "it has all of it")
        agent.until(lambda: reports(agent.service)[UUIDS[0]]["applied"] == item_revision(agent.service), "and that is reported")
        assert agent.alarms.active() == {}


@pytest.mark.parametrize("elsewhere", [False, True])
def test_an_option_that_this_version_does_not_know_holds_up_nothing_else(
    known: Agent, sim: Sim, monkeypatch: pytest.MonkeyPatch, elsewhere: bool
) -> None:
    """Neither the NIC's other options nor what its network says, now or at its next start, here or where it comes."""
    agent = known
    monkeypatch.setattr("netregistry.rules.nics._options_are_some", lambda _draft, _nic: None)  # a newer registry
    operator = agent.service.client()
    blue = operator.change("POST", "networks", {"name": "blue", "subnet": "192.0.2.0/24", "resolvers": ["192.0.2.53"]}).body["uuid"]
    operator.change("PATCH", f"nics/{UUIDS[0]}", {"network": blue})
    with agent.running() as sync:
        if not elsewhere:
            sim.up(nic("bridged"))
            sync.marked(UUIDS[0])
            agent.until(lambda: in_force(sim)[1] == ("192.0.2.53",) and sync.machine.idle, "it is known")
        operator_sets(agent, of_tomorrow="1", **GOOD)
        agent.until(lambda: on_disk(sim)[2] == {"of_tomorrow": "1", **GOOD} and sync.machine.idle, "it is kept")
        for number in range(2):
            if number or elsewhere:
                sim.wall += 1.0
                sim.up(nic("bridged"))
                sync.marked(UUIDS[0])
            agent.until(lambda: is_said(agent, "of_tomorrow") and sync.machine.idle, "it is refused, and that is said")
            assert in_force(sim)[0] == GOOD
            operator.change("PATCH", f"networks/{blue}", {"resolvers": [f"192.0.2.6{number}"]})
            agent.until(lambda number=number: in_force(sim)[1] == (f"192.0.2.6{number}",), "its guest is told")  # type: ignore[misc]
            sim.down(nic("bridged"))
            sync.marked(UUIDS[0])
            agent.until(lambda: reports(agent.service)[UUIDS[0]]["state"] == "stopped" and sync.machine.idle, "it has stopped")
            assert on_disk(sim) == (item_revision(agent.service), blue, {"of_tomorrow": "1", **GOOD})
        operator_sets(agent, **GOOD)
        agent.until(lambda: agent.alarms.active() == {}, "the alarm is over")


def test_a_nic_that_a_script_of_the_sites_has_set_up_is_an_alarm_only_if_something_is_wanted_of_it(known: Agent, sim: Sim) -> None:
    """Nothing of ours would be another; what its network says is the script's affair."""
    agent = known
    operator = agent.service.client()
    said = {"name": "blue", "subnet": "192.0.2.0/24", "resolvers": ["192.0.2.53"], "cluster": CLUSTER}
    blue = operator.change("POST", "networks", said).body["uuid"]
    operator.change("PATCH", f"nics/{UUIDS[0]}", {"network": blue})
    sim.up(nic("bridged"))
    record = sim.record()
    sim.node.store.write(record._replace(scripts=True, operations=()))
    before = sim.picture()
    with agent.running() as sync:
        for resolver in ("192.0.2.60", "192.0.2.61"):
            operator.change("PATCH", f"networks/{blue}", {"resolvers": [resolver]})
            operator.change("PATCH", f"nics/{UUIDS[0]}", {"name": f"n{resolver[-1]}"})
            agent.until(
                lambda: reports(agent.service).get(UUIDS[0], {}).get("applied") == item_revision(agent.service), "it is as it is wanted"
            )
            agent.until(lambda: sync.machine.idle, "nothing is left")
            assert agent.alarms.active() == {} and not reports(agent.service)[UUIDS[0]]["refused"]
            assert on_disk(sim)[:2] == (item_revision(agent.service), blue)
        operator_sets(agent, **GOOD)
        agent.until(lambda: is_said(agent, "a script of the site's"), "that is refused")
        operator_sets(agent)
        agent.until(lambda: agent.alarms.active() == {}, "the alarm is over")
    assert sim.picture() == before and sim.record().operations == ()
