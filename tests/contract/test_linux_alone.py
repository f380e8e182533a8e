"""What the contract's two worlds cannot share: an independent look at what Linux did, and how much it was asked."""

from __future__ import annotations

import errno
import fcntl
import os
import threading
from pathlib import Path
from struct import pack

import pytest
from pyroute2 import IPRoute

from netcommon.host.api.datapath import LEARNING, BridgeState, PortState, Question, Way
from netcommon.host.api.facts import Neighbour, Route, Rule
from netcommon.host.api.nftables import NETDEV
from netcommon.host.api.requests import (
    AddNeighbour,
    AddRoute,
    AddRule,
    DeleteNeighbour,
    DeleteRoute,
    DeleteRule,
    Request,
    SetLink,
    SetSysctl,
)
from netcommon.host.linux.host import LinuxHost
from netcommon.host.linux.memo_view import MemoView
from runtime.errors import HostRefused, TryAgain
from runtime.paths import Paths
from tests.support.netns import ask, run, wait_until
from tests.support.node import Node
from tests.support.tap import Tap

TUNSETCARRIER = 0x400454E2
MAC = "fe:00:00:00:00:01"


@pytest.fixture
def host(node: Node) -> LinuxHost:
    """A node with a tap, a bridge and an uplink."""
    node.tap("tap0")
    node.bridge("br0")
    node.outside("up0")
    return LinuxHost()


def index(host: LinuxHost, name: str) -> int:
    link = host.view().link(name)
    assert link is not None
    return link.index


def done(host: LinuxHost, *requests: Request) -> None:
    assert [answer for answer in host.execute(requests, stop=True) if not answer.ok] == []


def test_pyroute2_sees_it(host: LinuxHost) -> None:
    tap, bridge, uplink = (index(host, name) for name in ("tap0", "br0", "up0"))
    rules = [Rule(family, 500, "tap0", 70000) for family in (2, 10)]
    routes = [Route(2, 70000, "10.0.0.5/32", tap), Route(10, 70000, "2001:db8::5/128", tap)]
    neighbours = [Neighbour(2, "10.0.0.5", uplink), Neighbour(10, "2001:db8::5", uplink)]
    done(host, SetLink(tap, address=MAC, mtu=1400, alias="web1/0", up=True))
    done(host, *map(AddRule, rules), *map(AddRoute, routes), *map(AddNeighbour, neighbours))
    with IPRoute() as other:
        (link,) = other.get_links(tap)
        assert (link.get("address"), link.get("mtu"), link.get("ifalias"), link["flags"] & 1) == (MAC, 1400, "web1/0", 1)
        for family in (2, 10):
            (rule,) = (each for each in other.get_rules(family) if each.get("iifname") == "tap0")
            assert (rule.get("priority"), rule.get("table"), rule.get("protocol"), rule["action"]) == (500, 70000, 174, 1)
            (route,) = other.get_routes(family, table=70000)
            assert (route.get("oif"), route["proto"], route["type"], route["dst_len"]) == (tap, 174, 1, 32 if family == 2 else 128)
            assert route["scope"] == (253 if family == 2 else 0)
    proxies = [each for family in ("-4", "-6") for each in ask("ip", family, "-j", "neighbour", "show", "proxy")]
    assert [(each["dst"], each["dev"], str(each.get("protocol"))) for each in proxies] == [
        ("10.0.0.5", "up0", "174"),
        ("2001:db8::5", "up0", "174"),
    ]
    done(host, *map(DeleteRule, rules), *map(DeleteRoute, routes), *map(DeleteNeighbour, neighbours), SetLink(tap, master=bridge))
    assert [port["ifname"] for port in ask("bridge", "-j", "link") if port["master"] == "br0"] == ["tap0"]
    assert "70000" not in run("ip", "rule") + run("ip", "-6", "rule")
    assert ask("ip", "-j", "route", "show", "table", "70000") == []


FOREIGN_RULES = """
from 192.0.2.1 iif tap0 lookup 5
to 192.0.2.1 iif tap0 lookup 5
not iif tap0 lookup 5
iif tap0 fwmark 4 lookup 5
iif tap0 tos 0x10 lookup 5
iif tap0 oif up0 lookup 5
iif tap0 ipproto tcp lookup 5
iif tap0 sport 4-5 lookup 5
iif tap0 dport 4 lookup 5
iif tap0 uidrange 1-2 lookup 5
iif tap0 lookup 5 suppress_prefixlength 0
iif tap0 lookup 5 suppress_ifgroup 3
iif tap0 tun_id 4 lookup 5
iif tap0 lookup 5 realms 3
iif tap0 blackhole
iif tap0 goto 40000
iif tap0 l3mdev
"""


@pytest.mark.parametrize("rule", [line for line in FOREIGN_RULES.splitlines() if line])
def test_rules_that_we_could_not_have_made(host: LinuxHost, rule: str) -> None:
    run("ip", "rule", "add", "priority", "500", *rule.split())
    (found,) = host.view().rules(2, "tap0")
    assert (found.plain, found.preference) == (False, 500)


def test_a_rule_that_we_could_have_made(host: LinuxHost) -> None:
    run("ip", "-6", "rule", "add", "priority", "500", "iif", "gone0", "lookup", "5", "protocol", "174")
    assert list(host.view().rules(10, "gone0")) == [Rule(10, 500, "gone0", 5)]


def test_foreign_routes(host: LinuxHost) -> None:
    """None is dropped, however odd."""
    uplink = index(host, "up0")
    run("ip", "address", "add", "10.6.0.1/24", "dev", "up0")
    run("ip", "address", "add", "2001:db8:6::1/64", "dev", "up0", "nodad")
    for line in (
        "-4 blackhole 10.5.0.0/16 table 33",
        "-4 table 33 10.7.0.0/16 nexthop via 10.6.0.2 dev up0 nexthop via 10.6.0.3 dev up0",
        "-4 10.8.0.0/16 via inet6 fe80::1 dev up0 table 33",
        "-4 default via 10.6.0.2 metric 5 table 33",
        "-6 unreachable 2001:db8:5::/48 table 33",
        "-6 table 33 2001:db8:7::/48 nexthop via 2001:db8:6::2 nexthop via 2001:db8:6::3",
    ):
        family, *words = line.split()
        run("ip", family, "route", "add", *words)
    found = [*host.view().routes(2, 33), *host.view().routes(10, 33)]
    seen = {(route.destination, route.type, route.gateway, route.metric) for route in found}
    assert {each for each in seen if each[1] != 1 or each[0] in ("10.8.0.0/16", "0.0.0.0/0")} == {
        ("10.5.0.0/16", 6, "", 0),
        ("10.8.0.0/16", 1, "fe80::1", 0),
        ("0.0.0.0/0", 1, "10.6.0.2", 5),
        ("2001:db8:5::/48", 7, "", 1024),
    }
    assert [route.index for route in host.view().routes(2, 33, "10.7.0.0/16")] == [0]
    assert host.view().routes(10, 33, "2001:db8:7::/48")
    assert [(route.type, route.table, route.index) for route in host.view().routes(2, 255, "10.6.0.1/32")] == [(2, 255, uplink)]


def test_a_table_is_listed_once_for_several_questions(host: LinuxHost) -> None:
    """Among hundreds of routes of one shape; what has changed since is another look's."""
    taps = index(host, "up0")
    made = [Route(2, 33, f"10.7.{number >> 8}.{number & 255}/32", taps, scope=253) for number in range(300)]
    assert all(answer.ok for answer in host.execute([AddRoute(each) for each in made], stop=True))
    run("ip", "route", "add", "default", "dev", "up0", "table", "33")
    seen, before = MemoView(host.view()), host.netlink.dumps
    for each in (made[0], made[63], made[64], made[177], made[299]):
        assert seen.routes(2, 33, each.destination) == [each]
    assert [route.protocol for route in seen.routes(2, 33, "0.0.0.0/0")] == [3]
    assert seen.routes(2, 33, "10.7.1.44/32") == []
    assert host.netlink.dumps == before + 1
    assert host.execute([DeleteRoute(made[63])], stop=True)[0].ok
    assert MemoView(host.view()).routes(2, 33, made[63].destination) == []


def test_alternative_names_do_not_count(host: LinuxHost) -> None:
    run("ip", "link", "property", "add", "dev", "up0", "altname", "tap7")
    assert host.view().link("tap7") is None


def test_peers_elsewhere(host: LinuxHost) -> None:
    link = host.view().link("up0")
    assert link is not None and link.foreign_lower and link.kind == "veth"


def test_a_tap_with_several_queues(node: Node) -> None:
    tap = Tap("tap1", persistent=True, queues=3)
    try:
        held = LinuxHost().view().link("tap1")
        assert held is not None and held.holders == 3
        tap.close()
        free = LinuxHost().view().link("tap1")
        assert free is not None and free.holders == 0
    finally:
        run("ip", "link", "delete", "tap1")


def test_a_tap_whose_holder_took_its_carrier(node: Node) -> None:
    """It lives as long as it is held, so it is held."""
    tap = node.tap("tap0")
    fcntl.ioctl(tap.descriptor, TUNSETCARRIER, pack("i", 0))
    link = LinuxHost().view().link("tap0")
    assert link is not None and link.holders == 1


def test_how_much_is_asked(host: LinuxHost) -> None:
    """One NIC: gets, no dumps of links; its link's changes are one message."""
    view = host.view()
    tap, bridge = view.link("tap0"), view.link("br0")
    assert tap is not None and bridge is not None
    assert (host.netlink.requests, host.netlink.dumps) == (2, 0)
    done(host, SetLink(tap.index, address=MAC), SetLink(tap.index, mtu=1400), SetLink(tap.index, up=True, master=bridge.index))
    assert host.netlink.requests == 3
    view.ports(bridge.index)
    view.rules(2, "tap0")
    assert (host.netlink.requests, host.netlink.dumps) == (5, 2)
    snapshot = host.snapshot()
    for _ in range(3):
        snapshot.link("tap0"), snapshot.link_at(1), snapshot.ports(bridge.index), snapshot.links()
        snapshot.rules(2, "tap0"), snapshot.rules(2), snapshot.routes(2, 5, "10.0.0.1/32"), snapshot.routes(2, 5)
        snapshot.neighbours(2), snapshot.neighbours(2, 5)
    assert (host.netlink.requests, host.netlink.dumps) == (9, 6)
    for _ in range(3):
        snapshot.routes(2)  # of all tables, which nobody asks who wants one: theirs may be a routing daemon's
    assert (host.netlink.requests, host.netlink.dumps) == (10, 7)


def test_dumps_while_the_tables_change(host: LinuxHost) -> None:
    """A dump that the kernel interrupted is taken again: what stands still the whole time is in each one, once."""
    run("ip", "-batch", "-", stdin="".join(f"link add port{number} type ifb\n" for number in range(300)))
    still = {f"port{number}" for number in range(300)}
    stop = threading.Event()

    def churn() -> None:
        own, turn = LinuxHost(), 0
        while not stop.is_set():
            turn += 1
            rule = Rule(2, 400, f"x{turn}", 7)
            own.execute([SetLink(index(own, "up0"), alias=f"{turn}"), AddRule(rule), DeleteRule(rule)], False)
            own.close()

    def flap() -> None:
        while not stop.is_set():
            run("ip", "link", "add", "flap0", "type", "ifb")
            run("ip", "link", "delete", "flap0")

    threads = [threading.Thread(target=churn), threading.Thread(target=flap)]
    for thread in threads:
        thread.start()
    complete = 0
    try:
        for _ in range(60):
            try:
                names = [link.name for link in host.view().links()]
            except TryAgain:
                continue
            complete += 1
            assert still <= set(names) and len(names) == len(set(names))
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    print(f"{complete} dumps were complete, {host.netlink.dumps} taken")
    assert complete > 0


def test_iproute2s_files(tmp_path: Path) -> None:
    """As ip reads them: /usr's first, then /etc's, then rt_tables.d of each; a name may hide a number, and means the lower of two."""
    usr, etc = tmp_path / "usr", tmp_path / "etc"
    (etc / "rt_tables.d").mkdir(parents=True)
    usr.mkdir()
    (usr / "rt_tables").write_text("# comment\n255\tlocal\n100 guests # comment\n200 both\n0x12c hex\n")
    (etc / "rt_tables").write_bytes(b"201 both\nnonsense\n1 2 3\n-5 minus\n77 \xff\n0 unspec\n")
    (etc / "rt_tables.d" / "ganeti.conf").write_text("300 ganeti\n400 50\n")
    (etc / "rt_tables.d" / "README").write_text("500 ignored\n")
    (etc / "rt_tables.d" / ".hidden.conf").write_text("500 ignored\n")
    view = LinuxHost(Paths(iproute2=(str(usr), str(etc), str(tmp_path / "none")))).view()
    expected = {"guests": 100, "both": 200, "hex": 300, "ganeti": 300, "50": 400, "51": 51, "main": 254, "local": 255}
    assert {name: view.table(name) for name in expected} == expected
    named = {"guests": 100, "both": 200, "hex": 300, "ganeti": 300, "50": 400, "\udcff": 77, "main": 254, "local": 255, "default": 253}
    assert view.named_tables() == named
    assert [view.table(name) for name in ("minus", "nonsense", "ignored", "unspec", "2")] == [None, None, None, None, 2]


def test_settings_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "sys/net").mkdir(parents=True)
    (tmp_path / "sys/net/self").symlink_to("self")
    host = LinuxHost(Paths(proc=str(tmp_path)))
    with pytest.raises(HostRefused, match="net/self"):
        host.view().sysctl("net/self")


def test_identity_is_the_kernels(node: Node) -> None:
    identity = LinuxHost().identity()
    assert identity.boot == Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    with node.namespaced().entered():
        other = LinuxHost().identity()
    assert (other.boot, other.netns != identity.netns) == (identity.boot, True)
    old = LinuxHost()
    old.netlink.cookie = lambda: None  # type: ignore[method-assign]
    assert old.identity().netns == os.stat("/proc/self/ns/net").st_ino


def test_a_chain_of_several_devices(host: LinuxHost) -> None:
    """Each device of a netdev chain is told; of one with a single device there are no others."""
    run("nft", "-f", "-", stdin="add table netdev t\nadd chain netdev t one { type filter hook ingress device up0 priority 0; }\n")
    run("nft", "-f", "-", stdin="add chain netdev t more { type filter hook ingress devices = { tap0, up0, br0 } priority 0; }\n")
    found = {chain.name: chain for chain in host.view().nft_chains(NETDEV)}
    assert (found["one"].device, found["one"].others) == ("up0", ())
    assert {found["more"].device, *found["more"].others} == {"tap0", "up0", "br0"}


def test_states_of_a_bridge_and_its_ports(host: LinuxHost) -> None:
    """Read what bridge(8) has set, and whether there is a carrier."""
    run(
        "ip",
        "link",
        "set",
        "br0",
        "type",
        "bridge",
        "group_fwd_mask",
        "0x4000",
        "mcast_querier",
        "1",
        "nf_call_ip6tables",
        "1",
        "nf_call_arptables",
        "1",
    )
    run("ip", "link", "set", "up0", "master", "br0")
    wait_until(lambda: ask("bridge", "-j", "link", "show", "dev", "up0")[0]["state"] == "forwarding", 5, "up0 forwards")
    run("bridge", "link", "set", "dev", "up0", "hairpin", "on", "locked", "on", "bcast_flood", "off", "state", "2")
    run("ip", "link", "set", "up0", "type", "bridge_slave", "neigh_suppress", "on", "proxy_arp", "on", "group_fwd_mask", "8")
    state = host.view().device_state(index(host, "up0"))
    assert state is not None and state.carrier
    assert state.port == PortState(LEARNING, True, True, False, True, True, False, 8)
    run("ip", "link", "set", "br0", "arp", "off", "promisc", "on", "type", "bridge", "ageing_time", "0")
    bridge = host.view().device_state(index(host, "br0"))
    assert bridge is not None and bridge.bridge == BridgeState(False, 0x4000, True, True, (False, True, True), ageing=False)
    assert (bridge.arp, bridge.promiscuous, state.arp, state.promiscuous) == (False, True, True, False)


def test_a_way_that_only_the_kernel_knows(host: LinuxHost) -> None:
    """By a rule of which we understand nothing, to a route with an MTU of its own; a question that is none raises."""
    run("ip", "link", "set", "tap0", "up")
    run("ip", "address", "add", "192.0.2.1/24", "dev", "up0")
    run("ip", "route", "add", "198.51.100.0/24", "via", "192.0.2.9", "mtu", "1300", "table", "77")
    run("ip", "rule", "add", "iif", "tap0", "from", "10.0.0.0/8", "tos", "0x10", "ipproto", "udp", "dport", "53", "lookup", "77")
    tap, up = index(host, "tap0"), index(host, "up0")
    for name, value in (("ip_forward", "1"), ("conf/all/rp_filter", "0"), ("conf/tap0/rp_filter", "0")):
        done(host, SetSysctl(f"net/ipv4/{name}", value))
    asked = Question(2, "198.51.100.1", "10.0.0.5", tap, 0, 0x10, 17, 40000, 53)
    assert host.view().way(asked) == Way(0, 1, up, "192.0.2.9", 77, "198.51.100.0/24", 3, 1300)
    assert host.view().way(asked._replace(target_port=54)).errno == errno.ENETUNREACH
    assert host.view().way(asked._replace(tos=0)).errno == errno.ENETUNREACH
    with pytest.raises(HostRefused):
        host.view().way(asked._replace(iif=4711))
