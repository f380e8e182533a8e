"""A simulated node for tests of the lifecycle: a MemoryHost with an administrator's own things on it, and files in a folder.

``Sim`` is the machine, which lives on; ``Sim.node`` is what one process sees of it. ``Mortal`` kills such a process at any change.
"""

from __future__ import annotations

import os
import time
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import runtime.folder
from netcommon.host.api.facts import AF_INET, AF_INET6, BridgeVlan, Link, Neighbour, OvsPort, Route, Rule
from netcommon.host.api.host import Answer
from netcommon.host.api.requests import (
    AddAddress,
    AddFdb,
    AddNeighbour,
    AddRoute,
    AddVlan,
    DeleteAddress,
    DeleteFdb,
    DeleteFile,
    DeleteFlows,
    DeleteNeighbour,
    DeleteOvsPort,
    DeleteRoute,
    DeleteVlan,
    FlushPort,
    Hangup,
    NftChange,
    PutFile,
    PutFlows,
    PutOvsPort,
    Request,
    SendFrame,
    SetLink,
    SetPort,
    SetSysctl,
)
from netcommon.host.simulated.host import MemoryHost
from netcommon.lifecycle import down, gc, up
from netcommon.lifecycle.context import SHUTDOWN, START, Call, Clock, Node, Outcome
from netcommon.lifecycle.execute import decode
from netcommon.log import Log, recording
from netcommon.operations.file import NicFile
from netcommon.operations.flows import cookie_of
from netcommon.operations.network_file import NetworkFile
from netcommon.settings.model import Settings
from runtime.environment import DownHint, nic_from_environment
from runtime.nic import Nic
from runtime.paths import Paths
from runtime.record import Record
from runtime.store import Store

if TYPE_CHECKING:
    from netcommon.lifecycle.context import Action

UUIDS = tuple(f"{number:08x}-0000-4000-8000-00000000000{number}" for number in range(1, 7))
BASE = {
    "INTERFACE": "tap0",
    "INSTANCE": "web1",
    "INTERFACE_INDEX": "0",
    "INTERFACE_UUID": UUIDS[0],
    "MAC": "aa:00:00:00:00:01",
    "VLAN": "",
    "TAGS": "a:b",
}

#: One environment for each thing that a NIC can ask for.
MODES: dict[str, dict[str, str]] = {
    "bridged": {"MODE": "bridged", "LINK": "br0"},
    "bridged, access": {"MODE": "bridged", "LINK": "brv", "VLAN": ".10"},
    "bridged, trunk": {"MODE": "bridged", "LINK": "brv", "VLAN": ":10:20"},
    "bridged, hybrid": {"MODE": "bridged", "LINK": "brv", "VLAN": ".10:20:30"},
    "bridged, port": {
        "MODE": "bridged",
        "LINK": "br0",
        "NETWORK_TAGS": "netcommon:isolated netcommon:mcast_flood:no",
        "TAGS": "netcommon:0:static_fdb netcommon:0:mcast_fast_leave netcommon:0:mcast_to_unicast",
    },
    "bridged, static": {"MODE": "bridged", "LINK": "brv", "VLAN": ":10:20", "TAGS": "netcommon:0:static_fdb netcommon:0:default_vlan"},
    "routed": {"MODE": "routed", "LINK": "", "IP": "10.0.0.5"},
    "routed, table": {"MODE": "routed", "LINK": "guests", "IP": "10.0.0.5"},
    "routed, prefix": {"MODE": "routed", "LINK": "200", "IP": "10.9.0.0/24"},
    "routed, bridge": {"MODE": "routed", "LINK": "br0", "IP": "10.0.0.5"},
    "routed, IPv6": {"MODE": "routed", "LINK": "guests", "IP": "fd00::5"},
    "routed, all options": {
        "MODE": "routed",
        "LINK": "guests",
        "IP": "10.0.0.5",
        "NETWORK_SUBNET6": "fd01::/64",
        "NETWORK_GATEWAY6": "fd01::1",
        "NETWORK_TAGS": "netcommon:eui64 netcommon:blackhole netcommon:uplink_proxy:both netcommon:gateway_link_local "
        "netcommon:rp_filter:loose netcommon:accept_local netcommon:tap_mac:fe:00:00:00:00:01",
        "TAGS": "netcommon:0:addresses:fd00::5 netcommon:0:addresses:10.0.0.6 "
        "netcommon:0:prefixes:10.9.0.0/24 netcommon:0:prefixes:fd02::/64",
    },
    "openvswitch": {"MODE": "openvswitch", "LINK": "ovs0"},
    "openvswitch, access": {"MODE": "openvswitch", "LINK": "ovs0", "VLAN": ".10"},
    "openvswitch, hybrid": {"MODE": "openvswitch", "LINK": "ovs0", "VLAN": ".10:20"},
    "bridged, nfdhcpd": {"MODE": "bridged", "LINK": "br0", "TAGS": "netcommon:*:dhcp:nfdhcpd", "IP": "10.0.0.5"},
    "openvswitch, dnsmasq": {"MODE": "openvswitch", "LINK": "ovs0", "TAGS": "netcommon:0:dhcp:dnsmasq", "IP": "10.0.0.5"},
    "bridged, told": {
        "MODE": "bridged",
        "LINK": "br0",
        "TAGS": "netcommon:0:dhcp:dnsmasq",
        "IP": "10.0.0.5",
        "NETWORK_NAME": "told",
        "NETWORK_GATEWAY": "10.0.0.1",
    },
    "openvswitch, guarded": {
        "MODE": "openvswitch",
        "LINK": "ovs0",
        "VLAN": ":20:30",
        "IP": "10.0.0.5",
        "TAGS": "netcommon:*:spoof_guard netcommon:*:rate_in:8mbit netcommon:*:rate_out:4mbit",
    },
    "ext": {"MODE": "ext", "LINK": "anything"},
}


#: Requests of effects: they change nothing on the host, and fail no call.
TELLING = (SendFrame, Hangup, FlushPort)


def nic(mode: str = "bridged", **changes: str) -> Nic:
    """The NIC of one of MODES on tap0, with variables changed."""
    return nic_from_environment({**BASE, **MODES[mode], **changes})


#: What the settings say of the network "told".
TOLD = {"told": {"resolvers": ("10.0.0.53",), "mtu": 1400}}


class Killed(BaseException):
    """SIGKILL: nobody may do anything after it."""


class Sim:
    """A machine: its kernel, its files, and what its administrator has set up."""

    def __init__(self, root: str, settings: Settings | None = None, boot: str = "boot-1", netns: int = 1) -> None:
        self.paths = Paths.under(root)
        self.settings = settings or Settings(service_timeout=2, hook_timeout=5, network_fields=TOLD)
        self.host = MemoryHost({"guests": 100, "other": 200}, boot, netns)
        self.log, self.lines = recording()
        self.wall = time.time()
        self.scheduled: list[tuple[tuple[float, ...], Callable[[], bool]]] = []  #: what an effect does again later
        self._store: Store | None = None
        host = self.host
        for bridge, mtu, aware in (("br0", 1400, False), ("br1", 9000, False), ("br2", 9000, False), ("brv", 1500, True)):
            made = host.add_bridge(bridge, mtu, vlan_filtering=aware)
            host.add_link(Link(0, f"eth-{bridge}", "", up=True, master=made.index))
        host.add_ovs_bridge("ovs0")
        host.kernel.settings.write("net/ipv4/ip_forward", "1")
        host.kernel.settings.write("net/ipv6/conf/all/forwarding", "1")
        host.kernel.settings.write("net/ipv6/conf/all/proxy_ndp", "1")
        host.files.folders |= {"/var/lib/nfdhcpd", "/var/lib/netcommon/dnsmasq", "/var/lib/netcommon/dnsmasq-options"}
        self._foreign()
        self.tap("tap0")
        self.before = self.picture()

    def __del__(self) -> None:
        """A test may make thousands: their folders' descriptors end with them."""
        self.close()

    def close(self) -> None:
        """The process that looked at it last has ended."""
        if getattr(self, "_store", None) is not None:
            self._store.close()  # type: ignore[union-attr]

    def _foreign(self) -> None:
        """What is not ours, and must be there at the end as at the beginning."""
        kernel = self.host.kernel
        uplink = self.index("eth-brv")
        kernel.add_vlan(uplink, BridgeVlan(20))
        kernel.add_rule(Rule(AF_INET, 700, "eth-br0", 100, 4))
        kernel.add_route(Route(AF_INET, 100, "10.0.0.77/32", self.index("br0"), protocol=4))
        kernel.add_route(Route(AF_INET, 254, "0.0.0.0/0", self.index("eth-br0"), 3, 0, "192.0.2.1"))
        kernel.add_route(Route(AF_INET6, 254, "::/0", self.index("eth-br0"), 3, 0, "fe80::fe", 1024))
        kernel.add_neighbour(Neighbour(AF_INET6, "fd00::77", self.index("br0"), protocol=4))
        self.host.switch.put(OvsPort("eth-br1", "ovs0", tag=7))
        self.host.files.put("/var/lib/nfdhcpd", "eth-br0", "IP=10.0.0.99\n")

    def tap(self, name: str, holder: int = 4242) -> Link:
        return self.host.add_tap(name, holder)

    def index(self, name: str) -> int:
        link = self.host.kernel.named(name)
        return link.index if link else -1

    @property
    def node(self) -> Node:
        """A new process on the machine; the one before has ended."""
        identity = self.host.identity()
        clock = Clock(time.monotonic, lambda: self.wall, time.sleep)
        if self._store is not None:
            self._store.close()
        self._store = Store(self.paths, identity.netns, identity.boot)
        weakref.finalize(self._store, self._store._layout.close)  # a test may use one node while it asks for another
        return Node(self.paths, self.settings, self.host, self._store, identity, clock, self._later)

    def _later(self, delays: Sequence[float], action: Action, node: Node, log: Log) -> None:
        self.scheduled.append((tuple(delays), partial(action, node, log, None)))

    def call(self, context: str = START, seconds: float = 5, **more: Any) -> Call:
        return Call(self.log, time.monotonic() + seconds, "test", context, **more)

    def up(self, nic: Nic, **more: Any) -> Outcome:
        return up.up(self.node, nic, self.call(**more))

    def down(self, hint: DownHint | Nic, context: str = "hot-remove", **more: Any) -> Outcome:
        if isinstance(hint, Nic):
            hint = DownHint(hint.uuid, hint.interface, hint.instance, hint.index, hint.mac)
        return down.down(self.node, hint, self.call(context, **more))

    def shutdown(self, hint: DownHint | Nic, **more: Any) -> Outcome:
        return self.down(hint, SHUTDOWN, **more)

    def gc(self, dry_run: bool = False) -> list[gc.Found]:
        """Later than anything that was left behind."""
        self.wall += 1000
        return gc.gc(self.node, self.call(), dry_run)

    def record(self, key: str = UUIDS[0]) -> Record:
        found = self.node.store.read(key)
        assert found is not None, f"there is no record {key}"
        return found

    def records(self) -> list[Record]:
        found, problems = self.node.store.all()
        assert problems == []
        return found

    def reboot(self, boot: str = "boot-2") -> None:
        """The kernel forgets everything but the uplinks and bridges; OVSDB and the files stay."""
        self.host._identity = self.host._identity._replace(boot=boot)
        for link in list(self.host.kernel.links.values()):
            if link.kind == "tun" and link.name.startswith("tap"):
                self.host.remove_link(link.name)
        self.host.nftables.flush()
        self.host.openflow.all.clear()
        kernel = self.host.kernel
        kernel.rules = [rule for rule in kernel.rules if rule.protocol != 174]
        kernel.routes = [route for route in kernel.routes if route.protocol != 174]
        kernel.neighbours = [neighbour for neighbour in kernel.neighbours if neighbour.protocol != 174]
        kernel.settings._values.update({path: value for path, value in self.before["sysctls"].items() if "/eth-" in path})
        kernel.vlans = {index: dict(vlans) for index, vlans in self.before["vlans"].items() if index in kernel.vlans}

    def picture(self) -> dict[str, Any]:
        """Everything on the host; equal pictures, equal hosts."""
        kernel, switch = self.host.kernel, self.host.switch
        numbers = {(port.bridge, port.ofport) for port in switch.ports()}
        return {
            "links": dict(kernel.links),
            "rules": list(kernel.rules),
            "routes": sorted(kernel.routes),
            "neighbours": sorted(kernel.neighbours),
            "addresses": sorted(kernel.addresses),
            "vlans": {index: dict(sorted(vlans.items())) for index, vlans in kernel.vlans.items()},
            "ports": {index: port for index in kernel.links if (port := kernel.bridge_ports.port(index))},
            "fdb": sorted(kernel.bridge_ports.entries.items()),
            "sysctls": dict(kernel.settings._values),
            "flows": sorted(flow._replace(port=int((flow.bridge, flow.port) in numbers)) for flow in self.host.openflow.all),
            "shapers": sorted(switch.shapers),
            "ovs": sorted(port._replace(row="", ofport=0) for port in switch.ports()),
            "files": sorted(self.host.files.contents.values()),
            "nftables": self.host.nftables.everything(),
            "daemons": {name: daemon.options for name, daemon in self.host.daemons.running.items()},
        }

    def files(self) -> list[str]:
        """What is in the state directory, without the locks, the namespace's marker and empty folders."""
        found = []
        for where, folders, names in os.walk(self.paths.state):
            folders[:] = sorted(name for name in folders if name != "locks")
            found += [os.path.relpath(f"{where}/{name}", self.paths.state) for name in names if not name.startswith("netns.")]
        return sorted(found)

    def requests(self) -> list[Request]:
        """The requests for changes since the last call of this."""
        found: list[Request] = [request for request in self.host.requests if not isinstance(request, TELLING)]
        self.host.requests.clear()
        return found

    @contextmanager
    def failing(self, number: int, answer: Answer, times: int = 1 << 30) -> Iterator[list[Request]]:
        """The ``number``-th request from now on (from 0), and if it is repeated that one too, is answered so. Yields those refused."""
        seen: list[Request] = []
        refused: list[Request] = []

        def fail(request: Request) -> Answer | None:
            if isinstance(request, TELLING):
                return None
            seen.append(request)
            if (len(seen) == number + 1 or (refused and request == refused[0])) and len(refused) < times:
                refused.append(request)
                return answer
            return None

        self.host.fail = fail
        try:
            yield refused
        finally:
            self.host.fail = lambda _request: None

    def target(self, request: Request) -> str:
        """The device that a request is about; by its index, as it is now."""
        index = None
        if isinstance(request, SetLink | AddVlan | DeleteVlan | SetPort | AddFdb | DeleteFdb):
            index = request.index
        elif isinstance(request, AddNeighbour | DeleteNeighbour):
            index = request.neighbour.index
        elif isinstance(request, AddAddress | DeleteAddress):
            index = request.address.index
        elif isinstance(request, AddRoute | DeleteRoute):
            index = request.route.index
        elif isinstance(request, SetSysctl):
            return request.path.split("/")[3]
        elif isinstance(request, PutOvsPort):
            return request.port.name
        elif isinstance(request, DeleteOvsPort):
            return request.name
        elif isinstance(request, PutFlows):
            return request.port
        elif isinstance(request, DeleteFlows):
            return next(name for name in ("tap0", "tap1", "tap2") for uuid in UUIDS if cookie_of(uuid, name) == request.cookie)
        elif isinstance(request, NftChange):
            return request.what.rpartition(" of ")[2]
        elif isinstance(request, PutFile | DeleteFile):
            # nfdhcpd's is named after the device, dnsmasq's after the NIC, which may have a record aside: those tell who has such a file
            path = (request.folder, request.name)
            files = NicFile, NetworkFile
            having = [each for each in self.records() if any(isinstance(one, files) and one[:2] == path for one in decode(each)[0])]
            having.sort(key=lambda record: record.key != record.uuid)
            return having[0].device if having else request.name
        if index is not None:
            link = self.host.kernel.links.get(index)
            return link.name if link else f"gone {index}" if index else "nowhere"
        rule = getattr(request, "rule", None)
        assert isinstance(rule, Rule), request
        return rule.iif


class _Os:
    """The os module as runtime.folder sees it: what changes a file is counted first."""

    CHANGING = ("write", "rename", "unlink", "symlink", "mkdir", "rmdir", "link")

    def __init__(self, mortal: Mortal) -> None:
        self._mortal = mortal

    def __getattr__(self, name: str) -> Any:
        real = getattr(os, name)
        if name in self.CHANGING:

            def counted(*positional: Any, **named: Any) -> Any:
                self._mortal.step(name)
                return real(*positional, **named)

            return counted
        if name == "open":

            def opened(path: Any, flags: int, *positional: Any, **named: Any) -> Any:
                if flags & os.O_CREAT:
                    self._mortal.step("create")
                return real(path, flags, *positional, **named)

            return opened
        return real


class Mortal:
    """A process on ``sim`` that is killed right before its ``life``-th change of the host or of a file; None: it lives."""

    def __init__(self, sim: Sim, life: int | None = None) -> None:
        self.sim, self.life = sim, life
        self.steps: list[str] = []

    def step(self, what: str) -> None:
        if self.life is not None and len(self.steps) >= self.life:
            raise Killed(what)
        self.steps.append(what)

    def _request(self, request: Request) -> Answer | None:
        if not isinstance(request, TELLING):
            self.step(type(request).__name__)
        return None

    def __enter__(self) -> Mortal:
        vars(runtime.folder)["os"] = _Os(self)
        self.sim.host.fail = self._request
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> bool:
        vars(runtime.folder)["os"] = os
        self.sim.host.fail = lambda _request: None
        if self.sim._store is not None:
            self.sim._store.close()
        return isinstance(error, Killed)


def plain(record: Record) -> Mapping[str, Any]:
    """What of a record must be the same whenever and however it was made."""
    fields = record._asdict()
    return {name: value for name, value in fields.items() if name not in ("created", "monotonic")}
