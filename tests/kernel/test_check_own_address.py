"""check and up on a routed guest's address that the node has, or takes for its own: echoes decide."""

from __future__ import annotations

import pytest

from tests.support.netns import run
from tests.support.node import Node
from tests.support.routed import FAR4, TABLE, Site, drift, options, reaches
from tests.support.rundoor import rundoor

GUEST = "192.0.2.5"

FIRST = "ip rule add to 198.18.0.0/15 lookup 51 preference 51"  #: with a rule of somebody's, tables local and main are no longer one

#: What is done after the up, and what is said of the address; "" where echoes pass.
CASES = {
    "nothing": ([], ""),
    "an address": ([f"ip address add {GUEST}/32 dev lo"], "is an address of this node itself"),
    "a broadcast address": ([f"ip address add 203.0.113.1/32 broadcast {GUEST} dev up0"], "is the broadcast address of a network"),
    "a route of type local": ([f"ip route add local {GUEST} dev lo"], "a route of type local"),
    "a network of the node's own": ([FIRST, "ip route add local 192.0.2.4/30 dev lo"], "a route of type local"),
    "a network, and no rules": (["ip route add local 192.0.2.4/30 dev lo"], "a route of type local"),
    "for the node alone": ([f"ip rule add iif lo to {GUEST} lookup 50 preference 50", f"ip route add local {GUEST} dev lo table 50"], ""),
}


@pytest.mark.parametrize("table", ["", TABLE], ids=["main", "table"])
@pytest.mark.parametrize("case", CASES)
def test_echoes_decide(node: Node, case: str, table: str) -> None:
    """Table local counts alone, whatever rules lead the node's own packets to; where it is one with main, the longer prefix does."""
    site = Site(node, table)
    guest = site.guest(f"{GUEST}/32")
    nic = site.nic(IP=GUEST, TAGS=options("uplink_proxy:both", "rp_filter:off", "announce:off"))
    site.up(nic)
    commands, words = CASES[case]
    if not table and case == "a network, and no rules":
        words = ""
    for command in commands:
        run(*command.split())
    assert reaches(guest, FAR4) == ([] if words else [FAR4])
    found = drift()
    assert all(words in each for each in found) if words else found == []
    assert bool(found) == bool(words)
    again = rundoor("kvm-ifup", nic)
    assert (again.status == 69) == bool(words) and words in again.stderr
