"""A real agent of a node that has joined a registry: what the kernel has is reported, and becomes what is wanted."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from netagent.observe.control import ask
from netregistry.client import SOCKET, Client
from runtime import definitions
from runtime.environment import nic_from_environment
from runtime.membership import Membership, write
from runtime.paths import Paths
from tests.kernel.test_doors_parallel import environment
from tests.support.agent import agent, watched
from tests.support.bootstrap import VENV
from tests.support.ganeti_configuration import CLUSTER, NETWORKS, NICS, Cluster, GanetiNode
from tests.support.netns import run
from tests.support.node import Node
from tests.support.registry import NODES
from tests.support.rundoor import rundoor
from tests.support.service import Served, served

SETTINGS = "[registry]\ncompare_delay = 1\n"


@pytest.fixture
def registry(node: Node) -> Iterator[Served]:
    """A registry that is served where it usually is, and this node, which has joined it."""
    folder = Path(SOCKET).parent
    folder.mkdir(parents=True, exist_ok=True)
    write(Paths(), Membership(NODES[0], "node0"))
    with served(folder) as found:
        found.join(0)
        yield found


def item(client: Client, uuid: str) -> dict[str, Any]:
    found = [each for each in client.all("nics") if each["nic"]["uuid"] == uuid]
    return found[0] if found else {"shown": {"state": "", "applied": ""}, "revision": "?"}


def isolated(device: str) -> bool:
    return "isolated on" in run("bridge", "-d", "link", "show", "dev", device)


def status(node: Node) -> dict[str, Any]:
    from netcommon.host.linux.host import LinuxHost

    with_host = LinuxHost(Paths(), clock=time.monotonic)
    try:
        return ask(Paths().state, with_host.identity().netns)
    finally:
        with_host.close()


def test_a_nic_from_its_up_to_its_end(node: Node, registry: Served) -> None:
    """Reported within 6 s, changed within 4 s, stopped within 6 s; a registry that stands still keeps no hook waiting."""
    run("ip", "link", "add", "br0", "type", "bridge")
    run("ip", "link", "set", "br0", "up")
    tap = node.tap()
    nic = environment(MODE="bridged", LINK="br0", IP="")
    uuid, client = nic["INTERFACE_UUID"], registry.client()
    definitions.write(Paths(), nic_from_environment(nic))  # this machine may have Ganeti, which would be the master of others
    with agent(settings=SETTINGS) as running:
        running.rested()
        assert rundoor("kvm-ifup", nic).status == 0
        took = running.took(lambda: item(client, uuid)["shown"]["state"] == "running", 20, "it is reported, and known")
        assert took < 6
        assert not isolated("tap0")
        client.change("PATCH", f"nics/{uuid}", {"options": [{"name": "isolated", "value": "yes"}]})
        changed = running.took(lambda: isolated("tap0"), 20, "what is wanted is in the kernel")
        assert changed < 4
        running.took(lambda: item(client, uuid)["shown"]["applied"] == item(client, uuid)["revision"], 20, "and reported")
        said = status(node)
        assert said["agent"]["registry"] == "in step" and said["alarms"] == {}
        running.restart()
        running.took(lambda: status(node)["agent"].get("registry") == "in step", 20, "a restarted agent is not taken for another one")
        tap.close()
        stopped = running.took(lambda: item(client, uuid)["shown"]["state"] == "stopped", 20, "its end is reported")
        assert stopped < 6
        print(f"registry: reported after {took:.2f} s, changed after {changed:.2f} s, stopped after {stopped:.2f} s")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL], ids=["stopped", "killed"])
def test_a_restart_writes_nothing_where_nothing_has_changed(node: Node, registry: Served, number: int) -> None:
    """But its signs of life: also when the comparison at its start is over, which comes after a second here."""
    run("ip", "link", "add", "br0", "type", "bridge")
    node.tap()
    nic = environment(MODE="bridged", LINK="br0", IP="")
    uuid, client = nic["INTERFACE_UUID"], registry.client()
    definitions.write(Paths(), nic_from_environment(nic))

    def written() -> dict[str, int]:
        items = registry.store.list("").items
        return {each.key: each.revision for each in items if each.key.partition("/")[0] not in ("alive", "gone", "leader", "clock")}

    def rests() -> bool:
        said = status(node)["agent"]
        return said["registry"] == "in step" and said["registry marks"] == said["registry jobs"] == 0

    with agent(settings=SETTINGS) as running:
        running.rested()
        assert rundoor("kvm-ifup", nic).status == 0
        running.took(lambda: item(client, uuid)["shown"]["state"] == "running" and rests(), 20, "it is reported, and known")
        running.took(lambda: item(client, uuid)["shown"]["applied"] == item(client, uuid)["revision"], 20, "and what is in force, too")
        running.lasts(3.0)  # nothing is on its way any more
        before = written()
        running.restart(number)
        running.took(rests, 20, "it is in step")
        running.rested()
        running.lasts(5.0)  # the comparison is over, and what it would write is written by then
        assert rests() and written() == before


def test_a_node_that_has_not_joined_asks_nobody(node: Node) -> None:
    with agent(settings=SETTINGS) as running:
        assert "registry" not in status(node)["agent"]
        write(Paths(), Membership(NODES[0], "node0"))
        running.signal(signal.SIGHUP)
        running.took(lambda: "away" in str(status(node)["agent"].get("registry")), 10, "it has joined, and nobody answers")
        assert status(node)["alarms"] == {}


def test_a_tag_of_ganeti_reaches_a_guest_that_runs(node: Node, registry: Served, tmp_path: Path) -> None:
    """Of its instance, and of its network: from config.data by the importer, the registry and the agent into the kernel, within 4 s."""
    node.bridge("br0")
    node.tap()
    registry.client().change("PATCH", f"nodes/{NODES[0]}", {"cluster": CLUSTER})
    ganeti, cluster = GanetiNode(tmp_path), Cluster()
    cluster.network(NETWORKS[0], "blue")
    cluster.nic(NICS[1], "aa:00:00:00:00:01", network=NETWORKS[0], ip="192.0.2.7")
    nic = environment(MODE="bridged", LINK="br0", IP="192.0.2.7", INSTANCE="web1.example.com", MAC="aa:00:00:00:00:01")
    nic |= {"INTERFACE_UUID": NICS[1], "NETWORK_NAME": "blue", "NETWORK_UUID": NETWORKS[0], "NETWORK_SUBNET": "192.0.2.0/24"}
    (tmp_path / "run").mkdir(exist_ok=True)
    (tmp_path / "run/netregistry").symlink_to(Path(SOCKET).parent)
    ganeti.start()
    try:
        imported(tmp_path, ganeti, cluster)
        with agent(settings=SETTINGS) as running, watched() as seen:
            assert rundoor("kvm-ifup", nic).status == 0
            running.took(
                lambda: seen.records["tap0"].nic.revision and seen.records["tap0"].nic.told, 20, "it is reported, and both are told"
            )
            instance, network = cluster.instance("web1.example.com"), cluster.document["networks"][NETWORKS[0]]
            for place, tag in ((instance, "netcommon:0:isolated:yes"), (network, "netcommon:isolated:yes")):
                for tags in ([tag, "a"], []):
                    place["tags"] = tags
                    cluster.changed()
                    imported(tmp_path, ganeti, cluster)
                    took = running.took(lambda tags=tags: isolated("tap0") == bool(tags), 20, "the kernel has it")  # type: ignore[misc]
                    assert took < 4
            record = seen.records["tap0"]
            assert (record.nic.tags, record.nic.network.tags, seen.drift()) == ((), (), [])
            running.took(lambda: status(node)["agent"].get("registry") == "in step", 20, "nothing is left to be told")
    finally:
        ganeti.stop()


def imported(root: Path, ganeti: GanetiNode, cluster: Cluster) -> None:
    """Let the cluster's importer tell the registry what Ganeti has written."""
    ganeti.write(cluster)
    run(str(VENV / "bin/netcommon"), "--root", str(root), "registry", "import", "--ganeti")
