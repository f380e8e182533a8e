"""Change the underlay's zone at a real name server long after it was published: others edit it, and the server loses it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from netregistry.zone import mark
from netregistry.zone.publisher import LOOK
from netregistry.zone.server import publisher
from tests.kernel.test_zone import SERVER, TIMEOUT, WEB, ZONE, address, content, holds, ours, want
from tests.support.nameserver import NameServer
from tests.support.netns import slowness
from tests.support.node import Node


@pytest.fixture
def server(node: Node) -> Iterator[NameServer]:
    with NameServer.started({ZONE: "ns1 AAAA 2001:db8::53\nsite TXT kept\n"}) as made:
        yield made


@pytest.mark.parametrize("kept", ["an earlier generation", "its first zone"])
def test_a_server_that_lost_what_it_had_is_noticed_while_nothing_changes(server: NameServer, tmp_path: Path, kept: str) -> None:
    """Notice a server that is back from a snapshot or on a new disk, and answers with addresses of before or knows no such name."""
    saved, clock = tmp_path / "saved", [0.0]
    zone = publisher([SERVER], str(server.key_file), TIMEOUT * slowness(), lambda: clock[0])
    if kept == "an earlier generation":
        zone.bring(SERVER, want(1, {WEB: address(1)}))
    server.stop()
    shutil.copytree(server.folder, saved, ignore=lambda _folder, names: [name for name in names if name.endswith(".sock")])
    server.start()
    last = want(5, {WEB: address(5)})
    zone.bring(SERVER, last)
    server.stop()
    shutil.rmtree(server.folder)
    shutil.copytree(saved, server.folder)
    server.start()
    assert content(server) != {WEB: [address(5)]} and not zone.due(SERVER, last)
    clock[0] = LOOK
    assert zone.due(SERVER, last) and zone.bring(SERVER, last).whole
    holds(server, last)
    clock[0] *= 2
    assert not zone.bring(SERVER, last).whole, "it is asked for its mark"


def test_an_alias_where_a_name_comes_or_moves_is_not_in_its_way(server: NameServer) -> None:
    """Replace an alias that another program adds between two readings: beside it the server drops the address and reports success."""
    zone = ours(server)
    zone.bring(SERVER, want(1, {WEB: address(1)}))
    server.update(ZONE, "del web1.console", "add web1.console 300 CNAME elsewhere.example.org.", "add web2.console 300 CNAME ns1")
    last = want(2, {WEB: address(2), f"web2.console.{ZONE}": address(3)})
    assert not zone.bring(SERVER, last).whole
    holds(server, last)
    assert not any("CNAME" in line for line in server.content(ZONE))


@pytest.mark.parametrize("mark_is", ["there", "gone"])
def test_what_others_have_in_a_zone_of_before_stays(server: NameServer, mark_is: str) -> None:
    """Keep the records of others in an emptied zone when the registry is restored, or moved, years later and looks at the zone again."""
    zone = ours(server)
    zone.bring(SERVER, want(1, {WEB: address(1)}))
    zone.bring(SERVER, want(2, {})._replace(former=True))
    assert content(server) == {}
    if mark_is == "gone":
        server.update(ZONE, f"del {mark.LABEL}")
    server.update(ZONE, "add www.shop 300 AAAA 2001:db8::80", "add mail.shop 300 CNAME www.shop")
    after = want(2, {})._replace(former=True, epoch="ffffffff")
    assert ours(server).bring(SERVER, after).generation == 2
    others = {"www.shop 300 AAAA 2001:db8::80", f"mail.shop 300 CNAME www.shop.{ZONE}."}
    assert others <= set(server.content(ZONE))
    server.update(ZONE, f"add web1.console 60 AAAA {address(1)}")  # the copy is of before
    assert ours(server).bring(SERVER, after).changed == 1
    assert others <= set(server.content(ZONE)) and WEB not in content(server)


def test_names_as_long_as_can_be_hold_nobody_up(server: NameServer) -> None:
    """Publish, move and remove names as long as names can be, in one generation with a move: no message exceeds the longest one allowed."""
    zone = ours(server)
    zone.bring(SERVER, want(1, {WEB: address(1)}))
    parts = ("a" * 59, "b" * 59, "c" * 59, "d" * 20)
    names = [".".join(f"{number:04d}{part}" for part in parts) + f".console.{ZONE}" for number in range(400)]
    for generation in (2, 3):
        last = want(generation, {WEB: address(generation), **{name: address(number + generation) for number, name in enumerate(names)}})
        zone.bring(SERVER, last)
        holds(server, last)
    zone.bring(SERVER, want(4, {WEB: address(4)}))
    assert content(server) == {WEB: [address(4)]}
