"""runtime.typed's NamedTuple against the standard library's, in everything that is used of one."""

from __future__ import annotations

import copy
import pickle
import subprocess
import typing

import pytest

from runtime import typed
from tests.support.bootstrap import PYTHON, ROOT


class Ours(typed.NamedTuple):
    """A doc string."""

    first: int
    second: str = "two"
    third: tuple[int, ...] = ()  #: a comment

    @property
    def double(self) -> int:
        return 2 * self.first

    @classmethod
    def made(cls) -> Ours:
        return cls(9)


class Theirs(typing.NamedTuple):
    """A doc string."""

    first: int
    second: str = "two"
    third: tuple[int, ...] = ()


class Base(typed.NamedTuple):
    """Fields of a class that adds what they do, as operations are."""

    one: str
    two: int = 2


class Below(Base):
    __slots__ = ()

    def both(self) -> str:
        return f"{self.one}{self.two}"


class Nothing(typed.NamedTuple):
    pass


CALLS: list[tuple[tuple[object, ...], dict[str, object]]] = [
    ((1,), {}),
    ((1, "x"), {}),
    ((1, "x", (3,)), {}),
    ((), {"first": 1}),
    ((1,), {"third": (1,)}),
    ((), {"third": (), "second": "", "first": 0}),
    ((), {}),
    ((), {"second": "x"}),
    ((1, 2, 3, 4), {}),
    ((1,), {"first": 2}),
    ((1,), {"fourth": 2}),
]


def outcome(kind: typing.Any, name: str, *values: object, **named: object) -> object:
    try:
        made = getattr(kind, name)(*values, **named) if name else kind(*values, **named)
    except (TypeError, ValueError) as error:
        return type(error)
    return tuple(made)


@pytest.mark.parametrize(("values", "named"), CALLS)
def test_made_alike(values: tuple[object, ...], named: dict[str, object]) -> None:
    assert outcome(Ours, "", *values, **named) == outcome(Theirs, "", *values, **named)
    assert outcome(Ours, "_make", values) == outcome(Theirs, "_make", values)
    assert outcome(Ours(7), "_replace", **named) == outcome(Theirs(7), "_replace", **named)


def test_like_theirs() -> None:
    ours, theirs = Ours(1, third=(4,)), typing.cast(typing.Any, Theirs(1, third=(4,)))
    assert ours == theirs and hash(ours) == hash(theirs) and ours._asdict() == theirs._asdict()
    assert repr(ours) == repr(theirs).replace("Theirs", "Ours")
    for name in ("_fields", "_field_defaults", "__match_args__", "__doc__", "__slots__"):
        assert getattr(Ours, name) == getattr(Theirs, name)
    assert Ours.__bases__[0].__bases__ == Theirs.__bases__ == (tuple,)
    assert type(Ours) is type and Ours.__module__ == __name__ and Ours.__qualname__ == "Ours"


def test_methods_and_properties() -> None:
    assert Ours(4).double == 8 and Ours.made().first == 9 and Below("a").both() == "a2"
    assert isinstance(Below("a")._replace(two=3), Below) and Below("a") == Base("a")
    assert tuple(Nothing()) == ()


def test_immutable_and_without_room_for_more() -> None:
    for thing in (Ours(1), Below("a")):
        for name in ("strange", *thing._fields):
            with pytest.raises(AttributeError):
                setattr(thing, name, 1)


def test_matched_by_position_and_name() -> None:
    match Ours(1, "x"):
        case Ours(1, second=word):
            assert word == "x"
        case _:
            raise AssertionError("no match")


def test_copied() -> None:
    one = Ours(1, "x")
    assert pickle.loads(pickle.dumps(one)) == copy.deepcopy(one) == copy.copy(one) == one  # noqa: S301
    assert type(pickle.loads(pickle.dumps(one))) is Ours  # noqa: S301


def test_a_default_comes_last() -> None:
    with pytest.raises(TypeError, match="without a default"):
        exec("class Wrong(typed.NamedTuple):\n    one: int = 1\n    two: int", {"typed": typed, "__annotations__": {}})  # noqa: S102


def test_it_loads_neither_typing_nor_collections() -> None:
    program = (
        "import sys; sys.path.insert(0, sys.argv[1]); import runtime.typed\n"
        "print([name for name in ('typing', 'collections', 're', 'enum', 'functools') if name in sys.modules])"
    )
    ran = subprocess.run([PYTHON, "-IS", "-c", program, str(ROOT)], capture_output=True, text=True, check=True)
    assert ran.stdout == "[]\n"
