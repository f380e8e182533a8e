"""Measure what a registry costs a node, and how soon what it says is so: python -m tests.bench.joined [NICS] prints a table.

One node in namespaces of its own with bridged NICs that are up, a registry's service as a process beside it, real agents one after the
other: of a node that has not joined, and of one that has. Needs root.
"""

from __future__ import annotations

import contextlib
import os
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from netcommon.lifecycle.context import Call, Clock
from netcommon.lifecycle.up import up
from netcommon.log import recording
from netregistry.client import Client
from runtime.environment import nic_from_environment
from runtime.membership import Membership, write
from runtime.paths import Paths
from tests.support.agent import Agent, agent, seconds_until, watched
from tests.support.netns import isolate, wait_until
from tests.support.node import Node, fresh
from tests.support.registry import NODES
from tests.support.registry_process import Registry
from tests.support.rundoor import rundoor

NICS, ROUNDS = 500, 100
IDLE = 120.0  #: seconds
CLUSTER = "gnt.example.com"
SETTINGS = "[agent]\nresync = 3600\nreap_interval = 3600\n[registry]\ncompare_delay = 3600\n"


def environment(number: int) -> dict[str, str]:
    """NIC ``number``, on its own tap."""
    return {
        "INTERFACE": f"tap{number}",
        "MODE": "bridged",
        "LINK": "br0",
        "IP": "",
        "MAC": f"aa:00:00:01:{number >> 8:02x}:{number & 255:02x}",
        "VLAN": "",
        "INSTANCE": f"web{number}",
        "INTERFACE_INDEX": "0",
        "INTERFACE_UUID": f"{number:08x}-0667-415f-9a43-786dc01cbf24",
        "TAGS": "",
    }


def switches(pid: int) -> int:
    """Count how often the process's threads have gone to sleep: as often they were woken."""
    found = 0
    for task in os.listdir(f"/proc/{pid}/task"):
        with contextlib.suppress(OSError):
            text = Path(f"/proc/{pid}/task/{task}/status").read_text()
            found += int(text.partition("\nvoluntary_ctxt_switches:")[2].split()[0])
    return found


def ran(pid: int) -> float:
    """Seconds for which the process's threads have had a processor, to a nanosecond (schedstat)."""
    return sum(int(Path(f"/proc/{pid}/task/{task}/schedstat").read_text().split()[0]) / 1e9 for task in os.listdir(f"/proc/{pid}/task"))


def idle(running: Agent) -> dict[str, float]:
    """Let an agent have nothing to do."""
    running.rested(120)
    used, woken, begun = ran(running.pid), switches(running.pid), time.monotonic()
    running.lasts(IDLE)
    spent = time.monotonic() - begun
    used, woken = ran(running.pid) - used, switches(running.pid) - woken
    return {
        "CPU of an idle agent, seconds an hour": used / spent * 3600,
        "CPU of an idle agent, % of a processor": used / spent * 100,
        "wakeups of its threads a minute": woken / spent * 60,
        "memory, MB": running.memory / 1e6,
    }


def until(holds: Callable[[], bool]) -> float:
    """Give the milliseconds until something holds, to 4 ms: a registry takes 500 questions a second from one who asks, or less."""
    return seconds_until(holds, 60, pause=0.004) * 1000


def said(took: list[float]) -> str:
    return f"{statistics.median(took):.0f} ({min(took):.0f} to {max(took):.0f})"


class Joined:
    """A node that has joined, and its agent. ``asked``: as operator."""

    def __init__(self, node: Node, registry: Registry, running: Agent, asked: Client) -> None:
        self.node, self.registry, self.running, self.asked = node, registry, running, asked

    def shown(self, number: int) -> dict[str, Any]:
        return dict(self.asked.get(f"nics/{environment(number)['INTERFACE_UUID']}").body)

    def settled(self, nics: int) -> bool:
        """Tell whether all is reported and applied. Before the agent's first inventory it has no marks either, so the registry is asked."""
        status = self.running.status()["agent"]
        if status["registry"] != "in step" or status["registry marks"] or status["registry jobs"]:
            return False
        shown = self.shown(nics - 1)
        return bool(shown["shown"]["state"] == "running" and shown["shown"]["applied"] == shown["revision"])

    def flag_in_kernel(self) -> float:
        """From an operator's request to the flag of the bridge's port: as the kernel has it, in sysfs."""
        path, uuid = Path("/sys/class/net/tap0/brport/isolated"), environment(0)["INTERFACE_UUID"]
        wanted = "0" if path.read_text().strip() == "1" else "1"
        begun = time.monotonic()
        self.asked.change("PATCH", f"nics/{uuid}", {"options": [{"name": "isolated", "value": "yes" if wanted == "1" else "no"}]})
        until(lambda: path.read_text().strip() == wanted)
        took = (time.monotonic() - begun) * 1000
        until(lambda: self.shown(0)["shown"]["applied"] == self.shown(0)["revision"])
        return took

    def reported(self, number: int) -> tuple[float, float]:
        """From a hook's end to what the registry says: up, and stopped after the tap has gone."""
        tap = self.node.tap(f"tap{number}")
        assert rundoor("kvm-ifup", environment(number)).status == 0
        came = until(lambda: self.shown(number)["shown"]["state"] == "running")
        tap.close()
        return came, until(lambda: self.shown(number)["shown"]["state"] == "stopped")

    def hooks(self, number: int) -> list[float]:
        """An up and a down of one NIC, warm, some times: milliseconds of each pair."""
        took = []
        for _ in range(20):
            tap = self.node.tap(f"tap{number}")
            begun = time.monotonic()
            assert rundoor("kvm-ifup", environment(number)).status == 0
            assert rundoor("kvm-ifdown", environment(number)).status == 0
            took.append((time.monotonic() - begun) * 1000)
            tap.close()
        return took


@contextlib.contextmanager
def filled(nics: int) -> Iterator[Node]:
    """A node with so many NICs up."""
    isolate()
    with fresh() as node:
        node.bridge("br0")
        with watched() as seen:
            for number in range(nics):
                node.tap(f"tap{number}")
                up(seen.node, nic_from_environment(environment(number)), Call(recording()[0], Clock().now() + 30, "bench"))
        yield node


def measured(nics: int) -> dict[str, Any]:
    """Give all figures, by what they are of."""
    with tempfile.TemporaryDirectory(prefix="joined-bench-") as folder, filled(nics) as node:
        with agent(settings=SETTINGS) as running:
            alone = idle(running)
        registry = Registry(Path(folder))
        registry.start()
        try:
            registry.here()
            with registry.client() as asked, registry.client(f"importer:{CLUSTER}") as importer:
                asked.change("POST", "nodes", {"uuid": NODES[0], "name": "node0", "cluster": CLUSTER})
                for number in range(nics + 10):
                    one = environment(number)
                    value = {"uuid": one["INTERFACE_UUID"], "instance": one["INSTANCE"], "index": 0, "mac": one["MAC"]}
                    importer.change("POST", "nics", value)
                write(Paths(), Membership(NODES[0], "node0"))
                with agent(settings=SETTINGS) as running:
                    found = Joined(node, registry, running, asked)
                    wait_until(lambda: found.settled(nics), 120, "all is reported and applied")
                    running.rested(120)
                    first = running.memory / 1e6
                    # as it is from then on: what has just been written of all NICs at once is remembered, as after as many ups
                    running.restart()
                    wait_until(lambda: found.settled(nics), 120, "it is in step")
                    together = idle(running)
                    flags = [found.flag_in_kernel() for _ in range(ROUNDS)]
                    told = [found.reported(nics) for _ in range(ROUNDS)]
                    free, frozen = [], []
                    for _ in range(3):
                        free += found.hooks(nics + 1)
                        registry.signal(signal.SIGSTOP)
                        frozen += found.hooks(nics + 1)
                        registry.signal(signal.SIGCONT)
        finally:
            registry.kill()
    return {"alone": alone, "joined": together, "first": first, "flags": flags, "told": told, "free": free, "frozen": frozen}


def table(found: dict[str, Any]) -> str:
    """Give what docs/performance.md says, in Markdown."""
    rows = [("what", "has not joined", "has joined"), ("---", "---", "---")]
    rows += [(name, f"{one:.2f}", f"{found['joined'][name]:.2f}") for name, one in found["alone"].items()]
    rows += [
        ("memory, all NICs having just come into the registry, MB", "", f"{found['first']:.2f}"),
        ("a flag is changed in the registry, until the kernel has it, ms", "", said(found["flags"])),
        ("up, until the registry says running, ms", "", said([came for came, _went in found["told"]])),
        ("a tap goes, until the registry says stopped, ms", "", said([went for _came, went in found["told"]])),
        ("an up and a down, warm, the registry as it should be, ms", "", said(found["free"])),
        ("an up and a down, warm, the registry stands still (SIGSTOP), ms", "", said(found["frozen"])),
    ]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def main(arguments: list[str]) -> None:
    """Print the table."""
    nics = int(arguments[0]) if arguments else NICS
    print(f"{nics} NICs, load {os.getloadavg()[0]:.1f} at the beginning")
    print(table(measured(nics)))
    print(f"load {os.getloadavg()[0]:.1f} at the end")


if __name__ == "__main__":
    main(sys.argv[1:])
