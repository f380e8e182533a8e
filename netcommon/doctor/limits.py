"""Name what the guards of this node's NICs leave open, because of how the node is set up."""

from __future__ import annotations

from collections.abc import Iterator

from netcommon.doctor.finding import Finding, Patient
from netcommon.host.api.facts import AF_INET
from netcommon.operations import from_json
from netcommon.operations.base import WAITS
from netcommon.operations.firewall import FirewallTable, trackers
from netcommon.operations.flows import Flows
from netcommon.operations.guard.flows import GUARD, unchanged
from netcommon.operations.guard.table import NicGuard
from netcommon.operations.mark import MarkTable, kept_from_main, name_of
from netcommon.operations.mark_rule import MarkRule
from netcommon.operations.rule import MAIN_PREFERENCE
from netcommon.operations.shared_table import FAMILIES

CONNECTIONS = "net/netfilter/nf_conntrack_max"


def connections(patient: Patient) -> Iterator[Finding]:
    """Yield a finding where a guest may fill the table of connections, and who has every packet tracked (docs/firewall.md)."""
    protected = [record for record in patient.records if any(stored.get("kind") == FirewallTable.KIND for stored in record.operations)]
    others = trackers(patient.view) if protected else ""
    if not others:
        return
    size = patient.view.sysctl(CONNECTIONS)
    room = f"net.netfilter.nf_conntrack_max is {size}" if size else "it has a size"
    yield Finding(
        "info",
        "firewall",
        f"{others} looks at connections, so those of all guests are tracked, with a firewall profile or without: one guest may fill the "
        f"kernel's table ({room}), and then nobody opens another connection",
        "where that table need not see guests' packets: notrack for them (nft(8)); else a larger net.netfilter.nf_conntrack_max",
    )


def marks(patient: Patient) -> Iterator[Finding]:
    """Yield a finding where routed guests go by table main while nftables does not mark what they send (docs/routed.md)."""
    kinds = {MarkTable.KIND, MarkRule.KIND}
    stored = [each for record in patient.records for each in record.operations if each.get("kind") in kinds and WAITS not in each]
    known = [from_json(each) for each in stored]
    tables = {operation.place(): operation for operation in known if isinstance(operation, MarkTable)}
    for table in tables.values():
        if text := table.differs(patient.view):
            yield Finding(
                "error", "guards", f"{FAMILIES[table.nfproto]} {name_of(table.number, table.mask)}: {text}", "netcommon repair --all"
            )
    rules = [operation for operation in known if isinstance(operation, MarkRule)]
    for family in sorted({rule.family for rule in rules if not kept_from_main(patient.view, rule.family)}):
        count, version = sum(rule.family == family for rule in rules), 4 if family == AF_INET else 6
        yield Finding(
            "warning",
            "guards",
            f"IPv{version} packets of {count} routed NICs go by table main while nftables does not mark them, as after nft flush ruleset",
            f"ip -{version} rule add not iif lo blackhole preference {MAIN_PREFERENCE - 1}, if nothing else is forwarded by table main",
        )


def switches(patient: Patient) -> Iterator[Finding]:
    """Yield a finding for each Open vSwitch bridge whose guarded NICs have flows alone, and no nftables guard before them."""
    seen: set[str] = set()
    for record in patient.records:
        flows = [stored for stored in record.operations if stored.get("kind") == Flows.KIND]
        if any(stored.get("kind") == NicGuard.KIND for stored in record.operations):
            continue
        for bridge in {str(stored.get("switch") or stored.get("bridge")) for stored in flows if GUARD in _words(stored.get("templates"))}:
            if bridge not in seen:
                seen.add(bridge)
                yield _flows_alone(patient, bridge)


def _words(stored: object) -> list[object]:
    return list(stored) if isinstance(stored, list | tuple) else []


def _flows_alone(patient: Patient, bridge: str) -> Finding:
    switch = patient.view.ovs_switch(bridge)
    if switch is None or switch.userspace or unchanged(patient.view.template(GUARD)):
        text = f"{bridge}: flows alone guard its NICs: how many new addresses a guest uses is not limited there (new_sources)"
        return Finding("info", "ovs", text, 'the option link_local = "eui64" and no prefixes, where guests can do with that')
    return Finding(
        "warning",
        "ovs",
        f"{bridge}: a template ovs/spoof-guard.j2 of the site's own guards its NICs alone: what the kernel makes of a guest's segmented "
        "frames no flow sees, a DHCP server among them",
        "go back to netcommon's template, or vnet_hdr=off at QEMU's taps (docs/openvswitch.md)",
    )
