"""Two NICs that claim the same thing come up at the same time: as if one had come after the other.

A scheduler decides at every question to the host, request and file operation who goes on (tests/support/interleave.py).
"""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from netcommon.host.api.facts import AF_INET, AF_INET6
from netcommon.lifecycle import site_scripts
from netcommon.lifecycle.context import Call
from netcommon.lifecycle.up import up
from runtime.errors import HostRefused
from runtime.nic import Nic
from tests.support.interleave import Ended, Scheduler, process
from tests.support.sim import UUIDS, Sim, nic

SEEDS = range(12)
OTHER = {"INTERFACE": "tap1", "INTERFACE_UUID": UUIDS[1], "INSTANCE": "web2", "MAC": "aa:00:00:00:00:02"}

#: What two NICs claim: how the second differs from the first besides its name, and the destinations.
CLAIMS: dict[str, tuple[dict[str, str], tuple[str, ...]]] = {
    "an address": ({}, ("10.0.0.5/32",)),
    "an IPv6 address": ({"IP": "fd00::5", "TAGS": "netcommon:0:uplink_proxy:off"}, ("fd00::5/128",)),
    "a prefix": ({"TAGS": "netcommon:0:prefixes:10.9.0.0/24"}, ("10.0.0.5/32", "10.9.0.0/24")),
}


def at_once(sim: Sim, seed: int, *nics: Nic) -> list[Ended]:
    scheduler = Scheduler(Random(seed))

    def coming(one: Nic) -> object:
        scheduler.step("start")
        with process(sim, scheduler) as node:
            return up(node, one, Call(sim.log, node.clock.now() + 30, "test"))

    with scheduler.files():
        return scheduler.run([lambda one=one: coming(one) for one in nics])  # type: ignore[misc]


def leads_to(sim: Sim, destination: str) -> list[str]:
    view = sim.host.view()
    found = [route for family in (AF_INET, AF_INET6) for route in view.routes(family, None, destination)]
    return [link.name for route in found if (link := view.link_at(route.index)) is not None]


@pytest.mark.parametrize("claim", CLAIMS)
@pytest.mark.parametrize("seed", SEEDS)
def test_one_has_it_and_the_other_gets_it_back(tmp_path: Path, claim: str, seed: int) -> None:
    """The second one says so, and when it leaves the first one has what it had."""
    changes, destinations = CLAIMS[claim]
    sim = Sim(str(tmp_path))
    sim.tap("tap1")
    first, second = nic("routed", **changes), nic("routed", **{**changes, **OTHER})
    assert [one.error for one in at_once(sim, seed, first, second)] == [None, None]
    (winner,) = leads_to(sim, destinations[0])
    for destination in destinations:
        assert leads_to(sim, destination) == [winner]
        assert len([line for line in sim.lines if f"{destination} leads to" in line]) == 1, sim.lines
    sim.down(first if winner == "tap0" else second)
    loser = "tap1" if winner == "tap0" else "tap0"
    assert [leads_to(sim, destination) for destination in destinations] == [[loser]] * len(destinations)
    assert not [name for name in sim.files() if name.startswith("owed/")]


@pytest.mark.parametrize("seed", SEEDS)
def test_of_two_with_one_mac_one_is_refused(tmp_path: Path, seed: int) -> None:
    """Its bridge would forget the entry of the other, whose frames would go to it."""
    sim = Sim(str(tmp_path))
    sim.tap("tap1")
    tags = "netcommon:0:static_fdb netcommon:0:spoof_guard:no"
    nics = [nic("bridged", TAGS=tags), nic("bridged", **{**OTHER, "MAC": "aa:00:00:00:00:01", "TAGS": tags})]
    ended = at_once(sim, seed, *nics)
    refused = [one.error for one in ended if one.error is not None]
    assert len(refused) == 1 and isinstance(refused[0], HostRefused), refused
    (record,) = sim.records()
    entry = sim.host.view().fdb_entry(sim.index("br0"), "aa:00:00:00:00:01", 0)
    assert entry is not None and entry.index == sim.index(record.device) and entry.sticky


def test_it_is_taken_while_the_scripts_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A NIC gets another address, and another one comes up with that while the scripts of its down run: no lock is held then."""
    sim = Sim(str(tmp_path))
    sim.tap("tap1")
    sim.up(nic("routed", IP="10.0.0.9"))
    sim.node.store.write(sim.record()._replace(scripts=True))

    def late(self: site_scripts.Scripts) -> None:
        with process(sim, Scheduler(Random(0))) as node:
            up(node, nic("routed", **OTHER), Call(sim.log, node.clock.now() + 5, "test"))

    monkeypatch.setattr(site_scripts.Scripts, "down", late)
    sim.up(nic("routed"))
    monkeypatch.undo()
    assert leads_to(sim, "10.0.0.5/32") == ["tap0"]
    assert any("10.0.0.5/32 leads to tap1" in line for line in sim.lines), sim.lines
    sim.down(nic("routed"))
    assert leads_to(sim, "10.0.0.5/32") == ["tap1"]
