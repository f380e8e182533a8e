"""A file of a registry that is brought back, with what lies beside it."""

from __future__ import annotations

import contextlib
import os
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from netregistry import transfer
from netregistry.stores import files
from netregistry.stores.base import Damaged, Put
from netregistry.stores.sqlite import SqliteStore
from runtime.errors import HostRefused, escaped


def brought_back(backup: Path) -> set[str]:
    """Bring a file back; give the keys of what is there then."""
    path = backup.parent / "new" / "registry.sqlite"
    files.bring_back(str(backup), str(path))
    with SqliteStore(str(path)) as store:
        return {item.key for item in store.list("").items}


def copied(backup: Path) -> set[str]:
    """Read a file as it is read on its way to an etcd; give its keys."""
    with transfer._copied(str(backup)) as store:
        return {item.key for item in store.list("").items}


WAYS = pytest.mark.parametrize("read", [brought_back, copied])


@pytest.fixture
def disk(tmp_path: Path) -> Path:
    """Give the file of a registry that was ended in the middle, with its log, as they are copied from the disk of a dead machine."""
    folder = tmp_path / "disk"
    folder.mkdir()
    with SqliteStore.create(str(tmp_path / "registry.sqlite"), "first") as store:
        for number in range(3):
            store.commit([], [Put(f"networks/{number}", b"{}")])
        for end in ("", "-wal"):
            shutil.copyfile(tmp_path / f"registry.sqlite{end}", folder / f"old.sqlite{end}")
    return folder / "old.sqlite"


def bytes_of(folder: Path) -> dict[str, bytes]:
    return {each.name: each.read_bytes() for each in folder.iterdir() if each.is_file()}


@WAYS
def test_a_file_is_brought_back_with_its_log(disk: Path, read: Callable[[Path], set[str]]) -> None:
    before = bytes_of(disk.parent)
    assert read(disk) == {"networks/0", "networks/1", "networks/2"}
    assert bytes_of(disk.parent) == before, "what was given is as it was"


@WAYS
def test_a_log_that_is_not_of_the_file_is_refused(disk: Path, tmp_path: Path, read: Callable[[Path], set[str]]) -> None:
    with SqliteStore(str(tmp_path / "registry.sqlite")) as store:
        store.backup(str(tmp_path / "copy"))
    (tmp_path / "copy").replace(disk)
    before = bytes_of(disk.parent)
    with pytest.raises(HostRefused, match=r"old\.sqlite-wal' is the log of another file"):
        read(disk)
    assert bytes_of(disk.parent) == before and not (disk.parent / "new/registry.sqlite").exists()
    Path(f"{disk}-wal").unlink()
    assert len(read(disk)) == 3


@WAYS
def test_a_file_with_a_journal_is_refused(disk: Path, read: Callable[[Path], set[str]]) -> None:
    Path(f"{disk}-journal").write_bytes(b"what was there before")
    with pytest.raises(HostRefused, match=r"old\.sqlite-journal' lies beside it"):
        read(disk)


def cut_off(backup: Path) -> str:
    os.truncate(backup, 20000)
    return "is damaged: "


def emptied(backup: Path) -> str:
    os.truncate(backup, 0)
    return "is no registry: "


def of_a_newer_version(backup: Path) -> str:
    with contextlib.closing(sqlite3.connect(backup)) as database:
        database.execute("PRAGMA user_version=99")
    return "was written by a newer version"


@WAYS
@pytest.mark.parametrize("spoilt", [cut_off, emptied, of_a_newer_version])
def test_what_is_wrong_with_a_backup_is_said_of_it(tmp_path: Path, spoilt: Callable[[Path], str], read: Callable[[Path], set[str]]) -> None:
    with SqliteStore.create(str(tmp_path / "registry.sqlite"), "first") as store:
        store.commit([], [Put(f"networks/{number}", b"{}" * 4000) for number in range(9)])
        store.backup(str(tmp_path / "backup"))
    what = spoilt(tmp_path / "backup")
    with pytest.raises(Damaged) as refused:
        read(tmp_path / "backup")
    text = str(refused.value)
    assert text.startswith(f"{escaped(str(tmp_path / 'backup'))} {what}") and "restore" not in text
    assert not (tmp_path / "new/registry.sqlite").exists()
