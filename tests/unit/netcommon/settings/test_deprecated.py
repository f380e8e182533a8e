"""Settings that were renamed: the old name counts, and it is said how it is called now. The table of renames is given by each test."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from netcommon.options.schema import OPTIONS
from netcommon.settings import deprecated
from netcommon.settings.deprecated import RENAMED, Renamed, moved
from netcommon.settings.load import explain, load
from netcommon.settings.model import Settings
from netcommon.settings.schema import KEYS
from runtime.errors import SettingsInvalid
from runtime.paths import Paths
from tests.support.cli import equipped

ROWS = (
    Renamed("hook", "limit", "hook", "timeout", "0.2"),
    Renamed("services", "timeout", "hook", "service_timeout", "0.3"),
    Renamed("bridges.*", "ports", "bridges.*", "uplinks", "0.3"),
)


@pytest.fixture
def paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Paths:
    monkeypatch.setattr(deprecated, "RENAMED", ROWS)
    made = Paths.under(str(tmp_path))
    os.makedirs(made.etc)
    return made


def test_the_old_names_count_and_are_told_of(paths: Paths) -> None:
    Path(paths.config).write_text("[hook]\nlimit = 25\n[services]\ntimeout = 3\n[bridges.br0]\nports = ['eth1']\n")
    assert load(paths) == Settings(
        hook_timeout=25.0,
        service_timeout=3.0,
        uplinks={"br0": ("eth1",)},
        renamed=(
            "config.toml: hook.limit is called hook.timeout since version 0.2: rename it in the settings file",
            "config.toml: services.timeout is called hook.service_timeout since version 0.3: rename it in the settings file",
            "config.toml: bridges.br0.ports is called bridges.br0.uplinks since version 0.3: rename it in the settings file",
        ),
    )
    sources = {row.key: row.source for row in explain(paths)}
    assert [sources[key] for key in ("hook.timeout", "hook.service_timeout", "bridges.br0.uplinks")] == [
        "config.toml:2",
        "config.toml:4",
        "config.toml:6",
    ]


def test_it_is_told_again_of_what_was_kept(paths: Paths) -> None:
    Path(paths.config).write_text("[hook]\nlimit = 25\n")
    os.utime(paths.config, (1e9, 1e9))
    os.makedirs(paths.state, mode=0o755)
    first = load(paths)
    assert first.renamed and load(paths) == first


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[hook]\nlimit = 25\ntimeout = 26\n", "config.toml:2: hook.limit is the old name of hook.timeout, which is there too"),
        ("[hook]\n\nlimit = 'x'\n", "config.toml:3: hook.timeout = 'x': expected seconds"),
        ("[services]\nlimit = 1\n", "config.toml:1: unknown table [services]"),
        ("services = 1\n", "config.toml:1: unknown setting services"),
        ("hook = 3\n[services]\ntimeout = 3\n", "config.toml:1: hook = '3': expected a table [hook]"),
    ],
)
def test_errors_name_the_line(paths: Paths, text: str, said: str) -> None:
    Path(paths.config).write_text(text)
    with pytest.raises(SettingsInvalid) as caught:
        load(paths)
    assert said in str(caught.value)


def test_one_that_was_renamed_twice() -> None:
    rows = (Renamed("a", "b", "c", "d", "0.2"), Renamed("c", "d", "e", "f", "0.4"))
    found = moved({"a": {"b": 1, "x": 2}}, rows)
    assert found.document == {"a": {"x": 2}, "e": {"f": 1}} and found.old == {("e", "f"): ("a", "b")}
    assert found.notes == ("a.b is called e.f since version 0.4: rename it in the settings file",)
    assert found.problems == ()


def test_the_document_is_left_as_it_is() -> None:
    document = {"hook": {"limit": 25}}
    assert moved(document, ROWS).document == {"hook": {"timeout": 25}} and document == {"hook": {"limit": 25}}
    assert moved(document, ()).document == document


def test_the_table_is_sound() -> None:
    """Of every row: what is new is in the schema, what is old is not, and no option is renamed."""
    known = {(key.table, key.name) for key in KEYS}
    newest = {(row.new_table, row.new_name) for row in RENAMED} - {(row.table, row.name) for row in RENAMED}
    assert newest <= known and not known & {(row.table, row.name) for row in RENAMED}
    assert not {row.name for row in RENAMED if row.table in ("nic", "networks.*")} & {option.name for option in OPTIONS}


def test_commands_and_doctor_say_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deprecated, "RENAMED", ROWS)
    cli = equipped(tmp_path)
    os.makedirs(cli.paths.etc)
    Path(cli.paths.config).write_text("[hook]\nlimit = 25\n")
    assert "hook.limit is called hook.timeout" in cli("list").stderr
    assert "hook.limit is called hook.timeout" in cli("config").stderr
    assert "hook.limit is called hook.timeout" in cli("doctor", status=None).stdout
