"""netcommon trace on simulated nodes: the guard's verdicts are those of the table that its own tests have, and frames end where they do."""

from __future__ import annotations

import ipaddress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netcommon.host.api.datapath import BridgeState
from netcommon.host.api.facts import AF_INET, AF_INET6, Address, BridgeVlan, Link, Neighbour, Route, Rule
from netcommon.host.api.nftables import BRIDGE, INET, NETDEV, NftChain, NftElement, NftRule, NftSet, NftTable, Put
from netcommon.host.api.requests import AddFdb, NftChange, SetLink, SetPort
from netcommon.host.nftables.expressions import JUMP, expression, load, meta, verdict, within
from netcommon.settings.model import Settings
from netcommon.views.trace.frame import FROM_GUEST, TO_GUEST, Wanted, build
from netcommon.views.trace.netfilter import INET_INGRESS, IP, IP6
from netcommon.views.trace.nft_eval import Devices, Ruleset
from netcommon.views.trace.packet import IPV4, IPV6, Packet
from netcommon.views.trace.request import Subject, frame, subject, trace
from netcommon.views.trace.trail import DROPS, OURS, OUTSIDE, UNTOLD, Arrival
from netcommon.views.trace.trail import Path as Way
from runtime.environment import nic_from_environment
from runtime.errors import HostRefused, NicInvalid
from tests.kernel.guard.limits import allowed
from tests.kernel.guard.reach import EVERYWHERE, reached
from tests.support.attacks import ENDS, GROUPS, KINDS, NO_GUARD, SETTINGS, Setting
from tests.support.attacks_base import HOST4, HOST6, HOST_MAC, MAC, OUT4, OUT6, OUT_MAC, PEER4, PEER6, PEER_MAC, To, raw
from tests.support.sim import Sim, nic

UUID = "5d2c0d6e-0000-4000-8000-000000000001"
MODES = {"bridged": {"MODE": "bridged", "LINK": "br9"}, "routed": {"MODE": "routed", "LINK": ""}}
CASES = [(mode, each) for mode in MODES for each in SETTINGS if mode == "bridged" or each.ip or "addresses" in each.tags]


def placed(sim: Sim, mode: str, setting: Setting) -> None:
    """The guest of the guard's tests on tap0, another one on tap1, the world outside at up0: as in tests/kernel/guard/networks.py."""
    host = sim.host
    bridge = host.add_bridge("br9")
    host.kernel.set_link(SetLink(bridge.index, address=HOST_MAC))
    host.kernel.bridge_states[bridge.index] = BridgeState(snooping=False)
    uplink = host.add_link(Link(0, "up0", up=True, master=bridge.index if mode == "bridged" else 0))
    peer = host.add_tap("tap1", 77, master=bridge.index if mode == "bridged" else 0)
    host.kernel.set_link(SetLink(peer.index, up=True))
    tags = f"{setting.tags} netcommon:0:tap_mac:{HOST_MAC}"
    names = {"INTERFACE": "tap0", "MAC": MAC, "IP": setting.ip, "INSTANCE": "web1", "INTERFACE_INDEX": "0", "INTERFACE_UUID": UUID}
    said = {**names, "TAGS": tags, **MODES[mode]}
    sim.up(nic_from_environment({"VLAN": "", **{name: value for name, value in said.items() if value}}))
    if mode == "bridged":
        for mac, index in ((PEER_MAC, peer.index), (OUT_MAC, uplink.index)):
            assert host.execute([AddFdb(index, mac, 0)], stop=True)[0].ok
        return
    kernel = host.kernel
    kernel.routes[:] = [route for route in kernel.routes if route.protocol == 174]
    for family, mine, theirs, out in ((AF_INET, HOST4, PEER4, OUT4), (AF_INET6, HOST6, PEER6, OUT6)):
        length = 32 if family == AF_INET else 128
        kernel.addresses.append(Address(family, mine, 24 if family == AF_INET else 64, uplink.index))
        kernel.routes.append(Route(family, 254, f"{theirs}/{length}", peer.index, 3))
        kernel.routes.append(Route(family, 254, f"{out}/{length}", uplink.index, 3))
        kernel.routes.append(Route(family, 254, "0.0.0.0/0" if family == AF_INET else "::/0", uplink.index, 3, 0, out))
    for path in ("net/ipv4/conf/tap0/forwarding", "net/ipv6/conf/all/forwarding"):
        kernel.settings.write(path, "1")


def walked(sim: Sim, data: bytes, device: str = "tap0", way: str = FROM_GUEST) -> Way:
    return trace(sim.host.snapshot(), of_device(sim, device), way, data, {})


def of_device(sim: Sim, device: str = "tap0") -> Subject:
    records = sim.records()
    return subject(next(record for record in records if record.device == device), records)


def guard(sim: Sim, data: bytes) -> bool:
    """Whether the rules on tap0 let it pass."""
    view = sim.host.snapshot()
    (chain,) = (each for each in view.nft_chains(NETDEV) if each.device == "tap0")
    judged = Ruleset(view).judge(chain, Packet(data), Devices(sim.index("tap0")))
    assert judged.verdict, judged
    return judged.verdict == "accept"


@pytest.mark.parametrize(("mode", "setting"), CASES, ids=lambda value: value if isinstance(value, str) else value.name)
def test_the_guards_verdicts(sim: Sim, mode: str, setting: Setting) -> None:
    """Each kind of frame, each mode, each switch: the table that tests/kernel/guard/test_matrix.py holds the kernel to."""
    placed(sim, mode, setting)
    found = {kind.name: guard(sim, raw(kind, ENDS[0]._replace(number=1))) for kind in KINDS}
    assert found == {kind.name: allowed(mode, kind, ENDS[0].name, setting) for kind in KINDS}


def arrived(way: Way) -> frozenset[str]:
    """At which of the ends of the guard's tests."""
    found = {"peer" for end in way.ends if "tap1" in end and "receives" in end}
    found |= {"out" for end in way.ends if end.startswith("it leaves the node by up0")}
    return frozenset(found)


def beyond(names: frozenset[str]) -> frozenset[str]:
    """Those that are not the node itself, where programs may see frames that the node does nothing with."""
    return names - {"host"}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("setting", [NO_GUARD, SETTINGS[0]], ids=lambda setting: setting.name)
def test_where_frames_end(sim: Sim, mode: str, setting: Setting) -> None:
    """As bridges and routers do by themselves (tests/kernel/guard/reach.py, which holds them to it), where the guard lets it pass."""
    placed(sim, mode, setting)
    host_mac, of = mode == "routed", of_device(sim)  # no frame changes a NIC
    wrong = []
    for kind in KINDS:
        for to in (*GROUPS, *ENDS):
            aim: To = to._replace(number=1, mac=HOST_MAC) if host_mac and to in ENDS else to._replace(number=1)
            data = raw(kind, aim)
            way = trace(sim.host.snapshot(), of, FROM_GUEST, data, {})
            wanted = reached(mode, data, to.name) if allowed(mode, kind, to.name, setting) else frozenset[str]()
            if arrived(way) != beyond(wanted):
                wrong.append((kind.name, to.name, way.ends, wanted))
    assert wrong == []
    assert beyond(EVERYWHERE) < EVERYWHERE


# -- bridges


def aware(sim: Sim, vlan: str = ".10", **more: str) -> None:
    sim.up(nic("bridged", LINK="brv", VLAN=vlan, IP="10.0.0.5", **more))


def test_vlans_of_a_bridge(sim: Sim) -> None:
    """Untagged it is in the port's pvid, and leaves tagged; by the uplink it comes tagged, and is untagged for the guest."""
    aware(sim)
    records = sim.records()
    of, view = subject(records[0], records), sim.host.snapshot()
    out = trace(view, of, FROM_GUEST, frame(view, of, FROM_GUEST, Wanted(), {}), {})
    assert out.ends == ("it leaves the node by eth-brv, tagged VLAN 10",)
    assert any(step.meets == "bridge vlan of tap0" and "VLAN 10, the port's pvid" in step.does for step in out.steps)
    back = trace(view, of, TO_GUEST, frame(view, of, TO_GUEST, Wanted(), {}), {})
    assert Packet(bytes.fromhex(back.bytes)).vid == 10
    assert back.ends == ("web1/0 receives it, by tap0, untagged",)
    other = trace(view, of, TO_GUEST, frame(view, of, TO_GUEST, Wanted(vlan=77), {}), {})
    assert other.ends == ("dropped at eth-brv: the port is not in VLAN 77: it has 1, 10, 20",)


def test_a_vlan_that_the_uplink_does_not_carry(sim: Sim) -> None:
    aware(sim)
    sim.host.kernel.delete_vlan(sim.index("eth-brv"), 10)
    way = walked(sim, build(Wanted(MAC, source="10.0.0.5")))
    assert any("not there: that port is not in VLAN 10" in step.does for step in way.steps)
    assert way.ends == ("dropped at brv: there is no port that takes it",)


def test_isolated_ports_and_switched_off_ones(sim: Sim) -> None:
    aware(sim)
    for name in ("tap5", "tap6"):
        sim.host.add_tap(name, 5, master=sim.index("brv"))
        sim.host.kernel.add_vlan(sim.index(name), BridgeVlan(10, True, True))
        if name == "tap5":
            sim.host.kernel.set_link(SetLink(sim.index(name), up=True))
    for name in ("tap0", "tap5"):
        assert sim.host.execute([SetPort(sim.index(name), "isolated", True)], stop=True)[0].ok
    way = walked(sim, build(Wanted(MAC, source="10.0.0.5")))
    kept = {step.does for step in way.steps if step.does.startswith("not there")}
    assert kept == {"not there: both ports are isolated", "not there: that port is switched off"}
    assert way.ends == ("it leaves the node by eth-brv, tagged VLAN 10",)


def test_what_a_bridge_knows_goes_nowhere_else(sim: Sim) -> None:
    aware(sim)
    tap = sim.host.add_tap("tap5", 5, master=sim.index("brv"))
    sim.host.kernel.set_link(SetLink(tap.index, up=True))
    sim.host.kernel.add_vlan(tap.index, BridgeVlan(10, True, True))
    assert sim.host.execute([AddFdb(tap.index, PEER_MAC, 10)], stop=True)[0].ok
    way = walked(sim, build(Wanted(MAC, PEER_MAC, "10.0.0.5", "10.0.0.6")))
    assert way.ends == ("the guest of tap5 receives it, untagged",)


def with_state(sim: Sim, bridge: str, state: BridgeState) -> None:
    sim.host.kernel.bridge_states[sim.index(bridge)] = state


@pytest.mark.parametrize(
    ("state", "why"), [(BridgeState(mst=True), "multiple spanning trees"), (BridgeState(vlan_snooping=True), "it snoops by VLAN")]
)
def test_bridges_of_which_not_all_is_told(sim: Sim, state: BridgeState, why: str) -> None:
    aware(sim)
    data = build(Wanted(MAC, "01:00:5e:01:01:01", "10.0.0.5", "239.1.1.1"))
    assert walked(sim, data).untold == ()
    with_state(sim, "brv", state)
    assert [why in each for each in walked(sim, data).untold] == [True]


def test_the_bridges_own_address_in_each_vlan(sim: Sim) -> None:
    """Where the bridge is not in the VLAN its MAC is unknown there; unless its entries count for all VLANs (fdb_local_vlan_0)."""
    aware(sim)
    sim.host.kernel.set_link(SetLink(sim.index("brv"), address=HOST_MAC))
    data = build(Wanted(MAC, HOST_MAC, "10.0.0.5", "10.0.0.1"))
    assert walked(sim, data).ends == ("it leaves the node by eth-brv, tagged VLAN 10",)
    with_state(sim, "brv", BridgeState(local_vlan_0=True))
    assert walked(sim, data).ends == ("dropped at brv: the bridge's own device is not in VLAN 10",)
    sim.host.kernel.vlans[sim.index("brv")] = {10: BridgeVlan(10, untagged=True)}
    assert "the bridge's own device gets it untagged" in [step.does for step in walked(sim, data).steps]


def test_the_node_behind_its_bridge(sim: Sim) -> None:
    """A frame for the bridge's own MAC is the node's; there it is routed as any other."""
    sim.up(nic("bridged", IP="10.0.0.5"))
    bridge = sim.host.kernel.named("br0")
    assert bridge is not None
    sim.host.kernel.addresses.append(Address(AF_INET, "10.0.0.1", 24, bridge.index))
    mine = walked(sim, build(Wanted("aa:00:00:00:00:01", bridge.address, "10.0.0.5", "10.0.0.1")))
    assert mine.ends == ("the node itself, at br0",)
    sim.host.kernel.settings.write("net/ipv4/conf/br0/forwarding", "0")
    on = walked(sim, build(Wanted("aa:00:00:00:00:01", bridge.address, "10.0.0.5", "198.51.100.9")))
    assert on.ends == ("dropped at node: forwarding of br0 is 0: it is not for the node, and not routed on",)


# -- routing


def test_a_routed_guest_by_rule_table_and_route(sim: Sim) -> None:
    sim.up(nic("routed, table"))
    sim.host.kernel.settings.write("net/ipv4/conf/tap0/forwarding", "1")
    sim.host.kernel.add_route(Route(AF_INET, 100, "0.0.0.0/0", sim.index("eth-br0"), 3, 0, "192.0.2.1"))
    link = sim.host.kernel.named("tap0")
    assert link is not None
    way = walked(sim, build(Wanted("aa:00:00:00:00:01", link.address, "10.0.0.5", "198.51.100.9")))
    rule, route = (step for step in way.steps if step.meets.startswith(("ip rule", "route")))
    assert (rule.whose, rule.meets.endswith("iif tap0 lookup 100")) == (OURS, True)
    assert "leads to 192.0.2.1 by eth-br0" in route.does
    assert way.ends == ("it leaves the node by eth-br0 to 192.0.2.1",) and way.untold == ()
    blackhole = walked(sim, build(Wanted("aa:00:00:00:00:01", link.address, "10.0.0.5", "127.0.0.1")))
    assert "loopback" in blackhole.ends[0]


def test_rules_are_left_to_the_kernel(sim: Sim) -> None:
    """One that selects by more than the device: the kernel is asked for the way, and the rule is named only where it is understood."""
    sim.up(nic("routed, table"))
    kernel = sim.host.kernel
    kernel.settings.write("net/ipv4/conf/tap0/forwarding", "1")
    kernel.add_route(Route(AF_INET, 100, "0.0.0.0/0", sim.index("eth-br0"), 3, 0, "192.0.2.1"))
    kernel.rules.append(Rule(AF_INET, 5, "", 100, 4, False))
    way = walked(sim, build(Wanted("aa:00:00:00:00:01", kernel.links[sim.index("tap0")].address, "10.0.0.5", "198.51.100.9")))
    assert way.untold == () and way.arrivals == (Arrival("eth-br0", OUTSIDE),)
    assert [step.meets for step in way.steps if step.meets.startswith("ip rule")] == ["ip rule 500: iif tap0 lookup 100"]


def test_tables_by_mark(tmp_path: Path) -> None:
    """With [rules] mark one rule serves all NICs of a table: our chains mark what comes by their taps, ARP too."""
    sim = Sim(str(tmp_path), Settings(rule_mark=0xFF0000))
    sim.up(nic("routed, table"))
    kernel = sim.host.kernel
    for path in ("net/ipv4/conf/tap0/forwarding", "net/ipv4/conf/tap0/proxy_arp"):
        kernel.settings.write(path, "1")
    kernel.add_route(Route(AF_INET, 100, "198.51.100.0/24", sim.index("eth-br0"), 3, 0, "192.0.2.1"))
    way = walked(sim, build(Wanted("aa:00:00:00:00:01", kernel.links[sim.index("tap0")].address, "10.0.0.5", "198.51.100.9")))
    said = [step.does for step in way.steps]
    assert "gives it the mark 0x640000" in said and "looks up table 100" in said and way.untold == ()
    assert any("fwmark 0x640000/0xff0000 lookup 100" in step.meets and step.whose == OURS for step in way.steps)
    asks = build(Wanted("aa:00:00:00:00:01", "", "10.0.0.5", "198.51.100.9", arp=True))
    assert walked(sim, asks).ends == ("the node answers for 198.51.100.9, at tap0",)


RP_FILTER = [("1", True, "rp_filter of tap0"), ("2", True, "it leaves"), ("2", False, "rp_filter of tap0"), ("0", False, "it leaves")]


@pytest.mark.parametrize(("value", "numbered", "ends"), RP_FILTER)
def test_rp_filter(sim: Sim, value: str, numbered: bool, ends: str) -> None:
    sim.up(nic("routed, table", TAGS="netcommon:*:spoof_guard:no"))
    kernel = sim.host.kernel
    for path in ("net/ipv4/conf/tap0/forwarding", "net/ipv4/conf/tap0/rp_filter"):
        kernel.settings.write(path, value if path.endswith("filter") else "1")
    kernel.settings.write("net/ipv4/conf/all/rp_filter", "0")
    kernel.add_route(Route(AF_INET, 100, "0.0.0.0/0", sim.index("eth-br0"), 3, 0, "192.0.2.1"))
    link = kernel.links[sim.index("tap0")]
    if numbered:
        kernel.addresses.append(Address(AF_INET, "10.0.0.1", 32, link.index))
    way = walked(sim, build(Wanted("aa:00:00:00:00:01", link.address, "10.9.9.9", "198.51.100.9")))
    assert ends in way.ends[0], way


def test_who_answers(sim: Sim) -> None:
    """ARP by proxy_arp, discovery by a proxy entry that needs proxy_ndp."""
    sim.up(nic("routed, table"))
    kernel = sim.host.kernel
    kernel.settings.write("net/ipv4/conf/tap0/proxy_arp", "1")
    kernel.add_route(Route(AF_INET, 100, "0.0.0.0/0", sim.index("eth-br0"), 3, 0, "192.0.2.1"))
    asks = build(Wanted("aa:00:00:00:00:01", "", "10.0.0.5", "198.51.100.9", arp=True))
    assert walked(sim, asks).ends == ("the node answers for 198.51.100.9, at tap0",)
    kernel.settings.write("net/ipv4/conf/tap0/proxy_arp", "0")
    kernel.settings.write("net/ipv4/conf/all/proxy_arp", "0")
    assert walked(sim, asks).ends == ("nobody on the node answers for 198.51.100.9",)
    wanted = Wanted("aa:00:00:00:00:01", "", "fe80::a800:ff:fe00:1", "fd00::1", protocol="icmpv6", kind=135)
    solicits = build(wanted)
    assert walked(sim, solicits).ends == ("nobody on the node answers for fd00::1",)
    kernel.add_neighbour(Neighbour(AF_INET6, "fd00::1", sim.index("tap0")))
    kernel.settings.write("net/ipv6/conf/all/proxy_ndp", "0")
    kernel.settings.write("net/ipv6/conf/tap0/proxy_ndp", "0")
    assert "proxy_ndp of tap0 is off" in walked(sim, solicits).steps[-1].does
    kernel.settings.write("net/ipv6/conf/tap0/proxy_ndp", "1")
    assert walked(sim, solicits).ends == ("the node answers for fd00::1, at tap0",)
    kernel.add_route(Route(AF_INET6, 100, "::/0", sim.index("eth-br0"), 3, 0, "2001:db8::1"))
    own = bytes.fromhex(kernel.links[sim.index("tap0")].address.replace(":", ""))
    verifies = own + solicits[6:38] + ipaddress.IPv6Address("fd00::1").packed + solicits[54:]  # to the address, not to its group
    assert "the node answers" not in walked(sim, verifies).ends[0]
    kernel.settings.write("net/ipv6/conf/all/proxy_ndp", "1")
    assert walked(sim, verifies).ends == ("the node answers for fd00::1, at tap0",)


# -- what is not ours, and what is not there


def chain(sim: Sim, family: int, table: str, name: str, hook: int, device: str = "", *expressions: bytes) -> None:
    made = NftChain(family, table, name, hook, 0, device)
    steps = [Put(NftTable(family, table)), Put(made), *(Put(NftRule(family, table, name, each)) for each in expressions)]
    assert sim.host.execute([NftChange("test", tuple(steps))], stop=True)[0].ok


def test_foreign_chains_are_named_and_not_guessed(sim: Sim) -> None:
    aware(sim)
    chain(sim, NETDEV, "theirs", "in", 0, "tap0", verdict(0))
    chain(sim, BRIDGE, "firewall", "forward", 2, "", verdict(1))
    chain(sim, BRIDGE, "empty", "forward", 2)
    chain(sim, INET, "ingress", "in", INET_INGRESS, "tap0", verdict(1))
    chain(sim, INET, "elsewhere", "input", 1)
    way = walked(sim, build(Wanted(MAC, source="10.0.0.5")))
    met = [(step.meets.split(",")[0], step.verdict) for step in way.steps if "nftables" in step.meets and step.whose != OURS]
    assert met == [("nftables netdev theirs", UNTOLD), ("nftables inet ingress", UNTOLD), ("nftables bridge firewall", UNTOLD)]
    assert len(way.untold) == 3 and way.ends == ("it leaves the node by eth-brv, tagged VLAN 10",)


@pytest.mark.parametrize(("others", "met"), [(("tap0", "tap7"), True), (("ta*",), True), (("tap",), False)])
def test_a_chain_at_several_devices(sim: Sim, others: tuple[str, ...], met: bool) -> None:
    """By any of its devices, or by how the names of several begin."""
    aware(sim)
    chain(sim, NETDEV, "theirs", "in", 0, "eth-brv", verdict(0))
    there = sim.host.nftables.tables[NETDEV, "theirs"]
    there.chains["in"] = there.chains["in"]._replace(others=others)
    assert any("theirs" in each for each in walked(sim, build(Wanted(MAC, source="10.0.0.5"))).untold) == met


BR_NETFILTER = "br_netfilter of bridge brv"


def br_netfilter(sim: Sim, source: str = "10.0.0.5") -> list[str]:
    """Give what trace says that br_netfilter has a guest's frame meet."""
    way = walked(sim, build(Wanted(MAC, source=source)))
    found = [step.does.rpartition(": ")[2] for step in way.steps if step.meets == BR_NETFILTER]
    assert len(found) == len([each for each in way.untold if each.startswith(BR_NETFILTER)])
    return found


def test_frames_that_br_netfilter_hands_to_others_chains(sim: Sim) -> None:
    """Where bridges call IP's hooks, chains of others may drop what a bridge forwards: they are named, if they do anything."""
    aware(sim)
    chain(sim, IP, "docker", "pre", 0, "", verdict(1))
    chain(sim, IP, "docker", "fwd", 2, "", verdict(0))
    chain(sim, IP, "empty", "fwd", 2)
    chain(sim, IP6, "six", "fwd", 2, "", verdict(0))
    chain(sim, INET, "elsewhere", "input", 1, "", verdict(0))
    assert br_netfilter(sim) == []
    settings = sim.host.kernel.settings
    settings.put("net/bridge/bridge-nf-call-iptables", "1")
    assert br_netfilter(sim) == ["ip docker pre"]  # it leaves with a tag, which ends it (bridge-nf-filter-vlan-tagged)
    settings.put("net/bridge/bridge-nf-filter-vlan-tagged", "1")
    assert br_netfilter(sim) == ["ip docker pre", "ip docker fwd"]
    assert br_netfilter(sim, "fd00::5") == []
    settings.put("net/bridge/bridge-nf-call-ip6tables", "1")
    assert br_netfilter(sim, "fe80::a800:ff:fe00:1") == ["ip6 six fwd"]
    sim.host.nftables.tables[IP, "docker"].table = NftTable(IP, "docker", dormant=True)
    assert br_netfilter(sim) == []


def test_br_netfilter_of_one_bridge_is_named_by_its_own_setting(sim: Sim) -> None:
    sim.up(nic("bridged", IP="10.0.0.5"))
    chain(sim, IP, "docker", "fwd", 2, "", verdict(0))
    sim.host.kernel.settings.put("net/bridge/bridge-nf-call-iptables", "0")
    with_state(sim, "br0", BridgeState(nf_call=(True, False, False)))
    way = walked(sim, build(Wanted("aa:00:00:00:00:01", source="10.0.0.5")))
    (said,) = [step.does for step in way.steps if step.meets == "br_netfilter of bridge br0"]
    assert said.startswith("with nf_call_iptables of br0=1 it passes chains")


def test_a_policy_of_drop_is_met_by_br_netfilter_once(sim: Sim) -> None:
    """However many ports a bridge floods, and in chains that have no rules."""
    sim.up(nic("bridged", IP="10.0.0.5"))
    sim.host.kernel.set_link(SetLink(sim.host.add_tap("tap5", 5, master=sim.index("br0")).index, up=True))
    sim.host.kernel.settings.put("net/bridge/bridge-nf-call-iptables", "1")
    chain(sim, INET, "firewall", "fwd", 2)
    there = sim.host.nftables.tables[INET, "firewall"]
    there.chains["fwd"] = there.chains["fwd"]._replace(drops=True)
    way = walked(sim, build(Wanted("aa:00:00:00:00:01", source="10.0.0.5")))
    assert len([end for end in way.ends if "tap5" in end or "eth-br0" in end]) == 2
    assert [step.verdict for step in way.steps if step.meets == "br_netfilter of bridge br0"] == [UNTOLD]


@pytest.mark.parametrize(
    ("expressions", "why"),
    [
        (expression("ct", b""), 'it has the expression "ct"'),
        (meta(8), "it asks for what is known beside the frame (meta 8)"),
        (load(3, 0, 1) + verdict(0), "it looks beyond the headers"),
        (b"\x0c\x00\x01\x00\xff", "not in a form that is known here"),
    ],
)
def test_rules_that_are_not_understood(sim: Sim, expressions: bytes, why: str) -> None:
    chain(sim, NETDEV, "theirs", "in", 0, "tap0", expressions)
    view = sim.host.snapshot()
    judged = Ruleset(view).judge(NftChain(NETDEV, "theirs", "in", 0, 0, "tap0"), Packet(build(Wanted())), Devices())
    assert judged.verdict == "" and why in judged.why


def test_a_circle_of_jumps_ends(sim: Sim) -> None:
    chain(sim, NETDEV, "theirs", "in", 0, "tap0", verdict(JUMP, "in"))
    view = sim.host.snapshot()
    judged = Ruleset(view).judge(NftChain(NETDEV, "theirs", "in", 0, 0, "tap0"), Packet(build(Wanted())), Devices())
    assert judged.verdict == "" and "jumps too deep" in judged.why


def test_ranges_and_sets(sim: Sim) -> None:
    """Of the device's index and a prefix: first and last count, and another index does not."""
    chain(sim, NETDEV, "theirs", "in", 0, "tap0", meta(4) + load(1, 12, 4, 1) + within("nets") + verdict(0))
    index = sim.index("tap0").to_bytes(4, "little")
    made = NftSet(NETDEV, "theirs", "nets", ((20, 4), (7, 4)), interval=True)
    element = NftElement(NETDEV, "theirs", "nets", index + bytes((10, 0, 0, 4)), index + bytes((10, 0, 0, 7)))
    assert sim.host.execute([NftChange("test", (Put(made), Put(element)))], stop=True)[0].ok
    rules = Ruleset(sim.host.snapshot())

    def dropped(source: str, device: int) -> bool:
        packet = Packet(build(Wanted(source=source)))
        return rules.judge(NftChain(NETDEV, "theirs", "in"), packet, Devices(device)).verdict == "drop"

    tap = sim.index("tap0")
    assert [dropped(f"10.0.0.{last}", tap) for last in (3, 4, 7, 8)] == [False, True, True, False]
    assert not dropped("10.0.0.4", tap + 1)


def test_the_guard_is_named_where_it_drops(sim: Sim) -> None:
    aware(sim)
    way = walked(sim, build(Wanted("aa:00:00:00:00:01", source="10.0.0.9")))
    last = way.steps[-1]
    assert (last.verdict, last.whose) == (DROPS, OURS) and last.does.endswith("(guard > ipv4 > drop-ip)")
    sim.host.nftables.flush()
    assert walked(sim, build(Wanted("aa:00:00:00:00:01", source="10.0.0.9"))).ends == ("it leaves the node by eth-brv, tagged VLAN 10",)


def test_open_vswitch_is_asked_itself(sim: Sim) -> None:
    sim.up(nic("openvswitch, guarded"))
    way = walked(sim, build(Wanted("aa:00:00:00:00:01", source="10.0.0.5")))
    assert [step.whose for step in way.steps[-3:-1]] == [OURS, OURS]
    assert way.ends == ("not known beyond tap0",) and "ovs-appctl ofproto/trace ovs0" in way.untold[0]


def test_a_device_that_is_gone_or_off(sim: Sim) -> None:
    aware(sim)
    sim.host.kernel.set_link(SetLink(sim.index("tap0"), up=False))
    assert walked(sim, build(Wanted(MAC))).ends == ("dropped at tap0: it is switched off (ip link set dev tap0 up)",)
    sim.host.remove_link("tap0")
    with pytest.raises(HostRefused, match="tap0 of web1/0 is gone"):
        walked(sim, build(Wanted(MAC)))


def test_nothing_comes_where_there_is_no_uplink(sim: Sim) -> None:
    aware(sim)
    sim.host.remove_link("eth-brv")
    with pytest.raises(HostRefused, match="no frame comes to it from outside"):
        walked(sim, build(Wanted()), way=TO_GUEST)


# -- frames


@given(st.binary(min_size=14, max_size=200))
def test_any_bytes_are_a_packet(data: bytes) -> None:
    packet = Packet(data)
    assert packet.vid < 4096 and (packet.upper is None or 0 <= packet.upper < 256)
    assert packet.transport is None or data.endswith(packet.transport)


@given(st.binary(max_size=80), st.sampled_from([IPV4, IPV6]))
def test_any_headers_are_walked_to_an_end(data: bytes, protocol: int) -> None:
    first = b"\x45" if protocol == IPV4 else b"\x60"
    packet = Packet(bytes(12) + protocol.to_bytes(2, "big") + first + data)
    for number in (0, 43, 44, 51, 60):
        start = packet.extension(number)
        assert start is None or start >= 40


@pytest.mark.parametrize(
    ("wanted", "name"),
    [
        (Wanted(source="10.0.0.1", target="fd00::1"), "--dst"),
        (Wanted(source="10.0.0.1/24"), "--src"),
        (Wanted(source_mac="aa:bb"), "--src-mac"),
        (Wanted(target_mac="aa:00:00:00:00:0g"), "--dst-mac"),
        (Wanted(source="fd00::1", arp=True), "--arp"),
        (Wanted(target_port=70000), "--dport"),
    ],
)
def test_what_is_no_frame(wanted: Wanted, name: str) -> None:
    with pytest.raises(NicInvalid, match=name):
        build(wanted)
