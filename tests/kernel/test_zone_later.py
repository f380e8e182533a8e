"""The underlay's zone at a real name server, long after it was published: what others do to it, and what a server loses."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.kernel.test_zone import SERVER, WEB, ZONE, address, content, holds, ours, want
from tests.support.nameserver import NameServer
from tests.support.node import Node


@pytest.fixture
def server(node: Node) -> Iterator[NameServer]:
    with NameServer.started({ZONE: "ns1 AAAA 2001:db8::53\nsite TXT kept\n"}) as made:
        yield made


def test_names_as_long_as_can_be_hold_nobody_up(server: NameServer) -> None:
    """They come in one generation with a move, and are moved themselves, and end: no message is larger than one can be."""
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
