"""netcommon show: everything about a NIC."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import click

from netcommon.cli.app import App
from netcommon.cli.names import complete, defined_only, matching
from netcommon.cli.output import answer, fields, json_option, say
from netcommon.host.api.host import View
from netcommon.lifecycle.changed_options import with_wanted
from netcommon.lifecycle.context import Node, alive
from netcommon.lifecycle.execute import decode
from netcommon.lifecycle.renamed_device import follow
from netcommon.operations.base import WAITS, Operation
from netcommon.operations.guard.counters import dropped
from netcommon.operations.guard.table import NicGuard
from netcommon.options.networks import by_registry
from netcommon.options.shown import network_text, shown
from netcommon.options.tags import of_changed
from runtime.environment import environment_of
from runtime.errors import NetcommonError
from runtime.nic import Nic
from runtime.record import Record

Document = dict[str, Any]

#: The NIC's lines for people, and the variables they come from.
VARIABLES = (
    ("uuid", "INTERFACE_UUID"),
    ("device", "INTERFACE"),
    ("mode", "MODE"),
    ("link", "LINK"),
    ("instance", "INSTANCE"),
    ("index", "INTERFACE_INDEX"),
    ("name", "INTERFACE_NAME"),
    ("mac", "MAC"),
    ("ip", "IP"),
    ("vlan", "VLAN"),
    ("tags", "TAGS"),
    ("network", "NETWORK_NAME"),
)
#: What else of a document people see as a line.
ABOUT = ("state", "alive", "record", "ifindex", "door", "scripts", "created")


@click.command("show")
@click.argument("names", nargs=-1, required=True, metavar="NIC...", shell_complete=complete)
@json_option
@click.pass_obj
def show(app: App, names: tuple[str, ...], as_json: bool) -> None:
    """Show everything about NICs: what was received, what was done and chosen for each, whether it holds, who shares it."""
    node = app.node(strict=False, readonly=True)
    records, problems = node.store.all()
    for problem in problems:
        app.log.warning(problem)
    view = node.host.view()
    documents: dict[str, Document] = {}
    for name in names:
        found = matching(records, name, view=view)
        for record in found:
            documents[record.key] = describe(node, view, record)
        if not found:
            node.store.refuse_newer(name)
            documents |= _defined(node, app, name)
    if as_json:
        answer("show", nics=list(documents.values()))
    else:
        say("\n\n".join(map(text, documents.values())))


def _defined(node: Node, app: App, name: str) -> dict[str, Document]:
    """What is defined under this name, but not up. Raises NicInvalid where nothing is."""
    nic = with_wanted(node, defined_only(app.paths, name), app.log)
    return {
        nic.uuid: {"state": "defined", "nic": environment_of(nic), "changed": _changed(nic), "network": _network(nic), "operations": []}
    }


def describe(node: Node, view: View, record: Record) -> Document:
    """Everything about a NIC on record, as --json has it."""
    record = follow(node, view, record)
    operations, unknown = decode(record)
    there = alive(node, view, record)
    done = [_operation(node, view, record, one, there) for one in operations]
    for stored in unknown:
        does = f"an operation of the unknown kind {stored.get('kind')}"
        done.append({"does": does, "chose": {}, "drift": "cannot tell", "shared_with": []})
    return {
        "state": record.state,
        "alive": there,
        "nic": environment_of(record.nic),
        "environment": dict(record.nic.environment),
        "record": node.store.path(record.key),
        "ifindex": record.ifindex,
        "boot": record.boot,
        "netns": record.netns,
        "door": record.door,
        "scripts": record.scripts,
        "created": time.strftime("%Y-%m-%d %H:%M:%S %z", time.localtime(record.created)),
        "changed": _changed(record.nic),
        "network": _network(record.nic),
        "operations": done,
        "dropped": _dropped(view, operations) if there else {},
    }


def _changed(nic: Nic) -> list[Document]:
    """List the options of a NIC that were changed while it ran, each as it holds, and until when."""
    try:
        found = {each.name: each for each in of_changed(nic.wanted, nic.revision)}  # the weakest come first
    except NetcommonError as error:
        return [{"name": "", "value": "", "origin": f"cannot tell: {error}"}]
    return [{"name": each.name, "value": shown(each.name, each.value), "origin": each.origin} for each in found.values()]


def _network(nic: Nic) -> list[Document]:
    """List what a registry says of the NIC's network."""
    return [{"name": each.name, "value": network_text(each.value), "origin": each.origin} for each in by_registry(nic)]


def _dropped(view: View, operations: Sequence[Operation]) -> dict[str, int]:
    """What the spoof guard has dropped, by reason, and what a site's flows have met; empty without either, and where it cannot be told."""
    found: dict[str, int] = {}
    for operation in operations:
        try:
            counted = dropped(operation, view) if isinstance(operation, NicGuard) else dict(operation.counters(view))
        except NetcommonError:
            continue
        for reason, number in counted.items():  # on a port of Open vSwitch two guards have the same reasons
            found[reason] = found.get(reason, 0) + number
    return found


def _operation(node: Node, view: View, record: Record, operation: Operation, there: bool) -> Document:
    stored = operation._asdict()
    try:
        drift = operation.differs(view) if there else "the device is gone"
    except NetcommonError as error:
        drift = f"cannot tell: {error}"
    return {
        "does": operation.describe(),
        "kind": operation.KIND,
        "chose": {name: value for name, value in stored.items() if name in operation.CHOSEN},
        "drift": drift,
        "shared_with": sorted({other for key in operation.shared() for other in node.store.owners.others(key, record.key)}),
    }


def text(document: Document) -> str:
    """The same for people."""
    about = [(name, document["nic"].get(variable, "")) for name, variable in VARIABLES]
    about += [(name, _shown(document.get(name, ""))) for name in ABOUT]
    lines = [fields(about)]
    lines += [f"  {one['name']} = {one['value']}, {one['origin']}" for one in document.get("changed", ())]
    lines += [f"  network: {one['name']} = {one['value']}, {one['origin']}" for one in document.get("network", ())]
    for number, one in enumerate(document["operations"], 1):
        chose = ", ".join(f"{name} {_shown(value)}" for name, value in one["chose"].items() if value not in ("", None, ()))
        lines.append(f"  {number}. {one['does']}")
        stands = f"waits for {one['chose'][WAITS]}" if WAITS in one["chose"] else "holds" + (f"; {chose}" if chose else "")
        lines.append("     " + (f"DRIFT: {one['drift']}; {chose}".rstrip("; ") if one["drift"] else stands))
        if one["shared_with"]:
            lines.append(f"     shared with {', '.join(one['shared_with'])}")
    counts = document.get("dropped")
    if counts:
        lines.append("  counted: " + ", ".join(f"{reason} {packets}" for reason, packets in counts.items()))
    return "\n".join(lines)


def _shown(value: object) -> object:
    """In words, for people."""
    if isinstance(value, tuple | list):
        return " ".join(str(_shown(one)) for one in value)
    return "none" if value is None else ("yes" if value else "no") if isinstance(value, bool) else value


COMMANDS = {"show": show}
