"""A tap that goes and another that comes with its name, before ovs-vswitchd has looked: the NIC that is up is in the switch."""

from __future__ import annotations

import json
import threading

import pytest

from tests.kernel.test_doors_calls import GOOD
from tests.support.netns import run
from tests.support.node import Node
from tests.support.ovs import OpenVswitch
from tests.support.rundoor import rundoor

NIC = {**GOOD, "MODE": "openvswitch", "LINK": "ovs0", "VLAN": ".10"}
DOWN = ("tap0", "hot-remove")


def promiscuity() -> int:
    """How many want every frame of tap0: the switch, which has to open the device for that."""
    return int(json.loads(run("ip", "-j", "-d", "link", "show", "dev", "tap0"))[0]["promiscuity"])


# a guarded one's down would wait for vswitchd to take its flows away
@pytest.mark.parametrize(("before", "guard"), [("killed", "on"), ("killed", "off"), ("down", "off")])
def test_the_new_device_is_in_the_switch(node: Node, ovs: OpenVswitch, before: str, guard: str) -> None:
    """vswitchd sleeps meanwhile; after its guest was killed, or after a down that found the device gone."""
    ovs.bridge("ovs0")
    nic = {**NIC, "TAGS": f"netcommon:0:spoof_guard:{guard}"}
    tap = node.tap("tap0")
    assert rundoor("kvm-ifup", nic).status == 0 and promiscuity() == 1
    ovs.freeze("ovs-vswitchd")
    tap.close()
    if before == "down":
        assert rundoor("kvm-ifdown", nic, *DOWN).status == 0
    node.tap("tap0")
    awake = threading.Timer(0.2, ovs.thaw, ["ovs-vswitchd"])
    awake.start()
    done = rundoor("kvm-ifup", nic)
    awake.join()
    assert (done.status, promiscuity()) == (0, 1), done.stderr
    flows = [line for line in run("ovs-ofctl", "--no-names", "dump-flows", "ovs0").splitlines() if "cookie=0x6e6374" in line]
    number = ovs.vsctl("get", "Interface", "tap0", "ofport")
    assert bool(flows) == (guard == "on") and all(f"in_port={number}" in line for line in flows)
    assert rundoor("kvm-ifdown", nic, *DOWN).status == 0 and promiscuity() == 0
