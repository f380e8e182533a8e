"""Verify the signatures of a zone transfer as its messages come (TSIG, RFC 8945, 5.3.1), whatever version of dnspython there is.

The first message and the last one are signed, and of those in between one of a hundred at least; each signature covers all since the one
before. So whoever has no key makes us keep a hundred messages at most, and of a transfer that he begins not one.
"""

from __future__ import annotations

import time
from typing import Any

import dns.message
import dns.name
import dns.rcode
import dns.rdata
import dns.rdataclass
import dns.rdatatype
import dns.tsig

from netcommon.dns.transfer import HEADER, NUMBERS, behind, walked

UNSIGNED = 99  #: messages one after the other (RFC 8945, 5.3.1)


class Unsigned(Exception):
    """Say that a message without a signature came where there must be one. ``rcode``: what it says in its header, an error or NOERROR."""

    def __init__(self, text: str, rcode: int) -> None:
        super().__init__(text)
        self.rcode = dns.rcode.Rcode(rcode)


class Signatures:
    """Verify the answers to a question that was signed with a key, in the order in which they come."""

    def __init__(self, key: dns.tsig.Key, asked: dns.message.Message) -> None:
        self._key, self._mac, self._id = key, asked.mac, asked.id.to_bytes(2, "big")
        self._context: Any = None  # of all since the last signature
        self._unsigned = 0

    def verified(self, wire: bytes) -> bytes:
        """Take in the next message; give it without its signature. Raises Unsigned, and DNSException where a signature is wrong."""
        rcode = wire[3] & 0x0F if len(wire) >= HEADER else dns.rcode.NOERROR
        try:
            begins = walked(wire).signature if len(wire) >= HEADER else 0
        except IndexError:
            raise Unsigned("a message is cut off", rcode) from None
        if wire[:2] != self._id:
            raise Unsigned("an answer to another question", dns.rcode.NOERROR)
        if begins:
            self._signed(wire, begins)
            more = int.from_bytes(wire[10:HEADER], "big") - 1
            return wire[:10] + more.to_bytes(2, "big") + wire[HEADER:begins]
        self._unsigned += 1
        if self._context is None:
            raise Unsigned("its first message bears no signature", rcode)
        if self._unsigned > UNSIGNED or rcode != dns.rcode.NOERROR:
            raise Unsigned(f"{self._unsigned} messages one after the other bear no signature", dns.rcode.NOERROR)
        self._context.update(wire)
        return wire

    def end(self) -> None:
        """Take in that no message follows. Raises Unsigned where the last one bore no signature."""
        if self._unsigned or self._context is None:
            raise Unsigned("it came without a signature at its end", dns.rcode.NOERROR)

    def _signed(self, wire: bytes, begins: int) -> None:
        owner, _length = dns.name.from_wire(wire, begins)
        data = behind(wire, begins)
        length = int.from_bytes(wire[data - 2 : data], "big")
        if wire[data - NUMBERS + 2 : data - NUMBERS + 4] != dns.rdataclass.ANY.to_bytes(2, "big") or data + length != len(wire):
            raise dns.tsig.BadSignature
        record = dns.rdata.from_wire(dns.rdataclass.ANY, dns.rdatatype.TSIG, wire, data, length)
        validate: Any = dns.tsig.validate  # it says no types
        self._context = validate(wire, self._key, owner, record, int(time.time()), self._mac, begins, self._context, multi=True)
        self._unsigned = 0
