"""The services of the host that we talk to: Open vSwitch's database and syslog."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Iterator
from typing import Any

from netcommon.doctor.finding import Finding, Patient
from netcommon.doctor.stale_state import TAP
from netcommon.host.api.host import View
from netcommon.host.ovs.jsonrpc import JsonRpc
from netcommon.operations.ovs import bond_of
from runtime.errors import TryAgain

#: What to do about a port whose device no hypervisor has made: most likely it is to come back.
ABSENT = "bring its device back; ovs-vsctl del-port, where that has gone for good"

#: Doctor does not wait as long as a hook (seconds).
PATIENCE = 3.0


def ovs(patient: Patient, clock: Callable[[], float] = time.monotonic) -> Iterator[Finding]:
    """Look whether the database answers, and for ports that are not ours whose device is gone: guests', and others, such as an uplink's."""
    path = patient.paths.ovsdb
    if not os.path.exists(path):
        level = "error" if patient.uses("openvswitch") else "info"
        if patient.view.ovs_away():
            yield Finding(level, "ovs", f"Open vSwitch is stopped: {path} is not there", "systemctl start openvswitch-switch")
            return
        yield Finding(level, "ovs", f"{path} is not there: openvswitch NICs are refused", "where you need them: install openvswitch-switch")
        return
    query = {"op": "select", "table": "Interface", "where": [], "columns": ["name", "type", "ofport", "error"]}
    client = JsonRpc(path, clock)
    try:
        answer: Any = client.call("transact", ["Open_vSwitch", query], clock() + PATIENCE)
        rows = answer[0]["rows"]
    except (OSError, TryAgain, LookupError, TypeError) as error:
        remedy = "systemctl restart ovsdb-server" if os.geteuid() == 0 else "run netcommon doctor as root"
        yield Finding("error", "ovs", f"{path} does not answer: {error}", remedy)
        return
    finally:
        client.close()
    yield Finding("ok", "ovs", f"{path} answers, interfaces: {len(rows)}")
    for row in rows:
        name = str(row["name"])
        if row["type"] == "" and row["ofport"] == -1 and patient.view.link(name) is None:
            yield from _without_device(patient.view, name)


def _without_device(view: View, name: str) -> Iterator[Finding]:
    """Yield what an interface of Open vSwitch whose device is not there means, unless gc sees to it."""
    port = view.ovs_port(name)
    bond = bond_of(view, name) if port is None else None
    if bond is not None:
        rest = f"ovs-vsctl --id=@gone get Interface {name} -- remove Port {bond.name} interfaces @gone"
        text = f"bond {bond.name} on {bond.bridge}: its member {name} is not there"
        yield Finding("warning", "ovs", text, f"bring that device back; {rest}, where it has gone for good")
    elif port is None or port.owner:
        return
    elif TAP.fullmatch(name):
        yield Finding("warning", "leftovers", f"OVS port {name}: its device is gone", f"ovs-vsctl del-port {name}")
    else:
        yield Finding("warning", "ovs", f"OVS port {name} on {port.bridge}: its device is not there", ABSENT)


def syslog(patient: Patient) -> Iterator[Finding]:
    """Whether somebody reads our lines."""
    for path in (patient.paths.journal, patient.paths.log):  # as netcommon.log tries them
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as probe:
            try:
                probe.connect(path)
            except OSError as error:
                why = f"{path}: {error.strerror}"
                continue
        yield Finding("ok", "syslog", f"{path} is read")
        return
    yield Finding("warning", "syslog", f"{why}: what hooks do is written nowhere", "start systemd-journald or a syslogd")
