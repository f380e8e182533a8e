"""Keep the sockets of a Linux host open, to the kernel and to Open vSwitch, and carry requests out by them.

Below the views, which ask by the same sockets. Whatever not every NIC needs is opened, and its module loaded, when it is first asked for.
"""

from __future__ import annotations

import errno
import os
import struct
import time

from netcommon.host.api.facts import PROTOCOL
from netcommon.host.api.host import DONE, NOT_TRIED, Answer, Identity
from netcommon.host.api.requests import AddRoute, SetLink
from netcommon.host.linux.kernel_errors import answer, subject
from netcommon.host.linux.procfs import Proc
from netcommon.host.rtnetlink.encode import encode, set_link
from netcommon.host.rtnetlink.read import KernelView
from netcommon.host.rtnetlink.socket import Netlink
from runtime.errors import HostRefused, TryAgain
from runtime.layout import Layout
from runtime.paths import Paths
from runtime.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from netcommon.host.api.facts import Route
    from netcommon.host.api.host import Service
    from netcommon.host.api.requests import Request
    from netcommon.host.linux.daemons import Daemons
    from netcommon.host.linux.files import Files
    from netcommon.host.linux.packet_socket import Packet
    from netcommon.host.nftables.client import Nftables
    from netcommon.host.ovs.client import Ovsdb
    from netcommon.host.ovs.ofctl import OpenFlow
    from netcommon.host.rtnetlink.attributes import Encoded

NODE = Paths()
SERVICE_TIMEOUT = 10.0


class Sockets:
    """Those of one thread, in the network namespace that it is in at the first request.

    ``service_timeout``: seconds that the kernel, and OVSDB for each request, may take. ``clock``: monotonic seconds. ``folders``:
    those that are not ours in which we put files.
    """

    def __init__(
        self,
        paths: Paths = NODE,
        service_timeout: float = SERVICE_TIMEOUT,
        clock: Callable[[], float] = time.monotonic,
        folders: Sequence[str] = (),
    ) -> None:
        self.paths, self.timeout, self.folders = paths, service_timeout, folders
        self.netlink = Netlink(service_timeout)
        self.proc = Proc(paths.proc, self.netlink.descriptor)
        self._timeout, self.clock = service_timeout, clock
        self._ovsdb: Ovsdb | None = None
        self._packet: Packet | None = None
        self._nftables: Nftables | None = None

    def close(self) -> None:
        """Closes what is open; the next request opens it again."""
        self.netlink.close()
        if self._ovsdb is not None:
            self._ovsdb.close()
        if self._packet is not None:
            self._packet.close()
        if self._nftables is not None:
            self._nftables.close()

    def begin(self) -> None:
        """See Host."""
        if self._ovsdb is not None:
            self._ovsdb.begin()

    def lingering(self) -> list[int]:
        """The descriptors whose last close waits for a grace period of RCU in the kernel, 10 to 30 ms.

        A packet socket's does so always (packet_release), one of nf_tables' where something was removed (nft_rcv_nl_event).
        """
        found = [self._packet.descriptor] if self._packet is not None else []
        if self._nftables is not None and self._nftables.removed:
            found.append(self._nftables.netlink.opened)
        return [descriptor for descriptor in found if descriptor >= 0]

    @property
    def ovsdb(self) -> Ovsdb:
        """The connection to OVSDB: one, kept, and loaded only where it is needed."""
        if self._ovsdb is None:
            from netcommon.host.ovs.client import Ovsdb  # two modes of three do without

            self._ovsdb = Ovsdb(self.paths.ovsdb, self._timeout, self.clock, KernelView(self.netlink).listened_to, self.paths.ovs_kept)
        return self._ovsdb

    @property
    def nftables(self) -> Nftables:
        """The socket to nf_tables: one, kept, and loaded only where it is needed."""
        if self._nftables is None:
            from netcommon.host.nftables.client import Nftables  # not every NIC is guarded

            self._nftables = Nftables(self._timeout)
        return self._nftables

    def openflow(self) -> OpenFlow:
        """The service "openflow"; ovs-vswitchd has its sockets beside the database's."""
        from netcommon.host.ovs.ofctl import OpenFlow  # few NICs have flows

        database, folder = self.ovsdb, os.path.dirname(self.paths.ovsdb)
        return OpenFlow(folder, database.deadline, self.clock, database.numbers, database.restored, self.paths.proc)

    def files(self) -> Files:
        """The service "files"."""
        from netcommon.host.linux.files import Files

        return Files(self._layout, self.folders)

    def daemons(self) -> Daemons:
        """The service "daemons"."""
        from netcommon.host.linux.daemons import Daemons

        return Daemons(self._layout, self.paths.proc, self.timeout)

    def _layout(self) -> Layout:
        """Our own state on this node, opened anew: what others remove meanwhile is not held on to."""
        identity = self.identity()
        return Layout(self.paths.state, identity.netns, identity.boot, readonly=False)

    def service(self, name: str) -> Service:
        """Give what carries requests out other than rtnetlink's; it is loaded only where it is needed."""
        if name == "packet":
            if self._packet is None:
                from netcommon.host.linux.packet_socket import Packet  # only what is announced needs it

                self._packet = Packet()
            return self._packet
        if name == "nftables":
            return self.nftables
        if name == "openflow":
            return self.openflow()
        if name in ("files", "daemons"):
            found: Service = self.files() if name == "files" else self.daemons()
            return found
        return self.ovsdb if name == "ovsdb" else self.proc

    def identity(self) -> Identity:
        """Which boot and network namespace this is; the namespace's inode where the kernel has no cookies (before 5.14)."""
        return Identity(self.proc.boot(), self.netlink.cookie() or self.proc.namespace())

    def send(self, units: Sequence[Sequence[Request]], stop: bool) -> list[Answer]:
        """Send ``units``, each of which is one message of rtnetlink, and say what became of each request."""
        messages: list[Encoded] = []
        broken: dict[int, Answer] = {}
        for position, unit in enumerate(units):
            try:
                messages.append(_encoded(unit))
            except (OSError, ValueError, struct.error) as problem:
                broken[position] = Answer(errno.EINVAL, f"{subject(unit[0])}: {problem}")
        replies = iter(self.netlink.ask(messages))
        answers: list[Answer] = []
        for position, unit in enumerate(units):
            said = broken[position] if position in broken else answer(unit[0], next(replies))
            if said.errno == errno.EEXIST and isinstance(unit[0], AddRoute):
                said = self._in_place_of_ours(unit[0].route, said)
            if said.ok or len(unit) == 1 or said.errno == errno.ETIMEDOUT:
                answers += [said] * len(unit)
            else:
                answers += self._one_by_one(unit, stop)
        return answers

    def _in_place_of_ours(self, route: Route, refused: Answer) -> Answer:
        """Let ``route`` take the place of ours, or be there already; ``refused`` where something in its place is not ours."""
        view = KernelView(self.netlink)
        try:
            if route in view.routes(route.family, route.table, route.destination, route.metric):
                return DONE
            found = view.routes(route.family, route.table, route.destination)
        except (HostRefused, TryAgain):
            return refused
        there = [each for each in found if each.metric == route.metric]
        if not there or any(each.protocol != PROTOCOL for each in there):
            return refused
        again = AddRoute(route)
        return answer(again, self.netlink.ask([encode(again)])[0])

    def _one_by_one(self, unit: Sequence[Request], stop: bool) -> list[Answer]:
        answers: list[Answer] = []
        for request in unit:
            if stop and any(not each.ok for each in answers):
                answers.append(NOT_TRIED)
            else:
                answers += self.send([[request]], stop)
        return answers


def merged(requests: Sequence[Request]) -> list[list[Request]]:
    """Neighbouring changes of one link that do not contradict each other, as units of one message each."""
    units: list[list[Request]] = []
    fields: set[str] = set()
    for request in requests:
        last = units[-1][-1] if units else None
        named = {field for field, value in request._asdict().items() if value is not None} - {"index"}
        if isinstance(request, SetLink) and isinstance(last, SetLink) and last.index == request.index and not fields & named:
            units[-1].append(request)
            fields |= named
        else:
            units.append([request])
            fields = named
    return units


def _encoded(unit: Sequence[Request]) -> Encoded:
    if len(unit) == 1:
        return encode(unit[0])
    fields = {field: value for part in unit for field, value in part._asdict().items() if value is not None}
    return set_link(SetLink(**fields))
