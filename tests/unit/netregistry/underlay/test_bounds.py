"""Hold what one node may say within bounds: its own counter, what a guest has on it, and what comes of that for others."""

from __future__ import annotations

import pytest

from netregistry.model import keys
from netregistry.model.codec import dump, load
from netregistry.model.underlay import EACH, FIRST, LAST, LONGEST_KIND, MOST_OF_ONE, MOST_ON_NODE, WINDOW, Endpoint, NodePrefix, Placement
from netregistry.refusal import Refused
from netregistry.stores.base import LONGEST_VALUE, Put
from netregistry.underlay import saga, wrong
from tests.support.registry import NODES
from tests.support.underlay import Site

END = (1 << EACH) - 2


@pytest.fixture
def site() -> Site:
    return Site()


# -- what a node says of its own counter


@pytest.mark.parametrize("number", [END, LAST, (1 << 63) - 2, FIRST + WINDOW])
@pytest.mark.parametrize("epoch", ["first", "second"])
def test_an_address_that_no_registry_can_have_given_is_not_believed(site: Site, number: int, epoch: str) -> None:
    nic, before = site.guest("web1"), site.prefix(1)
    site.local.view.epoch = epoch
    response = site.report(site.who[1], underlay={"generation": 1, "addresses": [before.at(number)]})
    assert response.status == 200 and site.prefix(1) == before and site.local.view.unreadable == {}
    site.confirms(0, 2)
    for seconds in (0, 61):  # after a restore nodes have a minute to say what they have
        site.passes(seconds)
    site.who.append(site.join(3))
    site.lives(3)
    site.passes(0)
    assert site.prefix(3) is not None, "who joins later has a prefix"
    site.says(1, nic, "running")
    site.confirms(1)
    assert site.names() == {"web1.console": 1} and site.prefix(1).next == FIRST + 1


def test_what_a_registry_can_have_given_since_a_copy_is_believed(site: Site) -> None:
    before = site.prefix(1)
    assert site.report(site.who[1], underlay={"generation": 7, "addresses": [before.at(FIRST + 1000), before.at(END)]}).status == 200
    assert site.prefix(1)[2:4] == (FIRST + 1001, 8)


def test_a_generation_that_no_registry_can_have_told(site: Site) -> None:
    after = site.local.view.shown_revision(keys.reports(NODES[1]))
    refused = site.refused("report", "", {"after": after, "underlay": {"generation": 1 << 62}}, site.who[1])
    assert (refused["kind"], refused["field"]) == ("invalid", "underlay.generation")


@pytest.mark.parametrize("next_", [FIRST, LAST - 1, LAST])
def test_whatever_is_said_of_a_prefix_can_be_read(next_: int) -> None:
    before = NodePrefix(1, "fd12:3456:789a:1::/64", next_)
    after = before.behind(1 << 62, [before.at(each) for each in (1, FIRST, LAST - 1, LAST, END)])
    assert load(NodePrefix, dump(after)) == after and before.next <= after.next <= LAST


def test_a_prefix_whose_addresses_are_all_given(site: Site) -> None:
    """Give none beyond: it would be the neighbour's in the end."""
    draft = site.prefix(0)._replace(next=LAST - 1)
    site.store.commit((), (Put(keys.prefix(NODES[0]), dump(draft)),))
    site.local.catch_up()
    site.says(0, site.guest("web1"), "running")
    site.says(0, site.guest("web2"), "running")
    site.passes(1)
    assert [each["address"] for each in site.told(0)["endpoints"]] == [draft.at(LAST - 1)]


# -- how much a guest has


def kinds_of(turn: int, much: int = 16) -> list[str]:
    return [f"{turn:03d}-{number:02d}".ljust(LONGEST_KIND, "x") for number in range(much)]


def test_a_placement_of_as_much_as_there_may_be_fits_into_one_value() -> None:
    """Whatever becomes of its endpoints: they age where nobody can leave that out."""
    each = Endpoint(
        "k" * LONGEST_KIND, NODES[0], "fd12:3456:789a:ffff:ffff:ffff:ffff:ffff", "retired", 1e10 + 1 / 7, LAST, 1e10 + 1 / 7, 1e10 + 1 / 7
    )
    much = Placement("c" * 253, "i" * 253, LAST, NODES[0], NODES[1], NODES[2], (each,) * MOST_OF_ONE)
    assert len(dump(much)) < LONGEST_VALUE


def test_a_node_that_says_other_kinds_again_and_again(site: Site) -> None:
    nic, other = site.guest("web1"), site.guest("db1")
    site.says(0, nic, "running")
    site.confirms(0)
    for turn in range(20):
        site.says(2, nic, "incoming", kinds=kinds_of(turn))
    placement = site.placement("web1")
    assert placement is not None
    assert sum(each.node == NODES[2] for each in placement.endpoints) == MOST_ON_NODE
    assert site.names() == {"web1.console": 0}
    problems = list(wrong.of(site.local.view, placement, site.time))
    assert any("node2 has no room for its" in each for each in problems), problems
    site.says(2, other, "running")
    site.says(2, nic, "")
    site.confirms(2)
    assert site.names() == {"web1.console": 0, "db1.console": 2}
    site.passes(120)
    site.confirms(2)
    assert [each.node for each in site.placement("web1").endpoints] == [NODES[0]], "the rest is forgotten as ever"  # type: ignore[union-attr]


def test_a_guest_that_several_nodes_fill(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(saga, "MOST_OF_ONE", 40)
    nic = site.guest("web1")
    site.says(0, nic, "running")
    for number in (1, 2):
        for turn in range(2):
            site.says(number, nic, "incoming", kinds=kinds_of(turn))
        site.says(number, nic, "")
    assert len(site.placement("web1").endpoints) == 40  # type: ignore[union-attr]
    site.confirms(0)
    assert site.names() == {"web1.console": 0}


def test_a_placement_that_has_no_room_to_age_keeps_up_nobody_else(site: Site) -> None:
    """Leave it as it is: it was made larger than there may be, by whatever means."""
    nic = site.guest("web1")
    site.says(0, nic, "running")
    site.confirms(0)
    placement = site.placement("web1")
    assert placement is not None
    old = [
        Endpoint(kinds_of(number, 1)[0], NODES[2], site.prefix(2).at(FIRST + number), "retired", site.time + 0.1234567)
        for number in range(6000)
    ]
    most = next(
        number
        for number in range(6000, 0, -10)
        if len(dump(placement._replace(endpoints=(*placement.endpoints, *old[:number])))) < LONGEST_VALUE
    )
    large = placement._replace(endpoints=(*placement.endpoints, *old[:most]))
    site.store.commit((), (Put(keys.placement("", "web1"), dump(large)),))
    site.says(1, site.guest("db1"), "running")
    site.says(0, nic, "running")
    site.confirms(1)
    for _ in range(3):
        site.passes(100)
        site.says(0, nic, "running")
        site.says(2, nic, "incoming")
        site.says(2, nic, "")
    assert site.names() == {"web1.console": 0, "db1.console": 1} and site.placement("web1") == large


def test_what_speaks_on_a_node_is_bounded(site: Site) -> None:
    """Refuse what is too much for one value: it is no fault of the service."""
    refused = None
    for turn in range(60):
        nics = [
            {"nic": f"{turn:08x}-0000-4000-8000-{number:012x}", "state": "running", "endpoints": kinds_of(turn)} for number in range(50)
        ]
        response = site.report(site.who[0], *nics)
        if response.status != 200:
            refused = response
            break
    assert refused is not None and refused.status == 413 and refused.body["type"].endswith("too-large")


# -- whatever goes wrong with one guest


def test_a_fault_of_one_guest_is_its_own(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """Take the steps of all others, in reports and by the leader; say which was not taken as long as it is not."""
    first, second = site.guest("web1"), site.guest("web2")
    real = saga.step

    def faulty(before: Placement, guest: saga.Guest, world: saga.World) -> Placement:
        if before.instance == "web1":
            raise KeyError(before.instance)
        return real(before, guest, world)

    with monkeypatch.context() as patch:
        patch.setattr(saga, "step", faulty)
        both = ({"nic": each, "state": "running", "endpoints": ["console"]} for each in (first, second))
        assert site.report(site.who[0], *both).status == 200
        site.confirms(0)
        assert site.names() == {"web2.console": 0}, "with the report itself"
        site.says(0, second, "")
        for _ in range(3):
            with pytest.raises(Refused, match="web1 stay as they are: KeyError"):
                site.passes(60)
        site.confirms(0)
        for seconds in (60, 0):
            with pytest.raises(Refused, match="web1"):
                site.passes(seconds)
        site.confirms(0)
        with pytest.raises(Refused, match="web1"):
            site.passes(1)
        assert site.placement("web2") is None, "what was in quarantine is forgotten"
    site.passes(60)
    site.confirms(0)
    site.passes(1)
    assert site.names() == {"web1.console": 0}
