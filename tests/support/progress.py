"""What of a full run has passed on this very tree, so that a run that was stopped goes on."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import subprocess
from pathlib import Path


class Progress:
    """The passed parts and their numbers of tests, in one file per state of the tree (content, not time)."""

    def __init__(self, root: Path, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        key = tree_key(root)
        self._file = folder / f"{key}.json"
        self.figures = folder / f"{key}.figures"  #: what the fault suite found on this tree (tests/support/figures.py), a folder a part
        self._parts: dict[str, int] = json.loads(self._file.read_text()) if self._file.exists() else {}

    def passed(self, part: str) -> int | None:
        """How many tests of ``part`` passed earlier; None where it has not passed."""
        return self._parts.get(part)

    def emptied(self, part: str) -> Path:
        """The folder for the figures of ``part``, which begins anew."""
        folder = self.figures / part.replace("/", "_")
        shutil.rmtree(folder, ignore_errors=True)
        return folder

    def remember(self, part: str, passed: int) -> None:
        """Writes it down at once: the next part may be the one that is stopped. Other lanes write to the same file meanwhile."""
        with self._file.with_suffix(".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            known = json.loads(self._file.read_text()) if self._file.exists() else {}
            self._parts = {**known, part: passed}
            temporary = self._file.with_suffix(".new")
            temporary.write_text(json.dumps(self._parts))
            temporary.rename(self._file)


#: Written from what was found on the tree, so no part of it.
MADE = {"docs/reliability.md"}


def tree_key(root: Path) -> str:
    """A hash of the names, modes and contents of all files that git tracks or would; of all files where there is no git."""
    listed = subprocess.run(
        ["git", "-c", "safe.directory=*", "ls-files", "-coz", "--exclude-standard"], cwd=root, capture_output=True, check=False
    )
    if listed.returncode == 0:
        names = {os.fsdecode(name) for name in listed.stdout.split(b"\0") if name}
    else:
        names = {str(path.relative_to(root)) for path in root.rglob("*") if "__pycache__" not in path.parts and ".venv" not in path.parts}
    digest = hashlib.sha256()
    for name in sorted(names - MADE):
        path = root / name
        if path.is_symlink():
            digest.update(f"{name} -> {os.readlink(path)}\n".encode())
        elif path.is_file():
            content = hashlib.sha256(path.read_bytes()).hexdigest()
            digest.update(f"{name} {path.stat().st_mode & 0o111:o} {content}\n".encode())
    return digest.hexdigest()[:32]
