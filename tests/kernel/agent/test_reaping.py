"""The reaper on the kernel: real things with our mark and no owner go in the second inventory, and nothing else ever."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from netagent.observe.alarms import Alarms
from netagent.observe.metrics import Metrics
from netagent.reap.reaper import Reaper, unfinished
from netcommon.lifecycle import inventory
from netcommon.lifecycle.context import Call, Clock, open_node
from netcommon.lifecycle.gc import Found
from netcommon.log import recording
from netcommon.settings.model import Settings
from runtime.paths import Paths
from tests.support.netns import ask, run, wait_until
from tests.support.node import Node
from tests.support.ovs import OpenVswitch
from tests.support.rundoor import rundoor
from tests.support.snapshot import Snapshot, diff, snapshot

UUID = "13264fb6-0667-415f-9a43-786dc01cbf24"
GRACE = 120.0
ROUTED = {
    "INTERFACE": "tap0",
    "MODE": "routed",
    "LINK": "100",
    "IP": "10.0.0.5",
    "MAC": "aa:00:00:12:34:56",
    "VLAN": "",
    "INSTANCE": "web1",
    "INTERFACE_INDEX": "0",
    "INTERFACE_UUID": UUID,
    "TAGS": "netcommon:*:spoof_guard netcommon:*:gateway_arp netcommon:*:dhcp:nfdhcpd netcommon:*:blackhole netcommon:*:uplink_proxy:both",
}

SAID: list[str] = []  #: what was logged by whoever had the node opened last


class Agent:
    """A reaper on this node, with a clock of its own."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.found: list[Found] = []  #: by the last run that was asked what it removed
        self.log, self.lines = recording()
        self.metrics = Metrics()
        self.alarms = Alarms(self.log, self.metrics)
        self.reaper = Reaper(Clock(lambda: self.now), Random(1), self.alarms, self.metrics)

    def reap(self) -> list[Found]:
        with opened() as (node, call):
            return self.reaper.run(node, call)

    def removed(self) -> set[str]:
        self.found = self.reap()
        return {found.text for found in self.found if found.action == "removed"}


@contextlib.contextmanager
def opened() -> Iterator[tuple[inventory.Node, Call]]:
    """The library's own look at the node."""
    log, lines = recording()
    SAID.clear()
    made = open_node(Paths(), Settings(), Clock())
    try:
        yield made, Call(log, made.clock.now() + 60, "agent")
    finally:
        SAID.extend(map(str, lines))
        made.store.close()
        made.host.close()


@pytest.fixture
def uplink(node: Node) -> Node:
    """A routed node, with an administrator's own things on it, like ours but for the mark."""
    Path("/var/lib/nfdhcpd").mkdir(parents=True, exist_ok=True)
    node.outside("up0", "192.0.2.1/24", "2001:db8:f::1/64")
    node.address("up0", "192.0.2.2/24", "2001:db8:f::2/64")
    run("ip", "route", "add", "default", "via", "192.0.2.1")
    run("ip", "route", "add", "192.0.2.77", "dev", "up0", "table", "100")
    run("ip", "rule", "add", "iif", "tap9", "lookup", "100", "preference", "500")
    run("ip", "neighbour", "add", "proxy", "192.0.2.99", "dev", "up0")
    run("nft", "add", "table", "netdev", "administrators")
    run("nft", "add", "table", "arp", "administrators")
    node.forwarding()
    return node


def up_and_down(node: Node, nic: dict[str, str]) -> None:
    """Each folder of ours is there from now on."""
    tap = node.tap(nic["INTERFACE"])
    assert rundoor("kvm-ifup", nic).status == 0
    assert rundoor("kvm-ifdown", nic, nic["INTERFACE"], "hot-remove").status == 0
    tap.close()


def changes(before: Snapshot) -> list[str]:
    """What is not as before; our own folder left out, whose links to a lost record go at once."""
    return [line for line in diff(before, snapshot()) if "/run/netcommon/" not in line]


def forget_record(uuid: str = UUID) -> None:
    """As if it had never been."""
    Path(f"/run/netcommon/nics/{uuid}.json").unlink()


def test_what_bears_our_mark_and_has_no_owner_goes_in_the_second_inventory(uplink: Node) -> None:
    """All that a routed NIC with every option has left behind; an administrator's own things beside it stay."""
    up_and_down(uplink, ROUTED)
    before = snapshot()
    tap = uplink.tap("tap0")
    done = rundoor("kvm-ifup", ROUTED)
    assert (done.status, done.stderr) == (0, "")
    forget_record()
    tap.close()
    with opened() as (node, _call):
        left = {thing.identity.split()[0] for thing in inventory.look(node).owned}
    assert {"rule", "guard-table", "guard", "neighbour", "blackhole", "file"} <= left
    agent = Agent()
    whole = snapshot()
    assert agent.removed() == set() and changes(whole) == []
    agent.now += GRACE / 2
    assert agent.removed() == set() and changes(whole) == []
    agent.now += GRACE / 2
    gone = agent.removed()
    assert {text.split()[0] for text in gone} >= {"rule", "spoof", "nftables", "blackhole", "proxy", "file"}, (agent.found, SAID)
    assert [line for line in changes(before) if "proxy_" not in line] == [], (agent.found, SAID)
    assert agent.reap() == [] and not agent.alarms.active()
    assert agent.metrics.value("netcommon_reaped_total", reason="no-record") == len(gone)


def test_it_stays_while_it_gets_an_owner_in_between(uplink: Node) -> None:
    """The rule of a lost record; then the NIC comes up again, as it was."""
    tap = uplink.tap("tap0")
    assert rundoor("kvm-ifup", ROUTED).status == 0
    forget_record()
    tap.close()
    agent = Agent()
    assert agent.removed() == set()
    uplink.tap("tap0")
    assert rundoor("kvm-ifup", ROUTED).status == 0
    agent.now += GRACE
    # what is of the device that had the name before is nobody's still
    assert all(re.match("spoof guard of device|gateway of [0-9]", text) for text in agent.removed())
    whole = snapshot()
    agent.now += GRACE
    assert agent.removed() == set() and changes(whole) == []
    forget_record()
    for _ in range(2):
        agent.now += GRACE
        assert agent.removed() == set() and changes(whole) == []  # the guest is alive behind its tap: never


def test_records_whose_device_is_gone(uplink: Node) -> None:
    """At once, and whole: nothing of the NIC is left, Ganeti's file neither."""
    for name in ("conf", "nic"):
        Path("/var/run/ganeti/kvm-hypervisor", name).mkdir(parents=True, exist_ok=True)
    Path("/var/run/ganeti/kvm-hypervisor/conf/web1.runtime").write_text("[[], [], {}, []]")
    up_and_down(uplink, ROUTED)
    before = snapshot()
    tap = uplink.tap("tap0")
    assert rundoor("kvm-ifup", ROUTED).status == 0
    file = Path("/var/run/ganeti/kvm-hypervisor/nic/web1", UUID)
    assert file.read_text() == "tap0"
    tap.close()
    agent = Agent()
    assert agent.removed() == {f"web1/0 ({UUID}) on tap0"}
    assert diff(before, snapshot()) == [] and not file.exists()
    assert agent.metrics.value("netcommon_reaped_total", reason="device-gone") == 1


def test_lost_files_of_ganeti(uplink: Node) -> None:
    """Ours, whose tap is gone and whose NIC is on no record; neither Ganeti's own nor those of a guest on its way here."""
    run_folder = Path("/var/run/ganeti/kvm-hypervisor")
    for path, text in (
        (f"nic/web1/{UUID}", "tap0"),
        ("nic/web1/1", "tap1"),
        ("nic/web2/aaaaaaaa-0667-415f-9a43-786dc01cbf24", "tap2"),
        ("pid/web2", f"{os.getpid()}\n"),
        ("nic/web3/bbbbbbbb-0667-415f-9a43-786dc01cbf24", "up0"),
    ):
        (run_folder / path).parent.mkdir(parents=True, exist_ok=True)
        (run_folder / path).write_text(text)
    (run_folder / "nic/web1/0").symlink_to(UUID)
    (run_folder / "conf").mkdir()
    agent = Agent()
    assert agent.removed() == set()
    agent.now += GRACE
    assert agent.removed() == {f"Ganeti's file nic/web1/{UUID}, which names tap0"}
    left = sorted(str(path.relative_to(run_folder / "nic")) for path in (run_folder / "nic").rglob("*") if not path.is_dir())
    assert left == ["web1/1", "web2/aaaaaaaa-0667-415f-9a43-786dc01cbf24", "web3/bbbbbbbb-0667-415f-9a43-786dc01cbf24"]


@pytest.mark.parametrize("present", [True, False])
def test_a_dead_hooks_record_is_reverted_at_once(uplink: Node, present: bool) -> None:
    """Tap present or not, with no inventory and no grace."""
    tap = uplink.tap("tap0")
    assert rundoor("kvm-ifup", ROUTED).status == 0
    assert rundoor("kvm-ifdown", ROUTED, "tap0", "hot-remove").status == 0
    before = snapshot()
    assert rundoor("kvm-ifup", ROUTED).status == 0
    path = Path(f"/run/netcommon/nics/{UUID}.json")
    path.write_bytes(re.sub(rb'"state":"up"', b'"state":"applying"', path.read_bytes()))
    if not present:
        tap.close()
    with opened() as (node, call):
        (found,) = unfinished(node, call)
    assert found.action == "removed" and not path.exists()
    assert not [rule for rule in ask("ip", "-j", "rule") if rule.get("iif") == "tap0"]
    if present:
        assert diff(before, snapshot()) == []


def test_ports_of_open_vswitch_without_a_device(node: Node, ovs: OpenVswitch) -> None:
    """Ours goes in the second inventory, the administrator's stays; while ovsdb-server is stopped nothing goes, and there is an alarm."""
    ovs.vsctl("add-br", "ovs0", "--", "set", "bridge", "ovs0", "datapath_type=netdev")
    nic = {**ROUTED, "MODE": "openvswitch", "LINK": "ovs0", "TAGS": ""}
    tap = node.tap("tap0")
    assert rundoor("kvm-ifup", nic).status == 0
    ovs.vsctl("--no-wait", "add-port", "ovs0", "tap8")
    forget_record()
    tap.close()
    agent = Agent()
    assert agent.removed() == set()
    agent.now += GRACE
    settings = Settings(service_timeout=1.0)
    ovs.freeze("ovsdb-server")
    made = open_node(Paths(), settings, Clock())
    try:
        assert agent.reaper.run(made, Call(agent.log, made.clock.now() + 30, "agent")) == []
    finally:
        ovs.thaw("ovsdb-server")
        made.store.close()
        made.host.close()
    assert "inventory" in agent.alarms.active()
    agent.now += 1
    gone: set[str] = set()
    wait_until(lambda: len(gone.update(agent.removed()) or gone) == 2, 20, "Open vSwitch answers again, and what is nobody's has gone")
    port, flows = sorted(gone)
    assert port == "Open vSwitch port tap0 of ovs0" and flows.startswith("OpenFlow flows of ovs0")
    assert ovs.vsctl("list-ports", "ovs0").split() == ["tap8"] and not agent.alarms.active()


def test_foreign_things_are_never_touched(uplink: Node) -> None:
    """A node on which nothing is ours, but much looks like it: not one change in any number of inventories."""
    run("ip", "route", "add", "10.9.9.9", "dev", "up0", "table", "100", "proto", "174")  # our number, but not of a guest's device
    whole = snapshot()
    agent = Agent()
    for _ in range(3):
        assert agent.removed() == set()
        agent.now += GRACE
    assert diff(whole, snapshot()) == []


def test_records_that_are_suddenly_gone(uplink: Node) -> None:
    """Somebody has emptied the folder: an alarm, and everything stays; the guests' things as long as their taps are there."""
    agent = Agent()
    for number in range(3):
        uplink.tap(f"tap{number}")
        nic = {**ROUTED, "INTERFACE": f"tap{number}", "IP": f"10.0.0.{number + 5}", "INTERFACE_INDEX": str(number)}
        assert rundoor("kvm-ifup", {**nic, "INTERFACE_UUID": f"{number}{UUID[1:]}", "TAGS": ""}).status == 0
    assert agent.reap() == []
    whole = snapshot()
    for path in Path("/run/netcommon/nics").iterdir():
        path.unlink()
    agent.now += 10 * GRACE
    assert agent.reap() == [] and "inventory-empty" in agent.alarms.active()
    for _ in range(3):
        agent.now += 10 * GRACE
        assert {found.action for found in agent.reap()} == {"kept"}
    assert changes(whole) == []
