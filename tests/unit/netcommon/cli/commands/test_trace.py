"""The command trace on simulated nodes: what is asked, what is printed, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from netcommon.host.api.facts import Link
from tests.support.cli import Cli, equipped, with_two


@pytest.fixture
def cli(tmp_path: Path) -> Cli:
    made = with_two(equipped(tmp_path))
    bridge = made.host.kernel.named("br0")
    assert bridge is not None
    made.host.add_link(Link(0, "eth0", up=True, mtu=1400, master=bridge.index))
    return made


def test_a_frame_of_the_guest(cli: Cli) -> None:
    said = cli("trace", "tap0").stdout
    assert said.startswith("web1/0 on tap0 (bridged) sends: IPv4 from ")
    assert "  1. tap0  device tap0\n           it receives the frame\n" in said and "[ours]" in said
    assert "Where it ends\n  * it leaves the node by eth0\n" in said and "\x1b" not in said


def test_a_frame_for_the_guest(cli: Cli) -> None:
    said = cli.json("trace", "web1/0", "--to", "guest", "--protocol", "tcp", "--dport", "80")
    assert (said["schema"], said["way"], said["steps"][0]["at"]) == ("netcommon-trace", "to", "eth0")
    assert "tcp port 9 to 80" in said["frame"] and any("web1/0 receives it, by tap0" in end for end in said["ends"])


@pytest.mark.parametrize(
    ("arguments", "frame"),
    [
        (("--arp", "--dst", "10.0.0.9"), "ARP from"),
        (("--ethertype", "0x88cc"), "LLDP from"),
        (("--ethertype", "2054", "--vlan", "7"), "tagged VLAN 7"),
        (("--src", "fd00::1", "--dst", "ff02::1", "--protocol", "icmpv6", "--icmp-type", "134"), "fd00::1 to ff02::1, icmpv6 type 134"),
        (("--sport", "67", "--dport", "68"), "udp port 67 to 68"),
        (("--hex", "ff ff ff ff ff ff aa 00 00 00 00 01 88 63 00"), "PPPoE from aa:00:00:00:00:01 to ff:ff:ff:ff:ff:ff"),
        (("--src-mac", "02:00:00:00:00:07"), "from 02:00:00:00:00:07"),
    ],
)
def test_frames_of_all_kinds(cli: Cli, arguments: tuple[str, ...], frame: str) -> None:
    assert frame in cli.json("trace", "tap0", *arguments)["frame"]


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        (("tap9",), 64, "NIC"),
        (("web1",), 64, "NIC"),
        (("tap0", "--src", "10.0.0"), 64, "--src"),
        (("tap0", "--hex", "zz"), 64, "--hex"),
        (("tap0", "--hex", "00"), 64, "--hex"),
        (("tap0", "--vlan", "4096"), 2, "0 to 4095"),
        (("tap0", "--vlan", "x"), 2, "0 to 4095"),
        (("tap0", "--from", "guest", "--to", "guest"), 2, "one way"),
        (("tap1", "--to", "guest"), 69, "no frame comes to it from outside"),
    ],
)
def test_what_is_refused(cli: Cli, arguments: tuple[str, ...], status: int, said: str) -> None:
    assert said in cli("trace", *arguments, status=status).stderr


def test_it_changes_nothing_and_needs_no_root(cli: Cli) -> None:
    cli.uid, before = 1000, list(cli.host.requests)
    cli("trace", "tap0")
    assert cli.host.requests == before


def test_a_routed_guest_names_its_rule(cli: Cli) -> None:
    said = cli.json("trace", "tap1", "--dst", "198.51.100.7")
    assert any(step["meets"].startswith("nftables netdev netcommon-guard-") and step["whose"] == "ours" for step in said["steps"])
    assert said["ends"] == ["dropped at node: no rule leads to a table with a route to 198.51.100.7: refused by ICMP"]
