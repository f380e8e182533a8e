"""Restore a registry from a copy that is older than name servers are: what they lead to stays until nodes have said what they have."""

from __future__ import annotations

import pytest

from mockcloud.name_server import MockNameServer
from netregistry.model import keys
from netregistry.model.underlay import Zone
from netregistry.service.limits import Limits
from netregistry.service.naming import Naming
from netregistry.service.registry import Registry as Service
from netregistry.stores.base import Item, Put
from netregistry.stores.sqlite import SqliteStore
from netregistry.underlay import healing
from netregistry.underlay.healing import HELD, WAIT
from netregistry.zone.publisher import LOOK, Publisher
from tests.support.registry import NODES, Registry, node
from tests.support.service import Lines
from tests.support.underlay import ZONE, Site

SECOND = 1.0


class Serving:
    """Serve a site's store as its leader, and bring a name server to what it wants. ``seen``: all that the server has led to.

    ``wrong``: seconds by which its clock goes wrong, until that is set; those that have passed are counted right.
    """

    def __init__(self, site: Site, server: MockNameServer, wrong: float = 0.0) -> None:
        self.site, self.server, self.seen, self.wrong = site, server, list[dict[str, str]](), wrong
        self.service = Service(site.store, "1", Lines(), Limits(), lambda: site.time + self.wrong, lambda: site.time)
        self.naming = Naming(self.service, ("a",))
        self.service.add(self.naming)
        self.publisher = Publisher(("a",), lambda _name: server, lambda: site.time)

    def turn(self, seconds: float = SECOND) -> None:
        self.site.time += seconds
        self.service.tick()
        wanted = self.naming.wanted()
        assert wanted is not None
        if self.publisher.due("a", wanted):
            found = self.publisher.bring("a", wanted)
            for lost in self.publisher.lost("a"):
                self.naming.published(lost)
                self.publisher.told(lost)
            self.naming.published(found)
        self.site.local.catch_up()
        self.seen.append(self.names)

    @property
    def names(self) -> dict[str, str]:
        return {name.removesuffix(f".{ZONE}"): address for name, address in self.server.names.items()}

    @property
    def noted(self) -> bool:
        """Tell whether the registry knows that the server has the zone as it is."""
        zone: Zone = self.site.local.view.get(keys.zone(ZONE))
        return bool(zone.published) and not zone.behind(self.site.local.view.epoch)


class Restored(Site):
    """Begin a site of three nodes anew from a copy."""

    def __init__(self, items: tuple[Item, ...], time: float) -> None:
        self.time = time
        store = SqliteStore.create(":memory:", "second", lambda: self.time)
        Registry.__init__(self, store=store, seed=7)
        for item in items:
            if item.key != keys.LEADER and keys.kind(item.key) != "alive":
                store.commit((), (Put(item.key, item.value),))
        self.local.catch_up()
        self.time, self.who = time, [node(number) for number in range(3)]

    def speaks(self, number: int, had: dict[str, str]) -> None:
        """Let a node be alive, and say which endpoints it was told. ``had``: addresses by instance."""
        self.lives(number, 1)
        told = [{"cluster": "", "instance": instance, "kind": "console", "address": each} for instance, each in had.items()]
        there = {"generation": 0, "addresses": list(had.values()), "prefix": self.prefix(number).prefix, "had": told}
        response = self.report(self.who[number], underlay=there)
        assert response.status == 200, response


class World:
    """Set up a copy, since which web1 has moved from the first node to the second, web2 has begun on the first, and web3 has not moved."""

    def __init__(self) -> None:
        site, server = Site(), MockNameServer("a")
        serving = Serving(site, server)
        serving.turn()
        self.web1, self.web2, self.web3 = (site.guest(name) for name in ("web1", "web2", "web3"))
        for number, nic in ((0, self.web1), (2, self.web3)):
            site.says(number, nic, "running")
            site.confirms(number)
        items = site.store.list("").items
        site.says(1, self.web1, "running", mode="routed")
        site.confirms(1)
        site.says(0, self.web1, "")
        site.says(0, self.web2, "running")
        site.confirms(0)
        serving.turn()
        self.right = serving.names
        self.first, self.second = self.right["web1.console"], self.right["web2.console"]
        assert set(self.right) == {"web1.console", "web2.console", "web3.console"} and serving.noted
        self.copied = {each: name.address for each, name in Restored(items, site.time).local.view.all("names").items()}
        self.site = Restored(items, site.time)
        self.serving = Serving(self.site, server)

    def hears(self, *numbers: int) -> None:
        """Let nodes say all that they have."""
        for number in numbers:
            if number == 0:
                self.site.speaks(0, {"web2": self.second})
                self.site.says(0, self.web1, "")
                self.site.says(0, self.web2, "running")
            elif number == 1:
                self.site.speaks(1, {"web1": self.first})
                self.site.says(1, self.web1, "running", mode="routed")
            else:
                self.site.speaks(2, {"web3": self.right["web3.console"]})


@pytest.fixture
def world() -> World:
    return World()


def test_before_anybody_has_spoken_nothing_is_changed_and_for_a_minute_at_most(world: World) -> None:
    for _ in range(int(HELD)):
        world.serving.turn()
        assert world.serving.names == world.right and not world.serving.noted
    mark = world.serving.server.marks.get(ZONE)
    assert mark is not None and mark.epoch == "second" and mark.part, "the zone is this one's, and on its way"
    world.serving.turn(2 * SECOND)
    assert sorted(world.serving.names.values()) == sorted(world.copied.values()) and world.serving.noted
    mark = world.serving.server.marks.get(ZONE)
    assert mark is not None and not mark.part


@pytest.mark.parametrize("order", [(0, 1, 2), (1, 0, 2), (2, 1, 0)])
def test_names_are_right_all_the_time_where_all_have_spoken(world: World, order: tuple[int, ...]) -> None:
    world.serving.turn()
    for number in order:
        world.hears(number)
        world.serving.turn()
    for _ in range(int(WAIT) + 2):
        world.serving.turn()
    assert all(each == world.right for each in world.serving.seen) and world.serving.noted


def test_a_node_that_says_first_what_it_has_and_then_of_which_guests(world: World) -> None:
    """Keep the name of a guest that moved since the copy, though its old node is heard first and its new one in two parts."""
    world.hears(0)
    world.serving.turn()
    world.site.speaks(1, {"web1": world.first})
    world.serving.turn()
    world.site.says(1, world.web1, "running", mode="routed")
    world.serving.turn()
    assert all(each == world.right for each in world.serving.seen)


def test_migrations_are_followed_where_both_have_spoken(world: World) -> None:
    world.serving.turn()
    world.hears(0, 1)
    world.serving.turn()
    site = world.site
    site.says(1, world.web2, "incoming")
    site.confirms(1)
    world.serving.turn()
    assert world.serving.names.keys() - world.right.keys() == {"web2-migrating.console"}
    coming = world.serving.names["web2-migrating.console"]
    site.says(1, world.web2, "running")
    site.says(0, world.web2, "")
    site.confirms(0, 1)
    world.serving.turn()
    assert world.serving.names == {**world.right, "web2.console": coming}
    wanted = world.serving.naming.wanted()
    assert wanted is not None and wanted.unheard is not None, "the minute is not over"


def test_a_guest_that_comes_from_a_node_which_has_not_spoken_has_its_name_there_behind_the_minute(world: World) -> None:
    """Move the name of a guest that comes from a silent node only after the minute: nobody can tell whether the old address is right."""
    world.serving.turn()
    world.hears(0)
    world.site.says(0, world.web3, "running")
    world.site.confirms(0)
    world.serving.turn()
    assert world.serving.names == world.right
    world.serving.turn(WAIT)
    assert world.serving.names["web3.console"] == next(
        name.address for key, name in world.site.local.view.all("names").items() if "/web3." in key
    )


def test_another_service_of_the_same_epoch_waits_no_more(world: World) -> None:
    for _ in range(int(WAIT) + 2):
        world.serving.turn()
    again = Serving(world.site, MockNameServer("a"))
    while not again.service.leads:  # the lease of the one before ends
        world.site.time += SECOND
        again.service.tick()
    again.turn()
    wanted = again.naming.wanted()
    assert wanted is not None and wanted.unheard is None and sorted(again.names.values()) == sorted(world.copied.values())


def test_a_server_that_comes_back_from_a_snapshot_of_before_the_restore_is_brought_back(world: World) -> None:
    """Bring a server back that had the zone in this epoch, and has it as in an earlier one: no other copy does that."""
    server, site = world.serving.server, world.site
    snapshot = server.marks[ZONE], dict(server.entries)
    world.hears(0, 1, 2)
    for _ in range(int(WAIT) + 2):
        world.serving.turn()
    site.says(0, world.web3, "running", mode="routed")
    site.confirms(0)
    site.says(2, world.web3, "")
    world.serving.turn()
    moved, zone = world.serving.names, site.local.view.get(keys.zone(ZONE))
    assert moved["web3.console"] != world.right["web3.console"] and zone.epochs == ("first",)
    since = zone.published[0].time
    server.marks[ZONE], server.entries = snapshot
    for _ in range(int(LOOK) + 1):
        world.serving.turn()
    assert world.serving.names == moved and world.serving.noted
    zone = site.local.view.get(keys.zone(ZONE))
    assert zone.published[0].time > since, "what is retired waits from then on"


def test_a_registry_that_was_never_restored_does_not_wait() -> None:
    site = Site()
    serving = Serving(site, MockNameServer("a"))
    serving.turn()
    wanted = serving.naming.wanted()
    assert wanted is not None and wanted.unheard is None


@pytest.mark.parametrize("wrong", [7200.0, -7200.0, 600.0, -30.0])
def test_the_minute_is_one_though_the_clock_is_set(world: World, wrong: float) -> None:
    """Restore on a machine that is new, whose clock is set a moment after its start: nodes have their minute all the same."""
    serving = world.serving = Serving(world.site, world.serving.server, wrong)
    for _ in range(5):
        serving.turn()
    serving.wrong = 0.0
    for _ in range(int(HELD) - 5):
        serving.turn()
        assert serving.names == world.right and "have a minute" in healing.withheld(world.site.local.view)
    for _ in range(3):
        serving.turn()
    assert sorted(serving.names.values()) == sorted(world.copied.values()) and serving.noted
    assert "have a minute" in healing.withheld(world.site.local.view), "names come first, and then what may be given anew"


def test_who_leads_within_the_minute_goes_on_with_it_where_it_was_there(world: World) -> None:
    """Count the minute also while another service leads."""
    other = Serving(world.site, world.serving.server)
    for _ in range(int(WAIT) - 20):
        world.serving.turn()
        other.service.catch_up()
    for _ in range(15):  # the other one's lease ends
        world.site.time += SECOND
        other.service.tick()
    assert other.service.leads and "have a minute" in healing.withheld(other.service.local.view)
    other.turn(6 * SECOND)
    other.turn()
    assert sorted(other.names.values()) == sorted(world.copied.values())


@pytest.mark.parametrize("key", [keys.stranger(NODES[5]), keys.prefix(NODES[5]), keys.GIVEN, keys.LEDGER, keys.reports(NODES[5])])
def test_whatever_cannot_be_read_names_are_held_for_a_minute_at_most(world: World, key: str) -> None:
    """Let the time of nodes end also where requests are refused, or no /64 can be given: that is another matter."""
    world.site.store.commit((), (Put(key, b'{"newer": 1}'),))
    world.serving.turn()
    assert world.serving.names == world.right and key in world.site.local.view.unreadable
    world.serving.turn(WAIT + 1)
    world.serving.turn()
    assert sorted(world.serving.names.values()) == sorted(world.copied.values()) and world.serving.noted


def test_what_cannot_be_read_of_it_holds_nothing_for_ever(world: World) -> None:
    world.serving.turn()
    assert world.site.store.get(keys.OPENED) is not None
    world.site.store.commit((), (Put(keys.OPENED, b'{"epoch": 7}'),))
    world.serving.turn()
    assert world.serving.names.keys() == {"web1.console", "web3.console"}
