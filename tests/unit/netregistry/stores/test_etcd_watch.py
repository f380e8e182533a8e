"""A watch of an etcd that goes back: it goes on from no history in another one."""

from __future__ import annotations

import base64
import json
from typing import NoReturn

import pytest

from netregistry.stores.base import Ahead, Changed, Unavailable
from netregistry.stores.etcd_stream import Cut
from netregistry.stores.etcd_watch import EtcdWatch

Commit = dict[bytes, bytes | None]


class Line:
    """A stream of what an etcd has from a revision on."""

    where = "m0"

    def __init__(self, etcd: Etcd, start: int) -> None:
        self._etcd, self._next, self._of = etcd, start, etcd.begun

    @property
    def ready(self) -> bool:
        return self._of != self._etcd.begun

    def line(self, seconds: float) -> bytes | None:
        if self._of != self._etcd.begun:
            raise Cut("the connection has ended")
        if self._next > self._etcd.newest():
            return None
        events = []
        for key, value in self._etcd.commits[self._next - 1].items():
            pair = {"key": text(key), "mod_revision": str(self._next)}
            events.append({"kv": pair | {"value": text(value)}} if value is not None else {"type": "DELETE", "kv": pair})
        self._next += 1
        return json.dumps({"result": {"events": events}}).encode()

    def close(self) -> None:
        pass


class Etcd:
    """An etcd in memory; a commit is what it has written."""

    def __init__(self, *commits: Commit) -> None:
        self.commits, self.begun = list(commits), 0

    def put(self, name: str) -> Commit:
        """Do one commit, as a registry's are."""
        commit: Commit = {b"netcommon/registry/ledger": b"same", b"netcommon/registry/history/" + name.encode(): b"{}"}
        self.commits.append(commit)
        return commit

    def goes_back(self, to: int) -> None:
        """Take the state of a revision, as after a restart from an earlier disk: connections are cut."""
        del self.commits[to:]
        self.begun += 1

    def newest(self) -> int:
        return len(self.commits)

    def begin(self, start: int, told: tuple[bytes, bytes] | None) -> Line:
        if start > self.newest() + 1:
            raise Ahead(start, self.newest())
        if told is not None and self.commits[start - 2].get(told[0]) != told[1]:
            self.gone_back(start - 1, self.newest())
        return Line(self, start)

    def gone_back(self, known: int, newest: int) -> NoReturn:
        raise Unavailable(f"gone back from {known}")

    def watch(self) -> EtcdWatch:
        def change(key: bytes, value: bytes | None) -> Changed:
            return Changed(key.decode(), value)

        return EtcdWatch(self.begin, self.newest, change, lambda found: found, lambda _: None, self.gone_back, self.newest() + 1)  # type: ignore[arg-type]


def text(value: bytes) -> str:
    return base64.b64encode(value).decode()


@pytest.fixture
def etcd() -> Etcd:
    return Etcd({b"netcommon/epoch": b"first"})


def told(watch: EtcdWatch) -> int:
    """Give the revision up to which a watch has told all."""
    while (batch := watch.next(0.0)).changes:
        pass
    return batch.revision


@pytest.mark.parametrize("more", [0, 1, 3, 5, 9])
def test_no_watch_goes_on_after_its_etcd_has_gone_back(etcd: Etcd, more: int) -> None:
    """However many commits were done since: fewer than were lost, as many, or more."""
    watch = etcd.watch()
    for number in range(5):
        etcd.put(f"lost{number}")
    assert told(watch) == 6
    etcd.goes_back(3)
    for number in range(more):
        etcd.put(f"new{number}")
    for _ in range(3):
        with pytest.raises(Unavailable, match="gone back from 6"):
            watch.next(0.0)


def test_a_stream_that_is_not_cut_goes_on_in_no_other_history_either(etcd: Etcd) -> None:
    watch = etcd.watch()
    etcd.put("lost")
    assert told(watch) == 2
    del etcd.commits[1:]
    with pytest.raises(Unavailable, match="gone back from 2"):
        watch.next(0.0)


@pytest.mark.parametrize("last", [{b"a": None}, {b"a": b"1", b"b": None}])
def test_a_watch_goes_on_behind_a_cut(etcd: Etcd, last: Commit) -> None:
    watch = etcd.watch()
    etcd.commits.append(last)
    assert told(watch) == 2
    etcd.goes_back(2)
    etcd.put("next")
    assert watch.next(0.0).revision == 3


def test_who_begins_behind_the_newest_revision_is_told_so(etcd: Etcd) -> None:
    with pytest.raises(Ahead):
        EtcdWatch(etcd.begin, etcd.newest, lambda *_: None, lambda found: found, lambda _: None, etcd.gone_back, 9)  # type: ignore[arg-type]
