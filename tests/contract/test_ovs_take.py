"""A port of somebody's becomes ours where it is: the mark, and nothing else of it."""

from __future__ import annotations

import errno

import pytest

from netcommon.host.api.facts import OVS_MARK
from netcommon.host.api.requests import PutOvsPort, TakeOvsPort
from tests.contract.ovs_by_hand import PLAIN, add_ids, check_set_by_others, fake_bridge, set_by_others
from tests.contract.worlds import LinuxWorld, World, do, told, view


@pytest.mark.parametrize("bridge", ["ovs0", "fake0"])
def test_taken_where_it_is(ovs_world: World, bridge: str) -> None:
    """And then put, as an up does: the rows stay, and what the administrator has set on them."""
    ovs_world.tap("tap0")
    fake_bridge(ovs_world, "fake0", "ovs0", 5)
    if isinstance(ovs_world, LinuxWorld):
        ovs_world.ovs_port(bridge, "tap0")
    else:
        assert do(ovs_world, PutOvsPort(PLAIN._replace(bridge=bridge, external_ids=()))) == [0]
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
