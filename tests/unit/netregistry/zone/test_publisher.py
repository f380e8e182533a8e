"""Servers are brought to what is wanted: after everything that can go wrong, and never by half."""

from __future__ import annotations

import random

import pytest

from mockcloud.name_server import MockNameServer
from netregistry.zone import plan
from netregistry.zone.mark import Mark
from netregistry.zone.plan import Entry, Message, There, Wanted
from netregistry.zone.publisher import ATTEMPTS, LOOK, READ, Published, Publisher
from runtime.errors import HostRefused, TryAgain

ZONE, OWNER = "u.example.net", "fd00:1:2::/48"
WEB, DB = f"web.console.{ZONE}", f"db.console.{ZONE}"
ONE, TWO, THREE = "fd00:1:2:1::1:0", "fd00:1:2:2::1:0", "fd00:1:2:3::1:0"


def want(generation: int, names: dict[str, str], epoch: str = "first") -> Wanted:
    return Wanted(ZONE, OWNER, epoch, generation, names, 60)


class Site:
    """Servers, a clock, and the publisher of one service."""

    def __init__(self, *servers: MockNameServer) -> None:
        self.servers = {server.name: server for server in servers}
        self.time = 0.0
        self.publisher = self.service()

    def service(self) -> Publisher:
        """Give another publisher for the same servers, as another service has it."""
        return Publisher(tuple(self.servers), self.servers.__getitem__, lambda: self.time)


@pytest.fixture
def server() -> MockNameServer:
    return MockNameServer("a")


@pytest.fixture
def site(server: MockNameServer) -> Site:
    return Site(server)


def test_a_server_is_read_once_and_then_told(site: Site, server: MockNameServer) -> None:
    assert site.publisher.bring("a", want(1, {WEB: ONE})) == Published("a", ZONE, 1, 1, True)
    assert site.publisher.bring("a", want(2, {WEB: TWO, DB: ONE})) == Published("a", ZONE, 2, 2)
    assert site.publisher.bring("a", want(3, {DB: ONE})) == Published("a", ZONE, 3, 1)
    assert server.names == {DB: ONE} and (server.read_whole, server.updates) == (1, 3)


def test_nothing_is_due_that_is_done(site: Site, server: MockNameServer) -> None:
    wanted = want(1, {WEB: ONE})
    assert site.publisher.due("a", wanted)
    site.publisher.bring("a", wanted)
    site.time = LOOK - 0.1
    assert not site.publisher.due("a", wanted) and not site.publisher.due("a", want(1, {WEB: ONE}))
    assert site.publisher.due("a", want(2, {WEB: ONE})) and site.publisher.due("a", wanted._replace(ttl=61))
    site.time = READ
    assert site.publisher.due("a", wanted)


def test_what_was_changed_by_hand_is_found_by_the_next_reading(site: Site, server: MockNameServer) -> None:
    wanted = want(1, {WEB: ONE})
    site.publisher.bring("a", wanted)
    server.entries = {WEB: Entry(TWO, 60), DB: Entry(TWO, 60)}
    site.time = READ
    assert site.publisher.bring("a", wanted) == Published("a", ZONE, 1, 2, True)
    assert server.names == {WEB: ONE}


def test_a_mark_that_is_as_it_should_be_is_all_that_is_looked_at(site: Site, server: MockNameServer) -> None:
    """Look only at the mark while it is right. Each move that is done confirms it, so that nothing is asked for meanwhile."""
    bad = f"web_1.console.{ZONE}"
    site.publisher.bring("a", want(1, {WEB: ONE, bad: ONE}))
    wanted = want(2, {WEB: TWO, bad: ONE})
    refused = site.publisher.bring("a", wanted).refused
    assert len(refused) == 1
    for count in range(1, 4):
        site.time += LOOK
        assert site.publisher.due("a", wanted)
        assert site.publisher.bring("a", wanted) == Published("a", ZONE, 2, refused=refused) and not site.publisher.due("a", wanted)
        assert (server.read_whole, server.updates, server.asked) == (1, 2, count)
    site.time += LOOK
    site.publisher.bring("a", want(3, {WEB: THREE}))
    assert (server.read_whole, server.asked) == (1, 3)


@pytest.mark.parametrize("mark", [None, Mark(OWNER, "first", 1), Mark(OWNER, "first", 2, 1), Mark(OWNER, "before", 9)])
def test_a_server_that_lost_what_it_had_is_found_by_its_mark(site: Site, server: MockNameServer, mark: Mark | None) -> None:
    """Notice a name server that comes back empty, from a snapshot, or in the middle of a change, while no name changes."""
    wanted = want(2, {WEB: TWO, DB: ONE})
    site.publisher.bring("a", wanted)
    server.marks[ZONE], server.entries = mark, {WEB: Entry(ONE, 60)} if mark else {}
    site.time = LOOK
    if mark is not None and mark.epoch != wanted.epoch:
        with pytest.raises(HostRefused, match="another copy of this registry"):
            site.publisher.bring("a", wanted)
        assert site.publisher.lost("a") == (Published("a", ZONE, -1),), "it leads to where nobody here knows"
        return
    assert site.publisher.bring("a", wanted) == Published("a", ZONE, 2, 2, True)
    assert server.names == wanted.names and server.marks.get(ZONE) == wanted.mark


def test_what_a_server_has_lost_is_told_though_it_cannot_be_brought_back(site: Site, server: MockNameServer) -> None:
    """Report what a server has lost until that is noted: the server answers with addresses of before, which may not go meanwhile."""

    def send(zone: str, message: Message) -> bool:
        raise HostRefused("may the TSIG key update it?")

    wanted = want(5, {WEB: TWO})
    site.publisher.bring("a", wanted)
    server.marks[ZONE], server.entries = Mark(OWNER, "first", 4), {WEB: Entry(ONE, 60)}
    server.send = send  # type: ignore[method-assign]
    site.time = LOOK
    for _ in range(2):
        with pytest.raises(HostRefused):
            site.publisher.bring("a", wanted)
        assert site.publisher.lost("a") == (Published("a", ZONE, -1),) and site.publisher.lost("b") == ()
    site.publisher.told(*site.publisher.lost("a"))
    with pytest.raises(HostRefused):
        site.publisher.bring("a", wanted)
    assert site.publisher.lost("a") == ()


def test_nothing_is_lost_where_others_are_ahead_or_the_zone_was_given_up(site: Site, server: MockNameServer) -> None:
    wanted = want(5, {WEB: TWO})
    site.publisher.bring("a", wanted)
    server.marks[ZONE] = Mark(OWNER, "first", 6)
    site.time = LOOK
    with pytest.raises(HostRefused):
        site.publisher.bring("a", wanted)
    server.marks[ZONE] = None
    left = want(7, {})._replace(prefix="fd00:1:2::/48", former=True)
    assert site.publisher.bring("a", left).generation == 7 and site.publisher.lost("a") == ()


def test_a_server_that_was_away_and_has_lost_nothing_is_not_read_whole(site: Site, server: MockNameServer) -> None:
    wanted = want(1, {WEB: ONE})
    site.publisher.bring("a", wanted)
    site.time = LOOK
    server.away = True
    for _ in range(3):
        with pytest.raises(TryAgain):
            site.publisher.bring("a", wanted)
        assert site.publisher.due("a", wanted)
    server.away = False
    assert site.publisher.bring("a", wanted) == Published("a", ZONE, 1) and server.read_whole == 1


def test_a_server_that_was_away_is_read_whole(site: Site, server: MockNameServer) -> None:
    site.publisher.bring("a", want(1, {WEB: ONE}))
    server.away = True
    with pytest.raises(TryAgain):
        site.publisher.bring("a", want(2, {WEB: TWO}))
    assert site.publisher.due("a", want(2, {WEB: TWO}))
    server.away = False
    assert site.publisher.bring("a", want(2, {WEB: TWO})).whole
    server.entries, server.marks[ZONE] = {}, None  # it comes back without what it had
    assert site.publisher.bring("a", want(3, {WEB: THREE})) == Published("a", ZONE, 3, 1, True)
    assert server.names == {WEB: THREE}


def test_an_answer_that_was_lost_is_no_harm(site: Site, server: MockNameServer) -> None:
    server.lost = 1
    with pytest.raises(TryAgain):
        site.publisher.bring("a", want(1, {WEB: ONE}))
    assert site.publisher.bring("a", want(1, {WEB: ONE})) == Published("a", ZONE, 1, 0, True)


def test_servers_are_each_at_a_generation_of_their_own() -> None:
    one, two = MockNameServer("a"), MockNameServer("b")
    site = Site(one, two)
    two.away = True
    site.publisher.bring("a", want(1, {WEB: ONE}))
    with pytest.raises(TryAgain):
        site.publisher.bring("b", want(1, {WEB: ONE}))
    site.publisher.bring("a", want(2, {WEB: TWO}))
    two.away = False
    assert site.publisher.bring("b", want(2, {WEB: TWO})).generation == 2
    assert one.names == two.names == {WEB: TWO} and one.marks == two.marks


def test_two_services_cannot_overwrite_each_other(site: Site, server: MockNameServer) -> None:
    """One that leads no more, and does not know yet, changes nothing; the other reads what it did not write."""
    late = site.service()
    late.bring("a", want(1, {WEB: ONE}))
    site.publisher.bring("a", want(2, {WEB: TWO}))
    with pytest.raises(HostRefused, match="at generation 2, and this registry at 1"):
        late.bring("a", want(1, {WEB: ONE, DB: ONE}))
    assert server.names == {WEB: TWO}
    assert late.bring("a", want(3, {WEB: THREE})).whole
    assert site.publisher.bring("a", want(4, {WEB: ONE})).whole and server.names == {WEB: ONE}


def test_two_copies_of_a_registry_do_not_fight(site: Site, server: MockNameServer) -> None:
    restored = site.service()
    site.publisher.bring("a", want(5, {WEB: ONE}))
    restored.bring("a", want(3, {WEB: TWO}, "second"))
    for epoch_before in range(2):
        with pytest.raises(HostRefused, match="another copy of this registry, of epoch 'second'"):
            site.publisher.bring("a", want(6 + epoch_before, {WEB: ONE}))
    assert server.names == {WEB: TWO}
    assert restored.bring("a", want(4, {WEB: THREE}, "second")).changed == 1


def test_a_server_that_comes_back_from_a_snapshot_of_before_a_restore_is_brought_back(site: Site, server: MockNameServer) -> None:
    site.publisher.bring("a", want(5, {WEB: ONE}))
    snapshot = server.marks[ZONE], dict(server.entries)
    restored, wanted = site.service(), want(3, {WEB: TWO}, "second")._replace(before=("first",))
    restored.bring("a", wanted)
    server.marks[ZONE], server.entries = snapshot
    site.time = LOOK
    assert restored.bring("a", wanted) == Published("a", ZONE, 3, 1, True)
    assert server.names == {WEB: TWO} and restored.lost("a") == (Published("a", ZONE, -1),)
    with pytest.raises(HostRefused, match="another copy of this registry, of epoch 'second'"):
        site.publisher.bring("a", want(6, {WEB: ONE}))


def test_a_copy_of_before_that_lives_and_takes_the_zone_back_is_not_fought(site: Site, server: MockNameServer) -> None:
    """Refuse the zone that a copy of before has taken when its service began anew: it lives, which a snapshot does not."""
    site.publisher.bring("a", want(5, {WEB: ONE}))
    restored, wanted = site.service(), want(3, {WEB: TWO}, "second")._replace(before=("first",))
    restored.bring("a", wanted)
    anew = site.service()
    anew.bring("a", want(5, {WEB: ONE}))
    for generation in (3, 4):
        site.time += LOOK
        with pytest.raises(HostRefused, match="another copy of this registry, of epoch 'first'"):
            restored.bring("a", wanted._replace(generation=generation))
    assert restored.lost("a") == (Published("a", ZONE, -1),), "nothing that is retired may go as long as that one's names count"
    assert server.names == {WEB: ONE} and anew.bring("a", want(6, {WEB: THREE})).changed == 1


@pytest.mark.parametrize("first", ["older", "newer"])
def test_two_copies_do_not_fight_for_a_server_that_is_empty(site: Site, server: MockNameServer, first: str) -> None:
    """Let the newer copy have a server that has lost its disk, whichever of two that live finds it first."""
    site.publisher.bring("a", want(5, {WEB: ONE}))
    restored, wanted = site.service(), want(3, {WEB: TWO}, "second")._replace(before=("first",))
    restored.bring("a", wanted)
    server.marks[ZONE], server.entries = None, {}
    site.time = LOOK
    if first == "older":
        site.publisher.bring("a", want(5, {WEB: ONE}))
    for _ in range(2):
        restored.bring("a", wanted)
        with pytest.raises(HostRefused, match="another copy of this registry, of epoch 'second'"):
            site.publisher.bring("a", want(5, {WEB: ONE}))
    assert server.names == {WEB: TWO}


def test_a_zone_that_is_changed_all_the_time() -> None:
    class Changed(MockNameServer):
        def send(self, zone: str, message: Message) -> bool:
            return False

    site = Site(Changed("a"))
    with pytest.raises(TryAgain, match="only one service may publish it"):
        site.publisher.bring("a", want(1, {WEB: ONE}))
    assert site.servers["a"].read_whole == ATTEMPTS


def test_nothing_more_is_sent_once_the_service_ends(site: Site, server: MockNameServer) -> None:
    site.publisher.close()
    with pytest.raises(TryAgain, match="this service ends"):
        site.publisher.bring("a", want(1, {WEB: ONE}))
    assert server.updates == 0


# -- chance


class Killed(BaseException):
    """The service is no more."""


class Hazard:
    """Speak with a server as one service does, until that is killed, an answer is lost, or another service comes in between."""

    def __init__(self, server: MockNameServer, chance: random.Random, between: list[Publisher], wanted: list[Wanted]) -> None:
        self._server, self._chance, self._between, self._wanted = server, chance, between, wanted

    def read(self, zone: str) -> There:
        found = self._server.read(zone)
        self._meanwhile()
        return found

    def marked(self, zone: str) -> Mark | None:
        self._meanwhile()
        return self._server.marked(zone)

    def send(self, zone: str, message: Message) -> bool:
        self._meanwhile()
        if self._chance.random() < 0.1:
            raise Killed
        self._server.lost = int(self._chance.random() < 0.1)
        return self._server.send(zone, message)

    def close(self) -> None:
        self._server.close()

    def _meanwhile(self) -> None:
        if self._between and self._chance.random() < 0.2:
            other = self._between.pop()
            attempted(other, self._chance.choice(self._wanted[-3:]))
            self._between.append(other)


def attempted(publisher: Publisher, wanted: Wanted) -> bool:
    try:
        publisher.bring("a", wanted)
    except (TryAgain, HostRefused, Killed):
        return False
    return True


@pytest.mark.parametrize("seed", range(150))
def test_whatever_happens_a_name_has_one_address_that_it_was_given(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two services, killed at any message, with answers lost: each name that is to be there throughout is, at an address of its own.

    Where the zone says a generation it holds exactly that generation's names.
    """
    monkeypatch.setattr(plan, "LARGEST", 150)
    chance = random.Random(seed)
    names = {f"guest{number}.console.{ZONE}": ONE for number in range(8)}
    steady = set(list(names)[:5])
    history = [want(1, dict(names))]

    def seen(server: MockNameServer) -> None:
        mark = server.marks[ZONE]
        assert mark is not None
        if mark.part == 0:
            (told,) = (each for each in history if each.generation == mark.generation)
            assert server.names == dict(told.names)
        for name in steady if full else ():
            assert server.names[name] in {each.names[name] for each in history}

    full = False
    server = MockNameServer("a", seen)
    first = Publisher(("a",), lambda _name: server, lambda: 0.0)
    first.bring("a", history[0])
    full = True
    third = Publisher(("a",), lambda _name: Hazard(server, chance, [], history), lambda: 0.0)
    services = [Publisher(("a",), lambda _name, each=each: Hazard(server, chance, each, history), lambda: 0.0) for each in ([], [third])]  # type: ignore[misc]
    for generation in range(2, 25):
        for name in chance.sample(sorted(names), 3):
            names[name] = f"fd00:1:2:{chance.randrange(1, 9)}::{generation}:0"
        current = dict(names)
        for name in sorted(set(names) - steady):
            if chance.random() < 0.4:
                del current[name]
        history.append(want(generation, current))
        for service in services:
            if chance.random() < 0.7:
                attempted(service, chance.choice(history[-2:]))
    for _ in range(100):
        if attempted(services[0], history[-1]):
            break
    assert server.marks.get(ZONE) == history[-1].mark and server.names == dict(history[-1].names)


def test_the_mark_is_of_who_publishes(site: Site, server: MockNameServer) -> None:
    site.publisher.bring("a", want(1, {WEB: ONE}))
    assert server.marks.get(ZONE) == Mark(OWNER, "first", 1)
