"""Check what is kept of NICs that are elsewhere: where the disk has only a part of what is wanted of one, the stream tells all anew."""

from __future__ import annotations

import time
from typing import Any

import pytest

from netagent.sync.became import Did, Left
from netagent.sync.jobs import CHECK
from netagent.sync.messages import Answered, AskNode, Close, Ended, Failure, Hello, Keep, Retain, Watch
from netagent.sync.rules import Rules
from netcommon.lifecycle.ends import end_due
from netcommon.lifecycle.push import kept_in_part
from runtime import wanted
from runtime.wanted import Entry, Wanted
from tests.support.registry import NODES
from tests.support.service import Served
from tests.support.sim import UUIDS, Sim
from tests.support.sync_agent import Agent, one
from tests.unit.netagent.sync.test_machine import ACTIONS, NICS, Turned, nic, options

CLUSTER = "gnt.example.com"
DAY = 86400.0


@pytest.mark.parametrize("wrong", [DAY, -DAY])
def test_what_a_clock_that_was_wrong_at_a_boot_has_ended_is_told_again(agent: Agent, sim: Sim, service: Served, wrong: float) -> None:
    """A guest's values lie on another node before it comes, also those with a time, though the stream goes on where it was."""
    operator, there = service.client(), one(1)
    operator.change("PATCH", f"nodes/{NODES[0]}", {"cluster": CLUSTER})
    operator.change("POST", "nics", {"uuid": UUIDS[1], "instance": there.instance, "index": 1, "mac": there.mac, "cluster": CLUSTER})
    values = [{"name": "isolated", "value": "yes", "until": time.time() + 7200}, {"name": "rate_in", "value": "8mbit"}]
    operator.change("PATCH", f"nics/{UUIDS[1]}", {"options": values})

    def kept() -> list[str]:
        return [each.option for each in wanted.read(sim.paths, UUIDS[1], []).registry]

    with agent.running() as sync:
        agent.until(lambda: kept() == ["isolated", "rate_in"] and sync.machine.idle, "it is kept")
    sim.reboot()
    sim.wall = time.time() + wrong
    end_due(sim.node, sim.call())  # as the agent and each hook do
    assert kept() == ["rate_in"] and kept_in_part(sim.node) == [UUIDS[1]]
    sim.wall = time.time()
    with agent.running() as sync:
        agent.until(lambda: kept() == ["isolated", "rate_in"], "it is told again")
        agent.until(lambda: sync.machine.idle, "nothing is left")
    assert kept_in_part(sim.node) == []
    sim.tap("tap1")
    sim.up(there)
    record = sim.node.store.read(UUIDS[1])
    assert record is not None and "isolated" in [each.option for each in record.nic.wanted], "from its first frame on"


def test_a_part_is_what_a_registry_has_told_and_is_not_all(sim: Sim) -> None:
    local = Wanted(local=(Entry("isolated", "yes"),))
    for uuid, there in ((UUIDS[0], local), (UUIDS[1], Wanted(revision="e:0")), (UUIDS[2], Wanted(revision="e:10"))):
        wanted.write(sim.paths, uuid, there)
    assert kept_in_part(sim.node) == [UUIDS[1]]
    wanted.write(sim.paths, UUIDS[1], Wanted(revision="e:0", pending=Wanted(revision="e:11")))
    assert kept_in_part(sim.node) == []


class Disk:
    """A machine in step, and NICs of which its disk has a part."""

    def __init__(self, *parts: int) -> None:
        self.turned = Turned(Rules(first=(9e9, 9e9)))
        self.parts = {NICS[number] for number in parts}
        self.checks = 0
        real = self.turned.machine.take

        def take(event: Any, now: float) -> None:
            if isinstance(event, Did) and event.key == CHECK:
                self.checks += 1
                event = event._replace(left=tuple(Left(("nic", uuid)) for uuid in self.parts))
            elif isinstance(event, Did) and event.key[0] == "nic":
                self.parts.discard(event.key[1])
            real(event, now)

        self.turned.machine.take = take  # type: ignore[method-assign]

    def begun(self, *lines: dict[str, Any]) -> Turned:
        self.turned.begun(*lines)
        return self.turned


def test_two_looks_that_find_a_part_let_all_be_told_anew() -> None:
    disk = Disk(5)
    turned = disk.begun(nic(0))
    assert disk.checks == 1 and turned.asked == []
    turned.passes(59.0)
    assert turned.asked == [], "it may have ended in time, and the stream is about to tell that"
    turned.passes(2.0)
    turned.take(Close)
    again(turned, nic(0), options(5, "isolated"))
    assert turned.take(Keep).wanted.options[0].name == "isolated"


def test_what_the_next_look_finds_whole_is_not_told_anew() -> None:
    disk = Disk(5)
    turned = disk.begun(nic(0))
    disk.parts = {NICS[6]}
    turned.passes(61.0)
    assert turned.asked == [] and disk.checks == 2
    disk.parts.clear()
    turned.passes(300.0)
    assert turned.asked == []


def test_a_service_that_tells_no_more_than_a_part_is_asked_once() -> None:
    """An older one does not say all of a NIC that is another node's: all of these are parts, and stay so."""
    disk = Disk(5)
    turned = disk.begun(nic(0))
    turned.passes(61.0)
    turned.take(Close)
    again(turned, nic(0))
    retain = turned.take(Retain)
    turned.tell(Did(retain.key, retain.revision))
    disk.parts = {NICS[5]}
    for _ in range(8000):
        turned.passes(1.0)
        turned.told(ready="e:20")
        assert not any(isinstance(each, Close) for each in turned.asked)
        if turned.asked and isinstance(turned.asked[0], Hello | AskNode):
            can = {"epoch": "e", "abilities": ["watch"], "actions": ACTIONS, "reports": turned.machine.outbox.after}
            turned.asked.pop(0)
            turned.tell(Answered(can))
    assert disk.checks > 3, "it is looked hourly"


def test_of_a_nic_of_this_node_what_is_known_is_written_again() -> None:
    disk = Disk()
    turned = disk.begun(nic(0))
    disk.parts = {NICS[0]}
    turned.passes(4000.0)
    assert not any(isinstance(each, Close) for each in turned.asked)


def again(turned: Turned, *lines: dict[str, Any]) -> None:
    """Let the stream end, and begin anew from nothing."""
    turned.tell(Ended(Failure("", "closed")))
    turned.passes(10.0)
    turned.take(Hello)
    turned.tell(Answered({"epoch": "e", "abilities": ["watch"], "actions": ACTIONS}))
    assert turned.take(Watch).start == ""
    turned.told(*lines, ready="e:20")
