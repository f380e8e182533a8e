"""A guest that plain QEMU moves between two nodes: without Ganeti, with QEMU's own scripts, and with a command at the end."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kernel.agent.test_underlay_live import BRIDGED, Live, Measured, live, migrates, used
from tests.kernel.agent.test_underlay_migration import addresses, publishing
from tests.kernel.agent.test_underlay_migration import server as _server
from tests.kernel.agent.test_underlay_registry import MOVING, NAME
from tests.support.hypervisors import ByHand, Plain
from tests.support.nameserver import NameServer
from tests.support.netns import wait_until
from tests.support.node import Node
from tests.support.registry_process import Registry
from tests.support.sample import FULL

server = _server
ROUNDS = 20 if FULL else 1  #: each way


@pytest.fixture
def registry(tmp_path: Path, server: NameServer) -> Iterator[Registry]:
    """A registry that publishes the underlay's names, and that no cluster has told of a guest."""
    with publishing(tmp_path, server) as made:
        yield made


@pytest.fixture
def kind() -> type[Plain]:
    """Move the guest by this, where a test does not say it."""
    return Plain


@pytest.fixture
def site(node: Node, registry: Registry, tmp_path: Path, kind: type[Plain]) -> Iterator[Live]:
    """Two nodes without Ganeti, on both of which the guest's NIC is defined; it runs on the first."""
    with live(node, registry, tmp_path, BRIDGED, kind, installed=False) as made:
        for each in made.hypervisors:
            assert isinstance(each, Plain)
            each.define()
        made.begins()
        yield made


@pytest.mark.sampled(2)
@pytest.mark.parametrize("kind", [Plain, ByHand], ids=["by scripts", "by hand"])
def test_a_guest_that_plain_qemu_moves(site: Live, tmp_path: Path) -> None:
    """The target's QEMU says by -incoming that the guest is on its way, the source's calls its script when it is ended; or commands do."""
    measured = Measured()
    with used(site, tmp_path) as (asked, pings):
        for _ in range(ROUNDS):
            migrates(site, 0, 1, asked, measured)
            migrates(site, 1, 0, asked, measured)
    assert asked.wrong == [] and asked.silent == 0
    assert len(asked.answers) == 2 * ROUNDS + 1 == len(set(asked.answers)), "no address is given twice"
    assert [each.agent.status()["alarms"] for each in site.places] == [{}, {}]
    print(f"underlay: {2 * ROUNDS} migrations by plain QEMU, {asked.count} answers; {measured}")
    print(f"underlay: {pings.count} pings, {pings.longest:.2f} s between two at most")
    measured.judge()


@pytest.mark.sampled(3)
@pytest.mark.parametrize("how", ["it is cancelled", "the target is ended", "the target is killed"])
def test_a_migration_that_fails(site: Live, tmp_path: Path, how: str) -> None:
    """The guest goes on where it was, and its name stays; the one of the migration goes."""
    with used(site, tmp_path) as (asked, _pings):
        site.comes(1)
        source, target = (each.qemu for each in site.hypervisors)
        assert source is not None and target is not None
        site.is_sending(0, 1)
        if how == "it is cancelled":
            source.monitor.ask("migrate_cancel")
            target.ended()  # by itself
        elif how == "the target is ended":
            site.hypervisors[1].gives_up()
        else:
            site.hypervisors[1].dies()
        site.places[1].agent.took(lambda: addresses(MOVING) == (), 20, "there is no name of the migration")
        wait_until(source.runs, 20, "the guest goes on")
        since = site.answered(0, 0)
        site.answered(0, max(since, site.console.answers[-1].when))
    assert asked.wrong == [] and len(asked.answers) == 1
    assert all(map(site.places[0].has, addresses(NAME)))
