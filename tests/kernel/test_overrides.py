"""network/<mode>/up and down of Ganeti 3.2 through kvm-nic-setup, as processes in a namespace, with scripts that really do something."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.support.netns import ask, run
from tests.support.node import Node
from tests.support.rundoor import HOOKS, Outcome, rundoor
from tests.support.snapshot import diff, snapshot

UUID = "13264fb6-0667-415f-9a43-786dc01cbf24"
NIC = {
    "INTERFACE": "tap0",
    "MODE": "bridged",
    "LINK": "br0",
    "BRIDGE": "br0",
    "MAC": "aa:00:00:12:34:56",
    "VLAN": "",
    "INSTANCE": "web1.example",
    "INTERFACE_INDEX": "0",
    "INTERFACE_UUID": UUID,
    "TAGS": "b a",
}
ROUTED = {**NIC, "MODE": "routed", "LINK": "100", "IP": "10.0.0.5"}
EXT = {**NIC, "MODE": "ext", "LINK": "any thing"}
DUMMY = 'ip link set "$INTERFACE" master other up'


@pytest.fixture
def site(node: Node) -> Node:
    node.bridge("br0")
    node.bridge("other")
    node.tap("tap0", persistent=True).close()  # nobody holds it: a down in context shutdown is not put off
    for action in ("up", "down"):
        assert setup(action, ROUTED).status == 0
    return node


def script(mode: str, action: str, body: str, name: str = "") -> None:
    path = Path(name or f"/etc/ganeti/network/{mode}/{action}")
    path.parent.mkdir(parents=True, exist_ok=True)
    note = f'echo "{mode} $ACTION $INTERFACE $MODE ${{MIGRATION_PHASE:-none}} $NETCOMMON_CONTEXT $#" >>/run/noted'
    path.write_text(f"#!/bin/sh\n{note}\n{body}\n")
    path.chmod(0o755)


def noted() -> list[str]:
    path = Path("/run/noted")
    found = path.read_text().splitlines() if path.exists() else []
    path.unlink(missing_ok=True)
    return found


def setup(action: str, nic: dict[str, str], **more: str) -> Outcome:
    return rundoor("kvm-nic-setup", {**nic, "ACTION": action, **more})


def master() -> str:
    found: str = ask("ip", "-j", "link", "show", "tap0")[0].get("master", "")
    return found


def record() -> dict[str, object]:
    found: dict[str, object] = json.loads(Path(f"/run/netcommon/nics/{UUID}.json").read_text())
    return found


def test_instead_of_the_built_in(site: Node) -> None:
    """For exactly this mode; the record says that nothing of ours was done."""
    before = snapshot()
    script("bridged", "up", DUMMY)
    script("bridged", "down", 'ip link set "$INTERFACE" nomaster down')
    done = setup("up", NIC)
    assert (done.status, done.stdout, done.stderr) == (0, "", "")
    assert (master(), noted()) == ("other", ["bridged up tap0 bridged none up 0"])
    assert (record()["operations"], record()["state"], record()["scripts"]) == ([], "up", True)
    assert setup("up", NIC).status == 0
    assert noted() == []
    done = setup("down", NIC)
    assert (done.status, done.stderr) == (0, "")
    assert (master(), noted()) == ("", ["bridged down tap0 bridged none shutdown 0"])
    assert setup("down", NIC).status == 0  # Ganeti 3.2 calls it several times
    assert noted() == []
    assert diff(before, snapshot()) == []

    assert setup("up", ROUTED).status == 0
    assert [route["dst"] for route in ask("ip", "-j", "route", "show", "table", "100")] == ["10.0.0.5"]
    assert setup("down", ROUTED).status == 0
    assert (noted(), diff(before, snapshot())) == ([], [])


@pytest.mark.parametrize("up", ["kvm-ifup", "kvm-nic-setup"])
def test_under_every_version(site: Node, up: str) -> None:
    """3.0 and 3.1 give no ACTION, and of QEMU's own downscript nobody knows the environment."""
    script("bridged", "up", DUMMY)
    script("bridged", "down", 'ip link set "$INTERFACE" nomaster down')
    assert rundoor(up, NIC).status == 0
    assert (master(), noted()) == ("other", ["bridged up tap0 bridged none up 0"])
    assert rundoor("kvm-ifdown", {"LINK": "stray"}, "tap0").status == 0
    assert (master(), noted()) == ("", ["bridged down tap0 bridged none shutdown 0"])


def test_what_was_done_at_up_is_undone(site: Node) -> None:
    """The built-in's up is undone by us, though there is an override by then; and an override's up is not undone by us."""
    before = snapshot()
    assert setup("up", ROUTED).status == 0
    script("routed", "up", "exit 1")
    script("routed", "down", "true")
    assert setup("down", ROUTED).status == 0
    assert diff(before, snapshot()) == []
    noted()

    script("routed", "up", "ip route add 10.0.0.5 dev br0 table 200")
    assert setup("up", ROUTED).status == 0
    for action in ("up", "down"):
        os.unlink(f"/etc/ganeti/network/routed/{action}")
    assert setup("down", ROUTED).status == 0
    assert [route["dst"] for route in ask("ip", "-j", "route", "show", "table", "200")] == ["10.0.0.5"]
    run("ip", "route", "del", "10.0.0.5", "table", "200")
    assert diff(before, snapshot()) == []


def test_a_down_alone(site: Node) -> None:
    """Ganeti's own downs are empty, and a site may have filled one in: it runs, and what we have done is undone all the same."""
    before = snapshot()
    script("bridged", "down", 'ip -o link show "$INTERFACE" | grep -o "master [^ ]*" >>/run/noted')
    assert setup("up", NIC).status == 0
    assert (master(), noted()) == ("br0", [])
    assert setup("down", NIC).status == 0
    assert noted() == ["bridged down tap0 bridged none shutdown 0", "master br0"]
    assert diff(before, snapshot()) == []


def test_mode_ext(site: Node) -> None:
    before = snapshot()
    done = setup("up", EXT)
    assert done.status == 69 and "there is no script /etc/ganeti/network/ext/up" in done.stderr
    assert setup("down", EXT).status == 0
    script("ext", "up", DUMMY)
    script("ext", "down", 'ip link set "$INTERFACE" nomaster down')
    assert setup("up", EXT, MIGRATION_PHASE="pre").status == 0
    assert (master(), noted()) == ("other", ["ext up tap0 ext pre up 0"])
    assert setup("down", EXT).status == 0
    assert (master(), noted()) == ("", ["ext down tap0 ext none shutdown 0"])
    assert diff(before, snapshot()) == []


def test_order_with_other_scripts(site: Node) -> None:
    script("bridged", "up", DUMMY)
    script("bridged", "down", "true")
    for name in ("kvm-vif-bridge", "kvm-ifup-custom", "kvm-ifdown-custom"):
        script(name, "", "true", f"/etc/ganeti/{name}")
    for name in ("ifup.d", "ifdown.d"):
        script(name, "", "true", f"/etc/netcommon/{name}/10-site")
    assert setup("up", NIC).status == 0
    assert [line.split()[0] for line in noted()] == ["bridged", "kvm-ifup-custom", "ifup.d"]
    assert setup("down", NIC).status == 0
    assert [line.split()[0] for line in noted()] == ["bridged", "kvm-ifdown-custom", "ifdown.d"]


def test_a_failing_override(site: Node) -> None:
    """The NIC is rolled back, by the site's own down, and the hypervisor hears why."""
    before = snapshot()
    script("bridged", "up", f"{DUMMY}; echo the reason; exit 3")
    script("bridged", "down", 'ip link set "$INTERFACE" nomaster down')
    done = setup("up", NIC)
    assert done.status == 69 and "network/bridged/up ended with status 3: the reason" in done.stderr
    assert noted() == ["bridged up tap0 bridged none up 0", "bridged down tap0 bridged none rollback 0"]
    assert diff(before, snapshot()) == []


@pytest.mark.parametrize("kind", ["link", "link to the name that Ganeti calls", "wrapper"])
def test_our_own_door_there(site: Node, kind: str) -> None:
    """A site may have wired us in that way, with Ganeti's own kvm-nic-setup before us: called there, we do the built-in, once."""
    before = snapshot()
    folder = Path("/etc/ganeti/network/bridged")
    folder.mkdir(parents=True)
    for action in ("up", "down"):
        if kind == "wrapper":
            (folder / action).write_text(f'#!/bin/sh\nACTION={action} exec {HOOKS}/kvm-nic-setup "$@"\n')
            (folder / action).chmod(0o755)
        elif kind == "link":
            (folder / action).symlink_to(HOOKS / "kvm-nic-setup")
        else:
            Path(f"/etc/ganeti/{action}-hook").symlink_to(HOOKS / "kvm-nic-setup")
            (folder / action).symlink_to(f"/etc/ganeti/{action}-hook")
    for door in ("kvm-nic-setup", str(folder)):
        names = [door, door] if door == "kvm-nic-setup" else [f"{door}/up", f"{door}/down"]
        done = rundoor(names[0], {**NIC, "ACTION": "up"})
        assert (done.status, done.stderr, master()) == (0, "", "br0")
        assert record()["operations"]
        done = rundoor(names[1], {**NIC, "ACTION": "down"})
        assert (done.status, done.stderr, master()) == (0, "", "")
    assert diff(before, snapshot()) == []


@pytest.mark.parametrize("nic", [EXT, NIC], ids=["ext", "bridged"])
def test_an_override_hears_that_the_guest_has_arrived(site: Node, nic: dict[str, str]) -> None:
    """Ganeti 3.2 calls it before a migration and after it; a failure of the second call is told, and leaves the NIC as it is."""
    script(nic["MODE"], "up", '[ "$MIGRATION_PHASE" != post ] || [ ! -e /run/fail ]')
    assert setup("up", nic, MIGRATION_PHASE="pre").status == 0
    assert setup("up", nic, MIGRATION_PHASE="post").status == 0
    assert setup("up", nic).status == 0
    assert [line.split()[4] for line in noted()] == ["pre", "post"]
    Path("/run/fail").touch()
    before = snapshot()
    outcome = setup("up", nic, MIGRATION_PHASE="post")
    assert outcome.status == 69 and f"network/{nic['MODE']}/up" in outcome.stderr
    assert noted() != [] and diff(before, snapshot()) == []
    os.unlink("/run/fail")
    assert setup("down", nic).status == 0
