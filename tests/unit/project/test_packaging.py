"""The Debian package: what is in it, that the same checkout makes the same bytes, and what is refused. How it is installed:
tests/kernel/test_package.py."""

from __future__ import annotations

import os
import re
import shutil
import stat
import subprocess
from pathlib import Path

import pytest

from netcommon.install.manifest import SAVED
from netcommon.scripts.door_files import MARKER
from tests.support import bootstrap
from tests.support.bootstrap import ROOT
from tests.support.installed import UP, System

LIBRARY = "usr/lib/netcommon"
SCRIPTS = ("preinst", "postinst", "prerm", "postrm")


def build(output: Path, root: Path = ROOT, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [root / "packaging/build-deb", "--output", output], env={**os.environ, **environ}, capture_output=True, text=True, check=False
    )


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package of this checkout."""
    done = build(tmp_path_factory.mktemp("package"))
    assert done.returncode == 0, done.stderr
    return Path(done.stdout.strip())


@pytest.fixture(scope="module")
def tree(package: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the package unpacks to, with DEBIAN/."""
    folder = tmp_path_factory.mktemp("tree")
    subprocess.run(["dpkg-deb", "--raw-extract", package, folder], check=True)
    return folder


def files(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_symlink() or path.is_file()}


def test_everything_that_a_node_needs_is_in_it(tree: Path) -> None:
    packages = ("runtime", "netcommon", "netagent", "netregistry", "mockcloud")
    ours = {str(path.relative_to(ROOT)) for name in packages for path in (ROOT / name).rglob("*.py")}
    ours |= {str(path.relative_to(ROOT)) for path in (ROOT / "netcommon/templates").rglob("*.j2")}
    assert ours <= files(tree / LIBRARY)
    doors = {str(path.relative_to(ROOT)) for path in (ROOT / "hooks").rglob("*") if path.is_file() and path.parent.name != "__pycache__"}
    assert {path for path in files(tree / LIBRARY) if path.startswith("hooks/")} == doors
    for name in doors:
        path = tree / LIBRARY / name
        assert path.is_symlink() == (ROOT / name).is_symlink() and path.stat().st_mode & 0o777 == 0o755
    assert {path.name for path in (tree / "lib/systemd/system").iterdir()} == {path.name for path in (ROOT / "packaging/systemd").iterdir()}
    for name in ("README.md", "docs/packaging.md", "copyright", "changelog.gz", "examples/config.toml"):
        assert (tree / "usr/share/doc/netcommon" / name).is_file(), name
    assert "\n174\tnetcommon\n" in (tree / "etc/iproute2/rt_protos.d/netcommon.conf").read_text()
    assert (tree / "DEBIAN/conffiles").read_text().split() == ["/etc/default/netcommon", "/etc/iproute2/rt_protos.d/netcommon.conf"]


def test_nothing_else_is_in_it(tree: Path) -> None:
    """No bytecode, nothing compiled for one machine, nothing of tests, and nothing outside of a few folders."""
    found = files(tree)
    assert not [path for path in found if path.endswith((".pyc", ".so", ".c", ".pyi.in")) or "__pycache__" in path or "/tests/" in path]
    places = (
        "DEBIAN/",
        "etc/default/netcommon",
        "etc/iproute2/",
        "lib/systemd/system/netcommon-",
        f"{LIBRARY}/",
        "usr/bin/netcommon",
        "usr/bin/mockcloud",
    )
    shared = ("doc/netcommon/", "man/man", "python3/runtime.d/netcommon", "bash-completion/", "zsh/")
    places += ("usr/lib/tmpfiles.d/netcommon.conf", *(f"usr/share/{place}" for place in shared))
    assert not [path for path in found if not path.startswith(places)]
    assert not [path for path in tree.rglob("*") if not path.is_symlink() and stat.S_IMODE(path.stat().st_mode) not in (0o644, 0o755)]


def test_the_units_name_what_the_package_has(tree: Path) -> None:
    for unit in (tree / "lib/systemd/system").iterdir():
        text = unit.read_text()
        programs = re.findall(r"^ExecStart=(\S+)", text, re.MULTILINE)
        documents = re.findall(r"^Documentation=file://(\S+)", text, re.MULTILINE)
        assert all((tree / path.lstrip("/")).is_file() for path in programs + documents), unit
        assert ".venv" not in text


def test_it_needs_python_alone(tree: Path) -> None:
    control = (tree / "DEBIAN/control").read_text()
    assert re.search(r"^Depends: (.*)$", control, re.MULTILINE)[1] == "python3 (>= 3.11)"  # type: ignore[index]
    suggested = re.search(r"^Suggests: (.*)$", control, re.MULTILINE)[1].split(", ")  # type: ignore[index]
    assert {"python3-aiohttp", "python3-cryptography"} <= set(suggested)
    assert "\nArchitecture: all\n" in control


def test_the_libraries_are_all_there_and_the_command_finds_them(tree: Path) -> None:
    named = re.findall(r"^([a-z0-9]+)==(\S+)", (ROOT / "requirements.txt").read_text(), re.MULTILINE)
    vendor = tree / LIBRARY / "vendor"
    assert {path.name.removesuffix(".dist-info") for path in vendor.glob("*.dist-info")} == {"-".join(pair) for pair in named}
    for name in ("netcommon", "mockcloud"):
        program = (tree / "usr/bin" / name).read_text().replace("/usr/lib/netcommon", str(tree / LIBRARY))
        done = subprocess.run(["/usr/bin/python3", "-ISB", "-c", program, "--version"], capture_output=True, text=True, check=True)
        assert done.stdout.startswith(f"{name} ")
    copyright_file = (tree / "usr/share/doc/netcommon/copyright").read_text()
    assert all(f"{name} {version}, in" in copyright_file for name, version in named)


@pytest.mark.parametrize("name", SCRIPTS)
def test_maintainer_scripts_are_plain(tree: Path, name: str) -> None:
    path = tree / "DEBIAN" / name
    assert path.read_text().startswith("#!/bin/sh\nset -e\n")
    assert subprocess.run(["sh", "-n", path], check=False).returncode == 0


def test_all_shell_scripts_can_be_read() -> None:
    scripts = [path for path in (ROOT / "packaging").rglob("*") if path.is_file() and path.read_bytes().startswith(b"#!/bin/sh\n")]
    assert len(scripts) >= 8
    assert [path for path in scripts if subprocess.run(["sh", "-n", path], check=False).returncode] == []


@pytest.mark.slow
def test_the_same_checkout_makes_the_same_bytes(tmp_path: Path) -> None:
    """Wherever it lies, whenever its files were written, and whoever builds it."""
    for name in ("one", "two"):
        for part in ("docs", "examples", "hooks", "mockcloud", "netagent", "netcommon", "netregistry", "packaging", "runtime"):
            source = ROOT / part if name == "one" else tmp_path / "one" / part
            ignored = shutil.ignore_patterns("__pycache__")
            shutil.copytree(source, tmp_path / name / part, symlinks=True, ignore=ignored, copy_function=shutil.copy)
        shutil.copy(ROOT / "requirements.txt", tmp_path / name)
    first, second = build(tmp_path / "first", tmp_path / "one"), build(tmp_path / "second", tmp_path / "two", TZ="Asia/Tokyo", LC_ALL="C")
    assert (first.returncode, second.returncode) == (0, 0), first.stderr + second.stderr
    assert Path(first.stdout.strip()).read_bytes() == Path(second.stdout.strip()).read_bytes()


def test_a_version_that_the_changelog_does_not_know_is_refused(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "packaging", tmp_path / "packaging")
    (tmp_path / "netcommon").mkdir()
    (tmp_path / "netcommon/__init__.py").write_text('__version__ = "77"\n')
    done = build(tmp_path / "out", tmp_path)
    assert (done.returncode, "netcommon of 77: add an entry" in done.stderr) == (69, True)


def test_a_library_that_is_not_the_one_named_is_refused(package: Path, tmp_path: Path) -> None:
    shutil.copytree(bootstrap.cache() / "wheels", tmp_path / "wheels")
    for wheel in tmp_path.rglob("click-*.whl"):
        wheel.write_bytes(wheel.read_bytes() + b"\0")
    done = build(tmp_path / "out", NETCOMMON_CACHE=str(tmp_path))
    assert (done.returncode, "is not what requirements.txt names" in done.stderr) == (69, True)


def test_the_wrapper_of_a_kvm_door_is_the_launcher_itself(tmp_path: Path) -> None:
    """It knows where it lies, whatever it is called by."""
    system = System(tmp_path / "root", tmp_path / "opt/hooks")
    system.ganeti()
    shutil.copy(ROOT / "hooks/launcher", system.hooks / "launcher")
    (system.hooks / "cold").mkdir()
    for name in ("kvm-ifup", "kvm-nic-setup", "up"):
        (system.hooks / "cold" / name).write_text('#!/bin/sh\necho "cold $0 $*"\n')
        (system.hooks / "cold" / name).chmod(0o755)
    for name in ("kvm-ifup", "kvm-nic-setup"):
        (system.hooks / name).unlink()
        (system.hooks / name).symlink_to("launcher")
    system.install("ganeti")
    text = system.at(UP).read_text()
    assert text.startswith(f"#!/usr/bin/perl -TUX\n{MARKER}\n") and len(text) < 4096
    assert system.install("ganeti") == []
    environ = {"PATH": "/usr/bin:/bin"}
    said = subprocess.run([system.at(UP), "tap0", "x y"], env=environ, capture_output=True, text=True, check=True).stdout
    assert said == f"cold {system.hooks}/cold/kvm-ifup tap0 x y\n"
    override = system.at("/etc/ganeti/network/routed/up")
    override.parent.mkdir(parents=True)
    override.symlink_to(system.at("/usr/lib/ganeti/kvm-nic-setup"))
    assert subprocess.run([override], env=environ, capture_output=True, text=True, check=True).stdout == f"cold {system.hooks}/cold/up \n"


def test_the_hooks_modules_are_compiled_when_they_are_installed(tmp_path: Path) -> None:
    system = System(tmp_path / "root", tmp_path / "opt/hooks")
    system.ganeti()
    (tmp_path / "opt/runtime").mkdir()
    system.install("ganeti", dry_run=True)
    assert system.commands == []
    system.install("ganeti")
    assert system.commands == [["/usr/bin/python3", "-IS", "-m", "compileall", "-q", str(tmp_path / "opt/runtime")]]


def test_ganeti_was_removed_before_us(tmp_path: Path) -> None:
    """dpkg took the link that we had saved: nothing is to be restored, and our door goes, with the folders that nobody needs."""
    system = System(tmp_path / "root", tmp_path / "opt/hooks")
    system.ganeti()
    listed = system.put("/var/lib/dpkg/info/ganeti.list", f"/.\n{UP}\n", 0o644)
    system.install("ganeti")
    system.at(UP + SAVED).unlink()
    assert "there is nothing to restore" in next(a.text for a in system.install("ganeti", True, True) if a.path == UP)
    listed.unlink()
    system.at("/usr/lib/ganeti/default").unlink()
    shutil.rmtree(system.at("/usr/lib/ganeti/3.0"))
    system.install("ganeti", uninstall=True)
    assert not system.at("/usr/lib/ganeti").exists() and system.root.exists()
