"""Hold that two pools beside each other say what one would that has all of both."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from netregistry.pool import ORDER, REPORTED, Joined, Place, Pool

LAST = 24
PLACES = st.dictionaries(st.integers(0, LAST), st.sampled_from([*ORDER]))


def made(*several: dict[int, Place]) -> Pool:
    pool = Pool()
    for places in several:
        for number, place in places.items():
            pool.add(number, place)
    return pool


@given(PLACES, st.sets(st.integers(0, LAST)), st.integers(0, LAST), st.integers(0, LAST))
def test_joined_as_one(standings: dict[int, str], used: set[int], first: int, last: int) -> None:
    claimed = {number: Place(standing, float(number % 5)) for number, standing in standings.items()}  # type: ignore[arg-type]
    reported = dict.fromkeys(sorted(used), REPORTED)
    one, joined = made(claimed, reported), Joined(made(claimed), made(reported))
    assert list(joined.never_used(first, last)) == list(one.never_used(first, last))
    assert list(joined.longest_freed([(first, last)])) == list(one.longest_freed([(first, last)]))
    assert joined.count(first, last) == one.count(first, last)
    assert joined.within(first, last) == one.within(first, last)
    assert [joined.of(number) for number in range(LAST + 1)] == [one.of(number) for number in range(LAST + 1)]
    for standing in ORDER:
        assert list(joined.standing(standing, first, last)) == list(one.standing(standing, first, last))
