"""Install, install again, package upgrades, uninstall, each of them killed or failed anywhere, over whatever stands in the way: what was
there is there again.

A history is played on two systems that are the same: one of them with our installs, the other without, and with all that others do on
both. After the last uninstall they are the same again: every byte, mode, owner, link, time and name. On a fake root of its own, and on
the machine's own root below an overlay, with its own dpkg-divert. A full run plays 10,000 and 300 histories.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from glob import escape as glob_escape
from glob import glob
from pathlib import Path
from random import Random

import pytest

from netcommon.install import Action, install
from netcommon.install.changes import run_command
from netcommon.install.manifest import FILE
from netcommon.install.rooted import placed
from netcommon.install.targets import HOOKS_DIR, NETWORKD, OPERATIONS, PKGLIBDIR, VERIFY, VIF_GANETI
from netcommon.scripts.door_files import MARKER
from runtime.errors import NetcommonError
from tests.support import syscalls
from tests.support.sample import drawn
from tests.support.systems import ENDINGS, PROGRAMS, Interruption, Killed, System, immutable

HISTORIES, ON_OVERLAY = drawn(400, 1000, 10_000), drawn(8, 30, 300)

#: The paths of each kind of install, and the folders that they are in.
PATHS = {
    "qemu": ("/etc/qemu-ifup", "/etc/qemu-ifdown"),
    "xen": (VIF_GANETI,),
    "ganeti": (
        *(f"{PKGLIBDIR}/{name}" for name in ("kvm-ifup", "kvm-ifdown", "kvm-nic-setup")),
        VERIFY,
        *(f"{HOOKS_DIR}/instance-{word}-post.d/netcommon" for word in OPERATIONS),
    ),
}
FOLDERS = {
    "qemu": (),
    "xen": ("/etc/xen", "/etc/xen/scripts"),
    "ganeti": (
        *("/usr/lib", PKGLIBDIR, "/etc/ganeti", HOOKS_DIR),
        *(f"{HOOKS_DIR}/instance-{word}-post.d" for word in OPERATIONS[:2]),
    ),
}
NETWORKD_FOLDERS = ("/etc/systemd", "/etc/systemd/networkd.conf.d")
WANTS = "/etc/systemd/system/multi-user.target.wants"

#: Of the machine's own root, what is compared.
TOPS = ("/etc/ganeti", "/etc/systemd", "/etc/xen", PKGLIBDIR, PROGRAMS, "/srv", "/var/lib/netcommon")

Picture = dict[str, tuple[object, ...]]
Run = Callable[[Sequence[str]], int]


class History:
    """One history, on ``system`` with our installs and on ``twin`` without."""

    def __init__(self, seed: int, system: System, twin: System, hooks: str, run: Run, tops: Sequence[str]) -> None:
        self.random = Random(seed)
        self.system, self.twin, self.hooks, self.run, self.tops = system, twin, hooks, run, tops
        self.kinds = self.random.choice((("qemu",), ("qemu",), ("xen", "qemu"), ("ganeti",), ("ganeti",), ("ganeti", "qemu")))
        self.networkd = self.random.random() < 0.3
        self.paths = [path for kind in self.kinds for path in PATHS[kind]] + [NETWORKD] * self.networkd
        folders = [folder for kind in self.kinds for folder in FOLDERS[kind]] + list(NETWORKD_FOLDERS) * self.networkd
        for one in (system, twin):
            if self.networkd:
                os.makedirs(one.root + WANTS, exist_ok=True)
                if not os.path.lexists(f"{one.root}{WANTS}/systemd-networkd.service"):
                    one.link(f"{WANTS}/systemd-networkd.service", "/lib/systemd/system/systemd-networkd.service")
            if seed % 3 == 0:
                os.makedirs(one.root + os.path.dirname(FILE), exist_ok=True)
            one.furnish(self.paths, folders, PATHS["ganeti"][0])
        self.kept: set[str] = set()
        self.said: list[str] = []

    def play(self) -> None:
        for _ in range(self.random.randrange(1, 7)):
            match self.random.randrange(8):
                case 0 | 1 | 2 | 3:
                    self.ours(self.random.choice(self.kinds), False)
                case 4 | 5:
                    self.ours(self.random.choice(self.kinds), True)
                case _:
                    self.upgrade()
        for one in (self.system, self.twin):
            one.thaw()
        for kind in self.random.sample(self.kinds, len(self.kinds)):
            self._call(kind, True, None)
        self.same()

    def ours(self, kind: str, uninstall: bool) -> None:
        """One call of our install: whole, or killed or failed on its way; or with something in its way that nobody can change."""
        chance = self.random.random()
        if chance < 0.5:
            after = self.random.randrange(self.random.choice((6, 20, 60, 150)))
            errors = (None, None, None, errno.EROFS, errno.EPERM, errno.ENOSPC, errno.EIO)
            self._call(kind, uninstall, Interruption(after, self.random.choice(errors)))
        elif chance < 0.6 and self.system.flags:
            path = self.random.choice(self.paths) + self.random.choice(("", ENDINGS[0]))
            where = self.system.root + path
            if (
                self.system.inside(path)
                and os.path.isfile(where)
                and not os.path.islink(where)
                and where not in self.system.frozen
                and os.stat(where).st_nlink == 1
            ):
                try:
                    immutable(where, True)
                except OSError:
                    return  # a file of the machine's own, below the overlay
                self._call(kind, uninstall, None)
                immutable(where, False)
        elif self._call(kind, uninstall, None) and not uninstall:
            self.installed(kind)

    def _call(self, kind: str, uninstall: bool, interruption: Interruption | None) -> bool:
        """Call our install; tell if it came to its end."""
        run = interruption.running(self.run) if interruption else self.run
        word = "uninstall" if uninstall else "install"
        if uninstall:
            would = install(kind, self.system.root, dry_run=True, uninstall=True, hooks=self.hooks, run=run)
            self.kept |= {found for action in would if (found := _kept(action))}
        try:
            with interruption.active() if interruption else nullcontext():
                install(kind, self.system.root, uninstall=uninstall, hooks=self.hooks, run=run)
        except Killed:
            self.said.append(f"{word} {kind}: killed")
            return False
        except NetcommonError as error:
            self.said.append(f"{word} {kind}: {error}")
            return False
        self.said.append(f"{word} {kind}: done")
        return True

    def installed(self, kind: str) -> None:
        """Each door is there, another install has nothing to do, and all else is as it would be without us."""
        places = [placed(self.system.root, path) for path in PATHS[kind]]
        for place in places:
            with open(self.system.root + place, encoding="ascii") as stream:
                assert MARKER in stream.read(), (place, self.said)
        if self.random.random() < 0.7:
            return
        before = self.system.picture(self.tops)
        assert [action for action in install(kind, self.system.root, hooks=self.hooks, run=self.run) if action.what != "note"] == []
        assert self.system.picture(self.tops) == before
        known = {place + ending for path in self.paths for place in self._place(path) for ending in ("", *ENDINGS)}
        pictures = (before, self.twin.picture(self.tops))
        ours, theirs = ({path: what[:6] for path, what in one.items() if path not in known} for one in pictures)
        folders = {str(folder) for name in known for folder in Path(name).parents}
        extra = {path for path in ours if path not in theirs and path not in folders and not path.startswith("/var/lib/netcommon")}
        assert not extra, (extra, self.said)
        assert {path: what for path, what in ours.items() if path in theirs} == theirs, self.said

    def _place(self, path: str) -> list[str]:
        """Give where a door stands: at the path, and in the folders of the versions of Ganeti that the machine has."""
        root = self.system.root
        versions = [found.removeprefix(root) for found in glob(f"{glob_escape(root)}{PKGLIBDIR}/*{path}")]
        try:
            return [placed(root, path), *versions]
        except NetcommonError:
            return versions

    def upgrade(self) -> None:
        """A package brings a new version of one of the files, where nothing hinders it without us. Of files in /etc dpkg asks."""
        paths = [path for path in self.paths if not path.startswith("/etc/") and not os.path.islink(os.path.dirname(self.twin.root + path))]
        path, seed = self.random.choice(paths or [""]), self.random.getrandbits(40)
        if os.path.isdir(os.path.dirname(self.twin.root + path)) and not os.path.isdir(self.twin.root + path):
            try:
                self.twin.upgrade(path, seed)
            except PermissionError:
                return
            self.system.upgrade(path, seed)
            self.said.append(f"package upgrade: {path}")

    def same(self) -> None:
        """All is as on the system without us, but for what we have told that we keep."""
        now, wanted = self._without_kept(self.system.picture(self.tops)), self._without_kept(self.twin.picture(self.tops))
        differ = {path: (now.get(path), wanted.get(path)) for path in {*now, *wanted} if now.get(path) != wanted.get(path)}
        assert not differ, f"{differ}\n{self.said}"
        left = {path: saved for path, saved in self.system.diversions().items() if path in self.paths}
        assert not left, f"{left}\n{self.said}"

    def _without_kept(self, picture: Picture) -> Picture:
        """Leaves out saved files that stay, which we have said, also as other names of files."""
        return {
            path: (*what[:-1], tuple(name for name in what[-1] if name not in self.kept)) if isinstance(what[-1], tuple) else what
            for path, what in picture.items()
            if path not in self.kept
        }


def _kept(action: Action) -> str:
    """The saved file that an action leaves where it is."""
    return action.text.rpartition(" stays in ")[2] if action.what == "keep" and " stays in " in action.text else ""


@pytest.fixture
def hooks(tmp_path: Path) -> str:
    """A folder of our own doors."""
    folder = tmp_path / "opt/hooks"
    folder.mkdir(parents=True)
    for door in ("kvm-ifup", "kvm-ifdown", "kvm-nic-setup", "ganeti-hook", "vif-ganeti"):
        (folder / door).write_text(f'#!/bin/sh\necho "{door} $*"\n')
        (folder / door).chmod(0o755)
    return str(folder)


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[str]:
    """A file system in memory, gone with the test."""
    folder = tmp_path / "memory"
    folder.mkdir()
    syscalls.mount("tmpfs", str(folder), "tmpfs", options="mode=0755")
    yield str(folder)
    syscalls.umount(str(folder))


def has_flags(folder: str) -> bool:
    """Tell if files in memory can be made immutable (Linux 6.6 and later)."""
    path = f"{folder}/flags"
    with open(path, "w", encoding="ascii"):
        try:
            immutable(path, True)
        except OSError:
            return False
    immutable(path, False)
    return True


def play_on_memory(seed: int, memory: str, hooks: str, flags: bool) -> History:
    """Plays one history on a root folder of its own."""
    roots = [f"{memory}/{name}" for name in ("with", "without")]
    system, twin = (System(root, seed, flags) for root in roots)
    history = History(seed, system, twin, hooks, system.run, ("",))
    history.play()
    for root in roots:
        shutil.rmtree(root)
    return history


def play_on_overlay(seed: int, memory: str, hooks: str, flags: bool) -> History:
    """Plays one history on the machine's own root: what is written stays in memory."""
    roots = []
    for name in ("with", "without"):
        parts = {part: f"{memory}/{name}/{part}" for part in ("upper", "work", "root")}
        for part in parts.values():
            os.makedirs(part)
        roots.append(parts["root"])
        syscalls.mount("overlay", roots[-1], "overlay", options=f"lowerdir=/,upperdir={parts['upper']},workdir={parts['work']}")
        for path in PATHS["qemu"] if seed % 2 else ():  # else it is the machine's own
            Path(roots[-1] + path).unlink(missing_ok=True)
    history = History(seed, *(System(root, seed, flags) for root in roots), hooks, run_command, TOPS)
    history.play()
    for root in roots:
        syscalls.umount(root)
        shutil.rmtree(os.path.dirname(root))
    return history


@pytest.mark.parametrize(("play", "count"), [(play_on_memory, HISTORIES), (play_on_overlay, ON_OVERLAY)])
def test_what_was_there_is_there_again(memory: str, hooks: str, play: Callable[..., History], count: int) -> None:
    flags = has_flags(memory)
    for seed in range(count):
        play(seed, memory, hooks, flags)
