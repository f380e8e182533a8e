"""The underlay in a node's synchronisation: told by the stream, done on the node, confirmed by reports, where the service has one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from netagent.sync import hands
from netagent.sync.became import Did
from netagent.sync.inbox import Inbox
from netagent.sync.jobs import UNDERLAY
from netagent.sync.laid import DropUnderlay, Had, SetUnderlay, Standing, UnderlayMarked
from netagent.sync.messages import (
    Answered,
    AskNode,
    Close,
    Ended,
    Failed,
    Failure,
    Hello,
    Line,
    List,
    Local,
    Look,
    Looked,
    Marked,
    Send,
    Stray,
    Tell,
    Watch,
)
from netcommon.lifecycle.underlay import hold
from netregistry.model.nic import Report
from runtime import underlay, underlay_back
from runtime.errors import HostRefused
from tests.support.node_underlay import OWN, PREFIX, address, endpoint, join, marked, said
from tests.support.registry import NODES
from tests.support.service import Served
from tests.support.sim import UUIDS, Sim, nic
from tests.support.sync_agent import Agent, reports
from tests.unit.netagent.sync.test_machine import NICS, Turned
from tests.unit.netagent.sync.test_machine import nic as line_of

NODE = NODES[0]
KEY = (UNDERLAY, NODE)
BOTH = ("watch", "underlay")


def line(*numbers: int, event: str = "enter", revision: str = "e:9", generation: int = 1) -> dict[str, Any]:
    """Give a line of the stream about the node's underlay."""
    value = said(*map(endpoint, numbers), generation=generation)
    more = {} if event == "leave" else {"value": value}
    return {"event": event, "what": "underlay", "uuid": NODE, "revision": revision, **more}


class Laid(Turned):
    """A machine whose node has what ``standing`` says of an underlay."""

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        self.standing: Standing | None = Standing()
        self.inner = self.machine.turn
        self.machine.turn = self._turned  # type: ignore[method-assign]

    def _turned(self, now: float) -> list[Any]:
        """Answer looks at the underlay; the others are the test's."""
        found = []
        for request in self.inner(now):
            if isinstance(request, Look) and request.underlay:
                there = {uuid: self.here[uuid] for uuid in request.uuids if uuid in self.here}
                self.machine.take(Looked(there, underlay=self.standing, wall=5.0, about=None), now)
            else:
                found.append(request)
        return found

    def met(self, has: object = None, abilities: tuple[str, ...] = BOTH) -> Watch:
        """Let the registry answer the beginning; ``has``: what it has of the underlay from this node."""
        self.machine.outbox.about = False
        self.turn()
        self.take(Hello)
        self.tell(Answered({"epoch": "e", "abilities": list(abilities), "actions": []}))
        self.take(AskNode)
        self.tell(Answered({"reports": "e:5", **({} if has is None else {"underlay": has})}))
        self.take(List)
        self.tell(Answered([]))
        found: Watch = self.take(Watch)
        return found

    def sends(self) -> dict[str, Any]:
        """Give what is sent next, and let that be taken."""
        self.passes(1.0)
        sent = self.take(Send)
        self.ids += 1
        self.tell(Answered(None, f"e:{100 + self.ids}"))
        return dict(sent.body)


@pytest.fixture
def laid() -> Laid:
    return Laid()


# -- in


def test_it_is_asked_for_where_the_service_has_one(laid: Laid) -> None:
    assert laid.met() == Watch("", underlay=True)


def test_an_older_service_is_neither_asked_nor_told(laid: Laid) -> None:
    """And what the node has of an underlay stays."""
    assert laid.met(abilities=("watch",)) == Watch("", underlay=False)
    laid.standing = Standing(1, (OWN,))
    laid.here[NICS[0]] = Local(Report(NICS[0], "running", "tap0"), {}, ganeti=True, endpoints=("console",))
    laid.told()
    laid.tell(UnderlayMarked(), Marked(NICS[0]))
    body = laid.sends()
    assert "underlay" not in body and [each.get("endpoints") for each in body["nics"]] == [None]
    assert not [each for each in laid.asked if isinstance(each, SetUnderlay | DropUnderlay)]
    assert laid.machine.marks == 0


def test_what_is_told_is_done_when_all_of_it_was(laid: Laid) -> None:
    laid.met()
    laid.tell(Line(line(0), 100))
    assert not [each for each in laid.asked if isinstance(each, SetUnderlay)]
    laid.told(line(0, 1, event="change", revision="e:10"))
    job = laid.take(SetUnderlay)
    assert job == SetUnderlay(KEY, line(0, 1)["value"], "e:10")
    laid.tell(Did(KEY, "e:10"))
    laid.done()
    laid.told(line(0, event="change", revision="e:11", generation=2), ready="e:11")
    assert laid.take(SetUnderlay).revision == "e:11"
    laid.tell(Did(KEY, "e:11"))
    laid.told(line(event="leave", revision="e:12"), ready="e:12")
    assert laid.take(DropUnderlay) == DropUnderlay(KEY, "e:12")


def test_a_beginning_without_it_takes_it_away(laid: Laid) -> None:
    """Drop it by the silence of a service that was asked for it; another one's says nothing."""
    laid.met()
    laid.told()
    assert laid.take(DropUnderlay) == DropUnderlay(KEY, "e:10")


def test_what_cannot_be_done_is_said_and_stops_nothing(laid: Laid) -> None:
    laid.met()
    laid.told(line(0), line_of(0))
    laid.take(SetUnderlay)
    laid.tell(Did(KEY, "e:9", "prefix='x': expected a /64"))
    laid.done()
    assert "expected a /64" in laid.alarms["registry-refused"] and laid.machine.inbox.complete
    laid.told(line(1, event="change", revision="e:11"), ready="e:11")
    laid.take(SetUnderlay)
    laid.tell(Did(KEY, "e:11"))
    laid.passes(1.0)
    assert laid.alarms["registry-refused"] == ""


@pytest.mark.parametrize("value", [7, None, [], "x"])
def test_a_line_that_is_none_is_a_lie(laid: Laid, value: object) -> None:
    laid.met()
    laid.told({**line(0), "value": value})
    assert "registry-lies" in laid.alarms and not laid.machine.inbox.complete


def test_what_is_known_is_looked_for_on_disk_again(laid: Laid) -> None:
    """At the first whole stream of an agent, and hourly: the file may have been removed."""
    laid.met()
    laid.told(line(0))
    laid.take(SetUnderlay)
    laid.tell(Did(KEY, "e:9"))
    laid.done()
    laid.passes(2 * laid.machine.rules.every)
    assert [each for each in laid.asked if isinstance(each, SetUnderlay)]


def test_what_was_told_is_kept_for_the_next_start() -> None:
    inbox, after = Inbox(NODE, lambda _uuid: True), Inbox(NODE, lambda _uuid: True)
    inbox.begin(underlay=True)
    for each in (line(0), {"event": "ready", "revision": "e:10"}):
        inbox.line(each, 100)
    document = json.loads(json.dumps(inbox.document()))
    after.load(document)
    assert after.underlay == inbox.underlay is not None
    older = Inbox(NODE, lambda _uuid: True)
    older.load({name: value for name, value in document.items() if name != "underlay"})
    assert older.underlay is None and older.ready == inbox.ready
    damaged = Inbox(NODE, lambda _uuid: True)
    damaged.load({**document, "underlay": {"revision": "x", "value": {}}})
    assert damaged.ready is None


# -- out


def test_a_node_that_has_nothing_of_it_says_nothing(laid: Laid) -> None:
    laid.met()
    laid.told()
    laid.passes(5.0)
    assert not [each for each in laid.asked if isinstance(each, Send)]


def test_what_is_there_is_confirmed_once(laid: Laid) -> None:
    laid.met()
    laid.told(line(0))
    laid.standing = Standing(1, (OWN, address(0)))
    laid.tell(UnderlayMarked())
    assert laid.sends()["underlay"] == {"generation": 1, "addresses": [OWN, address(0)]}
    laid.tell(UnderlayMarked())
    laid.passes(5.0)
    assert not [each for each in laid.asked if isinstance(each, Send)]
    laid.standing = Standing(2, (OWN,))
    laid.tell(UnderlayMarked())
    assert laid.sends()["underlay"] == {"generation": 2, "addresses": [OWN]}


def test_guests_on_their_way_by_ganetis_files_are_told_while_they_are(laid: Laid) -> None:
    """Also to a registry that had them before a restart."""
    was = {"generation": 1, "addresses": [OWN], "arriving": ["web1"]}
    laid.standing = Standing(1, (OWN,), arriving=("web1",))
    laid.met(has=was)
    laid.told(line())
    laid.passes(5.0)
    assert not [each for each in laid.asked if isinstance(each, Send)]
    laid.standing = Standing(1, (OWN,), arriving=("web1", "web2"))
    laid.tell(UnderlayMarked())
    assert laid.sends()["underlay"] == {**was, "arriving": ["web1", "web2"]}
    laid.standing = Standing(1, (OWN,))
    laid.tell(UnderlayMarked())
    assert laid.sends()["underlay"] == {"generation": 1, "addresses": [OWN]}


def test_guests_on_their_way_are_told_again_after_a_fence(laid: Laid) -> None:
    """Tell the registry again of guests on their way that it has lost: an operator said that the node is off, and it is not."""
    was = {"generation": 1, "addresses": [OWN], "arriving": ["web1"]}
    laid.standing = Standing(1, (OWN,), arriving=("web1",))
    laid.met(has=was)
    laid.told(line())
    laid.tell(Ended(Failure("missing", "its lease was taken away")))
    laid.passes(20.0)
    laid.take(Hello)
    laid.tell(Answered({"epoch": "e", "abilities": list(BOTH), "actions": []}))
    laid.take(AskNode)
    laid.tell(Answered({"reports": "e:6", "underlay": {"generation": 1, "addresses": [OWN]}}))
    laid.take(List)
    laid.tell(Answered([]))
    assert laid.sends()["underlay"] == was


def test_marks_that_come_all_the_time_hold_up_nothing(laid: Laid) -> None:
    """As where a node starts all its guests, one after the other."""
    laid.met()
    laid.told()
    laid.passes(5.0)
    assert not [each for each in laid.asked if isinstance(each, Send)]
    laid.here[NICS[0]] = Local(Report(NICS[0], "running", "tap0"), {}, ganeti=True)
    laid.tell(Marked(NICS[0]))
    for _ in range(10):
        laid.tell(UnderlayMarked())
        laid.passes(0.1)
    assert [each for each in laid.asked if isinstance(each, Send)]


def test_a_restart_says_nothing_that_the_registry_has(laid: Laid) -> None:
    laid.standing = Standing(3, (OWN, address(0)))
    laid.met(has={"generation": 3, "addresses": [OWN, address(0)]})
    laid.told(line(0, generation=3))
    laid.passes(5.0)
    assert not [each for each in laid.asked if isinstance(each, Send)]


@pytest.mark.parametrize("has", [{"generation": 2, "addresses": [OWN]}, {"generation": "x"}, 7, {"generation": 1, "addresses": 3}])
def test_what_went_while_the_agent_was_away_is_told(laid: Laid, has: object) -> None:
    laid.standing = Standing(3, (OWN,))
    laid.met(has=has)
    assert laid.sends()["underlay"] == {"generation": 3, "addresses": [OWN]}


def test_what_could_not_be_looked_at_is_looked_at_again(laid: Laid) -> None:
    laid.standing = None
    laid.met()
    laid.tell(UnderlayMarked())
    laid.passes(1.0)
    assert laid.machine.marks == 1
    laid.standing = Standing(1, (OWN,))
    laid.passes(10.0)
    assert laid.take(Send).body["underlay"]["addresses"] == [OWN]


def test_what_the_service_refuses_of_it_holds_up_nothing_else(laid: Laid) -> None:
    laid.here[NICS[0]] = Local(Report(NICS[0], "running", "tap0"), {}, ganeti=True, endpoints=("console",))
    laid.met()
    laid.standing = Standing(1, (OWN,))
    laid.tell(UnderlayMarked(), Marked(NICS[0]))
    laid.passes(1.0)
    sent: list[Any] = []
    for _ in range(6):
        for request in [each for each in laid.asked if isinstance(each, Send)]:
            laid.asked.remove(request)
            sent.append(request.body)
            bad = "underlay" in request.body
            laid.tell(Failed(Failure("invalid", "no")) if bad else Answered(None, f"e:{200 + len(sent)}"))
        laid.passes(2.0)
    assert [NICS[0]] in [[each["nic"] for each in body["nics"]] for body in sent if "underlay" not in body]
    assert "underlay: reports: no" in laid.alarms["registry-refused"]


def test_the_kinds_of_a_nic_are_in_its_report(laid: Laid) -> None:
    laid.met()
    laid.told(line_of(0))
    uuid = NICS[0]
    laid.here[uuid] = Local(Report(uuid, "running", "tap0"), {}, ganeti=True, endpoints=("console",))
    laid.tell(Marked(uuid))
    assert [each["endpoints"] for each in laid.sends()["nics"]] == [["console"]]
    laid.tell(Marked(uuid))
    laid.passes(1.0)
    laid.here[uuid] = laid.here[uuid]._replace(endpoints=tuple(f"kind{number}" for number in range(20)))
    laid.tell(Marked(uuid))
    assert [len(each["endpoints"]) for each in laid.sends()["nics"]] == [16]
    laid.here[uuid] = laid.here[uuid]._replace(endpoints=())
    laid.tell(Marked(uuid))
    assert ["endpoints" in each for each in laid.sends()["nics"]] == [False]


# -- before anything is told

WHOLE = (*BOTH, "underlay-prefix")
HAD = Standing(3, (OWN, address(0)), PREFIX, (Had("", "web0", "console", address(0)), Had("", "web1", "console", address(1), True)), "d")


def begun(laid: Laid, abilities: tuple[str, ...] = WHOLE) -> None:
    """Let the registry answer the beginning, of which it has nothing in this epoch; no stream is begun."""
    laid.machine.outbox.about = False
    laid.turn()
    laid.take(Hello)
    laid.tell(Answered({"epoch": "e", "abilities": list(abilities), "actions": []}))
    laid.take(AskNode)
    laid.tell(Answered({"reports": "e:5"}))
    laid.take(List)
    laid.tell(Answered([]))


def test_what_is_there_is_said_before_a_stream_is_begun(laid: Laid) -> None:
    laid.standing = HAD
    begun(laid)
    had = [each._asdict() for each in HAD.had]
    (sent,) = laid.asked
    assert laid.machine.due(laid.now) > laid.now, "it waits for the answer"
    assert sent.body["underlay"] == {"generation": 3, "addresses": [OWN, address(0)], "prefix": PREFIX, "had": had}
    laid.asked.clear()
    laid.tell(Answered(None, "e:6"))
    assert laid.take(Watch) == Watch("", underlay=True)
    laid.standing = HAD._replace(addresses=(OWN,))
    laid.tell(UnderlayMarked())
    assert laid.sends()["underlay"] == {"generation": 3, "addresses": [OWN], "prefix": PREFIX}, "what it had is said once"


def test_a_service_that_takes_less_is_told_less(laid: Laid) -> None:
    laid.standing = HAD
    begun(laid, BOTH)
    assert laid.take(Send).body["underlay"] == {"generation": 3, "addresses": [OWN, address(0)]}


def watches(laid: Laid, to_reports: Answered | Failed) -> Watch:
    """Let the registry answer, and take reports or not, until a stream is begun; give that."""
    for _ in range(60):
        for request in tuple(laid.asked):
            if isinstance(request, Watch):
                laid.asked.clear()
                return request
            if isinstance(request, Hello | Send):
                laid.asked.remove(request)
                hello = Answered({"epoch": "e", "abilities": list(WHOLE), "actions": []})
                laid.tell(hello if isinstance(request, Hello) else to_reports)
            elif isinstance(request, AskNode):
                laid.asked.remove(request)
                laid.tell(Answered({"reports": laid.machine.outbox.after}))
            elif isinstance(request, Close):
                laid.asked.remove(request)
                laid.tell(Ended(Failure("", "closed")))
        laid.passes(1.0)
    raise AssertionError(laid.asked)


@pytest.mark.parametrize("failure", [Failure("invalid", "no"), Failure("unavailable", "full"), Failure("", "no answer")])
def test_where_that_cannot_be_said_nics_are_told_all_the_same(laid: Laid, failure: Failure) -> None:
    """The stream is not asked for the underlay then, so nothing of that changes; it begins anew when that was said."""
    laid.standing = HAD
    begun(laid)
    assert watches(laid, Failed(failure)) == Watch("", underlay=False)
    laid.told(line_of(0))
    assert not [each for each in laid.asked if isinstance(each, SetUnderlay | DropUnderlay)] and laid.machine.inbox.complete
    laid.machine.outbox.retry()
    laid.tell(UnderlayMarked())
    assert watches(laid, Answered(None, "e:6")) == Watch("", underlay=True), "from the beginning: what has changed was never told"


def test_what_cannot_be_looked_at_holds_up_no_stream(laid: Laid) -> None:
    laid.standing = None
    begun(laid)
    assert laid.take(Watch) == Watch("", underlay=False)


def unknown(laid: Laid, abilities: tuple[str, ...] = WHOLE) -> None:
    """Let the registry not know the node."""
    laid.turn()
    laid.take(Hello)
    laid.tell(Answered({"epoch": "e", "abilities": list(abilities), "actions": []}))
    laid.take(AskNode)
    laid.tell(Failed(Failure("missing", "there is no node")))
    laid.passes(10.0)


def test_a_node_that_is_unknown_says_its_prefix_and_keeps_it(laid: Laid) -> None:
    laid.standing = HAD
    unknown(laid)
    said = laid.take(Stray).body
    assert said == {"after": "e:0", "underlay": {"generation": 3, "addresses": [OWN, address(0)], "prefix": PREFIX, "epoch": "d"}}
    laid.tell(Failed(Failure("busy", "later")))
    laid.passes(10.0)
    assert laid.take(Stray).body == said, "the same again"
    laid.tell(Answered(None, "e:0"))
    laid.passes(10.0)
    laid.take(AskNode)
    laid.tell(Failed(Failure("missing", "there is no node")))
    laid.passes(60.0)
    assert [type(each) for each in laid.asked if not isinstance(each, Tell)] == [AskNode] and "registry-node" in laid.alarms


def test_it_goes_when_the_registry_says_so(laid: Laid) -> None:
    laid.standing = HAD
    unknown(laid)
    laid.take(Stray)
    laid.tell(Failed(Failure("gone", "it was forgotten")))
    assert laid.take(DropUnderlay) == DropUnderlay(KEY, "e:0")


@pytest.mark.parametrize("kind", ["forbidden", "invalid", "fault", "missing"])
def test_another_refusal_takes_nothing(laid: Laid, kind: str) -> None:
    laid.standing = HAD
    unknown(laid)
    laid.take(Stray)
    laid.tell(Failed(Failure(kind, "no")))
    laid.passes(10.0)
    assert not [each for each in laid.asked if isinstance(each, DropUnderlay | Stray)]


def test_an_older_service_is_told_nothing_of_it(laid: Laid) -> None:
    laid.standing = HAD
    unknown(laid, BOTH)
    assert [type(each) for each in laid.asked] == [AskNode]


# -- with a real service


def test_a_guests_endpoint_comes_and_goes_with_it(agent: Agent, sim: Sim, service: Served) -> None:
    """From the option of a NIC to an address on the node that the registry has given, and that the node has confirmed."""
    client = service.client()
    client.change("PUT", "underlay", {"prefix": "fd12:3456:789a::/48", "zone": "hosts.example.com"})
    join(sim.paths, NODES[0])
    sim.settings = sim.settings._replace(nic={"endpoints": ("console",)})

    def made() -> None:
        hold(sim.node, sim.log)
        agent.sync.underlaid()

    def placed() -> list[Any]:
        found = list(client.all("endpoints"))
        return [each for item in found for each in item["placement"]["endpoints"]]

    with agent.running() as sync:
        sync._around = sync._around._replace(underlay=made)
        agent.until(lambda: marked(sim.host.view()) == ["fd12:3456:789a::1"], "the node has its own address")
        sim.up(nic("bridged"))
        sync.marked(UUIDS[0])
        agent.until(lambda: [each["state"] for each in placed()] == ["there"], "the endpoint is there, and that is confirmed")
        assert marked(sim.host.view()) == ["fd12:3456:789a::1", "fd12:3456:789a::1:0"]
        assert reports(service)[UUIDS[0]]["endpoints"] == ["console"]
        known = underlay.read(sim.paths)
        assert known is not None and [each.kind for each in known.endpoints] == ["console"]
        sync._mark_about()  # the kernel tells of a new address of the node
        agent.until(lambda: sync.machine.idle, "nothing is left")
    assert agent.alarms.active() == {}
    before = {key: value for key, value in service.everything().items() if key.partition("/")[0] not in ("alive", "gone", "clock")}
    with agent.running() as again:
        again._around = again._around._replace(underlay=made)
        agent.until(lambda: again.machine.idle and again.machine.inbox.complete, "it is in step after a restart")
        agent.passes(1.0)
        after = {key: value for key, value in service.everything().items() if key.partition("/")[0] not in ("alive", "gone", "clock")}
        assert after == before, "a restart writes nothing"
        sim.down(nic("bridged"))
        again.marked(UUIDS[0])
        agent.until(lambda: reports(service)[UUIDS[0]]["state"] == "stopped", "its end is reported")
        assert "endpoints" not in reports(service)[UUIDS[0]]


@pytest.mark.parametrize("refused", ["newer", "unreadable"])
def test_nics_are_told_where_it_cannot_be_told_what_is_there(
    agent: Agent, sim: Sim, service: Served, refused: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where the agent of a newer version has run since the boot; its record stays, and is told of once."""
    service.client().change("PUT", "underlay", {"prefix": "fd12:3456:789a::/48", "zone": "hosts.example.com"})
    join(sim.paths, NODES[0])
    sim.settings = sim.settings._replace(nic={"endpoints": ("console",)})
    record = Path(sim.paths.state, "underlay", f"{sim.node.identity.netns}.json")
    record.parent.mkdir(parents=True)
    record.write_text('{"schema":99}')

    def refuse(*_given: object) -> None:
        raise HostRefused("cannot read: Input/output error")

    with monkeypatch.context() as patch:
        if refused == "unreadable":
            patch.setattr("runtime.underlay_record.read", refuse)
        with agent.running() as sync:
            agent.until(lambda: sync.machine.inbox.complete, "it is in step")
            for _ in range(2):
                sim.up(nic("bridged"))
                sync.marked(UUIDS[0])
                agent.until(lambda: reports(service).get(UUIDS[0], {}).get("state") == "running", "it runs")
                sim.down(nic("bridged"))
                sync.marked(UUIDS[0])
                agent.until(lambda: reports(service).get(UUIDS[0], {}).get("state") != "running", "it does not")
            assert f"confirmed/{NODES[0]}" not in service.everything(), "of what is there nothing is said"
            assert record.read_text() == '{"schema":99}'
    assert len([line for line in map(str, sim.lines) if "which addresses of the underlay are there cannot be told" in line]) == 1


def test_what_the_registry_cannot_read_stays_as_it_is(sim: Sim) -> None:
    hands.done(sim.node, SetUnderlay(KEY, said(endpoint(0), endpoint(1)), "e:1"), sim.call())
    told = {**said(endpoint(2), generation=2), "kept": [address(0), address(9)]}
    assert hands.done(sim.node, SetUnderlay(KEY, told, "e:2"), sim.call()) == Did(KEY, "e:2")
    known = underlay.read(sim.paths)
    assert known is not None and [each.address for each in known.endpoints] == [address(2), address(0)]
    refused = hands.done(sim.node, SetUnderlay(KEY, {"problem": "prefixes/x cannot be read"}, "e:3"), sim.call())
    assert refused.refused == "prefixes/x cannot be read" and underlay.read(sim.paths) == known


def test_the_file_is_the_registrys_word(sim: Sim) -> None:
    """And what cannot be is refused, with what there is left as it is."""
    done = hands.done(sim.node, SetUnderlay(KEY, said(endpoint(0)), "e:1"), sim.call())
    assert done == Did(KEY, "e:1") and underlay.read(sim.paths) is not None
    refused = hands.done(sim.node, SetUnderlay(KEY, said(endpoint(0, address="::1")), "e:2"), sim.call())
    assert refused.refused.startswith("address=") and not refused.host
    known = underlay.read(sim.paths)
    assert known is not None and known.revision == "e:1"
    underlay_back.write(sim.paths, underlay_back.KeptBack(PREFIX, "br0", "fd00:1:2:7::10/64"))
    assert hands.done(sim.node, DropUnderlay(KEY, "e:3"), sim.call()) == Did(KEY, "e:3")
    assert underlay.read(sim.paths) is None and underlay_back.read(sim.paths) is None


@pytest.mark.parametrize(("later", "is_taken"), [("e:7", False), ("e:9", True), ("f:2", True), ("e:10", True)])
def test_what_a_stream_says_again_after_a_restart_takes_nothing_back(sim: Sim, later: str, is_taken: bool) -> None:
    """Take no older word: an agent that was killed hears again what was said before what it knows, the oldest first."""
    hands.done(sim.node, SetUnderlay(KEY, said(endpoint(0), endpoint(1), generation=3), "e:9"), sim.call())
    for job in (SetUnderlay(KEY, said(endpoint(0), generation=2), later), DropUnderlay(KEY, later)):
        assert hands.done(sim.node, job, sim.call()) == Did(KEY, later)
        known = underlay.read(sim.paths)
        assert (known is None or len(known.endpoints) == 1) == is_taken


def test_nothing_is_due_while_a_stream_waits_for_a_look_at_the_node() -> None:
    """Wait without a turn: what of the underlay is there is said before the stream begins, and a worker takes its time to tell it."""
    turned = Turned()
    turned.machine.outbox.about = False
    looks: list[Look] = []
    inner = turned.machine.turn

    def turn(now: float) -> list[Any]:
        found = inner(now)
        looks.extend(each for each in found if isinstance(each, Look))
        return [each for each in found if not isinstance(each, Look)]

    turned.machine.turn = turn  # type: ignore[method-assign]
    turned.greeted(abilities=(*BOTH, "underlay-prefix"))
    turned.now += 1.0
    turned.turn()
    assert [each.underlay for each in looks] == [True] and not [each for each in turned.asked if isinstance(each, Watch)]
    assert turned.machine.due(turned.now) > turned.now
