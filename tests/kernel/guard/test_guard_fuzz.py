"""Frames that nobody has thought of, against an oracle that knows no rule of the guard (tests/support/fuzz).

A default run takes a sample of fixed seeds, and one more seed where NETCOMMON_FUZZ_SEED names it; ``--full`` takes a million frames.
Longer: ``python -m tests.support.fuzz --frames 1000000 --seed 7 --mode routed``.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.support.attacks import NO_GUARD, SETTINGS, Setting
from tests.support.fuzz import facts, planted, regressions
from tests.support.fuzz.fuzz import Fuzz, Result
from tests.support.fuzz.place import MODES, Place, made
from tests.support.fuzz.receivers import Silence
from tests.support.netns import run
from tests.support.node import Node
from tests.support.processor import pinned
from tests.support.sample import FULL, sample

GUARDED = SETTINGS[0]
SEEDS = (1, *(int(seed) for seed in os.environ.get("NETCOMMON_FUZZ_SEED", "").split()))
FRAMES = {"bridged": 8_000, "routed": 8_000, "openvswitch": 2_000}
MANY = {"bridged": 1_000_000, "routed": 1_000_000, "openvswitch": 250_000}
UNGUARDED = 9_000
PLANTED, HOLES = 10_000, 8  #: frames for each hole at most, and holes in a default run
#: Every word that the oracle has for a frame that could deceive somebody.
WORDS = {"mac", "type", "vlan", "arp-mac", "arp-ip", "ip4", "ip6", "dhcp-server", "dhcp-fragment", "chaddr", "relayed", "dhcp6-server"}
WORDS |= {"dhcp6-message", "ra", "nd-target", "nd-option", "nd-fragment", "headers-cut", "query", "probe"}
#: What flows cannot tell, and what nobody behind a router gets.
NOT = {"bridged": set[str](), "routed": {"vlan"}, "openvswitch": {"chaddr", "relayed", "dhcp-fragment", "dhcp6-message", "probe"}}


@pytest.fixture
def place(node: Node, request: pytest.FixtureRequest) -> Iterator[Place]:
    """The network of a mode (the parameter), on one processor: frames that are sent on two may overtake each other."""
    with pinned(), made(node, request.param) as found:
        yield found


def clean(result: Result) -> bool:
    return not result.violations and not result.missing


@pytest.mark.parametrize("place", MODES, indirect=True)
def test_what_once_came_through(place: Place) -> None:
    place.up(GUARDED)
    found = regressions.replayed(place)
    assert not found, "\n".join(found)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("place", MODES, indirect=True)
def test_a_sample(place: Place, seed: int) -> None:
    """Nothing arrives that could deceive anybody, and all that is honest does."""
    place.up(GUARDED)
    result = Fuzz(place, seed).run(FRAMES[place.mode])
    print(f"FIGURES {place.mode}, seed {seed}: {result}")
    assert clean(result), f"seed {seed}: {result}"


@pytest.mark.slow
@pytest.mark.parametrize("place", MODES, indirect=True)
def test_a_million(place: Place) -> None:
    place.up(GUARDED)
    result = Fuzz(place, 1_000_003).run(MANY[place.mode])
    print(f"FIGURES {place.mode}: {result}")
    assert clean(result), str(result)


@pytest.mark.parametrize("setting", sample([each for each in SETTINGS[1:] if each.ip], 2), ids=lambda setting: setting.name)
@pytest.mark.parametrize("place", MODES, indirect=True)
def test_switches(place: Place, setting: Setting) -> None:
    """What a switch does not free stays forbidden."""
    place.up(setting)
    result = Fuzz(place, 2).run(FRAMES[place.mode] // (1 if FULL else 10))
    assert clean(result), f"{setting.name}: {result}"


def test_a_trunk(node: Node) -> None:
    """Tags of the trunk's VLAN, and no other; what is in them is looked at."""
    with pinned(), made(node, "openvswitch", trunk=True) as place:
        place.up(GUARDED)
        result = Fuzz(place, 7).run(FRAMES["openvswitch"] // (1 if FULL else 3))
    assert clean(result), str(result)


@pytest.mark.parametrize("place", MODES, indirect=True)
def test_without_the_guard(place: Place) -> None:
    """All of it comes through, and the oracle has a word for each: so frames that do not arrive were dropped by the guard."""
    place.up(NO_GUARD)
    place.facts = facts.of(GUARDED, place.mode)
    result = Fuzz(place, 3).run(UNGUARDED if place.mode != "openvswitch" else UNGUARDED // 3, examples=0)
    found = {rule for rule, _, _ in result.violations}
    assert (WORDS - NOT[place.mode] - found, result.missing) == (set(), [])


def finds(place: Place, seed: int) -> bool:
    """Tell whether something arrives that should not, or does not that should."""
    try:
        place.exchange([])
    except Silence:
        return True
    return Fuzz(place, seed).finds(PLANTED)


@pytest.mark.parametrize("place", ["bridged"], indirect=True)
def test_planted_holes(place: Place) -> None:
    """With one rule taken out the fuzz finds something, in most cases: of some rules another one drops the same. With all, nothing."""
    place.up(GUARDED)
    assert not finds(place, 4)
    missed = []
    holes = sample(range(len(planted.drops())), HOLES)
    for number in holes:
        run("nft", "flush", "ruleset")
        place.up(GUARDED)
        rule = planted.drops()[number]
        planted.delete(rule)
        if not finds(place, 4):
            missed.append(f"{rule.chain}: {rule.text}")
    print(f"FIGURES {len(holes)} rules taken out, {len(missed)} not found:\n" + "\n".join(missed))
    assert len(missed) <= len(holes) // 3, "\n".join(missed)
