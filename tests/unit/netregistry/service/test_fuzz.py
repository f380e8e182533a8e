"""Every endpoint of the OpenAPI document, asked for anything: never a fault, no change by what is refused, and answers as documented."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from netregistry.authority import x509
from netregistry.service.limits import Limits
from netregistry.service.openapi import document
from netregistry.service.routes import ROUTES
from tests.support.registry import NODES
from tests.support.service import Served, served
from tests.unit.netregistry.model.test_codec import json_values
from tests.unit.netregistry.test_hostile import UUIDS, plausible

DOCUMENT = document("1.2")
#: What the service writes by itself, whatever is asked.
OWN = ("leader", "alive/", "gone/")
ROLES = ["", "operator:alice", "importer:gnt.example.com", f"node:{NODES[0]}", "reader", "leader", "node:", "\u202e"]
texts = st.one_of(
    plausible.map(str), st.sampled_from([*NODES[:2], "true", "5", "-1", "1e9", "first:3", "addresses", "running"]), st.text(max_size=8)
)
encodable = texts.filter(lambda text: not re.search("[\ud800-\udfff]", text))


class Request(NamedTuple):
    """One request, and the operation that it is meant for."""

    method: str
    path: str
    target: str
    body: Any
    headers: dict[str, str]


def values(schema: dict[str, Any]) -> st.SearchStrategy[Any]:
    """Give what mostly fits a schema."""
    if "enum" in schema:
        return st.one_of(*[st.sampled_from(schema["enum"])] * 4, plausible)
    if "properties" in schema:
        fields = {name: values(each) for name, each in schema["properties"].items()}
        return st.fixed_dictionaries(
            {name: fields[name] for name in schema.get("required", ())},
            optional={name: each for name, each in fields.items() if name not in schema.get("required", ())},
        ).flatmap(
            lambda found: st.sampled_from(sorted(found) or [""]).map(lambda kept: found if len(found) < 4 else few(found, kept, schema))
        )
    if schema.get("type") == "array":
        return st.lists(values(schema.get("items", {})), max_size=3)
    if schema.get("type") in ("integer", "number"):
        return st.one_of(st.sampled_from([0, 1, 1400, 65535]), st.integers())
    return plausible


def few(found: dict[str, Any], kept: str, schema: dict[str, Any]) -> dict[str, Any]:
    """Leave out most fields: of many one is always wrong."""
    wanted = {*schema.get("required", ()), kept, *sorted(found)[:1]}
    return {name: value for name, value in found.items() if name in wanted}


def good(path: str, name: str) -> str:
    """Give what is there, for a variable part of a path."""
    there = {"networks": UUIDS[1], "nics": UUIDS[0], "nodes": NODES[0], "problems": "taken", "imports": "gnt.example.com"}
    there |= {"tokens": "11111111", "authorities": "aaaaaaaa"}
    return {"kind": "addresses", "scope": UUIDS[1], "what": "192.0.2.5"}.get(name, "") if "claims" in path else there[path.split("/")[2]]


@st.composite
def requests(draw: st.DrawFn) -> Request:
    path = draw(st.sampled_from(sorted(DOCUMENT["paths"])))
    method = draw(st.sampled_from(sorted(DOCUMENT["paths"][path])))
    operation = DOCUMENT["paths"][path][method]
    target, query, headers = path, [], {}
    for param in operation["parameters"]:
        if param["in"] == "path":
            text = draw(st.one_of(*[st.just(good(path, param["name"]))] * 4, st.sampled_from(UUIDS), encodable.filter(bool)))
            target = target.replace(f"{{{param['name']}}}", quote(text, safe="") if text not in (".", "..") else "x")
        elif param["in"] == "query" and (param["required"] or draw(st.integers(0, 3)) == 0):
            choices = st.sampled_from([str(each) for each in param["schema"]["enum"]]) if "enum" in param["schema"] else encodable
            query.append((param["name"], draw(choices)))
        elif param["name"] == "If-Match":
            headers["If-Match"] = draw(st.sampled_from(["*", "*", "*", "first:3", '"first:3"', "other:1", "", '"']))
    if draw(st.integers(0, 9)) == 0:
        query.append((draw(encodable), draw(encodable)))
    if role := draw(st.sampled_from([*[f"node:{NODES[0]}" if path.endswith(("reports", "heartbeat", "watch")) else ""] * 6, *ROLES])):
        headers["Netcommon-Role"] = quote(role)
    body = None
    if "requestBody" in operation:
        schema = operation["requestBody"]["content"]["application/json"]["schema"]
        body = draw(st.one_of(*[values(schema)] * 4, json_values, st.binary(max_size=20)))
    elif draw(st.integers(0, 9)) == 0:
        body = draw(st.sampled_from([b"{}", b""]))
    return Request(method.upper(), path, target + (f"?{urlencode(query)}" if query else ""), body, headers)


def wanted(service: Served) -> dict[str, bytes]:
    return {key: value for key, value in service.everything().items() if not key.startswith(OWN)}


def asked(service: Served, request: Request) -> tuple[int, Any]:
    """Send it; give the status and the body. Of a stream the first line is enough."""
    connection = service.connect()
    try:
        data = request.body if isinstance(request.body, bytes) or request.body is None else json.dumps(request.body).encode()
        headers = {**request.headers, **({"Content-Type": "application/json"} if data is not None else {})}
        connection.request(request.method, request.target, data, headers)
        response = connection.getresponse()
        if response.headers.get_content_type() == "application/x-ndjson":
            return response.status, json.loads(response.readline())
        found = response.read()
        return response.status, json.loads(found) if response.headers.get_content_type().endswith("json") else found
    finally:
        connection.close()


def test_every_endpoint_is_in_the_document_and_answers_as_it_says(tmp_path: Path) -> None:
    with served(tmp_path, Limits(rate=1e9, burst=1e9, beat=0.5)) as service:
        client = service.client()
        answered: dict[str, set[int]] = {}

        @settings(suppress_health_check=list(HealthCheck), deadline=None)
        @given(requests())
        def tried(request: Request) -> None:
            if not service.store.get(f"networks/{UUIDS[1]}"):
                client.change("POST", "networks", {"uuid": UUIDS[1], "name": "first", "subnet": "192.0.2.0/24"})
            if not service.store.get(f"nics/{UUIDS[0]}"):
                client.change("POST", "nics", {"uuid": UUIDS[0], "instance": "web1"})
            if not service.store.get(f"nodes/{NODES[0]}"):
                service.join(0)
            before = wanted(service)
            status, body = asked(service, request)
            assert status != 500 and service.service.figures.faults == 0, (request, body)
            operation = DOCUMENT["paths"][request.path][request.method.lower()]
            answered.setdefault(f"{request.method} {request.path}", set()).add(status)
            if status >= 400:
                assert wanted(service) == before, request
                schema: Any = DOCUMENT["components"]["schemas"]["Problem"]
                assert body["status"] == status and body["detail"].isprintable()
            else:
                assert str(status) in operation["responses"], (request, status)
                (schema,) = [each["schema"] for each in operation["responses"][str(status)].get("content", {"": {"schema": {}}}).values()]
            if not isinstance(body, bytes) and "dry_run=true" not in request.target.lower():
                assert [error.message for error in Draft202012Validator(schema).iter_errors(body)] == [], (request, body)

        tried()
        assert [line for line in service.log.lines if "a node reports for itself alone" not in line] == []  # who does so is named


def test_the_document_is_one(tmp_path: Path) -> None:
    assert DOCUMENT["openapi"].startswith("3.1") and sum(map(len, DOCUMENT["paths"].values())) == len(ROUTES)
    names = [operation["operationId"] for path in DOCUMENT["paths"].values() for operation in path.values()]
    assert len(set(names)) == len(names)
    for path in DOCUMENT["paths"].values():
        for operation in path.values():
            for content in (operation.get("requestBody", {}), *operation["responses"].values()):
                for each in content.get("content", {}).values():
                    Draft202012Validator.check_schema(each["schema"])


@pytest.mark.parametrize(
    "route", [route for route in ROUTES if route.method == "GET" and route.name not in ("watch", "backup", "export", "find")]
)
def test_what_is_looked_at_is_as_documented(tmp_path: Path, route: Any) -> None:
    """With something in it: each list, each object."""
    with served(tmp_path) as service:
        client = service.client()
        client.change(
            "POST",
            "networks",
            {"uuid": UUIDS[1], "name": "first", "subnet": "192.0.2.0/24", "routes": [{"prefix": "10.0.0.0/8", "via": "192.0.2.9"}]},
        )
        client.change(
            "POST", "nics", {"uuid": UUIDS[0], "network": UUIDS[1], "ip": "192.0.2.1", "options": [{"name": "isolated", "value": "yes"}]}
        )
        node = service.join(0)
        contending = service.client("importer:gnt.example.com")
        contending.change("POST", "nics", {"uuid": UUIDS[2], "network": UUIDS[1], "ip": "192.0.2.1", "mac": "aa:00:00:00:00:01"})
        reading = {"uuid": UUIDS[0], "master": NODES[0], "node": "node0", "serial": 1}
        client.change("PUT", "imports/gnt.example.com", reading)
        about = {"version": "1", "interfaces": [{"uuid": UUIDS[0], "name": "eth0"}]}
        reports = [{"nic": UUIDS[0], "state": "running", "tap": "tap0"}]
        node.change("POST", f"nodes/{NODES[0]}/reports", {"after": "first:0", "nics": reports, "about": about})
        client.change("POST", "authorities", {"certificate": x509.make_authority(1.9e9).authority.certificate})
        client.change("POST", "tokens", {"id": "11111111", "proof": "0" * 64, "role": "reader", "name": "ann"})
        client.change("POST", "certificates/revoke", {"role": "reader", "name": "ann"})
        client.change("PUT", "underlay", {"prefix": "fd12::/48", "zone": "hosts.example.com"})
        client.change("POST", "nics", {"uuid": NODES[3], "instance": "web1"})
        reports, revision = (
            [{"nic": NODES[3], "state": "running", "endpoints": ["console"]}],
            client.get(f"nodes/{NODES[0]}").body["reports"],
        )
        node.change("POST", f"nodes/{NODES[0]}/heartbeat", {"incarnation": NODES[1]})
        node.change("POST", f"nodes/{NODES[0]}/reports", {"after": revision, "nics": reports})
        there, revision = {"generation": 2, "addresses": ["fd12::1:0"]}, client.get(f"nodes/{NODES[0]}").body["reports"]
        node.change("POST", f"nodes/{NODES[0]}/reports", {"after": revision, "underlay": there})
        kind = {"networks": UUIDS[1], "nodes": NODES[0]}.get(route.path.split("/")[2] if route.path.count("/") > 1 else "", UUIDS[0])
        said = service.say("GET", route.path.replace("{uuid}", kind).replace("{kind}", "taken"))
        assert said.status == 200
        if route.answer is not None:
            assert [error.message for error in Draft202012Validator(route.answer()).iter_errors(said.body)] == []
            assert not isinstance(said.body, dict) or said.body.get("items") != []
