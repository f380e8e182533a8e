"""A change of a NIC that is up, killed while its record says so."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from runtime.record import CHANGING
from tests.support.sim import Mortal, Sim


def cut_off(root: Path, begun: Callable[[Sim], object], doing: Callable[[Sim], object]) -> Sim:
    """Give a node after ``begun``, and ``doing`` killed as late as the record of UUIDS[0] is in a change. Its log is empty."""

    def node(name: str) -> Sim:
        sim = Sim(str(root / "cut-off" / name))
        begun(sim)
        return sim

    with Mortal(node("whole")) as whole:
        doing(whole.sim)
    for life in reversed(range(len(whole.steps))):
        sim = node(str(life))
        with Mortal(sim, life):
            doing(sim)
            raise AssertionError("it was not killed")
        if sim.record().state == CHANGING:
            sim.lines.clear()
            sim.host.requests.clear()
            return sim
        sim.close()
    raise AssertionError("there was no change")
