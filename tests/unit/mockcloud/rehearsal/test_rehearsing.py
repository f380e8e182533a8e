"""A rehearsal foretells what the lifecycle then does, and nothing else."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from mockcloud.rehearsal.copied import REGISTRY, Copy, Hardware, Place
from mockcloud.rehearsal.rehearsing import AT_LEASE, AT_START, MOST, Foretold, tasks
from netcommon.lifecycle.context import Clock
from netcommon.settings.model import Settings
from netregistry.model.nic import Nic, Option
from tests.support.rehearsing import BLUE, NETWORK, NICS, Came, RealNode, copy, foretold, nic, rehearsed

TOLD = '[nic]\ndhcp="dnsmasq"\n[networks.blue]\nmtu=1400\n'
FIREWALL, GUARD = '[nic]\nfirewall="protected"\n', "[nic]\nspoof_guard=true\n"

NOTHING = "- | - | - | -"  #: of a NIC with another option, from which nothing follows where it is

#: By name: present settings, new ones, and of each NIC that changes the kinds of operations: undone, released, replaced, done.
CASES: dict[str, tuple[str, str, dict[str, str]]] = {
    "MTU": (TOLD, TOLD.replace("1400", "9000"), {"web1/0": "- | - | network-file | network-file"}),
    "rate": (
        "",
        '[nic]\nrate_in="8mbit"\n',
        {**dict.fromkeys(("web1/0", "web2/0", "web3/0", "web4/0"), "- | - | - | shaper"), "web5/0": "- | - | ovs-port | ovs-port"},
    ),
    "firewall": (
        FIREWALL,
        FIREWALL.replace("protected", "limited"),
        {
            **dict.fromkeys(("web1/0", "web3/0"), "firewall-nic | firewall | - | firewall firewall-nic"),  # others still need the table
            **dict.fromkeys(("web2/0", "web4/0"), "firewall firewall-nic | - | - | firewall firewall-nic"),
        },
    ),
    "access": (
        "",
        '[nic]\nnode_access=["tcp/22"]\n',
        {
            **dict.fromkeys(("web1/0", "web2/0"), "- | - | - | access access-table access-table"),
            **dict.fromkeys(("web3/0", "web4/0"), "- | - | - | access access-table"),
        },
    ),
    "spoof guard's flags": (
        GUARD,
        f"{GUARD}allow_ip_spoofing=true\n",
        {
            **dict.fromkeys(("web1/0", "web2/0"), "- | - | guard | guard"),
            **dict.fromkeys(("web3/0", "web4/0"), "- | - | guard | guard rule"),
            "web5/0": "- | - | flows | flows",
        },
    ),
    "no spoof guard": (
        GUARD,
        "[nic]\nspoof_guard=false\n",
        {
            "web1/0": "guard guard-table port-flag | delivery-table | - | -",
            "web2/0": "delivery-table guard guard-table port-flag | - | - | -",
            **dict.fromkeys(("web3/0", "web4/0"), "guard guard-table sysctl | sysctl | - | sysctl"),
            "web5/0": "flows flows-end | - | - | -",
        },
    ),
    "VLAN": ("", "[nic]\ndefault_vlan=true\n", {"web1/0": NOTHING, "web2/0": "- | - | bridge-vlans | bridge-vlans"}),
    "uplinks": (
        "",
        '[bridges.brv]\nuplinks=["eth-brv"]\n',
        {"web2/0": "- | - | uplink-vlan uplink-vlan uplink-vlan | uplink-vlan uplink-vlan uplink-vlan"},
    ),
    "DHCP": ("", '[nic]\ndhcp="nfdhcpd"\n', {f"web{number}/0": "- | - | - | file" for number in range(1, 6)}),
    "marks": (
        "",
        "[rules]\nmark=0xff00\n",
        dict.fromkeys(("web3/0", "web4/0"), "rule | - | - | mark mark-rule mark-table mark-table"),
    ),
    "rules": ("", "[rules]\npreference=700\n", dict.fromkeys(("web3/0", "web4/0"), "rule | - | - | rule")),
    "reverse path": ("", '[nic]\nrp_filter="strict"\n', dict.fromkeys(("web3/0", "web4/0"), "- | - | - | sysctl")),
    "alias": ("", "[ganeti]\ntap_alias=false\n", {f"web{number}/0": "link | - | - | -" for number in range(1, 6)}),
    "the same in other words": ('[nic]\nrate_in="8mbit"\n', "# eight\n[nic]\nrate_in=8000000\n[agent]\nresync=5\n", {}),
}


def kinds(one: Foretold) -> str:
    assert one.difference is not None
    parts = (one.difference.gone, one.difference.released, one.difference.replaced, one.difference.made)
    return " | ".join(" ".join(sorted(each.KIND for each in part)) or "-" for part in parts)


@pytest.mark.parametrize("name", CASES)
def test_what_is_foretold_is_what_then_happens(name: str, tmp_path: Path) -> None:
    """On a node that nothing of mockcloud has made, NIC by NIC; and what is not foretold does not happen."""
    before, after, expected = CASES[name]
    found = rehearsed(copy(), before, after)
    assert {label: kinds(one) for label, one in found.items() if one.changes or one.recorded} == expected
    assert {label for label, one in found.items() if one.recorded} == {label for label, made in expected.items() if made == NOTHING}
    real = RealNode(tmp_path, copy(), before)
    real.configure(after)
    happened = real.changed()
    assert set(happened) == {label for label, one in found.items() if one.before is None}
    assert {label: Came() if found[label].refused else foretold(found[label]) for label in happened} == happened


def test_options_are_said_with_both_values() -> None:
    one = rehearsed(copy(NICS[:1]), '[nic]\nrate_in="8mbit"\n', '[nic]\nrate_in="16mbit"\n')["web1/0"]
    assert one.difference is not None and one.difference.options == (("rate_in", 8_000_000, 16_000_000),)
    assert one.requests > 0 and one.needs == ()


def test_what_is_said_to_the_guest_it_has_when_it_asks_anew() -> None:
    found = rehearsed(copy(), TOLD, TOLD.replace("1400", "9000"))
    assert found["web1/0"].needs == (AT_LEASE,) and found["web2/0"].needs == ()


def test_a_stopped_guest_has_it_from_its_next_start_on() -> None:
    stopped = copy(NICS[:1], places={NICS[0].uuid: Place("node1", False)})
    assert rehearsed(stopped, "", '[nic]\nrate_in="8mbit"\n')["web1/0"].needs == (AT_START,)


def test_new_tags_change_one_instance_alone() -> None:
    found = rehearsed(copy(), "", "", {"web1": ("netcommon:0:rate_in:8mbit",)})
    assert {label for label, one in found.items() if one.changes} == {"web1/0"}
    assert kinds(found["web1/0"]) == "- | - | - | shaper"


def test_a_wrong_tag_is_refused_with_variable_value_and_what_was_expected() -> None:
    found = rehearsed(copy(), "", '[nic]\nrp_filter="strict"\n', {"web3": ("netcommon:0:rate_in:\x1bfast",)})
    why = found["web3/0"].refused
    assert why is not None and (why.variable, why.status) == ("TAGS", 64) and "\x1b" not in why.text
    bad = rehearsed(copy(), "", "", {"web3": ("netcommon:0:rate_in:fast",)})["web3/0"].refused
    assert bad is not None and (bad.variable, bad.value) == ("TAGS", "netcommon:0:rate_in:fast") and "rate_in" in bad.expected
    assert found["web4/0"].changes  # it keeps no other NIC from being rehearsed


def test_a_nic_that_is_refused_today_already_says_so() -> None:
    one = rehearsed(copy(), FIREWALL, FIREWALL.replace("protected", "limited"))["web5/0"]
    assert one.refused is not None and one.before is not None and one.before.variable == "MODE" and not one.changes
    mended = rehearsed(copy(), FIREWALL, "")["web5/0"]
    assert mended.refused is None and mended.before is not None and mended.changes


def test_what_a_node_says_that_it_lacks_is_missing() -> None:
    lacking = copy(NICS[:1], hardware={"node1": Hardware(("br7",))})
    why = rehearsed(lacking, "", "")["web1/0"].refused
    assert why is not None and why.status == 69 and "br0" in why.text


@pytest.mark.parametrize("tables", [("1", "254"), ("1", "254", "default", "guests", "local", "main")])
def test_a_table_that_a_nic_names_is_there_as_far_as_its_node_says_it(tables: tuple[str, ...]) -> None:
    """Agents of older versions tell tables by their numbers alone, and a NIC's LINK is a name."""
    said = {"node1": Hardware(("br0", "brv"), tables, ("ovs0",))}
    found = rehearsed(copy(hardware=said), "", '[nic]\nrate_in="8mbit"\n')
    assert {label: one.refused for label, one in found.items()} == dict.fromkeys(found) and found["web3/0"].changes
    lacking = {"node1": Hardware(("br0", "brv"), ("254", "main"), ("ovs0",))}
    why = rehearsed(copy(hardware=lacking), "", "")["web3/0"].refused
    assert why is not None and (why.status, "guests" in why.text) == (69, True)


def registry_copy() -> Copy:
    """Copy a registry, which sets rate_in of one NIC, gives another an address more, and tells guests of the network an MTU."""
    nics = [
        nic(1, "bridged", "br0", "10.0.0.5", master="registry", network=BLUE, options=(Option("rate_in", "4mbit"),)),
        nic(3, "routed", "guests", "10.1.0.5", master="registry", addresses=("10.1.0.9",)),
    ]
    return copy(nics, REGISTRY, revision="0123abcd:7", networks={BLUE: NETWORK._replace(mtu=1450, master="registry")})


def test_a_registrys_value_is_stronger_than_settings() -> None:
    found = rehearsed(registry_copy(), "", '[nic]\nrate_in="8mbit"\n')
    assert not found["web1/0"].changes and found["web1/0"].refused is None
    assert kinds(found["web3/0"]) == "- | - | - | shaper"


def test_a_registrys_addresses_and_network_are_the_nics() -> None:
    settings = '[nic]\nrp_filter="strict"\ndhcp="dnsmasq"\n'
    found = rehearsed(registry_copy(), settings, "[rules]\npreference=700\n" + settings)
    assert found["web3/0"].changes
    off = rehearsed(registry_copy(), settings, "")["web1/0"]
    assert off.difference is not None
    assert any("1450" in str(one) for one in (*off.difference.gone, *off.difference.released))


def test_hosts_hold_no_more_nics_than_a_bridge_has_ports() -> None:
    many = tuple(
        Nic(f"{number:08x}-3333-4333-8333-333333333333", instance=f"web{number}", index=0, mode="ext") for number in range(MOST + 1)
    )
    parts = list(tasks(Copy(REGISTRY, "", nics=many), lambda _node: Settings(), lambda _node: Settings()))
    assert [len(part.nics) for part in parts] == [MOST, 1]
    server = Nic("000000aa-3333-4333-8333-333333333333", belongs="server", mode="ext")
    assert list(tasks(Copy(REGISTRY, "", nics=(server,)), lambda _node: Settings(), lambda _node: Settings())) == []


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where temporary files are."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def test_nothing_is_left_behind(folder: Path) -> None:
    rehearsed(copy(), "", '[nic]\nrate_in="8mbit"\n', {"web1": ("netcommon:0:rate_in:x",)})
    assert list(folder.iterdir()) == []


def test_seconds_are_those_of_the_cpu() -> None:
    """As the clock that is given says it: of the change alone, and of none that is refused."""
    ticks = iter(range(1_000_000))
    clock = Clock()._replace(cpu=lambda: float(next(ticks)))
    found = rehearsed(copy(), "", '[nic]\nrate_in="8mbit"\n', clock=clock)
    assert {one.seconds for one in found.values()} == {1.0}
