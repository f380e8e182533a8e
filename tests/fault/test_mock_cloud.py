"""A mock cloud with a registry's service on an etcd: as many nodes as are sampled, and 2,000 by hand (python -m tests.bench.mock_cloud)."""

from __future__ import annotations

from pathlib import Path

from netregistry.rules.reports import SETTLING
from netregistry.stores.etcd import AT_A_TIME
from tests.bench.mock_cloud import NICS, measured, table
from tests.support.etcd import Cluster
from tests.support.netns import slowness
from tests.support.sample import FULL

SIZES = (20, 40) if FULL else (3, 6)
IDLE = 5.0
OWN = 2  #: threads of the service; it has more while it keeps leases, of which it may be asked just then
LATE = SETTLING * 1000  #: milliseconds: the registry takes it for a migration so long


def test_it_grows_comes_back_and_moves(etcds: dict[int, Cluster], tmp_path: Path) -> None:
    """The bench waits until the registry shows all as it should be, at each step."""
    etcds[1].anew()
    found = measured(tmp_path, etcds[1].url, SIZES, IDLE)
    last = found[-1]
    assert [figures["mock process, threads"] for figures in found] == [1, 1] and last["service, threads"] <= OWN + AT_A_TIME
    assert last["NICs that moved"] == SIZES[-1] * NICS
    assert last["NICs, MACs and addresses reported as in force twice"] == 0
    # the guest has ended where it was by then, and that node's agent is yet to tell it: the registry says that it moves
    assert last["a NIC is, for at most, ms"] <= LATE * slowness()
    assert table(found, SIZES).count("\n") == len(last) + 1
