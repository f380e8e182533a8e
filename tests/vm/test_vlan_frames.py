"""VLANs on a VLAN-aware bridge, set up by our hooks: frames really sent, and who gets them with which tag; the uplink's VLANs come and go.

In the machine, whose kernel filters VLANs. Everything stands side by side on one node, since each hook takes seconds there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import pytest

from tests.kernel.test_doors_parallel import collect, environment, good
from tests.kernel.test_rate import drift, mend
from tests.support.flood import Flood
from tests.support.frames import Frame
from tests.support.netns import ask, run, wait_until
from tests.support.node import Node
from tests.support.rundoor import rundoor
from tests.support.sample import FULL
from tests.support.snapshot import diff, snapshot
from tests.support.tap import Tap
from tests.support.wire import End, Wire, exchange, frame

ROUNDS = 20 if FULL else 2
AWARE = {"MODE": "bridged", "LINK": "brv", "IP": ""}
OUTSIDE, HOST, UNKNOWN = "aa:ee:ee:ee:ee:ee", "aa:dd:dd:dd:dd:dd", "aa:77:77:77:77:77"

#: Each NIC's VLAN and an option that it has.
NICS = {
    "tap0": (".10", ""),
    "tap1": (".10", "static_fdb"),
    "tap2": (":10:20", ""),
    "tap3": (".20:30", ""),
    "tap4": ("", ""),
    "tap5": (":20", "default_vlan"),
}
MACS = {tap: f"aa:00:00:00:00:0{tap[3:]}" for tap in NICS}


def nic(tap: str, **changes: str) -> dict[str, str]:
    """Without the spoof guard: what passes is the bridge's doing alone."""
    vlan, option = NICS[tap]
    tags = f"netcommon:*:spoof_guard:no netcommon:*:{option}" if option else "netcommon:*:spoof_guard:no"
    return environment(int(tap[3:]), **{**AWARE, "VLAN": vlan, "TAGS": tags, **changes})


def up(tap: str, **changes: str) -> None:
    outcome = rundoor("kvm-ifup", nic(tap, **changes))
    assert outcome.status == 0, outcome


def down(tap: str) -> None:
    assert rundoor("kvm-ifdown", nic(tap), tap, "hot-remove").status == 0


def vlans(device: str) -> list[str]:
    """ "10 pvid untagged", and the like."""
    found = [vlan for port in ask("bridge", "-j", "vlan", "show", "dev", device) for vlan in port["vlans"]]
    return [" ".join([str(vlan["vlan"]), *(word.split()[-1].lower() for word in vlan.get("flags", ()))]) for vlan in found]


class Sent(NamedTuple):
    """A frame that ``sender`` sends with the tag ``vlan``, and who gets it, with which tag (0: none)."""

    sender: str
    vlan: int
    expected: Mapping[str, int]
    destination: str = "ff:ff:ff:ff:ff:ff"


SENT = [
    # access: untagged in and out, and nothing else
    Sent("tap0", 0, {"tap1": 0, "tap2": 10, "outside": 10}),
    Sent("tap0", 20, {}),
    Sent("tap0", 1, {}),
    Sent("outside", 10, {"tap0": 0, "tap1": 0, "tap2": 10}),
    # trunk: tagged in and out, nothing untagged
    Sent("tap2", 10, {"tap0": 0, "tap1": 0, "outside": 10}),
    Sent("tap2", 20, {"tap3": 0, "tap5": 20, "outside": 20}),
    Sent("tap2", 0, {}),
    Sent("tap2", 30, {}),
    Sent("tap2", 1, {}),
    # hybrid: one untagged, the others tagged
    Sent("tap3", 0, {"tap2": 20, "tap5": 20, "outside": 20}),
    Sent("tap3", 30, {"outside": 30}),
    Sent("tap3", 10, {}),
    Sent("outside", 20, {"tap2": 20, "tap3": 0, "tap5": 20}),
    Sent("outside", 30, {"tap3": 30}),
    # the default VLAN: the host's, the outside's, and that of who has no other or asks for it; it leaks to nobody else
    Sent("host", 0, {"tap4": 0, "tap5": 0, "outside": 0}),
    Sent("outside", 0, {"tap4": 0, "tap5": 0, "host": 0}),
    Sent("outside", 1, {"tap4": 0, "tap5": 0, "host": 0}),
    Sent("tap4", 0, {"tap5": 0, "host": 0, "outside": 0}),
    Sent("tap5", 0, {"tap4": 0, "host": 0, "outside": 0}),
    Sent("tap4", 10, {}),
    # what nobody has, though the uplink carries it
    Sent("outside", 40, {}),
    # a static entry: nothing unknown is flooded to that guest, and what is for it comes though it never spoke
    Sent("outside", 10, {"tap0": 0, "tap2": 10}, UNKNOWN),
    Sent("outside", 10, {"tap1": 0}, MACS["tap1"]),
]


class Place(NamedTuple):
    """The node, its taps, and everybody who sends and receives."""

    node: Node
    taps: Mapping[str, Tap]
    ends: Mapping[str, End]


@pytest.fixture
def place(node: Node) -> Iterator[Place]:
    """A VLAN-aware bridge whose uplink carries VLANs of the administrator's.

    A NIC was up and down once: the folders are there. The taps too: from when on the kernel gives them a qdisc.
    """
    outside = node.outside("up0")
    node.bridge("brv", "up0", vlan_filtering=True)
    for vid in ("20", "40"):
        run("bridge", "vlan", "add", "dev", "up0", "vid", vid)
    taps = {tap: node.tap(tap) for tap in NICS}
    for tap in taps:
        run("ip", "link", "set", tap, "up")
        run("ip", "link", "set", tap, "down")
    up("tap1")
    down("tap1")
    with Wire(outside) as wire, Wire(node.namespace, "brv") as host:
        yield Place(node, taps, {**taps, "outside": wire, "host": host})


def test_who_gets_which_frame_and_how_the_uplinks_vlans_go(place: Place) -> None:
    before = snapshot()
    assert vlans("up0") == ["1 pvid untagged", "20", "40"]
    for tap in NICS:
        up(tap)
    assert vlans("tap0") == ["10 pvid untagged"] and vlans("tap2") == ["10", "20"] and vlans("tap3") == ["20 pvid untagged", "30"]
    assert vlans("tap4") == ["1 pvid untagged"] and vlans("tap5") == ["1 pvid untagged", "20"]
    assert vlans("up0") == ["1 pvid untagged", "10", "20", "30", "40"]
    assert good() == sorted(NICS)
    wait_until(lambda: [port["state"] for port in ask("bridge", "-j", "link")] == ["forwarding"] * 7, 5, "ports that forward")
    sources = {**MACS, "outside": OUTSIDE, "host": HOST}
    arrived = exchange(place.ends, [(one.sender, frame(sources[one.sender], one.destination, one.vlan)) for one in SENT])
    wrong = [(one, got) for one, got in zip(SENT, arrived, strict=True) if got != one.expected]
    assert wrong == []
    # two NICs and more share a VLAN of the uplink: it stays until the last one goes, and the administrator's stay for good
    for tap, left in (("tap0", [10, 20, 30]), ("tap2", [10, 20, 30]), ("tap3", [10, 20]), ("tap1", [20]), ("tap5", [20]), ("tap4", [20])):
        down(tap)
        assert vlans("up0") == ["1 pvid untagged", *map(str, left), "40"], tap
    assert diff(before, snapshot()) == []


def test_what_others_still_need_stays(place: Place) -> None:
    """A port that somebody else has put into the VLAN meanwhile, and the host itself."""
    up("tap0")
    run("ip", "link", "set", "tap5", "master", "brv")
    run("bridge", "vlan", "add", "dev", "tap5", "vid", "10")
    down("tap0")
    assert "10" in vlans("up0")
    up("tap3", VLAN=".50")
    run("bridge", "vlan", "add", "dev", "brv", "vid", "50", "self")
    down("tap3")
    assert "50" in vlans("up0") and "20" in vlans("up0")


@pytest.mark.slow
def test_a_vlan_that_an_interface_of_the_uplink_takes(place: Place) -> None:
    """Refused with both names, and nothing was changed; another VLAN, and one that is in use already, are not."""
    run("ip", "link", "add", "link", "up0", "name", "storage", "type", "vlan", "id", "10")
    before = snapshot()
    outcome = rundoor("kvm-ifup", nic("tap0"))
    assert outcome.status == 69 and "VLAN 10 of up0, uplink of brv, is taken by the VLAN interface storage" in outcome.stderr
    assert diff(before, snapshot()) == []
    up("tap0", VLAN=".11")


#: What somebody does by hand to tap1, an access port with a static entry, and what check says of it.
DRIFTS = {
    "bridge vlan del dev tap1 vid 10": "its VLANs are none",
    "bridge vlan add dev tap1 vid 1 pvid untagged": "its VLANs are 1 pvid untagged, 10",
    "bridge vlan del dev up0 vid 10": "up0 does not carry VLAN 10",
    f"bridge fdb del {MACS['tap1']} dev tap1 master vlan 10": "the entry in VLAN 10 is gone",
    "bridge link set dev tap1 learning on": "learning off: it is on",
    "ip link set tap1 nomaster": "it is no port of brv",
}


@pytest.mark.slow
def test_drift_and_repair(place: Place) -> None:
    before = snapshot()
    up("tap1")
    assert f"{MACS['tap1']} vlan 10 sticky master brv static" in run("bridge", "fdb", "show", "dev", "tap1").replace("dev tap1 ", "")
    whole = snapshot()
    for command, text in DRIFTS.items():
        run(*command.split())
        assert [line for line in drift() if text in line], (command, drift())
        mend()
        assert good() == ["tap1"], command
    # a repaired record holds what VLANs the port had when it was repaired
    assert [line for line in diff(whole, snapshot()) if not line.startswith("~ files:")] == [] and collect() == []
    down("tap1")
    assert diff(before, snapshot()) == []


@pytest.mark.slow
def test_a_nic_whose_vlans_change(place: Place) -> None:
    """Static entries leave with the VLANs they were in."""
    before = snapshot()
    up("tap1", VLAN=":10:11:12")
    up("tap1", VLAN=".11:13")
    assert vlans("tap1") == ["11 pvid untagged", "13"]
    entries = ask("bridge", "-j", "fdb", "show", "dev", "tap1")
    assert sorted(entry["vlan"] for entry in entries if entry["mac"] == MACS["tap1"]) == [11, 13]
    assert vlans("up0") == ["1 pvid untagged", "11", "13", "20", "40"]
    down("tap1")
    assert diff(before, snapshot()) == []


@pytest.mark.slow
def test_a_tap_that_is_up_before(place: Place) -> None:
    """Its guest sends all the time: none of that gets into the default VLAN, and the host hears nothing."""
    tap = place.taps["tap0"]
    assert isinstance(tap, Tap)
    untagged = frame(MACS["tap0"]).raw()
    with Flood(tap, [untagged]) as flood:
        for _ in range(ROUNDS):
            run("ip", "link", "set", "tap0", "up")
            up("tap0")
            flood.goes_on()
            down("tap0")
            flood.goes_on()
            assert not tap.up
    print(f"FIGURES sent {flood.sent}, refused {flood.refused}")
    assert flood.sent > 0 and flood.refused > 0
    assert place.ends["host"].receive(lambda raw: raw[6:12] == untagged[6:12], 0.1) is None
    assert place.ends["outside"].receive(lambda raw: raw[6:12] == untagged[6:12] and Frame.parse(raw).vlan != 10, 0.1) is None
