"""mockcloud import and rehearse: copy a cluster, and say what a change of settings or tags would come to."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import click

from mockcloud.cli.output import answer
from mockcloud.rehearsal import report
from mockcloud.rehearsal.copied import Copy, SettingsFile, keep, kept, node_named, read_file, records_of
from mockcloud.rehearsal.importing import imported, with_seen
from mockcloud.rehearsal.rehearsing import Foretold, rehearsable, rehearse, tasks
from mockcloud.rehearsal.settings import Given, differing, load
from mockcloud.rehearsal.upgrading import upgraded
from netcommon import __version__
from netcommon.cli.output import json_option, say
from netcommon.lifecycle.context import Clock
from runtime import validate
from runtime.errors import HostRefused, NicInvalid, escaped

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

LARGEST = 1 << 20  #: bytes of a settings file
STREAM = "-"
SETTINGS = "[NODE=]FILE"


@click.command("import")
@click.argument("folder", type=click.Path())
@click.argument("source", type=click.Path(), default=STREAM)
@click.option("--settings", multiple=True, metavar=SETTINGS, help="The nodes' config.toml, or one node's own; may be given several times.")
@click.option("--seen", multiple=True, metavar="FILE", help="What netcommon registry nic list --json, or node list --json, has printed.")
@click.option("--records", multiple=True, metavar="NODE=FOLDER", help="A copy of a node's /run/netcommon, for rehearse --upgrade.")
@json_option
def import_(folder: str, source: str, settings: tuple[str, ...], seen: tuple[str, ...], records: tuple[str, ...], as_json: bool) -> None:
    """Copy a cluster to a new FOLDER: what `netcommon registry export` has written, or Ganeti's config.data.

    SOURCE is a file, or stdin. Ganeti says on which node an instance is; an export does not, which --seen makes up for. No node is
    asked.
    """
    copy = imported(sys.stdin.buffer.read() if source == STREAM else read_file(source))
    copy = with_seen(copy, [(os.path.basename(file), read_file(file)) for file in seen])
    copy = copy._replace(settings=tuple(_settings_files(copy, settings)))
    for each in copy.settings:
        load(each)
    for text in records:
        node, _mark, where = text.partition("=")
        copy = copy._replace(records=(*copy.records, *records_of(node_named(copy, node, "--records"), where)))
    keep(copy, folder)
    placed = sum(bool(copy.place(nic).node) for nic in copy.nics)
    if as_json:
        counts = {
            "nodes": len(copy.nodes),
            "networks": len(copy.networks),
            "nics": len(copy.nics),
            "placed": placed,
            "records": len(copy.records),
        }
        answer("import", folder=folder, origin=copy.origin, revision=copy.revision, **counts, problems=list(copy.problems))
        return
    for problem in copy.problems:
        say(f"mockcloud: {problem}", err=True)
    say(f"{len(copy.nics)} NICs, {len(copy.networks)} networks and {len(copy.nodes)} nodes are in {folder}")
    if placed < len(copy.nics):
        say(f"of {len(copy.nics) - placed} NICs nobody says on which node they are: --seen does")


@click.command("rehearse")
@click.argument("folder", type=click.Path())
@click.option(
    "--settings", multiple=True, metavar=SETTINGS, help="The new config.toml of all nodes, or of one; may be given several times."
)
@click.option("--tags", multiple=True, metavar="INSTANCE=TAG,...", help="All tags that an instance is to have; may be given several times.")
@click.option("--upgrade", metavar="VERSION", help="Say what this version, VERSION, would do otherwise than what nodes have on record.")
@click.option("--each", is_flag=True, help="Say of each NIC what would be done, not how many change alike.")
@json_option
@click.pass_context
def rehearse_(
    ctx: click.Context, folder: str, settings: tuple[str, ...], tags: tuple[str, ...], upgrade: str | None, each: bool, as_json: bool
) -> None:
    """Say which NICs of a copy new settings or tags would change, by which operations, and which would be refused.

    FOLDER is what `mockcloud import` has made. The real lifecycle brings each NIC up on a simulated host by the present settings, and
    changes it to the new ones, as `netcommon change --all` does. No real node is touched or asked. A node with settings of its own keeps
    them, unless new ones are given for it.

    Exit status: 0; that of the first NIC that would be refused; 78 where the new settings are wrong.
    """
    if not (settings or tags or upgrade):
        raise click.UsageError("name what is to change: --settings, --tags or --upgrade")
    if upgrade not in (None, __version__):
        raise HostRefused(
            f"this is version {__version__}, and not {escaped(upgrade)}", "rehearse an upgrade by the mockcloud of that version"
        )
    copy = kept(folder)
    if upgrade and not copy.records:
        raise HostRefused("the copy has no records, which an upgrade is compared with", "import the cluster with --records NODE=FOLDER")
    before = {each.node: load(each) for each in copy.settings}
    after = {**before, **{each.node: load(each) for each in _settings_files(copy, settings)}}
    wanted = _tags(copy, tags)
    found = _rehearsed(copy, before, after, wanted)
    nodes = sorted({*before, *after})
    differs = [(node, one) for node in nodes for one in differing(_of(before, node), _of(after, node))]
    notes = _notes(copy, before, after)
    other = [one for file in copy.records if (one := upgraded(file, _of(after, file.node).settings)) is not None] if upgrade else []
    if as_json:
        answer("rehearse", **report.document(found, differs, notes, other))
    else:
        for line in report.text(found, differs, notes, each):
            say(line)
        for line in report.upgrade(other, each) if upgrade else ():
            say(line)
    refused = [*(one.refused for one in found), *(one.refused for one in other)]
    ctx.exit(next((why.status for why in refused if why is not None), 0))


def _rehearsed(copy: Copy, before: Mapping[str, Given], after: Mapping[str, Given], tags: Mapping[str, Sequence[str]]) -> list[Foretold]:
    found: list[Foretold] = []
    parts = tasks(copy, lambda node: _of(before, node).settings, lambda node: _of(after, node).settings)
    for number, task in enumerate(parts, 1):
        found += rehearse(copy, task, tags, Clock(), number)
    return found


def _of(given: Mapping[str, Given], node: str) -> Given:
    """Give a node's settings: its own, else those of all."""
    return given.get(node) or given.get("") or load(None)


def _settings_files(copy: Copy, given: Sequence[str]) -> list[SettingsFile]:
    """Read the files that are named. Raises NicInvalid for a node that is not in the copy, or has two; HostRefused."""
    found: dict[str, SettingsFile] = {}
    for text in given:
        node, mark, path = text.rpartition("=")
        if mark and ("/" in node or node not in copy.names) and os.path.exists(text):
            node, path = "", text  # a file's name may have a "=" too
        elif mark:
            node_named(copy, node, "--settings")
        if node in found:
            raise NicInvalid("--settings", text, f"one file for {node or 'all nodes'}")
        found[node] = SettingsFile(node, os.path.basename(path), read_file(path, LARGEST))
    return list(found.values())


def _tags(copy: Copy, given: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Read the tags that are given. Raises NicInvalid for what is none, and for an instance that is not in the copy."""
    found: dict[str, tuple[str, ...]] = {}
    instances = {nic.instance for nic in copy.nics}
    for text in given:
        instance, mark, tags = text.partition("=")
        if not mark or instance in found:
            raise NicInvalid("--tags", text, "INSTANCE=TAG,..., each instance once; INSTANCE= for no tags")
        if instance not in instances:
            raise NicInvalid("--tags", instance, "an instance of the copy")
        found[instance] = validate.tags(" ".join(tags.split(",")), f"--tags {instance}")
    return found


def _notes(copy: Copy, before: Mapping[str, Given], after: Mapping[str, Given]) -> list[str]:
    left_out = sorted({name for given in (*before.values(), *after.values()) for name in given.left_out})
    own = sorted(node for node in before if node and before[node] is after.get(node))
    notes = [f"extensions are not rehearsed, for a copy does not have their code: {', '.join(left_out)}"] if left_out else []
    notes += [f"with settings of their own, which stay: {', '.join(own)}"] if own else []
    idle = sum(not rehearsable(nic) for nic in copy.nics)
    notes += [f"{idle} NICs have no mode, or are no instance's: no hypervisor brings them up"] if idle else []
    return notes + [f"not in the copy: {problem}" for problem in copy.problems]


COMMANDS = {"import": import_, "rehearse": rehearse_}
