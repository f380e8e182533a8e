"""Check that nothing may be left on a node of NICs that are gone, and that a plan's own refusal is no excuse."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from mockcloud.cloud import MockCloud
from mockcloud.instances.table import perform
from mockcloud.invariants import fitting as wrong
from mockcloud.sysinfo import node_uuid
from netcommon.host.api.facts import AF_INET6, Neighbour
from tests.support.killing_steps import opened

FIRST = node_uuid(1)
NICS = [
    {"network": "blue"},
    {"network": "blue", "mode": "routed", "link": "guests"},
    {"network": "blue", "mode": "openvswitch", "link": "ovs0"},
]
OPTIONS = {"blackhole": "true", "gateway_arp": "true"}
WALLED = {"node_access": "icmp,tcp/80", "firewall": "limited"}
LEFT = (
    "the set gateways of netcommon-arp has the device 101, which is nobody's",
    "the set nics of netcommon-access has the device 100, which is nobody's",
    "the set services of netcommon-access has the device 101, which is nobody's",
    "the set ping of netcommon-access-bridge has the device 100, which is nobody's",
    "the set own of netcommon-delivery has the device 100, which is nobody's",
    "a rule leads what comes in by tap1, which is nobody's, to table 100",
    "192.0.2.2/32 in table 100 leads nowhere, for no NIC that is to have that",
    "the node answers for 2001:db8::7, which is no address of a NIC that is to have that",
)


@pytest.fixture
def cloud(tmp_path: Path) -> Iterator[MockCloud]:
    """Make a cloud of one node with Open vSwitch."""
    with opened(tmp_path / "cloud") as made:
        made.create(1, profile="switched")
        made.network("blue", {"subnet": "192.0.2.0/24", "gateway": "192.0.2.254"})
        made.ready([FIRST], 20.0)
        yield made


def test_what_a_guest_that_is_gone_had_is_seen(cloud: MockCloud) -> None:
    perform(cloud, "create", {"name": "web1", "node": "mock1", "nics": NICS, "start": True})
    for index in (0, 1):
        perform(cloud, "change", {"name": "web1", "index": index, "options": {**OPTIONS, **WALLED}})
    assert wrong(cloud) == []
    host = cloud.nodes[FIRST].host
    rules, routes, elements = host.kernel.rules[:], host.kernel.routes[:], {}
    tables, ports = {place: table.copy() for place, table in host.nftables.tables.items()}, dict(host.switch._ports)
    for place, table in tables.items():
        elements[place] = dict(table.elements)
    perform(cloud, "delete", {"name": "web1"})
    cloud.scheduler.passes(1.0)
    assert wrong(cloud) == []
    host.kernel.rules[:], host.nftables.tables, host.switch._ports = rules, tables, ports
    host.kernel.routes[:] = [route for route in routes if route.type == 6]
    eth0 = host.kernel.named("eth0")
    assert eth0 is not None
    host.kernel.neighbours.append(Neighbour(AF_INET6, "2001:db8::7", eth0.index))
    found = {text.partition(": ")[2] for text in wrong(cloud)}
    assert set(LEFT) <= found, found
    assert any(text.startswith("Open vSwitch has the port tap2 of NIC ") for text in found), found
