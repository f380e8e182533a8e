"""An install whose record was lost: doors are found by their marker, put on record again, and taken out."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from netcommon.install import manifest, unrecorded, wrappers
from netcommon.install.manifest import FILE, SAVED
from netcommon.install.targets import NETWORKD, wrapper
from netcommon.scripts.door_files import MARKER
from tests.support.installed import REAL, UP, System

#: The doors of this tree.
HOOKS = str(Path(__file__).resolve().parents[4] / "hooks")

Picture = dict[str, tuple[object, ...]]


def lose(system: System) -> None:
    """Remove the record with its folder, as somebody who tidies up does."""
    shutil.rmtree(system.at(FILE).parent)


def without_folders(system: System) -> Picture:
    """Return what there is but for folders: nobody knows any more who has made those."""
    return {path: what for path, what in system.picture().items() if not os.path.isdir(system.at(path)) or system.at(path).is_symlink()}


def plain(system: System) -> None:
    """A node of Ganeti, Xen and QEMU, with systemd-networkd, and scripts where our doors go."""
    system.ganeti()
    system.put("/etc/xen/scripts/vif-ganeti.real")
    system.at("/etc/xen/scripts/vif-ganeti").symlink_to("vif-ganeti.real")
    system.put("/etc/qemu-ifup", "#!/bin/sh\n# Debian's\n")
    system.put("/run/systemd/netif/state", "")


@pytest.mark.parametrize("kinds", [("ganeti",), ("xen",), ("qemu",), ("ganeti", "xen", "qemu"), ("qemu", "ganeti")])
def test_an_uninstall_puts_everything_back(system: System, kinds: tuple[str, ...]) -> None:
    plain(system)
    before = without_folders(system)
    for kind in kinds:
        system.install(kind)
    lose(system)
    for kind in kinds:
        said = system.install(kind, dry_run=True, uninstall=True)
        assert not os.path.exists(system.at(FILE)) or kind != kinds[0]
        done = system.install(kind, uninstall=True)
        assert [(action.what, action.path) for action in done] == [(action.what, action.path) for action in said]
    assert without_folders(system) == before
    assert system.install(kinds[0], uninstall=True) == []


def test_what_serves_another_kind_too_stays(system: System) -> None:
    """systemd-networkd's settings: also for a kind whose doors are on no record."""
    plain(system)
    system.install("ganeti")
    system.install("xen")
    lose(system)
    system.install("ganeti", uninstall=True)
    assert system.at(NETWORKD).exists()
    assert list(manifest.read(str(system.root))) == ["xen"]
    system.install("xen", uninstall=True)
    assert not system.at(NETWORKD).exists()


def test_a_diversion_is_taken_back(system: System) -> None:
    """And is on record again after the next install: a later uninstall has it."""
    system.ganeti()
    system.put("/var/lib/dpkg/info/ganeti.list", f"{REAL}\n", 0o644)
    system.install("ganeti")
    (added,) = system.commands[-1:]
    lose(system)
    system.install("ganeti")
    (change,) = [change for change in manifest.read(str(system.root))["ganeti"] if change.path == REAL]
    assert (change.diverted, change.saved, added[-2:]) == (True, REAL + SAVED, ["--add", REAL])
    lose(system)
    system.install("ganeti", uninstall=True)
    assert system.commands[-1][-2:] == ["--remove", REAL]
    assert "Ganeti's own" in system.at(REAL).read_text()


def test_a_door_that_is_left_where_a_version_is_gone(system: System) -> None:
    system.ganeti()
    system.install("ganeti")
    lose(system)
    os.unlink(system.at(REAL + SAVED))
    system.install("ganeti", uninstall=True)
    assert not os.path.lexists(system.at(REAL))


@pytest.mark.parametrize(
    "change",
    [
        lambda system: system.put(UP, "another's\n"),
        lambda system: system.put("/etc/ganeti/hooks/instance-stop-post.d/netcommon", "another's\n"),
        lambda system: system.put("/etc/ganeti/hooks/instance-stop-post.d/10-site", "another's\n"),
    ],
)
def test_what_bears_no_marker_stays(system: System, change: Callable[[System], object]) -> None:
    """Also beside a name of ours, or under it."""
    system.ganeti()
    system.install("ganeti")
    lose(system)
    system.at(UP).unlink()
    change(system)
    theirs = {path: what for path, what in system.picture().items() if b"another's" in _content(system, path)}
    system.install("ganeti", uninstall=True)
    assert theirs
    assert theirs.items() <= system.picture().items()
    assert unrecorded.lost(str(system.root), manifest.read(str(system.root))) == {}


def _content(system: System, path: str) -> bytes:
    where = system.root / path
    return where.read_bytes() if where.is_file() else b""


def test_nothing_is_found_where_nothing_is_ours(system: System) -> None:
    plain(system)
    before = system.picture()
    assert unrecorded.lost(str(system.root), manifest.Installs()) == {}
    assert system.install("ganeti", uninstall=True) == []
    assert system.picture() == before


@pytest.mark.parametrize("name", ["/etc/ganeti/kvm-vif-bridge", "/etc/ganeti/kvm-ifup-custom"])
def test_a_link_that_somebody_has_made_is_named(system: System, name: str) -> None:
    """It is not ours to remove, and leads nowhere once our package is gone."""
    system.ganeti()
    system.at(name).symlink_to(system.hooks / "kvm-ifup")
    system.install("ganeti")
    assert [action.path for action in system.install("ganeti", uninstall=True) if action.what == "note"] == [name]
    assert system.at(name).is_symlink()


#: What an administrator may have in /etc/qemu-ifup, made of a door of ours.
THEIRS = {
    "a copy with lines of their own": lambda door: door + "ip link set $1 master br7\n",
    "a copy of another kind's door": lambda door: door,
    "the marker in a here-document": lambda door: f"#!/bin/sh\ncat <<X\n{MARKER}\nX\nip link set $1 master br7\n",
}


@pytest.mark.parametrize("how", [*THEIRS, "a hard link"])
@pytest.mark.parametrize("lost", [False, True])
def test_an_administrators_script_is_not_taken_for_a_door(system: System, how: str, lost: bool) -> None:
    """With the record intact, and where it is lost: it is not put on record, and no uninstall of any kind removes it."""
    system.ganeti()
    system.install("ganeti")
    script = system.at("/etc/qemu-ifup")
    if how in THEIRS:
        system.put("/etc/qemu-ifup", THEIRS[how](system.at(REAL).read_text()))
    else:
        os.link(system.at(REAL), script)
    before = script.read_bytes()
    if lost:
        lose(system)
    system.install("ganeti")
    assert list(manifest.read(str(system.root))) == ["ganeti"]
    for kind in ("qemu", "xen", "ganeti"):
        system.install(kind, uninstall=True)
        assert script.read_bytes() == before


@pytest.mark.parametrize("kind", ["ganeti", "qemu"])
@pytest.mark.parametrize("lost", [False, True])
def test_a_door_that_somebody_has_changed_is_nobodys_to_remove(system: System, kind: str, lost: bool) -> None:
    """Nor to write over."""
    system.ganeti()
    system.install(kind)
    door = system.at(REAL if kind == "ganeti" else "/etc/qemu-ifup")
    with door.open("a") as stream:
        stream.write("# the site's own\n")
    before = door.read_bytes()
    if lost:
        lose(system)
    system.install(kind)
    assert door.read_bytes() == before
    system.install(kind, uninstall=True)
    assert door.read_bytes() == before


def test_with_a_record_nothing_is_looked_for(system: System) -> None:
    """Also not a door of another kind: the record says what we have made."""
    plain(system)
    system.install("xen")
    lose(system)
    installs = manifest.Installs({"ganeti": (manifest.Change(UP),)})
    assert unrecorded.lost(str(system.root), installs) == {}
    assert list(unrecorded.lost(str(system.root), manifest.Installs())) == ["xen"]


@pytest.mark.parametrize("door", ["kvm-ifup", "kvm-nic-setup", "ganeti-hook", "ganeti-dns-hook", "vif-ganeti"])
def test_the_doors_of_this_version_are_known(door: str) -> None:
    """A changed launcher needs its line in LAUNCHERS: copies of it are found by that."""
    text = wrapper(HOOKS, door)
    found = wrappers.read(text.encode())
    assert found and (found.door, found.saved) == (f"{HOOKS}/{door}", "")
    for other in (text + "\n", text[:-1], text.replace("exec", "echo", 1), text.replace(MARKER, MARKER + " "), "#\n" + text):
        assert wrappers.read(other.encode()) is None
