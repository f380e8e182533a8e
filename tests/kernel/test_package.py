"""The Debian package is installed, upgraded, removed and purged while NICs are up: packaging/deb/trial.sh, with the machine's own dpkg.

The system that may be spoiled is the machine's own under an overlay: what is written stays in memory, and goes with the mounts. There
is no systemd in it; packaging/try-package tries that too, in a Debian of its own.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from netcommon import __version__
from netcommon.install import install
from netcommon.scripts.door_files import MARKER
from tests.support import bootstrap, syscalls
from tests.support.bootstrap import ROOT
from tests.support.node import Node

#: A later version, built on the same day: bytecode of the earlier one must not pass for its own.
LATER = __version__[:-1] + str((int(__version__[-1]) + 1) % 10)

GANETI = """Package: ganeti-3.0
Version: 3.0.2-3+trial
Architecture: all
Maintainer: nobody <nobody@example.com>
Description: the scripts of Debian's Ganeti, where it has them
"""

#: Debian's links to the scripts of its default version.
LINKS = {
    "etc/ganeti/lib": "/usr/lib/ganeti/3.0",
    "usr/lib/ganeti/default": "/etc/ganeti/lib",
    "usr/lib/ganeti/kvm-ifup": "default/usr/lib/ganeti/kvm-ifup",
    "usr/lib/ganeti/vif-ganeti": "default/usr/lib/ganeti/vif-ganeti",
}


@pytest.fixture
def system(node: Node, tmp_path: Path) -> Iterator[Path]:
    """The machine's own system, to be spoiled, without any Ganeti or package of ours."""
    syscalls.mount("tmpfs", str(tmp_path), "tmpfs", options="mode=0755")
    for name in ("upper", "work", "root"):
        (tmp_path / name).mkdir()
    root = tmp_path / "root"
    syscalls.mount("overlay", str(root), "overlay", options=f"lowerdir=/,upperdir={tmp_path}/upper,workdir={tmp_path}/work")
    try:
        for name, kind in (("proc", "proc"), ("sys", "sysfs"), ("run", "tmpfs")):
            syscalls.mount(kind, str(root / name), kind)
        syscalls.mount("/dev", str(root / "dev"), flags=syscalls.MS_BIND | syscalls.MS_REC)
        without(root, ("ganeti", "netcommon"))
        yield root
    finally:
        for name in ("dev", "run", "sys", "proc", ""):
            subprocess.run(["umount", "--lazy", root / name], check=False)
        subprocess.run(["umount", "--lazy", tmp_path], check=True)


def without(root: Path, names: tuple[str, ...]) -> None:
    """Makes dpkg forget packages whose names begin so, and takes their folders away."""
    status = root / "var/lib/dpkg/status"
    kept = [part for part in status.read_text().split("\n\n") if not part.startswith(tuple(f"Package: {name}" for name in names))]
    status.write_text("\n\n".join(kept))
    diversions = root / "var/lib/dpkg/diversions"  # three lines each: of which file, to where, by which package
    lines = diversions.read_text().splitlines()
    triples = [lines[at : at + 3] for at in range(0, len(lines), 3)]
    diversions.write_text("".join(f"{line}\n" for triple in triples if not triple[2].startswith(names) for line in triple))
    for name in names:
        for path in (root / "var/lib/dpkg/info").glob(f"{name}*"):
            path.unlink()
        for folder in ("etc", "usr/lib", "usr/share", "var/lib"):
            shutil.rmtree(root / folder / name, ignore_errors=True)


def ganeti(folder: Path) -> Path:
    """A package of Debian's own scripts of Ganeti."""
    tree = folder / "ganeti"
    shutil.copytree(bootstrap.unpacked("ganeti-3.0") / "usr/lib/ganeti/3.0", tree / "usr/lib/ganeti/3.0", symlinks=True)
    for path, target in LINKS.items():
        (tree / path).parent.mkdir(parents=True, exist_ok=True)
        (tree / path).symlink_to(target)
    (tree / "DEBIAN").mkdir()
    (tree / "DEBIAN/control").write_text(GANETI)
    made = folder / "ganeti.deb"
    bootstrap.command(["dpkg-deb", "--root-owner-group", "-Znone", "--build", str(tree), str(made)])
    return made


def scripts(folder: Path, version: str) -> Path:
    """A package of two of Ganeti's scripts, of which one is a link to the other."""
    tree = folder / f"scripts-{version}"
    (tree / "DEBIAN").mkdir(parents=True)
    (tree / "DEBIAN/control").write_text(GANETI.replace("3.0.2-3+trial", version).replace("ganeti-3.0", "ganeti-scripts"))
    (tree / "usr/lib/ganeti").mkdir(parents=True)
    (tree / "usr/lib/ganeti/kvm-ifup").write_text(f"#!/bin/sh\n# {version}\n")
    (tree / "usr/lib/ganeti/kvm-ifup").chmod(0o755)
    (tree / "usr/lib/ganeti/kvm-ifdown").symlink_to("kvm-ifup")
    made = folder / f"scripts-{version}.deb"
    bootstrap.command(["dpkg-deb", "--root-owner-group", "-Znone", "--build", str(tree), str(made)])
    return made


def later(folder: Path) -> Path:
    """A copy of what the package is made of, with a later version."""
    copied = folder / "later"
    for name in ("docs", "examples", "hooks", "netagent", "netcommon", "netregistry", "packaging", "runtime"):
        shutil.copytree(ROOT / name, copied / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("README.md", "requirements.txt"):
        shutil.copy(ROOT / name, copied / name)
    for name, was, becomes in (
        ("netcommon/__init__.py", f'"{__version__}"', f'"{LATER}"'),
        ("packaging/deb/changelog", f"({__version__})", f"({LATER})"),
    ):
        text = (copied / name).read_text()
        assert was in text
        (copied / name).write_text(text.replace(was, becomes, 1))
    return copied


def built(checkout: Path, folder: Path) -> Path:
    return Path(bootstrap.command([str(checkout / "packaging/build-deb"), "--output", str(folder)]).stdout.strip())


def test_dpkg_upgrades_and_removes_what_our_doors_stand_for(system: Path, tmp_path: Path) -> None:
    folder, hooks = system / "usr/lib/ganeti", str(ROOT / "hooks")

    def dpkg(*words: str) -> None:
        subprocess.run(["chroot", system, "dpkg", *words], check=True, capture_output=True, env={"PATH": os.environ["PATH"]})

    for version in ("1", "2"):
        shutil.copy(scripts(tmp_path, version), system / "root")
    dpkg("-i", "/root/scripts-1.deb")
    install("ganeti", str(system), hooks=hooks)
    for _ in ("an upgrade", "the same once more"):
        dpkg("-i", "/root/scripts-2.deb")
        assert MARKER in (folder / "kvm-ifup").read_text() and MARKER in (folder / "kvm-ifdown").read_text()
        assert not (folder / "kvm-ifdown").is_symlink()
        assert install("ganeti", str(system), hooks=hooks) == []
    install("ganeti", str(system), uninstall=True, hooks=hooks)
    assert sorted(os.listdir(folder)) == ["kvm-ifdown", "kvm-ifup"]
    assert (folder / "kvm-ifup").read_text() == "#!/bin/sh\n# 2\n" and (folder / "kvm-ifdown").readlink() == Path("kvm-ifup")
    dpkg("--verify", "ganeti-scripts")
    install("ganeti", str(system), hooks=hooks)
    dpkg("-r", "ganeti-scripts")
    install("ganeti", str(system), uninstall=True, hooks=hooks)
    assert not folder.exists() and "ganeti" not in (system / "var/lib/dpkg/diversions").read_text()


@pytest.mark.slow
def test_installed_upgraded_removed_and_purged(system: Path, tmp_path: Path) -> None:
    packages = [built(ROOT, tmp_path), built(later(tmp_path), tmp_path), ganeti(tmp_path)]
    for path in (*packages, ROOT / "packaging/deb/trial.sh"):
        shutil.copy(path, system / "root")
    argv = ["chroot", system, "sh", "-euc", 'dpkg -i /root/ganeti.deb; exec sh /root/trial.sh "$@"', "sh"]
    done = subprocess.run(
        [*argv, *(f"/root/{path.name}" for path in packages)], env={"PATH": os.environ["PATH"]}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr
    assert "every file of the system is as before" in done.stdout and "of which failed: 0" in done.stdout
