"""Retire or free things while the clock is fast: they rest as long as any others, counted from when the clock is right again."""

from __future__ import annotations

import pytest

from netregistry.draft import Draft
from netregistry.model import keys
from netregistry.model.history import Identity
from netregistry.model.underlay import NodePrefix
from netregistry.steady import HELD, SLACK, Steady
from netregistry.stores.base import Delete
from netregistry.stores.sqlite import SqliteStore
from netregistry.underlay import sight, wrong
from tests.support.registry import NODES, OPERATOR
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


# -- what nodes have said while it was fast


def said_by_a_fast_clock(site: Clocked, years: float = 10.0) -> str:
    """Let node 0 say that a guest runs there while the clock is ahead, and set that right; give the guest's NIC."""
    ahead = years * 365 * 86400.0
    site.jumps(ahead)
    for number in range(3):
        site.lives(number, 3)
    nic = site.guest("web1")
    site.says(0, nic, "running")
    site.confirms(0)
    site.jumps(-ahead)
    return nic


def test_who_says_it_beside_a_guests_own_node_is_refuted(site: Clocked) -> None:
    """Let a while pass by the clock as it is now: by the time of what the own node has said it would be one in years."""
    nic = said_by_a_fast_clock(site)
    site.says(2, nic, "running")
    site.confirms(2)
    site.goes(HELD - 120)
    assert site.placement("web1").refuted == (), "nobody is while the clock is held to be wrong"  # type: ignore[union-attr]
    site.goes(400)
    assert site.placement("web1").refuted == (NODES[2],)  # type: ignore[union-attr]
    site.dies(0)
    site.goes(120)
    assert site.names() == {"web1.console": 0}


def test_who_says_it_by_a_clock_that_is_right_has_come_later(site: Clocked) -> None:
    nic = said_by_a_fast_clock(site)
    site.says(1, nic, "running")
    site.passes(1)
    draft = Draft(site.local.view, "", OPERATOR, site.time)
    assert sight.guest(draft, "", "web1").running == (NODES[0], NODES[1])


def test_who_had_a_nic_by_a_fast_clock_has_had_it_for_longer(site: Clocked) -> None:
    """Let the node that has it make a NIC known that nobody wants, and not the one that says so later."""
    ahead, uuid = 86400.0 * 365, "99999999-0000-4000-8000-000000000000"
    site.jumps(ahead)
    assert site.report(site.who[0], {"nic": uuid, "state": "running"}).status == 200
    site.jumps(-ahead)
    assert site.report(site.who[1], {"nic": uuid, "state": "running"}).status == 200
    wanted = {"uuid": uuid, "instance": "web1", "index": 0, "found": True}
    assert site.refused("nic.add", "", wanted, site.who[1])["kind"] == "exists"
    site.do("nic.add", "", wanted, site.who[0])


def test_an_address_that_a_node_was_told_by_a_fast_clock_is_missed(site: Clocked) -> None:
    """Say that its node does not say that it has it: nobody waits for years before that is a problem."""
    ahead = 86400.0 * 365
    site.jumps(ahead)
    site.says(0, site.guest("web1"), "running")
    site.jumps(-ahead)
    placement = site.placement("web1")
    assert placement is not None
    (problem,) = wrong.of(site.local.view, placement, site.time)
    assert "does not say that it has" in problem
