"""Make the OpenAPI document (3.1) of the endpoints."""

from __future__ import annotations

import re
from typing import Any

from netregistry.model.codec import schema
from netregistry.refusal import KINDS
from netregistry.service import answers
from netregistry.service.routes import BINARY, JSON, ROUTES, Route

IF_MATCH = {
    "name": "If-Match",
    "in": "header",
    "required": True,
    "description": 'at which revision it was read, "EPOCH:REVISION"; or *',
    "schema": {"type": "string"},
}
KEY = {
    "name": "Idempotency-Key",
    "in": "header",
    "required": False,
    "description": "the request's id, a UUID of version 7: the same id is done once",
    "schema": {"type": "string", "format": "uuid"},
}
ROLE = {
    "name": "Netcommon-Role",
    "in": "header",
    "required": False,
    "description": "over the UNIX socket, as whom: operator:NAME (without it root), importer:CLUSTER, node:UUID or reader",
    "schema": {"type": "string"},
}


def document(version: str) -> dict[str, Any]:
    """Give the whole document. ``version``: of the program."""
    paths: dict[str, Any] = {}
    for route in ROUTES:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "netcommon registry",
            "version": version,
            "description": "Networks, NICs, MACs, addresses and nodes: what is wanted, and what is seen.",
        },
        "paths": paths,
        "components": {
            "schemas": {"Problem": schema(answers.Problem) | {"additionalProperties": True}},
            "responses": {
                "Problem": {
                    "description": "Refused: RFC 9457. The type ends in " + ", ".join(KINDS),
                    "content": {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}},
                }
            },
        },
    }


def _operation(route: Route) -> dict[str, Any]:
    inner = [{"name": name, "in": "path", "required": True, "schema": {"type": "string"}} for name in re.findall(r"\{(\w+)\}", route.path)]
    headers = [ROLE, *([KEY] if route.action else []), *([IF_MATCH] if route.match else [])]
    answer: dict[str, Any] = {"description": "Done."}
    if route.answer is not None:
        answer["content"] = {route.media: {"schema": route.answer()}}
    elif route.media != JSON:
        answer["content"] = {route.media: {"schema": {"type": "string", **({"format": "binary"} if route.media == BINARY else {})}}}
    body = {"requestBody": {"required": True, "content": {JSON: {"schema": route.body()}}}} if route.body is not None else {}
    return {
        "operationId": route.name,
        "summary": route.about,
        "parameters": [*inner, *(param.schema() for param in route.query), *headers],
        **body,
        "responses": {str(route.status): answer, "default": {"$ref": "#/components/responses/Problem"}},
    }
