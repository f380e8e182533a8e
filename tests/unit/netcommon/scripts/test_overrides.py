"""network/<mode>/up and down of Ganeti 3.2: which of them run for a NIC, in which order, and with which environment."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from netcommon.lifecycle.site_scripts import Scripts
from netcommon.scripts import site as custom
from netcommon.scripts.door_files import MARKER, is_door
from netcommon.scripts.site import Call, Plan, Script, environment, order
from netcommon.settings.model import Settings
from runtime.errors import HostRefused
from runtime.nic import MODES
from runtime.paths import Paths
from tests.support.sim import Sim, nic

OK = "#!/bin/sh\nexit 0\n"


class Site:
    """A node's /etc/ganeti in a folder, and a folder of doors."""

    def __init__(self, root: Path) -> None:
        self.paths = Paths.under(str(root))
        self.hooks = str(root / "opt" / "hooks")
        self.put(f"{self.hooks}/kvm-nic-setup", "#!/usr/bin/python3 -IS\n# kvm-nic-setup\n")

    def put(self, path: str, text: str = OK, mode: int = 0o755) -> str:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        Path(path).write_text(text)
        os.chmod(path, mode)
        return path

    def ganeti(self, name: str, text: str = OK, mode: int = 0o755) -> str:
        return self.put(f"{self.paths.ganeti_etc}/{name}", text, mode)

    def order(self, mode: str, chosen: str = "", kvm: bool = True) -> Plan:
        return order(self.paths, Settings(custom_order=chosen), self.hooks, (mode,), kvm)

    def names(self, scripts: tuple[Script, ...]) -> list[str]:
        return [script.path.removeprefix(self.paths.ganeti_etc + "/").removeprefix(self.paths.etc + "/") for script in scripts]


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


@pytest.mark.parametrize("mode", MODES)
def test_for_exactly_its_mode(site: Site, mode: str) -> None:
    for action in ("up", "down"):
        site.ganeti(f"network/{mode}/{action}")
    for other in MODES:
        plan = site.order(other)
        expected = ([f"network/{mode}/up"], [f"network/{mode}/down"]) if other == mode else ([], [])
        assert (plan.instead, (site.names(plan.up), site.names(plan.down))) == (other == mode, expected)


def test_each_action_alone(site: Site) -> None:
    """A down alone is no reason to leave out the built-in up: Ganeti's own downs do nothing, and sites add theirs."""
    site.ganeti("network/bridged/down")
    plan = site.order("bridged")
    assert (plan.instead, plan.up, site.names(plan.down)) == (False, (), ["network/bridged/down"])
    site.ganeti("network/routed/up")
    plan = site.order("routed")
    assert (plan.instead, site.names(plan.up), plan.down) == (True, ["network/routed/up"], ())


@pytest.mark.parametrize("chosen", ["", "after", "instead"])
def test_order(site: Site, chosen: str) -> None:
    """First, and instead of the built-in whatever the settings say of the older scripts; kvm-vif-bridge is not Ganeti 3.2's."""
    for name in ("network/bridged/up", "network/bridged/down", "kvm-vif-bridge", "kvm-ifup-custom", "kvm-ifdown-custom"):
        site.ganeti(name)
    for name in ("ifup.d/10-a", "ifdown.d/10-a"):
        site.put(f"{site.paths.etc}/{name}")
    plan = site.order("bridged", chosen)
    assert site.names(plan.up) == ["network/bridged/up", "kvm-ifup-custom", "ifup.d/10-a"]
    assert site.names(plan.down) == ["network/bridged/down", "kvm-ifdown-custom", "ifdown.d/10-a"]
    assert plan.instead
    other = site.order("routed", chosen)
    assert site.names(other.up) == ["kvm-vif-bridge", "kvm-ifup-custom", "ifup.d/10-a"]


def test_xen_has_no_script_that_begins_with_kvm(site: Site) -> None:
    for name in ("network/bridged/up", "kvm-vif-bridge", "kvm-ifup-custom", "kvm-ifdown-custom"):
        site.ganeti(name)
    assert site.names(site.order("bridged", kvm=False).up) == ["network/bridged/up"]
    assert site.order("routed", "instead", kvm=False) == Plan()


def test_without_a_mode_all_are_named(site: Site) -> None:
    """For people who ask what there is."""
    for mode in MODES:
        site.ganeti(f"network/{mode}/up")
    found = order(site.paths, Settings(), site.hooks)
    assert site.names(found.up) == [f"network/{mode}/up" for mode in MODES]


@pytest.mark.parametrize("kind", ["link", "wrapper", "copy", "ours by install", "not executable", "folder", "link to nothing"])
def test_ours_or_none(site: Site, kind: str) -> None:
    """A site may have put us there itself: that is no override, and calling it would call us for ever."""
    path, door = f"{site.paths.ganeti_etc}/network/bridged/up", f"{site.hooks}/kvm-nic-setup"
    os.makedirs(os.path.dirname(path))
    if kind == "link":
        os.symlink(door, path)
    elif kind == "wrapper":
        site.put(path, f'#!/bin/sh\nexec {door} "$@" || exit 1\n')
    elif kind == "copy":
        site.put(path, Path(door).read_text())
    elif kind == "ours by install":
        site.put(path, f"#!/bin/sh\n{MARKER}\nexec '/elsewhere/hooks/kvm-nic-setup' \"$@\"\n")
    elif kind == "not executable":
        site.put(path, mode=0o644)
    elif kind == "folder":
        os.mkdir(path)
    else:
        os.symlink("/nosuch/file", path)
    assert site.order("bridged") == Plan()


@pytest.mark.parametrize("more", ["; logger done", "&& touch /x", "| cat", "& wait"])
def test_a_script_that_does_more_than_start_us_is_the_sites(site: Site, more: str) -> None:
    path = site.ganeti("network/bridged/up", f'#!/bin/sh\n{site.hooks}/kvm-nic-setup "$@" {more}\n')
    assert not is_door(path, site.hooks)
    assert site.names(site.order("bridged").up) == ["network/bridged/up"]


def test_environment() -> None:
    """What Ganeti 3.2 gives: ACTION as it is now, no phase of an earlier call, the device, which is nowhere else; no arguments."""
    given = {"MODE": "ext", "ACTION": "up", "MIGRATION_PHASE": "post", "LINK": "x"}
    call = Call("tap0", "shutdown", given, "uuid", "", "/record")
    found = environment(call, "down")
    assert (found[b"ACTION"], found[b"INTERFACE"], found[b"LINK"]) == (b"down", b"tap0", b"x")
    assert b"MIGRATION_PHASE" not in found
    assert environment(call._replace(phase="pre"), "up")[b"MIGRATION_PHASE"] == b"pre"
    assert environment(call)[b"ACTION"] == b"up"
    (script,) = [custom.Script("/x", arguments=False, action="down")]
    assert not script.arguments


class TestForANic:
    """netcommon.lifecycle.site_scripts: which NIC gets which."""

    @pytest.fixture
    def sim(self, tmp_path: Path) -> Sim:
        return Sim(str(tmp_path))

    def put(self, sim: Sim, name: str) -> None:
        path = Path(sim.paths.ganeti_etc, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(OK)
        path.chmod(0o755)

    def test_its_mode_counts(self, sim: Sim) -> None:
        self.put(sim, "network/routed/up")
        assert Scripts(sim.node, sim.call(), nic("routed")).instead
        assert not Scripts(sim.node, sim.call(), nic("bridged")).instead

    def test_a_communication_nic_has_none(self, sim: Sim) -> None:
        self.put(sim, "network/routed/up")
        assert not Scripts(sim.node, sim.call(), nic("routed", INTERFACE="gnt.com.0")).instead

    def test_xen(self, sim: Sim) -> None:
        self.put(sim, "kvm-vif-bridge")
        assert not Scripts(sim.node, sim.call(), nic("bridged", XENBUS_PATH="backend/vif/1/0")).any
        assert Scripts(sim.node, sim.call(), nic("bridged")).instead

    def test_ext_without_a_script(self, sim: Sim) -> None:
        """A failure in Ganeti 3.2; with 3.0 and 3.1, whose scripts do nothing in this mode either, it is none."""
        with pytest.raises(HostRefused, match="network/ext/up"):
            Scripts(sim.node, sim.call()._replace(door="kvm-nic-setup"), nic("ext")).check()
        Scripts(sim.node, sim.call()._replace(door="kvm-ifup"), nic("ext")).check()
        assert any("network/ext/up, no other of the site's and no extension, so nothing is done" in line for line in sim.lines)
        del sim.lines[:]
        Scripts(sim.node, sim.call(), nic("bridged")).check()
        self.put(sim, "network/ext/up")
        Scripts(sim.node, sim.call()._replace(door="kvm-ifup"), nic("ext")).check()
        assert sim.lines == []
        Scripts(sim.node, sim.call()._replace(door="kvm-nic-setup"), nic("ext")).check()

    def test_an_override_that_others_can_write(self, sim: Sim) -> None:
        self.put(sim, "network/bridged/up")
        os.chmod(f"{sim.paths.ganeti_etc}/network/bridged/up", 0o777)
        with pytest.raises(HostRefused, match="can be written by everybody"):
            Scripts(sim.node, sim.call(), nic("bridged")).check()
