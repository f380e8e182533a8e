"""Every test of the contract runs in both worlds; what the running kernel may lack, in the virtual machine."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.contract.worlds import LinuxWorld, SimulatedWorld, World
from tests.support.ovs import OpenVswitch

MEMORY = pytest.param("memory", id="memory")
LINUX = pytest.param("linux", id="linux")
MACHINE = pytest.param("linux", id="linux", marks=pytest.mark.vm)


@pytest.fixture(params=[MEMORY, LINUX])
def world(request: pytest.FixtureRequest) -> World:
    """A node with nothing on it."""
    return SimulatedWorld() if request.param == "memory" else LinuxWorld(request.getfixturevalue("node"))


@pytest.fixture
def tapped(world: World) -> World:
    """Make a node with tap0."""
    world.tap("tap0")
    return world


@pytest.fixture(params=[MEMORY, MACHINE])
def full_world(request: pytest.FixtureRequest) -> World:
    """A node whose kernel has VLAN filtering."""
    return SimulatedWorld() if request.param == "memory" else LinuxWorld(request.getfixturevalue("node"))


@pytest.fixture(params=[MEMORY, LINUX])
def ovs_world(request: pytest.FixtureRequest) -> World:
    """A node on which Open vSwitch runs, with the bridge ovs0."""
    made: World
    if request.param == "memory":
        made = SimulatedWorld()
    else:
        ovs: OpenVswitch = request.getfixturevalue("ovs")
        made = LinuxWorld(request.getfixturevalue("node"), ovs)
    made.ovs_bridge("ovs0")
    return made


@pytest.fixture(params=[MEMORY, MACHINE])
def system_world(request: pytest.FixtureRequest) -> Iterator[World]:
    """A node on which Open vSwitch runs with its kernel module, with the bridge ovs0."""
    if request.param == "memory":
        simulated = SimulatedWorld(system=True)
        simulated.ovs_bridge("ovs0")
        yield simulated
        return
    node = request.getfixturevalue("node")
    with OpenVswitch.started("system") as ovs:
        made = LinuxWorld(node, ovs)
        made.ovs_bridge("ovs0")
        yield made
