"""Records as JSON."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime.environment import environment_of, nic_from_environment
from runtime.errors import NicInvalid, RecordTooNew, RecordUnreadable
from runtime.record import CHANGING, LONGEST, SCHEMA, STATES, UP, Record, from_json, to_json
from tests.support.nics import calls, environment, nic, record, valid_environments

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
operations = st.lists(
    st.builds(lambda kind, rest: rest | {"kind": kind}, st.text(max_size=8), st.dictionaries(st.text(max_size=5), json_values)), max_size=3
)


@given(valid_environments(), operations, st.sampled_from(STATES), st.booleans(), st.integers(0, (1 << 64) - 1), st.floats(0, 1e12))
def test_round_trip(variables: dict[str, str], done: list[dict[str, object]], state: str, flag: bool, netns: int, seconds: float) -> None:
    stored = Record(
        nic_from_environment(variables), 12, "boot", netns, state, tuple(done), "kvm-ifup", flag, seconds, seconds, SCHEMA, not flag, flag
    )
    if state == CHANGING:
        stored = stored._replace(before=stored._replace(state=UP, operations=tuple(done[:1])))
    data = to_json(stored)
    assert data.isascii()
    assert from_json(data) == stored


def test_recorded_calls_round_trip() -> None:
    for where, variables, arguments in calls():
        stored = record(nic_from_environment(variables, arguments))
        assert from_json(to_json(stored)) == stored, where


def test_a_nic_without_environment_and_bytes_that_are_no_utf8() -> None:
    bare = nic()._replace(environment={})
    assert from_json(to_json(record(bare))).nic == bare
    odd = nic_from_environment(environment() | {"ODD\udcff": "\udc80\udcfe\nx"})
    assert from_json(to_json(record(odd))).nic.environment["ODD\udcff"] == "\udc80\udcfe\nx"


def changed(**changes: object) -> bytes:
    stored = json.loads(to_json(record()))
    for field, value in changes.items():
        if value is ...:
            del stored[field]
        else:
            stored[field] = value
    return json.dumps(stored).encode()


def test_older_schema_is_read() -> None:
    assert from_json(changed(schema=0, scripts=..., moved=..., door=..., incoming=...)) == record()._replace(schema=0)
    assert from_json(changed(schema=1, incoming=...)) == record()._replace(schema=1)
    assert from_json(to_json(from_json(changed(schema=0, scripts=..., moved=..., door=..., incoming=...)))) == record()


def test_options_of_the_settings() -> None:
    """An earlier version kept none; what is no option's value is no record."""
    given: dict[str, object] = {"addresses": ("10.0.0.8", "fd00::8"), "isolated": True, "rate_in": 8, "rp_filter": "loose"}
    for options in (given, {}, None):
        stored = record()._replace(by_settings=options)
        assert from_json(to_json(stored)) == stored
    assert from_json(changed(by_settings=...)).by_settings is None
    for value in ([], "x", {"rate_in": None}, {"rate_in": {}}, {"addresses": [1]}):
        with pytest.raises(RecordUnreadable, match="by_settings"):
            from_json(changed(by_settings=value))


def test_newer_schema_is_refused_by_name() -> None:
    with pytest.raises(RecordTooNew, match=f"schema {SCHEMA + 1} is newer"):
        from_json(changed(schema=SCHEMA + 1, nic="a form we do not know"))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b"\xff\xfe",
        b"\0" * 100,
        b"[" * 1_000_000,
        b'{"schema":' + b"9" * 10_000 + b"}",
        b" " * (2 * LONGEST + 1),
        b'{"a":' * 500_000,
        changed(schema=-1),
        changed(schema=True),
        changed(schema="1"),
        changed(schema=1.0),
        changed(schema=...),
        changed(nic=...),
        changed(nic=[]),
        changed(nic={}),
        changed(nic={**environment_of(nic()), "INSTANCE": "../x"}),
        changed(nic={**environment_of(nic()), "MODE": 1}),
        changed(nic={**environment_of(nic()), "INTERFACE_UUID": ""} | {"MAC": ""}),
        changed(environment=None),
        changed(environment={"A": 1}),
        changed(ifindex=-1),
        changed(ifindex=True),
        changed(ifindex="7"),
        changed(ifindex=1 << 64),
        changed(boot=None),
        changed(netns=1.5),
        changed(state="gone"),
        changed(state="changing"),
        changed(state="changing", before={}),
        changed(state="changing", before=[]),
        changed(state="changing", before=json.loads(changed(state="reverting"))),
        changed(state="changing", before=json.loads(changed(state="up", ifindex=99))),
        changed(state="changing", before=json.loads(changed(state="up", operations=[1]))),
        changed(state="up", before=json.loads(changed(state="up"))),
        changed(state=[]),
        changed(operations={}),
        changed(operations=[1]),
        changed(operations=[{}]),
        changed(operations=[{"kind": 1}]),
        changed(scripts=1),
        changed(moved=None),
        changed(incoming=0),
        changed(door=3),
        changed(created="now"),
        changed(created=True),
        changed(created=10**400),
        changed(monotonic=1e300),
        to_json(record()).replace(b'"created":0.0', b'"created":NaN'),
        to_json(record()).replace(b'"operations":[]', b'"operations":[{"kind":"x","value":Infinity}]'),
        to_json(record()).replace(b'"created":0.0', b'"created":1e999'),
    ],
)
def test_whatever_is_no_record_is_unreadable_and_nothing_worse(data: bytes) -> None:
    with pytest.raises(RecordUnreadable) as caught:
        from_json(data)
    assert str(caught.value).isprintable()


def test_sixty_four_megabytes_are_refused_before_parsing() -> None:
    with pytest.raises(RecordUnreadable, match="more than"):
        from_json(b'{"a":"' + b"x" * (64 << 20) + b'"}')


@given(st.data())
def test_damaged_records_are_unreadable_or_valid(data: st.DataObject) -> None:
    whole = bytearray(to_json(record()))
    for _ in range(data.draw(st.integers(1, 4))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    cut = whole[: data.draw(st.integers(0, len(whole)))] if data.draw(st.booleans()) else whole
    try:
        from_json(bytes(cut))
    except (RecordUnreadable, RecordTooNew) as error:
        assert str(error).isprintable()


def test_an_environment_that_is_too_large_is_refused_before_it_is_written() -> None:
    with pytest.raises(NicInvalid, match="environment"):
        to_json(record(nic_from_environment(environment() | {"X": "\udcff" * (LONGEST // 6)})))
