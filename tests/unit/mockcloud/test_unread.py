"""Leave an instance alone whose file somebody has edited: its guest runs on."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from mockcloud import stored
from mockcloud.commits import Commits
from mockcloud.invariants import fitting, settled
from mockcloud.sysinfo import node_uuid
from tests.support.killing_steps import opened
from tests.support.mockcloud import Mockcloud

PAIR = ("--nic", "network=blue", "--nic", "network=blue,mode=routed,link=guests")


def file_of(run: Mockcloud) -> Path:
    """Give the file of web1 on the first node."""
    return run.folder / "servers" / node_uuid(1) / "vms" / f"{stored.vm_uuid('web1')}.json"


def test_an_instance_whose_file_was_damaged_for_a_while_has_its_nics_when_it_is_put_back(run: Mockcloud) -> None:
    """Keep the NICs of an instance whose file is damaged for a while: its guest runs on, and its agent does not take the NICs for gone."""
    for name in ("web1", "web2"):
        run("instance", "create", name, "--node", "mock1", *PAIR, "--start")
    path = file_of(run)
    before, said = run.json("instance", "list")["instances"], path.read_text()
    path.write_text("{")
    run("status", "--seconds", "120")
    (third,) = run.json("instance", "create", "web3", "--node", "mock1", *PAIR, "--start")["instances"]
    assert not {nic["tap"] for each in before for nic in each["nics"]} & {nic["tap"] for nic in third["nics"]}
    path.write_text(said)
    run("status", "--seconds", "30")
    assert run.json("instance", "list")["instances"][:2] == before and {nic["shown"] for each in before for nic in each["nics"]} == {
        "running"
    }
    assert run.json("fault", "partition", "mock2", "--for", "1", "--settle", "60")["violations"] == []


def test_an_instance_whose_file_was_damaged_when_its_node_lost_power_has_crashed(run: Mockcloud) -> None:
    run("instance", "create", "web1", "--node", "mock1", *PAIR, "--start")
    path = file_of(run)
    said = path.read_text()
    path.write_text("{")
    run("fault", "node", "mock1", "--for", "10", "--settle", "60", status=1)
    path.write_text(said)
    (found,) = run.json("instance", "list")["instances"]
    assert (found["state"], found["pid"], {nic["tap"] for nic in found["nics"]}) == ("crashed", 0, {""})
    assert run.json("fault", "agent", "mock2", "--settle", "60")["violations"] == []
    (found,) = run.json("instance", "start", "web1")["instances"]
    assert found["state"] == "running" and {nic["shown"] for nic in found["nics"]} == {"running"}


def test_an_instance_whose_file_is_put_back_after_the_boot_by_which_it_crashed_has_crashed_at_once(run: Mockcloud) -> None:
    run("instance", "create", "web1", "--node", "mock1", *PAIR, "--start")
    path = file_of(run)
    said = path.read_text()
    with opened(run.folder) as cloud:
        cloud.ready([node_uuid(1), node_uuid(2)], 5.0)
        path.write_text("{")
        cloud.crash(node_uuid(1))
        cloud.boot(node_uuid(1))
        path.write_text(said)
        cloud.scheduler.passes(30.0)
        assert fitting(cloud) == []
        found = stored.kept(cloud.root, node_uuid(1), stored.vm_uuid("web1"))
        assert found is not None and found.state == "crashed"


def test_an_instance_that_an_older_mockcloud_has_started_runs_on(run: Mockcloud) -> None:
    run("instance", "create", "web1", "--node", "mock1", *PAIR)
    run("fault", "node", "mock1", "--for", "10", "--settle", "60")
    run("instance", "start", "web1")
    path = file_of(run)
    said = json.loads(path.read_text())
    assert said.pop("boot") == 2
    path.write_text(json.dumps(said))
    (found,) = run.json("instance", "list")["instances"]
    assert found["state"] == "running"
    assert run.json("fault", "agent", "mock2", "--settle", "60")["violations"] == []


@pytest.mark.parametrize("way", ["gone", "damaged"])
@pytest.mark.parametrize(
    ("lacks", "says"),
    [
        ("var/run/ganeti/kvm-hypervisor/conf/web1.runtime", "Ganeti's files say something else"),
        ("var/run/ganeti/kvm-hypervisor/pid/web1", "Ganeti's files say something else"),
        ("proc/{pid}/fdinfo", "its process does not hold tap0"),
        ("run/netcommon/nics/{nic}.json", "its record is"),
    ],
)
def test_a_file_that_is_missing_or_damaged_is_a_violation_and_no_error(run: Mockcloud, lacks: str, says: str, way: str) -> None:
    (found,) = run.json("instance", "create", "web1", "--node", "mock1", *PAIR, "--start")["instances"]
    with opened(run.folder) as cloud:
        cloud.ready([node_uuid(1), node_uuid(2)], 5.0)
        path = run.folder / "servers" / node_uuid(1) / lacks.format(pid=found["pid"], nic=found["nics"][0]["uuid"])
        if path.is_dir():
            shutil.rmtree(path)
            path.touch()
        elif way == "gone":
            path.unlink()
        else:
            path.write_text("{")
        assert any(f"web1/0 on {node_uuid(1)}: {says}" in each for each in fitting(cloud))


def test_what_lies_damaged_on_a_nodes_disk_is_a_violation_and_no_error(run: Mockcloud) -> None:
    run("instance", "create", "web1", "--node", "mock1", *PAIR, "--start")
    run("instance", "change", "web1", "0", "rate_in=8mbit")
    with opened(run.folder) as cloud:
        cloud.ready([node_uuid(1), node_uuid(2)], 5.0)
        for path in (run.folder / "servers" / node_uuid(1) / "var/lib/netcommon/wanted").rglob("*.json"):
            path.write_text("{")
        found = settled(cloud, Commits())
        assert any("is None on mock1's disk, not blue" in each for each in found)
        assert any("nothing lies on mock1's disk" in each for each in found)
