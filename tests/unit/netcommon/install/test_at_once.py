"""Several installs, uninstalls and hooks at once: Ganeti's own scripts are there again at the end, and what is taken back stays so."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import nullcontext
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest

from netcommon import install as module
from netcommon.doctor import findings, kernel
from netcommon.doors.ganeti import stand
from netcommon.host.simulated.host import MemoryHost
from netcommon.install import changes, exclusive, install, manifest, versions
from netcommon.install.manifest import SAVED
from netcommon.log import recording
from runtime.errors import HostRefused, NetcommonError, TryAgain
from runtime.paths import Paths
from tests.support.sample import FULL
from tests.support.systems import Interruption, Killed

ROUNDS, STRIDE = (120, 1) if FULL else (6, 4)

#: What Ganeti has: two versions' scripts, and links that lead to the first.
SCRIPTS = [f"/usr/lib/ganeti/{version}/usr/lib/ganeti/{name}" for version in ("3.0", "3.1") for name in ("kvm-ifup", "kvm-ifdown")]
LINKS = {
    "/etc/ganeti/lib": "/usr/lib/ganeti/3.0",
    "/usr/lib/ganeti/default": "/etc/ganeti/lib",
    "/usr/lib/ganeti/kvm-ifup": "default/usr/lib/ganeti/kvm-ifup",
    "/usr/lib/ganeti/kvm-ifdown": "default/usr/lib/ganeti/kvm-ifdown",
}

Picture = dict[str, str]
SPAWN = get_context("fork")


class System:
    """A node's root folder with two versions of Ganeti, and our doors outside of it."""

    def __init__(self, folder: Path) -> None:
        self.root, self.hooks = folder / "root", folder / "opt/hooks"
        self.paths = Paths.under(str(self.root))
        self.log, self.lines = recording()
        self.hooks.mkdir(parents=True)
        (folder / "opt/netcommon").mkdir()
        for name in ("kvm-ifup", "kvm-ifdown", "kvm-nic-setup", "ganeti-hook"):
            self.write(self.hooks / name, f"#!/bin/sh\necho {name}\n")
        for path in SCRIPTS:
            self.write(self.at(path), f"#!/bin/sh\n# Ganeti's own {path}\n")
        for path, target in LINKS.items():
            self.at(path).parent.mkdir(parents=True, exist_ok=True)
            self.at(path).symlink_to(target)
        self.at("/var/lib").mkdir(parents=True)

    def write(self, path: Path, text: str) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)

    def at(self, path: str) -> Path:
        return self.root / path.lstrip("/")

    def install(self, uninstall: bool = False, run: changes.Run = lambda argv: 0, keeping: bool = False) -> list[changes.Action]:
        return install("ganeti", str(self.root), False, uninstall, str(self.hooks), run, keeping)

    def missing(self) -> list[str]:
        return versions.missing(str(self.root), str(self.hooks))

    def stands(self) -> bool:
        """Ganeti's hook, as the agent starts it too."""
        return stand(self.paths, self.log, str(self.hooks))

    def picture(self) -> Picture:
        """Everything below the root: where links lead, and what is in files."""
        found = {}
        for path in self.root.rglob("*"):
            what = f"-> {path.readlink()}" if path.is_symlink() else path.read_text() if path.is_file() else "folder"
            found[str(path.relative_to(self.root))] = what
        return found


@pytest.fixture
def system(tmp_path: Path) -> System:
    return System(tmp_path)


class Elsewhere(Interruption):
    """At one of a run's changes of the file system, or at each one, somebody else does something."""

    def __init__(self, after: int, does: Callable[[], Any], each: bool = False) -> None:
        super().__init__(after, None)
        self.does, self.each, self.inside = does, each, False

    def strike(self) -> None:
        self.left -= 1
        if self.inside or (self.left >= 0 if self.each else self.left != -1):
            return
        self.inside = self.struck = True
        try:
            self.does()
        finally:
            self.inside = False


def at_once(system: System, *calls: Callable[[], object]) -> list[int]:
    """Start each of the calls in a process of its own, all at the same moment; return their exit statuses."""
    barrier = SPAWN.Barrier(len(calls))

    def one(call: Callable[[], object]) -> None:
        barrier.wait()
        call()

    processes = [SPAWN.Process(target=one, args=(call,)) for call in calls]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    return [process.exitcode or 0 for process in processes]


def test_two_installs_at_once(system: System) -> None:
    before = system.picture()
    for number in range(ROUNDS):
        assert at_once(system, system.install, system.install) == [0, 0], number
        assert system.missing() == []
        system.install(uninstall=True)
        assert system.picture() == before, number


def test_the_agent_and_a_hook_at_once(system: System) -> None:
    """Both find that a `gnt-cluster upgrade` has led Ganeti to scripts without doors."""
    system.install()
    for number in range(ROUNDS):
        script = f"/usr/lib/ganeti/4.{number}/usr/lib/ganeti/kvm-ifup"
        system.write(system.at(script), "#!/bin/sh\n# Ganeti's own\n")
        system.at("/etc/ganeti/lib").unlink()
        system.at("/etc/ganeti/lib").symlink_to(f"/usr/lib/ganeti/4.{number}")
        system.at("/usr/lib/ganeti/kvm-ifup").unlink()
        system.at("/usr/lib/ganeti/kvm-ifup").symlink_to(LINKS["/usr/lib/ganeti/kvm-ifup"])
        assert at_once(system, system.stands, system.stands) == [0, 0]
        assert system.missing() == []
        assert system.at(script + SAVED).read_text() == "#!/bin/sh\n# Ganeti's own\n", number


def test_an_uninstall_and_hooks_at_once(system: System) -> None:
    before = system.picture()
    for number in range(ROUNDS):
        system.install()
        assert at_once(system, lambda: system.install(uninstall=True), *(system.stands for _ in range(3))) == [0, 0, 0, 0]
        assert system.picture() == before, number


def test_one_at_a_time(system: System, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exclusive, "WAIT", 0.0)
    before, refused = system.picture(), []

    def meanwhile(_argv: object) -> int:
        for uninstall in (False, True):
            there = system.picture()
            with pytest.raises(TryAgain, match="another netcommon install is at work") as caught:
                system.install(uninstall)
            assert caught.value.status == 75 and system.picture() == there
            refused.append(uninstall)
        assert install("ganeti", str(system.root), True, False, str(system.hooks))  # a dry run waits for nobody
        return 0

    system.install(run=meanwhile)
    assert refused[:2] == [False, True]
    system.install(uninstall=True)
    assert system.picture() == before


def test_the_lock_of_a_killed_run_is_the_next_ones(system: System, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exclusive, "WAIT", 0.0)
    before = system.picture()
    program = "import sys; from netcommon.install.exclusive import alone\nwith alone(sys.argv[1]): print(flush=True); sys.stdin.read()"
    argv = [sys.executable, "-c", program, str(system.root)]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout and holder.stdout.readline() == b"\n"
        with pytest.raises(TryAgain):
            system.install()
        holder.send_signal(signal.SIGKILL)
    assert Path(exclusive.lock(str(system.root))).stat().st_mode & 0o777 == 0o600
    system.install()
    system.install(uninstall=True)
    assert system.picture() == before


@pytest.mark.parametrize("what", ["file", "link", "folder"])
def test_what_is_no_lock_of_ours_is_left_alone(system: System, what: str, tmp_path: Path) -> None:
    path, other = Path(exclusive.lock(str(system.root))), tmp_path / "other"
    other.write_text("somebody's\n")
    match what:
        case "file":
            path.write_text("somebody's\n")
        case "link":
            path.symlink_to(other)
        case _:
            path.mkdir()
    before = system.picture()
    with pytest.raises(HostRefused, match="netcommon-lock"):
        system.install()
    assert system.picture() == before and other.read_text() == "somebody's\n"


def test_without_the_lock_no_door_is_saved_over_anything(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As if the other were of a version that knows no lock: it does all its work between two steps of ours, whichever they are."""
    monkeypatch.setattr(module, "alone", lambda root: nullcontext())
    struck, number = True, 0
    while struck:
        system = System(tmp_path / str(number))
        before = system.picture()
        other = Elsewhere(number, system.install)
        try:
            with other.active():
                system.install()
        except NetcommonError as error:
            assert "lost" not in str(error)
        for path in SCRIPTS:
            kept = system.at(path + SAVED)
            assert (kept if kept.exists() else system.at(path)).read_text() == before[path.lstrip("/")], (number, path)
        system.install()
        system.install(uninstall=True)
        after = system.picture()
        assert {path: after.get(path) for path in before} == before, number
        struck, number = other.struck, number + STRIDE
    assert number > 20


def test_a_script_that_came_meanwhile_is_not_written_over(system: System, monkeypatch: pytest.MonkeyPatch) -> None:
    """A package brings a new version after ours has saved the former, and before it is replaced."""
    original, path = manifest.flush_folder, system.at(SCRIPTS[0])

    def upgraded(folder: str) -> None:
        original(folder)
        if folder == str(path.parent) and path.with_name(path.name + SAVED).exists():
            monkeypatch.setattr(changes, "flush_folder", original)
            system.write(path.with_name("new"), "#!/bin/sh\n# of the new version\n")
            path.with_name("new").rename(path)

    monkeypatch.setattr(changes, "flush_folder", upgraded)
    with pytest.raises(TryAgain, match="kvm-ifup is being changed by somebody else"):
        system.install()
    system.install()
    system.install(uninstall=True)
    assert path.read_text() == "#!/bin/sh\n# of the new version\n"


def test_nobody_puts_back_what_is_being_taken_back(system: System, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever looks at any moment of an uninstall, and whoever found doors missing and comes to his turn after it."""
    monkeypatch.setattr(exclusive, "WAIT", 0.0)
    before = system.picture()
    system.install()
    seen = []

    def look() -> None:
        seen.append(system.missing())
        assert system.stands()

    other = Elsewhere(0, look, each=True)
    with other.active():
        system.install(uninstall=True)
    assert len(seen) > 20 and not any(seen) and system.lines == []
    assert system.install(keeping=True) == []
    assert system.picture() == before


def test_doctor_says_that_an_uninstall_was_not_finished(system: System) -> None:
    system.install()
    killed = Interruption(8, None)
    with pytest.raises(Killed), killed.active():
        system.install(uninstall=True)
    found = findings(system.paths, MemoryHost(), str(system.root), str(system.hooks), lambda: dict.fromkeys(kernel.FEATURES, ""))
    said = [one for one in found if one.topic == "doors" and "install" in one.remedy]
    assert {one.remedy for one in said} == {"netcommon install --ganeti --uninstall"}, said
    assert "was ended before its end" in said[0].text


def test_a_killed_uninstall_is_finished_by_the_next(tmp_path: Path) -> None:
    struck, number = True, 0
    while struck:
        system = System(tmp_path / str(number))
        before = system.picture()
        system.install()
        there = system.picture()
        killed = Interruption(number, None)
        try:
            with killed.active():
                system.install(uninstall=True)
        except Killed:
            pass
        struck, number = killed.struck, number + 1
        begun = [path for path in SCRIPTS if not system.at(path + SAVED).exists()]
        after = system.picture()
        assert system.missing() == [] and system.stands() and system.picture() == after, number
        assert not begun or not manifest.read(str(system.root)).wanted("ganeti")
        if number % 3 == 0 and struck:
            system.install()  # somebody wants them after all
            assert there.keys() <= system.picture().keys()
            assert manifest.read(str(system.root)).wanted("ganeti") and system.missing() == []
        system.install(uninstall=True)
        assert system.picture() == before, number
    assert number > 20
