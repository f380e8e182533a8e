"""The documents that mockcloud's commands print about a cloud, with --json, as types: packaging/make-schemas makes docs/schemas of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple


class ExternalNic(NamedTuple):
    """Say what NIC of its own a node has in a network."""

    name: str  #: of the network, and of the device
    mac: str
    address: str


class MockNode(NamedTuple):
    """Say what one simulated node is."""

    number: int
    uuid: str
    hostname: str
    profile: str
    system_type: Literal["Virtual"]
    mac: str  #: of its admin NIC
    address: str  #: of its admin NIC
    external: tuple[ExternalNic, ...]
    running: bool  #: its agent runs in this command
    alive: bool  #: by the registry, now by the virtual clock


class MockcloudNodes(NamedTuple):
    """Say which nodes there are, or which were made, changed or deleted."""

    nodes: tuple[MockNode, ...]
    refused: tuple[str, ...]  #: why folders of others are left alone


class MockcloudCount(NamedTuple):
    """Say how many nodes there are."""

    nodes: int
    running: int  #: with an agent that runs in this command
    alive: int  #: by the registry
    refused: int
    why: tuple[str, ...]  #: they are left alone


class NodeStatus(NamedTuple):
    """Say how the agent of a simulated node stands."""

    number: int
    uuid: str
    hostname: str
    profile: str
    system_type: Literal["Virtual"]
    mac: str
    address: str
    external: tuple[ExternalNic, ...]
    running: bool
    alive: bool
    agent: Mapping[str, Any]  #: as netcommon agent status has it


class MockcloudStatus(NamedTuple):
    """Say how nodes stand after their agents have run for a while."""

    now: float  #: seconds since the epoch, by the virtual clock
    nodes: tuple[NodeStatus, ...]
    refused: tuple[str, ...]  #: why folders of others are left alone


DOCUMENTS: dict[str, tuple[int, type, tuple[str, ...]]] = {
    "mockcloud-nodes": (1, MockcloudNodes, ("create", "delete", "list", "nics")),
    "mockcloud-count": (1, MockcloudCount, ("count",)),
    "mockcloud-status": (1, MockcloudStatus, ("status",)),
}
