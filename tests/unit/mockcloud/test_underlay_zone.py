"""Give an underlay another zone while guests have names in the one that it had."""

from __future__ import annotations

from pathlib import Path

from mockcloud.sysinfo import node_uuid
from tests.support.killing_steps import opened
from tests.support.mockcloud import Mockcloud


def test_a_zone_that_is_the_underlays_no_more_is_emptied(tmp_path: Path) -> None:
    """Change the zone of an underlay that has names: name servers have those of the new one alone, and what is retired goes in its time."""
    run = Mockcloud(tmp_path / "cloud")
    prefix = ("--underlay", "fd12:3456:789a::/48")
    run("create", "2", *prefix, "--zone", "hosts.example.com")
    run("network", "six", "--subnet", "192.0.2.0/24")
    run("instance", "create", "web1", "--node", "mock1", "--nic", "network=six", "--start")
    run("instance", "change", "web1", "0", "endpoints=console")
    run("create", "1", *prefix, "--zone", "other.example.com")
    with opened(run.folder) as cloud:
        cloud.ready([node_uuid(1), node_uuid(2), node_uuid(3)], 20.0)
        cloud.scheduler.passes(120.0)
        assert cloud.own.names is not None
        (server,) = cloud.own.names.servers.values()
        assert list(server.names) == ["web1.console.other.example.com"]
    run("instance", "migrate", "web1", "mock2")
    for _ in range(3):
        assert run.json("fault", "agent", "mock1", "--for", "3", "--settle", "1800")["violations"] == []
