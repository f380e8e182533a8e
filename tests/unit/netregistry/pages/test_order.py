"""The order of lists, and their pages, against what a list of all says."""

from __future__ import annotations

import random

import pytest

from netregistry.model import keys
from netregistry.pages.order import Order, Place, place_of, words
from netregistry.stores.base import Batch
from tests.support.registry import OPERATOR, Registry


def test_numbers_in_names_count_as_numbers() -> None:
    names = ["web", "web2", "web 10", "web10", "Web11", "web0003", "10.0.0.9", "9.0.0.10", "\u05d0", "", "web2a"]
    assert sorted(names, key=words) == ["", "9.0.0.10", "10.0.0.9", "web", "web 10", "web2", "web2a", "web0003", "web10", "Web11", "\u05d0"]


@pytest.mark.parametrize("seed", range(5))
def test_pages_of_any_size_have_all_that_fits_once(seed: int) -> None:
    """Forth and back, with and without few to choose from, while some come, go and are renamed."""
    chance, heard = random.Random(seed), list[Batch | None]()
    registry = Registry(heard=heard.append)
    order = Order(registry.local.view, "nics")

    def listen() -> None:
        while heard:
            order.hear(registry.local.view, heard.pop(0))

    there: list[str] = []
    for _ in range(60):
        if there and chance.random() < 0.3:
            registry.do("nic.delete", there.pop(chance.randrange(len(there))))
        elif there and chance.random() < 0.3:
            registry.do("nic.set", chance.choice(there), {"instance": f"vm{chance.randrange(20)}"})
        else:
            there.append(registry.do("nic.add", "", {"instance": f"vm{chance.randrange(20)}"}, OPERATOR)["uuid"])
        listen()  # each of its own, as the service does
    view = registry.local.view
    everything = sorted(there, key=lambda uuid: (words(view.all("nics")[keys.nic(uuid)].label), uuid))
    assert len(order) == len(everything)
    for kept, among in (({*there}, None), ({*there[::3]}, None), ({*there[::3]}, [keys.nic(each) for each in there])):
        expected = [each for each in everything if each in kept]

        def fits(key: str, kept: set[str] = kept) -> bool:
            return key.partition("/")[2] in kept

        for size in (1, 7, 100):
            shown, place, before = list[str](), Place(), False
            for number in range(100):
                part = order.part(place, size, fits, among)
                found = [each.partition("/")[2] for each in part.keys]
                assert part.earlier is before and len(found) <= size
                shown += found
                if not part.later:
                    break
                before = True
                place = Place(after=place_of(view.all("nics")[part.keys[-1]]))
                back = order.part(Place(before=place_of(view.all("nics")[part.keys[0]])), size, fits, among)
                assert [each.partition("/")[2] for each in back.keys] == expected[max((number - 1) * size, 0) : number * size]
                assert back.later is True
            assert shown == expected


def test_a_view_that_is_made_anew_is_taken_in() -> None:
    registry = Registry()
    order = Order(registry.local.view, "nics")
    registry.do("nic.add", "", {"instance": "web1"})
    order.hear(registry.local.view, None)
    assert len(order) == 1
