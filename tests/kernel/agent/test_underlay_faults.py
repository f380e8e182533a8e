"""Something goes wrong in the middle of a migration: the guest's name is where the guest is within seconds, and never at none or at two."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.kernel.agent.test_underlay_migration import Place, addresses, both, reached
from tests.kernel.agent.test_underlay_migration import registry as _registry
from tests.kernel.agent.test_underlay_migration import server as _server
from tests.kernel.agent.test_underlay_registry import MOVING, NAME
from tests.kernel.test_zone import Poller, polled
from tests.support.nameserver import NameServer
from tests.support.netns import Namespace, run, wait_until
from tests.support.node import Node
from tests.support.registry_process import Registry

registry, server = _registry, _server
AFTER = 5.0  #: seconds after the end of the fault, on a machine that has nothing else to do
Act = Callable[[], None]


class Site:
    """Two nodes with a guest on the first one, whose name is there."""

    def __init__(self, first: Place, second: Place, router: Namespace, registry: Registry) -> None:
        self.first, self.second, self.router, self.registry = first, second, router, registry
        first.door("kvm-ifup")
        first.agent.took(lambda: len(addresses(NAME)) == 1, 20, "its name is there")

    def comes(self) -> None:
        """Let the guest be on its way to the second node."""
        self.second.door("kvm-nic-setup", ACTION="up", MIGRATION_PHASE="pre")

    def announced(self) -> None:
        """Wait until the name of the migration leads to the second node."""
        self.second.agent.took(lambda: len(addresses(MOVING)) == 1, 20, "the name of the migration is there")

    def arrives(self) -> None:
        self.first.door("kvm-ifdown", "tap0", "migrate")
        self.second.door("kvm-nic-setup", ACTION="up", MIGRATION_PHASE="post")

    def fails(self) -> None:
        self.second.door("kvm-ifdown", "tap0", "migrate-failed")

    def ends_at(self, place: Place) -> float:
        """Wait until the guest's name is on a node, and no other name is; give how long that took."""
        took = place.agent.took(lambda: all(map(place.has, addresses(NAME))) and addresses(MOVING) == (), 30, "its name is where it is")
        wait_until(lambda: reached(self.router, NAME), 10, "its console answers there")
        return took


@pytest.fixture
def site(node: Node, registry: Registry, tmp_path: Path) -> Iterator[Site]:
    with both(node, registry, tmp_path) as (first, second, router):
        yield Site(first, second, router, registry)


@pytest.fixture
def asked(site: Site) -> Iterator[Poller]:
    """Ask for the guest's name all the time."""
    with polled(NAME) as found:
        yield found
    assert found.wrong == [] and found.count > 50
    assert len(found.answers) == len(set(found.answers)), "no address is given twice"


def agents(site: Site) -> tuple[Act, Act]:
    """Both agents are killed, and come back."""
    return lambda: _both(site, "stop", signal.SIGKILL), lambda: _both(site, "start")


def _both(site: Site, what: str, *given: object) -> None:
    for each in (site.first, site.second):
        each.there(getattr(each.agent, what), *given)


def frozen(site: Site) -> tuple[Act, Act]:
    """The registry stands still for a while."""
    return lambda: site.registry.signal(signal.SIGSTOP), lambda: site.registry.signal(signal.SIGCONT)


def killed(site: Site) -> tuple[Act, Act]:
    """The registry is killed, and comes back."""
    return site.registry.kill, site.registry.start


FAULTS = pytest.mark.parametrize("fault", [agents, frozen, killed])


@pytest.mark.sampled(3)
@FAULTS
@pytest.mark.parametrize("when", ["before it comes", "before it arrives"])
def test_it_arrives_while_something_is_away(site: Site, asked: Poller, fault: Callable[[Site], tuple[Act, Act]], when: str) -> None:
    begin, end = fault(site)
    if when == "before it comes":
        begin()
        site.comes()
    else:
        site.comes()
        site.announced()
        begin()
    site.arrives()
    end()
    assert site.ends_at(site.second) < AFTER


@pytest.mark.sampled(3)
@FAULTS
def test_it_fails_while_something_is_away(site: Site, asked: Poller, fault: Callable[[Site], tuple[Act, Act]]) -> None:
    """The name stays where it was, and what was made for the migration goes."""
    site.comes()
    site.announced()
    begin, end = fault(site)
    begin()
    site.fails()
    end()
    assert site.ends_at(site.first) < AFTER
    assert len(asked.answers) == 1


def dies(place: Place) -> None:
    """Let the guest's QEMU be killed: its device goes, and no hook is called."""
    place.there(run, "ip", "link", "del", "tap0")


def test_the_guest_is_killed_on_its_way(site: Site, asked: Poller) -> None:
    """Its name stays where it runs, and what was made for the migration goes."""
    site.comes()
    site.announced()
    dies(site.second)
    assert site.ends_at(site.first) < AFTER
    assert len(asked.answers) == 1


def test_the_source_is_killed_when_the_guest_has_arrived(site: Site, asked: Poller) -> None:
    """No hook is called there, and its name follows all the same."""
    site.comes()
    site.announced()
    site.second.door("kvm-nic-setup", ACTION="up", MIGRATION_PHASE="post")
    dies(site.first)
    assert site.ends_at(site.second) < AFTER


def test_the_name_server_is_away_while_it_arrives(site: Site, server: NameServer) -> None:
    """Nobody is told anything meanwhile; then where the guest is."""
    site.comes()
    site.announced()
    server.freeze()
    site.arrives()
    site.second.agent.took(lambda: _leads(site).startswith("fd12:3456:789a:1:"), 20, "the registry knows it")
    server.thaw()
    assert site.ends_at(site.second) < AFTER


def _leads(site: Site) -> str:
    with site.registry.client() as reader:
        return next((str(each["leads"]["address"]) for each in reader.all("names") if each["name"] == NAME), "")
