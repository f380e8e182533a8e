"""Whatever is asked is answered: no exception, and no change by a refused request."""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from netregistry.actions import ACTIONS
from netregistry.model.history import Identity
from netregistry.model.nic import Nic
from netregistry.request import Call
from tests.support.registry import GANETI, OPERATOR, Registry, node
from tests.unit.netregistry.model.test_codec import json_values

UUIDS = [f"{number:08x}-1111-4111-8111-111111111111" for number in range(3)]
plausible = st.sampled_from(
    [
        *UUIDS,
        "",
        "blue",
        "web1",
        "aa:00:00:00:00:01",
        "aa:00:00",
        "192.0.2.1",
        "192.0.2.0/24",
        "2001:db8::1",
        "2001:db8::/64",
        "::ffff:192.0.2.1",
        "c.example.com",
        "none",
        "\ud800",
        "\u202e",
        "*",
        "first:1",
        "first:0",
        "ipv4",
        "mac",
        "isolated",
        "running",
        True,
        0,
        1500,
        10**30,
        [],
        {},
        ["ipv4"],
        ["ipv6", "mac"],
        ["192.0.2.7"],
        [{"name": "isolated", "value": "yes", "until": 1e9}],
        [{"name": "mtu", "value": "5"}],
        [{"first": "192.0.2.1", "last": "192.0.2.3"}],
        [{"nic": UUIDS[0], "state": "running"}],
        [{"action": "nic.delete", "target": UUIDS[0]}, {"action": "nic.add", "body": {"uuid": UUIDS[0]}}],
    ]
)
MORE = {"batch": ["parts"], "report": ["after", "nics", "removed", "about"]}
targets = st.one_of(
    *[st.sampled_from(UUIDS)] * 5,
    st.text(max_size=20),
    st.builds("{}/{}/{}".format, st.sampled_from(["addresses", "macs", "x"]), plausible, plausible),
)
others = [GANETI, node(0), node(1), Identity("reader"), Identity("node", "/"), Identity("importer", "")]
who = st.one_of(*[st.just(OPERATOR)] * 3, st.sampled_from(others))
matches = st.one_of(*[st.just("*")] * 4, st.sampled_from(["", "first:2", "x:1"]))


def asked_for(action: str) -> st.SearchStrategy[tuple[str, str, Any, str, Identity]]:
    """Fields of the action's own, of mostly one or two that are wrong."""
    fields = sorted(ACTIONS[action].body().get("properties", ())) if action in ACTIONS else MORE.get(action, ["force"])
    bodies = st.one_of(*[st.dictionaries(st.sampled_from(fields or ["force"]), plausible, max_size=3)] * 4, json_values)
    return st.tuples(st.just(action), targets, bodies, matches, who)


calls = st.sampled_from([*ACTIONS, "batch", "report", "fly", "nic.add", "nic.set", "nic.set", "network.set"]).flatmap(asked_for)


@settings(suppress_health_check=list(HealthCheck))
@given(st.lists(calls, min_size=1, max_size=8))
def test_every_request_is_answered(asked: list[tuple[str, str, Any, str, Identity]]) -> None:
    registry = Registry()
    registry.do("network.add", "", {"uuid": UUIDS[1], "name": "first", "subnet": "192.0.2.0/24"})
    registry.nic(uuid=UUIDS[0], network=UUIDS[1], ip="192.0.2.1")
    registry.join(0)
    for action, target, body, match, identity in asked:
        before = registry.everything()
        response = registry.local.answer(Call(registry.id(), action, target, body, match), identity)
        assert 200 <= response.status < 500, response
        if response.status >= 400:
            assert registry.everything() == before and response.body["detail"].isprintable()
    registry.passes(7200)
    assert registry.local.view.unreadable == {}
    for nic in registry.local.view.all("nics").values():
        assert isinstance(nic, Nic)


@given(st.tuples(json_values, json_values, json_values, json_values))
def test_ids_and_names_of_any_kind(values: tuple[Any, Any, Any, Any]) -> None:
    registry = Registry()
    texts = [str(value) for value in values]
    assert registry.local.answer(Call(texts[0], texts[1], texts[2], values[3], texts[3]), OPERATOR).status == 400
    assert registry.local.answer(Call(registry.id(), texts[1], texts[2], values[3], texts[3]), OPERATOR).status == 400
