"""What the hooks are held to, and whether they keep it: each bar with what was measured."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

WARM_UP = {"bridged": 0.55, "routed": 0.85, "routed + table": 0.65, "ovs": 0.5, "ovs tag": 0.35, "ovs trunk": 0.35}
COLD_UP = {"bridged": 2.5, "routed": 4.0, "routed + table": 3.0, "ovs": 1.6, "ovs tag": 1.2, "ovs trunk": 1.2}
WARM_CPU = 0.6
BURST = 2.0  #: times the NICs per second
BULK = 0.75  #: times the rate of one ip -batch
SWITCH_BULK = 1.5  #: times the time of one ovs-vsctl
GROWTH = 1.15
CHECK = 5.0
IDLE = 0.005
LOOKUP = 1.5  #: times that with few NICs
MEMORY = 120  #: MB
DESCRIPTORS = 64  #: more than at the start: each of 16 workers of the agent opens up to four when it works for the first time

Told = Mapping[str, Any]


class Bar(NamedTuple):
    """``met``: None where this run did not measure it."""

    what: str
    limit: str
    measured: str
    met: bool | None


def bars(told: Told) -> Iterator[Bar]:
    """All of them, in the order of the page."""
    for mode, found in told["latency"].items():
        yield from latency(mode, found, "", WARM_UP[mode], COLD_UP[mode])
    for mode, found in told["latency"].items():
        yield from latency(mode, found, ", guard", WARM_UP[mode], COLD_UP[mode])
    yield from bursts(told["bursts"])
    yield from bulk(told["bulk"])
    yield from growth(told["growth"])
    yield from lookup(told["lookup"])


def latency(mode: str, found: Told, guard: str, warm: float, cold: float) -> Iterator[Bar]:
    """Of one mode. The bars are the same with the spoof guard, which Ganeti's script has not."""
    for path, limit in (("warm", warm), ("cold", cold)):
        up, down = found[path + guard]["up"], found[path + guard]["down"]
        name = f"{mode}, {path}{', with the spoof guard' if guard else ''}"
        yield at_most(f"{name}: up", limit, up["wall ratio"])
        ratio = round(down["wall"][0] / up["wall"][0], 2)
        yield Bar(f"{name}: down", "no slower than our up", f"{ratio:.2f} of it", ratio <= 1.0)
        if path == "warm":
            yield at_most(f"{name}: CPU of an up, agent included", WARM_CPU, up["cpu ratio"])


def at_most(what: str, limit: float, value: float) -> Bar:
    return Bar(what, f"≤ {limit:g} of Ganeti's", f"{value:.2f}", value <= limit)


def bursts(found: Told) -> Iterator[Bar]:
    for mode, by_callers in found.items():
        for name, callers, way in itertools.product(("warm", "warm, guard"), ("1", "8"), ("up", "down")):
            times = by_callers[callers][name][way]["times bash's"]
            guard = ", with the spoof guard" if name != "warm" else ""
            what = f"{mode}, many NICs through the hooks, {callers} caller{'s' if callers != '1' else ''}{guard}: {way}"
            yield Bar(what, f"≥ {BURST:g} times Ganeti's NICs/s", f"{times:.2f}", times >= BURST)


def bulk(found: list[Told]) -> Iterator[Bar]:
    for one in found:
        for way in ("up", "down"):
            if one["mode"] == "openvswitch":
                times = one["times ip's"][way]["wall"]
                what = f"openvswitch, `{way} --all`, {one['nics']} NICs"
                yield Bar(what, f"≤ {SWITCH_BULK:g} times one `ovs-vsctl`", f"{times:.2f}", times <= SWITCH_BULK)
                continue
            rate = round(1 / one["times ip's"][way]["wall"], 2)
            what = f"{one['mode']}, `{way} --all`, {one['nics']} NICs"
            yield Bar(what, f"≥ {BULK:g} of the rate of one `ip -batch`", f"{rate:.2f}", rate >= BULK)
        times = one["times ip's"]["check"]["wall"]
        yield Bar(f"{one['mode']}, `check --all`, {one['nics']} NICs", f"≤ {CHECK:g} times `ip`'s listings", f"{times:.2f}", times <= CHECK)


def growth(found: Told) -> Iterator[Bar]:
    for mode, by_count in found.items():
        counts = list(by_count)
        chosen = "1000" if "1000" in counts else counts[-1]
        for name in ("warm", "warm, guard"):
            for way in ("up", "down"):
                times = grown(by_count, name, way, chosen)
                what = f"{mode}, {name.replace(', guard', ', with the spoof guard')}, {chosen} NICs present: {way}"
                yield Bar(what, f"≤ {GROWTH:g} of that with none", f"{times:.2f}", times <= GROWTH)
        first, last = by_count[counts[0]], by_count[counts[-1]]
        memory = round(last["memory"] / 1e6)
        yield Bar(f"{mode}, {counts[-1]} NICs present: the agent's memory", f"≤ {MEMORY} MB", f"{memory} MB", memory <= MEMORY)
        more = last["descriptors"] - first["descriptors"]
        measured = f"{first['descriptors']} with none, {last['descriptors']}"
        yield Bar(f"{mode}, {counts[-1]} NICs present: its descriptors", f"flat: at most {DESCRIPTORS} more", measured, more <= DESCRIPTORS)
        if "idle" in last:
            idle = last["idle"]["cpu"]
            yield Bar(f"{mode}, {counts[-1]} NICs present: CPU of an idle agent", f"< {IDLE:.1%}", f"{idle:.2%}", idle < IDLE)


def lookup(found: Told) -> Iterator[Bar]:
    """Held by the design that is for it; the other is what it is measured against."""
    costs = found["marks"]
    few, many = next(iter(costs)), list(costs)[-1]
    times = round(costs[many] / costs[few], 2)
    yield Bar(
        f"a route lookup, {many} routed NICs present, with marks", f"≤ {LOOKUP:g} of that with {few}", f"{times:.2f}", times <= LOOKUP
    )


def grown(by_count: Told, name: str, way: str, count: str) -> float:
    """How many times the cost with none; of bridged what the kernel itself takes longer for its ports is not counted."""
    then, now = by_count["0"]["subjects"], by_count[count]["subjects"]
    kernel = now["kernel"][way]["wall"][0] - then["kernel"][way]["wall"][0]
    times: float = (now[name][way]["wall"][0] - max(kernel, 0.0)) / then[name][way]["wall"][0]
    return round(times, 2)
