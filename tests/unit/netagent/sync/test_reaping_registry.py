"""Check what of a registry goes because it is not on the node any more, and above all what does not."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from netagent.sync.bare import Bare
from netagent.sync.jobs import RETAIN, Jobs
from netagent.sync.messages import (
    Answered,
    Apply,
    Ask,
    AskNode,
    Did,
    Failed,
    Failure,
    Hello,
    List,
    Local,
    Looked,
    Lost,
    Marked,
    Retain,
    Send,
    Sent,
    Surveyed,
    Wanted,
)
from netagent.sync.reaping import Found, found
from netagent.sync.rules import Rules
from netregistry.model.nic import Report
from tests.unit.netagent.sync.test_machine import ACTIONS, NICS, NODE, Turned, nic

OTHER = "bbbbbbbb-0000-4000-8000-000000000000"


def item(number: int, state: str = "stopped", nodes: tuple[str, ...] = (NODE,), master: str = f"node:{NODE}") -> dict[str, Any]:
    return {
        "nic": {"uuid": NICS[number], "master": master},
        "revision": "e:7",
        "label": f"web{number}/0",
        "shown": {"state": state, "nodes": list(nodes)},
    }


def here(*numbers: int) -> dict[str, Local]:
    return {NICS[number]: Local(Report(NICS[number], "stopped"), {}) for number in numbers}


STOPPED = {NICS[0]: Sent("stopped", 1)}


@pytest.mark.parametrize(
    ("survey", "told", "mastered", "gone"),
    [
        (Surveyed(here(1), defined=1), STOPPED, [item(0)], True),
        (Surveyed(here(1), defined=1), STOPPED, [item(0, "conflict")], True),
        (Surveyed(here(0, 1), defined=2), STOPPED, [item(0)], False),
        (Surveyed(here(1), "a folder cannot be read", 1), STOPPED, [item(0)], False),
        (Surveyed({}, defined=0), STOPPED, [item(0)], False),
        (Surveyed(here(1), defined=0), STOPPED, [item(0)], False),
        (Surveyed(here(1), defined=1), {}, [item(0)], False),
        (Surveyed(here(1), defined=1), {NICS[0]: Sent("running", 1)}, [item(0)], False),
        (Surveyed(here(1), defined=1), {NICS[0]: Sent("incoming", 1)}, [item(0)], False),
        (Surveyed(here(1), defined=1), STOPPED, [item(0, "provisioning", ())], False),
        (Surveyed(here(1), defined=1), STOPPED, [item(0, "moving")], False),
        (Surveyed(here(1), defined=1), STOPPED, [item(0, "unknown")], False),
        (Surveyed(here(1), defined=1), STOPPED, [item(0, "running", (OTHER,))], False),
        (Surveyed(here(1), defined=1), STOPPED, [item(0, "stopped", (OTHER,))], False),
        (Surveyed(here(1), defined=1), STOPPED, [item(0, master=f"node:{OTHER}")], False),
        (Surveyed(here(1), defined=1), STOPPED, [item(0, master="ganeti:gnt.example.com")], False),
    ],
    ids=[
        "gone",
        "gone, and another wants its address",
        "here",
        "an inventory that failed",
        "an inventory that is empty",
        "nothing is defined",
        "never told",
        "told as running",
        "told as incoming",
        "provisioning",
        "moving",
        "no lease",
        "runs elsewhere",
        "seen elsewhere",
        "another node's",
        "Ganeti's",
    ],
)
def test_what_goes(survey: Surveyed, told: dict[str, Sent], mastered: list[Any], gone: bool) -> None:
    what = found(NODE, survey, told, (), mastered)
    assert [stray.uuid for stray in what.strays] == ([NICS[0]] if gone else [])


@pytest.mark.parametrize(
    ("mode", "tap", "stays"),
    [
        ("bridged", Bare("vpn0"), False),
        ("bridged", Bare("vpn0", "br1"), False),
        ("bridged", Bare("tap7", "br0"), True),
        ("bridged", Bare("tap7", loose=True), True),
        ("bridged, of a bridge that is not there", Bare("tap7", "br1"), True),
        ("bridged, of a bridge that is not there", Bare("vpn0"), False),
        ("routed", Bare("tap7"), True),
        ("routed", Bare("tap7", "br0"), False),
        ("openvswitch", Bare("tap7"), True),
        ("openvswitch", Bare("tap7", "br0"), False),
        ("ext", Bare("tap7", "br0"), True),
        ("ext", Bare("tap7"), True),
        (None, Bare("tap7", "br1"), True),
    ],
)
def test_who_stays_for_a_tap_that_may_be_its_own(mode: str | None, tap: Bare, stays: bool) -> None:
    wanted = item(0)
    mode, _comma, absent = (mode or "").partition(", ")
    wanted["nic"] |= {"mode": mode, "link": "br2" if absent else "br0"} if mode else {}
    what = found(NODE, Surveyed(here(1), defined=1, bare=(tap,), bridges=frozenset({"br0", "br1"})), STOPPED, (), [wanted])
    assert (not what.strays, NICS[0] in what.withheld, tap.device in what.withheld) == (stays, stays, stays)
    assert not what.problem


def test_a_report_goes_when_the_nic_runs_elsewhere() -> None:
    reported = [item(0, "running", (OTHER,)), item(1, "running", (OTHER, NODE)), item(2, "stopped", (OTHER,)), item(3, "running", (OTHER,))]
    told = {NICS[number]: Sent("running" if number == 3 else "stopped", 1) for number in range(4)}
    assert found(NODE, Surveyed({}, defined=0), told, reported, ()) == Found(reports=(NICS[0],))


class Comparing(Turned):
    """In step, with NICs 0 to 3 wanted as ours, of which 2 and 3 are defined; the others have stopped."""

    def __init__(self, **rules: Any) -> None:
        super().__init__(Rules(first=(100.0, 100.0), confirm=30.0, **rules))
        for number in range(4):
            self.here |= here(number)
        self.begun(*(nic(number) for number in range(4)))
        self.done()
        for number in range(2):
            del self.here[NICS[number]]

    def compared(self) -> None:
        """Let the comparison take place."""
        self.passes(100.0)
        told = [{"node": NODE, "report": {"nic": NICS[number], "state": "stopped"}} for number in range(4)]
        for what, items in (("reports", told), ("nics", []), ("mastered", [item(number) for number in range(4)])):
            assert self.take(List).what == what
            self.tell(Answered(items))


def test_it_is_looked_at_once_more_and_then_goes() -> None:
    turned = Comparing()
    turned.compared()
    turned.passes(20.0)
    assert turned.asked == []
    turned.passes(20.0)
    asked = turned.take(Ask)
    assert (asked.method, asked.uuid, asked.match) == ("DELETE", NICS[0], "e:7")


def test_one_that_has_come_back_meanwhile_stays() -> None:
    turned = Comparing()
    turned.compared()
    turned.here |= here(0, 1)
    turned.passes(100.0)
    assert [each for each in turned.asked if isinstance(each, Ask)] == []


def test_one_of_which_nobody_can_tell_stays() -> None:
    turned = Comparing()
    turned.compared()
    take = turned.machine.take

    def unclear(event: Any, now: float) -> None:
        take(Looked({}, frozenset(NICS[:2])) if isinstance(event, Looked) else event, now)

    turned.machine.take = unclear  # type: ignore[method-assign]
    turned.passes(100.0)
    assert [each for each in turned.asked if isinstance(each, Ask)] == []


def test_a_deletion_without_answer_is_looked_at_before_it_is_asked_for_again() -> None:
    """The NIC may be back: nothing is sent again blindly that takes something away."""
    turned = Comparing(cap=1)
    turned.compared()
    turned.passes(40.0)
    turned.take(Ask)
    turned.here |= here(0)
    turned.tell(Failed(Failure("unsure", "it may be done")))
    turned.passes(200.0)
    assert [each for each in turned.asked if isinstance(each, Ask)] == []


def test_a_deletion_that_has_to_wait_is_looked_at_again() -> None:
    """Between the look and the request nothing else is asked: the NIC may come back, or nothing can be told any more."""
    turned = Comparing(cap=1)
    turned.compared()
    turned.passes(29.0)
    turned.machine.line.flight = busy = Hello()  # something is asked that takes long
    turned.passes(5.0)
    turned.here |= here(0)
    turned.tell(Answered({"epoch": "e", "abilities": ["watch"], "actions": ACTIONS}))
    assert turned.machine.line.flight is not busy
    turned.passes(200.0)
    assert [each for each in turned.asked if isinstance(each, Ask)] == []


def test_a_cap_and_an_alarm() -> None:
    turned = Comparing(cap=1)
    turned.compared()
    turned.passes(1.0)
    assert "1 wanted NICs" in turned.alarms["registry-reaping"] and "web1/0" in turned.alarms["registry-reaping"]


INVENTORY = "registry-inventory"


@pytest.mark.parametrize("when", ["at the start", "events were lost", "at a comparison"])
@pytest.mark.parametrize("lasts", [False, True])
def test_an_inventory_that_is_not_complete_is_an_alarm_if_the_next_one_is_not_either(when: str, lasts: bool) -> None:
    """A hook was at work for a moment, and nobody is needed. The alarm goes with the first inventory that is whole, not hours later."""
    rules = Rules(first=(100.0, 100.0), confirm=10.0)
    turned = Turned(rules) if when == "at the start" else Comparing()
    turned.problem = "a hook is at work on web1/0"
    if when == "at the start":
        turned.begun()
    elif when == "events were lost":
        turned.tell(Lost())
    else:
        turned.passes(100.0)
        assert [each for each in turned.asked if isinstance(each, List)] == [], "nothing goes by it"
    assert turned.alarms.get(INVENTORY, "") == ""
    turned.problem *= lasts
    turned.passes(31.0)
    assert ("web1/0" in turned.alarms.get(INVENTORY, "")) == lasts
    turned.passes(30.0)
    turned.problem = ""
    turned.passes(121.0)
    assert turned.alarms.get(INVENTORY, "") == ""


def test_that_nothing_is_defined_is_said_until_a_comparison_finds_otherwise() -> None:
    turned = Comparing()
    turned.here.clear()
    turned.compared()
    for problem in ("", "in quarantine: 1", ""):
        turned.problem = problem
        turned.tell(Lost())
        turned.passes(50.0)
        assert (problem or "no NIC is defined") in turned.alarms[INVENTORY]


def test_inventories_that_are_not_complete_are_taken_less_and_less_often() -> None:
    """A record may lie in quarantine for weeks, and each one costs a thousandth of a second for each NIC."""
    turned = Turned(Rules(first=(9e9, 9e9)))
    turned.begun()
    taken, surveyed = list[float](), turned.machine.ownership.surveyed

    def counted(event: Surveyed, now: float) -> None:
        taken.append(now)
        surveyed(event, now)

    turned.machine.ownership.surveyed = counted  # type: ignore[method-assign]
    turned.problem = "in quarantine: 1"
    turned.tell(Lost())
    turned.passes(3500.0)
    pauses = [after - before for before, after in itertools.pairwise(taken)]
    assert pauses[:3] == [10.0, 60.0, 120.0] and max(pauses) == 600.0 and len(taken) < 20
    turned.tell(Lost())
    assert taken[-1] == turned.now, "at once"


@pytest.mark.parametrize("reap", ["report", "off"])
def test_a_rehearsal(reap: str) -> None:
    turned = Comparing(reap=reap)
    turned.compared()
    turned.passes(100.0)
    assert [each for each in turned.asked if isinstance(each, Ask)] == []
    assert ("web0/0" in turned.alarms.get("registry-reaping", "")) == (reap == "report")


def test_the_first_comparison_is_two_to_ten_minutes_after_the_start_and_then_hourly() -> None:
    """Each node's at another time, so that not all ask at once."""
    firsts, later = [], []
    for seed in range(60):
        turned = Turned(seed=seed)
        begun, asked = turned.now, list[float]()
        turned.begun(nic(0))
        while len(asked) < 3:
            turned.passes(5.0)
            for request in list(turned.asked):
                turned.asked.remove(request)
                if isinstance(request, List):
                    asked += [turned.now] if request.what == "reports" else []
                    turned.tell(Answered([]))
                elif isinstance(request, Hello):
                    turned.tell(Answered({"epoch": "e", "abilities": ["watch"], "actions": []}))
                elif isinstance(request, Send):
                    turned.tell(Answered(None, "e:300"))
                elif isinstance(request, AskNode):
                    turned.tell(Answered({"reports": turned.machine.outbox.after}))
        firsts.append(asked[0] - begun)
        later += [after - before for before, after in itertools.pairwise(asked)]
    assert 120 <= min(firsts) < 180 and 540 < max(firsts) <= 610 and len({round(each / 10) for each in firsts}) > 20
    assert min(later) > 3200 and max(later) < 4000


def test_what_is_added_first_is_of_the_latest_reports() -> None:
    """A copy of the request that comes after later reports is refused by that."""
    turned = Turned()
    turned.begun()
    turned.up(0)
    turned.machine.mark(NICS[0], turned.now)
    turned.passes(1.0)
    turned.take(Send)
    turned.tell(Answered(None, "e:11"))
    turned.told(ready="e:11")
    turned.passes(1.0)
    asked = turned.take(Ask)
    assert (asked.method, asked.match, asked.body["found"]) == ("POST", "e:11", True)
    turned.tell(Failed(Failure("", "no answer")))
    turned.passes(20.0)
    turned.asked = [each for each in turned.asked if isinstance(each, Ask)]
    assert turned.asked == [] or turned.asked == [asked], "the same again"


def test_a_nic_that_its_former_node_has_still_is_taken_over_as_soon_as_that_has_not() -> None:
    """A guest has migrated, and the node that it has left says so a moment later: nobody tells that, so it is asked again."""
    turned = Turned(Rules(first=(9e9, 9e9)))
    turned.begun(nic(0, master=f"node:{OTHER}"), reports=({"nic": NICS[0], "state": "incoming"},))
    turned.up(0)
    turned.tell(Marked(NICS[0]))
    turned.passes(1.0)
    turned.take(Send)
    turned.tell(Answered(None, "e:11"))
    turned.passes(1.0)
    for _ in range(20):
        asked = turned.take(Ask)
        assert (asked.method, asked.uuid) == ("POST", NICS[0])
        turned.tell(Failed(Failure("exists", "there is a NIC")))
        turned.passes(20.0)
        assert [each for each in turned.asked if isinstance(each, Ask)] == [], "not on and on, while it runs on both"
        turned.passes(20.0)
    turned.take(Ask)
    turned.tell(Answered(None, "e:12"))
    turned.told(nic(0, "e:12", "change"), ready="e:12")
    turned.passes(100.0)
    assert [each for each in turned.asked if isinstance(each, Ask)] == []


def test_a_nic_that_was_gone_for_a_moment_when_it_was_to_be_added_is_added() -> None:
    turned = Turned(Rules(first=(9e9, 9e9)))
    turned.begun()
    turned.up(0)
    turned.tell(Marked(NICS[0]))
    turned.passes(1.0)
    turned.take(Send)
    there = turned.here.pop(NICS[0])
    turned.tell(Answered(None, "e:11"))
    turned.told(ready="e:11")
    assert turned.asked == [], "it is not there"
    turned.here[NICS[0]] = there
    turned.tell(Marked(NICS[0]))
    turned.passes(1.0)
    asked = turned.take(Ask)
    assert (asked.method, asked.uuid) == ("POST", NICS[0])


@pytest.mark.parametrize("method", ["POST", "PATCH"])
def test_what_is_not_in_time_twice_is_an_alarm_until_it_is_taken(method: str) -> None:
    """The clock of the node or of the registry is wrong. Once it may have been on its way for long."""
    turned = Turned(Rules(first=(9e9, 9e9)))
    turned.begun(*([nic(0, name="old")] if method == "PATCH" else ()))
    turned.up(0)
    turned.here[NICS[0]] = turned.here[NICS[0]]._replace(fields={"name": "new"})
    turned.tell(Marked(NICS[0]))
    turned.passes(1.0)
    turned.take(Send)
    turned.tell(Answered(None, "e:11"))
    turned.told(ready="e:11")
    turned.passes(1.0)
    asked, alarms = 0, []
    for _second in range(600):
        turned.passes(1.0)
        turned.told(ready="e:11")
        alarms.append(turned.alarms.get("registry-refused", ""))
        if found := [each for each in turned.asked if isinstance(each, Ask)]:
            assert (turned.take(Ask).method, found[0].uuid) == (method, NICS[0])
            asked += 1
            turned.tell(Failed(Failure("outdated", f"it was made at {turned.now}, which is not yet")))
            assert asked > 1 or turned.alarms.get("registry-refused", "") == ""
    assert 10 < asked < 30, "not on and on: reports wait behind each refusal"
    assert len(set(alarms[30:])) == 1 and NICS[0] in alarms[-1] and "which is not yet" in alarms[-1]
    while not [each for each in turned.asked if isinstance(each, Ask)]:
        turned.passes(1.0)
    turned.take(Ask)
    turned.tell(Answered(None, "e:12"))
    assert turned.alarms["registry-refused"] == ""


def test_a_removal_that_is_not_in_time_is_an_alarm() -> None:
    turned = Comparing(cap=1)
    turned.compared()
    turned.passes(40.0)
    assert turned.take(Ask).method == "DELETE"
    turned.tell(Failed(Failure("outdated", "which is not yet")))
    assert turned.alarms["registry-refused"] == f"{NICS[0]}: which is not yet"


def test_marks_stand_where_reports_were_refused() -> None:
    turned = Turned()
    turned.begun(nic(0))
    turned.up(0)
    turned.machine.mark(NICS[0], turned.now)
    turned.passes(1.0)
    turned.take(Send)
    turned.tell(Failed(Failure("stale", "the node was fenced")))
    assert turned.machine.marks > 0


def test_what_was_told_later_is_not_forgotten_by_what_was_told_before() -> None:
    """Forgetting what was not told again is tried again, if need be; that spares what was told since, and does not hold it up."""
    jobs = Jobs()
    retain = Retain(RETAIN, frozenset(), frozenset(), "e:1")
    jobs.put(retain)
    assert list(jobs.start(0.0)) == [retain]
    jobs.did(Did(retain.key, "e:1", again=True), 10.0)
    later = Apply(("nic", NICS[0]), Wanted("e:2"))
    jobs.put(later)
    assert list(jobs.start(5.0)) == [later]
    jobs.did(Did(later.key, "e:2"), 20.0)
    assert list(jobs.start(10.0)) == [retain._replace(nics=frozenset({NICS[0]}))]
