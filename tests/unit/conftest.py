"""Simulated nodes, and where an agent's sockets are, in unit tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from netcommon.doors.agent_report import folder
from netcommon.host.linux.host import LinuxHost
from runtime.folder import Folder
from runtime.paths import Paths
from tests.support.cli import Cli, equipped, with_two
from tests.support.sim import Sim


@pytest.fixture
def sim(tmp_path: Path) -> Sim:
    """Make a simulated node with tap0, bridges, uplinks, and an administrator's own things."""
    return Sim(str(tmp_path))


@pytest.fixture
def cli(tmp_path: Path) -> Cli:
    """Make a command line on a simulated node with br0 and two taps; nothing is defined."""
    return equipped(tmp_path)


@pytest.fixture
def two(cli: Cli) -> Cli:
    """Define a bridged and a routed NIC on that node, and bring both up."""
    return with_two(cli)


@pytest.fixture
def state() -> Iterator[str]:
    """A state directory with a short path: those of sockets have 107 bytes (unix(7)), of which pytest's tmp_path needs most."""
    with TemporaryDirectory(prefix="nc-") as made:
        yield made


@pytest.fixture(autouse=True)
def closed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Close the folders that a test leaves open, as the end of a process does: thousands of tests share this one."""
    made: list[Folder] = []
    begin = Folder.__init__

    def noted(folder: Folder, descriptor: int, path: str, ours: bool = True) -> None:
        begin(folder, descriptor, path, ours)
        made.append(folder)

    monkeypatch.setattr(Folder, "__init__", noted)
    yield
    for each in made:
        each.close()


@pytest.fixture
def netns() -> int:
    """The network namespace that we are in."""
    return LinuxHost(Paths()).identity().netns


@pytest.fixture
def within(state: str, netns: int) -> Iterator[Folder]:
    """The folder in it of the agent for our network namespace."""
    with Folder.make(folder(state, netns)) as made:
        yield made
