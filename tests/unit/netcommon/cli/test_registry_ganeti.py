"""netcommon registry import --ganeti, as an administrator types it on the master."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.cli import Cli
from tests.support.ganeti_configuration import CLUSTER, NETWORKS, NICS, Cluster, GanetiNode
from tests.support.importing import differences
from tests.support.service import Served, served

COMMAND = ("registry", "import", "--ganeti")


@pytest.fixture
def cli(tmp_path: Path) -> Cli:
    return Cli(tmp_path)


@pytest.fixture
def service(cli: Cli) -> Iterator[Served]:
    run = cli.root / "run/netregistry"
    run.mkdir(parents=True)
    cli("registry", "init")
    with served(run, store=_store(cli)) as found:
        yield found


def _store(cli: Cli) -> Any:
    from netregistry.stores.sqlite import SqliteStore

    return SqliteStore(str(cli.root / "var/lib/netregistry/registry.sqlite"))


@pytest.fixture
def node(cli: Cli) -> Iterator[GanetiNode]:
    found = GanetiNode(cli.root)
    found.start()
    yield found
    found.stop()


@pytest.fixture
def cluster(node: GanetiNode) -> Cluster:
    made = Cluster()
    made.network(NETWORKS[0], "blue")
    made.nic(NICS[0], network=NETWORKS[0], ip="192.0.2.9")
    made.nic(NICS[1])
    node.write(made)
    return made


def test_an_import_and_its_rehearsal(cli: Cli, service: Served, cluster: Cluster, node: GanetiNode) -> None:
    before = service.everything()
    assert "3 would be made, 0 would be changed, 0 would be deleted" in cli(*COMMAND, "--dry-run").stdout
    assert service.everything() == before
    assert "3 made" in cli(*COMMAND).stdout and differences(service, cluster) == []
    assert "0 made, 0 changed, 0 deleted, 0 refused" in cli(*COMMAND).stdout
    cluster.remove(NICS[1])
    cluster.instance("web1.example.com")["tags"] = ["a"]
    node.write(cluster)
    said = cli.json(*COMMAND, "--dry-run")
    assert (said["cluster"], said["changed"], said["deleted"], said["done"]) == (CLUSTER, 1, 1, False)
    begun = time.monotonic()
    said = cli.json(*COMMAND)
    assert (said["changed"], said["deleted"], said["done"]) == (1, 1, True) and time.monotonic() - begun >= 5
    assert differences(service, cluster) == []
    assert "importer gnt.example.com" in cli("registry", "history").stdout


def test_a_contradiction_shows(cli: Cli, service: Served, cluster: Cluster, node: GanetiNode) -> None:
    cli(*COMMAND)
    cli("registry", "nic", "add", "network=blue", "ip=192.0.2.20", "instance=other")
    cluster.nic(NICS[2], network=NETWORKS[0], ip="192.0.2.20")
    node.write(cluster)
    cli(*COMMAND)
    assert "192.0.2.20" in cli("registry", "conflicts").stdout
    states = {line.split()[1] for line in cli("registry", "nic", "list", "address=192.0.2.20").stdout.splitlines()[1:]}
    assert states == {"conflict"}


def test_what_the_registry_refuses_is_said(cli: Cli, service: Served, cluster: Cluster) -> None:
    service.client().change("POST", "nics", {"uuid": NICS[1], "instance": "somebody"})
    done = cli(*COMMAND, status=69)
    assert f"{NICS[1]}: NIC web1.example.com/1: there is a NIC" in done.stderr and "2 made, 0 changed, 0 deleted, 1 refused" in done.stdout
    assert "1 would be refused" in cli(*COMMAND, "--dry-run", status=69).stdout


@pytest.mark.parametrize(
    ("text", "said"), [("", "not whole"), ("{}", "version"), ('{"version": 3000000}', "cluster"), ("[" * 9999, "too deep")]
)
def test_bad_ones_change_nothing(cli: Cli, service: Served, cluster: Cluster, node: GanetiNode, text: str, said: str) -> None:
    cli(*COMMAND)
    before = service.everything()
    node.file.write_text(text)
    assert said in cli(*COMMAND, status=69).stderr
    assert service.everything() == before


def test_an_older_one_is_taken_only_if_an_operator_says_so(cli: Cli, service: Served, cluster: Cluster, node: GanetiNode) -> None:
    cli(*COMMAND)
    cluster.document["serial_no"] = 1
    node.write(cluster)
    before = service.everything()
    assert "--take-over" in cli(*COMMAND, status=69).stderr
    assert "--take-over" in cli(*COMMAND, "--dry-run", status=69).stderr
    assert "0 would be made" in cli(*COMMAND, "--dry-run", "--take-over").stdout
    assert service.everything() == before
    cli(*COMMAND, "--take-over")
    cli(*COMMAND)


def test_where_it_is_not_run(cli: Cli, service: Served, node: GanetiNode) -> None:
    assert "no master" in cli(*COMMAND, status=69).stderr
    cluster = Cluster()
    cluster.master("node2.example.com")
    node.write(cluster)
    assert "node2.example.com is the master" in cli(*COMMAND, status=69).stderr
    cli.uid = 1000
    assert "root" in cli(*COMMAND, status=69).stderr


@pytest.mark.parametrize(
    "words",
    [
        ("registry", "import", "--watch"),
        ("registry", "import", "--take-over"),
        (*COMMAND, "file"),
        (*COMMAND, "--watch", "--dry-run"),
        (*COMMAND, "--watch", "--json"),
    ],
)
def test_options_that_do_not_go_together(cli: Cli, words: tuple[str, ...]) -> None:
    done = cli(*words, status=None)
    assert (done.exit_code in (2, 64) and "--ganeti" in done.stderr + done.stdout) or "--watch" in done.stderr


def test_a_cluster_that_was_renamed_keeps_what_operators_have_said(cli: Cli, service: Served, cluster: Cluster, node: GanetiNode) -> None:
    cli(*COMMAND)
    cli("registry", "nic", "set", "web1.example.com/0", "options.rate_in=8mbit")
    cluster.document["cluster"]["cluster_name"] = "new.example.com"
    cluster.changed()
    node.write(cluster)
    (node.folder / "ssconf_cluster_name").write_text("new.example.com\n")
    before = service.everything()
    for words in (COMMAND, (*COMMAND, "--dry-run")):
        said = cli(*words, status=69).stderr
        assert f"is imported as {CLUSTER}" in said and "--take-over" in said
    done = cli(*COMMAND, "--dry-run", "--take-over").stdout
    assert f"{CLUSTER} would be called new.example.com: 2 NICs, 1 network, 0 nodes\n" in done
    assert "0 would be made, 0 would be changed, 0 would be deleted" in done
    renamed = [{"before": CLUSTER, "nics": 2, "networks": 1, "nodes": 0}]
    assert cli.json(*COMMAND, "--dry-run", "--take-over")["renamed"] == renamed
    assert service.everything() == before
    assert cli.json(*COMMAND, "--take-over")["renamed"] == renamed
    done = cli(*COMMAND, "--take-over").stdout
    assert "0 made, 0 changed, 0 deleted, 0 refused" in done and "called" not in done
    assert cli.json(*COMMAND)["renamed"] == []
    (item,) = cli.json("registry", "nic", "show", "web1.example.com/0")["items"]
    assert item["nic"]["master"] == "ganeti:new.example.com" and item["nic"]["options"][0]["value"] == "8mbit"
    cluster.instance("web1.example.com")["tags"] = ["a"]
    node.write(cluster)
    assert "0 made, 2 changed" in cli(*COMMAND).stdout


def test_each_name_of_a_cluster_that_was_renamed_in_part_is_said(cli: Cli, service: Served, cluster: Cluster, node: GanetiNode) -> None:
    for number in range(100):
        cluster.nic(f"{number:08x}-4444-4444-8444-444444444444", mac=f"aa:00:00:00:01:{number:02x}", instance=f"web{number}")
        cluster.instance(f"web{number}")["tags"] = [f"{name:02}{'x' * 100}" for name in range(90)]
    node.write(cluster)
    cli(*COMMAND)
    (held,) = service.client().get("imports").body["items"]
    reading = {name: held["imported"][name] for name in ("uuid", "master", "node", "serial")}
    assert service.client().change("PUT", "imports/third.example.com", reading).body["left"]
    cluster.document["cluster"]["cluster_name"] = "new.example.com"
    cluster.changed()
    node.write(cluster)
    (node.folder / "ssconf_cluster_name").write_text("new.example.com\n")
    rehearsed = cli.json(*COMMAND, "--dry-run", "--take-over")["renamed"]
    done = cli.json(*COMMAND, "--take-over")["renamed"]
    assert rehearsed == done and [each["before"] for each in done] == [CLUSTER, "third.example.com"]
    assert [sum(each[kind] for each in done) for kind in ("nics", "networks")] == [102, 1] and all(each["nics"] for each in done)


@pytest.mark.parametrize("given", [(), ("cluster=prod",)])
def test_a_node_of_another_cluster_that_has_its_nics_is_named(cli: Cli, service: Served, cluster: Cluster, given: tuple[str, ...]) -> None:
    """It is told nothing of guests before they come, and nobody else says so."""
    cli("registry", "node", "join", "node1", *given)
    assert cli(*COMMAND).stderr == ""
    (item,) = cli.json("registry", "node", "show", "node1")["items"]
    uuid, epoch = item["node"]["uuid"], item["revision"].partition(":")[0]
    body = {"after": f"{epoch}:0", "nics": [{"nic": NICS[0], "state": "running"}]}
    service.client(f"node:{uuid}").change("POST", f"nodes/{uuid}/reports", body)
    for words in (COMMAND, (*COMMAND, "--dry-run")):
        said = cli(*words).stderr
        assert "told nothing of guests that come: node1: netcommon registry node set NODE cluster=gnt.example.com" in said
        assert cli.json(*words)["apart"] == ["node1"]
    cli("registry", "node", "set", "node1", f"cluster={CLUSTER}")
    assert cli(*COMMAND).stderr == "" and cli.json(*COMMAND)["apart"] == []


def test_what_ganetis_pool_may_give_out_too_is_named(cli: Cli, service: Served, cluster: Cluster, node: GanetiNode) -> None:
    cli(*COMMAND)
    command = "gnt-network modify --add-reserved-ips={} blue"
    assert command.format("192.0.2.1") in cli("registry", "nic", "allocate", "web1.example.com/0", "ipv4").stderr
    add = ("registry", "nic", "add", "network=blue", "instance=printer")
    assert command.format("192.0.2.2") in cli(*add, "index=0", "allocate=ipv4").stderr
    assert command.format("192.0.2.30") in cli(*add, "index=1", "ip=192.0.2.30", "--dry-run").stderr
    reserved = cluster.document["networks"][NETWORKS[0]]["ext_reservations"]
    cluster.document["networks"][NETWORKS[0]]["ext_reservations"] = f"{reserved[:200]}11{reserved[202:]}"
    cluster.changed()
    node.write(cluster)
    cli(*COMMAND)
    cli("registry", "network", "set", "blue", "ranges=192.0.2.200-192.0.2.201")
    done = cli(*add, "index=2", "allocate=ipv4")
    assert "192.0.2.200" in done.stdout and done.stderr == ""
    assert cli("registry", "nic", "set", "web1.example.com/0", "options.rate_in=8mbit").stderr == ""
    cli("registry", "network", "add", "green", "subnet=198.51.100.0/24")
    assert cli("registry", "nic", "add", "network=green", "allocate=ipv4").stderr == ""


def test_a_registry_that_does_not_run_is_not_one_that_cannot_answer_for_now(cli: Cli, cluster: Cluster) -> None:
    """Nothing comes of trying again where nobody starts it; it does where it is there, and its store does not answer."""
    for words in (COMMAND, (*COMMAND, "--take-over")):
        said = cli(*words, status=69).stderr
        assert "no registry is served" in said and "systemctl start netcommon-registry" in said
    path = cli.root / "run/netregistry/socket"
    path.parent.mkdir(parents=True)
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(str(path))
        silent.listen()

        def hang_up() -> None:
            with contextlib.suppress(OSError):
                while True:
                    silent.accept()[0].close()

        answering = threading.Thread(target=hang_up)
        answering.start()
        try:
            cli(*COMMAND, status=75)
        finally:
            silent.shutdown(socket.SHUT_RDWR)
            answering.join()
