"""Fake bridges of Open vSwitch (ovs-vsctl(8), add-br with a parent): a VLAN of a bridge under a name of its own."""

from __future__ import annotations

import errno

import pytest

from netcommon.host.api.requests import DeleteOvsPort, PutOvsPort
from netcommon.operations.ovs import Port
from tests.contract.ovs_by_hand import PLAIN, add_ids, fake_bridge, intent, port_to_br, retag
from tests.contract.worlds import World, do, told, view


@pytest.mark.parametrize("vid", [0, 42])
def test_a_fake_bridge(ovs_world: World, vid: int) -> None:
    """Its ports are those of its parent that have its VLAN, and no VLAN of their own."""
    ovs_world.tap("tap0")
    fake_bridge(ovs_world, "ovsf", "ovs0", vid)
    assert view(ovs_world).ovs_bridge("ovsf") and ovs_world.host.snapshot().ovs_bridge("ovsf")
    own = view(ovs_world).ovs_port("ovsf")  # the simulated node shows no ports of bridges' own
    assert own is None or (own.bridge, own.tag) == ("ovs0", vid)
    port = PLAIN._replace(bridge="ovsf")
    for _ in range(2):  # a new port, and one that stays
        assert do(ovs_world, PutOvsPort(port)) == [0]
        found = view(ovs_world).ovs_port("tap0")
        assert intent(found) == port
        assert found and found.ofport > 0
        assert list(view(ovs_world).ovs_ports()) == [found] == list(ovs_world.host.snapshot().ovs_ports())
        assert port_to_br(ovs_world, "tap0") == ("ovsf", vid)
    assert do(ovs_world, DeleteOvsPort("tap0", "uuid-1")) == [0]
    assert view(ovs_world).ovs_port("tap0") is None


@pytest.mark.parametrize("changes", [{"tag": 7}, {"tag": 42}, {"trunks": (7,)}, {"vlan_mode": "trunk"}])
def test_a_port_of_a_fake_bridge_has_no_vlans(ovs_world: World, changes: dict[str, object]) -> None:
    """Whatever had the name stays."""
    ovs_world.tap("tap0")
    fake_bridge(ovs_world, "ovsf", "ovs0", 42)
    assert do(ovs_world, PutOvsPort(PLAIN)) == [0]
    answer = told(ovs_world, PutOvsPort(PLAIN._replace(bridge="ovsf", **changes)))  # type: ignore[arg-type]
    assert answer.errno == errno.EINVAL
    assert "ovsf is a fake bridge, VLAN 42 of ovs0: its ports have that VLAN and none of their own" in answer.text
    assert intent(view(ovs_world).ovs_port("tap0")) == PLAIN


def test_between_a_bridge_and_its_fake_one(ovs_world: World) -> None:
    """The row stays. A port that says its vlan_mode is of the real bridge, with the same VLAN too."""
    ovs_world.tap("tap0")
    fake_bridge(ovs_world, "ovsf", "ovs0", 42)
    inside, outside = PLAIN._replace(bridge="ovsf"), PLAIN._replace(tag=42, vlan_mode="access")
    row = ""
    for port in (inside, outside, inside, PLAIN._replace(tag=43), inside, PLAIN):
        assert do(ovs_world, PutOvsPort(port)) == [0]
        found = view(ovs_world).ovs_port("tap0")
        assert intent(found) == port
        assert found and row in ("", found.row)
        row = found.row


def test_the_same_rows_in_other_words(ovs_world: World) -> None:
    """The fake bridge's VLAN, asked for by number and without a mode: done, and shown as ovs-vsctl does."""
    ovs_world.tap("tap0")
    fake_bridge(ovs_world, "ovsf", "ovs0", 42)
    assert do(ovs_world, PutOvsPort(PLAIN._replace(tag=42))) == [0]
    assert intent(view(ovs_world).ovs_port("tap0")) == PLAIN._replace(bridge="ovsf")


def test_two_fake_bridges_of_one_vlan(ovs_world: World) -> None:
    """ovs-vsctl does not make them; whose a port would be, nobody can say. On another parent, the same VLAN is another."""
    ovs_world.tap("tap0")
    ovs_world.ovs_bridge("ovs1")
    fake_bridge(ovs_world, "ovsf", "ovs0", 42)
    fake_bridge(ovs_world, "ovsh", "ovs1", 42)
    assert do(ovs_world, PutOvsPort(PLAIN._replace(bridge="ovsh"))) == [0]
    assert intent(view(ovs_world).ovs_port("tap0")) == PLAIN._replace(bridge="ovsh")
    fake_bridge(ovs_world, "ovsg", "ovs0", 43)
    retag(ovs_world, "ovsg", 42)
    answer = told(ovs_world, PutOvsPort(PLAIN._replace(bridge="ovsf")))
    assert (answer.errno, "and so is ovsg" in answer.text) == (errno.EINVAL, True)
    assert do(ovs_world, PutOvsPort(PLAIN._replace(tag=42))) == [0]
    assert intent(view(ovs_world).ovs_port("tap0")) == PLAIN._replace(tag=42)


def test_a_fake_bridge_replaces_too(ovs_world: World) -> None:
    """A port without our mark, and of another bridge."""
    ovs_world.tap("tap0")
    ovs_world.ovs_bridge("ovs1")
    ovs_world.ovs_port("ovs1", "tap0")
    fake_bridge(ovs_world, "ovsf", "ovs0", 42)
    add_ids(ovs_world, "tap0", ("vendor", "x"), ("iface-id", "y"))
    assert do(ovs_world, PutOvsPort(PLAIN._replace(bridge="ovsf"))) == [0]
    assert intent(view(ovs_world).ovs_port("tap0")) == PLAIN._replace(bridge="ovsf")


def test_check_of_a_port_of_a_fake_bridge(ovs_world: World) -> None:
    """The operation as a NIC without VLANs plans it: it is as it should be, until somebody moves it."""
    ovs_world.tap("tap0")
    fake_bridge(ovs_world, "ovsf", "ovs0", 42)
    (port,) = Port("tap0", "ovsf", "uuid-1").resolve(view(ovs_world), [])
    assert do(ovs_world, *port.apply()) == [0]
    assert port.differs(view(ovs_world)) == port.differs(ovs_world.host.snapshot()) == ""
    assert do(ovs_world, PutOvsPort(PLAIN._replace(tag=43))) == [0]
    assert port.differs(view(ovs_world)) == "its bridge is 'ovs0', its tag is 43"
