"""Fixtures of the machine's tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.fuzz import place as places
from tests.support.fuzz.place import Place
from tests.support.node import Node
from tests.support.ovs import OpenVswitch


@pytest.fixture
def switched(node: Node) -> Iterator[Place]:
    """A guest and others on Open vSwitch's kernel datapath."""
    with OpenVswitch.started("system") as ovs:
        found = places.openvswitch(node, ovs)
        yield found
        found.close()
