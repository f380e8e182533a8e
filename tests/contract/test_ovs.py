"""Ports of Open vSwitch: put in one piece, taken by vswitchd, deleted by their owner alone."""

from __future__ import annotations

import errno
from collections.abc import Callable

import pytest

from netcommon.host.api.facts import OvsPort
from netcommon.host.api.requests import DeleteOvsPort, PutOvsPort, SetLink
from runtime.errors import TryAgain
from tests.contract.ovs_by_hand import FULL, PLAIN, intent
from tests.contract.worlds import World, do, index, told, view
from tests.support.netns import wait_until


@pytest.mark.parametrize("port", [PLAIN, FULL, PLAIN._replace(tag=0), PLAIN._replace(trunks=(7,), vlan_mode="trunk")])
def test_put_and_delete(ovs_world: World, port: OvsPort) -> None:
    ovs_world.tap("tap0")
    assert view(ovs_world).ovs_port("tap0") is None
    assert do(ovs_world, PutOvsPort(port)) == [0]
    found = view(ovs_world).ovs_port("tap0")
    assert found is not None and found.ofport > 0 and found.error == "" and found.row
    assert intent(found) == port
    assert found.owner == "uuid-1"
    assert list(view(ovs_world).ovs_ports()) == [found]
    assert ovs_world.host.snapshot().ovs_port("tap0") == found
    assert do(ovs_world, DeleteOvsPort("tap0", "uuid-1")) == [0]
    assert view(ovs_world).ovs_port("tap0") is None
    assert told(ovs_world, DeleteOvsPort("tap0", "uuid-1")).errno == errno.ENOENT


def test_only_the_owner_deletes(ovs_world: World) -> None:
    ovs_world.tap("tap0")
    ovs_world.tap("tap1")
    ovs_world.ovs_port("ovs0", "tap1")
    assert do(ovs_world, PutOvsPort(PLAIN)) == [0]
    for name, owner in (("tap0", "uuid-2"), ("tap0", ""), ("tap1", "uuid-1"), ("tap1", ""), ("tap9", "uuid-1")):
        assert told(ovs_world, DeleteOvsPort(name, owner)).errno == errno.ENOENT
    foreign = view(ovs_world).ovs_port("tap1")
    assert foreign is not None and foreign.owner == ""
    assert [port.name for port in view(ovs_world).ovs_ports()] == ["tap0"]
    assert [port.name for port in ovs_world.host.snapshot().ovs_ports()] == ["tap0"]


def test_bridges(ovs_world: World) -> None:
    assert view(ovs_world).ovs_bridge("ovs0")
    assert not view(ovs_world).ovs_bridge("ovs")
    assert not view(ovs_world).ovs_bridge("")


def test_whose_device_it_is(ovs_world: World) -> None:
    """The bridge's own is vswitchd's, though it looks like a guest's tap where the datapath is vswitchd's too."""
    ovs_world.tap("tap0")
    assert do(ovs_world, PutOvsPort(PLAIN)) == [0]
    held = {name: view(ovs_world).ovs_held(name) for name in ("ovs0", "tap0", "tap9")}
    assert {name: port and port.internal for name, port in held.items()} == {"ovs0": True, "tap0": False, "tap9": None}
    link = view(ovs_world).link("ovs0")
    assert link is not None and (link.kind, link.holders) == ("tun", 1)


def test_no_bridge(ovs_world: World) -> None:
    """Whatever had the name stays."""
    ovs_world.tap("tap0")
    assert do(ovs_world, PutOvsPort(PLAIN)) == [0]
    answer = told(ovs_world, PutOvsPort(FULL._replace(bridge="ovs9")))
    assert (answer.errno, answer.text) == (errno.ENOENT, "there is no OVS bridge ovs9")
    assert intent(view(ovs_world).ovs_port("tap0")) == PLAIN


@pytest.mark.parametrize("changes", [{"tag": 5000}, {"trunks": (1, 4096)}])
def test_values_out_of_range(ovs_world: World, changes: dict[str, object]) -> None:
    ovs_world.tap("tap0")
    assert told(ovs_world, PutOvsPort(PLAIN._replace(**changes))).errno == errno.EINVAL  # type: ignore[arg-type]
    assert view(ovs_world).ovs_port("tap0") is None


def test_no_device(ovs_world: World) -> None:
    """The rows are there, and the answer says what vswitchd thinks of them."""
    answer = told(ovs_world, PutOvsPort(PLAIN))
    assert answer.errno == errno.EIO
    assert answer.text == "OVS port tap0: could not open network device tap0 (No such device)"
    found = view(ovs_world).ovs_port("tap0")
    assert found is not None and (found.ofport, found.owner) == (-1, "uuid-1")
    assert "No such device" in found.error


def test_rows_outlive_their_device(ovs_world: World) -> None:
    ovs_world.tap("tap0")
    assert do(ovs_world, PutOvsPort(FULL)) == [0]
    ovs_world.let_go("tap0")
    ovs_world.settle()
    assert intent(view(ovs_world).ovs_port("tap0")) == FULL


def test_the_kernels_module(system_world: World) -> None:
    """Its ports are enslaved; the rows of one that is gone say so, and catch the next device of that name, whoever's it is."""
    system_world.tap("tap0")
    assert do(system_world, PutOvsPort(FULL)) == [0]
    for _ in range(2):
        link = view(system_world).link("tap0")
        assert link is not None and link.port_kind == "openvswitch"
        assert link.master == index(system_world, "ovs-system")
        system_world.let_go("tap0")
        wait_until(lambda: settled(system_world, lambda port: port.error != ""), 10, "vswitchd sees that the device is gone")
        stale = view(system_world).ovs_port("tap0")
        assert intent(stale) == FULL
        assert stale is not None and stale.ofport == -1
        system_world.tap("tap0")
        wait_until(lambda: settled(system_world, lambda port: port.error == "" and port.ofport > 0), 10, "vswitchd takes the new device")
    assert do(system_world, DeleteOvsPort("tap0", "uuid-1")) == [0]
    wait_until(lambda: (link := view(system_world).link("tap0")) is not None and link.master == 0, 10, "vswitchd lets go of the device")


def test_a_port_of_a_linux_bridge_is_not_taken(system_world: World) -> None:
    system_world.tap("tap0")
    system_world.bridge("br0")
    assert do(system_world, SetLink(index(system_world, "tap0"), master=index(system_world, "br0"))) == [0]
    answer = told(system_world, PutOvsPort(PLAIN))
    assert answer.errno == errno.EIO
    assert "tap0" in answer.text


def settled(world: World, holds: Callable[[OvsPort], bool]) -> bool:
    world.settle()
    port = view(world).ovs_port("tap0")
    return port is not None and holds(port)


def test_the_switch_is_frozen(ovs_world: World) -> None:
    """The rows are committed, and the answer says that nobody has taken them; deleting does not wait."""
    ovs_world.tap("tap0")
    ovs_world.freeze_switch()
    answer = told(ovs_world, PutOvsPort(PLAIN))
    assert answer.errno == errno.ETIMEDOUT
    assert "is in the database, but ovs-vswitchd has not taken it" in answer.text
    found = view(ovs_world).ovs_port("tap0")
    assert found is not None and (intent(found), found.ofport) == (PLAIN, 0)
    assert do(ovs_world, DeleteOvsPort("tap0", "uuid-1")) == [0]
    assert view(ovs_world).ovs_port("tap0") is None


def test_the_database_is_frozen(ovs_world: World) -> None:
    """Nothing is known: no view says that nothing is there, and no change that it was done."""
    ovs_world.tap("tap0")
    ovs_world.freeze_database()
    for request in (PutOvsPort(PLAIN), DeleteOvsPort("tap0", "uuid-1")):
        answer = told(ovs_world, request)
        assert answer.errno == errno.ETIMEDOUT
        assert "is not known" in answer.text
    with pytest.raises(TryAgain):
        view(ovs_world).ovs_port("tap0")
    with pytest.raises(TryAgain):
        view(ovs_world).ovs_bridge("ovs0")
    with pytest.raises(TryAgain):
        ovs_world.host.snapshot().ovs_ports()


def test_among_others(ovs_world: World) -> None:
    """Several at once, and what comes after a failure."""
    for name in ("tap0", "tap1"):
        ovs_world.tap(name)
    second = PLAIN._replace(name="tap1", tag=5)
    assert do(ovs_world, PutOvsPort(PLAIN), PutOvsPort(second), stop=True) == [0, 0]
    assert {intent(port) for port in view(ovs_world).ovs_ports()} == {PLAIN, second}
    answers = do(ovs_world, DeleteOvsPort("tap1", "x"), DeleteOvsPort("tap0", "uuid-1"), DeleteOvsPort("tap1", "uuid-1"))
    assert answers == [errno.ENOENT, 0, 0]
    assert do(ovs_world, PutOvsPort(PLAIN._replace(bridge="no")), PutOvsPort(second), stop=True) == [errno.ENOENT, errno.ECANCELED]
    assert list(view(ovs_world).ovs_ports()) == []
