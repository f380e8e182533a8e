"""Two versions of Ganeti beside each other, as Debian has them: doors in each, whichever of them a link leads to, and who notices."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from netagent import ganeti_doors
from netagent.observe.alarms import Alarms
from netagent.observe.metrics import Metrics
from netagent.sources.inotify import FileEvents
from netcommon.doctor import findings, kernel
from netcommon.doors.ganeti import stand
from netcommon.host.simulated.host import MemoryHost
from netcommon.install import install, versions
from netcommon.install.manifest import SAVED
from netcommon.log import recording
from netcommon.process.run import Outcome
from netcommon.scripts.door_files import is_door
from runtime.paths import Paths

CALLED = "/usr/lib/ganeti/kvm-ifup"


class System:
    """A system's root folder with Debian's packages ganeti, ganeti-3.0 and ganeti-3.1, and our doors outside of it."""

    def __init__(self, folder: Path) -> None:
        self.root, self.hooks = folder / "root", folder / "hooks"
        self.paths = Paths.under(str(self.root))
        self.log, self.lines = recording()
        self.hooks.mkdir()
        for name in ("kvm-ifup", "kvm-ifdown", "kvm-nic-setup", "ganeti-hook"):
            (self.hooks / name).write_text(f"#!/bin/sh\necho {name}\n")
            (self.hooks / name).chmod(0o755)
        for version in ("3.0", "3.1"):
            self.add(version)
        for path, target in (
            ("/etc/ganeti/lib", "/usr/lib/ganeti/3.0"),
            ("/usr/lib/ganeti/default", "/etc/ganeti/lib"),
        ):
            self.at(path).parent.mkdir(parents=True, exist_ok=True)
            self.at(path).symlink_to(target)
        self.link()

    def link(self) -> None:
        self.at(CALLED).unlink(missing_ok=True)
        self.at(CALLED).symlink_to("default/usr/lib/ganeti/kvm-ifup")

    def at(self, path: str) -> Path:
        return self.root / path.lstrip("/")

    def add(self, version: str, names: Sequence[str] = ("kvm-ifup",)) -> None:
        """Install the package of a version."""
        for name in names:
            script = self.at(f"/usr/lib/ganeti/{version}/usr/lib/ganeti/{name}")
            script.parent.mkdir(parents=True, exist_ok=True)
            script.write_text(f"#!/bin/bash\n# {name} of {version}\n")
            script.chmod(0o755)

    def upgrade(self, version: str) -> None:
        """Move the link as `gnt-cluster upgrade --to VERSION` does: ln -s -f -T."""
        new = self.at("/etc/ganeti/lib.new")
        new.symlink_to(f"/usr/lib/ganeti/{version}")
        new.rename(self.at("/etc/ganeti/lib"))

    def install(self, uninstall: bool = False) -> None:
        install("ganeti", str(self.root), False, uninstall, str(self.hooks), lambda argv: 0)

    def called(self) -> Path:
        """Give what Ganeti calls."""
        return self.at(versions.resolved(str(self.root), CALLED))

    @property
    def ours(self) -> bool:
        return is_door(str(self.called()), str(self.hooks))

    def stands(self) -> bool:
        return stand(self.paths, self.log, str(self.hooks))

    def doors(self, topic: str = "doors") -> list[tuple[str, str]]:
        """Give what doctor finds to mend."""
        found = findings(self.paths, MemoryHost(), str(self.root), str(self.hooks), lambda: dict.fromkeys(kernel.FEATURES, ""))
        return [(one.level, one.text) for one in found if one.topic == topic and one.level != "ok"]


@pytest.fixture
def system(tmp_path: Path) -> System:
    return System(tmp_path)


def test_doors_stand_in_each_version(system: System) -> None:
    scripts = [system.at(f"/usr/lib/ganeti/{version}/usr/lib/ganeti/kvm-ifup") for version in ("3.0", "3.1")]
    before = [script.read_text() for script in scripts]
    system.install()
    for version in ("3.1", "3.0", "3.1"):
        system.upgrade(version)
        assert system.ours and versions.missing(str(system.root), str(system.hooks)) == [] == system.doors()
    system.install()
    system.install(uninstall=True)
    assert [script.read_text() for script in scripts] == before
    assert not [path for path in system.root.rglob("*") if path.name.endswith(SAVED)]


def test_what_a_later_version_calls_too(system: System) -> None:
    """3.2 brings a kvm-nic-setup of its own."""
    system.add("3.2", ("kvm-ifup", "kvm-nic-setup"))
    system.install()
    for name in ("kvm-ifup", "kvm-nic-setup"):
        path = f"/usr/lib/ganeti/3.2/usr/lib/ganeti/{name}"
        assert is_door(str(system.at(path)), str(system.hooks))
    assert not system.at("/usr/lib/ganeti/3.1/usr/lib/ganeti/kvm-nic-setup").exists()


def test_a_version_that_is_removed_leaves_no_door(system: System) -> None:
    """dpkg removes the script that we have saved (it is diverted). Ganeti takes a folder that is there for a version that is there."""
    for version in ("3.0", "3.1"):
        info = system.at(f"/var/lib/dpkg/info/ganeti-{version}.list")
        info.parent.mkdir(parents=True, exist_ok=True)
        info.write_text(f"/usr/lib/ganeti/{version}/usr/lib/ganeti/kvm-ifup\n")
    system.install()
    system.upgrade("3.1")
    old = system.at("/usr/lib/ganeti/3.0/usr/lib/ganeti/kvm-ifup")
    Path(f"{old}{SAVED}").unlink()
    system.at("/var/lib/dpkg/info/ganeti-3.0.list").unlink()
    system.install()
    assert not system.at("/usr/lib/ganeti/3.0").exists() and system.ours
    system.install(uninstall=True)
    assert "3.1" in system.called().read_text()


class Unseen:
    """A version without doors to which the link was led: what nobody told our install of."""

    def __init__(self, system: System) -> None:
        system.install()
        system.add("3.5")
        self.system = system

    def led(self) -> System:
        """The link of Ganeti's own package is as it was before us, or as that has put it back, and leads to the new version."""
        self.system.upgrade("3.5")
        self.system.link()
        assert not self.system.ours
        return self.system


@pytest.fixture
def unseen(system: System) -> Unseen:
    return Unseen(system)


def test_doctor_sees_it_before_and_after(unseen: Unseen) -> None:
    script = "/usr/lib/ganeti/3.5/usr/lib/ganeti/kvm-ifup"
    assert unseen.system.doors() == [
        ("warning", f"{script} is not our door: gnt-cluster upgrade to that version would have Ganeti call it")
    ]
    found = unseen.led().doors()
    assert any(level == "error" and text.startswith(f"Ganeti calls {script}, which is no door of ours") for level, text in found)


def test_ganetis_hook_puts_ours_in_place(unseen: Unseen) -> None:
    system = unseen.led()
    assert system.stands() and system.ours
    assert "no door of ours, though Ganeti calls it: /usr/lib/ganeti/3.5/usr/lib/ganeti/kvm-ifup" in system.lines[0]
    system.lines.clear()
    assert system.stands() and system.lines == []


def test_ganetis_hook_says_what_it_cannot_do(unseen: Unseen) -> None:
    system = unseen.led()
    script = system.called()
    Path(f"{script}{SAVED}").write_text("somebody else's\n")
    assert not system.stands()
    assert "NICs come up without us" in system.lines[-1] and "is in the way" in system.lines[-1]


def test_a_link_that_is_led_elsewhere_while_it_is_followed(unseen: Unseen, monkeypatch: pytest.MonkeyPatch) -> None:
    """The script is named that Ganeti calls from now on, not the link in front of which our door stood a moment ago."""
    system = unseen.system
    assert not system.at(CALLED).is_symlink()  # our door stands before Ganeti's own link

    def is_door(path: str, hooks: str) -> bool:
        monkeypatch.undo()
        unseen.led()
        return versions.is_door(path, hooks)

    monkeypatch.setattr(versions, "is_door", is_door)
    assert versions.missing(str(system.root), str(system.hooks)) == ["/usr/lib/ganeti/3.5/usr/lib/ganeti/kvm-ifup"]


@pytest.mark.parametrize("case", ["uninstalled", "no Ganeti"])
def test_where_we_are_not_wanted_nothing_is_done(unseen: Unseen, case: str) -> None:
    system = unseen.led()
    if case == "uninstalled":
        system.install(uninstall=True)
    else:
        system.called().unlink()
    assert system.stands() and system.lines == [] and not system.ours


def test_dpkg_is_left_to_its_work(unseen: Unseen) -> None:
    """It may be about to replace just that script, and has our package do it at its end."""
    system = unseen.led()
    lock = system.at("/var/lib/dpkg/lock")
    lock.parent.mkdir(parents=True, exist_ok=True)
    lock.touch()
    program = "import fcntl, sys; lock = open(sys.argv[1], 'r+b'); fcntl.lockf(lock, fcntl.LOCK_EX); print(flush=True); sys.stdin.read()"
    with subprocess.Popen([sys.executable, "-c", program, str(lock)], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as dpkg:
        assert dpkg.stdout and dpkg.stdout.readline() == b"\n"
        assert system.stands() and not system.ours
        dpkg.communicate()
    assert system.stands() and system.ours


class Agent:
    """The part of the agent that looks at doors; Ganeti's hook runs in this process."""

    def __init__(self, system: System, works: bool = True) -> None:
        self.system, self.works = system, works
        self.ran: list[list[str]] = []
        self.seen = 0
        self.alarms = Alarms(system.log, Metrics())
        self.files = FileEvents()
        self.doors = ganeti_doors.Doors(system.paths, self.execute, self.alarms, lambda: 0.0, str(system.hooks))

    def execute(self, argv: Sequence[str], environment: Mapping[bytes, bytes], *_more: object) -> Outcome:
        assert environment[b"GANETI_OBJECT_TYPE"] == b"NODE"
        self.ran.append([os.path.basename(each) for each in argv])
        return Outcome(0 if self.works and self.system.stands() else 69, output=b"so it is\n")

    def changed(self) -> None:
        self.seen += 1

    def read(self) -> int:
        """Count how many changes it was told of since the last time."""
        self.seen = 0
        self.doors.watch(self.files, self.changed)
        self.files.read()
        return self.seen


def test_the_agent_follows_the_link(unseen: Unseen) -> None:
    agent = Agent(unseen.system)
    assert agent.read() == 0
    agent.doors.look(agent.system.log)
    assert agent.ran == []
    system = unseen.led()
    assert agent.read() > 0
    agent.doors.look(system.log)
    assert agent.ran == [["ganeti-hook"]] and system.ours and agent.alarms.active() == {}
    agent.read()
    os.utime(system.called())
    system.called().unlink()
    assert agent.read() > 0  # it watches where the link leads now


def test_the_agent_raises_an_alarm_where_it_cannot(unseen: Unseen) -> None:
    agent = Agent(unseen.led(), works=False)
    agent.doors.look(agent.system.log)
    text = agent.alarms.active()["doors"]
    assert "/usr/lib/ganeti/3.5/usr/lib/ganeti/kvm-ifup" in text and "ended with status 69" in text
    agent.works = True
    agent.doors.look(agent.system.log)
    assert agent.alarms.active() == {} and agent.system.ours


def test_a_link_is_no_version(system: System, tmp_path: Path) -> None:
    """/usr/lib/ganeti/default leads from below another root to the scripts of the system that runs."""
    outside = tmp_path / "another/usr/lib/ganeti/kvm-ifup"
    outside.parent.mkdir(parents=True)
    outside.write_text("#!/bin/bash\n")
    system.at("/usr/lib/ganeti/4.0").symlink_to(tmp_path / "another")
    assert not [path for path in versions.scripts(str(system.root)) if "4.0" in path]
    system.install()
    assert outside.read_text() == "#!/bin/bash\n" and system.doors() == []
