"""Ganeti 3.0.2's own kvm-ifup on one node and ours on its twin: the same network, and with ours nothing of it is left after the down.

For each NIC of environments.py, in an own node for Ganeti's script and a twin for our doors. What may differ is in differences.py.
"""

from __future__ import annotations

import pytest

from tests.kernel.differential import story, theirs
from tests.kernel.differential.differences import TABLE, misrouted, unexplained
from tests.kernel.differential.environments import Environment, environments
from tests.kernel.differential.place import ROUTER, ROUTER6, prepared
from tests.kernel.differential.story import Ours, Theirs
from tests.support.sample import sample
from tests.support.snapshot import diff, snapshot

INVALID, REFUSED = 64, 69
#: Whose description itself is wrong; what else is refused, the node refuses.
WRONGLY_DESCRIBED = ("routed-no-ip", "routed-local-number")

CASES = environments()
MACHINE = [pytest.mark.vm, pytest.mark.slow]
COUNT = 14  #: of the running kernel's, in a default run


def default() -> set[str]:
    """Names of those that are in every run: a sample, and of each entry of the table one more where the sample has none."""
    here = [case for case in CASES if not case.vm]
    found = sample(here, COUNT)
    for entry in TABLE:
        if not any(entry.applies(case) for case in found):
            found += [case for case in here if entry.applies(case)][:1]
    return {case.name for case in found}


DEFAULT = default()


def lane(case: Environment) -> list[pytest.MarkDecorator]:
    """Where its tests run, and whether in every run; in the machine, where two minutes go by for each, only when all of them do."""
    return MACHINE if case.vm else [] if case.name in DEFAULT else [pytest.mark.slow]


each = pytest.mark.parametrize("environment", [pytest.param(case, marks=lane(case), id=case.name) for case in CASES])


REACHED = [case for case in CASES if case.mode == "routed" and case.link in ("gntroute", "100") and case.ip and not misrouted(case)]
routed = pytest.mark.parametrize("environment", [pytest.param(case, marks=lane(case), id=case.name) for case in REACHED])


class Twins:
    """What both scripts made of each NIC, told once and kept."""

    def __init__(self, chosen: list[Environment]) -> None:
        self.chosen = chosen
        self.machine = any(case.vm for case in chosen)
        self.theirs: dict[str, Theirs] = {}
        self.ours: dict[str, Ours] = {}

    def run(self) -> None:
        """Ganeti's node first, then ours. Each NIC begins on a node as it was prepared: where something was left, on a new one."""
        with prepared(self.machine), theirs.installed():
            origin = snapshot(())
            for environment in self.chosen:
                self.theirs[environment.name] = story.by_ganeti(environment)
                assert diff(origin, snapshot(())) == [], f"not tidied up after Ganeti's script: {environment.name}"
        waiting = list(self.chosen)
        while waiting:
            with prepared(self.machine):
                assert diff(origin, snapshot(())) == [], "the nodes are no twins"
                base = story.settled()
                while waiting:
                    environment = waiting.pop(0)
                    found = self.ours[environment.name] = story.by_us(environment, base)
                    if found.left or found.persistent_left:
                        break


@pytest.fixture(scope="module")
def twins(request: pytest.FixtureRequest) -> Twins:
    """For the NICs whose tests were selected."""
    selected = [item for item in request.session.items if isinstance(item, pytest.Function) and item.path == request.path]
    chosen = [item.callspec.params.get("environment") for item in selected if hasattr(item, "callspec")]
    made = Twins([case for case in CASES if case in chosen])
    made.run()
    return made


@each
def test_same_network_as_ganetis(twins: Twins, environment: Environment) -> None:
    lines = story.compared(environment, twins.theirs[environment.name], twins.ours[environment.name])
    assert unexplained(environment, lines) == []


@routed
def test_routed_guest_is_reached(twins: Twins, environment: Environment) -> None:
    """The comparison of lookups compares something: the router's packets go to the tap, the guest's to the router."""
    found = twins.ours[environment.name]
    family, beyond, router = ("-6", "2001:db8::1", ROUTER6) if environment.ipv6 else ("-4", "192.0.2.1", ROUTER)
    assert found.lookups[f"{family} guest to {beyond}"] == f"unicast via {router} dev eth3"
    assert found.lookups[f"{family} uplink to guest"] == f"unicast dev {environment.tap}"


@each
def test_up_answers(twins: Twins, environment: Environment) -> None:
    """Done, and the kernel was told of changes; or refused with the right status, and nothing was touched."""
    found = twins.ours[environment.name]
    expected = INVALID if environment.name in WRONGLY_DESCRIBED else None
    if found.up.status == 0:
        assert expected is None
        assert bool(found.up_heard) == (environment.mode != "ext")
        assert len([line for line in found.scripts if line.startswith("ifup.d ")]) == 1
    else:
        assert found.up.status == (expected or REFUSED)
        assert found.up.stderr.startswith("netcommon: error: ")
        assert (found.up_heard, found.scripts) == ([], [])


@each
def test_second_up_changes_nothing(twins: Twins, environment: Environment) -> None:
    """It says what the first said, and is not heard; the site's scripts have not run again, which test_up_answers counts."""
    found = twins.ours[environment.name]
    assert (found.again.status, found.again_heard, found.again_changed) == (found.up.status, [], [])


@each
def test_down_leaves_the_node_as_before(twins: Twins, environment: Environment) -> None:
    """The tap is gone; a second down finds nothing to do. The administrator's own is in the snapshot: it is untouched."""
    found = twins.ours[environment.name]
    assert (found.down.status, found.late.status, found.late_heard) == (0, 0, [])
    assert found.left == []
    downs = [line for line in found.scripts if line.startswith("ifdown.d ")]
    assert len(downs) == (1 if found.up.status == 0 else 0)


@each
def test_persistent_tap_is_given_back_as_it_was(twins: Twins, environment: Environment) -> None:
    assert twins.ours[environment.name].persistent_left == []


def test_environments_are_many() -> None:
    assert len([case for case in CASES if not case.vm]) >= 60
    assert len({case.name for case in CASES}) == len(CASES)


def test_no_entry_of_the_table_is_idle() -> None:
    assert [entry.name for entry in TABLE if not any(entry.applies(case) for case in CASES)] == []


@pytest.mark.parametrize("lane", ["kernel", pytest.param("vm", marks=MACHINE)])
def test_every_difference_is_met(twins: Twins, lane: str) -> None:
    """An entry that explains nothing any more must go. It is asked of the NICs of this run that it is for."""
    assert twins.machine == (lane == "vm")
    found = [(case, story.compared(case, twins.theirs[case.name], twins.ours[case.name])) for case in twins.chosen]
    asked = [entry for entry in TABLE if entry.vm == twins.machine and any(entry.applies(case) for case in twins.chosen)]
    idle = [entry.name for entry in asked if not any(entry.explains(case, line, lines) for case, lines in found for line in lines)]
    assert idle == []
