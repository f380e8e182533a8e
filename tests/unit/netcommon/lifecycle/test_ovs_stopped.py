"""Open vSwitch that is stopped has no socket: its ports have not gone, they are in its database, and come back with it."""

from __future__ import annotations

import errno
import os
import time
from pathlib import Path

import pytest

from netcommon.host.api.facts import STOPPED, OvsPort
from netcommon.host.ovs.client import Ovsdb
from netcommon.lifecycle import gc
from netcommon.lifecycle.check import check, repair
from netcommon.views.topology.gather import examine
from runtime.errors import HostRefused, TryAgain
from runtime.record import REVERTING
from tests.support.cli import BRIDGED, equipped
from tests.support.sim import UUIDS, Sim, nic


def stop(sim: Sim, stopped: bool = True) -> None:
    sim.host.switch.condition = sim.host.switch.condition._replace(there=not stopped)


@pytest.mark.parametrize("mode", ["openvswitch", "openvswitch, guarded"])
def test_down_keeps_the_port_on_record(sim: Sim, mode: str) -> None:
    sim.up(nic(mode))
    sim.host.remove_link("tap0")
    stop(sim)
    with pytest.raises(TryAgain, match="start it"):
        sim.down(nic(mode))
    assert sim.record().state == REVERTING and "ovs-port" in [each["kind"] for each in sim.record().operations]
    assert sim.gc()[0].action in (gc.KEPT, gc.FAILED)
    stop(sim, False)
    assert sim.host.switch.port("tap0") is not None
    sim.gc()
    assert sim.files() == [] and sim.host.switch.port("tap0") is None


@pytest.mark.parametrize("mode", ["openvswitch", "openvswitch, guarded"])
def test_check_cannot_tell_and_repair_and_up_do_nothing(sim: Sim, mode: str) -> None:
    sim.up(nic(mode))
    whole = sim.picture()
    stop(sim)
    report, untold = examine(sim.node, sim.host.view(), sim.record())
    assert report.drift == () and untold and {each.differs for each in untold} == {STOPPED}
    with pytest.raises(TryAgain, match="start it"):
        repair(sim.node, UUIDS[0], sim.call())
    with pytest.raises(TryAgain, match="start it"):
        sim.up(nic(mode))
    stop(sim, False)
    assert check(sim.node, sim.host.view(), sim.record()).good and sim.picture() == whole


def test_the_command_line(tmp_path: Path) -> None:
    """Tell of other NICs all the same."""
    cli = equipped(tmp_path)
    cli.host.add_ovs_bridge("ovs0")
    cli(*BRIDGED)
    cli("define", "--interface", "tap1", "--mode", "openvswitch", "--link", "ovs0", "--instance", "web1", "--index", "1")
    cli("up", "--all")
    cli.host.switch.condition = cli.host.switch.condition._replace(there=False)
    said = cli("check", status=75).stdout
    assert "not all of it can be told\n" in said and f"cannot be told: {STOPPED}" in said and "drifted" not in said
    other, told = cli.json("check", status=75)
    assert other["good"] and (told["good"], told["drift"]) == (False, []) and {each["why"] for each in told["untold"]} == {STOPPED}
    cli.host.remove_link("tap1")
    assert "start it" in cli("down", "tap1", status=75).stderr
    assert "is gone" in cli("check", status=1).stdout


def test_first_up(sim: Sim) -> None:
    stop(sim)
    with pytest.raises(TryAgain, match="start it"):
        sim.up(nic("openvswitch"))
    assert sim.records() == []


@pytest.mark.parametrize("mode", ["bridged", "routed"])
def test_others_do_without_it(sim: Sim, mode: str) -> None:
    stop(sim)
    sim.up(nic(mode))
    assert check(sim.node, sim.host.view(), sim.record()).good
    sim.down(nic(mode))
    assert sim.records() == []


def test_one_that_was_removed_for_good_keeps_no_record(sim: Sim) -> None:
    sim.up(nic("openvswitch, guarded"))
    stop(sim)
    sim.host.switch.bridges.clear()
    report, untold = examine(sim.node, sim.host.view(), sim.record())
    assert "the port is gone" in [text for _does, text in report.drift] and not untold
    with pytest.raises(HostRefused, match="does not exist"):
        sim.up(nic("openvswitch, guarded", IP="10.0.0.9"))
    sim.down(nic("openvswitch, guarded"))
    assert sim.records() == []


def test_what_tells_stopped_from_removed(tmp_path: Path) -> None:
    run, kept = tmp_path / "run", tmp_path / "conf.db"
    client = Ovsdb(str(run / "db.sock"), 1, time.monotonic, kept=str(kept))
    port = OvsPort("tap0", "ovs0")

    def answers() -> set[int]:
        return {client.put(port).errno, client.delete("tap0", "u").errno, client.take("tap0", "ovs0", "u").errno}

    assert not client.away() and answers() == {errno.ENOENT}
    run.mkdir()
    assert not client.away()
    (run / "conf.db").write_text("")
    assert client.away() and client.put(port).errno == client.delete("tap0", "u").errno == errno.EAGAIN
    (run / "conf.db").unlink()
    kept.write_text("")
    assert client.away() and client.delete("tap0", "u").text == STOPPED
    os.unlink(kept)
    kept.symlink_to(tmp_path / "purged")
    assert not client.away() and answers() == {errno.ENOENT}
