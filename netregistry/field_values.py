"""Turn what people type, FIELD=VALUE, into the JSON that a request takes; what is wrong with a value is for the registry to say."""

from __future__ import annotations

import types
from typing import TYPE_CHECKING, Annotated, Any, Union, get_args, get_origin, get_type_hints

from netregistry.model.codec import write
from netregistry.model.history import Settings
from netregistry.model.network import Network, Range, Route
from netregistry.model.nic import Nic
from netregistry.model.node import Node
from runtime.errors import NicInvalid

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

KINDS: dict[str, Any] = {"networks": Network, "nics": Nic, "nodes": Node, "settings": Settings}
OPTION = "options."
SWITCH = {"yes": True, "true": True, "on": True, "no": False, "false": False, "off": False}


def pairs(texts: Iterable[str]) -> dict[str, str]:
    """Part FIELD=VALUE. Raises NicInvalid."""
    found: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name or name in found:
            raise NicInvalid(name if equals and name else text, text, "FIELD=VALUE, each field once")
        found[name] = value
    return found


def body(kind: str, given: Mapping[str, str], before: Mapping[str, Any] | None = None, until: float = 0.0) -> dict[str, Any]:
    """Give the body of a request. ``before``: the object as it is: options are changed one by one; ``until``: when those given end.

    Raises NicInvalid for a text that cannot be such a value.
    """
    hints = get_type_hints(KINDS[kind], include_extras=True)
    found: dict[str, Any] = {}
    options = {option["name"]: option for option in (before or {}).get("options", ())}
    for name, text in given.items():
        if name.startswith(OPTION):
            option = name.removeprefix(OPTION)
            options[option] = {"name": option, "value": text, "until": until}
            found["options"] = list(options.values())
        elif name == "allocate":
            found[name] = _parts(text)
        else:
            found[name] = _value(hints.get(name, str), name, text)
    return found


def defaults(kind: str, names: Iterable[str], before: Mapping[str, Any]) -> dict[str, Any]:
    """Give the body of a request by which fields, and options, are as if nobody had said anything. Raises NicInvalid."""
    made = KINDS[kind]
    found: dict[str, Any] = {}
    options = list(before.get("options", ()))
    for name in names:
        if name.startswith(OPTION):
            kept = [option for option in options if option["name"] != name.removeprefix(OPTION)]
            if len(kept) == len(options):
                raise NicInvalid(name, "", "an option that is set: " + (", ".join(option["name"] for option in options) or "there is none"))
            options = found["options"] = kept
        elif name in made._field_defaults:
            found[name] = write(made._field_defaults[name])
        else:
            raise NicInvalid(name, "", f"a field that may be unset: {', '.join(made._field_defaults)}, or {OPTION}NAME")
    return found


def _value(hint: Any, name: str, text: str) -> Any:
    origin, inner = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return _value(inner[0], name, text)
    if origin in (Union, types.UnionType):
        return None if text == "" else _value(next(each for each in inner if each is not type(None)), name, text)
    if origin is tuple:
        return [_value(inner[0], name, each) for each in _parts(text)]
    if hint is Range:
        first, dash, last = text.partition("-")
        return {"first": first.strip(), "last": last.strip() if dash else first.strip()}
    if hint is Route:
        prefix, via, router = text.partition(" via ")
        if not via:
            raise NicInvalid(name, text, "PREFIX via ADDRESS, several with commas between them")
        return {"prefix": prefix.strip(), "via": router.strip()}
    if hint is bool:
        if text not in SWITCH:
            raise NicInvalid(name, text, "yes or no")
        return SWITCH[text]
    if hint in (int, float):
        try:
            return hint(text or "0")
        except ValueError:
            raise NicInvalid(name, text, "a number") from None
    return text


def _parts(text: str) -> list[str]:
    return [each.strip() for each in text.split(",") if each.strip()]
