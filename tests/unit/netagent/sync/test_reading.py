"""Read what a registry says of a NIC, as its node does."""

from __future__ import annotations

import pytest

from netagent.sync.messages import Option, Wanted
from netagent.sync.reading import Lie, Revision, Told, wanted_of
from tests.support.nics import U1


def told(**fields: object) -> Told:
    return Told("enter", "nic", U1, {"uuid": U1, "options": [{"name": "isolated", "value": "yes"}], **fields}, Revision("e", 7))


def test_further_addresses_are_an_option() -> None:
    """As `netcommon define --network` keeps them; the option that the operator has set is the stronger word."""
    isolated = Option("isolated", "yes")
    assert wanted_of(told()) == wanted_of(told(addresses=[])) == Wanted("e:7", (isolated,))
    assert wanted_of(told(addresses=["192.0.2.7", "2001:db8::7"])).options == (isolated, Option("addresses", "192.0.2.7,2001:db8::7"))
    own = {"name": "addresses", "value": "192.0.2.9"}
    assert wanted_of(told(options=[own], addresses=["192.0.2.7"])).options == (Option("addresses", "192.0.2.9"),)


def test_tags_are_a_ganeti_clusters_alone() -> None:
    """The node knows the tags of another master's NIC before the registry does."""
    assert [wanted_of(told(master="ganeti:c1", tags=tags)).tags for tags in (["a", "b"], [])] == [("a", "b"), ()]
    assert wanted_of(told(master="registry", tags=["a"])).tags is wanted_of(told(tags=["a"])).tags is None


@pytest.mark.parametrize("wrong", ["a", [7], ["a b"], [""], ["a"] * 101, {}, ["é" * 200]])
def test_tags_that_are_none(wrong: object) -> None:
    with pytest.raises(Lie, match="tags"):
        wanted_of(told(master="ganeti:c1", tags=wrong))


def test_the_index_by_which_tags_are_read_is_a_ganeti_clusters_alone() -> None:
    assert [wanted_of(told(master="ganeti:c1", index=index)).position for index in (0, 7, None)] == [0, 7, None]
    assert wanted_of(told(master="registry", index=7)).position is wanted_of(told(master="ganeti:c1")).position is None


@pytest.mark.parametrize("wrong", ["7", -1, 65536, True, 1.0, [7]])
def test_indices_that_are_none(wrong: object) -> None:
    with pytest.raises(Lie, match="index"):
        wanted_of(told(master="ganeti:c1", index=wrong))


@pytest.mark.parametrize("wrong", [None, 7, "192.0.2.7/24", "192.0.2", "FD00::7", ["192.0.2.7"]])
def test_ips_that_are_none(wrong: object) -> None:
    with pytest.raises(Lie, match=r"(?i)\bip\b"):
        wanted_of(told(ip=wrong))


@pytest.mark.parametrize("wrong", ["192.0.2.7", [7], [["192.0.2.7"]], ["192.0.2.7"] * 1000, {}])
def test_addresses_that_are_none(wrong: object) -> None:
    with pytest.raises(Lie, match="addresses"):
        wanted_of(told(addresses=wrong))
