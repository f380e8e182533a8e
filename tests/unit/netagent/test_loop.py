"""The loop of the main thread, the queue of work, and the threads that work it off."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netagent.loop import CROWD, Loop
from netagent.reconcile.keyed_pool import Key, Keyed, Pool
from tests.support.netns import wait_until


class Hand:
    """A clock by hand."""

    now = 50.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Hand:
    return Hand()


@pytest.fixture
def errors() -> list[Exception]:
    return []


@pytest.fixture
def loop(clock: Hand, errors: list[Exception]) -> Iterator[Loop]:
    made = Loop(clock, errors.append)
    yield made
    made.close()


def test_timers_run_in_order(loop: Loop, clock: Hand) -> None:
    ran: list[str] = []
    for when, name in ((52, "c"), (51, "a"), (51, "b"), (60, "late")):
        loop.at(when, lambda name=name: ran.append(name))  # type: ignore[misc]
    never = loop.after(0.5, lambda: ran.append("never"))
    never.cancel()
    loop.turn(0)
    assert ran == []
    clock.now = 52
    loop.turn(0)
    assert ran == ["a", "b", "c"]


def test_cancelled_timers_go_long_before_their_time(loop: Loop, clock: Hand) -> None:
    """One that is set anew for a time in 90 days, whenever something is heard of: the ones before are behind another that lives."""
    ran: list[str] = []
    alive = [loop.at(100 + number, lambda number=number: ran.append(f"{number}")) for number in range(CROWD)]  # type: ignore[misc]
    last = loop.at(9e6, lambda: ran.append("end"))
    for _ in range(20 * CROWD):
        last.cancel()
        last = loop.at(9e6, lambda: ran.append("end"))
    assert len(loop._timers) <= 2 * (len(alive) + 1) + 1
    alive[1].cancel()
    clock.now = 1e7
    loop.turn(0)
    assert ran == ["0", *(f"{number}" for number in range(2, CROWD)), "end"]


def test_a_timer_may_set_another(loop: Loop, clock: Hand) -> None:
    ran: list[float] = []

    def again() -> None:
        ran.append(clock.now)
        if len(ran) < 3:
            loop.after(1, again)

    loop.after(1, again)
    for _ in range(10):
        clock.now += 0.5
        loop.turn(0)
    assert ran == [51, 52, 53]


def test_descriptors(loop: Loop) -> None:
    reader, writer = os.pipe()
    read: list[bytes] = []
    loop.watch(reader, lambda: read.append(os.read(reader, 10)))
    os.write(writer, b"x")
    loop.turn(1)
    loop.forget(reader)
    loop.forget(reader)
    os.write(writer, b"y")
    loop.turn(0)
    assert read == [b"x"]
    os.close(reader)
    os.close(writer)


def test_an_error_ends_nothing(loop: Loop, errors: list[Exception]) -> None:
    ran: list[int] = []
    loop.at(0, lambda: ran.append(1 // 0))
    loop.at(0, lambda: ran.append(2))
    loop.tell(lambda: ran.append(3 // 0))
    loop.turn(0)
    loop.turn(0)
    assert ran == [2] and len(errors) == 2


def test_other_threads_wake_it_up(loop: Loop) -> None:
    ran: list[int] = []
    threads = [threading.Thread(target=lambda: [loop.tell(lambda: ran.append(1)) for _ in range(100)]) for _ in range(4)]
    stopper = threading.Thread(target=lambda: [*(thread.join() for thread in threads), loop.stop()])
    for thread in (*threads, stopper):
        thread.start()
    loop.run()
    stopper.join()
    assert len(ran) == 400


# -- work


def key(name: str, sort: str = "look") -> Key:
    return Key(sort, name)


def test_one_at_a_time_for_a_key() -> None:
    queue: Keyed[None] = Keyed({})
    jobs = [lambda _context: None for _ in range(3)]
    queue.put(key("a"), jobs[0])
    queue.put(key("b"), jobs[1])
    assert queue.take() == (key("a"), jobs[0])
    queue.put(key("a"), jobs[1])
    queue.put(key("a"), jobs[2])
    assert queue.take() == (key("b"), jobs[1]) and queue.take() is None and queue.waiting == 1
    queue.done(key("a"))
    assert queue.take() == (key("a"), jobs[2]) and queue.take() is None
    queue.done(key("a"))
    assert not queue.idle
    queue.done(key("b"))
    assert queue.idle


def test_limits_of_a_sort() -> None:
    queue: Keyed[None] = Keyed({"scripts": 1})
    for name in ("a", "b"):
        queue.put(key(name, "scripts"), lambda _context: None)
    queue.put(key("c"), lambda _context: None)
    assert [taken[0].name for taken in iter(queue.take, None)] == ["a", "c"]
    queue.done(key("a", "scripts"))
    assert [taken[0].name for taken in iter(queue.take, None)] == ["b"]


@given(st.lists(st.tuples(st.sampled_from(["put", "take", "done"]), st.sampled_from("abc")), max_size=80))
def test_no_work_is_lost_or_doubled(steps: list[tuple[str, str]]) -> None:
    """What was put is begun after that, however often it was put; never twice at once."""
    queue: Keyed[None] = Keyed({"look": 2})
    owed: set[str] = set()
    running: set[str] = set()
    for step, name in steps:
        if step == "put":
            queue.put(key(name), lambda _context: None)
            owed.add(name)
        elif step == "take" and (taken := queue.take()):
            assert taken[0].name in owed - running
            owed.discard(taken[0].name)
            running.add(taken[0].name)
            assert len(running) <= 2
        elif step == "done" and name in running:
            running.discard(name)
            queue.done(key(name))
    while running or (taken := queue.take()):
        if running:
            queue.done(key(running.pop()))
        elif taken:
            owed.discard(taken[0].name)
            running.add(taken[0].name)
    assert owed == set() and queue.idle


def test_threads() -> None:
    """Each with a context of its own, which ends with it; a job that fails ends nothing."""
    failed: list[tuple[Key, str]] = []
    contexts: list[list[int]] = []
    ended: list[list[int]] = []
    finished = threading.Event()
    lock = threading.Lock()

    def make() -> list[int]:
        contexts.append([])
        return contexts[-1]

    def job(context: list[int]) -> None:
        context.append(1)
        with lock:
            if sum(map(len, contexts)) == 300:
                finished.set()

    pool: Pool[list[int]] = Pool(3, make, ended.append, lambda key, error: failed.append((key, str(error))))
    pool.put(key("bad"), lambda context: context.pop() and None)
    for number in range(300):
        pool.put(key(str(number)), job)
    assert finished.wait(20)
    pool.close(20)
    assert failed == [(key("bad"), "pop from empty list")]
    assert 1 <= len(contexts) <= 3 and sorted(map(len, ended)) == sorted(map(len, contexts)) and sum(map(len, contexts)) == 300
    pool.put(key("late"), job)
    assert sum(map(len, contexts)) == 300 and pool.running() == {}


def test_a_context_that_cannot_be_made_is_tried_again() -> None:
    failed: list[str] = []
    done = threading.Event()
    attempts = iter((False, True))

    def make() -> int:
        if not next(attempts):
            raise OSError("not now")
        return 1

    pool: Pool[int] = Pool(1, make, lambda _context: None, lambda _key, error: failed.append(str(error)))
    pool.put(key("a"), lambda _context: done.set())
    pool.put(key("b"), lambda _context: done.set())
    assert done.wait(20)
    pool.close(20)
    assert failed == ["not now"]


def test_two_jobs_and_one_free_thread() -> None:
    """The free thread takes one; the other one gets a thread of its own, and waits for nobody."""
    pool: Pool[None] = Pool(6, lambda: None, lambda _context: None, lambda _key, _error: None)
    first, done, go = threading.Event(), threading.Event(), threading.Event()
    pool.put(key("first"), lambda _context: first.set())
    assert first.wait(20)
    wait_until(lambda: pool.idle, 20)
    pool.put(key("slow"), lambda _context: go.wait(20) and None)
    pool.put(key("quick"), lambda _context: done.set())
    assert done.wait(5)
    go.set()
    pool.close(20)
