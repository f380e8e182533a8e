"""netcommon registry import --ganeti on a master that has joined a registry elsewhere."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.support.cli import Cli
from tests.support.elsewhere import registry
from tests.support.ganeti_configuration import CLUSTER, NETWORKS, NICS, Cluster, GanetiNode
from tests.support.service import Served

NEW = "new.example.com"
COMMAND = ("registry", "import", "--ganeti")


class Machines(NamedTuple):
    """A registry's machine, and the master of a cluster. ``url``: where the registry is for the master."""

    home: Cli
    master: Cli
    url: str
    service: Served
    node: GanetiNode
    cluster: Cluster

    def join(self, *words: str) -> None:
        self.master("registry", "join", self.url, self.home("registry", "token", "create", *words).stdout.strip())

    def rename(self) -> None:
        self.cluster.document["cluster"]["cluster_name"] = NEW
        self.cluster.changed()
        self.node.write(self.cluster)
        (self.node.folder / "ssconf_cluster_name").write_text(f"{NEW}\n")


@pytest.fixture
def machines(tmp_path: Path) -> Iterator[Machines]:
    home, master = Cli(tmp_path / "home"), Cli(tmp_path / "master")
    node, cluster = GanetiNode(master.root), Cluster()
    cluster.network(NETWORKS[0], "blue")
    cluster.nic(NICS[0], network=NETWORKS[0], ip="192.0.2.9")
    cluster.nic(NICS[1])
    node.start()
    node.write(cluster)
    with registry(home) as (service, url):
        yield Machines(home, master, url, service, node, cluster)
    node.stop()


def test_who_is_another_clusters_importer_renames_nothing(machines: Machines) -> None:
    home, master = machines.home, machines.master
    machines.join("operator", "ann")
    machines.join("importer", CLUSTER)
    home("registry", "node", "join", "node1", f"cluster={CLUSTER}")
    master(*COMMAND)
    machines.rename()
    before = machines.service.everything()
    why = f"has joined as the importer of {CLUSTER}, and not of {NEW}: netcommon registry token create importer {NEW}"
    rehearsed = master(*COMMAND, "--take-over", "--dry-run")
    assert f"{CLUSTER} would be called {NEW}: 2 NICs, 1 network, 1 node\n" in rehearsed.stdout and why in rehearsed.stderr
    assert why in master(*COMMAND, "--take-over", status=69).stderr
    assert machines.service.everything() == before, "what is refused is not done"
    machines.join("importer", NEW)
    said = master(*COMMAND, "--take-over")
    assert f"{CLUSTER} is called {NEW} now: 2 NICs, 1 network, 1 node\n" in said.stdout and said.stderr == ""
    assert {item["nic"]["cluster"] for item in home.json("registry", "nic", "list")["items"]} == {NEW}


def test_whose_certificate_counts_no_more_renames_nothing(machines: Machines) -> None:
    machines.join("operator", "ann")
    machines.join("importer", CLUSTER)
    machines.master(*COMMAND)
    machines.rename()
    machines.join("importer", NEW)
    machines.home("registry", "certificate", "revoke", "importer", NEW)
    before = machines.service.everything()
    assert "revoked" in machines.master(*COMMAND, "--take-over", status=69).stderr
    assert machines.service.everything() == before


@pytest.mark.parametrize("option", ["--take-over", "--dry-run"])
@pytest.mark.parametrize("role", ["node", "reader"])
def test_what_is_for_operators_is_said(machines: Machines, option: str, role: str) -> None:
    machines.join("importer", CLUSTER)
    machines.join(role, *(["ann"] if role == "reader" else []))
    said = machines.master(*COMMAND, option, status=69).stderr
    assert f"{option} is for operators, and this machine has joined as {role}: netcommon registry token create operator" in said


def test_an_importer_alone_takes_nothing_over(machines: Machines) -> None:
    machines.join("importer", CLUSTER)
    said = machines.master(*COMMAND, "--take-over", status=69).stderr
    assert "--take-over is for operators, and this machine has joined as importer: netcommon registry token create operator" in said
    assert "join that as an operator" in machines.master(*COMMAND, "--dry-run", status=69).stderr
    assert "3 made" in machines.master(*COMMAND).stdout


@pytest.mark.parametrize("role", ["operator", "node"])
def test_a_master_that_has_joined_and_not_as_importer_is_told_to(machines: Machines, role: str) -> None:
    """Make no second registry there: what starts or makes one was the remedy, and every command there asked that one from then on."""
    machines.join(role, *(["ann"] if role == "operator" else []))
    why = f"joined a registry as {role}, and not as importer {CLUSTER}: netcommon registry token create importer {CLUSTER}, and"
    for options in ((), ("--take-over",)) if role == "operator" else ((),):
        said = machines.master(*COMMAND, *options, status=69).stderr
        assert why in said and "systemctl" not in said
    if role == "operator":
        rehearsed = machines.master(*COMMAND, "--dry-run")
        assert why in rehearsed.stderr and "3 would be made" in rehearsed.stdout
    machines.join("importer", CLUSTER)
    assert "3 made" in machines.master(*COMMAND).stdout


def test_what_two_nics_have_by_the_new_name_is_said(machines: Machines) -> None:
    """Refuse nothing of what the importer is not the master; an address without a network is one of the cluster's name."""
    home, master = machines.home, machines.master
    machines.join("operator", "ann")
    machines.join("importer", CLUSTER)
    master(*COMMAND)
    for cluster, instance in ((CLUSTER, "printer"), (NEW, "phone")):
        home("registry", "nic", "add", f"cluster={cluster}", f"instance={instance}", "ip=10.0.0.5")
    machines.rename()
    machines.join("importer", NEW)
    assert f"several NICs of {NEW} would want the same: 10.0.0.5\n" in master(*COMMAND, "--take-over", "--dry-run").stderr
    said = master(*COMMAND, "--take-over").stderr
    assert f"several NICs of {NEW} want the same: 10.0.0.5: netcommon registry conflicts shows whose\n" in said
    assert "10.0.0.5" in home("registry", "conflicts").stdout
    assert master(*COMMAND, "--take-over").stderr == ""
