"""What the spoof guard of one NIC costs where 0, 100, 1000 and 5000 guarded NICs are present: the table in docs/spoof-guard.md.

Prints the table (pytest -s); the default run takes 0 and 1000 alone. Times are medians of single additions and removals, by the
operations themselves, and by the hooks kvm-ifup and kvm-ifdown as a whole.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence

import pytest

from netcommon.features.guard import plan
from netcommon.host.linux.host import LinuxHost
from netcommon.operations.base import Operation
from netcommon.operations.bridge import BridgePort
from netcommon.options.model import Options
from netcommon.settings.model import Settings
from runtime.environment import environment_of
from runtime.nic import Nic
from tests.support.netns import run
from tests.support.node import Node
from tests.support.rundoor import rundoor
from tests.support.sample import FULL
from tests.support.tap import Tap

PRESENT = (0, 100, 1000, 5000) if FULL else (0, 1000)
PORTS = 1000  #: of a bridge; it holds 1023
ROUNDS = 41
HOOK_ROUNDS = 11
BOUND = 5.0  #: ms, for the part that grows with the number of chains
PREFIXES = ("10.200.0.0/28", "2001:db8:f::/64")


def nic(number: int, mode: str) -> Nic:
    uuid = f"{number:08x}-0000-4000-8000-000000000000"
    mac = f"aa:00:00:00:{number >> 8:02x}:{number & 255:02x}"
    ip = f"10.0.{number >> 8}.{number & 255}"
    link = f"br{number // PORTS}" if mode == "bridged" else ""
    return Nic(uuid, f"tap{number}", mode, link, mac, ip, instance="web", index=number)


def resolved(host: LinuxHost, planned: Sequence[Operation]) -> list[Operation]:
    view = host.view()
    return [made for operation in planned for made in operation.resolve(view, [])]


def carry(host: LinuxHost, operations: Sequence[Operation]) -> None:
    answers = host.execute([request for operation in operations for request in operation.apply()], stop=True)
    assert all(answer.ok for answer in answers), answers


def timed(host: LinuxHost, planned: Sequence[Operation]) -> tuple[float, float]:
    """Milliseconds to put all of it in place, and to remove it."""
    begin = time.perf_counter()
    operations = resolved(host, planned)
    carry(host, operations)
    between = time.perf_counter()
    view = host.view()
    requests = [request for operation in reversed(operations) for request in operation.revert(view)]
    assert all(answer.ok for answer in host.execute(requests, stop=False))
    return (between - begin) * 1e3, (time.perf_counter() - between) * 1e3


def medians(host: LinuxHost, planned: Sequence[Operation]) -> tuple[float, float]:
    found = [timed(host, planned) for _ in range(ROUNDS)][3:]
    return statistics.median(add for add, _ in found), statistics.median(remove for _, remove in found)


def hooks(one: Nic) -> tuple[float, float]:
    """Milliseconds that kvm-ifup and kvm-ifdown take, with the start of Python."""
    found = []
    variables = {**environment_of(one), "TAGS": "netcommon:*:announce:false"}
    for _ in range(HOOK_ROUNDS):
        begin = time.perf_counter()
        assert rundoor("kvm-ifup", variables).status == 0
        between = time.perf_counter()
        assert rundoor("kvm-ifdown", variables, one.interface, "hot-remove").status == 0
        found.append(((between - begin) * 1e3, (time.perf_counter() - between) * 1e3))
    return statistics.median(add for add, _ in found), statistics.median(remove for _, remove in found)


@pytest.mark.parametrize("mode", ["bridged", "routed"])
def test_flat(node: Node, mode: str) -> None:
    """One NIC more: its guard alone, with exact addresses and with prefixes, and its whole up and down with and without the guard."""
    host, taps, there = LinuxHost(), list[Tap](), 0
    rows: dict[int, dict[str, tuple[float, float]]] = {}
    node.forwarding()
    for number in range(max(PRESENT) // PORTS + 1):
        run("ip", "link", "add", f"br{number}", "type", "bridge", "forward_delay", "0")
    settings, exact, ranges = Settings(), Options(spoof_guard=True), Options(spoof_guard=True, prefixes=PREFIXES)
    subject = nic(65000, mode)._replace(link="br0" if mode == "bridged" else "", interface="subject")
    taps.append(Tap("subject"))
    for wanted in PRESENT:
        while there < wanted:
            one = nic(there, mode)
            taps.append(Tap(one.interface))
            mine = [*plan(one, settings, exact).before, *([BridgePort(one.interface, one.link)] if mode == "bridged" else [])]
            carry(host, resolved(host, mine))
            there += 1
        *tables, guard = plan(subject, settings, exact).before
        carry(host, resolved(host, tables))  # as the first NIC of the tables finds them: measured apart
        rows[wanted] = {
            "guard": medians(host, [guard]),
            "guard, prefixes": medians(host, [plan(subject, settings, ranges).before[-1]]),
            "hooks": hooks(subject),
        }
        if wanted == 0:
            host.execute([request for table in tables for request in table.revert(host.view())], stop=False)
    print("\n| " + " | ".join(["present, " + mode, *next(iter(rows.values()))]) + " |")
    for wanted, columns in rows.items():
        print("| " + " | ".join([str(wanted), *(f"{add:.2f} / {remove:.2f}" for add, remove in columns.values())]) + " |")
    for wanted, columns in rows.items():
        assert all(now < 2 * then for now, then in zip(columns["hooks"], rows[0]["hooks"], strict=True)), (wanted, rows)
        assert all(max(columns[name]) < BOUND for name in ("guard", "guard, prefixes")), (wanted, rows)
