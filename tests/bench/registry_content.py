"""Give what a registry of a size holds: networks, nodes, NICs and reports, the same each time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

NICS_OF_A_NODE, NICS_OF_A_NETWORK = 50, 100
CLUSTERS = 4


class Size(NamedTuple):
    """Say how much there is. ``hosts``: nodes; 0 for one for each fifty NICs."""

    nics: int
    hosts: int = 0

    @property
    def networks(self) -> int:
        return self.nics // NICS_OF_A_NETWORK

    @property
    def nodes(self) -> int:
        return self.hosts or self.nics // NICS_OF_A_NODE


def uuid(kind: int, number: int) -> str:
    return f"{number:08x}-{kind:04x}-4000-8000-000000000000"


def cluster(node: int) -> str:
    return f"c{node % CLUSTERS}.example.com"


def mac(number: int) -> str:
    return "aa:00:" + ":".join(f"{each:02x}" for each in number.to_bytes(4, "big"))


def lines(size: Size) -> Iterator[dict[str, Any]]:
    """Give an export of so much: every hundredth NIC has options of its own."""
    yield {"kind": "registry", "value": {"version": 1}}
    for number in range(size.networks):
        subnet = f"10.{number >> 8}.{number & 255}.0/24"
        yield {"kind": "network", "value": {"uuid": uuid(1, number), "name": f"net{number}", "subnet": subnet}}
    for number in range(size.nodes):
        yield {"kind": "node", "value": {"uuid": uuid(2, number), "name": f"node{number}", "cluster": cluster(number)}}
    for number in range(size.nics):
        network, host = number % size.networks, number // size.networks + 10
        value = {"uuid": uuid(3, number), "cluster": cluster(number % size.nodes), "instance": f"vm{number}", "index": 0}
        value |= {"mac": mac(number), "ip": f"10.{network >> 8}.{network & 255}.{host}", "network": uuid(1, network)}
        yield {"kind": "nic", "value": value | ({"options": [{"name": "rate_in", "value": "8mbit"}]} if number % 100 == 0 else {})}


def reports(size: Size, node: int) -> list[dict[str, Any]]:
    """Give what a node reports: each of its NICs is running."""
    return [{"nic": uuid(3, number), "state": "running"} for number in range(node, size.nics, size.nodes)]
