"""As much of JSON Schema (draft 2020-12) as docs/schemas use; a keyword that is not known here is an error, never passed over."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

SAYING = {"$schema", "title", "description"}
TYPES: dict[str, type] = {"object": dict, "array": list, "string": str, "null": type(None), "boolean": bool}


def errors(schema: Mapping[str, Any], value: object, strict: bool = False, where: str = "$") -> Iterator[str]:
    """What of ``value`` is not as ``schema`` says, one line each. ``strict``: fields that no schema names are errors too."""
    left = set(schema) - SAYING
    if "const" in left and (value != schema["const"] or type(value) is not type(schema["const"])):
        yield f"{where}: {value!r} is not {schema['const']!r}"
    if "enum" in left and value not in schema["enum"]:
        yield f"{where}: {value!r} is none of {schema['enum']}"
    if "anyOf" in left and all(list(errors(one, value, strict, where)) for one in schema["anyOf"]):
        yield f"{where}: {value!r} fits none of {schema['anyOf']}"
    if "type" in left and not _is(schema["type"], value):
        yield f"{where}: {value!r} is no {schema['type']}"
        return
    if isinstance(value, dict):
        yield from _of_object(schema, value, strict, where)
    if isinstance(value, list) and "items" in left:
        for number, each in enumerate(value):
            yield from errors(schema["items"], each, strict, f"{where}[{number}]")
    strange = left - {"const", "enum", "anyOf", "type", "properties", "required", "additionalProperties", "items"}
    if strange:
        yield f"{where}: the schema has {sorted(strange)}, which nobody checks"


def _is(kind: str, value: object) -> bool:
    if kind in ("integer", "number"):
        return type(value) is int or (kind == "number" and type(value) is float)
    return isinstance(value, TYPES[kind])


def _of_object(schema: Mapping[str, Any], value: Mapping[str, Any], strict: bool, where: str) -> Iterator[str]:
    known, others = schema.get("properties", {}), schema.get("additionalProperties")
    for name in schema.get("required", ()):
        if name not in value:
            yield f"{where}: no {name}"
    for name, each in value.items():
        inner = known.get(name, others)
        if inner is not None:
            yield from errors(inner, each, strict, f"{where}.{name}")
        elif strict and known:
            yield f"{where}: {name} is in no schema"
