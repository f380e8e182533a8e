"""What earlier NICs have left behind: ours, which gc removes, and that of other scripts, which is named only."""

from __future__ import annotations

import re
from collections.abc import Iterator

from netcommon.doctor.finding import Finding, Patient
from netcommon.host.facts import AF_INET, AF_INET6, PROTOCOL

#: Names that only a hypervisor gives. A missing device of another name may be the administrator's, to come back.
TAP = re.compile(r"(tap|vnet)[0-9]+|vif[0-9]+\.[0-9]+(-emu)?|gnt\.com\.[0-9]+")


def rules(patient: Patient) -> Iterator[Finding]:
    """Policy rules of taps that are gone: the next device of that name would fall under them."""
    known = {record.device for record in patient.records}
    for family, option in ((AF_INET, ""), (AF_INET6, "-6 ")):
        for rule in patient.view.rules(family):
            if not rule.iif or patient.view.link(rule.iif) is not None:
                continue
            text = f"policy rule {rule.preference}: iif {rule.iif} lookup {rule.table}: that device is gone"
            if rule.protocol == PROTOCOL:
                if rule.iif not in known:
                    yield Finding("warning", "leftovers", f"{text}, and it is on no record", "netcommon gc")
            elif rule.plain and TAP.fullmatch(rule.iif):
                command = f"ip {option}rule del preference {rule.preference} iif {rule.iif} lookup {rule.table}"
                yield Finding("warning", "leftovers", f"{text}; it is not ours", command)


def ports(patient: Patient) -> Iterator[Finding]:
    """OVS ports of ours whose device is gone."""
    for port in patient.view.ovs_ports():
        if patient.view.link(port.name) is None:
            yield Finding("warning", "leftovers", f"OVS port {port.name} on {port.bridge}: its device is gone", "netcommon gc")


def records(patient: Patient) -> Iterator[Finding]:
    """Records of NICs whose device is gone."""
    for record in patient.records:
        link = patient.view.link_at(record.ifindex)
        if link is None or link.name != record.device:
            yield Finding("warning", "leftovers", f"{record.nic.label} ({record.uuid}): its device {record.device} is gone", "netcommon gc")
