"""Rates and VLANs as people say them."""

from __future__ import annotations

from runtime.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

UNITS = ((10**9, "gbit"), (10**6, "mbit"), (10**3, "kbit"))


def rate(bits: int) -> str:
    """Bits a second in the largest unit of tc(8) that loses nothing: "100mbit"."""
    return next((f"{bits // size}{unit}" for size, unit in UNITS if bits % size == 0), f"{bits}bit") if bits else "none"


def ranges(vids: Iterable[int]) -> str:
    """VLANs as few words: "10, 20-24"."""
    found: list[list[int]] = []
    for vid in sorted(set(vids)):
        if found and found[-1][1] == vid - 1:
            found[-1][1] = vid
        else:
            found.append([vid, vid])
    return ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in found)


def vlan(access: int | None, trunks: Sequence[int]) -> str:
    """Say what a port carries: "VLAN 10", "VLAN 10, tagged 20-24", "tagged 20"; "" for no VLAN."""
    words = [] if access is None else [f"VLAN {access}"]
    words += [f"tagged {ranges(trunks)}"] if trunks else []
    return ", ".join(words)
