"""Tables of ours that an administrator edits: dormant ones are found and woken; others of their names stay as they are."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from netcommon.operations.guard.table import table_of
from runtime.errors import HostRefused
from tests.kernel.test_doors_parallel import collect, environment, good
from tests.kernel.test_gateway_arp import NIC
from tests.kernel.test_guard import index
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


#: Sets of other keys than ours, and with elements that begin as ours do.
THEIRS = """add chain TABLE mine
add rule TABLE mine iif { tap0, lo } counter
add rule TABLE mine meta mark { 1, 2 } counter
add set TABLE vip { type ipv4_addr; elements = { 10.9.9.9 }; }
add set TABLE port { type inet_service; elements = { 80 }; }
"""


def test_sets_of_the_administrators_in_our_tables(mode: str) -> None:
    """They are none of ours, whatever keys they have: nothing is to be collected, or done by a second up; a down removes what is ours.

    A firewall profile's table is a copy of its template, and anything more in it is drift.
    """
    tables = [table for table in dormant() if "netcommon-fw" not in table]
    for table in tables:
        run("nft", "-f", "-", stdin=THEIRS.replace("TABLE", table))
    assert good() == ["tap0"] and collect() == []
    said = rundoor("kvm-ifup", environment(**NICS[mode]))
    assert (said.status, said.stderr) == (0, "")
    for table in tables:
        listed = run("nft", "list", "table", *table.split())
        assert "10.9.9.9" in listed and 'iif { "lo", "tap0" }' in listed
    assert rundoor("kvm-ifdown", environment(**NICS[mode]), "tap0", "hot-remove").status == 0
    assert dormant() == {}


def rules() -> list[tuple[str, str]]:
    """The table and chain of each rule that is no NIC's own."""
    listed = json.loads(run("nft", "-j", "list", "ruleset"))["nftables"]
    found = [(each["rule"]["table"], each["rule"]["chain"]) for each in listed if "rule" in each]
    return sorted(each for each in found if not each[1].startswith("in-"))


def test_a_flushed_table_is_made_whole_for_a_new_nic(node: Node, mode: str) -> None:
    """Its rules have gone, and its chains are there: whoever comes up next does not pass unchecked."""
    other = next(name for name in (f"tap{number}" for number in range(1, 99)) if table_of(name) == table_of("tap0"))
    node.tap(other)
    before = rules()
    for table in dormant():
        run("nft", "flush", "table", *table.split())
    changes = {**NICS[mode], "INTERFACE": other, "MAC": "aa:00:00:00:00:07", "IP": "10.0.0.7"}
    assert rundoor("kvm-ifup", environment(1, **changes)).status == 0
    assert rules() == before
    assert rundoor("kvm-ifup", environment(**NICS[mode])).status == 0  # its own chain's rule had gone too
    assert good() == sorted(["tap0", other])


@pytest.mark.parametrize("marked", [True, False])
def test_what_was_free_is_taken_away_where_the_chain_has_gone(node: Node, marked: bool) -> None:
    """A second up that finds no chain of the NIC's looks for its elements all the same."""
    Path("/etc/netcommon/config.toml").write_text(f"[ganeti]\ntap_alias = {str(marked).lower()}\n")
    node.bridge("br0")
    node.tap("tap0")
    free = {**BRIDGED, "IP": "10.0.0.1", "TAGS": "netcommon:*:allow_ip_spoofing netcommon:*:allow_mac_spoofing"}
    assert rundoor("kvm-ifup", environment(**free)).status == 0
    run("nft", "delete", "chain", "netdev", table_of("tap0"), f"in-{index()}")
    assert rundoor("kvm-ifup", environment(**{**free, "TAGS": ""})).status == 0
    assert good() == ["tap0"] and "tap0" not in run("nft", "list", "set", "netdev", table_of("tap0"), "free-mac")


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
