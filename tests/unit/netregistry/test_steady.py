"""A clock that jumps takes nothing away that cannot be given back."""

from __future__ import annotations

import pytest

from netregistry.local import Local
from netregistry.request import Call, new_id
from netregistry.service.limits import Limits
from netregistry.service.registry import Registry as Serving
from netregistry.stores.sqlite import SqliteStore
from tests.support.registry import OPERATOR, Registry
from tests.support.service import Lines

DAY = 86400.0
YEARS = 3700 * DAY


class World(Registry):
    """A registry whose clock can be set; ``passed`` cannot be."""

    def __init__(self) -> None:
        super().__init__()
        self.passed = 0.0
        self.start()

    def start(self) -> None:
        """Start the service, anew."""
        self.local.close()
        self.local = Local(self.store, lambda: self.time, "here", passed=lambda: self.passed)

    def goes(self, seconds: float) -> None:
        """Let time pass by both clocks, and all be done that is due."""
        self.time += seconds
        self.passed += seconds
        self.turn()

    def everything(self) -> dict[str, bytes]:
        """Give all but what the leader writes of its clock."""
        return {key: value for key, value in super().everything().items() if key != "clock"}

    def turn(self) -> None:
        if isinstance(self.store, SqliteStore):
            self.store.tick()
        self.local.leader.look()
        for _ in range(5):
            self.local.work()

    def jumps(self, seconds: float) -> None:
        """Set the clock by so much for some seconds, and then right again."""
        self.time += seconds
        for _ in range(5):
            self.goes(1)
        self.time -= seconds
        self.goes(1)


@pytest.fixture
def world() -> World:
    return World()


def revoked(world: World) -> None:
    body = {"id": "aaaaaaaa", "fingerprint": "0" * 64, "certificate": "PEM", "until": world.time + 3650 * DAY}
    world.do("authority.add", "", body)
    world.do("certificate.revoke", "", {"role": "operator", "name": "ann"})


@pytest.mark.parametrize("started", [False, True], ids=["it-runs", "it-starts-by-it"])
def test_who_is_revoked_stays_so_and_authorities_stay(world: World, started: bool) -> None:
    revoked(world)
    before = world.everything()
    world.time += YEARS
    if started:
        world.start()
    world.goes(3600)
    world.time -= YEARS
    world.goes(1)
    assert world.everything() == before


def test_what_is_revoked_is_forgotten_when_its_time_is_over(world: World) -> None:
    revoked(world)
    world.goes(365 * DAY)
    assert world.local.view.all("certificates")
    world.goes(2 * DAY)
    assert not world.local.view.all("certificates") and world.local.view.all("authorities")


def test_a_clock_that_was_wrong_and_is_right_for_a_day_is_gone_by(world: World) -> None:
    revoked(world)
    world.time += 400 * DAY  # it was behind until now
    world.turn()
    world.goes(DAY - 60)
    assert world.local.view.all("certificates")
    world.goes(120)
    assert not world.local.view.all("certificates")


@pytest.mark.parametrize("jump", [YEARS, -YEARS / 2], ids=["ahead", "back"])
def test_a_quarantine_has_its_time_whatever_the_clock_does(world: World, jump: float) -> None:
    blue = world.network()
    nic = world.nic(network=blue, allocate=["ipv4"], options=[{"name": "isolated", "value": "yes", "until": world.time + 2 * DAY}])
    world.do("nic.delete", world.nic(network=blue, allocate=["ipv4"]).uuid)
    key = next(key for key, claim in world.local.view.all("addresses").items() if claim.standing == "quarantined")
    world.goes(1)
    world.jumps(jump)
    claim = world.claim(key)
    assert claim is not None and claim.standing == "quarantined" and claim.until == world.time - 7 + 3600
    assert len(world.wanted(nic.uuid).options) == 1
    world.goes(3590)
    assert world.claim(key) == claim, "it began before the jump, and ends when an hour has passed"
    world.goes(60)
    again = world.claim(key)
    assert again is not None and again.standing == "free"
    world.goes(2 * DAY)
    assert world.wanted(nic.uuid).options == ()


@pytest.mark.parametrize("wrong", [30 * DAY, -30 * DAY], ids=["ahead", "back"])
def test_a_start_by_a_wrong_clock_ends_no_quarantine(world: World, wrong: float) -> None:
    world.do("nic.delete", world.nic().uuid)
    before = world.everything()
    world.time += wrong
    world.start()
    world.goes(10)
    assert world.everything() == before


def test_a_start_soon_after_ends_what_is_over(world: World) -> None:
    world.do("nic.delete", world.nic().uuid)
    world.time += 4000
    world.start()
    world.goes(1)
    assert {claim.standing for claim in world.local.view.all("macs").values()} == {"free"}


def test_the_history_is_not_cut_by_a_clock_that_has_jumped(world: World) -> None:
    for number in range(3):
        world.do("network.add", "", {"name": f"n{number}"})
    before = len(world.store.list("history/").items)
    world.time += YEARS
    world.turn()
    assert len(world.store.list("history/").items) == before
    world.goes(DAY)
    world.goes(61)
    assert len(world.store.list("history/").items) == 0


def test_a_service_says_that_its_clock_was_set() -> None:
    time, passed, log = [1_800_000_000.0], [0.0], Lines()
    store = SqliteStore.create(":memory:", "first")
    registry = Serving(store, "1", log, Limits(), lambda: time[0], lambda: passed[0])
    registry.tick()
    assert log.lines == []
    time[0] += 400 * DAY
    registry.tick()
    assert len(log.lines) == 1 and f"{400 * DAY:+.0f} s" in log.lines[0]
    registry.tick()
    assert len(log.lines) == 1
    registry.close()


def serving(store: SqliteStore, time: list[float], passed: list[float], log: Lines) -> Serving:
    return Serving(store, "1", log, Limits(), lambda: time[0], lambda: passed[0])


@pytest.mark.parametrize("wrong", [2 * DAY, -3600.0], ids=["quiet-for-two-days", "back"])
def test_a_service_says_that_its_clock_looks_wrong_at_the_start(wrong: float) -> None:
    """Options stayed beyond their end for an hour or more, and nobody was told why."""
    time, passed, log = [1_800_000_000.0], [0.0], Lines()
    store = SqliteStore.create(":memory:", "first")
    first = serving(store, time, passed, log)
    assert first.answer(Call(new_id(time[0], 1), "nic.add", "", {}), OPERATOR).status == 201
    first.tick()
    assert log.lines == [] and first.look("status", "", {}, OPERATOR)[0].body["held"] == 0
    time[0] += wrong
    registry = serving(store, time, passed, log)
    registry.tick()
    registry.tick()
    (line,) = [line for line in log.lines if "clock" in line]
    assert "the clock may be wrong" in line and "stay for an hour" in line
    assert registry.look("status", "", {}, OPERATOR)[0].body["held"] == 3600
    for each in (time, passed):
        each[0] += 3601
    assert registry.look("status", "", {}, OPERATOR)[0].body["held"] == 0
    registry.close()


def lives(world: World, days: int, hours: float) -> None:
    """Let days pass, in which the service is started anew every so many hours, and is away for some minutes each time."""
    for _ in range(int(days * 24 / hours)):
        for _ in range(int(hours)):
            world.goes(3600)
        world.goes(0)
        world.time += 300
        world.passed += 300
        world.start()


def test_a_service_that_is_restarted_each_day_forgets_too(world: World) -> None:
    """Since when its clock has gone without a jump is kept: it takes a day of that, which none of its lives had."""
    world.do("token.add", "", {"id": "11111111", "proof": "0" * 64, "role": "reader", "name": "ann", "seconds": 3600})
    world.local.run(world.local.leader.elected(10.0))
    lives(world, 1, 23)
    assert world.local.view.all("tokens")
    lives(world, 2, 23)
    assert not world.local.view.all("tokens")


def test_a_service_that_was_away_for_long_or_has_jumped_begins_anew(world: World) -> None:
    revoked(world)
    world.goes(366.5 * DAY - 2 * DAY)
    for _ in range(30):
        world.goes(3600)
    assert world.local.leader._steady.forgets
    world.time += 7200  # while no service looked
    world.start()
    assert not world.local.leader._steady.forgets
    for _ in range(25):
        world.goes(3600)
    assert world.local.leader._steady.forgets
    world.jumps(YEARS)
    world.start()
    assert not world.local.leader._steady.forgets, "also where it is started again after that"


def test_a_quiet_registry_that_is_started_again_holds_nothing_up(world: World) -> None:
    """Nothing was asked of it for days, but its clock was looked at: it is right."""
    world.do("nic.delete", world.nic().uuid)
    for _ in range(80):
        world.goes(3600)
    world.start()
    assert world.local.leader.held == 0.0 and world.local.leader.look() == ""
