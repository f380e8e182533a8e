"""An up that loses nftables midway, as by the start of nftables.service: it goes on with what is missing now."""

from __future__ import annotations

from pathlib import Path

import pytest

from netcommon.host.api.host import Answer
from netcommon.host.api.requests import NftChange
from netcommon.lifecycle.check import check, repair
from runtime.errors import TryAgain
from runtime.record import UP
from tests.support.sim import Sim, nic

TAGS = "netcommon:*:node_access:none"
GUARDED = nic("bridged", TAGS=TAGS)


def flushing(sim: Sim, monkeypatch: pytest.MonkeyPatch, change: int, times: int) -> None:
    """Flush the ruleset before the ``change``-th change of nftables, and before so many that follow."""
    execute, seen = sim.host.nftables.execute, [0]

    def flushed(request: NftChange) -> Answer:
        seen[0] += 1
        if change <= seen[0] < change + times:
            sim.host.nftables.flush()
        return execute(request)

    monkeypatch.setattr(sim.host.nftables, "execute", flushed)


@pytest.mark.parametrize("again", [False, True], ids=["first", "second"])
def test_it_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, again: bool) -> None:
    """Whichever change it comes before, the NIC is up; where one fails for it, all holds afterwards, and what is left else is drift."""
    failed = 0
    for change in range(1, 7):
        sim = Sim(str(tmp_path / str(change)))
        if again:
            sim.up(GUARDED)
        with monkeypatch.context() as patched:
            flushing(sim, patched, change, 1)
            sim.up(nic("bridged", TAGS=TAGS + " netcommon:*:new_sources:9" * again))
        drift = check(sim.node, sim.host.view(), sim.record()).drift
        warned = any("once more" in line for line in sim.lines)
        failed += warned
        assert sim.record().state == UP and not (warned and drift), (change, drift)
        repair(sim.node, sim.record().key, sim.call())
        assert check(sim.node, sim.host.view(), sim.record()).good
    assert failed


def test_twice_is_somebody_at_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Then the up fails, may be tried again, and leaves nothing."""
    sim = Sim(str(tmp_path))
    flushing(sim, monkeypatch, 3, 9)
    with pytest.raises(TryAgain, match="changed meanwhile"):
        sim.up(GUARDED)
    assert sim.records() == [] and sim.host.nftables.tables == {}
