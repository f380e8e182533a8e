"""Faults on mock nodes with the running kernel: all of them strike and heal, but for lost events, which that kernel does not have."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mockcloud.cloud import MockCloud
from mockcloud.instances.table import perform
from mockcloud.invariants import fitting
from mockcloud.namespace.host import NamespaceHost
from mockcloud.scenarios.faults import FAULTS
from mockcloud.scenarios.file import Step
from mockcloud.scenarios.running import strike
from mockcloud.sysinfo import NAMESPACE, node_uuid
from runtime.errors import HostRefused
from tests.support.instance_history import PAIR, prepare
from tests.support.sample import FULL

pytestmark = pytest.mark.no_agent("the nodes have agents of their own")
FIRST, SECOND = node_uuid(1), node_uuid(2)
REFUSED = "events"
GIVEN: dict[str, dict[str, Any]] = {"agent": {"point": "worked"}, "hook": {"request": 3}, "slow": {"seconds": 2.0}}
#: Of both NICs: what means nothing in a mode does nothing there.
OPTIONS = {
    "rate_in": "8mbit",
    "node_access": "icmp,tcp/80",
    "link_local": "eui64",
    "prefixes": "198.51.100.{index}0/32,203.0.113.{index}0/31",
    "tap_mac": "fe:00:00:00:00:01",
    "rp_filter": "loose",
    "accept_local": "true",
    "blackhole": "true",
    "gateway_arp": "true",
    "static_fdb": "true",
    "mcast_to_unicast": "true",
    "dhcp": "dnsmasq",
}
EACH = [name for name in FAULTS if name not in (REFUSED, "backup", "etcd", "names")]  # without an underlay there is no name server


@pytest.fixture
def cloud(tmp_path: Path) -> Iterator[MockCloud]:
    made = MockCloud(str(tmp_path / "cloud"), depth=NAMESPACE)
    try:
        prepare(made, 2)
        perform(made, "create", {"name": "web1", "node": "mock1", "nics": list(PAIR), "start": True})
        made.ready([FIRST, SECOND], 30.0)
        for index in range(len(PAIR)):
            given = {name: value.format(index=index + 1) for name, value in OPTIONS.items()}
            given |= {"firewall": "limited"} if "mode" in PAIR[index] else {}  # not every kernel tracks connections of bridges
            perform(made, "change", {"name": "web1", "index": index, "options": given})
        assert fitting(made) == []
        yield made
    finally:
        made.close()


@pytest.mark.parametrize("name", EACH if FULL else ["node", "agent", "disk", "partition"])
def test_a_fault_strikes_and_heals(cloud: MockCloud, name: str) -> None:
    """A guest migrates meanwhile, and is started when its node has crashed."""
    tasks = Step("migrate", at=2.0, given={"name": "web1", "node": "mock2", "blind": True}), Step("start", at=4.0, given={"name": "web1"})
    found = strike(cloud, [Step("backup"), Step(name, at=1.0, given=GIVEN.get(name, {}), lasts=10.0), *tasks], 1, 400.0)
    assert found.violations == (), found.outcomes
    fault, texts = FAULTS[name], [each.text for each in found.outcomes]
    for where in ("mock1", "mock2") if fault.of_node else ("the registry",):
        assert any(each.startswith(f"{name} of {where}") for each in texts), texts
        assert fault.ends is None or f"{name} of {where} is over" in texts
    assert not [each for each in texts if each.startswith(f"{name} of ") and " cannot " in each]
    assert all(isinstance(node.machine, NamespaceHost) for node in cloud.nodes.values())
    perform(cloud, "start", {"name": "web1"})
    assert fitting(cloud) == []


def test_lost_events_are_refused_by_the_nodes_name(cloud: MockCloud) -> None:
    with pytest.raises(HostRefused, match="mock1 hears the running kernel, which loses no event: a node of depth tree"):
        strike(cloud, [Step(REFUSED)], 1, 1.0)
