"""Run the site's scripts of endpoint.d for endpoints that have come, have changed or have gone, since they were run last in this boot.

What they were told is kept in /run/netcommon/underlay/told-<netns>.json, and written when all of an endpoint's have ended: who was killed
before runs them again. What could not be written the caller has for the next time. Where there are no scripts nothing is kept: those that
come later are told all.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from netcommon.lifecycle import execute
from netcommon.lifecycle.underlay import known_of, seen, spoken, variables
from netcommon.scripts import site as custom
from runtime import underlay, underlay_record
from runtime.errors import NetcommonError, RecordTooNew, RecordUnreadable
from runtime.folder import Folder
from runtime.jsontext import dumps, versioned

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from netcommon.lifecycle.context import Node
    from netcommon.log import Log
    from netcommon.scripts.site import Script
    from runtime.paths import Paths
    from runtime.underlay import Endpoint, Underlay

FOLDER = "endpoint.d"
UP, CHANGE, DOWN = "endpoint-up", "endpoint-change", "endpoint-down"
SCHEMA = 1
Told = dict[str, "Endpoint"]  #: by address


def concerned(paths: Paths, netns: int) -> bool:
    """Tell whether there are scripts, or were."""
    folder = Folder.find(f"{paths.state}/{underlay_record.FOLDER}")
    kept = False
    if folder is not None:
        with folder:
            kept = folder.read(underlay_record.told(netns), underlay_record.LONGEST) is not None
    return kept or bool(custom.beside(paths, FOLDER))


def tell(node: Node, log: Log, unwritten: Told | None = None) -> tuple[Told | None, str]:
    """Run the scripts for what is other than they were told. A script's failure is logged, and it is told no more than any.

    Whatever goes wrong with one endpoint keeps no other one's from being told. Give what they were told where that could not be written,
    which is ``unwritten`` the next time, so that nothing is told twice; and what is to be tried again, and why, "" for nothing. Raises
    HostRefused, TryAgain, RecordTooNew, RecordUnreadable where what they were told, what is known, or what is there cannot be read.
    """
    scripts = custom.beside(node.paths, FOLDER, node.hooks)
    told = _read(node) if unwritten is None else dict(unwritten)
    if not scripts:
        _forget(node)
        return None, ""
    known = known_of(node)
    there = frozenset(seen(node, execute.once(node))[1])
    unsaid, problem = "", "" if unwritten is None and told else _unwritable(node, told)
    for context, each in _changes(told, known, there):
        try:
            _run(node, scripts, context, each, log)
        except (NetcommonError, OSError) as error:
            unsaid = unsaid or f"{context} of {each.address} was not told: {error}"
            continue
        if context == DOWN:
            del told[each.address]
        else:
            told[each.address] = each
        problem = _unwritable(node, told)
    return told if problem else None, "; ".join(filter(None, (unsaid, problem)))


def _changes(told: Told, known: Underlay | None, there: frozenset[str]) -> Iterator[tuple[str, Endpoint]]:
    """Give what scripts are to be told: what has gone comes first. One that is not there yet has not come.

    One that is retired has gone, and so has one beside another of its kind to which the guest's name leads: what is told last counts.
    """
    now = {each.address: each for each in spoken(known.endpoints if known is not None else ())}
    for address, before in list(told.items()):
        if address not in now or _whose(now[address]) != _whose(before):
            yield DOWN, before
    for address, each in now.items():
        if address not in told:
            if address in there:
                yield UP, each
        elif (each.name, each.migrating, each.cluster) != (told[address].name, told[address].migrating, told[address].cluster):
            yield CHANGE, each


def _whose(each: Endpoint) -> tuple[str, str]:
    return each.instance, each.kind


def _run(node: Node, scripts: tuple[Script, ...], context: str, each: Endpoint, log: Log) -> None:
    said = {
        "INSTANCE": each.instance,
        "NETCOMMON_ENDPOINT_KIND": each.kind,
        "NETCOMMON_ENDPOINT_ADDRESS": each.address,
        "NETCOMMON_ENDPOINT_NAME": each.name if context != DOWN else "",
        "NETCOMMON_ENDPOINT_MIGRATING": "yes" if each.migrating else "no",
    }
    given = custom.Call(each.address, context, {**said, **variables(node, each.instance, log, cluster=each.cluster)})
    custom.run_each(scripts, given, node.settings, node.clock.now() + node.settings.hook_timeout, log, False, node.clock.now, node.execute)


# -- what they were told


def _read(node: Node) -> Told:
    """Read it; nothing of another boot, nor of what is none: then they are told all again."""
    folder = Folder.find(f"{node.paths.state}/{underlay_record.FOLDER}")
    if folder is None:
        return {}
    with folder:
        data = folder.read(underlay_record.told(node.identity.netns), underlay_record.LONGEST)
    try:
        stored: Mapping[str, object] = versioned(data, SCHEMA) if data is not None else {}
        listed = stored.get("endpoints", [])
        if stored.get("boot") != node.identity.boot or not isinstance(listed, list):
            return {}
        found = [underlay.Endpoint(**each) for each in listed]
        return {each.address: each for each in found if all(isinstance(field, str) for field in each[:5])}
    except (RecordTooNew, RecordUnreadable, TypeError):
        return {}


def _unwritable(node: Node, told: Told) -> str:
    """Write it; say why that could not be done, "" where it was."""
    try:
        _write(node, told)
    except NetcommonError as error:
        return f"what scripts of {FOLDER} were told is not kept: {error}"
    return ""


def _write(node: Node, told: Told) -> None:
    if not told:
        _forget(node)
        return
    with Folder.make(f"{node.paths.state}/{underlay_record.FOLDER}") as folder:
        said = {"schema": SCHEMA, "boot": node.identity.boot, "endpoints": [each._asdict() for each in told.values()]}
        folder.write(underlay_record.told(node.identity.netns), dumps(said).encode("ascii") + b"\n")


def _forget(node: Node) -> None:
    folder = Folder.find(f"{node.paths.state}/{underlay_record.FOLDER}")
    if folder is not None:
        with folder:
            folder.remove(underlay_record.told(node.identity.netns))
