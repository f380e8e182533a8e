"""A Ganeti cluster that is renamed: its guests keep their endpoints and names, whatever the parts in which that is done."""

from __future__ import annotations

import pytest

from netregistry.model import keys
from netregistry.model.underlay import Placement
from tests.support.ganeti_configuration import NICS, Cluster
from tests.support.importing import Node
from tests.support.underlay import ZONE, Site, told_to
from tests.unit.netregistry.importer.test_renamed import NEW, reading, rename

COUNT = 60
WEB = "web1.example.com"


def nic(number: int) -> str:
    return f"{number:08x}-4444-4444-8444-444444444444"


class Renamed(Site):
    """A site with a Ganeti cluster; of each instance some NICs run on node 0."""

    def __init__(self) -> None:
        super().__init__()
        self.cluster = Cluster()

    def have(self, **instances: tuple[str, ...]) -> None:
        """Let instances have NICs."""
        for name, uuids in instances.items():
            for uuid in uuids:
                self.cluster.nic(uuid, mac=f"aa:00:00:{uuid[2:4]}:{uuid[4:6]}:{uuid[6:8]}", instance=f"{name}.example.com")
        Node(self).read(self.cluster)
        for each in (uuid for uuids in instances.values() for uuid in uuids):
            self.says(0, each, "running")
        self.confirms(0)
        self.passes(1)

    def placements(self) -> dict[str, Placement]:
        return dict(self.local.view.all("endpoints"))

    def addresses(self) -> dict[str, str]:
        return {key.split("/")[2]: name.address for key, name in self.local.view.all("names").items()}

    def clusters(self) -> set[str]:
        return {each.cluster for kind in ("endpoints", "names") for each in self.local.view.all(kind).values()}


@pytest.fixture
def site() -> Renamed:
    return Renamed()


def test_it_keeps_its_address_and_its_name(site: Renamed) -> None:
    site.have(web1=(NICS[0], NICS[1]))
    before, zone = site.placements(), site.local.view.get(keys.zone(ZONE))
    generation = site.prefix(0).generation
    rename(site, site.cluster)
    site.passes(1)
    (placement,) = before.values()
    assert site.placements() == {keys.placement(NEW, WEB): placement._replace(cluster=NEW, generation=placement.generation + 1)}
    assert site.clusters() == {NEW} and site.local.view.get(keys.zone(ZONE)) == zone, "the name servers are told nothing"
    assert site.prefix(0).generation == generation + 1
    assert [each["cluster"] for each in told_to(site, 0)["endpoints"]] == [NEW], "and its node is told of it"
    site.says(1, NICS[0], "running", mode="routed")
    site.confirms(1)
    assert site.placements()[keys.placement(NEW, WEB)].leads != placement.leads, "it is followed on"


def test_many_are_renamed_in_parts(site: Renamed) -> None:
    """Whatever is done between the parts."""
    site.have(**{f"web{number}": (nic(2 * number), nic(2 * number + 1)) for number in range(COUNT)})
    before, addresses = site.placements(), site.addresses()
    assert len(addresses) == COUNT
    parts, left = 0, 1
    while left:
        left = site.do("importer.hold", NEW, reading(site.cluster)).get("left", 0)
        site.passes(1)
        parts += 1
        assert site.addresses() == addresses and len(site.placements()) == COUNT
    assert parts > 2 and site.clusters() == {NEW}
    found = {each.instance: each.endpoints for each in site.placements().values()}
    assert found == {each.instance: each.endpoints for each in before.values()}


def test_an_instance_that_has_both_names_stays_where_it_is_until_it_has_one(site: Renamed, monkeypatch: pytest.MonkeyPatch) -> None:
    """One of its NICs goes before the other, by a commit of its own."""
    site.have(web1=(NICS[0], NICS[1]))
    (placement,) = site.placements().values()
    monkeypatch.setattr("netregistry.rules.renaming.MOST_OF_ONE", 1000)
    assert site.do("importer.hold", NEW, reading(site.cluster))["left"]
    for uuid in NICS[:2]:
        site.says(1, uuid, "running", mode="routed")
    site.confirms(1)
    site.passes(1)
    (half,) = site.placements().values()
    assert half.endpoints == placement.endpoints and half.cluster == NEW, "nothing is given twice"
    rename(site, site.cluster)
    for _ in range(2):
        site.passes(1)
        site.confirms(1)
    (after,) = site.placements().values()
    assert after.leads != placement.leads and after.endpoints[0].address == placement.endpoints[0].address


def test_one_that_has_endpoints_by_the_new_name_already_keeps_those(site: Renamed) -> None:
    """A part of the rename was done by a service that knew nothing of this."""
    site.have(web1=(NICS[0],))
    other = site.nic(cluster=NEW, instance=WEB, index=5).uuid
    site.says(0, other, "running")
    site.confirms(0)
    kept = site.placements()[keys.placement(NEW, WEB)]
    rename(site, site.cluster)
    for _ in range(2):
        site.passes(200)
        site.confirms(0)
    (after,) = site.placements().values()
    assert after.endpoints == kept.endpoints and after.cluster == NEW
    assert site.addresses() == {f"{WEB}.console.{ZONE}": kept.endpoints[0].address}
