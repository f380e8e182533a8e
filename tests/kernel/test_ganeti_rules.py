"""Rules that Ganeti's own script has left, in the real kernel: the next guest of the tap's name goes by its own NIC's table."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.netns import ask, run
from tests.support.node import Node
from tests.support.rundoor import rundoor
from tests.support.tap import Tap

ROOT = Path(__file__).parents[2]
ADDRESS, FAR = "10.0.0.5", "198.51.100.1"
OWN, OTHERS = "100", "200"  #: the NIC's table, and another customer's
NIC = {
    "INTERFACE": "tap0",
    "MODE": "routed",
    "IP": ADDRESS,
    "MAC": "aa:00:00:00:00:01",
    "VLAN": "",
    "TAGS": "",
    "INSTANCE": "web1",
    "INTERFACE_INDEX": "0",
    "INTERFACE_UUID": "00000001-0667-415f-9a43-786dc01cbf24",
}

#: Rules beside those of Ganeti's script: none, the administrator's as in a laboratory of Ganeti's, and one of ours.
BESIDE = {"nothing": (), "the administrator's": ("iif", "up0", "lookup", OWN, "preference", "1000")}


@pytest.fixture
def routers(node: Node) -> None:
    """Each table has a way out of its own."""
    node.forwarding()
    for name, table in (("up0", "main"), ("up1", OWN), ("up2", OTHERS)):
        run("ip", "link", "add", name, "type", "bridge")
        run("ip", "link", "set", name, "up")
        run("ip", "route", "add", "default", "dev", name, "table", table)


def as_ganetis_script(device: str, table: str) -> None:
    """Do what its net-common does of rules for a routed NIC with a LINK."""
    while subprocess.run(["ip", "rule", "del", "dev", device], capture_output=True, check=False).returncode == 0:
        pass
    run("ip", "rule", "add", "dev", device, "table", table)


def ended(*devices: str) -> None:
    """Guests whose NICs its script brought up, one after the other, and that are gone."""
    taps = [Tap(name) for name in devices]
    for tap in taps:
        as_ganetis_script(tap.name, OTHERS)
        tap.close()


def rules() -> list[tuple[int, str, str]]:
    return [(rule["priority"], rule["iif"], rule["table"]) for rule in ask("ip", "-j", "rule") if "iif" in rule]


def way() -> str:
    """Where the guest's packets leave."""
    return str(ask("ip", "-j", "route", "get", FAR, "from", ADDRESS, "iif", "tap0")[0]["dev"])


@pytest.mark.usefixtures("routers")
@pytest.mark.parametrize("beside", BESIDE)
@pytest.mark.parametrize(("link", "uplink"), [("", "up0"), ("main", "up0"), ("up0", "up0"), (OWN, "up1")])
def test_the_next_guest_goes_by_its_own_table(node: Node, link: str, uplink: str, beside: str) -> None:
    if BESIDE[beside]:
        run("ip", "rule", "add", *BESIDE[beside])
    before = rules()
    ended("tap1", "tap0")
    with_theirs = rules()
    assert [iif for _preference, iif, _table in with_theirs[:2]] == ["tap0", "tap1"]
    node.tap("tap0")
    done = rundoor("kvm-ifup", {**NIC, "LINK": link})
    assert done.status == 0, done.stderr
    assert way() == uplink
    own = [(500, "tap0", OWN)] if link == OWN else []
    assert rules() == [*own, with_theirs[1], *before]


@pytest.mark.usefixtures("routers")
def test_the_administrators_rule_is_not_ganetis(node: Node) -> None:
    run("ip", "rule", "add", "iif", "tap0", "lookup", OTHERS, "preference", "900")
    node.tap("tap0")
    done = rundoor("kvm-ifup", NIC)
    assert done.status == 69 and "ip -4 rule del iif tap0 lookup 200 preference 900" in done.stderr
    assert rules() == [(900, "tap0", OTHERS)]
    assert "state DOWN" in run("ip", "link", "show", "tap0")


@pytest.mark.usefixtures("routers")
def test_where_ganetis_script_was_at_work_beside_us(node: Node) -> None:
    """Its rule then comes before ours, and every start on that tap was refused."""
    node.tap("tap0")
    node.tap("tap1")
    second = {**NIC, "INTERFACE": "tap1", "IP": "10.0.0.6", "INTERFACE_UUID": NIC["INTERFACE_UUID"].replace("1", "2", 1)}
    assert rundoor("kvm-ifup", {**second, "LINK": OWN}).status == 0
    as_ganetis_script("tap0", OTHERS)
    assert rules()[0] == (499, "tap0", OTHERS)
    done = rundoor("kvm-ifup", {**NIC, "LINK": OWN})
    assert done.status == 0, done.stderr
    assert way() == "up1"


@pytest.mark.no_agent("an agent collects by itself")
@pytest.mark.usefixtures("node")
def test_gc_collects_them() -> None:
    before = rules()
    ended("tap0", "tap1")
    run("ip", "rule", "add", "iif", "tap9", "lookup", OTHERS, "preference", "900")
    done = subprocess.run([sys.executable, "-m", "netcommon.cli", "gc"], capture_output=True, text=True, cwd=ROOT, check=False)
    assert (done.returncode, done.stdout.count("left by Ganeti's own script")) == (0, 2), done
    assert rules() == [(900, "tap9", OTHERS), *before]
