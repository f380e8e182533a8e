"""A guest goes to and fro between two nodes: agents, a registry, a name server, BIRD, and somebody who asks for its name all the time."""

from __future__ import annotations

import contextlib
import signal
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import dns.message
import dns.query
import dns.rdatatype
import pytest

from tests.kernel.agent.test_underlay_registry import GUEST, MOVING, NAME, SETTINGS, SITE, ZONE, begun
from tests.kernel.test_endpoints import BANNER, CONSOLES, VNC, greeting, process, qemu
from tests.kernel.test_underlay_routing import Routers, configuration, routed
from tests.kernel.test_zone import Poller, polled
from tests.support.agent import Agent
from tests.support.members import CLUSTER, joins, started
from tests.support.nameserver import ADDRESS, PORT, NameServer
from tests.support.netns import Namespace, run, sysctl, wait_until
from tests.support.node import Node
from tests.support.registry_process import Registry, elsewhere
from tests.support.rundoor import rundoor
from tests.support.sample import FULL

ROUNDS = 20 if FULL else 2  #: each way
PROMPT = 2.0  #: seconds in which a name follows, on a machine that has nothing else to do
PREFIXES = ("fd12:3456:789a::/64", "fd12:3456:789a:1::/64")
ROUTER = """
log stderr all;
router id 192.0.2.1;
protocol device {}
protocol kernel { ipv6 { export all; import none; }; }
protocol bgp node0 { local as 65000; neighbor fe80::2%eth0 as 65010; ipv6 { import all; export none; }; }
protocol bgp node1 { local as 65000; neighbor fe80::2%eth1 as 65010; ipv6 { import all; export none; }; }
"""


def addresses(name: str) -> tuple[str, ...]:
    """Ask the name server."""
    answer = dns.query.udp(dns.message.make_query(f"{name}.", "AAAA"), ADDRESS, timeout=5, port=PORT)
    return tuple(sorted(each.to_text() for records in answer.answer if records.rdtype == dns.rdatatype.AAAA for each in records))


def wired(node: Node, router: Namespace, peer: str) -> None:
    """Connect the calling thread's node with the router; both ends have link-local addresses alone."""
    run("ip", "link", "set", "lo", "up")
    node.forwarding(ipv6=True)
    node.wire("up0", router, peer)
    run("ip", "-6", "address", "add", "fe80::2/64", "dev", "up0", "nodad")
    run("ip", "-6", "route", "add", "default", "via", "fe80::1", "dev", "up0")
    router.run("ip", "-6", "address", "add", "fe80::1/64", "dev", peer, "nodad")


class Place:
    """One of the two nodes. ``there(f, x)`` does f(x) on it."""

    def __init__(self, number: int, there: Callable[..., object], node: Node, agent: Agent) -> None:
        self.number, self.there, self.node, self.agent = number, there, node, agent

    def door(self, door: str, *arguments: str, **more: str) -> None:
        done = self.there(rundoor, door, {**GUEST, **more}, *arguments)
        assert done.status == 0, done  # type: ignore[attr-defined]

    def has(self, address: str) -> bool:
        """Tell whether an address is of this node's prefix."""
        own = address.startswith("fd12:3456:789a:1:")
        return own if self.number else not own


class Measured:
    """Give how long names took, in seconds."""

    def __init__(self) -> None:
        self.moving: list[float] = []
        self.arrived: list[float] = []

    def __str__(self) -> str:
        shown = (f"{name} {statistics.median(each):.2f} s, at most {max(each):.2f} s" for name, each in vars(self).items())
        return ", ".join(shown)


@pytest.fixture
def server(node: Node) -> Iterator[NameServer]:
    """A name server with the zone, of which it has nothing yet."""
    run("ip", "link", "set", "lo", "up")
    with NameServer.started({ZONE: ""}) as made:
        yield made


@pytest.fixture
def registry(tmp_path: Path, server: NameServer) -> Iterator[Registry]:
    """A registry that publishes the underlay's names, with the guest's NIC as Ganeti's cluster has it."""
    with publishing(tmp_path, server) as made:
        imported(made)
        yield made


@contextlib.contextmanager
def publishing(folder: Path, server: NameServer, rests: int = 1) -> Iterator[Registry]:
    """Give a registry that publishes the underlay's names. ``rests``: seconds in quarantine, at least."""
    made = Registry(folder)
    config = folder / "etc/netcommon/config.toml"
    config.write_text(f'[registry]\nzone_servers = ["{ADDRESS}:{PORT}"]\nzone_key_file = "{server.key_file}"\n')
    made.start()
    try:
        with made.client() as operator:
            operator.change("PUT", "underlay", {"prefix": SITE, "zone": ZONE, "ttl": 1, "minimum_age": rests})
        yield made
    finally:
        made.signal(signal.SIGCONT)
        made.kill()


def imported(registry: Registry) -> None:
    """Let the guest's NIC be one of Ganeti's cluster."""
    with registry.client(f"importer:{CLUSTER}") as importer:
        said = {"instance": "web0", "index": 0, "mac": GUEST["MAC"]}
        importer.change("POST", "nics", {"uuid": GUEST["INTERFACE_UUID"], **said})


@contextlib.contextmanager
def both(node: Node, registry: Registry, folder: Path) -> Iterator[tuple[Place, Place, Namespace]]:
    """Give two nodes of one registry with a guest's QEMU on each."""
    with joined(node, registry, folder) as (first, second, router), contextlib.ExitStack() as stack:
        for each in (first, second):
            each.there(begun, each.node)
            _consoles(stack, each.there)
        yield first, second, router


@contextlib.contextmanager
def joined(
    node: Node, registry: Registry, folder: Path, install: Callable[[], None] = lambda: None
) -> Iterator[tuple[Place, Place, Namespace]]:
    """Give two nodes of one registry with a router between them, which routes to each what that announces.

    ``install``: what is done on each of them beforehand.
    """
    router = node.namespaced()
    with router.entered():
        run("ip", "link", "set", "lo", "up")
        run("ip", "-6", "address", "add", "fd00:f::1/128", "dev", "lo")
        sysctl("net/ipv6/conf/all/forwarding", "1")
    with elsewhere() as other, contextlib.ExitStack() as stack:
        joins(registry, 0)
        wired(node, router, "eth0")
        other(joins, registry, 1)
        other(wired, other.node, router, "eth1")
        install()
        other(install)
        agents = started(SETTINGS), other(started, SETTINGS)
        stack.callback(agents[0].close)
        stack.callback(other, agents[1].close)
        daemons = Routers(stack, folder)
        with router.entered():
            daemons.bird("router", ROUTER)
        text = configuration("BIRD").replace("fd00:1:2::/48", SITE)
        daemons.bird("node0", text)
        other(daemons.bird, "node1", text.replace("192.0.2.10", "192.0.2.11"))
        wait_until(lambda: sorted(routed(router)) == sorted(PREFIXES), 60, f"both prefixes are routed: {daemons.logs()}")
        yield Place(0, lambda act, *given: act(*given), node, agents[0]), Place(1, other, other.node, agents[1]), router


def _consoles(stack: contextlib.ExitStack, there: Callable[..., object]) -> None:
    """Let a node have a QEMU of the guest, and forward consoles."""
    for made in (qemu("web0"), process(CONSOLES, "--socket", VNC)):
        there(made.__enter__)
        stack.callback(there, made.__exit__, None, None, None)


def reached(router: Namespace, name: str) -> bool:
    """Tell whether the console of a name answers whoever asks for it now."""
    found = addresses(name)
    return len(found) == 1 and greeting(router, found[0]) == BANNER


def migrates(source: Place, target: Place, router: Namespace, measured: Measured) -> None:
    """Let the guest go from one node to the other."""
    began = time.monotonic()
    target.door("kvm-nic-setup", ACTION="up", MIGRATION_PHASE="pre")
    target.agent.took(lambda: any(map(target.has, addresses(MOVING))), 20, "the name of the migration leads to the target")
    measured.moving.append(time.monotonic() - began)
    assert all(map(source.has, addresses(NAME)))
    wait_until(lambda: reached(router, MOVING), 10, "its console answers there")
    source.door("kvm-ifdown", "tap0", "migrate")
    target.door("kvm-nic-setup", ACTION="up", MIGRATION_PHASE="post")
    began = time.monotonic()
    target.agent.took(lambda: all(map(target.has, addresses(NAME))), 20, "its name leads to the target")
    measured.arrived.append(time.monotonic() - began)
    target.agent.took(lambda: addresses(MOVING) == (), 20, "there is no name of a migration")
    wait_until(lambda: reached(router, NAME), 10, "its console answers there")


def test_a_guest_goes_to_and_fro_and_its_name_with_it(node: Node, registry: Registry, tmp_path: Path) -> None:
    """Whoever asks the name server is told one address each time, and never an address of a node that does not have it."""
    measured = Measured()
    with both(node, registry, tmp_path) as (first, second, router):
        first.door("kvm-ifup")
        first.agent.took(lambda: len(addresses(NAME)) == 1, 20, "its name is there")
        wait_until(lambda: reached(router, NAME), 10, "its console answers")
        with polled(NAME) as asked:
            for _ in range(ROUNDS):
                migrates(first, second, router, measured)
                migrates(second, first, router, measured)
        _judge(asked)
        assert first.agent.status()["alarms"] == {}
    print(f"underlay: {2 * ROUNDS} migrations, {asked.count} answers, the name {measured}")
    assert statistics.median(measured.arrived) < PROMPT and statistics.median(measured.moving) < PROMPT


def _judge(asked: Poller) -> None:
    assert asked.wrong == [] and asked.count > 100
    assert len(asked.answers) == 2 * ROUNDS + 1 == len(set(asked.answers)), "no address is given twice"
