"""Check what a node's synchronisation asks for, event by event: marks and not messages, lies, what a service cannot do, who waits."""

from __future__ import annotations

import itertools
import random
from typing import Any

import pytest

from netagent.sync.became import Did, Left
from netagent.sync.inbox import LARGEST, MOST_OWN
from netagent.sync.machine import Machine
from netagent.sync.messages import (
    AboutMarked,
    Alarm,
    Answered,
    Apply,
    Ask,
    AskNode,
    Beat,
    Check,
    Close,
    Drop,
    Ended,
    Event,
    Failed,
    Failure,
    Hello,
    Keep,
    Line,
    List,
    Local,
    Look,
    Looked,
    Marked,
    Retain,
    Save,
    Send,
    SetNetwork,
    Survey,
    Surveyed,
    Watch,
)
from netagent.sync.rules import Rules
from netregistry.model.nic import Report
from netregistry.model.node import About
from netregistry.request import new_id
from tests.support.registry import NODES

NODE = NODES[0]
NICS = [f"{number:08x}-1111-4111-8111-111111111111" for number in range(200)]
ACTIONS = ["nic.add", "nic.set", "nic.delete"]


class Turned:
    """A machine, the time, which the test turns, and what is on the node. Requests that nobody has looked at yet are ``asked``."""

    def __init__(self, rules: Rules | None = None, kept: Any = None, check: float = 9e9, seed: int = 1) -> None:
        self.now, self.chance = 1000.0, random.Random(seed)
        self.here: dict[str, Local] = {}
        self.machine = Machine(NODE, (rules or Rules())._replace(check=check), self.id, self.chance.random, self.now, kept)
        self.asked: list[Any] = []
        self.alarms: dict[str, str] = {}
        self.ids = 0
        self.problem = ""
        self.unclear: set[str] = set()  #: NICs of which nothing can be told
        self.looks = 0
        self.lost: list[tuple[str, str]] = []  # what is not on disk, when that is looked at

    def id(self) -> str:
        return new_id(self.now, self.chance.getrandbits(74))

    def tell(self, *events: Event) -> None:
        for event in events:
            self.machine.take(event, self.now)
        self.turn()

    def turn(self) -> None:
        """Let the node itself answer what it is asked; the registry does not."""
        while found := self.machine.turn(self.now):
            for request in found:
                if isinstance(request, Look):
                    self.looks += 1
                    assert self.looks < 10_000, "the same is looked at again and again"
                    there = {uuid: self.here[uuid] for uuid in request.uuids if uuid in self.here and uuid not in self.unclear}
                    unclear = self.unclear.intersection(request.uuids)
                    self.machine.take(Looked(there, frozenset(unclear), About(version="1") if request.about else None, 5.0), self.now)
                elif isinstance(request, Survey):
                    self.machine.take(Surveyed(dict(self.here), self.problem, len(self.here)), self.now)
                elif isinstance(request, Check):
                    self.machine.take(Did(request.key, "", left=tuple(Left(key) for key in self.lost)), self.now)
                elif isinstance(request, Alarm):
                    self.alarms = {**self.alarms, request.name: request.text}
                elif not isinstance(request, Save):
                    self.asked.append(request)

    def passes(self, seconds: float) -> None:
        until = self.now + seconds
        while (due := self.machine.due(self.now)) <= until:
            self.now = max(due, self.now)
            self.turn()
        self.now = until
        self.turn()

    def take(self, kind: type) -> Any:
        """Give the one request of this kind."""
        found = [each for each in self.asked if isinstance(each, kind)]
        assert len(found) == 1, self.asked
        self.asked.remove(found[0])
        return found[0]

    def greeted(
        self, reports: tuple[dict[str, str], ...] = (), actions: list[str] | None = None, abilities: tuple[str, ...] = ("watch",)
    ) -> None:
        """Let the registry answer the beginning."""
        self.turn()
        self.take(Hello)
        self.tell(Answered({"epoch": "e", "abilities": list(abilities), "actions": ACTIONS if actions is None else actions}))
        self.take(AskNode)
        self.tell(Answered({"reports": "e:5"}))
        self.take(List)
        self.tell(Answered([{"node": NODE, "report": each} for each in reports]))

    def told(self, *lines: dict[str, Any], ready: str = "e:10") -> None:
        self.tell(*(Line(each, 100) for each in (*lines, {"event": "ready", "revision": ready})))

    def begun(self, *lines: dict[str, Any], ready: str = "e:10", reports: tuple[dict[str, str], ...] = ()) -> None:
        """Let it be in step."""
        self.greeted(reports)
        assert self.take(Watch).start == ""
        self.told(*lines, ready=ready)
        self.passes(1.0)
        self.done()

    def done(self) -> None:
        """Let everything be done that is asked for."""
        for _ in range(100):
            waiting, self.asked = self.asked, []
            if not waiting:
                return
            for request in waiting:
                if isinstance(request, Send | Ask):
                    self.ids += 1
                    self.tell(Answered(None, f"e:{100 + self.ids}"))
                elif isinstance(request, AskNode):
                    self.tell(Answered({"reports": self.machine.outbox.after}))
                elif isinstance(request, Apply):
                    self.applied(request)
                elif isinstance(request, Keep):
                    self.tell(Did(request.key, request.wanted.revision))
                elif not isinstance(request, Watch | Close | Save | Hello | List):
                    self.tell(Did(request.key, request.revision))

    def applied(self, request: Apply) -> None:
        """Let a NIC be what is wanted of it."""
        uuid, revision = request.key[1], request.wanted.revision
        if (local := self.here.get(uuid)) is not None:
            self.here[uuid] = local._replace(report=local.report._replace(applied=revision))
        self.tell(Did(request.key, revision))

    def up(self, number: int, state: Any = "running", **fields: Any) -> str:
        """Let a NIC come up, with what is kept of it; ``fields`` say otherwise."""
        uuid = NICS[number]
        own = self.machine.inbox.nics.get(uuid)
        fields.setdefault("applied", own.wanted.revision if own is not None else "")
        self.here[uuid] = Local(Report(uuid, state, f"tap{number}", since=1.0, **fields), {})
        return uuid


def nic(number: int, revision: str = "e:7", event: str = "enter", master: str = f"node:{NODE}", **more: Any) -> dict[str, Any]:
    value = {"uuid": NICS[number], "master": master, "options": [], "network": "", **more}
    return {"event": event, "what": "nic", "uuid": NICS[number], "value": value, "revision": revision}


def leave(number: int, revision: str = "e:8", what: str = "nic") -> dict[str, Any]:
    return {"event": "leave", "what": what, "uuid": NICS[number], "revision": revision}


def options(number: int, *named: str, revision: str = "e:7") -> dict[str, Any]:
    value = [{"name": name, "value": "yes", "until": 0.0} for name in named]
    return {"event": "enter", "what": "options", "uuid": NICS[number], "value": value, "revision": revision}


@pytest.fixture
def turned() -> Turned:
    return Turned()


# -- out


def test_a_thousand_changes_are_one_report(turned: Turned) -> None:
    turned.begun(nic(0))
    uuid = turned.up(0)
    turned.tell(*(Marked(uuid) for _ in range(1000)))
    turned.passes(1.0)
    sent = turned.take(Send)
    assert [each["nic"] for each in sent.body["nics"]] == [uuid]
    turned.tell(*(Marked(uuid) for _ in range(1000)))  # while it is in flight
    turned.tell(Answered(None, "e:12"))
    turned.passes(1.0)
    assert turned.asked == [], "nothing has changed since"
    turned.up(0, state="incoming")
    turned.tell(Marked(uuid))
    turned.passes(1.0)
    assert turned.take(Send).body["after"] == "e:12"


@pytest.mark.parametrize("in_flight", [False, True])
def test_what_was_told_before_the_node_was_alive_is_told_again(turned: Turned, in_flight: bool) -> None:
    """The registry takes it for the node's life before a boot, and believes nothing of that any more."""
    uuid = turned.up(0)
    turned.tell(Marked(uuid))
    turned.greeted()
    turned.passes(5.0)
    said = turned.take(Send).body
    assert [each["nic"] for each in said["nics"]] == [uuid]
    if not in_flight:
        turned.tell(Answered(None, "e:12"))
    turned.told()  # the stream begins, and with it the node is alive
    if in_flight:
        turned.tell(Answered(None, "e:12"))
    turned.take(AskNode)
    turned.tell(Answered({"reports": "e:12"}))
    turned.passes(5.0)
    again = turned.take(Send).body
    assert (again["nics"], again["after"], "about" in again) == (said["nics"], "e:12", True)
    turned.tell(Answered(None, "e:13"))
    turned.take(AskNode)
    turned.tell(Answered({"reports": "e:13"}))
    turned.told(ready="e:14")
    turned.passes(5.0)
    assert not any(isinstance(each, Send) for each in turned.asked), "once is enough"


def test_fifty_are_sent_at_once_and_one_request_is_in_flight(turned: Turned) -> None:
    turned.begun(*(nic(number) for number in range(120)))
    turned.tell(*(Marked(turned.up(number)) for number in range(120)))
    turned.passes(1.0)
    for number, expected in enumerate((50, 50, 20)):
        sent = turned.take(Send)
        assert len(sent.body["nics"]) == expected
        turned.tell(Answered(None, f"e:{20 + number}"))
        turned.passes(1.0)
    assert turned.asked == []


def test_what_has_no_answer_is_sent_again_as_it_was_until_it_has_one(turned: Turned) -> None:
    turned.begun(nic(0))
    turned.tell(Marked(turned.up(0)))
    turned.passes(1.0)
    first = turned.take(Send)
    for _ in range(20):
        turned.up(0, state="stopped")  # it has changed meanwhile, and is the same request all the same
        turned.tell(Failed(Failure("", "no answer")))
        turned.passes(100.0)
        turned.take(Hello)  # the service may be another one
        turned.tell(Answered({"epoch": "e", "abilities": ["watch"], "actions": ACTIONS}))
        assert turned.take(Send) == first
    turned.tell(Failed(Failure("unsure", "it may be done")))
    turned.passes(100.0)
    assert turned.take(Send) == first
    turned.tell(Answered(None, "e:30"))
    assert turned.machine.outbox.after == "e:30"


def test_the_pause_is_constant_but_for_chance() -> None:
    """Half as long again or less, of each node at another time: so a cluster's rate is bounded, and nobody waits longer and longer."""
    turned, waits = Turned(Rules(pause=5.0)), []
    turned.turn()
    for _ in range(200):
        turned.take(Hello)
        turned.tell(Failed(Failure("", "nobody listens")))
        begun = turned.now
        while not turned.asked:
            turned.passes(turned.machine.due(turned.now) - turned.now)
        waits.append(turned.now - begun)
    assert 2.5 <= min(waits) < 3 and 7 < max(waits) <= 7.5
    assert "nobody listens" in turned.alarms["registry"]


def test_what_stops_is_stopped_and_goes_when_it_is_wanted_no_more(turned: Turned) -> None:
    turned.begun(nic(0))
    uuid = turned.up(0)
    turned.tell(Marked(uuid))
    turned.passes(1.0)
    turned.done()
    del turned.here[uuid]
    turned.tell(Marked(uuid))
    turned.passes(1.0)
    assert turned.take(Send).body["nics"][0]["state"] == "stopped"
    turned.tell(Answered(None, "e:40"))
    turned.told(leave(0), ready="e:41")
    turned.passes(1.0)
    assert turned.take(Drop).key == ("nic", uuid)
    turned.asked = [each for each in turned.asked if not isinstance(each, AskNode)]
    turned.tell(Answered({"reports": "e:40"}))
    turned.passes(1.0)
    assert turned.take(Send).body["removed"] == [uuid]


def test_at_the_start_reports_without_a_record_become_stopped(turned: Turned) -> None:
    turned.greeted(({"nic": NICS[0], "state": "running"},))
    turned.take(Watch)
    turned.told(nic(0))
    turned.passes(1.0)
    sent = next(each for each in turned.asked if isinstance(each, Send))
    assert [(each["nic"], each["state"]) for each in sent.body["nics"]] == [(NICS[0], "stopped")]


def test_one_report_that_is_refused_holds_no_other_up() -> None:
    turned = Turned(Rules(first=(9e9, 9e9)))
    turned.begun(*(nic(number) for number in range(3)))
    turned.tell(*(Marked(turned.up(number)) for number in range(3)))
    turned.passes(1.0)
    taken = []
    for _ in range(4):
        sent = turned.take(Send)
        said = [each["nic"] for each in sent.body["nics"]]
        if NICS[1] in said:
            turned.tell(Failed(Failure("invalid", "its tap is none")))
        else:
            taken += said
            turned.tell(Answered(None, f"e:{50 + len(taken)}"))
        turned.passes(20.0)
    assert sorted(taken) == [NICS[0], NICS[2]] and turned.asked == []
    assert "its tap is none" in turned.alarms["registry-refused"]
    turned.passes(3700.0)
    assert any(isinstance(each, Hello) for each in turned.asked), "an hour later it is tried again"


def test_what_there_is_on_the_node_is_said_when_it_is_another(turned: Turned) -> None:
    turned.begun()
    turned.tell(AboutMarked())
    turned.passes(1.0)
    assert turned.asked == []


def test_what_the_node_should_provide_is_asked_every_five_minutes() -> None:
    """The operator may say it at any time, and no stream tells it."""
    turned = Turned(Rules(first=(9e9, 9e9)), check=Rules().check)
    turned.begun()
    asked = []
    for missing in (["blue"], [], ["green", "blue"]):
        for _ in range(310):
            turned.passes(1.0)
            if any(isinstance(each, AskNode) for each in turned.asked):
                break
        asked.append(turned.now)
        turned.take(AskNode)
        turned.tell(Answered({"reports": turned.machine.outbox.after, "missing": missing}))
        assert turned.alarms.get("registry-provides", "").endswith(", ".join(missing))
        assert bool(turned.alarms.get("registry-provides", "")) == bool(missing)
    assert [round(after - before) for before, after in itertools.pairwise(asked)] == [300, 300]


# -- in


def test_what_was_told_counts_from_ready_on(turned: Turned) -> None:
    turned.begun()
    turned.tell(Line(nic(0, "e:11", options=[{"name": "isolated", "value": "yes"}]), 100))
    assert turned.asked == [] and turned.machine.inbox.nics == {}
    turned.tell(Ended(Failure("", "cut off")))
    assert turned.machine.inbox.nics == {}, "half of it counts for nothing"
    turned.passes(20.0)
    turned.take(Hello)
    turned.tell(Answered({"epoch": "e", "abilities": ["watch"], "actions": ACTIONS}))
    assert turned.take(Watch).start == "e:10", "it goes on behind what it was told whole"
    turned.told(nic(0, "e:11", options=[{"name": "isolated", "value": "yes"}]), ready="e:11")
    assert turned.take(Apply).wanted.options[0].name == "isolated"


def test_a_stream_that_cannot_go_on_begins_anew_and_what_is_not_told_again_has_left(turned: Turned) -> None:
    turned.begun(nic(0), nic(1), options(2, "isolated"))
    turned.tell(Ended(Failure("compacted", "more than 100 things have changed")))
    assert turned.machine.inbox.nics.keys() == {NICS[0], NICS[1]}, "until all is told"
    turned.passes(20.0)
    turned.take(Hello)
    turned.tell(Answered({"epoch": "e", "abilities": ["watch"], "actions": ACTIONS}))
    turned.take(List)
    turned.tell(Answered([]))
    assert turned.take(Watch).start == ""
    turned.told(nic(0, "e:15"), ready="e:20")
    assert turned.machine.inbox.nics.keys() == {NICS[0]} and turned.machine.inbox.complete
    assert not turned.alarms.get("registry-lies")


def test_the_newest_alone_is_done_and_what_somebody_is_at_work_on_is_tried_again(turned: Turned) -> None:
    turned.begun(nic(0))
    turned.told(nic(0, "e:11", "change", options=[{"name": "isolated", "value": "yes"}]), ready="e:11")
    first = turned.take(Apply)
    for number in range(12, 30):
        turned.told(nic(0, f"e:{number}", "change"), ready=f"e:{number}")
    assert turned.asked == [], "one at a time"
    turned.tell(Did(first.key, "e:11", again=True))
    assert turned.take(Apply).wanted.revision == "e:29"
    turned.tell(Did(first.key, "e:29", "somebody is at work", again=True))
    assert turned.asked == []
    turned.passes(8.0)
    assert turned.take(Apply).wanted.revision == "e:29"


def test_a_refusal_is_reported_and_over_with_the_next_wish(turned: Turned) -> None:
    turned.begun(nic(0))
    uuid = turned.up(0)
    turned.tell(Marked(uuid))
    turned.passes(1.0)
    turned.done()
    turned.told(nic(0, "e:11", "change", options=[{"name": "isolated", "value": "yes"}]), ready="e:11")
    turned.tell(Did(turned.take(Apply).key, "e:11", "the host \n refuses it"))
    turned.tell(Did(turned.take(Keep).key, "e:11", up=True))
    turned.passes(1.0)
    assert turned.take(Send).body["nics"][0]["refused"] == "the host   refuses it"
    turned.tell(Answered(None, "e:50"))
    turned.told(nic(0, "e:12", "change"), ready="e:12")
    turned.tell(Did(turned.take(Apply).key, "e:12"))
    turned.passes(1.0)
    assert turned.take(Send).body["nics"][0]["refused"] == "" and turned.alarms["registry-refused"] == ""


def test_an_option_that_this_version_does_not_know_is_refused_of_that_nic_alone(turned: Turned) -> None:
    uuid = turned.up(0)
    turned.begun(nic(0, options=[{"name": "of_tomorrow", "value": "1"}]), nic(1), options(2, "of_tomorrow"))
    assert turned.machine.wishes.refused().keys() == {uuid} and "of_tomorrow" in turned.alarms["registry-refused"]
    assert turned.alarms.get("registry-lies", "") == ""


def test_the_operators_values_stay_where_a_nic_has_left(turned: Turned) -> None:
    """In one commit it is told as another's and leaves as ours: there is no moment without."""
    turned.begun(nic(0, master="ganeti:c"), reports=({"nic": NICS[0], "state": "running"},))
    turned.told(options(0, "isolated", revision="e:11"), leave(0, "e:11"), ready="e:11")
    jobs = [each for each in turned.asked if isinstance(each, Apply | Keep | Drop)]
    assert [type(each) for each in jobs] == [Keep] and jobs[0].wanted.options[0].name == "isolated"


# -- lies


LIES: list[tuple[list[Any], str]] = [
    (["no object"], "object"),
    ([{"event": 5}], "no event"),
    ([{"event": "ready", "revision": "e"}], "no revision"),
    ([{"event": "ready", "revision": "e:-3"}], "no revision"),
    ([{"event": "ready", "revision": "e:9"}], "comes after"),
    ([{"event": "ready", "revision": "other:11"}], "epoch"),
    ([{**nic(0), "uuid": "../../etc"}], "no UUID"),
    ([{**nic(0), "value": {"uuid": NICS[1]}}], "not its own"),
    ([{**nic(0), "value": [1]}], "not its own"),
    ([nic(0, options={"isolated": "yes"})], "no list"),
    ([nic(0, options=[{"name": f"o{number}", "value": ""} for number in range(101)])], "no list"),
    ([nic(0, options=[{"name": "isolated", "value": 5}])], "without a name or a value"),
    ([nic(0, options=[{"name": "isolated", "value": "x" * 5000}])], "without a name or a value"),
    ([nic(0, options=[{"name": "isolated", "value": "yes", "until": float("nan")}])], "no time"),
    ([nic(0, options=[{"name": "isolated", "value": "yes"}] * 2)], "twice"),
    ([nic(0, network="blue")], "no network"),
    ([nic(0, revision="e:99"), {"event": "ready", "revision": "e:11"}], "behind"),
    (
        [nic(0, revision="e:7"), {"event": "ready", "revision": "e:11"}, nic(0, revision="e:6"), {"event": "ready", "revision": "e:12"}],
        "as of",
    ),
    ([nic(0, revision="e:7")] * (MOST_OWN + 2), "bytes, or"),
]


@pytest.mark.parametrize(("lines", "why"), LIES, ids=[why for _lines, why in LIES])
def test_a_registry_that_lies_is_refused_and_the_node_is_as_before(turned: Turned, lines: list[Any], why: str) -> None:
    turned.begun(nic(5))
    before = dict(turned.machine.inbox.nics)
    for said in lines:
        turned.tell(Line(said, 100))
    assert [each for each in turned.asked if isinstance(each, Apply) and each.key[1] != NICS[0]] == []
    assert [each for each in turned.asked if isinstance(each, Drop | Retain)] == []
    assert {uuid: own for uuid, own in turned.machine.inbox.nics.items() if uuid != NICS[0]} == before
    assert why in turned.alarms["registry-lies"] and sum(bool(text) for text in turned.alarms.values()) == 1
    assert any(isinstance(each, Close) for each in turned.asked)
    turned.tell(Line(nic(7), 100), Line({"event": "ready", "revision": "e:50"}, 100))
    assert NICS[7] not in turned.machine.inbox.nics, "of a stream that is not believed nothing counts"


def test_ten_megabytes_of_nics_are_too_much(turned: Turned) -> None:
    turned.begun()
    turned.tell(*(Line(nic(number, "e:11"), 1 << 20) for number in range(11)))
    assert str(LARGEST) in turned.alarms["registry-lies"] and turned.machine.inbox.nics == {}


def test_a_foreign_nic_makes_it_ask_for_all_and_then_is_a_lie(turned: Turned) -> None:
    """By a delay a NIC may be told that has left already; at the beginning none may."""
    turned.begun(nic(5))
    turned.told(nic(0, "e:11", master="ganeti:c"), ready="e:11")
    turned.take(Close)
    assert turned.alarms.get("registry-lies", "") == ""
    turned.tell(Ended(Failure("", "closed")))
    turned.passes(20.0)
    turned.take(Hello)
    turned.tell(Answered({"epoch": "e", "abilities": ["watch"], "actions": ACTIONS}))
    assert turned.take(Watch).start == "", "all of it"
    turned.told(nic(0, "e:11", master="ganeti:c"), ready="e:12")
    assert "none of this node's" in turned.alarms["registry-lies"]
    assert turned.machine.inbox.nics.keys() == {NICS[5]}, "as before"


def test_a_lie_is_forgiven_when_all_of_it_can_be_believed(turned: Turned) -> None:
    turned.begun(nic(5))
    turned.tell(Line("nonsense", 8), Ended(Failure("", "closed")))
    assert turned.alarms["registry-lies"]
    told_again(turned, nic(5), ready="e:20")
    assert turned.alarms["registry-lies"] == ""


def told_anew(turned: Turned, *lines: dict[str, Any], ready: str) -> None:
    """Let the stream that is not believed end, and tell all of it again."""
    turned.take(Close)
    turned.tell(Ended(Failure("", "closed")))
    told_again(turned, *lines, ready=ready)


def told_again(turned: Turned, *lines: dict[str, Any], ready: str) -> None:
    """Answer an agent that begins again where its stream has ended, and tell all of it."""
    turned.asked.clear()
    turned.passes(20.0)
    turned.take(Hello)
    turned.tell(Answered({"epoch": "e", "abilities": ["watch"], "actions": ACTIONS}))
    turned.take(AskNode)
    turned.tell(Answered({"reports": turned.machine.outbox.after}))
    while any(isinstance(each, List) for each in turned.asked):
        turned.take(List)
        turned.tell(Answered([]))
    assert turned.take(Watch).start == ""
    turned.told(*lines, ready=ready)


@pytest.mark.parametrize("restarted", [False, True])
def test_a_ready_that_was_too_high_is_over_when_all_is_told_as_of_an_earlier_one(turned: Turned, restarted: bool) -> None:
    turned.begun(nic(0))
    turned.told(ready="e:900000")
    if restarted:
        turned = Turned(kept=turned.machine.inbox.document())
        turned.greeted()
        assert turned.take(Watch).start == "e:900000"
        turned.passes(1.0)
        turned.done()
    turned.told(nic(0, "e:300", "change"), ready="e:300")
    assert "comes after" in turned.alarms["registry-lies"]
    told_anew(turned, nic(0, "e:300"), ready="e:301")
    assert turned.alarms["registry-lies"] == "" and str(turned.machine.inbox.ready) == "e:301"


def test_a_registry_that_has_done_something_later_is_not_believed_as_of_an_earlier_revision(turned: Turned) -> None:
    """Its machine may have been put back to an earlier state, which a new epoch has to say."""
    turned.begun(nic(0))
    turned.tell(Marked(turned.up(0)))
    turned.passes(1.0)
    turned.take(Send)
    turned.tell(Answered(None, "e:500"))
    turned.told(ready="e:501")
    turned.told(ready="e:400")
    told_anew(turned, nic(0), ready="e:400")
    assert "comes after" in turned.alarms["registry-lies"] and str(turned.machine.inbox.ready) != "e:400"


@pytest.mark.parametrize(
    "body", [None, [], {"epoch": "e"}, {"epoch": "", "actions": [], "abilities": []}, {"epoch": "e", "actions": [5], "abilities": []}]
)
def test_an_answer_that_is_none(turned: Turned, body: Any) -> None:
    turned.turn()
    turned.take(Hello)
    turned.tell(Answered(body))
    assert turned.alarms["registry-lies"] and turned.asked == []
    turned.passes(20.0)
    turned.take(Hello)


# -- old and new


def test_what_a_service_cannot_do_is_left_alone_and_tried_again_hourly() -> None:
    """RFD 58's 404: a service that has no actions of nodes, nor reports."""
    turned = Turned()
    turned.greeted(actions=[])
    turned.take(Watch)
    turned.told()
    turned.tell(Marked(turned.up(0)))
    turned.passes(1.0)
    turned.take(Send)
    turned.tell(Failed(Failure("missing", "there is no endpoint")))
    sent = []
    for _ in range(380):
        turned.passes(10.0)
        turned.told()
        while turned.asked and not isinstance(turned.asked[0], Send | Ask):
            request = turned.asked.pop(0)
            can = {"epoch": "e", "abilities": ["watch"], "actions": ACTIONS}
            turned.tell(Answered(can if isinstance(request, Hello) else []))
        sent += [turned.now for each in turned.asked if isinstance(each, Send | Ask)]
    assert 3550 < sent[0] - 1000 < 3700, "left alone for an hour"
    assert turned.alarms.get("registry", "") == ""


def test_without_streams_signs_of_life_are_given_and_all_is_reported() -> None:
    """A service that has no streams yet: the node is alive there, and what it has is known; what is wanted waits for a newer one."""
    turned = Turned(Rules(first=(9e9, 9e9)))
    turned.greeted(abilities=())
    uuid, beats = turned.up(0), list[float]()
    turned.tell(Marked(uuid))
    for _ in range(600):
        turned.passes(0.1)
        for request in list(turned.asked):
            turned.asked.remove(request)
            if isinstance(request, Beat):
                beats.append(turned.now)
            elif isinstance(request, Send):
                assert [each["nic"] for each in request.body["nics"]] in ([uuid], [])
            else:
                assert isinstance(request, AskNode), request
            turned.tell(Answered({"seconds": 15, "reports": turned.machine.outbox.after}, f"e:{50 + len(beats)}"))
    pauses = [after - before for before, after in itertools.pairwise(beats)]
    assert beats[0] < 1001 and max(pauses) < 5.2, "thrice within the time of a lease"
    assert min(pauses) > 4.8 and len(beats) == 12, "and no more"
    assert uuid in turned.machine.outbox.told and turned.machine.marks == 0
    assert not any(turned.alarms.values())
    turned.passes(5.0)
    turned.take(Beat)
    turned.tell(Failed(Failure("", "it is restarted, as a newer version")))
    turned.passes(8.0)
    turned.take(Hello)
    turned.tell(Answered({"epoch": "e", "abilities": ["watch"], "actions": ACTIONS}))
    assert turned.take(Watch).start == ""
    turned.told(nic(0, options=[{"name": "isolated", "value": "yes"}]))
    assert turned.take(Apply).wanted.options[0].name == "isolated"
    turned.passes(30.0)
    assert [each for each in turned.asked if isinstance(each, Beat)] == [], "the stream is the sign of life"


def test_a_service_that_has_neither_streams_nor_signs_of_life(turned: Turned) -> None:
    turned.greeted(abilities=())
    turned.passes(1.0)
    turned.take(Beat)
    turned.tell(Failed(Failure("missing", "there is no endpoint")))
    turned.passes(10.0)
    turned.done()
    turned.passes(100.0)
    assert turned.asked == []
    turned.tell(Marked(turned.up(0)))
    turned.passes(1.0)
    turned.take(Send)


def test_lines_of_tomorrow_are_passed_over(turned: Turned) -> None:
    turned.begun({"event": "tomorrow", "what": "nic"}, {"event": "enter", "what": "zone", "uuid": "x"}, {**nic(0), "more": 5})
    assert NICS[0] in turned.machine.inbox.nics and turned.alarms.get("registry-lies", "") == ""


def test_a_twin_is_an_alarm_when_its_lease_would_have_ended(turned: Turned) -> None:
    turned.greeted()
    turned.take(Watch)
    turned.passes(1.0)
    turned.done()
    for _ in range(3):
        turned.asked = [each for each in turned.asked if not isinstance(each, Watch)]
        turned.tell(Ended(Failure("twin", "another agent is alive as n0")))
        assert turned.alarms.get("registry-node", "") == "", "its own, of before a restart, may be"
        turned.passes(8.0)
        turned.take(Hello)
        turned.tell(Answered({"epoch": "e", "abilities": ["watch"], "actions": ACTIONS}))
    turned.passes(40.0)
    assert "another agent" in turned.alarms["registry-node"]


def test_a_service_that_answers_and_whose_stream_tells_nothing_is_an_alarm(turned: Turned) -> None:
    """Somebody listens there and takes it, and no line ever comes: nothing that is wanted does."""
    turned.begun(nic(0))
    for _ in range(4):
        assert turned.alarms.get("registry", "") == ""
        turned.tell(Ended(Failure("", "the registry's stream was cut off: it comes too slowly")))
        turned.take(Hello)
        turned.tell(Answered({"epoch": "e", "abilities": ["watch"], "actions": ACTIONS}))
        turned.passes(16.0)
        turned.take(Watch)
    assert "too slowly" in turned.alarms["registry"]
    turned.told(ready="e:12")
    assert turned.alarms["registry"] == ""


@pytest.mark.parametrize("kind", ["unavailable", "fault", "busy", "outdated", "of a later version"])
@pytest.mark.parametrize("what", [Send, Ask, Hello, AskNode])
def test_a_service_that_goes_on_telling_and_does_not_do_what_it_is_asked_is_an_alarm(what: type, kind: str) -> None:
    """A minute after the first refusal of the one request that is made again and again, and until that is done."""
    turned = Turned(Rules(first=(9e9, 9e9), every=300.0), check=300.0)
    turned.begun(nic(0))
    turned.tell(Marked(turned.up(1)))
    if what not in (Send, Ask):
        turned.passes(1.0)
        turned.done()
    repeated = what is not Ask or kind in ("unavailable", "busy")
    refused, since, done = 0, 0.0, itertools.count(11)
    while not refused or turned.now < since + 100.0:
        turned.passes(1.0)
        turned.told(ready="e:10" if what is not Ask else "e:200")
        for each in [each for each in turned.asked if isinstance(each, Send | Ask | Hello | AskNode)]:
            turned.asked.remove(each)
            if isinstance(each, what):
                since, refused = since or turned.now, refused + 1
                turned.tell(Failed(Failure(kind, "the store is full")))
            elif isinstance(each, Hello):
                turned.tell(Answered({"epoch": "e", "abilities": ["watch"], "actions": ACTIONS}))
            else:
                turned.tell(Answered({"reports": turned.machine.outbox.after}, f"e:{next(done)}"))
        said = turned.alarms.get("registry", "")
        assert ("the store is full" in said) == bool(repeated and since and turned.now >= since + 60.0), (said, since, turned.now)
    assert turned.machine.line.stream and turned.machine.inbox.complete
    if not repeated:
        return  # it is not made again as it was: registry-refused says it
    assert refused > 10 and turned.machine.line.vain is not None
    turned.passes(8.0)
    turned.take(what)
    body = {"epoch": "e", "abilities": ["watch"], "actions": ACTIONS} if what is Hello else {"reports": turned.machine.outbox.after}
    turned.tell(Answered(body, f"e:{next(done)}"))
    assert turned.alarms["registry"] == "" and turned.machine.line.vain is None


@pytest.mark.parametrize("kind", ["stale", "forbidden", "epoch"])
def test_a_service_that_refuses_each_time_what_is_reported_is_an_alarm(kind: str) -> None:
    """It is asked something else in between, and answers that: two registries behind the node's addresses, or a copy of the node."""
    turned = Turned(Rules(first=(9e9, 9e9), every=9e9))
    turned.begun(nic(0))
    turned.tell(Marked(turned.up(0)))
    since, refused = 0.0, 0
    while not refused or turned.now < since + 100.0:
        turned.passes(1.0)
        if turned.machine.line.stream:
            turned.told(ready="e:200")
        for each in list(turned.asked):
            turned.asked.remove(each)
            if isinstance(each, Send):
                since, refused = since or turned.now, refused + 1
                turned.tell(Failed(Failure(kind, "these are not yours to say")))
            elif isinstance(each, Hello):
                turned.tell(Answered({"epoch": "e", "abilities": ["watch"], "actions": ACTIONS}))
            elif isinstance(each, AskNode):
                turned.tell(Answered({"reports": "e:5"}, "e:11"))
            elif isinstance(each, List):
                turned.tell(Answered([], "e:11"))
            elif isinstance(each, Close):
                turned.tell(Ended(Failure("", "it was closed")))
        said = turned.alarms.get("registry", "")
        assert ("not yours" in said) == bool(since and turned.now >= since + 60.0), (said, since, turned.now)
    assert refused > 10
    while not any(isinstance(each, Send) for each in turned.asked):
        turned.passes(1.0)
        for each in [each for each in turned.asked if isinstance(each, Hello | AskNode | List)]:
            turned.asked.remove(each)
            bodies: dict[type, Any] = {
                Hello: {"epoch": "e", "abilities": ["watch"], "actions": ACTIONS},
                AskNode: {"reports": "e:5"},
                List: [],
            }
            turned.tell(Answered(bodies[type(each)], "e:11"))
    turned.asked = [each for each in turned.asked if isinstance(each, Send)]
    turned.take(Send)
    turned.tell(Answered({}, "e:300"))
    assert turned.alarms["registry"] == ""


def test_what_was_on_its_way_to_a_registry_that_is_another_is_not_waited_for(turned: Turned) -> None:
    """It is not sent again as it was: that it was not answered is no alarm."""
    turned.begun(nic(0))
    turned.tell(Marked(turned.up(0)))
    turned.passes(1.0)
    turned.take(Send)
    turned.tell(Ended(Failure("epoch", "it was restored")), Failed(Failure("", "no answer in time")))
    assert turned.machine.line.vain is None and turned.machine.outbox.flight is None


# -- an hour apart


def test_an_hour_apart_is_one_list() -> None:
    """100 changes on either side: one look at what was known, one report for all of it, and no question for each."""
    turned = Turned(Rules(first=(9e9, 9e9), every=9e9))
    for number in range(100):
        turned.up(number)
    turned.begun(*(nic(number) for number in range(100)))
    turned.done()
    turned.tell(Ended(Failure("", "cut off")))
    for number in range(100):
        turned.up(number, state="incoming")
        turned.tell(Marked(NICS[number]))
    sent = 0
    for _ in range(600):
        turned.passes(6.0)
        for request in list(turned.asked):
            turned.asked.remove(request)
            if not isinstance(request, Watch):
                sent += 1
                turned.tell(Failed(Failure("", "no answer")))
            else:
                turned.tell(Ended(Failure("", "no answer")))
    assert 300 < sent < 1500, "at a constant rate"
    turned.passes(10.0)
    turned.take(Hello)
    turned.tell(Answered({"epoch": "e", "abilities": ["watch"], "actions": ACTIONS}))
    counts: dict[str, int] = {}
    for _ in range(300):
        for request in list(turned.asked):
            turned.asked.remove(request)
            counts[type(request).__name__] = counts.get(type(request).__name__, 0) + 1
            if isinstance(request, Watch):
                assert request.start == "e:10"
                turned.told(*(nic(number, "e:500", "change") for number in range(100)), ready="e:500")
            elif isinstance(request, Apply):
                turned.applied(request)
            elif isinstance(request, Send):
                turned.tell(Answered(None, f"e:{600 + counts['Send']}"))
        turned.passes(0.02)  # as long as a job takes
    assert turned.machine.idle and counts["Watch"] == 1 and counts["Apply"] == 100
    assert counts["Send"] <= 8, "fifty a time: what has happened, and what is applied by and by"
    assert "List" not in counts and "Ask" not in counts


def test_a_network_comes_before_the_nics_in_it_and_one_that_cannot_be_kept_is_named(turned: Turned) -> None:
    blue = "13264fb6-0667-415f-9a43-786dc01cbf24"
    line = {"event": "enter", "what": "network", "uuid": blue, "value": {"uuid": blue, "mtu": "many"}, "revision": "e:11"}
    turned.begun(nic(0))
    turned.told(line, nic(0, "e:11", "change", network=blue), ready="e:11")
    setting = turned.take(SetNetwork)
    assert turned.asked == [], "the NIC waits for it"
    turned.tell(Did(setting.key, "e:11", "mtu is many: expected a number"))
    assert turned.take(Apply).wanted.network == blue and "mtu is many" in turned.alarms["registry-refused"]
    turned.tell(Did(("nic", NICS[0]), "e:11"))
    turned.told({**line, "event": "change", "revision": "e:12", "value": {"uuid": blue, "mtu": 1400}}, ready="e:12")
    turned.tell(Did(turned.take(SetNetwork).key, "e:12", touched=(NICS[0],)))
    assert turned.take(Apply).wanted.revision == "e:11", "what is up in it is set anew"
    assert turned.alarms["registry-refused"] == ""


@pytest.mark.parametrize("method", ["POST", "PATCH"])
def test_what_could_not_be_told_is_looked_at_again_after_a_pause(turned: Turned, method: str) -> None:
    turned.begun(*([nic(0)] if method == "PATCH" else []))
    uuid = turned.up(0)
    turned.here[uuid] = local = turned.here[uuid]._replace(fields={"instance": "web"})
    if method == "POST":
        turned.tell(Marked(uuid))
        turned.passes(1.0)
        turned.done()
    before = turned.looks
    turned.unclear.add(uuid)
    turned.tell(Surveyed({uuid: local}, defined=1))  # it is not what the registry has
    turned.told(ready="e:200")
    turned.passes(60.0)
    # one for its report, one for what is wanted of it, each after half to one and a half of the pause
    assert 60 / 7.5 - 1 <= turned.looks - before <= 2 * (60 / 2.5 + 1)
    turned.unclear.clear()
    turned.passes(10.0)
    if any(isinstance(each, Send) for each in turned.asked):  # one request is in flight: which is the first is by chance
        turned.take(Send)
        turned.tell(Answered(None, "e:201"))
    assert turned.take(Ask).method == method


def test_an_older_service_is_told_nothing_of_what_was_never_defined(turned: Turned) -> None:
    turned.begun()
    turned.tell(Marked(turned.up(0)))
    turned.passes(1.0)
    turned.done()
    turned.told(ready="e:200")
    turned.passes(1.0)
    asked = turned.take(Ask)
    assert asked.method == "POST" and asked.body["transient"] is True
    turned.tell(Failed(Failure("invalid", "transient: no such field; there are uuid, cluster")))
    turned.passes(60.0)
    if any(isinstance(each, Send) for each in turned.asked):
        turned.take(Send)
        turned.tell(Answered(None, "e:201"))
        turned.passes(1.0)
    asked = turned.take(Ask)
    assert asked.method == "POST" and "transient" not in asked.body


def test_a_sign_of_life_after_something_was_told_ends_what_was_told(turned: Turned) -> None:
    turned.begun(options(5, "isolated"))
    turned.told(leave(5, what="options"), ready="e:10")
    assert turned.take(Drop).key == ("nic", NICS[5])
    turned.told(ready="e:10")
    assert turned.asked == [] and turned.machine.line.since == turned.now
