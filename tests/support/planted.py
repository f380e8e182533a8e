"""Plant bugs that a search for faults has to find, ten of NICs and four of the underlay.

Each replaces a function of the product, in a test's process alone.

python -m tests.support.planted [NAME...] searches for each, and prints the first seed that finds it and how it is shrunk.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from typing import Any
from weakref import WeakKeyDictionary

import pytest

from mockcloud.explore.drawing import draw
from mockcloud.explore.exploring import Found, explore, tried
from netagent.reap import reaper
from netagent.sync.inbox import Inbox
from netagent.sync.machine import Machine
from netagent.sync.outbox import Outbox
from netagent.sync.wishes import Wishes
from netcommon.lifecycle import abandoned, gc
from netregistry import actions, core
from netregistry.model import keys
from netregistry.model.codec import write
from netregistry.request import Done
from netregistry.rules import claims
from netregistry.rules import underlay as rules_underlay
from netregistry.stores.base import Delete, Expect
from netregistry.underlay import saga
from netregistry.underlay.placing import Placing
from runtime import underlay as node_underlay

Plant = Callable[[pytest.MonkeyPatch], None]
SEEDS = 1000  #: within which each is found
CUT_OFF = 7  #: devices of a list that is taken for whole though it ends there
MEMORY = "/dev/shm"


def reaper_takes_migrating_nics(patch: pytest.MonkeyPatch) -> None:
    """The reaper takes NICs whose guests are on their way here: Ganeti writes what runs when a guest has arrived."""
    real = abandoned.abandoned

    def wrong(node: Any, view: Any, record: Any, locked: bool = False) -> Any:
        here = os.path.exists(f"{node.paths.kvm_run}/conf/{record.nic.instance}.runtime")
        return real(node, view, record, locked) or (None if here else abandoned.GONE)

    for module in (reaper, gc):
        patch.setattr(module, "abandoned", wrong)


def deletion_without_node_and_state(patch: pytest.MonkeyPatch) -> None:
    """The registry removes what any node says of a NIC, in whatever state, where one says that it has it no more."""
    real = vars(core)["reported"]

    def wrong(view: Any, request: str, who: Any, body: Any, now: float) -> Any:
        commit = real(view, request, who, body, now)
        removed = body.get("removed", ())
        others = [keys.seen(node, nic) for nic in removed for node, _report, _at in view.seen(nic) if node != who.name]
        return commit._replace(changes=(*commit.changes, *map(Delete, others)))

    patch.setattr(core, "reported", wrong)


def reaping_after_an_incomplete_list(patch: pytest.MonkeyPatch) -> None:
    """The reaper believes a list of devices that was cut off: whose device is not in it has none."""
    real = vars(abandoned)["alive"]

    def wrong(node: Any, view: Any, record: Any) -> bool:
        return real(node, view, record) and record.ifindex in sorted(link.index for link in view.links())[:CUT_OFF]

    patch.setattr(abandoned, "alive", wrong)


def retry_repeats_the_old_value(patch: pytest.MonkeyPatch) -> None:
    """Leave out what changes of a NIC while it is being told: the request that is sent again says what it said."""
    real = Outbox.mark

    def wrong(outbox: Outbox, uuid: str) -> None:
        if uuid not in outbox._flying:
            real(outbox, uuid)

    patch.setattr(Outbox, "mark", wrong)


def create_completes_after_the_delete(patch: pytest.MonkeyPatch) -> None:
    """Reports are taken whatever has been reported after them: a late copy makes again what is removed."""
    real = vars(core)["reported"]

    def wrong(view: Any, request: str, who: Any, body: Any, now: float) -> Any:
        key = keys.reports(who.name)
        commit = real(view, request, who, {**body, "after": view.shown_revision(key)}, now)
        return commit._replace(tests=tuple(each for each in commit.tests if each != Expect(key, view.at(key))))

    patch.setattr(core, "reported", wrong)


def claim_is_freed_before_the_nic(patch: pytest.MonkeyPatch) -> None:
    """A deletion is two commits: the first frees the MAC and the addresses, and the NIC goes with the second."""
    real = actions.ACTIONS["nic.delete"]
    begun: WeakKeyDictionary[Any, set[str]] = WeakKeyDictionary()  # of each registry

    def wrong(draft: Any, part: Any) -> Any:
        nic = draft.nic(part.target)
        if nic is None or part.target in begun.setdefault(draft.view, set()):
            return real.rule(draft, part)
        begun[draft.view].add(part.target)
        claims.change(draft, nic, None, False)
        return Done(200, keys.nic(nic.uuid), write(nic))

    patch.setitem(actions.ACTIONS, "nic.delete", real._replace(rule=wrong))


def watch_begins_at_the_lists_revision(patch: pytest.MonkeyPatch) -> None:
    """A node's stream begins at the revision of whatever was asked last, and not where the stream before has ended."""
    real = Inbox.begin

    def wrong(inbox: Inbox, underlay: bool = False) -> str:
        start = real(inbox, underlay)
        return str(inbox._proved) if start and inbox._proved is not None else start

    patch.setattr(Inbox, "begin", wrong)


def stopped_report_is_withdrawn_too_early(patch: pytest.MonkeyPatch) -> None:
    """A node says nothing any more of a NIC that is not there, though it is wanted still."""
    real = Outbox._report

    def wrong(outbox: Outbox, uuid: str, local: Any, wall: float, kept: bool) -> Any:
        return None if local is None else real(outbox, uuid, local, wall, kept)

    patch.setattr(Outbox, "_report", wrong)


def epoch_is_ignored_after_a_restore(patch: pytest.MonkeyPatch) -> None:
    """A node goes on as if the registry were the one that it knew."""
    patch.setattr(Machine, "_another_epoch", lambda _machine, _now: None)


def wanted_value_is_not_on_the_targets_disk(patch: pytest.MonkeyPatch) -> None:
    """A node keeps nothing of what an operator wants of NICs that are elsewhere."""
    real = Wishes.beside

    def wrong(wishes: Wishes, found: Any) -> None:
        if found.uuid in wishes._inbox.nics:
            real(wishes, found)

    patch.setattr(Wishes, "beside", wrong)


def name_moves_before_its_address_is_there(patch: pytest.MonkeyPatch) -> None:
    """The registry lets names lead to the node on which a guest has arrived, though that has not confirmed the address."""
    patch.setattr(saga, "_ready", lambda *_: True)


def prefix_is_anothers_at_once(patch: pytest.MonkeyPatch) -> None:
    """The registry gives a prefix that was given back to the next node that joins, without a quarantine."""

    def wrong(view: Any, _now: float) -> Iterator[str]:
        for key, prefix in view.all("prefixes").items():
            node = key.partition("/")[2]
            if prefix.freed and view.node(node) is None and not view.has("placed", node):
                yield key

    patch.setattr(rules_underlay, "over", wrong)


def address_goes_whatever_name_servers_have(patch: pytest.MonkeyPatch) -> None:
    """The registry counts a quarantine from its own change of a name, and not from that of the last name server."""
    real = Placing._world
    patch.setattr(Placing, "_world", lambda placing, found: real(placing, found)._replace(cleared=lambda _generation: True))


def node_removes_what_is_retired(patch: pytest.MonkeyPatch) -> None:
    """A node removes addresses to which no name leads any more by the registry, and does not wait until it is told to."""
    real = node_underlay.underlay_of

    def wrong(node: str, revision: str, said: Any) -> Any:
        found = real(node, revision, said)
        return found._replace(endpoints=tuple(each for each in found.endpoints if each.state != "retired"))

    patch.setattr(node_underlay, "underlay_of", wrong)


#: Each with the first seed that finds it, so that a test need not try all before; where that finds nothing any more, all are tried.
PLANTS: dict[str, tuple[Plant, int]] = {
    "reaper takes migrating NICs": (reaper_takes_migrating_nics, 3),
    "deletion without node and state": (deletion_without_node_and_state, 6),
    "reaping after an incomplete list": (reaping_after_an_incomplete_list, 1),
    "retry repeats the old value": (retry_repeats_the_old_value, 121),
    "create completes after the delete": (create_completes_after_the_delete, 30),
    "claim is freed before the NIC": (claim_is_freed_before_the_nic, 5),
    "watch begins at the list's revision": (watch_begins_at_the_lists_revision, 15),
    "stopped report is withdrawn too early": (stopped_report_is_withdrawn_too_early, 8),
    "epoch is ignored after a restore": (epoch_is_ignored_after_a_restore, 3),
    "wanted value is not on the target's disk": (wanted_value_is_not_on_the_targets_disk, 8),
    "name moves before its address is there": (name_moves_before_its_address_is_there, 11),
    "prefix is another's at once": (prefix_is_anothers_at_once, 7),
    "address goes whatever name servers have": (address_goes_whatever_name_servers_have, 14),
    "node removes what is retired": (node_removes_what_is_retired, 11),
}


def search(plant: Plant, seeds: Iterable[int], folder: str) -> Found | None:
    """Give what the first of the seeds finds with a bug planted that does not show without it, shrunk; None where none does."""
    for seed in seeds:
        with pytest.MonkeyPatch.context() as patch:
            plant(patch)
            found = next((found for _seed, found in explore([seed], folder) if found is not None), None)
        if found is not None and not tried(draw(seed), folder, seed).violations:
            return found
    return None


def main(names: list[str]) -> None:
    """Search for the bugs of these names, or for all."""
    for name, (plant, first) in PLANTS.items():
        if not names or any(each in name for each in names):
            with tempfile.TemporaryDirectory(dir=MEMORY) as folder:
                found = search(plant, [first, *range(1, SEEDS + 1)], folder)
            if found is None:
                print(f"{name}: not found", flush=True)
            else:
                print(f"{name}: seed {found.seed}, {len(found.scenario.steps)} steps, {found.runs} runs", flush=True)
                print(f"    {found.last.violations[0]}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
