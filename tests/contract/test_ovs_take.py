"""A port of somebody's becomes ours where it is: the mark, and nothing else of it."""

from __future__ import annotations

import errno

import pytest

from netcommon.host.api.facts import OVS_MARK
from netcommon.host.api.requests import PutOvsPort, ReleaseOvsPort, TakeOvsPort
from tests.contract.ovs_by_hand import FULL, MARK, PLAIN, add_ids, check_set_by_others, fake_bridge, set_by_others, shapers, simulated
from tests.contract.worlds import LinuxWorld, World, do, told, view


@pytest.mark.parametrize("bridge", ["ovs0", "fake0"])
def test_taken_where_it_is(ovs_world: World, bridge: str) -> None:
    """And then put, as an up does: the rows stay, and what the administrator has set on them."""
    ovs_world.tap("tap0")
    fake_bridge(ovs_world, "fake0", "ovs0", 5)
    ovs_world.ovs_port(bridge, "tap0")
    add_ids(ovs_world, "tap0", ("vendor", "x"), ("iface-id", "y"))
    set_by_others(ovs_world)
    before = view(ovs_world).ovs_port("tap0")
    assert before is not None and before.owner == ""
    for _ in range(2):
        assert do(ovs_world, TakeOvsPort("tap0", bridge, "uuid-1")) == [0]
        taken = view(ovs_world).ovs_port("tap0")
        assert taken == before._replace(external_ids=tuple(sorted([*before.external_ids, (OVS_MARK, "uuid-1")])))
    assert do(ovs_world, PutOvsPort(PLAIN._replace(bridge=bridge))) == [0]
    assert view(ovs_world).ovs_port("tap0") == taken
    check_set_by_others(ovs_world)


@pytest.mark.parametrize("bridge", ["ovs0", "fake0"])
@pytest.mark.parametrize("changed", ["taken", "put", "limited"])
def test_given_back_as_it_was_found(ovs_world: World, bridge: str, changed: str) -> None:
    """What we have set is as before; what somebody has set meanwhile stays."""
    ovs_world.tap("tap0")
    fake_bridge(ovs_world, "fake0", "ovs0", 5)
    ovs_world.ovs_port(bridge, "tap0")
    add_ids(ovs_world, "tap0", ("vendor", "x"), ("iface-id", "y"))
    set_by_others(ovs_world)
    qos = others_qos(ovs_world)
    found = view(ovs_world).ovs_port("tap0")
    assert found is not None
    assert do(ovs_world, TakeOvsPort("tap0", bridge, "uuid-1")) == [0]
    made = (FULL if bridge == "ovs0" else PLAIN)._replace(bridge=bridge)
    made = made._replace(external_ids=(*MARK, ("netcommon-instance", "web1/0")), interface_ids=(("iface-id", "z"), ("vm-uuid", "web1")))
    if changed == "limited":
        made = made._replace(policing=2000, burst=800, shaping=5_000_000)
    if changed != "taken":
        assert do(ovs_world, PutOvsPort(made)) == [0]
    for error in (0, errno.ENOENT):
        assert do(ovs_world, ReleaseOvsPort(made, found)) == [error]
        assert view(ovs_world).ovs_port("tap0") == found
        assert shapers(ovs_world) == ([""] if qos else [])
        check_set_by_others(ovs_world)
        assert others_qos(ovs_world, False) == qos


def test_not_given_back_what_is_anothers(ovs_world: World) -> None:
    ovs_world.tap("tap0")
    assert do(ovs_world, PutOvsPort(PLAIN)) == [0]
    before = view(ovs_world).ovs_port("tap0")
    second = PLAIN._replace(external_ids=((OVS_MARK, "uuid-2"),))
    for made in (second, PLAIN._replace(name="tap9"), PLAIN._replace(bridge="ovs9")):
        assert told(ovs_world, ReleaseOvsPort(made, PLAIN._replace(external_ids=()))).errno == errno.ENOENT
    assert view(ovs_world).ovs_port("tap0") == before


def others_qos(world: World, give: bool = True) -> str:
    """The QoS row of somebody else that the port has; first it is given one. "" on a simulated node, where that is only told."""
    if not isinstance(world, LinuxWorld):
        if give:
            simulated(world).host.switch.police("tap0")
        return ""
    if give:
        world.ovs.vsctl("set", "Port", "tap0", "qos=@q", "--", "--id=@q", "create", "QoS", "type=linux-htb")
    return world.ovs.vsctl("get", "Port", "tap0", "qos")


def test_not_anothers(ovs_world: World) -> None:
    """Neither another NIC's, nor one of another bridge, nor one that is not there."""
    ovs_world.tap("tap0")
    ovs_world.ovs_bridge("ovs1")
    assert do(ovs_world, PutOvsPort(PLAIN)) == [0]
    before = view(ovs_world).ovs_port("tap0")
    for request in (TakeOvsPort("tap0", "ovs0", "uuid-2"), TakeOvsPort("tap0", "ovs1", "uuid-1"), TakeOvsPort("tap9", "ovs0", "uuid-1")):
        assert told(ovs_world, request).errno == errno.ENOENT
    assert view(ovs_world).ovs_port("tap0") == before


def test_a_frozen_database(ovs_world: World) -> None:
    ovs_world.tap("tap0")
    ovs_world.ovs_port("ovs0", "tap0")
    ovs_world.freeze_database()
    assert told(ovs_world, TakeOvsPort("tap0", "ovs0", "uuid-1")).errno == errno.ETIMEDOUT
