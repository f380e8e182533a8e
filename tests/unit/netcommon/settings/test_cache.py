"""The kept settings (netcommon.settings.cache): used for the very file they were read from, and never otherwise."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from netcommon.settings import cache as settings_cache
from netcommon.settings import parse as settings_file
from netcommon.settings.load import load
from netcommon.settings.model import Settings
from runtime.errors import SettingsInvalid
from runtime.paths import Paths
from tests.support.bootstrap import PYTHON, ROOT

TEXT = """
[hook]
timeout = 20
[nic]
spoof_guard = false
addresses = ["10.0.0.9"]
[networks.blue]
rate_in = "10mbit"
[bridges.br0]
uplinks = ["eth1", "eth2"]
[dns]
servers = ["192.0.2.1:53"]
"""
OLD = 10**9  #: seconds since the epoch


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    made = Paths.under(str(tmp_path))
    os.makedirs(made.etc)
    os.makedirs(made.state, 0o755)
    write(made, TEXT)
    return made


def write(paths: Paths, text: str) -> None:
    Path(paths.config).write_text(text)


@pytest.fixture(autouse=True)
def later(monkeypatch: pytest.MonkeyPatch) -> None:
    """The file was written long ago."""
    monkeypatch.setattr(settings_cache, "SETTLED", -1e12)


def kept(paths: Paths) -> Path:
    return Path(paths.state, settings_cache.NAME)


def forbid(monkeypatch: pytest.MonkeyPatch) -> None:
    def read(_descriptor: int, path: str) -> settings_file.Loaded:
        raise AssertionError(f"{path} was read")

    monkeypatch.setattr(settings_file, "read", read)


def test_the_second_time_the_file_is_not_read(paths: Paths, monkeypatch: pytest.MonkeyPatch) -> None:
    first = load(paths)
    forbid(monkeypatch)
    before = os.listdir("/proc/self/fd")
    again = load(paths)
    assert again == first and first != Settings() and os.listdir("/proc/self/fd") == before
    assert [type(one) for one in again] == [type(one) for one in first]
    assert again.uplinks == {"br0": ("eth1", "eth2")} and again.nic["addresses"] == ("10.0.0.9",)


@pytest.mark.parametrize("change", ["text", "same size", "mode", "replaced", "touched"])
def test_a_changed_file_is_read(paths: Paths, change: str) -> None:
    load(paths)
    new = TEXT.replace("20", "25")
    if change == "text":
        write(paths, new + "\n")
    elif change == "same size":
        write(paths, new)
        os.utime(paths.config, (OLD, OLD))  # of the times only the inode's own cannot be set by anybody
    elif change == "replaced":
        Path(paths.config + "~").write_text(new)
        os.replace(paths.config + "~", paths.config)
    elif change == "mode":
        os.chmod(paths.config, 0o666)
        with pytest.raises(SettingsInvalid, match="written by others"):
            load(paths)
        return
    else:
        write(paths, new)
    assert load(paths).hook_timeout == 25


def test_what_was_just_changed_is_not_kept(paths: Paths, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two changes within one tick of the clock look alike."""
    monkeypatch.setattr(settings_cache, "SETTLED", 2.0)
    load(paths)
    assert not kept(paths).exists()


def test_a_broken_file_is_broken_each_time(paths: Paths) -> None:
    load(paths)
    write(paths, "[hook]\ntimeout = -1\n")
    for _ in range(2):
        with pytest.raises(SettingsInvalid, match=r"hook\.timeout"):
            load(paths)


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '{"of": 1}', "\x00", "[" * 5000, "{}"])
def test_what_is_no_copy_is_nothing(paths: Paths, text: str) -> None:
    good = load(paths)
    kept(paths).write_text(text)
    assert load(paths) == good


@pytest.mark.parametrize("settings", [{"nothing": 1}, [], None, 1])
def test_fields_of_another_version_are_nothing(paths: Paths, settings: object) -> None:
    good = load(paths)
    stored = json.loads(kept(paths).read_text())
    kept(paths).write_text(json.dumps(stored | {"settings": settings}))
    assert load(paths) == good


def test_another_version_of_us_reads_the_file(paths: Paths, monkeypatch: pytest.MonkeyPatch) -> None:
    load(paths)
    monkeypatch.setattr("netcommon.__version__", "0.0.0")
    forbid(monkeypatch)
    with pytest.raises(AssertionError):
        load(paths)


@pytest.mark.parametrize("where", ["folder", "file", "link"])
def test_what_others_can_write_is_not_looked_at(paths: Paths, where: str, tmp_path: Path) -> None:
    load(paths)
    stored = json.loads(kept(paths).read_text())
    stored["settings"]["hook_timeout"] = 99.0
    kept(paths).write_text(json.dumps(stored))
    assert load(paths).hook_timeout == 99.0  # so this is what is not looked at
    if where == "folder":
        os.chmod(paths.state, 0o777)
    elif where == "file":
        os.chmod(kept(paths), 0o666)
    else:
        os.replace(kept(paths), tmp_path / "elsewhere")
        os.symlink(tmp_path / "elsewhere", kept(paths))
    assert load(paths).hook_timeout == 20


def test_nothing_is_made_where_there_is_no_folder(paths: Paths) -> None:
    os.rmdir(paths.state)
    assert load(paths).hook_timeout == 20
    assert not os.path.exists(paths.state)


def test_it_costs_no_toml(paths: Paths) -> None:
    load(paths)
    program = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "from netcommon.settings.load import load; from runtime.paths import Paths\n"
        "print(load(Paths.under(sys.argv[2])).hook_timeout)\n"
        "print([name for name in ('tomllib', 're', 'typing', 'json', 'netcommon.settings.parse') if name in sys.modules])"
    )
    root = paths.etc.removesuffix("/etc/netcommon")
    ran = subprocess.run([PYTHON, "-IS", "-c", program, str(ROOT), root], capture_output=True, text=True, check=True)
    assert ran.stdout == "20.0\n[]\n"


@pytest.mark.parametrize("folder", ["settings", "options"])
def test_modules_that_were_replaced_read_it_anew(paths: Paths, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, folder: str) -> None:
    """As `git pull` does it in a checkout: the version stays, and the folder above is not touched."""
    for name in ("settings", "options"):
        os.makedirs(tmp_path / "netcommon" / name)
    monkeypatch.setattr("netcommon.__file__", str(tmp_path / "netcommon" / "__init__.py"))
    load(paths)
    (tmp_path / "netcommon" / folder / "model.py.new").write_text("")
    os.utime(tmp_path / "netcommon" / folder, ns=(1, 1))
    read = []
    monkeypatch.setattr(settings_file, "read", lambda descriptor, path: read.append(path) or settings_file.Loaded())  # type: ignore[func-returns-value]
    load(paths)
    assert read == [paths.config]


def test_a_link_to_nothing_is_no_missing_file(paths: Paths) -> None:
    """The administrator has settings, and they are not in force: hooks do not go on with the defaults."""
    os.replace(paths.config, f"{paths.etc}/elsewhere")
    os.symlink(f"{paths.etc}/nowhere", paths.config)
    with pytest.raises(SettingsInvalid, match="a symbolic link to nothing"):
        load(paths)
