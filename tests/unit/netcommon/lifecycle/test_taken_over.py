"""Who takes an address of which another NIC is owed something owes it too: that NIC has it back when nobody else has it any more."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from netcommon.lifecycle import check
from netcommon.lifecycle.change import change, setting
from runtime.nic import Nic
from runtime.record import CLOSING, SCHEMA
from tests.support.sim import UUIDS, Sim, nic

FIRST = nic("routed")


def taker(number: int) -> Nic:
    """A NIC that claims the first one's address, on the tap of its number."""
    return nic("routed", INTERFACE=f"tap{number}", INTERFACE_UUID=UUIDS[number], INSTANCE=f"web{number}", MAC=f"aa:00:00:00:00:1{number}")


def leads_to(sim: Sim) -> str:
    """The device to which the address leads, "" for none."""
    links = sim.host.kernel.links
    return next((links[route.index].name for route in sim.host.kernel.routes if route.destination == "10.0.0.5/32"), "")


def owed(sim: Sim) -> list[str]:
    return [name for name in sim.files() if name.startswith("owed/")]


@pytest.fixture
def sim(tmp_path: Path) -> Sim:
    """Give a machine on which the second NIC has taken the first one's address."""
    made = Sim(str(tmp_path))
    for number in (1, 2):
        made.tap(f"tap{number}")
    made.up(FIRST)
    made.up(taker(1))
    assert leads_to(made) == "tap1"
    return made


def unplugged(sim: Sim) -> None:
    sim.host.remove_link("tap1")
    assert leads_to(sim) == ""


def test_by_itself_on_another_device(sim: Sim) -> None:
    unplugged(sim)
    sim.tap("tap1")
    sim.up(taker(1))
    sim.down(taker(1))
    assert leads_to(sim) == "tap0" and owed(sim) == []


@pytest.mark.parametrize("collected", [True, False], ids=["collected first", "collected later"])
def test_by_a_third_one(sim: Sim, collected: bool) -> None:
    unplugged(sim)
    sim.up(taker(2))
    if collected:
        sim.gc()
    assert leads_to(sim) == "tap2"
    sim.down(taker(2))
    sim.gc()
    assert leads_to(sim) == "tap0" and owed(sim) == []


def test_one_that_comes_while_it_is_given_back_keeps_it(sim: Sim, monkeypatch: pytest.MonkeyPatch) -> None:
    """It comes between the look at what was lost and the locks."""
    repaired = check._repaired

    def late(*given: object) -> object:
        with monkeypatch.context() as once:
            once.setattr(check, "_repaired", repaired)
            sim.up(taker(2))
        return repaired(*given)  # type: ignore[arg-type]

    with monkeypatch.context() as racing:
        racing.setattr(check, "_repaired", late)
        node = sim.node
        with node.store.locks(node.clock.now() + 5, node.clock.now, node.clock.sleep):
            pass
        sim.down(taker(1))
    assert leads_to(sim) == "tap2"
    sim.down(taker(2))
    sim.gc()
    assert leads_to(sim) == "tap0" and owed(sim) == []


def test_a_record_of_a_newer_version_may_have_had_it(sim: Sim) -> None:
    path = Path(sim.paths.state, "nics", f"{FIRST.uuid}.json")
    before = path.read_text()
    path.write_text(json.dumps({**json.loads(before), "schema": SCHEMA + 91}))
    sim.down(taker(1))
    assert leads_to(sim) == "" and owed(sim)
    path.write_text(before)
    sim.gc()
    assert leads_to(sim) == "tap0" and owed(sim) == []


def test_one_that_is_closing_has_it_back(sim: Sim) -> None:
    """Its guest is still there."""
    node = sim.node
    change(node, FIRST.uuid, sim.call(), setting(node, {"spoof_guard": "no"}, (), 0.0))
    sim.down(FIRST, "shutdown")
    assert sim.record(FIRST.uuid).state == CLOSING
    sim.down(taker(1))
    assert leads_to(sim) == "tap0" and owed(sim) == []
