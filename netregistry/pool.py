"""Keep the numbers (addresses, MACs) of one scope that were ever claimed or are in use, so that the next to give out is found by few steps.

Numbers of an IPv6 /64 are as quick to find as those of an IPv4 /24: what is searched is what was used, by bisection.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from typing import TYPE_CHECKING, Literal, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from netregistry.model.claim import Standing as OfClaim

    Standing = OfClaim | Literal["reported"]


class Place(NamedTuple):
    """How one number stands: the time at which it was freed counts where it is free."""

    standing: Standing
    freed: float


#: That a NIC is reported with a number, whatever claims it: such a place is in a pool once.
REPORTED = Place("reported", 0.0)


class Pool:
    """The claimed numbers of one family in one scope. A number may be claimed several times, as a MAC in two networks is."""

    def __init__(self) -> None:
        self._places: dict[int, list[Place]] = {}
        self._used: list[int] = []  # sorted
        self._free: list[tuple[float, int]] = []  # sorted: those of which no claim is anything but free

    def add(self, number: int, place: Place) -> None:
        """Take a claim in."""
        places = self._places.get(number)
        if places is None:
            self._places[number] = [place]
            insort(self._used, number)
            self._gained(number)
        else:
            self._lost(number)
            places.append(place)
            self._gained(number)

    def remove(self, number: int, place: Place) -> None:
        """Take out a claim that was taken in."""
        places = self._places[number]
        self._lost(number)
        places.remove(place)
        if places:
            self._gained(number)
        else:
            del self._places[number]
            del self._used[bisect_left(self._used, number)]

    def _freed(self, number: int) -> tuple[float, int] | None:
        places = self._places[number]
        return (max(each.freed for each in places), number) if all(each.standing == "free" for each in places) else None

    def _gained(self, number: int) -> None:
        if (entry := self._freed(number)) is not None:
            insort(self._free, entry)

    def _lost(self, number: int) -> None:
        if (entry := self._freed(number)) is not None:
            del self._free[bisect_left(self._free, entry)]

    def never_used(self, first: int, last: int) -> Iterator[int]:
        """Give the numbers from ``first`` to ``last`` that nothing is of, the lowest first. The pool must not change meanwhile."""
        used = self._used
        place = bisect_left(used, first)
        while first <= last:
            # used[place:] rises by at least one each: it is without a gap as long as it rises by exactly one
            low, high = place, len(used)
            while low < high:
                middle = (low + high) // 2
                if used[middle] - first == middle - place:
                    low = middle + 1
                else:
                    high = middle
            first += low - place
            place = low
            end = min(used[place] - 1 if place < len(used) else last, last)
            while first <= end:
                yield first
                first += 1

    def longest_freed(self, bounds: Sequence[tuple[int, int]]) -> Iterator[int]:
        """Give the numbers within the bounds that are free again, the one that has been so longest first."""
        for _freed, number in self._free:
            if any(first <= number <= last for first, last in bounds):
                yield number

    def count(self, first: int, last: int) -> dict[Standing, int]:
        """Count the numbers from ``first`` to ``last`` by how they stand; each counts once, by what stands most in its way."""
        found: dict[Standing, int] = dict.fromkeys(ORDER, 0)
        for number in self.within(first, last):
            found[self._standing(number)] += 1
        return found

    def standing(self, wanted: Standing, first: int, last: int) -> Iterator[int]:
        """Give the numbers from ``first`` to ``last`` that stand so, the lowest first. The pool must not change meanwhile."""
        return (number for number in self.within(first, last) if self._standing(number) == wanted)

    def within(self, first: int, last: int) -> list[int]:
        """Give the numbers from ``first`` to ``last`` that anything is of, the lowest first."""
        return self._used[bisect_left(self._used, first) : bisect_left(self._used, last + 1)]

    def of(self, number: int) -> Standing | None:
        """Tell how a number stands; None where nothing is of it."""
        return self._standing(number) if number in self._places else None

    def _standing(self, number: int) -> Standing:
        places = self._places[number]
        return places[0].standing if len(places) == 1 else min((each.standing for each in places), key=ORDER.index)


ORDER: tuple[Standing, ...] = ("held", "reserved", "quarantined", "reported", "free")


class Joined(Pool):
    """The pool of a scope, with one beside it: what is in use, and nobody knows in which scope. What changes is changed in these."""

    def __init__(self, own: Pool, beside: Pool) -> None:
        self._own, self._beside = own, beside

    def never_used(self, first: int, last: int) -> Iterator[int]:
        """Give the numbers from ``first`` to ``last`` that nothing is of in either: what is used in a row takes one step."""
        while (number := next(self._own.never_used(first, last), None)) is not None:
            first = next(self._beside.never_used(number, last), last + 1)
            if first == number:
                yield number
                first += 1

    def longest_freed(self, bounds: Sequence[tuple[int, int]]) -> Iterator[int]:
        """Give the numbers within the bounds that are free again, the one that has been so longest first, and not in use beside."""
        return (number for number in self._own.longest_freed(bounds) if self._beside.of(number) is None)

    def count(self, first: int, last: int) -> dict[Standing, int]:
        """Count the numbers from ``first`` to ``last`` by how they stand."""
        found = self._own.count(first, last)
        for number in self._beside.within(first, last):
            if (before := self._own.of(number)) != (after := self.of(number)):
                if before is not None:
                    found[before] -= 1
                if after is not None:
                    found[after] += 1
        return found

    def standing(self, wanted: Standing, first: int, last: int) -> Iterator[int]:
        """Give the numbers from ``first`` to ``last`` that stand so, the lowest first."""
        return (number for number in self.within(first, last) if self.of(number) == wanted)

    def within(self, first: int, last: int) -> list[int]:
        """Give the numbers from ``first`` to ``last`` that anything is of in either, the lowest first."""
        return sorted({*self._own.within(first, last), *self._beside.within(first, last)})

    def of(self, number: int) -> Standing | None:
        """Tell how a number stands, by what stands most in its way; None where nothing is of it."""
        found = (standing for each in (self._own, self._beside) if (standing := each.of(number)) is not None)
        return min(found, key=ORDER.index, default=None)
