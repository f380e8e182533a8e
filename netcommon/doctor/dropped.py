"""Find NICs of which everything is dropped, though all that was done for them holds."""

from __future__ import annotations

from collections.abc import Iterator

from netcommon.doctor.finding import Finding, Patient
from netcommon.lifecycle.execute import decode
from netcommon.operations import bridge_cut_off, filtered, ovs_cut_off
from netcommon.operations.forwarding import silent
from netcommon.operations.guard.counters import nothing_passes
from netcommon.operations.guard.table import NicGuard
from netcommon.operations.link import link_of
from netcommon.operations.neighbour import ProxyNeighbour
from netcommon.operations.sysctl import dropped
from netcommon.options.model import mode_of
from netcommon.options.networks import fields_of
from runtime.record import UP, Record

SHOWN = 3  #: NICs that are named; netcommon check names all


def reverse_path(patient: Patient) -> Iterator[Finding]:
    """Yield one finding for all routed NICs whose packets the kernel's reverse path filter drops, with what helps the first."""
    found: list[tuple[Record, tuple[str, str]]] = []
    for record in _up(patient):
        if record.nic.mode == "routed":
            found += [(record, each) for each in dropped(patient.view, record.device, decode(record)[0])[:1]]
    if not found:
        return
    text, remedy = found[0][1]
    yield Finding("error", "reverse path", f"packets of {_listed([record.nic.label for record, _ in found])} are dropped: {text}", remedy)


def gateways(patient: Patient) -> Iterator[Finding]:
    """Yield one finding for all routed NICs whose guests the node does not answer for their gateway, with what helps the first."""
    found: list[tuple[Record, tuple[str, str]]] = []
    for record in _up(patient):
        if mode_of(record.nic) == "routed":
            found += [(record, each) for each in silent(patient.view, record.device, fields_of(record.nic, patient.settings).gateway)]
    if found:
        text, remedy = found[0][1]
        yield Finding("error", "gateways", f"no way out for {_listed([record.nic.label for record, _ in found])}: {text}", remedy)


def without_uplink(patient: Patient) -> Iterator[Finding]:
    """Yield a finding for each table without an uplink on which the node would answer for routed guests."""
    found: dict[str, list[str]] = {}
    for record in _up(patient):
        waiting = (one for one in decode(record)[0] if isinstance(one, ProxyNeighbour) and not one.port)
        for why in dict.fromkeys(one.idle(patient.view) for one in waiting):
            found.setdefault(why, []).append(record.nic.label)
    for why, names in found.items():
        remedy = "a default route in that table, or a rule iif UPLINK that looks it up; nothing, where guests are to stay among themselves"
        yield Finding("warning", "uplinks", f"{_listed(names)}: {why}", remedy)


def bridges(patient: Patient) -> Iterator[Finding]:
    """Yield a finding for each reason why NICs have no network though they are ports of their bridge, such as that it is down."""
    found: dict[tuple[str, str], list[str]] = {}
    for record in _up(patient):
        operations = decode(record)[0]
        switches = ovs_cut_off.cut_off(patient.view, operations)
        for said in (*bridge_cut_off.cut_off(patient.view, record.nic.mac, operations), *switches):
            found.setdefault(said, []).append(record.nic.label)
    for (text, remedy), names in found.items():
        yield Finding("error", "bridges", f"no network for {_listed(names)}: {text}", remedy)


def filters(patient: Patient) -> Iterator[Finding]:
    """Yield a finding for each nftables chain of others that drops all of NICs' traffic."""
    found: dict[tuple[str, str], list[str]] = {}
    for record in _up(patient):
        operations = decode(record)[0]
        routed = mode_of(record.nic) == "routed"
        chains = filtered.routed(patient.view, record.ifindex, record.device, operations) if routed else []
        for said in chains or filtered.bridged(patient.view, record.nic.ip, operations):
            found.setdefault(said, []).append(record.nic.label)
    for (text, remedy), names in found.items():
        yield Finding("error", "filters", f"no network for {_listed(names)}: {text}", remedy)


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return f"{', '.join(names[:SHOWN])}{more}"


def guards(patient: Patient) -> Iterator[Finding]:
    """Yield a finding for each NIC of whose frames the spoof guard has let none pass."""
    for record in _up(patient):
        found = [nothing_passes(one, patient.view) for one in decode(record)[0] if isinstance(one, NicGuard)]
        for text in filter(None, found):
            remedy = f"compare the guest's MAC and addresses with the NIC's: netcommon explain {record.device}"
            yield Finding("warning", "guards", f"{record.nic.label} on {record.device}: {text}", remedy)


def _up(patient: Patient) -> Iterator[Record]:
    for record in patient.records:
        if record.state == UP and link_of(patient.view, record.ifindex, record.device) is not None:
            yield record
