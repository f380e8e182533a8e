"""netcommon registry underlay: as an operator types it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

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
        (("fd13::/48",), 69, SITE),
    ],
)
def test_what_is_refused_is_said_in_one_line(cli: Cli, service: Served, arguments: tuple[str, ...], status: int, said: str) -> None:
    if status == 69:
        cli("registry", "underlay", "init", SITE)
    refused = cli("registry", "underlay", "init", *arguments, status=None)
    assert refused.exit_code == status and said in refused.stderr
    assert len([line for line in refused.stderr.splitlines() if not line.startswith(" ")]) <= 2
