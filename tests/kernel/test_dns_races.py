"""What others do to a name between our reading it and our update: nothing of theirs is lost. And servers that lie or hang up."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from netcommon.dns import key
from netcommon.dns.records import Policy
from netcommon.dns.server import Servers
from netcommon.dns.update import Mark, Zones
from runtime.errors import HostRefused, NetcommonError
from tests.support.nameserver import ADDRESS, PORT, NameServer
from tests.support.node import Node

ZONE = "example.com"
NAME = "web.example.com"
POLICY = Policy((ZONE,))
OURS, OTHERS = Mark("a.example.net", NAME), Mark("b.example.net", NAME)
WANTED = {"A": frozenset({"192.0.2.10"})}
OTHER = {"A": frozenset({"192.0.2.11"})}


@pytest.fixture
def server(node: Node) -> Iterator[NameServer]:
    with NameServer.started({ZONE: ""}) as made:
        yield made


@contextmanager
def zones(server: NameServer, address: str = f"{ADDRESS}:{PORT}") -> Iterator[Zones]:
    servers = Servers([address], key.read(str(server.key_file)), 2, time.monotonic() + 10, time.monotonic)
    try:
        yield Zones(servers, POLICY)
    finally:
        servers.close()


def lines(server: NameServer) -> list[str]:
    return [line for line in server.content(ZONE) if not line.startswith("_netcommon")]


def test_claimed_by_another_meanwhile(server: NameServer) -> None:
    with zones(server) as ours, zones(server) as others:
        assert ours.find(NAME, {OURS}).mark is None
        assert others.settle(NAME, OTHER, OTHERS, ())
        with pytest.raises(HostRefused, match=r"belongs to instance web\.example\.com of cluster b\.example\.net"):
            ours.settle(NAME, WANTED, OURS, ())
    assert lines(server) == ["web 3600 A 192.0.2.11"]


@pytest.mark.parametrize("wanted", [{}, WANTED])
def test_lost_to_another_meanwhile(server: NameServer, wanted: dict[str, frozenset[str]]) -> None:
    """We still believe that the name is ours, and want to change it, or to remove it."""
    with zones(server) as ours, zones(server) as others:
        ours.settle(NAME, {"A": frozenset({"192.0.2.9"})}, OURS, ())
        assert ours.find(NAME, {OURS}).mark == OURS
        others.settle(NAME, OTHER, OTHERS, {OURS})
        if wanted:
            with pytest.raises(HostRefused, match="belongs to"):
                ours.settle(NAME, wanted, OURS, ())
        else:
            assert ours.settle(NAME, wanted, OURS, ()) == ""
    assert lines(server) == ["web 3600 A 192.0.2.11"]


def test_removed_by_hand_meanwhile(server: NameServer) -> None:
    with zones(server) as ours:
        ours.settle(NAME, OTHER, OURS, ())
        ours.find(NAME, {OURS})
        server.update(ZONE, "del web", "del _netcommon.web")
        assert ours.settle(NAME, WANTED, OURS, ()) == f"{NAME} is now A 192.0.2.10"
    assert lines(server) == ["web 3600 A 192.0.2.10"]


def test_only_a_mark_that_we_would_write_is_one(server: NameServer) -> None:
    for text in ('"netcommon"', '"netcommon" "cluster=a.example.net" "instance=web.example.com" "more"', '"x" "cluster=a" "instance=b"'):
        server.update(ZONE, "del _netcommon.web", f"add _netcommon.web 60 TXT {text}")
        with zones(server) as ours:
            assert ours.find(NAME, {OURS}).mark is None
            with pytest.raises(HostRefused):
                ours.settle(NAME, WANTED, OURS, ())


def test_a_connection_that_the_server_closed(server: NameServer) -> None:
    with zones(server) as ours:
        ours.settle(NAME, WANTED, OURS, ())
        server.stop()
        server.start()
        assert ours.settle(NAME, OTHER, OURS, ())
    assert lines(server) == ["web 3600 A 192.0.2.11"]


@pytest.mark.parametrize(("rcode", "status"), [(0, 75), (2, 75), (5, 69), (9, 78)])
def test_an_answer_without_a_signature(server: NameServer, rcode: int, status: int) -> None:
    """Anybody could have sent it: good news is not believed, an error is one in any case."""
    with socket.create_server((ADDRESS, 5399)) as listener:
        thread = threading.Thread(target=answer, args=(listener, rcode))
        thread.start()
        with zones(server, f"{ADDRESS}:5399") as ours, pytest.raises(NetcommonError) as caught:
            ours.settle(NAME, WANTED, OURS, ())
        thread.join()
    assert caught.value.status == status


def answer(listener: socket.socket, rcode: int) -> None:
    """Answers one question with its own header and question (RFC 1035, 4.1), unsigned."""
    connection, _ = listener.accept()
    with connection:
        size = int.from_bytes(connection.recv(2), "big")
        asked = connection.recv(size)
        end = asked.index(b"\0", 12) + 5
        reply = asked[:2] + bytes([0x84, rcode]) + asked[4:6] + bytes(6) + asked[12:end]
        connection.sendall(len(reply).to_bytes(2, "big") + reply)
        connection.recv(1)
