"""Fence the import of a Ganeti cluster: an importer begins each of its batches with this request, and without it nothing of that is done.

Of one master no older configuration is taken than the last one. Another master takes over only if its node has seen the one before as
the master, in a configuration not older than that one's first import, and has become the master after it. A master that was cut off from
the others cannot have seen its successor, however far it goes on counting. An operator may say it instead.

A cluster is known by its UUID. One that is imported under another name was renamed, which an operator has to say too. A name of which
another cluster has something is that one's, whoever says what.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from netregistry.model import keys, kinds
from netregistry.model.codec import read, write
from netregistry.model.importing import Import, Reading
from netregistry.refusal import Refused
from netregistry.request import Done
from netregistry.rules import renaming

if TYPE_CHECKING:
    from netregistry.draft import Draft
    from netregistry.request import Part

COMMAND = "netcommon registry import --ganeti --take-over"


class _Target(NamedTuple):
    target: kinds.Imported


def hold(draft: Draft, part: Part) -> Done:
    """Let an importer go on, and note how far it is; the target is the cluster. An operator lets any configuration be the one.

    Where the cluster has had another name all that is of it is renamed, in parts: as long as anything is ``left`` he asks again.
    """
    cluster = read(_Target, {"target": part.target}).target
    asked, key = read(Reading, part.body), keys.imported(cluster)
    there: Import | None = draft.get(key)
    since = asked.serial
    if draft.who.role == "importer" and cluster != draft.who.name:
        raise Refused("forbidden", f"an importer is of its own cluster, {draft.who.name}", master=f"ganeti:{cluster}")
    others = renaming.others(draft, cluster, asked.uuid)
    if there is not None and there.uuid != asked.uuid:
        _may_be_had(draft, cluster, there, bool(others or renaming.others(draft, cluster, there.uuid)))
    if draft.who.role == "importer":
        for name, before in others:
            said = "it is not renamed whole yet" if there is not None else "nobody has said that it was renamed"
            _refuse(before, f"cluster {asked.uuid} is imported as {name}, by {before.node}, and {said}")
        if there is not None:
            _after(there, asked)
            since = there.since if _goes_on(there, asked) else asked.serial
    made = Import(asked.uuid, asked.master, asked.node, asked.serial, since, draft.now)
    draft.put(key, made)
    if others:
        (name, _before), *more = others
        left = renaming.renamed(draft, name, cluster)
        if not left:
            draft.delete(keys.imported(name))
        if left or more:
            left += sum(1 + renaming.count(draft.view, each) for each, _before in more)
            return Done(200, key, {**write(made), "left": left})
    return Done(200, key, write(made))


def _may_be_had(draft: Draft, cluster: str, there: Import, renamed: bool) -> None:
    """Raise Refused where a name is another cluster's; one that was made anew under its own name is not another.

    ``renamed``: one of both is imported under another name too.
    """
    if not renamed or not renaming.is_imported(draft, cluster):
        return
    gone = "netcommon registry nic delete --force, network delete --force"
    detail = (
        f"another cluster, {there.uuid}, is imported as {cluster}, by {there.node}: that one gets its own name first, by {COMMAND} on its "
        f"master; where it is gone for good its NICs and networks are deleted: {gone}"
    )
    raise Refused("fenced", detail, node=there.node, serial=there.serial)


def _goes_on(there: Import, asked: Reading) -> bool:
    """Tell whether the master has been it all the time since its last import, as far as it has seen."""
    return asked.master == there.master and (asked.seen is None or asked.seen.serial <= there.serial)


def _after(there: Import, asked: Reading) -> None:
    """Raise Refused where a configuration is not the one after that which was imported."""
    if asked.uuid != there.uuid:
        _refuse(there, f"another cluster of this name is imported, {there.uuid}, and not {asked.uuid}")
    if asked.master == there.master:
        if asked.serial < there.serial:
            _refuse(there, f"its configuration {there.serial} was imported already, and {asked.serial} is older")
    elif asked.seen is None or asked.seen.master != there.master or asked.seen.serial < there.since:
        _refuse(there, f"{there.node} imports it as its master, and {asked.node} has not become the master after that")


def _refuse(there: Import, why: str) -> None:
    detail = f"{why}; where it is right all the same: {COMMAND}"
    raise Refused("fenced", detail, command=COMMAND, node=there.node, serial=there.serial)
