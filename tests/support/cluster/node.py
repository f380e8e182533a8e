"""Put one simulated node together: the real agent on a simulated host, with folders of its own, in a process that it shares with others."""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any, TypeVar

from netagent.agent import Agent
from netagent.events import Event, LockClosed
from netagent.sources.base import Source, Warn
from netagent.sources.simulated import SimulatedFlows, SimulatedKernel, SimulatedNft, SimulatedOvs
from netagent.sources.switches import Connection, Database, Dial
from netagent.state import State
from netagent.surroundings import Surroundings
from netcommon.host.api.facts import Link
from netcommon.host.api.requests import Request
from netcommon.host.simulated.host import MemoryHost
from netcommon.lifecycle import down, up
from netcommon.lifecycle.context import HOT_REMOVE, START, Call, Clock, Node, Outcome
from netcommon.log import NAMES, NOTHING, Log
from netcommon.process.run import Outcome as Ended
from netcommon.settings.model import Settings
from runtime.environment import DownHint
from runtime.nic import Nic
from runtime.paths import Paths
from runtime.record import from_json
from tests.support.cluster.locks import Table
from tests.support.cluster.pool import InlinePool
from tests.support.cluster.scheduler import NodeLoop, Scheduler
from tests.support.cluster.watcher import SharedWatcher

if TYPE_CHECKING:
    from netagent.sync.driver import MakeSession

Simulated = TypeVar("Simulated", SimulatedKernel, SimulatedNft, SimulatedOvs, SimulatedFlows)

#: Is told what a node does: its name, and what.
Note = Callable[[str, str], None]
LIMIT = 30.0  #: seconds that a hook has


class Told:
    """A source of events that somebody in this process tells."""

    def __init__(self, loop: NodeLoop) -> None:
        self._loop, self.descriptor = loop, loop.scheduler.descriptor()
        self._waiting: list[Event] = []

    def tell(self, event: Event) -> None:
        self._waiting.append(event)
        self._loop.readable(self.descriptor)

    def read(self) -> list[Event]:
        found, self._waiting = self._waiting, []
        return found

    def close(self) -> None:
        self._waiting = []


class Unattended:
    """The process of an agent whom nobody asks, starts or ends: a netagent.agent.Process, and its server of hooks."""

    folders: tuple[str, ...] = ()

    def __init__(self, state: State) -> None:
        self._state = state
        self.open_node: Callable[[Settings], Node]

    def hooks(self, open_node: Callable[[Settings], Node]) -> Unattended:
        self.open_node = open_node
        return self

    def begin(self, loop: object) -> None: ...
    def ready(self, text: str) -> None:
        self._state.standing.state, self._state.standing.text = "running", text

    def tick(self) -> float:
        return math.inf

    def configure(self, settings: Settings) -> None: ...
    def again(self, settings: Settings | None = None) -> None: ...
    def close(self, seconds: float) -> None: ...
    def status(self) -> Mapping[str, object]:
        return {}

    def hanging(self) -> str:
        return ""


class Lines:
    """Logs whose lines are noted: a netagent.state.MakeLogs, and the sender of each."""

    dropped = 0

    def __init__(self, note: Callable[[str], None]) -> None:
        self._note = note

    def make(self) -> Log:
        return Log(self)

    def use(self, settings: Settings) -> None: ...
    def send(self, severity: int, text: str, fields: Mapping[str, object] = NOTHING) -> None:
        self._note(f"{NAMES[severity]}: {text}")

    def close(self) -> None: ...


def no_scripts(argv: Sequence[str], environment: Mapping[bytes, bytes], seconds: float, limit: int, clock: Callable[[], float]) -> Ended:
    """Run none of the site's scripts."""
    return Ended(error="no scripts run on a simulated node")


class MockNode:
    """One node with bridges br0 and br1, and its agent. ``root``: the folder that its own is made in."""

    def __init__(
        self,
        name: str,
        number: int,
        root: str,
        scheduler: Scheduler,
        watcher: SharedWatcher,
        note: Note,
        session: MakeSession | None = None,
    ) -> None:
        self.name, self.paths = name, Paths.under(f"{root}/{name}")
        self.loop = scheduler.loop()
        self._note = partial(note, name)
        self.host = MemoryHost({"guests": 100}, "boot-1", number)
        for bridge in ("br0", "br1"):
            made = self.host.add_bridge(bridge)
            self.host.add_link(Link(0, f"eth-{bridge}", "", up=True, master=made.index))
        for setting in ("ipv4/ip_forward", "ipv6/conf/all/forwarding", "ipv6/conf/all/proxy_ndp"):
            self.host.kernel.settings.write(f"net/{setting}", "1")
        self.host.fail = self._asked
        self._closed = Told(self.loop)
        self.locks = Table(lambda number: self._closed.tell(LockClosed(number)))
        clock = Clock(self.loop.now, self.loop.wall, self.loop.sleep, self.loop.cpu)
        self.state = State(self.paths, self.host.identity(), clock, Lines(self._note), {})
        self.state.read()
        self.process = Unattended(self.state)
        self._watcher, self._session, self._chance = watcher, session, Random(scheduler.chance.random())
        self.agent = self._made()

    def _made(self) -> Agent:
        """Make an agent, of which nobody was there before, or which has ended."""
        around = Surroundings(
            make_loop=self.loop.begin,
            make_pool=partial(InlinePool, self.loop, self._chance),
            make_host=lambda _paths, _settings, _clock: self.host,
            sources=self._sources,
            watcher=lambda: self._watcher.part(self.loop),
            dial=Dial(self._database, self._bridge),
            make_gates=lambda: None,
            locking=self.locks,
            make_parse=lambda: from_json,
            make_launcher=lambda _environ: no_scripts,
            make_session=self._session,
            trim=lambda: None,
            frugal=True,
        )
        return Agent(self.state, self.process, self._chance, around)

    def _sources(self, own: Container[int], warn: Warn) -> list[Source]:
        tell = self.host.tell
        return [self._heard(partial(SimulatedKernel, tell)), self._heard(partial(SimulatedNft, tell, own=own)), self._closed]

    def _database(self, _path: str, _clock: Callable[[], float]) -> Database:
        return self._heard(lambda heard: SimulatedOvs(self.host.tell, self.host.switch, heard))

    def _bridge(self, _path: str, name: str, names: Callable[[int], Iterable[str]], _clock: Callable[[], float]) -> Connection:
        return self._heard(lambda heard: SimulatedFlows(self.host.tell, self.host.switch, name, names, heard))

    def _heard(self, make: Callable[[Callable[[], None]], Simulated]) -> Simulated:
        """Make a source that is read in this node's loop."""
        descriptor = self.loop.scheduler.descriptor()
        made = make(lambda: self.loop.readable(descriptor))
        made.descriptor = descriptor
        return made

    def _asked(self, request: Request) -> None:
        self._note(repr(request))

    # -- what a hypervisor does

    def tap(self, name: str) -> Link:
        return self.host.add_tap(name, holder=4242)

    def up(self, nic: Nic) -> Outcome:
        """Call the hook, which the agent serves."""
        return self._hook(lambda node, call: up.up(node, nic, call))

    def down(self, nic: Nic) -> Outcome:
        hint = DownHint(nic.uuid, nic.interface, nic.instance, nic.index, nic.mac)
        return self._hook(lambda node, call: down.down(node, hint, call), HOT_REMOVE)

    def vanish(self, tap: str) -> None:
        """The guest's process ends, and nobody calls a down."""
        self.host.let_go(tap)

    @contextmanager
    def deaf(self) -> Iterator[None]:
        """Nothing that happens meanwhile is told."""
        tell = self.host.tell
        hearers, tell.hearers = tell.hearers, []
        try:
            yield
        finally:
            tell.hearers = hearers

    def _hook(self, work: Callable[[Node, Call], Outcome], context: str = START) -> Outcome:
        node = self.process.open_node(self.state.settings)
        log = self.state.make_log()
        try:
            return work(node, Call(log, self.loop.now() + LIMIT, "kvm", context))
        finally:
            node.store.close()
            self.loop.behind = 0.0

    # -- what there is

    def records(self) -> list[str]:
        """List the keys of the NICs on record, and their states."""
        node = self.process.open_node(self.state.settings)
        try:
            found, problems = node.store.all()
        finally:
            node.store.close()
        assert problems == []
        return [f"{record.key} {record.state}" for record in found]

    def picture(self) -> dict[str, Any]:
        """Everything on the host that NICs have made; equal pictures, equal hosts."""
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
        self.agent.close()

    def again(self) -> None:
        """Start another agent, in the place of one that has ended."""
        self.loop.closed = False
        self.agent = self._made()


class Cluster:
    """Many nodes. ``log``: what each has done, and when."""

    def __init__(self, root: str, count: int, seed: int, log: bool = True, session: MakeSession | None = None) -> None:
        self.scheduler, self.watcher = Scheduler(seed), SharedWatcher()
        self.scheduler.settle = self.watcher.pump
        self.log: list[str] = []
        note = self._note if log else lambda _name, _text: None
        self.nodes = [
            MockNode(f"node{number}", number, root, self.scheduler, self.watcher, note, session) for number in range(1, count + 1)
        ]

    def _note(self, name: str, text: str) -> None:
        self.log.append(f"{self.scheduler.now:.6f} {name} {text}")

    def start(self) -> None:
        """Start all agents, at moments of a second by chance."""
        for node in self.nodes:
            node.loop.after(self.scheduler.chance.random(), node.agent.start)
        self.scheduler.passes(2.0)

    def each(self, seconds: float, actions: Iterable[tuple[MockNode, Callable[[], object]]]) -> None:
        """Let each action be done at some time within so many seconds, by chance, and let that time pass."""
        for node, action in actions:
            node.loop.after(self.scheduler.chance.uniform(0.0, seconds), partial(_done, action))
        self.scheduler.passes(seconds)

    def close(self) -> None:
        for node in self.nodes:
            node.close()
        self.watcher.close()


def _done(action: Callable[[], object]) -> None:
    action()
