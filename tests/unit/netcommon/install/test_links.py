"""Links where our install puts doors: they are replaced, never what they lead to, and what stood there is found by QEMU's fallback."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from netcommon.install import install, kept
from netcommon.install.manifest import FILE, SAVED
from netcommon.scripts.door_files import MARKER
from runtime.errors import HostRefused
from tests.support.installed import LEADS, REAL, UP, System

PROGRAM = "/usr/local/sbin/net"
QEMU = ("/etc/qemu-ifup", "/etc/qemu-ifdown")


def test_two_links_to_one_program(system: System) -> None:
    system.put(PROGRAM)
    for name in QEMU:
        system.at(name).symlink_to(PROGRAM)
    before = system.picture()
    system.install("qemu")
    assert system.at(PROGRAM).read_text() == "#!/bin/sh\nexit 0\n"
    for name in QEMU:
        assert MARKER in system.at(name).read_text() and system.at(name + SAVED).readlink() == Path(PROGRAM)
    assert system.install("qemu") == []
    system.install("qemu", uninstall=True)
    assert system.picture() == before


def test_one_door_a_link_to_the_other(system: System) -> None:
    system.put(UP)
    system.at("/usr/lib/ganeti/kvm-ifdown").symlink_to("kvm-ifup")
    before = system.picture()
    system.install("ganeti")
    assert "kvm-ifdown" in system.at("/usr/lib/ganeti/kvm-ifdown").read_text()
    assert "kvm-ifup" in system.at(UP).read_text()
    system.install("ganeti", uninstall=True)
    assert system.picture() == before


def test_two_names_of_one_file(system: System) -> None:
    system.put(QEMU[0])
    system.at(QEMU[1]).hardlink_to(system.at(QEMU[0]))
    before = system.picture()
    system.install("qemu")
    system.install("qemu", uninstall=True)
    assert system.picture() == before and system.at(QEMU[0]).stat().st_nlink == 2


def test_a_folder_that_is_a_link_is_followed(system: System) -> None:
    system.put("/srv/scripts/vif-ganeti")
    system.at("/etc/xen").mkdir()
    system.at("/etc/xen/scripts").symlink_to("/srv/scripts")
    before = system.picture()
    system.install("xen")
    assert MARKER in system.at("/srv/scripts/vif-ganeti").read_text()
    (change,) = json.loads(system.at(FILE).read_text())["installs"]["xen"]
    assert change["path"] == "/srv/scripts/vif-ganeti"
    system.install("xen", uninstall=True)
    assert system.picture() == before


def test_nothing_is_made_where_a_folders_link_leads_nowhere(system: System) -> None:
    system.ganeti()
    system.at("/etc/ganeti/hooks").symlink_to("/srv/hooks")
    before = system.picture()
    with pytest.raises(HostRefused, match="/etc/ganeti/hooks leads to /srv/hooks, which is not there"):
        system.install("ganeti")
    assert system.picture() == before


@pytest.mark.parametrize("ending", [".netcommon-new", SAVED + ".netcommon-new"])
def test_a_name_that_we_would_write_to_is_somebody_elses(system: System, ending: str) -> None:
    system.put(QEMU[0])
    system.at(QEMU[0] + ending).hardlink_to(system.put(PROGRAM))
    before = system.picture()
    with pytest.raises(HostRefused, match=r"netcommon-new is in the way: no install of ours has it on record"):
        system.install("qemu")
    assert system.picture() == before


def test_somebody_changes_it_between_the_look_and_the_step(system: System, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second door's place is looked at again when the first is done: a folder that stands there then is not replaced."""
    system.put(QEMU[0])
    original = os.rename

    def rename(source: str, target: str) -> None:
        original(source, target)
        if target == str(system.at(QEMU[0])):
            system.at(QEMU[1]).mkdir()

    monkeypatch.setattr(os, "rename", rename)
    with pytest.raises(HostRefused, match="neither a file nor a symbolic link"):
        system.install("qemu")
    monkeypatch.undo()
    system.install("qemu", uninstall=True)
    assert system.at(QEMU[0]).read_text() == "#!/bin/sh\nexit 0\n" and system.at(QEMU[1]).is_dir()


@pytest.mark.parametrize(("call", "name"), [("unlink", "instance-stop-post.d/netcommon"), ("rmdir", "instance-stop-post.d")])
def test_what_cannot_be_taken_back_keeps_nothing_else_from_it(
    system: System, monkeypatch: pytest.MonkeyPatch, call: str, name: str
) -> None:
    system.ganeti()
    before = system.picture()
    system.install("ganeti")
    stuck = str(system.at(f"/etc/ganeti/hooks/{name}"))
    original = getattr(os, call)

    def refused(path: str) -> None:
        if path == stuck:
            raise PermissionError(1, "Operation not permitted", path)
        original(path)

    monkeypatch.setattr(os, call, refused)
    with pytest.raises(HostRefused, match=rf"{name}: Operation not permitted"):
        system.install("ganeti", uninstall=True)
    assert system.at(UP).readlink() == Path(LEADS)
    monkeypatch.undo()
    system.install("ganeti", uninstall=True)
    assert system.picture() == before


class TestOfVersion010:
    """Say what 0.1.0 left, which followed links and recorded where they led."""

    def installed(self, system: System, path: str, original: str | None) -> None:
        text = f"#!/bin/sh\n{MARKER}\nexec '{system.hooks}/kvm-ifup' \"$@\"\n"
        if original is not None:
            os.rename(system.at(path), system.at(path + SAVED))
        else:
            system.put(path + SAVED, text)
        system.put(path, text)
        change = {"path": path, "kind": "file", "saved": path + SAVED, "diverted": False}
        system.put(FILE, json.dumps({"schema": 1, "installs": {"ganeti": [change]}}), 0o644)

    @pytest.mark.parametrize("again", [False, True])
    def test_it_is_taken_back(self, system: System, again: bool) -> None:
        system.ganeti()
        before = system.picture()
        self.installed(system, REAL, "")
        if again:
            system.install("ganeti")
            assert MARKER in system.at(UP).read_text() and not system.at(UP).is_symlink()
            assert system.install("ganeti") == []
        system.install("ganeti", uninstall=True)
        assert system.picture() == before

    def test_where_it_destroyed_the_script_no_door_stays(self, system: System) -> None:
        self.installed(system, PROGRAM, None)
        (action,) = system.install("ganeti", uninstall=True)
        assert action.what == "remove" and "first is lost" in action.text
        assert not system.at(PROGRAM).exists() and not system.at(PROGRAM + SAVED).exists()

    def test_a_folder_with_links_in_its_recorded_path(self, system: System) -> None:
        system.at("/etc/xen").mkdir()
        system.put("/srv/scripts/vif-ganeti")
        system.at("/etc/xen/scripts").symlink_to("../../srv/scripts")
        before = system.picture()
        self.installed(system, "/etc/xen/scripts/vif-ganeti", "")
        text = system.at(FILE).read_text().replace('"ganeti":', '"xen":')
        system.at(FILE).write_text(text)
        system.install("xen")
        system.install("xen", uninstall=True)
        assert system.picture() == before


class TestDiversion:
    def packaged(self, system: System) -> None:
        system.put(UP)
        system.put("/var/lib/dpkg/info/ganeti.list", f"/.\n{UP}\n", 0o644)

    def test_dpkg_is_told_when_the_door_stands_and_before_it_goes(self, system: System) -> None:
        """A new version that comes in between must not land where an older one is about to be saved, or restored from."""
        self.packaged(system)
        doors = []

        def run(argv: list[str]) -> int:
            doors.append(MARKER in system.at(UP).read_text())
            return system.run(argv)

        for uninstall in (False, True):
            install("ganeti", str(system.root), uninstall=uninstall, hooks=str(system.hooks), run=run)
        assert doors == [True, True] and len(system.commands) == 2

    def test_where_it_has_gone_missing_it_is_made_again(self, system: System) -> None:
        self.packaged(system)
        system.install("ganeti")
        system.put("/var/lib/dpkg/diversions", "", 0o644)
        assert [action.what for action in system.install("ganeti")] == ["divert"]
        assert system.install("ganeti") == []

    def test_one_that_somebody_else_made_stays(self, system: System) -> None:
        self.packaged(system)
        system.put("/var/lib/dpkg/diversions", f"{UP}\n{UP}.distrib\n:\n", 0o644)
        system.install("ganeti")
        system.install("ganeti", uninstall=True)
        assert system.commands == [] and system.at(UP).read_text() == "#!/bin/sh\nexit 0\n"

    def test_the_packages_file_is_not_overwritten_by_another(self, system: System) -> None:
        self.packaged(system)
        system.install("ganeti")
        system.at(UP).unlink()
        system.put(UP, "another's\n")
        before = system.picture()
        with pytest.raises(HostRefused, match="is not ours any more"):
            system.install("ganeti")
        assert system.picture() == before


class TestKept:
    """Say what stood at /etc/qemu-ifup: found through links that lead to doors of ours, and called by its own name."""

    def script(self, path: Path, text: str, mode: int = 0o755) -> Path:
        path.write_text(text)
        path.chmod(mode)
        return path

    def test_what_a_link_leads_to(self, tmp_path: Path) -> None:
        program = self.script(tmp_path / "program", "")
        (tmp_path / "chain").symlink_to("program")
        (tmp_path / f"ifup{SAVED}").symlink_to("chain")
        assert kept.find(f"{tmp_path}/ifup{SAVED}") == str(program)

    def test_a_link_to_a_door_of_ours_leads_to_what_that_replaced(self, tmp_path: Path) -> None:
        saved = self.script(tmp_path / f"ifup{SAVED}", "#!/bin/sh\n")
        self.script(tmp_path / "ifup", f"#!/bin/sh\n{MARKER}\n")
        (tmp_path / f"ifdown{SAVED}").symlink_to("ifup")
        assert kept.find(f"{tmp_path}/ifdown{SAVED}") == str(saved)

    @pytest.mark.parametrize("target", ["nothing", "ifup", f"ifup{SAVED}", "."])
    def test_nothing_that_could_be_started(self, tmp_path: Path, target: str) -> None:
        """Also where 0.1.0 saved a door of ours: it is not called, and calls itself for ever no more."""
        self.script(tmp_path / "ifup", f"#!/bin/sh\n{MARKER}\n")
        (tmp_path / f"ifup{SAVED}").symlink_to(target)
        assert kept.find(f"{tmp_path}/ifup{SAVED}") == ""
        assert kept.find(f"{tmp_path}/other{SAVED}") == ""

    @pytest.mark.parametrize(
        "text",
        [
            '#!/bin/sh\necho "$0 $*"; exit 7\n',
            '#!/bin/sh -eu\necho "$0 $*"\nset -- \nexit 7\n',
            '#! /usr/bin/env bash\ndeclare -a words=("$0" "$@")\necho "${words[@]}"\nexit 7',
            "#!/usr/bin/python3\nfrom __future__ import annotations\nimport sys\nif __name__ == '__main__': exit(print(*sys.argv) or 7)\n",
            "#!/usr/bin/python3\nimport sys\nassert __file__ == sys.argv[0] and sys.path[0]\nprint(*sys.argv)\nsys.exit(7)\n",
            "#!/usr/bin/python3 -IS\nimport sys\nprint(*sys.argv)\nraise SystemExit(7)\n",
        ],
    )
    def test_a_script_gets_the_name_that_it_had(self, tmp_path: Path, text: str) -> None:
        path = self.script(tmp_path / f"it's{SAVED}", text)
        program, words = kept.command(str(path), "/etc/qemu-ifup", ["tap0", "a b"])
        ran = subprocess.run(words, executable=program, capture_output=True, text=True, check=False, cwd="/")
        assert (ran.returncode, ran.stdout) == (7, "/etc/qemu-ifup tap0 a b\n"), ran.stderr

    def test_a_program_gets_it_too(self) -> None:
        program, words = kept.command("/usr/bin/env", "/etc/qemu-ifup", ["--no-such"])
        ran = subprocess.run(words, executable=program, capture_output=True, text=True, check=False)
        assert ran.stderr.startswith("/etc/qemu-ifup: ")

    @pytest.mark.parametrize("first", ["#!/usr/bin/perl", "#!/bin/bash\n# ${BASH_SOURCE[0]}", "#!/bin/sh -c", "#!", "", "#!/usr/bin/env"])
    def test_any_other_script_is_called_as_it_lies(self, tmp_path: Path, first: str) -> None:
        path = str(self.script(tmp_path / "script", f"{first}\n"))
        assert kept.command(path, "/etc/qemu-ifup", ["tap0"]) == (path, ["/etc/qemu-ifup", "tap0"])

    def test_what_nobody_may_execute_is_not_executed_by_us(self, tmp_path: Path) -> None:
        path = str(self.script(tmp_path / "script", "#!/bin/sh\n", 0o644))
        assert kept.command(path, "/etc/qemu-ifup", []) == (path, ["/etc/qemu-ifup"])
