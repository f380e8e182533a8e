"""What a node reports costs the registry as much as the node has, and no more than that: nobody else is answered meanwhile."""

from __future__ import annotations

from typing import Any

import pytest

import netregistry.draft
from netregistry.model import keys
from netregistry.model.codec import dump
from netregistry.model.underlay import FIRST, Confirmed, Endpoint, Placement
from netregistry.stores.base import MOST, Put
from netregistry.underlay.healing import WAIT
from tests.support import work
from tests.support.registry import NODES
from tests.support.underlay import Site

FEW, MANY = 100, 300
LINEAR = 1.2 * MANY / FEW  #: what the many may cost, by what the few do


def had(site: Site, much: int) -> dict[str, Any]:
    """Give what a node says first of so many endpoints that a copy does not know."""
    prefix = site.prefix(0)
    addresses = [prefix.at(FIRST + 1000 + number) for number in range(much)]
    those = [{"cluster": "", "instance": f"web{place}", "kind": "console", "address": each} for place, each in enumerate(addresses)]
    return {"generation": 1, "addresses": addresses, "prefix": prefix.prefix, "had": those}


def restored(much: int) -> tuple[Site, dict[str, Any]]:
    site = Site()
    site.local.view.epoch = "second"
    return site, had(site, much)


def says(site: Site, there: dict[str, Any]) -> None:
    response = site.report(site.who[0], underlay=there)
    assert response.status == 200, response


def first_word(much: int) -> int:
    site, there = restored(much)
    return work.lines(lambda: says(site, there))


def next_word(much: int) -> int:
    """Count the work of the second word, of another address, as long as all of the first one waits."""
    site, there = restored(much)
    says(site, there)
    return work.lines(lambda: says(site, {**there, "addresses": there["addresses"][1:]}))


def one_more(much: int) -> int:
    """Count the work of a report by which one address is there, on a node that has so many already."""
    site = Site()
    prefix = site.prefix(0)
    for number in range(much):
        each = Endpoint("console", NODES[0], prefix.at(FIRST + 1000 + number), "there" if number else "wanted")
        site.store.commit(
            (), (Put(keys.placement("", f"web{number}"), dump(Placement("", f"web{number}", 1, NODES[0], endpoints=(each,)))),)
        )
    nics = [site.guest(f"web{number}") for number in range(much)]
    for nic in nics:
        site.says(0, nic, "running")
    there: dict[str, Any] = {"generation": 1, "addresses": [prefix.at(FIRST + 1000 + number) for number in range(much)]}
    says(site, {**there, "addresses": there["addresses"][1:]})
    for _ in range(10):
        site.passes(1)
    names = site.names()
    count = work.lines(lambda: says(site, there))
    assert len(names) == much - 1 and site.names() == {**names, "web0.console": 0}
    return count


@pytest.mark.parametrize("cost", [first_word, next_word, one_more])
def test_a_report_costs_as_much_as_its_node_has(cost: Any) -> None:
    assert cost(MANY) < LINEAR * cost(FEW)


def test_what_a_node_has_had_is_weighed_once_in_a_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take several endpoints at once from the record of them, which is large, and goes with the last of them alone."""
    site, there = restored(MANY)
    says(site, there)
    for number in (1, 2):
        site.confirms(number)
    site.passes(0)
    weighed = list[Confirmed]()

    def counted(value: Any) -> bytes:
        weighed.extend(each for each in (value,) if isinstance(each, Confirmed))
        return dump(value)

    monkeypatch.setattr(netregistry.draft, "dump", counted)
    for seconds in (WAIT, 1):
        site.passes(seconds)
    said: Confirmed = site.local.view.get(keys.confirmed(NODES[0]))
    assert said.had == () and len(site.local.view.all("endpoints")) == MANY
    commits = MANY // (MOST // 3) + 1
    assert len(weighed) <= 2 * commits, "as it was, and as it is"
