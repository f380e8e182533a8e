"""The file of what is known of an underlay: what it holds, what is refused, and that a damaged one is no other."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime import underlay, underlay_record
from runtime.errors import NicInvalid, RecordTooNew, RecordUnreadable
from runtime.paths import Paths
from runtime.underlay import from_json, to_json, underlay_of
from runtime.underlay_record import UnderlayRecord
from tests.support.node_underlay import EPOCH, OWN, address, endpoint, known, said
from tests.support.registry import NODES

JUNK: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5), lambda inner: st.lists(inner, max_size=3), max_leaves=5
)


def test_what_is_written_is_read(tmp_path: Path) -> None:
    paths = Paths.under(str(tmp_path))
    assert underlay.read(paths) is None
    assert underlay.write(paths, known(0, 1)) and not underlay.write(paths, known(0, 1))
    assert underlay.read(paths) == known(0, 1)
    assert underlay.remove(paths) and not underlay.remove(paths)
    assert underlay.read(paths) is None


def test_the_addresses_of_a_node_begin_with_its_own() -> None:
    assert known(0, 1).own == OWN
    assert known(0, 1).addresses == (OWN, address(0), address(1))


BAD: dict[str, dict[str, Any]] = {
    "a wider prefix": {"prefix": "fd00:1:2:7::/63"},
    "a narrower prefix": {"prefix": "fd00:1:2:7::/65"},
    "host bits": {"prefix": "fd00:1:2:7::1/64"},
    "a prefix of one link": {"prefix": "fe80::/64"},
    "a multicast prefix": {"prefix": "ff00::/64"},
    "a prefix of IPv4": {"prefix": "10.0.0.0/24"},
    "no generation": {"generation": None},
    "a generation that is true": {"generation": True},
    "a negative generation": {"generation": -1},
    "endpoints that are none": {"endpoints": {}},
    "an endpoint that is none": {"endpoints": ["x"]},
    "the node's own address": {"endpoints": [endpoint(0, address=OWN)]},
    "an address of the reserved block": {"endpoints": [endpoint(0, address="fd00:1:2:7::ffff")]},
    "an address elsewhere": {"endpoints": [endpoint(0, address="fd00:1:2:8::1:0")]},
    "an address twice": {"endpoints": [endpoint(0), endpoint(1, address=address(0))]},
    "a kind that is no label": {"endpoints": [endpoint(0, kind="a b")]},
    "a kind with a hyphen at its end": {"endpoints": [endpoint(0, kind="a-")]},
    "a name that is no host's": {"endpoints": [endpoint(0, name="web 1")]},
    "a name that is too long": {"endpoints": [endpoint(0, name=".".join(["a" * 63] * 4))]},
    "an instance with a slash": {"endpoints": [endpoint(0, instance="a/b")]},
    "migrating that is a number": {"endpoints": [endpoint(0, migrating=1)]},
    "a state that is no word": {"endpoints": [endpoint(0, state="a b")]},
}


@pytest.mark.parametrize("name", BAD)
def test_what_cannot_be_is_refused(name: str) -> None:
    with pytest.raises(NicInvalid):
        underlay_of(NODES[0], f"{EPOCH}:1", said(**BAD[name]))


def test_what_a_newer_registry_says_more_is_passed_over() -> None:
    more = said(endpoint(0, port=5900), colour="blue")
    assert underlay_of(NODES[0], f"{EPOCH}:1", more) == known(0)


@pytest.mark.parametrize("field", ["generation", "prefix", "endpoints", "node", "revision"])
@given(value=JUNK)
def test_a_damaged_file_is_an_error_of_ours(field: str, value: Any) -> None:
    import json

    stored = {**json.loads(to_json(known(0))), field: value}
    try:
        found = from_json(json.dumps(stored).encode())
    except RecordUnreadable:
        return
    assert from_json(to_json(found)) == found


def test_a_newer_versions_file_is_left_alone(tmp_path: Path) -> None:
    paths = Paths.under(str(tmp_path))
    underlay.write(paths, known(0))
    path = Path(paths.lib, underlay.NAME)
    path.write_bytes(path.read_bytes().replace(b'"schema":1', b'"schema":2'))
    for work in (lambda: underlay.read(paths), lambda: underlay.write(paths, known(1))):
        with pytest.raises(RecordTooNew):
            work()


def test_a_record_is_of_its_boot_and_namespace(tmp_path: Path) -> None:
    paths = Paths.under(str(tmp_path))
    operations = ({"kind": "unreachable-rest", "prefix": "fd00::/64", "found": "absent"},)
    record = UnderlayRecord("boot-1", 3, operations, ("unreachable-rest fd00::/64",))
    underlay_record.write(paths, 1, record)
    assert underlay_record.read(paths, 1, "boot-1") == record
    assert underlay_record.read(paths, 1, "boot-2") is None
    assert underlay_record.read(paths, 2, "boot-1") is None
    underlay_record.remove(paths, 1)
    assert underlay_record.read(paths, 1, "boot-1") is None


def test_a_record_of_an_earlier_version_has_nothing_that_was_never_there(tmp_path: Path) -> None:
    paths = Paths.under(str(tmp_path))
    underlay_record.write(paths, 1, UnderlayRecord("b", 3))
    Path(paths.state, "underlay/1.json").write_text('{"schema":1,"boot":"b","generation":3,"operations":[]}')
    assert underlay_record.read(paths, 1, "b") == UnderlayRecord("b", 3)


ODD = [
    *("", "[]", '{"schema":1}', '{"schema":1,"boot":"b","generation":0,"operations":[1]}'),
    *(f'{{"schema":1,"boot":"b","generation":0,"operations":[],"pending":{pending}}}' for pending in ("1", "[1]", "null")),
]


@pytest.mark.parametrize("text", ODD)
def test_a_damaged_record_is_put_aside(tmp_path: Path, text: str) -> None:
    paths = Paths.under(str(tmp_path))
    underlay_record.write(paths, 1, UnderlayRecord("b"))
    Path(paths.state, "underlay/1.json").write_text(text)
    with pytest.raises(RecordUnreadable):
        underlay_record.read(paths, 1, "b")
    assert "quarantine/1.json-0" in underlay_record.put_aside(paths, 1, "it is damaged")
    assert Path(paths.state, "underlay/quarantine/1.json-0").read_text() == text
