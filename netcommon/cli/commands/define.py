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
from runtime import definitions, membership
from runtime.environment import nic_from_environment
from runtime.errors import HostRefused, NicInvalid, SettingsInvalid, TryAgain
from runtime.nic import Nic
from runtime.paths import Paths
from runtime.record import CLOSING, UP


@click.command("define")
@nic_options
@click.option("--uuid", default="", metavar="UUID", help="The NIC's UUID; one is made up for a new device without.")
@click.option("--network", default="", metavar="NETWORK", help="A network of the registry's, which gives out the addresses, and a MAC.")
@click.option("--remove", is_flag=True, help="Remove the definition of --uuid or --interface.")
@json_option
@click.pass_obj
def define(app: App, /, uuid: str, network: str, remove: bool, as_json: bool, **values: Any) -> None:
    """Describe a NIC of plain QEMU: its script then needs the device's name alone. The description survives a reboot.

    With the --interface of an existing definition, and no --uuid, that definition is replaced.

    On a node that has joined a registry, --network takes address and MAC from it. Of a NIC that the registry knows, what is not given
    stays as it was, an address that is given is changed in the registry too, and --remove gives back what it had given.
    """
    given = variables(values)
    if remove:
        _remove(app, uuid, given, as_json)
        return
    uuid = uuid.lower() or _uuid_of(app.paths, given.get("INTERFACE", "")) or app.new_uuid()
    nic, path, note = _defined(app, uuid, given, network)
    if as_json:
        answer("define", uuid=nic.uuid, path=path, **definitions.as_mapping(nic))
        return
    say(f"defined {nic.label}: {path}")
    say(fields([("uuid", nic.uuid), *((name, _text(value)) for name, value in definitions.as_mapping(nic).items())], "  "))
    if note:
        say(note)


def _defined(app: App, uuid: str, given: dict[str, str], network: str) -> tuple[Nic, str, str]:
    """Write the definition, with the registry's help where the NIC is its; give the NIC, the path, and what is to be said."""
    known, note = definitions.read(app.paths, uuid), ""
    if network or (known is not None and membership.read(app.paths) is not None):
        from netcommon.cli import registry_definition  # few definitions are a registry's affair

        try:
            made = registry_definition.define(app, registry_definition.joined(app), uuid, given, network)
        except (TryAgain, HostRefused) as error:
            if network or (known is not None and known.network.uuid):
                raise
            made, note = None, f"the agent tells the registry, which cannot be asked for now: {error}"
        if made is not None:
            return made
    nic = nic_from_environment({**given, "INTERFACE_UUID": uuid})
    with suppress(SettingsInvalid):  # may be mended until the up
        # what it refuses, every up would; a site's code is not called to write a file
        plan(nic, app.settings(strict=False)._replace(extensions={}))
    return nic, definitions.write(app.paths, nic), note


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
    me = membership.read(app.paths) if uuid else None
    returned = ""
    if me is not None:
        from netcommon.cli.registry_definition import give_back

        returned = give_back(app, me, uuid)  # also where the definition is gone: it may have been cut off here
    if as_json:
        answer("define", uuid=uuid, removed=removed)
        return
    say(f"removed the definition {uuid}" if removed else "there is no such definition: nothing to remove")
    if returned:
        say(returned)


def _forget(app: App, uuid: str) -> None:
    """Drop what was changed of a NIC while it ran; one that is up has its tags' options at once."""
    from netcommon.lifecycle.change import change

    node = app.node(strict=False)
    record = node.store.read(uuid)
    if record is not None and record.nic.wanted and record.state in (UP, CLOSING) and alive(node, node.host.view(), record):
        change(node, record.key, app.call(nic=record.nic), lambda before: before.by_registry, closing=True)
    with locks(node, app.call()) as held:
        held.uuids({uuid})
        forget(node, uuid, app.log)


def _text(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {_text(each)}" for name, each in value.items())
    return " ".join(map(str, value)) if isinstance(value, list) else str(value)


COMMANDS = {"define": define}
