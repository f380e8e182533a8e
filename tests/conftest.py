"""Fixtures and rules for all tests."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest

from tests.support import warm
from tests.support.node import Node, fresh
from tests.support.ovs import OpenVswitch
from tests.support.sample import FULL

HERE = Path(__file__).parent
MARKED = ("kernel", "vm", "bench")

hypothesis.settings.register_profile("default", deadline=None, derandomize=True, max_examples=100)
hypothesis.settings.register_profile("full", deadline=None, max_examples=2000)
hypothesis.settings.load_profile("full" if FULL else "default")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A test below tests/kernel, tests/vm or tests/bench bears that marker without saying so."""
    for item in items:
        top = item.path.relative_to(HERE).parts[0] if item.path.is_relative_to(HERE) else ""
        if top in MARKED:
            item.add_marker(top)


@pytest.fixture(autouse=True)
def same_place() -> Iterator[None]:
    """No test leaves the process elsewhere: the working directory and the umask stay."""
    before = os.getcwd(), os.umask(0o022)
    yield
    umask = os.umask(before[1])
    assert (os.getcwd(), umask) == (before[0], 0o022)


@pytest.fixture
def node() -> Iterator[Node]:
    """A new node in namespaces of its own; the test runs inside it."""
    with fresh() as made, warm.agent_if_asked():
        yield made


@pytest.fixture
def ovs(node: Node) -> Iterator[OpenVswitch]:
    """Open vSwitch on the node, userspace datapath, no monitor."""
    with OpenVswitch.started() as made:
        yield made
