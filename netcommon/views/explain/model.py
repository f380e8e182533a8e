"""A NIC explained: what was asked for and by whom, what was done, whether it holds, and what to do where it does not. The model."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from netcommon.host.api.host import View
from netcommon.lifecycle import execute as steps
from netcommon.lifecycle.check import Report
from netcommon.lifecycle.context import Node
from netcommon.lifecycle.renamed_device import drift as drift_of
from netcommon.lifecycle.renamed_device import left
from netcommon.lifecycle.site_scripts import order_of
from netcommon.operations.base import Operation, intent
from netcommon.operations.bridge import BridgePort
from netcommon.operations.guard.counters import nothing_passes
from netcommon.operations.guard.table import NicGuard
from netcommon.options.model import DEFAULTS, INSTANCE_COMMUNICATION, mode_of
from netcommon.options.networks import said
from netcommon.options.schema import OPTIONS
from netcommon.options.shown import network_text, shown
from netcommon.options.sources import given
from netcommon.plan.planner import plan
from netcommon.settings.model import Settings
from netcommon.views.topology.gather import examine
from runtime.environment import environment_of
from runtime.errors import NetcommonError, NicInvalid
from runtime.nic import Nic
from runtime.record import APPLYING, CHANGING, CLOSING, REVERTING, UP, Record

SCHEMA, VERSION = "netcommon-explain", 1

#: The state of a NIC that is described beforehand and on no record.
DEFINED = "defined"

#: What to do where nothing passes the spoof guard.
GUARDED = "compare the guest's MAC and addresses with the NIC's: `netcommon show` counts what the spoof guard drops, by reason"

NOBODY: Mapping[str, str] = {}

#: Whether a step holds.
HOLDS, DIFFERS, UNKNOWN = "holds", "differs", "unknown"

#: What the hypervisor says of a NIC, and what that decides.
VARIABLES = (
    "MODE",
    "LINK",
    "MAC",
    "IP",
    "VLAN",
    "NETWORK_NAME",
    "NETWORK_SUBNET",
    "NETWORK_GATEWAY",
    "NETWORK_SUBNET6",
    "NETWORK_GATEWAY6",
)


class Origin(NamedTuple):
    """One setting, and where it came from."""

    name: str
    value: str
    origin: str
    given: bool  #: somebody gave it; else it is the default
    overrules: tuple[str, ...] = ()  #: weaker places, each with its value
    note: str = ""  #: why it does nothing for this NIC


class Step(NamedTuple):
    """One operation."""

    kind: str
    means: str  #: in plain words
    does: str  #: as an administrator would type it
    holds: str  #: HOLDS, DIFFERS or UNKNOWN
    differs: str  #: of one that holds: what of it has no effect on this host
    shared_with: tuple[str, ...]  #: the labels of other NICs that need it too


class Explanation(NamedTuple):
    """All of one NIC."""

    label: str
    key: str
    uuid: str
    device: str
    mode: str
    link: str
    state: str
    alive: bool
    good: bool
    door: str  #: who called: "kvm-ifup", "cli", ...
    created: float  #: seconds since the epoch; 0: never
    origins: tuple[Origin, ...]
    steps: tuple[Step, ...]
    owed: tuple[str, ...]
    today: tuple[str, ...]  #: how a start with today's settings would differ
    advice: tuple[str, ...]  #: what to do next; empty where nothing is to be done
    dropped: tuple[str, ...] = ()  #: what of the guest's packets is dropped, though all that was done holds
    taken_down: str = ""  #: why it is not alive, if its device is there


def explained(node: Node, view: View, record: Record, labels: Mapping[str, str] = NOBODY) -> Explanation:
    """A NIC on record. ``labels``: of all records, by key, for what is shared."""
    report, untold = examine(node, view, record)
    record, nic = report.record, report.record.nic
    operations, unknown = steps.decode(record)
    seen = [_step(node, view, record, operation, report, labels) for operation in operations]
    for stored in unknown:
        kind = str(stored.get("kind"))
        seen.append(Step(kind, "An operation that this version does not know.", kind, UNKNOWN, "cannot be told", ()))
    today = _today(node, view, operations, report)
    return Explanation(
        nic.label,
        record.key,
        nic.uuid,
        nic.interface,
        nic.mode,
        nic.link,
        record.state,
        report.alive,
        report.good and not untold,
        record.door,
        record.created,
        origins(nic, node.settings, _caller(record.door)),
        tuple(seen),
        report.owed,
        tuple(today),
        (*_advice(view, report, bool(untold), today), *([GUARDED] if _guarded(view, operations, report) else [])),
        (*(why for why, _remedy in report.dropped), *_guarded(view, operations, report)),
        report.taken_down,
    )


def _guarded(view: View, operations: Sequence[Operation], report: Report) -> list[str]:
    """Say what the spoof guard makes of the guest's frames, where none of them passes."""
    try:
        found = [nothing_passes(one, view) for one in operations if isinstance(one, NicGuard)] if report.alive else []
    except NetcommonError:  # it is told of the guard's own step that it cannot be told
        return []
    return [each for each in found if each]


def _caller(door: str) -> str:
    """Who described the NIC."""
    return "the command line" if door == "cli" else f"the caller of {door}" if door else "its caller"


def foreseen(nic: Nic, settings: Settings) -> Explanation:
    """A NIC that is described beforehand, and not up. Raises NicInvalid where its description or the settings do not fit it."""
    made = [Step(one.KIND, one.sentence(), one.describe(), UNKNOWN, "not done yet", ()) for one in plan(nic, settings)]
    asked = origins(nic, settings, "netcommon define")
    advice = (f"netcommon up {nic.uuid}, or start the guest, whose QEMU calls kvm-ifup",)
    return Explanation(
        nic.label, nic.uuid, nic.uuid, nic.interface, nic.mode, nic.link, DEFINED, False, False, "", 0, asked, tuple(made), (), (), advice
    )


def _step(node: Node, view: View, record: Record, operation: Operation, report: Report, labels: Mapping[str, str]) -> Step:
    there = report.alive
    shared = sorted({other for key in operation.shared() for other in node.store.owners.others(key, record.key)})
    holds, differs = UNKNOWN, "the device is gone"
    if there and left(record, [operation]):
        holds, differs = DIFFERS, f"it is of the name {operation.about()}, which the device had before"
    elif there and not steps.looked_after(node, operation):
        holds, differs = HOLDS, "nobody looks after it: [ganeti] tap_alias is off by now"
    elif there:
        try:
            found = drift_of(node, view, record, [operation], strict=True)
            holds, differs = (DIFFERS, found[0][1]) if found else (HOLDS, dict(report.idle).get(operation.describe(), ""))
        except NetcommonError as error:
            differs = f"cannot be told: {error}"
    return Step(operation.KIND, operation.sentence(), operation.describe(), holds, differs, tuple(labels.get(key, key) for key in shared))


def origins(nic: Nic, settings: Settings, door: str) -> tuple[Origin, ...]:
    """List what the hypervisor said, what is said of its network, and each option of the mode, as settings, tags and changes give it."""
    variables = environment_of(nic)
    found = [Origin(name, variables[name], door, True) for name in VARIABLES if variables.get(name)]
    found += _of_network(nic, settings)
    try:
        options = list(given(nic, settings))
    except NicInvalid as error:
        return (*found, Origin("options", "", str(error), True, (), "the tags or settings are wrong today"))
    without = "instance communication does without" if mode_of(nic) == INSTANCE_COMMUNICATION else f"nothing in mode {nic.mode}"
    for option in OPTIONS:
        places = [each for each in options if each.name == option.name]
        means = option.means_something(nic)
        note = "" if means else without
        if places:
            weaker = tuple(f"{place.origin} ({shown(place.name, place.value)})" for place in places[:-1])
            found.append(Origin(option.name, shown(option.name, places[-1].value), places[-1].origin, True, weaker, note))
        elif means:
            found.append(Origin(option.name, shown(option.name, getattr(DEFAULTS, option.name)), "the default", False))
    return tuple(found)


def _of_network(nic: Nic, settings: Settings) -> Iterator[Origin]:
    """List what guests of the NIC's network are told, where that is not the hypervisor's word alone."""
    fields = list(said(nic, settings))
    for name in dict.fromkeys(each.name for each in fields):
        *weaker, last = [each for each in fields if each.name == name]
        if weaker or not last.origin.startswith("NETWORK_"):
            overruled = tuple(f"{place.origin} ({network_text(place.value)})" for place in weaker)
            yield Origin(f"network {name}", network_text(last.value), last.origin, True, overruled)


def _today(node: Node, view: View, operations: Sequence[Operation], report: Report) -> list[str]:
    """What today's settings would do that was not done, and the other way round. Nothing where a script of the site does it instead."""
    nic = report.record.nic
    try:
        planned = {intent(one): one for one in plan(nic, node.settings)} if not order_of(node, nic).instead else {}
    except NicInvalid as error:
        return [f"it would be refused: {error}"]
    if report.record.state != UP:
        return []
    done = {intent(one): one for one in operations}
    fresh = [
        one for key, one in planned.items() if key not in done and one.describe() not in report.owed and _comes_to_something(view, one)
    ]
    stale = [one for key, one in done.items() if key not in planned]
    return [f"also: {one.sentence()}" for one in fresh] + [f"no more: {one.sentence()}" for one in stale]


def _comes_to_something(view: View, planned: Operation) -> bool:
    """Whether there is anything to do for it on this host: there is no rule into a table that is a bridge."""
    try:
        return bool(planned.resolve(view, []))
    except NetcommonError:
        return True


def _advice(view: View, report: Report, untold: bool, today: Sequence[str]) -> Iterable[str]:
    """What to do next."""
    record, nic = report.record, report.record.nic
    if not report.alive:
        yield f"{report.taken_down or 'its device is gone'}: `netcommon gc` undoes what is left of it"
    elif record.state == APPLYING:
        yield "a hook is at work, or was killed at it: if so it is still in a minute, `netcommon gc` undoes it; then start the guest again"
    elif record.state == CHANGING:
        yield "a hook changes it, or was killed at it: if so it is still in a minute, and `netcommon repair` puts back what it was"
    elif record.state == CLOSING:
        yield "nothing: the guest is shutting down, and the NIC goes with its device; `netcommon down --force` does not wait for that"
    elif record.state == REVERTING:
        yield "not all of it could be undone: `netcommon gc` tries again; `journalctl -t netcommon` says what failed"
    elif report.unknown:
        gone = sorted({kind.partition("/")[0] for kind in report.unknown if "/" in kind})
        yield (
            f"put the site's extension {', '.join(gone)} back (docs/extending.md)"
            if gone
            else "it was brought up by another version of netcommon: use that one"
        )
    if not report.alive or record.state != UP:
        return
    if nic.mode == "bridged" and report.drift and _missing(view, nic.link) and not _renamed(view, record):
        yield f"create the bridge {nic.link}, which is not there"
    if untold:
        yield "run this as root; where not even root is told, `netcommon doctor` says which service of the node is in the way"
    if nic.mode == "ext" and not record.operations and not record.scripts:
        yield "nobody has set it up: the site has no script and no extension for mode ext (docs/custom-scripts.md)"
    if report.drift:
        yield f"`netcommon repair {record.device}` makes it again; where it does not last, `journalctl` tells what else ran at that moment"
    yield from (remedy for _why, remedy in report.dropped)
    if report.owed:
        yield "nothing: what is owed is done when the guest, which is still migrating in, is here"
    if today:
        yield "what today's settings would do otherwise is done at the guest's next start"


def _renamed(view: View, record: Record) -> bool:
    """Tell whether the NIC's device is in the bridge that it joined, which has another name then."""
    bridges = [one.master for one in steps.decode(record)[0] if isinstance(one, BridgePort)]
    try:
        link = view.link_at(record.ifindex)
        return link is not None and link.master in bridges
    except NetcommonError:
        return False


def _missing(view: View, name: str) -> bool:
    try:
        return view.link(name) is None
    except NetcommonError:
        return False


def document(explanations: Iterable[Explanation]) -> Mapping[str, Any]:
    """The schema of ``netcommon explain --json`` (docs/seeing.md)."""
    from netcommon.views.topology.document import plain

    return {"schema": SCHEMA, "version": VERSION, "nics": [plain(each) for each in explanations]}
