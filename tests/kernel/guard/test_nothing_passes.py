"""NICs of which the spoof guard drops everything: up says where the tap's MAC tells of it, explain and doctor once frames were sent."""

from __future__ import annotations

import json
import subprocess

import pytest

from netcommon.doctor import findings
from runtime.paths import Paths
from tests.kernel.test_doors_parallel import environment
from tests.support import frames
from tests.support.bootstrap import VENV
from tests.support.forged import ethernet, ipv4, udp
from tests.support.netns import run
from tests.support.node import Node
from tests.support.rundoor import rundoor

MAC, OTHER = "aa:00:00:12:34:56", "aa:00:00:ab:cd:ef"  # of one cluster, whose guests have one prefix
SENT = 20


def nic(**changes: str) -> dict[str, str]:
    return environment(**{"MODE": "bridged", "LINK": "br0", "IP": "", "MAC": MAC, **changes})


def tap_mac(mac: str) -> str:
    """As libvirt makes it of the guest's."""
    return "fe" + mac[2:]


def sent(mac: str) -> bytes:
    """A datagram from that MAC, otherwise honest."""
    return ethernet(frames.IPV4, ipv4("10.0.0.1", udp(1, 2, b"x"), destination="10.0.0.3"), mac, "aa:00:00:00:00:77")


def told() -> tuple[bool, bool]:
    """Tell whether explain and doctor say that nothing passes."""
    said = subprocess.run([str(VENV / "bin/netcommon"), "explain", "--json", "tap0"], capture_output=True, text=True, check=False).stdout
    return bool(json.loads(said)["nics"][0]["dropped"]), any("every frame" in each.text for each in findings(Paths()))


@pytest.mark.parametrize(
    ("address", "changes", "warned"),
    [
        (tap_mac(OTHER), {}, True),
        (tap_mac(MAC), {}, False),
        (tap_mac("52:54:00:ab:cd:ef"), {}, False),  # of another prefix: udev's own may look so
        ("", {}, False),  # the kernel's own
        ("02:00:00:00:00:09", {}, False),  # of nobody
        ("fe:2e:be:23:6a:8a", {}, False),  # the kernel's own, which a down has put back
        (tap_mac(OTHER), {"TAGS": "netcommon:0:allow_mac_spoofing"}, False),
        (tap_mac(OTHER), {"TAGS": "netcommon:0:spoof_guard:no"}, False),
        (tap_mac(OTHER), {"MODE": "routed", "LINK": "100", "IP": "10.0.0.1"}, True),
    ],
)
def test_the_taps_mac_tells(node: Node, address: str, changes: dict[str, str], warned: bool) -> None:
    node.bridge("br0")
    node.tap("tap0")
    if address:
        run("ip", "link", "set", "tap0", "address", address)
    for again in (False, True):
        done = rundoor("kvm-ifup", nic(**changes))
        assert (done.status, done.stderr.count(f"a guest other than {MAC}")) == (0, int(warned and not again)), done


@pytest.mark.parametrize("sender", [OTHER, MAC])
def test_the_counters_tell(node: Node, sender: str) -> None:
    node.bridge("br0")
    tap = node.tap("tap0")
    assert rundoor("kvm-ifup", nic()).status == 0
    assert told() == (False, False)
    for _ in range(SENT):
        tap.send(sent(sender))
    assert told() == (sender == OTHER, sender == OTHER)
    tap.send(sent(MAC))
    assert told() == (False, False)
