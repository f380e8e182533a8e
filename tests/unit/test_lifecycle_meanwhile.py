"""What others do between a call's look and its locks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from netcommon.lifecycle import down
from runtime.environment import DownHint
from runtime.locks import Locks
from tests.support.sim import UUIDS, Sim, nic


def test_the_nic_comes_up_on_the_named_device_and_back_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A down names tap1 for a NIC that is on tap0; then it comes up on tap1, and on tap0 once more: it is tap1's that goes."""
    sim = Sim(str(tmp_path))
    sim.tap("tap1")
    sim.up(nic(INTERFACE="tap0"))
    taken: list[Any] = []

    def late(node: Any, call: Any) -> Locks:
        if not taken:
            taken.append(node)
            for tap in ("tap1", "tap0"):
                down_locks, down.locks = down.locks, locks  # type: ignore[attr-defined]
                sim.up(nic(INTERFACE=tap))
                down.locks = down_locks  # type: ignore[attr-defined]
        return locks(sim.node, call)

    locks = down.locks  # type: ignore[attr-defined]
    monkeypatch.setattr(down, "locks", late)
    sim.down(DownHint(UUIDS[0], "tap1", "web1", 0))
    assert [(record.device, record.state, record.moved) for record in sim.records()] == [("tap0", "up", False)]
