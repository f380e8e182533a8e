"""Check that what one node reports costs what it is, and shows as what it is: by steps that are counted, at two sizes."""

from __future__ import annotations

import sys
from collections.abc import Callable
from ipaddress import ip_address
from types import FrameType
from typing import Any

import pytest

from netregistry import state
from netregistry.model import keys
from netregistry.service.states import States
from tests.support.registry import NODES, Registry

FIRST = ip_address("10.0.0.1")
SHARED = tuple(f"192.0.2.{number}" for number in range(1, 65))


def calls(work: Callable[[], Any]) -> int:
    """Count the calls of functions that some work takes: the same on every machine."""
    count = 0

    def note(_frame: FrameType, event: str, _what: Any) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
    return count


def one_that_says_much(number: int, **said: Any) -> Registry:
    """A node's NICs that have addresses, and more of its NICs that are reported with the same."""
    registry = Registry()
    who = registry.join(0)
    registry.local.sign_on(who, "cccccccc-1111-4111-8111-111111111111", 86400.0)
    for place in range(0, len(SHARED), 16):
        registry.nic(who, addresses=list(SHARED[place : place + 16]), found=True)
    nics = [registry.nic(who, mac=f"aa:00:00:00:{place // 256:02x}:{place % 256:02x}") for place in range(number)]
    for place in range(0, number, 50):
        reports = ({"nic": nic.uuid, "state": "running", "since": 5.0, **said} for nic in nics[place : place + 50])
        assert registry.report(who, *reports).status == 200
    return registry


def looked_at(registry: Registry) -> None:
    view = registry.local.view
    for nic in view.all("nics").values():
        state.shown(view, nic)


@pytest.mark.parametrize("what", ["start", "list", "conflicts"])
@pytest.mark.parametrize(
    "said", [{"addresses": list(SHARED)}, {"ip": SHARED[0]}, {"mac": "aa:00:00:00:00:01"}], ids=["option", "ip", "mac"]
)
def test_the_states_cost_what_is_reported_and_not_its_square(what: str, said: dict[str, Any]) -> None:
    works: dict[str, Callable[[Registry], Any]] = {
        "start": lambda registry: States(registry.local.view),
        "list": looked_at,
        "conflicts": lambda registry: state.all_conflicts(registry.local.view, tuple(registry.local.view.all("nics"))),
    }
    few, many = (one_that_says_much(number, **said) for number in (25, 100))
    one, other = (calls(lambda registry=registry: works[what](registry)) for registry in (few, many))  # type: ignore[misc]
    assert other < 6 * one, "four times as many NICs"


def test_a_conflict_names_a_hundred_and_counts_the_others() -> None:
    registry = one_that_says_much(130, ip=SHARED[0])
    view = registry.local.view
    key = keys.address("none", SHARED[0])
    (conflict,) = [each for each in state.all_conflicts(view, tuple(view.all("nics"))) if each.claim == key]
    assert len(conflict.reported) == 100 and conflict.more == 30
    everybody = [nic for nic in view.all("nics").values() if state.shown(view, nic).conflicts]
    assert len(everybody) == 131, "who is not named is in it all the same"


def test_to_give_out_an_address_costs_no_more_however_many_are_reported() -> None:
    found = []
    for number in (20, 80):
        registry = Registry()
        who, blue = registry.join(0), registry.network(subnet="10.0.0.0/16")
        nics = [registry.nic(who, network=blue, mac=f"aa:00:00:00:00:{place:02x}") for place in range(number)]
        for place, nic in enumerate(nics):
            addresses = [str(FIRST + each) for each in range(100 * place, 100 * place + 100)]
            assert registry.report(who, {"nic": nic.uuid, "state": "running", "addresses": addresses}).status == 200
        body = {"network": blue, "allocate": ["ipv4"], "mac": "aa:00:00:00:01:00"}
        found.append(calls(lambda registry=registry, body=body: registry.do("nic.add", "", body, dry_run=True)))  # type: ignore[misc]
        assert registry.nic(**body).ip == str(FIRST + 100 * number), "what is in use is passed over"
    assert found[1] < 1.2 * found[0]


def test_full_names_who_has_what_nobody_wants() -> None:
    registry = Registry()
    who, blue = registry.join(0), registry.network(subnet="192.0.2.0/29", gateway="192.0.2.6")
    registry.nic(network=blue, ip="192.0.2.1")
    nic = registry.nic(who, network=blue)
    addresses = [f"192.0.2.{number}" for number in range(1, 7)]
    assert registry.report(who, {"nic": nic.uuid, "state": "running", "addresses": addresses}).status == 200
    problem = registry.refused("nic.add", "", {"network": blue, "allocate": ["ipv4"]})
    counts = {name: problem[name] for name in ("size", "held", "reserved", "quarantined", "reported")}
    assert counts == {"size": 5, "held": 1, "reserved": 0, "quarantined": 0, "reported": 4}, "it adds up"
    assert problem["nodes"] == [NODES[0]] and "node0 (4)" in problem["detail"]
    assert registry.report(who, removed=(nic.uuid,)).status == 200
    assert registry.nic(network=blue, allocate=["ipv4"]).ip == "192.0.2.2"


def test_what_is_in_use_follows_its_nic_into_another_network() -> None:
    registry = Registry()
    who, blue, green = registry.join(0), registry.network(), registry.network("green", "192.0.2.0/24")
    nic = registry.nic(who, network=blue)
    assert registry.report(who, {"nic": nic.uuid, "state": "running", "addresses": ["192.0.2.1", "192.0.2.2"]}).status == 200

    def given(network: str) -> str:
        found: str = registry.do("nic.add", "", {"network": network, "allocate": ["ipv4"]}, dry_run=True)["body"]["ip"]
        return found

    assert (given(blue), given(green)) == ("192.0.2.3", "192.0.2.1")
    registry.do("nic.set", nic.uuid, {"network": green}, who)
    assert (given(blue), given(green)) == ("192.0.2.1", "192.0.2.3")
    registry.do("nic.delete", nic.uuid)
    assert (given(blue), given(green)) == ("192.0.2.3", "192.0.2.3"), "it runs on, and may be of either"
    registry.nic(uuid=nic.uuid, network=blue)
    assert (given(blue), given(green)) == ("192.0.2.3", "192.0.2.1")
