"""QEMU is killed, or the name server is away, in the midst of a migration by QEMU: the guest's name is where the guest is, soon after."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kernel.agent.test_underlay_live import BRIDGED, ROUTED, Live, live
from tests.kernel.agent.test_underlay_migration import addresses, imported, publishing
from tests.kernel.agent.test_underlay_migration import server as _server
from tests.kernel.agent.test_underlay_registry import NAME
from tests.kernel.agent.test_underlay_registry import Place as Seen
from tests.kernel.test_zone import Poller, polled
from tests.support.agent import contention
from tests.support.guest_client import consoled
from tests.support.hypervisors import Ganeti
from tests.support.nameserver import NameServer
from tests.support.netns import wait_until
from tests.support.node import Node
from tests.support.registry_process import Registry

server = _server
AFTER = 5.0  #: seconds after the end of the fault, on a machine that has nothing else to do
AWAY = 60.0  #: seconds for which the name server is away
RESTS = 600  #: seconds in quarantine


@pytest.fixture
def registry(tmp_path: Path, server: NameServer) -> Iterator[Registry]:
    """A registry that publishes the underlay's names, and keeps addresses in quarantine for longer than a test lasts."""
    with publishing(tmp_path, server, RESTS) as made:
        imported(made)
        yield made


@pytest.fixture
def seen(registry: Registry) -> Seen:
    return Seen(registry)


@pytest.fixture
def nic() -> dict[str, str]:
    """Give the guest's NIC, where a test does not say which."""
    return BRIDGED


EACH = pytest.mark.parametrize("nic", [ROUTED, BRIDGED], ids=["routed", "bridged"])


@pytest.fixture
def site(node: Node, registry: Registry, tmp_path: Path, nic: dict[str, str]) -> Iterator[Live]:
    """Two nodes with Ganeti 3.0; the guest runs on the first, and somebody holds its console."""
    with live(node, registry, tmp_path, nic, Ganeti) as made:
        made.begins()
        with consoled(made.router, lambda: addresses(NAME)) as made.console:
            made.answered(0, 0)
            made.comes(1)
            yield made


@contextlib.contextmanager
def asked() -> Iterator[Poller]:
    """Ask for the guest's name all the time, while the guest runs anywhere."""
    with polled(NAME) as found:
        yield found
    assert found.wrong == [] and found.count > 5
    assert len(found.answers) == len(set(found.answers)), "no address is given twice"


def ends_at(site: Live, seen: Seen, place: int, runs: bool = True) -> None:
    """Expect the guest's name, and no other, to lead to a node soon, and the other node's address to rest; its console is reached by it.

    ``runs``: it does; the name of one that is off waits for it where it was.
    """
    began = time.time()
    site.named(place)
    took = (time.time() - began) / contention()
    assert took < AFTER, took
    if runs:
        site.answered(place, began)
    has = site.places[1 - place].has
    wait_until(lambda: [state for address, state in seen.endpoints().items() if has(address)] == ["retired"], 10, "its address rests")


@pytest.mark.sampled(2)
@EACH
def test_the_target_is_killed_on_the_way(site: Live, seen: Seen) -> None:
    """The guest goes on where it was, though nobody has called a script."""
    with asked() as told:
        site.is_sending(0, 1)
        site.hypervisors[1].dies()
        ends_at(site, seen, 0)
    assert len(told.answers) == 1


@pytest.mark.slow
@EACH
def test_ganeti_gives_it_up(site: Live, seen: Seen) -> None:
    """The target's QEMU is ended, and what Ganeti has of the guest there goes with it."""
    with asked() as told:
        site.is_sending(0, 1)
        site.hypervisors[1].gives_up()
        ends_at(site, seen, 0)
    assert len(told.answers) == 1


@pytest.mark.slow
def test_the_source_is_killed_on_the_way(site: Live, seen: Seen) -> None:
    """The guest is no more, and the target's QEMU ends by itself; the name waits where it was, until Ganeti starts the guest elsewhere."""
    with asked():
        site.is_sending(0, 1)
        site.hypervisors[0].dies()
        target = site.hypervisors[1].qemu
        assert target is not None
        target.ended()
        ends_at(site, seen, 0, runs=False)
        for each in site.hypervisors:
            each.gives_up()  # Ganeti finds it so
        site.hypervisors[1].start()
        site.named(1)
        site.answered(1, time.time())


@pytest.mark.slow
@EACH
def test_the_source_is_killed_when_the_guest_is_here(site: Live, seen: Seen) -> None:
    """It is killed before Ganeti has ended it: the name leads to where the guest is."""
    with asked():
        site.sends(0, 1)
        site.hypervisors[0].dies()
        site.hypervisors[1].is_here()
        ends_at(site, seen, 1)


@pytest.mark.slow
def test_the_target_is_killed_before_ganeti_knows_that_the_guest_is_here(site: Live, seen: Seen) -> None:
    """Ganeti lets the source's QEMU go on, which has the guest still."""
    source = site.hypervisors[0].qemu
    assert source is not None
    with asked() as told:
        site.sends(0, 1)
        site.hypervisors[1].dies()
        source.monitor.ask("cont")
        ends_at(site, seen, 0)
    assert len(told.answers) == 1


@pytest.mark.slow
def test_the_target_is_killed_when_the_guest_is_there_alone(site: Live, seen: Seen) -> None:
    """The guest is no more; its name waits where it was last."""
    with asked():
        site.sends(0, 1)
        site.hypervisors[0].has_gone()
        site.hypervisors[1].is_here()
        site.named(1)
        site.hypervisors[1].dies()
        site.places[1].agent.logged("undone")
        ends_at(site, seen, 1, runs=False)


@pytest.mark.slow
def test_the_name_server_is_away_while_the_guest_arrives(site: Live, server: NameServer, seen: Seen) -> None:
    """Nobody is told anything meanwhile; when it is back it tells where the guest is."""
    server.stop()
    site.sends(0, 1)
    site.hypervisors[0].has_gone()
    site.hypervisors[1].is_here()
    moved = seen.names
    site.places[1].agent.took(lambda: site.places[1].has(moved()[NAME]), 20, "the registry knows it")
    site.places[1].agent.lasts(AWAY)
    server.start()
    with asked():
        ends_at(site, seen, 1)
