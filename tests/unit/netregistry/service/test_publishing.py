"""Servers of a zone are kept each in its own time, beside the registry's turn."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

from mockcloud.name_server import MockNameServer
from netcommon.dns.names import NoZone
from netregistry.service import publishing
from netregistry.service.publishing import Publishing
from netregistry.zone.mark import Mark
from netregistry.zone.plan import Entry, Message, There, Wanted
from netregistry.zone.publisher import LOOK, Published, Publisher
from tests.support.service import SECONDS, Lines

ZONE = "u.example.net"
WEB = f"web.console.{ZONE}"
ONE, TWO = "fd00:1:2:1::1:0", "fd00:1:2:2::1:0"


class Zones:
    """Be a server of several zones."""

    def __init__(self, *zones: str) -> None:
        self.zones = {zone: MockNameServer("a") for zone in zones}

    def read(self, zone: str) -> There:
        if zone not in self.zones:
            raise NoZone(f"DNS server a has no authority for zone {zone}")
        return self.zones[zone].read(zone)

    def marked(self, zone: str) -> Mark | None:
        return self.zones[zone].marked(zone)

    def send(self, zone: str, message: Message) -> bool:
        return self.zones[zone].send(zone, message)

    def close(self) -> None: ...


class Registry:
    """Have what is wanted, and remember what was published and by which threads it was asked."""

    def __init__(self, *servers: MockNameServer) -> None:
        self.servers = {server.name: server for server in servers}
        self.wanted: Wanted | None = None
        self.done: list[Published] = []
        self.broken = False
        self.log = Lines()
        self.publisher = Publisher(tuple(self.servers), self.servers.__getitem__, lambda: 0.0)
        self.publishing = Publishing(self.publisher, lambda: self.wanted, self._published, self.log)

    def want(self, generation: int, names: dict[str, str]) -> None:
        self.wanted = Wanted(ZONE, "fd00:1:2::/48", "first", generation, names, 60)
        self.publishing.wake()

    def _published(self, found: Published) -> None:
        if self.broken:
            raise RuntimeError("the store is away")
        self.done.append(found)

    async def turn(self, work: Callable[..., Any], *given: Any, own: bool = False) -> Any:
        assert own
        return work(*given)

    def at(self, server: str) -> int:
        """Give the generation that a server was last said to have."""
        return max((each.generation for each in self.done if (each.server, each.zone) == (server, ZONE)), default=0)


async def until(holds: Callable[[], bool]) -> None:
    async def held() -> None:
        while not holds():
            await asyncio.sleep(0.005)

    await asyncio.wait_for(held(), SECONDS)


def run(registry: Registry, test: Callable[[], Any]) -> None:
    async def whole() -> None:
        tasks = registry.publishing.begin(registry.turn)
        try:
            await test()
        finally:
            registry.publishing.stop()
            for task in tasks:
                task.cancel()

    asyncio.run(whole())


def test_what_is_wanted_is_published_at_all_servers() -> None:
    registry = Registry(MockNameServer("a"), MockNameServer("b"))

    async def test() -> None:
        registry.want(1, {WEB: ONE})
        await until(lambda: registry.at("a") == registry.at("b") == 1)
        registry.want(2, {WEB: TWO})
        await until(lambda: registry.at("a") == registry.at("b") == 2)

    run(registry, test)
    assert all(server.names == {WEB: TWO} and server.read_whole == 1 for server in registry.servers.values())
    assert len(registry.done) == 4


def test_who_does_not_lead_publishes_nothing() -> None:
    registry = Registry(MockNameServer("a"))

    async def test() -> None:
        asked: list[int] = []
        registry.publishing._wanted = lambda: asked.append(1)
        for count in range(3):
            registry.publishing.wake()
            await until(lambda count=count: len(asked) > count)  # type: ignore[misc]

    run(registry, test)
    assert registry.servers["a"].read_whole == 0


def test_a_server_that_answers_nothing_holds_up_nobody() -> None:
    """Neither the other server nor the loop; and the end of the service does not wait for it."""

    class Silent(MockNameServer):
        def read(self, zone: str) -> There:
            waits.set()
            never.wait(SECONDS)
            return super().read(zone)

    waits, never = threading.Event(), threading.Event()
    registry = Registry(Silent("a"), MockNameServer("b"))

    async def test() -> None:
        registry.want(1, {WEB: ONE})
        await until(waits.is_set)
        for generation in range(2, 5):
            registry.want(generation, {WEB: TWO})
            await until(lambda generation=generation: registry.at("b") == generation)  # type: ignore[misc]

    run(registry, test)
    assert registry.at("a") == 0
    never.set()


def test_a_server_that_was_away_is_told_once_and_found_again() -> None:
    registry = Registry(MockNameServer("a"))
    server = registry.servers["a"]
    tried: list[int] = []

    async def test() -> None:
        server.away = True
        registry.want(1, {WEB: ONE})
        bring = registry.publisher.bring
        registry.publisher.bring = lambda *given: (tried.append(1), bring(*given))[1]  # type: ignore[method-assign,func-returns-value]
        await until(lambda: len(tried) > 2)
        server.away = False
        await until(lambda: registry.at("a") == 1)

    pause, publishing.RETRY = publishing.RETRY, 0.01
    try:
        run(registry, test)
    finally:
        publishing.RETRY = pause
    away, back = registry.log.lines
    assert away == "names of the underlay are not published: no DNS server answers: a: Connection refused"
    assert back.startswith("DNS server a has the underlay's names of generation 1")


def test_a_server_that_lost_what_it_had_is_brought_back_though_nothing_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    registry = Registry(MockNameServer("a"))
    server, time = registry.servers["a"], [0.0]
    registry.publisher = Publisher(("a",), registry.servers.__getitem__, lambda: time[0])
    registry.publishing = Publishing(registry.publisher, lambda: registry.wanted, registry._published, registry.log)
    monkeypatch.setattr(publishing, "TICK", 0.01)

    async def test() -> None:
        registry.want(1, {WEB: ONE})
        await until(lambda: registry.at("a") == 1)
        server.marks, server.entries = {}, {}
        time[0] = LOOK
        await until(lambda: len(registry.done) == 3)
        assert server.names == {WEB: ONE}

    run(registry, test)
    assert server.asked == 1 and server.read_whole == 2
    assert [each.generation for each in registry.done] == [1, -1, 1], "what is retired waits for it anew"
    (told,) = registry.log.lines[1:]
    assert told == "DNS server a has the underlay's names of generation 1: 1 names were not as they should be"


def test_what_the_registry_could_not_take_in_is_told_again() -> None:
    registry = Registry(MockNameServer("a"))

    async def test() -> None:
        registry.broken = True
        registry.want(1, {WEB: ONE})
        await until(lambda: bool(registry.log.lines))
        registry.broken = False
        await until(lambda: registry.at("a") == 1)

    pause, publishing.RETRY = publishing.RETRY, 0.01
    try:
        run(registry, test)
    finally:
        publishing.RETRY = pause
    assert registry.servers["a"].updates == 1


def test_names_that_cannot_be_published_are_told_once() -> None:
    registry = Registry(MockNameServer("a"))
    bad = {f"web_{number}.console.{ZONE}": ONE for number in range(5)}

    async def test() -> None:
        for generation in (1, 2):
            registry.want(generation, {WEB: ONE, **bad})
            await until(lambda generation=generation: registry.at("a") == generation)  # type: ignore[misc]

    run(registry, test)
    told = [line for line in registry.log.lines if "not published" in line]
    assert len(told) == 4 and told[-1] == "2 more names are not published, for such reasons"


def test_records_of_others_that_go_are_told() -> None:
    registry = Registry(MockNameServer("a"))
    server = registry.servers["a"]
    server.marks[ZONE] = Mark("fd00:1:2::/48", "first", 0)
    server.entries = {WEB: Entry("", 60, ("CNAME",)), f"db.console.{ZONE}": Entry("", 60, ("A",))}

    async def test() -> None:
        registry.want(1, {WEB: ONE})
        await until(lambda: registry.at("a") == 1)

    run(registry, test)
    told = f"others had put CNAME records at {WEB}, and such at 1 names more: they are gone from DNS server a"
    assert [line for line in registry.log.lines if "others" in line] == [told]


def test_a_zone_that_is_refused_is_looked_at_ever_more_seldom(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is somebody else's for long: other names change nothing of that, another epoch or zone does, and is tried at once."""
    registry = Registry(MockNameServer("a"))
    server = registry.servers["a"]
    server.entries[f"www.eu.{ZONE}"] = Entry("2001:db8::80", 60)
    looks: list[int] = []
    for name, seconds in (("RETRY", 0.01), ("TICK", 0.01), ("LONGEST", 3600.0)):
        monkeypatch.setattr(publishing, name, seconds)

    async def test() -> None:
        wanted = registry.publishing._wanted
        registry.publishing._wanted = lambda: (looks.append(1), wanted())[1]  # type: ignore[func-returns-value]
        for generation in range(1, 11):
            registry.want(generation, {WEB: ONE if generation % 2 else TWO})
            await until(lambda generation=generation: len(looks) > 20 * generation)  # type: ignore[misc]
        assert 2 < server.read_whole < 20
        server.entries.clear()
        assert registry.wanted is not None
        registry.wanted = registry.wanted._replace(epoch="second")
        await until(lambda: registry.at("a") == 10)

    run(registry, test)
    (told, back) = registry.log.lines
    assert "names that no registry has put there" in told and "has the underlay's names of generation 10" in back


def test_a_server_that_is_away_is_looked_for_as_often_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    registry = Registry(MockNameServer("a"))
    registry.servers["a"].away = True
    tried: list[int] = []
    monkeypatch.setattr(publishing, "RETRY", 0.001)
    monkeypatch.setattr(publishing, "longer", lambda _pause: 3600.0)

    async def test() -> None:
        bring = registry.publisher.bring
        registry.publisher.bring = lambda *given: (tried.append(1), bring(*given))[1]  # type: ignore[method-assign,func-returns-value]
        registry.want(1, {WEB: ONE})
        await until(lambda: len(tried) > 20)

    run(registry, test)


class Moved(Registry):
    """Be one whose zone was ``before``; ``server`` may have both."""

    BEFORE = ("old.example.net", "older.example.net")

    def __init__(self, server: Zones) -> None:
        super().__init__(MockNameServer("a"))
        self.server = server
        self.publisher = Publisher(("a",), lambda _name: server, lambda: 0.0)
        self.publishing = Publishing(self.publisher, lambda: self.wanted, self._published, self.log, self._left)

    def _left(self, server: str) -> tuple[Wanted, ...]:
        assert server == "a"
        found = (Wanted(zone, "fd00:1:2::/48", "first", 2, {}, 60) for zone in self.BEFORE)
        return tuple(each for each in found if (each.zone, 2) not in [(one.zone, one.generation) for one in self.done])

    def emptied(self) -> list[str]:
        return sorted({each.zone for each in self.done} - {ZONE})


def test_zones_of_before_are_emptied_where_they_are_beside_what_is_published() -> None:
    """One that the server does not have any more is empty; one that others have filled is said, and holds up neither of the others."""
    old, older = Moved.BEFORE
    server = Zones(ZONE, old)
    web = f"web.console.{old}"
    with_names = Wanted(old, "fd00:1:2::/48", "first", 1, {web: ONE}, 60)
    Publisher(("a",), lambda _name: server, lambda: 0.0).bring("a", with_names)
    assert server.zones[old].names == {web: ONE}
    registry = Moved(server)

    async def test() -> None:
        registry.want(1, {WEB: ONE})
        await until(lambda: registry.emptied() == [old, older] and registry.at("a") >= 1)

    run(registry, test)
    assert server.zones[old].names == {} and server.zones[ZONE].names == {WEB: ONE}
    assert [line for line in registry.log.lines if "which was the underlay's" in line] == [
        f"DNS server a has no names any more in zone {zone}, which was the underlay's" for zone in (old, older)
    ]


def test_a_zone_of_before_that_cannot_be_emptied_is_told_once_and_holds_nobody_up() -> None:
    old, older = Moved.BEFORE
    server = Zones(ZONE, old, older)
    server.zones[old].entries["web.console.old.example.net"] = Entry(ONE, 60)  # whose it is nobody knows
    registry = Moved(server)

    async def test() -> None:
        for generation in range(1, 4):
            registry.want(generation, {WEB: ONE})
            await until(lambda generation=generation: registry.at("a") == generation)  # type: ignore[misc]
        await until(lambda: registry.emptied() == [older] and server.zones[old].read_whole > 2)

    pause, publishing.PATIENT = publishing.PATIENT, 0.01
    try:
        run(registry, test)
    finally:
        publishing.PATIENT = pause
    (told,) = [line for line in registry.log.lines if "is not emptied" in line]
    assert told.startswith(
        f"zone {old}, which was the underlay's, is not emptied: zone {old} of DNS server a holds 1 names that no registry"
    )
