"""Tell nothing as stopped, and remove nothing, that only looks gone: lost records, renamed devices, other namespaces, leftovers."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from netagent.sync.driver import Sync
from netagent.sync.gone import gone
from netcommon.host.api.facts import AF_INET, Address
from netcommon.host.api.host import Answer
from netcommon.host.api.requests import DeleteFile
from netcommon.host.simulated.view import MemoryView
from netcommon.lifecycle import migration
from runtime import definitions
from runtime.errors import HostRefused, NetcommonError
from runtime.nic import Nic
from runtime.record import REVERTING
from tests.support.registry import NODES
from tests.support.service import Served
from tests.support.sim import UUIDS, Sim, nic
from tests.support.sync_agent import RULES, Agent, one, reports, shown


def lost(sim: Sim, number: int) -> None:
    (Path(sim.paths.state) / "nics" / f"{UUIDS[number]}.json").unlink()


def state(service: Served, number: int = 0) -> str:
    return str(reports(service)[UUIDS[number]]["state"])


def running(agent: Agent, service: Served, number: int = 0) -> None:
    """Wait until a NIC that is up is known, and nothing is left to be told."""
    agent.until(lambda: shown(service, UUIDS[number]) and state(service, number) == "running", "it is known")


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("marked", "mode"), [(False, "bridged"), (True, "bridged"), (False, "ext"), (True, "ext")])
def test_who_runs_is_not_removed_where_its_record_is_lost(agent: Agent, sim: Sim, service: Served, marked: bool, mode: str) -> None:
    """Keep also a NIC of which nothing on the node tells any more: it was given to its hook alone, and its device bears no mark."""
    sim.settings = sim.settings._replace(tap_alias=marked)
    sim.tap("tap1")
    definitions.write(sim.paths, guest(1, mode))
    definitions.write(sim.paths, guest(2))
    with agent.running() as sync:
        for number in (0, 1):
            sim.up(guest(number, mode))
            sync.marked(UUIDS[number])
            running(agent, service, number)
        agent.until(lambda: sync.machine.idle, "nothing is left")
        for number in (0, 1):
            lost(sim, number)
            sync.marked(UUIDS[number])
        sync.lost()
        agent.until(lambda: "registry-inventory" in agent.alarms.active(), "people are told")
        agent.compared()
        assert state(service, 1) == "running", "its definition says which device it has, and that is in use"
        assert shown(service, UUIDS[0]) and shown(service, UUIDS[1])


@pytest.mark.sampled(2)
@pytest.mark.parametrize("bridge", ["as it was", "made anew", "renamed"])
@pytest.mark.parametrize("marked", ["never", "since"])
def test_who_runs_is_not_removed_wherever_its_tap_has_got_to(agent: Agent, sim: Sim, service: Served, bridge: str, marked: str) -> None:
    """Its bridge may be another, or called otherwise, by now; and it may have come up before devices were to bear marks."""
    sim.settings = sim.settings._replace(tap_alias=False)
    definitions.write(sim.paths, guest(2))
    kernel = sim.host.kernel
    with agent.running() as sync:
        sim.up(guest(0))
        sync.marked(UUIDS[0])
        running(agent, service)
        agent.until(lambda: sync.machine.idle, "nothing is left")
        tap, its = kernel.named("tap0"), kernel.named("br0")
        assert tap is not None and its is not None and tap.master == its.index
        if bridge == "made anew":
            kernel.put(tap._replace(master=0, port_kind=""))
        elif bridge == "renamed":
            kernel.rename(its.index, "vmbr0")
        sim.settings = sim.settings._replace(tap_alias=marked == "since")
        lost(sim, 0)
        sync.marked(UUIDS[0])
        sync.lost()
        agent.until(lambda: UUIDS[0] in agent.alarms.active().get("registry-inventory", ""), "people are told what stays")
        agent.compared()
        assert shown(service), "its guest runs"


def is_transient(service: Served) -> bool:
    found = shown(service)
    return found is not None and bool(found["nic"]["transient"])


def test_who_was_never_defined_is_gone_when_it_has_stopped(agent: Agent, sim: Sim, service: Served) -> None:
    """Also on a node where nothing ever was: QEMU calls our hook for a guest that somebody has started by hand."""
    with agent.running() as sync:
        sim.up(guest(0))
        sync.marked(UUIDS[0])
        running(agent, service)
        assert is_transient(service)
        agent.until(lambda: sync.machine.idle, "nothing is left")
        agent.compared()
        assert state(service) == "running"
        sim.down(guest(0))
        sim.host.remove_link("tap0")
        sync.marked(UUIDS[0])
        agent.until(lambda: shown(service) is None, "it is gone")
        assert "registry-inventory" not in agent.alarms.active()


@pytest.mark.parametrize("when", ["before", "while it runs", "when it has stopped"])
def test_who_was_ever_defined_stays_where_nothing_is(agent: Agent, sim: Sim, service: Served, when: str) -> None:
    """The folder may be lost, also while the guest runs: that it runs without a definition says nothing then."""
    path = definitions.write(sim.paths, guest(0)) if when == "before" else ""
    with agent.running() as sync:
        sim.up(guest(0))
        sync.marked(UUIDS[0])
        running(agent, service)
        agent.until(lambda: sync.machine.idle, "nothing is left")
        assert is_transient(service) == (when != "before")
        if when == "while it runs":
            path = definitions.write(sim.paths, guest(0))
            sync.marked(UUIDS[0])
            agent.until(lambda: not is_transient(service), "it is told")
        if when != "when it has stopped":
            Path(path).unlink()
            sync.marked(UUIDS[0])
            agent.until(lambda: sync.machine.idle, "nothing is left")
            agent.compared()
            assert not is_transient(service)
        sim.down(guest(0))
        sim.host.remove_link("tap0")
        if when == "when it has stopped":
            path = definitions.write(sim.paths, guest(0))
            sync.marked(UUIDS[0])
            agent.until(lambda: not is_transient(service), "it is told")
            Path(path).unlink()
        sync.marked(UUIDS[0])
        agent.until(lambda: state(service) == "stopped", "it is off")
        agent.until(lambda: "no NIC is defined" in agent.alarms.active().get("registry-inventory", ""), "people are told")
        assert shown(service)


def vpn(sim: Sim, name: str) -> None:
    """Add a tap that is nobody's NIC, in no bridge: the node has an address on it."""
    link = sim.host.add_tap(name, holder=200)
    sim.host.kernel.addresses.append(Address(AF_INET, "203.0.113.1", 24, link.index))


def test_taps_of_others_hold_back_none_whose_device_cannot_be_there(agent: Agent, sim: Sim, service: Served) -> None:
    """A tap on which the node has an address is no bridged NIC's; one of mode ext may be anywhere."""
    vpn(sim, "tap7")
    sim.tap("tap1")
    definitions.write(sim.paths, guest(2))
    with agent.running() as sync:
        for number, mode in ((0, "bridged"), (1, "ext")):
            sim.up(guest(number, mode))
            sync.marked(UUIDS[number])
            running(agent, service, number)
        for number, mode in ((0, "bridged"), (1, "ext")):
            sim.down(guest(number, mode))
            sim.host.remove_link(f"tap{number}")
            sync.marked(UUIDS[number])
        agent.until(lambda: shown(service, UUIDS[0]) is None, "it is gone")
        agent.until(lambda: "tap7" in agent.alarms.active().get("registry-inventory", ""), "people are told of the other one")
        agent.compared()
        assert shown(service, UUIDS[1]), "tap7 may be its own"


@pytest.mark.parametrize("marked", [False, True], ids=["tap_alias = false", "tap_alias = true"])
def test_who_is_defined_is_not_gone_though_an_earlier_tap_of_it_is_held(sim: Sim, service: Served, marked: bool) -> None:
    """A NIC came up on another tap while the first one was held still, and has stopped there: nothing says that it is gone."""
    sim.settings = sim.settings._replace(tap_alias=marked)
    sim.tap("tap1")
    second = nic("bridged", INTERFACE="tap1")
    for each in (second, one(2)):
        definitions.write(sim.paths, each)
    sim.up(one(0))
    sim.up(second)
    agent = Agent(sim, service.path, RULES._replace(reap="report"))
    agent.service = service
    with agent.running() as sync:
        sync.marked(UUIDS[0])
        running(agent, service)
        sim.down(second)
        sim.host.remove_link("tap1")
        assert [record.moved for record in sim.node.store.each([])] == [True]
        sync.marked(UUIDS[0])
        if not marked:
            agent.until(lambda: state(service) == "stopped", "it is off")
        agent.compared()
        assert "registry-reaping" not in agent.alarms.active()
        found = gone(sim.node, NODES[0], service.client())
        assert (found.items, found.problem) == ((), "")


def guest(number: int, mode: str = "bridged") -> Nic:
    own = {"INTERFACE": f"tap{number}", "INTERFACE_UUID": UUIDS[number], "INTERFACE_INDEX": str(number)}
    return nic(mode, **own, MAC=f"aa:00:00:00:00:0{number + 1}", IP=f"192.0.2.{10 + number}")


def test_a_tap_that_was_renamed_is_its_nic_s_by_its_mark(agent: Agent, sim: Sim, service: Served) -> None:
    definitions.write(sim.paths, one(0))
    with agent.running() as sync:
        sim.up(one(0))
        sync.marked(UUIDS[0])
        running(agent, service)
        link = sim.host.kernel.named("tap0")
        assert link is not None
        sim.host.kernel.rename(link.index, "guest0")
        lost(sim, 0)
        sync.marked(UUIDS[0])
        agent.compared()
        assert state(service) == "running"


def test_a_nic_that_is_up_in_another_namespace_is_not_removed(agent: Agent, sim: Sim, service: Served, tmp_path: Path) -> None:
    sim.host.remove_link("tap0")  # it is in that one
    for number in (0, 1):
        definitions.write(sim.paths, one(number))
    with agent.running() as sync:
        agent.until(lambda: shown(service, UUIDS[0]) and shown(service, UUIDS[1]), "both are known")
        agent.until(lambda: sync.machine.idle, "nothing is left")
        inner = Sim(str(tmp_path), netns=2)
        assert inner.paths == sim.paths
        try:
            inner.up(one(0))
            (Path(sim.paths.definitions) / f"{UUIDS[0]}.toml").unlink()
            sync.marked(UUIDS[0])
            agent.compared()
            assert shown(service, UUIDS[0]), "its guest runs in there"
            inner.down(one(0))
            agent.until(lambda: shown(service, UUIDS[0]) is None, "it is down, and not defined")
        finally:
            inner.close()


def test_who_is_off_is_stopped_though_something_of_its_nic_is_left(agent: Agent, sim: Sim, service: Served) -> None:
    """A file that cannot be removed stays on record; on the next node the guest is in nobody's way."""
    made = nic("bridged, nfdhcpd")
    definitions.write(sim.paths, made)
    with agent.running() as sync:
        sim.up(made)
        sync.marked(UUIDS[0])
        running(agent, service)
        sim.host.fail = lambda request: Answer(errno.EPERM, "it is another's") if isinstance(request, DeleteFile) else None
        with pytest.raises(NetcommonError):
            sim.down(made)
        sync.marked(UUIDS[0])
        agent.compared()
        record = sim.node.store.read(UUIDS[0])
        assert record is not None and record.state == REVERTING
        assert state(service) == "running", "its device is there: nobody can tell whether its guest is"
        sim.host.remove_link("tap0")
        sync.marked(UUIDS[0])
        agent.until(lambda: state(service) == "stopped", "it is off")
        service.join(1)
        other = service.client(f"node:{NODES[1]}")
        other.change("POST", f"nodes/{NODES[1]}/heartbeat", {"incarnation": "11111111-1111-4111-8111-111111111111"})
        said = {"nic": UUIDS[0], "state": "running", "tap": "tap3", "mac": made.mac, "ip": "10.0.0.5", "mode": "bridged", "link": "br0"}
        after = other.get(f"nodes/{NODES[1]}").body["reports"]
        other.change("POST", f"nodes/{NODES[1]}/reports", {"after": after, "nics": [said], "removed": []})
        found = shown(service)
        assert found is not None and found["shown"]["state"] == "running"


def test_drift_is_told_beside_what_cannot_be_looked_at(agent: Agent, sim: Sim, service: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    made = nic("bridged, nfdhcpd", NETWORK_TAGS="netcommon:isolated netcommon:spoof_guard")
    definitions.write(sim.paths, made)

    def refused(*_: object) -> None:
        raise HostRefused("'/var/lib/nfdhcpd' has mode 0775: nobody but root may be able to write to it")

    with agent.running() as sync:
        sim.up(made)
        sync.marked(UUIDS[0])
        running(agent, service)
        monkeypatch.setattr(MemoryView, "file", refused)
        sim.host.nftables.flush()
        sync.marked(UUIDS[0])
        agent.until(lambda: {"guard", "guard-table"} <= {*reports(service)[UUIDS[0]]["drift"]}, "what is gone is told")


def test_taps_that_cannot_be_a_guest_s_of_it_keep_no_nic_in_the_registry(agent: Agent, sim: Sim, service: Served) -> None:
    """Hold no removal back for taps of others, where devices bear no mark: a VPN's, and a bridge's own in a userspace Open vSwitch."""
    sim.settings = sim.settings._replace(tap_alias=False)
    switch, other = sim.host.kernel.named("ovs0"), sim.host.kernel.named("br2")
    assert switch is not None and switch.holders == 1 and other is not None
    sim.host.remove_link("tap0")
    vpn(sim, "vpn0")
    sim.host.add_tap("vpn1", holder=200, master=other.index)
    for number in (0, 1):
        definitions.write(sim.paths, one(number))
    with agent.running() as sync:
        agent.until(lambda: shown(service, UUIDS[0]) and shown(service, UUIDS[1]), "both are known")
        agent.until(lambda: sync.machine.idle, "nothing is left")
        definitions.remove(sim.paths, UUIDS[0])
        sync.marked(UUIDS[0])
        agent.until(lambda: shown(service, UUIDS[0]) is None, "it is off, and not defined")
        assert "registry-inventory" not in agent.alarms.active()


def test_a_tap_where_a_nic_belongs_keeps_that_one_alone_in_the_registry(agent: Agent, sim: Sim, service: Served) -> None:
    sim.settings = sim.settings._replace(tap_alias=False)
    bridge = sim.host.kernel.named("br0")
    assert bridge is not None
    sim.host.remove_link("tap0")
    sim.host.add_tap("guest7", holder=200, master=bridge.index)
    for number in (0, 1, 2):
        definitions.write(sim.paths, one(number) if number != 1 else one(1)._replace(link="br2"))
    with agent.running() as sync:
        agent.until(lambda: all(shown(service, UUIDS[number]) for number in range(3)), "all are known")
        agent.until(lambda: sync.machine.idle, "nothing is left")
        for number in (0, 1):
            definitions.remove(sim.paths, UUIDS[number])
            sync.marked(UUIDS[number])
        agent.until(lambda: shown(service, UUIDS[1]) is None, "nothing in br2 is of nobody")
        agent.until(lambda: UUIDS[0] in agent.alarms.active().get("registry-inventory", ""), "people are told what stays")
        agent.compared()
        assert shown(service, UUIDS[0]), "guest7 may be its tap"


@pytest.mark.parametrize("ganetis", [True, False])
def test_who_is_on_his_way_is_looked_at_again(
    agent: Agent, sim: Sim, service: Served, monkeypatch: pytest.MonkeyPatch, ganetis: bool
) -> None:
    """The runtime file may come before its folder is watched; a guest of plain QEMU beside Ganeti has none, ever."""
    conf = Path(sim.paths.kvm_run, "conf")
    conf.mkdir(parents=True)
    with agent.running() as sync:
        sim.up(guest(0))
        sync.marked(UUIDS[0])
        agent.until(lambda: UUIDS[0] in reports(service), "it is told")
        assert state(service) == "incoming"
        agent.until(lambda: not sync.machine.marks, "nothing is left to be told")
        if ganetis:
            (conf / "web1.runtime").write_text("[[], [], {}, []]")
        else:
            monkeypatch.setattr(migration, "STARTS", 0.0)
        sync.coming()
        agent.until(lambda: state(service) == "running", "it is here")


@pytest.mark.parametrize("caller", ["qemu", "ganeti", "xen"])
def test_a_guest_of_plain_qemu_beside_ganeti_s_is_made_known(agent: Agent, sim: Sim, service: Served, caller: str) -> None:
    """Its NIC is the node's where QEMU itself calls; those of Ganeti's guests, of Xen too, are their cluster's importer's to make known."""
    Path(sim.paths.kvm_run, "conf").mkdir(parents=True)
    process = Path(sim.paths.proc, "77")
    process.mkdir(parents=True)
    (process / "cmdline").write_bytes(b"/usr/sbin/ganeti-noded\0" if caller == "ganeti" else b"/usr/bin/qemu-system-x86_64\0-name\0web1\0")
    made = guest(0)
    if caller == "xen":
        made = made._replace(environment={**made.environment, "XENBUS_PATH": "/local/domain/0/backend/vif/1/0"})
    with agent.running() as sync:
        sim.up(made, parent=77)
        sync.marked(UUIDS[0])
        agent.until(lambda: UUIDS[0] in reports(service) and not sync.machine.ownership.busy, "it is told")
        foreign = sync.machine.ownership.foreign
        agent.until(lambda: foreign if caller != "qemu" else shown(service), "it is made known, or noted as another's")
        agent.until(lambda: not sync.machine.ownership.busy, "nothing is left")
        assert (bool(shown(service)), UUIDS[0] in foreign) == (caller == "qemu", caller != "qemu")


def test_a_definition_that_cannot_be_read_hides_nothing_of_its_nic(agent: Agent, sim: Sim, service: Served) -> None:
    """Tell what its record tells, also where it was changed; what is not there is stopped, and nothing of it goes."""
    sim.tap("tap1")
    with agent.running() as sync:
        for number in (0, 1):
            definitions.write(sim.paths, one(number))
            sim.up(one(number))
            sync.marked(UUIDS[number])
            running(agent, service, number)
        agent.until(lambda: sync.machine.idle, "nothing is left")
        found = shown(service)
        assert found is not None
        before = found["nic"]
        file = Path(sim.paths.definitions) / f"{UUIDS[0]}.toml"
        text = file.read_text()
        file.write_text(text + "\nrubbish = = 1\n")
        sync.marked(UUIDS[0])
        service.client().change("PATCH", f"nics/{UUIDS[0]}", {"options": [{"name": "isolated", "value": "yes"}]})
        agent.until(lambda: [each["name"] for each in reports(service)[UUIDS[0]]["options"]] == ["isolated"], "what is in force is told")
        agent.compared()
        assert state(service) == "running"
        sim.down(one(0))
        sim.host.remove_link("tap0")
        sync.marked(UUIDS[0])
        agent.until(lambda: state(service) == "stopped", "it is off")
        agent.compared()
        found = shown(service)
        assert found is not None and {name: found["nic"][name] for name in before if name != "options"} == {
            name: value for name, value in before.items() if name != "options"
        }
        file.write_text(text)
        sync.marked(UUIDS[0])
        agent.until(lambda: "registry-inventory" not in agent.alarms.active() and sync.machine.idle, "all is well")


@pytest.mark.sampled(2)
@pytest.mark.parametrize("marked", [False, True], ids=["tap_alias = false", "tap_alias = true"])
@pytest.mark.parametrize("while_off", [False, True], ids=["agent runs", "agent is off"])
def test_taps_of_others_keep_no_nic_running_whose_definition_cannot_be_read(
    agent: Agent, sim: Sim, service: Served, marked: bool, while_off: bool
) -> None:
    """One whose own tap is in use, as the registry has it, still runs; a VPN's tap is in use for good."""
    sim.settings = sim.settings._replace(tap_alias=marked)
    sim.host.add_tap("vpn0", holder=200)
    sim.tap("tap1")
    numbers = (0, 1)

    def ends(sync: Sync | None) -> None:
        sim.down(guest(0))
        sim.host.remove_link("tap0")
        lost(sim, 1)
        link = sim.host.kernel.named("tap1")
        assert link is not None
        sim.host.kernel.put(link._replace(alias=""))
        if sync is not None:
            for number in numbers:
                sync.marked(UUIDS[number])

    with agent.running() as sync:
        for number in numbers:
            definitions.write(sim.paths, guest(number))
            sim.up(guest(number))
            sync.marked(UUIDS[number])
            running(agent, service, number)
        agent.until(lambda: sync.machine.idle, "nothing is left")
        for number in numbers:
            file = Path(sim.paths.definitions) / f"{UUIDS[number]}.toml"
            file.write_text(file.read_text() + "\nrubbish = = 1\n")
            sync.marked(UUIDS[number])
        if not while_off:
            ends(sync)
            agent.until(lambda: state(service) == "stopped", "it is off")
    if while_off:
        ends(None)
    with agent.running() as sync:
        agent.until(lambda: state(service) == "stopped", "it is off")
        agent.compared()
        assert state(service, 1) == "running" and set(sync.machine.outbox.unclear) <= {UUIDS[1]}
