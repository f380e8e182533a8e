"""Looking back into a history, against all of it."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping
from typing import Any

import pytest

from netregistry.pages import past
from netregistry.pages.past import looked_back
from netregistry.request import made, new_id
from netregistry.service.queries import Answer

NOW = 1_790_000_000.0


class History:
    """A history as the service tells it: oldest first, in parts. ``part``: entries that one request looks at."""

    def __init__(self, times: list[float], part: int = 50) -> None:
        chance = random.Random(1)
        self.entries = [
            {"request": new_id(time, chance.getrandbits(74)), "time": time, "number": number, "target": f"{number % 7}"}
            for number, time in enumerate(times)
        ]
        self.part, self.looks = part, 0

    async def look(self, wanted: Mapping[str, Any]) -> Answer:
        self.looks += 1
        after = wanted.get("cursor") or (new_id(wanted["placed"], 0) if wanted["placed"] else "")
        behind = sorted((each for each in self.entries if each["request"] > after), key=lambda each: str(each["request"]))
        scanned = behind[: self.part]
        items = [{"entry": each} for each in scanned if wanted.get("target") in (None, each["target"])]
        return Answer({"items": items, "next": scanned[-1]["request"] if len(behind) > self.part else ""})

    def all(self, most: int, **wanted: str) -> list[int]:
        """Look at all of it, page by page; give the numbers of the entries."""
        found, before = list[int](), ""
        for _ in range(1000):
            page = asyncio.run(looked_back(self.look, wanted, before, NOW, 0.0, most))
            numbers = [each["number"] for each in page.entries]
            assert len(numbers) <= most and numbers == sorted(numbers, reverse=True)
            found += numbers
            if not page.before:
                return found
            assert not before or page.before < before or not numbers, "it goes on"
            before = page.before
        raise AssertionError("it has no end")


@pytest.mark.parametrize("spread", [0.0, 1.0, 600.0, 86400.0, 30_000_000.0])
def test_all_is_told_once_the_newest_first(spread: float) -> None:
    chance = random.Random(spread)
    history = History(sorted(NOW - chance.random() * spread for _ in range(300)))
    for most in (10, 100, 1000):
        assert sorted(history.all(most)) == [*range(300)]
        assert sorted(history.all(most, target="3")) == [*range(3, 300, 7)]


def test_what_was_asked_for_by_a_clock_that_is_fast_is_the_newest() -> None:
    assert History([NOW - 5, NOW + 3600.0]).all(10) == [1, 0]


def test_it_does_not_look_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """Most of it is others', and long: what was found is shown, and the next page goes on from there."""
    monkeypatch.setattr(past, "LOOKS", 8)
    history = History([NOW - 1000.0 * number for number in range(3000, 0, -1)])
    page = asyncio.run(looked_back(history.look, {"target": "none"}, "", NOW, 0.0, 10))
    assert history.looks == 8 and page.entries == () and NOW - 3_000_000 < made(page.before) / 1000 < NOW


def test_it_does_not_look_further_back_than_there_can_be_anything() -> None:
    history = History([NOW - 1000.0 * number for number in range(3000, 0, -1)])
    page = asyncio.run(looked_back(history.look, {}, "", NOW, NOW - 5500.0, 100))
    assert [each["number"] for each in page.entries] == [2999, 2998, 2997, 2996, 2995] and page.before == ""
