"""Say what the sources of a simulated node tell, and what they leave out. That it is what the kernel's tell, the contract suite holds."""

from __future__ import annotations

import errno

import pytest

from netagent.events import (
    ADDRESS,
    BASE,
    FLOWS,
    INDEX,
    MAC,
    NAME,
    PORTS,
    SETTINGS,
    SWITCH,
    TABLE,
    UPLINKS,
    VLAN,
    Came,
    Changed,
    Event,
    Gone,
    LinkGone,
    Mark,
)
from netagent.sources.simulated import SimulatedFlows, SimulatedKernel, SimulatedNft, SimulatedOvs
from netcommon.host.api.facts import AF_INET, AF_INET6, FLOW_MARK, OVS_MARK, PROTOCOL, REST, Address, BridgeVlan, Link, OvsPort, Route, Rule
from netcommon.host.api.nftables import NETDEV, Drop, NftChain, NftRule, NftTable, Put
from netcommon.host.api.requests import (
    AddAddress,
    AddFdb,
    AddRoute,
    AddRule,
    AddVlan,
    DeleteFlows,
    DeleteOvsPort,
    DeleteRoute,
    DeleteRule,
    NftChange,
    PutFlows,
    PutOvsPort,
    Request,
    SetLink,
    SetSysctl,
)
from netcommon.host.simulated.host import MemoryHost

MINE, THEIRS = NftTable(NETDEV, "netcommon-x"), NftTable(NETDEV, "docker")


@pytest.fixture
def host() -> MemoryHost:
    """A node with br0 and tap0, both down."""
    made = MemoryHost()
    made.add_bridge("br0", up=False)
    made.add_tap("tap0", 4711)
    return made


@pytest.fixture
def kernel(host: MemoryHost) -> SimulatedKernel:
    return SimulatedKernel(host.tell)


def index(host: MemoryHost, name: str) -> int:
    return host.kernel.index_of(name)


def after(host: MemoryHost, source: SimulatedKernel | SimulatedNft | SimulatedOvs | SimulatedFlows, *requests: Request) -> list[Event]:
    """Give what a source tells of requests that are carried out."""
    assert all(answer.ok for answer in host.execute(requests, stop=True))
    return source.read()


def test_a_tap_comes_joins_a_bridge_and_goes(host: MemoryHost, kernel: SimulatedKernel) -> None:
    """With all that goes with it: its port, its entry, its addresses and routes; a rule that names it stays, and nothing is said of it."""
    tap = host.add_tap("tap1", 4711).index
    assert kernel.read() == [
        Changed(((INDEX, tap), (SETTINGS, tap))),
        Changed(((INDEX, tap), (NAME, "tap1"))),
        Came(((BASE, "tap1"), (NAME, "tap1"))),
    ]
    found = after(host, kernel, SetLink(tap, up=True, master=index(host, "br0")), AddFdb(tap, "fe:00:00:00:00:01"))
    assert {Changed(((INDEX, tap),)), Changed(((MAC, "fe:00:00:00:00:01"),)), Changed(())} <= set(found)
    after(host, kernel, AddAddress(Address(AF_INET, "10.0.0.1", 32, tap)), AddRoute(Route(AF_INET6, 254, "fd00::5/128", tap)))
    after(host, kernel, AddRule(Rule(AF_INET, 100, "tap1", 100)))
    host.let_go("tap1")
    found = kernel.read()
    assert found[-1] == LinkGone(tap)
    assert found.count(Gone(((INDEX, tap),))) == 5  # its port, an entry of VLAN 1 and one without, and both of its addresses
    assert Gone(((INDEX, tap), (ADDRESS, "fd00::5/128"))) in found
    assert not [event for event in found if isinstance(event, Gone) and (NAME, "tap1") in event.marks]


def test_what_the_filter_leaves_out(host: MemoryHost, kernel: SimulatedKernel) -> None:
    """Routes of others but to single addresses, those of the kernel, and our own when they are new."""
    tap = index(host, "tap0")
    after(host, kernel, SetLink(tap, up=True))
    ours = Route(AF_INET, 100, "10.0.0.5/32", tap)
    assert after(host, kernel, AddRoute(ours), AddRoute(ours._replace(destination="10.9.0.0/24", protocol=186))) == []
    assert after(host, kernel, AddRoute(ours._replace(destination="10.0.0.6/32", protocol=2))) == []
    assert after(host, kernel, AddRoute(ours._replace(family=AF_INET6, destination="fd00::/32", protocol=186, scope=0))) == []
    single = ours._replace(destination="10.0.0.7/32", protocol=186)
    assert after(host, kernel, AddRoute(single)) == [Changed(((ADDRESS, "10.0.0.7/32"),))]
    assert after(host, kernel, DeleteRoute(single)) == [Came(((ADDRESS, "10.0.0.7/32"),))]
    assert after(host, kernel, DeleteRoute(ours)) == [Gone(((INDEX, tap), (ADDRESS, "10.0.0.5/32")))]
    default = ours._replace(destination="0.0.0.0/0", protocol=4)
    rest = Route(AF_INET6, 254, "fd00:1:2:3::/64", 0, protocol=4, scope=0, metric=REST, type=7)
    mark = (ADDRESS, "fd00:1:2:3::/64")
    assert after(host, kernel, AddRoute(rest), DeleteRoute(rest)) == [Changed((mark,)), Came((mark,))]
    assert after(host, kernel, AddRoute(default), DeleteRoute(default)) == [Came(((UPLINKS, AF_INET),)), Gone(((UPLINKS, AF_INET),))]


def test_what_is_no_change_is_not_told(host: MemoryHost, kernel: SimulatedKernel) -> None:
    tap, bridge = index(host, "tap0"), index(host, "br0")
    again = [SetLink(tap, mtu=1400, master=bridge), SetSysctl("net/ipv4/conf/tap0/proxy_arp", "1")]
    assert len(after(host, kernel, *again)) > 2
    assert after(host, kernel, *again, SetSysctl("net/ipv4/conf/tap0/send_redirects", "0")) == []


def test_others_rules_are_ways_in(host: MemoryHost, kernel: SimulatedKernel) -> None:
    rule = Rule(AF_INET, 100, "eth0", 100, protocol=4)
    ways = ((NAME, "eth0"), (UPLINKS, AF_INET))
    assert after(host, kernel, AddRule(rule), DeleteRule(rule)) == [Changed(ways), Gone(ways), Came(((NAME, "eth0"),))]
    assert after(host, kernel, AddRule(rule._replace(protocol=PROTOCOL))) == [Changed(((NAME, "eth0"),))]


def test_uplinks_and_vlan_interfaces(host: MemoryHost, kernel: SimulatedKernel) -> None:
    bridge = index(host, "br0")
    host.add_link(Link(0, "eth0", master=bridge))
    assert Came(((PORTS, bridge),)) in kernel.read()
    made = host.add_link(Link(0, "eth0.5", "vlan", vlan=5, lower=index(host, "eth0")))
    assert Changed(((VLAN, (0, 5)),)) in kernel.read()
    host.remove_link("eth0")  # the VLAN interface goes with it
    found = kernel.read()
    assert LinkGone(made.index) in found and Gone(((VLAN, (0, 5)),)) in found


def test_vlans_of_bridges_and_their_ports(host: MemoryHost, kernel: SimulatedKernel) -> None:
    """A bridge is in its default VLAN itself, and in the first one before that; what is no change is not told."""
    bridge, tap = host.add_bridge("br4", vlan_filtering=True, default_pvid=4).index, index(host, "tap0")
    assert of_vlans(kernel.read()) == [Changed(vlan(bridge, 1)), Gone(vlan(bridge, 1)), Changed(vlan(bridge, 4))]
    assert of_vlans(after(host, kernel, SetLink(tap, master=bridge))) == [Changed(vlan(tap, 4))]
    ten = AddVlan(tap, BridgeVlan(10, pvid=True))
    assert of_vlans(after(host, kernel, ten, ten, AddVlan(tap, BridgeVlan(4, untagged=True)))) == [Changed(vlan(tap, 10))]
    assert of_vlans(after(host, kernel, SetLink(tap, master=0))) == [Gone(vlan(tap, 4)), Gone(vlan(tap, 10))]
    host.remove_link("br4")
    assert of_vlans(kernel.read()) == [Gone(vlan(bridge, 4))]


def test_a_kernel_that_knows_no_vlans(host: MemoryHost, kernel: SimulatedKernel) -> None:
    host.kernel.has_vlans = False
    bridge, tap = host.add_bridge("br4").index, index(host, "tap0")
    assert of_vlans(after(host, kernel, SetLink(tap, master=bridge), AddFdb(tap, "fe:00:00:00:00:01"))) == []
    assert [answer.errno for answer in host.execute([AddVlan(tap, BridgeVlan(10))], stop=True)] == [errno.EOPNOTSUPP]
    assert of_vlans(kernel.read()) == [] and host.view().vlans(bridge) == host.view().vlans(tap) == []


def test_the_first_vrf_brings_rules(host: MemoryHost, kernel: SimulatedKernel) -> None:
    """They stay when it goes, and the next one brings none."""
    for number, told in ((1300, 2), (1301, 0)):
        host.add_link(Link(0, "blue", "vrf", table=number))
        assert kernel.read().count(Changed(())) == told
        host.remove_link("blue")
        assert Changed(()) not in kernel.read()
    assert [rule.preference for rule in host.kernel.rules].count(1000) == 2


def vlan(device: int, vid: int) -> tuple[Mark, ...]:
    return (VLAN, (device, vid)), (VLAN, (device, 0))


def of_vlans(events: list[Event]) -> list[Event]:
    """Leave out what is about no VLAN of a bridge's."""
    return [event for event in events if isinstance(event, Changed | Gone) and event.marks and event.marks[0][0] == VLAN]


def test_nothing_is_read_to_tell_it(host: MemoryHost) -> None:
    """Neither the host's views nor, where nobody listens, anything at all."""
    calls = list[str]()
    kernel, nft = SimulatedKernel(host.tell, lambda: calls.append("kernel")), SimulatedNft(host.tell, lambda: calls.append("nft"))
    reads = host.reads
    assert after(host, kernel, SetLink(index(host, "tap0"), up=True)) and calls and set(calls) == {"kernel"}
    assert after(host, nft, NftChange("a test", (Put(MINE),))) == [Changed(((TABLE, (NETDEV, "netcommon-x")),))] and "nft" in calls
    assert host.reads == reads
    for source in (kernel, nft):
        source.close()
    del calls[:]
    host.remove_link("tap0")
    assert (host.tell.hearers, calls, kernel.read(), nft.read()) == ([], [], [], [])


def test_tables_of_ours_that_others_change(host: MemoryHost) -> None:
    """Leave out what a socket of our own asked for, others' tables, and what is refused."""
    nft = SimulatedNft(host.tell, own={7})
    assert after(host, nft, NftChange("a test", (Put(THEIRS), Put(MINE)))) == [Changed(((TABLE, (NETDEV, "netcommon-x")),))]
    host.tell.by = 7
    assert after(host, nft, NftChange("a test", (Drop(MINE), Put(MINE)))) == []
    host.tell.by = 8
    assert after(host, nft, NftChange("a test", (Drop(MINE), Put(THEIRS)))) == [Gone(((TABLE, (NETDEV, "netcommon-x")),))]
    (answer,) = host.execute([NftChange("a test", (Put(MINE), Put(NftRule(NETDEV, "netcommon-x", "none", b""))))], stop=True)
    assert not answer.ok and nft.read() == []
    host.execute([NftChange("a test", (Put(MINE), Put(NftChain(NETDEV, "netcommon-x", "in-5"))))], stop=True)
    assert Changed(((INDEX, 5),)) in nft.read()
    host.nftables.flush()
    assert nft.read() == [Gone(((INDEX, 5),)), Gone(((TABLE, (NETDEV, "netcommon-x")),))]


def test_open_vswitch(host: MemoryHost) -> None:
    """Connections are there when the daemons are; flows of ours that go, or that others change."""
    ovs = SimulatedOvs(host.tell, host.switch)
    assert not ovs.open() and not ovs.connected
    host.add_ovs_bridge("ovs0")
    flows = SimulatedFlows(host.tell, host.switch, "ovs0", ovs.numbered)
    assert ovs.open() and flows.open() and ovs.subscribed and flows.connected
    port = OvsPort("tap0", "ovs0", external_ids=((OVS_MARK, "uuid-1"),))
    assert after(host, ovs, PutOvsPort(port)) == [Changed(((NAME, "tap0"),))]  # its number; that it came is its own NIC's affair
    cookie = FLOW_MARK | 5
    assert after(host, flows, PutFlows("ovs0", "tap0", cookie, ("actions=drop",))) == []
    host.openflow.add(host.openflow.all[0]._replace(cookie=9))
    assert flows.read() == [Changed(((NAME, "tap0"),))]
    assert after(host, flows, DeleteFlows("ovs0", cookie)) == [Gone(((FLOWS, ("ovs0", cookie)),))]
    after(host, flows, PutFlows("ovs0", "tap0", cookie, ("actions=drop",)))
    host.openflow.sweep("ovs0")
    assert flows.read() == [Gone(((FLOWS, ("ovs0", cookie)),)), Gone(((SWITCH, "ovs0"),))]
    host.execute([PutOvsPort(port._replace(tag=5))], stop=True)
    assert after(host, ovs, DeleteOvsPort("tap0", "uuid-1")) == [Changed(((NAME, "tap0"),)), Gone(((NAME, "tap0"),))]
    host.switch.condition = host.switch.condition._replace(database=False)
    ovs.close()
    assert not ovs.open()
