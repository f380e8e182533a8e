"""Zone transfers are signed from their first message to their last one; who has no key makes nobody keep, or believe, anything."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import dns.flags
import dns.message
import dns.name
import dns.rcode
import dns.rrset
import dns.tsig
import dns.xfr
import pytest

from netcommon.dns import server
from netcommon.dns.key import Key
from netcommon.dns.server import Servers
from netcommon.dns.signatures import UNSIGNED
from runtime.errors import HostRefused, NetcommonError, SettingsInvalid, TryAgain

ZONE = "example.com"
SECRET = b"of the tests"
RING = dns.tsig.Key(dns.name.from_text("key."), SECRET, dns.name.from_text("hmac-sha256"))
SOA = dns.rrset.from_text("example.com.", 60, "IN", "SOA", "ns.example.net. mail.example.net. 1 2 3 4 5")
EVIL = dns.rrset.from_text("web.example.com.", 60, "IN", "AAAA", "2001:db8::bad")

Answer = Callable[[dns.message.Message], Iterable[bytes]]


def host(number: int) -> dns.rrset.RRset:
    return dns.rrset.from_text(f"host{number}.example.com.", 60, "IN", "AAAA", "2001:db8::1")


class Signer:
    """Answer a question in messages, of which each is signed or not."""

    def __init__(self, asked: dns.message.Message) -> None:
        self._asked = asked
        self._context: Any = None

    def message(self, *records: dns.rrset.RRset, signed: bool = True, rcode: dns.rcode.Rcode = dns.rcode.NOERROR) -> bytes:
        made: Any = dns.message.Message(id=self._asked.id)
        made.flags, made.answer = dns.flags.QR | dns.flags.AA, list(records)
        made.set_rcode(rcode)
        if signed:
            made.use_tsig(RING)
            made.request_mac = self._asked.mac
            wire: bytes = made.to_wire(multi=True, tsig_ctx=self._context)
            self._context = made.tsig_ctx
            return wire
        wire = made.to_wire()
        if self._context is not None:
            self._context.update(wire)
        return wire


@pytest.fixture
def transferred(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Answer], list[str]]]:
    """Give what transfers the zone from a server that answers so; it gives the zone's names that have an address."""
    taken: list[int] = []
    threads: list[threading.Thread] = []

    def answering(there: socket.socket, answer: Answer) -> None:
        with there:
            length = int.from_bytes(there.recv(2, socket.MSG_WAITALL), "big")
            asked = dns.message.from_wire(there.recv(length, socket.MSG_WAITALL), keyring=RING)
            try:
                for wire in answer(asked):
                    there.sendall(len(wire).to_bytes(2, "big") + wire)
                    taken.append(len(wire))
            except OSError:
                return

    def transfer(answer: Answer) -> list[str]:
        here, there = socket.socketpair()
        monkeypatch.setattr(socket, "create_connection", lambda *_given: here)
        thread = threading.Thread(target=answering, args=(there, answer), daemon=True)
        thread.start()
        threads.append(thread)
        try:
            return sorted(Servers(["192.0.2.53:53"], Key("key", "hmac-sha256", SECRET), 10.0, 60.0, lambda: 0.0).transfer(ZONE, "AAAA"))
        finally:
            here.close()

    transfer.taken = taken  # type: ignore[attr-defined]
    yield transfer
    for thread in threads:
        thread.join(10)
        assert not thread.is_alive()


def refused(transferred: Callable[[Answer], list[str]], answer: Answer) -> NetcommonError:
    with pytest.raises(NetcommonError) as caught:
        transferred(answer)
    assert "\n" not in str(caught.value)
    return caught.value


@pytest.mark.parametrize("unsigned", [0, 1, UNSIGNED], ids=str)
def test_messages_between_two_signatures_may_be_unsigned(transferred: Callable[[Answer], list[str]], unsigned: int) -> None:
    def answer(asked: dns.message.Message) -> Iterator[bytes]:
        made, number = Signer(asked), 0
        yield made.message(SOA)
        for _ in range(3):
            for _ in range(unsigned):
                yield made.message(host(number), signed=False)
                number += 1
            yield made.message(host(number))
            number += 1
        yield made.message(SOA)

    assert len(transferred(answer)) == 3 * (unsigned + 1)


def test_an_unsigned_first_message_is_refused_by_any_dnspython(
    transferred: Callable[[Answer], list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Go by our own look: of dnspython 2.3 the reader of transfers does not look at that."""
    monkeypatch.setattr(dns.xfr.Inbound, "_check_tsig", lambda *_given: None, raising=False)

    def answer(asked: dns.message.Message) -> Iterator[bytes]:
        made = Signer(asked)
        yield made.message(SOA, EVIL, signed=False)
        yield made.message(SOA)

    why = refused(transferred, answer)
    assert isinstance(why, TryAgain) and "its first message bears no signature" in str(why)


def test_an_unsigned_end_is_refused(transferred: Callable[[Answer], list[str]]) -> None:
    def answer(asked: dns.message.Message) -> Iterator[bytes]:
        made = Signer(asked)
        yield made.message(SOA)
        yield made.message(EVIL, SOA, signed=False)

    assert "without a signature at its end" in str(refused(transferred, answer))


def test_what_is_put_between_is_found(transferred: Callable[[Answer], list[str]]) -> None:
    def answer(asked: dns.message.Message) -> Iterator[bytes]:
        made = Signer(asked)
        yield made.message(SOA)
        yield Signer(asked).message(EVIL, signed=False)
        yield made.message(SOA)

    assert "came in part, or wrong" in str(refused(transferred, answer))


@pytest.mark.parametrize(
    "records",
    [
        [SOA, dns.rrset.from_text("host1.example.com.", 60, "CH", "TXT", "x"), SOA],
        [SOA, host(1), dns.rrset.from_text("below.example.com.", 60, "IN", "SOA", "ns.example.net. mail.example.net. 1 2 3 4 5"), SOA],
    ],
    ids=["of another class", "the beginning of another zone"],
)
def test_what_no_zone_can_have_is_a_wrong_transfer(transferred: Callable[[Answer], list[str]], records: list[dns.rrset.RRset]) -> None:
    why = refused(transferred, lambda asked: [Signer(asked).message(*records)])
    assert isinstance(why, TryAgain) and "came in part, or wrong" in str(why)


@pytest.mark.parametrize("signed", [0, 1], ids=["from the first", "behind a signed one"])
def test_a_stream_of_unsigned_messages_is_ended(transferred: Any, signed: int) -> None:
    """Whoever answers at the server's address without its key makes nobody keep more than a hundred messages."""
    many = [host(number) for number in range(1000)]

    def answer(asked: dns.message.Message) -> Iterator[bytes]:
        made = Signer(asked)
        yield made.message(SOA, signed=bool(signed))
        wire = made.message(*many, signed=False)
        for _ in range(1000):
            yield wire

    assert isinstance(refused(transferred, answer), TryAgain)
    assert len(transferred.taken) < 20 + signed * (UNSIGNED + 1)


@pytest.mark.parametrize(("bound", "most"), [("LARGEST", 2000), ("MOST", 10)])
def test_a_transfer_without_an_end_is_ended(
    transferred: Callable[[Answer], list[str]], monkeypatch: pytest.MonkeyPatch, bound: str, most: int
) -> None:
    """Also one that is signed."""
    monkeypatch.setattr(server, bound, most)

    def answer(asked: dns.message.Message) -> Iterator[bytes]:
        made = Signer(asked)
        yield made.message(SOA)
        for number in range(10_000):
            yield made.message(host(number))

    why = refused(transferred, answer)
    assert isinstance(why, HostRefused) and f"zone {ZONE} is larger than" in str(why)


def test_errors_are_believed_without_a_signature(transferred: Callable[[Answer], list[str]]) -> None:
    why = refused(transferred, lambda asked: [Signer(asked).message(signed=False, rcode=dns.rcode.REFUSED)])
    assert "refused to transfer zone example.com" in str(why)
    why = refused(transferred, lambda asked: [Signer(asked).message(signed=False, rcode=dns.rcode.NOTAUTH)])
    assert isinstance(why, SettingsInvalid | HostRefused) and "has no authority" in str(why)


def test_another_secret_is_told(transferred: Callable[[Answer], list[str]], monkeypatch: pytest.MonkeyPatch) -> None:
    def answer(asked: dns.message.Message) -> Iterator[bytes]:
        wire = Signer(asked).message(SOA, host(1), SOA)
        yield wire[:-40] + bytes([wire[-40] ^ 1]) + wire[-39:]

    assert "came in part, or wrong" in str(refused(transferred, answer))


def test_what_cannot_be_read_is_refused(transferred: Callable[[Answer], list[str]]) -> None:
    """Whatever is cut off, and wherever."""

    def cut(length: int) -> Answer:
        return lambda asked: [Signer(asked).message(SOA, host(1), SOA)[:length]]

    for length in range(0, 200, 3):
        refused(transferred, cut(length))
