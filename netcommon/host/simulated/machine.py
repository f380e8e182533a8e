"""Hold what a simulated node is made of, and let happen to it what no request asks for: devices that come and go."""

from __future__ import annotations

from netcommon.host.api.facts import Link, OvsPort
from netcommon.host.api.host import Answer, Identity
from netcommon.host.api.requests import (
    SetLink,
)
from netcommon.host.linux.rt_tables import BUILT_IN
from netcommon.host.simulated.events import Telling
from netcommon.host.simulated.kernel import Kernel
from netcommon.host.simulated.local import SimulatedDaemons, SimulatedFiles
from netcommon.host.simulated.nft import RulesAsValues, Ruleset
from netcommon.host.simulated.openflow import Tables
from netcommon.host.simulated.ovs import Switch
from netcommon.host.simulated.wire import Wire
from runtime.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from netcommon.host.api.host import Service
    from netcommon.host.api.requests import (
        Request,
    )


class Machine:
    """A node with nothing but its loopback, and Open vSwitch not there until a bridge of it is added.

    ``requests`` holds each request that was tried, in order, ``changes`` those that succeeded; ``reads`` counts questions of views.
    ``fail`` is asked before each request and may answer in the host's place; ``busy`` makes every view raise TryAgain.
    ``tell``: who hears of what happens.
    """

    def __init__(self, tables: Mapping[str, int] | None = None, boot: str = "simulated-boot", netns: int = 1) -> None:
        self.tell = Telling()
        self.kernel = Kernel(self.tell)
        self.switch = Switch(self.kernel)
        self.openflow = Tables(self.switch, self.tell)
        self.wire = Wire(self.kernel)
        self.files, self.daemons = SimulatedFiles(), SimulatedDaemons()
        self.services: dict[str, Service] = {"procfs": self.kernel.settings, "ovsdb": self.switch, "packet": self.wire}
        self.nftables = Ruleset(self.kernel.named, self.tell)
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

    def begin(self) -> None:
        """Nobody is waited for."""

    def close(self) -> None:
        """Nothing is open."""

    def nftables_port(self) -> int:
        """No socket is open."""
        return 0

    def holder(self, device: str, candidates: Iterable[int]) -> int:
        process = self.holders.get(device, 0)
        return process if process in set(candidates) else 0

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

    def add_tap(self, name: str, holder: int = 0, master: int = 0, persistent: bool = False, index: int = 0) -> Link:
        """A new tap, down; ``holder`` is the process that has it open, and with which one that is not ``persistent`` goes. ``index``: as
        for ``add_link``.
        """
        if holder:
            self.holders[name] = holder
        if persistent or not holder:
            self.persistent.add(name)
        return self.add_link(Link(0, name, "tun", master=master, holders=1 if holder else 0), index)

    def let_go(self, name: str) -> None:
        """The process that holds the tap ends."""
        self.holders.pop(name, None)
        link = self.kernel.named(name)
        if link is not None and name in self.persistent:
            self.kernel.note(link._replace(holders=0))
        else:
            self.remove_link(name)

    def add_ovs_bridge(self, name: str, system: bool = False) -> None:
        """An OVS bridge, and Open vSwitch with it; ``system``: of the kernel's datapath."""
        self.switch.add_bridge(name, system)
        if self.kernel.named(name) is None:
            self.kernel.add(Link(0, name, "openvswitch" if system else "tun", holders=-1 if system else 1))

    def add_fake_ovs_bridge(self, name: str, parent: str, tag: int) -> None:
        """A VLAN of the OVS bridge ``parent`` that ovs-vsctl shows as a bridge."""
        self.switch.add_fake_bridge(name, parent, tag)

    def add_ovs_port(self, bridge: str, name: str) -> None:
        """A port of somebody else's, without our mark."""
        self.switch.put(OvsPort(name, bridge))

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
