"""Say what of a registry may go because it is not on this node any more: pure, from two whole lists and a whole inventory.

What nobody can be sure of stays: while a NIC is on its way or was never here, while another node has it, while an inventory has failed, was
cut off or has become empty.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from netagent.sync.bare import may_have
from netagent.sync.outbox import STOPPED
from netagent.sync.reading import TRANSIENT

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from netagent.sync.messages import Surveyed
    from netagent.sync.sent import Sent

#: States of a wanted NIC in which it may go. Of two that contend for one address, either.
GOING = ("stopped", "conflict")
ELSEWHERE = ("running", "moving")
NONE_DEFINED = "no NIC is defined on this node any more: if that is so, netcommon registry nic delete says it"


class Stray(NamedTuple):
    """A wanted NIC whose master this node is, and that is not here any more. ``revision``: at which it was read."""

    uuid: str
    revision: str
    label: str


class Found(NamedTuple):
    """Hold what may go: wanted NICs, and reports of NICs that run elsewhere. ``problem``: why nothing may.

    ``unsaid``: wanted NICs of this node that are not here, of which it has never said so: they may be about to come. ``withheld``: which of
    them stay, since a tap may be theirs, and why.
    """

    strays: tuple[Stray, ...] = ()
    reports: tuple[str, ...] = ()
    unsaid: tuple[str, ...] = ()
    problem: str = ""
    withheld: str = ""


def told_devices(told: Mapping[str, Sent]) -> dict[str, Sent]:
    """Give on which devices NICs are up, and where, as the registry has it; or that they are stopped. What it does not have is left out."""
    return {uuid: sent for uuid, sent in told.items() if sent.device or sent.state == STOPPED}


def found(
    node: str,
    survey: Surveyed,
    told: Mapping[str, Sent],
    reported: Iterable[Mapping[str, Any]],
    mastered: Iterable[Mapping[str, Any]],
) -> Found:
    """Compare. ``told``: what the registry has from us; ``reported``, ``mastered``: its NICs that we have reported, that are ours."""
    if survey.problem:
        return Found(problem=f"the inventory is not complete: {survey.problem}")
    here = survey.nics.keys() | survey.kept
    away = tuple(
        item["nic"]["uuid"]
        for item in reported
        if item["nic"]["uuid"] not in here and _is_stopped(told, item) and item["shown"]["state"] in ELSEWHERE and _others(node, item)
    )
    gone = [item for item in mastered if item["nic"]["uuid"] not in here and item["nic"]["master"] == f"node:{node}"]
    going = [
        item for item in gone if _is_stopped(told, item) and item["shown"]["state"] in GOING and list(item["shown"]["nodes"]) == [node]
    ]
    # what was never defined here does not go by its definition: of that nothing defined says nothing
    doubtful = [item for item in going if not (survey.defined or item["nic"].get(TRANSIENT))]
    if doubtful and len(doubtful) == len(going):
        return Found(problem=NONE_DEFINED)
    going = [item for item in going if item not in doubtful]
    taps = {item["nic"]["uuid"]: [each.device for each in survey.bare if may_have(item["nic"], each, survey.bridges)] for item in going}
    bare = {each.device for each in survey.bare}
    running = [item for item in gone if item not in going and (sent := told.get(item["nic"]["uuid"])) is not None and sent.device in bare]
    taps |= {item["nic"]["uuid"]: [told[item["nic"]["uuid"]].device] for item in running}
    strays = tuple(Stray(item["nic"]["uuid"], item["revision"], item["label"]) for item in going if not taps[item["nic"]["uuid"]])
    unsaid = tuple(item["nic"]["uuid"] for item in gone if item["nic"]["uuid"] not in told)
    withheld = [f"{_named(doubtful)}: {NONE_DEFINED}"] if doubtful else []
    withheld += filter(None, [_withheld([(item, taps[item["nic"]["uuid"]]) for item in (*going, *running)])])
    return Found(strays, away, unsaid, withheld="; ".join(withheld))


def _named(items: list[Mapping[str, Any]]) -> str:
    return ", ".join(f"{item['label']} ({item['nic']['uuid']})" for item in items[:5])


def _withheld(going: Iterable[tuple[Mapping[str, Any], list[str]]]) -> str:
    """Say which NICs stay because of taps that may be theirs; "" where none does."""
    staying = [(item, taps) for item, taps in going if taps]
    if not staying:
        return ""
    named = _named([item for item, _taps in staying])
    held = list(dict.fromkeys(tap for _item, taps in staying for tap in taps))
    return f"{', '.join(held[:5])} may be theirs (on no record, in use, no mark): {named}; netcommon registry nic delete removes them"


def _is_stopped(told: Mapping[str, Sent], item: Mapping[str, Any]) -> bool:
    sent = told.get(item["nic"]["uuid"])
    return sent is not None and sent.state == STOPPED


def _others(node: str, item: Mapping[str, Any]) -> bool:
    nodes = item["shown"]["nodes"]
    return bool(nodes) and node not in nodes
