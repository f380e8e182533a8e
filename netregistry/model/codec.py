"""Turn values into JSON and back, and describe them by JSON schemas, all three from the annotations of one NamedTuple.

A field is ``mac: Mac``, where ``Mac`` is ``Annotated[str, Text(...)]`` (netregistry.model.kinds): the type says what shape the JSON has,
each kind behind it what the value may be. ``read`` takes what people and programs send, checks everything, and names the field that is
wrong; ``load`` takes what ``dump`` has written, and checks its shape alone: a start reads hundreds of thousands of values.
"""

from __future__ import annotations

import json
import types
from functools import cache
from typing import Annotated, Any, Literal, NamedTuple, Protocol, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from runtime.errors import USAGE, NetcommonError, escaped

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    Reader = Callable[[Any, str], Any]

T = TypeVar("T")
PLAIN: dict[Any, tuple[str, str]] = {str: ("string", "a string"), bool: ("boolean", "true or false")}
LONGEST_NAME = 64  #: characters of a field's name that is shown as it is
DRAFT = "https://json-schema.org/draft/2020-12/schema"


class Kind(Protocol):
    """Say what a value may be, beyond its type."""

    @property
    def expected(self) -> str: ...

    def read(self, value: Any) -> Any:
        """Give the value in canonical form. Raises ValueError."""

    def schema(self) -> dict[str, Any]: ...


class Invalid(NetcommonError):
    """A value is not what its field takes: ``field`` is its place, such as "ranges[0].first"."""

    status = USAGE

    def __init__(self, field: str, value: object, expected: str) -> None:
        self.field, self.value, self.expected = field, value, expected
        super().__init__(f"{field or 'it'} is {_shown(value)}: expected {expected}")


def _shown(value: object) -> str:
    try:
        return escaped(json.dumps(value) if not isinstance(value, str) else value)
    except (TypeError, ValueError, RecursionError):
        return escaped(type(value).__name__)


# -- from JSON


def read(made: type[T], value: Any, where: str = "") -> T:
    """Give the object that a JSON value describes, every field checked. Raises Invalid."""
    return cast("T", _reader(cast("Any", made), True)(value, where))


def read_fields(made: type, value: Any, allowed: Iterable[str], where: str = "") -> dict[str, Any]:
    """Give those fields of ``made`` that a JSON object names, of those ``allowed``, checked. Raises Invalid."""
    if not isinstance(value, dict):
        raise Invalid(where, value, "an object")
    fields, allowed = _fields(made), tuple(allowed)
    for name in value:
        if name not in allowed:
            raise Invalid(below(where, name), value[name], f"no such field; there are {', '.join(allowed)}")
    return {name: _reader(fields[name], True)(each, below(where, name)) for name, each in value.items()}


def load(made: type[T], data: bytes) -> T:
    """Give the object whose ``dump`` is ``data``. Raises Invalid where it is none of this type."""
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        raise Invalid("", data[:80].decode("latin-1"), "JSON") from None
    return cast("T", _reader(cast("Any", made), False)(value, ""))


def below(where: str, name: object) -> str:
    """Give the place of a field, as Invalid names it; a name that nobody would give is escaped, and cut."""
    usual = name if isinstance(name, str) and len(name) <= LONGEST_NAME and name.isascii() and name.isidentifier() else ""
    shown = usual or escaped(name)
    return f"{where}.{shown}" if where else shown


@cache
def _fields(made: type) -> dict[str, Any]:
    hints = get_type_hints(made, include_extras=True)
    return {name: hints[name] for name in made._fields}  # type: ignore[attr-defined]


@cache
def _reader(hint: Any, strict: bool) -> Reader:
    """Give what reads values of one type. ``strict``: with its kinds."""
    origin, inner = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return _annotated(_reader(inner[0], strict), inner[1:]) if strict else _reader(inner[0], strict)
    if hint is Any:
        return lambda value, _where: value
    if hint in PLAIN:
        return _plain(hint, PLAIN[hint][1])
    if hint is int:
        return _number
    if hint is float:
        return _real
    if origin is Literal:
        return _choice(inner)
    if origin in (types.UnionType, Union):
        (kind,) = (each for each in inner if each is not type(None))
        reader = _reader(kind, strict)
        return lambda value, where: None if value is None else reader(value, where)
    if origin is tuple:
        return _several(_reader(inner[0], strict))
    return _object(hint, strict)


def _annotated(base: Reader, kinds: tuple[Kind, ...]) -> Reader:
    def reader(value: Any, where: str) -> Any:
        found = base(value, where)
        for kind in kinds:
            try:
                found = kind.read(found)
            except ValueError:
                raise Invalid(where, value, kind.expected) from None
        return found

    return reader


def _plain(kind: type, expected: str) -> Reader:
    def reader(value: Any, where: str) -> Any:
        if type(value) is not kind:
            raise Invalid(where, value, expected)
        return value

    return reader


def _number(value: Any, where: str) -> int:
    if type(value) is not int or not -(1 << 63) <= value < 1 << 63:
        raise Invalid(where, value, "a whole number")
    return value


def _real(value: Any, where: str) -> float:
    if type(value) not in (int, float) or not -1e15 < value < 1e15:  # NaN is in no order
        raise Invalid(where, value, "a number")
    return float(value)


def _choice(choices: tuple[Any, ...]) -> Reader:
    def reader(value: Any, where: str) -> Any:
        if not isinstance(value, str) or value not in choices:
            raise Invalid(where, value, f"one of {', '.join(choices)}")
        return value

    return reader


def _several(each: Reader) -> Reader:
    def reader(value: Any, where: str) -> Any:
        if not isinstance(value, list):
            raise Invalid(where, value, "a list")
        return tuple(each(one, f"{where}[{place}]") for place, one in enumerate(value))

    return reader


def _object(made: Any, strict: bool) -> Reader:
    fields = {name: _reader(hint, strict) for name, hint in _fields(made).items()}
    needed = [name for name in fields if name not in made._field_defaults]

    def reader(value: Any, where: str) -> Any:
        if not isinstance(value, dict):
            raise Invalid(where, value, "an object")
        found = {}
        for name, each in value.items():
            if name not in fields:
                raise Invalid(below(where, name), each, f"no such field; there are {', '.join(fields)}")
            found[name] = fields[name](each, f"{where}.{name}" if where else name)
        for name in needed:
            if name not in found:
                raise Invalid(below(where, name), None, "a value: it is missing")
        return made(**found)

    return reader


# -- to JSON


def write(value: Any) -> Any:
    """Give the JSON value of an object; every field, also those that have their default."""
    if isinstance(value, tuple):
        fields = getattr(value, "_fields", None)
        if fields is None:
            return [write(each) for each in value]
        return {name: write(each) if isinstance(each, tuple) else each for name, each in zip(fields, value, strict=True)}
    return value


def dump(value: Any) -> bytes:
    """Give the bytes that are stored: the same value gives the same bytes. Fields that have their default are left out."""
    return json.dumps(_short(value), separators=(",", ":")).encode("ascii")


def _short(value: Any) -> Any:
    if not isinstance(value, tuple):
        return value
    fields = getattr(value, "_fields", None)
    if fields is None:
        return [_short(each) for each in value]
    often: Mapping[str, Any] = value._field_defaults  # type: ignore[attr-defined]
    return {name: _short(each) for name, each in zip(fields, value, strict=True) if name not in often or each != often[name]}


# -- schemas


def schema(made: type, only: Iterable[str] = (), required: Iterable[str] | None = None) -> dict[str, Any]:
    """Describe the JSON of ``made``: as ``read`` takes it, or of those fields ``only`` that read_fields takes."""
    fields = {name: hint for name, hint in _fields(made).items() if not only or name in tuple(only)}
    often: Mapping[str, Any] = made._field_defaults  # type: ignore[attr-defined]
    needed = [name for name in fields if name not in often] if required is None else list(required)
    about = " ".join((made.__doc__ or "").split())
    return {
        "type": "object",
        **({} if about.startswith(f"{made.__name__}(") else {"description": about}),
        "properties": {name: _schema(hint) for name, hint in fields.items()},
        **({"required": needed} if needed else {}),
        "additionalProperties": False,
    }


def describe(hint: Any) -> dict[str, Any]:
    """Describe the JSON of one field by its annotation."""
    return _schema(hint)


def _schema(hint: Any) -> dict[str, Any]:
    origin, inner = get_origin(hint), get_args(hint)
    if origin is Annotated:
        found = _schema(inner[0])
        for kind in inner[1:]:
            found |= kind.schema()
        return found
    if hint is Any:
        return {}
    if hint in PLAIN:
        return {"type": PLAIN[hint][0]}
    if hint in (int, float):
        return {"type": "integer" if hint is int else "number"}
    if origin is Literal:
        return {"enum": list(inner)}
    if origin in (types.UnionType, Union):
        return {"anyOf": [_schema(each) for each in inner if each is not type(None)] + [{"type": "null"}]}
    if origin is tuple:
        return {"type": "array", "items": _schema(inner[0])}
    return schema(hint)


class Text(NamedTuple):
    """Text that a rule takes, in the form that the rule gives it. ``empty``: "" means none."""

    rule: Callable[[str], str]
    expected: str
    empty: bool = False

    def read(self, value: Any) -> Any:
        """As Kind says; so do the others below."""
        if value == "" and self.empty:
            return value
        try:
            return self.rule(value)
        except NetcommonError:
            raise ValueError from None

    def schema(self) -> dict[str, Any]:
        return {"description": self.expected + (', or ""' if self.empty else "")}


class Between(NamedTuple):
    """A number within bounds, both included. ``zero``: 0 too, for none."""

    low: float
    high: float
    zero: bool = False

    @property
    def expected(self) -> str:
        return f"a number from {self.low} to {self.high}" + (", or 0" if self.zero else "")

    def read(self, value: Any) -> Any:
        if not (self.low <= value <= self.high or (self.zero and value == 0)):
            raise ValueError
        return value

    def schema(self) -> dict[str, Any]:
        bounds = {"minimum": self.low, "maximum": self.high}
        return {"anyOf": [bounds, {"const": 0}]} if self.zero else bounds


class Most(NamedTuple):
    """So many values at most, none twice."""

    most: int

    @property
    def expected(self) -> str:
        return f"at most {self.most} values, none twice"

    def read(self, value: Any) -> Any:
        if len(value) > self.most or len(set(value)) != len(value):
            raise ValueError
        return value

    def schema(self) -> dict[str, Any]:
        return {"maxItems": self.most, "uniqueItems": True}
