"""A routing table that gets another number in rt_tables while its NICs are up: check names it, and repair moves them, with real packets."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from netcommon.host.linux.host import LinuxHost
from tests.support.netns import ask, run
from tests.support.node import Node
from tests.support.routed import FAR4, FAR6, GATEWAY4, GATEWAY6, Site, collect, drift, mend, options, reaches

HOST4, HOST6 = "192.0.2.5", "2001:db8:f::5"
NAME, BEFORE, NOW = "guests", "100", "300"
NAMES = Path("/etc/iproute2/rt_tables.d/guests.conf")
MARK = "[rules]\nmark = 0xfff0000\n"
PINGS = 400


@pytest.fixture(autouse=True)
def _names() -> Iterator[None]:
    """Give the tables their own names again: the lane's next tests have the same /etc."""
    yield
    NAMES.unlink(missing_ok=True)


def called(number: str) -> None:
    NAMES.parent.mkdir(parents=True, exist_ok=True)
    NAMES.write_text(f"{number} {NAME}\n")


@pytest.fixture(params=["", MARK], ids=["rules", "mark"])
def site(node: Node, request: pytest.FixtureRequest) -> Site:
    Path("/etc/netcommon").mkdir(exist_ok=True)
    Path("/etc/netcommon/config.toml").write_text(request.param)
    called(BEFORE)
    made = Site(node, NAME)
    made.prompt("up0")
    return made


def of_ours() -> set[str]:
    """The tables of our rules, and of the routes to the guest."""
    tables = {str(rule["table"]) for family in ("-4", "-6") for rule in ask("ip", "-N", family, "-j", "rule") if rule["priority"] == 500}
    for family in ("-4", "-6"):
        routes = ask("ip", "-N", family, "-j", "route", "show", "table", "all", "proto", "174")
        tables |= {str(route.get("table", "254")) for route in routes if route["dst"] in (HOST4, HOST6)}
    return tables


def lost(text: str) -> int:
    """Count those of PINGS without an answer, by what ping says at its end."""
    sent, received = (int(part.split()[0]) for part in text.partition(" statistics ---")[2].split("\n")[1].split(",")[:2])
    assert sent == PINGS, text
    return sent - received


def test_repair_moves_the_guest_and_cuts_it_off_from_nothing(site: Site) -> None:
    """The administrator has led what comes in to both tables, for the time of the change."""
    guest = site.guest(HOST4, HOST6)
    nic = site.nic(IP=HOST4, TAGS=options("uplink_proxy:both", "blackhole", f"addresses:{HOST6}"))
    site.up(nic)
    assert drift() == [] and of_ours() == {BEFORE}
    assert reaches(guest, FAR4, source=HOST4) == [FAR4] and reaches(guest, FAR6, source=HOST6) == [FAR6]
    called(NOW)
    for family in ("-4", "-6"):
        run("ip", family, "rule", "del", "iif", "up0", "lookup", BEFORE, "preference", "400")
        run("ip", family, "rule", "add", "iif", "up0", "lookup", BEFORE, "suppress_prefixlength", "0", "preference", "399")
        run("ip", family, "rule", "add", "iif", "up0", "lookup", NOW, "preference", "400")
    site.defaults("up0")
    named = drift()
    assert named and all(each.endswith(f": table {NAME} is number {NOW} now, not {BEFORE}") for each in named), named
    with guest.entered():
        words = ["ping", "-q", "-i", "0.005", "-c", str(PINGS), "-W", "1"]
        both = ((HOST4, FAR4), (HOST6, FAR6))
        asked = [subprocess.Popen([*words, "-I", source, far], stdout=subprocess.PIPE, text=True) for source, far in both]
    said = mend()
    assert [lost(ping.communicate()[0]) for ping in asked] == [0, 0]
    assert of_ours() == {NOW} and drift() == [] and "repaired" in said[0]
    assert collect() == []
    for family, gateway in (("-4", GATEWAY4), ("-6", GATEWAY6)):
        run("ip", family, "route", "del", "default", "via", gateway, "dev", "up0", "table", BEFORE)
        run("ip", family, "rule", "del", "iif", "up0", "lookup", BEFORE, "suppress_prefixlength", "0", "preference", "399")
    assert reaches(guest, FAR4, source=HOST4) == [FAR4] and reaches(guest, FAR6, source=HOST6) == [FAR6]
    site.down(nic)
    assert of_ours() == set() and collect() == []
    assert "netcommon-mark" not in run("nft", "list", "tables")


@pytest.mark.parametrize(
    "text",
    [
        "100 guests\n200 guests\n",
        "200 guests\n100 guests\n",
        "356 guests\n100 guests\n",
        "100 guests\n356 guests\n",
        "300 guests\n100 guests\n",
        "0x12c guests\n100 guests\n612 guests\n",
        "100 guests\n100 others\n",
        "100 main\n254 guests\n",
    ],
)
def test_of_several_numbers_it_is_that_which_ip_takes(node: Node, text: str) -> None:
    """Else a rule of ours leads to another table than the routes that the administrator makes by that name."""
    NAMES.parent.mkdir(parents=True, exist_ok=True)
    NAMES.write_text(text)
    for name in ("guests", "main"):
        run("ip", "route", "add", "10.99.0.0/24", "dev", "lo", "table", name)
        (line,) = [line for line in run("ip", "-N", "route", "show", "table", "all").splitlines() if line.startswith("10.99.0.0/24")]
        number = int(line.partition(" table ")[2].split()[0]) if " table " in line else 254
        assert LinuxHost().view().table(name) == number
        run("ip", "route", "del", "10.99.0.0/24", "table", str(number))
