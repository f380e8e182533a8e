"""A device that is renamed under a running guest, and a NIC that is closing while its guest is there: the guard holds, by the kernel."""

from __future__ import annotations

import json
import threading
import time

import pytest

from netcommon.operations.guard.table import table_of
from tests.kernel.test_doors_parallel import collect, environment, good
from tests.kernel.test_guard_verdicts import FRAMES, MAC, OWN4, frame, ip4, udp
from tests.kernel.test_ovs_features import COOKIE
from tests.kernel.test_ovs_features import NIC as SWITCHED
from tests.support.agent import Agent, agent, seconds_until, watched
from tests.support.frames import IPV4
from tests.support.netns import Namespace, run, slowness
from tests.support.node import Node
from tests.support.ovs import OpenVswitch
from tests.support.routed import ours
from tests.support.rundoor import BASE, HOOKS, execute, rundoor
from tests.support.snapshot import diff, snapshot
from tests.support.sniffer import Sniffer
from tests.support.tap import Tap

NEW = "guest1"
TAGS = "netcommon:*:spoof_guard"
NIC = {"MODE": "bridged", "LINK": "br0", "IP": OWN4, "MAC": MAC, "TAGS": TAGS}
OTHER = {"IP": "10.0.0.99", "MAC": "aa:00:00:00:00:99", "INSTANCE": "web9", "INTERFACE_UUID": "00000099-0000-4000-8000-000000000099"}
ROUTED = {"MODE": "routed", "LINK": "100", "IP": OWN4, "MAC": MAC, "TAGS": TAGS}
FORGED = FRAMES["foreign IPv4"][0].ljust(60, b"\0")
HONEST = frame(ip4(OWN4, udp(1, 2, b"honest"))[14:], IPV4)
BAR = 0.1  #: seconds after the renaming, on a machine that nobody else uses


def index(device: str) -> int:
    found: int = json.loads(run("ip", "-j", "link", "show", "dev", device))[0]["ifindex"]
    return found


def guarded(device: str) -> bool:
    """Tell whether the kernel has the guard's chain hooked to the device, in the table of its name."""
    listed = run("nft", "list", "chain", "netdev", table_of(device), f"in-{index(device)}", check=False)
    return f'device "{device}"' in listed and f"iif {index(device)}" in listed.replace('"', "").replace(device, str(index(device)))


def down(device: str, context: str) -> None:
    """As Ganeti calls it: by a process that does not hold the tap."""
    argv = ["timeout", "60", str(HOOKS / "kvm-ifdown"), device, context]
    assert execute(argv, {**BASE, **environment(**NIC)}).status == 0


def rename(old: str, new: str) -> None:
    """As udev does: kernels before 6.2 rename only what is down."""
    run("ip", "link", "set", old, "down")
    run("ip", "link", "set", old, "name", new)
    run("ip", "link", "set", new, "up")


class Forger(threading.Thread):
    """A guest that sends a forged frame every millisecond until it is stopped."""

    def __init__(self, tap: Tap) -> None:
        super().__init__()
        self.tap, self.stopped = tap, threading.Event()

    def run(self) -> None:
        while not self.stopped.wait(0.001):
            try:
                self.tap.send(FORGED)
            except OSError:
                pass  # it is down just now


@pytest.fixture
def outside(node: Node) -> Namespace:
    other = node.outside("up0")
    node.bridge("br0", "up0")
    return other


def recorded() -> list[str]:
    """The devices of all records, in whatever state."""
    with ours() as node:
        return sorted(record.device for record in node.store.all()[0])


def left(tap: Tap, outside: Namespace, number: int = 100) -> tuple[int, int]:
    """Count how many of so many forged frames leave, and of one honest one."""
    with Sniffer(outside) as sniffer:
        for _ in range(number):
            tap.send(FORGED)
        tap.send(HONEST)
        heard = sniffer.first(number + 1, lambda each: each[6:12] == bytes.fromhex(MAC.replace(":", "")), 0.5)
    return sum(each.frame[: len(FORGED)] == FORGED for each in heard), sum(b"honest" in each.frame for each in heard)


def test_the_guard_follows(node: Node, outside: Namespace) -> None:
    """Within the agent's usual time; a guest on a new tap of the old name gets its own, and the end of the first leaves that whole."""
    tap = node.tap("tap0")
    assert rundoor("kvm-ifup", environment(**NIC)).status == 0
    assert left(tap, outside) == (0, 1)
    with agent() as running:
        running.rested()
        took, gone = followed(running, tap, outside)
        print(f"the guard follows after {took * 1e3:.0f} ms; {gone} of a forged frame each millisecond left")
        assert took < BAR * slowness()
        assert left(tap, outside) == (0, 1)
        running.logged(f"on {NEW}: it was tap0")
        assert good() == [NEW]
        second = node.tap("tap0")
        assert rundoor("kvm-ifup", environment(**{**NIC, **OTHER})).status == 0
        assert good() == sorted([NEW, "tap0"]) and guarded("tap0") and guarded(NEW)
        assert left(tap, outside) == (0, 1)
        before = index("tap0")
        tap.close()
        seconds_until(lambda: recorded() == ["tap0"], 5, running.output)
        assert good() == ["tap0"] and guarded("tap0") and index("tap0") == before and MAC not in run("nft", "list", "ruleset")
        second.close()


def followed(running: Agent, tap: Tap, outside: Namespace) -> tuple[float, int]:
    """The seconds until the guard has followed, in those of a machine that has nothing else to do; and what left meanwhile."""
    forger = Forger(tap)
    with Sniffer(outside) as sniffer:
        forger.start()
        try:
            rename("tap0", NEW)
            took = running.took(lambda: guarded(NEW), 5)
        finally:
            forger.stopped.set()
            forger.join()
        return took, len(sniffer.until(time.time(), lambda each: each[: len(FORGED)] == FORGED))


def test_a_routed_nic_follows(node: Node) -> None:
    """Its rule too: the old one would catch the next tap of that name."""
    node.router()
    run("ip", "route", "add", "default", "via", "192.0.2.1", "table", "100")
    node.tap("tap0")
    assert rundoor("kvm-ifup", environment(**ROUTED)).status == 0
    with agent() as running, watched() as seen:
        running.rested()
        rename("tap0", NEW)
        seconds_until(lambda: guarded(NEW) and not seen.drift(NEW), 5, running.output)
        rules = run("ip", "rule", "show")
        assert f"iif {NEW} lookup 100" in rules and "iif tap0" not in rules
        assert f"{OWN4} dev {NEW}" in run("ip", "route", "show", "table", "100")
        assert run("cat", f"/proc/sys/net/ipv4/conf/{NEW}/proxy_arp").strip() == "1"


def test_a_port_of_open_vswitch_follows(node: Node, ovs: OpenVswitch) -> None:
    ovs.bridge("ovs0")
    tap = node.tap("tap0")
    assert rundoor("kvm-ifup", SWITCHED).status == 0
    before = own_flows()
    assert before
    with agent() as running, watched() as seen:
        running.rested()
        rename("tap0", NEW)
        seconds_until(lambda: NEW in seen.records and not seen.drift(NEW), 20, running.output)
        assert ovs.vsctl("list-ports", "ovs0").split() == [NEW] and own_flows() == before
        tap.close()
        seconds_until(lambda: not ovs.vsctl("list-ports", "ovs0").split() and not own_flows(), 20, running.output)


def own_flows() -> int:
    """Count how many flows with our mark the bridge has, for one port."""
    return run("ovs-ofctl", "--no-stats", "dump-flows", "ovs0").count(COOKIE[:8])


@pytest.mark.parametrize("by", ["UUID", "name"])
def test_down_without_an_agent(node: Node, outside: Namespace, by: str) -> None:
    """All is undone on the device that it was done on."""
    tap = node.tap("tap0", persistent=True)
    for _ in range(2):  # the folders are there by the second time
        before = snapshot()
        assert rundoor("kvm-ifup", environment(**NIC)).status == 0
        assert left(tap, outside) == (0, 1)
        run("ip", "link", "set", "tap0", "down")
        run("ip", "link", "set", "tap0", "name", NEW)
        assert collect() == []
        named = environment(**NIC, INTERFACE=NEW) if by == "UUID" else {}
        said = rundoor("kvm-ifdown", named, NEW, "hot-remove")
        assert said.status == 0, said.stderr
        shown = json.loads(run("ip", "-j", "link", "show", "dev", NEW))[0]
        assert "master" not in shown and "ifalias" not in shown and "netcommon" not in run("nft", "list", "tables")
        run("ip", "link", "set", NEW, "name", "tap0")
        assert diff(before, snapshot()) == [] or _ == 0
    tap.delete()


def test_a_closing_nic_keeps_its_guard(node: Node, outside: Namespace) -> None:
    """Ganeti 3.2 calls down as the guest begins to shut down, which may take it as long as it likes."""
    tap = node.tap("tap0")
    assert rundoor("kvm-ifup", environment(**NIC)).status == 0
    down("tap0", "shutdown")
    with agent() as running, watched() as seen:
        assert seen.records["tap0"].state == "closing"
        running.rested()
        for _ in range(3):
            run("nft", "flush", "ruleset")
            took = running.took(lambda: guarded("tap0"), 5)
            assert took < BAR * slowness()
        assert left(tap, outside) == (0, 1)
        tap.close()
        seconds_until(lambda: "netcommon" not in run("nft", "list", "tables"), 5, running.output)


def test_a_late_down_of_the_old_tap(node: Node, outside: Namespace) -> None:
    """A migration's end that is told of late takes nothing from the guest, which is here on another tap."""
    first = node.tap("tap0")
    assert rundoor("kvm-ifup", environment(**NIC)).status == 0
    first.close()
    tap = node.tap("tap1")
    assert rundoor("kvm-ifup", environment(**NIC, INTERFACE="tap1")).status == 0
    down("tap0", "migrate")
    assert good() == ["tap1"] and guarded("tap1")
    assert left(tap, outside) == (0, 1)


def test_who_renames_it_often_fights_nobody(node: Node, outside: Namespace) -> None:
    """More often than the agent repairs what somebody undoes, within one window: the guard follows each time."""
    tap = node.tap("tap0")
    assert rundoor("kvm-ifup", environment(**NIC)).status == 0
    with agent() as running:
        running.rested()
        for name in (NEW, "tap0") * 4:
            rename("tap0" if name == NEW else NEW, name)
            seconds_until(lambda name=name: guarded(name), 3, f"{name}: {running.output}")  # type: ignore[misc]
    tap.close()
