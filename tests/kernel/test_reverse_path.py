"""rp_filter on routed NICs: up, check, explain and doctor name the NICs whose packets the kernel drops, and no others. Packets decide."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from netcommon.doctor import findings
from runtime.paths import Paths
from tests.support.bootstrap import VENV
from tests.support.netns import Namespace, run, sysctl
from tests.support.node import Node
from tests.support.routed import FAR4, GATEWAY4, TABLE, Site, drift, options, reaches
from tests.support.rundoor import rundoor

HOST4 = "192.0.2.5"
TAGS = options("uplink_proxy:both")


def rule(site: Site) -> None:
    """As the site has it: what comes in by the uplink is looked up in the guests' table."""


def none(site: Site) -> None:
    run("ip", "rule", "del", "iif", "up0", "lookup", TABLE)


def by_destination(site: Site) -> None:
    none(site)
    run("ip", "rule", "add", "to", HOST4, "lookup", TABLE, "preference", "300")


def by_mark(site: Site) -> None:
    """Guests are reached, but no mark is on what the filter looks up."""
    none(site)
    run("nft", "add table inet site")
    run("nft", "add chain inet site first { type filter hook prerouting priority -300; }")
    run("nft", "add rule inet site first iifname up0 meta mark set 7")
    run("ip", "rule", "add", "fwmark", "7", "lookup", TABLE, "preference", "300")


def no_gateway(site: Site) -> None:
    """Of such a route it cannot be told what goes by it: nothing is said."""
    none(site)
    site.router.run("sysctl", "-qw", "net.ipv4.conf.eth0.proxy_arp=1")
    run("ip", "route", "replace", "default", "dev", "up0", "table", TABLE)


def bogons(site: Site) -> None:
    """A default route without a gateway, and a list of networks that nobody has."""
    site.router.run("sysctl", "-qw", "net.ipv4.conf.eth0.proxy_arp=1")
    run("ip", "route", "replace", "default", "dev", "up0", "table", TABLE)
    run("ip", "route", "add", "blackhole", "198.18.0.0/15", "table", TABLE)


def no_default(site: Site) -> None:
    """The guests' table leads to one network, and nothing of theirs goes by main's default route, which is another's."""
    none(site)
    run("ip", "rule", "add", "iif", "up0", "lookup", TABLE)
    run("ip", "route", "del", "default", "table", TABLE)
    run("ip", "route", "add", f"{FAR4}/32", "via", GATEWAY4, "dev", "up0", "onlink", "table", TABLE)
    run("ip", "route", "add", "unreachable", "default", "table", TABLE)


SITES = {each.__name__: each for each in (rule, none, by_destination, by_mark, no_gateway, bogons, no_default)}


@pytest.fixture
def marked(request: pytest.FixtureRequest, node: Node) -> None:
    """Settings by which what comes in by taps is marked, instead of a rule for each."""
    if request.param:
        Path("/etc/netcommon").mkdir(exist_ok=True)
        Path("/etc/netcommon/config.toml").write_text("[rules]\nmark = 0xfff0000\n")


def passed(site: Site, guest: Namespace) -> bool:
    """Tell whether what the guest sends comes out at the router, whatever comes back; it need not ask for the gateway's MAC."""
    guest.run("ip", "neighbour", "replace", GATEWAY4, "lladdr", Path("/sys/class/net/tap0/address").read_text().strip(), "dev", "eth0")

    def echoes() -> int:
        names, values = (line.split() for line in site.router.run("cat", "/proc/net/snmp").splitlines() if line.startswith("Icmp:"))
        return int(values[names.index("InEchos")])

    before = echoes()
    reaches(guest, FAR4, source=HOST4)
    return echoes() > before


def told() -> tuple[int, bool, bool, bool]:
    """Ask what the tools say: check's exit status, and whether check, explain and doctor name the filter."""
    program = str(VENV / "bin/netcommon")
    checked = subprocess.run([program, "check", "tap0"], capture_output=True, text=True, check=False)
    document = json.loads(subprocess.run([program, "explain", "--json", "tap0"], capture_output=True, text=True, check=False).stdout)
    named = [each for each in findings(Paths()) if each.topic == "reverse path"]
    return checked.returncode, "rp_filter" in checked.stdout, bool(document["nics"][0]["dropped"]), bool(named)


#: Site, value, of which devices it is set, whether taps are marked.
CASES = [
    *((how, "2", "default", False) for how in SITES),
    *((how, value, "all", True) for how in ("rule", "none") for value in ("0", "1", "2")),
    ("by_mark", "1", "default", True),
    ("none", "1", "default", False),
]


@pytest.mark.parametrize(("how", "value", "where", "marked"), CASES, indirect=["marked"])
@pytest.mark.usefixtures("marked")
def test_packets_decide(node: Node, how: str, value: str, where: str) -> None:
    site = Site(node, TABLE)
    run("ip", "route", "replace", "default", "via", GATEWAY4)  # of the node itself
    SITES[how](site)
    sysctl(f"net/ipv4/conf/{where}/rp_filter", value)
    guest = site.guest(HOST4)
    done = rundoor("kvm-ifup", site.nic(IP=HOST4, TAGS=TAGS))
    dropped = not passed(site, guest)
    assert done.status == 0 and drift() == []
    said = dropped and how != "no_gateway"
    assert ("rp_filter" in done.stderr) == said, done.stderr
    assert told() == ((1, True, True, True) if said else (0, False, False, False))
    assert dropped == (value != "0" and how in ("none", "by_mark", "no_gateway"))


@pytest.mark.parametrize("value", ["1", "2"])
def test_a_tap_with_an_address(node: Node, value: str) -> None:
    """There loose is loose."""
    site = Site(node, TABLE)
    run("ip", "route", "replace", "default", "via", GATEWAY4)
    none(site)
    sysctl("net/ipv4/conf/default/rp_filter", value)
    guest = site.guest(HOST4)
    run("ip", "address", "add", "10.99.99.1/32", "dev", "tap0")
    done = rundoor("kvm-ifup", site.nic(IP=HOST4, TAGS=TAGS))
    assert (passed(site, guest), "rp_filter" in done.stderr, told()[0]) == (value == "2", value == "1", int(value == "1"))


def test_table_main(node: Node) -> None:
    site = Site(node, "")
    sysctl("net/ipv4/conf/default/rp_filter", "1")
    guest = site.guest(HOST4)
    site.up(site.nic(IP=HOST4, TAGS=TAGS))
    assert (passed(site, guest), told()) == (True, (0, False, False, False))


@pytest.mark.parametrize("remedy", range(3))
def test_each_remedy_helps(node: Node, remedy: int) -> None:
    site = Site(node, TABLE)
    run("ip", "route", "replace", "default", "via", GATEWAY4)
    none(site)
    sysctl("net/ipv4/conf/default/rp_filter", "2")
    guest = site.guest(HOST4)
    nic = site.nic(IP=HOST4, TAGS=TAGS)
    said = rundoor("kvm-ifup", nic).stderr
    assert not passed(site, guest)
    if remedy == 0:
        assert 'rp_filter = "off"' in said
        site.up({**nic, "TAGS": f"{TAGS} {options('rp_filter:off')}"})
    else:
        command = ("sysctl -w net.ipv4.conf.tap0.rp_filter=0", f"ip -4 rule add iif up0 lookup {TABLE}")[remedy - 1]
        assert command in said
        run(*command.split())
    assert passed(site, guest) and told() == (0, False, False, False)
    site.up({**nic, "TAGS": f"{TAGS} {options('rp_filter:off')}"} if remedy == 0 else nic)
