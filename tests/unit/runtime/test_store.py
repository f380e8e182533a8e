"""The records' store on a real file system."""

from __future__ import annotations

import errno
import json
import os
import shutil
import stat
import time
from pathlib import Path

import pytest

from runtime.errors import HostRefused, RecordTooNew
from runtime.folder import TEMPORARY, Folder
from runtime.paths import Paths
from runtime.record import CLOSING, REVERTING, UP, Record, from_json, to_json
from runtime.store import Store
from tests.support.nics import BOOT, U1, U2, nic, record

OTHER_BOOT = "6a1e2d3c-0000-4000-8000-000000000002"


def tree(state: Path) -> list[str]:
    return sorted(str(path.relative_to(state)) for path in state.rglob("*") if path.is_symlink() or path.is_file())


def test_write_makes_the_file_and_its_links(store: Store, state: Path) -> None:
    made = record(nic(INTERFACE_INDEX="2"))
    store.write(made)
    assert tree(state) == ["devices/tap0", "instances/web1.example/2", f"netns.{BOOT}", f"nics/{U1}.json"]
    assert os.readlink(state / "devices/tap0") == f"../nics/{U1}.json"
    assert os.readlink(state / "instances/web1.example/2") == f"../../nics/{U1}.json"
    assert (state / "devices/tap0").resolve() == (state / "instances/web1.example/2").resolve() == (state / f"nics/{U1}.json")
    assert store.read(U1) == store.by_device("tap0") == store.by_instance("web1.example", 2) == made
    assert store.all() == ([made], [])


@pytest.mark.parametrize("umask", [0o077, 0o000, 0o027])
def test_modes_do_not_depend_on_the_umask(store: Store, state: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        store.write(record())
        store.owners.claim("rule:tap0", U1)
        with store.locks(0, lambda: 0, lambda _: None) as held:
            held.devices(["tap0"])
    finally:
        os.umask(before)
    for path in [state, *state.rglob("*")]:
        if not path.is_symlink():
            # the marker holds no secret and tells others whose layout it is
            expected = 0o755 if path.is_dir() else 0o644 if path.name.startswith("netns.") else 0o600
            assert stat.S_IMODE(path.stat().st_mode) == expected, path


def test_nothing_is_there(store: Store, state: Path) -> None:
    assert store.read(U1) is None
    assert store.by_device("tap0") is None
    assert store.by_instance("web1.example", 0) is None
    assert store.all() == ([], [])
    assert store.quarantined() == []
    assert store.owners.others("k", U1) == []
    assert store.clean_temporary(0.0) == []
    assert not state.exists()


def test_read_only_use_creates_and_moves_nothing(paths: Paths, state: Path) -> None:
    with Store(paths, 1, BOOT) as writer:
        writer.write(record())
    (state / f"nics/{U2}.json").write_bytes(b"{")
    before = tree(state)
    reader = Store(paths, 1, BOOT, readonly=True)
    assert reader.by_device("tap0") == record()
    records, problems = reader.all()
    assert records == [record()]
    assert len(problems) == 1
    assert tree(state) == before
    with pytest.raises(RuntimeError):
        reader.write(record())
    with pytest.raises(RuntimeError):
        reader.remove(record())
    assert tree(state) == before


def test_a_changed_record_leaves_no_old_links(store: Store, state: Path) -> None:
    store.write(record())
    store.write(record(nic(INTERFACE="tap5", INTERFACE_INDEX="3", INSTANCE="other")))
    assert tree(state) == ["devices/tap5", "instances/other/3", f"netns.{BOOT}", f"nics/{U1}.json"]
    assert not (state / "instances/web1.example").exists()


def test_links_belong_to_the_latest_nic(store: Store, state: Path) -> None:
    first, second = record(), record(nic(INTERFACE_UUID=U2), ifindex=9)
    store.write(first)
    store.write(second)
    assert store.by_device("tap0") == store.by_instance("web1.example", 0) == second
    store.remove(first)  # late: the links are the second's by now
    assert store.by_device("tap0") == store.by_instance("web1.example", 0) == second
    assert store.read(U1) is None
    store.remove(second)
    store.remove(second)
    assert tree(state) == [f"netns.{BOOT}"]
    assert not (state / "instances/web1.example").exists()


def test_a_link_that_leads_to_another_nic_is_not_believed(store: Store, state: Path) -> None:
    store.write(record())
    (state / "devices/tap9").symlink_to(f"../nics/{U1}.json")
    (state / "instances/web1.example/7").symlink_to(f"../../nics/{U1}.json")
    (state / "devices/tap8").symlink_to("/etc/passwd")
    (state / "devices/tap7").write_text("x")
    assert [store.by_device(tap) for tap in ("tap9", "tap8", "tap7", "../devices/tap0", "", "a\udcff")] == [None] * 6
    assert store.by_instance("web1.example", 7) is None
    assert store.by_instance("../instances/web1.example", 0) is None
    assert store.read("../../etc/passwd") is None


def test_move_aside(store: Store, state: Path) -> None:
    store.write(record()._replace(state=UP))
    moved = store.move_aside(record()._replace(state=UP))
    assert (moved.key, moved.state, moved.moved) == (f"{U1}.7", CLOSING, True)
    assert store.read(U1) is None
    assert store.read(f"{U1}.7") == store.by_device("tap0") == moved
    second = record(nic(INTERFACE="tap4"), ifindex=11)
    store.write(second)
    assert store.by_instance("web1.example", 0) == second
    assert {found.key for found in store.all()[0]} == {U1, f"{U1}.7"}
    store.remove(moved)
    assert store.by_device("tap4") == store.by_instance("web1.example", 0) == second
    assert store.move_aside(moved) == moved


def test_move_aside_where_a_kill_has_left_two_records_on_the_device(store: Store) -> None:
    """The device leads to what is moved still: its next NIC would find nothing, and be there beside it."""
    here = record()._replace(state=UP)
    store.write(here)
    store.write(here.closed(moved=True)._replace(state=REVERTING))  # killed where it came back, before this one was undone
    store.write(here)
    assert store.key_of("tap0") == U1
    moved = store.move_aside(here)
    assert store.by_device("tap0") == store.read(f"{U1}.7") == moved
    store.write(record(nic(INTERFACE="tap4"), ifindex=11))
    assert store.by_device("tap0") == moved


def test_move_aside_takes_no_device_back_from_another_nic(store: Store) -> None:
    here = record()._replace(state=UP)
    store.write(here)
    store.write(here.closed(moved=True)._replace(state=REVERTING))
    store.write(here)
    another = record(nic(INTERFACE_UUID=U2))
    store.write(another)
    store.move_aside(here)
    assert store.by_device("tap0") == another


@pytest.mark.parametrize("twice", [False, True], ids=["once", "killed there before"])
@pytest.mark.parametrize("device", ["tap0", "tap9"])
def test_move_aside_takes_no_link_from_who_has_it_by_now(store: Store, device: str, twice: bool) -> None:
    """Ganeti counts an instance's NICs anew: another one is the first by now, and has come up, maybe on the device."""
    here = record()._replace(state=UP)
    store.write(here)
    if twice:
        store.write(here.closed(moved=True)._replace(state=REVERTING))
        store.write(here)
    another = record(nic(INTERFACE_UUID=U2, INTERFACE=device), ifindex=19)
    store.write(another)
    moved = store.move_aside(here)
    name, index = another.nic.instance, another.nic.index
    assert index is not None and index == here.nic.index
    assert store.by_instance(name, index) == store.by_device(device) == another
    assert device == "tap0" or store.by_device("tap0") == moved
    store.write(record(nic(INTERFACE="tap4", INTERFACE_INDEX="1"), ifindex=11))
    assert store.by_instance(name, index) == store.by_device(device) == another


def test_remove_gives_no_link_of_another_nic_to_what_is_left_of_this_one(store: Store) -> None:
    here = record()._replace(state=UP)
    other = here.closed(moved=True)._replace(state=REVERTING)
    store.write(here)
    store.write(other)
    store.write(here)
    another = record(nic(INTERFACE_UUID=U2, INTERFACE="tap9"), ifindex=19)
    store.write(another)
    store.remove(here, other)
    assert store.by_device("tap0") == other
    assert another.nic.index is not None and store.by_instance(another.nic.instance, another.nic.index) == another


def test_what_does_not_parse_is_kept_in_quarantine_and_hurts_nobody_else(store: Store, state: Path) -> None:
    store.write(record(nic(INTERFACE_UUID=U2, INTERFACE="tap2", INTERFACE_INDEX="1")))
    broken = state / f"nics/{U1}.json"
    for content in (b"\xff{", b"second"):
        broken.write_bytes(content)
        assert store.read(U1) is None
    assert not broken.exists()
    kept = store.quarantined()
    assert len(kept) == 2
    assert all(name.startswith(f"{U1}.json.") for name in kept)
    assert {(state / "quarantine" / name).read_bytes() for name in kept} == {b"\xff{", b"second"}
    assert len(store.problems) == 2
    assert all(line.isprintable() and U1 in line for line in store.problems)
    records, problems = store.all()
    assert [found.uuid for found in records] == [U2]
    assert problems == []


def test_writing_over_what_does_not_parse_keeps_its_bytes(store: Store, state: Path) -> None:
    store.write(record())
    (state / f"nics/{U1}.json").write_bytes(b"precious")
    store.write(record())
    assert store.read(U1) == record()
    assert [(state / "quarantine" / name).read_bytes() for name in store.quarantined()] == [b"precious"]


def test_odd_files_among_the_records(store: Store, state: Path, tmp_path: Path) -> None:
    store.write(record())
    secret = tmp_path / "secret"
    secret.write_bytes(to_json(record(nic(INTERFACE_UUID=U2))))
    (state / f"nics/{U2}.json").symlink_to(secret)
    os.mkfifo(state / "nics/cccccccc-1111-4222-8333-444444444444.json")
    (state / "nics/dddddddd-1111-4222-8333-444444444444.json").mkdir()
    writable = state / "nics/eeeeeeee-1111-4222-8333-444444444444.json"
    writable.write_bytes(b"{}")
    writable.chmod(0o666)
    (state / "nics/ffffffff-1111-4222-8333-444444444444.json").write_bytes(to_json(record()))
    (state / "nics/notes.txt").write_text("x")
    (state / f"nics/{TEMPORARY}1-0").write_text("half a rec")
    records, problems = store.all()
    assert records == [record()]
    assert len(problems) == 6
    assert len(store.quarantined()) == 5
    assert (state / "nics/notes.txt").exists()


def test_newer_records_are_reported_and_left(store: Store, state: Path) -> None:
    store.write(record())
    file = state / f"nics/{U1}.json"
    file.write_bytes(newer := json.dumps({"schema": 99}).encode())
    records, problems = store.all()
    assert (records, len(problems)) == ([], 1)
    with pytest.raises(RecordTooNew, match="schema 99 is newer"):
        store.read(U1)
    with pytest.raises(RecordTooNew):
        store.write(record())
    with pytest.raises(RecordTooNew):
        store.by_device("tap0")
    assert file.read_bytes() == newer
    assert store.exists(U1)


def test_leftover_temporary_files(store: Store, state: Path) -> None:
    store.write(record())
    leftovers = [state / where / f"{TEMPORARY}99-0" for where in ("nics", "devices", "instances/web1.example", "")]
    for path in leftovers:
        path.write_text("x")
    now = leftovers[0].stat().st_mtime
    assert store.by_device(f"{TEMPORARY}99-0") is None
    assert store.clean_temporary(now + 10.0) == []
    assert sorted(store.clean_temporary(now + 61.0)) == sorted(str(path) for path in leftovers)
    assert not any(path.exists() for path in leftovers)
    assert store.all() == ([record()], [])


def test_a_temporary_file_of_the_same_process_id_is_not_in_the_way(store: Store, state: Path) -> None:
    store.write(record())
    for number in range(3):
        (state / f"nics/{TEMPORARY}{os.getpid()}-{number}").write_text("left by a namesake")
    store.write(record(ifindex=8))
    assert store.read(U1) == record(ifindex=8)


@pytest.mark.parametrize("where", ["", "nics", "devices", "instances"])
@pytest.mark.parametrize("how", ["symlink", "writable", "group", "file", "foreign"])
def test_a_state_directory_that_others_could_change_is_refused(paths: Paths, state: Path, tmp_path: Path, where: str, how: str) -> None:
    with Store(paths, 1, BOOT) as first:
        first.write(record())
    target = state / where if where else state
    if how == "symlink":
        target.rename(tmp_path / "elsewhere")
        target.symlink_to(tmp_path / "elsewhere")
    elif how == "file":
        target.rename(tmp_path / "elsewhere")
        target.write_text("")
    elif how == "foreign":
        if os.geteuid() != 0:
            pytest.fail("these tests need root")
        os.chown(target, 1234, 1234)
    else:
        target.chmod(0o757 if how == "writable" else 0o775)
    for readonly in (False, True):
        store = Store(paths, 1, BOOT, readonly)
        with pytest.raises(HostRefused, match=str(target)) as caught:
            store.by_device("tap0")
            store.by_instance("web1.example", 0)
            if not readonly:
                store.write(record())
        assert str(caught.value).isprintable()


@pytest.mark.parametrize("where", ["", "nics", "devices", "instances", "locks"])
@pytest.mark.parametrize("how", ["nothing", "moved", "removed", "replaced", "symlink", "writable", "foreign"])
def test_who_keeps_it_open_sees_that_a_folder_is_another(store: Store, state: Path, tmp_path: Path, where: str, how: str) -> None:
    """Or one that nobody may use: a process that stays asks before each piece of work."""
    store.write(record())
    store.folder("locks")
    target, elsewhere = state / where, tmp_path / "elsewhere"
    assert store.stands()
    if how in ("moved", "replaced", "symlink", "removed"):
        target.rename(elsewhere)
    if how == "removed":
        shutil.rmtree(elsewhere)
    elif how == "replaced":
        shutil.copytree(elsewhere, target, symlinks=True)
    elif how == "symlink":
        target.symlink_to(elsewhere)
    elif how == "writable":
        target.chmod(0o757)
    elif how == "foreign":
        os.chown(target, 1234, 1234)
    assert store.stands() == (how == "nothing")
    store.close()
    assert store.stands(), "nothing is open"


def test_no_space_is_a_refusal_and_leaves_the_record_as_it_was(store: Store, state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store.write(record())

    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(HostRefused, match="No space left"):
        store.write(record(ifindex=9))
    monkeypatch.undo()
    assert store.read(U1) == record()
    assert not [name for name in os.listdir(state / "nics") if name.startswith(TEMPORARY)]


def test_a_folder_that_was_removed_and_made_again_under_the_link(store: Store, state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the removal of one NIC of the instance, and the up of a third: the link is made in the one that is there."""
    link, left = Folder.link, [1]

    def late(self: Folder, name: str, target: str) -> None:
        if self.path.endswith("/instances/web1.example") and left and left.pop():
            (state / "instances/web1.example").rmdir()
            (state / "instances/web1.example").mkdir(mode=0o700)
        link(self, name, target)

    monkeypatch.setattr(Folder, "link", late)
    store.write(record())
    assert not left and store.by_instance("web1.example", 0) == record()


def test_of_all_records_there_is_nothing_to_remember(paths: Paths, store: Store) -> None:
    """Else the thousands of a large node would push out of an agent's memory those that are being worked on."""
    store.write(record())
    asked: list[bytes] = []

    def parse(data: bytes) -> Record:
        asked.append(data)
        return from_json(data)

    remembering = Store(paths, 1, BOOT, parse=parse)
    assert remembering.all() == ([record()], []) and list(remembering.each([])) == [record()] and remembering.newer() == {}
    assert remembering.read(U1, from_json) == record() and asked == []
    assert remembering.read(U1) == record() and asked == [to_json(record())]
    remembering.close()


def test_an_instance_that_is_called_like_a_temporary_file(tmp_path: Path) -> None:
    """Its folder of links is no file that a killed process has left."""
    store = Store(Paths.under(str(tmp_path)), 1, "boot")
    folder = tmp_path / "run/netcommon/instances/.netcommon-tmp-x"
    store.folder("nics")
    folder.mkdir(parents=True)
    os.chmod(folder.parent, 0o755)
    left = tmp_path / "run/netcommon/nics/.netcommon-tmp-1-0"
    left.write_text("")
    assert store.clean_temporary(time.time() + 1000) == [str(left)] and folder.is_dir()
    store.close()


def opened() -> list[str]:
    return sorted(os.readlink(f"/proc/self/fd/{name}") for name in os.listdir("/proc/self/fd") if os.path.islink(f"/proc/self/fd/{name}"))


@pytest.mark.parametrize("damage", ["full", "marker"])
def test_a_layout_that_cannot_be_begun_leaves_nothing_open(paths: Paths, state: Path, monkeypatch: pytest.MonkeyPatch, damage: str) -> None:
    """Check that a disk that is full, or a marker that cannot be read, costs a process that goes on no descriptor."""
    state.mkdir(parents=True, exist_ok=True)
    if damage == "marker":
        (state / f"netns.{BOOT}").symlink_to("elsewhere")
    else:
        monkeypatch.setattr("runtime.folder.os.write", lambda *_given: (_ for _ in ()).throw(OSError(errno.ENOSPC, "No space left")))
    before = opened()
    store = Store(paths, 1, BOOT)
    for work in (lambda: store.folder("nics"), lambda: store.read(U1)) if damage == "marker" else (lambda: store.folder("nics"),):
        with pytest.raises(HostRefused):
            work()
    store.close()
    assert opened() == before
