"""Look back into the history, the newest request first.

The store lists it from the oldest on, and most of it may be of others. So windows are looked through that end where the one before began,
each four times as long, and shorter again where one has too much; how much is looked at is bounded, and the next page goes on from there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from netregistry.request import made, new_id

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from netregistry.service.queries import Answer

    Look = Callable[[Mapping[str, Any]], Awaitable[Answer]]

FIRST, SHORTEST, LONGER = 600.0, 1.0, 4.0  #: seconds of the first window, and of the shortest; how many times as long the next one is
LOOKS = 40  #: lists that are asked for at most, each in a turn of its own
AT_ONCE = 1000
ALL = (1 << 74) - 1  #: a request's id with this chance is the last one of its millisecond


class Past(NamedTuple):
    """Entries (their JSON), the newest first. ``before``: the request before which a next page goes on; "": there is nothing left."""

    entries: tuple[dict[str, Any], ...]
    before: str


async def looked_back(look: Look, wanted: Mapping[str, Any], before: str, now: float, floor: float, most: int) -> Past:
    """Give the latest entries that ``wanted`` fits, of requests before one (its id; "": all), made at ``floor`` or later.

    ``wanted``: "target" alone, or nothing. ``look``: netregistry.service.queries.Reader.history, whose errors are raised. ``now``: seconds
    since the epoch.
    """
    # a request's id is made elsewhere, by a clock that may be fast
    end, window, looks = (before or new_id(now + 86400.0, ALL)), FIRST + (0.0 if before else 86400.0), 0
    found: list[dict[str, Any]] = []
    while len(found) <= most and made(end) / 1000 > floor:
        if looks >= LOOKS:
            return _shown(found, most, end)
        begin = max(made(end) / 1000 - window, floor)
        part, cursor = list[dict[str, Any]](), ""
        while looks < LOOKS:
            looks += 1
            body = (await look({**wanted, "placed": begin, "limit": AT_ONCE, **({"cursor": cursor} if cursor else {})})).body
            inside = [item["entry"] for item in body["items"] if item["entry"]["request"] < end]
            part += inside
            cursor = body["next"] if len(inside) == len(body["items"]) else ""
            if not cursor or ("target" not in wanted and window > SHORTEST):
                break
        if cursor:  # there is more than what is to be shown, and it is newer
            window /= LONGER
        else:
            found += sorted(part, key=_request, reverse=True)
            end, window = new_id(begin, 0), window * LONGER
    return _shown(found, most, "")


def _shown(found: list[dict[str, Any]], most: int, end: str) -> Past:
    shown = found[:most]
    before = shown[-1]["request"] if len(found) > most else end
    return Past(tuple(sorted(shown, key=lambda entry: entry["number"], reverse=True)), before)


def _request(entry: dict[str, Any]) -> str:
    found: str = entry["request"]
    return found
