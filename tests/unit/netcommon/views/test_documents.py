"""The documents of top, events and trace are as docs/seeing.md says, field by field."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from netagent.observe.history import KINDS
from netcommon.cli.terminal import KEYS
from netcommon.views.live import events, hook_stats, top
from netcommon.views.live.top import SORTS
from netcommon.views.trace import request as trace
from netcommon.views.trace import trail
from runtime.record import STATES
from tests.support.cli import equipped, with_two
from tests.support.seeing import fits, rows

OBJECTS: dict[str, dict[str, type]] = {
    top.SCHEMA: {"document": top.Top, "agent": top.Agent, "calls": hook_stats.Calls, "row": top.Row},
    trace.SCHEMA: {"document": trail.Path, "met": trail.Step, "arrival": trail.Arrival},
    events.SCHEMA: {"document": events.Event},
}


@pytest.mark.parametrize("schema", OBJECTS)
def test_the_schemas_are_documented(page: str, schema: str) -> None:
    said = rows(page, schema)
    for name, kind in OBJECTS[schema].items():
        head = ["schema", "version"] if name == "document" else []
        fields: tuple[str, ...] = kind._fields  # type: ignore[attr-defined]
        assert [field for of, field, _value in said if of == name] == [*head, *fields]
    assert {of for of, _field, _value in said} == set(OBJECTS[schema])


def valid(document: dict[str, Any], page: str) -> bool:
    said = rows(page, document["schema"])
    wanted = {field: value for of, field, value in said if of == "document"}

    def holds(value: object, kind: str) -> bool:
        if kind.startswith("map of "):
            return isinstance(value, dict) and all(fits(each, kind.removeprefix("map of "), said) for each in value.values())
        return fits(value, kind, said)

    return set(document) == set(wanted) and all(holds(document[field], kind) for field, kind in wanted.items())


@pytest.mark.parametrize("command", [("top",), ("trace", "tap0"), ("events",)])
def test_the_documents_are_as_documented(page: str, tmp_path: Path, command: tuple[str, ...]) -> None:
    cli = with_two(equipped(tmp_path))
    text = cli(*command, "--json").stdout
    document: dict[str, Any] = json.loads(text.splitlines()[0] if command == ("events",) else text)
    assert valid(document, page)
    del document["version"]
    assert not valid(document, page)


def test_every_kind_of_event_is_in_the_page(page: str) -> None:
    table = page[page.index("| event | meaning |") : page.index("The agent tells: it keeps")]
    named = {name.strip() for row in table.splitlines() if row.startswith("| ") for name in row.split("|")[1].split(",")}
    assert set(KINDS) <= named and named <= {*KINDS, "event", "---"}


def test_keys_and_sorts() -> None:
    assert {"q", "s", " ", "\x03"} <= set(KEYS) and next(iter(SORTS)) == "traffic"


def test_every_state_of_a_record_is_in_the_schemas(page: str) -> None:
    schema = json.loads(Path("docs/schemas/netcommon-check.json").read_text())
    assert set(STATES) <= {value for each in _enums(schema) for value in each}
    assert ", ".join(f"`{state}`" for state in STATES) in page


def _enums(value: object) -> Iterator[list[object]]:
    if isinstance(value, dict):
        if isinstance(value.get("enum"), list):
            yield value["enum"]
        for each in value.values():
            yield from _enums(each)
    elif isinstance(value, list):
        for each in value:
            yield from _enums(each)
