"""The state of a NIC, from what is wanted and what nodes have seen."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest

from netregistry.draft import Commit
from netregistry.local import Local
from netregistry.model.history import Identity
from netregistry.refusal import Refused
from netregistry.rules.reports import SETTLING
from netregistry.state import Shown, missing_tags, shown
from tests.support.registry import GANETI, OPERATOR, Registry

LEASE = 20.0
REPORT = {"nic": "00000000-1111-4111-8111-111111111111", "state": "running"}


class Nodes:
    """A NIC, and two nodes that are alive, or more."""

    def __init__(self, count: int = 2) -> None:
        self.registry = Registry()
        self.nodes = [self.registry.join(number) for number in range(count)]
        self.leases = [self.sign_on(number) for number in range(count)]
        self.nic = self.registry.nic(mac="aa:00:00:00:00:01", instance="web1")

    def sign_on(self, number: int, incarnation: str = "11111111-0000-4000-8000-000000000000") -> int:
        return self.registry.local.sign_on(self.nodes[number], incarnation, LEASE)

    def says(self, number: int, state: str, **more: Any) -> None:
        assert self.registry.report(self.nodes[number], {"nic": self.nic.uuid, "state": state, "since": 5.0, **more}).status == 200

    def dies(self, number: int) -> None:
        """Only the others keep their leases."""
        for other, lease in enumerate(self.leases):
            if other != number:
                self.registry.time += LEASE / 2
                assert self.registry.store.keep(lease)
        self.registry.passes(LEASE / 2 + 1)

    @property
    def shown(self) -> Shown:
        return shown(self.registry.local.view, self.registry.wanted(self.nic.uuid))


@pytest.fixture
def two() -> Nodes:
    return Nodes()


def test_from_wanted_to_running_to_stopped(two: Nodes) -> None:
    assert two.shown == Shown("provisioning", (), two.nic.made)
    two.says(0, "running", applied="first:7")
    assert (two.shown.state, two.shown.nodes, two.shown.since, two.shown.applied) == ("running", (two.nodes[0].name,), 5.0, "first:7")
    two.says(0, "stopped")
    assert (two.shown.state, two.shown.nodes) == ("stopped", (two.nodes[0].name,))


def test_a_migration_and_its_late_source(two: Nodes) -> None:
    two.says(0, "running")
    two.says(1, "incoming")
    assert (two.shown.state, two.shown.nodes) == ("moving", (two.nodes[0].name, two.nodes[1].name))
    two.says(0, "stopped")
    assert two.shown.state == "moving"
    two.says(1, "running")
    assert (two.shown.state, two.shown.nodes) == ("running", (two.nodes[1].name,))
    two.says(0, "stopped", since=9.0)
    assert (two.shown.state, two.shown.nodes) == ("running", (two.nodes[1].name,)), "what the source says late counts no more"


def test_a_migration_whose_target_tells_first(two: Nodes) -> None:
    """Two agents tell the two halves of it, each when it comes to that."""
    two.says(0, "running")
    two.says(1, "incoming")
    two.says(1, "running")
    assert (two.shown.state, two.shown.nodes) == ("moving", (two.nodes[0].name, two.nodes[1].name))
    two.says(1, "running", applied="first:7")
    two.registry.passes(1)
    two.registry.passes(SETTLING - 1)
    assert two.shown.state == "moving"
    two.says(0, "stopped")
    assert (two.shown.state, two.shown.nodes) == ("running", (two.nodes[1].name,))
    two.registry.passes(2)
    kept = two.registry.local.view.get(f"seen/{two.nodes[1].name}/{two.nic.uuid}")
    assert (kept.state, kept.applied, kept.came_from, kept.settles) == ("running", "first:7", "", 0.0)


@pytest.mark.parametrize("said_again", [(), (0,), (1,), (0, 1)], ids=str)
def test_a_source_that_goes_on_is_a_conflict_in_the_end(two: Nodes, said_again: tuple[int, ...]) -> None:
    two.says(0, "running")
    two.says(1, "incoming")
    two.says(1, "running")
    for number in said_again:
        two.says(number, "running", since=7.0)
    two.registry.passes(1)
    assert two.shown.state == "moving"
    two.registry.passes(SETTLING + 1)
    assert two.shown.state == "conflict"
    for number in said_again:
        two.says(number, "running", since=8.0)
    assert two.shown.state == "conflict"


@pytest.mark.parametrize("before", ["", "stopped"])
def test_a_routed_nic_is_announced_by_nobody(two: Nodes, before: str) -> None:
    """Ganeti makes no up for it at the target before the guest runs there."""
    two.says(0, "running", mode="routed")
    if before:
        two.says(1, before)
    two.says(1, "running", mode="routed")
    assert two.shown.state == "moving"
    two.says(0, "stopped")
    assert two.shown.state == "running"


def test_a_routed_nic_that_goes_on_running_twice_is_a_conflict_in_the_end(two: Nodes) -> None:
    two.says(0, "running", mode="routed")
    two.says(1, "running", mode="routed")
    two.registry.passes(0)
    two.registry.passes(SETTLING + 1)
    assert two.shown.state == "conflict"


def test_a_clock_that_was_fast_at_an_arrival_hides_no_conflict(two: Nodes) -> None:
    two.says(0, "running")
    two.says(1, "incoming")
    two.says(1, "running")
    two.registry.time -= 3600
    for _ in range(int(SETTLING) + 1):
        two.registry.passes(1)
    assert two.shown.state == "conflict"


@pytest.mark.parametrize("skew", [0.0, -0.5, -2.0, -290.0, 9.0, 290.0], ids=str)
def test_how_long_a_migration_has_goes_by_no_other_services_clock(two: Nodes, skew: float) -> None:
    """The target tells one service, and another one leads, whose clock is another one: by that it was a conflict at once."""
    leading = Local(two.registry.store, lambda: two.registry.time + skew, "leading")
    two.says(0, "running")
    two.says(1, "incoming")
    two.says(1, "running")
    for second in range(1, int(SETTLING) + 3):
        leading.work()
        two.registry.local.catch_up()
        assert two.shown.state == ("moving" if second <= SETTLING else "conflict"), second
        if second == 5:
            two.says(1, "running", applied="first:7")
            other = Local(two.registry.store, lambda: two.registry.time - skew, "other")
            body = {"after": other.view.shown_revision(f"reports/{two.nodes[1].name}"), "nics": [{"nic": two.nic.uuid, "state": "running"}]}
            assert other.answer(two.registry.call("report", "", body), two.nodes[1]).status == 200
        two.registry.time += 1


def test_a_report_that_goes_while_others_are_settled(two: Nodes) -> None:
    """Another service takes in that the guest is off between two commits of the leader: its turn ended with an AttributeError."""
    nics = [two.nic, *(two.registry.nic(instance=f"web{number}") for number in range(2, 4))]
    for number, state in ((0, "running"), (1, "incoming"), (1, "running")):
        reports = [{"nic": nic.uuid, "state": state} for nic in nics]
        assert two.registry.report(two.nodes[number], *reports).status == 200
    leading = Local(two.registry.store, lambda: two.registry.time, "leading")
    leading.work()
    two.registry.time += SETTLING + 1
    leading.catch_up()
    steps, removed = leading.leader.work(), sorted(nic.uuid for nic in nics)[-1:]
    effect, settled = next(steps), 0
    with suppress(StopIteration):
        while True:
            result = leading.do(effect)
            if isinstance(effect, Commit) and effect.tests[0].key.startswith("seen/"):
                settled += 1
                if removed:
                    assert two.registry.report(two.nodes[1], removed=tuple(removed)).status == 200
                    removed = []
            effect = steps.send(result)
    assert settled == 2 and [each for each in leading.view.all("seen").values() if each.settles] == []


@pytest.mark.parametrize("order", [(0, 2, 1), (0, 1, 2)], ids=["before it comes", "afterwards"])
def test_what_a_third_node_runs_is_a_conflict_at_once(order: tuple[int, ...]) -> None:
    three = Nodes(3)
    for number in order:
        if number == 1:
            three.says(1, "incoming")
        three.says(number, "running")
    assert three.shown.state == "conflict"


def test_a_node_cannot_say_itself_from_where_a_guest_came(two: Nodes) -> None:
    two.says(0, "running")
    two.says(1, "running", came_from=two.nodes[0].name, settles=9e9)
    assert two.shown.state == "conflict"


def test_running_twice_is_a_conflict_and_a_dead_node_counts_towards_none(two: Nodes) -> None:
    two.says(0, "running")
    two.says(1, "running")
    assert two.shown.state == "conflict"
    two.dies(0)
    assert (two.shown.state, two.shown.nodes) == ("running", (two.nodes[1].name,))


def test_unknown_since_the_lease_ended(two: Nodes) -> None:
    two.says(0, "running")
    two.dies(0)
    assert (two.shown.state, two.shown.nodes, two.shown.since) == ("unknown", (two.nodes[0].name,), two.registry.time)
    assert [claim.standing for claim in two.registry.local.view.all("macs").values()] == ["held"], "it frees nothing"
    two.registry.passes(100)
    before = two.shown.since
    assert two.shown.since == before != two.registry.time
    two.sign_on(0)
    assert two.shown.state == "running"


def test_a_node_that_comes_back_has_nothing_of_what_it_ran_until_it_says_so(two: Nodes) -> None:
    """It was turned off, its guest was started elsewhere: what it had said is of before its boot, and no conflict."""
    two.says(0, "running")
    two.dies(0)
    two.says(1, "running")
    two.sign_on(0, "22222222-0000-4000-8000-000000000000")
    assert (two.shown.state, two.shown.nodes) == ("running", (two.nodes[1].name,))
    two.says(0, "running")
    assert two.shown.state == "conflict", "what it says now counts"


def test_a_node_that_comes_back_and_has_said_nothing_is_unknown_since_it_last_did(two: Nodes) -> None:
    two.says(0, "running")
    said = two.registry.local.view.reports(two.nodes[0].name)
    assert said is not None
    two.dies(0)
    two.sign_on(0, "22222222-0000-4000-8000-000000000000")
    assert (two.shown.state, two.shown.nodes, two.shown.since) == ("unknown", (two.nodes[0].name,), said.time)
    two.says(0, "stopped")
    assert two.shown.state == "stopped"


def test_a_failover_is_where_it_was_seen_last(two: Nodes) -> None:
    two.says(0, "running")
    two.says(1, "running")
    two.says(1, "stopped")
    two.dies(0)
    assert (two.shown.state, two.shown.nodes) == ("stopped", (two.nodes[1].name,))


def test_pending_restart(two: Nodes) -> None:
    two.says(0, "running", model="e1000")
    assert two.shown.state == "running"
    two.registry.do("nic.set", two.nic.uuid, {"ip": "192.0.2.1", "model": "virtio"})
    assert (two.shown.state, two.shown.pending) == ("pending restart", ("ip", "model"))
    two.says(0, "running", model="e1000", pending=["ip", "tags"])
    assert two.shown.pending == ("ip", "model", "tags"), "what its node says too, each once"
    two.says(0, "stopped")
    assert (two.shown.state, two.shown.pending) == ("stopped", ())


def test_that_ganeti_has_no_address_is_said_too(two: Nodes) -> None:
    two.nic = two.registry.nic(GANETI, mac="aa:00:00:00:00:02")
    two.says(0, "running", ip="192.0.2.1", mac="aa:00:00:00:00:02")
    assert two.shown.pending == ("ip",)


def test_two_that_want_one_mac(two: Nodes) -> None:
    two.registry.nic(two.nodes[0], mac="aa:00:00:00:00:01", found=True)
    assert two.shown.state == "conflict" and two.shown.conflicts[0].claim == "macs/none/aa:00:00:00:00:01"
    two.says(0, "running")
    assert two.shown.state == "conflict"


def test_a_forgotten_node_counts_no_more_and_what_it_said_is_swept(two: Nodes) -> None:
    registry = two.registry
    two.says(0, "running")
    own = registry.nic(two.nodes[0], mac="aa:00:00:00:00:09")
    assert registry.refused("node.forget", two.nodes[0].name)["kind"] == "in-use"
    two.dies(0)
    assert registry.do("node.forget", two.nodes[0].name)["nics"] == [own.uuid]
    assert two.shown.state == "provisioning"
    registry.passes(1)
    assert not [key for key in registry.everything() if two.nodes[0].name in key]
    assert registry.report(two.nodes[0]).status == 403
    with pytest.raises(Refused):
        two.sign_on(0)


def test_a_node_that_joins_again_has_what_it_says_then(two: Nodes) -> None:
    registry = two.registry
    two.says(0, "running")
    two.dies(0)
    registry.do("node.forget", two.nodes[0].name)
    again = {"uuid": two.nodes[0].name, "name": "node0"}
    problem = registry.refused("node.join", "", again, two.nodes[0])
    assert problem["kind"] == "busy" and "being removed" in problem["detail"]
    registry.passes(1)
    registry.do("node.join", "", again, two.nodes[0])
    two.sign_on(0)
    assert two.shown.state == "provisioning"
    two.says(0, "running")
    assert two.shown.state == "running"


def test_a_fenced_node_has_no_nic_and_a_late_report_of_its_is_not_taken(two: Nodes) -> None:
    registry, first = two.registry, two.nodes[0]
    two.says(0, "running")
    late = registry.call("report", "", {"after": registry.local.view.shown_revision(f"reports/{first.name}"), "nics": [REPORT]})
    assert registry.refused("node.fence", first.name)["kind"] == "in-use"
    two.dies(0)
    assert two.shown.state == "unknown"
    assert registry.do("node.fence", first.name) | {"node": {}} == {"node": {}, "nics": [two.nic.uuid], "left": 0}
    assert two.shown.state == "provisioning"
    before = registry.everything()
    assert registry.local.answer(late, first).status == 412 and registry.everything() == before
    two.sign_on(0)
    assert two.shown.state == "provisioning"
    two.says(0, "running")
    assert two.shown.state == "running", "it has come back, and says what it has"
    assert registry.refused("node.fence", first.name, None, first)["status"] == 403


def test_a_node_that_lives_is_fenced_by_force_and_in_parts(two: Nodes) -> None:
    registry, first = two.registry, two.nodes[0]
    uuids = [f"{number:08x}-1111-4111-8111-111111111111" for number in range(130)]
    for place in range(0, 130, 50):
        assert registry.report(first, *({"nic": uuid, "state": "running"} for uuid in uuids[place : place + 50])).status == 200
    done = [registry.do("node.fence", first.name, {"force": True}) for _ in range(2)]
    assert [each["left"] for each in done] == [30, 0] and [*done[0]["nics"], *done[1]["nics"]] == uuids
    assert registry.local.view.alive(first.name) is None and registry.local.view.members("on", first.name) == ()
    assert registry.do("node.fence", first.name)["nics"] == []


def test_a_node_that_reports_while_it_is_fenced_is_fenced_after_that(two: Nodes) -> None:
    """Its reports are not guarded by the ledger: the commit tests them."""
    registry, first = two.registry, two.nodes[0]
    two.dies(0)
    steps = registry.local.core.answer(registry.call("node.fence", first.name), OPERATOR)
    planned = next(steps)
    two.says(0, "running")
    try:
        while True:
            planned = steps.send(registry.local.do(planned))
    except StopIteration as end:
        assert end.value.body["nics"] == [two.nic.uuid]
    assert two.shown.state == "provisioning"


def test_two_that_say_to_be_one_node(two: Nodes) -> None:
    with pytest.raises(Refused) as refused:
        two.sign_on(0, "21111111-0000-4000-8000-000000000000")
    assert refused.value.kind == "twin" and "node0" in str(refused.value)
    two.sign_on(0)  # itself again
    two.dies(0)
    two.sign_on(0, "21111111-0000-4000-8000-000000000000")


def test_nodes_join_once_and_say_their_own_names(two: Nodes) -> None:
    registry, first = two.registry, two.nodes[0]
    assert registry.refused("node.join", "", {"uuid": first.name, "name": "x"}, first)["kind"] == "exists"
    assert registry.refused("node.join", "", {"uuid": two.nodes[1].name, "name": "x"}, first)["status"] == 403
    assert registry.refused("node.set", two.nodes[1].name, {"name": "x"}, first)["status"] == 403
    assert registry.refused("node.set", first.name, {"name": "node1"}, first)["field"] == "name"
    assert registry.refused("node.set", first.name, {"provides": ["a"]}, first)["command"].startswith("netcommon registry node set")
    registry.do("node.set", first.name, {"name": "renamed"}, first)
    registry.do("node.set", first.name, {"provides": ["external", "admin"]})
    registry.report(first, about={"provided": ["admin"], "version": "1.0"})
    assert missing_tags(registry.local.view, first.name) == ("external",)
    assert missing_tags(registry.local.view, Identity("node", "x").name) == ()


def test_who_joins_under_a_forgotten_nodes_uuid_does_not_wait_for_the_end_of_its_lease(two: Nodes) -> None:
    """A machine that was installed anew has another incarnation, and would be taken for a twin."""
    two.registry.do("node.forget", two.nodes[1].name, {"force": True})
    two.registry.passes(0)
    two.registry.join(1)
    two.sign_on(1, "22222222-0000-4000-8000-000000000000")
    two.says(1, "running")
    assert two.shown.state == "running"
