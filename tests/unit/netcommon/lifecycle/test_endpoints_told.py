"""Tell the site's scripts of a guest's endpoints: as last known on disk, in its instance's name, and nothing of another's."""

from __future__ import annotations

from pathlib import Path

import pytest

from netcommon.lifecycle.underlay import variables
from runtime import underlay
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


def test_one_that_is_over_is_told_where_something_ends_and_nowhere_else(sim: Sim) -> None:
    """Nothing begins to listen where no name leads, as for a guest that has just come back; what listens there may end by its address."""
    keep(sim, endpoint(1, state="retired", name=""))
    noted = [noting(sim, folder) for folder in ("ifup.d", "ifdown.d")]
    sim.up(nic("bridged"))
    sim.down(nic("bridged"))
    assert [each.read_text() for each in noted] == [".\n", lines({**CONSOLE, "NETCOMMON_ENDPOINT_CONSOLE_NAME": ""})]


@pytest.mark.parametrize("text", ["", "{}", '{"schema":9}'])
def test_a_damaged_file_keeps_no_guest_from_its_network(sim: Sim, text: str) -> None:
    give(sim.paths, 1)
    Path(sim.paths.lib, underlay.NAME).write_text(text)
    noted = noting(sim, "ifup.d")
    assert sim.up(nic("bridged")).changed
    assert noted.read_text() == ".\n" and any(underlay.NAME in line for line in map(str, sim.lines))
    assert sim.record(UUIDS[0])
