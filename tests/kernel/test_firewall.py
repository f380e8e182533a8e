"""Firewall profiles: what reaches the guest by each, with real connections; shared tables come with the first NIC and go with the last."""

from __future__ import annotations

import contextlib
import socket
from pathlib import Path

import pytest

from tests.kernel.test_doors_parallel import collect, environment, good
from tests.support.netns import Namespace, run, wait_until
from tests.support.node import Node
from tests.support.routed import FAR4, GATEWAY4, Site, drift, mend, options, reaches
from tests.support.rundoor import rundoor
from tests.support.snapshot import diff, snapshot

HOST4 = "192.0.2.5"
PORTS = (22, 80)


def listen(guest: Namespace) -> list[socket.socket]:
    """The guest's services."""
    with guest.entered():
        return [socket.create_server(("0.0.0.0", port)) for port in PORTS]


def connects(there: Namespace, address: str, port: int) -> bool:
    """Whether a connection from ``there`` is taken within half a second; a refused one would be an answer too."""
    with there.entered(), contextlib.suppress(TimeoutError):
        socket.create_connection((address, port), timeout=0.5).close()
        return True
    return False


def tables() -> list[str]:
    """Tables of profiles."""
    return [line.split()[-1] for line in run("nft", "list", "tables").splitlines() if "netcommon-fw-" in line]


def what_gets_in(outside: Namespace, guest: Namespace, address: str) -> tuple[bool, ...]:
    """Ping, and each of PORTS, from outside; and a connection of the guest's own, which must always work."""
    services = listen(guest)
    with outside.entered():
        server = socket.create_server(("0.0.0.0", 8080))
    try:
        assert connects(guest, FAR4 if outside_has(outside, FAR4) else GATEWAY4, 8080)
        return (reaches(outside, address) == [address], *(connects(outside, address, port) for port in PORTS))
    finally:
        for each in (*services, server):
            each.close()


def outside_has(outside: Namespace, address: str) -> bool:
    return address in outside.run("ip", "address")


VERDICTS = {"": (True, True, True), "unprotected": (True, True, True), "limited": (True, True, False), "protected": (False, False, False)}


@pytest.mark.parametrize("profile", VERDICTS)
def test_a_routed_nic(node: Node, profile: str) -> None:
    """snf-network's three words."""
    site = Site(node, "")
    guest = site.guest(HOST4)
    before = site.before()
    nic = site.nic(IP=HOST4, TAGS=" ".join(["netcommon:*:uplink_proxy:both", *([f"netcommon:0:{profile}"] if profile else [])]))
    site.up(nic)
    assert drift() == []
    assert what_gets_in(site.router, guest, HOST4) == VERDICTS[profile]
    assert len(tables()) == (profile in ("limited", "protected"))
    site.down(nic)
    assert diff(before, snapshot()) == []


def test_drift_and_repair(node: Node) -> None:
    site = Site(node, "")
    site.guest(HOST4)
    before = site.before()
    nic = site.nic(IP=HOST4, TAGS=options("firewall:protected"))
    site.up(nic)
    (table,) = tables()
    for harm in (
        ("flush", "chain", "inet", table, "rules"),
        ("flush", "chain", "inet", table, "forward"),
        ("flush", "set", "inet", table, "nics"),
        ("delete", "table", "inet", table),
        ("flush", "ruleset"),
    ):
        run("nft", *harm)
        assert drift() != [], harm
        mend()
        assert drift() == [], harm
    assert collect() == []
    site.down(nic)
    assert diff(before, snapshot()) == []


def test_two_nics_share_a_table_and_the_last_takes_it_along(node: Node) -> None:
    for name in ("tap0", "tap1"):
        node.tap(name)
    nics = [environment(number, TAGS="netcommon:*:protected") for number in (0, 1)]
    for nic in nics:
        assert rundoor("kvm-ifup", nic).status == rundoor("kvm-ifdown", nic, nic["INTERFACE"], "hot-remove").status == 0
    before = snapshot()
    for nic in nics:
        assert rundoor("kvm-ifup", nic).status == 0
    (table,) = tables()
    assert [f'"{name}"' in run("nft", "list", "set", "inet", table, "nics") for name in ("tap0", "tap1")] == [True, True]
    assert rundoor("kvm-ifdown", nics[0], "tap0", "hot-remove").status == 0
    assert [f'"{name}"' in run("nft", "list", "set", "inet", table, "nics") for name in ("tap0", "tap1")] == [False, True]
    assert good() == ["tap1"]
    assert rundoor("kvm-ifdown", nics[1], "tap1", "hot-remove").status == 0
    assert tables() == []
    assert diff(before, snapshot()) == []


def test_a_changed_template_is_for_those_who_come_after(node: Node) -> None:
    """Those before keep what they have until their next up, and nobody's check shows drift."""
    for name in ("tap0", "tap1"):
        node.tap(name)
    nics = [environment(number, TAGS="netcommon:*:limited") for number in (0, 1)]
    assert rundoor("kvm-ifup", nics[0]).status == 0
    site = Path("/etc/netcommon/templates/firewall/limited.j2")
    site.parent.mkdir(parents=True)
    site.write_text("tcp dport 443 accept\ncounter drop\n")
    site.chmod(0o644)
    assert rundoor("kvm-ifup", nics[1]).status == 0
    assert len(tables()) == 2 and good() == ["tap0", "tap1"]
    assert rundoor("kvm-ifup", nics[0]).status == 0
    assert len(tables()) == 1 and "443" in run("nft", "list", "table", "inet", *tables()) and good() == ["tap0", "tap1"]
    for nic in nics:
        assert rundoor("kvm-ifdown", nic, nic["INTERFACE"], "hot-remove").status == 0
    assert tables() == []


WRONG = ("accept; flush ruleset", "} table ip x {", "tcp dport 99999 accept", 'include "/etc/passwd"', "flush ruleset")


@pytest.mark.parametrize("line", WRONG)
def test_a_wrong_template_is_refused_and_nothing_is_left(node: Node, line: str) -> None:
    node.tap("tap0")
    site = Path("/etc/netcommon/templates/firewall/limited.j2")
    site.parent.mkdir(parents=True)
    site.write_text(line + "\n")
    before = snapshot()
    outcome = rundoor("kvm-ifup", environment(TAGS="netcommon:*:limited"))
    assert outcome.status in (69, 78) and outcome.stderr.count("\n") == 1, outcome
    assert diff(before, {**snapshot(), "files": before["files"]}) == []


def test_open_vswitch_has_none(node: Node) -> None:
    node.tap("tap0")
    outcome = rundoor("kvm-ifup", environment(MODE="openvswitch", LINK="ovs0", IP="", TAGS="netcommon:*:protected"))
    assert outcome.status == 64 and "firewall profile protected" in outcome.stderr


def bridged(node: Node, profile: str) -> None:
    """A guest's IP stack on a bridge whose other port leads to an outside host."""
    outside = node.outside("up0", f"{GATEWAY4}/24", f"{FAR4}/32")
    node.bridge("br0", "up0")
    guest = node.namespaced()
    run("ip", "link", "add", "tap0", "type", "veth", "peer", "name", "eth0", "address", "aa:00:00:00:00:00", "netns", guest.path)
    guest.run("ip", "address", "add", f"{HOST4}/24", "dev", "eth0")
    guest.run("ip", "link", "set", "eth0", "up")
    guest.run("ip", "route", "add", "default", "via", GATEWAY4)
    nic = environment(MODE="bridged", LINK="br0", IP="", TAGS=f"netcommon:*:{profile}")
    assert rundoor("kvm-ifup", nic).status == rundoor("kvm-ifdown", nic, "tap0", "hot-remove").status == 0
    before = snapshot()
    assert rundoor("kvm-ifup", nic).status == 0
    assert good() == ["tap0"]
    wait_until(lambda: reaches(guest, GATEWAY4) == [GATEWAY4], 10, "the bridge forwards")
    assert what_gets_in(outside, guest, HOST4) == VERDICTS[profile]
    assert rundoor("kvm-ifdown", nic, "tap0", "hot-remove").status == 0
    assert diff(before, snapshot()) == []


@pytest.mark.vm
@pytest.mark.parametrize("profile", ["limited", "protected"])
def test_a_bridged_nic(node: Node, profile: str) -> None:
    """In the machine: the running kernel tracks no connections on bridges."""
    bridged(node, profile)


def test_a_bridged_nic_without_connection_tracking(node: Node) -> None:
    """A site's own rules do without; ours are refused, with the remedy."""
    node.tap("tap1")
    node.bridge("br1")
    outcome = rundoor("kvm-ifup", environment(1, MODE="bridged", LINK="br1", IP="", TAGS="netcommon:*:limited"))
    assert (outcome.status, "modprobe nf_conntrack_bridge" in outcome.stderr) == (69, True) or outcome.status == 0, outcome
    site = Path("/etc/netcommon/templates/firewall/limited.j2")
    site.parent.mkdir(parents=True)
    site.write_text("ether type arp accept\nip protocol icmp accept\ntcp flags & (syn | ack) != syn accept\ntcp dport 22 accept\ndrop\n")
    bridged(node, "limited")
