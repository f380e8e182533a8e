"""Where an agent's sockets are in unit tests."""

from __future__ import annotations

from collections.abc import Iterator
from tempfile import TemporaryDirectory

import pytest

from netcommon.host.linux import LinuxHost
from netcommon.report import folder
from runtime.folder import Folder
from runtime.paths import Paths


@pytest.fixture
def state() -> Iterator[str]:
    """A state directory with a short path: those of sockets have 107 bytes (unix(7)), of which pytest's tmp_path needs most."""
    with TemporaryDirectory(prefix="nc-") as made:
        yield made


@pytest.fixture
def netns() -> int:
    """The network namespace that we are in."""
    return LinuxHost(Paths()).identity().netns


@pytest.fixture
def within(state: str, netns: int) -> Iterator[Folder]:
    """The folder in it of the agent for our network namespace."""
    with Folder.make(folder(state, netns)) as made:
        yield made
