"""The Linux host: rtnetlink, OVSDB and procfs behind the interface of netcommon.host.base. No other program is run."""

from __future__ import annotations

import errno
import struct
import time

from netcommon.host import local
from netcommon.host.address_view import AddressView
from netcommon.host.base import NOT_TRIED, Answer, Identity
from netcommon.host.encode import encode, set_link
from netcommon.host.kernel import KernelView
from netcommon.host.local import LocalView
from netcommon.host.netlink import Netlink
from netcommon.host.nfview import NftView
from netcommon.host.ovs_view import OvsView, openflow
from netcommon.host.portview import PortView
from netcommon.host.procfs import Proc
from netcommon.host.reach import Reach
from netcommon.host.refusals import answer, subject
from netcommon.host.requests import RTNETLINK, SetLink, service
from netcommon.host.tables import Tables
from netcommon.host.tcview import TcView
from netcommon.host.template_view import TemplateView
from runtime.paths import Paths
from runtime.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from netcommon.host.attributes import Encoded
    from netcommon.host.base import Service, View
    from netcommon.host.facts import Link, OvsPort
    from netcommon.host.nfnetlink import Nftables
    from netcommon.host.ovsdb import Ovsdb
    from netcommon.host.packet import Packet
    from netcommon.host.requests import Request

NODE = Paths()
SERVICE_TIMEOUT = 10.0
VRF_MODULE = "net/vrf/strict_mode"  #: what the module brings (Linux 5.9)


class LiveView(KernelView, PortView, NftView, TcView, AddressView, Reach, LocalView, TemplateView, OvsView):
    """Each answer is the state of now; only the names of routing tables are kept."""

    def __init__(self, host: LinuxHost) -> None:
        super().__init__(host.netlink)
        self._host = host
        self._tables = Tables(host.paths.iproute2)

    def sysctl(self, path: str) -> str | None:
        return self._host.proc.sysctl(path)

    def links_of(self, kind: str) -> Sequence[Link]:
        """A kernel that does not know VRFs would list all links instead."""
        return [] if kind == "vrf" and self.sysctl(VRF_MODULE) is None else super().links_of(kind)

    def legacy_tables(self) -> Sequence[str]:
        return self._host.proc.legacy_tables()

    def table(self, name: str) -> int | None:
        return self._tables.number(name)

    def ovs_bridge(self, name: str) -> bool:
        return self._host.ovsdb.bridge(name)

    def ovs_port(self, name: str) -> OvsPort | None:
        return self._host.ovsdb.port(name)

    def ovs_ports(self) -> Sequence[OvsPort]:
        return [port for port in self.every_ovs_port() if port.owner]

    def every_ovs_port(self) -> Sequence[OvsPort]:
        """All ports, with our mark or without."""
        return self._host.ovsdb.ports()


class LinuxHost:
    """This machine, in the network namespace that the caller is in at the first request. One for each thread.

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
            from netcommon.host.ovsdb import Ovsdb  # two modes of three do without

            self._ovsdb = Ovsdb(self.paths.ovsdb, self._timeout, self.clock, self.view().listened_to, self.paths.ovs_kept)
        return self._ovsdb

    @property
    def nftables(self) -> Nftables:
        """The socket to nf_tables: one, kept, and loaded only where it is needed."""
        if self._nftables is None:
            from netcommon.host.nfnetlink import Nftables  # not every NIC is guarded

            self._nftables = Nftables(self._timeout)
        return self._nftables

    def service(self, name: str) -> Service:
        """What carries requests out other than rtnetlink's; loaded only where it is needed."""
        if name == "packet":
            if self._packet is None:
                from netcommon.host.packet import Packet  # only what is announced needs it

                self._packet = Packet()
            return self._packet
        if name == "nftables":
            return self.nftables
        if name == "nft text":
            from netcommon.host.nftext import RulesByText  # only firewall profiles need it

            return RulesByText(self)
        if name == "openflow":
            return openflow(self)
        if name in ("files", "daemons"):
            found: Service = local.files(self) if name == "files" else local.daemons(self)
            return found
        return self.ovsdb if name == "ovsdb" else self.proc

    def identity(self) -> Identity:
        """Which boot and network namespace this is; the namespace's inode where the kernel has no cookies (before 5.14)."""
        return Identity(self.proc.boot(), self.netlink.cookie() or self.proc.namespace())

    def view(self) -> LiveView:
        return LiveView(self)

    def snapshot(self) -> View:
        from netcommon.host.snapshot import Snapshot  # not in the path of one NIC

        return Snapshot(self.view())

    def holder(self, device: str, candidates: Iterable[int]) -> int:
        return self.proc.holder(device, candidates)

    def execute(self, requests: Sequence[Request], stop: bool) -> list[Answer]:
        """See Host. With ``stop`` each netlink message waits for the one before: the kernel would go on to the next.

        A link's requests that share a message are not atomic: after a refusal, one that is answered "not tried" may hold.
        """
        answers: list[Answer] = []
        for group in _groups(requests):
            if stop and any(not each.ok for each in answers):
                answers += [NOT_TRIED] * len(group)
            else:
                answers += self._execute(group, stop)
        return answers

    def execute_each(self, lists: Sequence[Sequence[Request]], stop: bool) -> list[list[Answer]]:
        """See Host."""
        from netcommon.host.waves import execute_each  # not in the path of one NIC

        return execute_each(self, lists, stop)

    def _execute(self, group: Sequence[Request], stop: bool) -> list[Answer]:
        name = service(group[0])
        if name != RTNETLINK:
            return [self.service(name).execute(request) for request in group]
        units = merged(group)
        size = 1 if stop else len(units)
        answers: list[Answer] = []
        for start in range(0, len(units), size):
            if stop and any(not each.ok for each in answers):
                answers += [NOT_TRIED] * len(units[start])
            else:
                answers += self.send(units[start : start + size], stop)
        return answers

    def send(self, units: Sequence[Sequence[Request]], stop: bool) -> list[Answer]:
        """What became of each request of ``units``, each of which is one message of rtnetlink."""
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
            if said.ok or len(unit) == 1 or said.errno == errno.ETIMEDOUT:
                answers += [said] * len(unit)
            else:
                answers += self._one_by_one(unit, stop)
        return answers

    def _one_by_one(self, unit: Sequence[Request], stop: bool) -> list[Answer]:
        answers: list[Answer] = []
        for request in unit:
            if stop and any(not each.ok for each in answers):
                answers.append(NOT_TRIED)
            else:
                answers += self.send([[request]], stop)
        return answers


def _groups(requests: Sequence[Request]) -> list[list[Request]]:
    """Neighbouring requests of rtnetlink together, each of another service alone."""
    groups: list[list[Request]] = []
    for request in requests:
        if groups and service(request) == service(groups[-1][-1]) == RTNETLINK:
            groups[-1].append(request)
        else:
            groups.append([request])
    return groups


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
