"""The Python libraries that the package brings along: those of requirements.txt, each held against its hash, for every machine alike."""

from __future__ import annotations

import hashlib
import io
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

#: What of a wheel is about the wheel, and the machine that it is for.
INCIDENTAL = ("RECORD", "WHEEL", "top_level.txt", "entry_points.txt")

#: Compiled parts, which would tie the package to one machine and one Python: markupsafe's has the same in Python beside it.
COMPILED = ("*.so", "*.c", "_speedups.pyi")


#: How the licences begin that every Debian system has in /usr/share/common-licenses, and that a package must not repeat.
COMMON = ("GNU GENERAL PUBLIC LICENSE", "Apache License")


class BuildFailed(Exception):
    """The package cannot be made; the text says why and what to do."""


def libraries(target: Path, requirements: Path, environ: dict[str, str]) -> None:
    """Puts the libraries into the folder ``target``. Raises BuildFailed."""
    hashes = set(re.findall(r"--hash=sha256:([0-9a-f]{64})", requirements.read_text()))
    for wheel in sorted(wheels(requirements, environ).iterdir()):
        data = wheel.read_bytes()
        if hashlib.sha256(data).hexdigest() not in hashes:
            raise BuildFailed(f"{wheel} is not what {requirements.name} names: delete it")
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            if any(".data/" in name for name in archive.namelist()):
                raise BuildFailed(f"{wheel} has files for other places than the libraries' folder")
            archive.extractall(target)
    for pattern in COMPILED:
        for path in target.rglob(pattern):
            path.unlink()
    for folder in target.glob("*.dist-info"):
        for name in INCIDENTAL:
            (folder / name).unlink(missing_ok=True)


def licences(target: Path) -> str:
    """The licence of each library in ``target``, as its authors have worded it, for the file copyright (Debian Policy, 12.5)."""
    parts = []
    for folder in sorted(target.glob("*.dist-info")):
        name, _, version = folder.name.removesuffix(".dist-info").partition("-")
        texts = [path.read_text(errors="replace").strip() for path in sorted((folder / "licenses").rglob("*")) if path.is_file()]
        texts = [f"{text.splitlines()[0].strip()}: see above." if text.startswith(COMMON) else text for text in texts]
        parts.append(f"\n{'=' * 78}\n{name} {version}, in /usr/lib/netcommon/vendor\n\n" + "\n\n".join(texts) + "\n")
        shutil.rmtree(folder / "licenses", ignore_errors=True)
    return "".join(parts)


def wheels(requirements: Path, environ: dict[str, str]) -> Path:
    """The folder of the cache with what requirements.txt names; it is downloaded the first time. Raises BuildFailed, OSError."""
    default = "/var/cache/netcommon" if os.geteuid() == 0 else os.path.expanduser("~/.cache/netcommon")
    key = hashlib.sha256(requirements.read_bytes() + sys.version.encode()).hexdigest()[:16]
    cache = Path(environ.get("NETCOMMON_CACHE") or default)
    place = cache / "wheels" / key
    if place.exists():
        return place
    making = place.with_name(f"making-{os.getpid()}")
    making.mkdir(parents=True)
    try:
        given = ["--only-binary", ":all:", "--require-hashes", "-r", str(requirements), "--dest", str(making)]
        _run([*_pip(), "--cache-dir", str(cache / "pip"), "download", "--quiet", "--no-deps", *given], environ)
        making.rename(place)
    except OSError:
        if not place.exists():  # else somebody else was quicker
            raise
    finally:
        shutil.rmtree(making, ignore_errors=True)
    return place


def _pip() -> list[str]:
    """A pip: the checkout's, else the system's. Raises BuildFailed."""
    for python in (str(ROOT / ".venv/bin/python"), sys.executable):
        pip = [python, "-m", "pip", "--disable-pip-version-check", "--no-input"]
        if os.access(python, os.X_OK) and subprocess.run([*pip, "--version"], capture_output=True, check=False).returncode == 0:
            return pip
    raise BuildFailed("there is no pip: run tests/setup environment, or install Debian's python3-pip")


def _run(argv: list[str], environ: dict[str, str]) -> None:
    done = subprocess.run(argv, env=environ, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode:
        raise BuildFailed(f"{' '.join(argv[:5])}: exit {done.returncode}\n{done.stderr.strip()}")
