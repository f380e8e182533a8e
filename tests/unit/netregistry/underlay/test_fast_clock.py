"""Retire or free things while the clock is fast: they rest as long as any others, counted from when the clock is right again."""

from __future__ import annotations

import pytest

from netregistry.model import keys
from netregistry.model.history import Identity
from netregistry.model.underlay import NodePrefix
from netregistry.steady import HELD, SLACK, Steady
from netregistry.stores.base import Delete
from netregistry.stores.sqlite import SqliteStore
from tests.support.registry import NODES
from tests.support.underlay import SITE, Site

RESTS = 100


class Clocked(Site):
    """Make a site that has a clock which nobody sets beside its own."""

    def __init__(self) -> None:
        self.passed = 0.0
        super().__init__(3, store=SqliteStore.create(":memory:", "first", lambda: self.passed))
        self.local.leader._steady = Steady(self.local.core.now, lambda: self.passed)

    def goes(self, seconds: float, step: float = 60.0) -> None:
        """Let time pass by both clocks, look by look, and nodes do what they are told."""
        while seconds > 0:
            self.passed += step
            self.passes(step)
            self.confirms(0, 1)
            seconds -= step

    def jumps(self, seconds: float) -> None:
        """Set the clock."""
        self.time += seconds
        self.passed += 1
        self.passes(0)


@pytest.fixture
def site() -> Clocked:
    return Clocked()


def resting(site: Clocked) -> list[float]:
    """Give until when the endpoint on node 0 rests, and the /64 of node 2, of those that do."""
    placement, prefix = site.placement("web1"), site.local.view.get(keys.prefix(NODES[2]))
    ends = [each.until for each in (placement.endpoints if placement else ()) if each.node == NODES[0]]
    return [*ends, *(each.until for each in (prefix,) if each is not None)]


@pytest.mark.parametrize("years", [0.003, 10.0], ids=str)
def test_nothing_rests_until_a_time_that_is_not_yet(site: Clocked, years: float) -> None:
    ahead = years * 365 * 86400.0
    site.jumps(ahead)
    site.moved()
    site.do("node.forget", NODES[2], {"force": True})
    site.goes(120)
    site.jumps(-ahead)
    before = resting(site)
    assert len(before) == 2 and min(before) > site.time + ahead / 2
    site.goes(HELD - 120)
    assert resting(site) == before, "nothing of it changes while the clock is held to be wrong"
    site.goes(400)
    assert resting(site) == []
    assert site.prefix(0).next == site.prefix(1).next, "and no address is given again"


def test_a_shorter_setting_is_of_what_rests_already(site: Clocked) -> None:
    site.do("underlay.init", "", {"prefix": SITE, "minimum_age": 86400})
    site.moved()
    site.do("node.forget", NODES[2], {"force": True})
    site.goes(300)
    assert len(resting(site)) == 2
    site.do("underlay.init", "", {"prefix": SITE, "minimum_age": RESTS})
    site.goes(60)
    assert len(resting(site)) == 2 and max(resting(site)) <= site.time + RESTS
    site.goes(300)
    assert resting(site) == []


def test_one_that_ends_within_the_setting_stays_as_it_is(site: Clocked) -> None:
    site.jumps(50)
    site.moved()
    site.do("node.forget", NODES[2], {"force": True})
    site.jumps(-50)
    before = resting(site)
    site.goes(1, 1)
    assert resting(site) == before and max(before) <= site.time + RESTS + SLACK


def test_a_shortened_one_is_not_taken_for_one_that_was_released(site: Clocked) -> None:
    """Keep a /64 whose quarantine was shortened apart from a released one: an operator's release takes the endpoints in it, too."""
    site.jumps(86400)
    site.do("node.forget", NODES[2], {"force": True})
    site.jumps(-86400)
    site.goes(HELD + 60)
    prefix: NodePrefix | None = site.local.view.get(keys.prefix(NODES[2]))
    assert prefix is not None and not prefix.released and prefix.freed <= site.time < prefix.until <= site.time + RESTS


def test_nothing_ends_by_a_clock_that_is_held_to_be_wrong(site: Clocked) -> None:
    """Let no prefix end by a commit that is due for another reason."""
    site.do("node.forget", NODES[2], {"force": True})
    before = resting(site)
    site.jumps(86400)
    uuid = "99999999-0000-4000-8000-000000000000"
    site.do("node.join", "", {"uuid": uuid, "name": "node9"}, Identity("node", uuid, "unix"))
    site.store.commit((), (Delete(keys.prefix(uuid)),))
    site.local.catch_up()
    site.passes(1)
    assert site.local.view.get(keys.prefix(uuid)) is not None, "the leader has given it one again"
    assert resting(site) == before
