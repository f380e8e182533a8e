"""Routes of others in the place of a routed guest's own, before it or beside it: packets decide whether check and repair may be content."""

from __future__ import annotations

import subprocess

import pytest

from tests.support.bootstrap import VENV
from tests.support.netns import run
from tests.support.node import Node
from tests.support.routed import NODE4, NODE6, TABLE, Site, drift, mend, options, reaches
from tests.support.rundoor import rundoor

pytestmark = pytest.mark.sampled(2)

HOST4, HOST6, PREFIX4, PREFIX6 = "192.0.2.5", "2001:db8:f::5", "198.51.100.64/28", "2001:db8:1::/64"
BEHIND = {PREFIX4: "198.51.100.65", PREFIX6: "2001:db8:1::5"}
UP = options("uplink_proxy:both", f"addresses:{HOST6}", f"prefixes:{PREFIX4}", f"prefixes:{PREFIX6}")

#: What is done after the up, the address asked for from the uplink, and what check says; "" where packets arrive.
CASES = {
    "before": (f"-4 route prepend {HOST4}/32 dev up0", HOST4, "comes first, by up0"),
    "behind": (f"-4 route append {HOST4}/32 dev up0", HOST4, ""),
    "blackhole before": (f"-4 route prepend blackhole {HOST4}/32", HOST4, "comes first, by nowhere"),
    "several ways": (f"-4 route prepend {HOST4}/32 nexthop dev up0 nexthop dev lo", HOST4, "comes first, by up0 and lo"),
    "beside": (f"-6 route append {HOST6}/128 dev up0", HOST6, "stands beside it, by up0"),
    "prepended": (f"-6 route prepend {HOST6}/128 dev up0", HOST6, "stands beside it, by up0"),
    "next hop": (f"-4 route replace {HOST4}/32 via 192.0.2.99 dev tap0 onlink", HOST4, "it goes to 192.0.2.99 on tap0"),
    "next hop 6": (f"-6 route replace {HOST6}/128 via fe80::99 dev tap0", HOST6, "it goes to fe80::99 on tap0"),
    "by itself": (f"-4 route replace {HOST4}/32 via {HOST4} dev tap0 onlink", HOST4, ""),
    "same way": (f"-4 route replace {HOST4}/32 dev tap0", HOST4, ""),
    "prefix before": (f"-4 route prepend {PREFIX4} dev up0", BEHIND[PREFIX4], "comes first, by up0"),
    "prefix beside": (f"-6 route append {PREFIX6} dev up0", BEHIND[PREFIX6], "stands beside it, by up0"),
    "prefix by another": (f"-4 route replace {PREFIX4} via 192.0.2.77 dev tap0 onlink", BEHIND[PREFIX4], "it goes to 192.0.2.77 on tap0"),
    "prefix by itself": (f"-4 route replace {PREFIX4} dev tap0", BEHIND[PREFIX4], ""),
    "prefix by another 6": (f"-6 route replace {PREFIX6} via fe80::77 dev tap0", BEHIND[PREFIX6], "it goes to fe80::77 on tap0"),
}


def checked() -> str:
    """Ask check, whose status must say the same; return what it says."""
    done = subprocess.run([str(VENV / "bin/netcommon"), "check", "tap0"], capture_output=True, text=True, check=False)
    assert done.returncode == (0 if ": good" in done.stdout else 1), done
    return done.stdout


def repaired() -> str:
    """Repair by the command; return what it says."""
    done = subprocess.run([str(VENV / "bin/netcommon"), "repair", "tap0"], capture_output=True, text=True, check=False)
    return done.stdout + done.stderr


def up(site: Site) -> dict[str, str]:
    """Bring a guest up that has an address of each family, and one of a prefix behind it."""
    guest = site.guest(f"{HOST4}/32", f"{HOST6}/128")
    for address in BEHIND.values():
        guest.run("ip", "address", "add", address, "dev", "lo")
    nic = site.nic(IP=HOST4, TAGS=UP)
    site.up(nic)
    for prefix, gateway in ((PREFIX4, NODE4), (PREFIX6, NODE6)):
        site.router.run("ip", "route", "add", prefix, "via", gateway)
    return nic


@pytest.mark.parametrize("case", CASES)
def test_packets_decide(node: Node, case: str) -> None:
    site = Site(node, TABLE)
    nic = up(site)
    command, address, words = CASES[case]
    assert reaches(site.router, address) == [address] and checked().endswith(": good\n")
    done = command.replace("32 nexthop", f"32 table {TABLE} nexthop").split()
    done += [] if "table" in done else ["table", TABLE]
    run("ip", *done)
    assert reaches(site.router, address) == ([] if words else [address])
    said, mended = drift(), repaired()
    again = rundoor("kvm-ifup", nic)
    if not words:
        assert said == [] and ": good" in checked() and "as it should be" in mended and (again.status, again.stderr) == (0, "")
        return
    assert len(said) == 1 and words in said[0] and words in checked()
    assert "by a route that is not ours" in mended and again.status == 69
    run("ip", done[0], "route", "del", *done[3:])  # theirs is left, and goes by their own hand
    mend()
    assert reaches(site.router, address) == [address] and drift() == []


def test_some_packets(node: Node) -> None:
    """A route for one TOS takes no others: the NIC is good, and check says what becomes of those."""
    site = Site(node, TABLE)
    nic = up(site)
    run("ip", "route", "add", "blackhole", f"{HOST4}/32", "tos", "0x10", "table", TABLE)
    with site.router.entered():
        asked = {
            tos: subprocess.run(["ping", "-q", "-c", "1", "-W", "1", "-Q", tos, HOST4], check=False).returncode for tos in ("0", "0x10")
        }
    assert asked == {"0": 0, "0x10": 1}
    said = checked()
    assert ": good" in said and f"without effect: packets to {HOST4}/32 with TOS 0x10 go to nowhere" in said
    again = rundoor("kvm-ifup", nic)
    assert again.status == 0 and "with TOS 0x10 go to nowhere" in again.stderr
