"""Installing the doors into a system in a folder: what is put where, and that uninstalling restores it exactly."""

from __future__ import annotations

import json
import os
import stat
import subprocess
from pathlib import Path

import pytest

from netcommon.install import Action, changes, install
from netcommon.install.manifest import FILE, SAVED, TEMPORARY
from netcommon.install.targets import NETWORKD, OPERATIONS
from netcommon.scripts import door_files
from runtime.errors import HostRefused, SettingsInvalid
from tests.support.installed import LEADS, REAL, UP, System


def output(path: Path, *arguments: str) -> str:
    return subprocess.run([path, *arguments], capture_output=True, text=True, check=True).stdout.strip()


class TestGaneti:
    def test_every_door_is_where_ganeti_calls_it(self, system: System) -> None:
        system.ganeti()
        system.install("ganeti")
        assert output(system.at(UP), "tap0") == "kvm-ifup tap0"
        assert output(system.at("/usr/lib/ganeti/kvm-ifdown"), "tap0", "true") == "kvm-ifdown tap0 true"
        assert output(system.at("/usr/lib/ganeti/kvm-nic-setup"), "tap0") == "kvm-nic-setup tap0"
        for word in OPERATIONS:
            hook = system.at(f"/etc/ganeti/hooks/instance-{word}-post.d/netcommon")
            assert output(hook) == "ganeti-hook"
            assert stat.S_IMODE(hook.stat().st_mode) == 0o755
        assert system.at(UP + SAVED).readlink() == Path(LEADS)
        assert system.at(REAL + SAVED).read_text() == "#!/bin/bash\n# Ganeti's own\n"
        assert door_files.is_door(str(system.at(UP)), "/nowhere")

    @pytest.mark.parametrize("mask", [0o022, 0o077])
    def test_uninstalling_restores_every_byte_mode_time_and_inode(self, system: System, mask: int) -> None:
        system.ganeti()
        before = system.picture()
        old = os.umask(mask)
        try:
            system.install("ganeti")
            assert stat.S_IMODE(system.at("/etc/ganeti/hooks").stat().st_mode) == 0o755
            during = system.picture()
            system.install("ganeti", uninstall=True)
        finally:
            os.umask(old)
        assert during != before
        assert system.picture() == before

    def test_a_second_install_changes_nothing(self, system: System) -> None:
        system.ganeti()
        assert system.install("ganeti")
        before = system.picture()
        assert system.install("ganeti") == []
        assert system.picture() == before

    def test_an_empty_folder_of_our_name_stays(self, system: System) -> None:
        system.ganeti()
        system.at(FILE).parent.mkdir()
        before = system.picture()
        system.install("ganeti")
        system.install("ganeti", uninstall=True)
        assert system.picture() == before

    def test_a_second_uninstall_changes_nothing(self, system: System) -> None:
        system.ganeti()
        before = system.picture()
        system.install("ganeti")
        system.install("ganeti", uninstall=True)
        assert system.install("ganeti", uninstall=True) == []
        assert system.picture() == before

    def test_a_dry_run_says_the_same_and_touches_nothing(self, system: System) -> None:
        system.ganeti()
        before = system.picture()
        said = system.install("ganeti", dry_run=True)
        assert system.picture() == before
        assert system.install("ganeti") == said
        before = system.picture()
        said = system.install("ganeti", dry_run=True, uninstall=True)
        assert system.picture() == before
        done = system.install("ganeti", uninstall=True)
        assert [(action.what, action.path) for action in done] == [(action.what, action.path) for action in said]

    def test_no_ganeti_no_install(self, system: System) -> None:
        before = system.picture()
        with pytest.raises(HostRefused, match="no Ganeti node"):
            system.install("ganeti")
        assert system.picture() == before

    def test_folders_and_files_of_the_administrator_stay(self, system: System) -> None:
        system.ganeti()
        theirs = system.put("/etc/ganeti/hooks/instance-stop-post.d/10-site")
        system.install("ganeti")
        later = system.put("/etc/ganeti/hooks/instance-remove-post.d/20-site")
        said = system.install("ganeti", uninstall=True)
        assert theirs.exists()
        assert later.exists()
        assert not system.at("/etc/ganeti/hooks/instance-modify-post.d").exists()
        assert Action("keep", "/etc/ganeti/hooks/instance-remove-post.d", "is not empty") in said

    @pytest.mark.parametrize("name", ["kvm-vif-bridge", "kvm-ifup-custom"])
    def test_a_sites_own_script_demands_a_word_in_the_settings(self, system: System, name: str) -> None:
        system.ganeti()
        system.put(f"/etc/ganeti/{name}")
        before = system.picture()
        with pytest.raises(SettingsInvalid, match=rf'{name}: .*order = "instead", or "after"'):
            system.install("ganeti")
        assert system.picture() == before
        system.put("/etc/netcommon/config.toml", '[custom]\norder = "after"\n', 0o644)
        assert system.install("ganeti")
        assert system.at(f"/etc/ganeti/{name}").exists()

    def test_what_is_no_script_demands_nothing(self, system: System) -> None:
        system.ganeti()
        system.put("/etc/ganeti/kvm-vif-bridge", mode=0o644)
        system.at("/etc/ganeti/kvm-ifup-custom").symlink_to(system.hooks / "kvm-ifup")
        assert system.install("ganeti")

    def test_our_own_door_by_symbolic_link_is_not_overwritten(self, system: System) -> None:
        system.ganeti()
        system.at("/usr/lib/ganeti/kvm-ifup").unlink()
        system.at("/usr/lib/ganeti/kvm-ifup").hardlink_to(system.hooks / "kvm-ifup")
        said = system.install("ganeti")
        assert Action("keep", "/usr/lib/ganeti/kvm-ifup", "is a door of ours already") in said
        assert output(system.hooks / "kvm-ifup") == "kvm-ifup"

    def test_of_an_edited_door_it_is_said_how_to_have_ours(self, system: System) -> None:
        system.ganeti()
        system.install("ganeti")
        door = system.at("/usr/lib/ganeti/kvm-ifup")
        edited = door.read_text() + "# edited\n"
        door.write_text(edited)
        (why,) = [action.text for action in system.install("ganeti") if action.path == "/usr/lib/ganeti/kvm-ifup"]
        assert why == "somebody has edited our door, so it is not brought up to date: move it away and install again to have ours"
        assert door.read_text() == edited

    def test_the_sites_scripts_of_3_2_are_named(self, system: System) -> None:
        system.ganeti()
        system.put("/etc/ganeti/network/routed/up")
        assert "/etc/ganeti/network/routed/up" in [action.path for action in system.install("ganeti") if action.what == "note"]

    def test_an_upgrade_that_put_ganetis_script_back_is_mended_and_kept(self, system: System) -> None:
        system.ganeti()
        system.install("ganeti")
        new = system.at(UP).with_name("new")
        new.write_text("#!/bin/bash\n# newer\n")
        new.chmod(0o755)
        new.rename(system.at(UP))
        system.install("ganeti")
        assert output(system.at(UP)) == "kvm-ifup"
        system.install("ganeti", uninstall=True)
        assert system.at(UP).read_text() == "#!/bin/bash\n# newer\n"
        assert not os.path.lexists(system.at(UP + SAVED))

    def test_what_somebody_else_put_in_our_place_stays(self, system: System) -> None:
        system.ganeti()
        system.install("ganeti")
        system.at(UP).unlink()
        system.put(UP, "another's\n")
        said = system.install("ganeti", uninstall=True)
        assert system.at(UP).read_text() == "another's\n"
        assert any(action.what == "keep" and SAVED in action.text for action in said)
        assert system.at(UP + SAVED).readlink() == Path(LEADS)

    def test_when_ours_was_deleted_the_old_one_comes_back(self, system: System) -> None:
        system.ganeti()
        before = system.picture()
        system.install("ganeti")
        system.at(UP).unlink()
        system.install("ganeti", uninstall=True)
        assert system.picture() == before

    def test_a_moved_installation_is_pointed_to_anew(self, system: System, tmp_path: Path) -> None:
        system.ganeti()
        before = system.picture()
        system.install("ganeti")
        os.rename(system.hooks, tmp_path / "elsewhere")
        system.hooks = tmp_path / "elsewhere"
        system.install("ganeti")
        assert str(tmp_path / "elsewhere") in system.at(UP).read_text()
        system.install("ganeti", uninstall=True)
        assert system.picture() == before

    def test_a_file_of_a_package_is_diverted(self, system: System) -> None:
        system.ganeti()
        system.put("/var/lib/dpkg/info/ganeti.list", f"/.\n{UP}\n", 0o644)
        system.install("ganeti")
        system.install("ganeti")
        root = ["dpkg-divert", "--root", str(system.root), "--quiet", "--local", "--no-rename"]
        assert system.commands == [[*root, "--divert", UP + SAVED, "--add", UP]]
        system.install("ganeti", uninstall=True)
        assert system.commands[1:] == [[*root, "--remove", UP]]

    def test_dpkg_itself_takes_the_diversion(self, system: System) -> None:
        system.ganeti()
        system.put("/var/lib/dpkg/info/ganeti.list", f"/.\n{UP}\n", 0o644)
        system.put("/var/lib/dpkg/status", "", 0o644)
        install("ganeti", str(system.root), hooks=str(system.hooks))
        diversions = system.at("/var/lib/dpkg/diversions")
        assert diversions.read_text() == f"{UP}\n{UP}{SAVED}\n:\n"
        assert output(system.at(UP)) == "kvm-ifup"
        install("ganeti", str(system.root), uninstall=True, hooks=str(system.hooks))
        assert diversions.read_text() == ""
        assert system.at(UP).readlink() == Path(LEADS)


class TestInTheWay:
    def test_a_folder_in_place_of_a_script(self, system: System) -> None:
        system.ganeti()
        system.at("/usr/lib/ganeti/kvm-ifdown").mkdir()
        before = system.picture()
        with pytest.raises(HostRefused, match="neither a file nor a symbolic link"):
            system.install("ganeti")
        assert system.picture() == before

    def test_a_file_in_place_of_a_folder(self, system: System) -> None:
        system.ganeti()
        system.put("/etc/ganeti/hooks", "")
        before = system.picture()
        with pytest.raises(HostRefused, match="not a folder"):
            system.install("ganeti")
        assert system.picture() == before

    def test_a_foreign_file_under_the_name_of_the_saved_one(self, system: System) -> None:
        system.ganeti()
        system.put(UP + SAVED)
        before = system.picture()
        with pytest.raises(HostRefused, match="in the way"):
            system.install("ganeti")
        assert system.picture() == before

    def test_a_circle_of_links(self, system: System) -> None:
        system.at("/usr/lib/ganeti").mkdir(parents=True)
        system.at("/usr/lib/ganeti/kvm-ifup").symlink_to("kvm-ifup")
        with pytest.raises(HostRefused, match="circle"):
            system.install("ganeti")

    def test_a_door_that_is_missing(self, system: System) -> None:
        system.ganeti()
        (system.hooks / "ganeti-hook").unlink()
        before = system.picture()
        with pytest.raises(HostRefused, match="ganeti-hook is not there"):
            system.install("ganeti")
        assert system.picture() == before

    def test_a_manifest_that_does_not_parse_or_is_newer(self, system: System) -> None:
        system.ganeti()
        for text in ("{", json.dumps({"schema": 99, "installs": {}}), "[]"):
            system.put(FILE, text, 0o644)
            with pytest.raises(HostRefused, match=FILE):
                system.install("ganeti")

    def test_an_unknown_kind(self, system: System) -> None:
        with pytest.raises(HostRefused, match="ganeti, qemu, xen"):
            system.install("lxc")


class TestKilled:
    """A run that ends in the middle is completed by the next install, or taken back by uninstall."""

    def sweep(self, system: System, monkeypatch: pytest.MonkeyPatch, after: int) -> bool:
        """Installs, and is cut off at the ``after``-th change of the file system; whether it came to that."""
        left = after

        def counted(name: str) -> None:
            original = getattr(os, name)

            def call(*arguments: object, **named: object) -> object:
                nonlocal left
                if left == 0:
                    raise KeyboardInterrupt
                left -= 1
                return original(*arguments, **named)

            monkeypatch.setattr(os, name, call)

        for name in ("rename", "link", "mkdir", "unlink", "fchmod"):
            counted(name)
        try:
            system.install("ganeti")
        except KeyboardInterrupt:
            return True
        finally:
            monkeypatch.undo()
        return False

    def test_at_every_change(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        after, cut = 0, True
        while cut:
            system = System(tmp_path / f"root{after}", tmp_path / f"opt{after}" / "hooks")
            system.ganeti()
            before = system.picture()
            cut = self.sweep(system, monkeypatch, after)
            if after % 2:
                system.install("ganeti")
                assert output(system.at(UP)) == "kvm-ifup"
                assert not [path for path in system.picture() if path.endswith(TEMPORARY)]
            system.install("ganeti", uninstall=True)
            assert system.picture() == before, after
            after += 1
        assert after > 30


class TestQemu:
    def test_debians_script_is_kept_and_restored(self, system: System) -> None:
        system.put("/etc/qemu-ifup", '#!/bin/sh\necho "debian $*"\n', 0o755)
        before = system.picture()
        system.install("qemu")
        assert "fallback" in system.at("/etc/qemu-ifup").read_text()
        assert output(system.at("/etc/qemu-ifup" + SAVED), "tap0") == "debian tap0"
        system.install("qemu", uninstall=True)
        assert system.picture() == before

    def test_where_there_was_none(self, system: System) -> None:
        before = system.picture()
        system.install("qemu")
        assert os.access(system.at("/etc/qemu-ifdown"), os.X_OK)
        system.install("qemu", uninstall=True)
        assert system.picture() == before

    def test_a_link_is_replaced_and_not_what_it_leads_to(self, system: System) -> None:
        system.put("/usr/local/ifup", "#!/bin/sh\n")
        system.at("/etc/qemu-ifup").symlink_to("/usr/local/ifup")
        before = system.picture()
        system.install("qemu")
        assert not system.at("/etc/qemu-ifup").is_symlink()
        assert system.at("/etc/qemu-ifup" + SAVED).readlink() == Path("/usr/local/ifup")
        assert system.at("/usr/local/ifup").read_text() == "#!/bin/sh\n"
        system.install("qemu", uninstall=True)
        assert system.picture() == before


class TestXen:
    def test_a_symbolic_link_comes_back_as_one(self, system: System) -> None:
        system.at("/etc/xen/scripts").mkdir(parents=True)
        system.at("/etc/xen/scripts/vif-ganeti").symlink_to("/usr/lib/ganeti/vif-ganeti")
        before = system.picture()
        system.install("xen")
        assert output(system.at("/etc/xen/scripts/vif-ganeti"), "online") == "vif-ganeti online"
        assert not system.at("/etc/xen/scripts/vif-ganeti").is_symlink()
        system.install("xen", uninstall=True)
        assert system.picture() == before

    def test_no_xen_no_install(self, system: System) -> None:
        with pytest.raises(HostRefused, match="no Xen node"):
            system.install("xen")


class TestNetworkd:
    def enable(self, system: System) -> None:
        wants = system.at("/etc/systemd/system/multi-user.target.wants")
        wants.mkdir(parents=True)
        (wants / "systemd-networkd.service").symlink_to("/lib/systemd/system/systemd-networkd.service")

    def test_where_it_is_enabled_it_is_told_to_leave_our_rules_alone(self, system: System) -> None:
        self.enable(system)
        before = system.picture()
        said = system.install("qemu")
        text = system.at(NETWORKD).read_text()
        assert "[Network]\nManageForeignRoutingPolicyRules=no\nManageForeignRoutes=no\n" in text
        assert stat.S_IMODE(system.at(NETWORKD).stat().st_mode) == 0o644
        assert any(action.what == "note" and "systemctl restart systemd-networkd" in action.text for action in said)
        system.install("qemu", uninstall=True)
        assert system.picture() == before

    def test_where_it_is_not_nothing_is_written(self, system: System) -> None:
        system.install("qemu")
        assert not system.at(NETWORKD).exists()

    def test_it_stays_as_long_as_another_install_needs_it(self, system: System) -> None:
        self.enable(system)
        system.ganeti()
        before = system.picture()
        system.install("qemu")
        system.install("ganeti")
        said = system.install("qemu", uninstall=True)
        assert Action("keep", NETWORKD, "serves ganeti too") in said
        assert system.at(NETWORKD).exists()
        system.install("ganeti", uninstall=True)
        assert system.picture() == before


def test_a_program_that_is_not_there_is_status_127() -> None:
    assert changes.run_command(["/no/such/program"]) == 127
    assert changes.run_command(["/bin/sh", "-c", "exit 3"]) == 3
