"""netcommon list: the NICs on record, and those defined."""

from __future__ import annotations

import click

from netcommon.cli.app import App
from netcommon.cli.names import chosen
from netcommon.cli.output import answer, json_option, say, table
from netcommon.host.api.host import View
from netcommon.lifecycle.context import Node, alive, taken_down
from netcommon.lifecycle.renamed_device import name_of
from runtime import definitions
from runtime.errors import NetcommonError
from runtime.nic import Nic
from runtime.record import Record

#: The state of a NIC that is defined, and of whose record this version knows nothing.
NEWER = "of a newer version"

HEADINGS = ("NIC", "MODE", "LINK", "DEVICE", "IP", "MAC", "VLAN", "STATE", "UUID")


@click.command("list")
@click.option("--cluster", is_flag=True, help="All NICs that the registry knows of this node's cluster, and which node has them.")
@json_option
@click.pass_obj
def list_(app: App, cluster: bool, as_json: bool) -> None:
    """List the NICs on record, and those defined that are not up."""
    if cluster:
        from netcommon.cli.cluster_list import show_cluster  # it asks the registry

        show_cluster(app, as_json)
        return
    node = app.node(strict=False, readonly=True)
    problems: list[str] = []
    records = chosen(node.store, (), problems)
    nics, wrong = definitions.all_of(app.paths)
    for problem in problems + wrong:
        app.log.warning(problem)
    view = node.host.snapshot() if len(records) > 1 else node.host.view()
    rows = [(_nic(node, view, record), _state(node, view, record)) for record in records]
    others = [nic for nic in nics if not any(record.uuid == nic.uuid for record in records)]
    newer = node.store.newer() if others else {}
    rows += [(nic, NEWER if nic.uuid in newer else "defined") for nic in others]
    if as_json:
        answer("list", nics=[_row(nic, state) for nic, state in rows])
    elif rows:
        say(table(HEADINGS, [list(_row(nic, state).values()) for nic, state in rows]))
    else:
        say("no NICs: none is on record, none is defined")


def _row(nic: Nic, state: str) -> dict[str, object]:
    values = (nic.label, nic.mode, nic.link, nic.interface, nic.ip, nic.mac, str(nic.vlan), state, nic.uuid)
    return dict(zip(map(str.lower, HEADINGS), values, strict=True))


def _nic(node: Node, view: View, record: Record) -> Nic:
    """The NIC with the name that its device has now."""
    try:
        return record.nic._replace(interface=name_of(node, view, record))
    except NetcommonError:
        return record.nic


def _state(node: Node, view: View, record: Record) -> str:
    try:
        if alive(node, view, record):
            return record.state
        return f"{record.state}, {'taken down' if taken_down(view, record) else 'device gone'}"
    except NetcommonError:
        return f"{record.state}, host not readable"


COMMANDS = {"list": list_}
