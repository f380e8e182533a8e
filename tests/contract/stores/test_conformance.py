"""Hold every engine of a store to what all do in the same way (netregistry.stores.base)."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from typing import NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from netregistry.stores.base import (
    LARGEST,
    LONGEST_KEY,
    LONGEST_VALUE,
    MOST,
    Ahead,
    Batch,
    Changed,
    Compacted,
    Conflict,
    Delete,
    Expect,
    Item,
    Lost,
    Put,
    Store,
    Unavailable,
    Watch,
)
from tests.contract.stores.conftest import ENGINES, Engine
from tests.support.sample import FULL, sample

#: Etcd's time passes as it does, for many seconds: one member and three in a full run, three otherwise.
LEASES = pytest.mark.parametrize("engine", sample(ENGINES, 2), indirect=True)


def put(store: Store, key: str, value: bytes) -> int:
    return store.commit([], [Put(key, value)])


def now(store: Store, prefix: str = "", revision: int = 0) -> dict[str, bytes]:
    return {item.key: item.value for item in store.list(prefix, revision=revision).items}


def drain(watch: Watch) -> list[Batch]:
    """Give what there is: a heartbeat says that there is no more."""
    found = []
    while (batch := watch.next(0.0)).changes:
        found.append(batch)
    return found


def compacted_or(watch: Watch, floor: int, revisions: list[int]) -> bool:
    """Tell whether a watch that was open at a compaction says so, or gives all that there was: a part of it would be a lie."""
    try:
        return [batch.revision for batch in drain(watch)] == revisions
    except Compacted as refused:
        return refused.floor == floor


def test_a_commit_is_whole_or_nothing(store: Store) -> None:
    first = store.commit([Expect("a", 0)], [Put("a", b"1"), Put("b", b"2")])
    assert store.get("a") == Item("a", b"1", first) and store.get("b") == Item("b", b"2", first)
    with pytest.raises(Conflict) as refused:
        store.commit([Expect("a", first), Expect("b", 0)], [Put("a", b"3"), Delete("b")])
    assert (refused.value.key, refused.value.revision) == ("b", first)
    assert now(store) == {"a": b"1", "b": b"2"}
    second = store.commit([Expect("a", first)], [Put("a", b"3"), Delete("b")])
    assert second > first and now(store) == {"a": b"3"} and store.get("b") is None
    with pytest.raises(Conflict) as refused:
        store.commit([Expect("b", first)], [Put("b", b"4")])
    assert refused.value.revision == 0


def test_what_changes_nothing_has_no_revision(store: Store) -> None:
    first = put(store, "a", b"1")
    assert store.commit([Expect("a", first)], []) == first
    assert store.commit([], [Delete("b")]) == first
    assert put(store, "a", b"1") > first, "the same value written again is a change"


def test_the_same_request_is_done_once(store: Store) -> None:
    """A test that the request's own key is absent decides what became of a commit that was not answered."""
    request = [Expect("history/1", 0)], [Put("history/1", b"x"), Put("a", b"1")]
    done = store.commit(*request)
    store.commit([Expect("a", done)], [Delete("a")])
    with pytest.raises(Conflict) as refused:
        store.commit(*request)
    assert refused.value.key == "history/1" and store.get("a") is None, "a delayed copy writes nothing after a deletion"


@pytest.mark.parametrize("key", ["", " ", "a b", "\x7f", "é", "a\n", "x" * (LONGEST_KEY + 1)])
def test_keys_that_no_store_can_have(store: Store, key: str) -> None:
    for attempt in (lambda: store.get(key), lambda: put(store, key, b""), lambda: store.commit([Expect(key, 0)], [])):
        with pytest.raises(ValueError):
            attempt()
    assert now(store) == {}


def test_limits(store: Store) -> None:
    most = [Put(f"k{number:03}", b"") for number in range(MOST)]
    store.commit([Expect(each.key, 0) for each in most], most)
    put(store, "big", bytes(LONGEST_VALUE))
    names = [f"{number:03}".rjust(LONGEST_KEY, "n") for number in range(MOST)]
    room = (LARGEST - 2 * MOST * LONGEST_KEY) // MOST
    store.commit([Expect(name, 0) for name in names], [Put(name, bytes(room)) for name in names])
    assert len(store.list("k").items) == MOST and len(store.get("big").value) == LONGEST_VALUE  # type: ignore[union-attr]
    before = store.list("").revision
    for tests, changes in (
        ([], [*most, Put("one-more", b"")]),
        ([Expect(f"k{number}", 0) for number in range(MOST + 1)], []),
        ([], [Put("twice", b""), Delete("twice")]),
        ([Expect("twice", 0), Expect("twice", 1)], []),
        ([], [Put("big", bytes(LONGEST_VALUE + 1))]),
        ([], [Put("one", bytes(LARGEST // 2)), Put("two", bytes(LARGEST // 2))]),
        ([Expect("a", -1)], []),
    ):
        with pytest.raises(ValueError):
            store.commit(tests, changes)
    assert store.list("").revision == before


def test_bytes_come_back_as_they_went(store: Store) -> None:
    for number, value in enumerate((b"", b"\0", bytes(range(256)), "é".encode(), b'{"a": 1}')):
        put(store, f"k{number}", value)
        assert store.get(f"k{number}").value == value  # type: ignore[union-attr]


def test_listings_in_pages_of_one_revision(store: Store) -> None:
    for number in range(10):
        put(store, f"a/{number}", b"old")
    put(store, "a", b"")
    put(store, "a0", b"")
    put(store, "b/1", b"")
    first = store.list("a/", limit=4)
    assert [item.key for item in first.items] == ["a/0", "a/1", "a/2", "a/3"] and first.more
    store.commit([], [Delete("a/5"), Put("a/6", b"new"), Put("a/55", b"new")])
    second = store.list("a/", after="a/3", limit=4, revision=first.revision)
    assert [(item.key, item.value) for item in second.items] == [(f"a/{number}", b"old") for number in range(4, 8)]
    third = store.list("a/", after="a/7", limit=4, revision=first.revision)
    assert [item.key for item in third.items] == ["a/8", "a/9"] and not third.more and third.revision == first.revision
    assert [item.key for item in store.list("a/").items] == [f"a/{name}" for name in ("0", "1", "2", "3", "4", "55", "6", "7", "8", "9")]
    assert not store.list("a/", limit=10).more
    assert store.list("a/", after="a/9").items == () and store.list("nothing/").items == ()


def test_a_watch_gives_each_commit_whole_once_and_in_order(store: Store) -> None:
    first = put(store, "a/1", b"1")
    start = store.list("a/").revision + 1
    with store.watch("a/", start) as watch:
        assert watch.next(0.0) == Batch(first, ())
        second = store.commit([], [Put("a/2", b"2"), Put("b/1", b""), Delete("a/1")])
        put(store, "b/2", b"")
        third = put(store, "a/2", b"3")
        assert watch.next(1.0) == Batch(second, (Changed("a/2", b"2"), Changed("a/1", None)))
        assert watch.next(1.0) == Batch(third, (Changed("a/2", b"3"),))
        other = put(store, "b/3", b"")
        assert watch.next(0.3) == Batch(other, ())
    with pytest.raises(Lost):
        watch.next(0.0)
    with store.watch("a/", second) as again:
        assert [batch.revision for batch in drain(again)] == [second, third]


def test_a_watch_waits_in_its_thread(store: Store) -> None:
    found: list[Batch] = []
    with store.watch("", store.list("").revision + 1) as watch:
        waiting = threading.Thread(target=lambda: found.append(watch.next(30.0)))
        waiting.start()
        done = put(store, "a", b"1")
        waiting.join(10)
    assert found == [Batch(done, (Changed("a", b"1"),))]


def test_closing_ends_a_watch_that_waits(store: Store) -> None:
    raised: list[BaseException] = []
    watch = store.watch("", store.list("").revision + 1)

    def wait() -> None:
        try:
            watch.next(30.0)
        except Lost as error:
            raised.append(error)

    waiting = threading.Thread(target=wait)
    waiting.start()
    watch.close()
    waiting.join(10)
    assert len(raised) == 1


def test_closing_the_store_ends_its_watches(store: Store) -> None:
    watch = store.watch("", put(store, "a", b"1") + 1)
    store.close()
    for attempt in (lambda: watch.next(0.0), lambda: watch.next(30.0)):
        with pytest.raises(Lost):
            attempt()
    for again in (lambda: store.get("a"), lambda: put(store, "a", b"2"), lambda: store.list("")):
        with pytest.raises(Unavailable):
            again()
    store.close()


def test_compaction(store: Store) -> None:
    """Forget what was overwritten or removed; a removal does not bring back what was there before it."""
    put(store, "kept", b"1")
    old = put(store, "a", b"1")
    put(store, "a", b"2")
    floor = store.commit([], [Delete("a")])
    late = put(store, "b", b"1")
    before = store.watch("", old)
    store.compact(floor)
    assert now(store) == {"kept": b"1", "b": b"1"} == now(store, revision=late)
    assert now(store, revision=floor) == {"kept": b"1"}
    for attempt in (lambda: store.list("", revision=old), lambda: store.watch("", floor), lambda: store.compact(old)):
        with pytest.raises(Compacted) as refused:
            attempt()
        assert refused.value.floor == floor
    assert compacted_or(before, floor, [old, old + 1, floor, late])
    with store.watch("", floor + 1) as watch:
        assert [batch.revision for batch in drain(watch)] == [late]
    store.compact(floor)


def test_what_has_not_been(store: Store) -> None:
    newest = put(store, "a", b"1")
    for attempt in (
        lambda: store.list("", revision=newest + 1),
        lambda: store.watch("", newest + 2),
        lambda: store.compact(newest + 1),
    ):
        with pytest.raises(Ahead):
            attempt()


def test_all_of_it_is_there_after_a_restart(engine: Engine) -> None:
    store = engine.store
    old = put(store, "a", b"1")
    newest = store.commit([], [Put("a", b"2"), Put("b", b"1")])
    again = engine.reopen()
    assert again.epoch == "first" and now(again) == {"a": b"2", "b": b"1"} and now(again, revision=old) == {"a": b"1"}
    with again.watch("", old) as watch:
        assert [batch.revision for batch in drain(watch)] == [old, newest]
    assert put(again, "c", b"") > newest


@LEASES
def test_leases(engine: Engine) -> None:
    store = engine.store
    lease, other = store.grant(10 * engine.second), store.grant(100)
    assert lease > 0 and other not in (0, lease)
    put(store, "plain", b"")
    start = store.commit([], [Put("alive/1", b"", lease), Put("alive/2", b"", lease), Put("alive/3", b"", other)]) + 1
    engine.passes(6)
    assert store.keep(lease)
    engine.passes(6)
    assert len(now(store, "alive/")) == 3
    engine.passes(5, lambda: sorted(now(store)) == ["alive/3", "plain"])
    assert not store.keep(lease)
    with store.watch("alive/", start) as watch:
        (batch,) = drain(watch)
    assert batch.changes == (Changed("alive/1", None), Changed("alive/2", None)), "one commit"
    with pytest.raises(ValueError):
        store.commit([], [Put("alive/1", b"", lease)])
    store.revoke(other)
    store.revoke(other)
    assert sorted(now(store)) == ["plain"]
    for seconds in (0, -1, 1e9, float("nan")):
        with pytest.raises(ValueError):
            store.grant(seconds)


def test_many_leases_are_kept_at_once(store: Store) -> None:
    leases = [store.grant(1000) for _ in range(40)]
    store.commit([], [Put(f"alive/{number}", b"", lease) for number, lease in enumerate(leases)])
    ended = leases[::4]
    for lease in ended:
        store.revoke(lease)
    assert store.keep_all(leases) == frozenset(leases) - frozenset(ended)
    assert store.keep_all([]) == frozenset() and len(now(store)) == 30


@LEASES
def test_a_key_written_without_its_lease_stays(engine: Engine) -> None:
    lease = engine.store.grant(10 * engine.second)
    engine.store.commit([], [Put("a", b"1", lease), Put("b", b"1", lease)])
    put(engine.store, "a", b"2")
    engine.passes(11, lambda: now(engine.store) == {"a": b"2"})


@LEASES
def test_a_lease_begins_anew_after_a_restart(engine: Engine) -> None:
    lease = engine.store.grant(10 * engine.second)
    engine.store.commit([], [Put("a", b"", lease)])
    engine.passes(6)
    store = engine.reopen()
    engine.passes(6)
    assert now(store) == {"a": b""} and store.keep(lease)
    engine.passes(11, lambda: now(store) == {})


def test_many_threads(store: Store) -> None:
    """Let eight threads count one key up, each only from the value that it has read: none of their steps is lost."""

    def count() -> None:
        done = 0
        while done < 25:
            item = store.get("count")
            try:
                if item is None:
                    store.commit([Expect("count", 0)], [Put("count", b"1")])
                else:
                    store.commit([Expect("count", item.revision)], [Put("count", str(int(item.value) + 1).encode())])
                done += 1
            except Conflict:
                pass

    threads = [threading.Thread(target=count) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert store.get("count").value == b"200"  # type: ignore[union-attr]


KEYS = st.sampled_from(["a", "a/", "a/b", "a/b/c", "b", "~"])
PUTS = st.builds(Put, KEYS, st.binary(max_size=3), st.just(0))
CHANGES = st.lists(st.one_of(PUTS, st.builds(Delete, KEYS)), max_size=4, unique_by=lambda one: one.key)


class Step(NamedTuple):
    """One commit: the keys that it tests, of which the first may be said to be at an earlier revision than it is; None: a compaction."""

    tested: list[str]
    earlier: int
    changes: list[Put | Delete] | None


STEPS = st.builds(Step, st.lists(KEYS, max_size=2, unique=True), st.integers(0, 2), st.one_of(CHANGES, CHANGES, st.none()))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], deadline=None, max_examples=60 if FULL else 20)
@given(st.lists(STEPS, max_size=25), st.data())
def test_any_history(fresh: Callable[[], Store], steps: list[Step], data: st.DataObject) -> None:
    """Hold the store against a list of all that it ever held, after each step."""
    with contextlib.closing(fresh()) as store:
        history(store, steps, data)


def history(store: Store, steps: list[Step], data: st.DataObject) -> None:
    """Do some steps, and compare."""
    newest = floor = store.list("").revision
    states: dict[int, dict[str, tuple[bytes, int]]] = {newest: {}}  # by revision: value and revision of each key
    began = newest
    commits: list[Batch] = []
    watch = store.watch("a", newest + 1)
    for tested, earlier, changes in steps:
        if changes is None:
            floor = data.draw(st.integers(floor, newest))
            store.compact(floor)
            continue
        state = states[newest]
        true = [Expect(key, state[key][1] if key in state else 0) for key in tested]
        tests = [each._replace(revision=max(each.revision - (0 if number else earlier), 0)) for number, each in enumerate(true)]
        if tests != true:
            with pytest.raises(Conflict):
                store.commit(tests, changes)
            continue
        done = store.commit(tests, changes)
        real = [change for change in changes if isinstance(change, Put) or change.key in state]
        if not real:
            assert done == newest
            continue
        assert done > newest
        newest = done
        states[done] = {key: found for key, found in state.items() if key not in {change.key for change in real}}
        states[done] |= {change.key: (change.value, done) for change in real if isinstance(change, Put)}
        commits.append(Batch(done, tuple(Changed(each.key, each.value if isinstance(each, Put) else None) for each in real)))
    for revision, state in states.items():
        if revision and revision >= floor:
            for prefix in ("", "a", "a/", "b"):
                found = {item.key: (item.value, item.revision) for item in store.list(prefix, revision=revision).items}
                assert found == {key: each for key, each in state.items() if key.startswith(prefix)}
    assert {item.key: (item.value, item.revision) for item in store.list("").items} == states[newest]
    expected = [
        Batch(batch.revision, below)
        for batch in commits
        if batch.revision > floor and (below := tuple(change for change in batch.changes if change.key.startswith("a")))
    ]
    if floor > began:
        below = [batch.revision for batch in commits if any(change.key.startswith("a") for change in batch.changes)]
        assert compacted_or(watch, floor, below)
        watch = store.watch("a", floor + 1)
    assert drain(watch) == expected
