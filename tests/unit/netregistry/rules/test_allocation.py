"""The lowest never used, else the longest freed out of quarantine, else full; nothing taken is given out."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netregistry.pool import Place, Pool
from tests.support.registry import OPERATOR, Registry, node


def test_the_lowest_first_and_never_what_is_the_networks_own(registry: Registry) -> None:
    blue = registry.network(subnet="192.0.2.0/29", gateway="192.0.2.2")
    found = [registry.nic(network=blue, allocate=["ipv4"]).ip for _ in range(5)]
    assert found == ["192.0.2.1", "192.0.2.3", "192.0.2.4", "192.0.2.5", "192.0.2.6"]
    problem = registry.refused("nic.add", "", {"network": blue, "allocate": ["ipv4"]})
    assert problem["kind"] == "full" and (problem["size"], problem["held"], problem["quarantined"]) == (5, 5, 0)


def test_then_the_longest_freed_that_is_out_of_quarantine(registry: Registry) -> None:
    blue = registry.network(subnet="192.0.2.0/29", gateway="192.0.2.2")
    nics = [registry.nic(network=blue, allocate=["ipv4"]) for _ in range(4)]
    registry.do("nic.delete", nics[2].uuid)
    registry.passes(10)
    registry.do("nic.delete", nics[0].uuid)
    assert registry.nic(network=blue, allocate=["ipv4"]).ip == "192.0.2.6", "what was never used comes before"
    problem = registry.refused("nic.add", "", {"network": blue, "allocate": ["ipv4"]})
    assert (problem["held"], problem["quarantined"]) == (3, 2)
    registry.passes(3595)
    assert registry.nic(network=blue, allocate=["ipv4"]).ip == nics[2].ip
    assert registry.refused("nic.add", "", {"network": blue, "allocate": ["ipv4"]})["kind"] == "full"
    registry.passes(20)
    assert registry.nic(network=blue, allocate=["ipv4"]).ip == nics[0].ip


def test_ranges(registry: Registry) -> None:
    ranges = [{"first": "192.0.2.100", "last": "192.0.2.101"}, {"first": "192.0.2.10", "last": "192.0.2.10"}]
    blue = registry.network(ranges=ranges)
    assert [registry.nic(network=blue, allocate=["ipv4"]).ip for _ in range(3)] == ["192.0.2.10", "192.0.2.100", "192.0.2.101"]
    assert registry.refused("nic.add", "", {"network": blue, "allocate": ["ipv4"]})["size"] == 3
    registry.nic(network=blue, ip="192.0.2.50")  # named, it need not be in a range


def test_reservations(registry: Registry) -> None:
    blue = registry.network(subnet="192.0.2.0/29")
    key = f"addresses/{blue}/192.0.2.1"
    registry.do("claim.reserve", key, {"reason": "printer"})
    registry.do("claim.reserve", f"addresses/{blue}/192.0.2.2", {"reason": "mail", "instance": "mail1"})
    assert registry.nic(network=blue, allocate=["ipv4"]).ip == "192.0.2.3"
    assert registry.refused("nic.add", "", {"network": blue, "ip": "192.0.2.1"})["reserved"] == "printer"
    assert registry.refused("nic.add", "", {"network": blue, "ip": "192.0.2.2", "instance": "web1"})["reserved"] == "mail"
    mail = registry.nic(network=blue, ip="192.0.2.2", instance="mail1")
    registry.do("nic.delete", mail.uuid)
    registry.passes(4000)
    assert registry.refused("nic.add", "", {"network": blue, "ip": "192.0.2.2"})["reserved"] == "mail", (
        "a deletion does not end a reservation"
    )
    registry.do("claim.release", key)
    assert registry.claim(key) is None
    assert registry.nic(network=blue, allocate=["ipv4"]).ip == "192.0.2.1"
    assert registry.refused("claim.release", key)["kind"] == "missing"


def test_what_a_reserved_nic_had_stays_for_its_instance(registry: Registry) -> None:
    blue = registry.network(subnet="192.0.2.0/29")
    nic = registry.nic(network=blue, allocate=["ipv4"], instance="web1", reserved=True)
    registry.do("nic.delete", nic.uuid)
    registry.passes(4000)
    assert registry.nic(network=blue, allocate=["ipv4"]).ip == "192.0.2.2"
    again = registry.nic(network=blue, ip=nic.ip, mac=nic.mac, instance="web1")
    assert (again.ip, again.mac) == (nic.ip, nic.mac)


def test_a_64_is_as_quick_as_a_24(registry: Registry) -> None:
    """Nothing is counted up: 1000 addresses are used, then 20 given out at either end of those."""
    blue = registry.network(subnet6="2001:db8::/64", gateway6="2001:db8::1")
    for number in range(0, 1000, 10):
        nic = {"network": blue, "addresses": [f"2001:db8::{each + 2:x}" for each in range(number, number + 10)]}
        registry.do("nic.add", "", nic)
    began = time.process_time()
    found = [registry.nic(network=blue, allocate=["ipv6"]).ip for _ in range(20)]
    assert found == [f"2001:db8::{1002 + number:x}" for number in range(20)]
    assert time.process_time() - began < 1.0


def test_two_hundred_at_once_are_two_hundred(registry: Registry) -> None:
    blue = registry.network(subnet6="2001:db8::/64")
    nics = [registry.nic(network=blue, allocate=["ipv4", "ipv6"]) for _ in range(200)]
    assert len({nic.ip for nic in nics}) == len({nic.addresses for nic in nics}) == len({nic.mac for nic in nics}) == 200


def test_macs_are_of_the_prefix_and_each_once(registry: Registry) -> None:
    blue, green = (registry.network(name, mac_prefix="aa:00:00:00:07") for name in ("blue", "green"))
    macs = [registry.nic(network=(blue, green)[number % 2]).mac for number in range(256)]
    assert len(set(macs)) == 256 and all(mac.startswith("aa:00:00:00:07:") for mac in macs)
    assert registry.refused("nic.add", "", {"network": green})["kind"] == "full"
    assert registry.nic().mac.startswith("02:6e:63:")
    gone = registry.local.view.all("nics")
    uuid = next(nic.uuid for nic in gone.values() if nic.mac == macs[5])
    registry.do("nic.delete", uuid)
    registry.passes(4000)
    assert registry.nic(network=blue).mac == macs[5]


def test_a_batch_gives_no_number_twice(registry: Registry) -> None:
    blue = registry.network(mac_prefix="aa:00:00:00:07")
    parts = [{"action": "nic.add", "body": {"network": blue, "allocate": ["ipv4"]}} for _ in range(30)]
    made = registry.do("batch", "", {"parts": parts})
    assert len({nic["ip"] for nic in made}) == len({nic["mac"] for nic in made}) == len({nic["uuid"] for nic in made}) == 30


def test_what_is_freed_is_the_same_nics_again_at_once(registry: Registry) -> None:
    blue = registry.network()
    nic = registry.nic(network=blue, ip="192.0.2.7")
    registry.do("nic.set", nic.uuid, {"ip": "192.0.2.8"})
    assert registry.refused("nic.add", "", {"network": blue, "ip": "192.0.2.7"})["until"] == registry.time + 3600
    registry.do("nic.set", nic.uuid, {"ip": "192.0.2.7"})
    registry.do("claim.release", f"addresses/{blue}/192.0.2.8")
    registry.nic(network=blue, ip="192.0.2.8")


def test_the_same_request_gives_the_same() -> None:
    """What is by chance is the request's: planned anew, or rehearsed, it is the same."""
    registry = Registry()
    blue = registry.network()
    call = registry.call("nic.add", "", {"network": blue, "allocate": ["ipv4"]})
    said = registry.local.answer(call._replace(dry_run=True), OPERATOR).body["body"]
    assert registry.local.view.all("nics") == {}
    assert registry.local.answer(call, OPERATOR).body == said


def test_after_a_restore_every_live_node_is_waited_for() -> None:
    registry = Registry()
    who = registry.join(0)
    registry.local.sign_on(who, "11111111-0000-4000-8000-000000000000", 1000.0)
    blue = registry.network()
    registry.store.note(epoch="second")  # type: ignore[attr-defined]
    registry.local.close()
    registry.local = type(registry.local)(registry.store, lambda: registry.time)
    problem = registry.refused("nic.add", "", {"network": blue, "allocate": ["ipv4"]})
    assert problem["kind"] == "waiting" and problem["nodes"] == [who.name]
    registry.nic(network=blue, ip="192.0.2.9", mac="aa:00:00:00:00:01")  # named ones need not wait
    assert registry.report(who).status == 200
    assert registry.nic(network=blue, allocate=["ipv4"]).ip == "192.0.2.1"
    newcomer = registry.join(1)
    registry.local.sign_on(newcomer, "21111111-0000-4000-8000-000000000000", 1000.0)
    registry.nic(network=blue, allocate=["ipv4"], instance="a node that has joined since has nothing older".replace(" ", "-"))
    assert node(1) == newcomer


def test_what_a_nic_has_that_the_registry_does_not_know_is_not_given_out() -> None:
    """The registry was restored from a copy that is older than the NIC: its node reports it, and nobody knows in which network it is."""
    registry = Registry()
    who = registry.join(0)
    blue = registry.network()
    unknown = {
        "nic": "99999999-9999-4999-8999-999999999999",
        "state": "running",
        "ip": "192.0.2.1",
        "addresses": ["192.0.2.1", "192.0.2.2"],
    }
    assert registry.report(who, unknown).status == 200
    assert registry.nic(network=blue, allocate=["ipv4"]).ip == "192.0.2.3"
    named = registry.nic(network=blue, ip="192.0.2.1")  # a network of others may have the same addresses: whoever names one is not refused
    assert named.ip == "192.0.2.1"
    assert registry.report(who, removed=(unknown["nic"],)).status == 200  # type: ignore[arg-type]
    assert registry.nic(network=blue, allocate=["ipv4"]).ip == "192.0.2.2"


numbers = st.integers(0, 40)
places = st.builds(Place, st.sampled_from(["held", "reserved", "quarantined", "free"]), st.sampled_from([0.0, 1.0, 2.0, 3.0]))


@given(st.lists(st.tuples(numbers, places)), st.data(), numbers, numbers)
def test_a_pool_is_as_one_that_looks_at_each(claims: list[tuple[int, Place]], data: st.DataObject, first: int, last: int) -> None:
    pool, plain = Pool(), list(claims)
    for number, place in claims:
        pool.add(number, place)
    for number, place in data.draw(st.permutations(claims))[: len(claims) // 2]:
        pool.remove(number, place)
        plain.remove((number, place))
    inside = range(first, last + 1)
    assert list(pool.never_used(first, last)) == [each for each in inside if each not in dict(plain)]
    free = [(max(p.freed for n, p in plain if n == each), each) for each in inside if each in dict(plain)]
    free = [(freed, each) for freed, each in free if all(p.standing == "free" for n, p in plain if n == each)]
    assert list(pool.longest_freed([(first, last)])) == [each for _freed, each in sorted(free)]
    assert sum(pool.count(first, last).values()) == len({each for each, _place in plain if each in inside})


@pytest.mark.parametrize("allocate", [["ipv5"], ["mac", "mac"], "mac", [["mac"]], ["ipv6"]])
def test_what_cannot_be_given_out(registry: Registry, allocate: object) -> None:
    assert registry.refused("nic.add", "", {"network": registry.network(), "allocate": allocate})["field"] == "allocate"
