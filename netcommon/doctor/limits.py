"""Name what the guards of this node's NICs leave open, because of how the node is set up."""

from __future__ import annotations

from collections.abc import Iterator

from netcommon.doctor.finding import Finding, Patient
from netcommon.operations.firewall import FirewallTable, trackers
from netcommon.operations.flows import Flows
from netcommon.operations.guard.flows import GUARD, unchanged
from netcommon.operations.guard.table import NicGuard

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
