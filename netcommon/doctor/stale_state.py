"""What earlier NICs have left behind: ours, which gc removes, and that of other scripts, which is named only."""

from __future__ import annotations

import re
from collections.abc import Iterator

from netcommon.doctor.finding import Finding, Patient
from netcommon.host.api.facts import AF_INET, AF_INET6, PROTOCOL
from netcommon.lifecycle.execute import decode
from netcommon.lifecycle.guest_device import is_renamed
from netcommon.lifecycle.unguarded import unguarded
from netcommon.operations.ganeti_rule import left_detached
from netcommon.operations.led_away import led_away
from netcommon.operations.link import down_mark, marked
from runtime.record import Record

#: Names that only a hypervisor gives. A missing device of another name may be the administrator's, to come back.
TAP = re.compile(r"(tap|vnet)[0-9]+|vif[0-9]+\.[0-9]+(-emu)?|gnt\.com\.[0-9]+")


def rules(patient: Patient) -> Iterator[Finding]:
    """Policy rules of taps that are gone: the next device of that name would fall under them."""
    known = {record.device for record in patient.records}
    ganetis = left_detached(patient.view)
    if ganetis:
        names = ", ".join(sorted({rule.iif for rule in ganetis}))
        text = f"{len(ganetis)} policy rules of Ganeti's own script for devices that are gone ({names}): the next of that name gets them"
        yield Finding("warning", "leftovers", text, "netcommon gc")
    for family, option in ((AF_INET, ""), (AF_INET6, "-6 ")):
        for rule in patient.view.rules(family):
            if not rule.iif or patient.view.link(rule.iif) is not None:
                continue
            text = f"policy rule {rule.preference}: iif {rule.iif} lookup {rule.table}: that device is gone"
            if rule.protocol == PROTOCOL:
                if patient.complete and rule.iif not in known:
                    yield Finding("warning", "leftovers", f"{text}, and it is on no record", "netcommon gc")
            elif rule.plain and TAP.fullmatch(rule.iif) and rule not in ganetis:
                command = f"ip {option}rule del preference {rule.preference} iif {rule.iif} lookup {rule.table}"
                yield Finding("warning", "leftovers", f"{text}; it is not ours", command)


def strange_rules(patient: Patient) -> Iterator[Finding]:
    """Policy rules of others that drop a routed guest's packets, or lead them past its NIC's table."""
    for record in patient.records:
        link = patient.view.link_at(record.ifindex)
        if record.nic.mode == "routed" and link is not None and link.name == record.device:
            found = led_away(patient.view, record, decode(record)[0], patient.settings.rule_preference, doubtful=True)
            for text, remedy in found.whole:
                yield Finding("warning", "leftovers", f"{record.nic.label}: {text}", remedy)


def ports(patient: Patient) -> Iterator[Finding]:
    """OVS ports of ours whose device is gone; that of a NIC on record may be called otherwise by now."""
    if not patient.complete:
        return
    named = {record.device for record in patient.records if _renamed(patient, record)}
    for port in patient.view.ovs_ports():
        if patient.view.link(port.name) is None and port.name not in named:
            yield Finding("warning", "leftovers", f"OVS port {port.name} on {port.bridge}: its device is gone", "netcommon gc")


def records(patient: Patient) -> Iterator[Finding]:
    """Records of NICs whose device is gone, or has another name."""
    for record in patient.records:
        link = patient.view.link_at(record.ifindex)
        if link is not None and _renamed(patient, record):
            text = f"{record.nic.label} ({record.uuid}): its device {record.device} is called {link.name} now"
            yield Finding("warning", "leftovers", text, f"netcommon repair {record.key}")
        elif link is None or link.name != record.device:
            yield Finding("warning", "leftovers", f"{record.nic.label} ({record.uuid}): its device {record.device} is gone", "netcommon gc")


def unrecorded(patient: Patient) -> Iterator[Finding]:
    """Devices that bear our mark while no record tells of them: nobody looks after them, and what they share goes with its other NICs."""
    if not patient.complete:
        return
    known = {record.ifindex for record in patient.records}
    for link in patient.view.links():
        if link.up and marked(link) and link.index not in known:
            text = f"{link.name} is up, its alias says that it is NIC {link.alias}, and no record that can be read tells of it"
            yield Finding("warning", "leftovers", text, "restart or migrate its guest; netcommon gc removes what is left when it is gone")


def unguarded_nics(patient: Patient) -> Iterator[Finding]:
    """Adopted NICs, whose guests nothing keeps from forging until their next start."""
    found = [record.nic.label for record in patient.records if unguarded(record, patient.settings.tag_prefix)]
    if found:
        text = f"adopted, and without the spoof guard and node_access until their next start: {', '.join(found)}"
        yield Finding("warning", "guards", text, "gnt-instance reboot or migrate them")


def _renamed(patient: Patient, record: Record) -> bool:
    """Tell whether the record's device is there under another name, as lifecycle.context.alive does."""
    link = patient.view.link_at(record.ifindex)
    if link is None or link.name == record.device or link.alias == down_mark(record.uuid):
        return False
    return link.alias.startswith(record.uuid + " ") or is_renamed(record, link)
