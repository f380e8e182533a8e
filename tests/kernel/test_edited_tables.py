"""What an administrator does to our tables: those that are made dormant are found and woken; others of their names stay as they are."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from runtime.errors import HostRefused
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


@pytest.fixture(params=list(NICS))
def mode(node: Node, request: pytest.FixtureRequest) -> Iterator[str]:
    """A NIC of this mode is up."""
    node.bridge("br0")
    node.tap("tap0")
    assert rundoor("kvm-ifup", environment(**NICS[request.param])).status == 0
    yield request.param


def test_they_are_woken(mode: str) -> None:
    assert len(dormant()) == TABLES[mode]
    for table in dormant():
        for again in (mend, lambda: rundoor("kvm-ifup", environment(**NICS[mode]))):
            run("nft", "add", "table", *table.split(), "{ flags dormant; }")
            assert [line for line in drift() if "dormant" in line], table
            said = again()
            assert (said is None or said.status == 0) and not any(dormant().values()), (table, said)
            assert good() == ["tap0"]


def sets_of(table: str) -> list[str]:
    """The sets and maps of a table, in the words of nft(8), without what is in them."""
    found = []
    for item in json.loads(run("nft", "-j", "list", "table", *table.split()))["nftables"]:
        for kind in ("set", "map"):
            if kind in item:
                types = item[kind]["type"]
                words = " . ".join([types] if isinstance(types, str) else types) + (f" : {item[kind]['map']}" if kind == "map" else "")
                found.append(f"{kind} {table} {item[kind]['name']} {{ type {words}; }}")
    return found


def test_a_foreign_table_of_our_name(mode: str) -> None:
    """Neither repair nor another up or down adds to it, or takes from it, whatever it has in common with ours."""
    for table in dormant():
        sets = sets_of(table)
        run("nft", "delete", "table", *table.split())
        run("nft", "add", "table", *table.split(), '{ comment "the site\'s own"; }')
        for each in sets:
            run("nft", f"add {each}")
        if any(f" {table} nics " in each for each in sets):
            run("nft", "add", "element", *table.split(), "nics", "{ tap0 }")
        before = run("nft", "list", "table", *table.split())
        with pytest.raises(HostRefused, match="not ours"):
            mend()
        assert rundoor("kvm-ifup", environment(**NICS[mode])).status == 69
        assert rundoor("kvm-ifdown", environment(**NICS[mode]), "tap0", "hot-remove").status == 0
        assert run("nft", "list", "table", *table.split()) == before, table
        run("nft", "delete", "table", *table.split())
        assert rundoor("kvm-ifup", environment(**NICS[mode])).status == 0
