"""A simulated node behind the interface of netcommon.host.base: for tests, and for showing what would be done."""

from __future__ import annotations

import errno
import struct

from netcommon.host import simulated_address
from netcommon.host.attributes import show_address, split_prefix
from netcommon.host.base import DONE, NOT_TRIED, Answer, Identity
from netcommon.host.encode import encode
from netcommon.host.facts import AF_INET, Link, OvsPort
from netcommon.host.memory_view import MemoryView
from netcommon.host.netlink import Reply
from netcommon.host.refusals import answer, subject
from netcommon.host.requests import (
    RTNETLINK,
    AddAddress,
    AddClsact,
    AddNeighbour,
    AddRoute,
    AddRule,
    AddVlan,
    DeleteAddress,
    DeleteClsact,
    DeleteNeighbour,
    DeletePolicer,
    DeleteRoute,
    DeleteRule,
    DeleteTbf,
    DeleteVlan,
    SetLink,
    SetPolicer,
    SetTbf,
    service,
)
from netcommon.host.requests_port import AddFdb, DeleteFdb, SetPort
from netcommon.host.simulated import BLACKHOLE, IPV6_METRIC, LOOPBACK, MAIN, Kernel, Refused
from netcommon.host.simulated_local import SimulatedDaemons, SimulatedFiles
from netcommon.host.simulated_nft import RulesAsValues, Ruleset
from netcommon.host.simulated_openflow import Tables
from netcommon.host.simulated_ovs import Switch
from netcommon.host.simulated_reach import Wire
from netcommon.host.snapshot import Snapshot
from netcommon.host.tables import BUILT_IN
from runtime.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from netcommon.host.base import Service
    from netcommon.host.facts import Route
    from netcommon.host.requests import (
        Request,
    )


class MemoryHost:
    """A node with nothing but its loopback, and Open vSwitch not there until a bridge of it is added.

    ``requests`` holds each request that was tried, in order, ``changes`` those that succeeded; ``reads`` counts questions of views.
    ``fail`` is asked before each request and may answer in the host's place; ``busy`` makes every view raise TryAgain.
    """

    def __init__(self, tables: Mapping[str, int] | None = None, boot: str = "simulated-boot", netns: int = 1) -> None:
        self.kernel = Kernel()
        self.switch = Switch(self.kernel)
        self.openflow = Tables(self.switch)
        self.wire = Wire(self.kernel)
        self.files, self.daemons = SimulatedFiles(), SimulatedDaemons()
        self.services: dict[str, Service] = {"procfs": self.kernel.settings, "ovsdb": self.switch, "packet": self.wire}
        self.nftables = Ruleset(self.kernel.named)
        self.services["openflow"] = self.openflow
        self.services["nftables"] = self.nftables
        self.services["nft text"] = RulesAsValues(self.nftables)
        self.services |= {"files": self.files, "daemons": self.daemons}
        self.tables = {**BUILT_IN, **(tables or {})}
        self.requests: list[Request] = []
        self.changes: list[Request] = []
        self.reads = 0
        self.busy = False
        self.fail: Callable[[Request], Answer | None] = lambda _: None
        self.templates: dict[str, str] = {}  #: the site's, by name
        self.holders: dict[str, int] = {}  #: which process has a tap open
        self.persistent: set[str] = set()  #: taps that stay when nobody holds them
        self._identity = Identity(boot, netns)

    def identity(self) -> Identity:
        return self._identity

    def view(self) -> MemoryView:
        return MemoryView(self)

    def snapshot(self) -> Snapshot:
        return Snapshot(self.view())

    def close(self) -> None:
        """Nothing is open."""

    def holder(self, device: str, candidates: Iterable[int]) -> int:
        process = self.holders.get(device, 0)
        return process if process in set(candidates) else 0

    def execute(self, requests: Sequence[Request], stop: bool) -> list[Answer]:
        """See Host."""
        answers: list[Answer] = []
        failed = False
        for request in requests:
            said = NOT_TRIED if failed and stop else self._execute(request)
            failed = failed or not said.ok
            answers.append(said)
        return answers

    def execute_each(self, lists: Sequence[Sequence[Request]], stop: bool) -> list[list[Answer]]:
        """See Host: a request of each list in turn, until there is none left."""
        answers: list[list[Answer]] = [[] for _ in lists]
        for position in range(max(map(len, lists), default=0)):
            for requests, said in zip(lists, answers, strict=True):
                if position < len(requests):
                    failed = stop and any(not each.ok for each in said)
                    said.append(NOT_TRIED if failed else self._execute(requests[position]))
        return answers

    def _execute(self, request: Request) -> Answer:
        self.requests.append(request)
        said = self.fail(request)
        if said is None:
            try:
                said = self._carry_out(request)
            except Refused as refused:
                said = answer(request, Reply(refused.number, refused.text), self._named)
            except (OSError, ValueError, struct.error) as problem:
                said = Answer(errno.EINVAL, f"{subject(request, self._named)}: {problem}")
        if said.ok:
            self.changes.append(request)
        return said

    def _carry_out(self, request: Request) -> Answer:
        """Raises Refused, or what encoding the request raises."""
        name = service(request)
        if name != RTNETLINK:
            return self.services[name].execute(request)
        encode(request)
        match request:
            case SetTbf() | DeleteTbf() | AddClsact() | DeleteClsact() | SetPolicer() | DeletePolicer():
                return self._told(request, self.kernel.tc.execute(request))
            case SetPort() | AddFdb() | DeleteFdb():
                return self._told(request, self.kernel.bridge_ports.execute(request))
            case SetLink():
                self.kernel.set_link(request)
                self.switch.look()
            case AddRule(rule):
                self.kernel.add_rule(rule._replace(plain=True))
            case DeleteRule(rule):
                self.kernel.delete_rule(rule)
            case AddRoute(route):
                self.kernel.add_route(shown(route))
            case DeleteRoute(route):
                self.kernel.delete_route(shown(route)._replace(metric=route.metric))
            case AddNeighbour(neighbour):
                self.kernel.add_neighbour(neighbour)
            case DeleteNeighbour(neighbour):
                self.kernel.delete_neighbour(neighbour)
            case AddAddress(address):
                simulated_address.add(self.kernel, address)
            case DeleteAddress(address):
                simulated_address.delete(self.kernel, address)
            case AddVlan(index, vlan):
                self.kernel.add_vlan(index, vlan)
            case DeleteVlan(index, vid):
                self.kernel.delete_vlan(index, vid)
        return DONE

    def _told(self, request: Request, said: Answer) -> Answer:
        return DONE if said.ok else answer(request, Reply(said.errno, said.text), self._named)

    def _named(self, index: int) -> str:
        link = self.kernel.links.get(index)
        return f"device {index}" if link is None else link.name

    # What only tests, and whoever describes a node, do.

    def add_link(self, link: Link, index: int = 0) -> Link:
        """A new device like ``link``, under an index of its own or ``index``; its address is made up where there is none."""
        master = link.master
        made = self.kernel.add(link._replace(master=0), index)
        if master:
            self.kernel.set_link(SetLink(made.index, master=master))
        self.switch.look()
        return self.kernel.links[made.index]

    def add_bridge(self, name: str, mtu: int = 1500, vlan_filtering: bool = False, default_pvid: int = 1, up: bool = True) -> Link:
        return self.add_link(Link(0, name, "bridge", mtu=mtu, up=up, vlan_filtering=vlan_filtering, default_pvid=default_pvid))

    def add_tap(self, name: str, holder: int = 0, master: int = 0, persistent: bool = False) -> Link:
        """A new tap, down; ``holder`` is the process that has it open, and with which one that is not ``persistent`` goes."""
        if holder:
            self.holders[name] = holder
        if persistent or not holder:
            self.persistent.add(name)
        return self.add_link(Link(0, name, "tun", master=master, holders=1 if holder else 0))

    def let_go(self, name: str) -> None:
        """The process that holds the tap ends."""
        self.holders.pop(name, None)
        link = self.kernel.named(name)
        if link is not None and name in self.persistent:
            self.kernel.links[link.index] = link._replace(holders=0)
        else:
            self.remove_link(name)

    def add_ovs_bridge(self, name: str, system: bool = False) -> None:
        """An OVS bridge, and Open vSwitch with it; ``system``: of the kernel's datapath."""
        self.switch.add_bridge(name, system)
        if self.kernel.named(name) is None:
            self.kernel.add(Link(0, name, "openvswitch" if system else "tun"))

    def add_fake_ovs_bridge(self, name: str, parent: str, tag: int) -> None:
        """A VLAN of the OVS bridge ``parent`` that ovs-vsctl shows as a bridge."""
        self.switch.add_fake_bridge(name, parent, tag)

    def add_ovs_port(self, bridge: str, name: str) -> None:
        """A port of somebody else's, without our mark."""
        self.switch.insert(OvsPort(name, bridge))
        self.switch.look()

    def remove_link(self, name: str) -> None:
        """The device goes."""
        link = self.kernel.named(name)
        if link is not None:
            self.kernel.remove(link.index)
            self.holders.pop(name, None)
            self.persistent.discard(name)
            self.switch.look()
            self.nftables.look()

    def rename_link(self, name: str, new: str) -> None:
        link = self.kernel.named(name)
        if link is not None:
            self.kernel.rename(link.index, new)
            self.nftables.rename(name, new)
            if name in self.holders:
                self.holders[new] = self.holders.pop(name)
            self.switch.look()


def shown(route: Route) -> Route:
    """The route as the kernel shows it. Raises Refused."""
    address, length = split_prefix(route.family, route.destination)
    bits = 8 * len(address)
    number = int.from_bytes(address, "big")
    network = number >> (bits - length) << (bits - length)
    if route.family == AF_INET and network != number:
        raise Refused(errno.EINVAL, "Invalid prefix for given prefix length")
    destination = f"{show_address(route.family, network.to_bytes(len(address), 'big'))}/{length}"
    route = route._replace(destination=destination, table=route.table or MAIN)
    if route.family == AF_INET:
        return route
    index = LOOPBACK if route.type == BLACKHOLE else route.index
    return route._replace(scope=0, metric=route.metric or IPV6_METRIC, index=index)
