"""Shrink what fails to the fewest parts that do: delta debugging, the algorithm ddmin.

A. Zeller, R. Hildebrandt: Simplifying and Isolating Failure-Inducing Input. IEEE Transactions on Software Engineering 28 (2), 2002.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

T = TypeVar("T")


def shrunk(parts: Sequence[T], fails: Callable[[tuple[T, ...]], bool]) -> tuple[T, ...]:
    """Give parts that fail, in their order, none of which can be left out. ``fails``: is true of all of them."""
    known: dict[tuple[int, ...], bool] = {}

    def asked(places: tuple[int, ...]) -> bool:
        if places not in known:
            known[places] = fails(tuple(parts[place] for place in places))
        return known[places]

    left, pieces = tuple(range(len(parts))), 2
    while len(left) >= 2:
        size = -(-len(left) // pieces)
        cuts = [left[begin : begin + size] for begin in range(0, len(left), size)]
        rests = [tuple(place for place in left if place not in cut) for cut in cuts]
        smaller = next((cut for cut in cuts if asked(cut)), None) if pieces > 1 else None
        if smaller is not None:
            left, pieces = smaller, 2
            continue
        smaller = next((rest for rest in rests if asked(rest)), None)
        if smaller is not None:
            left, pieces = smaller, max(pieces - 1, 2)
        elif pieces >= len(left):
            break
        else:
            pieces = min(2 * pieces, len(left))
    if len(left) == 1 and asked(()):
        left = ()
    return tuple(parts[place] for place in left)
