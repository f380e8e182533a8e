"""Say of an instance whose file somebody has edited that alone: what its guest has, which runs on, is no violation."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from mockcloud import stored
from mockcloud.cli.group import mockcloud
from mockcloud.commits import Commits
from mockcloud.instances.table import perform
from mockcloud.invariants import always, settled, told
from mockcloud.sysinfo import node_uuid
from tests.support.killing_steps import opened
from tests.support.mockcloud import Mockcloud

FIRST = node_uuid(1)
NICS = [
    {"network": "blue"},
    {"network": "blue", "mode": "routed", "link": "guests"},
    {"network": "blue", "mode": "openvswitch", "link": "ovs0"},
]
SETTINGS = '[nic]\nspoof_guard = true\ndhcp = "dnsmasq"\n'


@pytest.mark.parametrize("mark", ["", "[rules]\nmark = 0xfff0000\n"])
@pytest.mark.parametrize("state", ["running", "stopped"])
def test_one_damaged_file_is_one_violation(tmp_path: Path, mark: str, state: str) -> None:
    """Say nothing of what a guest has that is left alone, and all of what the others have."""
    with opened(tmp_path / "cloud") as cloud:
        (one,) = cloud.create(1, profile="switched")
        settings = Path(cloud.root, "servers", one.uuid, "etc/netcommon/config.toml")
        settings.parent.mkdir(parents=True, exist_ok=True)
        settings.write_text(SETTINGS + mark)
        cloud.network("blue", {"subnet": "192.0.2.0/24", "gateway": "192.0.2.254"})
        cloud.ready([FIRST], 20.0)
        commits = Commits()
        cloud.own.listen(lambda registry: commits.begin(registry.items()))
        for name in ("web1", "web2"):
            perform(cloud, "create", {"name": name, "node": "mock1", "nics": NICS, "start": name == "web2" or state == "running"})
        if state == "running":
            perform(cloud, "change", {"name": "web1", "index": 1, "options": {"blackhole": "true", "uplink_proxy": "both"}})
        cloud.scheduler.passes(10.0)
        assert [*always(cloud), *settled(cloud, commits), *told(cloud)] == []
        path = Path(cloud.root, "servers", FIRST, "vms", f"{stored.vm_uuid('web1')}.json")
        path.write_text("x")
        assert [*always(cloud), *settled(cloud, commits), *told(cloud)] == [f"{path} is not what mockcloud has written"]
        kernel = cloud.nodes[FIRST].host.kernel
        taps = [link for link in kernel.links.values() if link.alias.endswith(" web2/1")]
        kernel.routes = [route for route in kernel.routes if route.index != taps[0].index]
        assert f"web2/1 on {FIRST}: no rule or no route leads by {taps[0].name}" in settled(cloud, commits)


def test_a_name_leads_to_an_instance_whose_file_is_damaged(tmp_path: Path) -> None:
    run = Mockcloud(tmp_path / "cloud")
    run("create", "2", "--underlay", "fd12:3456:789a::/48", "--zone", "hosts.example.com")
    run("network", "blue", "--subnet", "192.0.2.0/24")
    run("instance", "create", "web1", "--node", "mock1", "--nic", "network=blue", "--start")
    run("instance", "change", "web1", "0", "endpoints=console")
    run("status", "--seconds", "30")
    path = run.folder / "servers" / FIRST / "vms" / f"{stored.vm_uuid('web1')}.json"
    path.write_text("{")
    words = ("fault", "partition", "mock2", "--for", "1", "--settle", "60", "--json")
    said = json.loads(CliRunner(env={"MOCKCLOUD": str(run.folder)}).invoke(mockcloud, words).stdout)["violations"]
    assert [each["text"] for each in said] == [f"{path} is not what mockcloud has written"]
