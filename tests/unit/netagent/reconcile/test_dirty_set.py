"""Which records the agent looks at, and when: every order of events."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from netagent.events import INDEX, NAME, PORTS, TABLE, UPLINKS, VLAN, Came, Changed, Event, Gone, LinkGone, LockClosed, Overrun
from netagent.index import Entry, Nics, entry_of, marks_of
from netagent.reconcile.dirty_set import FEW, GATHER, LATE, NEVER, SOON, DirtySet
from runtime.locks import number
from runtime.record import APPLYING, CLOSING, REVERTING, STATES, UP
from tests.support.nics import nic, record


def entry(key: str, ifindex: int = 7, state: str = UP, device: str = "") -> Entry:
    device = device or f"tap{ifindex}"
    return Entry(key, key, device, ifindex, state, "web1", frozenset({(INDEX, ifindex), (NAME, device), (TABLE, (5, "guard"))}))


class Place:
    """Marks with a clock by hand. ``fail`` says until when a record is left alone."""

    def __init__(self, *entries: Entry) -> None:
        self.nics, self.now, self.blocked = Nics(), 100.0, dict[str, float]()
        for each in entries:
            self.nics.put(each)
        self.drift = DirtySet(self.nics, lambda key: self.blocked.get(key, 0.0))

    def happens(self, *events: Event) -> None:
        for event in events:
            self.drift.take(event, self.now)

    def written(self, changed: Entry) -> None:
        self.nics.put(changed)
        self.drift.changed(changed, self.now)

    def until(self, limit: float = 5.0) -> list[str]:
        """The records that are looked at within ``limit`` seconds, in order; of a snapshot, all in one word."""
        end, seen = self.now + limit, list[str]()
        while (due := self.drift.due()) <= end:
            self.now = max(self.now, due)
            batch = self.drift.batch(self.now)
            seen += [key for key, _since in batch.single]
            if batch.many or batch.everything:
                seen.append("all" if batch.everything else f"{len(batch.many)} together")
                self.drift.rested(self.now, 0.1)
        self.now = end
        return seen


def test_a_device_that_goes_is_looked_at_at_once() -> None:
    place = Place(entry("a"), entry("b", 8))
    place.happens(LinkGone(7))
    assert place.drift.due() <= place.now
    assert place.until() == ["a"]


@pytest.mark.parametrize("state", STATES)
def test_a_device_that_goes_concerns_a_record_in_any_state(state: str) -> None:
    place = Place(entry("a", state=state))
    place.happens(LinkGone(7))
    assert place.until() == ["a"]


def test_a_device_of_no_record_concerns_nobody() -> None:
    place = Place(entry("a"))
    place.happens(LinkGone(70), Gone(((NAME, "tap70"),)), Changed(((INDEX, 70),)))
    assert place.drift.due() == NEVER


def test_marks_gather() -> None:
    """What one command does is one look."""
    place = Place(entry("a"))
    for _ in range(20):
        place.happens(Gone(((INDEX, 7),)), Changed(((NAME, "tap7"),)))
    assert place.drift.due() == pytest.approx(place.now + GATHER)
    assert place.until() == ["a"]


def test_many_share_a_snapshot() -> None:
    place = Place(*(entry(f"n{number}", 100 + number) for number in range(FEW + 1)))
    place.happens(*[Gone(((TABLE, (5, "guard")),))] * 50)
    assert place.until() == [f"{FEW + 1} together"]


def test_a_storm_is_one_snapshot_after_the_other() -> None:
    """While one is looked at, and as long again after it, there is no other; what comes meanwhile is in the next."""
    place = Place(*(entry(f"n{number}", 100 + number) for number in range(100)))
    place.happens(Gone(((TABLE, (5, "guard")),)))
    place.now += GATHER
    assert len(place.drift.batch(place.now).many) == 100
    for _ in range(50):
        place.happens(Gone(((TABLE, (5, "guard")),)))
        place.now += 0.01
        assert not place.drift.batch(place.now).many and not place.drift.batch(place.now).everything
    place.drift.rested(place.now, 0.5)
    assert place.drift.due() == pytest.approx(place.now + 0.5)
    assert place.until() == ["100 together"]


def test_a_snapshot_keeps_no_device_waiting() -> None:
    place = Place(entry("gone", 7), *(entry(f"n{number}", 100 + number) for number in range(100)))
    place.happens(Overrun("x"))
    assert place.drift.batch(place.now).everything
    place.happens(LinkGone(7))
    assert place.drift.batch(place.now).single == (("gone", place.now),)


@pytest.mark.parametrize("state", [APPLYING, REVERTING])
def test_a_hook_at_work_is_left_alone(state: str) -> None:
    """What it makes is nothing to us, what goes meanwhile is looked at when it is done."""
    place = Place(entry("a", state=state))
    place.happens(Changed(((INDEX, 7),)))
    assert place.until(LATE / 2) == []
    place.happens(Gone(((INDEX, 7),)))
    assert place.until(LATE / 2) == []
    place.written(entry("a"))
    assert place.until() == ["a"]


def test_an_up_is_no_reason_to_look() -> None:
    place = Place()
    place.written(entry("a", state=APPLYING))
    place.happens(Changed(((INDEX, 7), (NAME, "tap7"))), Changed(((TABLE, (5, "guard")),)))
    place.written(entry("a"))
    place.happens(LockClosed(number("a")))
    assert place.until() == []


def test_a_hook_that_died_is_seen_by_its_lock() -> None:
    place = Place()
    place.written(entry("a", state=APPLYING))
    place.happens(LockClosed(number("b") if number("b") != number("a") else 99))
    assert place.until(LATE / 2) == []
    place.happens(LockClosed(number("a")))
    assert place.drift.due() == pytest.approx(place.now + SOON)
    assert place.until(0.1) == ["a"]


def test_a_missed_lock_is_made_up_for() -> None:
    place = Place()
    place.written(entry("a", state=REVERTING))
    assert place.until(LATE) == ["a"]


def test_while_a_hook_is_at_work_we_look_less_and_less() -> None:
    """And at once when it closes its lock."""
    place = Place()
    place.written(entry("a", state=APPLYING))
    looks = 0
    for _ in range(1000):
        if place.until(0.01):
            looks += 1
            place.drift.at_work("a", place.now)
    assert looks < 25
    place.happens(LockClosed(number("a")))
    assert place.until(SOON * 2) == ["a"]


def test_what_failed_is_left_alone_for_a_while() -> None:
    """Whatever happens to it, unless its device goes: our own closing of its lock is no reason either."""
    place = Place(entry("a"))
    place.blocked["a"] = place.now + 3
    place.drift.again("a", place.now + 3)
    place.happens(Gone(((INDEX, 7),)), LockClosed(number("a")))
    assert place.until(2.9) == []
    assert place.until(0.2) == ["a"]
    place.blocked["a"] = place.now + 3
    place.happens(LinkGone(7))
    assert place.until(0.1) == ["a"]


def test_what_comes_is_a_reason_to_look_at_whatever_failed() -> None:
    """In any state; the pause of one that failed ends with it (netagent.agent)."""
    place = Place(entry("a"), entry("b", 8, state=REVERTING))
    for key in ("a", "b"):
        place.blocked[key] = place.now + 300
        place.drift.again(key, place.now + 300)
    assert place.until(1) == []
    place.blocked.clear()
    place.happens(Came(((INDEX, 7), (INDEX, 8))))
    assert sorted(place.until(2 * GATHER)) == ["a", "b"]


def test_a_closing_record_is_looked_at_when_its_device_changes() -> None:
    place = Place(entry("a", state=CLOSING))
    place.happens(Changed(((INDEX, 7),)))
    assert place.until() == ["a"]


def test_what_is_gone_is_forgotten() -> None:
    place = Place(entry("a"))
    place.happens(Gone(((INDEX, 7),)), LinkGone(7))
    place.drift.again("a", place.now + 1)
    place.nics.drop("a")
    place.drift.removed("a")
    place.drift.again("a", place.now + 1)
    place.drift.at_work("a", place.now)
    assert place.until() == []


# -- every order

Step = Callable[[Place, dict[str, Entry]], None]
KEYS = ("a", "b", "c")
steps = st.lists(
    st.tuples(
        st.sampled_from(["gone", "changed", "link", "written", "lock", "overrun", "table", "time", "failed", "at work"]),
        st.sampled_from(KEYS),
        st.sampled_from([APPLYING, UP, CLOSING, REVERTING]),
        st.floats(0, 0.5),
    ),
    max_size=60,
)


@example([("gone", "a", UP, 0.0), ("failed", "a", UP, 0.5), ("time", "a", UP, 0.25), ("written", "a", UP, 0.0)])
@given(steps)
def test_nothing_is_lost_in_any_order(done: list[tuple[str, str, str, float]]) -> None:
    """After every event about a record there is a look at it, or at all, before long; and without events the looks end."""
    entries = {key: entry(key, position + 7) for position, key in enumerate(KEYS)}
    place = Place(*entries.values())
    owed: set[str] = set()
    for what, key, state, seconds in done:
        now = entries[key]
        if what == "gone" or what == "changed" or what == "table":
            mark = (TABLE, (5, "guard")) if what == "table" else (INDEX, now.ifindex)
            place.happens(Changed((mark,)) if what == "changed" else Gone((mark,)))
            owed |= {each.key for each in entries.values() if (what == "table" or each == now) and each.state in (UP, CLOSING)}
        elif what == "link":
            place.happens(LinkGone(now.ifindex))
            owed.add(key)
        elif what == "written":
            entries[key] = now._replace(state=state)
            place.written(entries[key])
            if state in (APPLYING, REVERTING):
                owed.add(key)
            else:
                owed.discard(key) if now.state in (APPLYING, REVERTING) else None
        elif what == "lock":
            place.happens(LockClosed(number(key)))
        elif what == "overrun":
            place.happens(Overrun("x"))
            owed |= set(KEYS)
        elif what == "failed":
            place.blocked[key] = place.now + seconds
            place.drift.again(key, place.now + seconds)
        elif what == "at work" and now.state in (APPLYING, REVERTING):
            place.drift.at_work(key, place.now)
        seen = place.until(seconds if what == "time" else 0)
        owed -= set(KEYS) if "all" in seen or "3 together" in seen else set(seen)
    seen = place.until(2 * LATE)
    assert owed <= (set(KEYS) if "all" in seen or "3 together" in seen else set(seen))
    assert place.until(60) == []


# -- what a record is about


def test_marks_of_a_record() -> None:
    operations = (
        {"kind": "guard-table", "device": "tap0", "name": "netcommon-guard-16", "now": False},
        {"kind": "uplink-vlan", "bridge": "br0", "vid": 10, "port": "eth0", "ifindex": 3, "uplinks": ["eth0"], "device": "tap0"},
        {"kind": "bridge-vlans", "device": "tap0", "ifindex": 7},
        {"kind": "neighbour", "family": 10, "address": "2001:db8::5", "port": "eth1", "ifindex": 4, "uplinks": []},
        {"kind": "of a newer version", "device": "tap0"},
    )
    found = marks_of(record(nic())._replace(operations=operations))
    assert {(INDEX, 7), (NAME, "tap0"), (TABLE, (5, "netcommon-guard-16")), (VLAN, (3, 10)), (VLAN, (7, 0)), (UPLINKS, 10)} <= found
    assert (NAME, "eth0") in found and (NAME, "eth1") in found and (INDEX, 3) not in found


def test_marks_of_a_nic_with_vlans() -> None:
    """A port that joins its bridge may be an uplink, as what the settings name; a VLAN interface anywhere may take its VLAN."""
    port = {"kind": "bridge-port", "device": "tap0", "bridge": "brv", "ifindex": 7, "master": 5}
    waiting = {"kind": "uplink-vlan", "bridge": "brv", "vid": 10, "uplinks": ["tap9"], "device": "tap0", "waits_for": "an uplink of brv"}
    found = marks_of(record(nic())._replace(operations=(port, waiting)))
    assert {(PORTS, 5), (NAME, "tap9"), (VLAN, (0, 10))} <= found
    assert (PORTS, 5) in marks_of(record(nic())._replace(operations=(port,)))  # without VLANs its device may be given another MTU


def test_what_a_nic_stands_on_comes_while_it_is_left_alone() -> None:
    """Check that what failed is tried at once; of one that a hook is at work on, when that is done."""
    waiting = entry("a")._replace(marks=frozenset({(PORTS, 5)}))
    place = Place(waiting, waiting._replace(key="b", state=APPLYING))
    place.drift.again("a", place.now + 60)
    place.happens(Came(((PORTS, 5),)))
    assert place.until(1) == ["a"]
    place.written(waiting._replace(key="b"))
    assert place.until(1) == ["b"] and place.until(120) == []


def test_nics_are_found_by_what_they_are_about_now() -> None:
    nics = Nics()
    first = entry_of(record(nic()))
    nics.put(first)
    assert [each.key for each in nics.about([(INDEX, 7), (NAME, "tap0")])] == [first.key]
    moved = entry_of(record(nic(INTERFACE="tap5"), ifindex=12))
    nics.put(moved)
    assert list(nics.about([(INDEX, 7), (NAME, "tap0")])) == [] and nics.get(first.key) == moved
    assert [each.ifindex for each in nics.about([(NAME, "tap5")])] == [12]
    assert nics.states() == {APPLYING: 1} and nics.keys() == [first.key] and len(nics) == 1
    assert nics.drop(first.key) == moved and nics.drop(first.key) is None
    assert list(nics.about([(INDEX, 12)])) == [] and nics._about == {} and nics._marks == {}
