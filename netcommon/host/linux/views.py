"""Read a Linux host as it is now: the kernel's tables, /proc, files, daemons, templates, and Open vSwitch."""

from __future__ import annotations

import os

from netcommon.host.api.host import least_mtu, mtu_below
from netcommon.host.linux.rt_tables import Tables
from netcommon.host.nftables.view import NftView
from netcommon.host.rtnetlink.attributes import MalformedError
from netcommon.host.rtnetlink.read import KernelView
from runtime.errors import TryAgain
from runtime.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from netcommon.host.api.datapath import Connection, OvsForwarding, Transform
    from netcommon.host.api.facts import Daemon, File, Flow, Link, OvsBridge, OvsPort, OvsShaper
    from netcommon.host.linux.sockets import Sockets

NET = "/sys/class/net"
FEW = 8  #: so many links are asked for one by one
ADDRESS_SET = "3"  #: NET_ADDR_SET (linux/netdevice.h)
TRACKED = "net/netfilter/nf_conntrack_count"  #: how many connections are tracked; of a kernel that tracks none there is no such file
VRF_MODULE = "net/vrf/strict_mode"  #: what the module brings (Linux 5.9)


class LiveView(KernelView, NftView):
    """Each answer is the state of now; only the names of routing tables are kept."""

    def __init__(self, sockets: Sockets) -> None:
        super().__init__(sockets.netlink)
        self._sockets = sockets
        self._nft = lambda: sockets.nftables
        self._tables = Tables(sockets.paths.iproute2)

    # -- /proc and /sys

    @property
    def net(self) -> str:
        """Say where sysfs(5) has the devices."""
        return NET

    def sysctl(self, path: str) -> str | None:
        return self._sockets.proc.sysctl(path)

    def links_of(self, kind: str) -> Sequence[Link]:
        """A kernel that does not know VRFs would list all links instead."""
        return [] if kind == "vrf" and self.sysctl(VRF_MODULE) is None else super().links_of(kind)

    def assigned(self, link: Link) -> bool:
        try:
            with open(f"{self.net}/{link.name}/addr_assign_type", encoding="ascii") as file:
                return file.read().strip() == ADDRESS_SET
        except (OSError, UnicodeError):
            return False

    def least_mtu(self, bridge: Link, but: Callable[[], Collection[str]]) -> int:
        """By sysfs, which names a thousand ports in the time in which the kernel describes thirty; where they are many, by those."""
        ours = frozenset(but())
        try:
            others = [name for name in os.listdir(f"{self.net}/{bridge.name}/brif") if name not in ours]
        except OSError:
            return least_mtu(self.ports(bridge.index), ours)
        found = self.ports(bridge.index) if len(others) > FEW else [link for name in others if (link := self.link(name)) is not None]
        return least_mtu((link for link in found if link.master == bridge.index), ours)

    def mtu_below(self, bridge: Link) -> int:
        """By sysfs too, and no further than to the first port with no more than the bridge: most often that is the first one."""
        try:
            with os.scandir(f"{self.net}/{bridge.name}/brif") as names:
                found = (link for each in names if (link := self.link(each.name)) is not None and link.master == bridge.index)
                return mtu_below(bridge, found)
        except OSError:
            return mtu_below(bridge, self.ports(bridge.index))

    def translated(self, connection: Connection) -> bool:
        if self.sysctl(TRACKED) in (None, "0"):  # the question would have the kernel load what tracks connections
            return False
        from netcommon.host.nftables import conntrack

        try:
            found = self._sockets.nftables.netlink.get(conntrack.get(connection))
            return isinstance(found, bytes) and conntrack.translates(found)
        except MalformedError as problem:
            raise TryAgain(f"the kernel's answer makes no sense: {problem}") from problem

    def transforms(self) -> Sequence[Transform]:
        from netcommon.host.linux import xfrm

        return xfrm.transforms(self._sockets.timeout)

    def programs(self, index: int, egress: bool) -> int | None:
        from netcommon.host.linux import bpf  # asked by people's commands alone

        return bpf.programs(index, egress)

    def legacy_tables(self) -> Sequence[str]:
        return self._sockets.proc.legacy_tables()

    def table(self, name: str) -> int | None:
        return self._tables.number(name)

    def named_tables(self) -> Mapping[str, int]:
        return self._tables.names()

    # -- this machine's own files, daemons and templates

    def file(self, folder: str, name: str) -> File | None:
        return self._sockets.files().file(folder, name)

    def files(self) -> Sequence[File]:
        return self._sockets.files().files()

    def folder(self, folder: str) -> bool:
        return self._sockets.files().folder(folder)

    def daemon(self, name: str) -> Daemon | None:
        return self._sockets.daemons().daemon(name)

    def program(self, name: str) -> str:
        from netcommon.host.linux.daemons import program

        return program(name)

    def template(self, name: str) -> str:
        from netcommon.templates import read  # few NICs need one

        return read(name, self._sockets.paths.templates)

    # -- Open vSwitch

    def ovs_bridge(self, name: str) -> bool:
        return self._sockets.ovsdb.bridge(name)

    def ovs_port(self, name: str) -> OvsPort | None:
        return self._sockets.ovsdb.port(name)

    def ovs_ports(self) -> Sequence[OvsPort]:
        return [port for port in self.every_ovs_port() if port.owner]

    def every_ovs_port(self) -> Sequence[OvsPort]:
        """All ports, with our mark or without."""
        return self._sockets.ovsdb.ports()

    def ovs_held(self, name: str) -> OvsPort | None:
        return self._sockets.ovsdb.held(name) if os.path.exists(self._sockets.paths.ovsdb) else None

    def ovs_switch(self, name: str) -> OvsBridge | None:
        return self._sockets.ovsdb.switch(name)

    def ovs_switches(self) -> Sequence[OvsBridge]:
        return self._sockets.ovsdb.switches()

    def ovs_bridge_ports(self, bridge: str) -> Sequence[OvsPort]:
        return [port for port in self.every_ovs_port() if port.bridge == bridge]

    def ovs_forwarding(self, bridge: str) -> OvsForwarding:
        from netcommon.host.ovs.forwarding import forwarding

        return forwarding(self._sockets.openflow(), bridge)

    def ovs_shapers(self) -> Sequence[OvsShaper]:
        return self._sockets.ovsdb.shapers()

    def ovs_away(self) -> bool:
        return self._sockets.ovsdb.away()

    def flows(self, bridge: str, cookie: int = 0) -> Sequence[Flow]:
        return self._sockets.openflow().flows(bridge, cookie)

    def flows_from(self, bridge: str, port: int) -> Sequence[Flow]:
        return self._sockets.openflow().flows_from(bridge, port)

    def flow_texts(self, flows: Sequence[str]) -> Sequence[str]:
        return self._sockets.openflow().texts(flows)
