"""What SQLite reads for what a service does all the time: it does not grow with the registry."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from netregistry.stores.base import Delete, Expect, Item, Put
from netregistry.stores.sqlite import SqliteStore


class Explained:
    """A connection that notes how SQLite carries out what it is asked (https://www.sqlite.org/eqp.html)."""

    def __init__(self, database: Any) -> None:
        self._database = database
        self.plans: dict[str, list[str]] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._database, name)

    def execute(self, query: str, values: Sequence[Any] = ()) -> Any:
        if query.startswith(("SELECT", "DELETE", "UPDATE", "INSERT")):
            self.plans[query] = [row[3] for row in self._database.execute(f"EXPLAIN QUERY PLAN {query}", values)]
        return self._database.execute(query, values)

    def executemany(self, query: str, rows: Sequence[Sequence[Any]]) -> Any:
        for row in rows:
            self.execute(query, row)


def test_nothing_but_a_listing_reads_what_it_does_not_give() -> None:
    """With hundreds of thousands of keys each lease that ended had read them all, and thousands had ended at once."""
    time = [0.0]
    store = SqliteStore.create(":memory:", "first", lambda: time[0])
    store._database = explained = Explained(store._database)  # type: ignore[assignment]
    leases = [store.grant(10), store.grant(10), store.grant(100)]
    for lease in leases:
        store.commit([Expect(f"alive/{lease}", 0)], [Put(f"alive/{lease}", b"", lease), Put(f"plain/{lease}", b"")])
    middle = store.commit([], [Put("plain/1", b"2"), Delete("plain/2")])
    with store.watch("", 1) as watch:
        while watch.next(0.0).changes:
            pass
    assert store.get("plain/1")
    store.list("plain/", limit=1), store.list("plain/", "plain/1", 1, middle - 1)
    assert store.keep(leases[0])
    time[0] = 50.0
    assert store.tick() == 50.0 and not store.list("alive/1", limit=5).items
    store.revoke(leases[2])
    store.compact(middle)
    assert len(explained.plans) > 10
    assert {query: plan for query, plan in explained.plans.items() if any(step.startswith("SCAN") for step in plan)} == {}
    store.close()


@pytest.mark.parametrize("number", [1, 3000])
def test_leases_that_end_at_once_end_in_few_commits(number: int) -> None:
    """A service that was held up finds thousands: each commit is one synchronisation of the disk, and a line for every hearer."""
    time = [0.0]
    store = SqliteStore.create(":memory:", "first", lambda: time[0])
    for each in range(number):
        store.commit([], [Put(f"alive/{each}", b"", store.grant(10))])
    before = store.list("", limit=1).revision
    time[0] = 11.0
    store.tick()
    assert store.list("alive/").items == () and store.list("", limit=1).revision - before <= 1 + number // 200
    store.close()


def compacted(store: SqliteStore) -> int:
    """Compact a store up to now; give the steps that SQLite's machine has taken, which do not depend on how busy this one is."""
    counted: list[None] = []
    store._database.set_progress_handler(lambda: counted.append(None), 1)
    store.compact(store.list("", limit=1).revision)
    store._database.set_progress_handler(None, 0)
    return len(counted)


def test_a_compaction_reads_what_came_since_the_last_one() -> None:
    """It is done every minute, and nobody is answered meanwhile: with hundreds of thousands of keys it had read each of them."""
    steps = []
    for number in (100, 2000):
        store = SqliteStore.create(":memory:", "first")
        for each in range(number):
            store.commit([], [Put(f"k{each}", b"1")])
        compacted(store)
        last = [store.commit([], [change]) for change in (Put("k1", b"2"), Put("k1", b"3"), Delete("k2"), Put("new", b"1"))][-1]
        steps.append(compacted(store))
        left = store._database.execute("SELECT count(*), sum(key IN ('k1', 'new')) FROM versions").fetchone()
        assert left == (number, 2) and store.get("k1") == Item("k1", b"3", last - 2) and store.get("k2") is None
        store.close()
    assert steps[1] < steps[0] * 1.2


def test_a_key_that_each_commit_writes_makes_a_compaction_no_longer_than_others() -> None:
    """The ledger is such a key, and an hour may have hundreds of thousands of commits."""
    steps = []
    for number in (100, 2000):
        store = SqliteStore.create(":memory:", "first")
        for each in range(number):
            store.commit([], [Put("ledger", str(each).encode()), Put(f"history/{each}", b"1")])
        steps.append(compacted(store))
        assert store._database.execute("SELECT count(*) FROM versions WHERE key = 'ledger'").fetchone() == (1,)
        store.close()
    assert steps[1] < steps[0] * 20 * 1.5
