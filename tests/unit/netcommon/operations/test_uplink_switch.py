"""A switch that we have set on an uplink is put back on that device: not by its name alone."""

from __future__ import annotations

from netcommon.host.api.facts import AF_INET6, Link, Neighbour
from netcommon.lifecycle.check import check, repair
from netcommon.operations.sysctl import path_of
from tests.support.sim import Sim, nic

WANTED = {"TAGS": "netcommon:*:uplink_proxy:both"}


def switch(sim: Sim, device: str) -> str | None:
    return sim.host.view().sysctl(path_of(AF_INET6, device, "proxy_ndp"))


def test_a_renamed_uplink_gets_it_back(sim: Sim) -> None:
    guest = nic("routed, IPv6", **WANTED)
    sim.up(guest)
    assert switch(sim, "eth-br0") == "1"
    sim.host.kernel.rename(sim.index("eth-br0"), "wan0")
    sim.down(guest)
    assert switch(sim, "wan0") == "0" and sim.records() == []


def test_another_device_of_that_name_keeps_its_administrators(sim: Sim) -> None:
    """The uplink's driver was loaded again, or another card has the name now."""
    guest = nic("routed, IPv6", **WANTED)
    sim.up(guest)
    sim.host.kernel.rename(sim.index("eth-br0"), "wan0")
    sim.host.add_link(Link(0, "eth-br0", "", up=True))
    sim.host.kernel.settings.write(path_of(AF_INET6, "eth-br0", "proxy_ndp"), "1")
    sim.down(guest)
    assert switch(sim, "eth-br0") == "1" and switch(sim, "wan0") == "0"


def test_another_device_that_has_its_index_keeps_its_administrators(sim: Sim) -> None:
    guest = nic("routed, IPv6", **WANTED)
    sim.up(guest)
    index = sim.index("eth-br0")
    sim.host.remove_link("eth-br0")
    sim.host.add_link(Link(0, "adm0", "", up=True), index)
    sim.host.kernel.settings.write(path_of(AF_INET6, "adm0", "proxy_ndp"), "1")
    theirs = Neighbour(AF_INET6, "fd00::5", index, protocol=0)
    sim.host.kernel.neighbours.append(theirs)
    sim.down(guest)
    assert switch(sim, "adm0") == "1" and theirs in sim.host.kernel.neighbours and sim.records() == []


def test_an_uplink_that_comes_back_is_told_of_and_mended(sim: Sim) -> None:
    guest = nic("routed, IPv6", **WANTED)
    sim.up(guest)
    old = sim.host.view().link("eth-br0")
    routes = [route for route in sim.host.view().routes(AF_INET6) if route.index == sim.index("eth-br0")]
    assert old is not None and routes
    sim.host.remove_link("eth-br0")
    made = sim.host.add_link(old._replace(index=0))
    for route in routes:
        sim.host.kernel.add_route(route._replace(index=made.index))
    assert "eth-br0 is another device now" in [text for _, text in check(sim.node, sim.host.view(), sim.record()).drift]
    assert repair(sim.node, sim.record().key, sim.call()).changed and switch(sim, "eth-br0") == "1"
    assert not check(sim.node, sim.host.view(), sim.record()).drift
    sim.down(guest)
    assert switch(sim, "eth-br0") == "0" and sim.records() == []
