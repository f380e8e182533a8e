"""Let the same happen on every node: NICs come up, somebody undoes parts of them by hand, and their taps vanish without a down.

python -m tests.support.storm NODES SEED prints the hash of what the nodes did. The same seed, the same hash.
"""

from __future__ import annotations

import hashlib
import sys
import tempfile
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial

from mockcloud.node import MockNode
from netcommon.host.api.facts import AF_INET, Rule
from netcommon.host.api.requests import SetLink
from runtime.nic import Nic
from tests.support import mock_nodes
from tests.support.mock_nodes import Cluster
from tests.support.sim import nic

MODES = ("bridged", "routed, table", "bridged", "routed, table", "bridged")  #: of the NICs of a node
RESYNC = 80.0  #: seconds in which every node has compared all that it has


def nics(number: int) -> list[Nic]:
    """Give the NICs of a node."""
    found = []
    for index, mode in enumerate(MODES):
        own = {
            "INTERFACE": f"tap{index}",
            "INSTANCE": f"web{index}",
            "MAC": f"aa:00:{number >> 8:02x}:{number & 255:02x}:00:{index:02x}",
            "INTERFACE_UUID": f"{number:08x}-{index:04x}-4111-8111-111111111111",
        }
        found.append(nic(mode, **own, **({"IP": f"10.0.0.{index + 10}"} if mode.startswith("routed") else {})))
    return found


def come_up(cluster: Cluster, seconds: float = 20.0) -> None:
    """Bring all NICs up."""
    actions: list[tuple[MockNode, Callable[[], object]]] = []
    for number, node in enumerate(cluster.nodes, 1):
        for one in nics(number):
            mock_nodes.tap(node, one.interface)
            actions.append((node, partial(mock_nodes.up, node, one)))
    cluster.each(seconds, actions)


def _without_rule(node: MockNode) -> None:
    node.host.kernel.delete_rule(Rule(AF_INET, 500, "tap1", 100))


def _without_bridge(node: MockNode) -> None:
    node.host.kernel.set_link(SetLink(_index(node, 0), master=0))


def _with_another_mac(node: MockNode) -> None:
    node.host.kernel.set_link(SetLink(_index(node, 2), address="fe:00:00:00:99:99"))


def _without_rules_of_nftables(node: MockNode) -> None:
    node.host.nftables.flush()


HARM = (_without_rule, _without_bridge, _with_another_mac, _without_rules_of_nftables)


def _index(node: MockNode, tap: int) -> int:
    link = node.host.kernel.named(f"tap{tap}")
    assert link is not None
    return link.index


def drift(cluster: Cluster, seconds: float = 20.0) -> None:
    """Let somebody do each node a harm, of which it is told, or is not; and let it pass until all have been compared."""
    chance, actions = cluster.scheduler.chance, list[tuple[MockNode, Callable[[], object]]]()
    for node in cluster.nodes:
        actions.append((node, partial(_harm, node, chance.choice(HARM), chance.random() < 0.5)))
    cluster.each(seconds, actions)
    cluster.scheduler.passes(RESYNC)


def _harm(node: MockNode, harm: Callable[[MockNode], None], told: bool) -> None:
    with nullcontext() if told else mock_nodes.deaf(node):
        harm(node)


def vanish(cluster: Cluster, seconds: float = 20.0) -> None:
    """Let the processes of all guests end, of which nobody calls a down."""
    taps = [f"tap{index}" for index in range(len(MODES))]
    cluster.each(seconds, [(node, partial(node.machine.let_go, tap)) for node in cluster.nodes for tap in taps])
    cluster.scheduler.passes(5.0)


def told(nodes: int, seed: int) -> list[str]:
    """Run all of it; give what was done, line by line."""
    with tempfile.TemporaryDirectory() as root:
        cluster = Cluster(root, nodes, seed)
        cluster.start()
        for part in (come_up, drift, vanish):
            part(cluster)
        cluster.close()
    return cluster.log


if __name__ == "__main__":
    print(hashlib.sha256("\n".join(told(int(sys.argv[1]), int(sys.argv[2]))).encode()).hexdigest())
