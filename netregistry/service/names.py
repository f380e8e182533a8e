"""Keep the names of networks, NICs and nodes in files, from which the shell completes them: a Tab asks no service and runs no program."""

from __future__ import annotations

import contextlib
import os
import shutil
from typing import TYPE_CHECKING, Any

from netregistry.service.index import KINDS
from runtime.errors import escaped

if TYPE_CHECKING:
    from collections.abc import Callable

    from netregistry.service.index import Index
    from netregistry.service.registry import Log
    from netregistry.view import View

FOLDER = "names"  #: beside the socket
SECONDS = 5.0  #: from one look whether names have changed to the next


class Names:
    """One file for each of KINDS in a folder of their own, a name a line. ``view``: gives the view as it is by now."""

    def __init__(self, folder: str, view: Callable[[], View], index: Index, log: Log) -> None:
        self._folder, self._view, self._index, self._log = folder, view, index, log
        self._written: dict[str, int] = {}
        self._failed = ""

    def write(self) -> None:
        """Write the files whose names have changed. One that cannot be written is no reason to do anything but say so, once."""
        try:
            os.makedirs(self._folder, 0o700, exist_ok=True)
            for kind in KINDS:
                changed = self._index.changed[kind]
                if self._written.get(kind) != changed:
                    self._replace(kind)
                    self._written[kind] = changed
            self._failed = ""
        except OSError as error:
            if not self._failed:
                self._log.warning(f"names for the shell are not kept in {escaped(self._folder)}: {error.strerror}")
            self._failed = str(error)

    def _replace(self, kind: str) -> None:
        view = self._view()
        names = sorted({_name(view.get(key)) for key in self._index.keys(kind)})
        path = os.path.join(self._folder, kind)
        with open(f"{path}.new", "w", encoding="utf-8", errors="replace") as file:
            file.writelines(f"{name}\n" for name in names if name.isprintable())
        os.replace(f"{path}.new", path)

    def remove(self) -> None:
        """Take the files away: without a service they would grow old."""
        with contextlib.suppress(OSError):
            shutil.rmtree(self._folder)


def _name(value: Any) -> str:
    found: str = getattr(value, "label", "") or value.name
    return found
