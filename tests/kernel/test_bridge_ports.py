"""Isolation, static entries and multicast on the running kernel: up, check, drift by hand, repair, down; and what frames really do."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator, Mapping

import pytest

from netcommon.lifecycle.check import check
from runtime.errors import HostRefused
from tests.kernel.test_doors_parallel import collect, environment, good
from tests.kernel.test_rate import drift, mend
from tests.support.frames import ICMP6, IPV4, IPV6, checksum, mac_bytes
from tests.support.netns import Namespace, run, wait_until
from tests.support.node import Node
from tests.support.routed import ours
from tests.support.rundoor import rundoor
from tests.support.snapshot import diff, snapshot
from tests.support.wire import End, Wire, exchange, frame

BRIDGED = {"MODE": "bridged", "LINK": "br0", "IP": ""}
MACS = [f"aa:00:00:00:00:{number:02x}" for number in range(4)]
ALL = "isolated static_fdb mcast_flood:no mcast_fast_leave mcast_to_unicast"
OUTSIDE = "aa:ee:ee:ee:ee:ee"


def nic(number: int = 0, options: str = "", **changes: str) -> dict[str, str]:
    """NIC ``number`` on its tap, with options, words as "isolated" or "mcast_flood:no", as tags of its network.

    Without the spoof guard: what passes is the bridge's doing alone.
    """
    tags = " ".join(f"netcommon:{option}" for option in ["spoof_guard:no", *options.split()])
    return environment(number, **{**BRIDGED, "NETWORK_TAGS": tags, **changes})


def up(number: int = 0, options: str = "", **changes: str) -> None:
    outcome = rundoor("kvm-ifup", nic(number, options, **changes))
    assert outcome.status == 0, outcome


def down(number: int = 0) -> None:
    assert rundoor("kvm-ifdown", nic(number), f"tap{number}", "hot-remove").status == 0


def port(tap: str = "tap0") -> str:
    return run("bridge", "-d", "link", "show", "dev", tap)


def entry(mac: str = MACS[0]) -> str:
    return run("bridge", "fdb", "get", mac, "br", "br0", check=False)


SHOWN = ["isolated on", "learning off", " flood off", "mcast_flood off", "fastleave on", "mcast_to_unicast on"]

#: What somebody does by hand, and what check says of it.
DRIFTS = {
    "isolation": ("bridge link set dev tap0 isolated off", "isolated on: it is off"),
    "learning": ("bridge link set dev tap0 learning on", "learning off: it is on"),
    "flooding": ("bridge link set dev tap0 flood on", "tap0 flood off: it is on"),
    "multicast": ("bridge link set dev tap0 mcast_flood on", "mcast_flood off: it is on"),
    "fast leave": ("bridge link set dev tap0 fastleave off", "fastleave on: it is off"),
    "unicast": ("bridge link set dev tap0 mcast_to_unicast off", "mcast_to_unicast on: it is off"),
    "no entry": (f"bridge fdb del {MACS[0]} dev tap0 master", "the entry is gone"),
    "an entry that can move": (f"bridge fdb replace {MACS[0]} dev tap0 master static", "the entry is static, on tap0"),
    "no port": ("ip link set tap0 nomaster", "it is no port of br0"),
}


@pytest.fixture
def placed(node: Node) -> Node:
    """A bridge with an uplink; a NIC was up and down once: the folders are there."""
    node.outside("up0")
    node.bridge("br0", "up0")
    node.tap("tap0")
    up()
    down()
    return node


def test_up_check_drift_repair_down(placed: Node) -> None:
    before = snapshot()
    up(0, ALL)
    whole = snapshot()
    shown = port()
    assert all(words in shown for words in SHOWN), shown
    assert "dev tap0" in run("bridge", "fdb", "show", "br", "br0") and "sticky" in entry() and "static" in entry()
    assert good() == ["tap0"]
    for what, (command, text) in DRIFTS.items():
        run(*command.split())
        assert [line for line in drift() if text in line], (what, drift())
        mend()
        assert good() == ["tap0"] and diff(whole, snapshot()) == [], what
    assert collect() == []
    down()
    assert diff(before, snapshot()) == []


def test_an_entry_that_somebody_has_moved_is_his(placed: Node) -> None:
    """check says it; repair takes it from nobody, and says from whom it does not; down leaves it."""
    up(0, "static_fdb")
    run("bridge", "fdb", "replace", MACS[0], "dev", "up0", "master", "static")
    assert [line for line in drift() if "the entry is static, on up0" in line]
    with pytest.raises(HostRefused, match="has a static entry on up0"):
        mend()
    down()
    assert MACS[0] in run("bridge", "fdb", "show", "dev", "up0")


def joined(node: Node) -> None:
    """tap1 stays, and is the administrator's port of the bridge; it was up once, from when on the kernel gives it a qdisc."""
    node.tap("tap1", persistent=True)
    run("ip", "link", "set", "tap1", "master", "br0", "up")
    run("ip", "link", "set", "tap1", "down")


def test_a_tap_that_stays_is_as_before(placed: Node) -> None:
    """It was a port of the bridge already, with things of the administrator's own."""
    joined(placed)
    run("bridge", "link", "set", "dev", "tap1", "isolated", "on", "mcast_flood", "off")
    run("bridge", "fdb", "add", "aa:99:00:00:00:01", "dev", "tap1", "master", "static")
    before = snapshot()
    up(1, ALL)
    assert all(words in port("tap1") for words in SHOWN)
    down(1)
    assert diff(before, snapshot()) == []


def test_an_entry_of_the_administrators_stays(placed: Node) -> None:
    joined(placed)
    run("bridge", "fdb", "add", MACS[1], "dev", "tap1", "master", "static")
    before = snapshot()
    up(1, "static_fdb")
    assert good() == ["tap1"]
    down(1)
    assert diff(before, snapshot()) == []


def test_without_the_options_they_go(placed: Node) -> None:
    before = snapshot()
    up(0)
    plain = snapshot()
    up(0, ALL)
    assert diff(plain, snapshot()) != []
    up(0)
    assert [line for line in diff(plain, snapshot()) if "files" not in line] == []
    down()
    assert diff(before, snapshot()) == []


def test_an_address_that_is_on_another_port(placed: Node) -> None:
    """Somebody's static entry, and another port's own address: refused with both names, and nothing was changed."""
    run("bridge", "fdb", "add", MACS[0], "dev", "up0", "master", "static")
    before = snapshot()
    outcome = rundoor("kvm-ifup", nic(0, "static_fdb"))
    assert outcome.status == 69 and f"{MACS[0]}, the MAC of the NIC on tap0, has a static entry on up0" in outcome.stderr
    assert diff(before, snapshot()) == []
    run("bridge", "fdb", "del", MACS[0], "dev", "up0", "master")
    run("ip", "link", "set", "up0", "address", MACS[0])
    outcome = rundoor("kvm-ifup", nic(0, "static_fdb"))
    assert outcome.status == 69 and "has a local entry on up0" in outcome.stderr


def test_its_own_earlier_tap_gives_the_address_up(placed: Node) -> None:
    """The same NIC comes up on another tap while the first one is still alive, and the late down of that changes nothing."""
    placed.tap("tap1")
    up(0, "static_fdb")
    outcome = rundoor("kvm-ifup", nic(0, "static_fdb", INTERFACE="tap1"))
    assert outcome.status == 0 and "it is taken over" in outcome.stderr
    assert "tap1" in run("bridge", "fdb", "show", "dev", "tap1") or MACS[0] in run("bridge", "fdb", "show", "dev", "tap1")
    run("ip", "link", "del", "tap0")
    collect()
    assert MACS[0] in run("bridge", "fdb", "show", "dev", "tap1") and good() == ["tap1"]


def test_a_mac_is_needed(placed: Node) -> None:
    outcome = rundoor("kvm-ifup", nic(0, "static_fdb", MAC=""))
    assert outcome.status == 64 and "MAC" in outcome.stderr and "static_fdb" in outcome.stderr


def test_while_the_guest_migrates_in(placed: Node) -> None:
    """What may be true on one node only waits for it; the rest does not."""
    before = snapshot()
    variables = nic(0, ALL, ACTION="up")
    assert rundoor("kvm-nic-setup", {**variables, "MIGRATION_PHASE": "pre"}).status == 0
    assert MACS[0] not in run("bridge", "fdb", "show", "dev", "tap0")
    shown = port()
    assert "learning on" in shown and " flood on" in shown and "isolated on" in shown and "mcast_flood off" in shown
    assert good() == ["tap0"]
    assert rundoor("kvm-nic-setup", {**variables, "MIGRATION_PHASE": "post"}).status == 0
    assert all(words in port() for words in SHOWN) and "sticky" in entry() and good() == ["tap0"]
    down()
    assert diff(before, snapshot()) == []


@pytest.fixture
def ends(node: Node) -> Iterator[Mapping[str, End]]:
    """Three guests' taps, not set up yet, and the outside of a bridge that forwards at once."""
    outside: Namespace = node.outside("up0")
    node.bridge("br0", "up0")
    found: dict[str, End] = {f"tap{number}": node.tap(f"tap{number}") for number in range(3)}
    with Wire(outside) as wire:
        yield {**found, "outside": wire}


def forwarding(ends: Mapping[str, End]) -> None:
    """Waits until frames pass between all of them."""
    for number in range(3):
        up(number)
    wait_until(lambda: len(exchange(ends, [("outside", frame(OUTSIDE))])[0]) == 3, 5, "frames through the bridge")


def test_isolated_ports_do_not_reach_each_other(ends: Mapping[str, End]) -> None:
    forwarding(ends)
    sent = [("tap0", frame(MACS[0])), ("tap0", frame(MACS[0], MACS[1])), ("tap2", frame(MACS[2])), ("outside", frame(OUTSIDE))]
    exchange(ends, [("tap1", frame(MACS[1]))])  # the bridge learns where it is
    assert [set(got) for got in exchange(ends, sent)] == [
        {"tap1", "tap2", "outside"},
        {"tap1"},
        {"tap0", "tap1", "outside"},
        {"tap0", "tap1", "tap2"},
    ]
    up(0, "isolated")
    up(1, "isolated")
    assert [set(got) for got in exchange(ends, sent)] == [
        {"tap2", "outside"},
        set(),
        {"tap0", "tap1", "outside"},
        {"tap0", "tap1", "tap2"},
    ]


def test_a_bridge_that_is_down_forwards_nothing(ends: Mapping[str, End]) -> None:
    """check says so, and so does the next up, though all that was done for the NICs holds."""
    forwarding(ends)
    assert good() == ["tap0", "tap1", "tap2"]
    run("ip", "link", "set", "br0", "down")
    assert [set(got) for got in exchange(ends, [("outside", frame(OUTSIDE)), ("tap0", frame(MACS[0], MACS[1]))])] == [set(), set()]
    with ours() as node:
        reports = [check(node, node.host.snapshot(), record) for record in node.store.all()[0]]
    assert [(report.drift, report.good) for report in reports] == [((), False)] * 3
    assert {report.dropped for report in reports} == {(("bridge br0 is down, and forwards nothing", "ip link set dev br0 up"),)}
    outcome = rundoor("kvm-ifup", nic())
    assert outcome.status == 0 and "bridge br0 is down, and forwards nothing: ip link set dev br0 up" in outcome.stderr
    run("ip", "link", "set", "br0", "up")
    wait_until(lambda: len(exchange(ends, [("outside", frame(OUTSIDE))])[0]) == 3, 5, "frames through the bridge")
    assert good() == ["tap0", "tap1", "tap2"]


def test_a_static_entry_is_all_that_a_port_gets(ends: Mapping[str, End]) -> None:
    """What nobody knows is not flooded to the guest, what is for it comes though it never spoke, and nobody draws that away."""
    forwarding(ends)
    unknown = "aa:77:77:77:77:77"
    up(0, "static_fdb")
    sent = [("outside", frame(OUTSIDE, unknown)), ("outside", frame(OUTSIDE, MACS[0])), ("outside", frame(OUTSIDE))]
    expected = [{"tap1", "tap2"}, {"tap0"}, {"tap0", "tap1", "tap2"}]
    assert [set(got) for got in exchange(ends, sent)] == expected
    exchange(ends, [("tap1", frame(MACS[0])), ("outside", frame(MACS[0]))])  # forged, and reflected by a switch
    assert [set(got) for got in exchange(ends, sent)] == expected
    exchange(ends, [("tap0", frame(unknown))])  # the bridge does not learn what else the guest says it is
    assert [set(got) for got in exchange(ends, sent)] == expected


def test_multicast_that_nobody_asked_for(ends: Mapping[str, End]) -> None:
    forwarding(ends)
    up(0, "mcast_flood:no")
    sent = [("outside", frame(OUTSIDE, "01:00:5e:01:02:03")), ("outside", frame(OUTSIDE))]
    assert [set(got) for got in exchange(ends, sent)] == [{"tap1", "tap2"}, {"tap0", "tap1", "tap2"}]


def packet4(source: str, destination: str, protocol: int, payload: bytes) -> bytes:
    """A multicast frame with the router alert option (RFC 2113), as from a guest whose MAC is ``source``."""
    alert = bytes((0x94, 4, 0, 0))
    head = struct.pack("!BBHHHBBH", 0x46, 0, 24 + len(payload), 1, 0, 1, protocol, 0)
    head += socket.inet_aton("10.0.0.9") + socket.inet_aton(destination) + alert
    mac = b"\x01\x00\x5e" + bytes((socket.inet_aton(destination)[1] & 0x7F,)) + socket.inet_aton(destination)[2:]
    return mac + mac_bytes(source) + struct.pack("!H", IPV4) + head[:10] + checksum(head) + head[12:] + payload


def message(body: bytes) -> bytes:
    """IGMP's, or PIM's: with its checksum."""
    return body[:2] + checksum(body[:2] + b"\0\0" + body[4:]) + body[4:]


def mld_query(source: str) -> bytes:
    """A general query (RFC 2710)."""
    mine, everybody = (socket.inet_pton(socket.AF_INET6, each) for each in ("fe80::9", "ff02::1"))
    body = struct.pack("!BBHHH", 130, 0, 0, 100, 0) + bytes(16)
    body = body[:2] + checksum(mine + everybody + struct.pack("!IHBB", len(body), 0, 0, ICMP6) + body) + body[4:]
    options = bytes((ICMP6, 0, 5, 2, 0, 0, 1, 0))
    packet = struct.pack("!IHBB", 6 << 28, len(options) + len(body), 0, 1) + mine + everybody + options + body
    return bytes.fromhex("333300000001") + mac_bytes(source) + struct.pack("!H", IPV6) + packet


IGMP, UDP, PIM = 2, 17, 103
GROUP = "239.1.2.3"
QUERIES = {
    "IGMP query": packet4(MACS[0], "224.0.0.1", IGMP, message(bytes.fromhex("1101000000000000"))),
    "MLD query": mld_query(MACS[0]),
    "PIM hello": packet4(MACS[0], "224.0.0.13", PIM, message(bytes.fromhex("20000000000100020069"))),
}
JOINING = packet4(MACS[1], GROUP, IGMP, message(bytes.fromhex("16000000") + socket.inet_aton(GROUP)))
DATA = packet4(OUTSIDE, GROUP, UDP, struct.pack("!HHHH", 5000, 5000, 8, 0))


def guarded(number: int, options: str = "") -> None:
    """The NIC is up as most are: with the spoof guard."""
    tags = " ".join(f"netcommon:{option}" for option in options.split())
    assert rundoor("kvm-ifup", environment(number, **BRIDGED, NETWORK_TAGS=tags)).status == 0


def routers() -> str:
    """The ports that the bridge takes for those of multicast routers."""
    return " ".join(line for line in run("bridge", "-d", "mdb", "show", "dev", "br0").splitlines() if "router" in line)


def got(ends: Mapping[str, End]) -> set[str]:
    """The guests that get a datagram to the group."""
    arrived = set()
    ends["outside"].send(DATA)
    ends["outside"].send(frame(OUTSIDE).raw())
    for name in ("tap0", "tap1", "tap2"):
        while (raw := ends[name].receive(lambda raw: raw[6:12] == mac_bytes(OUTSIDE), 5)) is not None and raw[12:14] == DATA[12:14]:
            arrived.add(name)
        assert raw is not None, "the frame that follows the datagram"
    return arrived


@pytest.mark.parametrize(("options", "router"), [("", False), ("allow_mcast_router", True), ("spoof_guard:no", True)])
def test_who_sends_queries_gets_no_group_of_others(ends: Mapping[str, End], options: str, router: bool) -> None:
    """The bridge sends all multicast to where it thinks that a multicast router is (ip-link(8), "mcast_router")."""
    groups_of_others(ends, options, router)


@pytest.mark.vm
@pytest.mark.slow
@pytest.mark.parametrize(("options", "router"), [("", False), ("allow_mcast_router", True)])
def test_queries_in_the_machine(ends: Mapping[str, End], options: str, router: bool) -> None:
    groups_of_others(ends, options, router)


def groups_of_others(ends: Mapping[str, End], options: str, router: bool) -> None:
    forwarding(ends)
    for number in (1, 2):
        guarded(number)
    for name, query in QUERIES.items():
        guarded(0, options)
        ends["tap0"].send(query)
        assert ("tap0" in routers()) == router, name
        assert rundoor("kvm-ifdown", nic(0), "tap0", "hot-remove").status == 0
        assert "tap0" not in routers()
    guarded(0, options)
    wait_until(lambda: len(exchange(ends, [("outside", frame(OUTSIDE))])[0]) == 3, 5, "frames through the bridge")

    def joined_alone() -> bool:  # the bridge floods until it has heard a query, and for as long as answers may take
        query = QUERIES["IGMP query"]
        ends["tap0"].send(query)
        ends["outside"].send(query[:6] + mac_bytes("aa:00:00:00:00:77") + query[12:])  # the guest's own may be dropped
        ends["tap1"].send(JOINING)
        return got(ends) & {"tap1", "tap2"} == {"tap1"}

    wait_until(joined_alone, 10, "the group goes to who joined it")
    assert got(ends) == ({"tap0", "tap1"} if router else {"tap1"})


def test_a_multicast_router_by_hand(placed: Node) -> None:
    """It is drift, and repaired."""
    guarded(0)
    down()  # what is made once and stays
    before = snapshot()
    guarded(0)
    assert "mcast_router 0" in run("ip", "-d", "link", "show", "tap0") and good() == ["tap0"]
    for value in ("1", "2"):
        run("bridge", "link", "set", "dev", "tap0", "mcast_router", value)
        assert [line for line in drift() if "mcast_router 0: it is 1" in line]
        mend()
        assert "mcast_router 0" in run("ip", "-d", "link", "show", "tap0") and good() == ["tap0"]
    down()
    assert diff(before, snapshot()) == []
