"""Doctor on a simulated node: each ailment is found with its remedy, and a healthy node has none."""

from __future__ import annotations

import json
import os
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from netcommon.doctor import LEVELS, Finding, files, findings, kernel, probe
from netcommon.doctor.services import ABSENT
from netcommon.host.api.datapath import BridgeState
from netcommon.host.api.facts import AF_INET, AF_INET6, Link, OvsPort, Route, Rule
from netcommon.host.api.requests import AddRoute, AddRule, PutOvsPort, SetLink, SetSysctl
from netcommon.host.simulated.host import MemoryHost
from netcommon.install import install
from netcommon.install.targets import NETWORKD
from runtime.nic import Nic
from runtime.paths import Paths
from runtime.record import Record
from runtime.store import Store

UUID = "0d8c2d3e-7a5b-4f1e-9c7a-1f2e3d4c5b6a"
WELL = dict.fromkeys(kernel.FEATURES, "")


class Ward:
    """A node to examine: a root folder and a simulated host."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.paths = Paths.under(str(root))
        self.hooks = root / "opt" / "hooks"
        self.host = MemoryHost()
        self.kernel = dict(WELL)
        for folder in ("etc/iproute2", "etc/netcommon", "etc/ganeti", "opt/hooks", "dev", "run", "var/lib"):
            (root / folder).mkdir(parents=True)
        for module in kernel.MODULES:
            (root / "sys/module" / module).mkdir(parents=True)
        self.put("etc/iproute2/rt_tables", "", 0o644)
        for door in ("kvm-ifup", "kvm-ifdown", "kvm-nic-setup", "ganeti-hook"):
            self.put(f"opt/hooks/{door}", f"#!/bin/sh\n# {door}\n")
        self.sysctl("net/ipv4/ip_forward", "1")
        self.sysctl("net/ipv6/conf/all/forwarding", "1")

    def put(self, path: str, text: str = "#!/bin/sh\n", mode: int = 0o755) -> Path:
        where = self.root / path
        where.parent.mkdir(parents=True, exist_ok=True)
        where.write_text(text)
        where.chmod(mode)
        return where

    def sysctl(self, path: str, value: str) -> None:
        (said,) = self.host.execute([SetSysctl(path, value)], stop=True)
        assert said.ok, (path, said)

    def tap(self, name: str) -> int:
        return self.host.kernel.add(Link(0, name, "tun", holders=1)).index

    def record(self, ifindex: int, mode: str = "bridged", device: str = "tap0", ip: str = "10.0.0.5") -> None:
        identity = self.host.identity()
        with Store(self.paths, identity.netns, identity.boot) as store:
            link, ip = ("100", ip) if mode == "routed" else ("br0", "")
            nic = Nic(UUID, device, mode, link, ip=ip, instance="web1", index=0)
            store.write(Record(nic, ifindex, identity.boot, identity.netns))

    def all(self) -> list[Finding]:
        return findings(self.paths, self.host, str(self.root), str(self.hooks), lambda: self.kernel)

    def found(self, topic: str) -> list[Finding]:
        return [finding for finding in self.all() if finding.topic == topic and finding.level != "ok"]


@pytest.fixture
def ward(tmp_path: Path) -> Iterator[Ward]:
    made = Ward(tmp_path)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as log:
        log.bind(made.paths.log)
        yield made


def test_a_healthy_node_has_nothing_to_mend(ward: Ward) -> None:
    ward.record(ward.tap("tap0"))
    assert [finding for finding in ward.all() if finding.level in ("error", "warning")] == []


def test_findings_are_plain_and_the_heaviest_come_first(ward: Ward) -> None:
    ward.kernel["tun"] = "No such file"
    ward.kernel["vlan_filtering"] = "Operation not supported"
    said = ward.all()
    assert json.loads(json.dumps([finding._asdict() for finding in said]))[0]["level"] == "error"
    levels = [LEVELS.index(finding.level) for finding in said]
    assert levels == sorted(levels)
    assert all(finding.remedy for finding in said if finding.level in ("error", "warning"))
    assert len(said) == len(set(said))


def test_missing_features_of_the_kernel(ward: Ward) -> None:
    ward.kernel["vlan_filtering"] = "Operation not supported"
    (finding,) = ward.found("kernel")
    assert finding.level == "warning"
    assert "Operation not supported" in finding.text
    ward.kernel.clear()
    (finding,) = ward.found("kernel")
    assert finding == Finding("info", "kernel", "its features were not tried", "run netcommon doctor as root")


def test_a_module_that_is_not_installed(ward: Ward) -> None:
    (ward.root / "sys/module/vrf").rmdir()
    (finding,) = ward.found("kernel")
    assert "module vrf" in finding.text
    ward.put(f"lib/modules/{os.uname().release}/modules.dep", "kernel/drivers/net/vrf.ko.xz:\n", 0o644)
    assert ward.found("kernel") == []


class TestForwarding:
    def test_ipv6_off(self, ward: Ward) -> None:
        ward.sysctl("net/ipv6/conf/all/forwarding", "0")
        (finding,) = ward.found("forwarding")
        assert finding.level == "info"
        assert "sysctl -w net.ipv6.conf.all.forwarding=1" in finding.remedy
        ward.record(ward.tap("tap0"), "routed")
        assert [finding.level for finding in ward.found("forwarding")] == ["info"]  # no guest has IPv6
        ward.record(ward.host.view().link("tap0").index, "routed", ip="2001:db8::5")
        assert [finding.level for finding in ward.found("forwarding")] == ["error"]

    def test_ipv4_off(self, ward: Ward) -> None:
        ward.sysctl("net/ipv4/ip_forward", "0")
        (finding,) = ward.found("forwarding")
        assert finding.level == "info" and "sysctl -w net.ipv4.ip_forward=1" in finding.remedy
        ward.record(ward.tap("tap0"), "routed", ip="2001:db8::5")
        assert [finding.level for finding in ward.found("forwarding")] == ["info"]  # no guest has IPv4
        ward.record(ward.host.view().link("tap0").index, "routed")
        assert [finding.level for finding in ward.found("forwarding")] == ["error"]

    def test_ipv4_of_each_device(self, ward: Ward) -> None:
        """ip_forward sets that of all; each one's own counts."""
        ward.host.kernel.add(Link(0, "eth0", up=True))
        route = Route(AF_INET, 100, "0.0.0.0/0", ward.host.view().link("eth0").index, 4, 0, "192.0.2.1")
        ward.sysctl("net/ipv4/conf/eth0/forwarding", "0")
        ward.record(ward.tap("tap0"), "routed")
        assert ward.host.execute([AddRoute(route)], stop=True)[0].ok
        (finding,) = (each for each in ward.found("forwarding") if each.level == "error")
        assert (finding.level, "forwarding of eth0 is 0" in finding.text) == ("error", True)
        assert "net.ipv4.conf.eth0.forwarding=1" in finding.remedy
        ward.sysctl("net/ipv4/ip_forward", "0")
        for name, left in (("eth0", ["error"]), ("tap0", [])):
            ward.sysctl(f"net/ipv4/conf/{name}/forwarding", "1")
            assert [each.level for each in ward.found("forwarding") if each.level == "error"] == left

    def test_a_default_route_by_router_advertisement_needs_accept_ra_first(self, ward: Ward) -> None:
        index = ward.host.kernel.add(Link(0, "eth0.5", up=True)).index
        route = Route(AF_INET6, 254, "::/0", index, kernel.RA, 0, "fe80::1", 1024)
        assert ward.host.execute([AddRoute(route)], stop=True)[0].ok
        ward.sysctl("net/ipv6/conf/eth0.5/accept_ra", "1")
        ward.sysctl("net/ipv6/conf/eth0.5/forwarding", "1")
        (finding,) = ward.found("forwarding")
        assert (finding.level, finding.remedy[-42:]) == ("warning", "sysctl -w net.ipv6.conf.eth0/5.accept_ra=2")
        ward.sysctl("net/ipv6/conf/all/forwarding", "0")
        (finding,) = ward.found("forwarding")
        assert finding.remedy.startswith("sysctl -w net.ipv6.conf.eth0/5.accept_ra=2; sysctl -w net.ipv6.conf.all.forwarding=1")
        ward.sysctl("net/ipv6/conf/eth0.5/accept_ra", "2")
        (finding,) = ward.found("forwarding")
        assert "accept_ra" not in finding.remedy


class TestNetworkd:
    GOOD = "[Network]\nManageForeignRoutingPolicyRules = no\nManageForeignRoutes=off\n"

    def enable(self, ward: Ward) -> None:
        ward.put("run/systemd/netif/state", "", 0o644)

    def test_not_running(self, ward: Ward) -> None:
        assert ward.found("networkd") == []

    def test_running_with_its_defaults(self, ward: Ward) -> None:
        self.enable(ward)
        said = ward.found("networkd")
        assert [finding.level for finding in said] == ["error", "error"]
        assert "ManageForeignRoutingPolicyRules is yes by default" in said[0].text
        assert NETWORKD in said[0].remedy

    def test_running_as_it_shall(self, ward: Ward) -> None:
        self.enable(ward)
        ward.put("etc/systemd/networkd.conf", self.GOOD, 0o644)
        assert ward.found("networkd") == []

    def test_after_our_install(self, ward: Ward) -> None:
        self.enable(ward)
        install("qemu", str(ward.root), hooks=str(ward.hooks))
        assert ward.found("networkd") == []

    @pytest.mark.parametrize(
        ("path", "text", "bad"),
        [
            ("etc/systemd/networkd.conf.d/zz.conf", "[Network]\nManageForeignRoutes=yes\n", 1),
            ("usr/lib/systemd/networkd.conf.d/zz.conf", "[Network]\nManageForeignRoutes=yes\n", 1),
            ("etc/systemd/networkd.conf.d/00.conf", "[Network]\nManageForeignRoutes=yes\n", 0),
            ("etc/systemd/networkd.conf.d/zz.conf", "[DHCPv4]\nManageForeignRoutes=yes\n", 0),
            ("etc/systemd/networkd.conf.d/zz.conf", "[Network]\n#ManageForeignRoutes=yes\n", 0),
            ("etc/systemd/networkd.conf.d/zz.txt", "[Network]\nManageForeignRoutes=yes\n", 0),
            ("usr/lib/systemd/networkd.conf.d/good.conf", "[Network]\nManageForeignRoutes=yes\n", 0),
            ("run/systemd/networkd.conf", "[Network]\nManageForeignRoutes=yes\n", 0),
        ],
    )
    def test_the_last_word_counts(self, ward: Ward, path: str, text: str, bad: int) -> None:
        self.enable(ward)
        ward.put("etc/systemd/networkd.conf", "", 0o644)
        ward.put("etc/systemd/networkd.conf.d/good.conf", self.GOOD, 0o644)
        ward.put(path, text, 0o644)
        said = ward.found("networkd")
        assert len(said) == bad
        assert all(f"is yes (/{path})" in finding.text for finding in said)


def test_bridged_frames_through_the_filters_of_routed_ones(ward: Ward) -> None:
    ward.host.kernel.settings.put("net/bridge/bridge-nf-call-iptables", "1")
    (finding,) = ward.found("netfilter")
    assert "bridge-nf-call-iptables=0" in finding.remedy


def test_frames_of_one_bridge_through_the_filters_of_routed_ones(ward: Ward) -> None:
    """A bridge's own setting is as good, where br_netfilter is there; and is not told twice."""
    kernel = ward.host.kernel
    kernel.bridge_states[ward.host.add_bridge("br0").index] = BridgeState(nf_call=(True, False, True))
    ward.host.add_bridge("br1")
    assert ward.found("netfilter") == []
    kernel.settings.put("net/bridge/bridge-nf-call-iptables", "0")
    (finding,) = ward.found("netfilter")
    assert finding.remedy.endswith("ip link set dev br0 type bridge nf_call_iptables 0")
    for name in ("iptables", "arptables"):
        kernel.settings.put(f"net/bridge/bridge-nf-call-{name}", "1")
    assert [finding.text.partition(" ")[0] for finding in ward.found("netfilter")] == [
        f"net.bridge.bridge-nf-call-{name}" for name in ("iptables", "arptables")
    ]


class TestOvs:
    def serve(self, ward: Ward, answer: Callable[[dict[str, object]], object] | None) -> socket.socket:
        os.makedirs(os.path.dirname(ward.paths.ovsdb))
        server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        server.bind(ward.paths.ovsdb)
        server.listen()

        def answering() -> None:
            connection, _ = server.accept()
            with connection:
                query = json.loads(connection.recv(65536))
                if answer is not None:
                    connection.sendall(json.dumps({"id": query["id"], "error": None, "result": answer(query)}).encode())
                connection.recv(1)

        if answer is not None:
            threading.Thread(target=answering, daemon=True).start()
        return server

    def test_not_there(self, ward: Ward) -> None:
        assert [finding.level for finding in ward.found("ovs")] == ["info"]
        ward.record(ward.tap("tap0"), "openvswitch")
        assert [finding.level for finding in ward.found("ovs")] == ["error"]

    def test_frozen(self, ward: Ward, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("netcommon.doctor.services.PATIENCE", 0.2)
        with self.serve(ward, None):
            (finding,) = ward.found("ovs")
        assert finding.level == "error"
        assert "does not answer" in finding.text

    def test_dead_socket(self, ward: Ward) -> None:
        self.serve(ward, None).close()
        assert [finding.level for finding in ward.found("ovs")] == ["error"]

    def test_ports_of_others_whose_device_is_gone(self, ward: Ward) -> None:
        ward.host.switch.add_bridge("ovs0", system=False)
        ward.tap("tap1")
        ward.host.switch.insert(OvsPort("tap9", "ovs0"))
        ward.host.switch.insert(OvsPort("tap3", "ovs0", external_ids=(("netcommon-uuid", UUID),)))
        rows = [
            {"name": name, "type": kind, "ofport": number, "error": []}
            for name, kind, number in (
                ("tap9", "", -1),
                ("tap3", "", -1),
                ("tap1", "", -1),
                ("ovs0", "internal", 65534),
                ("vx", "vxlan", -1),
                ("eth7", "", -1),
            )
        ]
        ward.host.switch.insert(OvsPort("eth7", "ovs0"))
        with self.serve(ward, lambda _: [{"rows": rows}]):
            found = [finding for finding in ward.all() if finding.topic in ("leftovers", "ovs") and finding.level != "ok"]
            assert found == [
                Finding("warning", "leftovers", "OVS port tap9: its device is gone", "ovs-vsctl del-port tap9"),
                Finding("warning", "ovs", "OVS port eth7 on ovs0: its device is not there", ABSENT),
                Finding("warning", "leftovers", "OVS port tap3 on ovs0: its device is gone", "netcommon gc"),
            ]


class TestDoors:
    def ganeti(self, ward: Ward) -> None:
        ward.put("usr/lib/ganeti/kvm-ifup")

    def test_no_ganeti(self, ward: Ward) -> None:
        assert ward.found("doors") == [Finding("info", "doors", "Ganeti is not there")]

    def test_ganetis_own(self, ward: Ward) -> None:
        self.ganeti(ward)
        (finding,) = ward.found("doors")
        assert (finding.level, finding.remedy) == ("warning", "netcommon install --ganeti")

    def test_ours(self, ward: Ward) -> None:
        self.ganeti(ward)
        install("ganeti", str(ward.root), hooks=str(ward.hooks))
        assert ward.found("doors") == []

    def test_a_lost_record(self, ward: Ward) -> None:
        """It is said, and what stands where is compared all the same; an install mends it."""
        self.ganeti(ward)
        install("ganeti", str(ward.root), hooks=str(ward.hooks))
        (ward.root / "var/lib/netcommon/install.json").unlink()
        (finding,) = ward.found("doors")
        assert (finding.level, "was lost" in finding.text, "install --ganeti" in finding.remedy) == ("warning", True, True)
        ward.put("usr/lib/ganeti/3.1/usr/lib/ganeti/kvm-ifup")
        assert len(ward.found("doors")) == 2
        install("ganeti", str(ward.root), hooks=str(ward.hooks))
        assert ward.found("doors") == []

    def test_ours_under_the_name_for_site_scripts(self, ward: Ward) -> None:
        self.ganeti(ward)
        (ward.root / "etc/ganeti/kvm-vif-bridge").symlink_to(ward.hooks / "kvm-ifup")
        assert ward.found("doors") == []

    def test_an_upgrade_has_put_ganetis_own_back(self, ward: Ward) -> None:
        self.ganeti(ward)
        install("ganeti", str(ward.root), hooks=str(ward.hooks))
        self.ganeti(ward)
        (finding,) = ward.found("doors")
        assert finding.level == "error"
        assert "/usr/lib/ganeti/kvm-ifup is no longer ours" in finding.text

    def test_a_missing_hook(self, ward: Ward) -> None:
        (ward.root / "usr/lib/ganeti").mkdir(parents=True)
        (ward.root / "usr/lib/ganeti/kvm-ifup").hardlink_to(ward.hooks / "kvm-ifup")
        assert len(ward.found("doors")) == 6

    def test_debians_qemu_ifup_where_nics_are_defined(self, ward: Ward) -> None:
        ward.put("etc/qemu-ifup")
        assert len(ward.found("doors")) == 1
        ward.put(f"etc/netcommon/nics.d/{UUID}.toml", "", 0o600)
        assert "netcommon install --qemu" in [finding.remedy for finding in ward.found("doors")]


class TestFiles:
    def test_broken_settings(self, ward: Ward) -> None:
        ward.put("etc/netcommon/config.toml", "[hook]\ntimeout = 0\nx = 1\n", 0o644)
        assert [finding.text.split(" ")[0] for finding in ward.found("settings")] == ["config.toml:2:", "config.toml:3:"]

    def test_scripts(self, ward: Ward) -> None:
        ward.put("etc/netcommon/ifup.d/a", mode=0o777)
        (finding,) = ward.found("custom scripts")
        assert finding.level == "error"
        assert "can be written by everybody" in finding.text

    def test_an_order_that_was_not_chosen(self, ward: Ward) -> None:
        ward.put("etc/ganeti/kvm-vif-bridge")
        (finding,) = ward.found("custom scripts")
        assert "runs instead of the built-in" in finding.text
        ward.put("etc/netcommon/config.toml", '[custom]\norder = "instead"\n', 0o644)
        assert ward.found("custom scripts") == []

    @pytest.mark.parametrize("folder", ["etc/netcommon", "run/netcommon", "opt/hooks"])
    def test_a_folder_that_others_can_write(self, ward: Ward, folder: str) -> None:
        (ward.root / folder).mkdir(exist_ok=True)
        (ward.root / folder).chmod(0o777)
        (finding,) = ward.found("permissions")
        assert finding.level == "error"
        assert f"{ward.root}/{folder}" in finding.text

    @pytest.mark.parametrize("folder", ["wanted", "wanted/networks"])
    def test_what_a_registry_wants_that_others_can_write(self, ward: Ward, folder: str) -> None:
        ward.put("var/lib/netcommon/wanted/networks/x")
        assert ward.found("permissions") == []
        (ward.root / "var/lib/netcommon" / folder).chmod(0o777)
        (finding,) = ward.found("permissions")
        assert finding.level == "error" and "for nothing" in finding.text
        assert f"make {ward.root}/var/lib/netcommon/{folder} a folder" in finding.remedy

    def test_a_node_that_cannot_tell_who_it_is(self, ward: Ward) -> None:
        ward.put("var/lib/netcommon/node.json", "{")
        (finding,) = ward.found("permissions")
        assert finding.level == "error" and "does not say which node this is" in finding.text

    @pytest.mark.parametrize(
        ("flag", "blocks", "inodes", "said"),
        [
            (os.ST_RDONLY, 9, 9, "mounted read-only"),
            (0, 0, 9, "has no space left"),
            (0, 9, 0, "has no inodes left"),
        ],
    )
    def test_records_that_cannot_be_written(
        self, ward: Ward, monkeypatch: pytest.MonkeyPatch, flag: int, blocks: int, inodes: int, said: str
    ) -> None:
        """As statvfs(3) has it: a root that may write everywhere gets no other sign."""
        assert ward.found("records") == []
        asked: list[str] = []

        def about(path: str) -> os.statvfs_result:
            asked.append(path)
            return os.statvfs_result((4096, 4096, 9, 9, blocks, 9, 9, inodes, flag, 255))

        monkeypatch.setattr(os, "statvfs", about)
        (finding,) = ward.found("records")
        assert finding.level == "error" and said in finding.text and finding.remedy
        assert asked == [f"{ward.root}/run"]  # what is to be made there is not there yet

    def test_a_door_that_nobody_can_run(self, ward: Ward) -> None:
        (ward.hooks / "kvm-ifup").chmod(0o644)
        (finding,) = ward.found("permissions")
        assert finding.remedy == f"chmod 755 {ward.hooks}/kvm-ifup"

    def test_no_names_of_tables(self, ward: Ward) -> None:
        (ward.root / "etc/iproute2/rt_tables").unlink()
        assert [finding.level for finding in ward.found("routing tables")] == ["warning"]

    @pytest.mark.parametrize("folder", ["quarantine", "netns.d/7/quarantine"])
    def test_quarantine(self, ward: Ward, folder: str) -> None:
        ward.put(f"run/netcommon/{folder}/{UUID}.1.0", "{", 0o600)
        (finding,) = ward.found("quarantine")
        assert UUID in finding.text
        assert "uplinks stays" in finding.text

    @pytest.mark.parametrize("folder", ["quarantine", "netns.d/7/quarantine"])
    def test_what_was_owed_in_quarantine(self, ward: Ward, folder: str) -> None:
        ward.put(f"run/netcommon/{folder}/owed-{UUID}.5.json.1.0", "{", 0o600)
        (finding,) = ward.found("quarantine")
        assert UUID in finding.text and "owed" in finding.text and "repair --all" in finding.remedy

    def test_a_record_that_does_not_parse_is_left_where_it_is(self, ward: Ward) -> None:
        ward.record(ward.tap("tap0"))
        path = ward.root / f"run/netcommon/nics/{UUID}.json"
        path.write_text("{")
        assert ward.found("records")
        assert path.read_text() == "{"

    def test_xens_door(self, ward: Ward) -> None:
        """Only where Xen's own scripts are; Debian's Ganeti makes the name a link to its own."""
        ward.put("opt/hooks/vif-ganeti", "#!/bin/sh\n# vif-ganeti\n")
        assert not [one for one in ward.found("doors") if "Xen" in one.text]
        ward.put("usr/lib/ganeti/vif-ganeti")
        (ward.root / "etc/xen/scripts").mkdir(parents=True)
        (ward.root / "etc/xen/scripts/vif-ganeti").symlink_to(ward.root / "usr/lib/ganeti/vif-ganeti")
        (finding,) = [one for one in ward.found("doors") if "Xen" in one.text]
        assert (finding.level, finding.remedy) == ("warning", "netcommon install --xen")
        install("xen", str(ward.root), hooks=str(ward.hooks))
        assert Finding("ok", "doors", "Xen's /etc/xen/scripts/vif-ganeti is our door") in ward.all()
        ward.put("etc/xen/scripts/vif-ganeti")
        (finding,) = [one for one in ward.found("doors") if "vif-ganeti" in one.text]
        assert "is no longer ours" in finding.text and finding.remedy == "netcommon install --xen"

    def test_the_doors_python(self, tmp_path: Path) -> None:
        assert [finding.level for finding in files.python("/no/python")] == ["error"]
        old = tmp_path / "python3"
        old.write_text("#!/bin/sh\necho 3.9\n")
        old.chmod(0o755)
        (finding,) = files.python(str(old))
        assert "is 3.9: the doors need 3.11" in finding.text

    def test_nobody_reads_the_log(self, ward: Ward) -> None:
        os.unlink(ward.paths.log)
        assert [finding.level for finding in ward.found("syslog")] == ["warning"]


class TestLeftovers:
    def rule(self, ward: Ward, name: str, protocol: int, family: int = AF_INET) -> None:
        index = ward.tap(name)
        assert ward.host.execute([AddRule(Rule(family, 500, name, 100, protocol))], stop=True)[0].ok
        ward.host.kernel.remove(index)

    def test_a_rule_of_ganetis_script(self, ward: Ward) -> None:
        self.rule(ward, "tap5", 4)
        self.rule(ward, "gnt.com.0", 4, AF_INET6)
        self.rule(ward, "eth7", 4)
        assert [finding.remedy for finding in ward.found("leftovers")] == [
            "ip rule del preference 500 iif tap5 lookup 100",
            "ip -6 rule del preference 500 iif gnt.com.0 lookup 100",
        ]

    def test_those_of_ganetis_own_script_are_counted(self, ward: Ward) -> None:
        for name, preference in (("tap5", 32765), ("tap4", 32764), ("tap5", 32760)):
            index = ward.tap(name)
            assert ward.host.execute([AddRule(Rule(AF_INET, preference, name, 100, 3))], stop=True)[0].ok
            ward.host.kernel.remove(index)
        (finding,) = ward.found("leftovers")
        assert finding.text.startswith("3 policy rules of Ganeti's own script for devices that are gone (tap4, tap5)")
        assert finding.remedy == "netcommon gc"

    def test_a_rule_that_leads_a_guest_past_its_table(self, ward: Ward) -> None:
        """Its NIC came up before anybody looked, or it was added since: what is recorded holds, so check says good."""
        ward.record(ward.tap("tap0"), "routed")
        after, same = (Rule(AF_INET, 501, "tap0", 200, 3), Rule(AF_INET, 32765, "tap0", 100, 3))
        assert all(said.ok for said in ward.host.execute([AddRule(after), AddRule(same)], stop=True))
        assert ward.found("leftovers") == []
        ward.host.execute([AddRule(Rule(AF_INET6, 499, "tap0", 200, 3))], stop=True)
        (finding,) = ward.found("leftovers")
        assert "web1/0: policy rule 499: iif tap0 lookup 200 leads what the guest sends in IPv6 past its table" in finding.text
        assert finding.remedy == "ip -6 rule del iif tap0 lookup 200 preference 499"

    def test_a_rule_of_a_tap_that_is_there_is_left_alone(self, ward: Ward) -> None:
        ward.tap("tap5")
        ward.host.execute([AddRule(Rule(AF_INET, 500, "tap5", 100, 4))], stop=True)
        assert ward.found("leftovers") == []

    def test_a_rule_of_ours_on_no_record(self, ward: Ward) -> None:
        self.rule(ward, "eth7", 174)
        (finding,) = ward.found("leftovers")
        assert finding.remedy == "netcommon gc"

    def test_a_device_of_ours_on_no_record(self, ward: Ward) -> None:
        """Its record was removed: nothing else says that its NIC is looked after no more."""
        index = ward.tap("tap0")
        ward.host.execute([SetLink(index, alias=f"{UUID} web1/0", up=True)], stop=True)
        (finding,) = ward.found("leftovers")
        assert f"tap0 is up, its alias says that it is NIC {UUID} web1/0, and no record" in finding.text
        ward.record(index)
        assert ward.found("leftovers") == []

    def test_a_device_whose_record_a_newer_version_has_written(self, ward: Ward) -> None:
        """It is on record: a restart of its guest would not make it readable."""
        index = ward.tap("tap0")
        ward.record(index)
        ward.host.execute([SetLink(index, alias=f"{UUID} web1/0", up=True)], stop=True)
        (path,) = (ward.root / "run/netcommon/nics").iterdir()
        path.write_text(json.dumps(json.loads(path.read_text()) | {"schema": 99}))
        assert ward.found("leftovers") == [] and len(ward.found("records")) == 1

    @pytest.mark.parametrize("change", ["gone", "another"])
    def test_a_record_whose_device_is_gone(self, ward: Ward, change: str) -> None:
        index = ward.tap("tap0")
        ward.record(index)
        assert ward.found("leftovers") == []
        if change == "gone":
            ward.host.kernel.remove(index)
        else:
            ward.host.kernel.remove(index)
            ward.host.add_link(Link(0, "tap7", "dummy", alias="another's"), index)
        (finding,) = ward.found("leftovers")
        assert finding.text == f"web1/0 ({UUID}): its device tap0 is gone"

    def test_an_ovs_port_of_ours_whose_device_is_gone(self, ward: Ward) -> None:
        ward.host.switch.add_bridge("ovs0", system=False)
        index = ward.tap("tap3")
        port = OvsPort("tap3", "ovs0", external_ids=(("netcommon-uuid", UUID),))
        assert ward.host.execute([PutOvsPort(port)], stop=True)[0].ok
        assert ward.found("leftovers") == []
        ward.host.kernel.remove(index)
        (finding,) = ward.found("leftovers")
        assert "OVS port tap3 on ovs0" in finding.text


def test_a_host_that_does_not_answer_is_a_finding(ward: Ward) -> None:
    ward.host.busy = True
    assert any("could not be examined" in finding.text for finding in ward.all())


def test_the_probe_leaves_the_hosts_network_alone() -> None:
    before = sorted(os.listdir("/proc/sys/net/ipv4/conf"))
    found = probe.run()
    assert set(found) == set(kernel.FEATURES)
    assert found["bridge"] == found["tun"] == found["rule_protocol"] == found["neighbour_protocol"] == ""
    assert sorted(os.listdir("/proc/sys/net/ipv4/conf")) == before


def test_what_does_not_work_says_why() -> None:
    def refused() -> None:
        raise OSError(95, "Operation not supported")

    assert probe.tried(refused) == "Operation not supported"
    assert probe.tried(lambda: None) == ""
