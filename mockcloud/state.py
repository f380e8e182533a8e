"""Keep what a mock cloud is as a whole: cloud.json in its folder, and the lock of the one process that works on it."""

from __future__ import annotations

import fcntl
import json
import os
from typing import NamedTuple

from mockcloud.replaced.scheduler import EPOCH
from runtime.errors import HostRefused, TryAgain, escaped
from runtime.folder import Folder

FILE = "cloud.json"
LOCK = "lock"
ETCD = "etcd:"  #: of how many members its own is, behind that: "etcd:3"
IN_ETCD = "registry/state"  #: how far a registry in an etcd of its own is made
KEPT = 60.0  #: seconds of virtual time from one note of the time to the next
LONGEST = 1 << 16  #: bytes
LATEST = 253_402_300_800.0  #: seconds since the epoch: when dates have five digits of a year, which nothing here writes


class State(NamedTuple):
    """``starts``: how often it was opened; ``time``: seconds since the epoch; ``closed``: that is when it ended; ``external``: networks
    in which every node has a NIC of its own; ``registry``: the socket of its registry's service, "" for a registry of its own; ``name``:
    what the cloud is called there; ``servers``: how many name servers have the names of an underlay of a registry of its own.
    """

    starts: int = 0
    time: float = EPOCH
    closed: bool = True
    external: tuple[str, ...] = ()
    registry: str = ""
    name: str = ""
    servers: int = 1

    @property
    def later(self) -> float:
        """Give a time after all that was done: one that was killed has noted its time KEPT ago at most."""
        return self.time + (1.0 if self.closed else 2 * KEPT)


def there(root: str) -> bool:
    """Tell whether there is a cloud in the folder."""
    return os.path.exists(f"{root}/{FILE}")


def read(root: str) -> State:
    """Read it; that of a cloud that begins, where there is none. Raises HostRefused."""
    with Folder.make(root) as folder:
        data = folder.read(FILE, LONGEST)
    if data is None:
        return State()
    try:
        said = {"servers": 1, **json.loads(data)}  # an older mockcloud says no number of them
        found = State(**{**said, "external": tuple(said["external"])})
        sorts = *map(type, (found.starts, found.servers)), type(found.time), type(found.closed)
        texts = {*map(type, (found.registry, found.name, *found.external))}
        if (
            sorts == (int, int, float, bool)
            and texts == {str}
            and found.servers > 0
            and EPOCH <= found.time < LATEST
            and set(said) == set(State._fields)
        ):
            return found
    except (ValueError, KeyError, TypeError, RecursionError):
        pass
    raise HostRefused(f"{root}/{FILE} is not what mockcloud has written", "put it back, or begin in another folder")


def agree(root: str, before: State, registry: str) -> None:
    """Raise HostRefused where a cloud that is there has another registry than is asked for; "": whichever it has.

    One whose making in an etcd was cut off has none yet, but what is there is of no other sort.
    """
    if not before.starts and not registry.startswith(ETCD) and os.path.lexists(f"{root}/{IN_ETCD}"):
        what = f"a mock cloud whose registry is kept in an etcd was begun in {escaped(root)}, and not made as a whole"
        raise HostRefused(what, "mockcloud create --registry etcd:N, as it was begun, completes it; or begin in another folder")
    if registry and before.starts and registry != before.registry:
        has = f"served on {before.registry}" if before.registry else "its own"
        raise HostRefused(f"the registry of the mock cloud in {escaped(root)} is {has}", "begin another cloud in another folder")


def write(root: str, state: State) -> None:
    """Write it. Raises HostRefused."""
    with Folder.make(root) as folder:
        folder.write(FILE, json.dumps(state._asdict()).encode("ascii") + b"\n", 0o644)


def remove(root: str) -> None:
    """Remove it: there is no cloud in the folder then. Raises HostRefused."""
    with Folder.make(root) as folder:
        folder.remove(FILE)


def lock(root: str) -> int:
    """Keep others out until the descriptor is closed, or this process ends. Raises TryAgain, HostRefused."""
    with Folder.make(root):
        pass
    try:
        descriptor = os.open(f"{root}/{LOCK}", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise HostRefused(f"{escaped(f'{root}/{LOCK}')}: {error.strerror}", "remove what is in the way") from None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise TryAgain(f"another process is at work on the mock cloud in {escaped(root)}") from None
    return descriptor
