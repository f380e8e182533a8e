"""Makes a frame that does something as small as it can be while it still does it."""

from __future__ import annotations

from collections.abc import Callable

from tests.support.fuzz.oracle import PLAIN, Header

TRIES = 600
Sent = tuple[Header, bytes]


def shrunk(sent: Sent, does: Callable[[Sent], bool]) -> Sent:
    """The simplest header, the fewest bytes, and as many zeros among them as possible."""
    left = [TRIES]

    def still(each: Sent) -> bool:
        left[0] -= 1
        return left[0] >= 0 and does(each)

    header, frame = sent
    if still((PLAIN, frame)):
        header = PLAIN
    for name in () if header == PLAIN else Header._fields:
        simpler = header._replace(**{name: 0})
        if simpler != header and still((simpler, frame)):
            header = simpler
    size = len(frame)
    step = size // 2
    while step:
        while size - step >= 14 and still((header, frame[: size - step])):
            size -= step
        step //= 2
    frame = frame[:size]
    width = 32
    while width:
        for start in range(len(frame) - width, 11, -width):
            without = frame[:start] + frame[start + width :]
            zeros = frame[:start] + bytes(width) + frame[start + width :]
            if still((header, without)):
                frame = without
            elif zeros != frame and still((header, zeros)):
                frame = zeros
        width //= 2
    return header, frame
