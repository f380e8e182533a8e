"""Check that what is set of a NIC's device, and done for it, is looked for: hosts edited by hand, and features planted wrong, are seen."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import netcommon.features.access as access
import netcommon.features.gateway_arp as gateway_arp
import netcommon.features.guard as guard
import netcommon.features.tap_mac as tap_mac
import netcommon.modes.bridged as bridged
import netcommon.modes.routed as routed
from mockcloud.cloud import MockCloud
from mockcloud.instances.table import perform
from mockcloud.invariants import always
from mockcloud.invariants import fitting as wrong
from mockcloud.sysinfo import node_uuid
from netcommon.features.base import Part
from netcommon.host.api.facts import AF_INET, AF_INET6, Address, Link, Neighbour
from netcommon.host.simulated.host import MemoryHost
from netcommon.operations import access_rules, shared_table
from tests.support.killing_steps import opened

FIRST, SECOND = node_uuid(1), node_uuid(2)
MAC = "fe:00:00:00:00:01"
MENDED = 150.0  #: seconds in which agents have looked at everything, twice
NICS = [
    {"network": "blue"},
    {"network": "blue", "mode": "routed", "link": "guests"},
    {"network": "six", "mode": "routed", "link": "guests"},
]
OPTIONS = (
    {"static_fdb": "true", "mcast_to_unicast": "true", "node_access": "icmp", "prefixes": "198.51.100.0/28"},
    {
        "tap_mac": MAC,
        "rp_filter": "strict",
        "accept_local": "true",
        "blackhole": "true",
        "gateway_arp": "true",
        "node_access": "tcp/80",
        "prefixes": "203.0.113.0/28",
    },
    {"gateway_link_local": "true", "blackhole": "true", "firewall": "limited"},
)


@pytest.fixture
def cloud(tmp_path: Path) -> Iterator[MockCloud]:
    """Make a cloud whose networks have gateways."""
    with opened(tmp_path / "cloud") as made:
        made.create(2)
        made.network("blue", {"subnet": "192.0.2.0/24", "gateway": "192.0.2.254"})
        made.network("six", {"subnet6": "2001:db8::/64", "gateway6": "2001:db8::1"})
        made.ready([FIRST, SECOND], 20.0)
        yield made


def running(cloud: MockCloud, options: tuple[dict[str, str], ...] = OPTIONS) -> MemoryHost:
    perform(cloud, "create", {"name": "web1", "node": "mock1", "nics": NICS, "start": True})
    for index, each in enumerate(options):
        perform(cloud, "change", {"name": "web1", "index": index, "options": each})
    return cloud.nodes[FIRST].host


def said(cloud: MockCloud) -> list[str]:
    return [text.removeprefix("web1/").replace(f" on {FIRST}", "").replace(FIRST, "mock1") for text in wrong(cloud)]


def device(host: MemoryHost, index: int) -> Link:
    link = host.kernel.named(f"tap{index}")
    assert link is not None
    return link


def test_all_of_it_is_there_and_goes(cloud: MockCloud) -> None:
    running(cloud)
    assert said(cloud) == [] == always(cloud)
    perform(cloud, "migrate", {"name": "web1", "node": "mock2"})
    cloud.scheduler.passes(10.0)
    assert said(cloud) == [] == always(cloud)
    for index, each in enumerate(OPTIONS):
        perform(cloud, "change", {"name": "web1", "index": index, "options": dict.fromkeys(each, "")})
        assert said(cloud) == []
    perform(cloud, "delete", {"name": "web1"})
    assert wrong(cloud) == []


def test_what_a_guard_leaves_out_is_forwarded_no_more(cloud: MockCloud) -> None:
    running(cloud)
    for index, options in ((1, {"spoof_guard": "false"}), (2, {"spoof_guard": "false"}), (1, {"allow_ip_spoofing": "true"})):
        perform(cloud, "change", {"name": "web1", "index": index, "options": options})
        assert said(cloud) == []
    host = cloud.nodes[FIRST].host
    host.kernel.settings.put("net/ipv4/conf/tap2/forwarding", "1")
    assert said(cloud) == ["2: forwarding = 0 of ipv4 is wanted, and forwarding of its device is 1"]


GUARDED = {
    "link_local": "eui64",
    "new_sources": "7",
    "allow_unfiltered_promisc": "true",
    "allow_mcast_router": "true",
    "allow_restricted_traffic": "true",
    "addresses": "198.51.100.7{index}",
}


def test_a_guard_may_be_otherwise(cloud: MockCloud) -> None:
    running(cloud)
    for options in (GUARDED, {"new_sources": "0"}, {"allow_ip_spoofing": "true"}, {"allow_dhcp_spoofing": "true"}):
        for index in range(len(NICS)):
            given = {name: value.format(index=index) for name, value in options.items()}
            perform(cloud, "change", {"name": "web1", "index": index, "options": given})
        assert said(cloud) == []


# -- edited by hand


def moved(host: MemoryHost, index: int, **fields: Any) -> None:
    link = device(host, index)
    host.kernel.links[link.index] = link._replace(**fields)


def setting(name: str, value: str, index: int = 1) -> Callable[[MemoryHost], None]:
    return lambda host: host.kernel.settings.put(f"net/{name.replace(' ', f'/conf/tap{index}/')}", value)


def no_elements(name: str) -> Callable[[MemoryHost], None]:
    """Empty the sets of a name in all tables."""

    def edit(host: MemoryHost) -> None:
        for table in host.nftables.tables.values():
            table.elements = {key: each for key, each in table.elements.items() if each.set != name}

    return edit


def no_rules(family: int, name: str) -> Callable[[MemoryHost], None]:
    return lambda host: host.nftables.tables[family, name].rules.clear()


def no_firewall(host: MemoryHost) -> None:
    for (_family, name), table in host.nftables.tables.items():
        if name.startswith("netcommon-fw-"):
            table.rules.clear()


def no_blackholes(host: MemoryHost) -> None:
    host.kernel.routes = [route for route in host.kernel.routes if route.type != 6]


def no_entry(host: MemoryHost) -> None:
    host.kernel.bridge_ports.entries.clear()


def unsticky(host: MemoryHost) -> None:
    ports = host.kernel.bridge_ports
    ports.entries = {key: each._replace(sticky=False) for key, each in ports.entries.items()}


def flooded(host: MemoryHost) -> None:
    flags = host.kernel.bridge_ports.flags
    flags[device(host, 0).index] = flags[device(host, 0).index]._replace(flood=True)


def router(host: MemoryHost) -> None:
    flags = host.kernel.bridge_ports.flags
    flags[device(host, 0).index] = flags[device(host, 0).index]._replace(mcast_router=True)


def no_neighbours(host: MemoryHost) -> None:
    host.kernel.neighbours.clear()


def another_gateway(host: MemoryHost) -> None:
    host.kernel.neighbours.append(Neighbour(AF_INET6, "2001:db8::9", device(host, 2).index, router=True))


def no_addresses(host: MemoryHost) -> None:
    host.kernel.addresses = [each for each in host.kernel.addresses if each.index != device(host, 2).index]


def on_the_bridge(host: MemoryHost) -> None:
    moved(host, 1, master=device(host, 0).master, port_kind="bridge")


def deprecated(host: MemoryHost) -> None:
    tap = device(host, 2).index
    host.kernel.addresses = [each._replace(length=65, deprecated=True) if each.index == tap else each for each in host.kernel.addresses]


def no_router(host: MemoryHost) -> None:
    host.kernel.neighbours = [each._replace(router=False) for each in host.kernel.neighbours]


def answers(index: int, family: int, address: str) -> Callable[[MemoryHost], None]:
    return lambda host: host.kernel.neighbours.append(Neighbour(family, address, device(host, index).index))


#: How a host is edited, and what is said then.
EDITED: dict[str, tuple[Callable[[MemoryHost], None], list[str]]] = {
    "tap_mac": (
        lambda host: moved(host, 1, address="02:00:00:00:00:09"),
        [f"1: tap_mac = {MAC} is wanted, {MAC}, and its device has 02:00:00:00:00:09"],
    ),
    "rp_filter": (setting("ipv4 rp_filter", "2"), ["1: rp_filter = strict is wanted, and rp_filter of its device is 2"]),
    "rp_filter of another": (
        setting("ipv4 rp_filter", "1", 2),
        ["2: rp_filter = default is wanted, and rp_filter of its device is 1"],
    ),
    "accept_local": (setting("ipv4 accept_local", "0"), ["1: accept_local = true is wanted, and accept_local of its device is 0"]),
    "forwarding": (setting("ipv4 forwarding", "0"), ["1: forwarding = 1 of ipv4 is wanted, and forwarding of its device is 0"]),
    "proxy_arp": (setting("ipv4 proxy_arp", "0"), ["1: proxy_arp = 1 of ipv4 is wanted, and proxy_arp of its device is 0"]),
    "proxy_ndp": (setting("ipv6 proxy_ndp", "0", 2), ["2: proxy_ndp = 1 of ipv6 is wanted, and proxy_ndp of its device is 0"]),
    "IPv6": (setting("ipv6 disable_ipv6", "1", 2), ["2: disable_ipv6 = 0 of ipv6 is wanted, and disable_ipv6 of its device is 1"]),
    "gateway_arp": (no_elements("gateways"), ["1: gateway_arp = true is wanted, by 192.0.2.254, and not there"]),
    "gateway_arp's rule": (no_rules(3, "netcommon-arp"), ["1: gateway_arp = true is wanted, and no rule does it"]),
    "blackhole": (
        no_blackholes,
        [
            "1: blackhole = true is wanted, and none is behind its route of 192.0.2.2/32",
            "1: blackhole = true is wanted, and none is behind its route of 203.0.113.0/28",
            "2: blackhole = true is wanted, and none is behind its route of 2001:db8::2/128",
        ],
    ),
    "gateway_link_local": (no_addresses, ["2: its gateway fe80::1 is no address of its device"]),
    "gateway of IPv6": (no_neighbours, ["2: nobody answers it for its gateway 2001:db8::1"]),
    "another gateway of IPv6": (another_gateway, ["2: the node answers it for 2001:db8::9, which is no gateway of it"]),
    "gateway that is deprecated": (deprecated, ["2: its gateway fe80::1 is of /65, and deprecated"]),
    "gateway that is no router": (no_router, ["2: the node answers it for 2001:db8::1 as for no router"]),
    "answer of IPv4": (answers(1, AF_INET, "192.0.2.99"), ["1: the node answers it for 192.0.2.99, which is not wanted"]),
    "answer on a bridge": (answers(0, AF_INET6, "2001:db8::9"), ["0: the node answers it for 2001:db8::9, which is not wanted"]),
    "bridge": (on_the_bridge, ["1: its device is a port of br0, which is not wanted"]),
    "MTU": (lambda host: moved(host, 0, mtu=68), ["0: the MTU of its device is 68, and that of br0 1500"]),
    "static_fdb": (no_entry, ["0: static_fdb = true is wanted, and the entry of MAC in VLAN 0 is gone"]),
    "entry that moves": (unsticky, ["0: static_fdb = true is wanted, and the entry of MAC in VLAN 0 is static, and may move"]),
    "flood": (flooded, ["0: static_fdb = true is wanted, and its port does otherwise"]),
    "multicast router": (router, ["0: its port can become one of a multicast router, which is not wanted"]),
    "node_access": (
        no_rules(1, "netcommon-access"),
        ["0: node_access = icmp is wanted, and not there", "1: node_access = tcp/80 is wanted, and not there"],
    ),
    "node_access of a bridge": (no_rules(7, "netcommon-access-bridge"), ["0: node_access = icmp is wanted, and not there"]),
    "firewall": (no_firewall, ["2: firewall = limited is wanted, and not there"]),
    "delivery": (no_rules(7, "netcommon-delivery"), ["0: allow_unfiltered_promisc = false is wanted, and not there"]),
    "limit of new addresses": (
        no_elements("new-sources"),
        [f"{index}: new_sources = 64 is wanted, and its guard has no limit" for index in range(3)],
    ),
    "prefixes": (no_elements("prefixes4"), ["0: its guard knows other prefixes", "1: its guard knows other prefixes"]),
    "any link-local address": (no_elements("any-link-local"), [f"{index}: its guard says not any-link-local" for index in range(3)]),
}


#: What no agent mends: a setting that no option says anything of, what bears our mark on a device that is there, and flags of that.
LEFT = {"rp_filter of another", "another gateway of IPv6", "answer of IPv4", "answer on a bridge"}
LEFT |= {"gateway that is deprecated", "gateway that is no router"}


@pytest.mark.parametrize("name", EDITED)
def test_a_host_that_is_edited_is_seen_and_mended(cloud: MockCloud, name: str) -> None:
    edit, says = EDITED[name]
    edit(running(cloud))
    found = said(cloud)
    for each in cloud.registry.client().all("nics", belongs="instance"):
        found = [text.replace(each["nic"]["mac"], "MAC") for text in found]
    assert found == says
    cloud.scheduler.passes(MENDED)
    assert bool(said(cloud)) == (name in LEFT)


def on_a_bridge_with_vlans(cloud: MockCloud) -> MemoryHost:
    for node in (FIRST, SECOND):
        kernel = cloud.nodes[node].host.kernel
        for name in ("br0", "br1"):
            bridge = kernel.named(name)
            assert bridge is not None
            kernel.links[bridge.index] = bridge._replace(vlan_filtering=True)
    nics = [{"network": "blue", "vlan": vlan} for vlan in ("", ".7", ":8:9", ".7:8")]
    perform(cloud, "create", {"name": "web1", "node": "mock1", "nics": nics, "start": True})
    return cloud.nodes[FIRST].host


def test_vlans_of_a_port_are_looked_at(cloud: MockCloud) -> None:
    host = on_a_bridge_with_vlans(cloud)
    assert said(cloud) == []
    for index in range(4):
        perform(cloud, "change", {"name": "web1", "index": index, "options": {"static_fdb": "true"}})
    assert said(cloud) == []
    perform(cloud, "change", {"name": "web1", "index": 2, "options": {"default_vlan": "true"}})
    perform(cloud, "change", {"name": "web1", "index": 3, "options": {"default_vlan": "true"}})
    assert said(cloud) == []
    kernel = host.kernel
    uplink = kernel.named("eth-br0")
    assert uplink is not None
    del kernel.vlans[device(host, 1).index][7], kernel.vlans[uplink.index][9]
    kernel.vlans[device(host, 0).index][8] = kernel.vlans[device(host, 2).index][8]
    assert said(cloud) == [
        "0: VLANs none are wanted, and its port has 1, 8, or otherwise tagged",
        "1: VLANs .7 are wanted, and its port has none, or otherwise tagged",
        "2: VLAN 9 is wanted, and ends at its bridge",
    ]


# -- planted wrong


def nothing(*_given: object) -> Part:
    return Part()


def planned(plan: Callable[..., Any], **instead: Any) -> Callable[..., Any]:
    """Give a plan by other options."""
    return lambda nic, settings, options: plan(nic, settings, options._replace(**instead))


def another_gateway_is_asked_for(nic: Any, settings: Any, options: Any) -> Part:
    return ASKED(nic._replace(network=nic.network._replace(gateway="192.0.2.9")), settings, options)


ASKED, GUARD = gateway_arp.plan, guard.plan
#: What is planted: the module, its function, what stands for that, and what is said then.
PLANTED: dict[str, tuple[object, str, Callable[..., Any], tuple[str, ...]]] = {
    "tap_mac": (
        routed,
        "plan",
        planned(routed.plan, tap_mac=""),
        (f"1: tap_mac = {MAC} is wanted, {MAC}, and its device has 02:00:00:00:00:65",),
    ),
    "rp_filter": (
        routed,
        "plan",
        planned(routed.plan, rp_filter="off"),
        ("1: rp_filter = strict is wanted, and rp_filter of its device is 0",),
    ),
    "accept_local": (
        routed,
        "plan",
        planned(routed.plan, accept_local=False),
        ("1: accept_local = true is wanted, and accept_local of its device is 0",),
    ),
    "blackhole": (
        routed,
        "plan",
        planned(routed.plan, blackhole=False),
        ("1: blackhole = true is wanted, and none is behind its route of 203.0.113.0/28",),
    ),
    "gateway_link_local": (
        routed,
        "plan",
        planned(routed.plan, gateway_link_local=False),
        ("2: its gateway fe80::1 is no address of its device",),
    ),
    "settings": (routed, "_settings", lambda *_given: [], ("1: proxy_arp = 1 of ipv4 is wanted, and proxy_arp of its device is 0",)),
    "gateway_arp": (gateway_arp, "plan", nothing, ("1: gateway_arp = true is wanted, by 192.0.2.254, and not there",)),
    "another gateway": (
        gateway_arp,
        "plan",
        another_gateway_is_asked_for,
        ("1: gateway_arp = true is wanted, by 192.0.2.254, and another is there",),
    ),
    "static_fdb": (
        bridged,
        "plan",
        planned(bridged.plan, static_fdb=False),
        ("0: static_fdb = true is wanted, and its port does otherwise",),
    ),
    "flags of a port": (
        bridged,
        "_flags",
        lambda *_given: [],
        (
            "0: mcast_to_unicast = true is wanted, and its port does otherwise",
            "0: its port can become one of a multicast router, which is not wanted",
            "0: static_fdb = true is wanted, and its port does otherwise",
        ),
    ),
    "promiscuous": (
        guard,
        "plan",
        planned(guard.plan, allow_unfiltered_promisc=True),
        ("0: allow_unfiltered_promisc = false is wanted, and not there",),
    ),
    "new addresses": (
        guard,
        "plan",
        planned(guard.plan, new_sources=0),
        ("0: new_sources = 64 is wanted, and its guard has no limit",),
    ),
    "prefixes": (guard, "plan", planned(guard.plan, prefixes=("198.51.0.0/16",)), ("0: its guard knows other prefixes",)),
    "node_access": (access, "plan", nothing, ("0: node_access = icmp is wanted, and not there",)),
    "rules of node_access": (
        access_rules,
        "rules",
        lambda _family: [],
        ("0: node_access = icmp is wanted, and not there", "1: node_access = tcp/80 is wanted, and not there"),
    ),
}


@pytest.mark.parametrize("name", PLANTED)
def test_what_is_planted_wrong_is_seen(cloud: MockCloud, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    module, function, instead, says = PLANTED[name]
    monkeypatch.setattr(shared_table, "_made", {})  # tables as they were made before the planting, and after it
    monkeypatch.setattr(shared_table, "_held", {})
    monkeypatch.setattr(module, function, instead)
    running(cloud)
    found = said(cloud)
    assert set(says) <= set(found), found


def test_the_usual_mac_of_a_tap_is_looked_for(cloud: MockCloud, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tap_mac, "plan", nothing)
    running(cloud, ())
    found = said(cloud)
    assert len(found) == 2 and all("tap_mac = none is wanted, fe:4d:43:" in each for each in found), found


def test_what_is_wanted_no_more_and_is_there_is_seen(cloud: MockCloud) -> None:
    host = running(cloud)
    kernel, ports = host.kernel, host.kernel.bridge_ports
    routes, entries, flags = kernel.routes[:], ports.entries.copy(), ports.flags.copy()
    for index, each in enumerate(OPTIONS):
        perform(cloud, "change", {"name": "web1", "index": index, "options": dict.fromkeys(each, "")})
    assert said(cloud) == []
    kernel.routes, ports.entries, ports.flags = routes, entries, flags
    kernel.addresses.append(Address(AF_INET6, "fe80::1", 64, device(host, 2).index))
    found = said(cloud)
    for says in (
        "0: static_fdb = false is wanted, and its port does otherwise",
        "0: mcast_to_unicast = false is wanted, and its port does otherwise",
        "2: gateway_link_local = false is wanted, and its device has the address fe80::1",
        "mock1: 192.0.2.2/32 in table 100 leads nowhere, for no NIC that is to have that",
        "mock1: 203.0.113.0/28 in table 100 leads nowhere, for no NIC that is to have that",
    ):
        assert says in found, found
    assert any(each.startswith("0: static_fdb = false is wanted, and 02:4d:43:") for each in found), found
