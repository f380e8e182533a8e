"""Check that what protects and limits a guest is looked for in the tables of kernels: bugs planted that leave it out are seen."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import netcommon.features.access as access
import netcommon.features.firewall as firewall
import netcommon.features.guard as guard
import netcommon.features.rate as rate
import netcommon.modes.bridged as bridged
import netcommon.modes.openvswitch as openvswitch
import netcommon.modes.routed as routed
from mockcloud.cloud import MockCloud
from mockcloud.commits import Commits
from mockcloud.instances.table import perform
from mockcloud.invariants import always, settled
from mockcloud.invariants import fitting as wrong
from mockcloud.stored import vm_uuid
from mockcloud.sysinfo import node_uuid
from netcommon.features.base import Part
from netcommon.host.api.datapath import ANYCAST, LOCAL
from netcommon.host.api.facts import AF_INET, AF_INET6, OvsPort, Route
from netcommon.host.simulated.host import MemoryHost
from netcommon.operations.access import NodeAccess
from netcommon.operations.flows import FlowsEnd
from netcommon.operations.guard import rules as guard_rules
from netcommon.operations.rate import Police, Shaper
from netcommon.operations.route import GuestRoute
from runtime.errors import HostRefused, NicInvalid
from runtime.vlan import Vlan
from tests.support.killing_steps import opened

FIRST, SECOND = node_uuid(1), node_uuid(2)
OPTIONS = {"rate_in": "8mbit", "rate_out": "4mbit", "firewall": "limited", "node_access": "icmp,tcp/80,udp/53"}
NICS = [
    {"network": "blue"},
    {"network": "blue", "mode": "routed", "link": "guests"},
    {"network": "six", "mode": "routed", "link": "guests"},
]


@pytest.fixture
def cloud(tmp_path: Path) -> Iterator[MockCloud]:
    """Make a cloud whose nodes' settings ask for a spoof guard."""
    with opened(tmp_path / "cloud") as made:
        for one in made.create(2):
            settings = Path(made.root, "servers", one.uuid, "etc/netcommon/config.toml")
            settings.parent.mkdir(parents=True, exist_ok=True)
            settings.write_text("[nic]\nspoof_guard = true\n")
        made.network("blue", {"subnet": "192.0.2.0/24"})
        made.network("six", {"subnet6": "2001:db8::/64"})
        made.ready([FIRST, SECOND], 20.0)
        yield made


def running(cloud: MockCloud) -> None:
    perform(cloud, "create", {"name": "web1", "node": "mock1", "nics": NICS, "start": True})
    for index in range(len(NICS)):
        perform(cloud, "change", {"name": "web1", "index": index, "options": OPTIONS})


def test_all_of_it_is_there(cloud: MockCloud) -> None:
    running(cloud)
    assert wrong(cloud) == [] == always(cloud)
    perform(cloud, "migrate", {"name": "web1", "node": "mock2"})
    cloud.scheduler.passes(10.0)
    assert wrong(cloud) == [] == always(cloud)
    perform(
        cloud,
        "change",
        {"name": "web1", "index": 0, "options": {"rate_in": "9mbit", "rate_out": "", "firewall": "", "node_access": "none"}},
    )
    perform(cloud, "change", {"name": "web1", "index": 1, "options": {"node_access": ""}})
    assert wrong(cloud) == []


def nothing(*_given: object) -> Part:
    return Part()


def elsewhere(nic: Any, _addresses: object) -> list[GuestRoute]:
    return [GuestRoute(AF_INET, "203.0.113.7/32", nic.link, nic.interface)]


def another(nic: Any, settings: Any, options: Any) -> Part:
    return GUARD(nic._replace(mac="02:00:00:00:00:99", ip="203.0.113.99"), settings, options)


def everything(*_given: object) -> tuple[str, ...]:
    return guard_rules.FLAGS


def in_main(nic: Any, addresses: Any) -> list[GuestRoute]:
    return ROUTES(nic._replace(link=""), addresses)


def a_service_more(nic: Any, settings: Any, options: Any) -> Part:
    return ACCESS(nic, settings, options._replace(node_access=(*options.node_access, "tcp/22")))


GUARD, ROUTES, ACCESS = guard.plan, routed._routes, access.plan
NO_ACCESS = "node_access = icmp tcp/80 udp/53 is wanted, and not there"
#: What is planted: the module, its function, what stands for that, and what is said then.
PLANTED: dict[str, tuple[object, str, Callable[..., Any], tuple[str, ...]]] = {
    "guard": (guard, "plan", nothing, ("spoof_guard = true is wanted, and not there",)),
    "guard of another": (guard, "plan", another, ("its guard knows another MAC", "its guard knows other addresses of ipv4")),
    "guard that is none": (guard, "_free", everything, ("its guard says free-mac", "its guard says free-dhcp")),
    "another table": (routed, "_routes", in_main, ("192.0.2.2/32 is not routed to it",)),
    "rate": (rate, "plan", nothing, ("rate_in = 8mbit is wanted, and not there", "rate_out = 4mbit is wanted, and not there")),
    "firewall": (firewall, "plan", nothing, ("firewall = limited is wanted, and not there",)),
    "access": (access, "plan", nothing, (NO_ACCESS,)),
    "access to more": (access, "plan", a_service_more, (NO_ACCESS,)),
    "routes": (
        routed,
        "_routes",
        elsewhere,
        ("192.0.2.2/32 is not routed to it", "203.0.113.7/32 is routed to it, and is not its own", "2001:db8::1/128 is not routed to it"),
    ),
}


@pytest.mark.parametrize("name", PLANTED)
def test_what_is_left_out_is_seen(cloud: MockCloud, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    module, function, instead, says = PLANTED[name]
    monkeypatch.setattr(module, function, instead)
    running(cloud)
    found = wrong(cloud)
    for each in says:
        assert any(text.endswith(each) for text in found), found


def test_what_is_wanted_no_more_and_is_there_is_seen(cloud: MockCloud, monkeypatch: pytest.MonkeyPatch) -> None:
    running(cloud)
    for each in (Shaper, Police, NodeAccess):
        monkeypatch.setattr(each, "revert", lambda *_given: [])
    perform(cloud, "change", {"name": "web1", "index": 0, "options": {"rate_in": "", "rate_out": "", "node_access": ""}})
    assert [text.partition(": ")[2] for text in wrong(cloud)] == [
        "node_access = all is wanted, and something is there",
        "rate_in = none is wanted, and something is there",
        "rate_out = none is wanted, and something is there",
    ]


def small_buffers(host: MemoryHost) -> None:
    host.kernel.tc.roots = {index: each._replace(buffer=1) for index, each in host.kernel.tc.roots.items()}


def little_room(host: MemoryHost) -> None:
    host.kernel.tc.roots = {index: each._replace(limit=1) for index, each in host.kernel.tc.roots.items()}


def small_bursts(host: MemoryHost) -> None:
    host.kernel.tc.policers = {index: each._replace(burst=1) for index, each in host.kernel.tc.policers.items()}


@pytest.mark.parametrize(
    ("edit", "says"),
    [
        (small_buffers, "what its guest receives goes by a bucket of 1 ticks"),
        (little_room, "what its guest receives goes by a bucket of 256000 ticks and 1 bytes"),
        (small_bursts, "what its guest sends goes by a bucket of 1 ticks"),
    ],
)
def test_a_bucket_that_holds_no_frame_is_seen_and_mended(cloud: MockCloud, edit: Callable[[MemoryHost], None], says: str) -> None:
    running(cloud)
    edit(cloud.nodes[FIRST].host)
    found = [text.partition(": ")[2] for text in wrong(cloud)]
    assert len(found) == len(NICS) and all(text.startswith(says) for text in found), found
    cloud.scheduler.passes(150.0)
    assert wrong(cloud) == []


@pytest.fixture
def switched(tmp_path: Path) -> Iterator[MockCloud]:
    """Make a cloud of nodes with Open vSwitch."""
    with opened(tmp_path / "cloud") as made:
        made.create(2, profile="switched")
        made.network("blue", {"subnet": "192.0.2.0/24"})
        made.network("six", {"subnet6": "2001:db8::/64"})
        made.ready([FIRST, SECOND], 20.0)
        yield made


def on_a_switch(cloud: MockCloud) -> None:
    nics = [{"network": each, "mode": "openvswitch", "link": "ovs0", "vlan": ".7:8:9"} for each in ("blue", "six")]
    perform(cloud, "create", {"name": "web1", "node": "mock1", "nics": nics, "start": True})
    for index in range(len(nics)):
        perform(cloud, "change", {"name": "web1", "index": index, "options": {"rate_in": "8mbit", "rate_out": "4mbit"}})


def test_all_of_it_is_there_on_a_switch(switched: MockCloud) -> None:
    on_a_switch(switched)
    assert wrong(switched) == [] == always(switched)
    perform(switched, "migrate", {"name": "web1", "node": "mock2"})
    switched.scheduler.passes(10.0)
    assert wrong(switched) == [] == always(switched)
    for options in ({"rate_in": "", "rate_out": "9mbit"}, {"spoof_guard": "false"}, {"allow_mac_spoofing": "true", "spoof_guard": "true"}):
        perform(switched, "change", {"name": "web1", "index": 0, "options": options})
        assert wrong(switched) == []


def planned(**instead: Any) -> Callable[[Any, Any, Any], Any]:
    """Give a plan of another NIC, or by other options."""

    def plan(nic: Any, settings: Any, options: Any) -> Any:
        of_nic = {name: value for name, value in instead.items() if name in nic._fields}
        return SWITCHED(
            nic._replace(**of_nic), settings, options._replace(**{name: instead[name] for name in instead.keys() - of_nic.keys()})
        )

    return plan


SWITCHED = openvswitch.plan
#: What stands for what is wanted, and what is said then of the first NIC.
ON_A_SWITCH: dict[str, tuple[dict[str, Any], str]] = {
    "rate_in": ({"rate_in": 0}, "rate_in = 8mbit is wanted, and its port has none"),
    "rate_out": ({"rate_out": 9_000_000}, "rate_out = 4mbit is wanted, and its port has 9000"),
    "VLANs": ({"vlan": Vlan(7)}, "VLANs .7:8:9 are wanted, and its port has tag 7 and trunks []"),
    "guard": ({"spoof_guard": False}, "spoof_guard = true is wanted, and no flow is there"),
    "address": ({"ip": "203.0.113.99"}, "its flows know another address of IPv4: 203.0.113.99"),
    "any MAC": ({"allow_mac_spoofing": True}, "its flows know another MAC: none"),
    "any address": ({"allow_ip_spoofing": True}, "its flows know another address of IPv4: none"),
    "DHCP": ({"allow_dhcp_spoofing": True}, "allow_dhcp_spoofing = false is wanted, and its flows do otherwise"),
    "queries": ({"allow_mcast_router": True}, "allow_mcast_router = false is wanted, and its flows do otherwise"),
    "guest": ({"instance": "web2"}, "its port says that it is of another guest than web1"),
}


@pytest.mark.parametrize("name", ON_A_SWITCH)
def test_what_is_otherwise_on_a_switch_is_seen(switched: MockCloud, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    instead, says = ON_A_SWITCH[name]
    monkeypatch.setattr(openvswitch, "plan", planned(**instead))
    on_a_switch(switched)
    assert f"web1/0 on {FIRST}: {says}" in wrong(switched)


#: What is changed of a port by hand, and what is said then of the first NIC.
EDITED: dict[str, tuple[Callable[[OvsPort], OvsPort], str]] = {
    "vlan_mode": (lambda port: port._replace(vlan_mode="access"), "its port has the vlan_mode access, and native-untagged is wanted"),
    "tag": (lambda port: port._replace(tag=5), "VLANs .7:8:9 are wanted, and its port has tag 5 and trunks [8, 9]"),
    "number": (lambda port: port._replace(ofport=-1, error="no device"), "Open vSwitch does not have its device: no device"),
    "burst": (
        lambda port: port._replace(burst=10),
        "its port takes 10 kbit at once, and more is sent as one frame, or in a tenth of a second",
    ),
    "owner": (lambda port: port._replace(external_ids=()), "its port says that it is of another guest than web1"),
    "shaping": (lambda port: port._replace(shaping=5000), "rate_in = 8mbit is wanted, and its port has 5000"),
}


@pytest.mark.parametrize("name", EDITED)
def test_a_port_that_is_edited_is_seen_and_mended(switched: MockCloud, name: str) -> None:
    on_a_switch(switched)
    switch = switched.nodes[FIRST].host.switch
    port = switch.real("tap0")
    assert port is not None
    edit, says = EDITED[name]
    switch.amend(edit(port))
    assert f"web1/0 on {FIRST}: {says}" in wrong(switched)
    switched.scheduler.passes(150.0)  # the agent has looked at everything
    assert wrong(switched) == []


@pytest.mark.parametrize("key", ["iface-id", "attached-mac", "iface-status", "vm-uuid"])
def test_who_a_port_says_that_it_is_of_is_looked_at(switched: MockCloud, key: str) -> None:
    on_a_switch(switched)
    switch = switched.nodes[FIRST].host.switch
    port = switch.real("tap0")
    assert port is not None
    switch.amend(port._replace(interface_ids=tuple((name, "another" if name == key else value) for name, value in port.interface_ids)))
    assert [text.partition("its port says ")[1] for text in wrong(switched)] == ["its port says "]


def test_flows_of_a_template_are_looked_for(switched: MockCloud) -> None:
    on_a_switch(switched)
    host = switched.nodes[FIRST].host
    host.templates["ovs/mirror.j2"] = "priority=100,arp,actions=NORMAL\n"
    perform(switched, "change", {"name": "web1", "index": 0, "options": {"flows": "mirror"}})
    assert wrong(switched) == []
    flows = [*host.openflow.all]
    host.openflow.all = [each for each in flows if "priority=100," not in each.text]
    assert wrong(switched) == [f"web1/0 on {FIRST}: flows = mirror is wanted, and not there"]
    host.openflow.all = [*flows]
    perform(switched, "change", {"name": "web1", "index": 0, "options": {"flows": ""}})
    assert wrong(switched) == []
    host.openflow.all = [*flows]
    assert f"web1/0 on {FIRST}: flows = none is wanted, and something is there" in wrong(switched)


def test_flows_that_are_wanted_no_more_and_are_there_are_seen(switched: MockCloud, monkeypatch: pytest.MonkeyPatch) -> None:
    on_a_switch(switched)
    monkeypatch.setattr(FlowsEnd, "revert", lambda *_given: [])
    perform(switched, "change", {"name": "web1", "index": 0, "options": {"spoof_guard": "false"}})
    assert any("spoof_guard = false is wanted, and" in text and text.endswith("flows are there") for text in wrong(switched))


def test_a_port_that_is_not_isolated_as_is_wanted_is_seen(cloud: MockCloud, monkeypatch: pytest.MonkeyPatch) -> None:
    perform(cloud, "create", {"name": "web1", "node": "mock1", "nics": NICS[:1], "start": True})
    perform(cloud, "change", {"name": "web1", "index": 0, "options": {"isolated": "true"}})
    assert wrong(cloud) == []
    planned = bridged.plan
    monkeypatch.setattr(bridged, "plan", lambda nic, settings, options: planned(nic, settings, options._replace(isolated=False)))
    perform(cloud, "reboot", {"name": "web1"})
    assert [text.partition(": ")[2] for text in wrong(cloud)] == ["isolated = true is wanted, and its port does otherwise"]


def test_an_address_of_ipv6_that_is_routed_on_two_nodes_is_seen(cloud: MockCloud) -> None:
    running(cloud)
    here, there = (cloud.nodes[node].host for node in (FIRST, SECOND))
    there.add_tap("tap9", 7)
    link = there.kernel.named("tap9")
    assert link is not None
    there.kernel.routes += [route._replace(index=link.index) for route in here.kernel.routes if route.destination.endswith("/128")]
    assert always(cloud) == ["2001:db8::1/128 is routed on mock1 and mock2"]


def test_what_a_kernel_routes_to_itself_is_no_guests(cloud: MockCloud) -> None:
    """A device's link-local address is in the kernel's local table, with its subnet's anycast address, on every node."""
    running(cloud)
    perform(cloud, "create", {"name": "web2", "node": "mock2", "nics": NICS, "start": True})
    for node in (FIRST, SECOND):
        kernel = cloud.nodes[node].host.kernel
        for link in [link for link in kernel.links.values() if link.kind == "tun"]:
            for kind, destination in ((LOCAL, "fe80::fc2c:97ff:fe09:8b82/128"), (ANYCAST, "fe80::/128")):
                kernel.routes.append(Route(AF_INET6, 255, destination, link.index, 2, type=kind))
    assert wrong(cloud) == [] == always(cloud)


def test_an_instance_that_somebody_has_edited_is_said_and_ends_nothing(cloud: MockCloud) -> None:
    running(cloud)
    path = Path(cloud.root, "servers", FIRST, "vms", f"{vm_uuid('web1')}.json")
    for text in ("nonsense", "[]", '{"interfaces": [{}]}'):
        path.write_text(text)
        assert always(cloud) == [] and f"{path} is not what mockcloud has written" in wrong(cloud)


BOTH = [{"network": "blue"}, {"network": "blue", "mode": "routed", "link": "guests"}]
SIX = [{"network": "six", "mode": "routed", "link": "guests"}]
MAIN = [{"network": "blue", "mode": "routed", "link": ""}]
#: Settings, NICs, and an option that an operator then sets of the last of them.
RIGHT: dict[str, tuple[str, list[dict[str, str]], dict[str, str]]] = {
    "addresses": ("", BOTH, {"addresses": "198.51.100.9,198.51.100.10"}),
    "prefixes": ("", BOTH, {"prefixes": "198.51.100.0/28"}),
    "eui64": ("[nic]\neui64 = true\n", SIX, {}),
    "network": (
        '[nic]\nspoof_guard = true\nrate_in = "8mbit"\n[networks.blue]\nspoof_guard = false\nrate_in = "9mbit"\n',
        BOTH,
        {"rate_out": "4mbit"},
    ),
    "main": ("", MAIN, {}),
    "mark": ("[rules]\nmark = 0xfff0000\n", BOTH, {}),
}


@pytest.mark.parametrize("name", RIGHT)
def test_what_is_right_and_in_force_is_no_violation(cloud: MockCloud, name: str) -> None:
    settings, nics, options = RIGHT[name]
    for node in (FIRST, SECOND):
        Path(cloud.root, "servers", node, "etc/netcommon/config.toml").write_text(settings)
    perform(cloud, "create", {"name": "web1", "node": "mock1", "nics": nics, "start": True})
    if options:
        perform(cloud, "change", {"name": "web1", "index": len(nics) - 1, "options": options})
    assert wrong(cloud) == [] == always(cloud)
    kernel = cloud.nodes[FIRST].host.kernel
    taps = {link.index for link in kernel.links.values() if link.kind == "tun"}
    gone = [route for route in kernel.routes if route.index in taps]
    kernel.routes[:] = [route for route in kernel.routes if route not in gone]
    assert gone and any("is not routed to it" in each for each in wrong(cloud))


def test_a_rule_that_leads_to_another_table_is_seen(cloud: MockCloud) -> None:
    running(cloud)
    kernel = cloud.nodes[FIRST].host.kernel
    kernel.rules[:] = [rule._replace(table=rule.table + 1) if rule.iif else rule for rule in kernel.rules]
    assert any("no rule or no route leads by tap" in each for each in wrong(cloud))


@pytest.mark.parametrize("routed", [False, True])
def test_networks_may_have_one_subnet(cloud: MockCloud, routed: bool) -> None:
    """A claim's scope is the network."""
    cloud.network("red", {"subnet": "192.0.2.0/24"})
    more = {"mode": "routed", "link": "guests"} if routed else {}
    for name, node, network in (("web1", "mock1", "blue"), ("web2", "mock2", "red")):
        perform(cloud, "create", {"name": name, "node": node, "nics": [{"network": network, **more}], "start": True})
    assert wrong(cloud) == [] == always(cloud)


#: What is asked for of a NIC, the node's settings, and how the refusal begins.
REFUSED: dict[str, tuple[dict[str, str], dict[str, str], str, str]] = {
    "firewall": ({"mode": "openvswitch", "link": "ovs0"}, {"firewall": "limited"}, "", "MODE='openvswitch'"),
    "access": ({"mode": "openvswitch", "link": "ovs0"}, {"node_access": "none"}, "", "MODE='openvswitch'"),
    "MAC": ({"mode": "routed", "link": "guests"}, {"tap_mac": "02:00:00:00:00:77"}, "", "MAC='02:00:00:00:00:77'"),
    "mark": ({}, {"node_access": "none"}, "[rules]\nmark = 0x78000000\n", r"\[rules\] mark = 0x78000000"),
    "mark of a firewall": ({}, {"firewall": "limited"}, "[rules]\nmark = 0xf0000000\n", r"\[rules\] mark = 0xf0000000"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_no_node_can_do_is_rightly_refused(tmp_path: Path, name: str) -> None:
    nic, options, settings, why = REFUSED[name]
    with opened(tmp_path / "cloud") as cloud:
        commits = Commits()
        for one in cloud.create(2, profile="switched"):
            path = Path(cloud.root, "servers", one.uuid, "etc/netcommon/config.toml")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(settings)
        cloud.network("blue", {"subnet": "192.0.2.0/24"})
        cloud.ready([FIRST, SECOND], 20.0)
        cloud.own.listen(lambda registry: commits.begin(registry.items()))
        nics = [{"network": "blue", **nic, **({"mac": "02:00:00:00:00:77"} if name == "MAC" else {})}]
        perform(cloud, "create", {"name": "web1", "node": "mock1", "nics": nics, "start": True})
        with pytest.raises(HostRefused, match=f"mock1 refuses: {why}"):
            perform(cloud, "change", {"name": "web1", "index": 0, "options": options})
        cloud.scheduler.passes(30.0)
        assert settled(cloud, commits) == []


def test_what_a_node_refuses_without_a_reason_is_seen(cloud: MockCloud, monkeypatch: pytest.MonkeyPatch) -> None:
    commits = Commits()
    cloud.own.listen(lambda registry: commits.begin(registry.items()))
    running(cloud)

    def refuses(*_given: object) -> Part:
        raise NicInvalid("MODE", "bridged", "planted")

    monkeypatch.setattr(rate, "plan", refuses)
    with pytest.raises(HostRefused, match="planted"):
        perform(cloud, "change", {"name": "web1", "index": 0, "options": {"rate_in": "9mbit"}})
    assert any("what is wanted is refused: MODE='bridged': expected planted" in each for each in settled(cloud, commits))
