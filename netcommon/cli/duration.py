"""Read durations as people type them."""

from __future__ import annotations

from netcommon.lifecycle.change import LONGEST
from runtime.errors import NicInvalid

#: Units, in seconds.
UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}


def seconds_of(text: str) -> float:
    """Read the value of --for, in seconds. Raises NicInvalid."""
    number, unit = text[:-1], text[-1:]
    if not (unit in UNITS and number.isascii() and number.isdecimal() and len(number) <= 12 and 0 < int(number) * UNITS[unit] <= LONGEST):
        raise NicInvalid("--for", text, "a whole number and a unit: 90s, 30m, 2h, 7d or 4w, ten years at most")
    return int(number) * UNITS[unit]
