"""change: a NIC whose change was cut off before goes back first, and then becomes what is asked now and nothing else."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from netcommon.host.api.requests import SendFrame
from netcommon.lifecycle import site_scripts
from netcommon.lifecycle.change import Difference, change, setting
from netcommon.lifecycle.changed_options import read
from netcommon.lifecycle.context import Outcome
from netcommon.lifecycle.ends import end_due
from runtime.nic import Nic
from runtime.record import CHANGING
from tests.support.cut_off import cut_off
from tests.support.sim import UUIDS, Sim, nic

FIRST = nic("bridged", IP="10.0.0.5")
MOVED = nic("bridged", IP="10.0.0.5", LINK="br1")
ROUTED = nic("routed, table", TAGS="netcommon:0:announce:true")
ANOTHER = nic("routed, table", TAGS="netcommon:0:announce:true", IP="10.0.0.6")


def to(sim: Sim, *unset: str, seconds: float = 0.0, **options: str) -> Outcome:
    return change(sim.node, UUIDS[0], sim.call(), setting(sim.node, options, unset, seconds))


def first(sim: Sim) -> None:
    sim.up(FIRST)


def for_a_while(sim: Sim) -> None:
    sim.up(FIRST)
    to(sim, seconds=60.0, rate_in="8mbit")


def standing(sim: Sim) -> tuple[str, Nic, object]:
    return sim.record().state, sim.record().nic, sim.picture()


def end(sim: Sim, seconds: float) -> None:
    """Ends what is due so many seconds from now."""
    node = sim.node
    there = node._replace(clock=node.clock._replace(now=lambda: node.clock.now() + seconds))
    end_due(there, sim.call()._replace(deadline=there.clock.now() + 5))


@pytest.mark.parametrize("what", ["another bridge", "new tags", "options"])
def test_only_what_is_asked_now(tmp_path: Path, what: str) -> None:
    """Neither the bridge nor the tags nor the options of what was killed."""
    killed: dict[str, Callable[[Sim], object]] = {
        "another bridge": lambda sim: sim.up(MOVED),
        "new tags": lambda sim: change(sim.node, UUIDS[0], sim.call(), tags=["netcommon:0:isolated"]),
        "options": lambda sim: to(sim, isolated="yes"),
    }
    fresh = Sim(str(tmp_path / "fresh"))
    fresh.up(FIRST)
    to(fresh, rate_in="8mbit")
    sim = cut_off(tmp_path, first, killed[what])
    assert to(sim, rate_in="8mbit").changed
    assert standing(sim) == standing(fresh)
    assert [one.option for one in read(sim.node, UUIDS[0], []).local] == ["rate_in"]


def test_the_end_of_an_option_moves_nobody(tmp_path: Path) -> None:
    """It comes before gc and repair put the NIC back."""
    fresh = Sim(str(tmp_path / "fresh"))
    fresh.up(FIRST)
    sim = cut_off(tmp_path, for_a_while, lambda sim: sim.up(MOVED))
    end(sim, 61)
    assert standing(sim) == standing(fresh)


@pytest.mark.parametrize("what", ["up", "change", "unset"])
def test_nothing_is_asked(tmp_path: Path, what: str) -> None:
    """It is as it was: that has changed it, and the neighbours are told of its address again."""
    again: dict[str, Callable[[Sim], Outcome]] = {
        "up": lambda sim: sim.up(ROUTED),
        "change": lambda sim: change(sim.node, UUIDS[0], sim.call()),
        "unset": lambda sim: to(sim, "rate_in"),
    }
    fresh = Sim(str(tmp_path / "fresh"))
    fresh.up(ROUTED)
    sim = cut_off(tmp_path, lambda sim: sim.up(ROUTED), lambda sim: sim.up(ANOTHER))
    assert again[what](sim).changed or what == "up"
    assert standing(sim) == standing(fresh)
    assert any(isinstance(request, SendFrame) for request in sim.host.requests)


def test_the_same_change_again_is_told_as_a_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """To the site's scripts, to who asks what would differ, and to who has asked for it; nothing of it is of today's settings."""
    sim = cut_off(tmp_path, first, lambda sim: to(sim, isolated="yes", rate_in="8mbit"))
    foretold: list[Difference] = []
    edit = setting(sim.node, {"isolated": "yes", "rate_in": "8mbit"}, ())
    change(sim.node, UUIDS[0], sim.call(), edit, held_back=foretold.append)
    expected = [("isolated", False, True), ("rate_in", 0, 8_000_000)]
    assert sorted(foretold[0].options) == expected and sim.record().state == CHANGING
    told: list[object] = []
    monkeypatch.setattr(site_scripts, "changed", lambda _node, _call, _nic, options: told.extend(options))
    assert "isolated is true, was false" in to(sim, isolated="yes", rate_in="8mbit").text
    assert sorted(told) == expected  # type: ignore[type-var]
    assert not any("today's settings" in line for line in sim.lines)


def test_todays_settings_are_said_all_the_same(tmp_path: Path) -> None:
    sim = cut_off(tmp_path, first, lambda sim: to(sim, rate_in="8mbit"))
    sim.settings = sim.settings._replace(nic={"isolated": True})
    to(sim, rate_in="8mbit")
    (line,) = [line for line in sim.lines if "today's settings" in line]
    assert "isolated" in line and "rate" not in line and "tbf" not in line


def test_what_was_for_this_nic_alone_is_warned_of_again(tmp_path: Path) -> None:
    """An option that means nothing for the NIC is said to, whether or not the change that was killed had it."""
    sim = cut_off(tmp_path, first, lambda sim: to(sim, blackhole="yes", isolated="yes"))
    to(sim, blackhole="yes", isolated="yes")
    assert any("blackhole means" in line for line in sim.lines)
