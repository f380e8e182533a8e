"""Every call of the host, reads and changes, answered with every error, once and for ever: up, down and gc in every mode.

On the simulated host, which is complete and fast. Either the call does what it should have done all the same, or it fails with the right
status and leaves nothing; what it could not undo then is undone by the next call once the host answers again.
"""

from __future__ import annotations

import errno
import itertools
import shutil
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from netcommon.host.api.host import Answer
from netcommon.host.api.requests import SetLink
from netcommon.lifecycle.check import check
from netcommon.lifecycle.gc import Found
from runtime.errors import TEMPORARY, UNAVAILABLE, NetcommonError
from runtime.record import UP
from tests.support import figures
from tests.support.faulty import EVER_AFTER, FAULTS, INTERRUPTED, LASTING, ONCE, Fault, FaultyHost
from tests.support.sample import sample
from tests.support.sim import MODES, UUIDS, Sim, nic, plain

OTHER = {"INTERFACE_UUID": UUIDS[1], "INSTANCE": "web2", "MAC": "aa:00:00:00:00:02"}
SAMPLE, WHOLE = 5, 120  #: points of each story in a default run, and in a full one


class Story(NamedTuple):
    """What comes before, the call that is disturbed, and what is then made of the node when all is well again."""

    before: Callable[[Sim], object]
    call: Callable[[Sim], list[Found] | None]


def died(sim: Sim, mode: str) -> None:
    """Its guest is gone, no down was called."""
    sim.up(nic(mode))
    sim.host.remove_link("tap0")


def replaced(sim: Sim, mode: str) -> None:
    died(sim, mode)
    sim.tap("tap0")


def up(sim: Sim, mode: str, other: bool = False) -> None:
    sim.up(nic(mode, **(OTHER if other else {})))


def stories() -> Mapping[str, Story]:
    found = {}
    for mode in MODES:
        found[f"up, {mode}"] = Story(lambda _sim: None, partial(up, mode=mode))
        found[f"down, {mode}"] = Story(partial(up, mode=mode), partial(down, mode=mode))
        found[f"gc, {mode}"] = Story(partial(died, mode=mode), collected)
    for mode in ("bridged, hybrid", "routed, all options", "openvswitch, guarded"):
        found[f"up after another's death, {mode}"] = Story(partial(replaced, mode=mode), partial(up, mode=mode, other=True))
    for first, second in (("bridged", "routed, table"), ("routed, all options", "openvswitch, access"), ("openvswitch, hybrid", "bridged")):
        found[f"{first} to {second}"] = Story(partial(up, mode=first), partial(up, mode=second))
    return found


def down(sim: Sim, mode: str) -> None:
    sim.down(nic(mode))


def collected(sim: Sim) -> list[Found]:
    return sim.gc()


STORIES = stories()


def state(sim: Sim) -> tuple[Any, ...]:
    """The host, the records without times and without what an operation saw last, and the files.

    What an operation found of ours is as good as what it made: the last owner removes both.
    """
    records = []
    for record in sim.records():
        fields = plain(record)
        bare = [{name: value for name, value in each.items() if name != "now"} for each in fields["operations"]]
        records.append({**fields, "operations": [{**each, "found": "absent"} if each.get("found") == "ours" else each for each in bare]})
    return sim.picture(), records, sim.files()


def prepared(story: Story, folder: Path) -> Sim:
    sim = Sim(str(folder))
    story.before(sim)
    sim.requests()
    return sim


def points(story: Story, folder: Path, name: str) -> list[Fault]:
    """Every fault at every call. A read knows two only, "not now" and "no", whatever the errno: it gets one errno of each, in turn."""
    sim = prepared(story, folder)
    with FaultyHost(sim.host).installed() as host:
        story.call(sim)
    assert host.calls or "ext" in name
    found = []
    for place, (_name, change) in enumerate(host.calls):
        faults = [what for what in FAULTS if what != INTERRUPTED]
        if not change:
            kinds = ([what for what in FAULTS if Fault(0, what, ONCE).status == status] for status in (TEMPORARY, UNAVAILABLE))
            faults = [kind[place % len(kind)] for kind in kinds]
        found += [Fault(place, what, lasting) for what, lasting in itertools.product(faults, LASTING)]
    return found


@pytest.mark.parametrize("name", STORIES)
def test_host_errors(tmp_path: Path, name: str) -> None:
    story = STORIES[name]
    whole = prepared(story, tmp_path / "whole")
    story.call(whole)
    good = state(whole)
    failures, every = [], points(story, tmp_path / "count", name)
    chosen = sample(every, SAMPLE, WHOLE)
    for number, fault in enumerate(chosen):
        wrong = tried(name, story, fault, tmp_path / str(number), good)
        shutil.rmtree(tmp_path / str(number))
        if wrong:
            failures.append((fault, wrong))
    figures.add("host-errors", len(chosen), len(failures), len(failures), "on the simulated host")
    assert failures == []


def tried(name: str, story: Story, fault: Fault, folder: Path, good: tuple[Any, ...]) -> str:
    """What is wrong after the disturbed call, and after the next undisturbed one; "" where nothing is."""
    sim = prepared(story, folder)
    try:
        return judged(name, story, fault, sim, good)
    finally:
        sim.node.store.close()  # thousands of them would hold as many descriptors


def judged(name: str, story: Story, fault: Fault, sim: Sim, good: tuple[Any, ...]) -> str:
    """The same on a machine that is ready."""
    before, found = state(sim), ""
    error: NetcommonError | None = None
    answer: list[Found] = []
    with FaultyHost(sim.host, fault).installed() as host:
        try:
            answer = story.call(sim) or []
        except NetcommonError as raised:
            error = raised
    where = f" at {host.hit[:1]}"
    if error is not None and error.status != fault.status:
        return f"status {error.status} instead of {fault.status}: {error}{where}"
    if name.startswith("gc, "):
        whole = error is None and all(each.action == "removed" for each in answer)
        found = "" if not whole or state(sim) == good or fault.lasting == EVER_AFTER else f"gc is content, and something is left{where}"
        sim.gc()
        return found or ("" if state(sim) == good else f"another gc leaves something{where}")
    if error is None and state(sim) != good:
        story.call(sim)
        if "death" in name:
            sim.gc()  # what could not be undone of the dead one stays on its record, and keeps no other from coming up
        return "" if state(sim) == good else f"no failure, and it is not what it should be{where}"
    if error is not None and fault.lasting == ONCE and name.startswith("up, ") and state(sim) != before:
        return f"it failed and left something: {sim.files()}{where}"
    if error is not None:
        story.call(sim)  # the host answers again: the hypervisor's next try
        if "death" in name:
            sim.gc()
        if state(sim) != good:
            return f"the next call does not make it good{where}"
    return ""


def test_an_up_after_a_change_that_was_refused(tmp_path: Path) -> None:
    """A tap that could not leave its bridge is in it as it was, and is not taken for somebody else's port by the next try."""
    story = STORIES["bridged to routed, table"]
    sim = prepared(story, tmp_path)
    sim.host.fail = lambda request: Answer(errno.EBUSY, "busy") if isinstance(request, SetLink) and request.master == 0 else None
    with pytest.raises(NetcommonError):
        story.call(sim)
    sim.host.fail = lambda _request: None
    assert sim.record().state == UP and sim.record().nic.mode == "bridged" and check(sim.node, sim.host.view(), sim.record()).good
    story.call(sim)
    assert sim.record().state == UP and sim.record().nic.mode == "routed" and check(sim.node, sim.host.view(), sim.record()).good
    sim.node.store.close()
