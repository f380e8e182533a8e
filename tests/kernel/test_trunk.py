"""A trunk with every VLAN there is: an up of a NIC that is up looks at all of them, and takes for each no longer than of a few."""

from __future__ import annotations

import time

import pytest

from netcommon.lifecycle.context import Call
from netcommon.lifecycle.up import up
from netcommon.log import recording
from runtime.environment import nic_from_environment
from runtime.nic import Nic
from tests.kernel.test_doors_parallel import environment
from tests.support.netns import run
from tests.support.node import Node
from tests.support.routed import ours

pytestmark = [pytest.mark.vm, pytest.mark.slow]

FEW = 256  #: VLANs of the NIC against which the other's time is held: how fast the machine is just now stands in both
MORE = 2  #: times as long for each VLAN is a finding
PATIENCE = 600.0  #: seconds


@pytest.mark.parametrize("count", [1000, 4094])
def test_a_second_up(node: Node, count: int) -> None:
    run("ip", "link", "add", "up0", "type", "dummy")
    run("ip", "link", "set", "up0", "up")
    node.bridge("br0", "up0", vlan_filtering=True)
    few, many = (_brought_up(node, nic, vlans) for nic, vlans in enumerate((FEW, count)))
    took = [(_up_again(few), _up_again(many)) for _turn in range(5)]
    short, long = map(min, zip(*took, strict=True))
    print(f"{count} VLANs: an up of a NIC that is up takes {long:.3f} s, {FEW}: {short:.3f} s")
    assert long < MORE * count / FEW * short


def _brought_up(node: Node, number: int, count: int) -> Nic:
    """Bring a NIC, of its number and so many VLANs, up, however long that takes."""
    node.tap(f"tap{number}")
    vlans = "".join(f":{vlan}" for vlan in range(1, count + 1))
    nic = nic_from_environment(environment(number, MODE="bridged", LINK="br0", IP="", VLAN=vlans))
    with ours() as one:
        assert up(one, nic, Call(recording()[0], one.clock.now() + PATIENCE)).changed
    return nic


def _up_again(nic: Nic) -> float:
    """Bring the NIC up once more, which changes nothing; give the seconds that it takes."""
    with ours() as one:
        start = time.monotonic()
        outcome = up(one, nic, Call(recording()[0], one.clock.now() + PATIENCE))
        took = time.monotonic() - start
    assert not outcome.changed, outcome
    return took
