"""What failed before, or was done by another master, comes right: a killed hook, a stale record, `netcommon dns`."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from runtime.errors import TEMPORARY, UNAVAILABLE
from tests.support.bootstrap import VENV
from tests.support.ganeti_event import CLUSTER, Nic, event, nic, run_hook, write_configuration
from tests.support.nameserver import NameServer, settings
from tests.support.netns import mounted_over, wait_until
from tests.support.node import Node
from tests.support.rundoor import HOOKS, Outcome, execute

ZONES = {"example.com": "", "2.0.192.in-addr.arpa": ""}
STORE = Path("/var/lib/netcommon/dns")
GANETI = Path("/var/lib/ganeti")


@pytest.fixture
def server(node: Node) -> Iterator[NameServer]:
    with mounted_over("/var/lib", "tmpfs", "mode=0755"), NameServer.started(ZONES) as made:
        Path("/etc/netcommon/config.toml").write_text(settings(made, timeout=2.0))
        GANETI.mkdir()
        Path("/var/run/ganeti/socket").mkdir(parents=True)
        with socket.socket(socket.AF_UNIX) as daemon:
            daemon.bind("/var/run/ganeti/socket/ganeti-query")
            daemon.listen()
            yield made


def holds(server: NameServer, **addresses: str) -> None:
    """The zones hold these instances with one address each, and nothing else: web="10" is web.example.com with 192.0.2.10."""
    forward, reverse = [], []
    for host, last in addresses.items():
        mark = f'3600 TXT "netcommon" "cluster={CLUSTER}" "instance={host}.example.com"'
        forward += [f"{host} 3600 A 192.0.2.{last}", f"_netcommon.{host} {mark}"]
        reverse += [f"{last} 3600 PTR {host}.example.com.", f"_netcommon.{last} {mark}"]
    assert [server.content(zone) for zone in server.zones] == [sorted(forward), sorted(reverse)]


def ganeti_has(**addresses: str) -> None:
    """Ganeti's configuration has these instances."""
    instances: dict[str, Sequence[Nic]] = {f"{host}.example.com": [nic(f"192.0.2.{last}")] for host, last in addresses.items()}
    write_configuration(GANETI, instances)


def command(*arguments: str) -> Outcome:
    return execute([str(VENV / "bin/netcommon"), "dns", *arguments], {"PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8"})


def test_a_killed_hook_is_finished_by_the_next(server: NameServer) -> None:
    assert run_hook(event("add", "web.example.com", [nic("192.0.2.9")])).status == 0
    server.freeze()
    try:
        killed = subprocess.Popen([HOOKS / "ganeti-dns-hook"], env=event("modify", "web.example.com", [nic("192.0.2.10")]))
        wait_until(lambda: "192.0.2.10" in (STORE / "web.example.com.json").read_text(), what="the intent is on record")
        killed.send_signal(signal.SIGKILL)
        killed.wait(30)
    finally:
        server.thaw()
    assert run_hook(event("start", "other.example.com")).status == 0
    holds(server, web="10")


@pytest.mark.parametrize("later", ["modified", "removed", "the same"])
def test_what_another_master_has_done_meanwhile_is_not_undone(server: NameServer, later: str) -> None:
    """This node failed to write, another became master and went on, then this one is master again: Ganeti's configuration decides."""
    server.stop()
    assert run_hook(event("add", "web.example.com", [nic("192.0.2.10")])).status == TEMPORARY
    server.start()
    here = (STORE / "web.example.com.json").read_text()
    (STORE / "web.example.com.json").unlink()
    ganeti_has(**{"modified": {"web": "11"}, "removed": {}, "the same": {"web": "10"}}[later])
    if later == "modified":
        assert run_hook(event("modify", "web.example.com", [nic("192.0.2.11")])).status == 0
    (STORE / "web.example.com.json").write_text(here)
    assert run_hook(event("add", "db.example.com", [nic("192.0.2.20")])).status == 0
    holds(server, **{"modified": {"web": "11"}, "removed": {}, "the same": {"web": "10"}}[later], db="20")


def test_an_address_that_a_failed_removal_has_not_let_go_of(server: NameServer) -> None:
    """The new instance's own event finds the address taken, and gets it once the removal is made up for, in the same run."""
    assert run_hook(event("add", "old.example.com", [nic("192.0.2.10")])).status == 0
    server.stop()
    assert run_hook(event("remove", "old.example.com", [nic("192.0.2.10")])).status == TEMPORARY
    server.start()
    assert run_hook(event("add", "new.example.com", [nic("192.0.2.10")])).status == 0
    holds(server, new="10")


def test_a_name_in_use_again(server: NameServer) -> None:
    """While the server is down, web becomes www, and another instance is made that is called web and has another address."""
    assert run_hook(event("add", "web.example.com", [nic("192.0.2.10")])).status == 0
    server.stop()
    run_hook(event("rename", "web.example.com", [nic("192.0.2.11")], INSTANCE_NEW_NAME="www.example.com"))
    run_hook(event("add", "web.example.com", [nic("192.0.2.12")]))
    server.start()
    assert run_hook(event("start", "other.example.com")).status == 0
    holds(server, web="12", www="11")


def test_sync_of_everything(server: NameServer) -> None:
    """All that Ganeti has is made, all that it no longer has goes; a second run changes nothing."""
    assert run_hook(event("add", "gone.example.com", [nic("192.0.2.30")])).status == 0
    ganeti_has(web="10", db="20")
    done = command("sync", "--all")
    assert (done.status, done.stderr) == (0, "")
    assert "gone.example.com: gone.example.com removed" in done.stdout
    holds(server, web="10", db="20")
    before = server.serials()
    assert command("sync", "--all").stdout == "nothing to change\n"
    assert server.serials() == before
    assert json.loads(command("list", "--json").stdout)["instances"][1] == {
        "instance": "web.example.com",
        "state": "done",
        "names": "10.2.0.192.in-addr.arpa web.example.com",
        "error": "",
    }


def test_sync_without_ganetis_configuration_says_that_it_has_not_looked(server: NameServer) -> None:
    """Nothing tells which instances there are: what bears our mark may be anybody's. What is on record is tried all the same."""
    assert run_hook(event("add", "web.example.com", [nic("192.0.2.10")])).status == 0
    done = command("sync", "--all")
    assert done.status == UNAVAILABLE and "was not looked for: there is no configuration of Ganeti" in done.stderr
    done = command("sync", "other.example.com")
    assert done.status == UNAVAILABLE and "no zone was asked" in done.stderr
    holds(server, web="10")


def test_sync_of_what_failed_and_of_one(server: NameServer) -> None:
    server.stop()
    assert run_hook(event("add", "web.example.com", [nic("192.0.2.10")])).status == TEMPORARY
    assert "pending" in command("list").stdout
    assert "no DNS server answers" in command("list").stdout
    assert command("sync").status == TEMPORARY
    server.start()
    assert command("sync").status == 0
    holds(server, web="10")
    server.update("example.com", "del web A")
    assert command("sync").stdout == "nothing to change\n"
    assert command("sync", "web.example.com").stdout == "web.example.com: web.example.com is now A 192.0.2.10\n"
    holds(server, web="10")
    assert command("sync", "other.example.com").status == UNAVAILABLE


def test_sync_is_for_the_master(server: NameServer) -> None:
    ganeti_has(web="10")
    (GANETI / "ssconf_master_node").write_text("node2.example\n")
    done = command("sync", "--all")
    assert (done.status, "the master node is node2.example" in done.stderr) == (UNAVAILABLE, True)
    holds(server)
