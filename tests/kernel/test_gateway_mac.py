"""A running routed guest goes on reaching the world when the MAC of its tap changes: it is told the gateway's new one."""

from __future__ import annotations

import re
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

import pytest

from netcommon.lifecycle.change import change, setting
from netcommon.lifecycle.check import repair
from netcommon.lifecycle.context import Call
from netcommon.log import recording
from tests.support.netns import Namespace, ask, run, slowness, wait_until
from tests.support.node import Node
from tests.support.routed import FAR4, FAR6, MAC, Site, ours
from tests.support.rundoor import rundoor

HOST4, HOST6 = "192.0.2.5", "2001:db8:f::5"
STEADY, ANOTHER = "fe" + MAC[2:], "fe:00:00:00:00:01"
INTERVAL = 0.05
LONGEST = 1.0  #: seconds without an answer; before the guest was told it was 45


@pytest.fixture
def site(node: Node) -> Site:
    made = Site(node, "100")
    made.guest(f"{HOST4}/24", f"{HOST6}/64")
    return made


def address() -> str:
    return str(ask("ip", "-j", "link", "show", "dev", "tap0")[0]["address"])


class Pinging:
    """Echo requests of a guest's, and when they were answered."""

    def __init__(self, guest: Namespace, destination: str, file: Path) -> None:
        self._file = file
        with guest.entered(), file.open("w") as out:
            self._ping = subprocess.Popen(["stdbuf", "-oL", "ping", "-D", "-n", "-i", str(INTERVAL), destination], stdout=out)

    def answers(self) -> list[float]:
        return [float(found) for found in re.findall(r"^\[([\d.]+)\] \d+ bytes from", self._file.read_text(), re.M)]

    def goes_on(self) -> None:
        """Wait for answers that come from now on."""
        now = time.time()
        wait_until(lambda: len([each for each in self.answers() if each > now]) >= 10, 60, "the guest has answers")

    def silence(self) -> float:
        self._ping.kill()
        self._ping.wait()
        times = self.answers()
        return max(later - before for before, later in pairwise(times))


@contextmanager
def heard(site: Site, folder: Path) -> Iterator[Callable[[], None]]:
    """The guest pings the world by IPv4 and IPv6 meanwhile, and is answered without a pause; gives what waits for more answers."""
    guest = site.guests["tap0"]
    made = [Pinging(guest, destination, folder / f"ping{number}") for number, destination in enumerate((FAR4, FAR6))]

    def goes_on() -> None:
        for each in made:
            each.goes_on()

    try:
        goes_on()
        yield goes_on
        goes_on()
    finally:
        silences = [each.silence() for each in made]
    print(f"longest silence {max(silences) * 1e3:.0f} ms")
    assert max(silences) < LONGEST * slowness()


def to(**options: str) -> None:
    """Change the NIC."""
    with ours() as node:
        (record,) = node.store.all()[0]
        change(node, record.key, Call(recording()[0], node.clock.now() + 20), setting(node, options, ()))


def nic(site: Site) -> dict[str, str]:
    return site.nic(IP=HOST4, TAGS=f"netcommon:0:addresses:{HOST6}")


def learns_another(site: Site) -> None:
    """Somebody else changes the tap's MAC, and the guest has learned it."""
    run("ip", "link", "set", "tap0", "address", ANOTHER)
    site.guests["tap0"].run("ip", "neighbour", "flush", "dev", "eth0")


def test_an_option_and_back(site: Site, tmp_path: Path) -> None:
    site.up(nic(site))
    with heard(site, tmp_path) as goes_on:
        to(tap_mac=ANOTHER)
        assert address() == ANOTHER
        goes_on()
        to(tap_mac="")
        assert address() == STEADY


def test_repair(site: Site, tmp_path: Path) -> None:
    site.up(nic(site))
    with heard(site, tmp_path) as goes_on, ours() as node:
        learns_another(site)
        goes_on()
        (record,) = node.store.all()[0]
        repair(node, record.key, Call(recording()[0], node.clock.now() + 20))
        assert address() == STEADY


def test_a_second_up(site: Site, tmp_path: Path) -> None:
    site.up(nic(site))
    with heard(site, tmp_path) as goes_on:
        learns_another(site)
        goes_on()
        assert rundoor("kvm-ifup", nic(site)).status == 0
        assert address() == STEADY
