"""Instance communication NICs on a simulated node: one daemon for all of them, whatever dies when."""

from __future__ import annotations

from pathlib import Path

import pytest

from netcommon.host.api.requests import Hangup, StartDaemon, StopDaemon
from netcommon.lifecycle import check
from netcommon.modes.instance_communication import OPTIONS
from netcommon.plan.planner import plan
from netcommon.scripts.kvm_ifup_os import own_script
from netcommon.settings.model import Settings
from runtime.environment import nic_from_environment
from runtime.errors import HostRefused, NicInvalid
from runtime.nic import Nic
from runtime.paths import Paths
from tests.support.sim import BASE, UUIDS, Mortal, Sim

TAPS = ("gnt.com.0", "gnt.com.1")


def nic(number: int = 0, **changes: str) -> Nic:
    """The communication NIC of one of two instances."""
    mine = {"INTERFACE": TAPS[number], "INSTANCE": f"web{number}", "INTERFACE_UUID": UUIDS[number], "MAC": f"52:54:00:00:00:0{number}"}
    return nic_from_environment({**BASE, **mine, "MODE": "routed", "LINK": "communication_rt", "IP": f"169.254.0.{number + 1}", **changes})


@pytest.fixture
def sim(tmp_path: Path) -> Sim:
    return machine(tmp_path)


def machine(folder: Path) -> Sim:
    """With the taps, and no other guest."""
    made = Sim(str(folder))
    made.host.remove_link("tap0")
    for name in TAPS:
        made.tap(name)
    made.before = made.picture()
    return made


def hosts(sim: Sim) -> dict[str, str]:
    """What dnsmasq finds in its folder: by file, the line under our mark."""
    return {file.name: file.content.split("\n", 1)[1] for file in sim.host.view().files() if file.folder == "communication/hosts"}


def test_one_daemon_for_all(sim: Sim) -> None:
    sim.up(nic(0))
    first = sim.host.view().daemon("communication")
    assert first is not None and first.options == OPTIONS
    sim.host.requests.clear()
    sim.up(nic(1))
    assert sim.host.view().daemon("communication") == first
    assert Hangup("communication/pid", "dnsmasq") in sim.host.requests
    assert hosts(sim) == {UUIDS[0]: "52:54:00:00:00:00,169.254.0.1\n", UUIDS[1]: "52:54:00:00:00:01,169.254.0.2\n"}
    sim.down(nic(0))
    assert sim.host.view().daemon("communication") == first and list(hosts(sim)) == [UUIDS[1]]
    assert not any(isinstance(request, StopDaemon) for request in sim.host.requests)
    sim.down(nic(1))
    assert sim.picture() == sim.before


def test_a_late_down_leaves_the_next_guest_its_file(sim: Sim) -> None:
    """The same NIC came up again on another tap while the first one is alive yet."""
    sim.up(nic(0))
    sim.up(nic(0, INTERFACE=TAPS[1]))
    sim.host.remove_link(TAPS[0])
    sim.gc()
    assert list(hosts(sim)) == [UUIDS[0]] and sim.host.view().daemon("communication")
    assert check.check(sim.node, sim.host.view(), sim.record()).good


@pytest.mark.parametrize("story", ["up", "up of the second", "down", "down of the second", "gc"])
def test_killed_anywhere(tmp_path: Path, story: str) -> None:
    """With the devices gone one gc leaves nothing; with them there, one up makes it whole."""

    def before(sim: Sim) -> None:
        if story != "up":
            sim.up(nic(0))
        if story == "down of the second":
            sim.up(nic(1))
        if story == "gc":
            sim.host.remove_link(TAPS[0])

    def hook(sim: Sim) -> None:
        if story == "gc":
            sim.gc()
        elif story.startswith("up"):
            sim.up(nic(int(story != "up")))
        else:
            sim.down(nic(int(story != "down")))

    whole = machine(tmp_path / "whole")
    before(whole)
    with Mortal(whole) as mortal:
        hook(whole)
    assert len(mortal.steps) > 5
    for life in range(len(mortal.steps)):
        sim = machine(tmp_path / str(life))
        before(sim)
        with Mortal(sim, life):
            hook(sim)
        if story == "gc":
            sim.tap(TAPS[0])
        for number in (0, 1):
            sim.up(nic(number))
        assert len(hosts(sim)) == 2 and sim.host.view().daemon("communication"), life
        assert all(check.check(sim.node, sim.host.view(), record).good for record in sim.records()), life
        with Mortal(sim, 3):
            sim.down(nic(0))
        for name in TAPS:
            sim.host.remove_link(name)
        sim.gc()
        assert hosts(sim) == {} and sim.picture()["daemons"] == {} and sim.files() == [], life


def test_a_daemon_without_a_record_goes(sim: Sim) -> None:
    sim.host.execute([StartDaemon("communication", "/usr/sbin/dnsmasq", OPTIONS)], stop=True)
    assert [found.action for found in sim.gc(dry_run=True)] == ["would be removed"]
    assert [found.action for found in sim.gc()] == ["removed"]
    assert sim.picture() == sim.before


def test_without_dnsmasq_it_is_refused(sim: Sim) -> None:
    sim.host.daemons.programs.clear()
    with pytest.raises(HostRefused, match="apt install dnsmasq-base"):
        sim.up(nic())
    assert sim.picture() == sim.before and sim.records() == []


def test_a_killed_daemon_is_drift(sim: Sim) -> None:
    sim.up(nic())
    sim.host.daemons.end("communication")
    report = check.check(sim.node, sim.host.view(), sim.record())
    assert [text for _operation, text in report.drift] == ["it does not run"]
    assert check.repair(sim.node, UUIDS[0], sim.call()).changed
    assert check.check(sim.node, sim.host.view(), sim.record()).good


def test_aliases_are_warned_of(sim: Sim) -> None:
    """Ganeti would stumble over another guest's at the next start."""
    sim.up(nic(0))
    assert [line for line in sim.lines if line.startswith("warning") and "tap_alias = false" in line]
    sim.lines.clear()
    sim.settings = sim.settings._replace(tap_alias=False)
    sim.up(nic(1))
    assert not [line for line in sim.lines if line.startswith("warning")]


@pytest.mark.parametrize(("changes", "variable"), [({"MAC": ""}, "MAC"), ({"IP": "fe80::1"}, "IP")])
def test_what_is_missing(changes: dict[str, str], variable: str) -> None:
    with pytest.raises(NicInvalid) as caught:
        plan(nic(0, **changes), Settings())
    assert str(caught.value).startswith(variable)


def test_a_length_of_the_address_says_nothing(sim: Sim) -> None:
    sim.up(nic(IP="169.254.0.1/16"))
    assert hosts(sim) == {UUIDS[0]: "52:54:00:00:00:00,169.254.0.1\n"}


def test_aliases_can_be_switched_off() -> None:
    """For all NICs; those of communication never have one."""
    other = nic(INTERFACE="tap0", IP="10.0.0.1", LINK="")
    kinds = [[one._asdict().get("setting") for one in plan(each, settings)] for each in (nic(), other) for settings in (Settings(), OFF)]
    assert ["alias" in found for found in kinds] == [False, False, True, False]


OFF = Settings(tap_alias=False)


@pytest.mark.parametrize(
    ("how", "runs"), [("none", False), ("copy", False), ("link", False), ("linked away", False), ("own", True), ("edited", True)]
)
def test_whose_script_it_is(tmp_path: Path, how: str, runs: bool) -> None:
    """Ganeti's own, however it got there, is not the site's; nor is a file that nobody may execute."""
    paths = Paths.under(str(tmp_path))
    shipped, script = Path(paths.ganeti_lib, "kvm-ifup-os"), Path(paths.ganeti_etc, "kvm-ifup-os")
    real = tmp_path / "usr/lib/ganeti/3.0/kvm-ifup-os"
    for path in (shipped, script, real):
        path.parent.mkdir(parents=True, exist_ok=True)
    real.write_text("#!/bin/bash\nshipped\n")
    shipped.symlink_to(real)
    if how in ("link", "linked away"):
        script.symlink_to(shipped if how == "link" else real)
    elif how != "none":
        script.write_text({"copy": real.read_text(), "own": "#!/bin/sh\nown\n", "edited": real.read_text() + "more\n"}[how])
    for path in (script, real):
        if path.exists():
            path.chmod(0o755)
    assert bool(own_script(paths, "/nowhere")) is runs
    if runs:
        script.chmod(0o644)
        assert own_script(paths, "/nowhere") == ()
