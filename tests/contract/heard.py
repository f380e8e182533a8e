"""Hold the events that the agent's subscriptions make on the real node against those that the simulated node tells of.

A step is one call of a world, or of its host. What was heard since the step before is brought into one form: devices by name, each event
once, in no order. The simulated node's steps are kept, and those of the real one compared with them, one by one. What is told there a
moment later is waited for.
"""

from __future__ import annotations

import select
import time
from collections.abc import Callable, Iterator, Set
from typing import NamedTuple, Protocol

from netagent.events import INDEX, PORTS, SETTINGS, VLAN, Came, Changed, Event, Gone, LinkGone, Mark, Overrun
from netagent.sources.flow_events import FlowEvents
from netagent.sources.nft_events import NftEvents
from netagent.sources.ovs_events import OvsEvents
from netagent.sources.rtnetlink import KernelEvents
from netagent.sources.simulated import SimulatedFlows, SimulatedKernel, SimulatedNft, SimulatedOvs
from netcommon.host.simulated.host import MemoryHost
from tests.contract.differences import OF_THE_NODE, REAL, SIMULATED, TABLE, Row, Told
from tests.support.netns import slowness

#: Seconds for what the simulated node tells at once, and the real one a moment later; and in which it may tell of a device once more, as it
#: looks at carriers once in a second (net/core/link_watch.c): of a bridge that has come up, and of what its ports have, it tells apart.
PATIENCE = 2.0

#: What may be told once more, some time after it was to be heard first: of two devices that are up the addresses come one by one.
LATE: frozenset[Told] = frozenset({OF_THE_NODE})


class Step(NamedTuple):
    """Hold what was done, and what was heard of it."""

    name: str
    events: frozenset[Told]


class Ears(Protocol):
    """The subscriptions of one world."""

    def heard(self) -> list[Event]:
        """Give what has come."""
        ...

    def wait(self, seconds: float) -> None:
        """Wait until there is more to come, at most so long."""
        ...

    def close(self) -> None: ...


class SimulatedEars:
    """Those of a simulated node."""

    def __init__(self, host: MemoryHost) -> None:
        self._host = host
        self._kernel, self._nft = SimulatedKernel(host.tell), SimulatedNft(host.tell)
        self._ovs = SimulatedOvs(host.tell, host.switch)
        self._flows: dict[str, SimulatedFlows] = {}

    def heard(self) -> list[Event]:
        found = [*self._kernel.read(), *self._nft.read(), *self._ovs.read()]
        for flows in self._flows.values():
            found += flows.read()
        self._ovs.open()
        for bridge in self._host.switch.bridges:
            if bridge not in self._flows:
                self._flows[bridge] = SimulatedFlows(self._host.tell, self._host.switch, bridge, self._ovs.numbered)
                self._flows[bridge].open()
        return found

    def wait(self, seconds: float) -> None:
        """Everything was told at once."""

    def close(self) -> None:
        for each in (self._kernel, self._nft, self._ovs, *self._flows.values()):
            each.close()


class RealEars:
    """Those of the node whose namespaces the caller is in. ``folder``: of Open vSwitch's sockets, "" where it does not run."""

    def __init__(self, folder: str) -> None:
        self._kernel, self._nft = KernelEvents(), NftEvents()
        self._folder = folder
        self._ovs = OvsEvents(f"{folder}/db.sock", time.monotonic)
        self._flows: dict[str, FlowEvents] = {}
        self.silent: set[str] = set()  #: the daemons that do not answer

    def bridge(self, name: str) -> None:
        """There is a bridge of Open vSwitch now: its flows are told of from now on."""
        self._flows[name] = FlowEvents(f"{self._folder}/{name}.mgmt", name, self._ovs.numbered, time.monotonic)

    def heard(self) -> list[Event]:
        """Give what has come: of Open vSwitch, all that it had to tell when it was asked."""
        found: list[Event] = []
        for source in (self._kernel, self._nft):
            while select.select([source.descriptor], [], [], 0)[0]:  # a source reads a part at a time
                found += source.read()
        connections = [] if "ovsdb-server" in self.silent else [self._ovs]
        connections += [] if "ovs-vswitchd" in self.silent else list(self._flows.values())
        for each in connections if self._folder else ():
            found += answered(each)
        return found

    def wait(self, seconds: float) -> None:
        flows = [each for each in self._flows.values() if each.connected]
        descriptors = [each.descriptor for each in (self._kernel, self._nft, self._ovs, *flows) if each.descriptor >= 0]
        select.select(descriptors, [], [], seconds)

    def close(self) -> None:
        for each in (self._kernel, self._nft, self._ovs, *self._flows.values()):
            each.close()


def answered(connection: OvsEvents | FlowEvents) -> list[Event]:
    """Give what a daemon tells until it answers a question that is asked now."""
    found: list[Event] = []
    limit = time.monotonic() + PATIENCE * slowness()
    while not connection.open():
        if not isinstance(connection, OvsEvents) or time.monotonic() > limit:
            return found  # the bridge has gone
        select.select([], [], [], 0.05)  # a busy server takes nobody in for a moment, and what happens before is not told
    while not connection.subscribed and connection.connected and time.monotonic() < limit:
        select.select([connection.descriptor], [], [], 0.1)
        found += connection.read()
    connection.ask()
    while connection.waits and connection.connected and time.monotonic() < limit:
        select.select([connection.descriptor], [], [], 0.1)
        found += connection.read()
    return found


def _of_device(event: Told) -> bool:
    """Tell whether it is said of a device alone that it has changed, and not that it has come."""
    return event[0] == "Changed" and len(event[1]) == 2 and all(isinstance(mark, tuple) for mark in event[1])


class Recorder:
    """The steps of one world."""

    def __init__(self, ears: Ears, test: str, expected: Iterator[Step] | None = None) -> None:
        """``test``: its name; ``expected``: the steps of the simulated node, which are compared with ours."""
        self._ears, self._test, self._expected = ears, test, expected
        self._needless: dict[Row, bool] = {}  #: the rows that hold for what was done, and whether they were needed in vain until now
        self._open = True
        self._names: dict[int, str] = {}
        self._late = frozenset[Told]()
        self._told = frozenset[Told]()  #: by the simulated node, in the steps before
        self._up = dict[Told, float]()  #: devices that were told of, and when: see PATIENCE
        self.steps: list[Step] = []
        self.differences: list[str] = []
        ears.heard()

    def watch(self, thing: object, names: tuple[str, ...]) -> None:
        """Make a step of each call of these methods."""
        for name in names:
            setattr(thing, name, self._recorded(name, getattr(thing, name)))

    def _recorded(self, name: str, method: Callable[..., object]) -> Callable[..., object]:
        def call(*arguments: object, **more: object) -> object:
            try:
                return method(*arguments, **more)
            finally:
                self.step(f"{name}({', '.join(map(repr, arguments))})", name)

        return call

    def step(self, what: str, name: str) -> None:
        """Something was done."""
        if not self._open:
            return
        heard = set(self._plain())
        expected = next(self._expected, None) if self._expected is not None else None
        if expected is not None:
            limit = time.monotonic() + PATIENCE * slowness()
            excused = {row.event for row in TABLE if row.side == SIMULATED and row.holds(self._test, name)}
            while not expected.events <= heard | excused and time.monotonic() < limit:
                self._ears.wait(0.1)
                heard |= set(self._plain())
            if expected.name != name:
                self.differences.append(f"{what}: the simulated node was asked for {expected.name}")
            self._compare(what, name, SIMULATED, expected.events - heard)
            now = time.monotonic()
            again = {event for event, told in self._up.items() if now - told <= PATIENCE * slowness()}
            self._compare(what, name, REAL, heard - expected.events - self._late - again)
            self._late |= expected.events & LATE
            self._told |= expected.events
            self._up |= {event: now for event in expected.events if _of_device(event)}
        self.steps.append(Step(name, frozenset(heard)))

    def end(self) -> None:
        """The test has done what it does."""
        self.step("the end of the test", "end")
        needless = [row for row, so_far in self._needless.items() if so_far and not row.by_chance]
        self.differences += [f"the table of differences has a row that is not needed: {row}" for row in needless]

    def close(self) -> None:
        self._open = False
        self._ears.close()

    def _compare(self, what: str, name: str, side: str, alone: Set[Told]) -> None:
        """``alone``: what only one ``side`` tells."""
        for row in TABLE:
            if row.side == side and row.holds(self._test, name) and (not row.again or row.event in self._told):
                self._needless[row] = self._needless.get(row, True) and row.event not in alone
                alone = alone - {row.event}
        self.differences += [f"{what}: only {side} tells {each}" for each in sorted(alone, key=repr)]

    def _plain(self) -> Iterator[Told]:
        events = self._ears.heard()
        for event in events:
            if isinstance(event, Changed):
                self._learn(event.marks)
        for event in events:
            if isinstance(event, LinkGone):
                yield "LinkGone", (self._name(event.ifindex),)
            elif isinstance(event, Overrun):
                yield "Overrun", (event.source,)
            elif isinstance(event, Changed | Gone | Came):
                yield type(event).__name__, tuple(self._mark(mark) for mark in event.marks)

    def _learn(self, marks: tuple[Mark, ...]) -> None:
        if len(marks) > 1 and marks[0][0] == INDEX and marks[1][0] == "name":
            self._names[int(str(marks[0][1]))] = str(marks[1][1])

    def _mark(self, mark: Mark) -> object:
        sort, which = mark
        if sort in (INDEX, SETTINGS, PORTS):
            return sort, self._name(which)
        if sort == VLAN and isinstance(which, tuple):
            return sort, (self._name(which[0]), which[1])
        return mark

    def _name(self, index: object) -> object:
        return self._names.get(index, index) if isinstance(index, int) else index
