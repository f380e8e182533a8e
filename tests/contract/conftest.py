"""Every test of the contract runs in both worlds; what the running kernel may lack, in the virtual machine."""

from __future__ import annotations

import os
from collections.abc import Generator, Iterator, Sequence

import pytest
from _pytest.runner import runtestprotocol

from tests.contract.differences import NOT_COMPARED
from tests.contract.heard import Step
from tests.contract.trace import TRACE
from tests.contract.worlds import LinuxWorld, SimulatedWorld, World, knows_vlans
from tests.support.ovs import OpenVswitch

MEMORY = pytest.param("memory", id="memory")
LINUX = pytest.param("linux", id="linux")
MACHINE = pytest.param("linux", id="linux", marks=pytest.mark.vm)


@pytest.fixture(params=[MEMORY, LINUX])
def world(request: pytest.FixtureRequest) -> World:
    """A node with nothing on it. The simulated one knows VLANs where the running kernel does."""
    return SimulatedWorld(vlans=knows_vlans()) if request.param == "memory" else LinuxWorld(request.getfixturevalue("node"))


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
        made = SimulatedWorld(system=False, switch=True)
    else:
        ovs: OpenVswitch = request.getfixturevalue("ovs")
        made = LinuxWorld(request.getfixturevalue("node"), ovs)
    made.ovs_bridge("ovs0")
    return made


@pytest.fixture(params=[MEMORY, MACHINE])
def system_world(request: pytest.FixtureRequest) -> Iterator[World]:
    """A node on which Open vSwitch runs with its kernel module, with the bridge ovs0."""
    if request.param == "memory":
        simulated = SimulatedWorld(system=True, switch=True)
        simulated.ovs_bridge("ovs0")
        yield simulated
        return
    node = request.getfixturevalue("node")
    with OpenVswitch.started("system") as ovs:
        made = LinuxWorld(node, ovs)
        made.ovs_bridge("ovs0")
        yield made


# -- events


TWIN = pytest.StashKey[pytest.Item]()
STEPS = pytest.StashKey[list[Sequence[Step]]]()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Find for each test on the real node the same one on the simulated node, before any is left out."""
    found = {(item.path, *kind): item for item in items if (kind := _kind(item))}
    for item in items:
        kind = _kind(item)
        if kind is None or kind[-1] not in REAL:
            continue
        memories = ("memory by name", "memory") if by_name(kind[-1]) else ("memory",)
        twins = [twin for each in memories if (twin := found.get((item.path, *kind[:-1], each)))]
        if twins:
            item.stash[TWIN] = twins[0]


def _kind(item: pytest.Item) -> tuple[str, str, str] | None:
    """Give the name of a test, its parameters but for the world, and the world."""
    if not isinstance(item, pytest.Function) or not hasattr(item, "callspec"):
        return None
    given = item.callspec.params
    world = next((name for name in given if name == "world" or name.endswith("_world")), None)
    if world is None:
        return None
    return item.originalname, repr(sorted((name, repr(value)) for name, value in given.items() if name != world)), str(given[world])


def _name(item: pytest.Item) -> str:
    """Give the name of a test as in the table of differences."""
    given = item.callspec.params if isinstance(item, pytest.Function) and hasattr(item, "callspec") else {}
    world = next((name for name in given if name == "world" or name.endswith("_world")), "no world")
    return f"{item.path.name}::{getattr(item, 'originalname', item.name)} ({world})"


REAL = ("linux", "machine")


def by_name(world: str) -> bool:
    """Tell whether a base chain of nftables waits for a device of its name on that kernel (since Linux 6.16)."""
    return tuple(map(int, os.uname().release.split(".")[:2])) >= (6, 16)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> Generator[None, object, object]:
    """Before a test on the real node, let the simulated one do it, if it has not yet."""
    twin = item.stash.get(TWIN, None)
    if twin is not None and STEPS not in twin.stash:
        runtestprotocol(twin, nextitem=item, log=False)
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None, object, object]:
    """Hear from before the first fixture."""
    twin = item.stash.get(TWIN, None)
    name = _name(item)
    TRACE.start(name, twin.stash.get(STEPS, None) if twin is not None and not NOT_COMPARED.fullmatch(name) else None)
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """Compare at the end of a test that has passed."""
    result = yield
    differences = TRACE.finish()
    item.stash[STEPS] = [each.steps for each in TRACE.recorders]
    if differences:
        pytest.fail("\n".join(differences), pytrace=False)
    return result


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, object, object]:
    """Hear no more."""
    TRACE.stop()
    return (yield)
