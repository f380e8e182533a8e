"""What a route lookup of the node costs where many routed NICs are: with a rule for each, and with marks (docs/routed.md)."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from statistics import median

from netcommon.lifecycle.batch import up_all
from netcommon.lifecycle.context import Call, Clock, Node, open_node
from netcommon.log import Log, recording
from netcommon.settings.model import Settings
from runtime.paths import Paths
from tests.bench.bulk import good, ip, nics
from tests.support.node import fresh

MASK = 0xFFFF0000
DESIGNS: Mapping[str, Settings] = {"a rule for each NIC": Settings(), "marks": Settings(rule_mark=MASK)}
FAR = ("198.51.100.1", 9)
OFTEN = 2000


def lookups(counts: Sequence[int], rounds: int) -> dict[str, dict[str, float]]:
    """Microseconds of one lookup by the number of NICs in table 100, for each design: medians."""
    return {name: {str(count): cost for count, cost in measured(settings, counts, rounds)} for name, settings in DESIGNS.items()}


def measured(settings: Settings, counts: Sequence[int], rounds: int) -> Iterator[tuple[int, float]]:
    with fresh(), opened(settings) as (node, log):
        ip(["link set lo up", "link add br0 type bridge", "address add 192.0.2.2/24 dev br0", "link set br0 up"])
        ip(["route add default via 192.0.2.1", "route add default via 192.0.2.1 table 100"])
        present = 0
        for count in counts:
            new = nics("routed", count, False)[present:]
            ip([f"tuntap add {nic.interface} mode tap" for nic in new])
            good(list(up_all(node, new, lambda _nic: Call(log, time.monotonic() + 600))))
            present = count
            yield count, round(median(once() for _ in range(rounds)), 2)


@contextmanager
def opened(settings: Settings) -> Iterator[tuple[Node, Log]]:
    log, _ = recording()
    node = open_node(Paths(), settings, Clock())
    try:
        yield node, log
    finally:
        node.store.close()
        node.host.close()


def once() -> float:
    """To connect a datagram socket sends nothing: it is a lookup of the route, and a microsecond."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        begin = time.perf_counter()
        for _ in range(OFTEN):
            asking.connect(FAR)
        return (time.perf_counter() - begin) / OFTEN * 1e6
