"""A hook that dies while it changes a NIC that is up: the agent brings the NIC back, and never undoes it."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.kernel.agent.test_hooks import HANGING, kill, site_script
from tests.kernel.test_doors_parallel import collect, environment, start
from tests.support.agent import agent, seconds_until, watched
from tests.support.netns import run, wait_until
from tests.support.node import Node
from tests.support.rundoor import rundoor
from tests.support.snapshot import diff, snapshot

SETTINGS = '[custom]\norder = "after"\n'
LOGGING = '#!/bin/sh\necho "$(basename $0) $IP $NETCOMMON_CONTEXT" >>/run/site.log\n'


@pytest.fixture
def placed(node: Node) -> Iterator[Node]:
    """Two bridges, and scripts of the site's that say that they were run."""
    for bridge in ("br1", "br2"):
        run("ip", "link", "add", bridge, "type", "bridge")
        run("ip", "link", "set", bridge, "up")
    site_script("kvm-ifup-custom", LOGGING)
    site_script("kvm-ifdown-custom", LOGGING)
    node.tap()
    yield node


def cut_off(variables: Mapping[str, str]) -> subprocess.Popen[bytes]:
    """A change that hangs in the site's script of up, when all of it was done."""
    site_script("kvm-ifup-custom", HANGING)
    Path("/run/site.pid").unlink(missing_ok=True)
    child = start("kvm-ifup", dict(variables))
    wait_until(lambda: Path("/run/site.pid").exists(), 10, "the script runs")
    site_script("kvm-ifup-custom", LOGGING)
    Path("/run/site.log").unlink(missing_ok=True)
    return child


def test_it_is_put_back(placed: Node) -> None:
    """All that was is there again, to the rule and the record, and the site's scripts are told."""
    with agent(settings=SETTINGS) as running, watched() as seen:
        running.rested()
        first, second = environment(), environment(LINK="101", IP="10.0.0.9")
        assert rundoor("kvm-ifup", first).status == 0
        before = snapshot()
        child = cut_off(second)
        assert seen.records["tap0"].state == "changing" and "10.0.0.9" in run("ip", "route", "show", "table", "101")
        collect()
        assert seen.records["tap0"].state == "changing", "a hook is at work on it, and gc leaves it alone besides"
        kill(child)
        took = seconds_until(lambda: seen.records["tap0"].state == "up", 5, running.output)
        print(f"a change cut off by kill -9: put back after {took * 1e3:.0f} ms")
        assert seen.records["tap0"].nic.ip == "10.0.0.1" and seen.drift() == []
        assert [line for line in diff(before, snapshot()) if "/run/site" not in line and "/nics/" not in line] == []
        said = Path("/run/site.log").read_text().splitlines()
        assert said == ["kvm-ifdown-custom 10.0.0.9 rollback", "kvm-ifup-custom 10.0.0.1 up"]


def test_one_that_cannot_be_put_back_stays_up(placed: Node) -> None:
    """The bridge that it was in has gone meanwhile: the NIC stays on record, is not undone, and is put back when there is one again."""
    with agent(settings=SETTINGS) as running, watched() as seen:
        running.rested()
        bridged = {"MODE": "bridged", "LINK": "br1", "IP": ""}
        assert rundoor("kvm-ifup", environment(**bridged)).status == 0
        child = cut_off(environment(**{**bridged, "LINK": "br2"}))
        run("ip", "link", "del", "br1")
        kill(child)
        wait_until(lambda: "br1 does not exist" in running.output, 5, "it is refused")
        collect()
        assert seen.records["tap0"].state == "changing"
        assert "netcommon-guard" in run("nft", "list", "tables")
        run("ip", "link", "add", "br1", "type", "bridge")
        run("ip", "link", "set", "br1", "up")
        seconds_until(lambda: seen.records["tap0"].state == "up", 5, running.output)
        assert seen.drift() == [] and "master br1" in run("ip", "link", "show", "tap0")
        assert "UP" in run("ip", "link", "show", "tap0").split(">")[0]


def test_an_up_that_only_mends_runs_no_script(placed: Node) -> None:
    """Nor does one that is refused: what held goes on holding."""
    with agent(settings=SETTINGS + '[repair]\nrule = "report"\n'):
        assert rundoor("kvm-ifup", environment()).status == 0
        Path("/run/site.log").unlink()
        run("ip", "rule", "del", "iif", "tap0")
        assert rundoor("kvm-ifup", environment()).status == 0
        assert "iif tap0" in run("ip", "rule")
        assert not Path("/run/site.log").exists()
