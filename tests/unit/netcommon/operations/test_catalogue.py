"""The catalogue of operations: what each class says of itself, and the tables that are made of that."""

from __future__ import annotations

from typing import NamedTuple

import pytest

from netcommon.operations import catalogue, from_json, kind
from netcommon.operations.base import Operation, UnknownKind, declared
from netcommon.operations.kinds import KINDS


class Plain(NamedTuple):
    """An operation's only field."""

    found: str


def made(name: str, module: str) -> type[Operation]:
    """A class of the kind ``name``, as if it stood in ``module``."""
    return type(name, (Plain, Operation), {"KIND": name, "__slots__": (), "__module__": module})


def names(classes: list[type[Operation]]) -> list[str]:
    return [each.KIND for each in classes]


def test_the_table_of_kinds_is_that_of_the_classes() -> None:
    """Run python3 -m netcommon.operations.catalogue after a change."""
    assert catalogue.FILE.read_text() == catalogue.text()


@pytest.mark.parametrize("name", KINDS)
def test_each_class_says_what_it_is(name: str) -> None:
    one = kind(name)
    assert one.REPAIRED and one.MIGRATION and one.sentence is not Operation.sentence
    assert not {"\n", "|", '"'}.intersection(one.REPAIRED + one.MIGRATION)
    assert {field for field, _values in one.VALUES} <= set(declared(one))


def test_a_new_one_stands_beside_those_of_its_module() -> None:
    old = [made("a", "one"), made("b", "two"), made("c", "three")]
    new = [made("x", "two"), made("y", "four")]
    assert names(catalogue.ordered([*new, *old], ["a", "b", "c"])) == ["a", "b", "x", "c", "y"]
    assert names(catalogue.ordered(old[1:], ["a", "b", "c"])) == ["b", "c"]


def test_two_classes_of_one_kind_are_refused() -> None:
    with pytest.raises(ValueError, match="a and a are both of the kind a"):
        catalogue.ordered([made("a", "one"), made("a", "two")], [])


def test_a_name_alone_decides_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A field called ``found`` takes what its class says, and any text if that says nothing."""
    few = made("few", "one")
    few.VALUES = (("found", frozenset({"ours"})),)
    monkeypatch.setattr("netcommon.operations._LOADED", {"few": few, "any": made("any", "one")})
    assert from_json({"kind": "any", "found": "elsewhere"})._asdict() == {"found": "elsewhere"}
    assert from_json({"kind": "few", "found": "ours"})._asdict() == {"found": "ours"}
    with pytest.raises(UnknownKind, match="'found' is not as we know it"):
        from_json({"kind": "few", "found": "elsewhere"})
