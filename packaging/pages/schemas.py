"""JSON Schemas (draft 2020-12) of named tuples: their fields, types, and the comments that begin with ``#:``."""

from __future__ import annotations

import inspect
import json
import re
import types
from collections.abc import Mapping
from typing import Any, Literal, get_args, get_origin, get_type_hints

from pages.documents import DOCUMENTS

DRAFT = "https://json-schema.org/draft/2020-12/schema"
PLAIN: dict[type, str] = {str: "string", int: "integer", float: "number", bool: "boolean"}


def files() -> dict[str, str]:
    """The files of docs/schemas: name -> text."""
    return {f"{name}.json": json.dumps(schema(name), indent=2) + "\n" for name in DOCUMENTS}


def schema(name: str) -> dict[str, Any]:
    """One document's."""
    version, made, commands = DOCUMENTS[name]
    found = _object(made)
    about = " ".join((made.__doc__ or "").split())
    program = name.partition("-")[0]
    printed = ", ".join(f"{program} {command} --json" if command != "every command" else command for command in commands)
    properties = {
        "schema": {"const": name},
        "version": {"const": version, "description": "Raised when a field goes, or means something else."},
        **found["properties"],
    }
    return {
        "$schema": DRAFT,
        "title": name,
        "description": f"{'' if about.startswith(made.__name__ + '(') else about + ' '}Printed by: {printed}.",
        **found,
        "properties": properties,
        "required": ["schema", "version", *found["required"]],
    }


def _object(made: type) -> dict[str, Any]:
    hints, said = get_type_hints(made), _comments(made)
    fields: tuple[str, ...] = made._fields  # type: ignore[attr-defined]
    often: dict[str, Any] = made._field_defaults  # type: ignore[attr-defined]
    properties = {name.rstrip("_"): _of(hints[name]) | ({"description": said[name]} if name in said else {}) for name in fields}
    # what the models of netcommon.views have defaults for is printed all the same
    required = [name.rstrip("_") for name in fields if name not in often or not made.__module__.startswith("pages")]
    return {"type": "object", "properties": properties, "required": required}


def _of(kind: Any) -> dict[str, Any]:
    origin, inner = get_origin(kind), get_args(kind)
    if kind is Any:
        return {}
    if kind in PLAIN:
        return {"type": PLAIN[kind]}
    if origin is Literal:
        return {"enum": list(inner)}
    if origin in (types.UnionType,):
        return {"anyOf": [{"type": "null"} if each is type(None) else _of(each) for each in inner]}
    if origin is tuple:
        if inner[1:] != (...,):
            raise TypeError(f"no schema is made of {kind}")
        return {"type": "array", "items": _of(inner[0])}
    if origin is Mapping:
        return {"type": "object", "additionalProperties": _of(inner[1])}
    return _object(kind)


def _comments(made: type) -> dict[str, str]:
    """What the source says of each field."""
    try:
        source = inspect.getsource(made)
    except (OSError, TypeError):
        return {}
    return dict(re.findall(r"^    (\w+):[^#\n]*#: (.+)$", source, re.M))
