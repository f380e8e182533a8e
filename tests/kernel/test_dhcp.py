"""Guests get their addresses from the site's dnsmasq, and nfdhcpd gets its binding files: a real dnsmasq, and the files byte for byte."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from netcommon.settings.model import Settings
from tests.support.bootstrap import ROOT, VENV
from tests.support.dhcp import Lease, Told6, lease, lease6, told6
from tests.support.guest import Guest
from tests.support.netns import wait_until
from tests.support.node import Node
from tests.support.rundoor import Outcome, rundoor
from tests.support.snapshot import diff, snapshot
from tests.support.tap import Tap

pytestmark = pytest.mark.sampled(2)

USUAL = 3600  #: how long an address is the guest's where nobody says anything else (seconds; dnsmasq(8), --dhcp-range)
UUID = "13264fb6-0667-415f-9a43-786dc01cbf24"
MAC = "aa:00:00:12:34:56"
LINK_LOCAL = "fe80::a800:ff:fe12:3456"
EXAMPLES = ROOT / "examples"
DEFAULTS = Settings().dhcp_dnsmasq_folder, Settings().dhcp_dnsmasq_pid
OPTIONS_DEFAULT = Settings().dhcp_dnsmasq_options_folder
OPTIONS = Path("/run/options")
HOSTS, PID, BINDINGS = Path("/run/hosts"), Path("/run/site.pid"), Path("/run/nfdhcpd")
NIC = {
    "INTERFACE": "tap0",
    "MODE": "bridged",
    "LINK": "br0",
    "MAC": MAC,
    "IP": "10.0.0.5",
    "VLAN": "",
    "INSTANCE": "web1.example",
    "INTERFACE_INDEX": "0",
    "INTERFACE_UUID": UUID,
    "TAGS": "role:web netcommon:*:addresses:2001:db8::5",
    "NETWORK_NAME": "blue",
    "NETWORK_SUBNET": "10.0.0.0/24",
    "NETWORK_GATEWAY": "10.0.0.1",
    "NETWORK_SUBNET6": "2001:db8::/64",
    "NETWORK_GATEWAY6": "2001:db8::1",
}

SETTINGS = f"""
[dhcp]
nfdhcpd_folder = "{BINDINGS}"
dnsmasq_folder = "{HOSTS}"
dnsmasq_pid = "{PID}"
[networks.blue]
dhcp = "SERVER"
"""


def up(**changes: str) -> Outcome:
    return rundoor("kvm-ifup", {**NIC, **changes})


def down() -> Outcome:
    return rundoor("kvm-ifdown", {"INTERFACE_UUID": UUID}, "tap0", "hot-remove")


def command(*words: str) -> subprocess.CompletedProcess[str]:
    """netcommon as the administrator runs it."""
    return subprocess.run([str(VENV / "bin/netcommon"), *words], capture_output=True, text=True, check=False)


def prepared(node: Node, server: str) -> Tap:
    """A bridge with the node's addresses, a tap, and a site that uses ``server`` in the network blue."""
    node.bridge("br0")
    node.address("br0", "10.0.0.2/24", "2001:db8::2/64")
    for folder in (HOSTS, OPTIONS, BINDINGS):
        folder.mkdir(mode=0o755)
    tap = node.tap("tap0")
    Path("/etc/netcommon/config.toml").write_text(SETTINGS.replace("SERVER", server))
    assert up().status == 0 and down().status == 0  # what is made once and stays
    return tap


def here(site: str) -> str:
    """A configuration of dnsmasq with the folders of this file in the places of the settings' defaults."""
    for default, ours in ((f"{DEFAULTS[0]}\n", f"{HOSTS}\n"), (f"{OPTIONS_DEFAULT}\n", f"{OPTIONS}\n"), (DEFAULTS[1], str(PID))):
        assert default in site
        site = site.replace(default, ours)
    return site


@pytest.fixture
def guest(node: Node) -> Iterator[Guest]:
    """Behind a tap of a node with dnsmasq."""
    tap = prepared(node, "dnsmasq")
    site = (EXAMPLES / "dnsmasq.conf").read_text()
    Path("/run/dnsmasq.conf").write_text(here(site))
    subprocess.run(["/usr/sbin/dnsmasq", "--conf-file=/run/dnsmasq.conf", "--dhcp-leasefile=/run/leases", "--user=root"], check=True)
    pid = int(PID.read_text())
    with Guest(tap, MAC, "10.0.0.5", LINK_LOCAL) as made:
        yield made
    os.kill(pid, signal.SIGKILL)


def test_a_guest_gets_its_addresses(guest: Guest) -> None:
    """IPv4 and IPv6, with what the site gives in this network; after down neither, and the node is as it was."""
    before = snapshot()
    assert up().status == 0
    assert (HOSTS / UUID).read_text() == f"# netcommon {UUID} dnsmasq:{PID}\n{MAC},10.0.0.5,[2001:db8::5],web1\n"
    assert lease(guest) == Lease("10.0.0.5", "10.0.0.2", "255.255.255.0", "10.0.0.1", "10.0.0.53", "web1")
    assert lease6(guest, LINK_LOCAL) == "2001:db8::5"
    assert down().status == 0
    assert list(HOSTS.iterdir()) == []
    assert diff(before, snapshot()) == []
    assert up(TAGS="netcommon:*:dhcp:none").status == 0  # on the bridge again, and unknown to the server
    assert lease(guest, 0.3) is None and lease6(guest, LINK_LOCAL, 0.3) == ""


@pytest.mark.parametrize("name", ["ignore", "infinite", "17", "1h"])
def test_a_name_that_dnsmasq_would_misread(guest: Guest, name: str) -> None:
    """It is left out, and up and plan say so; the guest gets its address, for as long as every other, and no name."""
    variables = {**NIC, "INSTANCE": f"{name}.example"}
    Path("/run/nic").write_text("".join(f"{key}={value}\n" for key, value in variables.items()))
    planned = command("plan", "--env-file", "/run/nic", "--resolve")
    done = up(**variables)
    for outcome in ((planned.returncode, planned.stderr), (done.status, done.stderr)):
        assert outcome[0] == 0 and f"dnsmasq gives the guest no host name: {name} " in outcome[1], outcome
    assert lease(guest) == Lease("10.0.0.5", "10.0.0.2", "255.255.255.0", "10.0.0.1", "10.0.0.53", "")
    ends = int(Path("/run/leases").read_text().split()[0])
    assert USUAL - 120 < ends - time.time() <= USUAL


def test_another_address(guest: Guest) -> None:
    """The next start with another address: dnsmasq forgets the one before, which it would not without SIGHUP."""
    assert up().status == 0 and lease(guest) is not None
    assert up(IP="10.0.0.6").status == 0
    found = lease(guest)
    assert found is not None and found.address == "10.0.0.6"


@pytest.mark.parametrize("how", ["gone", "changed", "mode"])
def test_drift(guest: Guest, how: str) -> None:
    before = snapshot()
    assert up().status == 0
    path = HOSTS / UUID
    if how == "gone":
        path.unlink()
    elif how == "changed":
        path.write_text(path.read_text().replace("10.0.0.5", "10.0.0.7"))
    else:
        path.chmod(0o600)
    found = command("check")
    assert found.returncode == 1 and str(path) in found.stdout
    assert command("repair", "--all").returncode == 0 and command("check").returncode == 0
    answer = lease(guest)
    assert answer is not None and answer.address == "10.0.0.5"
    assert down().status == 0
    assert diff(before, snapshot()) == []


def test_gc_of_a_file_without_a_record(guest: Guest) -> None:
    """Its guest is gone too; dnsmasq is told, by what the file's mark says."""
    assert up().status == 0
    Path(f"/run/netcommon/nics/{UUID}.json").unlink()
    guest.tap.close()
    assert command("gc").returncode == 0
    assert list(HOSTS.iterdir()) == []


def test_without_a_server_the_guest_starts_all_the_same(node: Node) -> None:
    """It reads the file when it starts."""
    prepared(node, "dnsmasq")
    done = up()
    assert (done.status, done.stderr) == (0, "") and (HOSTS / UUID).exists()


@pytest.mark.parametrize("how", ["no folder", "foreign file", "folder of others"])
def test_refusals(node: Node, how: str) -> None:
    """Named, and everything is as before."""
    prepared(node, "nfdhcpd")
    if how == "no folder":
        BINDINGS.rmdir()
    elif how == "foreign file":
        (BINDINGS / "tap0").write_text("IP=10.0.0.5\n")
    else:
        BINDINGS.chmod(0o777)
    before = snapshot()
    done = up()
    assert done.status == 69 and "/run/nfdhcpd" in done.stderr and len(done.stderr.splitlines()) == 1
    assert diff(before, snapshot()) == []
    assert [path.read_text() for path in BINDINGS.glob("*")] == (["IP=10.0.0.5\n"] if how == "foreign file" else [])


#: What snf-network's setup_nfdhcpd writes for NIC, and our mark before it.
BINDING = f"""# netcommon {UUID}
INDEV=br0
IP=10.0.0.5
MAC={MAC}
HOSTNAME=web1.example
TAGS="role:web netcommon:*:addresses:2001:db8::5"
GATEWAY=10.0.0.1
SUBNET=10.0.0.0/24
GATEWAY6=2001:db8::1
SUBNET6=2001:db8::/64
EUI64=2001:db8::5
"""


def test_nfdhcpd(node: Node) -> None:
    """One file, named after the tap, readable by the daemon's own user; the next guest on the tap has its own."""
    prepared(node, "nfdhcpd")
    before = snapshot()
    assert up().status == 0
    path = BINDINGS / "tap0"
    assert path.read_text() == BINDING and path.stat().st_mode & 0o777 == 0o644
    path.unlink()
    assert command("check").returncode == 1
    assert command("repair", "--all").returncode == 0 and path.read_text() == BINDING
    assert down().status == 0
    assert list(BINDINGS.iterdir()) == [] and diff(before, snapshot()) == []
    assert up(TAGS="", MODE="routed", LINK="", NETWORK_GATEWAY="", NETWORK_GATEWAY6="").status == 0
    lines = path.read_text().splitlines()
    assert lines[1:3] == ["INDEV=tap0", "IP=10.0.0.5"] and lines[5:7] == ['TAGS=""', "GATEWAY="]
    assert lines[-1] == "EUI64=2001:db8::a800:ff:fe12:3456"


def test_the_next_guest_on_the_tap(node: Node) -> None:
    """A guest was killed; the late down of it takes nothing of the one that has its tap's name by now."""
    first = prepared(node, "nfdhcpd")
    assert up().status == 0
    first.close()
    wait_until(lambda: not os.path.exists("/sys/class/net/tap0"))
    node.tap("tap0")
    other = "0b67074c-de04-4502-ba5f-e9fd8ae7449c"
    assert up(INTERFACE_UUID=other, INSTANCE="web2", IP="10.0.0.9", MAC="aa:00:00:12:34:99").status == 0
    text = (BINDINGS / "tap0").read_text()
    assert other in text and "IP=10.0.0.9" in text
    assert down().status == 0
    assert (BINDINGS / "tap0").read_text() == text


def test_the_example_templates(guest: Guest) -> None:
    """As the site would have them: those of examples/templates."""
    shutil.copytree(EXAMPLES / "templates", "/etc/netcommon/templates")
    assert up().status == 0
    assert (HOSTS / UUID).read_text() == f"# netcommon {UUID} dnsmasq:{PID}\n{MAC},10.0.0.5,[2001:db8::5],web1,12h\n"
    assert lease(guest) == Lease("10.0.0.5", "10.0.0.2", "255.255.255.0", "10.0.0.1", "10.0.0.53", "web1")
    assert up(TAGS="netcommon:*:dhcp:nfdhcpd", NETWORK_NAME="tunnelled").status == 0
    assert list(HOSTS.iterdir()) == []
    assert (BINDINGS / "tap0").read_text().splitlines()[-2:] == ["EUI64=2001:db8::a800:ff:fe12:3456", "MTU=1400"]


def test_the_sites_template(node: Node) -> None:
    """It takes the place of ours; what is wrong with it is said with its line, and the NIC is as before."""
    prepared(node, "nfdhcpd")
    template = Path("/etc/netcommon/templates/dhcp/nfdhcpd.j2")
    template.parent.mkdir(parents=True)
    template.write_text("MAC={{ mac }}\nMTU=1400\n")
    assert up().status == 0
    assert (BINDINGS / "tap0").read_text() == f"# netcommon {UUID}\nMAC={MAC}\nMTU=1400\n"
    assert down().status == 0
    before = snapshot()
    template.write_text("MAC={{ mac }}\n{% if %}\n")
    done = up()
    assert done.status == 78 and "dhcp/nfdhcpd.j2, line 2" in done.stderr
    template.chmod(0o666)
    assert up().status == 78
    template.chmod(0o644)
    template.write_text("MAC={{ mac }}\nMTU=1400\n")
    assert [line for line in diff(before, snapshot()) if "templates" not in line] == []


#: What a real client is told, by udhcpc's names; each line of its script is one variable.
SCRIPT = """#!/bin/sh
case "$1" in bound|renew) ;; *) exit;; esac
env | grep -E '^(router|dns|search|mtu|staticroutes|ip)=' >/run/lease.new
mv /run/lease.new /run/lease
"""
TOLD = """
[networks.blue]
dhcp = "dnsmasq"
resolvers = ["10.0.0.53", "2001:db8::53"]
search = ["example.com", "lab.example.com"]
routes = { "10.1.0.0/16" = "10.0.0.254" }
mtu = 1400
"""


class Client:
    """A real DHCP client, udhcpc, behind a tap (a veth pair), in a namespace of its own."""

    def __init__(self, node: Node) -> None:
        self.place = node.namespaced()
        subprocess.run(["ip", "link", "add", "tap0", "type", "veth", "peer", "name", "eth0", "netns", self.place.path], check=True)
        self.place.run("ip", "link", "set", "eth0", "address", MAC)
        self.place.run("ip", "link", "set", "eth0", "up")
        script = Path("/run/client")
        script.write_text(SCRIPT)
        script.chmod(0o755)
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Runs on, and renews its lease at SIGUSR1, as it does by itself when half of it is over."""
        asked = [word for name in ("search", "mtu", "staticroutes") for word in ("-O", name)]
        command = ["busybox", "udhcpc", "-f", "-i", "eth0", "-s", "/run/client", "-t", "5", "-T", "1", *asked]
        with self.place.entered():
            self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def renewed(self) -> dict[str, str]:
        """Give what it is told at its next renewal."""
        assert self.process is not None
        Path("/run/lease").unlink()
        self.process.send_signal(signal.SIGUSR1)
        return self.lease()

    def lease(self) -> dict[str, str]:
        """Give what it was told last."""
        wait_until(lambda: os.path.exists("/run/lease"))
        return dict(line.split("=", 1) for line in Path("/run/lease").read_text().splitlines())

    def close(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()


@pytest.fixture
def client(node: Node) -> Iterator[Client]:
    """A node with the example's dnsmasq, whose guests are told what TOLD says."""
    node.bridge("br0")
    node.address("br0", "10.0.0.2/24", "2001:db8::2/64")
    for folder in (HOSTS, OPTIONS):
        folder.mkdir(mode=0o755)
    Path("/etc/netcommon/config.toml").write_text(SETTINGS.partition("[networks")[0] + f'dnsmasq_options_folder = "{OPTIONS}"\n' + TOLD)
    Path("/run/dnsmasq.conf").write_text(here((EXAMPLES / "dnsmasq.conf").read_text()))
    subprocess.run(["/usr/sbin/dnsmasq", "--conf-file=/run/dnsmasq.conf", "--dhcp-leasefile=/run/leases", "--user=root"], check=True)
    pid, made = int(PID.read_text()), Client(node)
    assert up().status == 0 and down().status == 0  # what is made once and stays
    yield made
    made.close()
    os.kill(pid, signal.SIGKILL)


def test_a_guest_is_told_what_is_said_of_its_network(client: Client) -> None:
    """And what is changed of that at its next renewal; the site's own option, the router of the example, does not overrule it."""
    before = snapshot()
    assert up().status == 0
    client.start()
    expected = {
        "ip": "10.0.0.5",
        "router": "10.0.0.1",
        "dns": "10.0.0.53",
        "search": "example.com lab.example.com",
        "staticroutes": "10.1.0.0/16 10.0.0.254 0.0.0.0/0 10.0.0.1",
        "mtu": "1400",
    }
    assert client.lease() == expected
    settings = Path("/etc/netcommon/config.toml")
    for old, new, name, now in (
        ("mtu = 1400", "mtu = 1300", "mtu", "1300"),
        ('["10.0.0.53", "2001:db8::53"]', '["10.0.0.54"]', "dns", "10.0.0.54"),
        ('routes = { "10.1.0.0/16" = "10.0.0.254" }\n', "", "staticroutes", ""),
    ):
        settings.write_text(settings.read_text().replace(old, new))
        assert client.renewed() == expected  # the settings alone change nothing
        done = command("change", "--all")
        assert (done.returncode, done.stderr) == (0, ""), done
        expected = {key: value for key, value in {**expected, name: now}.items() if value}
        assert client.renewed() == expected
        assert command("check").returncode == 0
    settings.write_text(SETTINGS.partition("[networks")[0] + f'dnsmasq_options_folder = "{OPTIONS}"\n[networks.blue]\ndhcp = "dnsmasq"\n')
    assert command("change", "--all").returncode == 0 and list(OPTIONS.iterdir()) == []
    assert client.renewed() == {"ip": "10.0.0.5", "router": "10.0.0.1", "dns": "10.0.0.53"}  # the site's own
    assert down().status == 0
    assert [line for line in diff(before, snapshot()) if "config.toml" not in line] == []


def test_two_guests_of_a_network_have_one_file(client: Client, node: Node) -> None:
    """The first writes it, the last takes it away; what somebody has changed by hand is put back, and what is not ours refused."""
    node.tap("tap1")
    other = {"INTERFACE": "tap1", "INTERFACE_UUID": UUID.replace("1", "2"), "MAC": "aa:00:00:12:34:57", "IP": "10.0.0.6", "TAGS": ""}
    path = OPTIONS / "blue"
    path.write_text("tag:blue,option:mtu,1\n")
    refused = up()
    assert refused.status == 69 and str(path) in refused.stderr and path.read_text() == "tag:blue,option:mtu,1\n"
    path.unlink()
    assert up().status == 0 and up(**other).status == 0
    text = path.read_text()
    assert [each.name for each in OPTIONS.iterdir()] == ["blue"] and "option:mtu,1400" in text
    assert down().status == 0 and command("gc").returncode == 0 and path.read_text() == text
    path.write_text(text.replace("1400", "1500"))
    assert command("check").returncode == 1
    assert command("repair", "--all").returncode == 0 and "option:mtu,1400" in path.read_text()
    assert rundoor("kvm-ifdown", {"INTERFACE_UUID": other["INTERFACE_UUID"]}, "tap1", "hot-remove").status == 0
    assert list(OPTIONS.iterdir()) == []


def test_gc_of_a_network_without_nics(client: Client) -> None:
    assert up().status == 0
    Path(f"/run/netcommon/nics/{UUID}.json").unlink()
    subprocess.run(["ip", "link", "del", "tap0"], check=True)
    assert command("gc").returncode == 0
    assert list(OPTIONS.iterdir()) == [] == list(HOSTS.iterdir())


def test_ipv6_name_servers(guest: Guest) -> None:
    """By DHCPv6 and in router advertisements."""
    Path("/etc/netcommon/config.toml").write_text(SETTINGS.partition("[networks")[0] + f'dnsmasq_options_folder = "{OPTIONS}"\n' + TOLD)
    assert up().status == 0
    found = told6(guest, LINK_LOCAL)
    assert found == Told6(("2001:db8::53",), ("example.com", "lab.example.com"), ("2001:db8::53",), ("example.com", "lab.example.com"))


def test_no_field_of_a_network_for_one_nic(guest: Guest) -> None:
    """Neither by a tag nor by a change nor in [nic]: each names the place where it belongs."""
    remedy = "resolvers is of a network: [networks.NAME] resolvers in the settings"
    before = snapshot()
    refused = up(TAGS="netcommon:0:resolvers:10.0.0.53")
    assert refused.status == 64 and remedy in refused.stderr and diff(before, snapshot()) == []
    assert up().status == 0
    changed = command("change", "tap0", "resolvers=10.0.0.53")
    assert changed.returncode == 64 and remedy in changed.stderr and command("check").returncode == 0


def test_the_last_word_of_a_network(client: Client, node: Node) -> None:
    """Keep what another NIC has said when it goes; the next up or change says today's, and repair never an older one's."""
    node.tap("tap1")
    other = {"INTERFACE": "tap1", "INTERFACE_UUID": UUID.replace("1", "2"), "MAC": "aa:00:00:12:34:57", "IP": "10.0.0.6", "TAGS": ""}
    settings, path = Path("/etc/netcommon/config.toml"), OPTIONS / "blue"
    first, second = settings.read_text(), settings.read_text().replace("mtu = 1400", "mtu = 1300")
    assert up().status == 0
    settings.write_text(second)
    assert up(**other).status == 0 and "mtu,1300" in path.read_text()
    for harm in (path.unlink, lambda: path.chmod(0o600), lambda: path.write_text(path.read_text() + "tag:blue,option:mtu,1\n")):
        harm()
        assert command("repair", "--all").returncode == 0 and command("check").returncode == 0
        assert "mtu,1300" in path.read_text() and path.read_text().count("mtu") == 1
    assert rundoor("kvm-ifdown", {"INTERFACE_UUID": other["INTERFACE_UUID"]}, "tap1", "hot-remove").status == 0
    settings.write_text(first)
    assert "mtu,1400" in command("change", "--all", "--dry-run").stdout and "mtu,1300" in path.read_text()
    assert command("change", "--all").returncode == 0 and "mtu,1400" in path.read_text()
    assert up(**other, NETWORK_GATEWAY="10.0.0.66").status == 0 and "router,10.0.0.66" in path.read_text()
    assert rundoor("kvm-ifdown", {"INTERFACE_UUID": other["INTERFACE_UUID"]}, "tap1", "hot-remove").status == 0
    assert up().status == 0 and "router,10.0.0.1\n" in path.read_text()
