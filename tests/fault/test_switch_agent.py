"""Open vSwitch that is silent, or gone, with the agent at work: what went with it is there again soon after it is."""

from __future__ import annotations

import time

import pytest

from tests.fault.test_switch import DAEMONS, PLIGHTS, Point, Switched
from tests.support import figures
from tests.support.agent import agent, watched
from tests.support.cases import network
from tests.support.netns import slowness, wait_until
from tests.support.node import Node
from tests.support.ovs import OpenVswitch
from tests.support.sample import FULL
from tests.support.snapshot import diff, snapshot

#: How long the agent may take once the daemon is there again (seconds).
BAR = 1.0


@pytest.mark.no_agent("starts agents of its own")
def test_the_agent_sets_right_what_a_daemon_took(node: Node, ovs: OpenVswitch) -> None:
    """Frozen for a while, or killed and started again."""
    switched = Switched(node, ovs, "guarded")
    took = []
    with agent() as running, watched() as seen:
        switched.host.up()
        for daemon, plight in [(daemon, plight) for daemon in DAEMONS for plight in PLIGHTS][:: 1 if FULL else -2]:
            point = Point(daemon, plight)
            switched.strike(point)
            switched.heal(point)
            begun = time.monotonic()
            wait_until(lambda: not seen.drift(), BAR, f"{daemon} {plight}: {running.output}")
            took.append(time.monotonic() - begun)
            assert diff(switched.host.whole, {**network(), "files": switched.host.whole["files"]}) == []
            assert running.descriptors < 100
        switched.down_again(point)
    assert diff({**switched.host.bare, "files": {}}, {**snapshot(), "files": {}}) == []
    figures.add("ovs", len(took), 0, 0, f"with the agent, {max(took):.2f} s at most after the daemon was there again")
    assert max(took) < BAR * slowness()
