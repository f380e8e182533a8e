"""Put one simulated node together: the real agent on a simulated host, with folders of its own, in a process that it shares with others."""

from __future__ import annotations

from contextlib import contextmanager, suppress
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any

from mockcloud.ganeti import Apart
from mockcloud.hardware import PROFILES, build
from mockcloud.namespace.host import NamespaceHost
from mockcloud.namespace.sources import KernelSources
from mockcloud.replaced.locks import Table
from mockcloud.replaced.pool import InlinePool
from mockcloud.replaced.process import Lines, Unattended, no_scripts
from mockcloud.replaced.sources import Sources
from mockcloud.replaced.transport.session import Session
from netagent.agent import Agent
from netagent.hooks.protocol import SETTINGS, Given, Latest, handed_back
from netagent.hooks.session import Kept, Warm
from netagent.observe.hook_reports import WARM, called
from netagent.state import State
from netagent.surroundings import Surroundings
from netcommon.host.simulated.host import MemoryHost
from netcommon.lifecycle import down, up
from netcommon.lifecycle.check import repair
from netcommon.lifecycle.context import HOT_REMOVE, START, Call, Clock, Node, Outcome, open_node
from runtime.environment import DownHint
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
    from netcommon.host.api.facts import Link
    from netcommon.host.api.requests import Request
    from runtime.nic import Nic

    #: Is told what a node does: its name, and what.
    Note = Callable[[str, str], None]

LIMIT = 30.0  #: seconds that a hook has


class MockNode:
    """One node and its agent. ``root``: the folder that its own is made in, which has its name, or is ``folder``.

    ``session``: the way to its registry, or what makes another session with one. ``host``: without it one of the profile "plain".
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
        self.name, self.paths = name, Paths.under(f"{root}/{folder or name}")
        self.loop = scheduler.loop()
        self._note = partial(note, name)
        self.machine = host or build(PROFILES["plain"], "boot-1", number)
        self.machine.fail = self._asked
        if isinstance(self.machine, NamespaceHost):
            self.loop.inside = self.machine.place
        self.sources = Sources(self.machine, self.loop) if isinstance(self.machine, MemoryHost) else KernelSources(self.loop)
        self.locks = Table(self.sources.lock_closed)
        clock = Clock(self.loop.now, self.loop.wall, self.loop.sleep, self.loop.cpu)
        self.state = State(self.paths, self.machine.identity(), clock, Lines(self._note), {})
        self.state.read()
        self.process = Unattended(self.state)
        self._watcher, self._chance = watcher, Random(scheduler.chance.random())
        self._session = session if session is None or callable(session) else partial(Session, session, self.loop)
        with self.inside:
            self.agent = self._made()
        self._settings = Latest(self.paths, self.loop.wall)
        self._kept = Kept(self.paths, clock, self.process.open_node, Lines(self._note))

    @property
    def inside(self) -> AbstractContextManager[object]:
        """Give that in which the node's host may be asked: its namespace, if it has one."""
        return self.loop.inside

    def _made(self) -> Agent:
        """Make an agent, of which nobody was there before, or which has ended."""
        return Agent(self.state, self.process, self._chance, self.around())

    def around(self) -> Surroundings:
        """Give what the agent works with, in place of this machine: what is in mockcloud.replaced, and the simulated host."""
        return Surroundings(
            make_loop=self.loop.begin,
            make_pool=partial(InlinePool, self.loop, self._chance),
            make_host=lambda _paths, _settings, _clock: self.machine,
            sources=self.sources,
            watcher=lambda: self._watcher.part(self.loop),
            dial=self.sources.dial,
            make_gates=lambda: None,
            locking=self.locks,
            make_parse=lambda: from_json,
            make_launcher=lambda _environ: no_scripts,
            make_session=self._session,
            trim=lambda: None,
            frugal=True,
        )

    def _asked(self, request: Request) -> None:
        if isinstance(self.machine, MemoryHost):
            self.machine.requests.clear()  # what was noted is not kept twice, for as long as the node runs
            self.machine.changes.clear()
        self._note(repr(request))

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
        with self.inside:
            try:
                status, text = door.answer()
            finally:
                self._kept.close()
                self.loop.behind = 0.0
        called(self.state.metrics, door.name, door.mode, status, self.loop.now() - door.started, WARM)
        return status, text

    def after(self, environ: Mapping[str, str], parent: int) -> tuple[int, str]:
        """Call Ganeti's own hook, in a process of its own on a real node; give its exit status, and what it says on standard error."""
        with self.inside:
            door = Apart(self._kept, self.state.settings, environ, parent)
            try:
                status, text = door.answer()
            finally:
                self._kept.close()
                self.loop.behind = 0.0
        self._note(f"ganeti-hook {environ['GANETI_OP_CODE']}: {status} {text}".rstrip())
        return status, text

    def resume(self) -> None:
        """Let the host be as the records of NICs say whose devices are there: the process that had it in memory is gone."""
        clock = Clock(self.loop.now, self.loop.wall, self.loop.sleep, self.loop.cpu)
        settings, host, locks = self.state.settings, self.machine, self.locks
        with self.inside:
            node = open_node(self.paths, settings, clock, lambda *_: host, later=lambda *_: None, locking=locks)
            try:
                for record in node.store.all()[0]:
                    if record.boot == node.identity.boot and host.view().link_at(record.ifindex) is not None:
                        call = Call(self.state.make_log(), self.loop.now() + LIMIT, "mockcloud")
                        with suppress(NetcommonError):  # the agent finds what drifts
                            repair(node, record.key, call)
            finally:
                node.store.close()
                self.loop.behind = 0.0

    def tap(self, name: str) -> Link:
        return self.machine.add_tap(name, 4242)

    def up(self, nic: Nic) -> Outcome:
        """Call the hook, which the agent serves."""
        return self._hook(lambda node, call: up.up(node, nic, call))

    def down(self, nic: Nic) -> Outcome:
        hint = DownHint(nic.uuid, nic.interface, nic.instance, nic.index, nic.mac)
        return self._hook(lambda node, call: down.down(node, hint, call), HOT_REMOVE)

    def vanish(self, tap: str) -> None:
        """The guest's process ends, and nobody calls a down."""
        self.machine.let_go(tap)

    @contextmanager
    def deaf(self) -> Iterator[None]:
        """Nothing that happens meanwhile is told. Raises TypeError where the kernel is the running one."""
        tell = self.host.tell
        hearers, tell.hearers = tell.hearers, []
        try:
            yield
        finally:
            tell.hearers = hearers

    def _hook(self, work: Callable[[Node, Call], Outcome], context: str = START) -> Outcome:
        with self.inside:
            node = self.process.open_node(self.state.settings)
            log = self.state.make_log()
            try:
                return work(node, Call(log, self.loop.now() + LIMIT, "kvm", context))
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

    def records(self) -> list[str]:
        """List the keys of the NICs on record, and their states."""
        node = self.process.open_node(self.state.settings)
        try:
            found, problems = node.store.all()
        finally:
            node.store.close()
        if problems:
            raise RuntimeError(f"{self.name}: {problems}")
        return [f"{record.key} {record.state}" for record in found]

    def picture(self) -> dict[str, Any]:
        """Everything on a host in memory that NICs have made; equal pictures, equal hosts."""
        kernel = self.host.kernel
        return {
            "links": dict(kernel.links),
            "rules": sorted(kernel.rules),
            "routes": sorted(kernel.routes),
            "neighbours": sorted(kernel.neighbours),
            "vlans": {index: dict(sorted(vlans.items())) for index, vlans in kernel.vlans.items()},
            "ports": {index: port for index in kernel.links if (port := kernel.bridge_ports.port(index))},
            "sysctls": dict(kernel.settings._values),
            "nftables": self.host.nftables.everything(),
        }

    def close(self) -> None:
        """Let the agent end."""
        with self.inside:
            self.agent.close()

    def end(self) -> None:
        """Let the agent end, and the node's namespace with it, if it has one."""
        self.close()
        if isinstance(self.machine, NamespaceHost):
            self.machine.end()

    def again(self) -> None:
        """Start another agent, in the place of one that has ended."""
        self.loop.closed = False
        with self.inside:
            self.agent = self._made()
