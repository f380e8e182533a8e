"""/etc/qemu-ifup after our install: our door for taps that we know, the script that was there before for all others."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from netcommon.install import fallback, install
from netcommon.install.manifest import SAVED
from runtime import definitions
from runtime.environment import nic_from_environment
from runtime.paths import Paths
from tests.support.bootstrap import ROOT

NIC = {
    "INTERFACE": "tap7",
    "MODE": "bridged",
    "LINK": "br0",
    "INTERFACE_UUID": "0d8c2d3e-7a5b-4f1e-9c7a-1f2e3d4c5b6a",
    "MAC": "52:54:00:00:00:01",
}


@pytest.fixture
def paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Paths:
    monkeypatch.delenv("MODE", raising=False)
    made = Paths.under(str(tmp_path))
    definitions.write(made, nic_from_environment(NIC, []))
    return made


@pytest.mark.parametrize("door", ["kvm-ifup", "kvm-ifdown"])
def test_a_defined_tap_is_ours(paths: Paths, door: str) -> None:
    assert fallback.choose(paths, door, ["tap7"], saved=True)
    assert fallback.choose(paths, door, ["b'tap7'"], saved=True)


@pytest.mark.parametrize("arguments", [["tap8"], [], [""], ["../etc"], ["a b"], ["x" * 50]])
@pytest.mark.parametrize("door", ["kvm-ifup", "kvm-ifdown"])
def test_any_other_is_the_old_scripts(paths: Paths, door: str, arguments: list[str]) -> None:
    assert not fallback.choose(paths, door, arguments, saved=True)


def test_without_an_old_script_all_are_ours(paths: Paths) -> None:
    assert fallback.choose(paths, "kvm-ifup", ["tap8"], saved=False)


def test_a_described_nic_is_ours(paths: Paths, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MODE", "bridged")
    assert not fallback.choose(paths, "kvm-ifup", ["tap8"], saved=True)
    monkeypatch.setenv("MAC", "aa:00:00:00:00:01")
    assert fallback.choose(paths, "kvm-ifup", ["tap8"], saved=True)


@pytest.mark.parametrize("place", ["devices", "netns.d/42/devices"])
def test_a_tap_on_record_is_ours_on_its_way_down_only(paths: Paths, place: str) -> None:
    os.makedirs(f"{paths.state}/{place}")
    os.symlink("../nics/x.json", f"{paths.state}/{place}/tap8")
    assert fallback.choose(paths, "kvm-ifdown", ["tap8"], saved=True)
    assert not fallback.choose(paths, "kvm-ifup", ["tap8"], saved=True)


def test_a_definition_that_does_not_parse_is_our_doors_to_report(paths: Paths) -> None:
    (file,) = [name for name in os.listdir(paths.definitions) if name.endswith(".toml")]
    Path(paths.definitions, file).write_text("device = \n")
    assert fallback.choose(paths, "kvm-ifup", ["tap7"], saved=True)


@pytest.mark.parametrize("tap", ["tap-nobody-7", "tap9"])
def test_the_wrapper_starts_the_old_script_with_all_arguments(tmp_path: Path, tap: str) -> None:
    etc = tmp_path / "etc"
    etc.mkdir()
    for name in ("qemu-ifup", "qemu-ifdown"):
        (etc / name).write_text('#!/bin/sh\necho "old $0 $*"; exit 7\n')
        (etc / name).chmod(0o755)
    hooks = tmp_path / "lib" / "hooks"
    hooks.mkdir(parents=True)
    for name in ("netcommon", "runtime"):
        (tmp_path / "lib" / name).symlink_to(ROOT / name)
    for name in ("kvm-ifup", "kvm-ifdown"):
        (hooks / name).write_text('#!/bin/sh\necho "door $*"\n')
        (hooks / name).chmod(0o755)
    install("qemu", str(tmp_path), hooks=str(hooks))
    for name, door in (("qemu-ifup", "kvm-ifup"), ("qemu-ifdown", "kvm-ifdown")):
        # The wrapper knows its saved script by the path in the system; here the system is a folder.
        text = (etc / name).read_text()
        assert f"/etc/{name}{SAVED}" in text
        assert f"/hooks/{door}" in text
        (etc / name).write_text(text.replace(f"'/etc/{name}{SAVED}'", repr(f"{etc}/{name}{SAVED}")))
        environment = {key: value for key, value in os.environ.items() if key != "MODE"}
        ran = subprocess.run([etc / name, tap, "more"], capture_output=True, text=True, check=False, env=environment)
        assert (ran.returncode, ran.stdout) == (7, f"old {etc}/{name} {tap} more\n"), ran.stderr
        environment.update({"MODE": "bridged", "MAC": "aa:00:00:00:00:01"})
        ran = subprocess.run([etc / name, tap], capture_output=True, text=True, check=False, env=environment)
        assert (ran.returncode, ran.stdout) == (0, f"door {tap}\n")
