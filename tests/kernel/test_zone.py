"""The underlay's zone at a real name server: while names move nobody is ever told of none or of two, whatever happens in between."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import dns.exception
import dns.message
import dns.query
import dns.rcode
import dns.rdatatype
import pytest

from netcommon.dns.names import NoZone
from netregistry.service.publishing import Publishing
from netregistry.zone import mark
from netregistry.zone.plan import Message, Wanted
from netregistry.zone.publisher import Published, Publisher
from netregistry.zone.server import DnsServer, publisher
from runtime.errors import HostRefused, NetcommonError, SettingsInvalid, TryAgain
from tests.support.bootstrap import ROOT
from tests.support.meanwhile import meanwhile
from tests.support.nameserver import ADDRESS, PORT, NameServer
from tests.support.netns import slowness, wait_until
from tests.support.node import Node
from tests.support.service import Lines

ZONE = "u.example.net"
SERVER = f"{ADDRESS}:{PORT}"
WEB = f"web1.console.{ZONE}"
OWNER = "5e0d6c1f00a1b2c3"
MANY = 20_000
TIMEOUT = 10.0


@pytest.fixture
def server(node: Node) -> Iterator[NameServer]:
    with NameServer.started({ZONE: "ns1 AAAA 2001:db8::53\nsite TXT kept\n"}) as made:
        yield made


def address(number: int) -> str:
    return f"fd00:1:2:{number % 200 + 1:x}::{number // 200 + 1:x}:0"


def many(moved: int = 0) -> dict[str, str]:
    """Give the names of a large site, each at an address that depends on ``moved``."""
    return {f"guest{number}.console.{ZONE}": address(number + moved) for number in range(MANY)}


def want(generation: int, names: Mapping[str, str], zone: str = ZONE) -> Wanted:
    return Wanted(zone, OWNER, "0a1b2c3d", generation, names, 60, "fd00:1:2::/48")


def ours(server: NameServer, timeout: float = TIMEOUT) -> Publisher:
    return publisher([SERVER], str(server.key_file), timeout * slowness(), time.monotonic)


def content(server: NameServer) -> dict[str, list[str]]:
    """Give every AAAA of the zone, as kdig reads it: by name in full."""
    found: dict[str, list[str]] = {}
    for line in server.content(ZONE):
        name, _ttl, kind, value = line.split(None, 3)
        if kind == "AAAA" and name != "ns1":
            found.setdefault(f"{name}.{ZONE}", []).append(value)
    return found


def holds(server: NameServer, wanted: Wanted) -> None:
    """Compare the whole zone with what is wanted; what is nobody's of the registry's is still there."""
    assert content(server) == {name: [each] for name, each in wanted.names.items()}
    lines = server.content(ZONE)
    assert f"{mark.LABEL} 60 TXT {wanted.mark.text}" in lines
    assert "ns1 3600 AAAA 2001:db8::53" in lines and 'site 3600 TXT "kept"' in lines


class Poller:
    """Ask for a name's addresses every 10 ms, and keep each other answer than the one before."""

    def __init__(self, name: str) -> None:
        self._asked = dns.message.make_query(name + ".", "AAAA")
        self.answers: list[tuple[str, ...]] = []
        self.count = self.silent = 0
        self.wrong: list[str] = []

    def run(self, ended: threading.Event) -> None:
        while not ended.wait(0.01):
            try:
                answer = dns.query.udp(self._asked, ADDRESS, timeout=2 * slowness(), port=PORT)
            except (OSError, dns.exception.Timeout):
                self.silent += 1
                continue
            self.count += 1
            found = tuple(sorted(each.to_text() for records in answer.answer if records.rdtype == dns.rdatatype.AAAA for each in records))
            if answer.rcode() != dns.rcode.NOERROR or len(found) != 1:
                self.wrong.append(f"{dns.rcode.to_text(answer.rcode())} {found}")
            if self.answers[-1:] != [found]:
                self.answers.append(found)


@contextmanager
def polled(name: str) -> Iterator[Poller]:
    made = Poller(name)
    with meanwhile(made.run):
        yield made


def moved(found: Poller, bring: Callable[[int], object], times: int) -> None:
    """Move the name so often, each time once the one before was seen."""
    for number in range(times):
        bring(number)
        expected = (address(number),)
        wait_until(lambda expected=expected: found.answers[-1:] == [expected], 5, "the poller sees the move")  # type: ignore[misc]


def test_a_name_that_moves_has_always_one_address(server: NameServer) -> None:
    """200 moves among a few other names, each one message; some together with the end of a name that lasts for a migration."""
    zone = ours(server)
    others = {f"guest{number}.console.{ZONE}": address(number) for number in range(50)}
    zone.bring(SERVER, want(1, {WEB: address(199), **others}))

    def bring(number: int) -> None:
        migrating = {f"web1-migrating.console.{ZONE}": address(number)} if number % 2 else {}
        zone.bring(SERVER, want(number + 2, {WEB: address(number), **migrating, **others}))

    with polled(WEB) as found:
        moved(found, bring, 200)
    assert found.wrong == [] and found.silent == 0 and found.count >= 200
    assert [each for (each,) in found.answers][-200:] == [address(number) for number in range(200)]
    holds(server, want(201, {WEB: address(199), **others, f"web1-migrating.console.{ZONE}": address(199)}))
    assert server.updates() == 201


def test_a_server_that_was_away_is_brought_whole(server: NameServer) -> None:
    zone = ours(server, 1.0)
    names = {f"guest{number}.console.{ZONE}": address(number) for number in range(100)}
    zone.bring(SERVER, want(1, {WEB: address(1), **names}))
    server.stop()
    with pytest.raises(TryAgain, match="no DNS server answers"):
        zone.bring(SERVER, want(2, {WEB: address(2), **names}))
    server.start()
    later = {WEB: address(3), **dict(list(names.items())[10:])}
    with polled(WEB) as found:
        assert zone.bring(SERVER, want(3, later)).whole
        wait_until(lambda: found.answers[-1:] == [(address(3),)], 5)
    assert found.wrong == [] and set(found.answers) <= {(address(1),), (address(3),)}
    holds(server, want(3, later))


def test_a_server_that_is_held_up_does_late_what_it_was_sent_once(server: NameServer) -> None:
    """An update that was given up, and is done after all when the server goes on, is not done again, nor over a later one."""
    zone = ours(server, 0.5)
    zone.bring(SERVER, want(1, {WEB: address(1)}))
    server.freeze()
    try:
        with pytest.raises(TryAgain, match="no answer in time"):
            zone.bring(SERVER, want(2, {WEB: address(2)}))
    finally:
        server.thaw()
    last = want(3, {WEB: address(3)})

    def brought() -> bool:
        try:
            return zone.bring(SERVER, last).generation == 3
        except TryAgain:
            return False

    wait_until(brought, 20, "the server goes on")
    holds(server, last)


PROGRAM = """
import sys, time
sys.path[:0] = [{root!r}]
from netregistry.zone.server import publisher
from tests.kernel.test_zone import SERVER, TIMEOUT, many, want
publisher([SERVER], {key!r}, TIMEOUT, time.monotonic).bring(SERVER, want(2, many(7)))
"""


def test_killed_in_the_middle(server: NameServer) -> None:
    """A process that brings 20,000 names elsewhere is killed between two of its messages; the next one reads the zone and completes it."""
    first, last = want(1, many()), want(3, many(9))
    name = f"guest{MANY - 1}.console.{ZONE}"
    ours(server).bring(SERVER, first)
    with polled(name) as found:
        program = PROGRAM.format(root=str(ROOT), key=str(server.key_file))
        with subprocess.Popen([sys.executable, "-c", program]) as process:
            wait_until(lambda: '"part=' in server.dig(mark.name_of(ZONE), "TXT"), 60, "it is under way")
            os.kill(process.pid, signal.SIGKILL)
        assert '"generation=2" "part=' in server.dig(mark.name_of(ZONE), "TXT")
        told = content(server)
        assert {len(each) for each in told.values()} == {1}
        assert any(told[each] != [first.names[each]] for each in told) and any(told[each] == [first.names[each]] for each in told)
        assert ours(server).bring(SERVER, last).whole
        wait_until(lambda: found.answers[-1] == (last.names[name],), 10, "whoever asks is told so")
    assert found.wrong == []
    holds(server, last)


def test_twenty_thousand_names(server: NameServer) -> None:
    """An empty server, one that missed a change of every name, one that missed one, and a name that moves among them."""
    seconds: dict[str, float] = {}

    def timed(what: str, zone: Publisher, wanted: Wanted) -> None:
        begun = time.monotonic()
        zone.bring(SERVER, wanted)
        seconds[what] = time.monotonic() - begun

    zone = ours(server)
    timed("empty", zone, want(1, many()))
    timed("all elsewhere", ours(server), want(2, many(3)))
    one = {**many(3), WEB: address(5)}
    timed("one missed", ours(server), want(3, one))
    zone = ours(server)
    zone.bring(SERVER, want(3, one))
    timed("one moves", zone, want(4, {**one, WEB: address(6)}))
    holds(server, want(4, {**one, WEB: address(6)}))
    print({what: round(took, 3) for what, took in seconds.items()})
    assert seconds["empty"] < 30 * slowness() and seconds["all elsewhere"] < 30 * slowness()
    assert seconds["one moves"] < 2 * slowness()


def test_one_server_of_two_is_silent(server: NameServer) -> None:
    """The other one, and who serves the registry, go on as if nothing were; when it answers again it is where the other one is."""
    with NameServer.started(server.zones, "127.0.0.2") as second:
        both = {each.address + f":{PORT}": each for each in (server, second)}
        zone = publisher(list(both), str(server.key_file), 1.0 * slowness(), time.monotonic)
        asyncio.run(silenced(zone, both, second))
        holds(server, want(30, {WEB: address(30)}))
        holds(second, want(30, {WEB: address(30)}))


async def silenced(zone: Publisher, both: Mapping[str, NameServer], silent: NameServer) -> None:
    """Publish 30 generations by a service, of which the last 20 while a server is held up: each is at the other within two seconds."""
    current, done, log = [want(0, {})], dict.fromkeys(both, 0), Lines()

    def published(found: Published) -> None:
        done[found.server] = found.generation

    async def turn(work: Callable[..., Any], *given: Any, own: bool = False) -> Any:
        return work(*given)

    async def at(generation: int, servers: Iterable[str], seconds: float) -> None:
        current[0] = want(generation, {WEB: address(generation)})
        begun.wake()
        async with asyncio.timeout(seconds * slowness()):
            while any(done[each] < generation for each in servers):
                await asyncio.sleep(0.005)

    begun = Publishing(zone, lambda: current[0], published, log)
    tasks = begun.begin(turn)
    try:
        for generation in range(1, 11):
            await at(generation, both, 5)
        silent.freeze()
        for generation in range(11, 31):
            await at(generation, [each for each in both if both[each] is not silent], 2)
        async with asyncio.timeout(20 * slowness()):
            while not any("no answer in time" in line for line in log.lines):
                await asyncio.sleep(0.005)
        silent.thaw()
        await at(30, both, 10)
    finally:
        silent.thaw()
        begun.stop()
        for task in tasks:
            task.cancel()


# -- refused


def refusal(server: NameServer, zone: str = ZONE) -> NetcommonError:
    with pytest.raises(NetcommonError) as caught:
        ours(server).bring(SERVER, want(5, {f"web1.console.{zone}": address(1)}, zone))
    assert "\n" not in str(caught.value)
    return caught.value


def test_what_the_server_refuses_is_one_line_and_changes_nothing(server: NameServer) -> None:
    before = server.serials()
    server.write_key("d3Jvbmc=")
    assert "another secret or algorithm for the TSIG key netcommon-updates: both must have the same" in str(refusal(server))
    server.write_key("d3Jvbmc=", "wrong")
    assert "does not know the TSIG key wrong, or not for this: make it there" in str(refusal(server))
    server.key_file.chmod(0o644)
    assert str(refusal(server)).startswith("registry.zone_key_file: ")
    server.key_file.unlink()
    assert isinstance(refusal(server), SettingsInvalid)
    assert server.serials() == before


def test_a_zone_that_the_server_does_not_have(server: NameServer) -> None:
    refused = refusal(server, "v.example.net")
    assert isinstance(refused, NoZone), "nothing of it is published there"
    assert "has no authority for zone v.example.net (NOTAUTH): make the zone there" in str(refused)


def test_a_key_that_may_not_transfer(server: NameServer) -> None:
    """It is found at once, and not when a server has been away for the first time."""
    server.stop()
    server.forbid_transfers()
    config = server.key_file.parent / "knot.conf"
    config.write_text(config.read_text().replace("acl: [updates, reading]", "acl: updates"))
    server.start()
    serials = server.serials()
    assert "does not know the TSIG key netcommon-updates, or not for this: make it there, with leave to query, update and transfer" in str(
        refusal(server)
    )
    assert server.serials() == serials


def test_a_zone_that_is_in_use(server: NameServer) -> None:
    server.update(ZONE, "add www.eu 300 AAAA 2001:db8::80")
    assert "such as www.eu.u.example.net: the underlay's zone is to be one of its own" in str(refusal(server))
    assert content(server) == {f"www.eu.{ZONE}": ["2001:db8::80"]}


def test_a_strange_record_where_the_mark_belongs(server: NameServer) -> None:
    server.update(ZONE, f"add {mark.LABEL} 300 TXT strange")
    assert "remove them there" in str(refusal(server))


def test_an_alias_where_the_mark_belongs(server: NameServer) -> None:
    """Beside it the server would drop the mark, and do the rest: nothing is sent, also where the alias has come later."""
    zone = ours(server)
    zone.bring(SERVER, want(1, {WEB: address(1)}))
    server.update(ZONE, f"del {mark.LABEL}", f"add {mark.LABEL} 300 CNAME ns1")
    serials = server.serials()
    for each in (zone, ours(server)):
        with pytest.raises(HostRefused, match=f"has CNAME records at {mark.name_of(ZONE)}: remove them there"):
            each.bring(SERVER, want(2, {WEB: address(2)}))
    assert server.serials() == serials and content(server) == {WEB: [address(1)]}


def test_a_mark_that_was_removed_by_hand(server: NameServer) -> None:
    """It is made again, also while a name moves, by who has put it there and by another service."""
    zone = ours(server)
    zone.bring(SERVER, want(1, {WEB: address(1)}))
    for generation, each in enumerate((zone, ours(server)), 2):
        server.update(ZONE, f"del {mark.LABEL} TXT")
        each.bring(SERVER, want(generation, {WEB: address(generation)}))
        holds(server, want(generation, {WEB: address(generation)}))


def test_another_registry_with_the_same_prefix_changes_nothing(server: NameServer) -> None:
    names = {f"guest{number}.console.{ZONE}": address(number) for number in range(50)}
    ours(server).bring(SERVER, want(900, names))
    with pytest.raises(HostRefused, match=f"another registry, '{OWNER}'; this one is 'another'"):
        ours(server).bring(SERVER, want(1, {WEB: address(1)})._replace(owner="another", epoch="test"))
    holds(server, want(900, names))


def test_a_mark_of_the_older_form_is_replaced_once(server: NameServer) -> None:
    older = want(3, {WEB: address(1)})._replace(owner="fd00:1:2::/48")
    ours(server).bring(SERVER, older)
    assert ours(server).bring(SERVER, want(3, {WEB: address(1)})).changed == 0
    holds(server, want(3, {WEB: address(1)}))
    with pytest.raises(HostRefused, match="another registry"):
        ours(server).bring(SERVER, older)


def test_what_others_have_put_at_a_name_goes_with_its_next_move(server: NameServer) -> None:
    """An alias, an IPv4 address and a second address: a reading finds them, and the name has one address again; other types stay."""
    zone = ours(server)
    names = {f"{each}.console.{ZONE}": address(number) for number, each in enumerate(("a", "b", "c"))}
    zone.bring(SERVER, want(1, names))
    server.update(ZONE, "del a.console", "add a.console 60 CNAME elsewhere.example.")
    server.update(ZONE, "add b.console 60 A 192.0.2.1", "add b.console 60 TXT hello")
    server.update(ZONE, "add c.console 60 AAAA 2001:db8::1", "add d.console 60 AAAA 2001:db8::2")
    odd = "\\255" * 60  # a label of 60 octets, in text 240 characters
    server.update(ZONE, *(f"add {each} 60 AAAA 2001:db8::3" for each in (f"{odd}.console", "a\\.b.console", "*.console", "one\\.label")))
    assert ours(server).bring(SERVER, want(1, names)).changed == 7
    server.update(ZONE, "del one\\.label")
    holds(server, want(1, names))
    assert [line for line in server.content(ZONE) if line.startswith("b.console") and "AAAA" not in line] == ['b.console 60 TXT "hello"']


def test_a_part_that_is_late_is_not_done(server: NameServer) -> None:
    """A message of an earlier leader that was under way when another one had brought the server further."""
    zone = ours(server)
    zone.bring(SERVER, want(1, {WEB: address(1)}))
    late: list[Late] = []

    class Late(DnsServer):
        def send(self, zone: str, message: Message) -> bool:
            late.append(self)
            self.message = message
            raise TryAgain("it is under way")

    other = Publisher([SERVER], lambda each: Late(each, str(server.key_file), TIMEOUT, time.monotonic), time.monotonic)
    with pytest.raises(TryAgain):
        other.bring(SERVER, want(2, {WEB: address(2)}))
    zone.bring(SERVER, want(3, {WEB: address(3)}))
    assert DnsServer.send(late[0], ZONE, late[0].message) is False
    late[0].close()
    holds(server, want(3, {WEB: address(3)}))
