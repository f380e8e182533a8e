"""Who shares what: links owners/<key>/<record key> for each thing on the host that more than one NIC can claim.

What is addressed by a name or an address (the rule of a tap's name, a host route, an OVS port, a sysctl on an uplink) goes only
with its last owner. Callers hold the lock of the key (runtime.locks).
"""

from __future__ import annotations

from runtime.errors import HostRefused
from runtime.names import file_name
from runtime.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from runtime.layout import Layout


class Owners:
    """The links of one layout. ``alive`` says whether the record of a key exists."""

    def __init__(self, layout: Layout, alive: Callable[[str], bool]) -> None:
        self._layout, self._alive = layout, alive

    def claim(self, key: str, record_key: str) -> None:
        """The record ``record_key`` is from now on among the owners of ``key``. Raises HostRefused."""
        name = file_name(key)
        target = _target(record_key)
        while True:
            owners = self._layout.make("owners")
            with owners.make_sub(name) as links:
                if links.target(record_key) == target:
                    return
                try:
                    links.link(record_key, target)
                    return
                except HostRefused:
                    # the last owner's release has removed the folder since we opened it
                    if owners.exists(name):
                        raise

    def release(self, key: str, record_key: str) -> None:
        """The record ``record_key`` is no longer among the owners of ``key``; nothing happens if it was not. Raises HostRefused."""
        owners = self._layout.find("owners")
        name = file_name(key)
        links = owners.sub(name) if owners is not None else None
        if owners is None or links is None:
            return
        with links:
            links.remove(record_key)
        owners.remove_empty(name)

    def others(self, key: str, record_key: str) -> list[str]:
        """The other records that own ``key``, sorted. A link whose record does not exist counts for nothing."""
        return list(self.each_other(key, record_key))

    def each_other(self, key: str, record_key: str, everybody: Callable[[], Iterable[str]] = tuple) -> Iterator[str]:
        """The same one by one: thousands may share a thing, and whether there is any may be all that is asked.

        ``everybody``: gives the keys of all records, for where the links are lost: where the record that asks, an owner, has none.
        """
        owners = self._layout.find("owners")
        links = owners.sub(file_name(key)) if owners is not None else None
        names: list[str] = []
        if links is not None:
            with links:
                names = links.names()
        for name in names if record_key in names else [*names, *everybody()]:
            if name != record_key and self._alive(name):
                yield name

    def sweep(self) -> list[str]:
        """Removes the links whose record does not exist, and empty folders; the names of what was removed.

        For garbage collection, once every record was read: a claim made by a hook that was killed before it wrote its record.
        """
        removed: list[str] = []
        owners = self._layout.find("owners")
        if owners is None:
            return removed
        for name in owners.names():
            links = owners.sub(name)
            if links is None:
                continue
            with links:
                for record_key in links.names():
                    if not self._alive(record_key) and links.remove(record_key):
                        removed.append(f"{name}/{record_key}")
            owners.remove_empty(name)
        return removed


def _target(record_key: str) -> str:
    return f"../../nics/{record_key}.json"
