"""Values as people say them."""

from __future__ import annotations

import re

from runtime.format import ranges, rate, vlan

__all__ = ["natural", "ranges", "rate", "several", "vlan", "where"]


def several(number: int, what: str) -> str:
    """ "1 NIC", "2 NICs"."""
    return f"{number} {what}{'' if number == 1 else 's'}"


def natural(text: str) -> tuple[tuple[int, int | str], ...]:
    """For sorting: web2 before web10."""
    return tuple((0, int(part)) if part.isascii() and part.isdecimal() else (1, part) for part in re.split(r"([0-9]+)", text) if part)


def where(kind: str, name: str) -> str:
    """A segment by kind and name."""
    known = {"bridge": f"bridge {name}", "openvswitch": f"OVS bridge {name}", "table": f"table {name}"}
    return known.get(kind, "mode ext, left to the site")
