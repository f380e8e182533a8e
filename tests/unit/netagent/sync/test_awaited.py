"""A node for which somebody waits asks a registry that does not answer sooner than others do."""

from __future__ import annotations

import pytest

from netagent.sync.laid import Standing, UnderlayMarked
from netagent.sync.messages import Answered, Ended, Failed, Failure, Hello, Local, Marked, Watch
from netregistry.model.nic import Report
from tests.support.node_underlay import OWN
from tests.unit.netagent.sync.test_machine import NICS
from tests.unit.netagent.sync.test_underlay_sync import BOTH, Laid, laid, line

_ = laid  # a fixture


def failing(laid: Laid) -> list[float]:
    """Let nobody answer from now on; give the seconds from each attempt to the next."""
    waits = []
    for _ in range(200):
        laid.take(Hello)
        laid.tell(Failed(Failure("", "nobody listens")))
        begun = laid.now
        while not laid.asked:
            laid.passes(laid.machine.due(laid.now) - laid.now)
        waits.append(laid.now - begun)
    return waits


@pytest.fixture
def cut(laid: Laid) -> Laid:
    """Give one whose node has a part of the underlay, and whose stream has ended since the service was killed."""
    laid.met()
    laid.told(line(0))
    laid.done()
    laid.tell(Ended(Failure("", "killed")))
    return laid


def test_who_has_nothing_to_say_waits_as_long_as_ever(cut: Laid) -> None:
    waits = failing(cut)
    assert min(waits) >= 2.5 and 7 < max(waits) <= 7.5


def test_who_is_awaited_asks_sooner(cut: Laid) -> None:
    cut.here[NICS[0]] = Local(Report(NICS[0], "running", "tap0"), {}, ganeti=True, endpoints=("console",))
    cut.tell(Marked(NICS[0]))
    waits = failing(cut)
    assert min(waits) >= 1.0 and 2.5 < max(waits) <= 3.0


def test_what_happens_in_a_pause_makes_it_shorter(cut: Laid) -> None:
    for _ in range(20):
        cut.take(Hello)
        cut.tell(Failed(Failure("", "nobody listens")))
        begun = cut.now
        cut.passes(0.3)
        assert not cut.asked
        cut.tell(Marked(NICS[0]))
        cut.passes(2.7)
        assert [type(each) for each in cut.asked] == [Hello] and cut.now - begun <= 3.0
        cut.machine.outbox.dirty.clear()


def test_who_has_said_something_waits_for_the_stream_to_tell_what_comes_of_it(laid: Laid) -> None:
    """An address, say: the stream is begun as soon."""
    laid.met()
    laid.told(line(0))
    laid.done()
    laid.tell(UnderlayMarked())
    laid.standing = Standing(1, (OWN,))
    laid.sends()
    laid.tell(Ended(Failure("", "killed")))
    laid.take(Hello)
    laid.tell(Answered({"epoch": "e", "abilities": list(BOTH), "actions": []}))
    laid.passes(3.0)
    assert laid.take(Watch).start == "e:10"
    laid.told(ready="e:200")
    laid.tell(Ended(Failure("", "killed")))
    assert max(failing(laid)) > 7, "and it was told"


def test_a_service_that_answers_that_it_has_too_much_to_do_is_asked_as_seldom_as_ever(cut: Laid) -> None:
    cut.tell(Marked(NICS[0]))
    for kind in ("too-many", "busy", "unavailable"):
        cut.take(Hello)
        cut.tell(Failed(Failure(kind, "later")))
        cut.passes(2.4)
        assert not cut.asked, kind
        cut.passes(5.1)


def test_without_an_underlay_nobody_is_awaited() -> None:
    laid = Laid()
    laid.met()
    laid.told()
    laid.done()
    laid.tell(Ended(Failure("", "killed")))
    laid.tell(Marked(NICS[0]))
    assert max(failing(laid)) > 7
