"""The importer, killed in the middle of its work: the next one goes on, and nothing is left half done."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from netregistry.stores.sqlite import SqliteStore
from tests.support.bootstrap import ROOT
from tests.support.ganeti_configuration import NETWORKS, Cluster, GanetiNode
from tests.support.importing import differences
from tests.support.netns import wait_until
from tests.support.registry_checker import claims
from tests.support.sample import FULL
from tests.support.service import Served, served

ROUNDS = 60 if FULL else 6
MOST = 400  #: NICs: an import has some dozens of commits


@pytest.fixture
def node(tmp_path: Path) -> Iterator[GanetiNode]:
    found = GanetiNode(tmp_path)
    found.start()
    yield found
    found.stop()


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Served]:
    (tmp_path / "run/netregistry").mkdir(parents=True)
    store = SqliteStore.create(str(tmp_path / "registry.sqlite"), "first")
    with served(tmp_path / "run/netregistry", store=store) as found:
        yield found


def importer(root: Path, *more: str) -> subprocess.Popen[str]:
    argv = [sys.executable, "-m", "netcommon.cli", "--root", str(root), "registry", "import", "--ganeti", *more]
    return subprocess.Popen(argv, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def changed(chance: random.Random, cluster: Cluster) -> None:
    """Let a third of the NICs change, some go, and others come; addresses and MACs are passed on, and there are contradictions."""
    there = [nic["uuid"] for item in cluster.document["instances"].values() for nic in item["nics"]]
    for uuid in chance.sample(there, len(there) // 5):
        cluster.remove(uuid)
    for item in cluster.document["instances"].values():
        if chance.random() < 0.3:
            item["tags"] = [f"tag{chance.randrange(9)}"]
            item["nics"][0]["ip"] = f"192.0.2.{chance.randrange(2, 250)}"
    left = {nic["uuid"] for item in cluster.document["instances"].values() for nic in item["nics"]}
    for number in range(MOST):
        uuid = f"{number:08x}-2222-4222-8222-222222222222"
        if uuid not in left and chance.random() < 0.7:
            mac, ip = f"aa:00:00:00:{chance.randrange(2):02x}:{chance.randrange(256):02x}", f"192.0.2.{chance.randrange(2, 250)}"
            cluster.nic(uuid, mac, f"web{number // 2}.example.com", network=NETWORKS[0], ip=ip)


def consistent(service: Served) -> list[str]:
    """Say what claims and NICs in the store do not agree on."""
    found = []
    everything = {key: json.loads(value) for key, value in service.everything().items()}  # of one revision
    taken = {key: each for key, each in everything.items() if key.startswith(("macs/", "addresses/"))}
    wanting: dict[str, set[str]] = {}
    for key, nic in everything.items():
        for each in claims(nic) if key.startswith("nics/") else ():
            wanting.setdefault(each, set()).add(nic["uuid"])
    for key in taken.keys() | wanting.keys():
        claim = taken.get(key, {})
        having = {claim.get("holder", ""), *claim.get("contenders", [])} - {""}
        if having != wanting.get(key, set()):
            found.append(f"{key}: {sorted(having)}, wanted by {sorted(wanting.get(key, set()))}")
    return found


def begun(service: Served, before: str) -> bool:
    """Tell whether something was committed since then."""
    return bool(service.say("GET", "/v1/status").body["revision"] != before)


def test_killed_in_the_middle(tmp_path: Path, node: GanetiNode, service: Served) -> None:
    chance = random.Random(7)
    cluster = Cluster()
    cluster.network(NETWORKS[0], "blue")
    middle = 0
    for _ in range(ROUNDS):
        changed(chance, cluster)
        node.write(cluster)
        process = importer(tmp_path, *chance.choice([(), ("--watch",)]))
        wait_until(partial(begun, service, service.say("GET", "/v1/status").body["revision"]), 30)
        os.kill(process.pid, signal.SIGKILL)
        process.communicate()
        assert consistent(service) == []
        middle += bool([line for line in differences(service, cluster) if "is left" not in line])
    assert middle > ROUNDS // 2, "they were killed after their work, not in it"
    process = importer(tmp_path)
    _out, errors = process.communicate(timeout=60)
    assert (process.returncode, errors) == (0, "")
    assert differences(service, cluster) == [] and consistent(service) == []
