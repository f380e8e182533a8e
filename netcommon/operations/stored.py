"""Operations as records hold them: what a file says is checked against the fields of its kind before any of it is used."""

from __future__ import annotations

from netcommon.host.facts import AF_INET, AF_INET6, Port
from netcommon.operations.base import ABSENT, FOREIGN, OURS
from netcommon.operations.link import ADDRESS, ALIAS, MASTER, MTU, UP
from runtime.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from netcommon.operations.base import Operation


def _text(value: object) -> bool:
    return type(value) is str


def _number(value: object) -> bool:
    """Rates in bits a second are the largest."""
    return type(value) is int and -1 <= value < 1 << 63


def _truth(value: object) -> bool:
    return type(value) is bool


def _each(one: Callable[[object], bool]) -> Callable[[object], bool]:
    return lambda value: type(value) is tuple and all(map(one, value))


def _row(*kinds: Callable[[object], bool]) -> Callable[[object], bool]:
    return lambda value: type(value) is tuple and len(value) == len(kinds) and all(map(_is, kinds, value))


def _is(kind: Callable[[object], bool], value: object) -> bool:
    return kind(value)


#: What a field of each declared type may hold. A new type in an operation needs a line here (a test says so).
TYPES: dict[str, Callable[[object], bool]] = {
    "str": _text,
    "int": _number,
    "bool": _truth,
    "int | None": lambda value: value is None or _number(value),
    "str | int | bool": lambda value: _text(value) or _number(value) or _truth(value),
    "tuple[int, ...]": _each(_number),
    "tuple[str, ...]": _each(_text),
    "tuple[tuple[str, str], ...]": _each(_row(_text, _text)),
    "tuple[tuple[str, tuple[str, ...]], ...]": _each(_row(_text, _each(_text))),
    "tuple[tuple[int, bool, bool], ...]": _each(_row(_number, _truth, _truth)),
}

#: Fields that take few values only.
VALUES: dict[str, frozenset[object]] = {
    "setting": frozenset({ALIAS, ADDRESS, MTU, UP, MASTER}),
    "family": frozenset({AF_INET, AF_INET6}),
    "found": frozenset({ABSENT, OURS, FOREIGN}),
    "flag": frozenset(Port._fields),
}


def declared(made: type[Operation]) -> dict[str, str]:
    """The operation's fields and their types, as written in its source."""
    if made not in _DECLARED:
        _DECLARED[made] = _declared(made)
    return _DECLARED[made]


#: What ``declared`` has found: records of thousands of NICs have a dozen kinds between them.
_DECLARED: dict[type[Operation], dict[str, str]] = {}


def _declared(made: type[Operation]) -> dict[str, str]:
    fields: dict[str, Any] = {}
    for each in reversed(made.__mro__):
        if "_fields" in vars(each):
            fields = vars(each).get("__annotations__", {})
    # as text, also where the module of an extension evaluates its annotations
    texts = {name: getattr(kind, "__forward_arg__", kind) for name, kind in fields.items()}
    return {name: kind.__name__ if kind.__class__ is type else str(kind) for name, kind in texts.items()}


def unstorable(made: type[Operation]) -> str:
    """The first field of an operation whose declared type no record can hold, and its type; "" if all can be held."""
    return next((f"{name}: {kind}" for name, kind in declared(made).items() if kind not in TYPES), "")


def wrong(made: type[Operation], values: Mapping[str, object]) -> str:
    """The first of ``values`` that no operation of the kind ``made`` can hold, or that it has no field for; "" if all are good."""
    rules = _RULES.get(made)
    if rules is None:
        rules = _RULES[made] = {name: (TYPES[kind], VALUES.get(name)) for name, kind in declared(made).items()}
    for name, value in values.items():
        if name not in rules:
            return name
        good, few = rules[name]
        if not good(value) or (few is not None and value not in few):
            return name
    return ""


#: What ``wrong`` goes by: for each field what is good for its type, and the few values that it takes, if they are few.
_RULES: dict[type[Operation], dict[str, tuple[Callable[[object], bool], frozenset[object] | None]]] = {}
