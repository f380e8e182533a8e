"""Put one simulated node together: the real agent on a simulated host, with folders of its own, in a process that it shares with others."""

from __future__ import annotations

import re
import time
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from functools import partial
from random import Random
from typing import TYPE_CHECKING

from mockcloud.disk import Dates, no_room
from mockcloud.ganeti import Apart
from mockcloud.hardware import PROFILES, build
from mockcloud.killing import Frozen, Killed
from mockcloud.namespace.host import NamespaceHost
from mockcloud.namespace.sources import KernelSources
from mockcloud.replaced.locks import Table
from mockcloud.replaced.pool import AtOnce, InlinePool
from mockcloud.replaced.process import Lines, Unattended, no_scripts
from mockcloud.replaced.sources import Sources
from mockcloud.replaced.transport.session import Session
from mockcloud.sysinfo import ANOTHER, node_uuid
from netagent.agent import Agent
from netagent.dispatcher import tell
from netagent.hooks.protocol import SETTINGS, Given, Latest, handed_back
from netagent.hooks.session import Kept, Warm
from netagent.observe.hook_reports import WARM, called
from netagent.state import State
from netagent.surroundings import Surroundings
from netcommon.host.simulated.host import MemoryHost
from netcommon.lifecycle.check import repair
from netcommon.lifecycle.context import Call, Clock, Node, open_node
from runtime.errors import CONFIG, UNAVAILABLE, NetcommonError
from runtime.paths import Paths
from runtime.record import from_json

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager

    from mockcloud.replaced.scheduler import Scheduler
    from mockcloud.replaced.transport.session import Way
    from mockcloud.replaced.watcher import SharedWatcher
    from netagent.sync.driver import MakeSession
    from netcommon.host.api.requests import Request
    from netcommon.settings.model import Settings

    #: Is told what a node does: its name, and what.
    Note = Callable[[str, str], None]

LIMIT = 30.0  #: seconds that a hook has
RESTART = 2.0  #: seconds from an agent that could not start to the next one: RestartSec of packaging/systemd/netcommon-agent.service
KILLED = 137  #: the exit status of what SIGKILL has ended, as a shell says it
#: Where an agent can be killed: at once; before a request to its host; before a worker's piece of work, and after it; before a request to
#: the registry leaves, when its answer has come, and when a line of the stream has.
POINTS = ("now", "request", "work", "worked", "ask", "answer", "line")
#: What helps a real node whose certificate counts no more; a mock one joins when it is made, and no more.
JOINS = re.compile("(join again: )?netcommon registry (join|token create) .*")


class MockNode:
    """One node and its agent. ``root``: the folder that its own is made in, which has its name, or is ``folder``.

    ``session``: the way to its registry, or what makes another session with one. ``host``: without it one of the profile "plain".
    ``full``: nothing can be written to its disks. ``alive``: its agent runs.
    """

    def __init__(
        self,
        name: str,
        number: int,
        root: str,
        scheduler: Scheduler,
        watcher: SharedWatcher,
        note: Note,
        session: MakeSession | Way | None = None,
        host: MemoryHost | NamespaceHost | None = None,
        folder: str = "",
    ) -> None:
        self._uuid = node_uuid(number)
        self.name, self.paths = name, Paths.under(f"{root}/{folder or name}")
        self.loop = scheduler.loop()
        self._note = partial(note, name)
        self.machine = host or build(PROFILES["plain"], "boot-1", number)
        self.machine.fail = self._asked
        if isinstance(self.machine, NamespaceHost):
            self.loop.inside = self.machine.place
        self._watcher, self._chance = watcher, Random(scheduler.chance.random())
        self.sources = Sources(self.machine, self.loop, self._chance) if isinstance(self.machine, MemoryHost) else KernelSources(self.loop)
        self.full, self.alive = False, True
        self.failed = ""  #: why the agent could not start, while it tries to
        self.loop.around, self.loop.died = self._room, self._died
        self._killed: Frozen | None = None  # what runs is being killed: its files as they were at that moment
        self._crash: tuple[str, int] | None = None  # where the agent is killed, and how often it gets there before
        self._hook_ends = 0  # the request before which the next hook is killed; 0: none is
        self._hooking = False
        self._resuming = False  # the host is made as it was: nobody does anything
        self.locks = Table(self.sources.lock_closed)
        self._dates = Dates(self.loop.wall)
        self._dates.look(self.paths.state)  # what is there now was left by another process
        clock = Clock(self.loop.now, self.loop.wall, self.loop.sleep, self.loop.cpu, self._dates.modified)
        self._clock = clock
        self._way: Way | None = None
        if session is None or callable(session):
            self._session: MakeSession | None = session
        else:
            self._way, self._session = session, partial(Session, session, self.loop, self._reached)
        with self.inside:
            self.agent = self._made()
        self._settings = Latest(self.paths, time.time)  # by the clock whose dates files bear
        self._kept = Kept(self.paths, clock, self._opened, Lines(self._note))

    @property
    def inside(self) -> AbstractContextManager[object]:
        """Give that in which the node's host may be asked: its namespace, if it has one."""
        return self.loop.inside

    def _cut(self) -> bool:
        """Tell whether nothing of what its agent asks the registry for is answered."""
        return self._way is not None and self._uuid in self._way.cut

    def _made(self) -> Agent:
        """Make an agent, of which nobody was there before, or which has ended."""
        self.state = State(self.paths, self.machine.identity(), self._clock, Lines(self._note), {})
        self.state.read()
        self.process = Unattended(self.state)
        return Agent(self.state, self.process, self._chance, self.around())

    def _opened(self, settings: Settings) -> Node:
        """Open the node for a hook: the agent's, or where that does not run one of the hook's own."""
        return self.process.open_node(settings) if self.alive else self._cold(settings)

    def _cold(self, settings: Settings) -> Node:
        host = self.machine
        return open_node(self.paths, settings, self._clock, lambda *_: host, later=lambda *_: None, locking=self.locks)

    def around(self) -> Surroundings:
        """Give what the agent works with, in place of this machine: what is in mockcloud.replaced, and the simulated host."""
        return Surroundings(
            make_loop=self.loop.begin,
            make_pool=partial(InlinePool, self.loop, self._chance, self._reached),
            make_host=lambda _paths, _settings, _clock: self.machine,
            sources=self.sources,
            watcher=lambda: self._watcher.part(self.loop),
            dial=self.sources.dial,
            make_gates=lambda: None,
            locking=self.locks,
            make_parse=lambda: from_json,
            make_launcher=lambda _environ: no_scripts,
            make_session=self._session,
            aside=AtOnce(self.loop, self._cut),
            trim=lambda: None,
            frugal=True,
        )

    def _asked(self, request: Request) -> None:
        if isinstance(self.machine, MemoryHost):
            self.machine.requests.clear()  # what was noted is not kept twice, for as long as the node runs
            self.machine.changes.clear()
        if self._killed is not None:
            raise Killed  # it is dead, and does nothing any more
        if self._resuming:
            return
        if not self._hooking:
            self._reached("request")
        elif self._hook_ends:
            self._hook_ends -= 1
            if self._hook_ends == 0:
                self._die("the hook")
        self._note(repr(request))

    # -- what goes wrong

    def crash_at(self, point: str, number: int = 1) -> None:
        """Let the agent be killed when it gets to a point (POINTS) for the ``number``th time from now on."""
        if point == "now":
            self.kill()
        else:
            self._crash = point, number

    def end_hook(self, number: int) -> None:
        """Let a hook be killed before the ``number``th request that hooks make of the host from now on; 0: none any more."""
        self._hook_ends = number

    @property
    def hook_ends(self) -> int:
        """Count the requests of hooks until one is killed; 0: none is."""
        return self._hook_ends

    def kill(self) -> None:
        """Kill the agent, between two things that it does."""
        if self.alive:
            self._killed = self._frozen("the agent")
            self._died()

    def revive(self) -> None:
        """Start another agent where it was killed; one that was not is not killed any more."""
        self._crash = None
        if not self.alive:
            self.again()
            self.start()

    def start(self) -> None:
        """Start the agent that was made. One that cannot start is closed, and another one begins RESTART seconds later, as by systemd."""
        try:
            with self.inside, self._room():
                self.agent.start()
        except Exception as error:  # of each the process would end
            tell(Lines(self._note).make(), "the agent cannot start", error)
            self.failed = str(error)
            self.close()
            self.again()
            self.loop.after(RESTART, self.start)
        else:
            self.failed = ""

    def _reached(self, point: str) -> None:
        if self._crash is None or self._crash[0] != point or not self.alive or self._hooking:
            return
        self._crash = point, self._crash[1] - 1
        if self._crash[1] == 0:
            self._die("the agent")

    def _die(self, who: str) -> None:
        self._killed = self._frozen(who)
        raise Killed

    def _frozen(self, who: str) -> Frozen:
        self._note(f"{who} is killed")
        return Frozen((self.paths.state, self.paths.lib, self.paths.etc, self.paths.ganeti_run))

    def _died(self) -> None:
        """Let nothing be left of the agent but what the kernel and the disk have."""
        frozen, self._killed, self._crash, self.alive = self._killed, None, None, False
        with self.inside:
            self.agent.close()
        self.locks.holders.clear()
        if frozen is not None:
            self._thawed(frozen)
        self.loop.behind = 0.0

    def _thawed(self, frozen: Frozen) -> None:
        """Let files be as they were when somebody was killed, and be left since now."""
        frozen.restore()
        self._dates.look(self.paths.state)

    def _room(self) -> AbstractContextManager[object]:
        return no_room() if self.full else nullcontext()

    # -- what a hypervisor does

    def hook(self, name: str, parent: int, argv: Sequence[str], environ: Mapping[str, str]) -> tuple[int, str]:
        """Call a hook, which the agent serves; give its exit status, and what it says on standard error.

        What the agent would hand back to the hook (netagent.hooks.protocol) ends with an error here, where no hook is a process.
        """
        settings, why = self._settings.get()
        given = Given(name, parent, parent, argv, environ)
        why = why or (handed_back(given, settings, self.paths) if settings is not None else SETTINGS)
        if settings is None or why:
            return CONFIG if why == SETTINGS else UNAVAILABLE, f"{name} is not done by the agent alone: {why}\n"
        door = Warm(given, settings, self._kept)
        status, text = self._answered(door)
        called(self.state.metrics, door.name, door.mode, status, self.loop.now() - door.started, WARM)
        return status, text

    def after(self, environ: Mapping[str, str], parent: int) -> tuple[int, str]:
        """Call Ganeti's own hook, in a process of its own on a real node; give its exit status, and what it says on standard error."""
        status, text = self._answered(Apart(self._kept, self.state.settings, environ, parent))
        self._note(f"ganeti-hook {environ['GANETI_OP_CODE']}: {status} {text}".rstrip())
        return status, text

    def _answered(self, door: Warm | Apart) -> tuple[int, str]:
        """Do what a hook does, if it is not killed meanwhile; give its exit status, and what it says on standard error."""
        self._hooking = True
        with self.inside:
            try:
                with self._room():
                    return door.answer()
            except Killed:
                return KILLED, "killed"
            finally:
                self._hooking = False
                self._kept.close()
                if self._killed is not None:
                    frozen, self._killed = self._killed, None
                    self._thawed(frozen)
                self.loop.behind = 0.0

    @contextmanager
    def unheard(self) -> Iterator[None]:
        """Let no agent hear what is done to the host meanwhile, and note nothing of it: it is made as it was."""
        with self.sources.deaf() if isinstance(self.sources, Sources) else nullcontext():
            self._resuming = True
            try:
                yield
            finally:
                self._resuming = False

    def devices(self) -> dict[str, int]:
        """Give the indices of the devices of NICs that are on record in this boot, by name."""
        with self.inside:
            node = self._cold(self.state.settings)
            try:
                return {each.device: each.ifindex for each in node.store.all()[0] if each.boot == node.identity.boot}
            finally:
                node.store.close()
                self.loop.behind = 0.0

    def resume(self) -> None:
        """Let the host be as the records of NICs say whose devices are there: the process that had it in memory is gone."""
        host = self.machine
        with self.inside:
            node = self._cold(self.state.settings)
            try:
                for record in node.store.all()[0]:
                    if record.boot == node.identity.boot and host.view().link_at(record.ifindex) is not None:
                        call = Call(self.state.make_log(), self.loop.now() + LIMIT, "mockcloud")
                        with suppress(NetcommonError):  # the agent finds what drifts
                            repair(node, record.key, call)
            finally:
                node.store.close()
                self.loop.behind = 0.0

    # -- what there is

    @property
    def host(self) -> MemoryHost:
        """Give the host, which is in memory. Raises TypeError where it is a namespace."""
        if isinstance(self.machine, MemoryHost):
            return self.machine
        raise TypeError(f"the kernel of {self.name} is the running one")

    def status(self) -> dict[str, object]:
        """Say how its agent stands, and how with its registry also where the agent does not say it; nobody joins again for a mock node."""
        said = dict(self.agent.status())
        quiet = f"away: its agent cannot start: {self.failed}" if self.failed else "away: its agent asks none"
        return {**said, "registry": JOINS.sub(ANOTHER, str(said.get("registry", quiet)))}

    def close(self) -> None:
        """Let the agent end."""
        if self.alive:
            with self.inside:
                self.agent.close()

    def end(self) -> None:
        """Let the agent end, and the node's namespace with it, if it has one."""
        self.close()
        self.loop.end()
        if isinstance(self.machine, NamespaceHost):
            self.machine.end()

    def again(self) -> None:
        """Start another agent, in the place of one that has ended."""
        self.loop.closed, self.alive = False, True
        with self.inside:
            self.agent = self._made()
