"""Bring what a registry says of a network through a real agent to a real DHCP client."""

from __future__ import annotations

from pathlib import Path

from netregistry.client import Client as Registry
from tests.kernel.agent.test_registry import item, registry
from tests.kernel.test_dhcp import MAC, UUID, Client, client, up
from tests.kernel.test_doors_parallel import environment
from tests.support.agent import agent
from tests.support.node import Node
from tests.support.rundoor import rundoor
from tests.support.sample import FULL
from tests.support.service import Served

__all__ = ["client", "registry"]  # fixtures

BLUE = "b1b1b1b1-0667-415f-9a43-786dc01cbf24"
CHANGES = 20 if FULL else 4
OTHER = environment(1, MODE="bridged", LINK="br0", IP="")


def told(guest: Client, resolver: str, route: str) -> bool:
    """Tell whether the guest is told so when it renews its lease."""
    found = guest.renewed()
    return found.get("dns") == resolver and route in found.get("staticroutes", "")


def record(uuid: str) -> tuple[bytes, int]:
    path = Path(f"/run/netcommon/nics/{uuid}.json")
    return path.read_bytes(), path.stat().st_mtime_ns


def test_a_resolver_and_a_route_reach_a_guest_that_runs(node: Node, client: Client, registry: Served) -> None:
    """By one request, in the answer to the guest's next question; a guest that is not in the network is not touched."""
    operator: Registry = registry.client()
    operator.change("POST", "networks", {"uuid": BLUE, "name": "blue", "subnet": "10.0.0.0/24", "resolvers": ["10.0.0.60"]})
    importer = registry.client("importer:gnt.example.com")
    importer.change("POST", "nics", {"uuid": UUID, "instance": "web1", "index": 0, "mac": MAC, "ip": "10.0.0.5", "network": BLUE})
    node.tap("tap1")
    took = []
    with agent() as running:
        assert up(NETWORK_UUID=BLUE).status == 0 and rundoor("kvm-ifup", OTHER).status == 0
        client.start()
        client.lease()
        running.took(lambda: item(operator, UUID)["shown"]["applied"] == item(operator, UUID)["revision"], 20, "the node is in step")
        before = record(OTHER["INTERFACE_UUID"])
        for number in range(CHANGES):
            resolver, route = f"10.0.0.{70 + number}", f"10.{number + 2}.0.0/16"
            said = {"resolvers": [resolver], "routes": [{"prefix": route, "via": "10.0.0.253"}]}
            operator.change("PATCH", f"networks/{BLUE}", said)
            took.append(running.took(lambda: told(client, resolver, route), 20, "the guest is told"))  # noqa: B023 # it is called at once
        assert record(OTHER["INTERFACE_UUID"]) == before, "nothing of the other guest was touched"
    print(f"{CHANGES} changes of a network, told to its guest after {sorted(took)[len(took) // 2]:.2f} s, at most {max(took):.2f} s")
    assert max(took) < 4
