"""A real registry, and two nodes with real agents and kernels: a guest's endpoint is where the guest is, also while it moves."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from netcommon.host.linux.host import LinuxHost
from runtime.paths import Paths
from tests.kernel.test_doors_parallel import environment
from tests.support.agent import Agent, agent
from tests.support.members import CLUSTER, joins, serving, started
from tests.support.netns import run
from tests.support.node import Node
from tests.support.node_underlay import is_rest_unreachable, marked
from tests.support.registry_process import Elsewhere, Registry, elsewhere
from tests.support.rundoor import rundoor
from tests.support.tap import Tap

SITE, ZONE = "fd12:3456:789a::/48", "hosts.example.com"
NAME = "web0.console.hosts.example.com"
MOVING = "web0-migrating.console.hosts.example.com"
PREFIXES = ("fd12:3456:789a::/64", "fd12:3456:789a:1::/64")
SETTINGS = '[registry]\ncompare_delay = 3600\n[nic]\nendpoints = ["console"]\n'
GUEST = {**environment(0, MODE="bridged", LINK="br0", IP="", INSTANCE="web0"), "MAC": "aa:00:00:00:00:01"}


@pytest.fixture
def registry(tmp_path: Path) -> Iterator[Registry]:
    with serving(tmp_path) as made:
        yield made


def begun(node: Node) -> Tap:
    """Let a node have a loopback that is up, and a bridge for guests; give the tap of the guest."""
    run("ip", "link", "set", "lo", "up")
    node.bridge("br0")
    return node.tap()


def there() -> list[str]:
    """Give the addresses that this node's kernel has from the registry; none without the route for the rest."""
    host = LinuxHost(Paths())
    try:
        found = marked(host.view())
        assert not found or any(is_rest_unreachable(host.view(), prefix) for prefix in PREFIXES)
        return found
    finally:
        host.close()


def scripted(folder: Path) -> Callable[[], str]:
    """Let the site have a script of endpoints; give what tells what it was told."""
    script, noted = Path("/etc/netcommon/endpoint.d/50-tell"), folder / "told"
    script.parent.mkdir(parents=True)
    script.write_text(f'#!/bin/sh\necho "$1 $2 $INSTANCE $NETCOMMON_ENDPOINT_NAME" >> {noted}\n')
    script.chmod(0o755)
    return lambda: noted.read_text().strip() if noted.exists() else ""


class Place:
    """The registry as somebody sees it who asks for names and endpoints."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    def endpoints(self) -> dict[str, str]:
        """Give the addresses of endpoints, and the state of each."""
        with self._registry.client() as asked:
            found = list(asked.all("endpoints"))
        return {each["address"]: each["state"] for item in found for each in item["placement"]["endpoints"]}

    def names(self) -> dict[str, str]:
        """Give the names that lead anywhere, and where."""
        with self._registry.client() as asked:
            return {each["name"]: each["leads"]["address"] for each in asked.all("names")}


@pytest.fixture
def place(registry: Registry) -> Place:
    with registry.client() as operator:
        operator.change("PUT", "underlay", {"prefix": SITE, "zone": ZONE, "ttl": 1, "minimum_age": 1})
    with registry.client(f"importer:{CLUSTER}") as importer:
        said = {"instance": "web0", "index": 0, "mac": GUEST["MAC"]}
        importer.change("POST", "nics", {"uuid": GUEST["INTERFACE_UUID"], **said})
    return Place(registry)


def test_an_endpoint_is_on_its_node_before_a_name_leads_to_it_and_after_the_registry_is_gone(
    node: Node, registry: Registry, place: Place, tmp_path: Path
) -> None:
    """The registry gives it, the agent makes it within seconds, and a restarted agent has it without the registry."""
    joins(registry, 0)
    begun(node)
    told = scripted(tmp_path)
    with agent(settings=SETTINGS) as running:
        running.took(lambda: there() == ["fd12:3456:789a::1"], 20, "the node has its own address")
        assert rundoor("kvm-ifup", GUEST).status == 0
        took = running.took(lambda: place.endpoints() == {"fd12:3456:789a::1:0": "there"}, 20, "the endpoint is there, and confirmed")
        assert took < 6 and there() == ["fd12:3456:789a::1", "fd12:3456:789a::1:0"]
        running.took(lambda: told().startswith("fd12:3456:789a::1:0 endpoint-up web0"), 10, "the site's scripts are told of it")
        running.took(lambda: told().endswith(f"{NAME}"), 10, "and of its name")
        registry.kill()
        running.restart()
        run("ip", "-6", "address", "flush", "dev", "lo", "scope", "global")
        back = running.took(lambda: there() == ["fd12:3456:789a::1", "fd12:3456:789a::1:0"], 20, "it is put back without a registry")
        assert back < 3
        registry.start()
        running.took(lambda: running.status()["agent"]["registry"] == "in step", 30, "it is in step")
        assert rundoor("kvm-ifdown", GUEST, "tap0", "hot-remove").status == 0
        with registry.client(f"importer:{CLUSTER}") as importer:
            importer.change("DELETE", f"nics/{GUEST['INTERFACE_UUID']}", match="*")
        running.took(lambda: there() == ["fd12:3456:789a::1"], 40, "when nobody remembers it, it goes")
        running.took(lambda: "fd12:3456:789a::1:0 endpoint-down web0" in told(), 10, "the site's scripts are told of that")
        assert running.status()["alarms"] == {}
        print(f"underlay: there after {took:.2f} s, back after {back:.2f} s")


def test_an_endpoint_goes_with_its_guest_to_another_node(node: Node, registry: Registry, place: Place) -> None:
    """It is on the target before the guest comes, and leaves the source when nobody remembers it there."""
    joins(registry, 0)
    with elsewhere() as other, agent(settings=SETTINGS) as source:
        other(joins, registry, 1)
        target = other(started, SETTINGS)
        try:
            moves(other, node, source, target, place)
        finally:
            other(target.close)


def moves(other: Elsewhere, node: Node, source: Agent, target: Agent, place: Place) -> None:
    begun(node)
    other(begun, other.node)
    first, second = "fd12:3456:789a::1:0", "fd12:3456:789a:1::1:0"
    assert rundoor("kvm-ifup", GUEST).status == 0
    source.took(lambda: place.endpoints() == {first: "there"}, 20, "its endpoint is on the source")
    source.took(lambda: place.names() == {NAME: first}, 20, "its name leads there")
    assert other(rundoor, "kvm-nic-setup", {**GUEST, "ACTION": "up", "MIGRATION_PHASE": "pre"}).status == 0
    target.took(lambda: place.endpoints() == {first: "there", second: "there"}, 20, "there is one on the target")
    target.took(lambda: place.names() == {NAME: first, MOVING: second}, 20, "that of the migration leads there")
    assert second in other(there)
    assert rundoor("kvm-ifdown", GUEST, "tap0", "migrate").status == 0
    assert other(rundoor, "kvm-nic-setup", {**GUEST, "ACTION": "up", "MIGRATION_PHASE": "post"}).status == 0
    target.took(lambda: place.names() == {NAME: second}, 20, "its name leads to the target")
    source.took(lambda: there() == ["fd12:3456:789a::1"], 40, "the source has it no more")
    assert other(there) == ["fd12:3456:789a:1::1", second]
