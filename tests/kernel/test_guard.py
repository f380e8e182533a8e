"""The spoof guard of bridged and routed NICs on the running kernel: up, check, drift by hand, repair, down, and no gap in between."""

from __future__ import annotations

import json
import os
import select
import threading
import time

import pytest

from netcommon.host.linux.host import LinuxHost
from netcommon.lifecycle.execute import decode
from netcommon.operations.guard.egress_filter import NAME
from netcommon.operations.guard.rules import LAYOUT
from netcommon.operations.guard.table import NicGuard, table_of
from tests.kernel.test_doors_parallel import collect, environment, good
from tests.kernel.test_guard_verdicts import FRAMES, MAC, OWN4, frame, ip4, udp
from tests.kernel.test_rate import BRIDGED, drift, mend
from tests.support.frames import IPV4
from tests.support.netns import run, wait_until
from tests.support.node import Node
from tests.support.routed import ours
from tests.support.rundoor import rundoor
from tests.support.snapshot import diff, snapshot
from tests.support.tap import VNET_HEADER, Tap

TAGS = "netcommon:*:spoof_guard netcommon:*:prefixes:10.1.0.0/28"
MODES = {"bridged": {**BRIDGED, "IP": OWN4, "MAC": MAC, "TAGS": TAGS}, "routed": {"IP": OWN4, "MAC": MAC, "TAGS": TAGS}}
TABLE = table_of("tap0")
INSTANT = 0.001  #: seconds between two frames
AGAIN = 100

DRIFTS = (
    f"delete element netdev TABLE macs {{ tap0 . {MAC} }}",
    "add element netdev TABLE ipv4 { tap0 . 10.9.9.9 }",
    "delete rule netdev TABLE in-INDEX handle RULE",
    "flush chain netdev TABLE guard",
    "flush table netdev TABLE",
    "delete table netdev TABLE",
    "flush ruleset",
)
DELIVERY_DRIFTS = (
    f"delete element bridge {NAME} own {{ tap0 . {MAC} }}",
    f"add element bridge {NAME} own {{ tap0 . aa:00:00:00:00:77 }}",
    f"flush chain bridge {NAME} postrouting",
    f"delete table bridge {NAME}",
)


@pytest.fixture
def placed(node: Node) -> Node:
    """A bridge and a tap; each mode has been up and down once: the folders are there."""
    node.bridge("br0")
    node.tap("tap0")
    for changes in MODES.values():
        assert rundoor("kvm-ifup", environment(**changes)).status == 0
        assert rundoor("kvm-ifdown", environment(**changes), "tap0", "hot-remove").status == 0
    return node


def index() -> int:
    found: int = json.loads(run("ip", "-j", "link", "show", "dev", "tap0"))[0]["ifindex"]
    return found


def own_rule() -> str:
    """The handle of the rule in the NIC's own chain."""
    listed = json.loads(run("nft", "-j", "list", "chain", "netdev", TABLE, f"in-{index()}"))["nftables"]
    return str(next(item["rule"]["handle"] for item in listed if "rule" in item))


@pytest.mark.parametrize("mode", MODES)
def test_a_life(placed: Node, mode: str) -> None:
    before = snapshot()
    assert rundoor("kvm-ifup", environment(**MODES[mode])).status == 0
    assert good() == ["tap0"]
    up = snapshot()
    for change in (*DRIFTS, *(DELIVERY_DRIFTS if mode == "bridged" else ())):
        words = change.replace("TABLE", TABLE).replace("INDEX", str(index()))
        run("nft", words.replace("RULE", own_rule()) if "RULE" in words else words)
        assert drift(), change
        mend()
        assert good() == ["tap0"], change
        assert [line for line in diff(up, snapshot()) if "/run/netcommon/nics/" not in line] == [], change
    assert collect() == []
    assert rundoor("kvm-ifdown", environment(**MODES[mode]), "tap0", "hot-remove").status == 0
    assert diff(before, snapshot()) == []


def test_without_its_record(placed: Node) -> None:
    """gc finds the guard by its mark, once its device is gone, and leaves others' tables alone."""
    run("nft", "add table netdev netcommon-guard-of-mine; add table netdev theirs; add set netdev theirs macs { type iface_index; }")
    before = snapshot()
    tap = placed.tap("tap9")
    assert rundoor("kvm-ifup", environment(**MODES["bridged"], INTERFACE="tap9")).status == 0
    run("rm", "-r", "/run/netcommon/nics", "/run/netcommon/devices", "/run/netcommon/instances", "/run/netcommon/owners")
    tap.close()
    assert collect()
    assert run("nft", "list", "tables").split("\n")[:2] == ["table netdev netcommon-guard-of-mine", "table netdev theirs"]
    assert [line for line in diff(before, snapshot()) if "nft" in line] == []


def test_a_name_again(placed: Node) -> None:
    """The next guest with the tap's name gets its own guard, and nothing of the earlier one's, whose down never came."""
    tap = placed.tap("tap9")
    assert rundoor("kvm-ifup", environment(**MODES["bridged"], INTERFACE="tap9")).status == 0
    tap.close()
    placed.tap("tap9")
    other = {"IP": "10.0.0.99", "MAC": "aa:00:00:00:00:99", "INTERFACE": "tap9", "INSTANCE": "web9"}
    other["INTERFACE_UUID"] = "00000099-0000-4000-8000-000000000099"
    assert rundoor("kvm-ifup", environment(**{**MODES["bridged"], **other})).status == 0
    listed = run("nft", "list", "ruleset")
    assert "10.0.0.99" in listed and OWN4 not in listed and good() == ["tap9"]


def test_odd_names(placed: Node) -> None:
    for name in ("täp.0-x", "a-very-long.tap", "00"):
        tap = placed.tap(name)
        before = snapshot()
        nic = environment(**MODES["bridged"], INTERFACE=name)
        assert rundoor("kvm-ifup", nic).status == 0
        assert good() == [name]
        assert rundoor("kvm-ifdown", nic, name, "hot-remove").status == 0
        assert [line for line in diff(before, snapshot()) if "nft" in line] == []
        tap.close()


class Stream(threading.Thread):
    """A guest that sends an allowed frame every millisecond until it is stopped; each has a number."""

    def __init__(self, tap: Tap) -> None:
        super().__init__()
        self.tap, self.sent, self.stopped = tap, 0, threading.Event()

    def run(self) -> None:
        due = time.monotonic()
        while not self.stopped.is_set():
            self.tap.send(frame(ip4(OWN4, udp(1, 2, self.sent.to_bytes(4, "big")))[14:], IPV4))
            self.sent += 1
            due += INSTANT
            time.sleep(max(0.0, due - time.monotonic()))


def test_no_gap(node: Node) -> None:
    """A frame every millisecond: all arrive at the other guest, and no forged one does, while the guard is put in place anew."""
    node.bridge("br0")
    tap, other = node.tap("tap0"), node.tap("tap1")
    run("ip", "link", "set", "tap1", "master", "br0", "up")
    run("ip", "link", "set", "tap1", "txqueuelen", "100000")
    assert rundoor("kvm-ifup", environment(**MODES["bridged"])).status == 0
    with ours() as mine:
        operations = decode(mine.store.all()[0][0])[0]
    stream, host, received, forged = Stream(tap), LinuxHost(), set[int](), FRAMES["foreign IPv4"][0]
    stream.start()
    rounds = 0
    while rounds < AGAIN:
        for operation in operations:
            if isinstance(operation, NicGuard):
                (again,) = operation.resolve(host.view(), [])
                assert [answer.ok for answer in host.execute(again.apply(), stop=True)] == [True]
                rounds += 1
        tap.send(forged.ljust(60, b"\0"))
        time.sleep(INSTANT)
        received |= numbers(other)
    stream.stopped.set()
    stream.join()
    wait_until(lambda: received.update(numbers(other)) or len(received) >= stream.sent, 2, "every frame arrives")
    assert received == set(range(stream.sent)) and stream.sent >= AGAIN


def numbers(tap: Tap) -> set[int]:
    """Those of the frames that have come; a forged one has none."""
    found = set()
    while select.select([tap.descriptor], [], [], 0)[0]:  # what is there now: the next one is never a millisecond away
        raw = os.read(tap.descriptor, 65600)[len(VNET_HEADER) :]
        if raw[12:14] == b"\x08\0" and raw[6:12] == bytes.fromhex(MAC.replace(":", "")):
            assert raw[26:30] == bytes((10, 0, 0, 5)), raw.hex()
            found.add(int.from_bytes(raw[42:46], "big"))
    return found


def test_a_table_of_an_earlier_version(placed: Node) -> None:
    """It lacks chains and sets of today, and the chain that says which they are: the next up makes it whole."""
    other = next(name for name in (f"tap{number}" for number in range(1, 100)) if table_of(name) == TABLE)
    second = placed.tap(other)
    assert rundoor("kvm-ifup", environment(**MODES["bridged"])).status == 0
    for chain in ("sender", "source4", "source6"):
        run("nft", "flush", "chain", "netdev", TABLE, chain)
    run("nft", "delete", "element", "netdev", TABLE, "new-sources", "{ tap0 }")
    run("nft", "delete", "set", "netdev", TABLE, "new-sources")
    run("nft", "delete", "chain", "netdev", TABLE, LAYOUT)
    changes = {**MODES["bridged"], "INTERFACE": other, "MAC": "aa:00:00:00:00:07", "IP": "10.0.0.7"}
    said = rundoor("kvm-ifup", environment(1, **changes))
    assert (said.status, said.stderr) == (0, "")
    assert run("nft", "list", "set", "netdev", TABLE, "new-sources").count(other) == 1
    assert rundoor("kvm-ifup", environment(**MODES["bridged"])).status == 0  # its own element is put back
    assert second.up and good() == sorted(["tap0", other])


def test_what_an_administrator_does_to_a_table(placed: Node) -> None:
    """Check sees a table that is dormant and a policy; an element for all that is in no other ends nothing."""
    assert rundoor("kvm-ifup", environment(**MODES["bridged"])).status == 0
    run("nft", "add", "table", "netdev", TABLE, "{ flags dormant; }")
    assert [line for line in drift() if "dormant" in line]
    mend()
    assert good() == ["tap0"]
    run("nft", "add", "chain", "netdev", TABLE, f"in-{index()}", "{ policy drop; }")
    assert [line for line in drift() if f"in-{index()}" in line]
    mend()
    assert good() == ["tap0"]
    run("nft", "add", "element", "netdev", TABLE, "free-type", "{ * }")
    assert collect() == []
