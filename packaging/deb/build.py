"""Makes the Debian package of this checkout: packaging/build-deb [--output FOLDER | --download].

Needs dpkg-deb and Python 3.11, and the first time a pip (that of .venv, or Debian's python3-pip): the libraries of requirements.txt are
downloaded once, and kept in the cache; each time they are held against their hashes. Nothing is downloaded when the package is
installed. The same checkout makes the same bytes: files and the package bear SOURCE_DATE_EPOCH, which is the date of
packaging/deb/changelog where the variable is not set.

--download does no more than fill the cache: what follows needs no network. Else the last line of the output is the package's path. Exit
status 0: made; 69: it could not be, and why.
"""

from __future__ import annotations

import argparse
import email.utils
import gzip
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

from libraries import BuildFailed, libraries, licences, wheels

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
#: Where a checkout's own paths are in the units, and where the package has the same.
MOVED = {"/usr/lib/netcommon/.venv/bin/netcommon": "/usr/bin/netcommon", "/usr/lib/netcommon/docs/": "/usr/share/doc/netcommon/docs/"}

REQUIREMENTS = ROOT / "requirements.txt"
PACKAGES = ("runtime", "netcommon", "netagent", "netregistry", "mockcloud")
SCRIPTS = ("preinst", "postinst", "prerm", "postrm")
LIBRARY = "usr/lib/netcommon"
DOCUMENTS = "usr/share/doc/netcommon"


class Release(NamedTuple):
    """The newest entry of packaging/deb/changelog."""

    version: str
    epoch: int  #: when it was made (seconds since 1970)
    maintainer: str


def release(changelog: str) -> Release:
    """What the first entry of a Debian changelog (deb-changelog(5)) says. Raises BuildFailed."""
    head = re.match(r"netcommon \(([^)\s]+)\) \S+; urgency=\w+\n", changelog)
    foot = re.search(r"^ -- (.+ <.+>)  (.+)$", changelog, re.MULTILINE)
    if not (head and foot):
        raise BuildFailed("packaging/deb/changelog: its first entry cannot be read: expected is the form of deb-changelog(5)")
    return Release(head[1], int(email.utils.parsedate_to_datetime(foot[2]).timestamp()), foot[1])


def build(output: Path, environ: dict[str, str]) -> Path:
    """Makes the package in the folder ``output``; its path. Raises BuildFailed."""
    newest = release((HERE / "changelog").read_text())
    own = re.search(r'^__version__ = "(.+)"$', (ROOT / "netcommon/__init__.py").read_text(), re.MULTILINE)
    if not own or own[1] != newest.version:
        raise BuildFailed(f"packaging/deb/changelog is of {newest.version}, netcommon of {own and own[1]}: add an entry")
    epoch = int(environ.get("SOURCE_DATE_EPOCH") or newest.epoch)
    output.mkdir(parents=True, exist_ok=True)
    made = output / f"netcommon_{newest.version}_all.deb"
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder) / "tree"
        stage(tree, environ)
        control(tree, newest)
        settle(tree, epoch)
        command = ["dpkg-deb", "--root-owner-group", "--uniform-compression", "-Zxz", "-z6", "--build", str(tree), str(made)]
        done = subprocess.run(command, env={**environ, "SOURCE_DATE_EPOCH": str(epoch)}, capture_output=True, text=True, check=False)
        if done.returncode:
            raise BuildFailed(f"dpkg-deb: {done.stderr.strip()}")
    return made


def stage(tree: Path, environ: dict[str, str]) -> None:
    """Puts every file of the package below ``tree``. Raises BuildFailed."""
    library = tree / LIBRARY
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*")):
            if path.suffix in (".py", ".j2", ".html", ".css", ".js", ".svg") or path.name == "py.typed":
                copy(path, library / path.relative_to(ROOT))
    for path in sorted((ROOT / "hooks").rglob("*")):
        if path.is_file() and "__pycache__" not in path.parts:
            copy(path, library / path.relative_to(ROOT), 0o755)
    libraries(library / "vendor", REQUIREMENTS, environ)
    copy(HERE / "leave.py", library / "leave.py")
    for program in ("netcommon", "mockcloud"):
        copy(HERE / program, tree / "usr/bin" / program, 0o755)
    for path in sorted((ROOT / "packaging/systemd").iterdir()):
        write(tree / "lib/systemd/system" / path.name, moved(path.read_text()))
    copy(ROOT / "packaging/tmpfiles.d/netcommon.conf", tree / "usr/lib/tmpfiles.d/netcommon.conf")
    copy(HERE / "rt_protos", tree / "etc/iproute2/rt_protos.d/netcommon.conf")
    copy(HERE / "default", tree / "etc/default/netcommon")
    copy(HERE / "rtupdate", tree / "usr/share/python3/runtime.d/netcommon.rtupdate", 0o755)
    documents(tree)


def documents(tree: Path) -> None:
    """Documents, examples, manual pages and completions: those that the checkout has."""
    for path in sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*")]):
        if path.suffix in (".md", ".svg", ".png", ".json"):
            copy(path, tree / DOCUMENTS / path.relative_to(ROOT))
    for name in ("config.toml", "dnsmasq.conf", "sites", "site-extension", "templates", "ifup.d", "ifdown.d"):
        for path in sorted([ROOT / "examples" / name, *(ROOT / "examples" / name).rglob("*")]):
            if path.is_file():
                copy(path, tree / DOCUMENTS / path.relative_to(ROOT))
    for path in sorted((ROOT / "packaging/man").glob("*.[1-8]")):
        squeeze(tree / "usr/share/man" / f"man{path.suffix[1:]}" / f"{path.name}.gz", path.read_bytes())
    for path in sorted((ROOT / "packaging/completion").glob("*")):
        zsh = path.name.startswith("_") or path.suffix == ".zsh"
        where = "usr/share/zsh/vendor-completions" if zsh else "usr/share/bash-completion/completions"
        copy(path, tree / where / path.name)
    squeeze(tree / DOCUMENTS / "changelog.gz", (HERE / "changelog").read_bytes())
    write(tree / DOCUMENTS / "copyright", (HERE / "copyright").read_text() + licences(tree / LIBRARY / "vendor"))


def control(tree: Path, newest: Release) -> None:
    """The package's own files, DEBIAN/."""
    files = sorted(path for path in tree.rglob("*") if path.is_file() and not path.is_symlink())
    sums = "".join(f"{hashlib.md5(path.read_bytes(), usedforsecurity=False).hexdigest()}  {path.relative_to(tree)}\n" for path in files)
    size = sum(1 + path.stat().st_size // 1024 for path in files)
    head = f"Package: netcommon\nVersion: {newest.version}\nMaintainer: {newest.maintainer}\nInstalled-Size: {size}\n"
    write(tree / "DEBIAN/control", head + (HERE / "control").read_text())
    write(tree / "DEBIAN/md5sums", sums)
    write(tree / "DEBIAN/conffiles", "".join(f"/{path.relative_to(tree)}\n" for path in files if path.is_relative_to(tree / "etc")))
    copy(HERE / "triggers", tree / "DEBIAN/triggers")
    for name in SCRIPTS:
        copy(HERE / name, tree / "DEBIAN" / name, 0o755)


def settle(tree: Path, epoch: int) -> None:
    """Gives everything the modes and the time that do not depend on who builds it, and when."""
    for path in (tree, *tree.rglob("*")):
        if not path.is_symlink():
            path.chmod(0o755 if path.is_dir() or path.stat().st_mode & 0o100 else 0o644)
        os.utime(path, (epoch, epoch), follow_symlinks=False)


def moved(text: str) -> str:
    """A unit, with the package's paths."""
    for checkout, package in MOVED.items():
        text = text.replace(checkout, package)
    return text


def copy(source: Path, target: Path, mode: int = 0o644) -> None:
    """Copies a file, or a symbolic link as one."""
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, target, follow_symlinks=False)
    if not target.is_symlink():
        target.chmod(mode | (source.stat().st_mode & 0o111 and 0o111 if DOCUMENTS in str(target) else 0))


def write(target: Path, text: str) -> None:
    """A file of our own making."""
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(text, encoding="utf-8")


def squeeze(target: Path, data: bytes) -> None:
    """A compressed file, the same for the same content."""
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(gzip.compress(data, 9, mtime=0))


def main(arguments: list[str]) -> int:
    """The exit status."""
    parser = argparse.ArgumentParser(prog="packaging/build-deb", description="Make the Debian package of this checkout.")
    parser.add_argument("--output", type=Path, default=ROOT / "dist", help="the folder for the package (dist)")
    parser.add_argument("--download", action="store_true", help="download the libraries into the cache, and make nothing")
    known = parser.parse_args(arguments)
    try:
        if known.download:
            wheels(REQUIREMENTS, dict(os.environ))
        else:
            print(build(known.output, dict(os.environ)))
    except (BuildFailed, OSError) as error:
        print(f"build-deb: {error}", file=sys.stderr)
        return 69
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
