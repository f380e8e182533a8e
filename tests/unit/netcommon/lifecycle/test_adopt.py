"""adopt: NICs that Ganeti's own script brought up, on a simulated node with a made-up /proc and Ganeti's files."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest

from netcommon.host.api.facts import AF_INET, PROTOCOL, BridgeVlan, Link, OvsPort, Route, Rule
from netcommon.host.api.requests import AddVlan, DeleteVlan, PutOvsPort, Request, SetSysctl
from runtime.errors import Interrupted
from tests.support.cli import Cli
from tests.support.ganeti_guest import PID, A, B, C, D, Guest
from tests.support.sim import Killed
from tests.support.told_to_end import at_request


def state(guest: Guest) -> list[object]:
    """What the kernel has, less our mark on the devices."""
    kernel = guest.cli.host.kernel
    return [[link._replace(alias="") for link in kernel.links.values()], list(kernel.rules), guest.cli.host.view().routes(AF_INET)]


def test_by_the_command_line_and_the_descriptor(guest: Guest) -> None:
    guest.nic(A, descriptor=20)
    guest.nic(B, descriptor=22)
    guest.tap("tap0", 20)
    guest.tap("tap1", 22)
    guest.files = {"0": "tap1", "1": "tap0"}  # indices lie
    before = state(guest)
    assert guest.adopt("web", "--dry-run") == {A: ("tap0", "would adopt"), B: ("tap1", "would adopt")}
    assert guest.cli.host.changes == []
    assert not Path(guest.cli.paths.state).exists()
    assert guest.adopt() == {A: ("tap0", "adopted"), B: ("tap1", "adopted")}
    assert [[link.address[:2] for link in state(guest)[0] if link.name.startswith("tap")], state(guest)[1:]] == [["fe", "fe"], before[1:]]  # type: ignore[attr-defined]
    guest.cli("check")
    assert guest.adopt() == {A: ("tap0", "managed already"), B: ("tap1", "managed already")}
    shown = guest.cli.json("show", "web/1")[0]
    assert (shown["nic"]["INTERFACE_UUID"], shown["door"], shown["scripts"]) == (B, "adopt", False)
    assert shown["environment"]["INTERFACE"] == "tap1"


def test_down_of_an_adopted_nic_leaves_nothing_of_ganetis_script(guest: Guest) -> None:
    guest.nic(A, descriptor=20)
    guest.nic(B, "routed", "guests", "10.0.0.5", descriptor=21)
    guest.tap("tap0", 20)
    index = guest.tap("tap1", 21, bridge="")
    kernel, view = guest.cli.host.kernel, guest.cli.host.view()
    kernel.add_rule(Rule(AF_INET, 32765, "tap1", 100, protocol=3))
    kernel.add_route(Route(AF_INET, 100, "10.0.0.5/32", index, protocol=3))
    stranger = Rule(AF_INET, 700, "tap1", 101, protocol=3)
    marked = Rule(AF_INET, 701, "tap1", 100, protocol=99)
    narrow = Rule(AF_INET, 702, "tap1", 100, protocol=3, plain=False)
    foreign = [stranger, marked, narrow]
    for rule in foreign:
        kernel.add_rule(rule)
    guest.cli.host.execute([SetSysctl("net/ipv4/conf/tap1/forwarding", "1")], stop=True)
    assert guest.adopt() == {A: ("tap0", "adopted"), B: ("tap1", "adopted")}
    assert sorted(view.rules(AF_INET, "tap1")) == sorted([Rule(AF_INET, 500, "tap1", 100, PROTOCOL), *foreign])
    assert [route.protocol for route in view.routes(AF_INET, 100)] == [PROTOCOL]
    guest.cli("check")
    guest.cli("down", "--all", "--force")
    assert sorted(view.rules(AF_INET, "tap1")) == sorted(foreign)
    assert view.routes(AF_INET, 100) == []
    taps = [view.link(name) for name in ("tap0", "tap1")]
    assert [(link.master, link.up, link.alias) for link in taps if link] == [(0, False, "")] * 2
    assert view.sysctl("net/ipv4/conf/tap1/forwarding") == view.sysctl("net/ipv4/conf/default/forwarding") == "0"


def test_the_rule_with_our_preference_becomes_ours(guest: Guest) -> None:
    guest.nic(A, "routed", "guests", "10.0.0.5", descriptor=20)
    guest.tap("tap0", 20, bridge="")
    guest.cli.host.kernel.add_rule(Rule(AF_INET, 500, "tap0", 100, protocol=3))
    assert guest.adopt() == {A: ("tap0", "adopted")}
    assert guest.cli.host.view().rules(AF_INET, "tap0") == [Rule(AF_INET, 500, "tap0", 100, PROTOCOL)]


def test_where_tables_are_marked_ganetis_rule_goes(guest: Guest) -> None:
    """It would lead whoever gets the device's name next to this guest's table."""
    etc = Path(guest.cli.paths.etc)
    etc.mkdir(parents=True, exist_ok=True)
    (etc / "config.toml").write_text("[rules]\nmark = 0xff00\n")
    guest.nic(A, "routed", "guests", "10.0.0.5", descriptor=20)
    guest.tap("tap0", 20, bridge="")
    guest.cli.host.kernel.add_rule(Rule(AF_INET, 32765, "tap0", 100, protocol=3))
    assert guest.adopt() == {A: ("tap0", "adopted")}
    view = guest.cli.host.view()
    assert view.rules(AF_INET, "tap0") == []
    assert [rule for rule in view.rules(AF_INET, "") if rule.mask] == [Rule(AF_INET, 500, "", 100, mark=0x6400, mask=0xFF00)]
    guest.cli("check")


def test_several_queues(guest: Guest) -> None:
    guest.nic(A)
    guest.plug(A, "20:21")
    guest.tap("tap0", 20)
    guest.descriptors[21] = "tap0"
    assert guest.adopt() == {A: ("tap0", "adopted")}


def test_old_files_without_device_ids_are_told_by_the_mac(guest: Guest) -> None:
    guest.nic(A, descriptor=20)
    del guest.nics[0]["hvinfo"]
    guest.tap("tap0", 20)
    assert guest.adopt() == {A: ("tap0", "adopted")}


def test_the_three_nic_example(guest: Guest) -> None:
    """design-ifdown.rst: the first unplugged, a fourth plugged in: nic/1 is the fourth's, the second's tap is in no file."""
    guest.plug(A, "20")
    guest.nic(B, descriptor=21)
    guest.nic(C, descriptor=22)
    guest.nic(D)
    guest.tap("tap1", 21)
    guest.tap("tap2", 22)
    guest.tap("tap0", 20)  # the fourth got the first one's name and descriptor
    guest.files = {"1": "tap0", "2": "tap2"}
    assert guest.adopt() == {B: ("tap1", "adopted"), C: ("tap2", "adopted"), D: ("tap0", "adopted")}
    assert "one tap left" in guest.why[D]


def test_a_descriptor_that_another_tap_got_since_is_not_believed(guest: Guest) -> None:
    """A was unplugged and plugged in again (tap3, descriptor 25), in between C got A's descriptor 20."""
    guest.nic(A, descriptor=20)
    guest.nic(B, descriptor=21)
    guest.nic(C)
    guest.tap("tap1", 21)
    guest.tap("tap3", 25)
    guest.tap("tap4", 20)
    guest.files = {"0": "tap3", "2": "tap4"}
    assert guest.adopt() == {A: ("", "skipped"), B: ("tap1", "adopted"), C: ("", "skipped")}
    assert "several NICs and taps (tap3, tap4)" in guest.why[A]


def test_a_nic_whose_mac_is_not_that_of_the_command_line(guest: Guest) -> None:
    guest.nic(A, descriptor=20)
    guest.nics[0]["mac"] = "aa:00:00:00:00:01"
    guest.tap("tap0", 20)
    assert guest.adopt() == {A: ("", "skipped")}
    assert "no file of Ganeti's names tap0" in guest.why[A]


@pytest.mark.parametrize("place", ["br1", ""])
def test_hotplugged_nics_are_told_apart_by_their_place(guest: Guest, place: str) -> None:
    guest.nic(A)
    guest.nic(B, *(("bridged", "br1") if place else ("routed", "guests", "10.0.0.5")))
    guest.tap("tap0", 30)
    index = guest.tap("tap1", 31, bridge=place)
    if not place:
        guest.cli.host.kernel.add_route(Route(AF_INET, 100, "10.0.0.5/32", index, protocol=3))
    guest.files = {"0": "tap1", "1": "tap0"}
    assert guest.adopt() == {A: ("tap0", "adopted"), B: ("tap1", "adopted")}


def test_hotplugged_on_open_vswitch(guest: Guest) -> None:
    guest.cli.host.add_ovs_bridge("ovs0")
    guest.nic(A, "openvswitch", "ovs0", vlan=".10")
    guest.tap("tap0", 30, bridge="")
    assert guest.adopt("--all", "--dry-run") == {A: ("", "skipped")}
    guest.cli.host.execute([PutOvsPort(OvsPort("tap0", "ovs0", 10))], stop=True)
    before = guest.cli.host.view().ovs_port("tap0")
    guest.files = {"0": "tap0"}
    assert guest.adopt() == {A: ("tap0", "adopted")}
    port = guest.cli.host.view().ovs_port("tap0")
    assert port and before and (port.owner, port.tag, port.row, port.ofport) == (A, 10, before.row, before.ofport)
    # the mark on the device came first: a kill in between leaves a port that gc takes for a living guest's
    marks = [type(request).__name__ for request in guest.cli.host.requests if type(request).__name__ in ("SetLink", "TakeOvsPort")]
    assert marks[:2] == ["SetLink", "TakeOvsPort"]


def test_open_vswitch_where_devices_bear_no_alias(guest: Guest) -> None:
    """The setting counts for a NIC that is adopted too."""
    etc = Path(guest.cli.paths.etc)
    etc.mkdir(parents=True, exist_ok=True)
    (etc / "config.toml").write_text("[ganeti]\ntap_alias = false\n")
    guest.cli.host.add_ovs_bridge("ovs0")
    guest.nic(A, "openvswitch", "ovs0", vlan=".10")
    guest.tap("tap0", 30, bridge="")
    guest.cli.host.execute([PutOvsPort(OvsPort("tap0", "ovs0", 10))], stop=True)
    guest.files = {"0": "tap0"}
    assert guest.adopt() == {A: ("tap0", "adopted")}
    port, link = guest.cli.host.view().ovs_port("tap0"), guest.cli.host.view().link("tap0")
    assert port and link and (port.owner, link.alias) == (A, "")
    assert guest.cli("check", "--all").exit_code == 0


def test_files_named_by_uuid_tell_apart_what_has_one_place(guest: Guest) -> None:
    guest.nic(A)
    guest.nic(B)
    guest.tap("tap0", 30)
    guest.tap("tap1", 31)
    guest.files = {"0": "tap0", "1": "tap1"}
    assert guest.adopt() == {A: ("", "skipped"), B: ("", "skipped")}
    guest.files = {A: "tap1", B: "tap0"}
    assert guest.adopt() == {A: ("tap1", "adopted"), B: ("tap0", "adopted")}


def test_a_file_alone_proves_nothing(guest: Guest) -> None:
    """Not held by this QEMU; not where the NIC belongs; one tap for two."""
    guest.nic(A)
    guest.files = {A: "tap0", "0": "tap0"}
    guest.cli.host.add_tap("tap0", holder=99, master=guest.cli.host.add_bridge("br2").index)
    assert guest.adopt() == {A: ("", "skipped")}
    guest.descriptors[30] = "tap0"
    assert guest.adopt() == {A: ("", "skipped")}
    assert "(tap0) is where the NIC belongs" in guest.why[A]


def test_the_kernel_contradicts_the_command_line(guest: Guest) -> None:
    guest.nic(A, descriptor=20)
    guest.nic(B, "routed", "guests", "10.0.0.5", descriptor=21)
    guest.tap("tap0", 20, bridge="br1")
    guest.tap("tap1", 21, bridge="br0")
    assert guest.adopt() == {A: ("", "skipped"), B: ("", "skipped")}
    assert guest.why == {A: "tap0 is a port of br1, not of br0", B: "tap1 is a port of br0, not routed"}
    assert guest.cli.host.changes == []


def test_a_nic_that_does_not_validate_spoils_only_what_depends_on_it(guest: Guest) -> None:
    guest.nic(A, descriptor=20)
    guest.nic(B)
    guest.nic(C)
    guest.nics[1]["mac"] = "nonsense"
    guest.tap("tap0", 20)
    guest.tap("tap1", 30, bridge="br1")
    guest.tap("tap2", 31)
    guest.files = {"1": "tap1", "2": "tap2"}
    assert guest.adopt() == {A: ("tap0", "adopted"), "web": ("", "skipped"), C: ("", "skipped")}
    assert "MAC='nonsense'" in guest.why["web"]


def test_instances_that_do_not_run_here(guest: Guest) -> None:
    guest.nic(A, descriptor=20)
    guest.write()
    run = Path(guest.cli.paths.kvm_run)
    assert guest.adopt("other") == {"other": ("", "not running")}
    guest.words[2] = "db"
    assert guest.adopt() == {"web": ("", "skipped")}
    assert guest.why["web"] == f"process {PID} is not the QEMU of web"
    (guest.proc / f"{PID}/ns/net").unlink()
    (guest.proc / f"{PID}/ns/net").touch()
    guest.adopt()
    assert guest.why["web"] == f"process {PID} is in another network namespace"
    (run / "pid/web").unlink()
    assert "no pid file" in guest.cli("adopt", "--all").stdout
    (run / "conf/web.runtime").write_text("[")
    assert "not JSON" in guest.cli("adopt", "--all").stdout
    (run / "conf/web.runtime").unlink()
    assert guest.cli("adopt", "--all").stdout == "no instance of Ganeti runs here\n"


def test_a_failure_leaves_the_guest_as_it_was(guest: Guest) -> None:
    guest.nic(A, descriptor=20, link="br9")
    guest.nic(B, descriptor=21)
    guest.tap("tap0", 20, bridge="")
    guest.tap("tap1", 21)
    before = guest.cli.host.view().link("tap0")
    assert guest.adopt(status=69) == {A: ("tap0", "failed"), B: ("tap1", "adopted")}
    assert "bridge br9 does not exist" in guest.why[A]
    assert guest.cli.host.view().link("tap0") == before


def test_another_nics_record_is_not_pushed_aside(guest: Guest) -> None:
    guest.tap("tap0", 20)
    guest.cli("define", "--interface", "tap0", "--mode", "ext", "--uuid", D)
    guest.cli("up", "tap0")
    guest.nic(A, descriptor=20)
    assert guest.adopt() == {A: ("tap0", "skipped")}
    assert D in guest.why[A]
    assert [row["uuid"] for row in guest.cli.json("list")] == [D]


def test_wrong_usage_and_wrong_names(guest: Guest) -> None:
    guest.cli("adopt", status=2)
    guest.cli("adopt", "web", "--all", status=2)
    assert "INSTANCE='a/b'" in guest.cli("adopt", "a/b", status=64).stderr


def test_what_ganetis_script_left_of_devices_that_are_gone_goes(guest: Guest) -> None:
    """With --all alone: who names an instance asks for nothing else."""
    guest.nic(A, descriptor=20)
    guest.tap("tap0", 20)
    kernel = guest.cli.host.kernel
    left, near = Rule(AF_INET, 32765, "tap7", 100, 3), Rule(AF_INET, 700, "tap8", 100, 3)
    kernel.add_rule(left)
    kernel.add_rule(near)
    assert guest.adopt("--all", "--dry-run") == {A: ("tap0", "would adopt"), "": ("tap7", "would be removed")}
    assert guest.adopt("web") == {A: ("tap0", "adopted")}
    assert [rule for rule in kernel.rules if rule.iif] == [near, left]
    assert guest.adopt() == {A: ("tap0", "managed already"), "": ("tap7", "removed")}
    assert guest.why[""] == "rule iif tap7 lookup 100 preference 32765 (family 2), left by Ganeti's own script"
    assert [rule for rule in kernel.rules if rule.iif] == [near]


def test_a_guest_that_a_rule_leads_elsewhere_is_not_adopted(guest: Guest) -> None:
    """Ganeti's script takes no rule away where the NIC has no LINK; whose it is cannot be told while the guest runs."""
    guest.nic(A, "routed", "", "10.0.0.5", descriptor=20)
    guest.tap("tap0", 20, bridge="")
    guest.cli.host.kernel.add_rule(Rule(AF_INET, 32765, "tap0", 100, 3))
    assert guest.adopt(status=69) == {A: ("tap0", "failed")}
    assert "ip -4 rule del iif tap0 lookup 100 preference 32765" in guest.why[A]


def test_that_it_stands_without_its_guard_is_said_until_its_next_start(guest: Guest) -> None:
    guest.nic(A, descriptor=20)
    guest.tap("tap0", 20)
    assert guest.adopt() == {A: ("tap0", "adopted")}
    assert "good, but without the spoof guard and node_access until its next start" in guest.cli("check").stdout
    (found,) = guest.cli.json("check")
    assert found["good"] and found["unguarded"]
    assert "1 unguarded until the next start" in guest.cli("tree").stdout
    (warned,) = [one for one in guest.cli.json("doctor", status=None) if one["topic"] == "guards"]
    assert "web/0" in warned["text"]
    guest.cli.environ = {**guest.cli.json("show", "web/0")[0]["environment"], "TAGS": ""}
    guest.cli("up", "--from-environment")
    assert "good\n" in guest.cli("check").stdout and "without" not in guest.cli("check").stdout
    assert not guest.cli.json("check")[0]["unguarded"]


@pytest.mark.parametrize("default", [1, 0, 7])
def test_an_adopted_nic_that_loses_its_vlan(guest: Guest, tmp_path: Path, default: int) -> None:
    """Be where any other NIC without a VLAN is: in the bridge's default VLAN, or in none where it has none."""
    host = guest.cli.host
    bridge = host.add_bridge("brv", vlan_filtering=True, default_pvid=default)
    host.add_link(Link(0, "eth9", "dummy", master=bridge.index, port_kind="bridge"))
    guest.nic(A, link="brv", descriptor=20, vlan=".20")
    index = guest.tap("tap0", 20, bridge="brv")
    others: list[Request] = [DeleteVlan(index, default)] if default else []
    host.execute([*others, AddVlan(index, BridgeVlan(20, True, True))], stop=True)
    assert guest.adopt() == {A: ("tap0", "adopted")}
    assert list(host.view().vlans(index)) == [BridgeVlan(20, True, True)]
    variables = guest.cli.json("show", "tap0")[0]["environment"] | {"VLAN": ""}
    (tmp_path / "variables").write_text("".join(f"{name}={value}\n" for name, value in variables.items()))
    guest.cli("up", "--env-file", str(tmp_path / "variables"))
    assert list(host.view().vlans(index)) == ([BridgeVlan(default, True, True)] if default else [])
    guest.cli("check")


def routed(folder: Path, preference: int) -> Guest:
    """A routed guest as Ganeti's script has it, whose rule has this preference."""
    cli = Cli(folder)
    guest = Guest(cli)
    guest.nic(A, "routed", "guests", "10.0.0.5", descriptor=20)
    index = guest.tap("tap0", 20, bridge="")
    cli.host.kernel.add_rule(Rule(AF_INET, preference, "tap0", 100, protocol=3))
    cli.host.kernel.add_route(Route(AF_INET, 100, "10.0.0.5/32", index, protocol=3))
    return guest


@pytest.mark.parametrize("preference", [500, 32765])
@pytest.mark.parametrize("ends", [Interrupted, Killed])
def test_what_was_not_taken_over_is_when_it_is_adopted_again(tmp_path: Path, ends: type[BaseException], preference: int) -> None:
    """Ended before any of its requests, by a signal or at once; a signal leaves no guest without its rule meanwhile."""
    whole = routed(tmp_path / "whole", preference)
    whole.adopt()
    for number in range(40):
        guest = routed(tmp_path / f"{number}", preference)
        with at_request(guest.cli.host, number, ends) as told, suppress(ends):
            guest.adopt()
        kernel = guest.cli.host.kernel
        if ends is Interrupted:
            assert [rule.table for rule in kernel.rules if rule.iif == "tap0"] != [], number
        assert kernel.links[guest.cli.host.view().link("tap0").index].up  # type: ignore[union-attr]
        guest.adopt()
        assert state(guest) == state(whole), number
        assert [route.protocol for route in kernel.routes] == [PROTOCOL]
        guest.cli("check")
        if not told():
            break
    assert number > 5 and not told()


def test_a_route_that_an_administrator_has_put_in_its_place_is_not_taken(tmp_path: Path) -> None:
    guest = routed(tmp_path, 500)
    guest.adopt()
    kernel = guest.cli.host.kernel
    kernel.routes = [route._replace(protocol=4) for route in kernel.routes]
    guest.adopt()
    assert [route.protocol for route in kernel.routes] == [4]
