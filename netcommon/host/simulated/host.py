"""A simulated node behind the interface of netcommon.host.api.host: for tests, and for showing what would be done."""

from __future__ import annotations

import errno
import struct

from netcommon.host.api.facts import AF_INET
from netcommon.host.api.host import DONE, NOT_TRIED, Answer, held_up
from netcommon.host.api.requests import (
    RTNETLINK,
    AddAddress,
    AddClsact,
    AddFdb,
    AddNeighbour,
    AddRoute,
    AddRule,
    AddVlan,
    DeleteAddress,
    DeleteClsact,
    DeleteFdb,
    DeleteNeighbour,
    DeletePolicer,
    DeleteRoute,
    DeleteRule,
    DeleteTbf,
    DeleteVlan,
    FlushPort,
    SetLink,
    SetPolicer,
    SetPort,
    SetTbf,
    service,
)
from netcommon.host.linux.kernel_errors import answer, subject
from netcommon.host.linux.snapshot import Snapshot
from netcommon.host.rtnetlink.attributes import show_address, split_prefix
from netcommon.host.rtnetlink.encode import encode
from netcommon.host.rtnetlink.socket import Reply
from netcommon.host.simulated import address as simulated_address
from netcommon.host.simulated.kernel import IPV6_METRIC, LOOPBACK, MAIN, NOWHERE, Refused
from netcommon.host.simulated.machine import Machine
from netcommon.host.simulated.view import MemoryView
from runtime.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from netcommon.host.api.facts import Route
    from netcommon.host.api.requests import (
        Request,
    )


class MemoryHost(Machine):
    """A host that is a Machine in this process' memory."""

    def view(self) -> MemoryView:
        return MemoryView(self)

    def snapshot(self) -> Snapshot:
        return Snapshot(self.view())

    def execute(self, requests: Sequence[Request], stop: bool) -> list[Answer]:
        """See Host."""
        answers: list[Answer] = []
        failed = False
        for request in requests:
            said = NOT_TRIED if (failed and stop) or held_up(request, requests, answers) else self._execute(request)
            failed = failed or not said.ok
            answers.append(said)
        return answers

    def execute_each(self, lists: Sequence[Sequence[Request]], stop: bool) -> list[list[Answer]]:
        """See Host: a request of each list in turn, until there is none left."""
        answers: list[list[Answer]] = [[] for _ in lists]
        for position in range(max(map(len, lists), default=0)):
            for requests, said in zip(lists, answers, strict=True):
                if position < len(requests):
                    failed = (stop and any(not each.ok for each in said)) or held_up(requests[position], requests, said)
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
            case SetPort() | FlushPort() | AddFdb() | DeleteFdb():
                return self._told(request, self.kernel.bridge_ports.execute(request))
            case SetLink():
                self.kernel.set_link(request)
                self.switch.look()
            case AddRule(rule):
                self.kernel.add_rule(rule._replace(plain=True))
            case DeleteRule(rule):
                self.kernel.delete_rule(rule)
            case AddRoute(route, new):
                self.kernel.add_route(shown(route), new)
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
    index = LOOPBACK if route.type in NOWHERE else route.index
    return route._replace(scope=0, metric=route.metric or IPV6_METRIC, index=index)
