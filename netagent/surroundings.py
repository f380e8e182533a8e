"""Give an agent from outside what it has of the machine and the process that it runs in, so that many can run in one process."""

from __future__ import annotations

import threading
from collections.abc import Callable, Container, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from netagent import allocator
from netagent.loop import Loop, Scheduler
from netagent.reconcile.keyed_pool import Pool, Works
from netagent.record_cache import RecordCache
from netagent.scripts import launcher
from netagent.sources.base import Source, Warn
from netagent.sources.nft_events import NftEvents
from netagent.sources.rtnetlink import KernelEvents
from netagent.sources.switches import Dial
from netagent.thread_locks import gates
from netcommon.lifecycle.context import linux
from runtime.errors import HostRefused
from runtime.inotify import Inotify
from runtime.locks import Locks

if TYPE_CHECKING:
    from netagent.reconcile.keyed_pool import Key
    from netagent.sources.base import Sources
    from netagent.sources.inotify import Watcher
    from netagent.sync.driver import MakeSession
    from netcommon.lifecycle.context import MakeHost
    from netcommon.scripts.site import Execute
    from runtime.locks import Gates, Locking
    from runtime.store import Parse

Aside = Callable[[str, Callable[[], None]], None]  #: does a piece of work that waits for others, under a name


class MakePool(Protocol):
    """Makes what does the workers' work; see Pool."""

    def __call__(
        self,
        size: int,
        make: Callable[[], Any],
        end: Callable[[Any], None],
        failed: Callable[[Key, Exception], None],
        limits: Mapping[str, int],
        clock: Callable[[], float],
    ) -> Works: ...


def in_thread(name: str, work: Callable[[], None]) -> None:
    """Do a piece of work in a thread of its own, which does not keep the process alive."""
    threading.Thread(target=work, name=name, daemon=True).start()


def of_kernel(own: Container[int], warn: Warn) -> list[Source]:
    """Subscribe to what this machine's kernel tells; see Sources."""
    found: list[Source] = [KernelEvents()]
    try:
        found.append(NftEvents(own))
    except HostRefused as error:
        warn(f"no events of nftables: {error}")
    return found


class Surroundings(NamedTuple):
    """Hold what an agent works with, by default the real ones: threads, descriptors and locks of this process, and the kernel under it.

    Clock and paths are netagent.state's, chance is the agent's own.
    """

    make_loop: Callable[[Callable[[], float], Callable[[Exception], None]], Scheduler] = Loop
    make_pool: MakePool = Pool
    make_host: MakeHost = linux
    sources: Sources = of_kernel
    watcher: Callable[[], Watcher] = Inotify  #: of the agent's folders
    dial: Dial = Dial()
    make_gates: Callable[[], Gates | None] = gates  #: of threads; None: there is one thread alone
    locking: Locking = Locks
    make_parse: Callable[[], Parse] = RecordCache  #: what makes a record of a file's bytes
    make_launcher: Callable[[Mapping[str, str]], Execute] = launcher  #: of the site's scripts
    make_session: MakeSession | None = None  #: to the registry; None: netagent.sync.session, which is loaded where it is needed
    aside: Aside = in_thread  #: the work tells the loop what has come of it
    trim: Callable[[], None] = allocator.trim  #: called after what has used much memory
    frugal: bool = False  #: the folders of records are closed after each piece of work


REAL = Surroundings()
