"""Say what happens on a simulated node, in the very events that the kernel and the daemons of a real one make.

A source here has no descriptor: ``heard`` is called when there is something to read. What the real subscriptions leave out is left out.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Container, Iterable, Iterator
from functools import partial

from netagent.events import INDEX, SWITCH, TABLE, Changed, Event, Gone, Mark
from netagent.sources import flow_events, kernel_meaning, nft_events, ovs_events
from netagent.sources.kernel_meaning import KernelMeaning, Seen
from netcommon.host.api.facts import AF_INET, LOCAL, PROTOCOL, REST, Address, FdbEntry, Filter, Flow, Qdisc, Route, Rule
from netcommon.host.api.nftables import NftChain, NftElement, NftRule, NftSet, NftTable
from netcommon.host.simulated import events as simulated
from netcommon.host.simulated.events import ALTERED, GONE, MADE, LinkState, OvsRow, PortState, PortVlan, Setting, Telling
from netcommon.host.simulated.ovs import Switch


def nobody() -> None:
    """Be told of nothing."""


class _Heard(ABC):
    """Keep what a source has heard, and has not read yet."""

    descriptor = -1  #: it has none

    def __init__(self, telling: Telling, heard: Callable[[], None] = nobody) -> None:
        self._telling, self._heard = telling, heard
        self._waiting: deque[simulated.Event] = deque()

    def _listen(self) -> None:
        self._telling.hearers.append(self._hear)

    def close(self) -> None:
        """Hear no more, and forget what is not read."""
        if self._hear in self._telling.hearers:
            self._telling.hearers.remove(self._hear)
        self._waiting.clear()

    def _hear(self, event: simulated.Event) -> None:
        if self._wants(event):
            self._waiting.append(event)
            self._heard()

    @abstractmethod
    def _wants(self, event: simulated.Event) -> bool:
        """Tell whether it is about what this source hears of."""

    def _taken(self) -> Iterator[simulated.Event]:
        while self._waiting:
            yield self._waiting.popleft()


class SimulatedKernel(_Heard):
    """Tell what netagent.sources.rtnetlink tells of a real node."""

    def __init__(self, telling: Telling, heard: Callable[[], None] = nobody) -> None:
        super().__init__(telling, heard)
        self._meaning = KernelMeaning()
        self._listen()

    def read(self) -> list[Event]:
        """Give what has happened since it was last read."""
        return [made for event in self._taken() for made in self._events(event.how, event.thing)]

    def _wants(self, event: simulated.Event) -> bool:
        """Leave out what rtnetlink.FILTER does: routes that can be no guest's, and of our own the new ones; entries that are not static."""
        thing = event.thing
        if isinstance(thing, Route):
            default, single = thing.destination.endswith("/0"), f"/{32 if thing.family == AF_INET else 128}"
            of_others = thing.protocol != PROTOCOL and (default or (thing.destination.endswith(single) and thing.protocol != KERNEL))
            of_rest = thing.protocol != PROTOCOL and thing.destination.endswith("/64") and thing.metric == REST
            return of_others or of_rest or (event.how == GONE and thing.protocol == PROTOCOL)
        if isinstance(thing, FdbEntry):
            return thing.kind != LOCAL
        return isinstance(thing, LinkState | PortState | PortVlan | Setting | Rule | Address | Qdisc | Filter)

    def _events(self, how: str, thing: simulated.Thing) -> Iterator[Event]:
        gone = how == GONE
        match thing:
            case LinkState(link, carrier):
                if gone:
                    yield from self._meaning.link_gone(link.index, link.vlan)
                    return
                vlans = (link.vlan_filtering, link.protocol) if link.kind == "bridge" else ()
                seen = Seen(link.name, (link.master, link.mtu), link.up, link.address, link.alias, carrier, vlans)
                yield from self._meaning.link(link.index, seen, link.kind, link.port_kind, lambda: link)
            case PortState(index):
                yield from self._meaning.port_gone(index) if gone else self._meaning.port(index, hash(thing))
            case PortVlan(index, vlan):
                yield from kernel_meaning.of_vlan(index, vlan.vid, gone)
            case Setting(index):
                yield from kernel_meaning.of_settings(index)
            case Rule():
                yield from kernel_meaning.of_rule(thing, gone)
            case Route():
                yield from kernel_meaning.of_route(thing, gone)
            case Address():
                yield from kernel_meaning.of_address(thing.index, gone)
            case FdbEntry():
                yield from kernel_meaning.of_entry(thing.index, thing.mac, gone)
            case Qdisc():
                place = thing.kind in ("clsact", "ingress")
                yield from self._meaning.qdisc_gone(thing.index, place) if gone else self._meaning.qdisc(thing.index, place, hash(thing))
            case Filter():
                yield kernel_meaning.either(gone, (INDEX, thing.index))


KERNEL = 2  #: RTPROT_KERNEL


class SimulatedNft(_Heard):
    """Tell what netagent.sources.nft_events tells of a real node. ``own``: the numbers of the sockets whose changes are left out."""

    def __init__(self, telling: Telling, heard: Callable[[], None] = nobody, own: Container[int] = ()) -> None:
        super().__init__(telling, heard)
        self._own = own
        self._listen()

    def read(self) -> list[Event]:
        """Give what has happened since it was last read, each once."""
        found: dict[Event, None] = {}
        for how, thing, _by in self._taken():
            for mark in _marks(how, thing):
                found[Gone((mark,)) if how == GONE else Changed((mark,))] = None
        return list(found)

    def _wants(self, event: simulated.Event) -> bool:
        thing, ours = event.thing, nft_events.TABLES_OF_OURS.decode()
        if event.by and event.by in self._own:
            return False
        if isinstance(thing, NftTable):
            return ours in thing.name
        return isinstance(thing, NftChain | NftRule | NftSet | NftElement) and ours in thing.table


def _marks(how: str, thing: simulated.Thing) -> Iterator[Mark]:
    match thing:
        case NftElement():
            yield from nft_events.of_element(thing.key)
        case NftRule():
            yield nft_events.of_chain(thing.family, thing.table, thing.chain)
        case NftChain():
            yield nft_events.of_chain(thing.family, thing.table, thing.name)
        case NftTable():
            yield TABLE, (thing.family, thing.name)
        case NftSet() if how == GONE:
            yield TABLE, (thing.family, thing.table)


class _Connection(_Heard):
    """A connection to a daemon of a simulated Open vSwitch (netagent.sources.switches.Connection)."""

    def __init__(self, telling: Telling, switch: Switch, heard: Callable[[], None] = nobody) -> None:
        super().__init__(telling, heard)
        self._switch = switch
        self.subscribed = False  #: what happens from now on is not missed
        self.late = False  #: it is never silent for a while

    @property
    def connected(self) -> bool:
        return self.subscribed

    @abstractmethod
    def _there(self) -> bool:
        """Tell whether the daemon takes connections, and answers."""

    def open(self) -> bool:
        """Begin to hear, if that is not so already; tell whether the daemon is there."""
        if not self.subscribed and self._there():
            self.subscribed = True
            self._listen()
        return self.subscribed

    def close(self) -> None:
        super().close()
        self.subscribed = False

    def ask(self) -> None:
        """Ask for nothing: a simulated daemon that stops answering, and goes on, loses nothing."""


class SimulatedOvs(_Connection):
    """Tell what netagent.sources.ovs_events tells of a real node."""

    restoring = False  #: nobody restores flows on a simulated node

    def numbered(self, number: int) -> list[str]:
        """Give the devices that have this OpenFlow number, of whichever bridge."""
        return [port.name for port in self._switch.ports() if port.ofport == number]

    def read(self) -> list[Event]:
        """Give what has happened since it was last read, each once."""
        found: dict[Event, None] = {}
        for how, thing, _by in self._taken():
            if isinstance(thing, OvsRow):
                row = {"name": thing.name, "fake_bridge": thing.fake_bridge}
                old, new = None if how == MADE else row if how == GONE else {}, None if how == GONE else row
                found.update(dict.fromkeys(ovs_events.of_row(thing.table, old, new)))
        return list(found)

    def _there(self) -> bool:
        return self._switch.condition.there and self._switch.condition.database

    def _wants(self, event: simulated.Event) -> bool:
        return isinstance(event.thing, OvsRow)


class SimulatedFlows(_Connection):
    """Tell what netagent.sources.flow_events tells of the flows of a bridge. ``names``: as there."""

    def __init__(
        self, telling: Telling, switch: Switch, bridge: str, names: Callable[[int], Iterable[str]], heard: Callable[[], None] = nobody
    ) -> None:
        super().__init__(telling, switch, heard)
        self._bridge, self._names = bridge, names

    def read(self) -> list[Event]:
        """Give what has happened since it was last read, each once."""
        found: dict[Event, None] = {}
        removed = set[bool]()
        for how, thing, _by in self._taken():
            if isinstance(thing, Flow):
                if how == GONE:
                    removed.add(flow_events.ours(thing.cookie))
                made = flow_events.of_flow(FLOWS[how], self._bridge, thing.cookie, partial(int, thing.port), self._names)
                found.update(dict.fromkeys(made))
        if len(removed) == 2:  # whoever removes ours with others' means none of them: the bridge was swept
            found[Gone(((SWITCH, self._bridge),))] = None
        return list(found)

    def _there(self) -> bool:
        return self._switch.condition.there and self._switch.condition.switch and self._bridge in self._switch.bridges

    def _wants(self, event: simulated.Event) -> bool:
        return isinstance(event.thing, Flow) and event.thing.bridge == self._bridge


FLOWS = {MADE: flow_events.ADDED, ALTERED: flow_events.MODIFIED, GONE: flow_events.REMOVED}
