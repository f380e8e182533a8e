"""Nodes that ask for it are told what they are to have of the underlay; a stream that was cut off goes on as if it had not been."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from netregistry.client import Problem, Question
from netregistry.model import keys
from netregistry.service.recent import Recent, told
from netregistry.stores.base import Batch
from netregistry.stream import Line, Stream, hearers
from tests.support.registry import NODES
from tests.support.service import served
from tests.support.underlay import SITE, Site


class Heard(Site):
    """A site with a stream of node 0, and what is remembered for one that is cut off."""

    def __init__(self, underlay: bool = True) -> None:
        self.lines: list[Line] = []
        self.stream = Stream(NODES[0], underlay)
        self.recent: Recent | None = None
        super().__init__(heard=self.hear)
        self.recent = Recent(self.local.view)
        self.lines += self.stream.begin(self.local.view)

    def hear(self, batch: Batch | None) -> None:
        if self.recent is None or batch is None:
            return
        self.recent.hear(self.local.view, batch)
        found = list(told(self.stream.next(self.local.view, batch), self.local.view.epoch, batch.revision))
        if found:
            assert NODES[0] in hearers(self.local.view, batch)
        self.lines += found


def happens(site: Site, chance: random.Random, nics: list[str]) -> None:
    number, nic = chance.randrange(3), chance.choice(nics)
    what = chance.choice(("running", "incoming", "stopped", "", "confirm", "confirm", "time"))
    if what == "confirm":
        site.confirms(number)
    elif what == "time":
        site.passes(chance.choice((1, 60, 120)))
    else:
        site.says(number, nic, what)


@pytest.mark.parametrize("seed", range(6))
def test_what_is_heard_in_pieces_is_what_is_heard_as_a_whole(seed: int) -> None:
    chance, site = random.Random(seed), Heard()
    nics = [site.guest(f"web{number}") for number in range(3)]
    begun = len(site.lines)
    at = f"{site.local.view.epoch}:{site.local.view.revision}"
    pieces: list[Line] = []
    for _ in range(60):
        happens(site, chance, nics)
        if chance.random() < 0.2:
            assert site.recent is not None
            more = list(site.recent.resumed(site.local.view, Stream(NODES[0], underlay=True), at))
            pieces += [line for line in more if line.event != "ready"]
            at = more[-1].revision
    assert site.recent is not None
    pieces += [line for line in site.recent.resumed(site.local.view, Stream(NODES[0], underlay=True), at) if line.event != "ready"]
    whole = [line for line in site.lines[begun:] if line.event != "ready"]
    assert [line for line in whole if line.what == "underlay"] == [line for line in pieces if line.what == "underlay"] != []
    assert whole == pieces
    last = [line.value for line in whole if line.what == "underlay"][-1]
    assert last == site.told(0)
    generations = [line.value["generation"] for line in whole if line.what == "underlay"]
    assert generations == sorted(set(generations)), "each is another one, and higher"


def test_who_does_not_ask_is_told_nothing_of_it() -> None:
    site = Heard(underlay=False)
    site.says(0, site.guest("web1"), "running")
    site.confirms(0)
    assert [line for line in site.lines if line.what == "underlay"] == []


def test_a_node_that_is_forgotten_is_told_that_all_goes() -> None:
    site = Heard()
    assert [(line.event, line.value["endpoints"]) for line in site.lines if line.what == "underlay"] == [("enter", [])]
    site.do("node.forget", NODES[0], {"force": True})
    assert [(line.event, line.value) for line in site.lines if line.what == "underlay"][1:] == [("leave", None)]
    site.join(0)
    assert [line.event for line in site.lines if line.what == "underlay"] == ["enter", "leave", "enter"]
    assert site.local.view.get(keys.prefix(NODES[0])).freed == 0


def test_over_http(tmp_path: Path) -> None:
    with served(tmp_path) as service:
        client, agent = service.client(), service.join(0)
        client.change("PUT", "underlay", {"prefix": SITE})
        with pytest.raises(Problem, match="underlay"):
            client.get("watch", node=NODES[0], underlay="2")
        assert "underlay" in client.get("").body["abilities"]
        assert Question.stream(NODES[0], underlay=True).target.endswith("&underlay=1")
        assert "underlay" not in Question.stream(NODES[0]).target
        lines = agent.watch(NODES[0], incarnation=NODES[5], underlay=True)
        first = next(lines)
        assert (first["event"], first["what"], first["uuid"]) == ("enter", "underlay", NODES[0])
        assert first["value"] == {"generation": 1, "prefix": "fd12:3456:789a::/64", "endpoints": []}
        assert next(lines)["event"] == "ready"
        lines.close()
