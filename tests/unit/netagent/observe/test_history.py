"""The agent's journal: what becomes news, the ring that stays small, and readers that come late."""

from __future__ import annotations

import json
import threading

import pytest

from netagent.events import INDEX
from netagent.index import Entry
from netagent.observe.alarms import Alarms
from netagent.observe.history import AT_ONCE, KEPT, KINDS, LONGEST, Journal, change
from netagent.observe.metrics import Metrics
from netcommon.lifecycle.gc import KEPT as STAYS
from netcommon.lifecycle.gc import REMOVED, Found
from netcommon.log import recording
from runtime.record import APPLYING, CLOSING, REVERTING, UP
from tests.support.nics import nic, record


def entry(state: str, ifindex: int = 7, mark: str = "") -> Entry:
    return Entry("key", "uuid", "tap0", ifindex, state, "web1", frozenset({(INDEX, ifindex), ("name", mark)}), "web1/0")


def journal(kept: int = KEPT) -> Journal:
    made = Journal(lambda: 1000.0, kept)
    made.begin()
    return made


def kinds(made: Journal) -> list[str]:
    return [each["kind"] for each in made.since(0)["events"]][1:]  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("before", "after", "kind"),
    [
        (None, entry(APPLYING), ""),
        (entry(APPLYING), entry(UP), "up"),
        (None, entry(UP), "up"),
        (entry(UP), entry(UP), ""),
        (entry(UP), entry(UP, 8), "changed"),
        (entry(UP), entry(UP, mark="br1"), "changed"),
        (entry(UP), entry(CLOSING), "closing"),
        (entry(CLOSING), entry(CLOSING), ""),
        (entry(UP), entry(REVERTING), ""),
        (entry(REVERTING), None, "down"),
        (entry(UP), None, "down"),
        (entry(CLOSING), None, "down"),
        (entry(APPLYING), None, "failed"),
        (None, None, ""),
    ],
)
def test_what_becomes_of_a_record(before: Entry | None, after: Entry | None, kind: str) -> None:
    assert change(before, after) == kind and kind in ("", *KINDS)
    made = journal()
    made.became(before, after)
    assert kinds(made) == ([kind] if kind else [])


def test_what_was_there_at_the_start_is_no_news() -> None:
    made = Journal(lambda: 1000.0)
    made.became(None, entry(UP))
    assert made.since(0)["events"] == []
    made.begin()
    assert [each["kind"] for each in made.since(0)["events"]] == ["agent started"]  # type: ignore[attr-defined]


def test_drift_is_told_once() -> None:
    """Until it is repaired, holds again, or the NIC is another."""
    made, one = journal(), record(nic(), 7)
    for _ in range(3):
        made.drifted(one, ["a", "b"])
    made.drifted(one, ["b", "c"])
    assert kinds(made) == ["drift", "drift", "drift"]
    made.repaired(one, "repaired a")
    made.drifted(one, ["a"])
    made.drifted(one, [])
    made.drifted(one, ["a"])
    assert kinds(made)[3:] == ["repaired", "drift", "drift"]
    made.stuck(one, "the host refused")
    made.undone(one, "nobody called a down for it")
    assert kinds(made)[6:] == ["not repaired", "reaped"]
    told = made.since(0)["events"][-1]  # type: ignore[index]
    assert (told["label"], told["device"], told["uuid"]) == (one.nic.label, one.device, one.uuid)


def test_reaping_alarms_and_losses() -> None:
    made = journal()
    made.reaped([Found("web1/0 on tap0", "its device is gone", REMOVED), Found("x", "y", STAYS)])
    alarms = Alarms(recording()[0], Metrics(), made.alarm)
    alarms.set("inventory", "it failed")
    alarms.set("inventory", "it failed")
    alarms.clear("inventory")
    alarms.clear("inventory")
    made.lost("inotify")
    made.gone([entry(UP)])
    assert kinds(made) == ["reaped", "alarm", "alarm over", "events lost", "device gone"]


def test_readers_take_what_they_have_not_seen() -> None:
    made = journal()
    for number in range(5):
        made.note("up", f"web{number}/0")
    answer = made.since(0)
    assert (answer["last"], answer["missed"], [each["number"] for each in answer["events"]]) == (6, 0, [1, 2, 3, 4, 5, 6])  # type: ignore[attr-defined]
    assert [each["number"] for each in made.since(4)["events"]] == [5, 6]  # type: ignore[attr-defined]
    assert made.since(6)["events"] == [] and made.asked("x") == made.asked("") == made.since(0) == made.asked("9" * 20)
    assert made.asked("5") == made.since(5) and json.loads(json.dumps(answer)) == answer
    assert len(made.since(99)["events"]) == 6  # type: ignore[arg-type]


def test_a_late_reader_is_told_how_many_it_missed() -> None:
    """The ring keeps so many, and no more are told at once."""
    made = journal(10)
    for _ in range(30):
        made.note("up")
    answer = made.since(5)
    assert (answer["missed"], len(answer["events"]), answer["events"][0]["number"]) == (16, 10, 22)  # type: ignore[arg-type,index]
    big = journal(AT_ONCE + 50)
    for _ in range(AT_ONCE + 40):
        big.note("up")
    first = big.since(0)["events"]
    assert len(first) == AT_ONCE  # type: ignore[arg-type]
    assert len(big.since(first[-1]["number"])["events"]) == 41  # type: ignore[index,arg-type]


def test_memory_stays_flat() -> None:
    """However much happens, and however long its texts are."""
    made = journal(100)
    for number in range(1000):
        made.note("drift", f"web{number}/0", "tap0", "uuid", "x" * 10000)
    events = made.since(0)["events"]
    assert len(events) == 100 and max(len(each["text"]) for each in events) == LONGEST  # type: ignore[arg-type,attr-defined]
    for number in range(50):
        one = record(nic(INTERFACE_UUID=f"{number:08x}-1111-4222-8333-444444444444"), 7)
        made.drifted(one, ["a"])
        made.became(Entry(one.key, one.uuid, "tap0", 7, UP, "", frozenset()), None)
    assert made._drift == {}


def test_threads_may_all_write() -> None:
    made = journal()

    def write() -> None:
        for _ in range(500):
            made.note("up")

    threads = [threading.Thread(target=write) for _ in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    numbers = [each["number"] for each in made.since(1)["events"]]  # type: ignore[attr-defined]
    assert numbers == list(range(2, 2002))


def test_a_name_is_held_once() -> None:
    """Ten thousand events, each with names of its own, were five megabytes of an agent that has thirty."""
    journal = Journal(lambda: 0.0)
    for _ in range(2):
        journal.note(KINDS[0], *(bytes(word, "ascii").decode() for word in ("web1/0", "tap0", "uuid", "some text")))
    first, second = journal._ring
    assert all(one is other for one, other in zip(first[3:], second[3:], strict=True))
