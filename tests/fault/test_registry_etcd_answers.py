"""A gateway that answers pages, halves, and what etcd never says: an error that names it, and never an answer that is empty."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from netregistry.stores.base import Batch, Changed, Compacted, Delete, Expect, Lost, Put, Unavailable, Unknown, Watch
from netregistry.stores.etcd import EtcdStore
from netregistry.stores.etcd_client import Client
from netregistry.stores.etcd_place import Endpoint
from netregistry.stores.etcd_watch import SILENT
from runtime.errors import HostRefused
from tests.support.etcd import HOST, Cluster
from tests.support.gateway import Answer, Gateway, gateway

PAGE = b"<html><body>502 Bad Gateway</body></html>"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(tmp_path_factory.mktemp("etcd"), 1) as made:
        yield made


@pytest.fixture
def between(cluster: Cluster) -> Iterator[Gateway]:
    cluster.clear()
    with gateway(cluster.members[0].client) as made:
        yield made


@pytest.fixture
def store(cluster: Cluster, between: Gateway, monkeypatch: pytest.MonkeyPatch) -> Iterator[EtcdStore]:
    """Give a store that asks once, as any that is opened meanwhile, and is patient with a machine that is busy."""
    monkeypatch.setattr("netregistry.stores.etcd_client.LOOK", 20.0)
    monkeypatch.setattr("netregistry.stores.etcd.Client", partial(Client, told=0.0))
    with EtcdStore.create(cluster.place._replace(endpoints=(Endpoint(HOST, between.port),)), "first") as made:
        made.commit([], [Put("a", b"1"), Put("b", b"2")])
        yield made


def changed(act: Callable[[Any], Any]) -> Callable[[str, Answer], Answer]:
    """Change the document of an answer."""

    def harm(_path: str, answer: Answer) -> Answer:
        return answer._replace(data=json.dumps(act(json.loads(answer.data))).encode())

    return harm


def with_header(**fields: Any) -> Callable[[Any], Any]:
    def act(document: Any) -> Any:
        document.get("result", document)["header"].update(fields)
        return document

    return act


#: What may come instead of any answer, and what the error says of it.
ANYTHING: dict[str, tuple[Callable[[str, Answer], Answer], str]] = {
    "a page": (lambda path, answer: Answer(200, "text/html", PAGE), "text/html"),
    "a page as an error": (lambda path, answer: Answer(502, "text/html", PAGE), "502"),
    "a page that says that it is JSON": (lambda path, answer: Answer(200, "application/json", PAGE), "no JSON"),
    "half": (lambda path, answer: answer._replace(data=answer.data[: len(answer.data) // 2]), "not all of it|IncompleteRead|ended"),
    "cut off": (lambda path, answer: answer._replace(cut=len(answer.data) // 2), "IncompleteRead|ended|not all"),
    "nothing": (lambda path, answer: answer._replace(data=b""), "no JSON|ended|end"),
    "no object": (changed(lambda document: [document]), "no object"),
    "null": (changed(lambda document: None), "no object"),
    "an empty object": (changed(lambda document: {}), "header|result"),
    "no header": (changed(lambda document: {"result": {}, "created": True}), "header"),
    "a number that is one": (changed(with_header(cluster_id=17)), "cluster_id"),
    "a number that is none": (changed(with_header(cluster_id="1e9")), "cluster_id"),
    "a number with a sign": (changed(with_header(cluster_id="-5")), "cluster_id"),
    "a number without end": (changed(with_header(cluster_id="9" * 5000)), "cluster_id"),
    "an error without a code": (lambda path, answer: Answer(500, "application/json", b'{"error": "x"}'), "code"),
    "an error of no form": (lambda path, answer: Answer(500, "application/json", b'{"error": {"a": []}}'), "code"),
    "lists in lists": (lambda path, answer: Answer(200, "application/json", b"[" * 100_000), "no JSON"),
}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("what", ANYTHING)
def test_no_answer_is_taken_for_one(store: EtcdStore, between: Gateway, cluster: Cluster, what: str) -> None:
    lease, newest = store.grant(100), store.newest()
    between.harm, says = ANYTHING[what]
    acts: list[Callable[[], object]] = [
        lambda: store.get("a"),
        lambda: store.get("nothing"),
        lambda: store.list(""),
        lambda: store.commit([Expect("a", 0)], [Put("c", b"")]),
        lambda: store.commit([], [Delete("b")]),
        lambda: store.grant(10),
        lambda: store.keep(5),
        lambda: store.revoke(lease),
        lambda: store.compact(newest),
        lambda: store.watch("", newest + 1),
        lambda: EtcdStore(store.client.place),
    ]
    for act in acts:
        store.client._silent = None  # the others are not asked after the first one otherwise
        with pytest.raises((Unavailable, Unknown), match=says):
            act()
    between.harm = None
    store.client._silent = None
    held = cluster.keys()
    assert store.get("a") is not None and "c" not in held


def kvs(act: Callable[[list[Any]], list[Any]]) -> Callable[[Any], Any]:
    return lambda document: {**document, "kvs": act(document["kvs"])}


@pytest.mark.parametrize(
    ("act", "says"),
    [
        (kvs(lambda found: found[::-1]), "order"),
        (kvs(lambda found: [found[0], found[0]]), "order"),
        (kvs(lambda found: [{**found[0], "key": "eg=="}]), "not asked for"),
        (kvs(lambda found: [{**found[0], "key": "!!"}]), "base64"),
        (kvs(lambda found: [{**found[0], "value": 5}]), "base64"),
        (kvs(lambda found: [{**found[0], "mod_revision": "0"}]), "mod_revision"),
        (kvs(lambda found: [{name: value for name, value in found[0].items() if name != "mod_revision"}]), "mod_revision"),
        (kvs(lambda found: [{name: value for name, value in found[0].items() if name != "key"}]), "key"),
        (kvs(lambda found: ["a"]), "kvs"),
        (lambda document: {**document, "kvs": {}}, "kvs"),
        (lambda document: {**document, "more": "yes"}, "more"),
        (lambda document: {"header": document["header"], "more": True}, "others follow"),
        (lambda document: {**document, "header": {**document["header"], "revision": "0"}}, "revision"),
    ],
)
def test_a_list_that_is_none(store: EtcdStore, between: Gateway, act: Callable[[Any], Any], says: str) -> None:
    between.harm = changed(act)
    with pytest.raises(Unavailable, match=says):
        store.list("")


@pytest.mark.parametrize(
    "act",
    [
        lambda document: {"header": document["header"], "succeeded": True},
        lambda document: {**document, "responses": document["responses"][:1]},
        lambda document: {**document, "responses": document["responses"] * 2},
        lambda document: {**document, "responses": document["responses"][::-1]},
        lambda document: {**document, "succeeded": "true"},
        lambda document: {**document, "succeeded": False},
        lambda document: {name: value for name, value in document.items() if name != "succeeded"},
    ],
)
def test_a_commit_of_which_not_all_is_said_may_be_done(
    store: EtcdStore, between: Gateway, cluster: Cluster, act: Callable[[Any], Any]
) -> None:
    between.harm = changed(act)
    with pytest.raises(Unknown):
        store.commit([], [Put("c", b""), Delete("a")])
    between.harm = None
    assert sorted(cluster.keys()) == ["b", "c"]


def test_what_is_false_or_0_is_left_out(store: EtcdStore, cluster: Cluster) -> None:
    """A commit that is not done has no `succeeded`, a value that is empty none, a put no type: that is how etcd says it."""
    raw = cluster.ask("kv/txn", {"compare": [{"target": "MOD", "key": "YQ==", "mod_revision": "9"}], "success": [], "failure": []})
    assert "succeeded" not in raw
    with store.watch("", store.newest() + 1) as watch:
        done = store.commit([], [Put("empty", b"")])
        assert store.get("empty") == ("empty", b"", done) and watch.next(0.0) == Batch(done, (Changed("empty", b""),))


# -- streams


@contextlib.contextmanager
def harmed(store: EtcdStore, between: Gateway, act: Callable[[Any], Any]) -> Iterator[Watch]:
    """Watch, and change each line of the first stream that tells something."""
    told: list[int] = []

    def harm(path: str, answer: Answer) -> Answer:
        if path != "/v3/watch" or b'"events"' not in answer.data or told:
            return answer
        told.append(1)
        return answer._replace(data=act(answer.data))

    with store.watch("", store.newest() + 1) as watch:
        between.harm = harm
        yield watch
        assert told


def event(act: Callable[[Any], Any]) -> Callable[[bytes], bytes]:
    def changed(line: bytes) -> bytes:
        document = json.loads(line)
        document["result"]["events"] = act(document["result"]["events"])
        return json.dumps(document).encode() + b"\n"

    return changed


@pytest.mark.parametrize(
    "act",
    [
        lambda line: line[: len(line) // 2] + b"\n",
        lambda line: PAGE + b"\n",
        lambda line: b'{"error": {"grpc_code": 14, "message": "etcdserver: no leader"}}\n',
        lambda line: b'{"error": "x"}\n',
        lambda line: b"{}\n",
        event(lambda events: [{**events[0], "type": "OTHER"}]),
        event(lambda events: [{**events[0], "type": 5}]),
        event(lambda events: [{"type": "PUT"}]),
        event(lambda events: [{**events[0], "kv": {**events[0]["kv"], "mod_revision": "1"}}]),
        event(lambda events: [{**events[0], "kv": {**events[0]["kv"], "mod_revision": 9}}]),
        event(lambda events: "x"),
    ],
)
def test_a_line_that_is_none_ends_the_stream_and_nothing_is_lost(store: EtcdStore, between: Gateway, act: Callable[[bytes], bytes]) -> None:
    with harmed(store, between, act) as watch:
        done = [store.commit([], [Put("a", b"2")]), store.commit([], [Delete("a"), Put("c", b"")])]
        assert [watch.next(0.0) for _ in done] == [
            Batch(done[0], (Changed("a", b"2"),)),
            Batch(done[1], (Changed("a", None), Changed("c", b""))),
        ]
        assert watch.next(0.0) == Batch(done[1], ())


def first_events_lost() -> Callable[[str, Answer], Answer]:
    """Make what loses the first events of a watch, and nothing else."""
    told: list[bytes] = []

    def harm(path: str, answer: Answer) -> Answer:
        if path == "/v3/watch" and b'"events"' in answer.data:
            told.append(answer.data)
            return answer._replace(data=b"") if len(told) == 1 else answer
        return answer

    return harm


def test_revisions_that_are_not_told_are_missed(store: EtcdStore, between: Gateway) -> None:
    """Leave out a revision, and tell the next one: either it is told again, or the watch is over; never is it passed over."""
    with store.watch("", store.newest() + 1) as watch:
        between.harm = first_events_lost()
        for number in range(3):
            store.commit([], [Put(f"k{number}", b"")])
        with pytest.raises(Lost, match="has told nothing of the revisions"):
            watch.next(0.0)


def test_a_stream_that_is_far_behind_is_waited_for(store: EtcdStore, between: Gateway, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let etcd take longer for many revisions than for one: a service that begins is thousands behind, and would never begin."""
    monkeypatch.setattr("netregistry.stores.etcd_watch.FAST", 100)
    start = store.newest() + 1
    done = [store.commit([], [Put("k", b"%d" % number)]) for number in range(150)]
    slow = iter((True,))

    def harm(path: str, answer: Answer) -> Answer:
        if path == "/v3/watch" and b'"events"' in answer.data and next(slow, False):
            threading.Event().wait(SILENT + 0.7)
        return answer

    between.harm = harm
    streams = between.asked.count("/v3/watch")
    with store.watch("", start) as watch:
        assert [watch.next(0.0).revision for _ in done] == done
    assert between.asked.count("/v3/watch") == streams + 1


def test_the_last_revision_that_is_not_told_is_missed(store: EtcdStore, between: Gateway) -> None:
    """Tell nothing at all any more, as etcd's issue 18089 does: another stream tells it."""
    with store.watch("", store.newest() + 1) as watch:
        between.harm = first_events_lost()
        done = store.commit([], [Delete("a")])
        assert watch.next(0.0) == Batch(done, (Changed("a", None),))


def canceled(line: bytes, **fields: Any) -> bytes:
    document = json.loads(line)
    document["result"].update({"canceled": True, **fields})
    return json.dumps(document).encode() + b"\n"


@pytest.mark.parametrize(
    ("fields", "raised", "says"),
    [
        ({"compact_revision": "99"}, Compacted, "99"),
        ({"cancel_reason": "rpc error: code = PermissionDenied desc = etcdserver: permission denied"}, HostRefused, "may not watch"),
        ({}, Unavailable, "ended the watch"),
    ],
)
def test_a_watch_that_is_created_and_canceled_with_status_200(
    store: EtcdStore, between: Gateway, fields: dict[str, str], raised: type[Exception], says: str
) -> None:
    between.harm = lambda path, answer: answer._replace(data=canceled(answer.data, **fields)) if path == "/v3/watch" else answer
    with pytest.raises(raised, match=says):
        store.watch("", store.newest() + 1).next(0.0)


def test_notifications_of_progress_say_nothing_of_what_is_still_to_come(store: EtcdStore, between: Gateway) -> None:
    """Let etcd say that it is further than it has told: some versions do (https://github.com/etcd-io/etcd/issues/15220)."""

    def harm(path: str, answer: Answer) -> Answer:
        if path != "/v3/watch":
            return answer
        header = json.loads(answer.data)["result"]["header"]
        early = json.dumps({"result": {"header": {**header, "revision": "1000000"}}}).encode() + b"\n"
        return answer._replace(data=answer.data + early if b"created" in answer.data else early + answer.data)

    between.harm = harm
    with store.watch("", store.newest() + 1) as watch:
        done = [store.commit([], [Put("a", b"%d" % number)]) for number in range(3)]
        assert [watch.next(0.0).revision for _ in done] == done and watch.next(0.0) == Batch(done[-1], ())


def test_several_revisions_in_one_message_and_one_in_several(store: EtcdStore, between: Gateway) -> None:
    start = store.newest() + 1
    done = [store.commit([], [Put(f"k{number}", b"%d" % number) for number in range(5)]) for _ in range(4)]
    whole: list[bytes] = []

    def harm(path: str, answer: Answer) -> Answer:
        if path != "/v3/watch" or b'"events"' not in answer.data:
            return answer
        document = json.loads(answer.data)
        events = document["result"]["events"]
        whole.append(answer.data)
        parts = [events[place : place + 3] for place in range(0, len(events), 3)]
        lines = [{"result": {**document["result"], "events": part, "fragment": part is not parts[-1]}} for part in parts]
        return answer._replace(data=b"".join(json.dumps(line).encode() + b"\n" for line in lines))

    between.harm = harm
    with store.watch("", start) as watch:
        found = [watch.next(0.0) for _ in done]
    assert [batch.revision for batch in found] == done and all(len(batch.changes) == 5 for batch in found)
    assert len(whole) == 1, "etcd has told all of it at once"


def test_large_commits_come_in_fragments_of_etcds_own(store: EtcdStore) -> None:
    start = store.newest() + 1
    done = [store.commit([], [Put(f"k{number}", bytes(10_000)) for number in range(100)]) for _ in range(5)]
    with store.watch("", start) as watch:
        found = [watch.next(0.0) for _ in done]
    assert [(batch.revision, len(batch.changes)) for batch in found] == [(revision, 100) for revision in done]


def test_a_list_whose_parts_are_too_large_is_asked_for_in_smaller_ones(
    store: EtcdStore, between: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(30):
        store.commit([], [Put(f"k{number:02}", bytes([number]) * 100_000)])
    monkeypatch.setattr("netregistry.stores.etcd_client.LARGEST", 1_000_000)
    assert [item.value[0] for item in store.list("k").items] == list(range(30))


def test_what_an_administrator_has_made_smaller_is_named(tmp_path: Path) -> None:
    more = ["--max-txn-ops", "10", "--max-request-bytes", "100000"]
    with Cluster(tmp_path, 1, more=more) as small, EtcdStore.create(small.place, "first") as store:
        for changes in ([Put(f"k{number}", b"") for number in range(20)], [Put("k", bytes(90_000)), Put("l", bytes(60_000))]):
            with pytest.raises(HostRefused, match=r"too many operations|too large"):
                store.commit([], changes)
        assert small.keys() == {}


def test_an_etcd_that_is_full_says_so(tmp_path: Path) -> None:
    with Cluster(tmp_path, 1, more=["--quota-backend-bytes", "2000000"]) as full, EtcdStore.create(full.place, "first") as store:
        with pytest.raises(Unavailable, match="is full") as refused:
            for number in range(100):
                store.commit([], [Put(f"k{number}", bytes(100_000))])
        assert "registry compact" in str(refused.value) and "etcdctl alarm disarm" in str(refused.value)
        assert store.get("k0") is not None and not isinstance(refused.value, Unknown)
        store.compact(store.newest())  # the first step of what is said
        on_disk, in_use = store.shrink()
        assert on_disk >= in_use > 0
