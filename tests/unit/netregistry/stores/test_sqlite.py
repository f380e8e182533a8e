"""What SQLite reads for what a service does all the time: it does not grow with the registry."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from netregistry.stores.base import Delete, Expect, Put
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
