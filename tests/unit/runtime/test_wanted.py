"""What was changed of NICs while they ran: the files, whatever lies there, and the link of the first end."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime import wanted
from runtime.errors import HostRefused, RecordTooNew, RecordUnreadable
from runtime.paths import Paths
from runtime.wanted import End, Entry, Moment, Wanted, from_json, to_json
from tests.support.nics import U1

U2 = U1[:-1] + ("0" if U1[-1] != "0" else "1")
boots = st.from_regex(r"\A[!-~]{1,9}\Z")
moments = st.builds(Moment, boots, st.floats(0, 1e12), st.floats(0, 1e12))
names = st.from_regex(r"\A[a-z][a-z0-9_]{0,8}\Z")
ending = st.builds(Entry, names, st.text(max_size=9), st.builds(End, moments, moments), st.none() | st.text(max_size=9))
entry = st.builds(Entry, names, st.text(max_size=9), st.none(), st.none()) | ending
entries = st.lists(entry, max_size=3, unique_by=lambda one: one.option)


@given(entries, entries, st.none() | entries)
def test_round_trip(local: list[Entry], registry: list[Entry], pending: list[Entry] | None) -> None:
    one = Wanted(tuple(local), tuple(registry), None if pending is None else tuple(pending))
    assert from_json(to_json(one)) == one and to_json(one).isascii()


GOOD = {"schema": 1, "local": {"rate_in": {"value": "8mbit", "end": None, "then": None}}, "registry": {}, "pending": None}
AT = {"boot": "b", "monotonic": 1, "wall": 2}


@pytest.mark.parametrize(
    "stored",
    [
        b"",
        b"{",
        b"[]",
        b"\xff",
        b"[" * 1_000_000,
        *(
            json.dumps({**GOOD, **wrong}).encode()
            for wrong in (
                {"schema": "1"},
                {"schema": 0},
                {"more": 1},
                {"local": []},
                {"local": {"rate_in": "8mbit"}},
                {"local": {"rate_in": {"value": 8, "end": None, "then": None}}},
                {"local": {"rate in": {"value": "8", "end": None, "then": None}}},
                {"local": {"": {"value": "8", "end": None, "then": None}}},
                {"registry": None},
                {"pending": {"a": {"value": "b"}}},
                {"local": {"a": {"value": "b", "end": {"since": AT}, "then": None}}},
                {"local": {"a": {"value": "b", "end": {"since": AT, "until": {**AT, "wall": -1}}, "then": None}}},
                {"local": {"a": {"value": "b", "end": {"since": AT, "until": {**AT, "boot": 3}}, "then": None}}},
                {"local": {"a": {"value": "b", "end": {"since": AT, "until": {**AT, "boot": "b c"}}, "then": None}}},
                {"local": {"a": {"value": "b", "end": None, "then": "c"}}},
                {"local": {"a": {"value": "b", "end": {"since": AT, "until": AT}, "then": 4}}},
            )
        ),
        json.dumps(GOOD).replace("null", "NaN").encode(),
    ],
)
def test_whatever_is_none(stored: bytes) -> None:
    with pytest.raises(RecordUnreadable) as caught:
        from_json(stored)
    assert str(caught.value).isprintable()
    assert from_json(json.dumps(GOOD).encode()).local == (Entry("rate_in", "8mbit"),)


def test_a_newer_one_is_left_alone(tmp_path: Path) -> None:
    with pytest.raises(RecordTooNew):
        from_json(json.dumps({**GOOD, "schema": 2}).encode())
    paths, problems = Paths.under(str(tmp_path)), list[str]()
    wanted.write(paths, U1, Wanted((Entry("rate_in", "8mbit"),)))
    path = Path(paths.wanted, f"{U1}.json")
    path.write_bytes(newer := path.read_bytes().replace(b'"schema":1', b'"schema":2'))
    assert wanted.read(paths, U1, problems) == wanted.NOTHING
    assert path.read_bytes() == newer and "left alone" in problems[0]


def test_the_first_end(tmp_path: Path) -> None:
    paths = Paths.under(str(tmp_path))
    since = Moment("b", 0.0, 1e9)

    def ending(seconds: float) -> Wanted:
        return Wanted((Entry("rate_in", "8mbit", End(since, Moment("b", seconds, 1e9 + seconds))),))

    assert wanted.first_end(paths) is None and not wanted.due(paths, since)
    wanted.write(paths, U1, ending(50))
    wanted.write(paths, U2, Wanted(pending=ending(20).local))
    assert wanted.first_end(paths) == Moment("b", 20, 1e9 + 20), "what is pending may hold by then"
    assert not wanted.due(paths, since._replace(monotonic=19)) and wanted.due(paths, since._replace(monotonic=20))
    assert wanted.due(paths, since._replace(boot="another"))
    assert wanted.remove(paths, U2) and not wanted.remove(paths, U2)
    assert wanted.first_end(paths) == Moment("b", 50, 1e9 + 50)
    wanted.write(paths, U1, wanted.NOTHING)
    assert os.listdir(paths.wanted) == []
    os.symlink("no time at all", f"{paths.wanted}/ends")
    assert wanted.due(paths, since), "somebody looks"


def test_who_else_can_write_there_is_refused(tmp_path: Path) -> None:
    paths = Paths.under(str(tmp_path))
    wanted.write(paths, U1, Wanted((Entry("rate_in", "8mbit"),)))
    os.chmod(paths.wanted, 0o777)
    with pytest.raises(HostRefused, match="mode 0777"):
        wanted.read(paths, U1, [])
    os.chmod(paths.wanted, 0o755)
    os.rename(f"{paths.wanted}/{U1}.json", tmp_path / "elsewhere")
    os.symlink(tmp_path / "elsewhere", f"{paths.wanted}/{U1}.json")
    problems: list[str] = []
    try:
        assert wanted.read(paths, U1, problems) == wanted.NOTHING and problems
    except HostRefused:
        pass
