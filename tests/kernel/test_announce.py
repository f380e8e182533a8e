"""Announcements of routed guests as the neighbours on the uplink get them, and what the hook leaves behind: nothing."""

from __future__ import annotations

import ipaddress
import os
import signal
import struct
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from netagent.dispatcher import UNTOLD
from tests.support.agent import agent
from tests.support.frames import ARP, ARP_REPLY, ARP_REQUEST, BROADCAST, IPV6, Arp, Frame, checksum
from tests.support.netns import ask, run, slowness, wait_until
from tests.support.node import Node
from tests.support.routed import GATEWAY4, NODE4, Site, options
from tests.support.rundoor import BASE, argv_of, rundoor
from tests.support.sniffer import Heard, Sniffer

HOST4, SECOND4, HOST6 = "192.0.2.5", "192.0.2.6", "2001:db8:f::5"
ELSEWHERE = "02:00:00:00:99:99"  #: the MAC of the node that the guest has left
TIMES = 5  #: at once, and four times more
REST = 1.0  #: seconds within which all is said
ZERO = "00:00:00:00:00:00"


def announcement(frame: bytes) -> bool:
    """Gratuitous ARP, or a neighbour advertisement to all nodes, for one of our addresses."""
    parsed = Frame.parse(frame)
    if parsed.type == ARP:
        arp = Arp.parse(parsed.payload)
        return arp.sender == arp.target and arp.sender in (HOST4, SECOND4)
    target = ipaddress.IPv6Address(HOST6).packed
    return parsed.type == IPV6 and parsed.payload[6] == 58 and parsed.payload[40] == 136 and parsed.payload[48:64] == target


def mac_of(device: str) -> str:
    return str(ask("ip", "-j", "link", "show", "dev", device)[0]["address"])


@pytest.fixture
def site(node: Node) -> Iterator[Site]:
    made = Site(node, "100")
    made.tap()
    yield made
    wait_until(lambda: not detached(), 5, "every process of ours has ended")


def detached() -> list[int]:
    """The processes that go on announcing: they bear the hook's name and have lost their parent."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            if b"kvm-ifup" in (entry / "cmdline").read_bytes() and os.readlink(entry / "ns/net") == os.readlink("/proc/thread-self/ns/net"):
                found.append(int(entry.name))
        except OSError:
            continue
    return found


def rounds(heard: list[Heard]) -> list[list[Heard]]:
    """Frames that came together."""
    made: list[list[Heard]] = []
    for each in heard:
        if made and each.time - made[-1][0].time < 0.05 * slowness():
            made[-1].append(each)
        else:
            made.append([each])
    return made


def test_the_frames(site: Site) -> None:
    """Both forms of gratuitous ARP for each IPv4 address, one advertisement for each IPv6 one, five times, alike each time."""
    nic = site.nic(IP=HOST4, TAGS=options(f"addresses:{SECOND4}", f"addresses:{HOST6}"))
    with Sniffer(site.router) as wire:
        site.up(nic)
        heard = wire.until(time.time() + 1.2, announcement)
    said = rounds(heard)
    assert [len(each) for each in said] == [5] * TIMES
    assert len({tuple(one.frame for one in each) for each in said}) == 1
    own = mac_of("up0")
    frames = [Frame.parse(one.frame) for one in said[0]]
    assert all((frame.source, frame.vlan) == (own, 0) for frame in frames)
    assert [(frame.destination, frame.type, Arp.parse(frame.payload)) for frame in frames[:4]] == [
        (BROADCAST, ARP, Arp(operation, own, address, target, address))
        for address in (HOST4, SECOND4)
        for operation, target in ((ARP_REQUEST, ZERO), (ARP_REPLY, own))
    ]
    check_advertisement(frames[4], own)
    site.down(nic)


def check_advertisement(frame: Frame, own: str) -> None:
    """By hand, field by field: RFC 4861, 4.4 and 7.1.2, RFC 8200, RFC 2464."""
    assert frame.destination == "33:33:00:00:00:01"
    packet = frame.payload
    assert (packet[0] >> 4, packet[6], packet[7]) == (6, 58, 255)
    source, destination = ipaddress.IPv6Address(packet[8:24]), ipaddress.IPv6Address(packet[24:40])
    addresses = [each for link in ask("ip", "-j", "-6", "address", "show", "dev", "up0") for each in link.get("addr_info", ())]
    assert (str(source), str(destination)) == (next(each["local"] for each in addresses if each["scope"] == "link"), "ff02::1")
    message = packet[40:]
    assert len(message) == struct.unpack("!H", packet[4:6])[0] == 32
    kind, code, _sum, flags = struct.unpack("!BBHI", message[:8])
    assert (kind, code, flags) == (136, 0, 0x20000000)  # override; neither router nor solicited
    assert str(ipaddress.IPv6Address(message[8:24])) == HOST6
    assert message[24:] == b"\x02\x01" + bytes.fromhex(own.replace(":", ""))
    pseudo = packet[8:40] + struct.pack("!II", len(message), 58)
    assert checksum(pseudo + message) == b"\0\0"


def test_the_hook_answers_after_the_first_and_waits_for_none_of_the_rest(site: Site) -> None:
    """By then its outputs are at their end too: Ganeti waits for that."""
    with Sniffer(site.router) as wire:
        done = rundoor("kvm-ifup", site.nic(IP=HOST4))
        ended = time.time()
        assert (done.status, done.stdout, done.stderr) == (0, "", "")
        said = rounds(wire.first(2 * TIMES, announcement))
    assert len(said) == TIMES
    assert said[0][0].time < ended < said[-1][0].time < ended + REST * slowness()


@pytest.mark.no_agent("about the process that a hook leaves behind to announce: an agent has none")
def test_what_goes_on_holds_nothing_of_the_hooks(site: Site) -> None:
    """No pipe, no lock, no parent that would have to wait for it, a session of its own, the root as its working directory."""
    nic = site.nic(IP=HOST4)
    argv = argv_of("kvm-ifup", "tap0")
    with Sniffer(site.router) as wire:
        hook = subprocess.Popen(argv, env={**BASE, **nic}, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd="/")
        assert hook.communicate() == (b"", b"") and hook.returncode == 0
        wire.first(4, announcement)  # it has begun
        (process,) = detached()
        place = Path(f"/proc/{process}")
        status = dict(line.split(":\t", 1) for line in (place / "status").read_text().splitlines() if ":\t" in line)
        held = [os.readlink(each) for each in (place / "fd").iterdir()]
        session = os.getsid(process)
        locks = [
            line
            for line in Path("/proc/locks").read_text().splitlines()
            if "FLOCK" in line and line.split()[4] in (str(process), str(hook.pid))
        ]
        folder = os.readlink(place / "cwd")
        assert len(wire.first(2, announcement)) == 2, "it had ended before it was looked at"
    assert held[:3].count("/dev/null") == 3 and not [each for each in held if each.startswith("pipe:")]
    assert int(status["PPid"]) not in (hook.pid, os.getpid())
    assert session not in (os.getsid(0), process) and folder == "/" and locks == []


def test_a_second_up_at_once_finds_no_lock_held(site: Site) -> None:
    nic = site.nic(IP=HOST4)
    with Sniffer(site.router) as wire:
        first = rundoor("kvm-ifup", nic)
        second = rundoor("kvm-ifup", nic)
        ended = time.time()
        heard = wire.first(2 * TIMES, announcement)
        assert wire.until(time.time() + 0.3, announcement) == []  # a silent second up says nothing
    assert (first.status, second.status, second.stderr) == (0, 0, "")
    assert len(heard) == 2 * TIMES and ended < heard[-1].time


def test_the_end_of_a_migration_is_announced_though_nothing_is_to_be_done(site: Site) -> None:
    nic = site.nic(IP=HOST4)
    site.up(nic)
    with Sniffer(site.router) as wire:
        site.up({**nic, "MIGRATION_PHASE": "post"})
        assert len(wire.first(2, announcement)) == 2


def test_nothing_is_said_of_a_nic_that_is_down_again(site: Site) -> None:
    """The process sees it by the record, and ends."""
    nic = site.nic(IP=HOST4)
    with Sniffer(site.router) as wire:
        site.up(nic)
        site.down(nic)
        gone = time.time()
        heard = wire.until(gone + REST * slowness(), announcement)
    assert heard and [each for each in heard if each.time > gone] == []


def test_nothing_is_said_of_a_device_that_is_another_ones(site: Site) -> None:
    """Its record may be there still, and a device of the same name: another index is another guest."""
    nic = site.nic(IP=HOST4)
    with Sniffer(site.router) as wire:
        site.up(nic)
        run("ip", "link", "del", "tap0")
        run("ip", "link", "add", "tap0", "type", "ifb")
        gone = time.time()
        heard = wire.until(gone + REST * slowness(), announcement)
    assert heard and [each for each in heard if each.time > gone] == []


def test_a_neighbour_that_knows_the_old_node_learns_at_once(site: Site) -> None:
    """It holds the old node's MAC, and has just confirmed it; IPv6 neighbours believe the advertisement only for its override flag."""
    for address in (HOST4, HOST6):
        site.router.run("ip", "neighbour", "replace", address, "lladdr", ELSEWHERE, "dev", "eth0", "nud", "reachable")
    with Sniffer(site.router) as wire:
        done = rundoor("kvm-ifup", site.nic(IP=HOST4, TAGS=options(f"addresses:{HOST6}")))
        assert (done.status, done.stderr) == (0, "")
        said = rounds(wire.first(3, announcement))
    with site.router.entered():
        known = {entry["dst"]: entry.get("lladdr") for entry in ask("ip", "-j", "neighbour", "show", "dev", "eth0")}
    assert len(said) == 1
    assert {address: known.get(address) for address in (HOST4, HOST6)} == dict.fromkeys((HOST4, HOST6), mac_of("up0"))


def test_an_uplink_that_is_a_bridge_speaks_with_its_own_mac(node: Node, site: Site) -> None:
    node.bridge("br-up", "up0")
    node.address("br-up", f"{NODE4}/24")
    run("ip", "address", "flush", "dev", "up0")
    run("ip", "route", "replace", "default", "via", GATEWAY4, "dev", "br-up", "onlink", "table", "100")
    run("ip", "link", "set", "br-up", "address", "02:00:00:00:00:b1")
    with Sniffer(site.router) as wire:
        rundoor("kvm-ifup", site.nic(IP=HOST4))
        heard = wire.first(2, announcement)
    assert {Frame.parse(each.frame).source for each in heard} == {"02:00:00:00:00:b1"}


def test_the_sites_script_may_choose_the_uplink(site: Site) -> None:
    """It runs before anybody is told, so the table is looked at once more."""
    run("ip", "link", "add", "up1", "up", "type", "ifb")
    run("ip", "route", "replace", "default", "dev", "up1", "table", "100")
    path = Path("/etc/netcommon/ifup.d/10-uplink")
    path.parent.mkdir(parents=True)
    path.write_text(f"#!/bin/sh\nip route replace default via {GATEWAY4} dev up0 onlink table 100\n")
    path.chmod(0o755)
    with Sniffer(site.router) as wire:
        site.up(site.nic(IP=HOST4))
        assert len(wire.first(2, announcement)) == 2


def test_without_a_default_route_a_rule_tells_the_uplink(site: Site) -> None:
    """``iif up0 lookup 100``, as Ganeti's documents have it."""
    for family in ("-4", "-6"):
        run("ip", family, "route", "del", "default", "table", "100")
    with Sniffer(site.router) as wire:
        rundoor("kvm-ifup", site.nic(IP=HOST4))
        assert len(wire.first(2, announcement)) == 2


def test_what_is_not_to_be_announced_is_not(site: Site) -> None:
    """By the option, and where no uplink is known; neither leaves a process."""
    nic = site.nic(IP=HOST4, TAGS=options("announce:false"))
    with Sniffer(site.router) as wire:
        site.up(nic)
        assert detached() == []
        site.down(nic)
        for family in ("-4", "-6"):
            run("ip", family, "route", "del", "default", "table", "100")
            run("ip", family, "rule", "del", "iif", "up0")
        rundoor("kvm-ifup", site.nic(IP=HOST4))
        assert detached() == [] and wire.until(time.time() + 0.3, announcement) == []


def test_an_uplink_without_an_address_yet_costs_a_warning(site: Site) -> None:
    """No more: the guest is to start. When the address is there, what is said later is said from it."""
    run("ip", "-6", "route", "replace", "default", "dev", "up0", "table", "100")
    run("ip", "-6", "address", "flush", "dev", "up0")
    with Sniffer(site.router) as wire:
        done = rundoor("kvm-ifup", site.nic(TAGS=options(f"addresses:{HOST6}")))
        run("ip", "-6", "address", "add", "fe80::77/64", "dev", "up0", "nodad")
        (heard,) = wire.first(1, announcement)
    assert done.status == 0 and done.stderr.endswith("up0 has no IPv6 address to speak from yet\n"), done
    assert ipaddress.IPv6Address(Frame.parse(heard.frame).payload[8:24]) == ipaddress.IPv6Address("fe80::77")


@pytest.mark.no_agent("starts agents of its own")
def test_an_agent_says_what_the_one_before_may_not_have_said(site: Site) -> None:
    """It was killed right after its answer. What came up long before that is not said again."""
    nic = site.nic(IP=HOST4)
    with agent() as running, Sniffer(site.router) as wire:
        running.rested()
        site.up(nic)
        running.restart(signal.SIGKILL)
        running.rested()
        heard = wire.until(time.time() + REST * slowness(), announcement)
        assert len(rounds(heard)) >= TIMES, "of the second one all of them"
        wait_until(lambda: time.time() > heard[-1].time + UNTOLD, 20)
        running.restart(signal.SIGKILL)
        running.rested()
        assert wire.until(time.time() + 0.5, announcement) == []
        site.down(nic)
