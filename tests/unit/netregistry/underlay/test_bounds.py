"""Hold what one node may say within bounds: its own counter, what a guest has on it, and what comes of that for others."""

from __future__ import annotations

import pytest

from netregistry.model import keys
from netregistry.model.codec import dump, load
from netregistry.model.underlay import EACH, FIRST, LAST, WINDOW, NodePrefix
from netregistry.stores.base import Put
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
    site.who.append(site.join(3))
    site.lives(3)
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
