"""What the node's side of a registry asks for, event by event."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import count
from typing import Any

import pytest

from netagent.sync.machine import FIRST, PAUSE, SLOW, Machine
from netagent.sync.requests import Add, Alarm, Delete, Inventory, Listing, Request, Send, Want, Watch

NODE = "00000000-0002-4000-8000-000000000000"
NIC, OTHER = (f"{number:08x}-0003-4000-8000-000000000000" for number in range(2))


class Here:
    """What the node has: NIC -> state; and which of them it decides on."""

    def __init__(self) -> None:
        self.taps: dict[str, str] = {}
        self.defined: set[str] = set()

    def report(self, nic: str) -> Mapping[str, Any] | None:
        return {"nic": nic, "state": self.taps[nic]} if nic in self.taps else None

    def about(self) -> Mapping[str, Any]:
        return {"version": "1"}

    def definition(self, nic: str) -> Mapping[str, Any] | None:
        return {"uuid": nic, "found": True} if nic in self.defined else None


class Turned:
    """A machine, and the time, which the test turns."""

    def __init__(self, kept: tuple[tuple[str, str], ...] = ()) -> None:
        self.here, self.now = Here(), 1000.0
        numbers = count(1)
        self.machine = Machine(NODE, self.here, lambda: f"id{next(numbers)}", lambda: 0.5, self.now, kept)

    def asks(self, seconds: float = 0.0) -> list[Request]:
        self.now += seconds
        return self.machine.requests(self.now)

    def one(self, kind: type[Any], seconds: float = 0.0) -> Any:
        """Give the one request that it makes, of this kind."""
        (found,) = self.asks(seconds)
        assert isinstance(found, kind), found
        return found

    def begun(self, reports: tuple[Mapping[str, Any], ...] = (), own: tuple[str, ...] = ()) -> None:
        """Listed, and told that nothing is wanted but NICs of the node's own."""
        assert self.asks() == [Watch(""), Listing()]
        self.machine.opened()
        self.machine.listed("e:5", reports, self.now)
        self.told(*(("enter", "nic", nic, "e:5", {"master": f"node:{NODE}"}) for nic in own), at="e:5")
        found = [each for each in self.asks() if not isinstance(each, Want)]
        assert isinstance(found[0], Inventory) and isinstance(found[1], Send)
        self.machine.inventory({*self.here.taps, *self.here.defined}, self.now)
        self.machine.done("e:6", self.now)

    def done(self, at: str) -> None:
        self.machine.done(at, self.now)

    def told(self, *lines: tuple[str, str, str, str, Any], at: str) -> None:
        for line in lines:
            assert self.machine.line(*line) == ""
        assert self.machine.line("ready", "", "", at, None) == ""


@pytest.fixture
def turned() -> Turned:
    return Turned()


def test_a_thousand_changes_are_one_report(turned: Turned) -> None:
    turned.begun()
    assert turned.asks() == []
    turned.here.taps[NIC] = "incoming"
    for _ in range(1000):
        turned.machine.touched(NIC)
    first = turned.one(Send)
    assert (first.after, first.nics, first.removed, first.about) == ("e:6", ({"nic": NIC, "state": "incoming"},), (), None)
    turned.here.taps[NIC] = "running"
    turned.machine.touched(NIC)
    assert turned.asks() == [], "one request is in flight"
    turned.done("e:7")
    second = turned.one(Send)
    assert (second.after, second.nics) == ("e:7", ({"nic": NIC, "state": "running"},))


def test_the_same_is_sent_again_where_no_answer_came(turned: Turned) -> None:
    turned.begun()
    turned.here.taps[NIC] = "running"
    turned.machine.touched(NIC)
    sent = turned.one(Send)
    turned.machine.unanswered(turned.now)
    turned.here.taps.clear()
    assert turned.asks(PAUSE) == [] and turned.machine.next() == turned.now + PAUSE * 0.5
    assert turned.one(Send, PAUSE) is sent, "whether it was done is told by its id, and what it says must be the same"
    turned.done("e:7")
    assert turned.machine.marks.reported[NIC] == "e:7"


def test_what_stops_is_stopped_and_goes_when_it_is_wanted_no_more(turned: Turned) -> None:
    turned.here.taps[NIC] = "running"
    turned.machine.touched(NIC)
    turned.begun()
    turned.told(("enter", "nic", NIC, "e:7", {"master": "ganeti:c"}), at="e:7")
    assert turned.asks() != []
    turned.done("e:8")
    turned.here.taps.clear()
    turned.machine.touched(NIC)
    assert turned.one(Send).nics == ({"nic": NIC, "state": "stopped"},)
    turned.done("e:9")
    turned.machine.touched(NIC)
    assert turned.asks() == [], "it is said already"
    turned.told(("leave", "nic", NIC, "e:10", None), at="e:10")
    want, sent = turned.asks()
    assert want == Want("nic", NIC, "e:10", None) and isinstance(sent, Send) and sent.removed == (NIC,)


def test_a_new_epoch_begins_everything_anew(turned: Turned) -> None:
    turned.here.taps[NIC] = "running"
    turned.machine.touched(NIC)
    turned.begun()
    _all(turned)
    turned.machine.ended("restored", turned.now)
    assert turned.one(Watch, 2 * PAUSE) == Watch("e:5")
    turned.machine.compacted(turned.now)
    assert turned.one(Watch) == Watch("")
    turned.machine.opened()
    turned.told(at="f:3")
    assert turned.one(Listing) == Listing()
    turned.machine.listed("f:2", (), turned.now)
    found = turned.asks()
    turned.machine.inventory({NIC}, turned.now)
    assert isinstance(found[0], Inventory) and isinstance(found[1], Send) and found[1].after == "f:2"
    turned.done("f:4")
    assert turned.one(Send).nics == ({"nic": NIC, "state": "running"},)


def test_what_was_told_counts_from_ready_on(turned: Turned) -> None:
    turned.begun()
    assert turned.machine.line("enter", "options", NIC, "e:7", []) == ""
    assert turned.asks() == []
    turned.machine.ended("cut off", turned.now)
    assert turned.asks() == [] and turned.one(Watch, 2 * PAUSE) == Watch("e:5")
    turned.told(("enter", "options", NIC, "e:7", []), at="e:7")
    assert turned.one(Want) == Want("options", NIC, "e:7", [])
    turned.told(("leave", "options", NIC, "e:8", None), ("enter", "nic", NIC, "e:8", {"master": "registry"}), at="e:8")
    assert turned.one(Want) == Want("nic", NIC, "e:8", {"master": "registry"}), "its file is there at every moment"


def test_what_is_on_disk_and_not_told_any_more_goes() -> None:
    turned = Turned((("options", NIC), ("network", OTHER)))
    assert turned.asks() == [Watch(""), Listing()]
    turned.machine.opened()
    turned.told(("enter", "network", OTHER, "e:3", {}), at="e:5")
    assert turned.asks() == [Want("network", OTHER, "e:3", {}), Want("options", NIC, "e:5", None)]


@pytest.mark.parametrize(
    ("lines", "wrong"),
    [
        ([("ready", "", "", "e:4", None)], "was 5 and is 4"),
        ([("ready", "", "", "f:9", None)], "within one stream"),
        ([("ready", "", "", "e:x", None)], "revision"),
        ([("ready", "", "", "", None)], "revision"),
        ([("enter", "node", NIC, "e:9", {})], "a line says"),
        ([("enter", "nic", "", "e:9", {})], "a line says"),
    ],
)
def test_a_registry_that_lies_changes_nothing(turned: Turned, lines: list[tuple[str, str, str, str, Any]], wrong: str) -> None:
    turned.begun()
    assert turned.machine.line("enter", "nic", NIC, "e:6", {"master": "registry"}) == ""
    (said,) = [turned.machine.line(*line) for line in lines]
    assert wrong in said
    turned.machine.ended(said, turned.now)
    (alarm,) = turned.asks()
    assert isinstance(alarm, Alarm) and wrong in alarm.text and turned.machine.own == {}
    assert turned.one(Watch, 2 * PAUSE) == Watch("e:5")
    turned.told(at="e:9")
    assert turned.one(Alarm) == Alarm("registry", "")


def test_one_report_that_is_refused_holds_no_other_up(turned: Turned) -> None:
    turned.here.taps |= {NIC: "odd", OTHER: "running"}
    turned.begun()
    turned.machine.touched(NIC)
    turned.machine.touched(OTHER)
    assert len(turned.one(Send).nics) == 2
    turned.machine.refused("invalid", "state: odd", turned.now)
    sent, alarms = [], []
    for _ in range(2):
        for found in turned.asks():
            (sent if isinstance(found, Send) else alarms).append(found)
        if sent[-1].nics[0]["nic"] == NIC:
            turned.machine.refused("invalid", "state: odd", turned.now)
        else:
            turned.done("e:9")
    assert [each.nics[0]["nic"] for each in sent] == [NIC, OTHER] and turned.machine.marks.refused == {NIC: "state: odd"}
    assert alarms[0].name == "refused" and "odd" in alarms[0].text


def test_what_the_registry_does_not_know_is_made_known_and_never_before_it_was_told_all(turned: Turned) -> None:
    turned.here.taps |= {NIC: "running", OTHER: "running"}
    turned.here.defined.add(NIC)  # the other one is a Ganeti cluster's to decide
    turned.machine.touched(NIC)
    turned.machine.touched(OTHER)
    turned.begun()
    turned.one(Send)
    turned.done("e:7")
    assert turned.asks() == [], "it may be told yet"
    turned.told(at="e:7")
    added = turned.one(Add)
    assert (added.nic, added.after) == (NIC, "e:7")
    turned.done("e:8")
    turned.machine.touched(NIC)
    turned.one(Send)
    turned.done("e:9")
    assert turned.asks() == [], "nor is it added again before it can have been told"


def test_nothing_is_reaped_but_what_is_surely_gone(turned: Turned) -> None:
    turned.here.taps[OTHER] = "running"
    turned.here.defined.add(OTHER)
    never = "00000009-0003-4000-8000-000000000000"
    turned.begun(({"nic": NIC, "state": "stopped"},), (NIC, OTHER, never))
    _all(turned)
    turned.machine.inventory({OTHER}, turned.now)
    assert not [each for each in _all(turned) if isinstance(each, Delete)], "it is too early: what is slow to come is not gone"
    for there, alarm in ((None, "inventory"), (set[str](), "reaping")):
        turned.now += FIRST[1] + SLOW
        assert any(isinstance(each, Inventory) for each in _all(turned))
        turned.machine.inventory(there, turned.now)
        found = _all(turned)
        assert not [each for each in found if isinstance(each, Delete)] and alarm in turned.machine.alarms
    turned.now += SLOW
    _all(turned)
    turned.machine.inventory({OTHER}, turned.now)
    first = [each for each in _all(turned) if isinstance(each, Delete)]
    assert [(each.nic, each.revision) for each in first] == [(NIC, "e:5"), (never, "e:5")], "one that never came has had an hour"
    assert turned.machine.alarms == {}


def test_too_much_at_once_is_no_administrators_doing(turned: Turned) -> None:
    turned.here.taps[OTHER] = "running"
    nics = [f"{number:08x}-0009-4000-8000-000000000000" for number in range(11)]
    turned.begun(tuple({"nic": nic, "state": "stopped"} for nic in nics), tuple(nics))
    turned.now += FIRST[1]
    _all(turned)
    turned.machine.inventory({OTHER}, turned.now)
    assert not [each for each in _all(turned) if isinstance(each, Delete)] and "11 NICs" in turned.machine.alarms["reaping"]


def test_a_service_that_is_away_is_tried_at_a_constant_rate(turned: Turned) -> None:
    assert turned.machine.since == 1000.0
    for _ in range(50):
        assert [type(each) for each in turned.asks()] == [Watch, Listing]
        turned.machine.ended("no registry is served", turned.now)
        turned.machine.unanswered(turned.now)
        assert turned.now + PAUSE <= turned.machine.next() <= turned.now + 2 * PAUSE
        turned.now = turned.machine.next()
        if turned.now > 1000 + FIRST[0]:
            break
    assert turned.machine.since == 1000.0


def _all(turned: Turned) -> list[Request]:
    """Let it ask for all that it wants to, each of which is done."""
    found: list[Request] = []
    while asked := turned.asks():
        found += asked
        if turned.machine.asked is not None:
            turned.done(f"e:{100 + len(found)}")
    return found
