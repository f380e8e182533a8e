"""Run the site's scripts of endpoint.d for endpoints that have come, have changed or have gone, since they were run last in this boot.

What each was told is kept in /run/netcommon/underlay/told-<netns>.json, and written when all of an endpoint's have ended: who was killed
before runs them again. One that could not be begun was not told, and is run again alone. What could not be written the caller has for the
next time. Where there are no scripts nothing is kept: those that come later are told all.
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
    from collections.abc import Iterator, Mapping, Sequence

    from netcommon.lifecycle.context import Node
    from netcommon.log import Log
    from netcommon.scripts.site import Result, Script
    from runtime.paths import Paths
    from runtime.underlay import Endpoint, Underlay

FOLDER = "endpoint.d"
UP, CHANGE, DOWN = "endpoint-up", "endpoint-change", "endpoint-down"
SCHEMA = 1
TRIES = 3  #: endpoints in a row for which a script could not be begun, then it is left out for this time
FEW = 2  #: of the scripts that could not be begun those of which the problem tells
Told = dict[str, dict[str, "Endpoint"]]  #: by address, and by the path of the script that was told


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

    Whatever goes wrong with one endpoint, or one script, keeps no other one's from being told. Give what they were told where that could
    not be written, which is ``unwritten`` the next time, so that nothing is told twice; and what is to be tried again, and why, "" for
    nothing. Raises HostRefused, TryAgain, RecordTooNew, RecordUnreadable where what they were told, what is known, or what is there cannot
    be read.
    """
    scripts = {script.path: script for script in custom.beside(node.paths, FOLDER, node.hooks)}
    told = _with(scripts, _read(node, scripts) if unwritten is None else unwritten)
    if not scripts:
        _forget(node)
        return None, ""
    known = known_of(node)
    there = frozenset(seen(node, execute.once(node))[1])
    runs = _Runs(node, scripts, log)
    problem = "" if unwritten is None and told else _unwritable(node, told)
    for context, each, due in _changes(told, scripts, known, there):
        begun = runs.begun(context, each, due)
        if not begun:
            continue
        had = told.setdefault(each.address, {})
        for path in begun:
            if context == DOWN:
                del had[path]
            else:
                had[path] = each
        if not had:
            del told[each.address]
        problem = _unwritable(node, told)
    return told if problem else None, "; ".join(filter(None, (runs.problem, problem)))


def _with(scripts: Mapping[str, Script], told: Told) -> Told:
    """Give what those scripts were told that are there."""
    found = {address: {path: each for path, each in had.items() if path in scripts} for address, had in told.items()}
    return {address: had for address, had in found.items() if had}


def _changes(
    told: Told, scripts: Mapping[str, Script], known: Underlay | None, there: frozenset[str]
) -> Iterator[tuple[str, Endpoint, list[str]]]:
    """Give what is to be told, and which scripts: what has gone comes first. One that is not there yet has not come.

    One that is retired has gone, and so has one beside another of its kind to which the guest's name leads: what is told last counts.
    A script that could not be told that the guest before has gone is told nothing of the one that has its address by now.
    """
    now = {each.address: each for each in spoken(known.endpoints if known is not None else ())}
    for address, had in list(told.items()):
        for before in dict.fromkeys(had.values()):
            if address not in now or _whose(now[address]) != _whose(before):
                yield DOWN, before, [path for path, each in had.items() if each == before]
    for address, each in now.items():
        had = told.get(address, {})
        new = [path for path in scripts if path not in had]
        other = [path for path, before in had.items() if _whose(before) == _whose(each) and _what(before) != _what(each)]
        if new and address in there:
            yield UP, each, new
        if other:
            yield CHANGE, each, other


def _whose(each: Endpoint) -> tuple[str, str]:
    return each.instance, each.kind


def _what(each: Endpoint) -> tuple[str, bool, str]:
    return each.name, each.migrating, each.cluster


class _Runs:
    """Run scripts, and note what could not be begun. One that others could write, or that is there no more than by name, is not tried."""

    def __init__(self, node: Node, scripts: Mapping[str, Script], log: Log) -> None:
        self._node, self._scripts, self._log = node, scripts, log
        self._tries = {path: 0 if script.problem else TRIES for path, script in scripts.items()}
        self._why: dict[str, str] = {}
        self._missed: list[str] = []

    def begun(self, context: str, each: Endpoint, due: Sequence[str]) -> list[str]:
        """Run scripts for one endpoint; give those that were begun."""
        tried = [path for path in due if self._tries[path]]
        try:
            results = _run(self._node, [self._scripts[path] for path in tried], context, each, self._log) if tried else []
            failed = {result.script.path: result.error for result in results if not result.begun}
        except (NetcommonError, OSError) as error:
            failed = dict.fromkeys(tried, f"could not be started: {error}")
        for path in tried:
            self._tries[path] = self._tries[path] - 1 if path in failed else TRIES
        for path in due:
            if path not in tried or path in failed:
                self._why.setdefault(path, failed.get(path) or f"not run: {self._scripts[path].problem}")
        begun = [path for path in tried if path not in failed]
        if len(begun) < len(due):
            self._missed.append(f"{context} of {each.address}")
        return begun

    @property
    def problem(self) -> str:
        """Say which scripts could not be begun, and what to do about that; "" for none."""
        if not self._why:
            return ""
        said = [why if path in why else f"{path} {why}" for path, why in list(self._why.items())[:FEW]]
        more = f" and {len(self._missed) - 1} more" if self._missed[1:] else ""
        remedy = "correct (owner, mode, first line), or remove, what is named"
        return f"scripts were not told {self._missed[0]}{more}: {remedy}: {'; '.join(said)}"


def _run(node: Node, scripts: Sequence[Script], context: str, each: Endpoint, log: Log) -> list[Result]:
    said = {
        "INSTANCE": each.instance,
        "NETCOMMON_ENDPOINT_KIND": each.kind,
        "NETCOMMON_ENDPOINT_ADDRESS": each.address,
        "NETCOMMON_ENDPOINT_NAME": each.name if context != DOWN else "",
        "NETCOMMON_ENDPOINT_MIGRATING": "yes" if each.migrating else "no",
    }
    given = custom.Call(each.address, context, {**said, **variables(node, each.instance, log, cluster=each.cluster)})
    end, clock = node.clock.now() + node.settings.hook_timeout, node.clock.now
    return custom.run_each(scripts, given, node.settings, end, log, False, clock, node.execute, False)


# -- what they were told


def _read(node: Node, scripts: Mapping[str, Script]) -> Told:
    """Read it; nothing of another boot, nor of what is none: then they are told all again. ``scripts``: those that are there."""
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
        told: Told = {}
        for each in map(dict, listed):
            paths = each.pop("scripts", scripts)  # earlier versions told all
            endpoint = underlay.Endpoint(**each)
            if all(isinstance(field, str) for field in endpoint[:5]):
                told.setdefault(endpoint.address, {}).update(dict.fromkeys(paths, endpoint))
        return told
    except (RecordTooNew, RecordUnreadable, TypeError, ValueError):
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
        each_once = [(each, had) for had in told.values() for each in dict.fromkeys(had.values())]
        listed = [{**each._asdict(), "scripts": [path for path in had if had[path] == each]} for each, had in each_once]
        said = {"schema": SCHEMA, "boot": node.identity.boot, "endpoints": listed}
        folder.write(underlay_record.told(node.identity.netns), dumps(said).encode("ascii") + b"\n")


def _forget(node: Node) -> None:
    folder = Folder.find(f"{node.paths.state}/{underlay_record.FOLDER}")
    if folder is not None:
        with folder:
            folder.remove(underlay_record.told(node.identity.netns))
