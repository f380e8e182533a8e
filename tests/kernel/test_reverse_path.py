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
from tests.support.routed import FAR4, GATEWAY4, GATEWAY6, TABLE, Site, drift, options, reaches
from tests.support.rundoor import rundoor

pytestmark = pytest.mark.sampled(5)

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
    """The guests' targets are asked for on the uplink itself."""
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


def by_main(site: Site) -> None:
    """The guests' table has no default route, and main's is used."""
    none(site)
    run("ip", "route", "del", "default", "table", TABLE)


def by_main_and_rule(site: Site) -> None:
    by_main(site)
    run("ip", "rule", "add", "iif", "up0", "lookup", TABLE)


def thrown(site: Site) -> None:
    """It gives the packets back to the rules, which lead them to main."""
    none(site)
    run("ip", "route", "replace", "throw", "default", "table", TABLE)


def by_another_table(site: Site) -> None:
    """A rule behind the guests' leads on."""
    by_main(site)
    run("ip", "route", "add", "default", "via", GATEWAY4, "dev", "up0", "table", "77")
    run("ip", "rule", "add", "lookup", "77", "preference", "900")
    run("ip", "route", "del", "default")


def by_halves(site: Site) -> None:
    none(site)
    halved(site)


def by_halves_and_rule(site: Site) -> None:
    halved(site)


def halved(site: Site) -> None:
    run("ip", "route", "del", "default", "table", TABLE)
    for half in ("0.0.0.0/1", "128.0.0.0/1"):
        run("ip", "route", "add", half, "via", GATEWAY4, "dev", "up0", "onlink", "table", TABLE)


def by_ipv6(site: Site) -> None:
    """The route leads by an IPv6 neighbour."""
    none(site)
    via_ipv6(site)


def by_ipv6_and_rule(site: Site) -> None:
    via_ipv6(site)


def via_ipv6(site: Site) -> None:
    run("ip", "-4", "route", "replace", "default", "via", "inet6", GATEWAY6, "dev", "up0", "table", TABLE)


def prohibited(site: Site) -> None:
    refused(site, "prohibit")


def unreachable(site: Site) -> None:
    refused(site, "unreachable")


def blackholed(site: Site) -> None:
    refused(site, "blackhole")


def refused(site: Site, action: str) -> None:
    """A rule lets nothing go to the guest, so no way to it counts for the filter either."""
    run("ip", "rule", "add", "to", HOST4, action, "preference", "300")


SITES = {
    each.__name__: each
    for each in (
        *(rule, none, by_destination, by_mark, no_gateway, bogons, no_default, by_ipv6, by_ipv6_and_rule),
        *(prohibited, unreachable, blackholed),
        *(by_main, by_main_and_rule, thrown, by_another_table, by_halves, by_halves_and_rule),
    )
}
DROPPED = (
    *("none", "by_mark", "no_gateway", "by_ipv6", "prohibited", "unreachable", "blackholed"),
    *("by_main", "thrown", "by_another_table", "by_halves"),
)


@pytest.fixture
def marked(request: pytest.FixtureRequest, node: Node) -> None:
    """Settings by which what comes in by taps is marked, instead of a rule for each."""
    if request.param:
        Path("/etc/netcommon").mkdir(exist_ok=True)
        Path("/etc/netcommon/config.toml").write_text("[rules]\nmark = 0xfff0000\n")


def passed(site: Site, guest: Namespace) -> bool:
    """Tell whether what the guest sends comes out at the router, whatever comes back; it need not ask for the gateway's MAC."""
    guest.run("ip", "neighbour", "replace", GATEWAY4, "lladdr", Path("/sys/class/net/tap0/address").read_text().strip(), "dev", "eth0")

    before = echoes(site.router)
    reaches(guest, FAR4, source=HOST4)
    return echoes(site.router) > before


def echoes(router: Namespace) -> int:
    """Count the echo requests that the router has got."""
    names, values = (line.split() for line in router.run("cat", "/proc/net/snmp").splitlines() if line.startswith("Icmp:"))
    return int(values[names.index("InEchos")])


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
    assert ("rp_filter" in done.stderr) == dropped, done.stderr
    assert told() == ((1, True, True, True) if dropped else (0, False, False, False))
    assert dropped == (value != "0" and how in DROPPED)


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


@pytest.mark.parametrize("second", ["rule", "none", "backup"])
@pytest.mark.parametrize("first", ["rule", "none"])
def test_two_uplinks(node: Node, first: str, second: str) -> None:
    """A route with two ways, or a second one of a higher metric: the devices are named by which packets went and none came out."""
    site = Site(node, TABLE)
    other = node.outside("up1", "203.0.113.1/24")
    node.address("up1", "203.0.113.2/24")
    for router in (site.router, other):
        for last in range(1, 25):
            router.run("ip", "address", "replace", f"198.51.100.{last}/32", "dev", "lo")
    ways = [("via", GATEWAY4, "dev", "up0"), ("via", "203.0.113.1", "dev", "up1")]
    if second == "backup":
        for metric, way in enumerate(ways, 10):
            run("ip", "route", "add", "default", *way, "table", TABLE, "metric", str(metric))
        run("ip", "route", "del", "default", "metric", "0", "table", TABLE)
    else:
        run("ip", "route", "replace", "default", *("table", TABLE), *(word for way in ways for word in ("nexthop", *way)))
    if first == "none":
        none(site)
    if second == "rule":
        run("ip", "rule", "add", "iif", "up1", "lookup", TABLE, "preference", "401")
    sysctl("net/ipv4/conf/default/rp_filter", "1")
    guest = site.guest(HOST4)
    done = rundoor("kvm-ifup", site.nic(IP=HOST4, TAGS=TAGS))
    assert done.status == 0, done
    guest.run("ip", "neighbour", "replace", GATEWAY4, "lladdr", Path("/sys/class/net/tap0/address").read_text().strip(), "dev", "eth0")
    before = [echoes(each) for each in (site.router, other)]
    reaches(guest, *(f"198.51.100.{last}" for last in range(1, 25)), source=HOST4)
    came = [echoes(each) > old for each, old in zip((site.router, other), before, strict=True)]
    assert came == [first == "rule", second == "rule"]
    lost = [name for name, way in (("up0", first), ("up1", second)) if way == "none"]
    assert ("rp_filter" in done.stderr) == bool(lost), done.stderr
    assert not lost or f"goes out by {' and '.join(lost)}," in done.stderr, done.stderr
    assert told() == ((1, True, True, True) if lost else (0, False, False, False))
    for name in lost:
        assert f"ip -4 rule add iif {name} lookup {TABLE}" in done.stderr


def test_the_way_back_by_the_mark(node: Node) -> None:
    """With src_valid_mark the filter looks up with the mark that the packet had."""
    Path("/etc/netcommon").mkdir(exist_ok=True)
    Path("/etc/netcommon/config.toml").write_text("[rules]\nmark = 0xfff0000\n")
    site = Site(node, TABLE)
    run("ip", "route", "replace", "default", "via", GATEWAY4)
    none(site)
    sysctl("net/ipv4/conf/default/rp_filter", "1")
    sysctl("net/ipv4/conf/default/src_valid_mark", "1")
    guest = site.guest(HOST4)
    done = rundoor("kvm-ifup", site.nic(IP=HOST4, TAGS=TAGS))
    assert (passed(site, guest), done.stderr, told()) == (True, "", (0, False, False, False))


def test_table_main(node: Node) -> None:
    site = Site(node, "")
    sysctl("net/ipv4/conf/default/rp_filter", "1")
    guest = site.guest(HOST4)
    site.up(site.nic(IP=HOST4, TAGS=TAGS))
    assert (passed(site, guest), told()) == (True, (0, False, False, False))


@pytest.mark.no_agent("about what repair does: an agent repairs at once")
@pytest.mark.parametrize("word", ["strict", "loose"])
def test_the_remedy_of_an_option(node: Node, word: str) -> None:
    """What is set beside the option a repair takes back: it is the option that is named."""
    site = Site(node, TABLE)
    run("ip", "route", "replace", "default", "via", GATEWAY4)
    none(site)
    guest = site.guest(HOST4)
    nic = site.nic(IP=HOST4, TAGS=f"{TAGS} {options(f'rp_filter:{word}')}")
    said = rundoor("kvm-ifup", nic).stderr
    assert not passed(site, guest) and 'the option rp_filter = "off"' in said and "sysctl" not in said, said
    sysctl("net/ipv4/conf/tap0/rp_filter", "0")
    subprocess.run([str(VENV / "bin/netcommon"), "repair", "tap0"], check=True, capture_output=True)
    assert not passed(site, guest)
    site.up({**nic, "TAGS": f"{TAGS} {options('rp_filter:off')}"})
    assert passed(site, guest) and told() == (0, False, False, False)


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
