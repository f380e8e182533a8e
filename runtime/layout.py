"""The folders of the state directory, one layout for each network namespace that shares it.

    nics/<key>.json               key: the NIC's UUID, or UUID.IFINDEX where the NIC has since come up on another device
    instances/<name>/<index>  ->  ../../nics/<key>.json
    devices/<tap>             ->  ../nics/<key>.json
    owners/<shared key>/<key> ->  ../../nics/<key>.json
    owed/<key>.<number>.json      see runtime.owed
    quarantine/                   records that do not parse, bytes intact; OWED begins the names of those from owed/
    locks/                        see runtime.locks
    netns.<boot>                  which network namespace this layout belongs to: the first that wrote here since this boot
    netns.d/<cookie>/             the same layout, of each other namespace

Other namespaces (several nodes on one machine share /run) never see these records.
"""

from __future__ import annotations

import os

from runtime.errors import HostRefused, RecordUnreadable
from runtime.folder import Folder, trusted
from runtime.names import file_name
from runtime.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

SUBFOLDERS = ("nics", "instances", "devices", "owners", "owed", "quarantine", "locks")

#: What the name in quarantine begins with of a file from owed/: no record's does.
OWED = "owed-"


class Layout:
    """The layout of the namespace ``netns`` below ``path``; folders are opened when first asked for and kept open."""

    def __init__(self, path: str, netns: int, boot: str, readonly: bool) -> None:
        self._path, self._cookie, self._readonly = path, str(netns), readonly
        self._marker = "netns." + file_name(boot)
        self._root: Folder | None = None
        self._certain = False  #: the marker was there, so the choice of the root holds for this boot
        self._folders: dict[str, Folder] = {}

    def close(self) -> None:
        for folder in self._folders.values():
            folder.close()
        self._folders.clear()
        if self._root is not None:
            self._root.close()
            self._root = None

    def find(self, name: str) -> Folder | None:
        """The folder ``name``, None where there is none. Raises HostRefused."""
        if name not in self._folders:
            if self._root is None:
                self._root = self._find_root()
            found = self._root.sub(name) if self._root is not None else None
            if found is None:
                return None
            self._folders[name] = found
        return self._folders[name]

    def make(self, name: str) -> Folder:
        """The folder ``name``, made if need be. Raises HostRefused; RuntimeError if the layout is read-only."""
        if self._readonly:
            raise RuntimeError("a read-only store was asked to write")
        if self._root is None or not self._certain:
            self.close()  # what was read as nobody's may be another namespace's by now
            self._root = self._make_root()
        if name not in self._folders:
            self._folders[name] = self._root.make_sub(name)
        return self._folders[name]

    def stands(self) -> bool:
        """Whether every folder that is open is what would be opened now."""
        opened = [self._root] if self._root is not None else []
        return all(map(_stands, (*opened, *self._folders.values())))

    def remove_empty(self, name: str) -> None:
        """Removes the folder ``name`` if nothing is in it."""
        opened = self._folders.pop(name, None)
        if opened is not None:
            opened.close()
        if self._root is not None:
            self._root.remove_empty(name)

    def folders(self) -> Iterator[Folder]:
        """Every folder that there is, each open until the next one is asked for."""
        for name in SUBFOLDERS:
            folder = self.find(name)
            if folder is None:
                continue
            yield folder
            for below in folder.names() if name in ("instances", "owners") else ():
                opened = folder.sub(below)
                if opened is not None:
                    with opened:
                        yield opened
        if self._root is not None:
            yield self._root

    def elsewhere(self, name: str) -> bool:
        """Tell whether the layout of another namespace has the file ``name``. Raises HostRefused."""
        base = Folder.find(self._path)
        if base is None:
            return False
        with base:
            owner, others = self._owner(base), base.sub("netns.d")
            if owner not in ("", self._cookie) and base.exists(name):
                return True
        if others is None:
            return False
        with others:
            return any(others.exists(f"{cookie}/{name}") for cookie in others.names() if cookie != self._cookie)

    def _find_root(self) -> Folder | None:
        base = Folder.find(self._path)
        if base is None:
            return None
        try:
            owner = self._owner(base)
        except BaseException:  # a signal too
            base.close()
            raise
        self._certain = bool(owner)
        if owner in ("", self._cookie):
            return base
        with base:
            others = base.sub("netns.d")
        if others is None:
            return None
        with others:
            return others.sub(self._cookie)

    def _make_root(self) -> Folder:
        base = Folder.make(self._path)
        try:
            if not self._owner(base):
                # exclusive, so of two namespaces that are first at once one wins; a marker of an earlier boot has another name
                base.create(self._marker, f"{self._cookie}\n".encode("ascii"))
                for name in base.names():
                    if name.startswith("netns.") and name not in ("netns.d", self._marker):
                        base.remove(name)
            self._certain = True
            if self._owner(base) == self._cookie:
                return base
        except BaseException:  # a signal too
            base.close()
            raise
        with base, base.make_sub("netns.d") as others:
            return others.make_sub(self._cookie)

    def _owner(self, base: Folder) -> str:
        try:
            data = base.read(self._marker, 64)
        except RecordUnreadable as error:
            raise HostRefused(str(error), "remove it") from None
        return "" if data is None else data.decode("ascii", "replace").strip() or "?"


def _stands(folder: Folder) -> bool:
    """Whether it is what would be found at its path now."""
    try:
        found = os.lstat(folder.path)
        trusted(found, folder.path)
        return os.path.samestat(found, os.fstat(folder.descriptor))
    except (OSError, HostRefused):
        return False
