"""Do requests, or a compaction, on a copy of a registry, and say what would come of it: by the same rules, and nothing of it lasts."""

from __future__ import annotations

import contextlib
import secrets
import tempfile
import time
from typing import TYPE_CHECKING, Any, Self

from netregistry.client import Problem
from netregistry.local import Local
from netregistry.request import Call, new_id
from netregistry.service.identity import identity
from netregistry.stores.sqlite import SqliteStore
from runtime.errors import HostRefused, escaped

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from netregistry.view import View


@contextlib.contextmanager
def copied(copy: Callable[[str], None]) -> Iterator[SqliteStore]:
    """Open a copy of a registry in a folder of root's own, and remove it in the end. ``copy``: writes it to a new file of this name.

    Raises HostRefused where there is no room for it.
    """
    try:
        with tempfile.TemporaryDirectory(prefix="netregistry-rehearsal-") as folder:
            copy(f"{folder}/registry.sqlite")
            with SqliteStore(f"{folder}/registry.sqlite") as store:
                yield store
    except OSError as error:
        where = escaped(tempfile.gettempdir())
        raise HostRefused(f"no copy of the registry in {where}: {error.strerror}", "set TMPDIR to a folder with room for it") from None


def compacted(copy: Callable[[str], None]) -> tuple[int, int]:
    """Give the bytes of a registry's file as it is, and as it would be when it is compacted. Raises as ``copied`` does."""
    with copied(copy) as store:
        store.compact(store.list("ledger", limit=1).revision)
        return store.shrink()


class Rehearsal:
    """A registry whose requests are of no consequence. ``store``: ``copied``."""

    def __init__(self, store: SqliteStore) -> None:
        self._local = Local(store, time.time)

    @property
    def view(self) -> View:
        return self._local.view

    def batch(self, role: str, parts: list[dict[str, Any]]) -> list[Any]:
        """Do several requests together, as ``role``; give what each was answered. Raises Problem where they would be refused."""
        call = Call(new_id(self._local.core.moment, secrets.randbits(74)), "batch", "", {"parts": parts}, "", False)
        response = self._local.answer(call, identity(role))
        if response.status >= 400:
            raise Problem(response.body)
        found: list[Any] = response.body
        return found

    def close(self) -> None:
        """End what is kept in step with the copy."""
        self._local.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
