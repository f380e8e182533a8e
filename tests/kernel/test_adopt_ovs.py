"""adopt on a real Open vSwitch: where it fails, port, device and switch are as they were found; else down ends what it made."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kernel.test_adopt import BRIDGED, HOLD, ROOT, nic
from tests.support.netns import run
from tests.support.node import Node
from tests.support.ovs import OpenVswitch

LIMITED = '[nic]\nrate_in = "8mbit"\nrate_out = "4mbit"\n'

#: What makes an up fail: before anything is on record, and when the switch is asked for its flows.
FAILS = {
    "before": 'flows = ["nosuch"]\n',
    "after": 'flows = ["bad"]\n',
}


@pytest.fixture
def guest(node: Node, ovs: OpenVswitch) -> Iterator[OpenVswitch]:
    """A guest that Ganeti's script has put on a bridge of Open vSwitch, with what an administrator has set on its port."""
    ovs.bridge("ovs0")
    words = ["-name", "web"]
    one = nic(BRIDGED, "aa:00:00:00:00:01", "openvswitch", "ovs0")
    device = one["hvinfo"]["id"]
    words += ["-netdev", f"type=tap,id={device},fd=20", "-device", f"virtio-net-pci,id={device},mac={one['mac']},netdev={device}"]
    process = subprocess.Popen([sys.executable, "-c", HOLD, *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout and process.stdout.readline() == "ready\n"
    files = Path("/var/run/ganeti/kvm-hypervisor")
    for name, text in (("conf/web.runtime", json.dumps([["qemu"], [one], {}, []])), ("pid/web", f"{process.pid}\n"), ("nic/web/0", "tap0")):
        (files / name).parent.mkdir(parents=True, exist_ok=True)
        (files / name).write_text(text)
    run("ip", "link", "set", "tap0", "up", "alias", "somebody's")
    ovs.vsctl(
        "add-port", "ovs0", "tap0", "tag=7", "--", "set", "Port", "tap0", "external_ids:vendor=x", "other_config:priority-tags=always"
    )
    ovs.vsctl("set", "Interface", "tap0", "external_ids:iface-id=theirs", "ingress_policing_rate=77", "ingress_policing_burst=8")
    ovs.vsctl("set", "Port", "tap0", "qos=@q", "--", "--id=@q", "create", "QoS", "type=linux-htb", "other_config:max-rate=1000000")
    run("ovs-ofctl", "add-flow", "ovs0", "cookie=0x7,priority=7,in_port=tap0,actions=NORMAL")
    yield ovs
    process.kill()
    process.communicate()


def settings(text: str) -> None:
    Path("/etc/netcommon/templates/ovs").mkdir(parents=True, exist_ok=True)
    Path("/etc/netcommon/config.toml").write_text(LIMITED + text)
    Path("/etc/netcommon/templates/ovs/bad.j2").write_text("priority=9,actions=group:7\n")  # of which only the switch knows that it is none


def picture(ovs: OpenVswitch) -> list[object]:
    """All that a guest's port is, by the switch and the kernel."""
    tables = [ovs.rows("Port"), [{**row, "statistics": 0} for row in ovs.rows("Interface")], ovs.rows("QoS")]
    for rows in tables:
        rows.sort(key=str)
    flows = [line for line in run("ovs-ofctl", "--no-stats", "dump-flows", "ovs0").splitlines() if "cookie" in line]
    link = json.loads(run("ip", "-j", "-d", "link", "show", "tap0"))[0]
    return [tables, sorted(flows), [link[key] for key in ("mtu", "address", "operstate", "flags", "ifalias")]]


def adopted() -> tuple[int, str, str]:
    done = subprocess.run(
        [sys.executable, "-m", "netcommon.cli", "adopt", "web", "--json"], capture_output=True, text=True, cwd=ROOT, check=False
    )
    (one,) = json.loads(done.stdout)["nics"]
    return done.returncode, one["action"], one["why"]


@pytest.mark.no_agent("an agent adopts by itself")
@pytest.mark.parametrize("when", FAILS)
def test_where_it_fails_all_is_as_it_was(guest: OpenVswitch, when: str) -> None:
    settings(FAILS[when])
    before = picture(guest)
    for _ in range(2):
        status, action, why = adopted()
        assert (status, action) == (69, "failed") and ("nosuch" in why or "flows of tap0" in why), why
        assert picture(guest) == before
        assert not list(Path("/run/netcommon").glob("nics/*.json"))
    settings("")
    assert adopted()[:2] == (0, "adopted")
    (row,) = (row for row in guest.rows("Port") if row["name"] == "tap0")
    assert dict(row["external_ids"][1])["netcommon-uuid"] == BRIDGED and dict(row["external_ids"][1])["vendor"] == "x"
    subprocess.run([sys.executable, "-m", "netcommon.cli", "down", "tap0", "--force"], cwd=ROOT, check=True)
    assert not [row for row in guest.rows("Port") if row["name"] == "tap0"]
