"""A port of Open vSwitch that has the name already: this NIC's takes new VLANs where it is, any other is replaced whole."""

from __future__ import annotations

import errno

import pytest

from netcommon.host.api.facts import OVS_MARK, OvsPort
from netcommon.host.api.requests import PutOvsPort
from tests.contract.ovs_by_hand import FULL, MARK, PLAIN, add_ids, check_set_by_others, intent, set_by_others
from tests.contract.worlds import World, do, told, view

Pairs = tuple[tuple[str, str], ...]
Vlans = tuple[int | None, tuple[int, ...], str]
VLANS: list[Vlans] = [(None, (), ""), (10, (), "access"), (None, (20, 21), "trunk"), (10, (30,), "native-untagged")]


def with_vlans(port: OvsPort, vlans: Vlans) -> OvsPort:
    return port._replace(tag=vlans[0], trunks=vlans[1], vlan_mode=vlans[2])


@pytest.mark.parametrize("former", [(), ((OVS_MARK, "uuid-2"),)], ids=["unmarked", "another's"])
@pytest.mark.parametrize("bridge", ["ovs0", "ovs1"])
def test_put_replaces_the_port_of_another(ovs_world: World, bridge: str, former: Pairs) -> None:
    """On whatever bridge, with all that belonged to it."""
    ovs_world.tap("tap0")
    ovs_world.ovs_bridge("ovs1")
    if former:
        assert do(ovs_world, PutOvsPort(FULL._replace(bridge=bridge, external_ids=former))) == [0]
    else:
        ovs_world.ovs_port(bridge, "tap0")
    add_ids(ovs_world, "tap0", ("vendor", "x"), ("iface-id", "y"))
    first = view(ovs_world).ovs_port("tap0")
    assert do(ovs_world, PutOvsPort(PLAIN._replace(tag=7))) == [0]
    second = view(ovs_world).ovs_port("tap0")
    assert intent(second) == PLAIN._replace(tag=7)
    assert first and second and first.row != second.row and second.ofport > 0


def test_put_replaces_our_port_of_another_bridge(ovs_world: World) -> None:
    ovs_world.tap("tap0")
    ovs_world.ovs_bridge("ovs1")
    assert do(ovs_world, PutOvsPort(FULL._replace(bridge="ovs1"))) == [0]
    first = view(ovs_world).ovs_port("tap0")
    assert do(ovs_world, PutOvsPort(PLAIN)) == [0]
    second = view(ovs_world).ovs_port("tap0")
    assert intent(second) == PLAIN
    assert first and second and first.row != second.row and second.ofport > 0


@pytest.mark.parametrize("vlans", VLANS)
@pytest.mark.parametrize("former", VLANS)
def test_new_vlans_keep_the_rows(ovs_world: World, former: Vlans, vlans: Vlans) -> None:
    """The port is this NIC's already: what others have set on it stays, our own words are the new ones."""
    ovs_world.tap("tap0")
    old = with_vlans(PLAIN, former)._replace(external_ids=(("netcommon-instance", "a"), ("netcommon-old", "b"), *MARK))
    new = with_vlans(PLAIN, vlans)._replace(external_ids=(("netcommon-instance", "c"), *MARK), interface_ids=(("attached-mac", "d"),))
    assert do(ovs_world, PutOvsPort(old)) == [0]
    add_ids(ovs_world, "tap0", ("vendor", "x"), ("iface-id", "y"))
    set_by_others(ovs_world)
    first = view(ovs_world).ovs_port("tap0")
    assert do(ovs_world, PutOvsPort(new)) == [0]
    second = view(ovs_world).ovs_port("tap0")
    kept = new._replace(external_ids=(*new.external_ids, ("vendor", "x")), interface_ids=(*new.interface_ids, ("iface-id", "y")))
    assert intent(second) == kept
    assert first and second and (first.row, first.ofport) == (second.row, second.ofport)
    check_set_by_others(ovs_world)


def test_words_of_ours_get_new_values(ovs_world: World) -> None:
    """Whatever their keys are, in both rows."""
    ovs_world.tap("tap0")
    assert do(ovs_world, PutOvsPort(FULL)) == [0]
    new = FULL._replace(external_ids=(*MARK, ("other", "new")), interface_ids=(("attached-mac", "new"), ("iface-id", "uuid-1")))
    assert do(ovs_world, PutOvsPort(new)) == [0]
    assert intent(view(ovs_world).ovs_port("tap0")) == new


def test_a_port_without_a_mark_is_nobodys(ovs_world: World) -> None:
    """So two of them are not of one NIC."""
    ovs_world.tap("tap0")
    first, second = (put_and_see(ovs_world, PLAIN._replace(tag=tag, external_ids=())) for tag in (5, 6))
    assert first.row != second.row


def put_and_see(world: World, port: OvsPort) -> OvsPort:
    assert do(world, PutOvsPort(port)) == [0]
    found = view(world).ovs_port("tap0")
    assert found is not None and intent(found) == port
    return found


def test_new_vlans_on_a_frozen_switch(ovs_world: World) -> None:
    """That the port had a number before does not mean that its new VLANs are taken."""
    ovs_world.tap("tap0")
    assert do(ovs_world, PutOvsPort(PLAIN)) == [0]
    ovs_world.freeze_switch()
    for _ in range(2):
        answer = told(ovs_world, PutOvsPort(FULL))
        assert answer.errno == errno.ETIMEDOUT
        assert "is in the database, but ovs-vswitchd has not taken it" in answer.text
        assert intent(view(ovs_world).ovs_port("tap0")) == FULL


def test_new_vlans_when_the_device_came_late(ovs_world: World) -> None:
    """The row stays, its error goes."""
    assert told(ovs_world, PutOvsPort(PLAIN)).errno == errno.EIO
    assert told(ovs_world, PutOvsPort(FULL)).errno == errno.EIO
    first = view(ovs_world).ovs_port("tap0")
    ovs_world.tap("tap0")
    assert do(ovs_world, PutOvsPort(PLAIN._replace(tag=9))) == [0]
    second = view(ovs_world).ovs_port("tap0")
    assert first and second and first.row == second.row
    assert (second.tag, second.error, second.ofport > 0) == (9, "", True)


def test_a_number_is_one_ports_alone(ovs_world: World) -> None:
    """Also of a port whose device comes when another one has been made since."""
    assert do(ovs_world, PutOvsPort(PLAIN)) != [0]
    ovs_world.tap("tap1")
    assert do(ovs_world, PutOvsPort(PLAIN._replace(name="tap1", external_ids=((OVS_MARK, "uuid-2"),)))) == [0]
    ovs_world.tap("tap0")
    assert do(ovs_world, PutOvsPort(PLAIN._replace(tag=9))) == [0]
    first, second = (view(ovs_world).ovs_port(name) for name in ("tap0", "tap1"))
    assert first and second and 0 < first.ofport != second.ofport > 0


@pytest.mark.parametrize("changes", [{"tag": 5000}, {"trunks": (1, 4096)}])
def test_new_vlans_out_of_range(ovs_world: World, changes: dict[str, object]) -> None:
    ovs_world.tap("tap0")
    assert do(ovs_world, PutOvsPort(FULL)) == [0]
    assert told(ovs_world, PutOvsPort(FULL._replace(**changes))).errno == errno.EINVAL  # type: ignore[arg-type]
    assert intent(view(ovs_world).ovs_port("tap0")) == FULL
