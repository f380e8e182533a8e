"""For each role, each call over TLS: allowed or refused, as the table of roles says; and who is not in it is nobody.

The calls are those of netregistry.service.routes: a new one fails here until somebody has said in MAY who may.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from netregistry.actions import ACTIONS
from netregistry.roles import HOLDERS, NEWCOMER, ROLES
from netregistry.service.routes import FORCED, ROUTES, Route
from tests.support.registry import NODES
from tests.support.tls import Secured, Shown, secured

#: Written out once more, by hand: what each role may, beside what everybody may.
EVERYBODY = {"abilities", "problem", "healthz", "authorities"}
LISTS = {"openapi", "networks", "network", "nics", "nic", "nodes", "node", "reports", "claims", "conflicts", "find", "status", "underlay"}
LISTS |= {"prefixes", "endpoints", "names"}
NICS = {"nic.add", "nic.set", "nic.delete", "batch"}
NETWORKS = {"network.add", "network.set", "network.delete"}
READING = LISTS | {"imports", "settings", "history", "export", "metrics", "certificates", "watch", "certificate.renew", "pages"}
MAY = {
    "newcomer": EVERYBODY | {"certificate.join"},
    "reader": EVERYBODY | READING,
    "node": EVERYBODY | LISTS | NICS | {"watch", "node.join", "node.set", "report", "heartbeat", "certificate.renew"},
    "importer": EVERYBODY | LISTS | NICS | NETWORKS | {"imports", "importer.hold", "certificate.renew"},
    "operator": EVERYBODY
    | READING
    | NICS
    | NETWORKS
    | {"node.join", "node.set", "node.fence", "node.forget", "claim.reserve", "claim.release", "importer.hold", "settings.set"}
    | {"underlay.init", "underlay.release"}
    | {"tokens", "token.add", "token.revoke", "certificate.revoke", "authority.add", "authority.retire", "backup", "compact"},
}
NAMES = {"operator": "ann", "importer": "gnt.example.com", "node": NODES[0], "reader": "bob"}
PLACES = {"uuid": NODES[0], "kind": "macs", "scope": "none", "what": "aa:00:00:00:00:01", "cluster": "gnt.example.com", "label": "00000000"}

#: Calls whose body cannot be wrong: they have none.
REHEARSED = ("authority.retire", "token.revoke", "claim.release", "certificate.renew", "underlay.release")


#: What a node could ask of itself.
BODIES = {"report": {"after": "first:0", "nics": []}, "heartbeat": {"incarnation": NODES[5]}, "node.set": {"name": "mine"}}


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    folder: Path = tmp_path_factory.mktemp("registry")
    with secured(folder) as found:
        yield found


@pytest.fixture(scope="module")
def shown(registry: Secured) -> dict[str, Shown]:
    """Give what each role shows. There is a second node."""
    registry.join("node", NODES[1])
    found = {role: registry.shown(registry.join(role, name)) for role, name in NAMES.items()}
    return {**found, NEWCOMER: Shown("", registry.trusted)}


def test_the_table_names_every_call_once() -> None:
    assert {route.name for route in ROUTES} | set(ACTIONS) | {"pages"} == set(ROLES)
    assert {role: {name for name, roles in ROLES.items() if role in roles} for role in (*HOLDERS, NEWCOMER)} == MAY
    left = {name for name, roles in ROLES.items() if roles == {"leader"}}
    assert left == set(ROLES) - set().union(*MAY.values()) and not left & {route.name for route in ROUTES}


@pytest.mark.parametrize("role", MAY)
@pytest.mark.parametrize("route", ROUTES, ids=lambda route: route.name)
def test_each_call_of_each_role(registry: Secured, shown: dict[str, Shown], role: str, route: Route) -> None:
    """With a body that changes nothing: who may is answered what is wrong with it, who may not that he may not."""
    path = route.path.format(**PLACES) if "{kind}" not in route.path or "claims" in route.path else "/v1/problems/taken"
    body: Any = {"no such field": 1} if route.body is not None else None
    if route.name == "watch":
        path += "?node=ffffffff-0000-4000-8000-000000000000"
    elif route.name == "find":
        path += "?text=a"
    elif route.action in (*FORCED, *REHEARSED):
        path += "?dry_run=true"
    said = registry.say(route.method, path, body, shown[role])
    kind = said.body["type"].rpartition("/")[2] if said.status >= 400 else ""
    if route.name in MAY[role]:
        assert kind in ("", "invalid", "missing", "match", "in-use") or (role, route.name) == ("node", "watch"), said
        return
    assert (said.status, kind) == (403, "certificate" if role == NEWCOMER else "forbidden"), said
    if role != NEWCOMER:
        assert said.body["master"] in ROLES[route.name] and route.name in said.body["detail"]


#: Calls of a node that name another node in their path or query: who it is is refused, before what is wrong with the body.
OF_A_NODE = [
    route for route in ROUTES if (route.path.startswith("/v1/nodes/{uuid}") and "node" in ROLES[route.name]) or route.name == "watch"
]
LOOKED_AT = {"node"}  #: what a node may see of others


@pytest.mark.parametrize("route", OF_A_NODE, ids=lambda route: route.name)
def test_each_call_of_a_node_for_another_one(registry: Secured, shown: dict[str, Shown], route: Route) -> None:
    path, body = route.path.format(uuid=NODES[1]), BODIES.get(route.name)
    if route.name == "watch":
        path += f"?node={NODES[1]}&incarnation={NODES[5]}"
    before, held = registry.counted("another"), registry.local.everything()
    said = registry.say(route.method, path, body, shown["node"], If_Match="*")
    if route.name in LOOKED_AT:
        assert said.status == 200
        return
    assert (said.status, said.body["master"], said.body["reason"]) == (403, f"node:{NODES[1]}", "another"), said
    assert registry.counted("another") == before + 1 and registry.local.everything() == held


@pytest.mark.parametrize("role", [role for role in MAY if role != NEWCOMER])
@pytest.mark.parametrize("action", ACTIONS)
def test_each_action_of_each_role_in_a_batch(registry: Secured, shown: dict[str, Shown], role: str, action: str) -> None:
    """What an endpoint refuses no batch does."""
    said = registry.say("POST", "/v1/batch", {"parts": [{"action": action, "body": {"no such field": 1}}]}, shown[role])
    kind = said.body["type"].rpartition("/")[2]
    allowed = action in MAY[role] and "batch" in MAY[role]
    assert (kind == "forbidden") != allowed, said
