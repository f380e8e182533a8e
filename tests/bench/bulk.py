"""What many NICs in one process cost: up --all, down --all and check --all against ip(8) doing the same kernel work, in one run.

    unshare -n -m tests/support/python tests.bench.bulk [--nics 500] [--rounds 5] [--guard] [--json FILE]

Needs root and namespaces of its own. Wall and CPU are medians, in milliseconds for each NIC; only ratios mean anything on another machine.
``ip -batch`` writes no sysctls and no records: what it does is what of our work is netlink's.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from statistics import median
from typing import Any, NamedTuple

from netcommon.lifecycle import execute
from netcommon.lifecycle.batch import down_all, up_all
from netcommon.lifecycle.check import check
from netcommon.lifecycle.context import HOT_REMOVE, Call, Clock, Node, Outcome, open_node
from netcommon.log import Log, Recorder
from netcommon.settings.model import Settings
from runtime.environment import DownHint, nic_from_environment
from runtime.nic import Nic
from runtime.paths import Paths

MODES = {"bridged": {"MODE": "bridged", "LINK": "br0"}, "routed": {"MODE": "routed", "LINK": "100"}}
#: Where Open vSwitch runs.
OPENVSWITCH = "openvswitch"
MOST = 1000  #: a bridge takes 1023 ports
LISTINGS = (["ip", "-d", "-j", "link"], ["ip", "-j", "rule"], ["ip", "-j", "route", "show", "table", "all"])


class Cost(NamedTuple):
    """Of one run over all NICs, in seconds."""

    wall: float
    cpu: float


def nics(mode: str, count: int, guard: bool) -> list[Nic]:
    """The NICs tap0, tap1, ... of one mode."""
    options = "" if guard else "netcommon:*:spoof_guard:off"
    return [
        nic_from_environment(
            {
                **(MODES.get(mode) or {"MODE": OPENVSWITCH, "LINK": "ovs0"}),
                "INTERFACE": f"tap{number}",
                "IP": address(number),
                "MAC": f"aa:00:00:11:{number // 256:02x}:{number % 256:02x}",
                "INSTANCE": f"web{number}",
                "INTERFACE_INDEX": "0",
                "INTERFACE_UUID": f"11111111-1111-4111-8111-{number:012x}",
                "TAGS": options,
            }
        )
        for number in range(count)
    ]


def address(number: int) -> str:
    return f"10.1.{number // 250}.{number % 250 + 1}"


def by_hand(mode: str, number: int, up: bool) -> list[str]:
    """The same kernel work as lines of ``ip -batch``."""
    tap, route = f"tap{number}", f"{address(number)}/32 dev tap{number} table 100 proto 174"
    if mode == "bridged":
        mac = f"fe:00:00:11:{number // 256:02x}:{number % 256:02x}"
        return [f"link set dev {tap} " + (f"address {mac} alias u{number} mtu 1500 master br0 up" if up else "nomaster down")]
    rule = f"iif {tap} lookup 100 pref 500 protocol 174"
    if up:
        return [f"link set dev {tap} alias u{number} up", f"rule add {rule}", f"route add {route}"]
    return [f"route del {route}", f"rule del {rule}", f"link set dev {tap} down"]


def ip(lines: Sequence[str]) -> None:
    subprocess.run(["ip", "-batch", "-"], input="\n".join(lines) + "\n", text=True, check=True)


def by_others(mode: str, count: int, up: bool) -> None:
    """What ours is compared with: one ``ip -batch``, or one transaction of ovs-vsctl(8) with the external_ids that ours bear."""
    if mode != OPENVSWITCH:
        ip([line for number in range(count) for line in by_hand(mode, number, up)])
        return
    words = ["ovs-vsctl"]
    for number in range(count):
        tap = f"tap{number}"
        words += ["--", "add-port", "ovs0", tap, f"external_ids:number={number}"] if up else ["--", "del-port", "ovs0", tap]
    subprocess.run(words, check=True)


def list_all() -> None:
    for command in LISTINGS:
        subprocess.run(command, stdout=subprocess.DEVNULL, check=True)


def cost(work: Callable[[], object]) -> Cost:
    """What it takes, children included."""

    def spent() -> float:
        kinds = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
        return sum(sum(resource.getrusage(kind)[:2]) for kind in kinds)

    cpu, wall = spent(), time.perf_counter()
    work()
    return Cost(time.perf_counter() - wall, spent() - cpu)


def good(results: Sequence[tuple[object, object]]) -> None:
    """Raises RuntimeError unless each NIC was changed: what did nothing has no price."""
    wrong = [result for _of, result in results if not (isinstance(result, Outcome) and result.changed)]
    if wrong:
        raise RuntimeError(f"{len(wrong)} NICs were not changed, such as: {wrong[0]}")


def examined(node: Node) -> None:
    records, problems = node.store.all()
    view = node.host.snapshot()
    known: execute.Known = {}
    reports = [check(node, view, record, known) for record in records]
    if problems or not reports or not all(report.good for report in reports):
        raise RuntimeError("check finds fault with what was just made")


def measure(mode: str, count: int, rounds: int, guard: bool) -> dict[str, Any]:
    """One mode: medians for each NIC, and the ratios of our cost to ip's."""
    log = Log(Recorder())
    node = open_node(Paths(), Settings(), Clock())
    wanted = nics(mode, count, guard)
    hints = [DownHint(nic.uuid, nic.interface) for nic in wanted]
    ip([f"tuntap add tap{number} mode tap" for number in range(count)])
    work: dict[str, Callable[[], object]] = {
        "ip up": lambda: by_others(mode, count, True),
        "ip listings": list_all,
        "ip down": lambda: by_others(mode, count, False),
        "up": lambda: good(list(up_all(node, wanted, lambda _nic: Call(log, time.monotonic() + 60)))),
        "check": lambda: examined(node),
        "down": lambda: good(list(down_all(node, hints, lambda _hint: Call(log, time.monotonic() + 60, context=HOT_REMOVE, final=True)))),
    }
    found: dict[str, list[Cost]] = {name: [] for name in work}
    for _round in range(rounds):
        for name, doing in work.items():
            found[name].append(cost(doing))
    ip([f"link del tap{number}" for number in range(count)])
    of_each = {
        name: {field: round(median(getattr(each, field) for each in costs) / count * 1000, 4) for field in Cost._fields}
        for name, costs in found.items()
    }
    pairs = {"up": "ip up", "down": "ip down", "check": "ip listings"}
    ratios = {
        ours: {
            field: round(median(getattr(a, field) / getattr(b, field) for a, b in zip(found[ours], found[theirs], strict=True)), 2)
            for field in Cost._fields
        }
        for ours, theirs in pairs.items()
    }
    return {"mode": mode, "nics": count, "rounds": rounds, "guard": guard, "ms for each NIC": of_each, "times ip's": ratios}


def prepare() -> None:
    """What is ours alone in these namespaces. Raises SystemExit where they are the machine's own."""
    if any(name != "lo" for name in os.listdir("/proc/sys/net/ipv4/conf") if name not in ("all", "default")):
        sys.exit("this needs network and mount namespaces of its own: unshare -n -m")
    for kind, place in (("tmpfs", "/run"), ("sysfs", "/sys")):
        subprocess.run(["mount", "-t", kind, "none", place], check=True)
    ip(["link set lo up", "link add br0 type bridge", "link set br0 up"])


def main(arguments: Sequence[str]) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nics", type=int, default=500, choices=range(1, MOST + 1), metavar=f"1..{MOST}")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--guard", action="store_true", help="with the spoof guard, which ip does not have")
    parser.add_argument("--json", default="", metavar="FILE")
    options = parser.parse_args(arguments)
    prepare()
    results = [measure(mode, options.nics, options.rounds, options.guard) for mode in MODES]
    for result in results:
        print(f"{result['mode']}, {result['nics']} NICs, {'with' if result['guard'] else 'without'} the spoof guard")
        for name, each in result["ms for each NIC"].items():
            times = result["times ip's"].get(name)
            against = f"   {times['wall']:.2f} (CPU {times['cpu']:.2f}) times ip's" if times else ""
            print(f"  {name:12} wall {each['wall']:8.3f} ms   CPU {each['cpu']:8.3f} ms{against}")
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump(results, file, indent=2)
    return 0
