"""Locks between processes: flock(2) on a fixed set of files, in one order.

There are three sets of files, for devices, UUIDs and shared keys; a name is locked through the file that its hash picks, so two
names may share a file. They are then serialised without need: of two NICs, of which about one pair in 32 does, one waits for the other's
site scripts too. Other files would exclude no hook of an earlier version, which may be at work while this one is installed. Lock files are
never deleted: a lock on a file that has been unlinked would exclude nobody.

Why no deadlock is possible. Order all files by (set, number), sets in the order device, uuid, key.

1. A process locks the files of one set in ascending order of number, each once, for names are first reduced to the set of their
   files.
2. It takes no lock of a set while it holds one of that set or of a later one (``_enter`` refuses, but for names whose files it holds
   already): keys may be locked again after ``release_keys``, when only files of earlier sets are held.
3. So each lock that a process waits for is greater than every lock it holds. In a circle of processes, each waiting for a lock the
   next one holds, the locks waited for would grow all the way round: a contradiction.

And should something outside this program hold a lock for ever, each wait ends at the deadline.

flock(2) has no time limit, so who finds a file locked tries again and again. The threads of one process (the agent's) hand a file over
to each other instead, by a gate that each passes before it tries the file, and lets go of after it: it goes with the file, so the order
is the same.
"""

from __future__ import annotations

import fcntl
import io
import os
from binascii import crc32

from runtime.errors import TryAgain, WaitsForUs, escaped
from runtime.folder import plain, refused
from runtime.typed import TYPE_CHECKING

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from typing import Protocol

    from runtime.folder import Folder

    #: For each file, by its set and number, the gate of a process's threads.
    Gates = Mapping[tuple[str, int], threading.Lock]

    class Lock(Protocol):
        """One lock, open: it is nobody's, ours, or another's."""

        def taken(self, shared: bool = False) -> bool:
            """Take it, unless another has it; tell whether it is ours. ``shared``: with others that take it so. Never waits."""
            ...

        def close(self) -> None:
            """Let it go; nothing, where it is closed."""
            ...

    class Locking(Protocol):
        """Makes the locks of one call: ``Locks``, or those of a simulated node, which lie in no file."""

        def __call__(
            self,
            folder: Folder,
            deadline: float,
            clock: Callable[[], float],
            sleep: Callable[[float], None],
            proc: str,
            gates: Gates | None,
            kept: Iterable[str],
        ) -> Locks: ...


FILES = 64
DEVICE, UUID, KEY = "device", "uuid", "key"
SETS = (DEVICE, UUID, KEY)
#: Seconds between two attempts: short at first, since most holders are done within milliseconds.
SHORTEST, LONGEST = 0.001, 0.05


def number(name: str) -> int:
    """The file of ``name`` within its set: the same in every process and version."""
    return crc32(name.encode("utf-8", "surrogateescape")) % FILES


class Locks:
    """The locks that one hook holds; leaving the context releases them all. What a lock is (a file) only ``_opened``, ``_holders`` know.

    ``deadline``: by ``clock``, in its seconds; ``sleep`` waits between attempts. Raises TryAgain at the deadline.
    ``gates``: those of this process, where it has several threads. ``kept``: names whose locks a process holds that waits for this one to
    end: what cannot be had of them at once is refused at once (WaitsForUs).
    """

    def __init__(
        self,
        folder: Folder,
        deadline: float,
        clock: Callable[[], float],
        sleep: Callable[[float], None],
        proc: str = "/proc",
        gates: Gates | None = None,
        kept: Iterable[str] = (),
    ) -> None:
        self._kept = {number(name): name for name in kept}
        self._folder, self._deadline, self._clock, self._sleep, self._proc = folder, deadline, clock, sleep, proc
        self._gates = gates
        #: Of each set the files that are locked, or just waited for. What is open is nowhere else: a signal may come between any two steps,
        #: and what nobody knew of would be held until this process has ended, which may wait for it itself.
        self._held: dict[str, dict[int, Lock]] = {}

    def __enter__(self) -> Locks:
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self.release()
        finally:
            self.release()  # what a signal has left

    def devices(self, names: Iterable[str]) -> None:
        """Locks these devices' names. Raises TryAgain."""
        self._enter(DEVICE, names)

    def uuids(self, uuids: Iterable[str]) -> None:
        """Locks these NICs. Raises TryAgain."""
        self._enter(UUID, uuids)

    def keys(self, keys: Iterable[str]) -> None:
        """Locks these shared keys. Raises TryAgain.

        What follows an "@" (the uplink it is on, which is found only after the lock was taken) does not count: keys that differ there
        alone have one lock, and owners of their own.
        """
        self._enter(KEY, {key.partition("@")[0] for key in keys})

    def anew(self, keys: Iterable[str]) -> None:
        """Locks these shared keys besides those that are held, which are let go of for a moment where these are not among them.

        Raises TryAgain; then none is held.
        """
        there = set(self._held.get(KEY, ()))
        more = {number(name): name for name in (key.partition("@")[0] for key in keys)}
        if KEY not in self._held or not more.keys() <= there:
            self.release_keys()
            self._take(KEY, {**{file: f"{KEY} {file}" for file in there}, **more})

    def release_keys(self) -> None:
        """Lets the shared keys go, and keeps the rest."""
        self._release(KEY)

    def release(self) -> None:
        """Lets everything go."""
        for which in reversed(SETS):
            self._release(which)

    def _release(self, which: str) -> None:
        """Let the files of a set go, the last one first. Told to end on the way, it may be called again."""
        held = self._held.get(which, {})
        while held:
            file, lock = next(reversed(held.items()))
            lock.close()  # nothing, where it is closed
            if self._gates is not None:  # of threads, in which no signal is heeded
                self._gates[which, file].release()
            held.pop(file)
        self._held.pop(which, None)

    def _enter(self, which: str, names: Iterable[str]) -> None:
        files: dict[int, str] = {}
        for name in names:
            files.setdefault(number(name), name)
        if which in self._held and files.keys() <= self._held[which].keys():
            return
        held = [later for later in SETS[SETS.index(which) :] if later in self._held]
        if held:
            raise RuntimeError(f"locks of {which} asked for while holding {held}: that could end in a deadlock")
        self._take(which, files)

    def _take(self, which: str, files: Mapping[int, str]) -> None:
        """Lock the files of a set, of which none is held, in their order; with a name for each that says what it is for."""
        try:
            held = self._held[which] = {}
            for file in sorted(files):
                self._lock(which, file, files[file], held)
        except BaseException:
            self._release(which)
            raise

    def _lock(self, which: str, file: int, name: str, held: dict[int, Lock]) -> None:
        """Lock a file, which is among ``held`` from when it is waited for."""
        gate = self._gates[which, file] if self._gates is not None else None
        if gate is not None and not gate.acquire(timeout=max(self._deadline - self._clock(), 0.0)):
            raise self._too_late(which, file, name)
        try:
            held[file] = self._opened(which, file)
        except BaseException:
            if gate is not None:
                gate.release()
            raise
        self._wait(which, file, name, held[file])

    def lasts(self, deadline: float) -> None:
        """Wait for what is taken from now on until then at least: a way back has time of its own."""
        self._deadline = max(self._deadline, deadline)

    def _wait(self, which: str, file: int, name: str, lock: Lock) -> None:
        """Until the lock is ours. Raises TryAgain."""
        pause = SHORTEST
        while not lock.taken():
            if which != KEY and number(name) in self._kept:
                kept = self._kept[number(name)]
                why = "" if kept == name else f", which has the same lock file as {escaped(name)},"
                raise WaitsForUs(f"whoever is at work on {which} {escaped(kept)}{why} waits until this script has ended")
            left = self._deadline - self._clock()
            if left <= 0:
                raise self._too_late(which, file, name)
            self._sleep(min(pause, left))
            pause = min(pause * 2, LONGEST)

    def _too_late(self, which: str, file: int, name: str) -> TryAgain:
        holder = next((int(pid) for pid in self._holders(which, file) if pid.isdigit()), 0)
        by = f" by process {holder}" if holder else ""
        return TryAgain(f"the lock of {which} {escaped(name)}, or of another that has the same lock file, is held{by}: try again")

    def held(self, uuid: str) -> bool:
        """Does another process hold the lock of this NIC, or of one that shares its file?"""
        lock = self._opened(UUID, number(uuid))
        try:
            return not lock.taken(shared=True)
        finally:
            lock.close()

    def seen(self, uuid: str) -> bool:
        """Tell whether a process is seen to hold the lock of this NIC, or of one that shares its file, without a touch of the file.

        So who watches the folder is told of nothing. A process of another PID namespace may hold it unseen.
        """
        return any(True for _pid in self._holders(UUID, number(uuid)))

    # -- what a lock is

    def _opened(self, which: str, file: int) -> Lock:
        return _open(self._folder, which, file)

    def _holders(self, which: str, file: int) -> Iterator[str]:
        """Give the processes that hold a lock, by /proc/locks (proc_locks(5)); none if that does not say."""
        try:
            found = os.stat(_name(which, file), dir_fd=self._folder.descriptor, follow_symlinks=False)
            place = f"{os.major(found.st_dev):02x}:{os.minor(found.st_dev):02x}:{found.st_ino}"
            with open(f"{self._proc}/locks", encoding="ascii", errors="replace") as lines:
                for line in lines:
                    fields = line.split()
                    if len(fields) > 5 and fields[1] == "FLOCK" and fields[5] == place:
                        yield fields[4]
        except OSError:
            pass


class LockFile(io.FileIO):
    """The lock that is one file."""

    def taken(self, shared: bool = False) -> bool:
        """See Lock."""
        try:
            fcntl.flock(self.fileno(), (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True


def _name(which: str, file: int) -> str:
    return f"{which}-{file:02d}"


def _open(folder: Folder, which: str, file: int) -> LockFile:
    name = _name(which, file)
    # to read is enough for flock(2), and possible for one that is there in a filesystem that has become read-only
    flags = os.O_RDONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    opened: LockFile | None = None
    try:
        opened = LockFile(os.open(name, flags, 0o600, dir_fd=folder.descriptor))
        plain(os.fstat(opened.fileno()), f"{folder.path}/{name}")
        return opened
    except OSError as error:
        raise refused("cannot open the lock", f"{folder.path}/{name}", error) from None
    except BaseException:
        if opened is not None:
            opened.close()
        raise
