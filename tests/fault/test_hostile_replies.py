"""The kernel and OVSDB answering with nonsense: a typed error or a valid value each, nothing else.

The kernel's answers are real ones, from this machine, changed; with tests/fault/test_hostile_files.py a million inputs in a full run.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from struct import pack
from typing import Any

import pytest

from netcommon.host.api.facts import OVS_MARK, OvsPort, Rule
from netcommon.host.api.nftables import INET, NETDEV, Drop, NftTable, Put
from netcommon.host.api.requests import AddRule, DeleteOvsPort, DeleteRule, NftChange, PutOvsPort, SetLink, SetPolicer, TakeOvsPort
from netcommon.host.linux.host import LinuxHost
from netcommon.host.linux.views import LiveView
from netcommon.host.ovs.client import Ovsdb
from netcommon.host.rtnetlink import encode_tc
from netcommon.host.rtnetlink.attributes import HEADER
from tests.fault.test_hostile_files import UUID
from tests.support import figures
from tests.support.hostile import Target, sweep
from tests.support.mutate import Mutator
from tests.support.netns import run
from tests.support.node import Node
from tests.support.replay import Database, NfNetlink, Rtnetlink, Said, Wire, disturbed
from tests.support.rundoor import rundoor

NIC = {"INTERFACE": "tap0", "MAC": "aa:00:00:00:00:05", "VLAN": "", "INSTANCE": "web1", "INTERFACE_INDEX": "0", "INTERFACE_UUID": UUID}
OTHER = UUID.replace("1", "2")

Question = Callable[[LiveView], object]

#: What a view is asked, of a node with a bridged tap (index 3) and a routed one.
QUESTIONS: dict[str, Question] = {
    "link": lambda view: view.link("tap0"),
    "link_at": lambda view: view.link_at(view.index),  # type: ignore[attr-defined]
    "links": lambda view: view.links(),
    "ports": lambda view: view.ports(view.index),  # type: ignore[attr-defined]
    "rules": lambda view: (view.rules(2), view.rules(10), view.rules(2, "tap1")),
    "routes": lambda view: (view.routes(2), view.routes(10), view.routes(2, 100, "10.0.0.5/32"), view.routes(2, 100, "0.0.0.0/0")),
    "neighbours": lambda view: (view.neighbours(2), view.neighbours(10)),
    "vlans": lambda view: (view.vlans(3), view.every_vlan(), view.carriers(10), view.vlan_states(3)),
    "counters": lambda view: (view.counters(), view.queue_drops()),
    "device_state": lambda view: view.device_state(view.index),  # type: ignore[attr-defined]
    "addresses": lambda view: view.addresses(),
    "port": lambda view: view.port(view.index),  # type: ignore[attr-defined]
    "fdb_entry": lambda view: view.fdb_entry(2, "aa:00:00:00:00:05", 0),
    "qdiscs": lambda view: (view.root_qdisc(view.index), view.clsact(view.index)),  # type: ignore[attr-defined]
    "filters": lambda view: view.filters(view.index),  # type: ignore[attr-defined]
    "ways_in": lambda view: (view.ways_in(2, 100), view.ways_in(10, 100)),
}
NFT: dict[str, Question] = {
    "tables": lambda view: (view.nft_tables(NETDEV), view.nft_tables(INET)),
    "table": lambda view: view.nft_table(NETDEV, _guard(view)),
    "chains": lambda view: view.nft_chains(NETDEV),
    "chain": lambda view: view.nft_chain(NETDEV, _guard(view), "tap0"),
    "rules": lambda view: view.nft_rules(NETDEV, _guard(view)),
    "elements": lambda view: view.nft_elements(NETDEV, _guard(view)),
}


def _guard(view: LiveView) -> str:
    return view.guard  # type: ignore[attr-defined, no-any-return]


@pytest.fixture
def view(node: Node) -> Iterator[tuple[LiveView, Wire, Wire]]:
    """A real node with one of everything, through sockets that can be made to lie."""
    node.bridge("br0")
    node.forwarding(ipv6=True)
    node.wire("up0", node.namespaced())
    run("ip", "link", "set", "up0", "master", "br0")
    node.address("br0", "192.0.2.1/24", "2001:db8::1/64")
    tags = "netcommon:0:rate_in:100mbit netcommon:0:static_fdb"
    node.tap("tap0")
    node.tap("tap1")
    assert rundoor("kvm-ifup", {**NIC, "MODE": "bridged", "LINK": "br0", "TAGS": tags, "IP": "192.0.2.5"}).status == 0
    routed = {**NIC, "INTERFACE": "tap1", "INTERFACE_UUID": OTHER, "INTERFACE_INDEX": "1", "MODE": "routed", "LINK": "100"}
    assert rundoor("kvm-ifup", {**routed, "IP": "10.0.0.5", "NETWORK_SUBNET6": "fd00::/64", "TAGS": "netcommon:1:eui64"}).status == 0
    run("ip", "rule", "add", "iif", "up0", "lookup", "100", "priority", "900")
    run("ip", "route", "add", "198.51.100.0/24", "nexthop", "via", "192.0.2.9", "nexthop", "via", "192.0.2.10")
    host, kernel, filters = LinuxHost(service_timeout=1), Wire(), Wire()
    host.netlink = Rtnetlink(kernel, 1)
    host.nftables.netlink = NfNetlink(filters, 1)  # type: ignore[assignment]
    made = host.view()
    tap = made.link("tap0")
    assert tap is not None
    vars(made)["index"] = tap.index
    vars(made)["guard"] = next(table.name for table in made.nft_tables(NETDEV) if table.ours)
    yield made, kernel, filters
    host.close()


def vlan_message() -> bytes:
    """RTM_NEWVLAN, which this kernel may be unable to make: VLANs 1, and 10 to 20, of device 3, and the end of the dump."""
    entries = b""
    for flags, vid, more in ((6, 1, b""), (0, 10, pack("=HHHxx", 6, 2, 20))):
        info = pack("=HHHH", 8, 1, flags, vid) + more
        entries += pack("=HH", 4 + len(info), 0x8001) + info
    body = pack("=BxxxI", 7, 3) + entries
    return HEADER.pack(16 + len(body), 112, 2, 1, 0) + body + HEADER.pack(20, 3, 2, 1, 0) + bytes(4)


def filter_message() -> bytes:
    """RTM_NEWTFILTER with a policer, which this kernel may lack, in the form in which one is made; and the end of the dump."""
    body = encode_tc.encode(SetPolicer(3, 50_000_000, 625_000)).body
    return HEADER.pack(16 + len(body), 44, 2, 1, 0) + body + b"\0" * (-len(body) % 4) + HEADER.pack(20, 3, 2, 1, 0) + bytes(4)


def recorded(view: LiveView, wire: Wire, questions: dict[str, Question]) -> dict[str, list[Said]]:
    """What the kernel answers to each question."""
    found: dict[str, list[Said]] = {}
    for name, question in questions.items():
        wire.heard.clear()
        question(view)
        found[name] = [list(said) for said in wire.heard]
        assert any(found[name]), name
    if "vlans" in found:
        found |= {"vlans": [[vlan_message()]] * 3, "filters": [[filter_message()]] * 2}
    return found


def netlink_target(name: str, count: int, view: LiveView, wire: Wire, questions: dict[str, Question]) -> Target:
    scripts = recorded(view, wire, questions)
    others = [datagram for script in scripts.values() for said in script for datagram in said]
    names = list(scripts)

    def make(mutator: Mutator) -> tuple[str, list[Said]]:
        chosen = mutator.random.choice(names)
        return chosen, disturbed(mutator, scripts[chosen], others)

    def read(made: tuple[str, list[Said]]) -> None:
        chosen, wire.script = made
        view._sockets.netlink.close()
        view._sockets.nftables.netlink.close()
        questions[chosen](view)

    return Target(name, count, make, read, tuple(others))


def test_the_kernel_tells_nonsense(view: tuple[LiveView, Wire, Wire], tmp_path: Any) -> None:
    made, kernel, _ = view
    judged(netlink_target("rtnetlink", 80_000, made, kernel, QUESTIONS), str(tmp_path))


def test_nftables_tells_nonsense(view: tuple[LiveView, Wire, Wire], tmp_path: Any) -> None:
    made, _, filters = view
    judged(netlink_target("nfnetlink", 60_000, made, filters, NFT), str(tmp_path))


def acknowledgement(number: int, text: bytes) -> bytes:
    told = pack("=HH", 4 + len(text), 1) + text + b"\0" * (-len(text) % 4) if text else b""
    body = pack("=i", -number) + bytes(16) + told
    return HEADER.pack(16 + len(body), 2, 0x200 if text else 0, 1, 0) + body


def test_acknowledgements_that_are_nonsense(view: tuple[LiveView, Wire, Wire], tmp_path: Any) -> None:
    """Requests for changes: every one has its answer, and it is done only if the kernel says so."""
    made, kernel, filters = view
    rule = Rule(2, 500, "tap1", 100)
    table = NftTable(NETDEV, "t", "netcommon x")
    requests = [SetLink(3, up=True), AddRule(rule), DeleteRule(rule), NftChange("x", (Put(table), Drop(table)))]
    acks = [[acknowledgement(number, text) for number in (0, 16, 17, 2, 1 << 31 - 1)] for text in (b"", b"why\0")]

    def make(mutator: Mutator) -> list[Said]:
        said = [mutator.random.choice(mutator.random.choice(acks)) for _ in range(mutator.random.randrange(4))]
        return disturbed(mutator, [said], acks[1])

    def read(script: list[Said]) -> None:
        kernel.script = filters.script = script
        made._sockets.netlink.close()
        made._sockets.nftables.netlink.close()
        for request in requests:
            (answer,) = made._sockets.execute([request], stop=True)
            assert isinstance(answer.errno, int) and isinstance(answer.text, str)

    judged(Target("acknowledgements", 40_000, make, read, tuple(acks[0] + acks[1])), str(tmp_path))


def uuid(number: int) -> list[str]:
    return ["uuid", f"00000000-0000-4000-8000-{number:012x}"]


#: Two bridges, one with a fake bridge, a port of ours with limits, one of the administrator's, a bond.
EMPTY: list[Any] = ["set", []]
TABLES: dict[str, list[dict[str, Any]]] = {
    "Bridge": [
        {"_uuid": uuid(1), "name": "ovs0", "ports": ["set", [uuid(11), uuid(12), uuid(13)]], "controller": EMPTY},
        {"_uuid": uuid(2), "name": "ovs1", "ports": uuid(14), "controller": uuid(99)},
    ],
    "Port": [
        {
            "_uuid": uuid(10 + number), "name": name, "tag": tag, "trunks": trunks, "vlan_mode": mode, "external_ids": ["map", ids],
            "interfaces": interfaces, "fake_bridge": fake, "qos": qos,
        }
        for number, name, tag, trunks, mode, ids, interfaces, fake, qos in (
            (1, "tap0", 10, ["set", [20, 30]], "native-untagged", [[OVS_MARK, UUID]], uuid(21), False, uuid(31)),
            (2, "eth1", EMPTY, EMPTY, EMPTY, [], uuid(22), False, EMPTY),
            (3, "fake10", 10, EMPTY, EMPTY, [["fake-bridge-id", "x"]], uuid(23), True, EMPTY),
            (4, "bond0", EMPTY, EMPTY, EMPTY, [], ["set", [uuid(24), uuid(25)]], False, uuid(32)),
        )
    ],
    "Interface": [
        {
            "_uuid": uuid(20 + number), "name": name, "external_ids": ["map", [["netcommon-policing", "1000"]] if number == 1 else []],
            "error": EMPTY, "ofport": number, "ingress_policing_rate": 1000 if number == 1 else 0, "ingress_policing_burst": 100,
        }
        for number, name in enumerate(("tap0", "eth1", "fake10", "eth2", "eth3"), 1)
    ],
    "QoS": [
        {
            "_uuid": uuid(31), "external_ids": ["map", [[OVS_MARK, UUID], ["netcommon-port", "tap0"]]],
            "other_config": ["map", [["max-rate", "8000"]]],
        },
        {"_uuid": uuid(32), "external_ids": ["map", []], "other_config": ["map", []]},
    ],
    "Open_vSwitch": [{"_uuid": uuid(40), "cur_cfg": 9, "next_cfg": 9}],
}  # fmt: skip


def test_ovsdb_tells_nonsense(tmp_path: Any) -> None:
    """Questions and changes; what is done is an answer, never an exception, and a port is told only as values of its fields' types."""
    database = Database(TABLES, time.monotonic)
    ovs = Ovsdb("/run/openvswitch/db.sock", 1, time.monotonic)
    ovs.rpc = database
    port = OvsPort("tap0", "ovs0", 10, (20,), "native-untagged", ((OVS_MARK, UUID),), policing=1000, burst=100, shaping=8000)
    actions: tuple[Callable[[], object], ...] = (
        lambda: [checked(each) for each in ovs.ports()],
        lambda: checked(ovs.port("tap0")),
        lambda: (ovs.bridge("fake10"), ovs.switch("fake10"), ovs.switches(), ovs.shapers()),
        lambda: ovs.execute(PutOvsPort(port)),
        lambda: ovs.execute(PutOvsPort(port._replace(bridge="fake10", tag=None, trunks=(), vlan_mode=""))),
        lambda: ovs.execute(DeleteOvsPort("tap0", UUID, wait=True)),
        lambda: ovs.execute(TakeOvsPort("eth1", "ovs0", UUID)),
    )
    assert all(action() is not None for action in actions)

    def make(mutator: Mutator) -> tuple[int, int, Mutator]:
        return mutator.random.randrange(len(actions)), mutator.random.randrange(1, 5), Mutator(mutator.random.random().hex())

    def read(made: tuple[int, int, Mutator]) -> None:
        """From the ``after``-th answer on, with some probability each."""
        action, after, mutator = made
        count = 0

        def change(answer: Any) -> Any:
            nonlocal count
            count += 1
            if count < after or mutator.random.randrange(3) == 0:
                return answer
            return {**answer, "result": mutator.value(answer["result"])} if mutator.random.randrange(8) else mutator.value(answer)

        def spoil(data: bytes) -> bytes:
            return mutator.blob(data) if count >= after and not mutator.random.randrange(8) else data

        database.close()
        database.change, database.spoil = change, spoil
        actions[action]()

    judged(Target("OVSDB", 100_000, make, read), str(tmp_path))


def checked(port: OvsPort | None) -> object:
    """Fails where a field is not what its type says."""
    if port is None:
        return ""
    texts = (port.name, port.bridge, port.vlan_mode, port.error, port.row, *(part for pair in port.external_ids for part in pair))
    numbers = (port.tag or 0, *port.trunks, port.ofport, port.policing, port.burst, port.shaping)
    assert all(type(text) is str for text in texts) and all(type(number) is int for number in numbers), port
    return port


def judged(target: Target, root: str) -> None:
    report = sweep(target, root)
    figures.add("hostile-input", report.tried, len(report.failures), len(report.failures))
    assert not report.failures, "\n".join(report.failures)
    assert report.good > report.tried // 100, report
