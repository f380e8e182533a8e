"""Leave an instance alone whose file somebody has edited: its guest runs on."""

from __future__ import annotations

from pathlib import Path

from mockcloud import stored
from mockcloud.sysinfo import node_uuid
from tests.support.mockcloud import Mockcloud

PAIR = ("--nic", "network=blue", "--nic", "network=blue,mode=routed,link=guests")


def test_an_instance_whose_file_was_damaged_for_a_while_has_its_nics_when_it_is_put_back(tmp_path: Path) -> None:
    """Keep the NICs of an instance whose file is damaged for a while: its guest runs on, and its agent does not take the NICs for gone."""
    run = Mockcloud(tmp_path / "cloud")
    run("create", "2")
    run("network", "blue", "--subnet", "192.0.2.0/24", "--gateway", "192.0.2.254")
    for name in ("web1", "web2"):
        run("instance", "create", name, "--node", "mock1", *PAIR, "--start")
    path = run.folder / "servers" / node_uuid(1) / "vms" / f"{stored.vm_uuid('web1')}.json"
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
