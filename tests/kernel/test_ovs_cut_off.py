"""check, explain and tree on a NIC whose port of Open vSwitch is there as it was made, and that has no network: echoes decide."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from netcommon.host.api.facts import FLOW_MARK
from netcommon.host.ovs.forwarding import MOST
from tests.support.netns import Namespace, run, wait_until
from tests.support.node import Node
from tests.support.node_ways import WAYS, lead
from tests.support.ovs import OpenVswitch
from tests.support.routed import MAC, drift, mend, reaches
from tests.support.rundoor import rundoor
from tests.support.verdict import PROGRAM, lost

pytestmark = pytest.mark.sampled(5)

OUTSIDE, GUEST = "10.0.0.1", "10.0.0.5"
NIC = {
    "INTERFACE": "tap0",
    "MODE": "openvswitch",
    "LINK": "ovs0",
    "MAC": MAC,
    "VLAN": "",
    "IP": GUEST,
    "INSTANCE": "web1",
    "INTERFACE_INDEX": "0",
    "INTERFACE_UUID": "00000000-0667-415f-9a43-786dc01cbf24",
}

NO_FLOW = "ovs0 has no flow that takes on what comes in by the guest's port"
DROPS = "that is not ours drops all that comes in by the guest's port: priority="
UNGUARDED = "netcommon:0:spoof_guard:off"
PROTECTED = "ovs-vsctl set Port tap0 protected=true -- set Port up0 protected=true"

#: What is done after the up, and what is said; "" where echoes pass.
CASES = {
    "no flows": (["ovs-ofctl del-flows ovs0"], NO_FLOW),
    "secure": (["ovs-vsctl set Bridge ovs0 fail_mode=secure", "ovs-ofctl del-flows ovs0"], NO_FLOW),
    "dropped": (["ovs-ofctl del-flows ovs0", "ovs-ofctl add-flow ovs0 priority=0,actions=drop"], NO_FLOW),
    "another's": (["ovs-ofctl del-flows ovs0", "ovs-ofctl add-flow ovs0 priority=9,in_port=up0,actions=NORMAL"], NO_FLOW),
    "another's, of OpenFlow 1.0": (
        ["ovs-ofctl del-flows ovs0", "ovs-ofctl -O OpenFlow10 add-flow ovs0 in_port=up0,actions=NORMAL"],
        NO_FLOW,
    ),
    "the node's": (["ovs-ofctl del-flows ovs0", "ovs-ofctl add-flow ovs0 priority=9,in_port=LOCAL,actions=NORMAL"], NO_FLOW),
    "its own": (
        [
            "ovs-ofctl del-flows ovs0",
            "ovs-ofctl add-flow ovs0 in_port=tap0,actions=up0",
            "ovs-ofctl add-flow ovs0 in_port=up0,actions=tap0",
        ],
        "",
    ),
    "another table": (
        ["ovs-ofctl del-flows ovs0", "ovs-ofctl add-flow ovs0 table=5,actions=NORMAL", "ovs-ofctl add-flow ovs0 actions=resubmit(,5)"],
        "",
    ),
    "no receive": (["ovs-ofctl mod-port ovs0 tap0 no-receive"], "port tap0 of ovs0 takes nothing that the guest sends"),
    "no forward": (["ovs-ofctl mod-port ovs0 tap0 no-forward"], "port tap0 of ovs0 sends nothing on to the guest"),
    "no packet-in": (["ovs-ofctl mod-port ovs0 tap0 no-packet-in"], ""),
    "a flow before": (["ovs-ofctl add-flow ovs0 priority=100,in_port=tap0,actions=drop"], f"{DROPS}100"),
    "before the guard": (["ovs-ofctl add-flow ovs0 priority=65500,in_port=tap0,actions=drop"], f"{DROPS}65500"),
    "the usual priority": (["ovs-ofctl add-flow ovs0 in_port=tap0,actions=drop"], f"{DROPS}32768"),
    "all before": (["ovs-ofctl add-flow ovs0 priority=100,actions=drop"], f"{DROPS}100"),
    "flagged": (["ovs-ofctl add-flow ovs0 send_flow_rem,priority=100,actions=drop"], f"{DROPS}100"),
    "some before": (["ovs-ofctl add-flow ovs0 priority=100,in_port=tap0,tcp,actions=drop"], ""),
    "taken before": (["ovs-ofctl add-flow ovs0 priority=100,actions=drop", "ovs-ofctl add-flow ovs0 priority=101,actions=NORMAL"], ""),
    "behind": (["ovs-ofctl add-flow ovs0 priority=100,actions=NORMAL", "ovs-ofctl add-flow ovs0 priority=50,actions=drop"], ""),
    "another's before": (["ovs-ofctl add-flow ovs0 priority=100,in_port=99,actions=drop"], ""),
    "protected": ([PROTECTED], "the guest's port of ovs0 is protected, and so is up0"),
    "one protected": (["ovs-vsctl set Port tap0 protected=true"], ""),
    "the other protected": (["ovs-vsctl set Port up0 protected=true"], ""),
}


@pytest.fixture
def ovs(node: Node) -> Iterator[OpenVswitch]:
    with OpenVswitch.started() as made:
        yield made


def placed(node: Node, ovs: OpenVswitch, **changes: str) -> Namespace:
    """Put a guest on a bridge with an uplink, and bring its NIC up."""
    node.outside("up0", f"{OUTSIDE}/24")
    ovs.bridge("ovs0", "up0")
    guest = node.guest(MAC, f"{GUEST}/24")
    done = rundoor("kvm-ifup", {**NIC, **changes})
    assert (done.status, done.stderr) == (0, "")
    return guest


@pytest.mark.parametrize("guard", [True, False], ids=["guarded", "unguarded"])
@pytest.mark.parametrize("case", CASES)
def test_echoes_decide(node: Node, ovs: OpenVswitch, case: str, guard: bool) -> None:
    guest = placed(node, ovs, TAGS="" if guard else UNGUARDED)
    assert reaches(guest, OUTSIDE) == [OUTSIDE] and lost() == [] and drift() == []
    commands, words = CASES[case]
    for command in commands:
        run(*command.split())
    mend()  # flows of the guard have gone with the others, and come back
    passes = [] if words else [OUTSIDE]
    wait_until(lambda: reaches(guest, OUTSIDE) == passes, 10, "what was changed")
    found = lost()
    assert [words in why for why, _remedy in found] == ([True] if words else []) and drift() == []
    for _why, remedy in found:
        run(*remedy.partition(", or")[0].split())
    wait_until(lambda: reaches(guest, OUTSIDE) == [OUTSIDE], 10, "what was mended")
    assert lost() == []


@pytest.mark.parametrize(("cookie", "told"), [(FLOW_MARK | 1, True), (1, False)], ids=["ours", "somebody's"])
def test_very_many_flows(node: Node, ovs: OpenVswitch, cookie: int, told: bool) -> None:
    """Fifty are the guard's of each NIC; somebody who has very many himself looks after the bridge."""
    guest = placed(node, ovs, TAGS="")
    many = Path("/run/many")
    kinds = ("drop", "load:5->NXM_NX_REG13[29..31],resubmit(,0)")
    flow = "cookie={:#x},priority=650{:02d},in_port={},udp,actions={}\n"
    many.write_text("".join(flow.format(cookie, 10 + i % 2, 100 + i, kinds[i % 2]) for i in range(MOST + 1)))
    run("ovs-ofctl", "-O", "OpenFlow14", "--bundle", "add-flows", "ovs0", str(many))
    assert lost() == []
    run("ovs-ofctl", "--strict", "del-flows", "ovs0", "priority=0")
    wait_until(lambda: reaches(guest, OUTSIDE) == [], 10, "no flow takes anything on")
    assert [NO_FLOW in why for why, _remedy in lost()] == [True] * told


@pytest.mark.parametrize("command", ["ovs-ofctl del-flows ovs0", "ovs-ofctl add-flow ovs0 priority=100,actions=drop", PROTECTED])
def test_doctor_says_a_fault_of_the_bridge_once(node: Node, ovs: OpenVswitch, command: str) -> None:
    guest = placed(node, ovs, TAGS=UNGUARDED)
    other = node.guest("aa:00:00:12:34:57", "10.0.0.6/24", "tap1")
    second = {"INTERFACE": "tap1", "MAC": "aa:00:00:12:34:57", "IP": "10.0.0.6", "INSTANCE": "web2"}
    done = rundoor("kvm-ifup", {**NIC, **second, "INTERFACE_UUID": NIC["INTERFACE_UUID"].replace("0667", "0668"), "TAGS": UNGUARDED})
    assert (done.status, done.stderr) == (0, "")
    run(*command.split())
    if command == PROTECTED:
        ovs.vsctl("set", "Port", "tap1", "protected=true")
    for each in (guest, other):
        wait_until(lambda guest=each: reaches(guest, OUTSIDE) == [], 10, "what was changed")  # type: ignore[misc]
    told = subprocess.run([PROGRAM, "doctor", "--json"], capture_output=True, text=True, check=False).stdout
    found = [each["text"] for each in json.loads(told)["findings"] if each["topic"] == "bridges"]
    assert [each.startswith("no network for web1/0, web2/0: ") for each in found] == [True], found


@pytest.mark.parametrize("way", WAYS)
def test_a_protected_guest_reaches_the_node(node: Node, ovs: OpenVswitch, way: str) -> None:
    """The node's own port is no other guest's: that the uplink is protected may be meant."""
    guest = placed(node, ovs, TAGS=UNGUARDED)
    address = lead(way, "ovs0", guest)
    run(*PROTECTED.split())
    wait_until(lambda: reaches(guest, OUTSIDE) == [], 10, "both are protected")
    assert not address or reaches(guest, address) == [address]
    assert bool(lost()) == (not address) and drift() == []


#: Where a port of the node's own leads on though the node has nothing there: its device is in another namespace, or a bridge's port.
ELSEWHERE = {"another namespace": "ip link set own0 netns {}", "a bridge": "ip link set own0 master br0"}


@pytest.mark.parametrize("case", ELSEWHERE)
def test_a_protected_guest_leaves_by_a_port_of_the_nodes_own(node: Node, ovs: OpenVswitch, case: str) -> None:
    guest = placed(node, ovs, TAGS="netcommon:0:spoof_guard:off")
    run("ovs-vsctl", "add-port", "ovs0", "own0", "--", "set", "Interface", "own0", "type=internal")
    inside = node.namespaced()
    if case == "a bridge":
        node.bridge("br0")
        run("ip", "link", "add", "end0", "type", "veth", "peer", "name", "own0", "netns", inside.path)
        run("ip", "link", "set", "end0", "master", "br0", "up")
    wait_until(lambda: run("ip", "link", "show", "own0", check=False) != "", 10, "own0")
    run(*ELSEWHERE[case].format(inside.path).split())
    if case == "a bridge":
        run("ip", "link", "set", "own0", "up")
    inside.run("ip", "link", "set", "own0", "up")
    inside.run("ip", "address", "add", "10.0.0.9/24", "dev", "own0")
    run(*PROTECTED.split())
    wait_until(lambda: reaches(guest, OUTSIDE) == [], 10, "both are protected")
    assert reaches(guest, "10.0.0.9") == ["10.0.0.9"] and lost() == []


def test_a_guard_of_the_sites_own(node: Node, ovs: OpenVswitch) -> None:
    """It sends frames on itself, on a bridge that is closed beside it."""
    folder = Path("/etc/netcommon/templates/ovs")
    folder.mkdir(parents=True)
    (folder / "spoof-guard.j2").write_text("priority=65100,dl_src={{ mac }},actions=NORMAL\npriority=65000,actions=drop\n")
    guest = placed(node, ovs, TAGS="")
    for command in ("ovs-ofctl del-flows ovs0 cookie=0/-1", "ovs-ofctl add-flow ovs0 priority=9,in_port=up0,actions=NORMAL"):
        run(*command.split())
    wait_until(lambda: reaches(guest, OUTSIDE) == [OUTSIDE], 10, "the guard sends on")
    assert lost() == [] and drift() == []
