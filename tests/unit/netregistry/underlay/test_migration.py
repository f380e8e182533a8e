"""Names follow a guest: through a migration that arrives, one that fails, and a source that is gone."""

from __future__ import annotations

import pytest

from netregistry.draft import Draft
from netregistry.model import keys
from netregistry.model.codec import dump
from netregistry.model.underlay import FIRST
from netregistry.stores.base import Put
from netregistry.underlay.placing import Placing
from tests.support.registry import NODES, OPERATOR, Registry, node
from tests.support.underlay import ZONE, Site


@pytest.fixture
def site() -> Site:
    return Site()


def started(site: Site, instance: str = "web1", on: int = 0, **more: object) -> str:
    """Let a guest run, and its node have its endpoints."""
    nic = site.guest(instance, **more)
    site.says(on, nic, "running")
    site.confirms(on)
    return nic


def test_a_name_leads_nowhere_before_its_address_is_there(site: Site) -> None:
    nic = site.guest("web1")
    site.says(0, nic, "running")
    (wanted,) = site.told(0)["endpoints"]
    assert (wanted["kind"], wanted["state"], wanted["name"], wanted["migrating"]) == ("console", "wanted", "", False)
    assert wanted["address"] == site.prefix(0).at(FIRST) and site.names() == {}
    site.confirms(0)
    assert site.names() == {"web1.console": 0}
    (there,) = site.told(0)["endpoints"]
    assert (there["state"], there["name"]) == ("there", f"web1.console.{ZONE}")
    assert site.told(1)["endpoints"] == []


def test_a_migration_that_arrives(site: Site) -> None:
    nic = started(site)
    site.says(1, nic, "incoming")
    assert site.names() == {"web1.console": 0}, "nothing leads to an address that is not there"
    site.confirms(1)
    assert site.names() == {"web1.console": 0, "web1-migrating.console": 1}
    before = site.local.view.revision
    site.says(1, nic, "running")
    assert site.names() == {"web1.console": 1}, "in the commit of the report itself"
    assert site.local.view.revision == before + 1
    site.says(0, nic, "")
    assert site.names() == {"web1.console": 1}
    placement = site.placement("web1")
    assert placement is not None and (placement.leads, placement.incoming) == (NODES[1], "")
    assert [(each.node, each.state) for each in placement.endpoints] == [(NODES[0], "retired"), (NODES[1], "there")]


def test_a_migration_that_fails(site: Site) -> None:
    nic = started(site)
    site.says(1, nic, "incoming")
    site.confirms(1)
    site.says(1, nic, "")
    assert site.names() == {"web1.console": 0}
    placement = site.placement("web1")
    assert placement is not None and placement.leads == NODES[0]
    assert [(each.node, each.state) for each in placement.endpoints] == [(NODES[0], "there"), (NODES[1], "retired")]


def test_a_source_that_is_gone(site: Site) -> None:
    """Its node is lost in the midst of a migration, and the guest runs where it came to."""
    nic = started(site)
    site.says(1, nic, "incoming")
    site.confirms(1)
    site.dies(0)
    assert site.names() == {"web1.console": 0, "web1-migrating.console": 1}, "who says nothing takes nothing away"
    site.says(1, nic, "running")
    assert site.names() == {"web1.console": 1}


def test_an_arrival_before_the_address_is_there(site: Site) -> None:
    """A quick guest: its name stays where it was until it can lead to the target, and is never none."""
    nic = started(site)
    site.says(1, nic, "incoming")
    site.says(1, nic, "running")
    site.says(0, nic, "")
    assert site.names() == {"web1.console": 0}
    site.confirms(1)
    assert site.names() == {"web1.console": 1}


def test_an_arrival_that_nobody_announced(site: Site) -> None:
    """Note where a routed NIC came from, of which nobody hears before its guest runs there: the registry does that by itself."""
    nic = started(site)
    site.says(1, nic, "running", mode="routed")
    site.confirms(1)
    assert site.names() == {"web1.console": 1}, "though the source has not told yet that it is gone"
    site.says(0, nic, "running")
    assert site.names() == {"web1.console": 1}, "nor does its late report change anything"


def test_there_and_back_at_once(site: Site) -> None:
    """While the first migration is still settled the guest goes back: what is known of the first says nothing for the second."""
    nic = started(site)
    for source, target in ((0, 1), (1, 0), (0, 1), (1, 0)):
        site.says(target, nic, "incoming")
        site.confirms(target)
        site.says(target, nic, "running")
        assert site.names() == {"web1.console": target}
        site.says(source, nic, "running")
        assert site.names() == {"web1.console": target}
        site.says(source, nic, "")
        assert site.names() == {"web1.console": target}
    addresses = {each.address for each in site.placement("web1").endpoints}  # type: ignore[union-attr]
    assert len(addresses) == 5, "no address is used twice"


def test_a_second_migration_at_once(site: Site) -> None:
    nic = started(site)
    site.says(1, nic, "incoming")
    site.says(2, nic, "incoming")
    site.confirms(1, 2)
    assert site.names() == {"web1.console": 0, "web1-migrating.console": 1}, "the first is followed"
    assert site.told(2)["endpoints"] == []
    site.says(1, nic, "")
    site.confirms(2)
    assert site.names() == {"web1.console": 0, "web1-migrating.console": 2}, "then the other one"


def test_repeated_and_late_reports_change_nothing(site: Site) -> None:
    nic = started(site)
    site.says(1, nic, "incoming")
    site.confirms(1)
    late = site.call(
        "report", "", {"after": site.local.view.shown_revision(keys.reports(NODES[1])), "nics": [{"nic": nic, "state": "incoming"}]}
    )
    before = site.placement("web1")
    for number, state in ((0, "running"), (1, "incoming"), (1, "incoming")):
        site.says(number, nic, state)
        site.confirms(number)
    assert site.placement("web1") == before
    site.says(1, nic, "running")
    done = site.placement("web1")
    assert site.local.answer(late, node(1)).status == 412
    site.passes(1)
    assert site.placement("web1") == done


def test_a_name_does_not_move_to_an_address_that_is_there_no_more(site: Site) -> None:
    """Its node has confirmed it once: what it says now counts."""
    nic = started(site)
    site.says(1, nic, "incoming")
    site.confirms(1)
    assert site.names() == {"web1.console": 0, "web1-migrating.console": 1}
    site.loses(1)
    assert site.names() == {"web1.console": 0}, "of the migration there is none to lead there"
    assert site.told(1)["endpoints"][0]["name"] == ""
    site.says(1, nic, "running")
    site.says(0, nic, "")
    site.passes(60)
    assert site.names() == {"web1.console": 0}
    before = site.placement("web1")
    site.confirms(1)
    assert site.names() == {"web1.console": 1}
    assert {each.address for each in site.placement("web1").endpoints} == {each.address for each in before.endpoints}  # type: ignore[union-attr]


def test_a_name_of_a_migration_comes_again_with_its_address(site: Site) -> None:
    nic = started(site)
    site.says(1, nic, "incoming")
    site.confirms(1)
    for _ in range(2):
        site.loses(1)
        assert site.names() == {"web1.console": 0}
        site.passes(1)
        site.confirms(1)
        assert site.names() == {"web1.console": 0, "web1-migrating.console": 1}
    site.says(1, nic, "")
    assert site.names() == {"web1.console": 0}


def test_the_name_of_a_guest_that_stays_where_it_is_stays_too(site: Site) -> None:
    """The address is nobody else's, and comes again with its device."""
    started(site)
    before = site.placement("web1")
    site.loses(0)
    site.passes(60)
    assert site.names() == {"web1.console": 0} and site.placement("web1") == before
    site.confirms(0)
    assert site.names() == {"web1.console": 0} and site.placement("web1") == before


def test_a_name_that_is_free_does_not_come_to_lead_to_an_address_that_is_there_no_more(site: Site) -> None:
    started(site, cluster="a.example.com")
    started(site, on=1, cluster="b.example.com")
    site.loses(1)
    nic = next(nic for nic in site.local.view.all("nics").values() if nic.cluster == "a.example.com")
    site.says(0, nic.uuid, "")
    site.passes(1)
    assert site.names() == {}
    site.confirms(1)
    site.passes(1)
    assert site.names() == {"web1.console": 1}


def test_a_guest_that_is_off_keeps_its_name(site: Site) -> None:
    nic = started(site)
    before = site.placement("web1")
    site.says(0, nic, "stopped", kinds=())
    assert site.names() == {"web1.console": 0}
    site.says(0, nic, "running")
    after = site.placement("web1")
    assert before is not None and after == before._replace(generation=after.generation if after else 0), (
        "the same address at its next start"
    )
    site.says(0, nic, "stopped")
    site.says(2, nic, "running")
    site.confirms(2)
    assert site.names() == {"web1.console": 2}, "or another one elsewhere"


def test_a_guest_that_is_removed(site: Site) -> None:
    nic = started(site)
    site.says(0, nic, "")
    site.do("nic.delete", nic)
    site.passes(1)
    assert site.names() == {}
    placement = site.placement("web1")
    assert placement is not None and placement.leads == "" and [each.state for each in placement.endpoints] == ["retired"]


def test_kinds_come_and_go(site: Site) -> None:
    nic = started(site)
    site.says(0, nic, "running", kinds=("console", "exporter"))
    site.confirms(0)
    assert site.names() == {"web1.console": 0, "web1.exporter": 0}
    site.says(0, nic, "running", kinds=("exporter",))
    assert site.names() == {"web1.exporter": 0}
    site.says(0, nic, "running", kinds=())
    assert site.names() == {}


def test_several_nics_of_one_guest(site: Site) -> None:
    first = started(site)
    second = site.nic(instance="web1", index=1).uuid
    site.says(0, second, "running", kinds=("console", "exporter"))
    site.confirms(0)
    assert site.names() == {"web1.console": 0, "web1.exporter": 0}
    for nic in (first, second):
        site.says(1, nic, "incoming", kinds=("console", "exporter"))
    site.confirms(1)
    site.says(1, first, "running", kinds=("console", "exporter"))
    assert site.names() == {"web1.console": 1, "web1.exporter": 1}, "it runs there as soon as one of its NICs does"
    site.says(0, first, "")
    site.says(1, second, "running", kinds=("console", "exporter"))
    assert site.names() == {"web1.console": 1, "web1.exporter": 1}


@pytest.mark.parametrize("instance", ["web_1", "web 1", "web.-1", "a" * 64, "wéb", "x" * 62])
def test_a_name_that_is_no_hosts(site: Site, instance: str) -> None:
    """The guest has its endpoint all the same."""
    nic = site.guest(instance)
    site.says(0, nic, "running")
    site.confirms(0)
    (there,) = site.told(0)["endpoints"]
    assert there["state"] == "there" and (there["name"] == "") == (len(instance) != 62)
    assert site.placement(instance) is not None


def test_names_with_dots_and_capitals(site: Site) -> None:
    started(site, "Web1.example.com")
    assert site.names() == {"web1.example.com.console": 0}


def test_two_clusters_have_one_name(site: Site) -> None:
    """The first has it, as long as it is there."""
    first = started(site, cluster="a.example.com")
    started(site, on=1, cluster="b.example.com")
    assert site.names() == {"web1.console": 0}
    assert [each["name"] for each in site.told(1)["endpoints"]] == [""]
    site.says(0, first, "")
    assert site.names() == {}
    site.passes(61)
    site.passes(1)
    assert site.names() == {"web1.console": 1}


def test_a_zone_that_is_changed(site: Site) -> None:
    started(site)
    site.do("underlay.init", "", {"zone": "other.example.com"})
    site.passes(1)
    assert list(site.local.view.all("names")) == ["names/other.example.com/web1.console.other.example.com"]
    assert site.told(0)["endpoints"][0]["name"] == "web1.console.other.example.com"
    site.do("underlay.init", "", {"zone": ""})
    site.passes(1)
    assert site.local.view.all("names") == {} and site.told(0)["endpoints"][0]["name"] == ""


def test_a_fenced_node(site: Site) -> None:
    nic = started(site)
    site.dies(0)
    site.says(1, nic, "running")
    site.confirms(1)
    assert site.names() == {"web1.console": 1}
    other = started(site, "web2", on=2)
    site.dies(2)
    assert site.names() == {"web1.console": 1, "web2.console": 2}
    site.do("node.fence", NODES[2])
    site.passes(1)
    assert site.names() == {"web1.console": 1} and site.local.view.nic(other) is not None


def test_guests_that_are_there_before_the_underlay_is() -> None:
    registry = Registry()
    registry.join(0)
    nics = [registry.nic(instance=f"web{number}", index=0).uuid for number in range(60)]
    for place in range(0, 60, 50):
        registry.report(node(0), *({"nic": nic, "state": "running", "endpoints": ["console"]} for nic in nics[place : place + 50]))
    registry.local.sign_on(node(0), "eeeeeeee-0000-4000-8000-000000000000", 8e4)
    assert not registry.local.view.all("endpoints")
    registry.do("underlay.init", "", {"prefix": "fd12::/48"})
    registry.passes(1)
    placements = registry.local.view.all("endpoints").values()
    assert len({each.address for placement in placements for each in placement.endpoints}) == 60
    assert registry.local.view.get(keys.prefix(NODES[0])).next == FIRST + 60


def test_many_nics_in_one_report(site: Site) -> None:
    """Do what has no room in the commit of the report a second later."""
    nics = [site.guest(f"web{number}") for number in range(50)]
    site.report(site.who[0], *({"nic": nic, "state": "running", "endpoints": ["console", "exporter"]} for nic in nics))
    site.confirms(0)
    assert 0 < len(site.names()) < 100
    site.passes(1)
    assert len(site.names()) == 100


def test_names_that_change_alone_hold_their_endpoint_still(site: Site) -> None:
    """Another service may retire it between the plan and the commit: the name would lead to what is going."""
    started(site)
    site.do("underlay.init", "", {"zone": "other.example.com"})
    draft = Draft(site.local.view, "", OPERATOR, site.time)
    assert Placing(draft).advance("", "web1")
    commit = draft.bare()
    key = keys.placement("", "web1")
    assert key not in {change.key for change in commit.changes} and key in {test.key for test in commit.tests}


def rests(site: Site) -> None:
    """Let all be done that is due, and the leader begin a minute in which it looks at nobody without a cause."""
    for _ in range(5):
        site.passes(1)


@pytest.mark.parametrize("first", ["x", "x-migrating"])
def test_a_guest_that_is_called_as_another_ones_migration(site: Site, first: str) -> None:
    """It has its name within a second of when the other one gives it up, whichever of both had it."""
    nic, other = site.guest("x"), site.guest("x-migrating")
    site.says(0, nic, "running")
    site.confirms(0)
    for turn in ("x", "x-migrating") if first == "x" else ("x-migrating", "x"):
        if turn == "x":
            site.says(1, nic, "incoming")
            site.confirms(1)
        else:
            site.says(2, other, "running")
            site.confirms(2)
    assert site.names() == {"x.console": 0, "x-migrating.console": 1 if first == "x" else 2}
    rests(site)
    if first == "x":
        site.says(1, nic, "running")
        assert site.names() == {"x.console": 1}
        site.passes(1)
        assert site.names() == {"x.console": 1, "x-migrating.console": 2}
    else:
        site.says(2, other, "")
        assert site.names() == {"x.console": 0}
        site.passes(1)
        assert site.names() == {"x.console": 0, "x-migrating.console": 1}


def test_a_guest_that_waits_for_its_first_address_has_it_when_its_node_has_said_which_ones_it_has(site: Site) -> None:
    """The registry was restored meanwhile, and nothing of the guest's is changed by what the node says."""
    nic, there = site.guest("web1"), site.local.view.node(NODES[0])
    assert there is not None
    site.store.commit((), (Put(keys.node(NODES[0]), dump(there._replace(epoch="before"))),))
    site.local.catch_up()
    site.says(0, nic, "running")
    rests(site)
    assert site.placement("web1") is None
    site.confirms(0)
    site.passes(1)
    assert site.placement("web1") is not None
