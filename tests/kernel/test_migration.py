"""A routed guest moves between two nodes on one uplink network: the outside follows it at once, and the node it has left is silent."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.support import ganeti_event
from tests.support.bootstrap import VENV
from tests.support.frames import ARP, Arp, Frame
from tests.support.netns import Namespace, ask, run, sysctl
from tests.support.node import Node
from tests.support.routed import options
from tests.support.rundoor import BASE, Outcome, execute, rundoor
from tests.support.snapshot import diff, snapshot
from tests.support.sniffer import Sniffer

GUEST, MAC, OUTSIDE = "192.0.2.5", "aa:00:00:12:34:56", "192.0.2.1"
NIC = {
    "INTERFACE": "tap0",
    "MODE": "routed",
    "LINK": "",
    "IP": GUEST,
    "MAC": MAC,
    "VLAN": "",
    "INSTANCE": "web1",
    "INTERFACE_INDEX": "0",
    "INTERFACE_UUID": "5c8bf0b4-0667-415f-9a43-786dc01cbf24",
    "TAGS": options("uplink_proxy:both"),
}
HOOK = {
    "GANETI_HOOKS_PHASE": "post",
    "GANETI_OBJECT_TYPE": "INSTANCE",
    "GANETI_INSTANCE_NAME": "web1",
    "GANETI_OP_CODE": "OP_INSTANCE_MIGRATE",
}


class Pair:
    """The node that the calling thread is in, another one, and the outside, all on one network."""

    def __init__(self, node: Node) -> None:
        self.node, self.here, self.there, self.outside = node, node.namespace, node.namespaced(), node.namespaced()
        self.outside.run("ip", "link", "add", "seg", "type", "bridge", "forward_delay", "0")
        self.outside.run("ip", "address", "add", f"{OUTSIDE}/24", "dev", "seg")
        self.outside.run("ip", "link", "set", "seg", "up")
        for number, place in enumerate((self.here, self.there)):
            with place.entered():
                node.wire("up0", self.outside, f"port{number}")
                self.outside.run("ip", "link", "set", f"port{number}", "master", "seg")
                run("ip", "address", "add", f"192.0.2.{number + 11}/24", "dev", "up0")
                run("ip", "route", "add", "default", "via", OUTSIDE)
                sysctl("net/ipv4/ip_forward", "1")
                sysctl("net/ipv4/neigh/up0/proxy_delay", "0")

    def guest(self, place: Namespace) -> Namespace:
        """The guest's devices in ``place``: the same guest, whichever node it is on."""
        guest = self.node.namespaced()
        with place.entered():
            run("ip", "link", "add", "tap0", "type", "veth", "peer", "name", "eth0", "address", MAC, "netns", guest.path)
            sysctl("net/ipv4/neigh/tap0/proxy_delay", "0")
        guest.run("ip", "address", "add", f"{GUEST}/32", "dev", "eth0")
        guest.run("ip", "link", "set", "eth0", "up")
        guest.run("ip", "route", "add", "default", "dev", "eth0")
        return guest

    def call(self, place: Namespace, door: str, environment: Mapping[str, str], *arguments: str) -> None:
        with place.entered():
            done = rundoor(door, environment, *arguments)
        assert (done.status, done.stderr) == (0, ""), done

    def known(self) -> str:
        """The MAC under which the outside has the guest."""
        with self.outside.entered():
            return str(next(entry["lladdr"] for entry in ask("ip", "-j", "neighbour", "show", "dev", "seg") if entry["dst"] == GUEST))

    def mac(self, place: Namespace, device: str = "up0") -> str:
        with place.entered():
            return str(ask("ip", "-j", "link", "show", "dev", device)[0]["address"])

    def answers(self) -> bool:
        return "1 received" in self.outside.run("ping", "-c", "1", "-W", "1", GUEST, check=False)


def netcommon(*words: str) -> Outcome:
    return execute([str(VENV / "bin/netcommon"), *words], BASE)


def announcement(frame: bytes) -> bool:
    """Gratuitous ARP for the guest's address."""
    parsed = Frame.parse(frame)
    return parsed.type == ARP and (Arp.parse(parsed.payload).sender, Arp.parse(parsed.payload).target) == (GUEST, GUEST)


@pytest.fixture
def pair(node: Node) -> Pair:
    return Pair(node)


def test_the_guest_moves_and_the_source_goes_down_late(pair: Pair) -> None:
    """The guest keeps the neighbour cache of its old tap: what it holds there is right on the new node too."""
    first = pair.guest(pair.here)
    with Sniffer(pair.outside, "port0") as wire:
        pair.call(pair.here, "kvm-ifup", NIC)
        assert len(wire.first(10, announcement)) == 10  # no guest migrates within a second of its start
    assert pair.answers() and pair.known() == pair.mac(pair.here)
    gateway = json.loads(first.run("ip", "-j", "neighbour", "show", OUTSIDE))[0]["lladdr"]
    second = pair.guest(pair.there)
    second.run("ip", "neighbour", "add", OUTSIDE, "lladdr", gateway, "dev", "eth0", "nud", "permanent")
    pair.call(pair.there, "kvm-ifup", NIC)
    assert pair.known() == pair.mac(pair.there) and pair.answers()
    run("ip", "link", "del", "tap0")  # QEMU ends on the source
    source = bytes.fromhex(pair.mac(pair.here).replace(":", ""))
    with pair.there.entered():
        whole = snapshot()
    with Sniffer(pair.outside, "port0") as wire:
        pair.call(pair.here, "kvm-ifdown", NIC, "tap0", "migrate")
        heard = wire.until(time.time() + 0.2, announcement)
        assert [each for each in heard if each.frame[6:12] == source] == []  # the target may say its last word still
    with pair.there.entered():
        changed = diff(whole, snapshot())
    # both nodes are on one machine here: the records of the second are below netns.d
    assert [line for line in changed if "/netns.d/" in line or not line.startswith("- files: ")] == []
    assert pair.known() == pair.mac(pair.there) and pair.answers()


@pytest.mark.parametrize("operation", ["MIGRATE", "FAILOVER", "REMOVE"])
def test_what_was_changed_goes_with_the_guest_though_gc_was_first(pair: Pair, operation: str) -> None:
    """The hook of Ganeti 3.0 comes when no record is left: what it says of the instance's NICs tells which have gone."""
    event = ganeti_event.event(operation.lower(), "web1", [ganeti_event.nic(GUEST, UUID=NIC["INTERFACE_UUID"])])
    other = {**event, **{name: "other1" for name in event if name.endswith(("_INSTANCE_NAME", "_OP_TARGET"))}}
    other |= {name: "11111111-0667-415f-9a43-786dc01cbf24" for name in event if name.endswith("_UUID")}
    kept = Path(f"/var/lib/netcommon/wanted/{NIC['INTERFACE_UUID']}.json")
    pair.guest(pair.here)
    pair.call(pair.here, "kvm-ifup", NIC)
    assert netcommon("change", "tap0", "uplink_proxy=off").status == 0
    run("ip", "link", "del", "tap0")
    assert netcommon("gc").status == 0 and os.listdir("/run/netcommon/nics") == []
    for environment in (other, {**event, "GANETI_OP_CODE": "OP_INSTANCE_SHUTDOWN"}):
        pair.call(pair.here, "ganeti-hook", environment, "")
        assert kept.exists()
    pair.call(pair.here, "ganeti-hook", event, "")
    assert not kept.exists()
    pair.guest(pair.here)
    pair.call(pair.here, "kvm-ifup", NIC)  # the guest is back
    assert "set by change" not in netcommon("plan", "tap0").stdout


def test_nothing_of_a_guest_on_its_way_is_on_two_nodes(pair: Pair) -> None:
    """The target answers for the address only when Ganeti's hook finds the guest there, and then announces it."""
    Path("/var/run/ganeti/kvm-hypervisor/conf").mkdir(parents=True)
    pair.guest(pair.here)
    with Sniffer(pair.outside, "port0") as wire:
        pair.call(pair.here, "kvm-ifup", NIC)
        assert len(wire.first(10, announcement)) == 10  # no guest migrates within a second of its start
    pair.guest(pair.there)
    with Sniffer(pair.outside, "port1") as wire:
        pair.call(pair.there, "kvm-ifup", {**NIC, "MIGRATION_PHASE": "pre"})
        pair.call(pair.there, "ganeti-hook", HOOK, "")
        assert wire.until(time.time(), announcement) == []
    pair.outside.run("ip", "neighbour", "flush", "dev", "seg")
    assert pair.answers() and pair.known() == pair.mac(pair.here)
    Path("/var/run/ganeti/kvm-hypervisor/conf/web1.runtime").write_text("[[], [], {}, []]")
    with Sniffer(pair.outside, "port1") as wire:
        pair.call(pair.there, "ganeti-hook", HOOK, "")
        assert len(wire.first(2, announcement)) == 2
    assert pair.known() == pair.mac(pair.there) and pair.answers()
