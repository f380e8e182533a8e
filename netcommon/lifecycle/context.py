"""Define what the lifecycle works with: the node, and one call to it. Clock, host, store and log are passed in, never reached for.

``open_node`` is where a node is put together: by doors, the command line, and the agent's threads.
"""

from __future__ import annotations

import os
import time

from netcommon.effects.background import Detached
from netcommon.operations.base import OURS
from netcommon.operations.link import down_mark
from netcommon.scripts.site import HOOKS
from runtime.errors import Interrupted, NetcommonError, SettingsInvalid
from runtime.folder import Folder
from runtime.locks import Locks
from runtime.record import REVERTING, from_json
from runtime.store import Store
from runtime.typed import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from typing import Protocol, TypeVar

    from netcommon.host.api.host import Host, Identity, View
    from netcommon.log import Log
    from netcommon.scripts.site import Execute
    from netcommon.settings.model import Settings
    from runtime.locks import Gates, Locking
    from runtime.paths import Paths
    from runtime.record import Record
    from runtime.store import Parse

    #: What some work gives.
    Given = TypeVar("Given")

    class Later(Protocol):
        """Calls ``action`` after each of ``delays`` (seconds from now, rising) until it answers False, without holding the caller.

        ``node`` and ``log``: what the action gets where nobody else runs it. A resident process passes those of its worker instead.
        """

        def __call__(self, delays: Sequence[float], action: Action, node: Node, log: Log) -> None: ...

    MakeHost = Callable[[Paths, Settings, "Clock"], Host]

    #: What is done later, and whether it is to be done again. The view, if there is one, serves all that is done at the same time.
    Action = Callable[["Node", Log, View | None], bool]

#: The contexts of a down (design-ifdown.rst, and our own): see docs/lifecycle.md.
SHUTDOWN, MIGRATE, MIGRATE_FAILED, HOT_REMOVE = "shutdown", "migrate", "migrate-failed", "hot-remove"
DEVICE_GONE, SUPERSEDED, ROLLBACK = "device-gone", "superseded", "rollback"
START = "up"

#: The door of NICs that an earlier script has brought up (netcommon.lifecycle.adopt): their guests are on the network already.
ADOPT = "adopt"

#: The phases of a migration on its target, as Ganeti 3.2 names them (MIGRATION_PHASE): before the guest is there, and after.
PRE, POST = "pre", "post"


class Clock(NamedTuple):
    """Sources of time: ``now`` is monotonic seconds, ``wall`` seconds since the epoch, ``sleep`` waits for seconds.

    ``cpu``: the seconds of CPU that the calling thread has used. ``modified``: when a file in a folder was last written, by ``wall``.
    """

    now: Callable[[], float] = time.monotonic
    wall: Callable[[], float] = time.time
    sleep: Callable[[float], None] = time.sleep
    cpu: Callable[[], float] = time.thread_time
    modified: Callable[[Folder, str], float] = Folder.modified


class Node(NamedTuple):
    """One node: its files, its settings and its host."""

    paths: Paths
    settings: Settings
    host: Host
    store: Store
    identity: Identity
    clock: Clock
    later: Later  #: runs what an effect does again within a second, without holding the call
    hooks: str = HOOKS  #: the folder of our own executables, which are never run as custom scripts
    execute: Execute | None = None  #: runs custom scripts; None: as children of this process


def linux(paths: Paths, settings: Settings, clock: Clock) -> Host:
    """Give this machine as a host."""
    from netcommon.host.linux.host import LinuxHost  # a simulated node does without

    return LinuxHost(paths, settings.service_timeout, clock.now, settings.folders)


def open_node(
    paths: Paths,
    settings: Settings,
    clock: Clock,
    make_host: MakeHost = linux,
    readonly: bool = False,
    later: Later | None = None,
    execute: Execute | None = None,
    gates: Gates | None = None,
    parse: Parse = from_json,
    closes: Callable[[], None] | None = None,
    locking: Locking = Locks,
) -> Node:
    """Put a node together.

    ``readonly``: nothing of its files is written. ``later``, ``execute``: see Node; without ``later``, processes of their own do it, in
    which ``closes`` closes what the caller has open besides. ``gates``, ``parse``: what threads of one process share (runtime.store).
    ``locking``: other locks than those that are files (runtime.locks).

    Raises TryAgain or HostRefused where the kernel does not say which node this is.
    """
    host = make_host(paths, settings, clock)
    identity = host.identity()
    store = Store(paths, identity.netns, identity.boot, readonly, gates, parse, locking)
    if later is None:
        later = Detached((host.close, store.close, *((closes,) if closes else ())), clock.now, clock.sleep)
    return Node(paths, settings, host, store, identity, clock, later, execute=execute)


class Call(NamedTuple):
    """One call of a door: who called, for what, until when, and where it is logged."""

    log: Log
    deadline: float  #: monotonic seconds
    door: str = "cli"
    context: str = START
    phase: str = ""  #: PRE, POST, or "": no migration, or the caller does not say
    parent: int = 0  #: process id of the caller
    final: bool = False  #: down even though a process still holds the device


class Outcome(NamedTuple):
    """What a call came to, for its caller: whether anything was changed, and in words."""

    changed: bool
    text: str


def alive(node: Node, view: View, record: Record) -> bool:
    """Tell whether the device that the record was made for is still there, in the same boot: by its index, which the kernel gives once.

    One that tells that its NIC was taken down (``taken_down``) counts as gone. Under another name, and without our mark on it,
    netcommon.lifecycle.guest_device decides.
    """
    link = view.link_at(record.ifindex) if record.boot == node.identity.boot else None
    if link is None or link.alias == down_mark(record.uuid):
        return False
    if link.name == record.device or link.alias.startswith(record.uuid + " "):
        return True
    from netcommon.lifecycle.guest_device import is_renamed  # few devices are called otherwise

    return is_renamed(record, link)


def taken_down(view: View, record: Record) -> str:
    """Say that the NIC of a record that is not alive was taken down, and only its record could not be written; "" where it was not."""
    link = view.link_at(record.ifindex)
    return "it was taken down while its record could not be written" if link is not None and link.alias == down_mark(record.uuid) else ""


def any_changed(node: Node) -> bool:
    """Tell whether options of any NIC were ever changed on this node (runtime.wanted): what is done about them costs the others nothing."""
    return os.path.exists(node.paths.wanted)


def usable(settings: Settings) -> None:
    """Raise SettingsInvalid where these are not what the file says: a NIC that is up stays as it is until that can be read."""
    if settings.broken:
        raise SettingsInvalid(settings.broken)


def about(call: Call, record: Record) -> Call:
    """``call`` with a log whose lines bear the names of the record's NIC."""
    return call._replace(log=call.log.bind(record.nic.instance, record.nic.index, record.uuid, record.device))


def owe(node: Node, record: Record, operations: Iterable[Mapping[str, object]], log: Log) -> None:
    """Note on disk what of ``operations``, which ``record`` is about to let go of, another NIC may have had before it (runtime.owed).

    Call it under the lock of the UUID, before the record stops to name them; netcommon.lifecycle.down.give_back when no lock is held.
    """
    # a blackhole, which has no device, leads to nobody
    taken = tuple(each for each in operations if each.get("found") == OURS and "destination" in each and "device" in each)
    if taken and record.boot == node.identity.boot:
        try:
            node.store.owed.note(record._replace(state=REVERTING, operations=taken, before=None), node.clock.now())
        except NetcommonError as error:  # a full disk keeps nobody from cleaning up
            log.warning(f"if this is killed, another NIC may not get its address back: {error}")


def to_its_end(work: Callable[[], Given], again: Callable[[], object], log: Log) -> Given:
    """Do ``work``, from which no way leads back: where the call is told to end meanwhile, do ``again`` what is left of it, and then end.

    So a device that was shut is open again, and a NIC of which something is undone is down. ``again`` begins with what is on record and on
    the host; it is not begun anew itself, or what hangs would hang for ever.
    """
    try:
        return work()
    except Interrupted:
        try:
            again()
        except NetcommonError as error:
            log.error(f"what was begun has not come to its end: {error}")
        raise


def locks(node: Node, call: Call) -> Locks:
    """The locks for this call; waiting for them ends with the call."""
    return node.store.locks(call.deadline, node.clock.now, node.clock.sleep)
