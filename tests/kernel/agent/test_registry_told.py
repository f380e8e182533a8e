"""See what a real agent tells its registry beside ups and downs: what there is on the node, drift, and nothing that it cannot know."""

from __future__ import annotations

import shutil
import signal
import statistics
import time
from pathlib import Path
from typing import Any

from runtime import definitions
from runtime.environment import nic_from_environment
from runtime.membership import Membership, write
from runtime.paths import Paths
from tests.kernel.agent.test_registry import item, registry, status
from tests.kernel.test_doors_parallel import environment
from tests.support.agent import agent
from tests.support.netns import run, slowness
from tests.support.node import Node
from tests.support.registry import NODES
from tests.support.registry_process import Registry
from tests.support.rundoor import rundoor
from tests.support.service import Served

__all__ = ["registry"]  # a fixture
SETTINGS = "[registry]\ncompare_delay = 3600\n"


def about(registry: Served) -> dict[str, Any]:
    """Give what the registry has been told of this node."""
    said: dict[str, Any] = registry.client().get(f"nodes/{NODES[0]}").body
    return said


def test_what_there_is_on_the_node_and_what_should_be(node: Node, registry: Served) -> None:
    """Bridges, hardware, addresses and tables as they come and go, by events; what should be there and is not is an alarm."""
    client = registry.client()
    client.change("PATCH", f"nodes/{NODES[0]}", {"provides": ["blue"]})
    with agent(settings=SETTINGS) as running:
        running.took(lambda: about(registry)["missing"] == ["blue"], 20, "what is missing is known")
        running.took(lambda: "blue" in status(node)["alarms"].get("registry-provides", ""), 20, "there is an alarm")
        node.bridge("blue")
        node.outside("up0", "192.0.2.1/24")
        node.address("up0", "192.0.2.2/24")
        run("ip", "rule", "add", "from", "192.0.2.99", "table", "77")
        took = running.took(lambda: about(registry)["missing"] == [], 20, "what came is told")
        running.took(lambda: "registry-provides" not in status(node)["alarms"], 20, "the alarm is over")

        def told() -> bool:
            said = about(registry)["about"]
            return "blue" in said["bridges"] and "192.0.2.2" in said["addresses"] and "77" in said["tables"]

        running.took(told, 20, "all of it")
        run("ip", "link", "del", "blue")
        running.took(lambda: about(registry)["missing"] == ["blue"], 20, "what went is told")
        assert took < 6, took


def test_drift_is_told(node: Node, registry: Served) -> None:
    """Where nothing is repaired the registry says what does not hold of a NIC; and that it holds again."""
    node.router()
    node.tap("tap0")
    nic = environment(MODE="routed", LINK="main", IP="192.0.2.77")
    uuid, client = nic["INTERFACE_UUID"], registry.client()
    definitions.write(Paths(), nic_from_environment(nic))

    def drift() -> list[str]:
        found = [each["report"] for each in client.all("reports", node=NODES[0]) if each["report"]["nic"] == uuid]
        return list(found[0]["drift"]) if found else ["?"]

    with agent(settings=f'{SETTINGS}[repair]\nroute = "report"\n') as running:
        running.rested()
        assert rundoor("kvm-ifup", nic).status == 0
        running.took(lambda: item(client, uuid)["shown"]["applied"] == item(client, uuid)["revision"], 20, "it is as the registry wants")
        assert drift() == []
        run("ip", "route", "del", "192.0.2.77", "dev", "tap0")
        took = running.took(lambda: "route" in drift(), 20, "the drift is reported")
        assert rundoor("kvm-ifup", nic).status == 0
        running.took(lambda: drift() == [], 20, "it is over")
        assert took < 6, took
        assert item(client, uuid)["shown"]["state"] == "running"


def test_a_guest_of_ganeti_is_incoming_until_its_runtime_file_is_there(node: Node, registry: Served) -> None:
    """A bridged NIC that owes its guest nothing is told as incoming too: on a migration's target Ganeti writes that file last."""
    conf = Path(f"{Paths().kvm_run}/conf")
    conf.mkdir(parents=True)
    node.bridge("br0")
    node.tap("tap0")
    nic = environment(MODE="bridged", LINK="br0", IP="")
    uuid, client = nic["INTERFACE_UUID"], registry.client()

    def state() -> str:
        found = [each["report"]["state"] for each in client.all("reports", node=NODES[0]) if each["report"]["nic"] == uuid]
        return found[0] if found else ""

    with agent(settings=SETTINGS) as running:
        running.rested()
        assert rundoor("kvm-ifup", nic).status == 0
        running.took(lambda: state() != "", 20, "it is told")
        assert state() == "incoming"
        (conf / "new").write_text("[[], [], {}, []]")
        (conf / "new").rename(conf / f"{nic['INSTANCE']}.runtime")
        took = running.took(lambda: state() == "running", 20, "its guest is told to be here")
        assert took < 6, took


def test_a_guest_that_came_before_ganeti_s_folder_was_watched_is_told_by_the_next_resync(node: Node, registry: Served) -> None:
    """After a boot the agent may start before Ganeti, which makes its folders then."""
    node.bridge("br0")
    node.tap("tap0")
    nic = environment(MODE="bridged", LINK="br0", IP="")
    uuid, client = nic["INTERFACE_UUID"], registry.client()

    def state() -> str:
        found = [each["report"]["state"] for each in client.all("reports", node=NODES[0]) if each["report"]["nic"] == uuid]
        return found[0] if found else ""

    with agent(settings="[registry]\ncompare_delay = 3600\n[agent]\nresync = 15\n") as running:
        running.rested()
        conf = Path(f"{Paths().kvm_run}/conf")
        conf.mkdir(parents=True)
        assert rundoor("kvm-ifup", nic).status == 0
        running.took(lambda: state() != "", 20, "it is told")
        assert state() == "incoming"
        (conf / "new").write_text("[[], [], {}, []]")
        (conf / "new").rename(conf / f"{nic['INSTANCE']}.runtime")
        running.took(lambda: state() == "running", 40, "its guest is told to be here")


def test_run_that_was_unmounted_takes_nothing_away(node: Node, registry: Served) -> None:
    """Nothing can be told of what is on the node: there is an alarm, and not one NIC goes from the registry."""
    node.bridge("br0")
    nics = [environment(number, MODE="bridged", LINK="br0", IP="") for number in range(3)]
    for nic in nics:
        definitions.write(Paths(), nic_from_environment(nic))
    node.tap("tap0")
    client = registry.client()
    settings = "[registry]\ncompare_delay = 1\ncompare_interval = 60\n"
    with agent(settings=settings) as running:
        running.rested()
        assert rundoor("kvm-ifup", nics[0]).status == 0
        running.took(lambda: len(list(client.all("nics"))) == 3, 30, "all are known")
        running.took(lambda: item(client, nics[0]["INTERFACE_UUID"])["shown"]["state"] == "running", 20, "one is up")
        running.stop(signal.SIGKILL)
        shutil.rmtree("/run/netcommon")
        before = sorted(each["nic"]["uuid"] for each in client.all("nics"))
        running.start()
        running.took(lambda: "registry-inventory" in status(node)["alarms"], 30, "there is an alarm")
        running.took(lambda: running.status()["agent"]["registry"] == "in step", 60, "its lease of before has ended")
        assert sorted(each["nic"]["uuid"] for each in client.all("nics")) == before
        said = [
            each["report"]["state"] for each in client.all("reports", node=NODES[0]) if each["report"]["nic"] == nics[0]["INTERFACE_UUID"]
        ]
        assert said == ["running"], "nobody knows that it has stopped"


def test_a_registry_that_stands_still_keeps_no_hook_waiting(node: Node, tmp_path: Path) -> None:
    """It takes requests and answers none; ups and downs take what they took, and when it goes on it is told of them."""
    node.bridge("br0")
    made = Registry(tmp_path)
    made.start()
    try:
        made.here()
        with made.client() as asked:
            asked.change("POST", "nodes", {"uuid": NODES[0], "name": "node0"})
        write(Paths(), Membership(NODES[0], "node0"))
        nic = environment(MODE="bridged", LINK="br0", IP="")
        took: dict[bool, list[float]] = {False: [], True: []}
        with agent(settings=SETTINGS) as running:
            running.took(lambda: running.status()["agent"]["registry"] == "in step", 20, "it is in step")
            for frozen in (False, True, False, True):
                made.signal(signal.SIGSTOP if frozen else signal.SIGCONT)
                for _ in range(10):
                    tap = node.tap("tap0")
                    begun = time.monotonic()
                    assert rundoor("kvm-ifup", nic).status == 0 and rundoor("kvm-ifdown", nic).status == 0
                    took[frozen].append(time.monotonic() - begun)
                    tap.close()
            node.tap("tap0")
            assert rundoor("kvm-ifup", nic).status == 0
            made.signal(signal.SIGCONT)

            def state() -> list[str]:
                with made.client() as asked:
                    return [item["report"]["state"] for item in asked.all("reports", node=NODES[0])]

            running.took(lambda: state() == ["running"], 40, "it is told when it goes on")
        middle = {frozen: statistics.median(each) * 1e3 for frozen, each in took.items()}
        print(f"an up and a down: {middle[False]:.1f} ms, with a registry that stands still {middle[True]:.1f} ms")
        assert middle[True] < middle[False] * 1.5 + 20 and max(took[True]) < 2 * slowness()
    finally:
        made.kill()
