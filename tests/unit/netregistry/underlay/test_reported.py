"""Say what nodes may of endpoints and addresses, and what is refused of it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from netregistry.model import keys
from netregistry.model.nic import Report
from netregistry.model.node import Node, Reports
from netregistry.model.underlay import MOST_ADDRESSES, There
from netregistry.stores.base import Put
from tests.support.registry import NODES, Registry, node
from tests.support.underlay import Site


@pytest.fixture
def site() -> Site:
    return Site()


def said(site: Registry, body: dict[str, Any]) -> dict[str, Any]:
    after = site.local.view.shown_revision(keys.reports(NODES[0]))
    return site.refused("report", "", {"after": after, **body}, node(0))


@pytest.mark.parametrize(
    ("kinds", "field"),
    [
        ("console", "nics[0].endpoints"),
        ({"console": 1}, "nics[0].endpoints"),
        (["con sole"], "nics[0].endpoints[0]"),
        (["a.b"], "nics[0].endpoints[0]"),
        ([""], "nics[0].endpoints[0]"),
        (["a" * 33], "nics[0].endpoints[0]"),
        ([1], "nics[0].endpoints[0]"),
        (["console", "console"], "nics[0].endpoints"),
        ([f"k{number}" for number in range(17)], "nics[0].endpoints"),
        (None, "nics[0].endpoints"),
    ],
)
def test_kinds_that_are_none(site: Site, kinds: Any, field: str) -> None:
    refused = said(site, {"nics": [{"nic": NODES[3], "state": "running", "endpoints": kinds}]})
    assert (refused["kind"], refused["field"]) == ("invalid", field)


@pytest.mark.parametrize(
    ("underlay", "field"),
    [
        ({"generation": -1}, "underlay.generation"),
        ({"generation": "1"}, "underlay.generation"),
        ({"addresses": "fd12::1"}, "underlay.addresses"),
        ({"addresses": ["fd12::g"]}, "underlay.addresses[0]"),
        ({"addresses": ["fd12::1", "fd12::1"]}, "underlay.addresses"),
        ({"next": 1}, "underlay.next"),
        ([], "underlay"),
    ],
)
def test_addresses_that_are_none(site: Site, underlay: Any, field: str) -> None:
    refused = said(site, {"underlay": underlay})
    assert (refused["kind"], refused["field"]) == ("invalid", field)


def test_capitals_in_a_nics_uuid(site: Site) -> None:
    nic = site.guest("web1")
    site.says(0, nic.upper(), "running")
    assert site.placement("web1") is not None


def test_addresses_of_others_are_passed_over(site: Site) -> None:
    nic = site.guest("web1")
    site.says(0, nic, "running")
    (wanted,) = site.told(0)["endpoints"]
    others = ["192.0.2.1", "2001:db8::1", site.prefix(1).at(1)]
    assert site.report(site.who[0], underlay={"generation": 1, "addresses": [*others, wanted["address"]]}).status == 200
    assert site.local.view.get(keys.confirmed(NODES[0])).there == There(1, (wanted["address"],))
    assert site.names() == {"web1.console": 0}


def test_of_a_nic_that_nobody_wants_nothing_is_made(site: Site) -> None:
    site.says(0, NODES[3], "running")
    site.passes(1)
    assert site.local.view.all("endpoints") == {}
    site.nic(uuid=NODES[3], instance="web1")
    site.passes(1)
    assert site.placement("web1") is not None, "when it is wanted it gets what it needs"


def test_what_is_said_is_shown_again_and_forgotten_with_its_report(site: Site) -> None:
    nic, other = site.guest("web1"), site.guest("web2")
    site.says(0, nic, "running")
    site.says(0, other, "running", kinds=("console", "exporter"))
    speakers = site.local.view.get(keys.speakers(NODES[0])).nics
    assert {each.nic: each.kinds for each in speakers} == {nic: ("console",), other: ("console", "exporter")}
    site.says(0, other, "")
    assert [each.nic for each in site.local.view.get(keys.speakers(NODES[0])).nics] == [nic]
    site.says(0, nic, "running", kinds=())
    assert site.local.view.get(keys.speakers(NODES[0])) is None


def test_without_an_underlay_it_is_kept_for_later() -> None:
    registry = Registry()
    registry.join(0)
    body = {"nic": NODES[3], "state": "running"}
    registry.report(node(0), body, underlay={"generation": 0})
    kinds = {key.partition("/")[0] for key in registry.everything()}
    assert kinds == {"nodes", "history", "ledger", "reports", "seen"}
    registry.report(node(0), {**body, "endpoints": ["console"]})
    assert "speakers/" + NODES[0] in registry.everything()


def test_a_node_that_has_as_many_addresses_as_it_can_say(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("netregistry.underlay.placing.SPARE", MOST_ADDRESSES - 2)
    for number in range(4):
        site.says(0, site.guest(f"web{number}"), "running")
    site.passes(1)
    assert len(site.told(0)["endpoints"]) == 2, "its guests run all the same"


def test_a_record_that_nobody_can_read_holds_up_nothing_else(site: Site) -> None:
    first, second = site.guest("web1"), site.guest("web2")
    site.store.commit((), (Put(keys.placement("", "web1"), b"{"), Put(keys.confirmed(NODES[1]), b"[]")))
    site.local.catch_up()
    site.says(0, first, "running")
    site.says(0, second, "running")
    site.confirms(0)
    site.passes(1)
    assert site.names() == {"web2.console": 0}
    assert site.report(site.who[1], underlay={"generation": 1}).status == 200


def test_an_older_service_reads_on_what_is_there(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """All of the underlay lies below kinds of keys of its own, and no record of before has a new field."""
    nic = site.guest("web1")
    site.says(0, nic, "running")
    site.confirms(0)
    new = {"underlay", "prefixes", "speakers", "confirmed", "endpoints", "names", "zones", "given"}
    fields = {"seen": Report._fields, "reports": Reports._fields, "nodes": Node._fields}
    for key, value in site.everything().items():
        if (kind := keys.kind(key)) in fields:
            assert set(json.loads(value)) <= set(fields[kind])
    assert set(Report._fields).isdisjoint(("endpoints", "underlay")) and set(Reports._fields).isdisjoint(("endpoints", "underlay"))
    for kind in new:
        monkeypatch.delitem(keys.TYPES, kind)
    older = Registry(site.store, seed=1)
    assert older.local.view.unreadable == {} and not new & {keys.kind(key) for key in older.local.view._objects}
    assert older.local.view.nic(nic) is not None
    older.local.work()
