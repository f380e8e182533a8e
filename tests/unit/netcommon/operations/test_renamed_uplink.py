"""An uplink that is renamed while NICs are up: what they share on it goes with the last of them, whatever is called so by now."""

from __future__ import annotations

import pytest

from netcommon.host.api.facts import AF_INET6, PROTOCOL, Link
from netcommon.lifecycle.check import check, repair
from netcommon.operations.sysctl import path_of
from runtime.nic import Nic
from tests.support.sim import UUIDS, Sim, nic

WANTED = {"TAGS": "netcommon:*:uplink_proxy:both"}
NOW = "wan0"


def second(mode: str, **changes: str) -> Nic:
    return nic(mode, INTERFACE="tap1", INTERFACE_UUID=UUIDS[1], INTERFACE_INDEX="1", MAC="aa:00:00:00:00:02", **changes)


def switch(sim: Sim, device: str) -> str | None:
    return sim.host.view().sysctl(path_of(AF_INET6, device, "proxy_ndp"))


def proxied(sim: Sim, device: str) -> list[str]:
    return [entry.address for entry in sim.host.kernel.neighbours if entry.protocol == PROTOCOL and entry.index == sim.index(device)]


def carried(sim: Sim, device: str) -> set[int]:
    return set(sim.host.kernel.vlans.get(sim.index(device), {}))


def replaced(sim: Sim, device: str, moved: bool) -> None:
    """``device`` gets the name NOW; another one gets its name, and where it is ``moved`` its default routes."""
    old = sim.index(device)
    sim.host.kernel.rename(old, NOW)
    made = sim.host.add_link(Link(0, device, "", up=True))
    for route in [route for route in sim.host.kernel.routes if route.index == old] if moved else ():
        sim.host.kernel.routes.remove(route)
        sim.host.kernel.add_route(route._replace(index=made.index))


@pytest.mark.parametrize("address", ["fd00::5", "fd00::6"], ids=["one address", "two addresses"])
@pytest.mark.parametrize("repaired", [(), (0,), (1, 0)])
@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
@pytest.mark.parametrize("moved", [False, True], ids=["stays the uplink", "is none any more"])
def test_the_switch_and_the_entries_go_with_the_last(
    sim: Sim, address: str, repaired: tuple[int, ...], order: tuple[int, ...], moved: bool
) -> None:
    sim.tap("tap1")
    guests = (nic("routed, IPv6", **WANTED), second("routed, IPv6", IP=address, **WANTED))
    sim.up(guests[0])
    replaced(sim, "eth-br0", moved)
    sim.up(guests[1])
    assert not check(sim.node, sim.host.view(), sim.record(UUIDS[1])).drift
    for each in repaired:
        repair(sim.node, guests[each].uuid, sim.call())
    for gone, left in ((order[0], order[1]), (order[1], None)):
        sim.down(guests[gone])
        if left is not None:
            here = "eth-br0" if moved and (left == 1 or repaired) else NOW  # which the first knows after its repair only
            assert switch(sim, here) == "1" and guests[left].ip in proxied(sim, here)
    assert [switch(sim, device) for device in (NOW, "eth-br0")] == ["0", "0"]
    assert proxied(sim, NOW) == proxied(sim, "eth-br0") == [] and sim.files() == []


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_a_vlan_that_the_second_needs_stays(sim: Sim, order: tuple[int, ...]) -> None:
    sim.tap("tap1")
    guests = (nic("bridged, access"), second("bridged, access"))
    sim.up(guests[0])
    sim.host.kernel.rename(sim.index("eth-brv"), NOW)
    sim.up(guests[1])
    sim.down(guests[order[0]])
    assert carried(sim, NOW) == {1, 10, 20}
    sim.down(guests[order[1]])
    assert carried(sim, NOW) == {1, 20} and sim.files() == []


def test_a_vlan_goes_though_another_uplink_has_the_name(sim: Sim) -> None:
    sim.tap("tap1")
    guests = (nic("bridged, access"), second("bridged, access"))
    sim.up(guests[0])
    sim.host.kernel.rename(sim.index("eth-brv"), NOW)
    sim.host.add_link(Link(0, "eth-brv", "", up=True, master=sim.index("brv")))
    sim.up(guests[1])
    for guest in guests:
        sim.down(guest)
    assert 10 not in carried(sim, NOW) | carried(sim, "eth-brv") and sim.files() == []
