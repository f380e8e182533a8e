"""docs/performance.md and its plots, made of the figures of one run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.bench import svg
from tests.bench.bars import bars
from tests.support.bootstrap import ROOT

TEMPLATE = Path(__file__).with_name("performance.template.md")
PAGE = "docs/performance.md"
TIMES = "times bash's"
OURS = ("warm", "warm, guard", "cold", "cold, guard")

Told = Mapping[str, Any]


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """In Markdown."""
    return "\n".join("| " + " | ".join(cells) + " |" for cells in (heads, ["---"] * len(heads), *rows))


def spread(three: Sequence[float]) -> str:
    """Median and quartiles."""
    return f"{three[0]:.2f} ({three[1]:.2f}-{three[2]:.2f})"


def held(told: Told) -> str:
    """The table of the bars."""
    words = {True: "yes", False: "**no**", None: "not measured"}
    return table(["what", "bar", "measured", "met"], ([one.what, one.limit, one.measured, words[one.met]] for one in bars(told)))


def count(told: Told) -> str:
    """How many of them are met."""
    found = list(bars(told))
    return f"{sum(one.met is True for one in found)} of {len(found)}"


def latencies(found: Told) -> str:
    """A row for each mode and subject."""
    rows = []
    for mode, subjects in found.items():
        for name, ways in subjects.items():
            up, down = ways["up"], ways.get("down")
            rows.append(
                [
                    mode,
                    name,
                    spread(up["wall"]),
                    f"{up['wall ratio']:.2f}",
                    f"{up['cpu'][0]:.2f}",
                    f"{up['cpu ratio']:.2f}",
                    spread(down["wall"]) if down else "none",
                    f"{down['wall ratio']:.2f}" if down else "",
                    f"{down['cpu'][0]:.2f}" if down else "",
                ]
            )
    heads = ["mode", "who", "up, ms", "of Ganeti's", "CPU, ms", "of Ganeti's", "down, ms", "of Ganeti's up", "CPU, ms"]
    return table(heads, rows)


def bursts(found: Told) -> str:
    rows = [
        [mode, callers, name, way, f"{one['per second']:.0f}", f"{one[TIMES]:.2f}", f"{one['cpu']:.2f}"]
        for mode, by_callers in found.items()
        for callers, subjects in by_callers.items()
        for name, ways in subjects.items()
        for way, one in ways.items()
    ]
    return table(["mode", "callers", "who", "direction", "NICs/s", "times Ganeti's up", "CPU, ms a NIC"], rows)


def growth(found: Told) -> str:
    rows = []
    for mode, by_count in found.items():
        for present, one in by_count.items():
            for name, ways in one["subjects"].items():
                cells = [f"{ways[way]['wall'][0]:.2f}" if way in ways else "" for way in ("up", "down")]
                rows.append([mode, present, name, *cells, f"{ways['up']['wall ratio']:.2f}"])
    return table(["mode", "present", "who", "up, ms", "down, ms", "up, of Ganeti's there"], rows)


def agents(found: Told) -> str:
    rows = [
        [mode, present, f"{one['memory'] / 1e6:.0f}", str(one["descriptors"]), resting(one)]
        for mode, by_count in found.items()
        for present, one in by_count.items()
    ]
    return table(["mode", "present", "resident, MB", "descriptors", "CPU when nothing happens"], rows)


def resting(one: Told) -> str:
    return f"{one['idle']['cpu']:.2%} over {one['idle']['period']:.0f} s" if "idle" in one else ""


def lookup(found: Told) -> str:
    counts = list(next(iter(found.values())))
    rows = [[name, *(f"{costs[count]:.2f}" for count in counts)] for name, costs in found.items()]
    return table(["microseconds a lookup, by NICs present", *counts], rows)


def bulk(found: Sequence[Told]) -> str:
    rows = []
    for one in found:
        for name, theirs in (("up", "ip up"), ("down", "ip down"), ("check", "ip listings")):
            each, times = one["ms for each NIC"], one["times ip's"][name]
            cells = [f"{each[name]['wall']:.3f}", f"{each[theirs]['wall']:.3f}", f"{times['wall']:.2f}", f"{times['cpu']:.2f}"]
            rows.append([one["mode"], str(one["nics"]), f"`{name} --all`", *cells])
    return table(["mode", "NICs", "command", "ms a NIC", "the other, ms a NIC", "times the other's", "CPU, times the other's"], rows)


def plots(told: Told) -> dict[str, str]:
    """By file name in docs/."""
    up = {mode: {name: found[name]["up"]["wall ratio"] for name in OURS} for mode, found in told["latency"].items()}
    cpu = {mode: {name: found[name]["up"]["cpu ratio"] for name in OURS} for mode, found in told["latency"].items()}
    rates = {
        f"{mode}, {callers}": {name: ways["up"]["per second"] for name, ways in subjects.items()}
        for mode, by_callers in told["bursts"].items()
        for callers, subjects in by_callers.items()
    }
    drawn = {
        "performance-wall.svg": svg.bars("One NIC up, times Ganeti's script", "wall time; less is better", up, 1.0),
        "performance-cpu.svg": svg.bars("One NIC up, times Ganeti's script", "CPU, agent included; less is better", cpu, 1.0),
        "performance-bursts.svg": svg.bars("NICs up per second, by mode and callers", "more is better", rates),
    }
    for mode, by_count in told["growth"].items():
        names = list(by_count["0"]["subjects"])
        series = {name: [one["subjects"][name]["up"]["wall"][0] for one in by_count.values()] for name in names}
        drawn[f"performance-growth-{mode.split()[0]}.svg"] = svg.lines(
            f"One NIC up, {mode}, by how many are present", "ms; less is better", list(by_count), series
        )
    return drawn


def document(told: Told, template: str) -> str:
    """The page: the template with the figures in it. Raises KeyError where the run lacks a part."""
    extent, machine = told["extent"], told["machine"]
    run = (
        f"{'A sample: `tests/bench/run --sample`' if told['sample'] else '`tests/bench/run`'}, {machine['date']}, {told['seconds']} s: "
        f"Linux {machine['kernel']}, Python {machine['python']}, {machine['cores']} cores, load {machine['load']} at the start. "
        f"Medians of {extent['rounds']} rounds; {extent['burst']} NICs at once; growth up to {extent['present'][-1]} NICs, "
        f"medians of {extent['growth_rounds']}."
        + (" Medians of so few rounds say that it works, and not much more." if told["sample"] else "")
        + (f" Measured anew, apart from it: {', '.join(told['apart'])}." if told.get("apart") else "")
    )
    parts = {
        "run": run,
        "count": count(told),
        "bars": held(told),
        "latency": latencies(told["latency"]),
        "bursts": bursts(told["bursts"]),
        "growth": growth(told["growth"]),
        "agent": agents(told["growth"]),
        "bulk": bulk(told["bulk"]),
        "lookup": lookup(told["lookup"]),
    }
    for name, part in parts.items():
        template = template.replace("{" + name + "}", part)
    return template


def write(told: Told) -> None:
    """The page and its plots. Raises KeyError, before anything is written, where the run lacks a part."""
    files = {PAGE: document(told, TEMPLATE.read_text()), **{f"docs/{name}": drawn for name, drawn in plots(told).items()}}
    for name, content in files.items():
        (ROOT / name).write_text(content)
