"""The networks of the spoof guard's tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.kernel.guard import networks, paths
from tests.support.node import Node
from tests.support.ovs import OpenVswitch


@pytest.fixture
def network(node: Node, request: pytest.FixtureRequest) -> Iterator[paths.Network]:
    """The network of a mode (the parameter)."""
    if request.param == "openvswitch":
        with OpenVswitch.started() as ovs:
            made = networks.openvswitch(node, ovs)
            yield made
            made.close()
        return
    made = networks.bridged(node) if request.param == "bridged" else networks.routed(node)
    yield made
    made.close()
