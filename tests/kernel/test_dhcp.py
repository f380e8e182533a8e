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
from tests.support.dhcp import Lease, lease, lease6
from tests.support.guest import Guest
from tests.support.netns import wait_until
from tests.support.node import Node
from tests.support.rundoor import Outcome, rundoor
from tests.support.snapshot import diff, snapshot
from tests.support.tap import Tap

USUAL = 3600  #: how long an address is the guest's where nobody says anything else (seconds; dnsmasq(8), --dhcp-range)
UUID = "13264fb6-0667-415f-9a43-786dc01cbf24"
MAC = "aa:00:00:12:34:56"
LINK_LOCAL = "fe80::a800:ff:fe12:3456"
EXAMPLES = ROOT / "examples"
DEFAULTS = Settings().dhcp_dnsmasq_folder, Settings().dhcp_dnsmasq_pid
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
    for folder in (HOSTS, BINDINGS):
        folder.mkdir(mode=0o755)
    tap = node.tap("tap0")
    Path("/etc/netcommon/config.toml").write_text(SETTINGS.replace("SERVER", server))
    assert up().status == 0 and down().status == 0  # what is made once and stays
    return tap


@pytest.fixture
def guest(node: Node) -> Iterator[Guest]:
    """Behind a tap of a node with dnsmasq."""
    tap = prepared(node, "dnsmasq")
    site = (EXAMPLES / "dnsmasq.conf").read_text()
    assert DEFAULTS[0] in site and DEFAULTS[1] in site
    Path("/run/dnsmasq.conf").write_text(site.replace(DEFAULTS[0], str(HOSTS)).replace(DEFAULTS[1], str(PID)))
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
