"""The links by device and by instance, each of which leads to the record of the NIC that came up there last.

devices/<tap>              ->  ../nics/<key>.json
instances/<name>/<index>   ->  ../../nics/<key>.json
"""

from __future__ import annotations

import os

from runtime.errors import HostRefused, NetcommonError
from runtime.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from runtime.folder import Folder
    from runtime.layout import Layout
    from runtime.record import Record

DEVICES, INSTANCES = "../nics/", "../../nics/"
END = ".json"


class Links:
    """Those of one layout. Methods raise HostRefused."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout

    def of_device(self, tap: str) -> str:
        """The key that the device's link leads to, "" where there is none."""
        devices = self._layout.find("devices")
        return _key_of(devices.target(tap), DEVICES) if devices is not None else ""

    def devices(self) -> list[str]:
        """List the names of the devices that have a link. Raises HostRefused."""
        devices = self._layout.find("devices")
        return devices.names() if devices is not None else []

    def of_instance(self, name: str, index: int) -> str:
        """The key that the link of this position in the instance leads to, "" where there is none."""
        instances = self._layout.find("instances")
        links = instances.sub(name) if instances is not None else None
        if links is None:
            return ""
        with links:
            return _key_of(links.target(str(index)), INSTANCES)

    def of_instances(self, name: str) -> list[str]:
        """List the keys that the links of all positions in the instance lead to."""
        instances = self._layout.find("instances")
        links = instances.sub(name) if instances is not None else None
        if links is None:
            return []
        with links:
            return [_key_of(links.target(index), INSTANCES) for index in links.names()]

    def make(self, record: Record, of: str | None = None) -> None:
        """Both lead to the record from now on; where ``of`` is given, those alone that have led to the record of this key, or to none."""
        devices = self._layout.make("devices")
        target = f"{DEVICES}{record.key}{END}"
        if _is_to_lead(devices.target(record.device), target, DEVICES, of):
            devices.link(record.device, target)
        if not record.nic.instance or record.nic.index is None:
            return
        instances, target = self._layout.make("instances"), f"{INSTANCES}{record.key}{END}"
        while True:
            with instances.make_sub(record.nic.instance) as links:
                if not _is_to_lead(links.target(str(record.nic.index)), target, INSTANCES, of):
                    return
                try:
                    links.link(str(record.nic.index), target)
                    return
                except HostRefused:
                    # another NIC's removal has removed the empty folder since we opened it; there may be a new one by now
                    if os.fstat(links.descriptor).st_nlink:
                        raise

    def remove_device(self, record: Record) -> None:
        """The device's link goes if it leads to the record."""
        self._layout.make("devices").unlink_if(record.device, f"{DEVICES}{record.key}{END}")

    def remove_instance(self, record: Record) -> None:
        """The link of its position goes if it leads to the record, and the instance's folder if it is empty then."""
        if not record.nic.instance or record.nic.index is None:
            return
        instances = self._layout.make("instances")
        links = instances.sub(record.nic.instance)
        if links is None:
            return
        with links:
            links.unlink_if(str(record.nic.index), f"{INSTANCES}{record.key}{END}")
        instances.remove_empty(record.nic.instance)

    def clean(
        self,
        since: float,
        exists: Callable[[str], bool],
        read: Callable[[str], Record | None],
        modified: Callable[[Folder, str], float],
    ) -> list[str]:
        """See Store.clean_links. ``since``: in seconds since the epoch."""

        def lasts(links: Folder, name: str, key: str) -> bool:
            return exists(key) or modified(links, name) > since

        removed: list[str] = []
        devices, instances = self._layout.find("devices"), self._layout.find("instances")
        if devices is not None:
            removed += _clean(devices, DEVICES, lasts, exists, lambda name, key: _is_at(read, key, lambda found: found.device == name))
        for name in instances.names() if instances is not None else ():
            links = instances.sub(name) if instances is not None else None
            if instances is None or links is None:
                continue

            def its(index: str, key: str, name: str = name) -> bool:
                return _is_at(read, key, lambda found: (found.nic.instance, str(found.nic.index)) == (name, index))

            with links:
                removed += _clean(links, INSTANCES, lasts, exists, its)
            instances.remove_empty(name)
        return removed


def unmoved(key: str) -> str:
    """The key that a record had before it was moved aside."""
    return key.partition(".")[0]


def _clean(
    links: Folder,
    before: str,
    lasts: Callable[[Folder, str, str], bool],
    exists: Callable[[str], bool],
    belongs: Callable[[str, str], bool],
) -> list[str]:
    """Tidy one folder. ``lasts``: a link to a key stays; ``belongs``: whether the record of a key is at what the link is named for."""
    removed = []
    for name in links.names():
        target = links.target(name)
        key = _key_of(target, before)
        if not key or lasts(links, name, key):
            continue
        back = unmoved(key) != key and belongs(name, unmoved(key))
        if not links.unlink_if(name, target):
            continue
        if back and not links.exists(name):
            links.link(name, f"{before}{unmoved(key)}{END}")
        if exists(key) and (back or not links.exists(name)):
            links.link(name, target)  # its record was written meanwhile
        elif not back:
            removed.append(f"{links.path}/{name}")
    return removed


def _is_at(read: Callable[[str], Record | None], key: str, there: Callable[[Record], bool]) -> bool:
    try:
        found = read(key)
    except NetcommonError:
        return False  # who cannot read it cannot make use of the link
    return found is not None and there(found)


def _is_to_lead(now: str, target: str, beginning: str, of: str | None) -> bool:
    """Tell whether a link that leads to ``now`` is to lead to ``target``. ``of``: see Links.make."""
    return now != target and (of is None or _key_of(now, beginning) in ("", of))


def _key_of(target: str, before: str) -> str:
    """The record's key in a link's target, "" if it is not one of ours."""
    if not (target.startswith(before) and target.endswith(END)):
        return ""
    return target[len(before) : -len(END)]
