"""Which NIC a down call means: the example of doc/design-ifdown.rst, step by step, as Ganeti 3.0.2 left its files."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from runtime import lookup
from runtime.environment import down_hint, nic_from_environment
from runtime.ganeti import write_nic_file
from runtime.lookup import DEVICE, GANETI, INDEX, NOTHING, UUID, find
from runtime.nic import Nic
from runtime.paths import Paths
from runtime.record import UP, Record
from runtime.store import Store
from tests.support.nics import BOOT, FIXTURES, U1, U2, calls, environment, nic, record

INST2 = "inst2.gnt.example"
STEPS = sorted((FIXTURES / "3.0.2").glob("2[5-9]-*")) + sorted((FIXTURES / "3.0.2").glob("3[0-2]-*"))


class Node:
    """One of the laboratory's nodes: Ganeti's files as recorded, and our store."""

    def __init__(self, top: Path, name: str, managed: bool = True) -> None:
        self.name, self.managed = name, managed
        self.paths = Paths.under(str(top / name))
        self.store = Store(self.paths, 1, BOOT)
        self.records: dict[str, Record] = {}

    def play(self, step: Path) -> None:
        """The ups of a step, then its files."""
        for where, variables, arguments in calls():
            if (
                where.startswith(f"{step.relative_to(FIXTURES)}/{self.name}/")
                and variables.get("ACTION", "up") == "up"
                and "ifdown" not in where
            ):
                made = Record(nic_from_environment(variables, arguments), 100 + len(self.records), BOOT, 1, UP)
                self.records[made.nic.name] = made
                if self.managed:
                    self.store.write(made)
        run = Path(self.paths.kvm_run)
        for file in (step / self.name / "kvm-hypervisor").rglob("*"):
            if file.is_file():
                target = run / file.relative_to(step / self.name / "kvm-hypervisor")
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(file, target)
        gone = step / self.name / "gone.txt"
        for line in gone.read_text().split() if gone.exists() else ():
            (run.parent / line).unlink()

    def down(self, *argv: str, **variables: str) -> lookup.Found:
        return find(self.store, self.paths, down_hint(variables, argv))

    def by_index(self, index: int) -> str:
        found = self.down(INSTANCE=INST2, INTERFACE_INDEX=str(index))
        named = found.record.nic if found.record is not None else found.nic
        return f"{found.how} {named.name}" if named is not None else found.how


def nodes(tmp_path: Path, upto: int, managed: bool = True) -> tuple[Node, Node]:
    made = Node(tmp_path, "node1", managed), Node(tmp_path, "node2", managed)
    for step in STEPS:
        if int(step.name[:2]) <= upto:
            for node in made:
                node.play(step)
    return made


#: By step: what a call that gives instance and index alone finds on node1, for indices 0 to 3.
BY_INDEX = {
    25: ["nothing", "nothing", "nothing", "nothing"],
    26: ["index first", "index second", "index third", "nothing"],
    27: ["index first", "index second", "index third", "nothing"],
    28: ["index first", "index second", "index third", "nothing"],
    # the first is gone from Ganeti's list, so everything has moved up: no index leads to the record that had it
    29: ["nothing", "nothing", "nothing", "nothing"],
    # the fourth came up as 1, where Ganeti's list has the third
    30: ["nothing", "nothing", "nothing", "nothing"],
    31: ["nothing", "nothing", "nothing", "nothing"],
    32: ["nothing", "nothing", "nothing", "nothing"],
}


@pytest.mark.parametrize("upto", range(25, 33))
def test_the_designs_example(tmp_path: Path, upto: int) -> None:
    node1, node2 = nodes(tmp_path, upto)
    assert len(STEPS) == 5  # the others changed no file and called no script
    assert sorted(node1.records) == (
        [] if upto < 26 else ["first", "second", "third"] if upto < 30 else ["first", "fourth", "second", "third"]
    )
    assert [node1.by_index(index) for index in range(4)] == BY_INDEX[upto]
    if upto == 31:
        # renumbered on the target
        assert [node2.by_index(index) for index in range(4)] == ["index second", "index third", "index fourth", "nothing"]
    for node in (node1, node2):
        for made in node.records.values():
            # the UUID finds its NIC whatever else is said, also with the tap that another NIC has
            for tap in ("", made.device, "tap0", "tap1", "tap2"):
                found = node.down(tap, INTERFACE_UUID=made.uuid, INSTANCE=INST2, INTERFACE_INDEX="0")
                assert (found.record, found.nic, found.how) == (made, None, UUID)
        if node.records:
            taps = {made.device: made for made in node.records.values()}  # the last one to come up on each
            for tap, made in taps.items():
                assert node.down(f"b'{tap}'") == (made, None, DEVICE, [])
                assert node.down(tap, INSTANCE=INST2).record == made
                assert node.down(tap, INSTANCE="another").record is None


def test_the_late_down_of_a_nic_whose_tap_was_taken(tmp_path: Path) -> None:
    """tap0 was the first's, now it is the fourth's; the first's record is gone by an earlier down."""
    node, _ = nodes(tmp_path, 30)
    first, fourth = node.records["first"], node.records["fourth"]
    assert first.device == fourth.device == "tap0"
    node.store.remove(first)
    found = node.down("tap0", INTERFACE_UUID=first.uuid, INSTANCE=INST2, INTERFACE_INDEX="0")
    assert (found.record, found.nic, found.how) == (None, None, NOTHING)
    assert any(fourth.uuid in note for note in found.notes)
    found = node.down("tap0", INSTANCE=INST2, INTERFACE_INDEX="0", MAC=first.nic.mac)
    assert found[:3] == (None, None, NOTHING)


#: By step: which NICs Ganeti's own files tell of an instance that was started before we were installed: by UUID and tap, and by index.
BEFORE_US = {
    25: ([], []),
    26: (["first", "second", "third"], ["first tap0", "second tap1", "third tap2"]),
    28: (["first", "second", "third"], ["first tap0", "second tap1", "third tap2"]),
    # nic/0 is gone, nic/1 and nic/2 are by the old numbers: candidates that only the kernel can rule out
    29: (["second", "third"], ["third tap1"]),
    30: (["fourth", "second", "third"], ["third tap0", "fourth tap2"]),
    31: ([], []),
}


@pytest.mark.parametrize("upto", BEFORE_US)
def test_an_instance_started_before_we_were_installed(tmp_path: Path, upto: int) -> None:
    node, _ = nodes(tmp_path, upto, managed=False)
    found_by_uuid = []
    for name, made in sorted(node.records.items()):
        found = node.down(f"b'{made.device}'", INTERFACE_UUID=made.uuid, INSTANCE=INST2, MAC=made.nic.mac)
        if found.nic is not None:
            assert found.how == GANETI
            assert found.nic._replace(index=None, tags=(), environment={}) == made.nic._replace(index=None, tags=(), environment={})
            found_by_uuid.append(name)
        else:
            assert found.how == NOTHING
    candidates = [node.down(INSTANCE=INST2, INTERFACE_INDEX=str(index)).nic for index in range(4)]
    by_index = [f"{one.name} {one.interface}" for one in candidates if one is not None]
    assert (found_by_uuid, by_index) == BEFORE_US[upto]
    assert Path(node.paths.state).exists() is False


def test_a_wrong_mac_rules_a_candidate_out(tmp_path: Path) -> None:
    node, _ = nodes(tmp_path, 30, managed=False)
    third = node.records["third"].nic
    assert node.down(INSTANCE=INST2, INTERFACE_INDEX="1", MAC=third.mac).nic is not None
    assert node.down(INSTANCE=INST2, INTERFACE_INDEX="1", MAC="aa:00:00:00:00:01").how == NOTHING
    # a recorded NIC's tap is never another one's
    node.store.write(node.records["fourth"])
    found = node.down("tap0", INTERFACE_UUID=third.uuid, INSTANCE=INST2)
    assert found[:3] == (None, None, NOTHING)


def test_a_recorded_nic_is_not_a_candidate_on_another_tap(tmp_path: Path) -> None:
    node, _ = nodes(tmp_path, 26)
    found = node.down("tap9", INSTANCE=INST2, INTERFACE_INDEX="0")
    assert found[:3] == (None, None, NOTHING)
    assert any("its record says otherwise" in note for note in found.notes)


def test_a_tap_alone_before_we_were_installed(tmp_path: Path) -> None:
    node, _ = nodes(tmp_path, 26, managed=False)
    found = node.down("tap1")
    assert found.nic is not None
    assert (found.nic.name, found.how) == ("second", GANETI)
    other = Path(node.paths.kvm_run, "nic/other/0")
    other.parent.mkdir()
    other.write_text("tap1")
    found = node.down("tap1")
    assert (found.nic, found.how) == (None, NOTHING)
    assert any("several" in note for note in found.notes)


def test_the_uuid_file_of_design_ifdown_counts_more_than_the_tap_of_the_call(tmp_path: Path) -> None:
    node, _ = nodes(tmp_path, 30, managed=False)
    second = node.records["second"].nic
    write_nic_file(node.paths, second._replace(index=None))
    found = node.down("tap0", INTERFACE_UUID=second.uuid, INSTANCE=INST2)
    assert found.nic is not None
    assert found.nic.interface == "tap1"
    assert any("the UUID counts" in note for note in found.notes)


@pytest.mark.parametrize("folder", ["design-backport", "master-backport/index-crash-migfail"])
def test_every_recorded_down_finds_its_nic_and_no_other(tmp_path: Path, folder: str) -> None:
    """Ups and downs in the order they ran; master's downs name other NICs' taps after a hotplug."""
    store = Store(Paths.under(str(tmp_path)), 1, BOOT)
    live: dict[tuple[str, str], Nic] = {}
    downs = mismatched = 0
    for where, variables, arguments in calls():
        if not where.startswith(folder):
            continue
        node = where.split("/calls/")[0].rpartition("/")[2]
        paths = Paths.under(str(tmp_path / node))
        store = Store(paths, 1, BOOT)
        if variables.get("ACTION", "up") == "up" and "ifdown" not in where:
            made = nic_from_environment(variables, arguments)
            live[node, made.uuid] = made
            store.write(Record(made, len(live), BOOT, 1, UP))
            continue
        found = find(store, paths, down_hint(variables, arguments))
        expected = live.get((node, variables["INTERFACE_UUID"]))
        assert (found.record.nic if found.record is not None else None) == expected, where
        assert found.nic is None
        downs += 1
        mismatched += expected is not None and expected.interface != variables["INTERFACE"]
    assert downs >= 9
    assert bool(mismatched) == folder.startswith("master")
    store.close()


def test_a_nic_that_has_come_up_twice_is_chosen_by_its_device(tmp_path: Path) -> None:
    paths = Paths.under(str(tmp_path))
    store = Store(paths, 1, BOOT)
    store.write(record())
    moved = store.move_aside(record())
    store.write(second := record(nic(INTERFACE="tap4"), ifindex=9))

    def by(tap: str) -> Record | None:
        return find(store, paths, down_hint({"INTERFACE_UUID": U1}, [tap])).record

    assert (by("tap0"), by("tap4"), by(""), by("tap9")) == (moved, second, second, second)
    store.remove(second)
    assert (by("tap0"), by("tap4")) == (moved, None)


def test_nics_without_uuid(tmp_path: Path) -> None:
    """A's late down after B took its tap's name, its place and index leaves B alone."""
    paths = Paths.under(str(tmp_path))
    store = Store(paths, 1, BOOT)
    a = environment(INTERFACE_UUID="")
    b = environment(INTERFACE_UUID="", MAC="aa:00:00:00:00:0b")
    store.write(record(nic_from_environment(a)))
    store.write(record(nic_from_environment(b), ifindex=9))
    assert find(store, paths, down_hint(a)).record == record(nic_from_environment(a))
    store.remove(record(nic_from_environment(a)))
    found = find(store, paths, down_hint(a))
    assert found[:3] == (None, None, NOTHING)
    assert find(store, paths, down_hint(b)).record == record(nic_from_environment(b), ifindex=9)
    del a["MAC"]
    assert find(store, paths, down_hint(a | {"INSTANCE": "another"}))[:3] == (None, None, NOTHING)


def test_index_of_a_nic_without_uuid_in_ganetis_file(tmp_path: Path) -> None:
    paths = Paths.under(str(tmp_path))
    store = Store(paths, 1, BOOT)
    made = nic(INTERFACE_UUID="")
    store.write(record(made))
    hint = down_hint({"INSTANCE": made.instance, "INTERFACE_INDEX": "0"})
    assert find(store, paths, hint).how == NOTHING  # Ganeti does not know the instance
    file = Path(paths.kvm_run, "conf", made.instance + ".runtime")
    file.parent.mkdir(parents=True)
    for mac, how in ((made.mac, INDEX), ("aa:00:00:00:00:99", NOTHING)):
        file.write_text(json.dumps([[], [{"mac": mac, "nicparams": {"mode": "bridged", "link": "br0"}}], {}]))
        assert find(store, paths, hint).how == how


def test_a_quarantined_record_is_nothing_to_guess_about(tmp_path: Path) -> None:
    paths = Paths.under(str(tmp_path))
    store = Store(paths, 1, BOOT)
    store.write(record())
    store.write(record(nic(INTERFACE_UUID=U2, INTERFACE="tap2", INTERFACE_INDEX="1")))
    Path(paths.state, f"nics/{U1}.json").write_text("{")
    assert find(store, paths, down_hint({"INTERFACE_UUID": U1}, ["tap0"]))[:3] == (None, None, NOTHING)
    assert find(store, paths, down_hint({}, ["tap0"]))[:3] == (None, None, NOTHING)
    assert find(store, paths, down_hint({}, ["tap2"])).how == DEVICE
    assert len(store.quarantined()) == 1
