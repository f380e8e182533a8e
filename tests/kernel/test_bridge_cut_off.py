"""check, explain and tree on a bridged NIC whose port is there as it was made, and that has no network: echoes decide."""

from __future__ import annotations

import pytest

from tests.support.netns import Namespace, run
from tests.support.node import Node
from tests.support.node_ways import WAYS, lead
from tests.support.routed import MAC, drift, reaches
from tests.support.rundoor import rundoor
from tests.support.verdict import lost

pytestmark = pytest.mark.sampled(3)

OUTSIDE, GUEST = "10.0.0.1", "10.0.0.5"
NIC = {
    "INTERFACE": "tap0",
    "MODE": "bridged",
    "LINK": "br0",
    "MAC": MAC,
    "VLAN": "",
    "IP": GUEST,
    "INSTANCE": "web1",
    "INTERFACE_INDEX": "0",
    "INTERFACE_UUID": "00000000-0667-415f-9a43-786dc01cbf24",
    "TAGS": "",
}

#: What is done after the up, what undoes it where the remedy is for people, and what is said; "" where echoes pass.
CASES = {
    "disabled": (["bridge link set dev tap0 state 0"], "", "tap0 is disabled as a port of br0"),
    "listening": (["bridge link set dev tap0 state 1"], "", "tap0 is listening as a port of br0"),
    "learning": (["bridge link set dev tap0 state 2"], "", "tap0 is learning as a port of br0"),
    "blocking": (["bridge link set dev tap0 state 4"], "", ""),  # without STP the kernel makes it forward at once
    "isolated": (
        ["bridge link set dev tap0 isolated on", "bridge link set dev up0 isolated on"],
        "",
        "tap0 is isolated as a port of br0, and so is up0",
    ),
    "one isolated": (["bridge link set dev tap0 isolated on"], "", ""),
    "the other isolated": (["bridge link set dev up0 isolated on"], "", ""),
    "a second way": (
        [
            "bridge link set dev tap0 isolated on",
            "ip link add other type veth peer name far",
            "ip link set other master br0 up",
            "bridge link set dev other isolated on",
        ],
        "",
        "",
    ),
    "its MAC": ([f"ip link set br0 address {MAC}"], "ip link set br0 address aa:bb:00:00:00:01", f"br0 has the guest's MAC {MAC}"),
    "uplink's MAC": ([f"ip link set up0 address {MAC}"], "ip link set up0 address aa:bb:00:00:00:01", f"up0 has the guest's MAC {MAC}"),
    "drawn off": (
        [f"bridge fdb replace {MAC} dev up0 master static sticky"],
        "",
        f"a static entry leads what is for the guest's MAC {MAC} to up0",
    ),
    "moved": ([f"bridge fdb replace {MAC} dev up0 master static"], "", ""),  # the guest's next frame moves it
    "its tap has it": (
        [f"bridge fdb replace {MAC} dev tap0 master"],
        "",
        f"a permanent entry of tap0 has br0 take what is for the guest's MAC {MAC}",
    ),
    "locked": (["bridge link set dev tap0 locked on", "bridge fdb flush dev br0"], "", "tap0 is locked as a port of br0"),
}


def placed(node: Node, **changes: str) -> Namespace:
    """Put a guest on a bridge with an uplink, and bring its NIC up."""
    node.outside("up0", f"{OUTSIDE}/24")
    node.bridge("br0", "up0")
    guest = node.guest(MAC, f"{GUEST}/24")
    done = rundoor("kvm-ifup", {**NIC, **changes})
    assert (done.status, done.stderr) == (0, "")
    return guest


@pytest.mark.parametrize("case", CASES)
def test_echoes_decide(node: Node, case: str) -> None:
    guest = placed(node)
    assert reaches(guest, OUTSIDE) == [OUTSIDE] and lost() == [] and drift() == []
    commands, back, words = CASES[case]
    for command in commands:
        run(*command.split())
    assert reaches(guest, OUTSIDE) == ([] if words else [OUTSIDE])
    found = lost()
    assert [words in why for why, _remedy in found] == ([True] if words else []) and drift() == []
    for _why, remedy in found:
        run(*(back or remedy.partition(",")[0]).split())
    assert reaches(guest, OUTSIDE) == [OUTSIDE] and lost() == []


@pytest.mark.parametrize("way", WAYS)
def test_an_isolated_guest_reaches_the_node(node: Node, way: str) -> None:
    """The bridge's own side is never isolated: that the uplink is may be meant, where the node itself is the guest's way."""
    guest = placed(node, TAGS="netcommon:0:isolated")
    address = lead(way, "br0", guest)
    run("bridge", "link", "set", "dev", "up0", "isolated", "on")
    assert reaches(guest, OUTSIDE, *filter(None, [address])) == [*filter(None, [address])]
    assert bool(lost()) == (not address) and drift() == []
