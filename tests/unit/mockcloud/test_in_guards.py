"""Check that guards are looked into, rule by rule and flow by flow, and what nodes keep on disk: what is lacking there is seen."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from mockcloud.cloud import MockCloud
from mockcloud.commits import Commits
from mockcloud.instances.table import perform
from mockcloud.invariants import fitting as wrong
from mockcloud.invariants import settled
from mockcloud.networks import network_uuid
from mockcloud.sysinfo import node_uuid
from netcommon.host.api.facts import OvsShaper
from netcommon.host.simulated.host import MemoryHost
from tests.support.killing_steps import opened

FIRST = node_uuid(1)
MENDED = 150.0  #: seconds in which agents have looked at everything, twice
NICS = [
    {"network": "blue"},
    {"network": "blue", "mode": "routed", "link": "guests"},
    {"network": "blue", "mode": "openvswitch", "link": "ovs0", "vlan": ".7:8"},
]


@pytest.fixture
def cloud(tmp_path: Path) -> Iterator[MockCloud]:
    """Make a cloud with Open vSwitch, whose nodes' settings ask for a spoof guard."""
    with opened(tmp_path / "cloud") as made:
        for one in made.create(1, profile="switched"):
            settings = Path(made.root, "servers", one.uuid, "etc/netcommon/config.toml")
            settings.parent.mkdir(parents=True, exist_ok=True)
            settings.write_text("[nic]\nspoof_guard = true\n")
        made.network("blue", {"subnet": "192.0.2.0/24", "gateway": "192.0.2.254"})
        made.ready([FIRST], 20.0)
        yield made


def running(cloud: MockCloud) -> MemoryHost:
    perform(cloud, "create", {"name": "web1", "node": "mock1", "nics": NICS, "start": True})
    return cloud.nodes[FIRST].host


def said(cloud: MockCloud) -> list[str]:
    return [text.removeprefix("web1/").replace(f" on {FIRST}", "").replace(FIRST, "mock1") for text in wrong(cloud)]


#: What may be wanted of a guard, one after the other.
WANTED: tuple[dict[str, str], ...] = (
    {"allow_restricted_traffic": "true"},
    {"allow_restricted_traffic": "", "allow_mac_spoofing": "true"},
    {"allow_mac_spoofing": "", "allow_ip_spoofing": "true"},
    {"allow_ip_spoofing": "", "allow_dhcp_spoofing": "true"},
    {"allow_dhcp_spoofing": "", "allow_mcast_router": "true"},
    {"allow_mcast_router": "", "link_local": "eui64"},
    {"addresses": "2001:db8::7", "prefixes": "198.51.100.0/28"},
    {"spoof_guard": "false"},
)


@pytest.mark.parametrize("of_kernel", [False, True])
def test_guards_of_all_sorts_are_right(cloud: MockCloud, of_kernel: bool) -> None:
    cloud.nodes[FIRST].host.switch.bridges["ovs0"] = of_kernel
    running(cloud)
    assert said(cloud) == []
    for options in WANTED:
        for index in range(len(NICS)):
            each = {name: value.replace("::7", f"::{index + 7}").replace("100.0", f"10{index}.0") for name, value in options.items()}
            perform(cloud, "change", {"name": "web1", "index": index, "options": each})
        assert said(cloud) == []


def test_a_dormant_guard_and_one_with_an_empty_chain_are_seen(cloud: MockCloud) -> None:
    host = running(cloud)
    lacks = [f"{index}: spoof_guard = true is wanted, and not there" for index in range(2)]
    tables = [table for (_family, name), table in host.nftables.tables.items() if name.startswith("netcommon-guard-")]
    for flag, says in ((True, lacks), (False, [])):
        for table in tables:
            table.table = table.table._replace(dormant=flag)
        assert said(cloud) == says
    chains = {name for table in tables for name in table.chains}
    assert len(chains) > len(NICS)
    for chain in chains:
        had = [(table, table.rules[chain]) for table in tables if chain in table.rules]
        for table, _rules in had:
            table.rules[chain] = ()
        assert set(said(cloud)) & {*lacks}, chain
        for table, rules in had:
            table.rules[chain] = rules
    assert said(cloud) == []


REST = re.compile(r"priority=[0-9]+,reg13=\w+/\w+ actions=.*", re.ASCII)
DROPPED = ("tp_src=67", "tp_dst=68", "tp_src=547", "tp_dst=546", "icmp_type=134", "icmp_type=137", "icmp_type=130", "nw_dst=224.0.0.1")


def test_each_flow_that_drops_what_the_documents_say_is_looked_for(cloud: MockCloud) -> None:
    host = running(cloud)
    flows = [*host.openflow.all]
    gone = [flow for flow in flows if REST.fullmatch(flow.text) or any(f"{each} actions=drop" in flow.text for each in DROPPED)]
    assert len(gone) > len(DROPPED)
    for flow in gone:
        host.openflow.all = [each for each in flows if each != flow]
        assert said(cloud) != [], flow.text
    host.openflow.all = [*flows]
    assert said(cloud) == []


def test_a_guard_that_lets_the_rest_pass_is_seen(cloud: MockCloud) -> None:
    host = running(cloud)
    passes = "actions=load:0x7->NXM_NX_REG13[29..31],resubmit(,0)"
    host.openflow.all = [
        flow._replace(text=flow.text.replace("actions=drop", passes)) if REST.fullmatch(flow.text) else flow for flow in host.openflow.all
    ]
    assert said(cloud) == [f"2: its flows let the rest of step {step} pass" for step in (0, 1, 3)]
    cloud.scheduler.passes(MENDED)
    assert said(cloud) == []


def test_a_queue_that_no_port_uses_is_seen(cloud: MockCloud) -> None:
    host = running(cloud)
    host.switch.shapers.append(OvsShaper("tap9", "11111111-1111-4111-8111-111111111111"))
    assert said(cloud) == ["mock1: Open vSwitch has a queue of NIC 11111111-1111-4111-8111-111111111111 for tap9, and no port uses it"]


def test_a_record_of_nothing_is_seen(cloud: MockCloud) -> None:
    running(cloud)
    for path in Path(cloud.root, "servers", FIRST, "run/netcommon/nics").glob("*.json"):
        path.write_text(json.dumps({**json.loads(path.read_text()), "operations": []}))
    assert said(cloud) == [f"{index}: its record says of nothing that it was done" for index in range(len(NICS))]


def test_what_nodes_keep_of_networks_is_looked_at(cloud: MockCloud) -> None:
    commits = Commits()
    cloud.own.listen(lambda registry: commits.begin(registry.items()))
    running(cloud)
    cloud.scheduler.passes(10.0)
    assert settled(cloud, commits) == []
    path = Path(cloud.root, "servers", FIRST, "var/lib/netcommon/wanted/networks", f"{network_uuid('blue')}.json")
    kept = path.read_text()
    path.write_text(json.dumps({**json.loads(kept), "gateway": "192.0.2.1"}))
    assert settled(cloud, commits) == ["gateway of network blue is 192.0.2.1 on mock1's disk, not 192.0.2.254"]
    path.unlink()
    assert settled(cloud, commits) == ["nothing of network blue lies on mock1's disk"]
    path.write_text(kept)
    path.with_name("11111111-1111-4111-8111-111111111111.json").write_text(kept)
    assert settled(cloud, commits) == ["what was said of network 11111111-1111-4111-8111-111111111111 lies still on mock1's disk"]


WAVED = "2: one of its flows lets pass what no other has looked at: "
#: Flows beside those of a guard: what it would drop they let pass, or they are of another port; and what is said of each.
BESIDE = {
    "priority=65535 actions=NORMAL": "2: one of its flows is of no step, or leads to none: ",
    "priority=65535,ip actions=NORMAL": "2: one of its flows is of no step, or leads to none: ",
    "priority=65535,reg13=0/0xe0000000,vlan_tci=0x0000/0x1000 actions=NORMAL": "2: one of its flows is of no step, or leads to none: ",
    "priority=65060,ip,reg13=0/0xe0000000 actions=load:0x1->NXM_NX_REG13[29..31],resubmit(,0)": WAVED,
    "priority=65060,ip,reg13=0x20000000/0xe0000000 actions=load:0x2->NXM_NX_REG13[29..31],resubmit(,0)": WAVED,
    "priority=65060,udp,reg13=0x40000000/0xe0000000 actions=load:0x3->NXM_NX_REG13[29..31],resubmit(,0)": WAVED,
    "priority=65060,ip,reg13=0x60000000/0xe0000000 actions=load:0x7->NXM_NX_REG13[29..31],resubmit(,0)": WAVED,
    "priority=65010,dl_type=0x9000,reg13=0x60000000/0xe0000000 actions=load:0x7->NXM_NX_REG13[29..31],resubmit(,0)": WAVED,
    "priority=65060,reg13=0x40000000/0xe0000000 actions=load:0x3->NXM_NX_REG13[29..31],resubmit(,0)": WAVED,
    "priority=65010,reg13=0/0xe0000000,dl_vlan=9 actions=load:0x1->NXM_NX_REG13[29..31],resubmit(,0)": (
        "2: its flows know other VLANs: 8, 9"
    ),
    "priority=65010,arp,reg13=0x60000000/0xe0000000,arp_spa=192.0.2.99 actions=load:0x7->NXM_NX_REG13[29..31],resubmit(,0)": (
        "2: its flows know another sender of ARP: 192.0.2.3, 192.0.2.99"
    ),
}


@pytest.mark.parametrize("text", BESIDE)
def test_a_flow_that_lets_pass_what_the_guard_would_drop_is_seen(cloud: MockCloud, text: str) -> None:
    host = running(cloud)
    host.openflow.all.append(host.openflow.all[0]._replace(text=text))
    assert said(cloud) == [BESIDE[text] + (text if BESIDE[text].endswith(" ") else "")]


@pytest.mark.parametrize("port", [0, 99])
def test_flows_of_a_port_that_is_nobodys_are_seen(cloud: MockCloud, port: int) -> None:
    host = running(cloud)
    host.openflow.all.append(host.openflow.all[0]._replace(port=port))
    assert said(cloud) == [f"mock1: Open vSwitch has flows on ovs0 for port {port}, which is nobody's"]


def test_the_device_of_a_switch_on_a_bridge_or_of_less_mtu_is_seen(cloud: MockCloud) -> None:
    kernel = running(cloud).kernel
    tap, bridge = kernel.named("tap2"), kernel.named("br0")
    assert tap is not None and bridge is not None
    for fields, says in (
        ({"master": bridge.index, "port_kind": "bridge"}, "its device is a port of br0, which is not wanted"),
        ({"master": bridge.index, "port_kind": "openvswitch"}, ""),
        ({"mtu": 1400}, "the MTU of its device is 1400, and that of ovs0 1500"),
    ):
        kernel.links[tap.index] = tap._replace(**fields)
        assert said(cloud) == ([f"2: {says}"] if says else [])
