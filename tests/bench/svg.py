"""Two kinds of plots as SVG, small enough to read as text: bars in groups, and lines. The same figures give the same bytes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

WIDTH, HEIGHT = 860, 380
LEFT, RIGHT, TOP, BOTTOM = 60, 20, 64, 44
#: Each subject has its own in all plots; the colour-blind tell them apart too (Okabe and Ito).
COLOURS = {
    "bash": "#999999",
    "kernel": "#009e73",
    "warm": "#0072b2",
    "warm, guard": "#56b4e9",
    "cold": "#d55e00",
    "cold, guard": "#e69f00",
}
OTHERS = "#000000"


def colour(name: str) -> str:
    return COLOURS.get(name, OTHERS)


def text(x: float, y: float, words: str, anchor: str = "middle", size: int = 12, more: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}"{more}>{escape(words)}</text>'


def line(x1: float, y1: float, x2: float, y2: float, stroke: str, more: str = "") -> str:
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{stroke}"{more}/>'


def top_of(largest: float) -> float:
    """A round number not below ``largest``, for the upper end of an axis."""
    step = 1.0
    while step > largest:
        step /= 10
    while step * 10 < largest:
        step *= 10
    return next(step * factor for factor in (1, 1.5, 2, 3, 4, 5, 6, 8, 10) if step * factor >= largest)


def height(value: float, most: float) -> float:
    """Where a value is on the page."""
    return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * value / most


def frame(title: str, unit: str, most: float, names: Sequence[str]) -> list[str]:
    """Title, vertical axis and legend."""
    box = f"0 0 {WIDTH} {HEIGHT}"
    drawn = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" viewBox="{box}" font-family="sans-serif" role="img">',
        f"<title>{escape(title)}</title>",
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
        text(LEFT, 20, title, "start", 15),
        text(WIDTH - RIGHT, 20, unit, "end"),
    ]
    for part in range(6):
        value = most * part / 5
        drawn += [line(LEFT, height(value, most), WIDTH - RIGHT, height(value, most), "#dddddd")]
        drawn += [text(LEFT - 6, height(value, most) + 4, f"{value:.4g}", "end")]
    for number, name in enumerate(names):
        x = LEFT + number * (WIDTH - LEFT - RIGHT) / max(len(names), 1)
        drawn += [f'<rect x="{x:.1f}" y="32" width="12" height="12" fill="{colour(name)}"/>', text(x + 17, 42, name, "start")]
    return drawn


def bars(title: str, unit: str, groups: Mapping[str, Mapping[str, float]], marked: float | None = None) -> str:
    """Groups of bars, ``groups[group][name]``. ``marked``: a line at this value, which what is below it has beaten."""
    names = list(dict.fromkeys(name for group in groups.values() for name in group))
    most = top_of(max([marked or 0.0, *(value for group in groups.values() for value in group.values())]))
    drawn = frame(title, unit, most, names)
    room = (WIDTH - LEFT - RIGHT) / len(groups)
    wide = room * 0.84 / len(names)
    for position, (group, values) in enumerate(groups.items()):
        start = LEFT + room * (position + 0.08)
        drawn.append(text(start + room * 0.42, HEIGHT - BOTTOM + 18, group))
        for name, value in values.items():
            x, y = start + wide * names.index(name), height(value, most)
            drawn.append(
                f'<rect x="{x:.1f}" y="{y:.1f}" width="{wide * 0.92:.1f}" height="{HEIGHT - BOTTOM - y:.1f}" fill="{colour(name)}"/>'
            )
            drawn.append(text(x + wide * 0.46, y - 3, f"{value:.3g}", size=9))
    if marked is not None:
        drawn.append(line(LEFT, height(marked, most), WIDTH - RIGHT, height(marked, most), "#000000", ' stroke-dasharray="5 4"'))
    return "\n".join([*drawn, "</svg>"]) + "\n"


def lines(title: str, unit: str, places: Sequence[str], series: Mapping[str, Sequence[float]]) -> str:
    """One line for each of ``series``, whose values are at ``places``, evenly apart."""
    most = top_of(max(value for values in series.values() for value in values))
    drawn = frame(title, unit, most, list(series))
    step = (WIDTH - LEFT - RIGHT) / max(len(places), 1)
    across = [LEFT + step * (number + 0.5) for number in range(len(places))]
    drawn += [text(x, HEIGHT - BOTTOM + 18, place) for x, place in zip(across, places, strict=True)]
    for name, values in series.items():
        points = [(x, height(value, most)) for x, value in zip(across, values, strict=True)]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        drawn.append(f'<polyline points="{path}" fill="none" stroke="{colour(name)}" stroke-width="2"/>')
        drawn += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" fill="{colour(name)}"/>' for x, y in points]
    return "\n".join([*drawn, "</svg>"]) + "\n"
