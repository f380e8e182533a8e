"""A routed site: a node between a router on its uplink and guests, each a namespace of its own with a whole IP stack behind a veth."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator, Mapping, Sequence

from netcommon.lifecycle.check import check, repair
from netcommon.lifecycle.context import Call, Clock, open_node
from netcommon.lifecycle.context import Node as OurNode
from netcommon.lifecycle.gc import gc
from netcommon.log import recording
from netcommon.settings.model import Settings
from runtime.paths import Paths
from tests.support.netns import Namespace, ask, run, sysctl, wait_until
from tests.support.node import Node
from tests.support.rundoor import rundoor
from tests.support.snapshot import Snapshot, snapshot

TABLE = "100"
GATEWAY4, GATEWAY6 = "192.0.2.1", "2001:db8:f::1"  #: the router's addresses on the uplink's network, which the guests share
NODE4, NODE6 = "192.0.2.2", "2001:db8:f::2"
FAR4, FAR6 = "198.51.100.1", "2001:db8:aaaa::1"  #: an address of the router's beyond the uplink's network
MAC = "aa:00:00:12:34:56"


class Site:
    """The node that the calling thread is in. ``table``: "" where guests are in table main, else the guests' table."""

    def __init__(self, node: Node, table: str) -> None:
        self.node, self.table = node, table
        self.router = node.outside("up0", f"{GATEWAY4}/24", f"{GATEWAY6}/64")
        for address in (f"{FAR4}/32", f"{FAR6}/128"):
            self.router.run("ip", "address", "add", address, "dev", "lo")
        node.address("up0", f"{NODE4}/24", f"{NODE6}/64")
        node.forwarding(ipv6=True)
        self.prompt("up0")
        self.defaults("up0")
        for family in ("-4", "-6") if table else ():
            run("ip", family, "rule", "add", "iif", "up0", "lookup", table, "preference", "400")
        self.guests: dict[str, Namespace] = {}

    def prompt(self, device: str) -> None:
        """Proxied answers come at once there: else after up to 0.8 s, by chance."""
        for family in ("ipv4", "ipv6"):
            sysctl(f"net/{family}/neigh/{device}/proxy_delay", "0")

    def defaults(self, uplink: str, verb: str = "replace") -> None:
        """Default routes through ``uplink``, in the guests' table."""
        where = ("table", self.table or "main")
        run("ip", "-4", "route", verb, "default", "via", GATEWAY4, "dev", uplink, "onlink", *where)
        run("ip", "-6", "route", verb, "default", "via", GATEWAY6, "dev", uplink, "onlink", *where)

    def tap(self, name: str = "tap0", mac: str = MAC) -> Namespace:
        """A guest's device, down, and the guest behind it, which makes no addresses by itself but its link-local one."""
        guest = self.node.namespaced()
        run("ip", "link", "add", name, "type", "veth", "peer", "name", "eth0", "address", mac, "netns", guest.path)
        self.prompt(name)
        guest.run("ip", "link", "set", "eth0", "up")
        self.guests[name] = guest
        return guest

    def guest(self, *addresses: str, gateways: Sequence[str] = (GATEWAY4, GATEWAY6), name: str = "tap0") -> Namespace:
        """The guest of that device, with ``addresses`` of full length and on-link default routes, as a cloud's images have them."""
        guest = self.guests.get(name) or self.tap(name)
        for address in addresses:
            guest.run("ip", "address", "add", address, "dev", "eth0", *(("nodad",) if ":" in address else ()))
        for gateway in gateways:
            family = "-6" if ":" in gateway else "-4"
            guest.run("ip", family, "route", "replace", "default", "via", gateway, "dev", "eth0", "onlink")
        return guest

    def nic(self, number: int = 0, **changes: str) -> dict[str, str]:
        """The variables of a NIC of this site."""
        made = {
            "INTERFACE": f"tap{number}",
            "MODE": "routed",
            "LINK": self.table,
            "MAC": MAC if not number else f"aa:00:00:00:00:{number:02x}",
            "VLAN": "",
            "INSTANCE": "web1",
            "INTERFACE_INDEX": str(number),
            "INTERFACE_UUID": f"{number:08x}-0667-415f-9a43-786dc01cbf24",
            "NETWORK_NAME": "guests",
            "NETWORK_SUBNET6": "2001:db8:f::/64",
            "NETWORK_GATEWAY": GATEWAY4,
            "NETWORK_GATEWAY6": GATEWAY6,
            "TAGS": "",
            **changes,
        }
        return {name: value for name, value in made.items() if value or name in ("VLAN", "TAGS")}

    def up(self, nic: Mapping[str, str]) -> None:
        done = rundoor("kvm-ifup", nic)
        assert (done.status, done.stderr) == (0, ""), done

    def down(self, nic: Mapping[str, str]) -> None:
        done = rundoor("kvm-ifdown", nic, nic["INTERFACE"], "hot-remove")
        assert (done.status, done.stderr) == (0, ""), done

    def before(self) -> Snapshot:
        """The node as it is when a NIC has been up and down once on tap0: the state directory is there, and the device's queue."""
        nic = self.nic(9, IP="2001:db8:f::99", INTERFACE="tap0")
        self.up(nic)
        self.down(nic)
        return snapshot()


def options(*words: str) -> str:
    """Tags of the instance that give the NIC with index 0 these options."""
    return " ".join(f"netcommon:0:{word}" for word in words)


def reaches(start: Namespace, *addresses: str, source: str = "") -> list[str]:
    """Those of ``addresses`` that answer one of two echo requests; all are asked at the same time."""
    more = ("-I", source) if source else ()
    with start.entered():
        words = ["ping", "-q", "-c", "2", "-i", "0.2", "-W", "1", *more]
        asked = [subprocess.Popen([*words, each], stdout=subprocess.DEVNULL) for each in addresses]
    return [each for each, ping in zip(addresses, asked, strict=True) if ping.wait() == 0]


@contextlib.contextmanager
def ours(settings: Settings | None = None) -> Iterator[OurNode]:
    """The library's own look at the node, with ``settings``, those of the package by default."""
    made = open_node(Paths(), settings or Settings(), Clock())
    try:
        yield made
    finally:
        made.store.close()
        made.host.close()


def drift() -> list[str]:
    """What does not hold of all records."""
    with ours() as node:
        reports = [check(node, node.host.snapshot(), record) for record in node.store.all()[0]]
    return [f"{step}: {text}" for report in reports for step, text in report.drift]


def mend() -> list[str]:
    """Repairs every record; what each came to, and the lines of the log that are warnings."""
    log, lines = recording()
    with ours() as node:
        found = [repair(node, record.key, Call(log, node.clock.now() + 20)).text for record in node.store.all()[0]]
    return [*found, *(str(line) for line in lines)]


def collect() -> list[str]:
    """gc."""
    with ours() as node:
        return [f"{found.action} {found.text}" for found in gc(node, Call(recording()[0], node.clock.now() + 20))]


def verifies(start: Namespace, address: str) -> bool:
    """Let a neighbour on eth0 verify its entry for ``address``, by solicitations to that alone; tell whether it was answered."""
    states: list[str] = []

    def over() -> bool:
        found = ask("ip", "-j", "neighbour", "show", address, "dev", "eth0")
        states.append(found[0]["state"][0] if found else "FAILED")  # one that has failed may be removed at once
        return states[-1] != "PROBE"

    with start.entered():
        (entry,) = ask("ip", "-j", "neighbour", "show", address, "dev", "eth0")
        run("ip", "neighbour", "replace", address, "dev", "eth0", "lladdr", entry["lladdr"], "nud", "probe")
        wait_until(over, 10)
    return states[-1] == "REACHABLE"


def proxies(device: str) -> list[tuple[str, str]]:
    """Address and protocol of the proxy entries on a device, by iproute2."""
    found = [entry for family in ("-4", "-6") for entry in ask("ip", family, "-j", "neighbour", "show", "proxy", "dev", device)]
    return sorted((entry["dst"], str(entry.get("protocol", ""))) for entry in found)
