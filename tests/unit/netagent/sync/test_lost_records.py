"""A NIC stays in the registry, running, while a guest may be on the device that it had there, wherever that is: its record is lost."""

from __future__ import annotations

from pathlib import Path

import pytest

from netagent.sync import hands
from netagent.sync.driver import Sync
from netagent.sync.gone import gone
from netagent.sync.local import surveyed
from netcommon.host.api.facts import AF_INET, Address, Link
from runtime import definitions
from runtime.nic import Nic
from tests.support.registry import NODES
from tests.support.service import Served
from tests.support.sim import UUIDS, Sim, nic
from tests.support.sync_agent import Agent, shown
from tests.unit.netagent.sync.test_unrecorded import guest, lost, running, state

SINCE = pytest.mark.parametrize("since", [False, True], ids=["tap_alias = false", "true since"])


def starts(agent: Agent, sim: Sim, service: Served, sync: Sync, made: Nic) -> None:
    """Bring a NIC up whose device bears no mark, and wait until the registry has it."""
    sim.up(made)
    sync.marked(made.uuid)
    running(agent, service)
    agent.until(lambda: sync.machine.idle, "nothing is left")


def stays(agent: Agent, sim: Sim, service: Served, sync: Sync) -> None:
    """Lose the record; the NIC stays as it is, and people are told."""
    lost(sim, 0)
    sync.marked(UUIDS[0])
    sync.lost()
    agent.until(lambda: UUIDS[0] in agent.alarms.active().get("registry-inventory", ""), "people are told what stays")
    agent.compared()
    assert shown(service) and state(service) == "running"
    assert not gone(sim.node, NODES[0], service.client()).items


def goes(agent: Agent, sim: Sim, service: Served, sync: Sync, device: str) -> None:
    """End the guest: the NIC goes."""
    sim.host.remove_link(device)
    sync.marked(UUIDS[0])
    agent.until(lambda: shown(service) is None, "it is gone")


@pytest.mark.sampled(2)
@SINCE
@pytest.mark.parametrize("where", ["bridge renamed, and another of its name", "bridge of its own", "moved", "link-local address"])
def test_wherever_its_tap_has_got_to(agent: Agent, sim: Sim, service: Served, where: str, since: bool) -> None:
    sim.settings = sim.settings._replace(tap_alias=False)
    definitions.write(sim.paths, guest(2))
    kernel = sim.host.kernel
    with agent.running() as sync:
        starts(agent, sim, service, sync, guest(0))
        tap = kernel.named("tap0")
        assert tap is not None
        if where.startswith("bridge renamed"):
            kernel.rename(tap.master, "br0old")
            sim.host.add_bridge("br0")
        elif where == "link-local address":
            kernel.put(tap._replace(master=0, port_kind=""))
            kernel.addresses.append(Address(AF_INET, "169.254.77.5", 16, tap.index))
        else:
            other = sim.host.add_bridge("fwbr100i0").index if where == "bridge of its own" else sim.index("br2")
            kernel.put(tap._replace(master=other, port_kind="bridge"))
        sim.settings = sim.settings._replace(tap_alias=since)
        stays(agent, sim, service, sync)
        goes(agent, sim, service, sync, "tap0")


@pytest.mark.parametrize("device", ["vif1.0", "guest0", "macvtap0"])
def test_what_is_no_tap(agent: Agent, sim: Sim, service: Served, device: str) -> None:
    """Xen's devices, whatever they are called, and macvtaps: the kernel tells of none whether it is held."""
    sim.settings = sim.settings._replace(tap_alias=False)
    sim.host.remove_link("tap0")
    definitions.write(sim.paths, guest(2))
    macvtap = device == "macvtap0"
    sim.host.add_link(Link(0, device, "macvtap" if macvtap else "", "52:54:00:00:00:01" if macvtap else "fe:ff:ff:ff:ff:ff"))
    with agent.running() as sync:
        starts(agent, sim, service, sync, nic("ext" if macvtap else "bridged", INTERFACE=device, IP="192.0.2.10"))
        stays(agent, sim, service, sync)
        goes(agent, sim, service, sync, device)


@SINCE
def test_who_is_defined_runs(agent: Agent, sim: Sim, service: Served, since: bool) -> None:
    """Tell nothing of it as stopped: what is told so may be deleted, and uses its address no more."""
    sim.settings = sim.settings._replace(tap_alias=False)
    definitions.write(sim.paths, guest(0))
    with agent.running() as sync:
        starts(agent, sim, service, sync, guest(0))
        sim.settings = sim.settings._replace(tap_alias=since)
        lost(sim, 0)
        sync.marked(UUIDS[0])
        sync.lost()
        agent.until(lambda: UUIDS[0] in sync.machine.outbox.unclear, "nobody can tell")
        agent.compared()
        assert state(service) == "running"
        sim.host.remove_link("tap0")
        sync.marked(UUIDS[0])
        agent.until(lambda: state(service) == "stopped", "it is off")


def test_who_is_down_is_stopped_though_its_tap_is_held_still(agent: Agent, sim: Sim, service: Served) -> None:
    """QEMU's own downscript is called by who holds the tap: the down has left that down."""
    definitions.write(sim.paths, guest(0))
    with agent.running() as sync:
        starts(agent, sim, service, sync, guest(0))
        sim.down(guest(0))
        link = sim.host.kernel.named("tap0")
        assert link is not None and link.holders and not link.up
        sync.marked(UUIDS[0])
        agent.until(lambda: state(service) == "stopped", "it is off")


@pytest.mark.sampled(2)
@pytest.mark.parametrize("mode", ["bridged", "routed", "openvswitch"])
@pytest.mark.parametrize("while_off", [False, True], ids=["agent runs", "agent is off"])
def test_a_definition_that_cannot_be_read_of_a_renamed_tap(agent: Agent, sim: Sim, service: Served, mode: str, while_off: bool) -> None:
    """The tap is where the NIC was, and no other NIC's."""
    sim.settings = sim.settings._replace(tap_alias=False)
    made = guest(0, mode) if mode == "bridged" else nic(mode, IP="192.0.2.10")
    definitions.write(sim.paths, made)

    def spoils() -> None:
        (Path(sim.paths.definitions) / f"{UUIDS[0]}.toml").write_text("mode = [")
        sim.host.rename_link("tap0", "guest0")
        lost(sim, 0)

    with agent.running() as sync:
        starts(agent, sim, service, sync, made)
        if not while_off:
            spoils()
            sync.marked(UUIDS[0])
            agent.until(lambda: UUIDS[0] in sync.machine.outbox.unclear, "nobody can tell")
    if while_off:
        spoils()
    with agent.running() as sync:
        agent.until(lambda: UUIDS[0] in sync.machine.outbox.unclear, "nobody can tell")
        agent.compared()
        assert state(service) == "running"
        sim.host.remove_link("guest0")
        agent.until(lambda: state(service) == "stopped", "it is off")


@pytest.mark.parametrize("held", [False, True])
def test_a_tap_without_a_guest_holds_nothing_back(sim: Sim, held: bool) -> None:
    """A persistent tap that nobody holds keeps its alias when its NIC's record is lost: nobody is behind it."""
    sim.host.add_tap("tap9", holder=77 if held else 0, persistent=True)
    sim.up(nic("bridged", INTERFACE="tap9"))
    lost(sim, 0)
    sim.gc()
    problem = surveyed(sim.node, hands.applied).problem
    assert ("tap9" in problem and "netcommon adopt" in problem) == held and bool(problem) == held
