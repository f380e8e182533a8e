"""The page and its plots: every figure is in its place, the bars are judged right, and the same figures give the same bytes."""

from __future__ import annotations

import json
import re
from typing import Any
from xml.dom.minidom import parseString  # it raises if something is no XML; what it reads is our own

import pytest

from tests.bench import bars, measure, page, svg
from tests.bench.nics import MODES
from tests.bench.subjects import SUBJECTS


def told(wall: float = 0.3, growth: float = 1.0) -> dict[str, Any]:
    """Figures of a run. ``wall``: ours in times of Ganeti's; ``growth``: what a NIC costs with 1000 present, in times of that with none."""

    def way(ratio: float, times: float = 1.0) -> dict[str, Any]:
        wall = 10 * ratio * times
        return {"wall": [wall, wall, wall], "cpu": [wall, wall, wall], "wall ratio": ratio, "cpu ratio": ratio}

    def subjects(times: float = 1.0) -> dict[str, Any]:
        ratios = {"bash": 1.0, "kernel": 0.02}
        ways = {one.name: ("up", "down") if one.downs else ("up",) for one in SUBJECTS}
        return {name: {each: way(ratios.get(name, wall), times) for each in both} for name, both in ways.items()}

    rate = {"per second": 100.0, "cpu": 1.0, "times bash's": 2.5}
    bursting = {name: {"up": rate, "down": rate} for name in ("bash", *page.OURS)}
    each, times = {"wall": 0.1, "cpu": 0.1}, {"wall": 1.2, "cpu": 1.2}
    present = {"memory": 20_000_000, "descriptors": 40}
    return {
        "sample": False,
        "extent": {"rounds": 41, "burst": 500, "present": [0, 1000], "growth_rounds": 31},
        "machine": {"kernel": "6.1.0", "python": "3.11.2", "cores": 2, "load": 0.5, "date": "2026-01-01"},
        "seconds": 600,
        "latency": {mode: subjects() for mode in MODES},
        "bursts": {"bridged": dict.fromkeys(("1", "2", "8"), bursting)},
        "growth": {
            "bridged": {
                "0": {"subjects": subjects(), **present},
                "1000": {"subjects": subjects(growth), **present, "idle": {"cpu": 0.0001, "period": 60.0}},
            }
        },
        "bulk": [
            {
                "mode": mode,
                "nics": 500,
                "ms for each NIC": dict.fromkeys(("up", "down", "check", "ip up", "ip down", "ip listings"), each),
                "times ip's": dict.fromkeys(("up", "down", "check"), times),
            }
            for mode in ("bridged", "openvswitch")
        ],
        "lookup": {"a rule for each NIC": {"10": 0.5, "5000": 40.0}, "marks": {"10": 0.5, "5000": 0.5 * growth}},
    }


def test_the_page_is_filled() -> None:
    text = page.document(told(), page.TEMPLATE.read_text())
    assert re.findall(r"\{[a-z]+\}", text) == []
    assert "Ganeti's own script" in text or "Ganeti 3.0.2's own" in text
    tables = [line.count("|") for line in text.splitlines() if line.startswith("| bridged | ")]
    assert len(tables) > 20
    assert set(re.findall(r"\]\((performance-[a-z-]+\.svg)\)", text)) >= set(page.plots(told()))


def test_a_part_that_was_measured_anew_is_told_and_replaces_that_of_the_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    old, new, written = tmp_path / "old.json", tmp_path / "new.json", []
    old.write_text(json.dumps(told()))
    monkeypatch.setattr(page, "write", written.append)
    monkeypatch.setitem(measure.PARTS, "lookup", lambda extent: {"marks": {"10": 9.0}} if extent is measure.FULL else {})
    assert measure.main(["--sample", "--from-json", str(old), "--part", "lookup", "--json", str(new)]) == 0
    assert measure.main(["--from-json", str(new)]) == 0
    assert written == [{**told(), "lookup": {"marks": {"10": 9.0}}, "apart": ["lookup"]}] * 2
    template = page.TEMPLATE.read_text()
    assert "Measured anew, apart from it: lookup." in page.document({**told(), "apart": ["lookup"]}, template)
    assert "apart from it" not in page.document({**told(), "apart": []}, template)


def test_a_run_without_a_part_writes_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    monkeypatch.setattr(page, "ROOT", tmp_path)
    figures = told()
    del figures["bulk"]
    with pytest.raises(KeyError):
        page.write(figures)
    assert list(tmp_path.iterdir()) == []


def test_bars_are_judged() -> None:
    """At the bar it is met; beyond it is not; the down is compared with our own up."""
    good, bad = ({one.what: one.met for one in bars.bars(told(wall))} for wall in (0.35, 0.9))
    assert good["ovs tag, warm: up"] and good["ovs tag, warm: down"] and good["bridged, warm: CPU of an up, agent included"]
    assert not bad["ovs tag, warm: up"] and bad["ovs tag, cold: up"] and bad["ovs tag, warm: down"]
    assert all(met for what, met in good.items() if "growth" in what)


def test_what_the_kernel_takes_longer_does_not_count() -> None:
    """Everything ten times as dear, the kernel too: ours has grown, by more than the kernel."""
    by_count = told(0.3, 10.0)["growth"]["bridged"]
    assert bars.grown(by_count, "warm", "up", "1000") == round((30 - (2 - 0.2)) / 3, 2)
    assert [one.met for one in bars.bars(told(0.3, 1.2)) if one.what == "bridged, warm, 1000 NICs present: up"] == [False]
    assert [one.met for one in bars.bars(told(0.3, 1.1)) if one.what == "bridged, warm, 1000 NICs present: up"] == [True]


@pytest.mark.parametrize(("times", "met"), [(1.5, True), (1.6, False)])
def test_a_lookup_is_held_to_that_with_few_nics(times: float, met: bool) -> None:
    assert [one.met for one in bars.bars(told(0.3, times)) if one.what.startswith("a route lookup")] == [met]


def test_plots_are_whole_and_the_same_again() -> None:
    first, second = page.plots(told()), page.plots(told())
    assert first == second
    assert len(first) == 4
    for drawn in first.values():
        parseString(drawn)  # noqa: S318


@pytest.mark.parametrize(("largest", "most"), [(0.97, 1), (1.0, 1), (1.01, 1.5), (4.7, 5), (77, 80), (300, 300), (0.03, 0.03)])
def test_axes_end_at_round_numbers(largest: float, most: float) -> None:
    assert svg.top_of(largest) == pytest.approx(most)


def test_names_are_escaped() -> None:
    parseString(svg.bars("<a & b>", "<ms>", {"<x>": {"&": 1.0}}, 1.0))  # noqa: S318
    parseString(svg.lines("<a & b>", "<ms>", ["<0>"], {"<&>": [1.0]}))  # noqa: S318
