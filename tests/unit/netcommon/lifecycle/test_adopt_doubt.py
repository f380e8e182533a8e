"""adopt: what is not certain, and what was interrupted."""

from __future__ import annotations

from pathlib import Path

from netcommon.host.api.facts import AF_INET, PROTOCOL, BridgeVlan, Rule
from netcommon.host.api.host import Answer
from netcommon.host.api.requests import AddVlan, DeleteRule, SetLink
from tests.support.ganeti_guest import A, B, C, Guest


def test_two_nics_and_one_tap(guest: Guest) -> None:
    guest.nic(A)
    guest.nic(B)
    guest.tap("tap0", 30)
    guest.files = {"0": "tap0"}
    assert guest.adopt() == {A: ("", "skipped"), B: ("", "skipped")}
    guest.files = {A: "tap0", B: "tap0"}
    assert guest.adopt() == {A: ("", "skipped"), B: ("", "skipped")}
    guest.plug(A, "30")
    guest.plug(B, "31")
    guest.descriptors[31] = "tap0"
    assert guest.adopt() == {A: ("", "skipped"), B: ("", "skipped")}
    assert guest.why[B] == "several NICs seem to have tap0"


def test_queues_of_different_taps(guest: Guest) -> None:
    guest.nic(A)
    guest.plug(A, "20:21")
    guest.tap("tap0", 20)
    guest.tap("tap1", 21)
    assert guest.adopt() == {A: ("", "skipped")}


def test_the_last_descriptor_may_be_another_taps_too(guest: Guest) -> None:
    """A was plugged in again as tap3 (descriptor 25); the free 20 is the later tap4's."""
    guest.nic(A, descriptor=20)
    guest.nic(C)
    guest.tap("tap3", 25)
    guest.tap("tap4", 20)
    assert guest.adopt() == {A: ("", "skipped"), C: ("", "skipped")}


def test_a_device_of_another_name_with_the_same_mac(guest: Guest) -> None:
    guest.nic(A, descriptor=20)
    guest.nics[0]["hvinfo"] = {"id": "nic-other"}
    guest.tap("tap0", 20)
    assert guest.adopt() == {A: ("", "skipped")}


def test_vlans_leave_with_the_bridge(guest: Guest) -> None:
    guest.cli.host.add_bridge("br2", vlan_filtering=True)
    guest.nic(A, link="br2", descriptor=20, vlan=".10")
    index = guest.tap("tap0", 20, bridge="br2")
    guest.cli.host.execute([AddVlan(index, BridgeVlan(10, True, True))], stop=True)
    assert guest.adopt() == {A: ("tap0", "adopted")}
    assert guest.cli.host.view().vlans(index) == [BridgeVlan(10, True, True)]
    guest.cli.host.changes.clear()
    guest.cli("down", "--force", "tap0")
    changes = guest.cli.host.changes
    down = changes.index(SetLink(index, up=False))
    added = [number for number, change in enumerate(changes) if isinstance(change, AddVlan)]
    assert all(number > down and changes[number][:2] == (index, BridgeVlan(1, True, True)) for number in added), "as of any other NIC"
    assert guest.cli.host.view().vlans(index) == []


def test_the_sites_scripts_are_not_run(guest: Guest) -> None:
    folder = Path(guest.cli.paths.etc, "ifup.d")
    folder.mkdir(parents=True)
    ran = guest.cli.root / "ran"
    (folder / "10-site").write_text(f"#!/bin/sh\ntouch {ran}\n")
    (folder / "10-site").chmod(0o755)
    guest.nic(A, descriptor=20)
    guest.tap("tap0", 20)
    assert guest.adopt() == {A: ("tap0", "adopted")}
    assert not ran.exists()


def test_what_was_interrupted_is_finished_by_the_next(guest: Guest) -> None:
    guest.nic(A, "routed", "guests", "10.0.0.5", descriptor=20)
    guest.tap("tap0", 20, bridge="")
    guest.cli.host.kernel.add_rule(Rule(AF_INET, 32765, "tap0", 100, protocol=3))
    guest.cli.host.fail = lambda request: Answer(16, "busy") if isinstance(request, DeleteRule) else None
    assert guest.adopt(status=69) == {A: ("tap0", "failed")}
    guest.cli.host.fail = lambda request: None
    assert guest.adopt() == {A: ("tap0", "managed already")}
    assert guest.cli.host.view().rules(AF_INET, "tap0") == [Rule(AF_INET, 500, "tap0", 100, PROTOCOL)]
    guest.cli.host.changes.clear()
    guest.adopt()
    assert guest.cli.host.changes == []


def test_a_device_that_is_down_has_been_cut_off(guest: Guest) -> None:
    """Ganeti's script always takes it up: an up of ours that was refused, or a down, has left this one as it is."""
    guest.nic(A, descriptor=20)
    index = guest.tap("tap0", 20)
    kernel = guest.cli.host.kernel
    kernel.links[index] = kernel.links[index]._replace(up=False)
    before = dict(kernel.links)
    assert guest.adopt() == {A: ("tap0", "skipped")} and kernel.links == before
    assert guest.why[A].startswith("its device is down")


def test_a_record_that_is_damaged_is_no_reason_to_unguard(guest: Guest) -> None:
    """Leave what that had made as it is: the guard of an adopted NIC would be taken for left over."""
    guest.nic(A, descriptor=20)
    guest.tap("tap0", 20)
    assert guest.adopt() == {A: ("tap0", "adopted")}
    Path(guest.cli.paths.state, "nics", f"{A}.json").write_text("garbage")
    assert guest.adopt() == {A: ("tap0", "skipped")}
    assert guest.why[A].startswith("its record is damaged")
