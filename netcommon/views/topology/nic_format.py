"""A NIC's condition, limits and guards as people say them, and those of many in one line."""

from __future__ import annotations

from collections.abc import Sequence

from netcommon.views import format as words
from netcommon.views.topology.model import DRIFTED, GONE, GOOD, UNFINISHED, UNTOLD, NicView


def limits(nic: NicView) -> str:
    """Its rates: "in 100mbit, out 50mbit"; "" without any."""
    return ", ".join(f"{way} {words.rate(bits)}" for way, bits in (("in", nic.rate_in), ("out", nic.rate_out)) if bits)


def guards(nic: NicView) -> str:
    """Name what stands between the guest and the others: "guard, firewall limited, isolated"; "" for nothing."""
    found = [f"guard ({', '.join(nic.exceptions)})" if nic.exceptions else "guard"] if nic.guarded else []
    found += [f"firewall {nic.firewall}"] if nic.firewall else []
    return ", ".join([*found, *(["isolated"] if nic.isolated else [])])


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
    found = []
    for name, said in (
        (DRIFTED, "drifted"),
        (GONE, "with the device gone"),
        (UNFINISHED, "not up"),
        (UNTOLD, "good as far as can be told"),
    ):
        count = sum(nic.condition == name for nic in nics)
        found += [f"{count} {said}"] if count else []
    waiting = sum(nic.unguarded for nic in nics)
    found += [f"{waiting} unguarded until the next start"] if waiting else []
    return ", ".join([words.several(len(nics), "NIC"), *(found or ["all good"])])
