"""Find NICs of which everything is dropped, though all that was done for them holds."""

from __future__ import annotations

from collections.abc import Iterator

from netcommon.doctor.finding import Finding, Patient
from netcommon.lifecycle.dropped import dropped
from netcommon.lifecycle.execute import decode
from netcommon.operations.link import link_of
from runtime.record import UP, Record

SHOWN = 3  #: NICs that are named; netcommon check names all


def reverse_path(patient: Patient) -> Iterator[Finding]:
    """Yield one finding for all routed NICs whose packets the kernel's reverse path filter drops, with what helps the first."""
    found: list[tuple[Record, tuple[str, str]]] = []
    for record in _up(patient):
        found += [(record, each) for each in dropped(patient.view, record.nic, decode(record)[0])[:1]]
    if not found:
        return
    names = [record.nic.label for record, _ in found]
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    text, remedy = found[0][1]
    yield Finding("error", "reverse path", f"nothing gets out of {', '.join(names[:SHOWN])}{more}: {text}", remedy)


def _up(patient: Patient) -> Iterator[Record]:
    for record in patient.records:
        if record.state == UP and link_of(patient.view, record.ifindex, record.device) is not None:
            yield record
