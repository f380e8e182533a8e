"""A system in a folder, into which the doors are installed."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Sequence
from pathlib import Path

from netcommon.install import Action, install

#: Where Ganeti looks for its script, and where Debian's links lead from there.
UP = "/usr/lib/ganeti/kvm-ifup"
REAL = "/usr/lib/ganeti/3.0/usr/lib/ganeti/kvm-ifup"
LEADS = "default/usr/lib/ganeti/kvm-ifup"


class System:
    """A system's root folder, and our own folder of doors outside of it."""

    def __init__(self, root: Path, hooks: Path) -> None:
        self.root, self.hooks = root, hooks
        self.commands: list[list[str]] = []
        root.mkdir()
        hooks.mkdir(parents=True)
        for door in ("kvm-ifup", "kvm-ifdown", "kvm-nic-setup", "ganeti-hook", "vif-ganeti"):
            (hooks / door).write_text(f'#!/bin/sh\necho "{door} $*"\n')
            (hooks / door).chmod(0o755)
        (root / "etc").mkdir()
        (root / "var/lib").mkdir(parents=True)

    def run(self, argv: Sequence[str]) -> int:
        self.commands.append(list(argv))
        if argv[0] == "dpkg-divert":
            from_to = f"{argv[-1]}\n{argv[-3]}\n:\n" if argv[-2] == "--add" else ""
            self.put("/var/lib/dpkg/diversions", from_to, 0o644)
        return 0

    def install(self, kind: str, dry_run: bool = False, uninstall: bool = False) -> list[Action]:
        return install(kind, str(self.root), dry_run, uninstall, str(self.hooks), self.run)

    def put(self, path: str, text: str = "#!/bin/sh\nexit 0\n", mode: int = 0o755) -> Path:
        where = self.at(path)
        where.parent.mkdir(parents=True, exist_ok=True)
        where.write_text(text)
        where.chmod(mode)
        return where

    def at(self, path: str) -> Path:
        return self.root / path.lstrip("/")

    def ganeti(self) -> None:
        """Debian's layout: /usr/lib/ganeti/kvm-ifup leads through /etc/ganeti/lib to the version's own folder."""
        self.put(REAL, "#!/bin/bash\n# Ganeti's own\n", 0o751)
        self.at("/etc/ganeti").mkdir(parents=True)
        self.at("/etc/ganeti/lib").symlink_to("/usr/lib/ganeti/3.0")
        self.at("/usr/lib/ganeti/default").symlink_to("/etc/ganeti/lib")
        self.at(UP).symlink_to(LEADS)

    def picture(self) -> dict[str, tuple[object, ...]]:
        """Everything below the root: type, mode, owner, time of change, inode and contents."""
        found: dict[str, tuple[object, ...]] = {}
        for folder, folders, files in os.walk(self.root):
            for name in folders + files:
                path = os.path.join(folder, name)
                status = os.lstat(path)
                kind = stat.S_IFMT(status.st_mode)
                what: tuple[object, ...] = (kind, stat.S_IMODE(status.st_mode), status.st_uid, status.st_gid)
                if kind == stat.S_IFREG:
                    what += (hashlib.sha256(Path(path).read_bytes()).hexdigest(), status.st_mtime_ns, status.st_ino)
                elif kind == stat.S_IFLNK:
                    what += (os.readlink(path), status.st_ino)
                found[os.path.relpath(path, self.root)] = what
        return found
