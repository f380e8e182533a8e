"""Rules of others for a routed NIC's tap, before ours: check, explain and doctor name them where packets go another way, and no others."""

from __future__ import annotations

import json
import subprocess
from ipaddress import ip_address, ip_network
from pathlib import Path

import pytest

from netcommon.doctor import findings
from runtime.paths import Paths
from tests.support.bootstrap import VENV
from tests.support.netns import Namespace, run, wait_until
from tests.support.node import Node
from tests.support.routed import FAR4, FAR6, GATEWAY4, TABLE, Site, drift, options, reaches
from tests.support.rundoor import rundoor

pytestmark = pytest.mark.sampled(10)

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
    "not it": ("not iif tap0 lookup 203 preference 100", True, ""),  # an empty table
    "its address": ("iif tap0 from HOST lookup 200 preference 100", False, "from HOST iif tap0 lookup 200"),
    "its network": ("iif tap0 from NET prohibit preference 100", False, "from NET iif tap0 prohibit"),
    "the network of others": ("iif tap0 from OTHER blackhole preference 100", True, ""),
    "no mark": ("iif tap0 fwmark 0/0x1 lookup 200 preference 100", False, "iif tap0 fwmark 0x0/0x1 lookup 200"),
    "no mark drops": ("iif tap0 fwmark 0/0x1 unreachable preference 100", False, "iif tap0 fwmark 0x0/0x1 unreachable"),
}

#: Those that take some packets alone: nothing is wrong with the NIC, and they are named. What is said of the rule.
PARTS = {
    "some": ("iif tap0 tos 0x10 prohibit preference 100", True, "iif tap0 prohibit, with more conditions, drops them"),
    "a protocol": ("iif tap0 ipproto PING lookup 200 preference 100", False, "iif tap0 lookup 200, with more conditions, leads them"),
    "another protocol": ("iif tap0 ipproto sctp blackhole preference 100", True, "iif tap0 blackhole, with more conditions, drops them"),
    "a mark": ("iif tap0 fwmark 0x1/0x1 lookup 200 preference 100", True, "iif tap0 fwmark 0x1/0x1 lookup 200 leads them past it"),
    "a destination": ("iif tap0 to FAR lookup 200 preference 100", False, "to FAR iif tap0 lookup 200 leads them past it"),
    "a half": ("iif tap0 to HALF prohibit preference 100", False, "to HALF iif tap0 prohibit drops them"),
    "not one": ("not to FAR iif tap0 lookup 203 preference 100", True, "not to FAR iif tap0 lookup 203 leads them past it"),
    "but for defaults": ("iif tap0 lookup 202 suppress_prefixlength 0 preference 100", True, "lookup 202, with more conditions, leads"),
}
HALVES = {4: ("0.0.0.0/1", "128.0.0.0/1"), 6: ("::/1", "8000::/1")}


def words_of(text: str, family: int) -> str:
    """Fill in what is of the family."""
    length = {4: 32, 6: 128}[family]
    places = {
        "HOST": f"{HOST[family]}/{length}",
        "FAR": f"{FAR[family]}/{length}",
        "NET": {4: "192.0.2.0/24", 6: "2001:db8:f::/64"}[family],
        "OTHER": {4: "203.0.113.0/24", 6: "2001:db8:77::/64"}[family],
        "HALF": next(each for each in HALVES[family] if ip_address(FAR[family]) in ip_network(each)),
        "PING": {4: "icmp", 6: "ipv6-icmp"}[family],
    }
    for name, value in places.items():
        text = text.replace(name, value)
    return text


def said(family: int) -> list[str]:
    """Ask check, explain and doctor: what each says of a rule that leads the NIC's packets elsewhere, or drops them."""
    program = str(VENV / "bin/netcommon")
    checked = subprocess.run([program, "check", "tap0"], capture_output=True, text=True, check=False)
    explained = json.loads(subprocess.run([program, "explain", "--json", "tap0"], capture_output=True, text=True, check=False).stdout)
    doctor = [f"{each.text}: {each.remedy}" for each in findings(Paths()) if each.text.startswith("web1/0: policy rule")]
    lines = [line for line in checked.stdout.splitlines() if "policy rule" in line and "without effect" not in line]
    assert checked.returncode == (1 if lines else 0), checked
    why = [each for each in explained["nics"][0]["dropped"] if "policy rule" in each]
    assert bool(lines) == bool(why) == bool(doctor)
    assert all(f"ip -{family} rule del " in line for line in [*lines, *doctor])
    return [*lines, *why, *doctor]


def acquainted(guest: Namespace, family: int) -> None:
    """Wait until both sides know their neighbours: an uplink that answers for a guest waits up to 0.8 s (proxy_delay, arp(7)) before."""
    wait_until(lambda: bool(reaches(guest, FAR[family], source=HOST[family])), 10, "the guest reaches the other side")


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
    acquainted(guest, family)
    assert said(family) == []
    words, passes, named = (words_of(each, family) if isinstance(each, str) else each for each in RULES[kind])
    run("ip", f"-{family}", "rule", "add", *words.split())
    assert bool(reaches(guest, FAR[family], source=HOST[family])) == passes
    lines = said(family)
    assert bool(lines) == (not passes) and all(named in line for line in lines) and drift() == []
    if named:
        run(*lines[0].rpartition(": ")[2].split())  # what it says removes it
        assert reaches(guest, FAR[family], source=HOST[family]) and said(family) == []


def noted(family: int) -> list[str]:
    """Ask check, which is content, and explain: what they call without effect."""
    program = str(VENV / "bin/netcommon")
    checked = json.loads(subprocess.run([program, "check", "--json", "tap0"], capture_output=True, text=True, check=True).stdout)
    explained = json.loads(subprocess.run([program, "explain", "--json", "tap0"], capture_output=True, text=True, check=True).stdout)
    idle = [each["why"] for each in checked["nics"][0]["idle"]]
    assert [each["differs"] for each in explained["nics"][0]["steps"] if each["differs"]] == idle
    return idle


@pytest.mark.parametrize("mark", [False, True], ids=["rule", "mark"])
@pytest.mark.parametrize("family", [4, 6])
@pytest.mark.parametrize("kind", PARTS)
def test_some_packets(node: Node, kind: str, family: int, mark: bool) -> None:
    if mark:
        Path("/etc/netcommon").mkdir(exist_ok=True)
        Path("/etc/netcommon/config.toml").write_text("[rules]\nmark = 0xfff0000\n")
    site = Site(node, TABLE)
    run("ip", f"-{family}", "route", "add", "unreachable", "default", "table", "200")
    guest = site.guest(*HOST.values())
    site.up(site.nic(IP=HOST[4], TAGS=TAGS))
    acquainted(guest, family)
    before = noted(family)
    words, passes, named = (words_of(each, family) if isinstance(each, str) else each for each in PARTS[kind])
    run("ip", f"-{family}", "rule", "add", *words.split())
    assert bool(reaches(guest, FAR[family], source=HOST[family])) == passes
    (line,) = [each for each in noted(family) if each not in before]
    assert line.startswith("for some packets: policy rule 100: ") and named in line
    run(*line.rpartition(": ")[2].removesuffix(", unless you mean it").split())
    assert reaches(guest, FAR[family], source=HOST[family]) and noted(family) == before


@pytest.mark.parametrize("action", ["lookup 200", "prohibit", "blackhole", "unreachable"])
@pytest.mark.parametrize("family", [4, 6])
def test_two_halves(node: Node, family: int, action: str) -> None:
    """Together they take all."""
    site = Site(node, TABLE)
    run("ip", f"-{family}", "route", "add", "unreachable", "default", "table", "200")
    guest = site.guest(*HOST.values())
    site.up(site.nic(IP=HOST[4], TAGS=TAGS))
    for each in HALVES[family]:
        run("ip", f"-{family}", "rule", "add", "iif", "tap0", "to", each, *action.split(), "preference", "100")
    assert reaches(guest, FAR[family], source=HOST[family]) == []
    lines = [line for line in said(family) if "rule del" in line]
    assert all(any(f"to {each} iif tap0 {action}" in line for line in lines) for each in HALVES[family])
    run(*lines[0].rpartition(": ")[2].split())
    assert not said(family) and len(noted(family)) == 1


def test_the_other_address(node: Node) -> None:
    """A guest with two addresses has lost one."""
    site = Site(node, TABLE)
    guest = site.guest(HOST[4], "192.0.2.6")
    site.up(site.nic(IP=HOST[4], TAGS=options("uplink_proxy:both", "addresses:192.0.2.6", "rp_filter:off")))
    run("ip", "rule", "add", "iif", "tap0", "from", "192.0.2.6", "prohibit", "preference", "100")
    assert reaches(guest, FAR4, source=HOST[4]) and not reaches(guest, FAR4, source="192.0.2.6") and said(4)


def test_rightly_led_before(node: Node) -> None:
    """What the guest sends is looked up in its own table before another rule comes."""
    site = Site(node, TABLE)
    guest = site.guest(HOST[4])
    site.up(site.nic(IP=HOST[4], TAGS=TAGS))
    run("ip", "rule", "add", "iif", "tap0", "from", "192.0.2.0/24", "lookup", TABLE, "preference", "100")
    run("ip", "rule", "add", "iif", "tap0", "lookup", "200", "preference", "101")
    run("ip", "route", "add", "unreachable", "default", "table", "200")
    assert reaches(guest, FAR4, source=HOST[4]) and said(4) == noted(4) == []


def test_what_is_meant(node: Node) -> None:
    """A site that lets a guest reach one network alone has said so by rules; nothing is wrong."""
    site = Site(node, TABLE)
    guest = site.guest(HOST[4])
    site.up(site.nic(IP=HOST[4], TAGS=TAGS))
    for each in (FAR4, GATEWAY4):  # the gateway too, or the node does not answer for it
        run("ip", "rule", "add", "iif", "tap0", "to", each, "lookup", TABLE, "preference", "100")
    run("ip", "rule", "add", "iif", "tap0", "prohibit", "preference", "101")
    assert reaches(guest, FAR4, source=HOST[4]) and said(4) == []


@pytest.mark.parametrize(
    ("words", "status"),
    [
        ("iif tap0 prohibit", 0),
        ("iif tap0 goto 32766", 69),
        ("iif tap0 lookup 200", 69),
        ("iif tap0 fwmark 0x0/0x1 lookup 200", 69),
        ("from 192.0.2.5/32 iif tap0 lookup 200", 0),
        ("to 203.0.113.0/24 iif tap0 lookup 200", 0),
    ],
)
def test_a_new_nic(node: Node, words: str, status: int) -> None:
    """One that would have another's network is refused; one that would have none is told of."""
    site = Site(node, TABLE)
    site.guest(HOST[4])
    run("ip", "rule", "add", *words.split(), "preference", "100")
    done = rundoor("kvm-ifup", site.nic(IP=HOST[4], TAGS=TAGS))
    assert done.status == status and f"ip -4 rule del {words} preference 100" in done.stderr, done
    assert run("ip", "rule", "del", *words.split(), "preference", "100") == ""


@pytest.mark.parametrize(
    ("actions", "status"), [(("lookup 200", "lookup 201"), 69), (("lookup 200", "blackhole"), 69), (("blackhole", "blackhole"), 0)]
)
def test_a_new_nic_with_halves(node: Node, actions: tuple[str, str], status: int) -> None:
    site = Site(node, TABLE)
    site.guest(HOST[4])
    for each, action in zip(HALVES[4], actions, strict=True):
        run("ip", "rule", "add", "to", each, "iif", "tap0", *action.split(), "preference", "100")
    assert rundoor("kvm-ifup", site.nic(IP=HOST[4], TAGS=TAGS)).status == status
