"""An address that Ganeti's configuration has for a guest is somebody's in the registry, whatever of that guest it cannot hold."""

from __future__ import annotations

import random
from ipaddress import ip_address
from typing import Any

import pytest

from netregistry.client import Problem
from netregistry.importer import difference
from netregistry.importer.importer import ABSENT
from netregistry.model import keys
from runtime.errors import TryAgain
from tests.support.ganeti_configuration import CLUSTER, NETWORKS, NICS, Cluster
from tests.support.importing import Node, checked, stored
from tests.support.registry import NODES, OPERATOR, Registry

BLUE = NETWORKS[0]
TOO_MANY = [f"t{number}" for number in range(101)]


@pytest.fixture
def importing(registry: Registry) -> Node:
    return Node(registry)


def bits(*numbers: int, ends: bool = False) -> str:
    """Give one of the two texts of a pool of 256 addresses; ``ends``: with what no host can have, as what is reserved has it."""
    return "".join("1" if number in numbers or (ends and number in (0, 255)) else "0" for number in range(256))


def with_guest(number: int = 2, reserved: tuple[int, ...] = (), **more: Any) -> Cluster:
    """Give a cluster of one network with one guest."""
    cluster = Cluster()
    cluster.network(BLUE, "blue", gateway="192.0.2.1", reservations=bits(number), ext_reservations=bits(1, *reserved, ends=True))
    cluster.nic(NICS[0], network=BLUE, ip=f"192.0.2.{number}", **more)
    return cluster


def given(registry: Registry, count: int) -> list[int]:
    """Have addresses given out; give the last part of each."""
    return [int(registry.nic(network=BLUE, allocate=["ipv4"]).ip.rpartition(".")[2]) for _ in range(count)]


def barred(registry: Registry) -> list[str]:
    network = registry.local.view.network(BLUE)
    return [f"{each.first}-{each.last}" for each in network.barred] if network is not None else []


@pytest.mark.parametrize("first", ["the operator's", "a node's"])
def test_a_nic_whose_uuid_is_somebody_elses(registry: Registry, importing: Node, first: str) -> None:
    """A node has defined it before it was imported, or an operator made one: it is refused, and its guest has its address all the same."""
    if first == "the operator's":
        registry.do("nic.add", "", {"uuid": NICS[0], "mac": "aa:00:00:00:09:09"})
    else:
        who = registry.join(0, CLUSTER)
        registry.ask("beat", NODES[0], {"incarnation": "11111111-1111-4111-8111-111111111111"}, who)
        registry.nic(who, uuid=NICS[0], mac="aa:00:00:00:00:00", instance="web1.example.com", index=0, found=True)
    cluster = with_guest()
    assert set(importing.read(cluster).refused) == {NICS[0]}
    assert given(registry, 2) == [3, 4] and barred(registry) == ["192.0.2.2-192.0.2.2"]
    said = registry.refused("nic.add", "", {"network": BLUE, "cluster": CLUSTER, "ip": "192.0.2.2"})
    assert said["kind"] == "taken" and CLUSTER in said["detail"]
    assert registry.refused("claim.release", f"addresses/{BLUE}/192.0.2.2", None)["field"] == "barred"
    asked, before = importing.asked.asked, registry.everything()
    cluster.changed()
    importing.read(cluster)
    assert stored(registry, "networks")[BLUE]["barred"] and importing.asked.asked > asked
    assert {key for key, value in registry.everything().items() if before.get(key) != value} <= {f"imports/{CLUSTER}"}
    # as soon as it can be taken in it holds its address itself
    registry.do("nic.delete", NICS[0], None)
    assert not importing.read(cluster).refused and barred(registry) == []
    assert stored(registry, "addresses")[f"{BLUE}/192.0.2.2"]["holder"] == NICS[0]


def test_one_contender_too_many(registry: Registry, importing: Node) -> None:
    cluster = Cluster()
    cluster.network(BLUE, "blue", gateway="192.0.2.1", reservations=bits(*range(2, 110)), ext_reservations=bits(1, ends=True))
    for number in range(2, 110):
        cluster.nic(f"{number:08x}-2222-4222-8222-222222222222", mac="aa:00:00:00:01:01", network=BLUE, ip=f"192.0.2.{number}")
    assert len(importing.read(cluster).refused) == 7
    assert given(registry, 1) == [110]


@pytest.mark.parametrize("fails", range(2, 12))
def test_a_first_import_that_was_killed(registry: Registry, fails: int) -> None:
    """The network is there by the first batch, its last NICs by the third one: what these have is nobody else's meanwhile."""
    cluster, asked = Cluster(), [0]
    cluster.network(BLUE, "blue", gateway="192.0.2.1", reservations=bits(*range(2, 82)), ext_reservations=bits(1, ends=True))
    for number in range(2, 82):
        uuid = f"{number:08x}-2222-4222-8222-222222222222"
        cluster.nic(uuid, mac=f"aa:00:00:00:01:{number:02x}", network=BLUE, ip=f"192.0.2.{number}")

    def killed() -> str:
        asked[0] += 1
        return "before" if asked[0] == fails else ""

    node = Node(registry, killed)
    if fails < 5:
        with pytest.raises(TryAgain):
            node.read(cluster)
    else:
        node.read(cluster)
    assert given(registry, 2) == [82, 83]
    node.read(cluster)
    assert len(stored(registry, "nics")) == 82 and barred(registry) == []


@pytest.mark.parametrize("block", [tuple(range(200, 210)), tuple(number for number in range(200, 210) if number != 203)])
@pytest.mark.parametrize("why", ["tags", "MAC", "unknown to Ganeti itself"])
def test_within_a_block_that_is_reserved_for_the_registry(registry: Registry, importing: Node, block: tuple[int, ...], why: str) -> None:
    """All else of it is given out: by its own bit a guest makes the block whole as well."""
    cluster = with_guest(203, block, mac="01:00:5e:00:00:01" if why == "MAC" else "aa:00:00:00:00:01")
    if why == "tags":
        cluster.instance("web1.example.com")["tags"] = TOO_MANY
    if why == "unknown to Ganeti itself":
        cluster.remove(NICS[0])
    cluster.changed()
    importing.read(cluster)
    registry.do("network.set", BLUE, {"ranges": [{"first": "192.0.2.200", "last": "192.0.2.209"}]})
    assert given(registry, 9) == [number for number in range(200, 210) if number != 203]
    said = registry.refused("nic.add", "", {"network": BLUE, "allocate": ["ipv4"]})
    assert (said["kind"], said["size"]) == ("full", 9) and "barred" in said["detail"]


def test_an_ipv6_address(registry: Registry, importing: Node) -> None:
    """Know addresses of which Ganeti has no pool: they are known by their NICs alone."""
    cluster = with_guest()
    cluster.document["networks"][BLUE]["network6"] = "2001:db8::/64"
    cluster.nic(NICS[1], mac="01:00:5e:00:00:01", network=BLUE, ip="2001:db8::1")
    importing.read(cluster)
    assert registry.nic(network=BLUE, allocate=["ipv6"]).ip == "2001:db8::2"
    assert barred(registry) == ["2001:db8::1-2001:db8::1"]


def test_a_nic_that_cannot_be_read_any_more_and_has_another_address(registry: Registry, importing: Node) -> None:
    """It is left as it is: the address that it had is its own, and what it has by now is nobody else's."""
    cluster = with_guest()
    importing.read(cluster)
    cluster.instance("web1.example.com")["tags"] = TOO_MANY
    cluster.instance("web1.example.com")["nics"][0]["ip"] = "192.0.2.3"
    cluster.document["networks"][BLUE]["reservations"] = bits(3)
    cluster.changed()
    importing.read(cluster)
    assert given(registry, 1) == [4]


@pytest.mark.parametrize(
    ("field", "value", "free"),
    [("tags", TOO_MANY, [5, 6]), ("network6", "2001:db8::1/128", [5, 6]), ("network", "127.0.0.0/24", [])],
)
def test_a_network_that_cannot_be_read_any_more(registry: Registry, importing: Node, field: str, value: Any, free: list[int]) -> None:
    """Its NICs and what it reserves cannot either. Where not even its pool can be read nothing is given out."""
    cluster = with_guest()
    importing.read(cluster)
    there = cluster.document["networks"][BLUE]
    before = there.get(field)
    there.update({field: value, "reservations": bits(2, 3), "ext_reservations": bits(1, 4, ends=True)})
    cluster.nic(NICS[1], network=BLUE, ip="192.0.2.3")
    importing.read(cluster, 10.0)
    assert given(registry, len(free)) == free
    if not free:
        said = registry.refused("nic.add", "", {"network": BLUE, "allocate": ["ipv4"]})
        assert said["kind"] == "full" and "could not be taken in" in said["detail"]
    there[field] = before
    cluster.changed()
    assert not importing.read(cluster, 10.0).refused and barred(registry) == []


def test_a_block_of_the_registrys_in_a_network_that_cannot_be_read_any_more(registry: Registry, importing: Node) -> None:
    """Go on with what is as it was: that it is reserved for the registry is still so."""
    cluster = with_guest(2, tuple(range(200, 210)))
    importing.read(cluster)
    registry.do("network.set", BLUE, {"ranges": [{"first": "192.0.2.200", "last": "192.0.2.209"}]})
    there = cluster.document["networks"][BLUE]
    there.update(tags=TOO_MANY, reservations=bits(2, 200))
    cluster.nic(NICS[1], network=BLUE, ip="192.0.2.200")
    importing.read(cluster)
    assert given(registry, 2) == [201, 202]
    there["ext_reservations"] = bits(1, *range(200, 205), ends=True)
    cluster.changed()
    importing.read(cluster)
    assert given(registry, 2) == [203, 204]
    assert registry.refused("nic.add", "", {"network": BLUE, "allocate": ["ipv4"]})["kind"] == "full", "Ganeti gives these out again"


def test_a_subnet_that_is_refused(registry: Registry, importing: Node) -> None:
    """Know what the operator's ranges are in the way of all the same, as far as it lies where the registry's subnet is."""
    cluster = with_guest()
    importing.read(cluster)
    registry.do("network.set", BLUE, {"ranges": [{"first": "192.0.2.2", "last": "192.0.2.200"}]})
    pool = {"reservations": "00010000" + "0" * 120, "ext_reservations": "11001000" + "0" * 119 + "1"}
    cluster.document["networks"][BLUE].update(network="192.0.2.0/25", **pool)
    cluster.nic(NICS[1], mac="01:00:5e:00:00:01", network=BLUE, ip="192.0.2.3")
    assert set(importing.read(cluster).refused) == {BLUE}
    assert given(registry, 1) == [5]


def test_more_reserved_ranges_than_a_network_may_have(registry: Registry, importing: Node) -> None:
    """A wide range in place of many would look as if all in it were reserved for the registry: devices are between the others."""
    cluster = Cluster()
    odd = "".join("1" if (number % 2 and number < 2010) or number == 4095 else "0" for number in range(4096))
    cluster.network(BLUE, "blue", "10.0.0.0/20", ext_reservations=f"1{odd[1:]}", reservations="0" * 4096)
    importing.read(cluster)
    registry.do("network.set", BLUE, {"ranges": [{"first": "10.0.7.200", "last": "10.0.7.209"}]})
    assert given(registry, 5) == [200, 202, 204, 206, 208]
    assert registry.refused("nic.add", "", {"network": BLUE, "allocate": ["ipv4"]})["kind"] == "full"


def test_an_operator_bars_nothing(registry: Registry, importing: Node) -> None:
    importing.read(with_guest())
    for network in (BLUE, registry.network("green")):
        said = registry.refused("network.set", network, {"barred": [{"first": "192.0.2.9", "last": "192.0.2.9"}]})
        assert said["kind"] == "invalid" and said["field"] == "barred"
    assert registry.refused("network.add", "", {"name": "red", "barred": []})["field"] == "barred"


def test_a_service_that_knows_nothing_of_it(registry: Registry, importing: Node) -> None:
    """An older one refuses the field: all else is imported, and it is said."""
    asks = importing.asked.batch

    def batch(parts: list[dict[str, Any]]) -> tuple[list[Any], str]:
        if any("barred" in (part["body"] or {}) for part in parts):
            raise Problem({"type": "urn:netcommon:problem/invalid", "status": 400, "detail": "barred: no such field"})
        return asks(parts)

    importing.asked.batch = batch  # type: ignore[method-assign]
    cluster = with_guest()
    assert importing.read(cluster).refused == {}
    cluster.nic(NICS[1], mac="01:00:5e:00:00:01", network=BLUE, ip="192.0.2.3")
    cluster.nic(NICS[2], network=BLUE, ip="192.0.2.4")
    assert importing.read(cluster).refused == {BLUE: "network blue: barred: no such field"}
    assert set(stored(registry, "nics")) == {NICS[0], NICS[2]}


# -- histories


def held(registry: Registry, network: str, address: str) -> bool:
    """Tell whether allocation cannot come to an address, by nothing that the importer has computed."""
    view, number = registry.local.view, int(ip_address(address))
    there = view.network(network)
    if there is None or not any(first <= number <= last for first, last in there.bounds(4)):
        return True
    claim = view.claim(keys.address(network, address))
    return claim is not None and claim.standing != "free"


def guests(cluster: Cluster) -> set[tuple[str, str]]:
    """Give what guests have by a configuration, as it is written: network and address."""
    found = [nic for item in cluster.document["instances"].values() for nic in item["nics"]]
    return {(nic["network"], nic["ip"]) for nic in found if nic.get("network") and nic.get("ip")}


class History:
    """A cluster that changes by chance, and importers of it that are killed; after each batch it is looked at who holds what."""

    def __init__(self, seed: int) -> None:
        self.chance, self.cluster = random.Random(seed), Cluster()
        self.registry = checked()
        self.before: set[tuple[str, str]] = set()  # what guests have had since it was imported
        self.there: set[str] = set()  # networks of which something was imported before this reading
        for place, network in enumerate(NETWORKS[:2]):
            self.cluster.network(network, ("blue", "red")[place], f"192.0.{2 + place}.0/28", gateway=f"192.0.{2 + place}.1")
        self.killed = 0
        self.node = Node(self.registry, self.fails)
        self.pools()

    def fails(self) -> str:
        self.looks()
        self.killed -= 1
        return self.chance.choice(("before", "after")) if self.killed == 0 else ""

    def looks(self) -> None:
        """Look whether anything is free that a guest had before and has; of a network that is new, whether anything is that a guest has."""
        now = guests(self.cluster)
        for network, address in sorted(now):
            if (network, address) in self.before or network not in self.there:
                assert held(self.registry, network, address), f"{address} is a guest's"

    def pools(self) -> None:
        for place, network in enumerate(NETWORKS[:2]):
            if network in self.cluster.document["networks"]:
                had = {
                    int(ip.rpartition(".")[2]) for of, ip in guests(self.cluster) if of == network and ip.startswith(f"192.0.{2 + place}.")
                }
                pool = {"reservations": had, "ext_reservations": {0, 1, 15}}
                texts = {name: "".join("1" if number in each else "0" for number in range(16)) for name, each in pool.items()}
                self.cluster.document["networks"][network].update(texts)
        self.cluster.changed()

    def changes(self) -> None:
        """Let Ganeti or the registry's operator do something."""
        chance, cluster = self.chance, self.cluster
        nics = [nic for item in cluster.document["instances"].values() for nic in item["nics"]]
        free = [uuid for uuid in NICS if uuid not in {nic["uuid"] for nic in nics}]
        network = chance.choice(NETWORKS[:2])
        address = f"192.0.{2 + NETWORKS.index(network)}.{chance.randrange(2, 15)}"
        what = chance.choice(("add", "add", "add", "remove", "move", "mac", "tags", "network", "operator", "given"))
        if what == "add" and free:
            cluster.nic(chance.choice(free), instance=f"web{chance.randrange(3)}.example.com", network=network, ip=address)
        elif what == "remove" and nics:
            cluster.remove(chance.choice(nics)["uuid"])
        elif what == "move" and nics:
            chance.choice(nics).update(network=network, ip=address)
        elif what == "mac" and nics:
            nic = chance.choice(nics)
            nic["mac"] = f"{chance.choice(('01', 'aa'))}{nic['mac'][2:]}"
        elif what == "tags" and nics:
            cluster.instance(f"web{chance.randrange(3)}.example.com")["tags"] = chance.choice((TOO_MANY, []))
        elif what == "network":
            cluster.document["networks"][network]["tags"] = chance.choice((TOO_MANY, [], []))
        elif what == "operator":
            uuid = chance.choice(NICS)
            if chance.random() < 0.5:
                self.registry.ask("nic.add", "", {"uuid": uuid, "mac": f"aa:00:00:00:09:{NICS.index(uuid):02x}"}, OPERATOR)
            else:
                self.registry.ask("nic.delete", uuid, None, OPERATOR)
        elif what == "given":
            self.registry.ask("nic.add", "", {"network": network, "allocate": ["ipv4"]}, OPERATOR)
        self.pools()

    def reads(self) -> None:
        """Read the configuration, and perhaps be killed at it."""
        self.killed = self.chance.choice((0, 0, 1, 2, 3, 4, 6))
        try:
            self.node.read(self.cluster, self.chance.choice((1.0, ABSENT, 400.0)))
        except TryAgain:
            self.node = Node(self.registry, self.fails)
            self.looks()
            # what no guest had by a configuration of which a part was imported may have been given free by that
            self.before = {each for each in guests(self.cluster) if each in self.before or each[0] not in self.there}
        else:
            self.before = guests(self.cluster)
            self.looks()
        self.there = set(stored(self.registry, "networks"))


@pytest.mark.parametrize("seed", range(40))
def test_no_history_frees_what_a_guest_has(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(difference, "MOST_PARTS", 1 + seed % 4)
    history = History(seed)
    for _ in range(25):
        for _ in range(history.chance.randrange(1, 4)):
            history.changes()
        history.reads()
    # when all can be read, and nothing is in the way, nothing is barred
    for item in history.cluster.document["instances"].values():
        item["tags"] = []
        for nic in item["nics"]:
            nic["mac"] = f"aa{nic['mac'][2:]}"
    for network in history.cluster.document["networks"].values():
        network["tags"] = []
    for uuid in NICS:
        history.registry.ask("nic.delete", uuid, None, OPERATOR)
    history.pools()
    history.chance, history.killed = random.Random(seed), 0
    assert not history.node.read(history.cluster, 400.0).refused
    assert not any(network.get("barred") for network in stored(history.registry, "networks").values())
