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
from runtime.folder import Folder
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


tuples = entries.map(tuple)
tags = st.none() | st.lists(st.sampled_from(["a", "netcommon:0:rate_in:8mbit", "é"]), max_size=2).map(tuple)
ips = st.sampled_from(["", "192.0.2.9", "2001:db8::9"])
positions = st.none() | st.integers(0, 65535)
plain = st.builds(Wanted, tuples, tuples, st.sampled_from(["", "epoch:7"]), st.sampled_from(["", U1]), tags, positions, ips, st.none())


@given(plain, st.none() | plain)
def test_round_trip(one: Wanted, pending: Wanted | None) -> None:
    one = one._replace(pending=pending)
    assert from_json(to_json(one)) == one and to_json(one).isascii()


def test_the_format_before_registries(tmp_path: Path) -> None:
    """Read what was pending, which was of this node alone then."""
    local, pending = {"rate_in": {"value": "8mbit", "end": None, "then": None}}, {"rate_in": {"value": "9mbit", "end": None, "then": None}}
    found = from_json(json.dumps({"schema": 1, "local": local, "registry": {}, "pending": pending}).encode())
    assert found == Wanted((Entry("rate_in", "8mbit"),), pending=Wanted((Entry("rate_in", "9mbit"),)))


EMPTY = {"local": {}, "registry": {}, "revision": "", "network": "", "tags": None, "position": None, "ip": ""}
GOOD = {"schema": 2, **EMPTY, "pending": None, "local": {"rate_in": {"value": "8mbit", "end": None, "then": None}}}
AT = {"boot": "b", "monotonic": 1, "wall": 2}


#: Files of NICs that are none.
BAD: list[bytes] = [
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
            {"pending": {**EMPTY, "pending": None}},
            {"pending": {**EMPTY, "revision": 7}},
            {"schema": 1},
            {"revision": "7"},
            {"revision": "e:7\n"},
            {"revision": "e" * 200 + ":7"},
            {"network": "blue"},
            {"network": None},
            {"tags": "a"},
            {"tags": ["a b"]},
            {"tags": [""]},
            {"tags": [7]},
            {"tags": {}},
            {"local": {"a": {"value": "b", "end": {"since": AT}, "then": None}}},
            {"local": {"a": {"value": "b", "end": {"since": AT, "until": {**AT, "wall": -1}}, "then": None}}},
            {"local": {"a": {"value": "b", "end": {"since": AT, "until": {**AT, "boot": 3}}, "then": None}}},
            {"local": {"a": {"value": "b", "end": {"since": AT, "until": {**AT, "boot": "b c"}}, "then": None}}},
            {"local": {"a": {"value": "b", "end": None, "then": "c"}}},
            {"local": {"a": {"value": "b", "end": {"since": AT, "until": AT}, "then": 4}}},
        )
    ),
    json.dumps(GOOD).replace("null", "NaN").encode(),
]


@pytest.mark.parametrize("stored", BAD)
def test_whatever_is_none(stored: bytes) -> None:
    with pytest.raises(RecordUnreadable) as caught:
        from_json(stored)
    assert str(caught.value).isprintable()
    assert from_json(json.dumps(GOOD).encode()).local == (Entry("rate_in", "8mbit"),)


def test_a_newer_one_is_left_alone(tmp_path: Path) -> None:
    with pytest.raises(RecordTooNew):
        from_json(json.dumps({**GOOD, "schema": 3}).encode())
    paths, problems = Paths.under(str(tmp_path)), list[str]()
    wanted.write(paths, U1, Wanted((Entry("rate_in", "8mbit"),)))
    path = Path(paths.wanted, f"{U1}.json")
    path.write_bytes(newer := path.read_bytes().replace(b'"schema":2', b'"schema":3'))
    assert wanted.read(paths, U1, problems) == wanted.NOTHING
    assert path.read_bytes() == newer and "left alone" in problems[0]


def test_the_first_end(tmp_path: Path) -> None:
    paths = Paths.under(str(tmp_path))
    since = Moment("b", 0.0, 1e9)

    def ending(seconds: float) -> Wanted:
        return Wanted((Entry("rate_in", "8mbit", End(since, Moment("b", seconds, 1e9 + seconds))),))

    assert wanted.first_end(paths) is None and not wanted.due(paths, since)
    wanted.write(paths, U1, ending(50))
    wanted.write(paths, U2, Wanted(pending=ending(20)))
    assert wanted.first_end(paths) == Moment("b", 20, 1e9 + 20), "what is pending may hold by then"
    assert not wanted.due(paths, since._replace(monotonic=19)) and wanted.due(paths, since._replace(monotonic=20))
    assert wanted.due(paths, since._replace(boot="another"))
    assert wanted.remove(paths, U2) and not wanted.remove(paths, U2)
    assert wanted.due(paths, since._replace(monotonic=20)), "who looks then reads the files"
    wanted.note_ends(paths)
    assert wanted.first_end(paths) == Moment("b", 50, 1e9 + 50)
    wanted.write(paths, U1, wanted.NOTHING)
    wanted.note_ends(paths)
    assert os.listdir(paths.wanted) == []
    os.symlink("no time at all", f"{paths.wanted}/ends")
    assert wanted.due(paths, since), "somebody looks"


def ending(monotonic: float, boot: str = "b") -> Wanted:
    """Give a rate that ends at ``monotonic``."""
    since = Moment(boot, 0.0, 1e9)
    return Wanted((Entry("rate_in", "8mbit", End(since, Moment(boot, monotonic, 1e9 + monotonic))),))


def test_a_change_of_one_nic_reads_no_other_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Change 300 NICs one after the other: what is read does not grow with the number of files that are there."""
    paths, reads = Paths.under(str(tmp_path)), list[str]()
    real = Folder.read

    def read(self: Folder, name: str, limit: int) -> bytes | None:
        reads.append(name)
        return real(self, name, limit)

    monkeypatch.setattr(Folder, "read", read)
    for number in range(300):
        wanted.write(paths, f"{number:08x}-1111-4111-8111-111111111111", ending(50.0 + number) if number % 2 else wanted.Wanted())
        wanted.write(paths, f"{number:08x}-2222-4222-8222-222222222222", Wanted((Entry("rate_in", "8mbit"),)))
    assert len(reads) < 20
    assert wanted.first_end(paths) == Moment("b", 51.0, 1e9 + 51)


@pytest.mark.parametrize("at", range(3))
def test_the_first_end_while_another_process_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: int) -> None:
    """Let another process write an earlier end, and look at the link, at each point between our look at the files and our link."""
    paths, points = Paths.under(str(tmp_path)), iter(range(100))
    real_names, real_link = Folder.names, Folder.link

    def other() -> None:
        if next(points) == at:
            wanted.write(paths, U2, ending(20))

    def names(self: Folder) -> list[str]:
        found = real_names(self)
        other()
        return found

    def link(self: Folder, name: str, target: str) -> None:
        other()
        real_link(self, name, target)

    monkeypatch.setattr(Folder, "names", names)
    monkeypatch.setattr(Folder, "link", link)
    wanted.write(paths, U1, ending(50))
    wanted.write(paths, U1, ending(40))
    assert next(points) > at and wanted.first_end(paths) == Moment("b", 20, 1e9 + 20)


TIMES = ["no time at all", "b inf 0", "b 1e300 1e300", "b nan 0", "b 5 nan", " 5 5", "b -1 5", "b 5"]


@pytest.mark.parametrize("told", [*TIMES, "file", "folder"])
def test_a_link_that_cannot_be_read_is_due_and_is_replaced(tmp_path: Path, told: str) -> None:
    """Neither a change nor who looks for ends is refused for it."""
    paths, now = Paths.under(str(tmp_path)), Moment("b", 1.0, 1e9)
    wanted.write(paths, U1, ending(50))
    link = Path(paths.wanted, "ends")

    def damage() -> None:
        link.unlink()
        if told in ("file", "folder"):
            Path(paths.wanted, "ends").write_text("") if told == "file" else (link.mkdir(), (link / "in it").write_text(""))
        else:
            link.symlink_to(told)

    for _again in range(2):
        damage()
        assert wanted.due(paths, now) and wanted.over(paths, now)
        wanted.note_ends(paths)
        assert wanted.first_end(paths) == Moment("b", 50.0, 1e9 + 50)
    damage()
    wanted.write(paths, U2, Wanted((Entry("rate_in", "8mbit"),)))
    assert wanted.first_end(paths) == Moment("b", 50.0, 1e9 + 50)


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


def test_all_that_was_damaged_is_kept(tmp_path: Path) -> None:
    """One after the other, whatever was in the file's place: a second file, a folder, a link."""
    paths = Paths.under(str(tmp_path))
    wanted.write(paths, U1, Wanted(local=(Entry("rate_in", "8mbit"),)))
    file, aside = Path(paths.wanted, f"{U1}.json"), Path(paths.wanted, "quarantine")
    file.unlink()

    def found() -> str:
        problems: list[str] = []
        assert wanted.read(paths, U1, problems) == Wanted() and not os.path.lexists(file)
        (problem,) = problems
        return problem

    file.write_text("{first")
    assert f"quarantine/{U1}.json-0" in found()
    file.mkdir()
    (file / "inside").write_text("x")
    assert f"quarantine/{U1}.json-1" in found()
    file.write_text("{second")
    assert f"quarantine/{U1}.json-2" in found()
    file.mkdir()
    found()
    file.symlink_to("/nowhere")
    found()
    kept = [aside / f"{U1}.json-{number}" for number in range(5)]
    assert sorted(kept) == sorted(aside.iterdir())
    assert (kept[0].read_text(), kept[2].read_text(), (kept[1] / "inside").read_text()) == ("{first", "{second", "x")
    assert kept[3].is_dir() and kept[4].readlink() == Path("/nowhere")
    wanted.write(paths, U1, Wanted(local=(Entry("rate_in", "8mbit"),)))
    assert wanted.read(paths, U1, []).local == (Entry("rate_in", "8mbit"),)
