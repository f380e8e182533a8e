"""The spoof guard in Debian's kernel, which is older than the one that its rules were written on: two NICs' life, and every verdict.

`check` compares rules by the bytes that the kernel writes, which each version may write in its own way.
"""

from __future__ import annotations

import pytest

from netcommon.operations.guard.table import table_of
from tests.kernel.test_doors_parallel import collect, environment, good
from tests.kernel.test_guard_verdicts import FRAMES, MAC, NIC, OPTIONS, OTHER, OWN4, OWN6, Guarded, frame, ip4, udp
from tests.kernel.test_rate import drift, mend
from tests.support.frames import IPV4
from tests.support.netns import run, wait_until
from tests.support.node import Node
from tests.support.rundoor import rundoor
from tests.support.snapshot import diff, snapshot
from tests.support.tap import Tap

TAGS = f"netcommon:*:addresses:{OWN6} netcommon:*:prefixes:10.1.0.0/28 netcommon:*:link_local:eui64"
NICS = {
    "tap0": environment(0, MODE="bridged", LINK="br0", IP=OWN4, MAC=MAC, TAGS=TAGS),
    "tap1": environment(1, IP="10.0.0.77", MAC=OTHER),
}
ALLOWED = {"tap0": FRAMES["own IPv4"][0], "tap1": frame(ip4("10.0.0.77", udp(1, 2))[14:], IPV4, OTHER)}
FORGED = {"tap0": FRAMES["foreign IPv4"][0], "tap1": frame(ip4(OWN4, udp(1, 2))[14:], IPV4, OTHER)}


def up(tap: str) -> None:
    outcome = rundoor("kvm-ifup", NICS[tap])
    assert outcome.status == 0, outcome


def down(tap: str) -> None:
    outcome = rundoor("kvm-ifdown", NICS[tap], tap, "hot-remove")
    assert outcome.status == 0, outcome


def dropped(tap: str) -> int:
    """Packets with a foreign IP, as nft(8) sees them counted."""
    words = run("nft", "list", "set", "netdev", table_of(tap), "dropped-ip").replace('"', " ").split()
    return int(words[words.index("packets", words.index(tap)) + 1])


@pytest.fixture
def taps(node: Node) -> dict[str, Tap]:
    """A bridge, a tap for each NIC, and a port for another guest. Each NIC has been up and down once: the folders are there."""
    made = {name: node.tap(name) for name in (*NICS, "tap9")}
    node.bridge("br0", "tap9")
    run("ip", "link", "set", "tap9", "up")
    for tap in NICS:
        run("ip", "link", "set", tap, "up")
        run("ip", "link", "set", tap, "down")
        up(tap)
        down(tap)
    return made


@pytest.mark.slow
def test_two_lives(taps: dict[str, Tap]) -> None:
    assert run("nft", "list", "ruleset") == ""
    before = snapshot()
    up("tap0")
    assert drift() == []
    whole = run("nft", "list", "ruleset")
    run("nft", "flush", "ruleset")
    assert [line for line in drift() if "the table is gone" in line]
    mend()
    assert run("nft", "list", "ruleset") == whole
    run("nft", "flush", "chain", "netdev", table_of("tap0"), "discovery")
    assert [line for line in drift() if "its rules are not as we made them" in line]
    mend()
    up("tap1")
    assert good() == ["tap0", "tap1"]
    for tap in NICS:
        taps[tap].send(FORGED[tap])
        assert dropped(tap) == 1
        taps[tap].send(ALLOWED[tap])
        assert dropped(tap) == 1
    wait_until(lambda: taps["tap9"].receive(lambda got: got == ALLOWED["tap0"]), 10, "what is allowed reaches the other guest")
    assert collect() == [] and good() == ["tap0", "tap1"]
    down("tap0")
    down("tap1")
    assert diff(before, snapshot()) == []


@pytest.mark.slow
def test_the_taps_go(taps: dict[str, Tap]) -> None:
    """Their base chains with them, the rest at the next gc."""
    before = snapshot()
    for tap in NICS:
        up(tap)
    listed = run("nft", "list", "ruleset")
    assert (listed.count("hook ingress"), listed.count("hook postrouting")) == (2, 1)
    for tap in NICS:
        taps[tap].close()
    wait_until(lambda: "hook ingress" not in run("nft", "list", "ruleset"), 10, "the base chains go")
    assert "dropped-ip" in run("nft", "list", "ruleset")
    assert collect()
    assert run("nft", "list", "ruleset") == ""
    assert [line for line in diff(before, snapshot()) if not any(tap in line for tap in NICS)] == []


def test_every_verdict(node: Node) -> None:
    guarded = Guarded(node, NIC, OPTIONS)
    found = {kind: guarded.reason(sent) for kind, (sent, _, _) in FRAMES.items()}
    assert {kind: (found[kind], wanted) for kind, (_, wanted, _) in FRAMES.items() if found[kind] != wanted} == {}
