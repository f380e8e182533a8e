"""check, explain and tree on a NIC whose port of Open vSwitch is there as it was made, and that has no network: echoes decide."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.netns import Namespace, run, wait_until
from tests.support.node import Node
from tests.support.ovs import OpenVswitch
from tests.support.routed import MAC, drift, mend, reaches
from tests.support.rundoor import rundoor
from tests.support.verdict import lost

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

NO_FLOW = "ovs0 has no flow that takes on what comes in by tap0"
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
    "a flow before": (
        ["ovs-ofctl add-flow ovs0 priority=100,in_port=tap0,actions=drop"],
        "not ours drops all that comes in by tap0: priority=100",
    ),
    "before the guard": (["ovs-ofctl add-flow ovs0 priority=65500,in_port=tap0,actions=drop"], "all that comes in by tap0: priority=65500"),
    "the usual priority": (["ovs-ofctl add-flow ovs0 in_port=tap0,actions=drop"], "all that comes in by tap0: priority=32768"),
    "all before": (["ovs-ofctl add-flow ovs0 priority=100,actions=drop"], "not ours drops all that comes in by tap0: priority=100"),
    "flagged": (["ovs-ofctl add-flow ovs0 send_flow_rem,priority=100,actions=drop"], "all that comes in by tap0: priority=100"),
    "some before": (["ovs-ofctl add-flow ovs0 priority=100,in_port=tap0,tcp,actions=drop"], ""),
    "taken before": (["ovs-ofctl add-flow ovs0 priority=100,actions=drop", "ovs-ofctl add-flow ovs0 priority=101,actions=NORMAL"], ""),
    "behind": (["ovs-ofctl add-flow ovs0 priority=100,actions=NORMAL", "ovs-ofctl add-flow ovs0 priority=50,actions=drop"], ""),
    "another's before": (["ovs-ofctl add-flow ovs0 priority=100,in_port=99,actions=drop"], ""),
    "protected": ([PROTECTED], "port tap0 of ovs0 is protected, and so is up0"),
    "one protected": (["ovs-vsctl set Port tap0 protected=true"], ""),
    "the other protected": (["ovs-vsctl set Port up0 protected=true"], ""),
}


@pytest.fixture
def ovs(node: Node) -> Iterator[OpenVswitch]:
    with OpenVswitch.started() as made:
        yield made


@pytest.mark.parametrize("guard", [True, False], ids=["guarded", "unguarded"])
@pytest.mark.parametrize("case", CASES)
def test_echoes_decide(node: Node, ovs: OpenVswitch, case: str, guard: bool) -> None:
    node.outside("up0", f"{OUTSIDE}/24")
    ovs.bridge("ovs0", "up0")
    guest = node.namespaced()
    run("ip", "link", "add", "tap0", "type", "veth", "peer", "name", "eth0", "address", MAC, "netns", guest.path)
    guest.run("ip", "link", "set", "eth0", "up")
    guest.run("ip", "address", "add", f"{GUEST}/24", "dev", "eth0")
    done = rundoor("kvm-ifup", {**NIC, "TAGS": "" if guard else "netcommon:0:spoof_guard:off"})
    assert (done.status, done.stderr) == (0, "")
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


def placed(node: Node, ovs: OpenVswitch, **changes: str) -> Namespace:
    """Put a guest on a bridge with an uplink, and bring its NIC up."""
    node.outside("up0", f"{OUTSIDE}/24")
    ovs.bridge("ovs0", "up0")
    guest = node.namespaced()
    run("ip", "link", "add", "tap0", "type", "veth", "peer", "name", "eth0", "address", MAC, "netns", guest.path)
    guest.run("ip", "link", "set", "eth0", "up")
    guest.run("ip", "address", "add", f"{GUEST}/24", "dev", "eth0")
    done = rundoor("kvm-ifup", {**NIC, **changes})
    assert (done.status, done.stderr) == (0, "")
    return guest


def test_a_protected_guest_reaches_the_node(node: Node, ovs: OpenVswitch) -> None:
    """The node's own port is no other guest's: that the uplink is protected may be meant."""
    guest = placed(node, ovs, TAGS="netcommon:0:spoof_guard:off")
    run("ip", "address", "add", "10.0.0.9/24", "dev", "ovs0")
    run("ip", "link", "set", "ovs0", "up")
    run(*PROTECTED.split())
    wait_until(lambda: reaches(guest, OUTSIDE) == [], 10, "both are protected")
    assert reaches(guest, "10.0.0.9") == ["10.0.0.9"] and lost() == [] and drift() == []


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
