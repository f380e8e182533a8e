"""netcommon define: NICs of plain QEMU, whose script is called with the device's name alone."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import Any

import click

from netcommon.cli.app import App
from netcommon.cli.nicinput import nic_options, variables
from netcommon.cli.output import answer, fields, json_option, say
from netcommon.lifecycle.changed_options import forget
from netcommon.lifecycle.context import alive, locks
from netcommon.plan.planner import plan
from runtime import definitions, wanted
from runtime.environment import nic_from_environment
from runtime.errors import NicInvalid, SettingsInvalid
from runtime.paths import Paths
from runtime.record import CLOSING, UP


@click.command("define")
@nic_options
@click.option("--uuid", default="", metavar="UUID", help="The NIC's UUID; one is made up for a new device without.")
@click.option("--remove", is_flag=True, help="Remove the definition of --uuid or --interface.")
@json_option
@click.pass_obj
def define(app: App, /, uuid: str, remove: bool, as_json: bool, **values: Any) -> None:
    """Describe a NIC of plain QEMU: its script then needs the device's name alone. The description survives a reboot.

    With the --interface of an existing definition, and no --uuid, that definition is replaced.
    """
    given = variables(values)
    if remove:
        _remove(app, uuid, given, as_json)
        return
    uuid = uuid or _uuid_of(app.paths, given.get("INTERFACE", "")) or app.new_uuid()
    nic = nic_from_environment({**given, "INTERFACE_UUID": uuid})
    with suppress(SettingsInvalid):  # may be mended until the up
        # what it refuses, every up would; a site's code is not called to write a file
        plan(nic, app.settings(strict=False)._replace(extensions={}))
    path = definitions.write(app.paths, nic)
    if as_json:
        answer("define", uuid=nic.uuid, path=path, **definitions.as_mapping(nic))
        return
    say(f"defined {nic.label}: {path}")
    say(fields([("uuid", nic.uuid), *((name, _text(value)) for name, value in definitions.as_mapping(nic).items())], "  "))


def _uuid_of(paths: Paths, device: str) -> str:
    """The UUID of the definition that has the device now; "" if none has."""
    nic = definitions.find(paths, device) if device else None
    return nic.uuid if nic else ""


def _remove(app: App, uuid: str, given: dict[str, str], as_json: bool) -> None:
    if not uuid and not given.get("INTERFACE"):
        raise NicInvalid("--remove", "", "--uuid or --interface beside it")
    uuid = uuid.lower() or _uuid_of(app.paths, given["INTERFACE"])
    removed = bool(uuid) and definitions.remove(app.paths, uuid)
    if removed and os.path.exists(app.paths.wanted):
        _forget(app, uuid)  # what was changed of it while it ran goes with it
    if as_json:
        answer("define", uuid=uuid, removed=removed)
    else:
        say(f"removed the definition {uuid}" if removed else "there is no such definition: nothing to remove")


def _forget(app: App, uuid: str) -> None:
    """Drop what was changed of a NIC while it ran; one that is up has its tags' options at once."""
    from netcommon.lifecycle.change import change

    node = app.node(strict=False)
    record = node.store.read(uuid)
    if record is not None and record.nic.wanted and record.state in (UP, CLOSING) and alive(node, node.host.view(), record):
        change(node, record.key, app.call(nic=record.nic), lambda _before: wanted.NOTHING, closing=True)
    with locks(node, app.call()) as held:
        held.uuids({uuid})
        forget(node, uuid, app.log)


def _text(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {_text(each)}" for name, each in value.items())
    return " ".join(map(str, value)) if isinstance(value, list) else str(value)


COMMANDS = {"define": define}
