"""What routed NICs share on the uplink: proxy entries and proxy_ndp, with owners; drift by hand, uplinks that go, come and change."""

from __future__ import annotations

import pytest

from netcommon.doctor import findings
from runtime.paths import Paths
from tests.kernel.test_doors_parallel import environment
from tests.support.netns import Namespace, run, sysctl
from tests.support.node import Node
from tests.support.ovs import OpenVswitch
from tests.support.routed import FAR4, FAR6, GATEWAY4, GATEWAY6, MAC, TABLE, Site, collect, drift, mend, options, proxies, reaches, verifies
from tests.support.rundoor import rundoor
from tests.support.snapshot import diff, snapshot

pytestmark = pytest.mark.sampled(5)

HOST4, HOST6 = "192.0.2.5", "2001:db8:f::5"
ROUTER = "fe80::1"  #: a router's link-local address, as advertisements give it
SWITCH = "net/ipv6/conf/up0/proxy_ndp"
EVERYTHING = options(
    *(f"addresses:{HOST6}", "prefixes:10.1.0.0/28", "prefixes:2001:db8:1::/64"),
    *("blackhole", "uplink_proxy:both", "gateway_link_local", "rp_filter:loose"),
)


@pytest.fixture
def site(node: Node) -> Site:
    return Site(node, TABLE)


@pytest.mark.parametrize(
    "command",
    [
        "ip -4 rule delete iif tap0 lookup 100",
        "ip -6 rule delete iif tap0 lookup 100",
        "ip -4 route delete 192.0.2.5 dev tap0 table 100",
        "ip -6 route delete 2001:db8:f::5 dev tap0 table 100",
        "ip -4 route delete 10.1.0.0/28 dev tap0 table 100",
        "ip -6 route delete 2001:db8:1::/64 dev tap0 table 100",
        "ip -4 route delete blackhole 192.0.2.5 table 100",
        "ip -6 route delete blackhole 2001:db8:1::/64 table 100",
        "ip -4 neighbour delete proxy 192.0.2.5 dev up0",
        "ip -6 neighbour delete proxy 2001:db8:f::5 dev up0",
        "ip -6 neighbour delete proxy 2001:db8:f::1 dev tap0",
        "ip address delete fe80::1/64 dev tap0",
        "sysctl -w net/ipv6/conf/up0/proxy_ndp=0",
        "sysctl -w net/ipv4/conf/tap0/rp_filter=1",
        "sysctl -w net/ipv6/conf/tap0/proxy_ndp=0",
        "ip link set tap0 down",
        "ip link set tap0 down;ip link set tap0 up",
        "ip link set up0 down;ip link set up0 up",
    ],
)
def test_drift_by_hand(site: Site, command: str) -> None:
    """Each is seen, and mended so that the node is as after up; down then leaves nothing."""
    guest = site.guest(HOST4, HOST6)
    before = site.before()
    nic = site.nic(IP=HOST4, TAGS=EVERYTHING)
    site.up(nic)
    whole = snapshot()
    assert drift() == []
    for each in command.split(";"):
        run(*each.split())
    seen = drift()
    print(seen)
    assert seen
    if "up0 down" in command:  # the administrator's own, which went with the uplink
        site.node.address("up0", "2001:db8:f::2/64")
        site.defaults("up0")
        site.prompt("up0")
    mend()
    assert drift() == []
    assert diff(whole, {**snapshot(), "files": whole["files"]}) == []  # the record tells anew what repair found
    assert reaches(guest, FAR4, FAR6) == [FAR4, FAR6]
    site.down(nic)
    assert diff(before, snapshot()) == []


def test_the_last_one_puts_the_switch_back(site: Site) -> None:
    first, second = site.nic(0, IP=HOST6), site.nic(1, IP="2001:db8:f::6")
    site.tap("tap0"), site.tap("tap1")
    before = site.before()
    site.up(first), site.up(second)
    assert (sysctl(SWITCH), proxies("up0")) == ("1", [(HOST6, "174"), ("2001:db8:f::6", "174")])
    site.down(first)
    assert (sysctl(SWITCH), proxies("up0"), drift()) == ("1", [("2001:db8:f::6", "174")], [])
    site.down(second)
    assert sysctl(SWITCH) == "0"
    assert [line for line in diff(before, snapshot()) if "tap1" not in line] == []


def test_the_administrators_stay(site: Site) -> None:
    """A switch that was on, and an entry that was there: neither restamped nor removed."""
    site.tap("tap0")
    sysctl(SWITCH, "1")
    run("ip", "-6", "neighbour", "add", "proxy", HOST6, "dev", "up0", "protocol", "static")
    before = site.before()
    nic = site.nic(IP=HOST6)
    for _ in range(2):
        site.up(nic)
        assert (sysctl(SWITCH), proxies("up0"), drift()) == ("1", [(HOST6, "static")], [])
    site.down(nic)
    assert diff(before, snapshot()) == []


def test_what_somebody_restamped_is_theirs(site: Site) -> None:
    site.tap("tap0")
    nic = site.nic(IP=HOST6)
    site.up(nic)
    run("ip", "-6", "neighbour", "replace", "proxy", HOST6, "dev", "up0", "protocol", "static")
    site.down(nic)
    assert proxies("up0") == [(HOST6, "static")]


def test_an_address_that_another_guest_took(site: Site) -> None:
    """The late down of the first takes nothing from the second."""
    site.tap("tap0")
    guest = site.tap("tap1", "aa:00:00:00:00:01")
    site.guest(HOST6, gateways=[GATEWAY6], name="tap1")
    first, second = site.nic(0, IP=HOST6, TAGS="netcommon:0:blackhole"), site.nic(1, IP=HOST6, TAGS="netcommon:1:blackhole")
    site.up(first)
    done = rundoor("kvm-ifup", second)
    assert done.status == 0 and "leads to tap0, where web1/0 is up: two NICs have one address" in done.stderr
    site.down(first)
    assert (proxies("up0"), sysctl(SWITCH)) == ([(HOST6, "174")], "1")
    assert reaches(guest, FAR6) == [FAR6] and reaches(site.router, HOST6) == [HOST6]
    assert "blackhole" in run("ip", "-6", "route", "show", "table", TABLE)
    site.down(second)
    assert (proxies("up0"), sysctl(SWITCH), run("ip", "-6", "route", "show", "table", TABLE).count("proto 174")) == ([], "0", 0)


def test_no_uplink_yet(node: Node) -> None:
    """The guest comes up before the default route does: said, seen by check once there is one, and mended."""
    site = Site(node, "")
    site.guest(HOST6, gateways=[GATEWAY6])
    site.before()
    run("ip", "-6", "route", "delete", "default")
    before = snapshot()
    nic = site.nic(IP=HOST6)
    assert "has no IPv6 default route" in rundoor("kvm-ifup", nic).stderr
    assert (proxies("up0"), sysctl(SWITCH), drift()) == ([], "0", [])
    site.defaults("up0")
    assert [line.partition(": ")[2] for line in drift()] == ["uplink is up0 now, not nothing"] * 2
    mend()
    assert (drift(), reaches(site.router, HOST6)) == ([], [HOST6])
    run("ip", "-6", "route", "delete", "default")
    assert drift() == [] and "as it should be" in mend()[0]  # a default route that is gone for now takes nothing with it
    assert proxies("up0") == [(HOST6, "174")]
    site.down(nic)
    assert diff(before, snapshot()) == []


def test_an_uplink_that_comes_back_as_another_device(site: Site) -> None:
    site.guest(HOST6, gateways=[GATEWAY6])
    site.before()
    nic = site.nic(IP=HOST6)
    site.up(nic)
    run("ip", "link", "delete", "up0")
    site.node.wire("up0", site.router)
    site.router.run("ip", "address", "add", f"{GATEWAY6}/64", "dev", "eth0", "nodad")
    site.node.address("up0", "192.0.2.2/24", "2001:db8:f::2/64")
    site.defaults("up0")
    assert drift()
    mend()
    assert (drift(), proxies("up0"), sysctl(SWITCH), reaches(site.router, HOST6)) == ([], [(HOST6, "174")], "1", [HOST6])
    site.down(nic)
    assert (proxies("up0"), sysctl(SWITCH)) == ([], "0")


@pytest.mark.parametrize("door", ["repair", "up"])
def test_the_default_route_moves(site: Site, door: str) -> None:
    """To another uplink: the entry follows, and what was made on the first is undone."""
    site.tap("tap0")
    other = site.node.outside("up1", f"{GATEWAY4}/24", f"{GATEWAY6}/64")
    site.prompt("up1")
    before = site.before()
    nic = site.nic(IP=HOST6)
    site.up(nic)
    run("ip", "-6", "route", "replace", "default", "via", ROUTER, "dev", "up1", "table", TABLE)
    assert [line.partition(": ")[2] for line in drift()] == ["uplink is up1 now, not up0"] * 2
    mend() if door == "repair" else site.up(nic)
    assert (drift(), proxies("up0"), proxies("up1")) == ([], [], [(HOST6, "174")])
    assert (sysctl(SWITCH), sysctl("net/ipv6/conf/up1/proxy_ndp")) == ("0", "1")
    assert reaches(other, HOST6) == []  # it has no way back, but it has found the node
    assert "lladdr" in other.run("ip", "-6", "neighbour", "show", HOST6)
    site.down(nic)
    run("ip", "-6", "route", "replace", "default", "via", GATEWAY6, "dev", "up0", "onlink", "table", TABLE)
    assert diff(before, snapshot()) == []


@pytest.mark.parametrize("several", ["metrics", "multipath"])
def test_several_default_routes(site: Site, several: str) -> None:
    """Each uplink answers."""
    site.tap("tap0")
    site.node.outside("up1")
    before = site.before()
    words = ["ip", "-6", "route"]
    if several == "metrics":
        run(*words, "add", "default", "via", ROUTER, "dev", "up1", "table", TABLE, "metric", "2000")
    else:
        paths = [word for uplink in ("up0", "up1") for word in ("nexthop", "via", ROUTER, "dev", uplink)]
        run(*words, "replace", "default", "table", TABLE, *paths)
    nic = site.nic(IP=HOST6)
    site.up(nic)
    assert (proxies("up0"), proxies("up1"), drift()) == ([(HOST6, "174")], [(HOST6, "174")], [])
    run(*words, "delete", "default", "table", TABLE)
    if several == "metrics":  # the first is gone, the second is left
        assert [line.partition(": ")[2] for line in drift()] == ["uplink is up1 now, not up0, up1"] * 4
        mend()
        assert (proxies("up0"), proxies("up1"), sysctl(SWITCH)) == ([], [(HOST6, "174")], "0")
        run(*words, "delete", "default", "table", TABLE)
    site.down(nic)
    site.defaults("up0")
    assert diff(before, snapshot()) == []


@pytest.mark.no_agent("about gc: an agent undoes at once what is left of a NIC whose device has gone")
@pytest.mark.parametrize("option", ["blackhole", "blackhole:false"])
def test_gc_after_everything_died(site: Site, option: str) -> None:
    """The device goes and nobody calls: the blackhole stands in for the guest, where without it the packets go back to the router."""
    site.guest(HOST4, HOST6)
    site.before()
    nic = site.nic(IP=HOST4, TAGS=f"netcommon:*:{option} " + EVERYTHING.replace("netcommon:0:blackhole", ""))
    site.up(nic)
    run("ip", "link", "delete", "tap0")
    ways = []
    for family, address, router in (("-4", HOST4, FAR4), ("-4", "10.1.0.1", FAR4), ("-6", HOST6, FAR6), ("-6", "2001:db8:1::1", FAR6)):
        way = run("ip", family, "route", "get", address, "from", router, "iif", "up0", check=False)
        ways.append("dev up0" in way)
    assert ways == [option != "blackhole"] * 4
    assert reaches(site.router, HOST4, HOST6) == []
    collect()
    left = [line for family in ("-4", "-6") for line in run("ip", family, "route", "show", "table", "all").splitlines()]
    left += [line for family in ("-4", "-6") for line in run("ip", family, "-d", "rule").splitlines()]
    assert [line for line in left if "proto 174" in line] == []
    assert (proxies("up0"), sysctl(SWITCH)) == ([], "0")


def test_entries_of_no_record(site: Site) -> None:
    """gc finds them by the mark."""
    run("ip", "-6", "neighbour", "add", "proxy", HOST6, "dev", "up0", "protocol", "174")
    run("ip", "-6", "neighbour", "add", "proxy", "2001:db8:f::6", "dev", "up0", "protocol", "static")
    run("ip", "-6", "route", "add", "blackhole", f"{HOST6}/128", "table", TABLE, "metric", "1025", "protocol", "174")
    run("ip", "-6", "route", "add", "blackhole", "2001:db8:f::6/128", "table", TABLE, "metric", "7", "protocol", "174")
    found = collect()
    assert sorted(found) == [f"removed blackhole {HOST6}/128 in table {TABLE}", f"removed proxy neighbour {HOST6} on up0"]
    assert proxies("up0") == [("2001:db8:f::6", "static")]
    assert "blackhole 2001:db8:f::6" in run("ip", "-6", "route", "show", "table", TABLE)


@pytest.fixture
def elsewhere(site: Site) -> Site:
    """A site whose table main leads to another network, by ``up1``, and whose guests' table has nothing but its default routes."""
    for family in ("-4", "-6"):
        run("ip", family, "rule", "del", "iif", "up0", "lookup", TABLE)
    site.node.outside("up1", "203.0.113.1/24", "2001:db8:e::1/64")
    site.node.address("up1", "203.0.113.2/24", "2001:db8:e::2/64")
    run("ip", "-4", "route", "add", "default", "via", "203.0.113.1")
    run("ip", "-6", "route", "add", "default", "via", "2001:db8:e::1")
    return site


@pytest.mark.parametrize("what", ["route", "link"])
def test_a_default_route_that_goes_for_a_moment(elsewhere: Site, what: str) -> None:
    """Alone, or with its link, which takes the entries too: nothing moves to table main's uplink, and all is good again after it."""
    site = elsewhere
    site.tap("tap0")
    before = site.before()
    nic = site.nic(IP=HOST4, TAGS=options(f"addresses:{HOST6}", "uplink_proxy:both"))
    site.up(nic)
    for _ in range(3):
        if what == "route":
            run("ip", "-4", "route", "flush", "table", TABLE, "exact", "default")
            run("ip", "-6", "route", "delete", "default", "table", TABLE)
            assert drift() == [] and "as it should be" in mend()[0]
        else:
            run("ip", "link", "set", "up0", "down")
            mend()
            assert drift() == []
        assert rundoor("kvm-ifup", nic).status == 0
        assert (proxies("up1"), sysctl("net/ipv6/conf/up1/proxy_ndp")) == ([], "0")
        if what == "link":
            run("ip", "link", "set", "up0", "up")
            site.node.address("up0", "2001:db8:f::2/64")
        site.defaults("up0")
        assert (drift(), proxies("up0"), sysctl(SWITCH)) == ([], [(HOST4, "174"), (HOST6, "174")], "1")
    site.down(nic)
    assert diff(before, snapshot()) == []


def test_neighbours_verify_what_they_know(site: Site) -> None:
    """By solicitations to the one address: the kernel answers those for others with all.proxy_ndp alone, which up and doctor ask for."""
    guest = site.guest(HOST6, gateways=[GATEWAY6])
    everywhere = "net/ipv6/conf/all/proxy_ndp"
    sysctl(everywhere, "0")
    nic = site.nic(IP=HOST6)
    assert "net.ipv6.conf.all.proxy_ndp is 0" in rundoor("kvm-ifup", nic).stderr
    assert reaches(site.router, HOST6) == [HOST6] and reaches(guest, FAR6) == [FAR6]
    assert (verifies(site.router, HOST6), verifies(guest, GATEWAY6)) == (False, False)
    (finding,) = [one for one in findings(Paths()) if "all.proxy_ndp is 0" in one.text]
    run(*finding.remedy.partition(",")[0].split())
    assert sysctl(everywhere) == "1" and not [one for one in findings(Paths()) if "all.proxy_ndp is 0" in one.text]
    assert reaches(site.router, HOST6) == [HOST6] and reaches(guest, FAR6) == [FAR6]
    assert (verifies(site.router, HOST6), verifies(guest, GATEWAY6)) == (True, True)
    site.up(nic)


@pytest.mark.parametrize("compat", ["0", "1"], ids=["by id alone", "compatible"])
@pytest.mark.parametrize("group", [False, True], ids=["one", "group"])
def test_default_routes_by_nexthop_id(site: Site, compat: str, group: bool) -> None:
    """The kernel tells no device with such a route where it is not to be compatible: the nexthop has it, or the members of its group."""
    site.tap("tap0")
    site.node.outside("up1")
    sysctl("net/ipv4/nexthop_compat_mode", compat)
    run("ip", "nexthop", "add", "id", "4", "via", GATEWAY4, "dev", "up0", "onlink")
    run("ip", "nexthop", "add", "id", "6", "via", GATEWAY6, "dev", "up0")
    run("ip", "nexthop", "add", "id", "44", "via", GATEWAY4, "dev", "up1", "onlink")
    run("ip", "nexthop", "add", "id", "66", "via", ROUTER, "dev", "up1")
    run("ip", "nexthop", "add", "id", "40", "group", "4/44")
    run("ip", "nexthop", "add", "id", "60", "group", "6/66")
    before = site.before()
    for family, one in (("-4", "4"), ("-6", "6")):
        run("ip", family, "route", "delete", "default", "table", TABLE)
        run("ip", family, "route", "add", "default", "nhid", f"{one}0" if group else one, "table", TABLE)
        run("ip", family, "rule", "del", "iif", "up0", "lookup", TABLE)
    nic = site.nic(IP=HOST4, TAGS=options(f"addresses:{HOST6}", "uplink_proxy:both"))
    site.up(nic)
    wanted = [(HOST4, "174"), (HOST6, "174")]
    assert (proxies("up0"), proxies("up1"), drift()) == (wanted, wanted if group else [], [])
    for each in ("4", "6") if not group else ():  # the nexthop moves, and the route that names it is as before
        run("ip", "nexthop", "replace", "id", each, *("via", GATEWAY4 if each == "4" else ROUTER, "dev", "up1", "onlink"))
    if not group:
        assert {line.partition(": ")[2] for line in drift()} == {"uplink is up1 now, not up0"}
        mend()
        assert (proxies("up0"), proxies("up1"), drift()) == ([], wanted, [])
    site.down(nic)
    assert (proxies("up0"), proxies("up1")) == ([], [])
    for family in ("-4", "-6"):
        run("ip", family, "route", "delete", "default", "table", TABLE)
        run("ip", family, "rule", "add", "iif", "up0", "lookup", TABLE, "preference", "400")
    site.defaults("up0")
    assert diff(before, snapshot()) == []


@pytest.mark.parametrize("port", ["ovs0", "mgmt0"], ids=["local", "internal"])
def test_an_uplink_of_the_switch_that_forwards_itself(node: Node, ovs: OpenVswitch, port: str) -> None:
    """An internal port is a tap there, which vswitchd holds: no guest is behind it."""
    router = node.outside("wire0", f"{GATEWAY4}/24", f"{GATEWAY6}/64")
    ovs.bridge("ovs0", "wire0")
    if port != "ovs0":
        ovs.vsctl("add-port", "ovs0", port, "--", "set", "Interface", port, "type=internal")
        run("ip", "link", "set", port, "up")
    assert "tun" in run("ip", "-d", "link", "show", port)
    node.address(port, "192.0.2.2/24", "2001:db8:f::2/64")
    node.forwarding(ipv6=True)
    run("ip", "-4", "route", "add", "default", "via", GATEWAY4)
    run("ip", "-6", "route", "add", "default", "via", GATEWAY6)
    sysctl(f"net/ipv6/neigh/{port}/proxy_delay", "0")
    guest = Namespace()
    try:
        run("ip", "link", "add", "tap0", "type", "veth", "peer", "name", "eth0", "address", MAC, "netns", guest.path)
        guest.run("ip", "link", "set", "eth0", "up")
        guest.run("ip", "address", "add", f"{HOST6}/128", "dev", "eth0", "nodad")
        guest.run("ip", "-6", "route", "add", "default", "via", GATEWAY6, "dev", "eth0", "onlink")
        network = {"NETWORK_NAME": "guests", "NETWORK_SUBNET6": "2001:db8:f::/64", "NETWORK_GATEWAY6": GATEWAY6}
        nic = environment(IP=HOST6, MAC=MAC, **network)
        del nic["LINK"]  # its table is main
        done = rundoor("kvm-ifup", nic)
        assert (done.status, done.stderr) == (0, "")
        assert (proxies(port), drift()) == ([(HOST6, "174")], [])
        assert reaches(router, HOST6) == [HOST6]
        guests = node.tap("tap7")  # of a guest on the same switch, without our mark: it is no uplink
        ovs.vsctl("add-port", "ovs0", guests.name)
        run("ip", "link", "set", guests.name, "up")
        run("ip", "-6", "route", "replace", "default", "via", ROUTER, "dev", guests.name)
        mend()
        assert (proxies(guests.name), proxies(port)) == ([], [(HOST6, "174")])
    finally:
        guest.close()
