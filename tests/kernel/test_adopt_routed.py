"""A routed guest with a whole IP stack is adopted while it speaks, and migrates later: it goes on reaching the world without a pause."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.netns import Namespace, ask, run, sysctl
from tests.support.node import Node
from tests.support.routed import FAR4, FAR6, GATEWAY4, GATEWAY6, MAC, NODE4, NODE6, Site
from tests.support.rundoor import rundoor

ROOT = Path(__file__).parents[2]
UUID = "0b67074c-de04-4502-ba5f-e9fd8ae7449c"
HOST4, HOST6 = "192.0.2.5", "2001:db8:f::5"
STEADY = "fe" + MAC[2:]

#: QEMU's part: frames between tap0 and the guest's own device, in the namespace of the first argument; from the first line of standard
#: input on between that and tap1, as on the target of a migration.
HOLD = """
import ctypes, fcntl, os, select, struct, sys

def tap(name, number):
    made = os.open("/dev/net/tun", os.O_RDWR)
    fcntl.ioctl(made, 0x400454CA, struct.pack("16sH22x", name.encode(), 0x1002))
    os.dup2(made, number)
    os.close(made)
    return number

there, other = tap("tap0", 22), tap("tap1", 23)
here = os.open("/proc/self/ns/net", os.O_RDONLY)
ctypes.CDLL(None).setns(os.open(sys.argv[1], os.O_RDONLY), 0x40000000)
guest = tap("eth0", 24)
ctypes.CDLL(None).setns(here, 0x40000000)
print("ready", flush=True)
while True:
    for one in select.select([0, there, guest], [], [])[0]:
        data = os.read(one, 65536)
        if one:
            try:
                os.write(guest if one == there else there, data)
            except OSError:
                pass  # the other end is down
        elif not data:
            sys.exit()
        else:
            os.close(there)
            there = other
"""


class Running:
    """The guest: its namespace, and the process that stands for its QEMU."""

    def __init__(self, site: Site, gateway: str, gateway6: str) -> None:
        self.site, self.namespace = site, site.node.namespaced()
        network = {"name": "guests", "network": "192.0.2.0/24", "network6": "2001:db8:f::/64", "gateway": gateway, "gateway6": gateway6}
        self.nic: dict[str, Any] = {
            "uuid": UUID,
            "mac": MAC,
            "ip": HOST4,
            "nicparams": {"mode": "routed", "link": "100", "vlan": ""},
            "hvinfo": {"id": "nic-0"},
            "netinfo": {name: value for name, value in network.items() if value},
        }
        words = [self.namespace.path, "-name", "web", "-netdev", "type=tap,id=nic-0,fd=22"]
        words += ["-device", f"virtio-net-pci,id=nic-0,mac={MAC},netdev=nic-0"]
        self.process = subprocess.Popen([sys.executable, "-c", HOLD, *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout and self.process.stdout.readline() == "ready\n"

    def as_ganeti_leaves_it(self) -> None:
        """By its own script, and with its files."""
        files = Path("/var/run/ganeti/kvm-hypervisor")
        for name, text in (("conf/web.runtime", json.dumps([["qemu"], [self.nic], {}, []])), ("pid/web", f"{self.process.pid}\n")):
            (files / name).parent.mkdir(parents=True, exist_ok=True)
            (files / name).write_text(text)
        self.site.prompt("tap0")
        for family in ("ipv4", "ipv6"):
            sysctl(f"net/{family}/conf/tap0/forwarding", "1")
            sysctl(f"net/{family}/conf/tap0/{'proxy_arp' if family == 'ipv4' else 'proxy_ndp'}", "1")
        run("ip", "link", "set", "tap0", "up")
        run("ip", "-6", "neighbour", "add", "proxy", GATEWAY6, "dev", "tap0")
        for family, address in (("-4", f"{HOST4}/32"), ("-6", f"{HOST6}/128")):
            run("ip", family, "rule", "add", "iif", "tap0", "lookup", "100")
            run("ip", family, "route", "replace", address, "dev", "tap0", "table", "100")
            self.site.router.run("ip", family, "route", "add", address, "via", NODE4 if family == "-4" else NODE6)

    def starts(self) -> None:
        """Give it its addresses and on-link default routes."""
        inside: Namespace = self.namespace
        inside.run("ip", "link", "set", "eth0", "address", MAC, "up")
        for address, gateway in ((f"{HOST4}/32", GATEWAY4), (f"{HOST6}/128", GATEWAY6)):
            inside.run("ip", "address", "add", address, "dev", "eth0", *(("nodad",) if ":" in address else ()))
            inside.run("ip", "-6" if ":" in address else "-4", "route", "add", "default", "via", gateway, "dev", "eth0", "onlink")

    def pinging(self, address: str, count: int) -> subprocess.Popen[str]:
        """Start asking ``address`` fifty times a second."""
        with self.namespace.entered():
            words = ["ping", "-q", "-c", str(count), "-i", "0.02", "-W", "1", address]
            return subprocess.Popen(words, stdout=subprocess.PIPE, text=True)

    def gateways(self) -> dict[str, str]:
        """Read the guest's neighbour cache."""
        with self.namespace.entered():
            return {one["dst"]: one["lladdr"] for one in ask("ip", "-j", "neighbour", "show", "dev", "eth0") if "lladdr" in one}


def lost(ping: subprocess.Popen[str]) -> int:
    """Count those that were not answered."""
    said = ping.communicate(timeout=60)[0]
    found = re.search(r"(\d+) packets transmitted, (\d+) received", said)
    assert found, said
    return int(found[1]) - int(found[2])


def mac_of(device: str) -> str:
    return str(ask("ip", "-j", "link", "show", "dev", device)[0]["address"])


def at_once() -> None:
    """Let nobody else have the processor before the process: from the tap's MAC to the word to the guest are the pings that are lost."""
    os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))


def adopt(action: str = "adopted") -> dict[str, str]:
    words = [sys.executable, "-m", "netcommon.cli", "adopt", "web", "--json"]
    done = subprocess.run(words, capture_output=True, text=True, cwd=ROOT, check=False, preexec_fn=at_once)
    assert done.returncode == 0, done.stdout + done.stderr
    (made,) = json.loads(done.stdout)["nics"]
    assert made["action"] == action, made
    return dict(made)


@pytest.fixture
def running(node: Node, request: pytest.FixtureRequest) -> Iterator[Running]:
    site = Site(node, "100")
    made = Running(site, *getattr(request, "param", (GATEWAY4, GATEWAY6)))
    made.as_ganeti_leaves_it()
    made.starts()
    yield made
    made.process.kill()
    made.process.communicate()


@pytest.mark.no_agent("an agent adopts by itself")
def test_neither_adoption_nor_a_migration_after_it_costs_a_ping(running: Running) -> None:
    """The guest has the tap's MAC of by chance in its cache; it is told of the steady one, which the target's tap has too."""
    assert [lost(running.pinging(address, 3)) for address in (FAR4, FAR6)] == [0, 0]
    chance = mac_of("tap0")
    assert running.gateways()[GATEWAY4] == running.gateways()[GATEWAY6] == chance != STEADY
    pings = [running.pinging(address, 150) for address in (FAR4, FAR6)]
    adopt()
    assert [lost(ping) <= 1 for ping in pings] == [True, True]  # one may be on its way at that moment
    assert mac_of("tap0") == STEADY
    assert running.gateways()[GATEWAY4] == running.gateways()[GATEWAY6] == STEADY

    site = running.site
    target = {**site.nic(IP=HOST4, INSTANCE="web", INTERFACE="tap1"), "INTERFACE_UUID": UUID, "TAGS": f"netcommon:0:addresses:{HOST6}"}
    target["INTERFACE_INDEX"] = "0"
    site.prompt("tap1")
    run("ip", "-6", "route", "delete", f"{HOST6}/128", "dev", "tap0", "table", "100")  # the target is another node
    done = rundoor("kvm-ifup", {**target, "MAC": MAC}, "tap1")
    assert done.status == 0, done
    assert running.process.stdin
    running.process.stdin.write("switch\n")
    running.process.stdin.flush()
    assert [lost(running.pinging(address, 20)) for address in (FAR4, FAR6)] == [0, 0]


@pytest.mark.no_agent("an agent adopts by itself")
@pytest.mark.parametrize("running", [("", GATEWAY6), (GATEWAY4, ""), ("", "")], indirect=True, ids=["no IPv4", "no IPv6", "none"])
def test_a_guest_that_could_not_be_told_keeps_what_it_knows(running: Running) -> None:
    """Ganeti's network lacks a gateway that it uses: it goes on, and whoever adopts it hears what a migration will cost.

    Adopted once more, when the network has both, it keeps its MAC too: somebody may count on it by now.
    """
    far = (FAR4, FAR6)
    assert [lost(running.pinging(address, 3)) for address in far] == [0, 0]
    chance = mac_of("tap0")
    assert "keeps its MAC" in adopt()["why"]
    assert (mac_of("tap0"), *(lost(running.pinging(address, 20)) for address in far)) == (chance, 0, 0)
    runtime = Path("/var/run/ganeti/kvm-hypervisor/conf/web.runtime")
    running.nic["netinfo"] |= {"gateway": GATEWAY4, "gateway6": GATEWAY6}
    runtime.write_text(json.dumps([["qemu"], [running.nic], {}, []]))
    assert adopt("managed already")["action"] == "managed already" and mac_of("tap0") == chance
