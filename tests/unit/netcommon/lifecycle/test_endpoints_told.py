"""Tell the site's scripts of a guest's endpoints: as last known on disk, in its instance's name, and nothing of another's."""

from __future__ import annotations

from pathlib import Path

import pytest

from netcommon.lifecycle.change import change, setting
from netcommon.lifecycle.underlay import variables
from runtime import underlay, wanted
from tests.support.node_underlay import EPOCH, address, endpoint, give, join, said
from tests.support.registry import NODES
from tests.support.sim import UUIDS, Sim, nic

CONSOLE = {"NETCOMMON_ENDPOINT_CONSOLE_ADDRESS": address(1), "NETCOMMON_ENDPOINT_CONSOLE_NAME": "web1.console.example"}


def noting(sim: Sim, folder: str) -> Path:
    """Make a script that notes its variables of endpoints; give where."""
    script, noted = Path(sim.paths.etc, folder, "site"), Path(sim.paths.state).parent / f"{folder}.noted"
    script.parent.mkdir(parents=True, exist_ok=True)
    script.write_text(f"#!/bin/sh\nenv | grep ^NETCOMMON_ENDPOINT_ | sort >>{noted}\necho . >>{noted}\n")
    script.chmod(0o755)
    return noted


def lines(told: dict[str, str]) -> str:
    return "".join(f"{name}={told[name]}\n" for name in sorted(told)) + ".\n"


def keep(sim: Sim, *endpoints: dict[str, object]) -> None:
    join(sim.paths)
    underlay.write(sim.paths, underlay.underlay_of(NODES[0], f"{EPOCH}:1", said(*endpoints)))


def test_scripts_of_up_down_and_change_are_told(sim: Sim) -> None:
    give(sim.paths, 0, 1, 2)
    noted = [noting(sim, folder) for folder in ("ifup.d", "ifdown.d")]
    sim.up(nic("bridged"))
    sim.down(nic("bridged"))
    assert [each.read_text() for each in noted] == [lines(CONSOLE)] * 2


def test_a_node_without_an_underlay_tells_nothing(sim: Sim) -> None:
    """Nor what a script of another NIC was told, which has called a door for this one."""
    noted = noting(sim, "ifup.d")
    sim.up(nic("bridged", NETCOMMON_ENDPOINT_CONSOLE_ADDRESS="fd00::9"))
    assert noted.read_text() == ".\n"


def test_each_kind_has_its_own(sim: Sim) -> None:
    keep(sim, endpoint(1), endpoint(2, instance="web1", kind="my-exporter", name=""), endpoint(3))
    more = {"NETCOMMON_ENDPOINT_MY_EXPORTER_ADDRESS": address(2), "NETCOMMON_ENDPOINT_MY_EXPORTER_NAME": ""}
    assert variables(sim.node, "web1", sim.log) == {**CONSOLE, **more}
    assert variables(sim.node, "", sim.log) == variables(sim.node, "web9", sim.log) == {}


@pytest.mark.parametrize("order", [1, -1])
@pytest.mark.parametrize("ends", [False, True])
def test_one_that_is_over_is_told_beside_no_other(sim: Sim, order: int, ends: bool) -> None:
    """A guest that came back soon has a new one, and the old one rests."""
    keep(sim, *[endpoint(1), endpoint(2, instance="web1", state="retired", name="")][::order])
    assert variables(sim.node, "web1", sim.log, ends) == CONSOLE


def test_one_that_is_over_is_told_to_those_of_down_alone(sim: Sim) -> None:
    """A guest that is back is given a new one; nothing leads to that of its last time here, which goes when its quarantine is over."""
    noted = [noting(sim, folder) for folder in ("ifup.d", "ifchange.d", "ifdown.d")]
    keep(sim, endpoint(1, instance="web1", state="retired", name=""))
    sim.up(nic("bridged"))
    change(sim.node, UUIDS[0], sim.call(), setting(sim.node, {"rate_in": "8mbit"}, ()))
    sim.down(nic("bridged"))
    over = {"NETCOMMON_ENDPOINT_CONSOLE_ADDRESS": address(1), "NETCOMMON_ENDPOINT_CONSOLE_NAME": ""}
    assert [each.read_text() for each in noted] == [lines({}), lines({}), lines(over)]


PLAIN, GANETIS = endpoint(1), endpoint(2, cluster="gnt.example.com", instance="web1", name="web1.gnt.example")


def told(sim: Sim) -> str:
    return variables(sim.node, "web1", sim.log, uuid=UUIDS[0]).get("NETCOMMON_ENDPOINT_CONSOLE_ADDRESS", "")


@pytest.mark.parametrize("order", [1, -1])
def test_of_two_guests_of_one_name_each_has_its_own(sim: Sim, order: int) -> None:
    """A Ganeti cluster's by the registry's word for its NIC; one of this node by its definition; else by what Ganeti runs here."""
    keep(sim, *[PLAIN, GANETIS][::order])
    assert told(sim) == address(1)
    runtime = Path(sim.paths.kvm_run, "conf", "web1.runtime")
    runtime.parent.mkdir(parents=True, exist_ok=True)
    runtime.write_text("[]")
    assert told(sim) == address(2), "nothing else is known of it"
    define(sim)
    assert told(sim) == address(1)
    wanted.write(sim.paths, UUIDS[0], wanted.Wanted(revision=f"{EPOCH}:1", tags=()))
    assert told(sim) == address(2)
    noted = noting(sim, "ifup.d")
    sim.up(nic("bridged"))
    assert f"_ADDRESS={address(2)}\n" in noted.read_text()


def test_what_is_anothers_is_told_nobody(sim: Sim) -> None:
    """One of two guests of a name has no endpoint yet."""
    runtime = Path(sim.paths.kvm_run, "conf", "web1.runtime")
    runtime.parent.mkdir(parents=True, exist_ok=True)
    runtime.write_text("[]")
    keep(sim, GANETIS)
    define(sim)
    assert told(sim) == ""
    runtime.unlink()
    assert told(sim) == address(2), "the node's cluster may be called so"
    keep(sim, PLAIN)
    wanted.write(sim.paths, UUIDS[0], wanted.Wanted(revision=f"{EPOCH}:1", tags=()))
    assert told(sim) == ""


def define(sim: Sim) -> None:
    """Let the NIC be defined on this node."""
    folder = Path(sim.paths.definitions)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{UUIDS[0]}.toml").write_text("")


@pytest.mark.parametrize("text", ["", "{}", '{"schema":9}'])
def test_a_damaged_file_keeps_no_guest_from_its_network(sim: Sim, text: str) -> None:
    give(sim.paths, 1)
    Path(sim.paths.lib, underlay.NAME).write_text(text)
    noted = noting(sim, "ifup.d")
    assert sim.up(nic("bridged")).changed
    assert noted.read_text() == ".\n" and any(underlay.NAME in line for line in map(str, sim.lines))
    assert sim.record(UUIDS[0])


@pytest.mark.parametrize("order", [1, -1])
def test_of_two_of_one_kind_that_with_the_name_is_told(sim: Sim, order: int) -> None:
    """Give scripts the endpoint with the name when a registry that was restored from a copy knows of two of one kind."""
    keep(sim, *[endpoint(1), endpoint(2, instance="web1", state="there", name="")][::order])
    assert variables(sim.node, "web1", sim.log) == variables(sim.node, "web1", sim.log, ends=True) == CONSOLE


def test_of_two_of_one_kind_without_a_name_the_last_is_told(sim: Sim) -> None:
    """Give scripts the last one of two endpoints of one kind without a name: the registry will let the name lead there."""
    keep(sim, endpoint(2, instance="web1", name=""), endpoint(1, name=""), endpoint(3, instance="web1", state="retired", name=""))
    assert variables(sim.node, "web1", sim.log)["NETCOMMON_ENDPOINT_CONSOLE_ADDRESS"] == address(1)
