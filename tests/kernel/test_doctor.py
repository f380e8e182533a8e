"""Doctor on a real kernel: it sees what Ganeti's own script leaves behind, its remedies work, and it changes nothing."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from netcommon.doctor import Finding, findings
from runtime.paths import Paths
from tests.support.netns import run, sysctl
from tests.support.node import Node
from tests.support.ovs import SOCKET, OpenVswitch
from tests.support.routed import Site


def seen(root: Path, topic: str) -> list[Finding]:
    return [finding for finding in findings(Paths.under(str(root))._replace(proc="/proc"), root=str(root)) if finding.topic == topic]


def state() -> str:
    return "".join(run("ip", *words) for words in (("link",), ("rule",), ("-6", "rule"), ("route", "show", "table", "all"), ("address",)))


def test_rules_of_taps_that_are_gone(node: Node, tmp_path: Path) -> None:
    tap = node.tap("tap5")
    for option in ("-4", "-6"):
        run("ip", option, "rule", "add", "iif", "tap5", "lookup", "100")
    run("ip", "rule", "add", "iif", "eth9", "lookup", "100")
    assert seen(tmp_path, "leftovers") == []
    tap.close()
    found = seen(tmp_path, "leftovers")
    assert len(found) == 2
    for finding in found:
        run(*shlex.split(finding.remedy))
    assert seen(tmp_path, "leftovers") == []
    assert "eth9" in run("ip", "rule")


def test_a_bond_of_open_vswitch_without_one_of_its_devices(node: Node, ovs: OpenVswitch, tmp_path: Path) -> None:
    ovs.bridge("ovs0")
    node.outside("up0")
    ovs.vsctl("add-bond", "ovs0", "bond0", "up0", "up9")

    def said() -> list[Finding]:
        paths = Paths.under(str(tmp_path))._replace(proc="/proc", ovsdb=SOCKET)
        return [each for each in findings(paths, root=str(tmp_path)) if each.topic == "ovs" and each.level != "ok"]

    (finding,) = said()
    assert finding.text == "bond bond0 on ovs0: its member up9 is not there"
    run(*shlex.split(finding.remedy.partition("; ")[2].partition(", where")[0]))
    assert said() == [] and ovs.vsctl("list-ifaces", "ovs0") == "up0"


def test_examining_changes_nothing(node: Node, tmp_path: Path) -> None:
    node.bridge("br0")
    node.tap("tap0")
    before = state()
    assert findings(Paths.under(str(tmp_path))._replace(proc="/proc"), root=str(tmp_path))
    assert state() == before


def test_a_file_system_that_cannot_be_written(node: Node, tmp_path: Path) -> None:
    """The remedy, as it stands."""
    (tmp_path / "run").mkdir()
    run("mount", "-t", "tmpfs", "-o", "ro", "tmpfs", f"{tmp_path}/run")
    try:
        (finding,) = seen(tmp_path, "records")
        assert "read-only" in finding.text
        run("sh", "-c", finding.remedy)
        assert seen(tmp_path, "records") == []
    finally:
        run("umount", f"{tmp_path}/run")


@pytest.mark.parametrize(("addresses", "levels"), [("192.0.2.5", ["error", "info"]), ("2001:db8:f::5", ["info", "error"])])
def test_forwarding_of_the_families_that_guests_have(node: Node, addresses: str, levels: list[str]) -> None:
    """A node of IPv6 guests alone need not forward IPv4, nor the other way around."""
    site = Site(node, "")
    site.guest(addresses)
    site.up(site.nic(IP=addresses))
    for path in ("net.ipv4.ip_forward", "net.ipv6.conf.all.forwarding"):
        run("sysctl", "-qw", f"{path}=0")
    found = {("ipv6" in one.text): one.level for one in findings(Paths()) if one.topic == "forwarding" and "is 0" in one.text}
    assert [found[False], found[True]] == levels


def test_forwarding_as_the_kernel_has_it(node: Node, tmp_path: Path) -> None:
    run("sysctl", "-w", "net.ipv6.conf.all.forwarding=0")
    (finding,) = [one for one in seen(tmp_path, "forwarding") if "ipv6" in one.text]
    run(*shlex.split(finding.remedy.split(",")[0]))
    assert not [one for one in seen(tmp_path, "forwarding") if "all.forwarding" in one.text]


def test_filters_that_one_bridge_calls(node: Node, tmp_path: Path) -> None:
    """br_netfilter heeds a bridge's own setting as well; the remedy, as it stands."""
    node.bridge("br0")
    for name in ("iptables", "ip6tables", "arptables"):
        sysctl(f"net/bridge/bridge-nf-call-{name}", "0")
    assert seen(tmp_path, "netfilter") == []
    run("ip", "link", "set", "br0", "type", "bridge", "nf_call_ip6tables", "1", "nf_call_arptables", "1")
    found = seen(tmp_path, "netfilter")
    assert [finding.text.partition(" is 1")[0] for finding in found] == ["nf_call_ip6tables of br0", "nf_call_arptables of br0"]
    for finding in found:
        run(*shlex.split(finding.remedy.partition(": ")[2]))
    assert seen(tmp_path, "netfilter") == []
