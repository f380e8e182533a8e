"""trace, up and check on nodes that are set up in an unusual way: what they say, beside where the kernel takes frames."""

from __future__ import annotations

import json
import subprocess
from typing import Any

import pytest

from tests.kernel.test_doors_parallel import environment
from tests.support.bootstrap import VENV
from tests.support.forged import ipv4
from tests.support.netns import Namespace, run, sysctl, wait_until
from tests.support.node import Node
from tests.support.routed import FAR4, FAR6, GATEWAY4, GATEWAY6, NODE4, TABLE, Site, drift, options, reaches
from tests.support.rundoor import rundoor
from tests.support.wire import Wire

HOST4, HOST6, SECOND4 = "192.0.2.5", "2001:db8:f::5", "192.0.2.3"
TAGS = options("uplink_proxy:both", "rp_filter:off")


def traced(*arguments: str) -> dict[str, Any]:
    done = subprocess.run([str(VENV / "bin/netcommon"), "trace", "--json", "tap0", *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done
    document: dict[str, Any] = json.loads(done.stdout)
    return document


# -- a veth to another bridge


@pytest.mark.parametrize("here", [True, False])
def test_a_veth_whose_other_end_is_here(node: Node, here: bool) -> None:
    """The frame goes on by a second bridge: it has not left the node by the first end."""
    outside = node.outside("up0")
    far = node.namespaced()
    run("ip", "link", "add", "v0", "type", "veth", "peer", "name", "v1", *(() if here else ("netns", far.path)))
    node.bridge("br0", "v0")
    node.bridge("br1", *(["v1"] if here else []), "up0")
    for name in ("v0", "v1") if here else ("v0",):
        run("ip", "link", "set", name, "up")
    if not here:
        far.run("ip", "link", "set", "v1", "up")
    tap = node.tap("tap0")
    done = rundoor("kvm-ifup", environment(0, MODE="bridged", LINK="br0", IP=""))
    assert done.status == 0, done
    frame = b"\xff" * 6 + bytes.fromhex("aa0000000000") + b"\x08\0" + ipv4(HOST4, b"frame", 253)
    with Wire(outside) as by_uplink, Wire(far if not here else outside, "eth0" if here else "v1") as other:
        tap.send(frame)
        assert (by_uplink if here else other).receive(lambda heard: heard == frame) is not None
    path = traced()
    assert any("it leaves the node by v0" in end for end in path["ends"]) == (not here)
    assert any("v0" in end and "not known" in end for end in path["ends"]) == here
    assert any("its other end v1, a port of br1," in step["does"] for step in path["steps"]) == here


# -- next hops that do not answer


@pytest.mark.parametrize("silent", [True, False])
def test_a_gateway_that_does_not_answer(node: Node, silent: bool) -> None:
    """The kernel keeps the packet and drops it: what it says of the gateway's ARP entry is said, with a reservation."""
    site = Site(node, "")
    guest = site.guest(HOST4)
    site.up(site.nic(IP=HOST4, TAGS=TAGS))
    if silent:
        site.router.run("ip", "link", "set", "eth0", "arp", "off")
        run("ip", "neigh", "flush", "dev", "up0")
    assert reaches(guest, FAR4, source=HOST4) == ([] if silent else [FAR4])
    wait_until(lambda: ("FAILED" in run("ip", "neigh", "show", GATEWAY4, "dev", "up0")) == silent, 5, "the kernel has given up")
    path = traced("--dst", FAR4)
    said = [step["does"] for step in path["steps"] if step["meets"] == f"neighbour {GATEWAY4} on up0"]
    assert [f"{GATEWAY4} was asked for, and does not answer" in each for each in said] == [True] * silent
    assert bool(path["untold"]) == silent


# -- nexthops that routes share


@pytest.mark.parametrize("compatible", ["0", "1"])
def test_a_shared_nexthop(node: Node, compatible: str) -> None:
    """IPv6 keeps one way for all routes by a nexthop, and tells any of them: none is named, and where it goes is right."""
    site = Site(node, TABLE)
    guest = site.guest(HOST6)
    sysctl("net/ipv4/nexthop_compat_mode", compatible)
    site.router.run("ip", "address", "add", "2001:db8:1::1/128", "dev", "lo")
    run("ip", "-6", "nexthop", "add", "id", "7", "via", GATEWAY6, "dev", "up0")
    run("ip", "-6", "route", "del", "default", "table", TABLE)
    for destination in ("2001:db8:2::/48", "2001:db8:1::/48", "default"):
        run("ip", "-6", "route", "add", destination, "nhid", "7", "table", TABLE)
    site.up(site.nic(IP=HOST6))
    for target in (FAR6, "2001:db8:1::1"):
        assert reaches(guest, target) == [target]
        path = traced("--dst", target)
        assert path["ends"] == [f"it leaves the node by up0 to {GATEWAY6}"] and not path["untold"]
        named = [step["meets"] for step in path["steps"] if "route" in step["meets"]]
        assert named == ["a route by nexthop 7 (which of those that share it the kernel does not tell)"]


def test_an_own_route_beside_them(node: Node) -> None:
    """The kernel does tell of routes that name none."""
    site = Site(node, TABLE)
    guest = site.guest(HOST6)
    run("ip", "-6", "nexthop", "add", "id", "7", "via", GATEWAY6, "dev", "up0")
    run("ip", "-6", "route", "add", "2001:db8:2::/48", "nhid", "7", "table", TABLE)
    site.up(site.nic(IP=HOST6))
    assert reaches(guest, FAR6) == [FAR6]
    assert any(step["meets"] == f"route ::/0 in table {TABLE}" for step in traced("--dst", FAR6)["steps"])


# -- addresses that a network shares


@pytest.mark.parametrize(("address", "word"), [("192.0.2.255", "broadcast"), ("2001:db8:f::", "anycast")])
def test_an_address_of_the_whole_network(node: Node, address: str, word: str) -> None:
    """The node takes what is for it, and no route leads it to a guest: refused; and where it came later, drift."""
    site = Site(node, TABLE)
    site.guest(address)
    nic = site.nic(IP=address, TAGS=TAGS)
    done = rundoor("kvm-ifup", nic)
    assert (done.status, f"{address} is the {word} address of" in done.stderr) == (69, True), done
    own = ("192.0.2.2/24", "192.0.2.2/32") if word == "broadcast" else ("2001:db8:f::2/64", "2001:db8:f::2/128")
    run("ip", "address", "del", own[0], "dev", "up0")
    run("ip", "address", "add", own[1], "dev", "up0")
    site.defaults("up0")
    site.up(nic)
    assert drift() == []
    run("ip", "address", "add", own[0].replace("2/", "3/"), "dev", "up0", *(("nodad",) if ":" in address else ()))
    assert [line for line in drift() if f"{address} is the {word} address of" in line]
    assert reaches(site.router, address) == [] or word == "anycast"  # for which the node itself answers
    path = traced("--to", "guest")
    assert path["ends"] == ["the node itself, at up0"] and any(f"{word} address" in step["does"] for step in path["steps"])


# -- table local behind guests' rules


def local_last(preference: str = "32000") -> None:
    for family in ("-4", "-6"):
        run("ip", family, "rule", "add", "preference", preference, "lookup", "local")
        run("ip", family, "rule", "del", "preference", "0")


@pytest.mark.parametrize("rule", [True, False])
def test_the_nodes_own_address_behind_guests_rules(node: Node, rule: bool) -> None:
    """What comes in by an uplink whose rule leads to the guests' table before goes to the guest; without that rule to the node."""
    site = Site(node, TABLE)
    node.address("up0", f"{SECOND4}/24")  # a secondary one, by which the node does not ask for its neighbours
    guest = site.guest(SECOND4)
    if not rule:
        run("ip", "rule", "del", "iif", "up0", "lookup", TABLE)
    local_last()
    done = rundoor("kvm-ifup", site.nic(IP=SECOND4, TAGS=TAGS))
    assert (done.status == 0) == rule, done
    if not rule:
        assert f"{SECOND4} is an address of this node itself" in done.stderr
        return
    assert drift() == []
    path = traced("--to", "guest")
    assert path["ends"] == ["web1/0 receives it, by tap0"]
    before = received(guest)
    reaches(site.router, SECOND4, source=GATEWAY4)
    assert received(guest) > before


def received(guest: Namespace) -> int:
    """Count the echo requests that the guest has got."""
    names, values = (line.split() for line in guest.run("cat", "/proc/net/snmp").splitlines() if line.startswith("Icmp:"))
    return int(values[names.index("InEchos")])


def test_what_a_guest_sends_to_the_node(node: Node) -> None:
    """Its own table leads it out of the node, where table local is looked up later."""
    site = Site(node, TABLE)
    guest = site.guest(HOST4)
    site.up(site.nic(IP=HOST4, TAGS=TAGS))
    assert traced("--dst", NODE4)["ends"] == ["the node itself, at tap0"]
    local_last()
    assert reaches(guest, FAR4, source=HOST4) == [FAR4]
    assert reaches(guest, NODE4, source=HOST4) == []
    assert traced("--dst", NODE4)["ends"] == [f"it leaves the node by up0 to {GATEWAY4}"] and drift() == []
