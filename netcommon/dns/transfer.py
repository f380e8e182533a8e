"""Find where a zone transfer ends without reading its records, pure.

A server ends the connection of one who takes longer than it likes over what was sent (Knot 500 ms, ``tcp-remote-io-timeout``), and reading
twenty thousand names takes seconds: so all of a transfer is received first, and read then.
"""

from __future__ import annotations

HEADER = 12
SOA = 6
POINTER = 0xC0
NUMBERS = 10  #: bytes of a record between its name and its data


class Ends:
    """Follow the messages of a transfer (AXFR, RFC 5936, 2.2): it begins and ends with the zone's SOA record, and has no other."""

    def __init__(self) -> None:
        self._seen = 0

    def after(self, wire: bytes) -> bool:
        """Tell whether no message follows this one: also where it is an error, or none that can be read. Whoever reads it finds out."""
        try:
            count = soas(wire)
        except IndexError:
            return True
        self._seen += count
        return len(wire) < HEADER or self._seen > 1 or bool(wire[3] & 0x0F) or not wire[6:8].strip(b"\0")


def soas(wire: bytes) -> int:
    """Count the SOA records in a message's answer. Raises IndexError where the message is cut off."""
    place, found = HEADER, 0
    for _ in range(int.from_bytes(wire[4:6], "big")):
        place = _behind(wire, place) + 4
    for _ in range(int.from_bytes(wire[6:8], "big")):
        place = _behind(wire, place)
        found += wire[place] == 0 and wire[place + 1] == SOA
        place += NUMBERS + (wire[place + 8] << 8 | wire[place + 9])
    if place > len(wire):
        raise IndexError
    return found


def _behind(wire: bytes, place: int) -> int:
    """Give where a name ends (RFC 1035, 4.1.4)."""
    while octet := wire[place]:
        if octet >= POINTER:
            return place + 2
        place += octet + 1
    return place + 1
