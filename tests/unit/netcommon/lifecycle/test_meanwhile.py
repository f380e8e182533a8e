"""What others do between a call's look and its locks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from netcommon.lifecycle import down, gc
from netcommon.lifecycle.check import check
from netcommon.settings.model import Settings
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


@pytest.mark.parametrize(
    ("mode", "tags", "mask", "kept"),
    [
        ("bridged", "netcommon:*:spoof_guard", 0, "nftables table bridge"),
        ("bridged", "netcommon:*:firewall:limited", 0, "nft table "),
        ("routed, table", "netcommon:*:gateway_arp netcommon:*:spoof_guard:no", 0, "nftables table arp"),
        ("routed, table", "netcommon:*:spoof_guard:no", 0xFF00, "nftables table inet"),
        ("routed, table", "netcommon:*:spoof_guard:no", 0xFF00, "rule fwmark"),
    ],
)
def test_gc_leaves_what_a_nic_shares_that_has_come_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str, tags: str, mask: int, kept: str
) -> None:
    """What a lost NIC has left looked like nobody's; then another has taken it for its own, and only then it is to be removed."""
    sim = Sim(str(tmp_path), Settings(service_timeout=2, hook_timeout=5, rule_mark=mask))
    sim.tap("tap1")
    options = {"TAGS": tags, "NETWORK_GATEWAY": "10.0.0.254", "NETWORK_SUBNET": "10.0.0.0/24"}
    sim.up(nic(mode, **options))
    sim.node.store.remove(sim.record())
    sim.host.remove_link("tap0")
    second = nic(mode, INTERFACE="tap1", INTERFACE_UUID=UUIDS[1], INTERFACE_INDEX="1", IP="10.0.0.6", MAC="aa:00:00:00:00:02", **options)
    removing = gc.remove

    def late(*arguments: Any) -> str:
        if not sim.records():
            sim.up(second)
        return removing(*arguments)

    monkeypatch.setattr(gc, "remove", late)
    found = {each.text: each.action for each in sim.gc()}
    assert {action for text, action in found.items() if text.startswith(kept)} == {gc.KEPT}, found
    assert check(sim.node, sim.host.view(), sim.record(UUIDS[1])).good
    sim.down(second)
    assert sim.gc() == []
