"""Tell which files are of Debian's packages, and where dpkg-divert(1) lets new versions of them go."""

from __future__ import annotations

import os

from netcommon.install.rooted import outside

FOLDER = "/var/lib/dpkg"


def divert(root: str, verb: str, path: str, saved: str) -> list[str]:
    """Return the command that adds ("--add") or takes away ("--remove") the diversion of ``path`` to ``saved``."""
    where = ["--root", root] if root.rstrip("/") else []
    target = ["--divert", saved] if verb == "--add" else []
    return ["dpkg-divert", *where, "--quiet", "--local", "--no-rename", *target, verb, path]


def diverted(root: str, path: str) -> str:
    """Return where dpkg puts new versions of ``path``, whoever has told it so; "" if at ``path`` itself."""
    try:
        with open(outside(root, f"{FOLDER}/diversions"), encoding="utf-8", errors="surrogateescape") as stream:
            lines = stream.read().split("\n")
    except OSError:
        return ""
    # Three lines each: from, to, for all packages but this one.
    return dict(zip(lines[0::3], lines[1::3], strict=False)).get(path, "")


def owned(root: str, path: str) -> bool:
    """Tell if a Debian package has put ``path`` there and would put it there again. Files below /etc dpkg asks about itself."""
    if path.startswith("/etc/"):
        return False
    lists = outside(root, f"{FOLDER}/info")
    try:
        names = [name for name in os.listdir(lists) if name.endswith(".list")]
    except OSError:
        return False
    line = path.encode()
    for name in names:
        with open(f"{lists}/{name}", "rb") as stream:
            if line in stream.read().split(b"\n"):
                return True
    return False
