"""Many NICs on one simulated node: what batches of them have in common."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from netcommon.host.linux.snapshot import Snapshot
from netcommon.lifecycle import batch
from netcommon.lifecycle.context import Outcome
from runtime.nic import Nic
from tests.support.sim import MODES, Sim
from tests.support.sim import nic as make

COUNT = 6


def nics(mode: str, count: int = COUNT) -> list[Nic]:
    """Return NICs that differ in all but what their mode's options say."""
    found = []
    for number in range(count):
        changes = {"INTERFACE": f"tap{number}", "INSTANCE": f"web{number}", "MAC": f"aa:00:00:00:01:{number:02x}"}
        changes["INTERFACE_UUID"] = f"{number:08x}-1111-4111-8111-111111111111"
        address = MODES[mode].get("IP", "")
        if address.endswith("/24"):
            changes["IP"] = f"10.9.{number}.0/24"
        elif address:
            changes["IP"] = f"fd00::1{number}" if ":" in address else f"10.0.0.1{number}"
        found.append(make(mode, **changes))
    return found


def machine(path: Path) -> Sim:
    """Make a node with a tap for each of COUNT NICs."""
    path.mkdir(exist_ok=True)
    made = Sim(str(path))
    for number in range(1, COUNT):
        made.tap(f"tap{number}")
    made.before = made.picture()
    return made


def up_all(sim: Sim, wanted: Sequence[Nic]) -> list[object]:
    """Bring them up in one batch; return the result of each."""
    found = list(batch.up_all(sim.node, wanted, lambda _nic: sim.call()))
    assert [nic for nic, _result in found] == list(wanted)
    return [result for _nic, result in found]


def pictures(sim: Sim, monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Give a list that grows by one with each picture of the host that is taken from now on."""
    taken: list[object] = []
    real = sim.host.snapshot

    def snapshot() -> Snapshot:
        taken.append(None)
        return real()

    monkeypatch.setattr(sim.host, "snapshot", snapshot)
    return taken


def alike(picture: dict[str, Any]) -> dict[str, Any]:
    """Return the picture without the order in which NICs came to their rules."""
    return picture | {name: sorted(picture[name], key=repr) for name in ("rules", "nftables")}


def forbidden(*_anything: object) -> Outcome:
    """Stand in for what a batch must not call."""
    raise AssertionError("one by one")
