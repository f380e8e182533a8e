"""Do requests on a copy of a registry, and say what each would be answered: by the same rules, and nothing of it lasts."""

from __future__ import annotations

import secrets
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from netregistry.client import Problem
from netregistry.local import Local
from netregistry.request import Call, new_id
from netregistry.service.identity import identity
from netregistry.stores.sqlite import SqliteStore
from runtime.errors import HostRefused, escaped

if TYPE_CHECKING:
    from collections.abc import Iterable


class Rehearsal:
    """A registry that is gone when it is closed. ``pieces``: a backup (netregistry.client.Client.backup)."""

    def __init__(self, pieces: Iterable[bytes]) -> None:
        """Write the copy to a folder of root's own. Raises HostRefused where there is no room for it."""
        self._folder = tempfile.TemporaryDirectory(prefix="netregistry-rehearsal-")
        try:
            path = Path(self._folder.name) / "registry.sqlite"
            with path.open("wb") as target:
                target.writelines(pieces)
            self._store = SqliteStore(str(path))
        except OSError as error:
            self._folder.cleanup()
            where = escaped(tempfile.gettempdir())
            raise HostRefused(f"no copy of the registry in {where}: {error.strerror}", "set TMPDIR to a folder with room for it") from None
        except BaseException:
            self._folder.cleanup()
            raise
        self._local = Local(self._store, time.time)

    def batch(self, role: str, parts: list[dict[str, Any]]) -> None:
        """Do several requests together, as ``role``. Raises netregistry.client.Problem where they would be refused."""
        call = Call(new_id(time.time(), secrets.randbits(74)), "batch", "", {"parts": parts}, "", False)
        response = self._local.answer(call, identity(role))
        if response.status >= 400:
            raise Problem(response.body)

    def close(self) -> None:
        """Remove the copy."""
        self._local.close()
        self._store.close()
        self._folder.cleanup()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
