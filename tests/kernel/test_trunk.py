"""A trunk with every VLAN there is: an up of a NIC that is up looks at all of them, and is quick."""

from __future__ import annotations

import time

import pytest

from netcommon.lifecycle.context import Call
from netcommon.lifecycle.up import up
from netcommon.log import recording
from runtime.environment import nic_from_environment
from tests.kernel.test_doors_parallel import environment
from tests.support.netns import run, slowness
from tests.support.node import Node
from tests.support.routed import ours
from tests.support.rundoor import rundoor

pytestmark = [pytest.mark.vm, pytest.mark.slow]

SECONDS = 0.5


@pytest.mark.parametrize("count", [1000, 4094])
def test_a_second_up(node: Node, count: int) -> None:
    run("ip", "link", "add", "up0", "type", "dummy")
    run("ip", "link", "set", "up0", "up")
    node.bridge("br0", "up0", vlan_filtering=True)
    node.tap("tap0")
    variables = environment(MODE="bridged", LINK="br0", IP="", VLAN="".join(f":{number}" for number in range(1, count + 1)))
    assert rundoor("kvm-ifup", variables).status == 0
    took = []
    for _turn in range(3):
        with ours() as one:
            start = time.monotonic()
            outcome = up(one, nic_from_environment(variables), Call(recording()[0], one.clock.now() + 60))
            took.append(time.monotonic() - start)
            assert not outcome.changed, outcome
    print(f"{count} VLANs: an up of a NIC that is up takes {min(took):.3f} s, {slowness():g} times as slow as usual")
    assert min(took) < SECONDS * slowness()
