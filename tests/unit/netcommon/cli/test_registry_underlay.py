"""netcommon registry underlay: as an operator types it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from netregistry.service import serve
from netregistry.stores.sqlite import SqliteStore
from tests.support.cli import Cli
from tests.support.registry import NODES
from tests.support.service import Served, served

SITE = "fd12:3456:789a::/48"


@pytest.fixture
def cli(tmp_path: Path) -> Cli:
    (tmp_path / "run/netregistry").mkdir(parents=True)
    return Cli(tmp_path)


@pytest.fixture
def service(cli: Cli) -> Iterator[Served]:
    cli("registry", "init")
    store = SqliteStore(str(cli.root / "var/lib/netregistry/registry.sqlite"))
    with served(cli.root / "run/netregistry", store=store) as service:
        for number in range(2):
            service.client().change("POST", "nodes", {"uuid": NODES[number], "name": f"node{number}"})
        yield service


def test_an_underlay_is_made_and_shown(cli: Cli, service: Served) -> None:
    missing = cli("registry", "underlay", "show", status=None)
    assert missing.exit_code == 64 and "netcommon registry underlay init PREFIX" in missing.stderr
    assert "would be the underlay" in cli("registry", "underlay", "init", SITE, "--dry-run").stdout
    for _ in range(2):
        said = cli("registry", "underlay", "init", SITE, "--zone", "hosts.example.com").stdout
        assert said == f"the underlay is {SITE}, its zone hosts.example.com\n"
    cli("registry", "underlay", "init", SITE, "--ttl", "5", "--minimum-age", "60")
    cli("registry", "node", "forget", "node1")
    shown = cli("registry", "underlay", "show").stdout
    assert [line.split()[:3] for line in shown.splitlines()[-2:]] == [
        ["node0", "fd12:3456:789a::/64", "fd12:3456:789a::1"],
        [NODES[1], "fd12:3456:789a:1::/64", "fd12:3456:789a:1::1"],
    ]
    assert "quarantine until" in shown and "65534" in shown and "hosts.example.com" in shown
    (item,) = cli.json("registry", "underlay", "show")["items"]
    assert item["underlay"] == {"prefix": SITE, "zone": "hosts.example.com", "minimum_age": 60.0, "ttl": 5}
    assert [each["node"] for each in item["prefixes"]] == [NODES[0], NODES[1]] and item["without"] == []


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        (("fd12::/64",), 64, "/48 to /60"),
        (("fe80::/48",), 64, "fc00::/7"),
        ((SITE, "--zone", "a b"), 64, "zone"),
        ((SITE, "--zone", "a." * 78 + "a"), 64, "at most 156 characters"),
        (("fd13::/48",), 69, SITE),
    ],
)
def test_what_is_refused_is_said_in_one_line(cli: Cli, service: Served, arguments: tuple[str, ...], status: int, said: str) -> None:
    if status == 69:
        cli("registry", "underlay", "init", SITE)
    refused = cli("registry", "underlay", "init", *arguments, status=None)
    assert refused.exit_code == status and said in refused.stderr
    assert len([line for line in refused.stderr.splitlines() if not line.startswith(" ")]) <= 2


class Nodes:
    """Two nodes of a service, which report what a test says, and do what they are told."""

    def __init__(self, service: Served) -> None:
        self.clients = [service.client(f"node:{NODES[number]}") for number in range(2)]
        self.nic = service.client().change("POST", "nics", {"instance": "web1", "index": 0}).body["uuid"]
        for number in range(2):
            self.clients[number].change("POST", f"nodes/{NODES[number]}/heartbeat", {"incarnation": NODES[5 - number]})

    def report(self, number: int, state: str) -> None:
        asked = self.clients[number]
        nics = [{"nic": self.nic, "state": state, "endpoints": ["console"]}] if state else []
        body: dict[str, Any] = {"nics": nics, "removed": [] if state else [self.nic]}
        for _ in range(2):
            prefix = next(each["prefix"] for each in asked.all("prefixes") if each["node"] == NODES[number])
            there = [each for item in asked.all("endpoints", node=NODES[number]) for each in item["placement"]["endpoints"]]
            addresses = [each["address"] for each in there if each["node"] == NODES[number] and each["state"] != "leaving"]
            after = asked.get(f"nodes/{NODES[number]}").body["reports"]
            body |= {"after": after, "underlay": {"generation": prefix["generation"], "addresses": addresses}}
            asked.change("POST", f"nodes/{NODES[number]}/reports", body)


def test_a_guest_that_moves_and_a_node_that_is_dead(cli: Cli, service: Served) -> None:
    cli("registry", "underlay", "init", SITE, "--zone", "hosts.example.com", "--ttl", "0", "--minimum-age", "86400")
    nodes = Nodes(service)
    nodes.report(0, "running")

    def where(name: str) -> list[list[str]]:
        return [line.split()[2:] for line in cli("registry", "underlay", "where", name).stdout.splitlines()[1:]]

    first, second, third = "fd12:3456:789a::1:0", "fd12:3456:789a:1::1:0", "web1.console.hosts.example.com"
    assert where("web1") == where(third) == [["node0", first, "there", third]]
    assert where("WEB1") == where("WEB1.Console.Hosts.Example.Com") == where("web1")
    nodes.report(1, "incoming")
    assert where("web1")[1] == ["node1", second, "there", "web1-migrating.console.hosts.example.com"]
    (item,) = cli.json("registry", "underlay", "where", "web1")["items"]
    assert item["placement"]["incoming"] == NODES[1] and item["problems"] == []
    for typed in ("", "node1\n"):
        assert "--yes" in cli("registry", "underlay", "fence", "node0", status=64, stdin=typed).stderr
    nodes.report(1, "running")
    cli("registry", "underlay", "fence", "node0", stdin="node0\n")
    cli("registry", "underlay", "fence", "node0", "--yes")
    assert where("web1") == [["node0", first, "retired", "-"], ["node1", second, "there", third]]
    resting = cli("registry", "underlay", "quarantine").stdout
    assert first in resting and "web1 console" in resting and second not in resting
    assert "released" in cli("registry", "underlay", "quarantine", "--release", first).stdout
    assert "not said that it is gone" in cli("registry", "underlay", "quarantine").stdout
    (item,) = cli.json("registry", "underlay", "quarantine")["items"]
    assert (item["address"], item["instance"], item["state"]) == (first, "web1", "leaving")
    assert cli("registry", "underlay", "quarantine", "--release", second, status=69).stderr.count("\n") <= 2
    assert cli("registry", "underlay", "where", "web9", status=64).stderr
    shown = cli("registry", "underlay", "show").stdout
    assert "endpoints" in shown and "generation" in shown


def test_quarantine_is_ended_by_what_is_listed(cli: Cli, service: Served) -> None:
    """A /64 as it is shown, an address with its length; what is none is said in the words of who typed it."""
    cli("registry", "underlay", "init", SITE, "--zone", "hosts.example.com", "--ttl", "0", "--minimum-age", "86400")
    nodes = Nodes(service)
    nodes.report(0, "running")
    nodes.report(1, "incoming")
    nodes.report(1, "running")
    cli("registry", "underlay", "fence", "node0", "--yes")
    first = "fd12:3456:789a::1:0"
    assert "released" in cli("registry", "underlay", "quarantine", "--release", f"{first}/128").stdout
    cli("registry", "node", "forget", "node1", "--force")
    listed = [line.split()[0] for line in cli("registry", "underlay", "quarantine").stdout.splitlines()]
    (prefix,) = (each for each in listed if each.endswith("/64"))
    assert "released" in cli("registry", "underlay", "quarantine", "--release", prefix).stdout
    for typed in (f"{first}/64", SITE, "a/b", "..", "/"):
        refused = cli("registry", "underlay", "quarantine", "--release", typed, status=64).stderr
        assert "endpoint" not in refused and "--release" in refused


@pytest.mark.parametrize(
    "arguments",
    [("token", "revoke", "a/b"), ("network", "release", "blue", "192.0.2.0/24"), ("network", "reserve", "blue", "a/b", "--reason", "x")],
)
def test_what_is_typed_is_no_place_of_the_service(cli: Cli, service: Served, arguments: tuple[str, ...]) -> None:
    cli("registry", "network", "add", "blue", "subnet=192.0.2.0/24")
    refused = cli("registry", *arguments, status=64).stderr
    assert "endpoint" not in refused and "expected" in refused


@pytest.mark.parametrize("said", ['zone_servers = ["127.0.0.1:53", "[::1]:5353"]\nzone_key_file = "/nowhere"\n', ""])
def test_the_service_publishes_at_the_servers_of_the_settings(cli: Cli, monkeypatch: pytest.MonkeyPatch, said: str) -> None:
    cli("registry", "init")
    config = Path(cli.paths.config)
    config.parent.mkdir(parents=True, exist_ok=True)
    config.write_text(f"[registry]\n{said}")
    given: list[Any] = []
    monkeypatch.setattr(serve, "run", lambda *arguments: given.append(arguments[-1]))
    cli("registry", "serve")
    (publisher,) = given
    assert (publisher.servers if said else publisher) == (("127.0.0.1:53", "[::1]:5353") if said else None)
