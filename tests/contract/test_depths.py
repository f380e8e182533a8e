"""The same instances on mock nodes of all depths: the same records on the nodes, the same operations, the same in the registry.

memory: one process all along. tree: another process goes on after each step, with nothing but the folders. namespace: the running kernel,
with a network namespace for each node; again: and another process after each step, which makes them anew.
"""

from __future__ import annotations

import json
import os
import re
import signal
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from mockcloud.cloud import MockCloud
from mockcloud.instances.tasks import Instances
from mockcloud.invariants import fitting as wrong
from mockcloud.namespace.host import NamespaceHost
from mockcloud.sysinfo import NAMESPACE, TREE, node_uuid
from tests.contract.differences import DEPTHS
from tests.support import sample
from tests.support.instance_history import COVERING, PAIR, Step, drawn, prepare
from tests.support.netns import ask, run, wait_until
from tests.support.sample import FULL

#: A depth, and whether another process goes on after each step.
WAYS = {"memory": (TREE, False), "tree": (TREE, True), "namespace": (NAMESPACE, False), "again": (NAMESPACE, True)}
NODES = 20 if FULL else 3
SEEDS = range(1, 1 + sample.drawn(1, 1, 3))
LENGTH = 30 if FULL else 12
BY_TIME = ("alive", "gone", "leader", "clock")
MAC = re.compile(r"[0-9a-f]{2}(:[0-9a-f]{2}){5}")
LEFT_OUT = (*BY_TIME, "history", "ledger")
#: Of what is said: when, and at which revision.
TIMES = frozenset(
    (
        "created",
        "monotonic",
        "since",
        "until",
        "made",
        "time",
        "joined",
        "revision",
        "applied",
        "request",
        "incarnation",
        "freed",
        "came",
        "settles",
    )
)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Hold the machine's own network against what it was before."""
    return tmp_path


@pytest.fixture(autouse=True)
def _machine_is_left_alone() -> Iterator[None]:
    before = machine()
    yield
    assert machine() == before


def machine() -> Any:
    """Give what this test's own namespace has, and the namespaces that have a name."""
    links = [(each["ifname"], each["flags"], each["address"]) for each in ask("ip", "-j", "link")]
    rules, names = ask("ip", "-j", "rule"), sorted(os.listdir("/run/netns")) if os.path.isdir("/run/netns") else []
    return links, rules, run("nft", "list", "ruleset"), names


def flat(value: Any, place: str = "") -> Iterator[tuple[str, Any]]:
    """Give all that is said, by its place; but for times and revisions."""
    if isinstance(value, dict):
        for name, each in value.items():
            if name not in TIMES:
                yield from flat(each, f"{place}/{name}")
    elif isinstance(value, list):
        yield place, len(value)
        for number, each in enumerate(value):
            yield from flat(each, f"{place}/{number}")
    else:
        yield place, value


def said(cloud: MockCloud) -> dict[str, Any]:
    """Give the records of all nodes, with their operations, and all that the registry has. MACs are by chance: each is named by its NIC,
    and one that is no NIC's was made up by the kernel, for a tap.
    """
    kept = (item for item in cloud.registry.registry.store.list("").items if item.key.partition("/")[0] not in LEFT_OUT)
    items = list(kept)
    macs = {json.loads(item.value)["mac"]: item.key for item in items if item.key.startswith("nics/")}

    def named(text: str) -> str:
        for mac, nic in macs.items():
            text = text.replace(mac[3:], nic)  # a tap has its guest's, but for the first octet
        return text

    found: dict[str, Any] = {}
    for path in sorted(Path(cloud.root, "servers").glob("*/run/netcommon/nics/*.json")):
        record = json.loads(MAC.sub("made up", named(path.read_text())))
        record["operations"] = {f"{place} {each['kind']}": each for place, each in enumerate(record["operations"])}
        found |= flat(record, f"record {path.parts[-5]}/{path.stem}")
    for item in items:
        value, kind = json.loads(named(item.value.decode())), item.key.partition("/")[0]
        freed = kind == "macs" and not value.get("holder")
        if not freed:
            found |= flat(value, named(item.key))
    return found


def passes(root: Path, way: str, steps: Sequence[Step], nodes: int) -> list[dict[str, Any]]:
    """Let a history happen; give what is said after each step, when all has come to rest."""
    depth, again = WAYS[way]
    cloud, found = MockCloud(str(root / way), depth=depth), []
    try:
        prepare(cloud, nodes)
        for step in steps:
            if again:
                cloud.close()
                cloud = MockCloud(str(root / way), depth=depth)
            step.work(Instances(cloud))
            cloud.start(30.0)
            deep = {isinstance(node.machine, NamespaceHost) for node in cloud.nodes.values()}
            assert cloud.failed == {} and deep == {depth == NAMESPACE}
            assert wrong(cloud) == [], f"{way}, after {step.words}"
            found.append(said(cloud))
    finally:
        cloud.close()
    return found


def differing(first: dict[str, Any], second: dict[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Give what differs and is not in the table."""
    found = {place: (first.get(place), second.get(place)) for place in first.keys() | second.keys()}
    return {
        place: both for place, both in found.items() if both[0] != both[1] and not any(re.fullmatch(row.place, place) for row in DEPTHS)
    }


@pytest.mark.parametrize("seed", [0, *SEEDS])
def test_all_depths_say_the_same(root: Path, seed: int) -> None:
    """Seed 0: every task there is."""
    steps, nodes = (drawn(seed, NODES, LENGTH), NODES) if seed else (COVERING, 3)
    memory = passes(root, "memory", steps, nodes)
    for way in ("tree", "namespace", "again") if FULL or not seed else ("again",):
        other = passes(root, way, steps, nodes)
        for step, first, second in zip(steps, memory, other, strict=True):
            found = differing(first, second)
            assert not found, f"{way}, after {step.words}: {json.dumps(sorted(found.items()), indent=1)[:5000]}"


# -- namespaces go


def probed(process: int, number: int, name: str) -> None:
    """Make a pair of devices, one here and one in a node's namespace: it goes when that goes."""
    run("ip", "link", "add", name, "type", "veth", "peer", "name", "probe", "netns", f"/proc/{process}/fd/{number}")


def gone(name: str) -> None:
    wait_until(lambda: not os.path.exists(f"/proc/sys/net/ipv4/conf/{name}"), 20, f"the namespace of {name} is gone")


def place(cloud: MockCloud, number: int) -> int:
    """Give the descriptor of a node's namespace."""
    host = cloud.nodes[node_uuid(number)].machine
    assert isinstance(host, NamespaceHost)
    return host.place.descriptor


def test_namespaces_go_with_their_nodes(root: Path) -> None:
    cloud = MockCloud(str(root / "cloud"), depth=NAMESPACE)
    try:
        cloud.create(2)
        cloud.start(5.0)
        for number in (1, 2):
            probed(os.getpid(), place(cloud, number), f"probe{number}")
        cloud.delete([node_uuid(1)])
        gone("probe1")
        assert os.path.exists("/proc/sys/net/ipv4/conf/probe2") and list(cloud.nodes) == [node_uuid(2)]
    finally:
        cloud.close()
    gone("probe2")


def test_namespaces_go_with_a_process_that_is_killed(root: Path) -> None:
    """And the next one makes them anew, as they were: with all that is in them, and nothing to tell the registry."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            cloud = MockCloud(str(root / "cloud"), depth=NAMESPACE)
            prepare(cloud, 2)
            Instances(cloud).create("web1", node_uuid(1), PAIR)
            Instances(cloud).start("web1")
            cloud.start(60.0)
            (root / "said").write_text(json.dumps([said(cloud), revisions(cloud)]))
            os.write(writing, bytes([place(cloud, 1), place(cloud, 2)]))
            signal.pause()
        finally:
            os._exit(1)
    os.close(writing)
    descriptors = os.read(reading, 2)
    os.close(reading)
    assert len(descriptors) == 2
    for number, descriptor in enumerate(descriptors, 1):
        probed(child, descriptor, f"probe{number}")
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    gone("probe1")
    gone("probe2")
    before = json.loads((root / "said").read_text())
    cloud = MockCloud(str(root / "cloud"), seed=2)
    try:
        cloud.start(60.0)
        assert cloud.failed == {} and wrong(cloud) == []
        assert differing(before[0], said(cloud)) == {} and revisions(cloud) == before[1]
    finally:
        cloud.close()


def revisions(cloud: MockCloud) -> dict[str, int]:
    items = cloud.registry.registry.store.list("").items
    return {each.key: each.revision for each in items if each.key.partition("/")[0] not in BY_TIME}
