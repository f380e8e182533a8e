"""Examine a node: what would make NICs fail, what was left behind, and the remedy of each. Changes nothing."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping

from netcommon.doctor import dropped, files, kernel, limits, neighbours, networkd, probe, services, stale_state, uplinks
from netcommon.doctor.finding import LEVELS, Finding, Patient
from netcommon.host.api.host import Host
from netcommon.scripts.site import HOOKS
from netcommon.settings.load import load
from netcommon.settings.model import Settings
from runtime.errors import NetcommonError, SettingsInvalid
from runtime.paths import Paths
from runtime.record import Record
from runtime.store import Store

__all__ = ["LEVELS", "Finding", "findings"]

CHECKS: tuple[tuple[str, Callable[[Patient], Iterable[Finding]]], ...] = (
    ("kernel", kernel.modules),
    ("forwarding", kernel.forwarding),
    ("uplinks", uplinks.check),
    ("uplinks", uplinks.probes),
    ("reverse path", dropped.reverse_path),
    ("gateways", dropped.gateways),
    ("uplinks", dropped.without_uplink),
    ("bridges", dropped.bridges),
    ("filters", dropped.filters),
    ("neighbours", neighbours.check),
    ("netfilter", kernel.netfilter),
    ("networkd", networkd.check),
    ("firewall", limits.connections),
    ("ovs", services.ovs),
    ("guards", limits.marks),
    ("ovs", limits.switches),
    ("syslog", services.syslog),
    ("doors", files.doors),
    ("doors", files.xen),
    ("custom scripts", files.scripts),
    ("permissions", files.permissions),
    ("records", files.writable),
    ("routing tables", files.tables),
    ("quarantine", files.quarantine),
    ("leftovers", stale_state.rules),
    ("leftovers", stale_state.strange_rules),
    ("leftovers", stale_state.ports),
    ("leftovers", stale_state.records),
    ("leftovers", stale_state.unrecorded),
    ("guards", stale_state.unguarded_nics),
    ("guards", dropped.guards),
)


#: What to do about records that a newer version has written.
NEWER = "install the version that wrote it, or a later one; before the next way back take its NICs down with that (docs/upgrade.md)"


def findings(
    paths: Paths,
    host: Host | None = None,
    root: str = "/",
    hooks: str = HOOKS,
    try_kernel: Callable[[], Mapping[str, str]] = probe.run,
) -> list[Finding]:
    """Everything found on this node, the heaviest first. A check that fails is a finding itself."""
    found: list[Finding] = []
    chosen = Settings()
    try:
        chosen = load(paths)
    except SettingsInvalid as error:
        found += files.broken(error)
    found += [Finding("warning", "settings", line, "rename it as it says") for line in chosen.renamed]
    found += files.extensions(chosen)
    found += files.python()
    found += kernel.features(try_kernel())
    own = None
    if host is None:
        from netcommon.host.linux.host import LinuxHost

        host = own = LinuxHost(paths, chosen.service_timeout, folders=chosen.folders)
    try:
        found += _examined(paths, host, root, hooks, chosen)
    finally:
        if own is not None:
            own.close()
    return sorted(dict.fromkeys(found), key=lambda finding: LEVELS.index(finding.level))


def _examined(paths: Paths, host: Host, root: str, hooks: str, chosen: Settings) -> list[Finding]:
    """What the checks find, each on its own."""
    found: list[Finding] = []
    records: list[Record] = []
    complete = False
    try:
        identity = host.identity()
        with Store(paths, identity.netns, identity.boot, readonly=True) as store:
            records, problems = store.all()
            newer, strangers = store.newer().values(), store.strangers()
        complete = not newer
        remedies = dict.fromkeys(strangers, "see what it is, and remove it") | dict.fromkeys(newer, NEWER)
        found += [
            Finding("warning", "records", problem, remedies.get(problem, "netcommon gc moves it to quarantine")) for problem in problems
        ]
    except NetcommonError as error:
        remedy = _as_root(f"see the message; {paths.state} must belong to root alone")
        found.append(Finding("error", "records", f"cannot be read: {error}", remedy))
    patient = Patient(paths, root, hooks, chosen, host.snapshot(), records, complete)
    for topic, check in CHECKS:
        try:
            found += check(patient)
        except (NetcommonError, OSError) as error:
            found.append(Finding("error", topic, f"could not be examined: {error}", _as_root("see the message")))
    return found


def _as_root(remedy: str) -> str:
    """Give root's remedy against what could not be read; to others that they are not root, which is why."""
    return remedy if os.geteuid() == 0 else "run netcommon doctor as root"
