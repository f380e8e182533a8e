"""A mock cloud's own etcd and service: what does not fit or does not start is refused with its reason, and leaves nothing in the way."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from mockcloud import limits
from mockcloud.cloud import MockCloud
from mockcloud.own_service import BEGUN, MADE, STATE
from mockcloud.processes import why
from runtime.errors import HostRefused
from tests.support.mockcloud import Mockcloud

FATAL = "2026-11-27 13:54:15 C | etcdserver: create wal error: no space left on device"


@pytest.fixture
def etcd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make a program etcd which says why it ends, and ends; give the file that it leaves when it was started."""
    started = tmp_path / "started"
    program = tmp_path / "bin" / "etcd"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\ntouch '{started}'\necho '{FATAL}'\necho 'goroutine 1 [running]:'\nexit 2\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    return started


@pytest.fixture
def scenario(tmp_path: Path) -> str:
    path = tmp_path / "x.toml"
    path.write_text("nodes = 1\netcd = 3\nsettle = 1\n")
    return str(path)


@pytest.mark.usefixtures("etcd")
def test_why_an_etcd_does_not_start_is_said_though_its_log_goes(tmp_path: Path, scenario: str) -> None:
    said = Mockcloud(tmp_path / "cloud")("run", scenario, status=69)
    assert f"of the mock cloud's etcd has ended: '{FATAL}': all that it has said is in " in said and "--keep FOLDER" in said


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", ""),
        ("a\nb\n\n", ": 'b'"),
        ("panic: no\n\ngoroutine 1:\n\tmain.go:28 +0x17\n", ": 'panic: no'"),
        ("x" * 400, f": '{'x' * 300}'... (400 characters)"),
    ],
)
def test_the_reason_of_a_process(tmp_path: Path, text: str, found: str) -> None:
    (tmp_path / "log").write_text(text)
    assert why(str(tmp_path / "log")) == found and why(str(tmp_path / "none")) == ""


def begun(root: Path, said: bytes, members: int) -> None:
    """Leave what a command leaves that was killed before cloud.json was there."""
    (root / "registry").mkdir(parents=True)
    (root / "registry" / STATE).write_bytes(said)
    for number in range(1, members + 1):
        (root / "etcd" / f"m{number}").mkdir(parents=True)


@pytest.mark.parametrize(
    ("members", "asked", "said"),
    [
        (3, "etcd:5", "is kept in an etcd of 3 members: --registry etcd:3 goes on with it"),
        (3, "etcd:1", "is kept in an etcd of 3 members: --registry etcd:3 goes on with it"),
        (0, "etcd:3", "is gone: put it back"),
        (3, "", "was begun in .*, and not made as a whole: mockcloud create --registry etcd:N"),
        (3, "/run/netregistry/socket", "was begun in .*, and not made as a whole: mockcloud create --registry etcd:N"),
    ],
)
def test_another_registry_than_was_begun_is_refused_at_once(tmp_path: Path, etcd: Path, members: int, asked: str, said: str) -> None:
    begun(tmp_path / "cloud", MADE, members)
    with pytest.raises(HostRefused, match=said):
        MockCloud(str(tmp_path / "cloud"), service=asked)
    assert not etcd.exists() and not (tmp_path / "cloud" / "registry.sqlite").exists()


def test_what_was_begun_and_not_made_is_of_any_number(tmp_path: Path, etcd: Path) -> None:
    begun(tmp_path / "cloud", BEGUN, 3)
    with pytest.raises(HostRefused, match="has ended"):
        MockCloud(str(tmp_path / "cloud"), service="etcd:1")
    assert etcd.exists() and not (tmp_path / "cloud" / "etcd" / "m3").exists(), "it is made anew"


def test_a_folder_whose_path_is_too_long_is_refused_at_once(tmp_path: Path, etcd: Path) -> None:
    with pytest.raises(HostRefused, match=r"too long: .*: name a folder with a shorter path"):
        MockCloud(str(tmp_path / ("x" * 90)), service="etcd:1")
    assert not etcd.exists()


def test_root_alone_has_an_etcd_of_its_own(tmp_path: Path, etcd: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(HostRefused, match=r"^the registry's files are for root alone: run it as root$"):
        MockCloud(str(tmp_path / "cloud"), service="etcd:1")
    assert not etcd.exists()


def small(monkeypatch: pytest.MonkeyPatch, free: int) -> None:
    """Let so many bytes be free on each disk."""
    found = os.statvfs("/")
    values: list[Any] = [*found]
    values[1], values[3], values[4], values[5], values[7] = 1, free, free, 0, 0  # f_frsize, f_bfree, f_bavail, f_files, f_favail
    monkeypatch.setattr(os, "statvfs", lambda _path: os.statvfs_result(values))


def test_an_etcd_that_has_no_room_is_refused_before_it_is_begun(
    tmp_path: Path, scenario: str, etcd: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small(monkeypatch, 2 * limits.MEMBER)
    run = Mockcloud(tmp_path / "cloud")
    needs = "an etcd of 3 members needs 384 MiB on disk, and 256 are free in "
    assert needs in run("create", "1", "--registry", "etcd:3", status=69) and not run.folder.exists()
    assert needs in run("run", scenario, status=69)
    with pytest.raises(HostRefused, match=needs):
        MockCloud(str(run.folder), service="etcd:3")
    assert not etcd.exists()
    run("create", "1")  # nothing of it is in the way


def test_nodes_fit_beside_the_etcd_that_comes_before_them(tmp_path: Path, etcd: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small(monkeypatch, 3 * limits.MEMBER + 2 * limits.DISK)
    run = Mockcloud(tmp_path / "cloud")
    assert "3 nodes are more than this machine can hold: 2 fit, by room on disk" in run("create", "3", "--registry", "etcd:3", status=69)
    assert not etcd.exists() and not run.folder.exists()
