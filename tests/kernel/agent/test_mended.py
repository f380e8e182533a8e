"""What somebody takes away from a NIC that is up comes back at once, and nobody is fought for ever. VLANs and policers: tests/vm."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.kernel.test_doors_parallel import environment
from tests.support.agent import Agent, Watched, agent, seconds_until, watched
from tests.support.netns import run, slowness, sysctl, wait_until
from tests.support.node import Node
from tests.support.routed import Site
from tests.support.rundoor import rundoor
from tests.support.snapshot import diff, snapshot

pytestmark = pytest.mark.sampled(3)

#: After the kernel's event (seconds), on a machine that nobody else uses.
BAR = 0.1

TAGS = " ".join(
    f"netcommon:*:{option}"
    for option in (
        *("spoof_guard", "firewall:limited", "gateway_arp", "rate_in:8mbit", "blackhole", "gateway_link_local", "uplink_proxy:ndp"),
        *("addresses:2001:db8:f::5", "prefixes:198.51.100.64/28"),
    )
)


def shell(*commands: str) -> Callable[[], None]:
    """Each of the commands, in words."""

    def damage() -> None:
        for command in commands:
            run(*command.split())

    return damage


def named(listing: str) -> str:
    """The only table of nftables whose name begins so."""
    return next(line.removeprefix("table ") for line in run("nft", "list", "tables").splitlines() if listing in line)


def drop_table(listing: str) -> Callable[[], None]:
    return lambda: shell(f"nft delete table {named(listing)}")() if "fw" not in listing else drop_firewall(listing)


def drop_firewall(listing: str) -> None:
    run("nft", "delete", "table", *named(listing).split())


def dormant(listing: str) -> None:
    """Switch off the whole table, so every guard in it."""
    run("nft", "add", "table", *named(listing).split(), "{ flags dormant; }")


def set_to(path: str, value: str) -> Callable[[], None]:
    return lambda: str(sysctl(path, value)) and None


#: What is done, and in how many seconds it is undone: at once, or where the kernel tells nothing, at the next resync.
ROUTED: dict[str, Callable[[], None]] = {
    "nft flush ruleset": shell("nft flush ruleset"),
    "nft flush ruleset, twice at once": shell("nft flush ruleset", "nft flush ruleset"),
    "the guard's table is deleted": drop_table("netcommon-guard"),
    "the ARP table is deleted": drop_table("netcommon-arp"),
    "the firewall's table is deleted": drop_table("netcommon-fw"),
    "the gateway's element is deleted": shell("nft delete element arp netcommon-arp gateways { tap0 }"),
    "a chain of the guard is flushed": lambda: run("nft", "flush", "chain", *named("netcommon-guard").split(), "guard") and None,
    "IPv4 rule": shell("ip rule del iif tap0"),
    "IPv6 rule": shell("ip -6 rule del iif tap0"),
    "IPv4 route": shell("ip route del 192.0.2.5/32 table 100 dev tap0"),
    "IPv6 route": shell("ip -6 route del 2001:db8:f::5/128 table 100 dev tap0"),
    "prefix route": shell("ip route del 198.51.100.64/28 table 100 via 192.0.2.5 dev tap0"),
    "blackhole": shell("ip route flush table 100 type blackhole"),
    "all routes of the table": shell("ip route flush table 100 dev tap0"),
    "address": shell("ip -6 addr del fe80::1/64 dev tap0"),
    "all addresses": shell("ip -6 addr flush dev tap0"),
    "qdisc": shell("tc qdisc del dev tap0 root"),
    "another rate": shell("tc qdisc change dev tap0 root handle ae00: tbf rate 1mbit burst 16k limit 20k"),
    "the guard's table is dormant": lambda: dormant("netcommon-guard"),
    "the ARP table is dormant": lambda: dormant("netcommon-arp"),
    "alias": shell("ip link set dev tap0 alias nobody"),
    "into a bridge": shell("ip link set dev tap0 master other"),
    "down": shell("ip link set dev tap0 down"),
    "down and up": shell("ip link set dev tap0 down", "ip link set dev tap0 up"),
    "forwarding": set_to("net/ipv4/conf/tap0/forwarding", "0"),
    "proxy_arp": set_to("net/ipv4/conf/tap0/proxy_arp", "0"),
    "IPv6 forwarding": set_to("net/ipv6/conf/tap0/forwarding", "0"),
    "proxy_ndp of the uplink": set_to("net/ipv6/conf/up0/proxy_ndp", "0"),
    "the uplink goes down and up": lambda: flap("up0"),
}


MARK = "netcommon-mark-100-ff00"
MARKED: dict[str, Callable[[], None]] = {
    "nft flush ruleset": shell("nft flush ruleset"),
    "the table that marks is deleted": shell(f"nft delete table inet {MARK}"),
    "the one for ARP is deleted": shell(f"nft delete table arp {MARK}"),
    "the device's element is deleted": shell(f"nft delete element inet {MARK} taps {{ tap0 }}"),
    "IPv4 rule of the mark": shell("ip rule del fwmark 0x6400/0xff00"),
    "IPv6 rule of the mark": shell("ip -6 rule del fwmark 0x6400/0xff00"),
}


def flap(device: str) -> None:
    """Down and up, with the administrator's own default routes put back."""
    shell(
        f"ip link set dev {device} down",
        f"ip link set dev {device} up",
        f"ip route replace default via 192.0.2.1 dev {device} onlink table 100",
        f"ip -6 addr replace 2001:db8:f::2/64 dev {device} nodad",
        f"ip -6 route replace default via 2001:db8:f::1 dev {device} onlink table 100",
    )()


BRIDGED_TAGS = "netcommon:*:spoof_guard netcommon:*:isolated netcommon:*:static_fdb"

BRIDGED: dict[str, Callable[[], None]] = {
    "nft flush ruleset": shell("nft flush ruleset"),
    "out of the bridge": shell("ip link set dev tap0 nomaster"),
    "MTU": shell("ip link set dev tap0 mtu 1400"),
    "isolation": shell("bridge link set dev tap0 isolated off"),
    "learning": shell("bridge link set dev tap0 learning on"),
    "the guard's table is dormant": lambda: dormant("netcommon-guard"),
    "the static entry is not sticky": shell("bridge fdb replace aa:00:00:00:00:00 dev tap0 master static"),
    "static entry": shell("bridge fdb del aa:00:00:00:00:00 dev tap0 master"),
    "down": shell("ip link set dev tap0 down"),
}


@pytest.fixture
def routed(node: Node) -> Iterator[tuple[Site, Watched]]:
    """A NIC with everything that a routed one can have."""
    site = Site(node, "100")
    site.tap("tap0")
    node.bridge("other", mtu=1500)
    with watched() as seen:
        site.up(site.nic(IP="192.0.2.5", NETWORK_SUBNET="192.0.2.0/24", TAGS=TAGS))
        assert seen.drift() == []
        yield site, seen


@pytest.fixture
def bridged(node: Node) -> Iterator[Watched]:
    node.bridge("br0", mtu=1600)  # else it follows the taps
    node.tap("tap0")
    with watched() as seen:
        assert rundoor("kvm-ifup", environment(MODE="bridged", LINK="br0", IP="10.0.0.1", TAGS=BRIDGED_TAGS)).status == 0
        assert seen.drift() == []
        yield seen


def strange(differences: list[str]) -> list[str]:
    """Without the order in which nftables lists things, and what a record says of the host as it was found in between."""
    return [line for line in differences if not line.startswith(("~ nft: order", "~ files: /run/netcommon/nics/"))]


def mended(running: Agent, seen: Watched, what: str, damage: Callable[[], None]) -> float:
    """The damage is seen, unless the agent was faster; the agent mends it, and then leaves it alone.

    Returns the seconds that it took, in those of a machine that has nothing else to do.
    """
    before = running.output.count(": repaired ")
    running.rested()
    running.signal(signal.SIGSTOP)  # the damage is there before it can be mended: it is seen for certain
    damage()
    assert seen.drift() != [], what
    running.signal(signal.SIGCONT)
    took = running.took(lambda: not seen.drift(), 5, f"{what}: {seen.drift()}")
    wait_until(lambda: running.output.count(": repaired ") > before, 2, running.output)
    return took


def test_routed(routed: tuple[Site, Watched]) -> None:
    _site, seen = routed
    took: dict[str, float] = {}
    for what, damage in ROUTED.items():
        with agent() as running:  # a new one each time: the rule of windows is another test's
            before = snapshot()
            took[what] = mended(running, seen, what, damage)
            assert strange(diff(before, snapshot())) == [], what
    report(took)


@pytest.mark.parametrize("number", [2, 10])
def test_what_cannot_be_looked_at_of_one_leaves_nobody_without_a_guard(node: Node, number: int) -> None:
    """Two are looked at one by one, ten in one comparison. The group of a DHCP server may write to the folder of one's file by now."""
    node.bridge("br0")
    folder = Path("/run/dhcp")
    folder.mkdir(0o755)
    settings = '[dhcp]\nnfdhcpd_folder = "/run/dhcp"\n'
    Path("/etc/netcommon/config.toml").write_text(settings)
    for each in range(number):
        node.tap(f"tap{each}")
        tags = "netcommon:*:spoof_guard" + " netcommon:*:dhcp:nfdhcpd" * (each == 1)
        assert rundoor("kvm-ifup", environment(each, MODE="bridged", LINK="br0", IP="", TAGS=tags)).status == 0

    def unguarded() -> list[str]:
        rules = run("nft", "list", "ruleset")
        return [f"tap{each}" for each in range(number) if f'device "tap{each}"' not in rules]

    assert unguarded() == []
    with agent(settings=settings) as running:
        running.rested()
        os.chown(folder, 0, 33)
        folder.chmod(0o775)
        run("nft", "flush", "ruleset")
        seconds_until(lambda: unguarded() == [], 10, f"{unguarded()} in\n{running.output}")
        running.logged("not repaired: '/run/dhcp' has mode 0775")
        assert running.output.count("has mode 0775") <= 2, running.output


def test_marked(node: Node) -> None:
    """With one rule for all NICs of the table."""
    settings, took = "[rules]\nmark = 0xff00\n", dict[str, float]()
    Path("/etc/netcommon/config.toml").write_text(settings)
    site = Site(node, "100")
    site.tap("tap0")
    with watched() as seen:
        site.up(site.nic(IP="192.0.2.5", NETWORK_SUBNET="192.0.2.0/24", TAGS=TAGS))
        assert seen.drift() == [] and MARK in run("nft", "list", "tables")
        for what, damage in MARKED.items():
            with agent(settings=settings) as running:
                before = snapshot()
                took[what] = mended(running, seen, what, damage)
                assert strange(diff(before, snapshot())) == [], what
    report(took)


def test_bridged(bridged: Watched) -> None:
    took: dict[str, float] = {}
    for what, damage in BRIDGED.items():
        with agent() as running:
            before = snapshot()
            took[what] = mended(running, bridged, what, damage)
            assert strange(diff(before, snapshot())) == [], what
    report(took)


def report(took: dict[str, float]) -> None:
    for what, seconds in took.items():
        print(f"{what}: mended after {seconds * 1e3:.0f} ms")
    median = sorted(took.values())[len(took) // 2]
    print(f"median {median * 1e3:.0f} ms, at most {max(took.values()) * 1e3:.0f} ms")
    assert median < BAR * slowness()


def test_who_only_looks_is_no_news(routed: tuple[Site, Watched]) -> None:
    """The kernel answers whoever asks for a qdisc so that all hear it: a look of the agent's own is no reason for the next one."""
    _site, seen = routed
    with agent(settings="[agent]\nresync = 1\n") as running:
        running.rested()
        looks, surveys = running.looks(), running.surveys()
        assert seen.drift() == []  # asks for it too
        wait_until(lambda: running.surveys() >= surveys + 3, 20, running.output)
        assert running.looks() - looks <= 3


def test_a_route_in_the_place_of_ours(routed: tuple[Site, Watched]) -> None:
    """It is told of, and when it goes ours is back at once; so is a rule after one that stood in its way."""
    _site, seen = routed
    with agent() as running:
        running.rested()
        run("ip", "route", "replace", "192.0.2.5/32", "dev", "lo", "table", "100", "proto", "static")
        running.logged("192.0.2.5/32 in table 100 is already routed")
        run("ip", "route", "del", "192.0.2.5/32", "table", "100", "proto", "static")
        took = running.took(lambda: not seen.drift(), 5, f"{seen.drift()}")
        assert took < 5 * BAR * slowness()


def test_a_proxy_neighbour_comes_back_with_the_resync(routed: tuple[Site, Watched]) -> None:
    """The kernel tells nobody that one was removed."""
    _site, seen = routed
    with agent(settings="[agent]\nresync = 1\n") as running:
        run("ip", "-6", "neigh", "del", "proxy", "2001:db8:f::5", "dev", "up0")
        assert seen.drift() != []
        seconds_until(lambda: not seen.drift(), 5, running.output)


def test_somebody_else_is_not_fought(routed: tuple[Site, Watched]) -> None:
    """What is undone again and again is repaired a few times, then reported and left for a while; other things are mended as ever."""
    _site, seen = routed
    with agent() as running:
        for number in range(3):
            run("ip", "rule", "del", "iif", "tap0")
            seconds_until(lambda: not seen.drift(), 5, f"{number}: {running.output}")
            running.logged(": repaired ", number + 1)  # before that it looks whether the rule holds: undone meanwhile, it has failed
        run("ip", "rule", "del", "iif", "tap0")
        running.logged("somebody else's")
        assert seen.drift() != []
        run("ip", "route", "del", "192.0.2.5/32", "table", "100", "dev", "tap0")
        seconds_until(lambda: len(seen.drift()) == 1, 5, running.output)
        running.logged(": repaired ", 4)
        assert "iif tap0" in seen.drift()[0] and running.output.count(": repaired ") == 4
        wait_until(lambda: not seen.drift(), 12, running.output)  # when the window is over


def test_who_reloads_nftables_fights_nobody(routed: tuple[Site, Watched]) -> None:
    """However often in a second: guard and profile are back each time, since no table's flush is about one NIC."""
    _site, seen = routed
    took = []
    with agent() as running:
        running.rested()
        for number in range(15):
            run(*(["nft", "flush", "ruleset"] if number % 3 else ["nft", "flush", "table", *named("netcommon-guard").split()]))
            took.append(running.took(lambda: not seen.drift(), 5, f"{number}: {seen.drift()}"))
        assert "somebody else's" not in running.output
    print(f"15 reloads: mended after {max(took) * 1e3:.0f} ms at most, median {sorted(took)[7] * 1e3:.0f} ms")
    assert sorted(took)[7] < BAR * slowness() and max(took) < 5 * BAR * slowness()  # others may have the CPU for a moment


def test_a_bridge_that_is_away_for_a_while(bridged: Watched, node: Node) -> None:
    """The tap is back as soon as the bridge is, however often that was tried in vain, and its guard is mended meanwhile."""
    with agent() as running:
        running.rested()
        before = running.looks()
        run("ip", "link", "del", "br0")
        wait_until(lambda: running.looks() > before + 6, 60, running.output)
        run("nft", "flush", "ruleset")
        seconds_until(lambda: not any("nft" in line for line in bridged.drift()), 5, f"{bridged.drift()}\n{running.output}")
        assert any("master br0" in line for line in bridged.drift())
        node.bridge("br0", mtu=1600)
        took = running.took(lambda: not bridged.drift(), 5, f"{bridged.drift()}")
        assert "somebody else's" not in running.output
    print(f"a bridge that came back: its tap is a port after {took * 1e3:.0f} ms")
    assert took < BAR * slowness()


@pytest.mark.parametrize(("policy", "reported"), [("report", True), ("off", False)])
def test_the_policy_of_a_kind(routed: tuple[Site, Watched], policy: str, reported: bool) -> None:
    """What is not to be repaired stays as it is; other kinds are repaired at the same time."""
    _site, seen = routed
    with agent(settings=f'[repair]\nrule = "{policy}"\n') as running:
        run("ip", "rule", "del", "iif", "tap0")
        run("ip", "route", "del", "192.0.2.5/32", "table", "100", "dev", "tap0")
        seconds_until(lambda: len(seen.drift()) == 1, 5, running.output)
        assert ("the settings say to report it" in running.output) == reported
        assert len(seen.drift()) == 1 and "iif tap0" in seen.drift()[0]


def test_a_foreign_object_in_its_place_is_left(routed: tuple[Site, Watched]) -> None:
    """An administrator's own route in the place of ours is not overwritten: it is ours no more."""
    _site, seen = routed
    with agent(settings="[agent]\nresync = 1\n") as running:
        run("ip", "route", "replace", "192.0.2.5/32", "dev", "lo", "table", "100", "proto", "static")
        before = run("ip", "route", "show", "table", "100", "192.0.2.5")
        wait_until(lambda: running.surveys() >= 4, 10, running.output)
        assert run("ip", "route", "show", "table", "100", "192.0.2.5") == before
        assert seen.records["tap0"].state == "up"
