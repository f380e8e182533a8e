"""Check what the registry refuses of a node's reports: that alone is left aside, at no speed, and all others are told."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from netagent.sync.messages import AboutMarked, Answered, AskNode, Ended, Failed, Failure, Hello, List, Look, Looked, Marked, Send
from netagent.sync.rules import Rules
from netregistry.model.node import About
from tests.unit.netagent.sync.test_machine import ACTIONS, NICS, NODE, Turned, nic

KINDS = pytest.mark.parametrize("kind", ["invalid", "too-large"])


@pytest.fixture
def turned() -> Turned:
    found = Turned(Rules(first=(9e9, 9e9)))
    found.begun(*(nic(number) for number in range(60)))
    found.passes(10.0)
    return found


def served(turned: Turned, seconds: float, refuses: Callable[[Any], bool], kind: str = "invalid") -> list[Send]:
    """Let the registry answer for a while, and refuse some reports; give what was sent."""
    sent = list[Send]()
    until = turned.now + seconds
    while turned.now < until:
        turned.passes(0.1)
        while turned.asked:
            request = turned.asked.pop(0)
            if isinstance(request, AskNode):
                turned.tell(Answered({"reports": turned.machine.outbox.after}))
                continue
            assert isinstance(request, Send), request
            sent.append(request)
            done = Answered(None, f"e:{1000 + len(sent)}")
            turned.tell(Failed(Failure(kind, "it is not taken")) if refuses(request.body) else done)
            assert len(sent) < 500, "reports are sent at full speed"
    return sent


def names(sent: list[Send]) -> list[list[str]]:
    return [[each["nic"] for each in request.body["nics"]] for request in sent]


def of(*numbers: int) -> Callable[[Any], bool]:
    return lambda body: any(each["nic"] in [NICS[number] for number in numbers] for each in body["nics"])


@KINDS
def test_what_is_refused_for_good_holds_up_nothing_that_happens_later(turned: Turned, kind: str) -> None:
    """Two NICs are refused, and a guest of which the registry knows stops, again and again."""
    turned.tell(Marked(turned.up(0)))
    served(turned, 5.0, of())
    turned.tell(*(Marked(turned.up(number)) for number in (1, 2)))
    first = served(turned, 10.0, of(1, 2), kind)
    assert sorted(map(len, names(first))) == [1, 1, 2] and turned.machine.due(turned.now) > turned.now
    for state in ("incoming", "running", "incoming"):
        turned.tell(Marked(turned.up(0, state)))
        assert names(served(turned, 10.0, of(1, 2), kind)) == [[NICS[0]]]
    assert turned.machine.marks == 2, "they are to be told still"
    said = turned.alarms["registry-refused"]
    assert NICS[1] in said and NICS[2] in said and NICS[0] not in said


def test_what_happens_while_many_are_sent_one_by_one_is_told_between_them(turned: Turned) -> None:
    turned.tell(*(Marked(turned.up(number)) for number in range(50)))
    turned.passes(1.0)
    assert len(turned.take(Send).body["nics"]) == 50
    turned.tell(Failed(Failure("too-large", "these are too many")))
    turned.tell(Marked(turned.up(59)))
    told = names(served(turned, 30.0, of(*range(50))))
    assert [NICS[59]] in told[:3], "it waits for all that are refused"
    assert len(told) == 51


def test_the_good_ones_of_what_was_refused_do_not_wait_for_what_goes_on(turned: Turned) -> None:
    turned.tell(*(Marked(turned.up(number)) for number in range(3)))
    turned.passes(1.0)
    turned.take(Send)
    turned.tell(Failed(Failure("invalid", "one of them")))
    told = list[str]()
    for number in range(40):  # another guest changes all the time
        turned.tell(Marked(turned.up(50, "incoming" if number % 2 else "running")))
        told += [uuid for uuids in names(served(turned, 0.5, of(1))) for uuid in uuids]
    assert {NICS[0], NICS[2]} <= {*told}


def test_what_was_refused_is_sent_again_when_it_has_changed_and_else_not(turned: Turned) -> None:
    turned.tell(Marked(turned.up(1)))
    assert names(served(turned, 5.0, of(1))) == [[NICS[1]]]
    turned.tell(Marked(NICS[1]), AboutMarked())
    assert served(turned, 5.0, of(1)) == [], "it is as it was refused"
    turned.tell(Marked(turned.up(1, mac="aa:00:00:00:00:09")))
    assert names(served(turned, 5.0, of(1))) == [[NICS[1]]]
    assert turned.alarms["registry-refused"]
    turned.tell(Marked(turned.up(1, mac="aa:00:00:00:00:08")))
    assert names(served(turned, 5.0, of())) == [[NICS[1]]]
    assert turned.alarms["registry-refused"] == "" and turned.machine.marks == 0


def test_what_is_again_as_the_registry_has_it_is_refused_no_more(turned: Turned) -> None:
    turned.tell(Marked(turned.up(1)))
    served(turned, 5.0, of())
    turned.tell(Marked(turned.up(1, mac="aa:00:00:00:00:09")))
    served(turned, 5.0, of(1))
    assert turned.alarms["registry-refused"]
    turned.tell(Marked(turned.up(1)))
    assert served(turned, 5.0, of(1)) == []
    assert turned.alarms["registry-refused"] == "" and turned.machine.marks == 0


def test_what_there_is_on_the_node_is_refused_by_itself(turned: Turned) -> None:
    """It is sent with NICs, one of which is refused: it is not to blame. Where it is, no NIC is. It is sent again when it is another."""
    about = ["2"]
    real = turned.machine.take

    def take(event: Any, now: float) -> None:
        real(event._replace(about=About(version=about[0])) if isinstance(event, Looked) and event.about else event, now)

    turned.machine.take = take  # type: ignore[method-assign]
    turned.tell(AboutMarked(), Marked(turned.up(1)), Marked(turned.up(2)))
    sent = served(turned, 10.0, of(1))
    assert [request.body["about"]["version"] for request in sent if "about" in request.body] == ["2", "2"]
    assert "about" not in turned.alarms["registry-refused"]
    about[0] = "3"
    turned.tell(AboutMarked(), Marked(turned.up(3)))
    sent = served(turned, 10.0, lambda body: "about" in body)
    assert [NICS[3]] in names(sent) and sum("about" in request.body for request in sent) == 2
    assert "about: " in turned.alarms["registry-refused"]
    for _ in range(5):
        turned.tell(AboutMarked())
        assert served(turned, 5.0, lambda body: "about" in body) == [], "it is what was refused"
    about[0] = "4"
    turned.tell(AboutMarked())
    assert len(served(turned, 5.0, of(1))) == 1
    assert "about" not in turned.alarms["registry-refused"]


def test_another_registry_is_told_what_the_one_before_has_refused(turned: Turned) -> None:
    turned.tell(Marked(turned.up(1)))
    served(turned, 5.0, of(1))
    turned.tell(Ended(Failure("epoch", "it was restored")))
    turned.passes(10.0)
    turned.take(Hello)
    turned.tell(Answered({"epoch": "f", "abilities": ["watch"], "actions": ACTIONS}))
    turned.take(AskNode)
    turned.tell(Answered({"reports": "f:5"}))
    turned.take(List)
    turned.tell(Answered([]))
    assert turned.alarms["registry-refused"] == ""
    turned.passes(10.0)
    assert [NICS[1]] in names([each for each in turned.asked if isinstance(each, Send)])


@pytest.mark.parametrize("poison", ["", "a", 5, None, NICS[1].replace("1", "A"), ["a"]])
def test_a_list_of_reports_that_names_no_nic_is_a_lie(poison: object) -> None:
    """It is not taken for a NIC that is told as gone, and looked at."""
    turned = Turned()
    turned.turn()
    turned.take(Hello)
    turned.tell(Answered({"epoch": "e", "abilities": ["watch"], "actions": ACTIONS}))
    turned.take(AskNode)
    turned.tell(Answered({"reports": "e:5"}))
    turned.take(List)
    turned.tell(Answered([{"node": NODE, "report": {"nic": poison, "state": "running"}}]))
    assert turned.alarms.get("registry-lies")
    assert not turned.machine.outbox.dirty and not turned.machine.outbox.told


def test_a_node_that_cannot_be_looked_at_is_looked_at_after_a_pause() -> None:
    """A worker that cannot do it says nothing of what there is on the node."""
    turned = Turned(Rules(first=(9e9, 9e9)))
    turned.begun()
    turned.machine.take(AboutMarked(), turned.now)
    turned.machine.take(Marked(turned.up(0)), turned.now)
    looks = 0
    for _ in range(100):
        turned.now += 0.1
        for request in turned.machine.turn(turned.now):
            if isinstance(request, Look):
                looks += 1
                turned.machine.take(Looked({}, frozenset(request.uuids)), turned.now)
    assert 1 <= looks <= 5
