"""Which scripts of the site run, in which order, which are refused, and which are our own doors."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from netcommon.log import recording
from netcommon.scripts import site as custom
from netcommon.scripts.door_files import MARKER
from netcommon.scripts.site import GUARD, Call, Plan, Script, environment, order, own, recursing, run_each
from netcommon.settings.model import Settings
from runtime import trust
from runtime.paths import Paths
from tests.support.bootstrap import ROOT

OK = "#!/bin/sh\nexit 0\n"


class Site:
    """A node's /etc in a folder, and a folder of doors."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.paths = Paths.under(str(root))
        self.hooks = str(root / "opt" / "hooks")
        for folder in (self.paths.etc + "/ifup.d", self.paths.etc + "/ifdown.d", self.paths.ganeti_etc, self.hooks):
            os.makedirs(folder)
        for door in ("kvm-ifup", "kvm-ifdown"):
            self.put(f"{self.hooks}/{door}", f"#!/usr/bin/python3 -IS\n# {door}\n")

    def put(self, path: str, text: str = OK, mode: int = 0o755) -> str:
        Path(path).write_text(text)
        os.chmod(path, mode)
        return path

    def ganeti(self, name: str, text: str = OK, mode: int = 0o755) -> str:
        return self.put(f"{self.paths.ganeti_etc}/{name}", text, mode)

    def ifup(self, name: str, text: str = OK, mode: int = 0o755) -> str:
        return self.put(f"{self.paths.etc}/ifup.d/{name}", text, mode)

    def order(self, chosen: str = "") -> Plan:
        return order(self.paths, Settings(custom_order=chosen), self.hooks)


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


def names(scripts: tuple[Script, ...]) -> list[str]:
    return [os.path.basename(script.path) for script in scripts]


def test_a_node_without_scripts_and_without_folders(tmp_path: Path, site: Site) -> None:
    assert site.order() == Plan()
    assert order(Paths.under(str(tmp_path / "none")), Settings()) == Plan()


def test_up_and_down_in_their_order(site: Site) -> None:
    site.ganeti("kvm-ifup-custom")
    site.ganeti("kvm-ifdown-custom")
    for name in ("10-b", "09_a", "Z", "a"):
        site.ifup(name)
        site.put(f"{site.paths.etc}/ifdown.d/{name}")
    plan = site.order()
    assert names(plan.up) == ["kvm-ifup-custom", "09_a", "10-b", "Z", "a"]
    assert names(plan.down) == ["kvm-ifdown-custom", "09_a", "10-b", "Z", "a"]
    assert not plan.instead


@pytest.mark.parametrize("name", ["a.sh", "a~", ".a", "a.dpkg-old", "a b", "ä", "a\n"])
def test_names_that_run_parts_does_not_take_are_not_looked_at(site: Site, name: str) -> None:
    site.ifup(name, mode=0o777)
    assert site.order() == Plan()


def test_what_nobody_can_execute_is_not_there(site: Site) -> None:
    site.ganeti("kvm-vif-bridge", mode=0o644)
    site.ganeti("kvm-ifup-custom", mode=0o666)
    site.ifup("a", mode=0o600)
    os.mkdir(f"{site.paths.etc}/ifup.d/folder")
    assert site.order("instead") == Plan()


@pytest.mark.parametrize(
    ("bridge", "ifup", "chosen", "instead", "up"),
    [
        (True, False, "", True, ["kvm-vif-bridge", "x"]),
        (False, True, "", False, ["kvm-ifup-custom", "x"]),
        (True, True, "", True, ["kvm-vif-bridge", "kvm-ifup-custom", "x"]),
        (True, False, "after", False, ["kvm-vif-bridge", "x"]),
        (False, True, "after", False, ["kvm-ifup-custom", "x"]),
        (True, False, "instead", True, ["kvm-vif-bridge", "x"]),
        (False, True, "instead", True, ["kvm-ifup-custom", "x"]),
        (False, False, "instead", False, ["x"]),
        (False, False, "", False, ["x"]),
    ],
)
def test_after_or_instead(site: Site, bridge: bool, ifup: bool, chosen: str, instead: bool, up: list[str]) -> None:
    if bridge:
        site.ganeti("kvm-vif-bridge")
    if ifup:
        site.ganeti("kvm-ifup-custom")
    site.ifup("x")
    plan = site.order(chosen)
    assert (plan.instead, names(plan.up)) == (instead, up)
    assert {script.path: script.arguments for script in plan.up}.get(f"{site.paths.ganeti_etc}/kvm-vif-bridge", False) is False


def test_one_script_under_both_names_runs_once(site: Site) -> None:
    site.ganeti("kvm-ifup-custom")
    os.symlink("kvm-ifup-custom", f"{site.paths.ganeti_etc}/kvm-vif-bridge")
    assert names(site.order().up) == ["kvm-vif-bridge"]


class TestTrust:
    def problem(self, site: Site) -> str:
        (script,) = site.order().up
        return script.problem

    def test_a_good_one_has_no_problem(self, site: Site) -> None:
        site.ifup("a")
        assert self.problem(site) == ""

    @pytest.mark.parametrize(("mode", "gid", "why"), [(0o757, 0, "everybody"), (0o777, 0, "everybody"), (0o775, 4711, "group 4711")])
    def test_others_can_write_it(self, site: Site, mode: int, gid: int, why: str) -> None:
        path = site.ifup("a", mode=mode)
        os.chown(path, 0, gid)
        os.chmod(path, mode)
        assert self.problem(site) == f"{path} can be written by {why}"

    def test_roots_own_group_may_write_it(self, site: Site) -> None:
        site.ifup("a", mode=0o775)
        assert self.problem(site) == ""

    def test_whom_an_access_control_list_names_may_not(self, site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
        """Its mask is what the mode shows for root's group (acl(5))."""
        path = site.ifup("a", mode=0o775)
        monkeypatch.setattr(os, "getxattr", lambda where, name: b"\2\0\0\0" if str(where) == str(path) else b"")
        assert self.problem(site) == f"{path} can be written by those that its access control list names (getfacl(1))"

    def test_another_owner(self, site: Site) -> None:
        path = site.ifup("a")
        os.chown(path, 4711, 0)
        assert self.problem(site) == f"{path} does not belong to root but to user 4711"

    @pytest.mark.parametrize("mode", [0o777, 0o1777])
    def test_the_folder_can_be_written(self, site: Site, mode: int) -> None:
        site.ifup("a")
        os.chmod(f"{site.paths.etc}/ifup.d", mode)
        assert self.problem(site) == f"{site.paths.etc}/ifup.d can be written by everybody"

    def test_a_folder_above_can_be_written(self, site: Site) -> None:
        site.ifup("a")
        os.chmod(site.paths.etc, 0o777)
        assert self.problem(site) == f"{site.paths.etc} can be written by everybody"
        os.chmod(site.paths.etc, 0o1777)
        assert self.problem(site) == ""

    def test_the_target_of_a_link_is_what_counts(self, site: Site) -> None:
        target = site.put(str(site.root / "target"), mode=0o777)
        os.symlink(target, f"{site.paths.etc}/ifup.d/a")
        assert self.problem(site) == f"{target} can be written by everybody"
        os.chmod(target, 0o755)
        assert self.problem(site) == ""

    def test_the_targets_folder_counts_too(self, site: Site) -> None:
        os.mkdir(site.root / "open")
        os.symlink(site.put(str(site.root / "open" / "target")), f"{site.paths.etc}/ifup.d/a")
        os.chmod(site.root / "open", 0o777)
        assert self.problem(site) == f"{site.root}/open can be written by everybody"

    @pytest.mark.parametrize("mode", [0o777, 0o1777])
    def test_every_hop_of_a_chain_of_links_counts(self, site: Site, mode: int) -> None:
        """Whoever can put another link in the middle says what is run; relative or not, of the file or of a folder."""
        for folder in ("middle", "good", "good/inner"):
            os.mkdir(site.root / folder)
        target = site.put(str(site.root / "good" / "inner" / "target"))
        os.symlink("../good/inner", site.root / "middle" / "inner")
        os.symlink(target, site.root / "middle" / "link")
        named = f"{site.paths.etc}/ifup.d/a"
        for first in (f"{site.root}/middle/link", os.path.relpath(f"{site.root}/middle/link", os.path.dirname(named))):
            os.symlink(first, named)
            os.chmod(site.root / "middle", 0o755)
            assert self.problem(site) == ""
            os.chmod(site.root / "middle", mode)
            assert self.problem(site) == f"{site.root}/middle can be written by everybody"
            os.unlink(named)
        os.symlink(f"{site.root}/middle/inner/target", named)
        assert self.problem(site) == f"{site.root}/middle can be written by everybody"
        assert trust.distrust_folder(f"{site.root}/middle/inner") == f"{site.root}/middle can be written by everybody"
        os.chmod(site.root / "middle", 0o755)
        assert self.problem(site) == trust.distrust_folder(f"{site.root}/middle/inner") == ""

    def test_links_in_a_circle(self, site: Site) -> None:
        os.symlink("b", site.root / "a")
        os.symlink("a", site.root / "b")
        assert "Too many levels" in trust.distrust(f"{site.root}/a")

    def test_a_link_to_nothing_is_a_failure_in_a_folder(self, site: Site) -> None:
        os.symlink("/nowhere", f"{site.paths.etc}/ifup.d/a")
        assert "symbolic link to nothing" in self.problem(site)

    def test_a_refused_kvm_vif_bridge_does_not_let_the_built_in_run(self, site: Site) -> None:
        site.ganeti("kvm-vif-bridge", mode=0o777)
        assert site.order().instead
        assert "everybody" in self.problem(site)

    def test_it_is_not_run_and_fails(self, site: Site) -> None:
        site.ifup("a", f"#!/bin/sh\ntouch {site.root}/ran\n", mode=0o777)
        log, _ = recording()
        (result,) = run_each(site.order().up, Call("tap0", "up", {}), Settings(), time.monotonic() + 5, log, stop=True)
        assert not result.ok
        assert not (site.root / "ran").exists()
        assert f"{site.paths.etc}/ifup.d/a can be written by everybody" in log.summary()


class TestOurDoors:
    def test_a_symbolic_link(self, site: Site) -> None:
        os.symlink(f"{site.hooks}/kvm-ifup", f"{site.paths.ganeti_etc}/kvm-vif-bridge")
        os.symlink(f"{site.hooks}/kvm-ifdown", f"{site.paths.ganeti_etc}/kvm-ifdown-custom")
        assert site.order() == Plan()

    def test_a_link_to_a_link(self, site: Site) -> None:
        os.symlink(f"{site.hooks}/kvm-ifup", str(site.root / "middle"))
        os.symlink(str(site.root / "middle"), f"{site.paths.ganeti_etc}/kvm-ifup-custom")
        assert site.order("instead") == Plan()

    def test_a_hard_link(self, site: Site) -> None:
        os.link(f"{site.hooks}/kvm-ifup", f"{site.paths.ganeti_etc}/kvm-vif-bridge")
        assert site.order() == Plan()

    def test_a_copy(self, site: Site) -> None:
        site.ganeti("kvm-vif-bridge", Path(site.hooks, "kvm-ifup").read_text())
        assert site.order() == Plan()

    def test_a_wrapper_of_our_install(self, site: Site) -> None:
        site.ganeti("kvm-vif-bridge", f'#!/bin/sh\n{MARKER}\nif true; then\nexec /gone/kvm-ifup "$@"\nfi\n')
        assert site.order() == Plan()

    def test_a_script_that_only_starts_what_our_install_has_put_in_place(self, site: Site) -> None:
        """Under whatever name, and by way of another such script."""
        placed = site.put(str(site.root / "kvm-ifup"), f'#!/bin/sh\n{MARKER}\nexec /gone/kvm-ifup "$@"\n')
        between = site.put(str(site.root / "between"), f'#!/bin/sh\nexec {placed} "$@"\n')
        for started in (placed, between):
            site.ganeti("kvm-vif-bridge", f'#!/bin/sh\nexec {started} "$@"\n')
            assert site.order("instead") == Plan()

    def test_scripts_that_start_each_other_for_ever(self, site: Site) -> None:
        other = site.put(str(site.root / "other"), f'#!/bin/sh\nexec {site.paths.ganeti_etc}/kvm-vif-bridge "$@"\n')
        path = site.ganeti("kvm-vif-bridge", f'#!/bin/sh\nexec {other} "$@"\n')
        assert [script.path for script in site.order().up] == [path]

    def test_a_link_to_a_wrapper_of_our_install(self, site: Site) -> None:
        os.symlink(site.put(str(site.root / "kvm-ifup"), f"#!/bin/sh\n{MARKER}\n"), f"{site.paths.ganeti_etc}/kvm-vif-bridge")
        assert site.order() == Plan()

    @pytest.mark.parametrize(
        "command",
        [
            'exec {hooks}/kvm-ifup "$@"',
            "{hooks}/kvm-ifup $*",
            "exec '{hooks}/kvm-ifup' \"$INTERFACE\" # ours",
            "set -e\n\n# hello\nexec env A=b {hooks}/../hooks/kvm-ifup",
        ],
    )
    def test_a_wrapper_of_the_sites(self, site: Site, command: str) -> None:
        text = "#!/bin/sh\n" + command.format(hooks=site.hooks) + "\n"
        site.ganeti("kvm-ifup-custom", text)
        wanted = ["kvm-ifup-custom"] if " env " in command else []
        assert names(site.order().up) == wanted  # behind env it is not recognised: the guard stops it

    @pytest.mark.parametrize(
        "text",
        [
            "#!/bin/sh\nlogger hello\nexec {hooks}/kvm-ifup\n",
            "#!/bin/sh\nexec /bin/true\n",
            "#!/bin/sh\nexec 'a\n",
            "#!/bin/sh\n{hooks}/kvm-ifdown tap1 false\n",
        ],
    )
    def test_a_script_that_does_more_is_the_sites_own(self, site: Site, text: str) -> None:
        site.ganeti("kvm-ifup-custom", text.format(hooks=site.hooks))
        assert names(site.order().up) == ["kvm-ifup-custom"]

    def test_a_copy_of_another_size_is_not_ours(self, site: Site) -> None:
        site.ganeti("kvm-vif-bridge", Path(site.hooks, "kvm-ifup").read_text().replace("ifup", "ifuq"))
        assert names(site.order().up) == ["kvm-vif-bridge"]


class TestRecursion:
    def test_the_guard_of_the_same_nic_by_a_live_door(self) -> None:
        guard = f"u-1 {os.getpid()} tap0"
        assert recursing({GUARD: guard, "INTERFACE_UUID": "U-1"})
        assert recursing({GUARD: guard, "INTERFACE_UUID": "U-1", "INTERFACE": "tap0"}, device="tap0")
        assert recursing({GUARD: guard}, device="tap0")
        assert recursing({GUARD: guard}, uuid="u-1")
        assert recursing({GUARD: guard})
        assert not recursing({GUARD: guard, "INTERFACE_UUID": "u-2"})
        assert not recursing({GUARD: guard}, uuid="u-2")
        assert not recursing({"INTERFACE_UUID": "u-1"})
        assert not recursing({GUARD: "", "INTERFACE_UUID": ""})

    def test_another_device_is_another_nic(self) -> None:
        """Also where no UUID is given, as by plain QEMU, or where the environment is the first NIC's."""
        guard = {GUARD: f"u-1 {os.getpid()} tap0"}
        assert not recursing(guard, device="tap1")
        assert not recursing({**guard, "INTERFACE": "tap1"})
        assert not recursing({**guard, "INTERFACE": "tap0", "INTERFACE_UUID": "u-1"}, device="tap1")

    def test_the_description_that_another_nics_door_inherits_is_dropped(self) -> None:
        guard = {GUARD: f"u-1 {os.getpid()} tap0", "ODD": "1"}
        given = {**guard, "INTERFACE": "tap0", "INTERFACE_UUID": "U-1", "MAC": "x", "NETWORK_NAME": "n", "VLAN": "", "INSTANCE": "a"}
        assert own(given, "tap1") == guard
        for device, changes in (
            ("tap0", {}),  # the same NIC
            ("", {}),  # described by nothing else
            ("tap1", {"INTERFACE_UUID": "u-2"}),  # its own
            ("tap1", {"INTERFACE": "tap1"}),
            ("tap1", {GUARD: ""}),  # nobody's script
        ):
            assert own({**given, **changes}, device) == {**given, **changes}

    def test_the_guard_of_a_door_long_gone_says_nothing(self) -> None:
        gone = subprocess.Popen(["/bin/true"])
        gone.wait()
        assert not recursing({GUARD: f"u-1 {gone.pid} tap0", "INTERFACE_UUID": "u-1"})
        inherited = {GUARD: f"u-1 {gone.pid} tap0", "INTERFACE": "tap0", "INTERFACE_UUID": "u-1"}
        assert own(inherited, "tap1") == inherited

    def test_scripts_get_the_guard(self) -> None:
        call = Call("tap0", "up", {"INTERFACE_UUID": "u-1", GUARD: "forged 1"}, uuid="u-1")
        given = {os.fsdecode(name): os.fsdecode(value) for name, value in environment(call).items()}
        assert recursing(given)


class TestEnvironment:
    def test_exactly_what_was_given_and_our_own(self) -> None:
        given = {"MODE": "bridged", "TAGS": "a:b c", "ODD": "\udcff\n$(x)", "PATH": "/only", "NETCOMMON_CONTEXT": "forged"}
        call = Call("tap0", "migrate", given, "u-1", "post", "/run/netcommon/nics/u-1.json")
        made = environment(call)
        assert made.pop(b"NETCOMMON_SCRIPT") != environment(call)[b"NETCOMMON_SCRIPT"]
        assert made == {
            b"MODE": b"bridged",
            b"TAGS": b"a:b c",
            b"ODD": b"\xff\n$(x)",
            b"PATH": b"/only",
            b"NETCOMMON_CONTEXT": b"migrate",
            b"NETCOMMON_MIGRATION_PHASE": b"post",
            b"NETCOMMON_RECORD": b"/run/netcommon/nics/u-1.json",
            b"NETCOMMON_DOOR": f"u-1 {os.getpid()} tap0".encode(),
        }

    @pytest.mark.parametrize("given", [{}, {"PATH": ""}])
    def test_there_is_always_a_path(self, given: dict[str, str]) -> None:
        assert environment(Call("tap0", "up", given))[b"PATH"] == custom.PATH.encode()


def test_without_scripts_subprocess_is_not_imported(tmp_path: Path) -> None:
    program = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "from netcommon.scripts.site import order; from netcommon.settings.model import Settings; from runtime.paths import Paths\n"
        "order(Paths.under(sys.argv[2]), Settings())\n"
        "print([name for name in ('subprocess', 'shlex', 'netcommon.process.run', 'runtime.trust') if name in sys.modules])"
    )
    ran = subprocess.run([sys.executable, "-IS", "-c", program, str(ROOT), str(tmp_path)], capture_output=True, text=True, check=True)
    assert ran.stdout == "[]\n"
