"""A mock cloud whose registry is kept in an etcd: members are lost and come back, and what runs is in force, once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mockcloud.own_service import BEGUN, MADE, STATE, OwnService
from mockcloud.replaced.scheduler import RealTime
from mockcloud.scenarios.file import Scenario, Step
from mockcloud.scenarios.running import Result, play
from runtime.errors import HostRefused
from tests.support import etcd as real
from tests.support.bootstrap import ROOT
from tests.support.etcd import Cluster
from tests.support.mockcloud import Mockcloud
from tests.support.netns import slowness, wait_until
from tests.support.registry_process import Registry

SETTINGS = """
[agent]
resync = 20
start_delay = 2
reap_interval = 3
reap_grace = 2
[registry]
compare_delay = 2
compare_interval = 60
"""
SETTLE = 6.0
NICS: list[dict[str, Any]] = [{"network": "blue"}, {"network": "blue", "mode": "routed", "link": "guests"}]
CREATE = Step("create", given={"name": "web1", "node": "mock1", "nics": NICS, "start": True})


@pytest.fixture(autouse=True)
def program(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the program etcd be found."""
    monkeypatch.setenv("PATH", f"{os.path.dirname(real.program())}:{os.environ['PATH']}")


def moves(node: str, at: float) -> Step:
    return Step("migrate", at=at, given={"name": "web1", "node": node, "blind": True})


def said(result: Result) -> list[str]:
    return [each.text for each in result.outcomes]


@pytest.mark.slow
@pytest.mark.parametrize(("members", "how"), [(1, "killed"), (2, "frozen")])
def test_members_are_lost_and_come_back(tmp_path: Path, members: int, how: str) -> None:
    """One, the leader: everything goes on. Two of three: nothing can be changed until they are back, and guests move all the same."""
    steps = (
        CREATE,
        Step("etcd", at=1.0, given={"members": members, "how": how}, lasts=5.0),
        moves("mock2", 2.0),
        Step("change", at=9.0, given={"name": "web1", "index": 0, "options": {"rate_in": "8mbit"}}),
    )
    scenario = Scenario(2, settings=SETTINGS, settle=SETTLE, networks={"blue": {"subnet": "192.0.2.0/24"}}, steps=steps, etcd=3)
    result = play(scenario, str(tmp_path / "cloud"), 1)
    assert result.violations == (), said(result)
    texts = said(result)
    assert f"etcd of the registry members={members} how={how}" in texts and "etcd of the registry is over" in texts
    assert "migrate web1 to mock2" in texts or members > 1
    assert "change web1" in texts


@pytest.mark.slow
def test_a_service_that_is_killed_and_nodes_that_are_cut_off_come_back(tmp_path: Path) -> None:
    """Faults of nodes and of the service strike where the registry is a process of its own, too."""
    steps = (
        CREATE,
        Step("registry", at=1.0, lasts=2.0),
        Step("partition", at=3.0, nodes="mock1", lasts=2.0),
        Step("node", at=4.0, nodes="mock2", lasts=2.0),
        moves("mock2", 8.0),
    )
    scenario = Scenario(2, settings=SETTINGS, settle=SETTLE, networks={"blue": {"subnet": "192.0.2.0/24"}}, steps=steps, etcd=1)
    result = play(scenario, str(tmp_path / "cloud"), 1)
    assert result.violations == (), said(result)
    assert not [each for each in said(result) if " cannot " in each]


def test_a_registry_that_was_not_made_as_a_whole_is_made_anew(tmp_path: Path) -> None:
    """The command was killed when its etcd held a registry already, and before that was noted."""
    epochs = []
    for state in (MADE, BEGUN, MADE):
        if epochs:
            (tmp_path / "registry" / STATE).write_bytes(state)
        made = OwnService(RealTime(1), str(tmp_path), 1)
        epochs.append(made.client().get("").revision.partition(":")[0])
        made.stop()
    assert epochs[0] != epochs[1] == epochs[2]


def test_a_service_that_is_gone_is_said_with_what_starts_it(tmp_path: Path) -> None:
    """It is the mock cloud's own: what starts a registry on this machine is no remedy."""
    made = OwnService(RealTime(1), str(tmp_path), 1)
    try:
        assert made.client().get("").body
        (serving,) = (each for each in children(os.getpid()) if b"registry\0serve" in Path(f"/proc/{each}/cmdline").read_bytes())
        os.kill(serving, signal.SIGKILL)
        wait_until(lambda: refused(made), 10, "it has ended")
        assert "has ended" in refused(made) and ": end mockcloud serve and start it again" in refused(made)
        made.halt()
        assert "does not run: a fault that is over starts it again" in refused(made)
    finally:
        made.stop()


def refused(service: OwnService) -> str:
    """Give why a service is not asked; "" where it is."""
    try:
        service.client()
    except HostRefused as error:
        return str(error)
    return ""


def test_processes_go_with_the_command_and_the_next_one_goes_on(tmp_path: Path) -> None:
    """However it ends: a SIGKILL leaves no etcd, and what was made is there."""
    run = Mockcloud(tmp_path / "cloud")
    run("create", "1", "--registry", "etcd:3")
    serving = subprocess.Popen(
        [sys.executable, "-m", "mockcloud", "serve", "--cloud", str(run.folder)], stdout=subprocess.PIPE, cwd=ROOT, text=True
    )
    assert serving.stdout is not None and "serving 1 nodes" in serving.stdout.readline()
    ours = children(serving.pid)
    assert len(ours) == 4
    serving.send_signal(signal.SIGKILL)
    serving.wait()
    serving.stdout.close()
    wait_until(lambda: not [each for each in ours if running(each)], 10, "they have ended")
    assert run("count", "2").startswith("2 nodes")


def children(pid: int) -> list[int]:
    return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except FileNotFoundError:
        return False


@pytest.fixture
def run(tmp_path: Path, etcds: dict[int, Cluster]) -> Iterator[Mockcloud]:
    """Make a cloud with the service of others, over an etcd of others."""
    etcds[3].anew()
    registry = Registry(tmp_path / "registry", etcds[3].url)
    registry.command("init")
    registry.start(60 * slowness())
    made = Mockcloud(tmp_path / "cloud")
    try:
        made("create", "1", "--registry", str(registry.socket))
        yield made
    finally:
        registry.kill()


def test_commands_end_a_member_that_is_not_ours(run: Mockcloud, etcds: dict[int, Cluster]) -> None:
    led = etcds[3].leader()
    assert led.process is not None
    commands = "--lose", f"kill -STOP '{led.process.pid}'", "--back", f"kill -CONT {led.process.pid}"
    document = run.json("fault", "etcd", *commands, "--for", "3", "--settle", "1")
    assert document["violations"] == [] and [each["text"].partition(" members=")[0] for each in document["outcomes"]] == [
        "etcd of the registry",
        "etcd of the registry is over",
    ]
    assert not led.stands_still() and etcds[3].leader() is not None
