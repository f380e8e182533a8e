"""Records that no instance has any more, since their removal failed under another master: found by their marks, where all is certain."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from runtime.errors import TEMPORARY, UNAVAILABLE
from tests.support.bootstrap import VENV
from tests.support.ganeti_event import CLUSTER, Nic, configuration, event, nic, run_hook, write_configuration
from tests.support.nameserver import ADDRESS, PORT, NameServer, settings
from tests.support.netns import mounted_over
from tests.support.node import Node
from tests.support.rundoor import Outcome, execute

pytestmark = pytest.mark.sampled(5)

ZONES = {"example.com": "mail A 192.0.2.9\n", "2.0.192.in-addr.arpa": "9 PTR mail.example.com.\n"}
STORE, GANETI, DAEMON = Path("/var/lib/netcommon/dns"), Path("/var/lib/ganeti"), Path("/var/run/ganeti/socket/ganeti-query")
OTHER = "other.example.net"


@pytest.fixture
def server(node: Node) -> Iterator[NameServer]:
    """The zones of a cluster whose master has moved: gone was removed while the server was away, and only the old master knows."""
    with mounted_over("/var/lib", "tmpfs", "mode=0755"), NameServer.started(ZONES) as made, socket.socket(socket.AF_UNIX) as daemon:
        Path("/etc/netcommon/config.toml").write_text(settings(made, timeout=20.0))
        DAEMON.parent.mkdir(parents=True)
        daemon.bind(str(DAEMON))
        daemon.listen()
        for name, last in (("gone", "30"), ("web", "10")):
            assert run_hook(event("add", f"{name}.example.com", [nic(f"192.0.2.{last}"), nic(f"192.0.2.{last[0]}1")])).status == 0
        theirs = {**event("add", "theirs.example.com", [nic("192.0.2.40")]), "GANETI_CLUSTER": OTHER}
        assert run_hook(theirs).status == 0
        shutil.rmtree(STORE)  # another node is the master
        ganeti_has(web=("10", "11"))
        yield made


@contextlib.contextmanager
def cutting(port: int) -> Iterator[None]:
    """A way to the server that ends each transfer after its first message, as a connection that breaks does."""

    def message(end: socket.socket) -> bytes:
        head = end.recv(2, socket.MSG_WAITALL)
        return head + end.recv(int.from_bytes(head, "big"), socket.MSG_WAITALL) if head else b""

    def serve() -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = listener.accept()
                with client, socket.create_connection((ADDRESS, PORT)) as there:
                    while asked := message(client):
                        there.sendall(asked)
                        client.sendall(message(there))
                        if b"\x00\x00\xfc\x00\x01" in asked:  # the end of the question's name, AXFR, IN
                            break

    with socket.create_server((ADDRESS, port)) as listener:
        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield
        listener.shutdown(socket.SHUT_RDWR)
        thread.join(10)


def ganeti_has(**addresses: Sequence[str]) -> None:
    instances: dict[str, Sequence[Nic]] = {
        f"{host}.example.com": [nic(f"192.0.2.{last}") for last in each] for host, each in addresses.items()
    }
    write_configuration(GANETI, instances)


def command(*arguments: str) -> Outcome:
    return execute([str(VENV / "bin/netcommon"), "dns", *arguments], {"PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8"})


def names(server: NameServer) -> set[str]:
    """Every name that has an address or a PTR."""
    lines = [line.split() for zone in server.zones for line in server.content(zone)]
    return {words[0] for words in lines if words[2] in ("A", "PTR")}


ALL = {"mail", "9", "theirs", "40", "web", "10", "web-eth1", "11", "gone", "30", "gone-eth1", "31"}
LEFT = ALL - {"gone", "30", "gone-eth1", "31"}


def test_what_an_old_master_has_not_removed(server: NameServer) -> None:
    """It goes, with its marks; another cluster's, and what bears no mark, stays; what would be is said first; a second run does nothing."""
    assert names(server) == ALL
    before = server.serials()
    said = command("sync", "--all", "--dry-run")
    assert (said.status, said.stderr, server.serials()) == (0, "", before)
    assert sorted(line for line in said.stdout.splitlines() if "removed" in line) == [
        f"gone.example.com: {name} would be removed"
        for name in ("30.2.0.192.in-addr.arpa", "31.2.0.192.in-addr.arpa", "gone-eth1.example.com", "gone.example.com")
    ]
    assert not list(STORE.glob("*.json"))
    done = command("sync", "--all")
    assert (done.status, done.stderr) == (0, "")
    assert names(server) == LEFT
    assert not [line for zone in server.zones for line in server.content(zone) if "gone" in line]
    before = server.serials()
    assert command("sync", "--all").stdout == "nothing to change\n"
    assert server.serials() == before


def test_one_instance_by_its_name(server: NameServer) -> None:
    """Nobody but the zones knows it; another cluster's is unknown here, and stays."""
    assert "would be removed" in command("sync", "gone.example.com", "--dry-run").stdout
    assert names(server) == ALL
    assert command("sync", "gone.example.com").status == 0
    assert names(server) == LEFT
    assert command("sync", "gone.example.com").status == UNAVAILABLE
    assert command("sync", "theirs.example.com").status == UNAVAILABLE
    assert names(server) == LEFT


def test_an_address_that_a_living_instance_has_no_more(server: NameServer) -> None:
    """A change that got half way: the name leads elsewhere by now, and the old PTR was left."""
    mark = f'"netcommon" "cluster={CLUSTER}" "instance=web.example.com"'
    server.update("2.0.192.in-addr.arpa", "add 77 3600 PTR web.example.com.", f"add _netcommon.77 3600 TXT {mark}")
    assert command("sync", "--all").status == 0
    assert names(server) == LEFT


@pytest.mark.parametrize("instance", ['a\\"b', "a\\010b", "a\\\\b", "\\200x", "", "A.example.com", "a_b"])
def test_what_is_no_mark_as_we_write_it_is_left_alone(server: NameServer, instance: str) -> None:
    """Whoever may write into the zone has put it there: it is said once, and keeps nothing else from being done."""
    for name in ("h1", "h2"):
        mark = f'"netcommon" "cluster={CLUSTER}" "instance={instance}"'
        server.update("example.com", f"add {name} 3600 A 192.0.2.99", f"add _netcommon.{name} 3600 TXT {mark}")
    done = command("sync", "--all")
    said = "what stands at '_netcommon.h1.example.com' and 1 more is no mark as we write it: left alone"
    assert (done.status, done.stderr.count("\n"), said in done.stderr) == (0, 1, True), done
    assert names(server) == LEFT | {"h1", "h2"}


def without_a_mac(instance: dict[str, Any]) -> None:
    del instance["nics"][1]["mac"]


def without_a_name(instance: dict[str, Any]) -> None:
    del instance["name"]


def with_a_strange_address(instance: dict[str, Any]) -> None:
    """Its hook has said so, and has failed."""
    instance["nics"][1]["ip"] = "nonsense"


@pytest.mark.parametrize("recorded", [True, False], ids=["on record", "unknown"])
@pytest.mark.parametrize(("damage", "lines"), [(without_a_mac, 1), (without_a_name, 1), (with_a_strange_address, 0)])
def test_an_instance_that_cannot_be_read(server: NameServer, damage: Callable[[dict[str, Any]], None], lines: int, recorded: bool) -> None:
    """It is passed over with one line, and what it has in the DNS stays, whether it is on record here or not; the others are done."""
    if recorded:
        assert run_hook(event("modify", "web.example.com", [nic("192.0.2.10"), nic("192.0.2.11")])).status == 0
    value = json.loads((GANETI / "config.data").read_text())
    damage(value["instances"]["uuid-0"])
    (GANETI / "config.data").write_text(json.dumps(value))
    done = command("sync", "--all")
    assert (done.status, done.stderr.count("\n"), done.stderr.count("passed over")) == (0, lines, lines), done
    assert names(server) == LEFT
    assert command("sync", "--all").stdout == "nothing to change\n" and names(server) == LEFT
    assert run_hook(event("add", "new.example.com", [nic("192.0.2.50")])).status == 0
    assert names(server) == {*LEFT, "new", "50"}


def test_more_names_are_missing_than_instances_have_none(server: NameServer) -> None:
    """Then nobody knows which of them is there."""
    value = json.loads((GANETI / "config.data").read_text())
    del value["instances"]["uuid-0"]["name"]
    (GANETI / "config.data").write_text(json.dumps(value))
    (GANETI / "ssconf_instance_list").write_text("gone.example.com\nweb.example.com\n")
    assert command("sync", "--all").status == TEMPORARY and names(server) == ALL


def another_masters() -> None:
    value = json.loads((GANETI / "config.data").read_text())
    value["nodes"]["node-uuid"]["name"] = "node2.example"
    (GANETI / "config.data").write_text(json.dumps(value))


def another_clusters() -> None:
    value = json.loads((GANETI / "config.data").read_text())
    value["cluster"]["cluster_name"] = OTHER
    (GANETI / "config.data").write_text(json.dumps(value))


def older() -> None:
    """The list beside it has an instance that the configuration has not."""
    (GANETI / "ssconf_instance_list").write_text("gone.example.com\nweb.example.com\n")


@pytest.mark.parametrize(
    ("wrong", "status"),
    [
        (another_masters, UNAVAILABLE),
        (another_clusters, UNAVAILABLE),
        (older, TEMPORARY),
        ((GANETI / "ssconf_instance_list").unlink, TEMPORARY),
        ((GANETI / "ssconf_cluster_name").unlink, UNAVAILABLE),
        (DAEMON.unlink, UNAVAILABLE),
    ],
    ids=["another master's", "another cluster's", "older", "no list", "no cluster", "no daemon"],
)
@pytest.mark.parametrize("asked", [("--all",), ("gone.example.com",)], ids=["all", "one"])
def test_nothing_is_removed_by_a_configuration_that_is_not_certain(
    server: NameServer, wrong: Callable[[], object], status: int, asked: tuple[str, ...]
) -> None:
    wrong()
    done = command("sync", *asked)
    assert (done.status, "was not looked for" in done.stderr) == (status, True), done
    assert names(server) == ALL


def empty() -> None:
    """The configuration is of a time before the instance, the list beside it is of now."""
    (GANETI / "config.data").write_text(configuration({}))


@pytest.mark.parametrize(
    ("wrong", "status"),
    [(empty, TEMPORARY), (another_clusters, UNAVAILABLE), (another_masters, UNAVAILABLE), (DAEMON.unlink, UNAVAILABLE)],
    ids=["older", "another cluster's", "another master's", "no daemon"],
)
@pytest.mark.parametrize("asked", [("--all",), ("web.example.com",), (), ("--all", "--dry-run")], ids=["all", "one", "what failed", "dry"])
def test_a_living_instances_records_stay_as_another_master_has_made_them(
    server: NameServer, wrong: Callable[[], object], status: int, asked: tuple[str, ...]
) -> None:
    """This node's record and configuration are of an earlier time, when the server was away; the instance has another address by now."""
    assert run_hook(event("modify", "web.example.com", [nic("192.0.2.12")])).status == 0
    shutil.rmtree(STORE)
    server.stop()
    assert run_hook(event("modify", "web.example.com", [nic("192.0.2.10")])).status == TEMPORARY
    server.start()
    wrong()
    before, record = server.serials(), (STORE / "web.example.com.json").read_bytes()
    done = command("sync", *asked)
    assert (done.status, "nothing on record was brought up to date" in done.stderr) == (status, True), done
    assert (server.serials(), (STORE / "web.example.com.json").read_bytes()) == (before, record)


@pytest.mark.parametrize("how", ["refused", "one zone is not there"])
def test_nothing_is_removed_where_a_zone_cannot_be_read(server: NameServer, how: str) -> None:
    """Not even in the zones that can be."""
    if how == "refused":
        server.stop()
        server.forbid_transfers()
        server.start()
    else:
        Path("/etc/netcommon/config.toml").write_text(settings(server, [*ZONES, "example.org"], timeout=20.0))
    done = command("sync", "--all")
    assert (done.status, "was not looked for" in done.stderr) == (UNAVAILABLE, True), done
    assert names(server) == ALL


def test_nothing_is_removed_where_a_transfer_breaks_off(server: NameServer) -> None:
    """Do not look at what came of the zone, whether that has the stale marks or not."""
    for part in range(4):  # more than one message takes
        server.update("example.com", *(f"add filler-{part}-{number} 3600 TXT {'x' * 200}" for number in range(100)))
    config = Path("/etc/netcommon/config.toml")
    config.write_text(config.read_text().replace(f"{ADDRESS}:{PORT}", f"{ADDRESS}:5300"))
    with cutting(5300):
        done = command("sync", "--all")
    assert (done.status, "was not looked for" in done.stderr) == (TEMPORARY, True), done
    assert names(server) == ALL
    config.write_text(config.read_text().replace(f"{ADDRESS}:5300", f"{ADDRESS}:{PORT}"))
    assert command("sync", "--all").status == 0
    assert names(server) == LEFT
