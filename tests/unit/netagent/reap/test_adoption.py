"""What the agent takes under management by itself, on a simulated node with a made-up /proc and Ganeti's files."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from netagent.reap.adoption import Adopter, fill
from netcommon.host.api.facts import AF_INET, Rule
from netcommon.host.api.host import Answer
from netcommon.host.api.requests import DeleteRule
from netcommon.lifecycle import adopt as lifecycle
from netcommon.lifecycle.adopt import ADOPTED, FAILED, SKIPPED, STOPPED, Adoption
from netcommon.lifecycle.context import PRE
from netcommon.lifecycle.record_upgrade import backfill, lacking
from netcommon.operations.base import to_json
from runtime.environment import nic_from_environment
from tests.support.bootstrap import ROOT
from tests.support.cli import Cli
from tests.support.ganeti_guest import PID, A, B, Guest
from tests.support.sim import UUIDS, Sim, nic

FIXTURES = ROOT / "tests/fixtures/ganeti/3.0.2"


class Agent:
    """A guest's node, and an agent's adopter on it."""

    def __init__(self, root: Path) -> None:
        self.cli = Cli(root)
        self.cli.host.add_bridge("br0")
        self.guest = Guest(self.cli)
        self.adopter = Adopter()

    def run(self, *instances: str) -> list[Adoption]:
        app = self.cli.app()
        try:
            return self.adopter.run(app.node(), app.call(seconds=60), instances or None)
        finally:
            app.finish()

    def seen(self, *instances: str) -> dict[str, str]:
        """By UUID, or instance: what became of it."""
        return {one.uuid or one.instance: one.action for one in self.run(*instances)}

    def lines(self) -> list[str]:
        """What the log says since the last time."""
        found = list(self.cli.log.lines)
        self.cli.log.lines.clear()
        return found

    def records(self) -> list[str]:
        return sorted(row["uuid"] for row in self.cli.json("list"))


@pytest.fixture
def agent(tmp_path: Path) -> Agent:
    return Agent(tmp_path)


def test_at_the_start_and_then_only_what_has_changed(agent: Agent) -> None:
    """It says what it took over, once; a second look at the same files reads nothing of the host."""
    guest = agent.guest
    guest.nic(A, descriptor=20)
    guest.tap("tap0", 20)
    guest.write()
    assert agent.seen() == {A: ADOPTED}
    said = [line for line in agent.lines() if "adopted" in line]
    assert len(said) == 1 and f"uuid={A}" in said[0] and "tap=tap0" in said[0] and "descriptor 20" in said[0] and "instance=web" in said[0]
    assert agent.run() == []  # adopt itself has written a file of Ganeti's
    reads = agent.cli.host.reads
    assert agent.run() == [] and agent.cli.host.reads == reads and agent.lines() == []
    guest.nic(B, descriptor=21)
    guest.tap("tap1", 21)
    guest.write()
    os.utime(Path(agent.cli.paths.kvm_run, "conf/web.runtime"), (2e9, 2e9))
    assert agent.seen() == {B: ADOPTED}
    assert agent.records() == [A, B]


def test_when_a_runtime_file_appears(agent: Agent) -> None:
    """It is written before QEMU runs: looked at again, without being told, until the guest is there."""
    guest = agent.guest
    guest.nic(A, descriptor=20)
    guest.write()
    pid = Path(agent.cli.paths.kvm_run, "pid/web")
    pid.unlink()
    assert agent.seen("web") == {"web": STOPPED}
    assert agent.lines() == ["info: instance=web nothing to adopt, not running: it has no pid file"]
    assert agent.seen() == {"web": STOPPED} and agent.lines() == []
    pid.write_text("99999\n")
    assert agent.seen() == {"web": STOPPED}
    assert agent.lines() == ["info: instance=web nothing to adopt, not running: process 99999 is gone"]
    guest.tap("tap0", 20)
    guest.write()
    assert agent.seen() == {A: ADOPTED}
    assert agent.run("elsewhere") == []


def test_what_is_not_certain_is_left_alone_and_told_once(agent: Agent) -> None:
    guest = agent.guest
    guest.nic(A)
    guest.nic(B)
    guest.tap("tap0", 30)
    guest.tap("tap1", 31)
    guest.files = {"0": "tap0", "1": "tap1"}
    guest.write()
    before = agent.cli.host.kernel.links.copy()
    assert agent.seen() == {A: SKIPPED, B: SKIPPED}
    assert sum("not adopted" in line for line in agent.lines()) == 2
    assert agent.seen() == {A: SKIPPED, B: SKIPPED}  # looked at again, since the host may tell more by now
    assert not [line for line in agent.lines() if "not adopted" in line]
    assert agent.cli.host.kernel.links == before and agent.records() == []
    guest.files = {A: "tap1", B: "tap0"}
    guest.write()
    assert agent.seen() == {A: ADOPTED, B: ADOPTED}


def test_nics_on_record_are_not_looked_at(agent: Agent) -> None:
    """A guest that our own hooks brought up: neither its process nor the kernel is read."""
    guest = agent.guest
    guest.nic(A, descriptor=20)
    guest.tap("tap0", 20)
    guest.write()
    variables = {"INTERFACE": "tap0", "MODE": "bridged", "LINK": "br0", "INSTANCE": "web", "INTERFACE_INDEX": "0", "INTERFACE_UUID": A}
    app = agent.cli.app()
    made = nic_from_environment({**variables, "MAC": "aa:00:00:00:00:aa", "VLAN": ""})
    lifecycle.up(app.node(), made, app.call())
    app.finish()
    (guest.proc / f"{PID}/cmdline").unlink()
    reads = agent.cli.host.reads
    assert agent.run() == [] and agent.cli.host.reads == reads
    assert agent.cli.json("show", "web/0")[0]["door"] == "cli"


@pytest.mark.parametrize("when", ["before", "meanwhile"])
def test_a_hook_is_faster(agent: Agent, when: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the hook knows, adopt does not: the tags. Its record stays as it is."""
    guest = agent.guest
    guest.nic(A, descriptor=20)
    guest.tap("tap0", 20)
    guest.write()
    variables = {"INTERFACE": "tap0", "MODE": "bridged", "LINK": "br0", "INSTANCE": "web", "INTERFACE_INDEX": "0", "INTERFACE_UUID": A}
    made = nic_from_environment({**variables, "MAC": "aa:00:00:00:00:aa", "VLAN": "", "TAGS": "of:the:instance"})

    def hook() -> None:
        app = agent.cli.app()
        up(app.node(), made, app.call())
        app.finish()

    up: Any = lifecycle.up
    at_work: Any = lifecycle.at_work
    if when == "before":  # right before adopt looks whether a hook is at work
        monkeypatch.setattr(lifecycle, "at_work", lambda node, uuid: (hook(), at_work(node, uuid))[1])
    else:
        monkeypatch.setattr(lifecycle, "up", lambda *given, **named: (hook(), up(*given, **named))[1])
    assert agent.run() == []
    shown = agent.cli.json("show", "web/0")[0]
    assert (shown["door"], shown["environment"]["TAGS"]) == ("cli", "of:the:instance")


def test_a_hook_at_work_is_not_disturbed(agent: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    guest = agent.guest
    guest.nic(A, descriptor=20)
    guest.tap("tap0", 20)
    guest.write()
    with monkeypatch.context() as patch:
        patch.setattr(lifecycle, "at_work", lambda node, uuid: True)
        assert agent.seen() == {A: SKIPPED}
    assert agent.cli.host.changes == []
    assert agent.seen() == {A: ADOPTED}


def test_what_was_interrupted_is_finished(agent: Agent) -> None:
    """By the next agent, as by the next look: a rule of Ganeti's script that could not be taken over yet."""
    guest = agent.guest
    guest.nic(A, "routed", "guests", "10.0.0.5", descriptor=20)
    guest.tap("tap0", 20, bridge="")
    agent.cli.host.kernel.add_rule(Rule(AF_INET, 32765, "tap0", 100, protocol=3))
    guest.write()
    agent.cli.host.fail = lambda request: Answer(16, "busy") if isinstance(request, DeleteRule) else None
    assert agent.seen() == {A: FAILED}
    agent.cli.host.fail = lambda request: None
    agent.adopter = Adopter()
    assert agent.run() == []
    assert [rule.protocol for rule in agent.cli.host.view().rules(AF_INET, "tap0")] == [174]


def test_instances_that_are_gone_are_forgotten(agent: Agent) -> None:
    guest = agent.guest
    guest.nic(A)
    guest.write()
    agent.run()
    assert agent.adopter._told
    Path(agent.cli.paths.kvm_run, "conf/web.runtime").unlink()
    assert agent.run() == []
    assert not agent.adopter._told and not agent.adopter._settled


def test_files_of_a_real_cluster_without_their_processes(agent: Agent) -> None:
    """Every runtime file that a real Ganeti wrote, and nothing that runs: nothing is adopted, each is told of."""
    conf = Path(agent.cli.paths.kvm_run, "conf")
    conf.mkdir(parents=True)
    names = set()
    for path in sorted(FIXTURES.glob("*/node*/kvm-hypervisor/conf/*.runtime")):
        names.add(path.stem)
        (conf / path.name).write_bytes(path.read_bytes())
    (conf / "broken.runtime").write_bytes(b"[")
    assert agent.seen() == dict.fromkeys(names, STOPPED) | {"broken": SKIPPED}
    warnings = [line for line in agent.lines() if not line.startswith("info: ")]
    assert len(warnings) == 1 and "instance=broken" in warnings[0], "an instance that is merely stopped is nobody's trouble"
    assert agent.cli.host.changes == []


def test_a_guest_that_has_arrived_gets_what_was_owed(tmp_path: Path) -> None:
    """No hook of Ganeti's says so: its runtime file has appeared."""
    sim = Sim(str(tmp_path))
    conf = Path(sim.paths.kvm_run, "conf")
    conf.mkdir(parents=True)
    sim.up(nic("routed, table"), phase=PRE)
    owed = sim.record()
    assert owed.incoming
    item = {"uuid": UUIDS[0], "mac": "aa:00:00:00:00:01", "nicparams": {"mode": "routed", "link": "guests", "vlan": ""}, "ip": "10.0.0.5"}
    adopter = Adopter()
    assert adopter.run(sim.node, sim.call()) == [] and sim.record().incoming
    (conf / "web1.runtime").write_text(json.dumps([["qemu"], [item], {}, []]))
    assert adopter.run(sim.node, sim.call(), ["web1"]) == []
    assert not sim.record().incoming and len(sim.record().operations) > len(owed.operations)
    assert any("its guest has arrived" in line for line in sim.lines)


def older(sim: Sim) -> None:
    """The record as the first version of its schema wrote it: no word of the tap on the uplink's VLAN."""
    path = Path(sim.paths.state, "nics", f"{UUIDS[0]}.json")
    stored = json.loads(path.read_bytes())
    stored["schema"] = 1
    del stored["incoming"]
    for operation in stored["operations"]:
        for name in ("device", "ways", "tap") if operation["kind"] == "uplink-vlan" else ():
            del operation[name]
        operation.pop("keep_default", None)
    path.write_text(json.dumps(stored))


def test_an_old_record_gets_what_the_host_tells(tmp_path: Path) -> None:
    """It then says what a record of today says, with what was there before us as it was; the host is not touched."""
    sim = Sim(str(tmp_path))
    sim.up(nic("bridged, access"))
    today = sim.record()
    older(sim)
    was = sim.record()
    assert was != today and lacking(was) and not lacking(today)
    sim.requests()
    assert fill(sim.node, sim.call()) == 1
    assert sim.record() == today and sim.requests() == []
    assert any("filled in on the record" in line and "tap" in line for line in sim.lines)
    assert fill(sim.node, sim.call()) == 0 and not lacking(sim.record())
    sim.down(nic("bridged, access"))
    assert sim.picture() == sim.before


def test_the_vlan_of_an_uplink_goes_whatever_the_record_tells(tmp_path: Path) -> None:
    """The old record does not know its own tap among those that carry the VLAN; the tap's mark does."""
    left = []
    for filled in (False, True):
        sim = Sim(str(tmp_path / str(filled)))
        sim.up(nic("bridged, access"))
        older(sim)
        if filled:
            fill(sim.node, sim.call())
        sim.down(nic("bridged, access"))
        left.append(any(vlan.vid == 10 for vlan in sim.host.view().vlans(sim.index("eth-brv"))))
    assert left == [False, False]


def test_what_the_host_does_not_tell_stays_as_it_is(tmp_path: Path) -> None:
    """A bridge that is gone, a NIC that is not up, a device that is another one by now."""
    sim = Sim(str(tmp_path))
    sim.up(nic("bridged, access"))
    older(sim)
    path = Path(sim.paths.state, "nics", f"{UUIDS[0]}.json")
    written = path.read_bytes()
    sim.host.remove_link("eth-brv")
    fill(sim.node, sim.call())
    uplink = next(stored for stored in sim.record().operations if stored["kind"] == "uplink-vlan")
    assert not uplink.get("ways")
    path.write_bytes(written)
    sim.node.store.write(sim.record()._replace(state="closing"))
    assert backfill(sim.node, UUIDS[0], sim.call()) == []
    sim.host.remove_link("tap0")
    sim.tap("tap0")
    assert backfill(sim.node, UUIDS[0], sim.call()) == []
    assert backfill(sim.node, UUIDS[1], sim.call()) == []


def test_a_record_of_today_is_whole(tmp_path: Path) -> None:
    """Whatever it holds, to_json writes every field: nothing is ever filled in twice."""
    sim = Sim(str(tmp_path))
    sim.up(nic("routed, all options"))
    assert sim.record().operations and not lacking(sim.record())
    known = lifecycle.execute.decode(sim.record())[0]
    assert [set(stored) for stored in sim.record().operations] == [set(to_json(one)) for one in known]


def test_a_kind_that_we_do_not_know_stays(tmp_path: Path) -> None:
    sim = Sim(str(tmp_path))
    sim.up(nic("bridged, access"))
    older(sim)
    record = sim.record()
    stranger = {"kind": "of-tomorrow", "x": 1}
    sim.node.store.write(record._replace(operations=(stranger, *record.operations)))
    fill(sim.node, sim.call())
    assert sim.record().operations[0] == stranger and not lacking(sim.record())
