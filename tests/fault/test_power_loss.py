"""The power goes at any instant: what is on disk is the old or the new, never torn, and new once a command has said that it is done."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

import runtime.folder
from netcommon.lifecycle.check import check
from runtime import definitions
from runtime.nic import Nic
from runtime.paths import Paths
from runtime.record import Record
from runtime.store import Store
from tests.support import figures
from tests.support.cli import BRIDGED, ROUTED, equipped
from tests.support.powerloss import Recorder
from tests.support.sample import sample
from tests.support.sim import MODES, UUIDS, Mortal, Sim, nic

ONE, TWO = nic("bridged"), nic("routed, table", INTERFACE="tap1", INTERFACE_UUID=UUIDS[1], INTERFACE_INDEX="1")
CHANGED, MOVED = nic("routed, all options"), nic("bridged", INTERFACE="tap5")

#: What is there, what is then done, and the NICs that are defined before and after.
Story = tuple[tuple[Nic, ...], Callable[[Paths], object], tuple[Nic, ...]]
STORIES: Mapping[str, Story] = {
    "the first definition": ((), lambda paths: definitions.write(paths, ONE), (ONE,)),
    "another one": ((ONE,), lambda paths: definitions.write(paths, TWO), (ONE, TWO)),
    "a new version": ((ONE, TWO), lambda paths: definitions.write(paths, CHANGED), (CHANGED, TWO)),
    "on another device": ((ONE, TWO), lambda paths: definitions.write(paths, MOVED), (MOVED, TWO)),
    "the same again": ((ONE, TWO), lambda paths: definitions.write(paths, ONE), (ONE, TWO)),
    "removed": ((ONE, TWO), lambda paths: definitions.remove(paths, ONE.uuid), (TWO,)),
    "the last removed": ((ONE,), lambda paths: definitions.remove(paths, ONE.uuid), ()),
}


def told(root: Path) -> dict[str, bytes]:
    """The definitions that are read, by UUID, as they are written; each is found by its device too. What cannot be read fails."""
    paths = Paths.under(str(root))
    found, problems = definitions.all_of(paths)
    assert problems == []
    for each in found:
        by_device = definitions.find(paths, each.interface)
        assert by_device is not None and by_device.uuid == each.uuid
    return {each.uuid: definitions.render(each) for each in found}


#: What is written below /run, and the device of each record there may be after it.
WRITES: Mapping[str, Callable[[Store, Record], object]] = {
    "first": lambda store, record: store.write(record._replace(nic=TWO)),
    "again": lambda store, record: store.write(record._replace(state="up", door="another")),
    "on another device": lambda store, record: store.write(record._replace(nic=MOVED)),
    "aside": lambda store, record: store.move_aside(record),
    "away": lambda store, record: store.remove(record),
}


@pytest.mark.parametrize("name", WRITES)
def test_a_kill_while_a_record_is_written(tmp_path: Path, name: str) -> None:
    """At every operation of a file below /run: each record is as it was or as it should be, and none goes to quarantine."""
    record = Record(ONE, 7, "boot-1", 1)

    def run(folder: str, life: int | None) -> tuple[list[str], list[Record]]:
        sim = Sim(str(tmp_path / folder))
        store = sim.node.store
        store.write(record)
        with Mortal(sim, life) as mortal:
            WRITES[name](store, record)
        found, problems = sim.node.store.all()
        assert problems == [] and sim.node.store.quarantined() == []
        return mortal.steps, found

    steps, after = run("whole", None)
    failures = []
    for life in range(len(steps)):
        found = run(str(life), life)[1]
        one_by_one = {each.key: each for each in found}
        wanted = {each.key: each for each in after}
        known = all(each in (record, wanted.get(each.key)) for each in found)
        if not (known and (ONE.uuid in one_by_one or wanted.keys() <= one_by_one.keys())):
            failures.append((life, steps[:life], found))
    figures.add("power-loss", len(steps), len(failures), len(failures), "with kills while records are written")
    assert failures == []


#: Parts of a simulated machine's picture that a reboot leaves: Open vSwitch's database, and files of nfdhcpd's and dnsmasq's.
OUTLIVING = {"ovs", "shapers", "files"}


@pytest.mark.parametrize("mode", MODES)
def test_a_reboot_after_a_kill(tmp_path: Path, mode: str) -> None:
    """What is left of a hook that died in an earlier boot is known as such, though its tap's index and name are there again.

    Where the records outlive the boot, they are no reason to touch what is there now, but for what outlives it too.
    """
    whole = Sim(str(tmp_path / "whole"))
    with Mortal(whole) as mortal:
        whole.up(nic(mode))
    failures = []
    lives = sample(range(len(mortal.steps) + 1), 4)
    for life in lives:
        sim = Sim(str(tmp_path / str(life)))
        index = sim.index("tap0")
        with Mortal(sim, life):
            sim.up(nic(mode))
        sim.reboot()
        sim.host.kernel.links[index] = sim.host.add_tap("tap0", 4242)._replace(index=index)
        for other in [number for number, link in sim.host.kernel.links.items() if link.name == "tap0" and number != index]:
            del sim.host.kernel.links[other]
        before = sim.picture()
        why = {found.why for found in sim.gc() if found.action == "removed"}
        wanted = {part: sim.before[part] if part in OUTLIVING else found for part, found in before.items()}
        wrong = [part for part, found in sim.picture().items() if found != wanted[part]]
        if wrong or sim.files() or not why <= {"made before this boot", "on no record"}:
            failures.append((life, why, wrong, sim.files()))
        sim.up(nic(mode))
        if sim.record().boot != "boot-2" or not check(sim.node, sim.host.view(), sim.record()).good:
            failures.append((life, why, ["after the up"], sim.files()))
    figures.add("power-loss", len(lives), len(failures), len(failures), "with reboots after kills")
    assert failures == []


def test_defined_nics_come_up_after_a_reboot(tmp_path: Path) -> None:
    """Those on devices that are there; for the others QEMU calls kvm-ifup, which finds the definition by the device."""
    cli = equipped(tmp_path)
    for arguments in (BRIDGED, ROUTED, ("define", "--interface", "tap7", "--mode", "ext", "--instance", "web7", "--index", "0")):
        cli(*arguments)
    shutil.rmtree(cli.paths.state, ignore_errors=True)
    before = cli.host
    again = equipped(tmp_path)  # another boot: a new kernel, and nothing below /run
    assert again.host is not before and "up" not in [row["state"] for row in again.json("list")]
    said = again("up", "--all", "--present").stdout
    assert "web1/0 is up on tap0" in said and "web1/1 is up on tap1" in said and "web7/0: tap7 is not there yet" in said
    assert [row["state"] for row in again.json("list")].count("up") == 2
    again("up", "--all", status=69)
    figures.add("power-loss", 3, 0, 0)


@pytest.mark.parametrize("name", STORIES)
def test_definitions(tmp_path: Path, name: str) -> None:
    before, act, after = STORIES[name]
    root = tmp_path / "node"
    (root / "etc").mkdir(parents=True)
    for each in before:
        definitions.write(Paths.under(str(root)), each)
    with Recorder(root).watching(runtime.folder) as recorder:
        act(Paths.under(str(root)))
    good = [{each.uuid: definitions.render(each) for each in nics} for nics in (before, after)]
    tried, failures = 0, []
    for crash in recorder.crashes():
        tried += 1
        target = tmp_path / "after"
        crash.put(str(root), target)
        try:
            found = told(target)
            assert found in (good[1:] if crash.complete else good)
            act(Paths.under(str(target)))  # and it can be done again
            assert told(target) == good[1]
        except Exception as error:
            failures.append((crash.end, [step.name for step in recorder.steps[: crash.end]], f"{type(error).__name__}: {error}"[:300]))
        shutil.rmtree(target)
    assert tried > 3
    figures.add("power-loss", tried, len(failures), len(failures))
    assert failures == []
