"""JSON in and out: what is read is checked and named, what is written is read again, and the schema says the same."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from netregistry.model import keys
from netregistry.model.codec import Invalid, dump, load, read, read_fields, schema, write
from netregistry.model.network import Network
from netregistry.model.nic import Nic, Report
from netregistry.model.node import Node, Reports

UUID = "13264fb6-0667-415f-9a43-786dc01cbf24"
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=10), inner, max_size=3),
    max_leaves=10,
)
GOOD: dict[str, Any] = {
    "uuid": UUID,
    "name": "eth0",
    "mac": "aa:00:00:00:00:01",
    "ip": "192.0.2.1",
    "addresses": ["2001:db8::1"],
    "index": 3,
    "vlan": ".10",
    "options": [{"name": "isolated", "value": "yes", "until": 5}],
    "primary": True,
    "tags": ["a:b"],
}


def test_there_and_back() -> None:
    nic = read(Nic, GOOD)
    assert load(Nic, dump(nic)) == nic == read(Nic, write(nic)) and json.loads(dump(nic)) == GOOD
    assert read(Nic, {"uuid": UUID.upper(), "mac": "AA:00:00:00:00:01", "ip": "2001:DB8:0::1"})[:1] == (UUID,)
    assert read(Nic, {"uuid": UUID, "ip": "2001:DB8:0::1"}).ip == "2001:db8::1", "one address has one text"


@pytest.mark.parametrize("made", [Nic, Network, Node, Report, Reports])
@given(value=json_values)
def test_whatever_comes_is_read_or_named(made: Any, value: Any) -> None:
    for attempt in (lambda: read(made, value), lambda: load(made, json.dumps(value).encode())):
        try:
            attempt()
        except Invalid as error:
            assert error.expected and str(error).isprintable()


@given(st.sampled_from(sorted(Nic._fields)), json_values)
def test_what_is_read_is_as_the_schema_says(field: str, value: Any) -> None:
    """The schema may take more, for it does not know every kind; never less."""
    document = {**GOOD, field: value}
    try:
        nic = read(Nic, document)
    except Invalid as error:
        assert error.field.startswith(field)
        return
    validator = Draft202012Validator(schema(Nic))
    assert validator.is_valid(document) and validator.is_valid(write(nic))
    assert load(Nic, dump(nic)) == nic


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"null", b"\xff", b"[" * 100_000, b'{"uuid": 5}', b'{"colour": 1}'])
def test_what_is_stored_and_is_not_ours(data: bytes) -> None:
    with pytest.raises(Invalid):
        load(Nic, data)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -1, 1e12, True, "5", None])
def test_times(value: object) -> None:
    with pytest.raises(Invalid) as refused:
        read(Nic, {"uuid": UUID, "options": [{"name": "a", "value": "b", "until": value}]})
    assert refused.value.field == "options[0].until"


def test_fields_alone() -> None:
    assert read_fields(Nic, {"mac": "AA:00:00:00:00:01"}, ("mac", "ip")) == {"mac": "aa:00:00:00:00:01"}
    for value in ({"name": "x"}, [], {"mac": 1}):
        with pytest.raises(Invalid):
            read_fields(Nic, value, ("mac", "ip"))


@pytest.mark.parametrize("made", [*{id(one): one for one in keys.TYPES.values()}.values()])
def test_every_type_has_a_schema(made: Any) -> None:
    Draft202012Validator.check_schema(schema(made))
