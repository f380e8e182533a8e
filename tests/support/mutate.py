"""Hostile inputs by the million: seeded mutations of real ones, as bytes, as text and as JSON.

Hypothesis makes a few thousand inputs a minute and shrinks what fails; this makes a million, and remembers what failed as it is.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from random import Random
from typing import Any

#: What has broken parsers before.
BYTES = (
    b'', b'\x00', b'\n', b'\r\n', b'=', b'"', b"'", b'\\', b'{', b'}', b'[', b']', b',', b':', b'/', b'../', b'/../../etc/passwd',
    b'%s', b'$(id)', b'`id`', b';id;', b'|', b'&', b'*', b'~', b'-', b'--help', b"b'", b'\x1b[2J', b'\x7f', b'\x80', b'\xa0',
    b'\xff', b'\xfe\xff', b'\xed\xa0\x80', b'\xf4\x90\x80\x80', b'\xc0\xaf', b'\xe2\x80\xae', b'\xef\xbb\xbf', b'NaN', b'Infinity',
    b'-0', b'1e999', b'999999999999999999999999999999', b"9" * 5000, b'0x10', b'0b1', b'1_000', b'true', b'null', b'\\ud800',
    b'\\u0000', b"[" * 100, b'{"":' * 100, b'\x00\x01\x02\x03', b'\xff\xff\xff\xff', b'\x7f\xff',
)  # fmt: skip
TEXTS = (
    *(part.decode("utf-8", "surrogateescape") for part in BYTES),
    *("\u0660", "\u00b2", "\ud800", "\u2028", "\U0001f600", "\ufb01", "\u0130", "A" * 300),
)
NUMBERS = (
    *(0, -1, 1, 2, 15, 16, 255, 256, 4094, 4095, 4096, 65535, 65536),
    *(1 << 31, (1 << 31) - 1, -(1 << 31), 1 << 32, 1 << 63, 1 << 64, 10**400),
)
OTHERS: tuple[Any, ...] = (None, True, False, 0.5, -0.0, 1e308, "", [], {}, [[]], [None], {"": ""}, ["set", []], ["map", []], ["uuid", ""])


class Mutator:
    """Endless variations of ``seeds``; the same for the same ``seed``."""

    def __init__(self, seed: int | str, seeds: Sequence[bytes] = (b"",)) -> None:
        self.random = Random(seed)
        self.seeds = seeds

    def blob(self, data: bytes | None = None) -> bytes:
        """One to eight changes of ``data`` (one of the seeds): bits, bytes, cuts, repetitions, parts of other seeds, evil bytes."""
        random = self.random
        made = bytearray(random.choice(self.seeds) if data is None else data)
        for _ in range(random.choice((1, 1, 1, 2, 3, 5, 8))):
            place = random.randrange(len(made) + 1)
            match random.randrange(9):
                case 0 if place < len(made):
                    made[place] ^= 1 << random.randrange(8)
                case 1 if place < len(made):
                    made[place] = random.randrange(256)
                case 2:
                    del made[place:]
                case 3:
                    del made[place : place + random.choice((1, 2, 4, 16))]
                case 4:
                    made[place:place] = random.choice(BYTES)
                case 5 if made:
                    end = min(len(made), place + random.choice((1, 4, 64)))
                    made[place:place] = made[place:end] * random.choice((1, 2, 16))
                case 6:
                    other = random.choice(self.seeds)
                    start = random.randrange(len(other) + 1)
                    made[place : place + random.randrange(64)] = other[start : start + random.randrange(1, 256)]
                case 7 if place + 4 <= len(made):
                    number = random.choice(NUMBERS[:-3]) & 0xFFFFFFFF
                    made[place : place + 4] = number.to_bytes(4, random.choice(("little", "big")))
                case _:
                    made[place:place] = random.randbytes(random.choice((1, 3, 20)))
        return bytes(made)

    def text(self, text: str) -> str:
        """One variation of a text, with characters that no UTF-8 has too."""
        random = self.random
        place = random.randrange(len(text) + 1)
        match random.randrange(8):
            case 0:
                return random.choice(TEXTS)
            case 1:
                return text[:place] + random.choice(TEXTS) + text[place:]
            case 2:
                return text[:place] + text[place + 1 :]
            case 3:
                return text[:place] + chr(random.choice((random.randrange(128), random.randrange(0x110000)))) + text[place + 1 :]
            case 4:
                return text * random.choice((2, 3, 40))
            case 5:
                return text.swapcase()
            case 6:
                return str(random.choice(NUMBERS[:-1]))
            case _:
                return text[place:] + text[:place]

    def value(self, value: Any) -> Any:
        """A variation of a JSON value: something in it is another value, another type, gone, repeated, or renamed."""
        random = self.random
        if isinstance(value, dict) and value and random.randrange(8):
            name = random.choice(list(value))
            made = dict(value)
            match random.randrange(8):
                case 0:
                    del made[name]
                case 1:
                    made[self.text(name)] = made.pop(name)
                case 2:
                    made[self.text("x")] = self.other()
                case _:
                    made[name] = self.value(made[name])
            return made
        if isinstance(value, list) and value and random.randrange(8):
            place = random.randrange(len(value))
            match random.randrange(8):
                case 0:
                    return value[:place] + value[place + 1 :]
                case 1:
                    return [*value, *[value[place]] * random.choice((1, 2, 50))]
                case 2:
                    return [*value, self.other()]
                case _:
                    return [*value[:place], self.value(value[place]), *value[place + 1 :]]
        if isinstance(value, str) and random.randrange(4):
            return self.text(value)
        return self.other()

    def other(self) -> Any:
        """A JSON value that has nothing to do with what was there."""
        random = self.random
        match random.randrange(6):
            case 0:
                return random.choice(NUMBERS[:-1])
            case 1:
                return random.choice(TEXTS)
            case 2:
                deep: Any = random.choice(OTHERS)
                for _ in range(random.choice((1, 5, 90))):
                    deep = [deep] if random.randrange(2) else {"a": deep}
                return deep
            case _:
                return random.choice(OTHERS)

    def json(self, value: Any, ascii_only: bool = True) -> bytes:
        """A variation of ``value`` as JSON text; every eighth is broken as text too."""
        random = self.random
        for _ in range(random.choice((1, 1, 2, 4))):
            value = self.value(value)
        data = json.dumps(value, ensure_ascii=ascii_only or not random.randrange(4)).encode("utf-8", "surrogatepass")
        return self.blob(data) if not random.randrange(8) else data
