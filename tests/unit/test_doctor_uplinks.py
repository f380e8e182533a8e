"""doctor on uplinks of routed guests."""

from __future__ import annotations

import pytest

from netcommon.doctor import uplinks
from netcommon.doctor.finding import Finding, Patient
from netcommon.host.facts import AF_INET, Neighbour, Route
from tests.support.sim import UUIDS, Sim, nic


@pytest.fixture
def sim(tmp_path: object) -> Sim:
    made = Sim(str(tmp_path))
    made.host.kernel.add_route(Route(AF_INET, 254, "10.0.0.0/24", made.index("eth-br0"), 2))
    return made


def found(sim: Sim) -> list[Finding]:
    return list(uplinks.check(Patient(sim.paths, "/", "/hooks", sim.settings, sim.host.snapshot(), sim.records())))


def test_arp_for_a_guest_of_the_uplinks_network(sim: Sim) -> None:
    """Once for an uplink; answered by proxy_arp, or by an entry, it is none."""
    sim.tap("tap1")
    sim.up(nic("routed"))
    sim.up(nic("routed", INTERFACE="tap1", INTERFACE_UUID=UUIDS[1], IP="10.0.0.6", INTERFACE_INDEX="1"))
    (finding,) = found(sim)
    assert (finding.level, "10.0.0." in finding.text, "uplink_proxy" in finding.remedy) == ("warning", True, True)
    sim.host.kernel.settings.write("net/ipv4/conf/eth-br0/proxy_arp", "1")
    assert found(sim) == []
    sim.host.kernel.settings.write("net/ipv4/conf/eth-br0/proxy_arp", "0")
    for address in ("10.0.0.5", "10.0.0.6"):
        sim.host.kernel.add_neighbour(Neighbour(AF_INET, address, sim.index("eth-br0"), 4))
    assert found(sim) == []


def test_a_guest_that_the_router_has_a_route_to(sim: Sim) -> None:
    sim.up(nic("routed", IP="10.7.0.5"))
    assert found(sim) == []


def test_an_uplink_that_does_not_forward(sim: Sim) -> None:
    sim.up(nic("routed, IPv6"))
    assert found(sim) == []
    sim.host.kernel.settings.write("net/ipv6/conf/eth-br0/forwarding", "0")
    (finding,) = found(sim)
    assert "eth-br0.forwarding is 0" in finding.text and "accept_ra=2" in finding.remedy


def test_others_are_not_looked_at(sim: Sim) -> None:
    sim.up(nic("bridged", IP="10.0.0.5"))
    assert found(sim) == []
