"""Tables of ours that somebody has made dormant: check says so of each, repair and a second up wake it, and the guest stays up."""

from __future__ import annotations

import json

import pytest

from tests.kernel.test_doors_parallel import environment, good
from tests.kernel.test_gateway_arp import NIC
from tests.kernel.test_rate import BRIDGED, drift, mend
from tests.support.netns import run
from tests.support.node import Node
from tests.support.rundoor import rundoor

GUARDED = "netcommon:*:spoof_guard netcommon:*:node_access:none"
NICS = {
    "bridged": {**BRIDGED, "IP": "10.0.0.1", "TAGS": GUARDED},
    "routed": {**NIC, "TAGS": f"{GUARDED} netcommon:*:gateway_arp netcommon:*:limited"},
}
TABLES = {"bridged": 4, "routed": 4}


def dormant() -> dict[str, bool]:
    """The tables, and which of them are dormant."""
    listed = json.loads(run("nft", "-j", "list", "tables"))["nftables"]
    found = (each["table"] for each in listed if "table" in each)
    return {f"{each['family']} {each['name']}": "dormant" in run("nft", "list", "table", each["family"], each["name"]) for each in found}


@pytest.mark.parametrize("mode", NICS)
def test_they_are_woken(node: Node, mode: str) -> None:
    node.bridge("br0")
    node.tap("tap0")
    assert rundoor("kvm-ifup", environment(**NICS[mode])).status == 0
    assert len(dormant()) == TABLES[mode]
    for table in dormant():
        for again in (mend, lambda: rundoor("kvm-ifup", environment(**NICS[mode]))):
            run("nft", "add", "table", *table.split(), "{ flags dormant; }")
            assert [line for line in drift() if "dormant" in line], table
            said = again()
            assert (said is None or said.status == 0) and not any(dormant().values()), (table, said)
            assert good() == ["tap0"]
