"""doctor on uplinks of routed guests."""

from __future__ import annotations

from pathlib import Path

import pytest

from netcommon.doctor import uplinks
from netcommon.doctor.finding import Finding, Patient
from netcommon.host.api.facts import AF_INET, AF_INET6, Address, Neighbour, Route
from tests.support.sim import UUIDS, Sim, nic


@pytest.fixture
def sim(tmp_path: object) -> Sim:
    made = Sim(str(tmp_path))
    made.host.kernel.add_route(Route(AF_INET, 254, "10.0.0.0/24", made.index("eth-br0"), 2))
    return made


def found(sim: Sim) -> list[Finding]:
    return list(uplinks.check(Patient(sim.paths, "/", "/hooks", sim.settings, sim.host.snapshot(), sim.records())))


def verified(sim: Sim) -> list[Finding]:
    return list(uplinks.probes(Patient(sim.paths, "/", "/hooks", sim.settings, sim.host.snapshot(), sim.records())))


def test_arp_for_a_guest_of_the_uplinks_network(sim: Sim) -> None:
    """Once for an uplink; answered by proxy_arp, or by an entry, it is none."""
    sim.tap("tap1")
    sim.up(nic("routed"))
    sim.up(nic("routed", INTERFACE="tap1", INTERFACE_UUID=UUIDS[1], IP="10.0.0.6", INTERFACE_INDEX="1"))
    (finding,) = found(sim)
    assert (finding.level, "10.0.0." in finding.text, "uplink_proxy" in finding.remedy) == ("warning", True, True)
    for device in ("eth-br0", "all"):
        sim.host.kernel.settings.write(f"net/ipv4/conf/{device}/proxy_arp", "1")
        assert found(sim) == []
        sim.host.kernel.settings.write(f"net/ipv4/conf/{device}/proxy_arp", "0")
    for address in ("10.0.0.5", "10.0.0.6"):
        sim.host.kernel.add_neighbour(Neighbour(AF_INET, address, sim.index("eth-br0"), 4))
    assert found(sim) == []


def test_a_guest_that_the_router_has_a_route_to(sim: Sim) -> None:
    sim.up(nic("routed", IP="10.7.0.5"))
    assert found(sim) == []


@pytest.mark.parametrize("destinations", [["0.0.0.0/0"], ["0.0.0.0/1", "128.0.0.0/1"]])
def test_a_default_route_without_a_gateway(tmp_path: Path, destinations: list[str]) -> None:
    """It leads to all addresses, such as through a tunnel: nobody there takes a guest's for one of the link's own."""
    sim = Sim(str(tmp_path))
    sim.up(nic("routed", IP="10.7.0.5"))
    for destination in destinations:
        sim.host.kernel.add_route(Route(AF_INET, 254, destination, sim.index("eth-br0"), 3))
    assert found(sim) == []


def test_an_uplink_that_does_not_forward(sim: Sim) -> None:
    sim.up(nic("routed, IPv6"))
    assert found(sim) == []
    sim.host.kernel.settings.write("net/ipv6/conf/eth-br0/forwarding", "0")
    (finding,) = found(sim)
    assert "eth-br0.forwarding is 0" in finding.text and "accept_ra=2" in finding.remedy


@pytest.mark.parametrize("way", ["uplink", "gateway", "unnumbered"])
def test_neighbours_that_cannot_verify_an_address(sim: Sim, way: str) -> None:
    """Warn of probes of a guest on the uplink, or of the gateway by a guest: not where the gateway's address is one of the node's."""
    options = "" if way == "uplink" else "netcommon:0:uplink_proxy:off"
    sim.up(nic("routed, IPv6", NETWORK_GATEWAY6="" if way == "uplink" else "fd00::1", TAGS=options))
    if way == "unnumbered":
        sim.host.kernel.addresses.append(Address(AF_INET6, "fd00::1", 128, 1, 0))
    assert verified(sim) == []
    sim.host.kernel.settings.write("net/ipv6/conf/all/proxy_ndp", "0")
    wanted = {"uplink": ["fd00::5"], "gateway": ["fd00::1"], "unnumbered": []}[way]
    assert [next(each for each in ("fd00::5", "fd00::1") if each in one.text) for one in verified(sim)] == wanted
    assert all((one.level, "net.ipv6.conf.all.proxy_ndp=1" in one.remedy) == ("warning", True) for one in verified(sim))


@pytest.mark.parametrize("mode", ["routed", "routed, all options", "bridged"])
def test_the_up_says_so_too(sim: Sim, mode: str) -> None:
    """Once, and where it matters."""
    sim.host.kernel.settings.write("net/ipv6/conf/all/proxy_ndp", "0")
    sim.host.kernel.add_route(Route(AF_INET6, 254, "::/0", sim.index("eth-br1"), 3, 0, "fe80::1", 2048))
    sim.up(nic(mode))
    assert len([line for line in sim.lines if "all.proxy_ndp is 0" in line]) == (mode == "routed, all options")


def test_others_are_not_looked_at(sim: Sim) -> None:
    sim.up(nic("bridged", IP="10.0.0.5"))
    assert found(sim) == []
