"""Values as people say them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from netcommon.views.model import DRIFTED, GONE, GOOD, UNFINISHED, UNTOLD, NicView

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
    """What a port carries: "VLAN 10", "VLAN 10, tagged 20-24", "tagged 20"; "" for no VLAN."""
    words = [] if access is None else [f"VLAN {access}"]
    words += [f"tagged {ranges(trunks)}"] if trunks else []
    return ", ".join(words)


def limits(nic: NicView) -> str:
    """Its rates: "in 100mbit, out 50mbit"; "" without any."""
    return ", ".join(f"{way} {rate(bits)}" for way, bits in (("in", nic.rate_in), ("out", nic.rate_out)) if bits)


def guards(nic: NicView) -> str:
    """What stands between the guest and the others: "guard, firewall limited, isolated"; "" for nothing."""
    words = [f"guard ({', '.join(nic.exceptions)})" if nic.exceptions else "guard"] if nic.guarded else []
    words += [f"firewall {nic.firewall}"] if nic.firewall else []
    return ", ".join([*words, *(["isolated"] if nic.isolated else [])])


def condition(nic: NicView) -> str:
    """In a word or two."""
    if nic.condition == DRIFTED:
        return f"drifted ({len(nic.drift) + len(nic.unknown)})"
    if nic.condition == GONE:
        return "device gone"
    if nic.condition == UNTOLD:
        return "good as far as can be told"
    if nic.condition == GOOD:
        return "good, guest not here yet" if nic.owed else "good, unguarded until its next start" if nic.unguarded else "good"
    return nic.state


def summary(nics: Sequence[NicView]) -> str:
    """One line about all: "50 NICs, 2 drifted"."""
    if not nics:
        return "no NICs are on record"
    words = []
    for name, said in (
        (DRIFTED, "drifted"),
        (GONE, "with the device gone"),
        (UNFINISHED, "not up"),
        (UNTOLD, "good as far as can be told"),
    ):
        count = sum(nic.condition == name for nic in nics)
        words += [f"{count} {said}"] if count else []
    waiting = sum(nic.unguarded for nic in nics)
    words += [f"{waiting} unguarded until the next start"] if waiting else []
    return ", ".join([several(len(nics), "NIC"), *(words or ["all good"])])


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
