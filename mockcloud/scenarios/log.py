"""Keep the log of a run as a hash of its lines, and its lines too where somebody wants them."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import IO


class Log:
    """The log. ``file``: where its lines go, None: nowhere."""

    def __init__(self, file: IO[str] | None = None) -> None:
        self._hash, self._file, self.lines = hashlib.sha256(), file, 0

    def add(self, line: str) -> None:
        """Take in one line."""
        self.lines += 1
        self._hash.update(line.encode("utf-8", "backslashreplace") + b"\n")
        if self._file is not None:
            self._file.write(f"{line}\n")

    @property
    def sha256(self) -> str:
        """The hash of all lines so far."""
        return self._hash.hexdigest()
