"""netcommon plan: what would be done for a NIC, and undone, without touching anything."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from netcommon.cli.app import App
from netcommon.cli.names import complete, defined, single
from netcommon.cli.nicinput import nic_options, read_environment, variables
from netcommon.cli.output import answer, json_option, say
from netcommon.lifecycle.changed_options import with_wanted
from netcommon.lifecycle.context import Node
from netcommon.operations.base import Operation, to_json
from netcommon.options.networks import Said, anything_said, said
from netcommon.options.schema import OPTIONS
from netcommon.options.shown import network_text, shown
from netcommon.options.sources import given
from netcommon.options.tags import Given
from netcommon.plan.planner import plan as planned
from runtime.environment import environment_of, generated_uuid, nic_from_environment
from runtime.nic import Nic


@click.command("plan")
@click.argument("name", default="", metavar="[NIC]", shell_complete=complete)
@click.option("--env-file", default="", metavar="FILE", help='NAME=VALUE lines, or a dump of /proc/PID/environ; "-" is stdin.')
@click.option("--from-environment", is_flag=True, help="The variables of this process, as a hypervisor passes them.")
@nic_options
@click.option("--resolve", is_flag=True, help="Look at this host too, and say what would be chosen on it.")
@json_option
@click.pass_obj
def plan(app: App, /, name: str, env_file: str, from_environment: bool, resolve: bool, as_json: bool, **values: Any) -> None:
    """Show what would be done for a NIC, and undone. Touches nothing; needs no root for a NIC of flags or an environment.

    The NIC is one that is up or defined (its UUID, device or INSTANCE/INDEX), that of an environment, or the one that the flags
    describe. Of one that is up this is what today's settings would do; netcommon show has what was done.
    """
    nic = _source(app, name, env_file, from_environment, values)
    operations: Sequence[Operation] = planned(nic, app.settings())
    options = list(given(nic, app.settings()))
    network = list(said(nic, app.settings())) if anything_said(nic, app.settings()) else []
    if resolve:
        operations = _resolved(app, nic, operations)
    if as_json:
        answer("plan", **document(nic, options, network, operations, resolve))
    else:
        say(text(nic, options, network, operations))


def _source(app: App, name: str, env_file: str, from_environment: bool, values: dict[str, Any]) -> Nic:
    """The NIC of plan: of a definition, an environment, or flags; exactly one of them. Raises NicInvalid."""
    given = variables(values)
    if sum(map(bool, (name, env_file, from_environment, given))) != 1:
        raise click.UsageError("name one source of the NIC: its name, --env-file, --from-environment, or flags such as --interface")
    if name:
        node = app.node(strict=False, readonly=True)
        records = node.store.all()[0]
        labelled = any(record.nic.label == name for record in records)
        # a plan asks nothing of the host, but which of several NICs with one INSTANCE/INDEX is there
        found = single(records, name, node.host.view() if labelled else None)
        if found is not None:
            return with_wanted(node, found.nic, app.log)
        node.store.refuse_newer(name)
        return _with_changes(node, app, name)
    if given:
        # not random: the same flags give the same plan
        index = int(given["INTERFACE_INDEX"]) if given.get("INTERFACE_INDEX", "").isdecimal() else None
        made = generated_uuid(given.get("INSTANCE", ""), index, given.get("MAC", "") or given.get("INTERFACE", ""))
        return nic_from_environment({**given, "INTERFACE_UUID": made})
    return nic_from_environment(read_environment(env_file) if env_file else app.environ)


def _with_changes(node: Node, app: App, name: str) -> Nic:
    """Give a NIC that is defined, with the options that were changed while it ran, which its next up will have. Raises NicInvalid."""
    nic = nic_from_environment(environment_of(defined(app.paths, name)))
    return with_wanted(node, nic, app.log)


def _resolved(app: App, nic: Nic, operations: Sequence[Operation]) -> list[Operation]:
    from netcommon.lifecycle import execute

    node = app.node(readonly=True)
    record = node.store.read(nic.uuid)
    earlier = execute.decode(record)[0] if record and record.device == nic.interface else []
    return execute.resolve(node, node.host.view(), operations, earlier, nic.uuid, app.log)


def document(
    nic: Nic, options: Sequence[Given], network: Sequence[Said], operations: Sequence[Operation], resolved: bool
) -> dict[str, object]:
    """The plan as JSON. What only the host knows is left out of a pure plan. Of options, and of what is said of the network, the last
    of a name counts.
    """
    return {
        "nic": environment_of(nic),
        "options": [option._asdict() for option in options],
        "network": [field._asdict() for field in network],
        "up": [
            {name: value for name, value in to_json(one).items() if resolved or name not in one.CHOSEN} | {"does": one.describe()}
            for one in operations
        ],
        "down": [one.undo() for one in reversed(operations)],
    }


def text(nic: Nic, options: Sequence[Given], network: Sequence[Said], operations: Sequence[Operation]) -> str:
    """The plan for people."""
    link = f", link {nic.link}" if nic.link else ""
    lines = [f"{nic.label} ({nic.uuid}) on {nic.interface}: {nic.mode}{link}"]
    lines += _listed("options:", options, nic)
    lines += _listed("network:", network)
    if not operations:
        return "\n".join([*lines, "nothing of ours: what is done is left to the site's scripts"])
    lines += ["up:", *(f"  {number}. {one.describe()}" for number, one in enumerate(operations, 1))]
    lines += ["down:", *(f"  {number}. {one.undo()}" for number, one in enumerate(reversed(operations), 1))]
    return "\n".join(lines)


def _listed(title: str, found: Sequence[Given] | Sequence[Said], nic: Nic | None = None) -> list[str]:
    """List what counts with its place, and what was overruled; ``nic``: for which some may mean nothing."""
    counts = {one.name: one for one in found}
    lines = [title] if found else []
    say_value = shown if nic else (lambda _name, value: network_text(value))
    for name, one in counts.items():
        void = next(option for option in OPTIONS if option.name == name).void(nic) if nic else ""
        lines.append(f"  {name} = {say_value(name, one.value)}, {_origin(one.origin)}{f'; {void}' if void else ''}")
    overruled = [one for one in found if one is not counts[one.name]]
    return lines + [f"  ({one.name} = {say_value(one.name, one.value)}, {_origin(one.origin)}, is overruled)" for one in overruled]


def _origin(origin: str) -> str:
    return origin if origin.startswith("set by ") else f"from {origin}"


COMMANDS = {"plan": plan}
