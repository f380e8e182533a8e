"""Routed NICs of a table whose packets are marked (``[rules] mark``), with real packets: as with a rule for each, but for the one rule."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.netns import ask, run
from tests.support.node import Node
from tests.support.routed import FAR4, FAR6, GATEWAY4, GATEWAY6, TABLE, Site, drift, mend, options, reaches
from tests.support.snapshot import diff, snapshot

pytestmark = pytest.mark.sampled(3)

HOST4, HOST6, OTHER4 = "192.0.2.5", "2001:db8:f::5", "192.0.2.6"
ARP = "uplink_proxy:both"
MASK = "0xfff0000"
NAME = f"netcommon-mark-{TABLE}-fff0000"
FOREIGN = "0x7"  #: bits of somebody else's, outside the mask


@pytest.fixture
def site(node: Node) -> Site:
    Path("/etc/netcommon").mkdir(exist_ok=True)
    Path("/etc/netcommon/config.toml").write_text(f"[rules]\nmark = {MASK}\n")
    return Site(node, TABLE)


def rules(family: str = "-4") -> list[str]:
    return [f"{rule['fwmark']}/{rule['fwmask']}" for rule in ask("ip", family, "-j", "rule") if "fwmark" in rule]


def taps() -> dict[str, list[str]]:
    """The devices whose packets are marked, by family of the nftables table."""
    listed = json.loads(run("nft", "-j", "list", "sets"))["nftables"]
    sets = [item["set"] for item in listed if item.get("set", {}).get("table") == NAME]
    return {one["family"]: sorted(one.get("elem", [])) for one in sets}


@pytest.mark.parametrize("reverse_path", ["strict", "loose", "off"])
def test_reached_both_ways(site: Site, reverse_path: str) -> None:
    """Also the gateway, for which the kernel answers where it finds a route for the request: no packet of inet."""
    guest = site.guest(HOST4, HOST6)
    before = site.before()
    nic = site.nic(IP=HOST4, TAGS=options(ARP, f"addresses:{HOST6}", f"rp_filter:{reverse_path}", "spoof_guard:false"))
    site.up(nic)
    assert drift() == [] and rules("-4") == rules("-6") == [f"0x640000/{MASK}"]
    assert not [rule for rule in ask("ip", "-j", "rule") if rule.get("iif") == "tap0"]
    for address, far, gateway in ((HOST4, FAR4, GATEWAY4), (HOST6, FAR6, GATEWAY6)):
        assert reaches(site.router, address) == [address] == reaches(site.router, address, source=far)
        assert reaches(guest, far, gateway, source=address) == [far, gateway]
    whole = snapshot()
    site.up(nic)
    assert diff(whole, snapshot()) == []
    site.down(nic)
    assert diff(before, snapshot()) == []
    site.router.run("ip", "neighbour", "flush", "all")
    assert reaches(site.router, HOST4, HOST6) == []


def test_the_last_nic_takes_the_rule_away(site: Site) -> None:
    site.tap("tap1", "aa:00:00:00:00:01")
    first, second = site.guest(HOST4), site.guest(OTHER4, name="tap1")
    nics = [site.nic(IP=HOST4, TAGS=options(ARP)), site.nic(1, IP=OTHER4, TAGS=options(ARP).replace(":0:", ":1:"))]
    site.up(nics[1])
    site.down(nics[1])
    before = site.before()
    for nic in nics:
        site.up(nic)
    assert len(rules()) == 1 and taps() == {"inet": ["tap0", "tap1"], "arp": ["tap0", "tap1"]}
    site.down(nics[0])
    assert len(rules()) == 1 and taps() == {"inet": ["tap1"], "arp": ["tap1"]}
    assert reaches(second, FAR4, source=OTHER4) == [FAR4] and reaches(first, FAR4, source=HOST4) == []
    site.down(nics[1])
    assert rules() == [] and diff(before, snapshot()) == []


def test_other_bits_of_the_mark_stay(site: Site) -> None:
    """A site marks by itself before us, and looks at its own bits after us."""
    guest = site.guest(HOST4)
    run("nft", "add table inet site")
    run("nft", "add chain inet site first { type filter hook prerouting priority -200; }")
    run("nft", "add chain inet site then { type filter hook prerouting priority -100; }")
    run("nft", f"add rule inet site first iifname tap0 meta mark set {FOREIGN}")
    run("nft", f"add rule inet site then iifname tap0 meta mark {0x640000 | int(FOREIGN, 16):#x} counter")
    nic = site.nic(IP=HOST4, TAGS=options(ARP))
    site.up(nic)
    assert reaches(guest, FAR4, source=HOST4) == [FAR4]
    counted = [item["rule"]["expr"][-1] for item in json.loads(run("nft", "-j", "list chain inet site then"))["nftables"] if "rule" in item]
    assert counted[0]["counter"]["packets"] > 0
    site.down(nic)


@pytest.mark.parametrize(
    "change",
    [
        ("nft", "flush ruleset"),
        ("nft", f"delete element inet {NAME} taps {{ tap0 }}"),
        ("nft", f"delete element arp {NAME} taps {{ tap0 }}"),
        ("nft", f"flush chain inet {NAME} prerouting"),
        ("nft", f"delete table arp {NAME}"),
        ("ip", "rule", "del", "fwmark", f"0x640000/{MASK}"),
        ("ip", "-6", "rule", "del", "fwmark", f"0x640000/{MASK}"),
    ],
    ids=" ".join,
)
def test_drift_is_mended(site: Site, change: tuple[str, ...]) -> None:
    guest = site.guest(HOST4, HOST6)
    nic = site.nic(IP=HOST4, TAGS=options(ARP, f"addresses:{HOST6}"))
    site.up(nic)
    whole = snapshot()
    run(*change)
    assert drift() != []
    mend()
    assert drift() == [] and [line for line in diff(whole, snapshot()) if "files: /run/netcommon/nics" not in line] == []
    assert reaches(guest, FAR4, GATEWAY4, source=HOST4) == [FAR4, GATEWAY4] and reaches(guest, FAR6, source=HOST6) == [FAR6]
    site.down(nic)
    assert rules("-4") == rules("-6") == [] and taps() == {}
