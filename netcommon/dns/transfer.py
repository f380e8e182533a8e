"""Find where a zone transfer ends without reading its records, pure.

A server ends the connection of one who takes longer than it likes over what was sent (Knot 500 ms, ``tcp-remote-io-timeout``), and reading
twenty thousand names takes seconds: so all of a transfer is received first, and read then. Signatures are looked at as messages come
(netcommon.dns.signatures), for nobody else may make us keep anything.
"""

from __future__ import annotations

from typing import NamedTuple

HEADER = 12
SOA, TSIG = 6, 250
POINTER = 0xC0
NUMBERS = 10  #: bytes of a record between its name and its data


class Walked(NamedTuple):
    """Say what is in a message: how many SOA records in its answer; where its signature, the last record (TSIG), begins, 0 for none."""

    soas: int
    signature: int


class Ends:
    """Follow the messages of a transfer (AXFR, RFC 5936, 2.2): it begins and ends with the zone's SOA record, and has no other."""

    def __init__(self) -> None:
        self._seen = 0

    def after(self, wire: bytes) -> bool:
        """Tell whether no message follows this one: also where it is an error, or none that can be read. Whoever reads it finds out."""
        try:
            count = walked(wire).soas
        except IndexError:
            return True
        self._seen += count
        return len(wire) < HEADER or self._seen > 1 or bool(wire[3] & 0x0F) or not wire[6:8].strip(b"\0")


def walked(wire: bytes) -> Walked:
    """Go through the records of a message. Raises IndexError where it is cut off."""
    questions, answers, others, more = (int.from_bytes(wire[at : at + 2], "big") for at in range(4, HEADER, 2))
    place, found = HEADER, 0
    for _ in range(questions):
        place = _behind(wire, place) + 4
    for _ in range(answers):
        place = _behind(wire, place)
        found += wire[place] == 0 and wire[place + 1] == SOA
        place += NUMBERS + (wire[place + 8] << 8 | wire[place + 9])
    signature = 0
    for left in range(others + more, 0, -1):
        begins, place = place, _behind(wire, place)
        if left == 1 and more and wire[place] == 0 and wire[place + 1] == TSIG:
            signature = begins
        place += NUMBERS + (wire[place + 8] << 8 | wire[place + 9])
    if place > len(wire):
        raise IndexError
    return Walked(found, signature)


def behind(wire: bytes, place: int) -> int:
    """Give where the data of the record that begins at a place begin."""
    return _behind(wire, place) + NUMBERS


def _behind(wire: bytes, place: int) -> int:
    """Give where a name ends (RFC 1035, 4.1.4)."""
    while octet := wire[place]:
        if octet >= POINTER:
            return place + 2
        place += octet + 1
    return place + 1
