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
    depth: Literal["tree", "namespace"]
    ganeti: Literal["ganeti-3.0", "ganeti-3.2"]  #: how its hypervisor calls the hooks
    ganeti_hook: bool  #: Ganeti's own hook is installed
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
    depth: Literal["tree", "namespace"]
    ganeti: Literal["ganeti-3.0", "ganeti-3.2"]  #: how its hypervisor calls the hooks
    ganeti_hook: bool  #: Ganeti's own hook is installed
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


class InstanceNic(NamedTuple):
    """Say how a NIC of an instance is."""

    uuid: str
    index_: int
    mac: str  #: as it is wanted, as are all up to vlan
    ip: str
    mode: str
    link: str
    vlan: str
    tap: str  #: its device, "" while it has none
    shown: str  #: its state, by the registry; "gone": the registry does not want it any more


class MockInstance(NamedTuple):
    """Say how an instance is."""

    uuid: str
    name: str
    node: str  #: the hostname of the node that has it
    state: Literal["making", "stopped", "rebooting", "running", "incoming", "crashed", "deleting"]
    pid: int  #: of its process on the simulated node; 0 for none
    nics: tuple[InstanceNic, ...]


class MockcloudInstances(NamedTuple):
    """Say how instances are, all of them or those that something was done to."""

    instances: tuple[MockInstance, ...]
    refused: tuple[str, ...]  #: why files of others are left alone


class MockcloudNetwork(NamedTuple):
    """Say what a network is, as the registry has it (docs/reference/registry-api.md)."""

    network: Mapping[str, Any]


class NicTags(NamedTuple):
    """Say which NIC tags a node should provide."""

    uuid: str
    hostname: str
    provides: tuple[str, ...]
    missing: tuple[str, ...]  #: those that it does not, as far as its agent has said


class MockcloudNictags(NamedTuple):
    """Say which NIC tags nodes should provide."""

    nodes: tuple[NicTags, ...]
    refused: tuple[str, ...]  #: why folders of others are left alone


class Outcome(NamedTuple):
    """Say what a run did to instances, or let go wrong, or what came of it."""

    at: float  #: seconds after the beginning
    text: str


class Violation(NamedTuple):
    """Say what must not be."""

    at: float  #: seconds after the beginning
    when: Literal["always", "commit", "error", "quiet", "settled", "end"]  #: never; in a commit; unforeseen; told; quiet; over
    text: str


class MockcloudRun(NamedTuple):
    """Say what a scenario, or a fault, came to."""

    seed: int
    sha256: str  #: of the log
    lines: int  #: of the log
    seconds: float  #: by the virtual clock
    actions: int  #: of nodes
    outcomes: tuple[Outcome, ...]
    violations: tuple[Violation, ...]


class Explored(NamedTuple):
    """Say what a seed violates."""

    seed: int
    steps: int  #: of the shrunk scenario
    runs: int  #: that it took to shrink it
    violations: tuple[Violation, ...]  #: of the shrunk scenario
    scenario: str  #: the file, for mockcloud run --seed


class MockcloudExplore(NamedTuple):
    """Say what a search for faults has found."""

    seeds: int  #: that were tried
    first: int  #: of them
    found: tuple[Explored, ...]


FAULTS = (
    "partition",
    "slow",
    "copies",
    "events",
    "hook",
    "agent",
    "node",
    "clock",
    "disk",
    "older",
    "registry",
    "etcd",
    "backup",
    "restore",
)

INSTANCE = ("list", "create", "start", "stop", "reboot", "crash", "delete", "migrate", "failover", "plug", "unplug", "update", "change")

DOCUMENTS: dict[str, tuple[int, type, tuple[str, ...]]] = {
    "mockcloud-nodes": (1, MockcloudNodes, ("create", "delete", "list", "nics")),
    "mockcloud-count": (1, MockcloudCount, ("count",)),
    "mockcloud-instances": (1, MockcloudInstances, tuple(f"instance {command}" for command in INSTANCE)),
    "mockcloud-network": (1, MockcloudNetwork, ("network",)),
    "mockcloud-nictags": (1, MockcloudNictags, ("nictags",)),
    "mockcloud-explore": (1, MockcloudExplore, ("explore",)),
    "mockcloud-run": (1, MockcloudRun, ("run", *(f"fault {name}" for name in FAULTS))),
    "mockcloud-status": (1, MockcloudStatus, ("status",)),
}
