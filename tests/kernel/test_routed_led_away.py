"""Rules of others for a routed NIC's tap, before ours: check, explain and doctor name them where packets go another way, and no others."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from netcommon.doctor import findings
from runtime.paths import Paths
from tests.support.bootstrap import VENV
from tests.support.netns import run
from tests.support.node import Node
from tests.support.routed import FAR4, FAR6, GATEWAY4, TABLE, Site, drift, options, reaches
from tests.support.rundoor import rundoor

HOST = {4: "192.0.2.5", 6: "2001:db8:f::5"}
FAR = {4: FAR4, 6: FAR6}
TAGS = options("uplink_proxy:both", f"addresses:{HOST[6]}", "rp_filter:off")

#: What is added after the up, whether the guest reaches the other side still, and the rule's words in what is said; "" nothing is.
RULES = {
    "prohibit": ("iif tap0 prohibit preference 100", False, "iif tap0 prohibit"),
    "unreachable": ("iif tap0 unreachable preference 100", False, "iif tap0 unreachable"),
    "blackhole": ("iif tap0 blackhole preference 100", False, "iif tap0 blackhole"),
    "elsewhere": ("iif tap0 lookup 200 preference 100", False, "iif tap0 lookup 200"),
    "goto": ("iif tap0 goto 32766 preference 100", False, "iif tap0 goto 32766"),
    "goto nowhere": ("iif tap0 goto 31000 preference 100", True, ""),
    "goto ours": ("iif tap0 goto 450 preference 100", True, ""),
    "later": ("iif tap0 prohibit preference 600", True, ""),
    "another": ("iif tap1 prohibit preference 100", True, ""),
    "some": ("iif tap0 tos 0x10 prohibit preference 100", True, ""),
}


def said(family: int) -> list[str]:
    """Ask check, explain and doctor: what each says of a rule that leads the NIC's packets elsewhere, or drops them."""
    program = str(VENV / "bin/netcommon")
    checked = subprocess.run([program, "check", "tap0"], capture_output=True, text=True, check=False)
    explained = json.loads(subprocess.run([program, "explain", "--json", "tap0"], capture_output=True, text=True, check=False).stdout)
    doctor = [f"{each.text}: {each.remedy}" for each in findings(Paths()) if each.text.startswith("web1/0: policy rule")]
    lines = [line for line in checked.stdout.splitlines() if "policy rule" in line]
    assert checked.returncode == (1 if lines else 0), checked
    why = [each for each in explained["nics"][0]["dropped"] if "policy rule" in each]
    assert bool(lines) == bool(why) == bool(doctor)
    assert all(f"ip -{family} rule del " in line for line in [*lines, *doctor])
    return [*lines, *why, *doctor]


@pytest.mark.parametrize("mark", [False, True], ids=["rule", "mark"])
@pytest.mark.parametrize("family", [4, 6])
@pytest.mark.parametrize("kind", RULES)
def test_packets_decide(node: Node, kind: str, family: int, mark: bool) -> None:
    if mark:
        Path("/etc/netcommon").mkdir(exist_ok=True)
        Path("/etc/netcommon/config.toml").write_text("[rules]\nmark = 0xfff0000\n")
    site = Site(node, TABLE)
    run("ip", f"-{family}", "route", "add", "unreachable", "default", "table", "200")
    run("ip", f"-{family}", "rule", "add", "lookup", "201", "preference", "450")  # an empty table: what goes there reaches ours
    guest = site.guest(*HOST.values())
    site.up(site.nic(IP=HOST[4], TAGS=TAGS))
    assert reaches(guest, FAR[family], source=HOST[family]) and said(family) == []
    words, passes, named = RULES[kind]
    run("ip", f"-{family}", "rule", "add", *words.split())
    assert bool(reaches(guest, FAR[family], source=HOST[family])) == passes
    lines = said(family)
    assert bool(lines) == (not passes) and all(named in line for line in lines) and drift() == []
    if named:
        run(*lines[0].rpartition(": ")[2].split())  # what it says removes it
        assert reaches(guest, FAR[family], source=HOST[family]) and said(family) == []


def test_what_is_meant(node: Node) -> None:
    """A site that lets a guest reach one network alone has said so by rules; nothing is wrong."""
    site = Site(node, TABLE)
    guest = site.guest(HOST[4])
    site.up(site.nic(IP=HOST[4], TAGS=TAGS))
    for each in (FAR4, GATEWAY4):  # the gateway too, or the node does not answer for it
        run("ip", "rule", "add", "iif", "tap0", "to", each, "lookup", TABLE, "preference", "100")
    run("ip", "rule", "add", "iif", "tap0", "prohibit", "preference", "101")
    assert reaches(guest, FAR4, source=HOST[4]) and said(4) == []


@pytest.mark.parametrize(("words", "status"), [("prohibit", 0), ("goto 32766", 69), ("lookup 200", 69)])
def test_a_new_nic(node: Node, words: str, status: int) -> None:
    """One that would have another's network is refused; one that would have none is told of."""
    site = Site(node, TABLE)
    site.guest(HOST[4])
    run("ip", "rule", "add", "iif", "tap0", *words.split(), "preference", "100")
    done = rundoor("kvm-ifup", site.nic(IP=HOST[4], TAGS=TAGS))
    assert done.status == status and f"ip -4 rule del iif tap0 {words} preference 100" in done.stderr, done
