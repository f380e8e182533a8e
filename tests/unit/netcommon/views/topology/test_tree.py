"""netcommon tree on simulated nodes: none, some and thousands of NICs, and what is wrong with them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from netcommon.cli.commands.tree import draws
from netcommon.host.api.facts import BridgeVlan, Link, OvsPort
from netcommon.host.api.requests import SetLink
from netcommon.views.format import natural, ranges, rate, vlan
from netcommon.views.topology.document import document
from netcommon.views.topology.gather import gather
from netcommon.views.topology.model import BRIDGE, DRIFTED, GONE, GOOD, UNTOLD, NicView, NodeView, Port, Segment
from netcommon.views.topology.segments import segments
from netcommon.views.topology.text import ASCII, UNICODE, text
from runtime.errors import TryAgain
from tests.support.cli import BRIDGED, UUIDS, Cli, with_two
from tests.support.sim import Sim, nic
from tests.support.topology import nic_view

COLOUR = re.compile(r"\x1b\[[0-9;]*m")


def a_node(*nics: NicView, **changes: object) -> NodeView:
    """A node with one bridge."""
    bridge = Segment(BRIDGE, "br0", True, True, 1500, False, 0, (Port("eth0", "", True),), (), nics)
    return NodeView("n1", (bridge._replace(**changes),), ())  # type: ignore[arg-type]


def seen(sim: Sim) -> NodeView:
    return gather(sim.node, sim.host.snapshot(), "n1", sim.records())


def segment(node: NodeView, name: str) -> Segment:
    return next(each for each in node.segments if each.name == name)


def test_a_node_without_nics(cli: Cli) -> None:
    said = cli("tree", "--ascii").stdout.splitlines()
    assert said[0].endswith(": no NICs are on record")
    assert said[1:] == ["`- bridge br0: mtu 1400, no uplink, no NICs"]
    assert cli.json("tree")["segments"][0]["nics"] == []


def test_two_nics_and_what_has_drifted(cli: Cli) -> None:
    with_two(cli)
    good = cli("tree", "--ascii").stdout
    assert ": 2 NICs, all good\n" in good and "web1/0  tap0" in good and "`- table guests: number 100, no uplink" in good
    cli.host.kernel.set_link(SetLink(cli.host.view().link("tap0").index, master=0))  # type: ignore[union-attr]
    drifted = cli("tree", "--ascii").stdout
    assert "2 NICs, 1 drifted" in drifted
    assert "! ip link set dev tap0 master br0: it is a port of no bridge" in drifted
    cli.host.remove_link("tap1")
    assert "1 drifted, 1 with the device gone" in cli("tree").stdout
    by_label = {each["label"]: each for part in cli.json("tree")["segments"] for each in part["nics"]}
    assert (by_label["web1/0"]["condition"], by_label["web1/1"]["condition"]) == (DRIFTED, GONE)
    assert by_label["web1/0"]["also"] == ["web1/1"]


def test_it_needs_no_root_and_changes_nothing(cli: Cli) -> None:
    with_two(cli)
    cli.uid = 1000
    before = list(cli.host.requests)
    cli("tree")
    assert cli.host.requests == before


def test_colours_only_where_they_are_wanted(cli: Cli) -> None:
    cli(*BRIDGED)
    cli("up", "tap0")
    plain = cli("tree").stdout
    coloured = cli("tree", "--color", "always").stdout
    assert COLOUR.search(plain) is None and COLOUR.search(coloured) is not None
    assert COLOUR.sub("", coloured) == plain


def test_ascii_alone_where_nothing_else_can_be_drawn() -> None:
    assert draws("utf-8", "UTF-8") and draws("UTF8", "utf-8")
    assert not draws("utf-8", "ANSI_X3.4-1968") and not draws("ascii", "utf-8") and not draws("iso8859-15", "ISO-8859-15")
    node = a_node(nic_view("wéb/0"), name="brü")
    assert text(node, ASCII).isascii() and "w\\xe9b/0" in text(node, ASCII)
    assert "└─ bridge brü" in text(node, UNICODE)


def test_nothing_that_others_wrote_reaches_the_terminal_raw() -> None:
    node = a_node(nic_view("a\x1b[31mb\n/0", addresses=("\x9b2J",)), others=(Port("t\x07p", "tun", True),))
    for style in (ASCII, UNICODE):
        said = text(node._replace(name="n\x1b]0;x", problems=("bad\rthing",)), style)
        assert all(char.isprintable() for char in said.replace("\n", "")), said
        assert len(said.splitlines()) == 4


def test_a_bridge_that_is_not_there(tmp_path: Path) -> None:
    sim = Sim(str(tmp_path))
    sim.up(nic("bridged"))
    sim.host.remove_link("br0")
    found = segment(seen(sim), "br0")
    assert (found.there, found.nics[0].condition) == (False, DRIFTED)
    assert "bridge br0 DOES NOT EXIST" in text(seen(sim))


def test_uplinks_are_told_from_guests(tmp_path: Path) -> None:
    sim = Sim(str(tmp_path))
    sim.up(nic("bridged, access"))
    index = sim.index("brv")
    sim.host.add_link(Link(0, "tap77", "tun", up=True, master=index, holders=1))
    sim.host.add_link(Link(0, "vif3.0", "", up=True, master=index))
    sim.host.add_link(Link(0, "veth1", "veth", up=True, master=index))
    found = segment(seen(sim), "brv")
    assert [port.name for port in found.uplinks] == ["eth-brv"] and set(found.uplinks[0].vlans) >= {10, 20}
    assert sorted(port.name for port in found.others) == ["tap77", "veth1", "vif3.0"]
    named, _problems = segments(sim.host.snapshot(), [], {"brv": ("veth1",)})
    assert [port.name for port in next(each for each in named if each.name == "brv").uplinks] == ["veth1"]


def test_a_veth_alone_is_the_uplink(tmp_path: Path) -> None:
    sim = Sim(str(tmp_path))
    made = sim.host.add_bridge("nested")
    sim.host.add_link(Link(0, "veth1", "veth", up=True, master=made.index))
    assert [port.name for port in segment(seen(sim), "nested").uplinks] == ["veth1"]


def test_open_vswitch_and_tables(tmp_path: Path) -> None:
    sim = Sim(str(tmp_path))
    sim.host.add_link(Link(0, "eth9", "", up=True))
    sim.host.switch.put(OvsPort("eth9", "ovs0", trunks=(5, 6)))
    sim.up(nic("openvswitch, guarded"))
    found = segment(seen(sim), "ovs0")
    assert [(port.name, port.vlans) for port in found.uplinks if port.name == "eth9"] == [("eth9", (5, 6))]
    (only,) = found.nics
    assert (only.guarded, only.rate_in, only.rate_out, only.trunks, only.addresses) == (True, 8_000_000, 4_000_000, (20, 30), ("10.0.0.5",))
    sim.down(nic("openvswitch, guarded"))
    sim.up(nic("routed, bridge"))
    assert [each.name for each in seen(sim).segments if each.kind == "table"] == ["main"]
    assert [port.name for port in segment(seen(sim), "main").uplinks] == ["eth-br0"]


def test_a_table_has_one_name(tmp_path: Path) -> None:
    sim = Sim(str(tmp_path))
    sim.up(nic("routed, table"))
    sim.tap("tap1")
    sim.up(nic("routed, table", INTERFACE="tap1", LINK="100", IP="10.0.0.6", INTERFACE_INDEX="1", INTERFACE_UUID=UUIDS[5]))
    (table,) = [each for each in seen(sim).segments if each.kind == "table"]
    assert (table.name in ("guests", "100"), table.number, len(table.nics)) == (True, 100, 2)


def test_what_is_not_ours_to_plan(tmp_path: Path) -> None:
    sim = Sim(str(tmp_path))
    sim.up(nic("ext"))
    (found,) = [each for each in seen(sim).segments if each.kind == "ext"]
    assert (found.nics[0].condition, found.nics[0].guarded) == (GOOD, False)


def test_a_silent_service_hides_nothing_else(tmp_path: Path) -> None:
    sim = Sim(str(tmp_path))
    sim.up(nic("openvswitch"))
    sim.tap("tap1")
    sim.up(nic("bridged", INTERFACE="tap1", INTERFACE_INDEX="1", INTERFACE_UUID=UUIDS[5], INSTANCE="web2"))
    sim.host.switch.condition = sim.host.switch.condition._replace(database=False)
    node = seen(sim)
    conditions = {each.label: each.condition for each in node.nics}
    assert conditions == {"web1/0": UNTOLD, "web2/1": GOOD}
    assert node.nics[0].drift == node.nics[1].drift == ()
    assert "not all can be told: the simulated OVSDB does not answer" in node.problems
    assert len(node.problems) == len(set(node.problems)) <= 4
    assert "1 good as far as can be told" in text(node)
    sim.host.kernel.set_link(SetLink(sim.index("tap0"), alias="whose?"))
    assert next(each for each in seen(sim).nics if each.label == "web1/0").condition == DRIFTED


def test_a_record_that_cannot_be_read_is_said(cli: Cli) -> None:
    with_two(cli)
    Path(cli.paths.state, "nics", f"{UUIDS[0]}.json").write_text("{")
    said = cli("tree", "--ascii").stdout
    assert "1 NIC, all good" in said
    (problem,) = [line for line in said.splitlines() if line.startswith("! ")]
    assert UUIDS[0] in problem


def test_the_hosts_tables_are_read_once(tmp_path: Path) -> None:
    """However many NICs there are: placing them asks the host as often as for one."""
    sim = Sim(str(tmp_path))
    reads = []
    for count in (1, 40):
        nics = [nic_view(f"w{number}/0", device=f"t{number}", mode="routed", link="guests") for number in range(count)]
        before = sim.host.reads
        segments(sim.host.snapshot(), nics, {})
        reads.append(sim.host.reads - before)
    assert reads[0] == reads[1]


def test_thousands() -> None:
    nics = tuple(nic_view(f"web{number}/0", device=f"tap{number}", access=number % 40 + 1) for number in range(5000))
    said = text(a_node(*nics))
    assert len(said.splitlines()) == 5002 and said.startswith("n1: 5000 NICs, all good")
    assert len(document(a_node(*nics))["segments"][0]["nics"]) == 5000


def test_a_view_that_does_not_answer_is_a_problem_once(tmp_path: Path) -> None:
    sim = Sim(str(tmp_path))
    sim.host.busy = True
    with pytest.raises(TryAgain):
        sim.host.snapshot().links()
    found, problems = segments(sim.host.snapshot(), [nic_view()], {})
    assert [each.name for each in found] == ["br0"] and problems[0].startswith("its devices: ")


def test_words() -> None:
    assert [rate(bits) for bits in (0, 8000, 100_000_000, 2 * 10**9, 1_500_000, 1001)] == [
        "none",
        "8kbit",
        "100mbit",
        "2gbit",
        "1500kbit",
        "1001bit",
    ]
    assert ranges(range(1, 4095)) == "1-4094" and ranges([7, 3, 4]) == "3-4, 7" and ranges([]) == ""
    assert [vlan(None, ()), vlan(10, ()), vlan(None, (2, 3)), vlan(10, (20,))] == ["", "VLAN 10", "tagged 2-3", "VLAN 10, tagged 20"]
    assert sorted(["web10/0", "web2/0", "2", "a"], key=natural) == ["2", "a", "web2/0", "web10/0"]


def test_vlans_of_a_bridge_that_knows_none_are_not_shown(tmp_path: Path) -> None:
    sim = Sim(str(tmp_path))
    sim.host.kernel.add_vlan(sim.index("eth-br0"), BridgeVlan(9))
    assert segment(seen(sim), "br0").uplinks[0].vlans == ()
