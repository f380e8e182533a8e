"""An upgrade and a downgrade with NICs up: old records are read and written anew; records of a newer version are left alone."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from runtime.record import SCHEMA
from tests.support.cli import UUIDS, Cli


def file_of(cli: Cli, number: int = 0) -> Path:
    return Path(cli.paths.state, "nics", f"{UUIDS[number]}.json")


def rewrite(path: Path, *without: str, **changes: object) -> bytes:
    """The record as another version would have written it."""
    stored = json.loads(path.read_text()) | changes
    path.write_text(json.dumps({name: value for name, value in stored.items() if name not in without}))
    return path.read_bytes()


def older(cli: Cli) -> None:
    """Records as the schemas before had them, one of each."""
    rewrite(file_of(cli, 0), "scripts", "moved", "door", "incoming", schema=0)
    rewrite(file_of(cli, 1), "incoming", schema=1)


def test_old_records_are_written_anew(two: Cli) -> None:
    before = {number: json.loads(file_of(two, number).read_text()) for number in (0, 1)}
    older(two)
    two.host.requests.clear()
    said = two("upgrade").stdout
    assert f"web1/0 ({UUIDS[0]}): schema 0 became {SCHEMA}" in said and f"web1/1 ({UUIDS[1]}): schema 1 became {SCHEMA}" in said
    assert two.host.requests == []
    now = {number: json.loads(file_of(two, number).read_text()) for number in (0, 1)}
    assert now[1] == before[1] and now[0] == before[0] | {"door": ""}
    assert two("upgrade").stdout == "nothing to do: 2 records, all in today's form\n"


def test_a_dry_run_writes_nothing_and_needs_no_root(two: Cli) -> None:
    older(two)
    before = file_of(two).read_bytes()
    two.uid = 1000
    assert [row["changed"] for row in two.json("upgrade", "--dry-run")] == [False, False]
    assert file_of(two).read_bytes() == before
    assert "only root" in two("upgrade", status=69).stderr


@pytest.mark.parametrize(
    ("command", "status"),
    [(("check", "--all"), 0), (("up", "--all"), 0), (("down", "--all", "--force"), 0), (("gc",), 0), (("repair", "--all"), 0)],
)
def test_old_records_do_for_every_command(two: Cli, command: tuple[str, ...], status: int) -> None:
    older(two)
    two(*command, status=status)
    assert two.json("check") == [] if command[0] == "down" else all(row["good"] for row in two.json("check"))


def test_one_that_is_on_its_way_out_stays_as_it_is(two: Cli) -> None:
    older(two)
    before = rewrite(file_of(two), state="closing")
    (row, _other) = two.json("upgrade")
    assert row["changed"] is False and "closing" in row["text"] and file_of(two).read_bytes() == before


class TestDowngrade:
    """web1/0 is on a record that a newer version wrote."""

    @pytest.fixture
    def newer(self, two: Cli) -> bytes:
        return rewrite(file_of(two), "operations", schema=SCHEMA + 1, steps=[1, 2])

    @pytest.mark.parametrize(
        ("command", "status"),
        [
            (("upgrade",), 69),
            (("up", UUIDS[0]), 69),
            (("down", "--force", "tap0"), 69),
            (("down", "--force", UUIDS[0]), 69),
            (("repair", "--all"), 0),
            (("check",), 0),
            (("gc",), 0),
            (("list",), 0),
            (("tree",), 0),
        ],
    )
    def test_it_is_left_alone_and_told_of(self, two: Cli, newer: bytes, command: tuple[str, ...], status: int) -> None:
        link, before = two.host.view().link("tap0"), sorted(two.host.kernel.routes)
        two.host.requests.clear()
        said = two(*command, status=status)
        text = said.stdout + said.stderr
        assert f"schema {SCHEMA + 1} is newer than {SCHEMA}" in text and "install the version that wrote it" in text
        assert file_of(two).read_bytes() == newer
        assert two.host.view().link("tap0") == link and sorted(two.host.kernel.routes) == before
        assert two.host.requests == []

    def test_upgrade_writes_no_other_record_then(self, two: Cli, newer: bytes) -> None:
        other = rewrite(file_of(two, 1), "incoming", schema=1)
        assert "nothing was changed" in two("upgrade", status=69).stderr
        assert file_of(two, 1).read_bytes() == other

    def test_other_nics_go_on(self, two: Cli, newer: bytes) -> None:
        two("down", "--force", "tap1")
        two("up", "tap1")
        assert file_of(two).read_bytes() == newer
