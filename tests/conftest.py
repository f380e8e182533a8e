"""Fixtures and rules for all tests."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import hypothesis
import pytest

from tests.support import warm
from tests.support.netns import slowness
from tests.support.node import Node, fresh
from tests.support.ovs import OpenVswitch
from tests.support.sample import FULL, drawn, sample

HERE = Path(__file__).parent
MARKED = ("kernel", "vm", "bench")

#: Of the agent itself: each test in them starts one, or more, or has parts of one in its own process.
OF_AGENTS = ("kernel/agent", "kernel/warm")

hypothesis.settings.register_profile("default", deadline=None, derandomize=True, max_examples=100)
hypothesis.settings.register_profile("full", deadline=None, max_examples=drawn(100, 200, 1000))
hypothesis.settings.load_profile("full" if FULL else "default")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark what is collected, and leave out what is not in the sample."""
    mark(items)
    dropped = unsampled(items)
    if dropped:
        config.hook.pytest_deselected(items=[item for item in items if item in dropped])
        items[:] = [item for item in items if item not in dropped]


def mark(items: Sequence[pytest.Item]) -> None:
    """Mark tests: those below tests/kernel, tests/vm and tests/bench do not say so. What runs without an agent says why."""
    for item in items:
        parts = item.path.relative_to(HERE).parts if item.path.is_relative_to(HERE) else ("",)
        if parts[0] in MARKED:
            item.add_marker(parts[0])
        if "/".join(parts[:2]) in OF_AGENTS:
            item.add_marker(pytest.mark.no_agent("starts agents of its own"))
        for without in item.iter_markers("no_agent"):
            warm.reason(without)


def unsampled(items: Sequence[pytest.Item]) -> set[pytest.Item]:
    """Give the cases of tests marked ``sampled`` that a run without --full leaves out: of each test that many times as many as it takes."""
    cases: dict[str, list[pytest.Item]] = {}
    for item in items:
        if item.get_closest_marker("sampled"):
            cases.setdefault(item.nodeid.partition("[")[0], []).append(item)
    left: set[pytest.Item] = set()
    for each in cases.values():
        sampled = each[0].get_closest_marker("sampled")
        assert sampled is not None
        in_machine = -(-len(each) // 4) if slowness() > 1 else 0  # it is emulated, on one core: a quarter of them in a full run
        left |= set(each) - set(sample(each, -(-len(each) // int(sampled.args[0])), in_machine))
    return left


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """What a run with agents has been."""
    if warm.WARM:
        terminalreporter.section("with an agent")
        for line in warm.TALLY.lines():
            terminalreporter.write_line(line)


@pytest.fixture(autouse=True)
def same_place() -> Iterator[None]:
    """No test leaves the process elsewhere: the working directory and the umask stay."""
    before = os.getcwd(), os.umask(0o022)
    yield
    umask = os.umask(before[1])
    assert (os.getcwd(), umask) == (before[0], 0o022)


@pytest.fixture
def node(request: pytest.FixtureRequest) -> Iterator[Node]:
    """A new node in namespaces of its own; the test runs inside it."""
    with fresh() as made, warm.agent_if_asked(request.node):
        yield made


@pytest.fixture
def ovs(node: Node) -> Iterator[OpenVswitch]:
    """Open vSwitch on the node, userspace datapath, no monitor."""
    with OpenVswitch.started() as made:
        yield made
