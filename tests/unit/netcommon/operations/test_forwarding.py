"""Where neighbours ask for a routed guest, and where a route leads them."""

from __future__ import annotations

from pathlib import Path

import pytest

from netcommon.host.api.facts import AF_INET6, Route
from netcommon.lifecycle.execute import decode
from netcommon.operations.forwarding import stopped
from tests.support.sim import Sim, nic


@pytest.mark.parametrize(
    ("destinations", "asked"), [(["fd00::/64"], True), (["::/0"], False), (["::/1", "8000::/1"], False)], ids=["network", "whole", "halves"]
)
def test_a_default_route_without_a_gateway_is_no_network_on_the_link(tmp_path: Path, destinations: list[str], asked: bool) -> None:
    sim = Sim(str(tmp_path))
    sim.up(nic("routed, IPv6"))
    for destination in destinations:
        sim.host.kernel.add_route(Route(AF_INET6, 254, destination, sim.index("eth-br0"), 3))
    (record,) = sim.records()
    sim.host.kernel.settings.write("net/ipv6/conf/eth-br0/forwarding", "0")
    found = [why for why, _remedy in stopped(sim.host.view(), record.device, decode(record)[0]) if "nobody answers there" in why]
    assert len(found) == asked
