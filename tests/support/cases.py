"""Cases of the fault suite on the real kernel: a NIC of each kind on a node full of an administrator's own things, down, up and gone."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import pytest

from netcommon.lifecycle.check import check
from netcommon.settings.cache import NAME, SETTLED
from runtime.folder import TEMPORARY
from tests.kernel.test_doors_parallel import environment
from tests.support.administrator import CONFIG, own_ports, own_things, vlan_bridge
from tests.support.netns import run, slowness, wait_until
from tests.support.node import Node
from tests.support.ovs import rows
from tests.support.routed import ours
from tests.support.rundoor import perform
from tests.support.sim import plain
from tests.support.snapshot import Snapshot, diff, snapshot
from tests.support.syscalls import MS_BIND, mount
from tests.support.tap import Tap

BEFORE = "/etc/netcommon-before.toml"  #: in the copy of /etc that a process of tests has
UNGUARDED = "netcommon:*:spoof_guard:no"
OPTIONS = (
    f"{UNGUARDED} netcommon:*:uplink_proxy:both netcommon:*:blackhole netcommon:*:rp_filter:loose "
    "netcommon:*:accept_local netcommon:*:tap_mac:fe:00:00:00:00:01"
)
BRIDGED = {"MODE": "bridged", "LINK": "br0", "IP": "", "TAGS": UNGUARDED}
SWITCHED = {"MODE": "openvswitch", "LINK": "ovs0", "IP": "", "VLAN": ".10:20", "TAGS": UNGUARDED}

#: The variables of each case's NIC, beside those of tests.kernel.test_doors_parallel.environment.
CASES: Mapping[str, Mapping[str, str]] = {
    "bridged": {**BRIDGED, "TAGS": f"{UNGUARDED} netcommon:*:static_fdb netcommon:*:isolated"},
    "bridged+VLAN": {**BRIDGED, "LINK": "brv", "VLAN": ".10:20:30"},
    "routed4": {"TAGS": OPTIONS},
    "routed6": {"IP": "fd00::5", "NETWORK_SUBNET6": "fd00::/64", "NETWORK_GATEWAY6": "fd00::1", "TAGS": f"{OPTIONS} netcommon:*:eui64"},
    "openvswitch": SWITCHED,
    "spoof-guarded": {**BRIDGED, "IP": "10.0.0.5", "TAGS": "netcommon:*:rate_in:8mbit"},
    "spoof-guarded openvswitch": {**SWITCHED, "IP": "10.0.0.5", "TAGS": ""},
    "custom-script": BRIDGED,
}
SCRIPT = "#!/bin/sh\nip route {} unreachable 198.51.100.7/32 proto 99 metric 7 || :\n"


class Host:
    """The node of one case, the tap on it, and what it is like with the NIC down and with it up."""

    def __init__(self, node: Node, nic: dict[str, str]) -> None:
        self.node, self.nic = node, nic
        self.tap: Tap | None = None
        self.plug()
        wait_until(lambda: time.time() - os.stat(CONFIG).st_ctime > SETTLED, 5, "hooks keep what they read of the settings")
        for _ in range(2):  # the first makes what stays: the folders
            self.up()
            self.whole = network()
            self.record = stored()
            self.down()
        self.bare = snapshot()
        self.unplug()
        self.empty = snapshot()
        self.plug()

    def plug(self) -> None:
        """As QEMU makes it; from its first up on it has a qdisc."""
        if self.tap is None:
            self.tap = self.node.tap()
            run("ip", "link", "set", "tap0", "address", "fe:77:00:00:00:01")  # else the kernel's choice, another each time
            run("ip", "link", "set", "tap0", "up")
            run("ip", "link", "set", "tap0", "down")

    def unplug(self) -> None:
        """The guest is gone."""
        if self.tap is not None:
            self.tap.close()
            self.tap = None
            wait_until(lambda: not os.path.exists("/sys/class/net/tap0"), 5, "the tap's end")

    def unlike_whole(self, seconds: float = 3) -> list[str]:
        """How the network differs from what it is with the NIC up. The switch takes a device in by itself, and is given time for it."""
        limit = time.monotonic() + seconds * slowness()
        while (found := diff(self.whole, network())) and self.nic["MODE"] == "openvswitch" and time.monotonic() < limit:
            time.sleep(0.01)
        return found

    def up(self) -> None:
        """Do what a hook does, in this process: thousands of points begin with one, or end with it."""
        outcome = perform("kvm-ifup", self.nic)
        assert outcome.status == 0, outcome

    def down(self) -> None:
        """The same for its end."""
        outcome = perform("kvm-ifdown", self.nic, "tap0", "hot-remove")
        assert outcome.status == 0, outcome


def network() -> Snapshot:
    """The snapshot without our own files: records hold times."""
    found = snapshot(())
    place = Path("/sys/class/net/tap0/ifindex")
    index = place.read_text().strip() if place.exists() else "gone"
    found["nft"] = sorted(re.sub(rf'"(in|out)-{index}"', r'"\1-tap0"', item) for item in found["nft"])  # chains named for the device
    for bridge, flows in found["ovs"].get("flows", {}).items():  # the switch numbers its ports anew each time
        port = next((row["ofport"] for row in rows("Interface", ("name", "ofport")) if row["name"] == "tap0"), "none")
        found["ovs"]["flows"][bridge] = sorted(re.sub(rf"(in_port=|output:){port}\b", r"\1tap0", flow) for flow in flows)
    files = [f"{where}/{name}" for where, _, names in os.walk("/run/netcommon") for name in names if not where.endswith("/locks")]
    # what a killed hook was writing goes with a later gc; what was read of the settings is kept
    found["files"] = sorted(path for path in files if TEMPORARY not in path and os.path.basename(path) != NAME)
    return found


def stored() -> dict[str, Any]:
    """The records by their keys, without what differs from one undisturbed up to the next, with what check says of them."""
    with ours() as node:
        records, problems = node.store.all()
        view = node.host.snapshot()
        found = {each.key: _lasting({**plain(each), "drift": check(node, view, each).drift}) for each in records}
    return {**found, **dict.fromkeys(problems, "problem")}


def _lasting(value: Any) -> Any:
    """Without times, the tap's index, and what an operation saw last; what it found of ours is as good as what it made."""
    if isinstance(value, Mapping):
        kept = {key: _lasting(item) for key, item in value.items() if key not in ("ifindex", "tap", "now")}
        return {**kept, "found": "absent"} if kept.get("found") == "ours" else kept
    return {str(place): _lasting(item) for place, item in enumerate(value)} if isinstance(value, list | tuple) else value


def long_ago() -> None:
    """Lay a file of the same settings over this node's, which this process has written before its first node: no node waits until what
    hooks read of its settings is kept, but the first one."""
    text = Path(CONFIG).read_text()
    if not os.path.exists(BEFORE):
        Path(BEFORE).write_text(text)
    assert Path(BEFORE).read_text() == text
    mount(BEFORE, CONFIG, flags=MS_BIND)  # gone with the folder that it is in


def prepared(node: Node, case: str, request: pytest.FixtureRequest) -> Host:
    """The node of one of CASES, its NIC down, its tap there."""
    own_things(node)
    long_ago()
    if case == "bridged+VLAN":
        vlan_bridge(node)
    if CASES[case].get("MODE") == "openvswitch":
        own_ports(request.getfixturevalue("ovs"))
    if case == "custom-script":
        for folder, verb in (("ifup.d", "replace"), ("ifdown.d", "delete")):
            os.makedirs(f"/etc/netcommon/{folder}")
            path = Path(f"/etc/netcommon/{folder}/10-site")
            path.write_text(SCRIPT.format(verb))
            path.chmod(0o755)
    return Host(node, environment(0, **CASES[case]))


#: The names of CASES; those that need a kernel that filters VLANs are for the virtual machine, where each takes most of a minute.
NAMES = [pytest.param(case, marks=[pytest.mark.vm, pytest.mark.slow] if "VLAN" in case else []) for case in CASES]


def sampled(names: Collection[str]) -> list[Any]:
    """NAMES, of which a default run takes only these."""
    return [pytest.param(*each.values, marks=[*each.marks, *([] if each.values[0] in names else [pytest.mark.slow])]) for each in NAMES]
