"""A live NIC whose prefixes get another length: the ranges of before go in the same transaction, since the kernel takes no overlap."""

from __future__ import annotations

from pathlib import Path

import pytest

from netcommon.lifecycle.check import check
from tests.support.sim import Sim, nic


@pytest.mark.parametrize("mode", ["routed", "bridged"])
@pytest.mark.parametrize(
    ("first", "then"), [("10.7.0.0/28", "10.7.0.0/24"), ("10.7.0.0/24", "10.7.0.0/28"), ("2001:db8::/64", "2001:db8::/56")]
)
def test_another_length(tmp_path: Path, mode: str, first: str, then: str) -> None:
    sim = Sim(str(tmp_path))
    for prefix in (first, then, first):
        assert sim.up(nic(mode, TAGS=f"netcommon:*:prefixes:{prefix}")).changed
        assert check(sim.node, sim.host.view(), sim.record()).good
    sim.down(nic(mode))
    assert sim.picture() == sim.before
