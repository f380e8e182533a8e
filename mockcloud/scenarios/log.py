"""Keep the log of a run as a hash of its lines, and its lines too where somebody wants them."""

from __future__ import annotations

import hashlib
import re
from typing import TYPE_CHECKING

from netcommon.cli.streams import UNWRITTEN
from runtime.errors import NetcommonError, escaped

if TYPE_CHECKING:
    from typing import IO

ROOT = "CLOUD"  #: the same seed, the same log, wherever the cloud is
#: A path in a line as runtime.errors.escaped shows it, and what follows where it was too long.
PATH = re.compile(r"'(/(?:[^'\\]|\\.)*)'(\.\.\. \([0-9]+ characters\))?")


class Unwritten(NetcommonError):
    """The file of a log takes nothing more."""

    status = UNWRITTEN


class Log:
    """The log. ``file``: where its lines go, None: nowhere; ``root``: the cloud's folder, for which ROOT stands in it."""

    def __init__(self, file: IO[str] | None = None, root: str = "") -> None:
        self._hash, self._file, self._root, self.lines = hashlib.sha256(), file, root, 0
        self._shown = escaped(root, len(root))[1:-1]
        self._waiting: list[str] = []

    def add(self, line: str) -> None:
        """Take in one line. It is written later: a node's disk, and so this process, may just now be unable to."""
        if self._root:
            line = PATH.sub(self._path, line).replace(self._root, ROOT) if "'/" in line else line.replace(self._root, ROOT)
        self.lines += 1
        self._hash.update(line.encode("utf-8", "backslashreplace") + b"\n")
        if self._file is not None:
            self._waiting.append(line)

    def _path(self, found: re.Match[str]) -> str:
        """Give what stands for a path of the cloud's: the same whether it was cut or not, which the length of its folder's name decides."""
        path, cut = found.groups()
        own = path == self._shown or path.startswith(f"{self._shown}/") or (cut and self._shown.startswith(path))
        return f"'{ROOT}/...'" if own else found[0]

    def flush(self) -> None:
        """Write what waits. Raises Unwritten."""
        if self._file is not None and self._waiting:
            lines, self._waiting = self._waiting, []
            try:
                self._file.write("".join(f"{line}\n" for line in lines))
                self._file.flush()
            except OSError as error:
                raise Unwritten(f"cannot write {escaped(self._file.name)}: {error.strerror}") from None

    @property
    def sha256(self) -> str:
        """The hash of all lines so far."""
        return self._hash.hexdigest()
