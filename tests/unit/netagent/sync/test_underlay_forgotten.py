"""Forget a node that has its part of an underlay, and comes by TLS: its certificate counts no more from the same commit on."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from netregistry.client import Client
from netregistry.credentials import Credentials
from netregistry.model import keys
from tests.support.registry import NODES
from tests.support.sample import sample
from tests.support.sim import Sim
from tests.support.sync_agent import Agent
from tests.support.tls import Secured, secured
from tests.support.underlay_agent import SITE, Place, given

OWN = "fd12:3456:789a::1"


@pytest.fixture
def place(sim: Sim, tmp_path: Path) -> Place:
    return Place(sim, tmp_path)


def joined(service: Secured) -> Credentials:
    one = service.join("node", NODES[0])
    service.local.client().change("PUT", "underlay", {**SITE, "prefix": "fd12:3456:789a::/60", "minimum_age": 0, "ttl": 0})
    return one


@contextlib.contextmanager
def holding(place: Place, service: Secured, one: Credentials) -> Iterator[Agent]:
    """Run the node's agent, which has put its /64 up."""
    with place.running(service.local, one.places()) as agent:
        agent.until(lambda: place.there == [OWN], "it has its /64")
        place.in_step()
        yield agent


def forgets(client: Client) -> None:
    client.change("DELETE", f"nodes/{NODES[0]}", force=True)


def test_a_node_that_was_off_gives_its_prefix_up_when_it_comes_back(place: Place, tmp_path: Path) -> None:
    """Give the /64 of a forgotten node to another one after its quarantine, and tell the forgotten node once to give it up."""
    with secured(tmp_path) as service:
        one = joined(service)
        with holding(place, service, one):
            pass
        forgets(service.local.client())
        with place.running(service.local, one.places()) as agent:
            agent.until(lambda: place.there == [], "it gives its /64 up")
            agent.passes(1.0)
            (line,) = [line for line in place.sim.lines if "gives its part of the underlay up" in line]
            assert "forgotten" in line and place.there == []
        service.local.until(lambda: NODES[0] not in given(service.local))


@pytest.mark.parametrize("_turn", sample(range(12), 3))
def test_a_node_that_is_connected_gives_it_up_at_once(place: Place, tmp_path: Path, _turn: int) -> None:
    with secured(tmp_path) as service:
        one = joined(service)
        with holding(place, service, one) as agent:
            forgets(service.local.client())
            agent.until(lambda: place.there == [], "it gives its /64 up")
            agent.until(lambda: not agent.sync.machine.line.stream, "its stream is cut")
            agent.passes(0.5)
            assert place.there == []


def test_a_node_whose_certificate_was_revoked_keeps_it(place: Place, tmp_path: Path) -> None:
    """Keep the /64 of a node whose certificate was revoked: a lost key is no reason to take it away, and the node joins again."""
    with secured(tmp_path) as service:
        one = joined(service)
        with holding(place, service, one) as agent:
            service.local.client().change("POST", "certificates/revoke", {"role": "node", "name": NODES[0]})
            agent.until(lambda: "is revoked" in agent.sync.machine.line.reason, "it is told so")
            agent.passes(1.0)
            assert place.there == [OWN]


def test_a_node_that_was_forgotten_and_joins_again_has_a_prefix_again(place: Place, tmp_path: Path) -> None:
    with secured(tmp_path) as service:
        one = joined(service)
        with holding(place, service, one) as agent:
            forgets(service.local.client())
            agent.until(lambda: place.there == [], "it gives its /64 up")
        service.local.until(lambda: keys.reports(NODES[0]) not in service.local.everything())
        again = service.join("node", NODES[0])
        with place.running(service.local, again.places()) as agent:
            agent.until(lambda: len(place.there) == 1, "it has one again")
            place.in_step()
            agent.passes(1.0)
            assert len(place.there) == 1 and NODES[0] in given(service.local)
