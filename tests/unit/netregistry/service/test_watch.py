"""A stream that was cut off goes on where it was: every commit once and in order, whatever happened meanwhile."""

from __future__ import annotations

import random
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from netregistry.client import Client, Problem
from netregistry.model.certificate import Credential
from netregistry.refusal import Refused
from netregistry.service import recent
from netregistry.service.limits import Limits
from netregistry.service.recent import Past, Recent, told
from netregistry.service.streams import BOUND, PIECE, Channel, Streams
from netregistry.stores.base import Batch
from netregistry.stores.files import bring_back
from netregistry.stores.sqlite import SqliteStore
from netregistry.stream import Line, Stream
from netregistry.view import View
from tests.support.registry import GANETI, NODES, Registry, node
from tests.support.service import Served, served

CLUSTER = GANETI.name
NICS = [f"{number:08x}-1111-4111-8111-111111111111" for number in range(4)]


class Hearer:
    """One that is cut off now and then. What it has from a line that says that all was told, it keeps."""

    def __init__(self) -> None:
        self.lines: list[Line] = []
        self.at = ""
        self._since: list[Line] = []

    def hear(self, lines: Iterable[Line]) -> None:
        for line in lines:
            if line.event == "ready":
                self.lines += self._since
                self._since, self.at = [], line.revision
            else:
                self._since.append(line)

    def cut_off(self) -> None:
        self._since = []


class Remembered(Registry):
    """A registry with one stream that is never cut off, and what is remembered for those that are."""

    def __init__(self, seed: int, most: int = 20_000) -> None:
        self.whole, self.stream = Hearer(), Stream(NODES[0])
        self.parts: Recent | None = None
        super().__init__(None, self.hear, seed)
        self.recent = self.parts = Recent(self.local.view, most)

    def hear(self, batch: Batch | None) -> None:
        if self.parts is not None and batch is not None:
            self.parts.hear(self.local.view, batch)
            self.whole.hear(told(self.stream.next(self.local.view, batch), "first", batch.revision))


def something(registry: Remembered, chance: random.Random, networks: list[str]) -> None:
    """Let one thing happen, by chance."""
    uuid, number = chance.choice(NICS), chance.randrange(2)
    options = chance.choice([[], [{"name": "isolated", "value": chance.choice(["yes", "no"])}]])
    network = chance.choice([*networks, ""])
    asked: list[tuple[Any, ...]] = [
        ("nic.add", "", {"uuid": uuid, "network": network, "options": options, "cluster": CLUSTER}),
        ("nic.set", uuid, {"network": network}),
        ("nic.set", uuid, {"options": options}),
        ("nic.delete", uuid),
        ("network.set", networks[0], {"mtu": chance.choice([1400, 1500])}),
        ("network.delete", networks[1]),
        ("network.add", "", {"uuid": networks[1], "name": "b"}),
        ("node.set", NODES[number], {"cluster": chance.choice([CLUSTER, "other.example.com"])}),
    ]
    registry.ask(*chance.choice(asked))
    if chance.random() < 0.6:
        reports = [{"nic": uuid, "state": "running"}] if chance.random() < 0.6 else []
        registry.report(node(number), *reports, removed=() if reports else (uuid,))


@given(st.integers(0, 1 << 32))
@example(3686)
def test_what_is_heard_in_pieces_is_what_is_heard_as_a_whole(seed: int) -> None:
    registry, chance = Remembered(seed), random.Random(seed)
    networks = [registry.network("a", cluster=CLUSTER), registry.network("b", "198.51.100.0/24")]
    for number in range(2):
        registry.join(number, CLUSTER)
    pieces = Hearer()
    for hearer, stream in ((registry.whole, registry.stream), (pieces, Stream(NODES[0]))):
        hearer.hear(stream.begin(registry.local.view))
    for _round in range(6):
        for _ in range(chance.randrange(8)):
            something(registry, chance, networks)
        lines = list(registry.recent.resumed(registry.local.view, Stream(NODES[0]), pieces.at))
        pieces.hear(lines[: chance.randrange(len(lines) + 1)] if chance.random() < 0.5 else lines)
        pieces.cut_off()
    resumed = Stream(NODES[0])
    pieces.hear(registry.recent.resumed(registry.local.view, resumed, pieces.at))
    assert pieces.lines == registry.whole.lines
    assert vars(resumed) == vars(registry.stream), "it goes on as the one that was not cut off"


def test_a_commit_is_looked_at_for_those_alone_whom_it_can_concern(monkeypatch: pytest.MonkeyPatch) -> None:
    """Thousands of nodes report and live: each of their commits would cost as much as there are streams. What is heard is the same."""
    asked: list[str] = []
    plain = Stream.next

    def noted(self: Stream, view: Any, batch: Batch) -> Iterator[Line]:
        asked.append(self.node)
        return plain(self, view, batch)

    parts: list[Streams] = []

    def hear(batch: Batch | None) -> None:
        for part in parts:
            part.hear(registry.local.view, batch)

    registry = Registry(None, hear, 0)
    for number in range(2):
        registry.join(number, CLUSTER)
    parts.append(Streams(registry.local.view, 9))
    channels = [Channel(NODES[number], f"{number:08x}-2222-4222-8222-222222222222", lambda: None) for number in (0, 1, 1)]
    for channel in channels:
        parts[0].open(registry.local.view, channel, "")
    assert channels[1].ended and parts[0].count == 2
    uuid = registry.nic(GANETI, name="n", cluster=CLUSTER).uuid
    monkeypatch.setattr(Stream, "next", noted)
    for channel in channels:
        channel.take()
    registry.local.sign_on(node(0), channels[0].incarnation, 20.0)
    assert asked == []
    registry.report(node(1), {"nic": uuid, "state": "running"})
    assert asked == [NODES[1]]
    assert b'"enter"' in channels[2].take() and channels[0].take() == b""
    del asked[:]
    network = registry.network("b")
    registry.do("nic.set", uuid, {"instance": "web1"}, GANETI)
    assert asked == [NODES[1]], "a network without NICs is nobody's, and a NIC theirs who have it"
    registry.do("nic.set", uuid, {"network": network}, GANETI)
    assert sorted(asked[1:]) == [*NODES[:2]], "the first NIC of the cluster in a network brings that to all its nodes"
    del asked[:]
    registry.do("network.set", network, {"mtu": 1400})
    assert sorted(asked) == [*NODES[:2]], "a guest that migrates must find there what its network says"
    del asked[:]
    other = registry.nic(GANETI, name="m", cluster=CLUSTER, network=network).uuid
    registry.do("nic.delete", other, None, GANETI)
    assert asked == [], "it is there already, and stays"
    registry.do("nic.set", uuid, {"options": [{"name": "isolated", "value": "yes"}]})
    assert sorted(asked) == sorted(NODES[:2]), "the operator's values lie on each node of the cluster"
    del asked[:]
    parts[0].close(channels[2])
    registry.report(node(1), removed=(uuid,))
    assert asked == [] and parts[0].of(NODES[1]) == []


@pytest.mark.parametrize("seed", range(20))
def test_what_was_is_counted_as_it_is_listed(seed: int) -> None:
    """Groups of an earlier revision have as many members as are listed, whatever has come, changed and gone since."""
    registry, chance = Remembered(seed), random.Random(seed)
    networks = [registry.network("a", cluster=CLUSTER), registry.network("b", "198.51.100.0/24")]
    for number in range(2):
        registry.join(number, CLUSTER)
    start = registry.local.view.revision
    for _ in range(30):
        something(registry, chance, networks)
    commits = list(registry.recent._commits)
    past, listed = Past(registry.local.view, [each for each in commits if each.revision > start], start), 0
    for commit in (each for each in commits if each.revision > start):
        past.advance(commit)
        for name in ("network", "within", "cluster", "ahead", "mastered", "nodes", "seen", "on"):
            for of in {*past.groups(name), *registry.local.view.groups(name)}:
                assert past.count(name, *of) == len(past.members(name, *of)) and past.has(name, *of) == bool(past.members(name, *of))
                listed += past.count(name, *of)
    assert listed


def test_to_go_on_takes_as_long_as_there_are_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not as long as their square: NICs of one network, made one by one. Nobody else had a turn for seconds, as often as a reader asked."""
    registry = Remembered(0)
    registry.join(0, CLUSTER)
    network, view = registry.network(cluster=CLUSTER), registry.local.view
    start, nics = f"first:{view.revision}", 100
    for number in range(nics):
        registry.nic(GANETI, cluster=CLUSTER, instance=f"web{number}", index=0, network=network)
    looked, members = [], View.members

    def counted(self: View, name: str, *of: str) -> tuple[str, ...]:
        found = members(self, name, *of)
        looked.append(len(found))
        return found

    monkeypatch.setattr(View, "members", counted)
    lines = list(registry.recent.resumed(view, Stream(NODES[0]), start))
    assert [(line.event, line.what) for line in lines] == [("enter", "network"), ("ready", ""), ("ready", "")]
    assert sum(looked) < 10 * nics


@pytest.mark.parametrize("missed", ["its NICs", "itself"])
def test_where_to_go_on_would_take_more_it_begins_anew(missed: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A node that has thousands of NICs and puts one of them into a network and out of it: each time all were looked at."""
    monkeypatch.setattr("netregistry.service.recent.SPARE", 0)
    registry = Remembered(0)
    registry.join(0, CLUSTER)
    network, view = registry.network(cluster=CLUSTER), registry.local.view
    own = [registry.nic(node(0), name=f"n{number}", found=True) for number in range(100)]

    def change(number: int) -> None:
        if missed == "itself":
            registry.do("node.set", NODES[0], {"kind": ("virtual", "physical")[number % 2]})
        else:
            registry.do("nic.set", own[0].uuid, {"network": ("", network)[number % 2]}, node(0))

    start = f"first:{view.revision}"
    for number in range(5):
        change(number)
    heard = Stream(NODES[0])
    assert list(registry.recent.resumed(view, heard, start))[-1].event == "ready" and vars(heard) == vars(registry.stream)
    for number in range(20):
        change(number)
    with pytest.raises(Refused) as refused:
        list(registry.recent.resumed(view, Stream(NODES[0]), start))
    assert (refused.value.kind, refused.value.more["revision"]) == ("compacted", f"first:{view.revision}")


@pytest.mark.parametrize(("own", "ahead", "heard"), [(0, 0, 100), (30, 0, 130), (0, 40, 140), (30, 40, 170)])
def test_behind_many_changes_of_others_a_stream_begins_anew(own: int, ahead: int, heard: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lay out for a hearer no more than it would be told anew: 10,000 changes were for a node of five NICs, and nobody had a turn."""
    registry = Remembered(0)
    registry.join(0, CLUSTER)
    for number in range(own):
        registry.nic(node(0), name=f"n{number}", found=True)
    for number in range(ahead):
        registry.nic(cluster=CLUSTER, instance=f"web{number}", index=0, options=[{"name": "isolated", "value": "yes"}])
    others, view = registry.nic(cluster="other.example.com", instance="other", index=0).uuid, registry.local.view
    start = f"first:{view.revision}"
    for number in range(heard):
        registry.do("nic.set", others, {"tags": [] if number % 2 else ["a"]})
    assert [line.event for line in registry.recent.resumed(view, Stream(NODES[0]), start)] == ["ready"]
    registry.do("nic.set", others, {"tags": ["b"]})
    monkeypatch.setattr(recent, "Past", None)  # nothing of it is looked at
    with pytest.raises(Refused) as refused:
        list(registry.recent.resumed(view, Stream(NODES[0]), start))
    assert (refused.value.kind, refused.value.more["revision"]) == ("compacted", f"first:{view.revision}")
    begun = list(Stream(NODES[0]).begin(view))
    assert len(begun) == own + ahead + 1 and Stream(NODES[0]).lines(view) == own + ahead


def test_what_is_not_remembered_is_refused() -> None:
    registry = Remembered(0, most=3)
    registry.join(0)
    first = f"first:{registry.local.view.revision}"
    for number in range(5):
        registry.nic(node(0), name=f"n{number}")
    view = registry.local.view
    for start, kind in ((first, "compacted"), ("first:999", "compacted"), ("other:1", "epoch"), ("x", "invalid")):
        with pytest.raises(Refused) as refused:
            list(registry.recent.resumed(view, Stream(NODES[0]), start))
        assert refused.value.kind == kind
    lines = list(registry.recent.resumed(view, Stream(NODES[0]), f"first:{view.revision - 2}"))
    assert [line.event for line in lines] == ["enter", "ready"] * 2 + ["ready"]
    registry.recent.hear(view, None)
    with pytest.raises(Refused, match="remembered"):
        list(registry.recent.resumed(view, Stream(NODES[0]), f"first:{view.revision - 1}"))


def test_what_streams_go_on_by_is_bounded_in_bytes() -> None:
    """By their number alone one node would fill the memory of every service, a report or a NIC of half a million bytes after the other."""
    registry = Remembered(0)
    registry.join(0)
    view, nic = registry.local.view, NICS[0]
    recent = registry.recent = registry.parts = Recent(view, most_bytes=20_000)
    start = f"first:{view.revision}"
    assert registry.report(node(0), {"nic": nic, "state": "running"}).status == 200
    for number in range(30):
        options = [{"name": "o", "value": f"{number:01000}"}]
        assert registry.report(node(0), {"nic": nic, "state": "running", "options": options}).status == 200
    lines = list(recent.resumed(view, Stream(NODES[0]), start))
    assert [line.event for line in lines] == ["ready"], "what a node says of its NICs is nothing that streams tell"
    added = registry.nic(name="n", network=registry.network())
    for number in range(30):
        registry.do("nic.set", added.uuid, {"tags": [f"t{number:0100}.{each}" for each in range(10)]})
    with pytest.raises(Refused) as refused:
        list(recent.resumed(view, Stream(NODES[0]), start))
    assert refused.value.kind == "compacted"
    assert view.revision - 20 < recent.floor < view.revision - 10
    assert list(recent.resumed(view, Stream(NODES[0]), f"first:{recent.floor}"))[-1].revision == f"first:{view.revision}"


# -- over the socket


def until_ready(lines: Iterator[dict[str, Any]], revision: str = "") -> list[dict[str, Any]]:
    """Read lines up to the next one that says that all was told, up to ``revision`` at least."""
    found = []
    while True:
        line = next(lines)
        found.append(line)
        if line["event"] == "ready" and int(line["revision"].partition(":")[2]) >= int(revision.partition(":")[2] or 0):
            return found


def seen(lines: list[dict[str, Any]]) -> list[tuple[str, str, str]]:
    return [(line["event"], line["what"], line["uuid"]) for line in lines if line["event"] != "ready"]


def report(service: Served, client: Client, number: int, nics: list[Any], removed: tuple[str, ...] = ()) -> str:
    """Report; give up to which revision."""
    after = client.get(f"nodes/{NODES[number]}").body["reports"]
    return client.change("POST", f"nodes/{NODES[number]}/reports", {"after": after, "nics": nics, "removed": list(removed)}).revision


@pytest.mark.parametrize("down", ["neither", "here", "there", "both"])
def test_a_nic_that_moves_leaves_here_and_enters_there_also_while_a_stream_is_down(tmp_path: Path, down: str) -> None:
    with served(tmp_path, Limits(beat=0.1)) as service:
        clients = [service.join(number, CLUSTER) for number in range(2)]
        network = service.client().change("POST", "networks", {"name": "blue", "subnet": "192.0.2.0/24"}).body["uuid"]
        nic = service.client().change("POST", "nics", {"network": network, "allocate": ["ipv4"]}).body
        report(service, clients[0], 0, [{"nic": nic["uuid"], "state": "running"}])
        streams = [service.client().watch(NODES[number]) for number in range(2)]
        heard = [until_ready(stream) for stream in streams]
        assert seen(heard[0]) == [("enter", "network", network), ("enter", "nic", nic["uuid"])] and seen(heard[1]) == []
        for number, name in enumerate(("here", "there")):
            if down in (name, "both"):
                streams[number].close()  # type: ignore[attr-defined]
        report(service, clients[1], 1, [{"nic": nic["uuid"], "state": "running"}])
        moved = report(service, clients[0], 0, [], (nic["uuid"],))
        for number, name in enumerate(("here", "there")):
            if down in (name, "both"):
                streams[number] = service.client().watch(NODES[number], heard[number][-1]["revision"])
        here, there = [until_ready(stream, moved) for stream in streams]
        assert seen(here) == [("leave", "nic", nic["uuid"]), ("leave", "network", network)]
        assert seen(there) == [("enter", "network", network), ("enter", "nic", nic["uuid"])]
        assert next(line["value"] for line in there if line.get("what") == "nic") == nic
        for stream in streams:
            stream.close()  # type: ignore[attr-defined]


def test_a_stream_goes_on_behind_a_restart_of_the_service(tmp_path: Path) -> None:
    """What was committed while it was cut off is told, also by a service that was started later: deletions too."""
    SqliteStore.create(str(tmp_path / "registry.sqlite"), "first").close()
    (tmp_path / "run").mkdir()
    with served(tmp_path / "run", store=SqliteStore(str(tmp_path / "registry.sqlite"))) as service:
        client = service.join(0)
        uuids = [client.change("POST", "nics", {"name": f"n{number}", "found": True}).body["uuid"] for number in range(3)]
        stream = client.watch(NODES[0], incarnation=NODES[3])
        heard = until_ready(stream)
        assert len(seen(heard)) == 3
        stream.close()  # type: ignore[attr-defined]
        client.change("DELETE", f"nics/{uuids[0]}")
    with served(tmp_path / "run", store=SqliteStore(str(tmp_path / "registry.sqlite"))) as service:
        client = service.client(f"node:{NODES[0]}")
        last = client.change("PATCH", f"nics/{uuids[1]}", {"name": "new"}).revision
        again = client.watch(NODES[0], heard[-1]["revision"], NODES[3])
        assert seen(until_ready(again, last)) == [("leave", "nic", uuids[0]), ("change", "nic", uuids[1])]
        again.close()  # type: ignore[attr-defined]


def test_a_service_that_is_started_takes_in_so_many_commits_of_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Take in thousands at most: over an etcd tens of thousands take half a minute, for which nobody is answered."""
    monkeypatch.setattr(recent, "BEFORE", 5)
    SqliteStore.create(str(tmp_path / "registry.sqlite"), "first").close()
    (tmp_path / "run").mkdir()
    with served(tmp_path / "run", store=SqliteStore(str(tmp_path / "registry.sqlite"))) as service:
        service.join(0)
        made = [service.client().change("POST", "networks", {"name": f"n{number}"}).revision for number in range(12)]
    with served(tmp_path / "run", store=SqliteStore(str(tmp_path / "registry.sqlite"))) as service:
        newest = int(service.client().get("").revision.partition(":")[2])
        at = [revision for revision in made if int(revision.partition(":")[2]) >= newest - 5]
        assert 0 < len(at) < len(made)
        again = service.client().watch(NODES[0], at[0])
        assert next(again)["event"] in ("enter", "ready")
        again.close()  # type: ignore[attr-defined]
        with pytest.raises(Problem) as refused:
            next(service.client().watch(NODES[0], made[0]))
        assert refused.value.kind == "compacted"


def test_who_comes_from_below_the_floor_or_another_epoch_loses_no_deletion(tmp_path: Path) -> None:
    """It begins anew, and compares: what it is not told again has left."""
    file, copy = tmp_path / "registry.sqlite", tmp_path / "copy.sqlite"
    SqliteStore.create(str(file), "first").close()
    (tmp_path / "run").mkdir()
    with served(tmp_path / "run", store=SqliteStore(str(file))) as service:
        client = service.join(0)
        uuids = {client.change("POST", "nics", {"name": f"n{number}", "found": True}).body["uuid"] for number in range(4)}
        stream = service.client().watch(NODES[0])
        heard = until_ready(stream)
        known, at = {uuid for _event, _what, uuid in seen(heard)}, heard[-1]["revision"]
        stream.close()  # type: ignore[attr-defined]
        assert known == uuids
        gone = sorted(uuids)
        client.change("DELETE", f"nics/{gone[0]}")
    for harm, deleted, kind in (("compact", 2, "compacted"), ("restore", 3, "epoch")):
        if harm == "compact":
            with SqliteStore(str(file)) as store:
                store.compact(store.list("").revision)
        else:
            with SqliteStore(str(file)) as store:
                store.backup(str(copy))
            bring_back(str(copy), str(file))
        with served(tmp_path / "run", store=SqliteStore(str(file))) as service:
            client = service.client(f"node:{NODES[0]}")
            client.change("DELETE", f"nics/{gone[deleted - 1]}")
            with pytest.raises(Problem) as refused:
                next(service.client().watch(NODES[0], at))
            assert refused.value.kind == kind
            stream = service.client().watch(NODES[0])
            heard = until_ready(stream)
            at = heard[-1]["revision"]
            stream.close()  # type: ignore[attr-defined]
            assert {uuid for _event, _what, uuid in seen(heard)} == known - set(gone[:deleted])


def test_signs_of_life_come_by_themselves_and_keep_a_node_alive(tmp_path: Path) -> None:
    with served(tmp_path, Limits(beat=0.05)) as service:
        client = service.join(0)
        stream = client.watch(NODES[0], incarnation=NODES[3])
        assert [next(stream)["event"] for _ in range(4)] == ["ready"] * 4
        (item,) = service.client().all("nodes")
        assert item["alive"]
        with pytest.raises(Problem, match="another agent is alive") as refused:
            next(client.watch(NODES[0], incarnation=NODES[4]))
        assert refused.value.kind == "twin"
        assert re.search(r"node0 since \d{4}-\d\d-\d\d \d\d:", str(refused.value)) and "netcommon registry node join" in str(refused.value)
        again = client.watch(NODES[0], incarnation=NODES[3])
        assert next(again)["event"] == "ready"
        assert [line for line in stream if line["event"] != "ready"] == [], "the same agent's earlier stream has ended"
        again.close()  # type: ignore[attr-defined]


def test_who_may_watch_what(service: Served) -> None:
    client = service.join(0)
    for role, query, kind in (
        ("", {"node": NODES[1]}, "missing"),
        ("", {"node": NODES[0], "incarnation": NODES[3]}, "forbidden"),
        (f"node:{NODES[1]}", {"node": NODES[0], "incarnation": NODES[3]}, "forbidden"),
        (f"node:{NODES[0]}", {"node": NODES[0]}, "invalid"),
        ("", {"node": NODES[0], "start": "other:5"}, "epoch"),
        ("", {"node": NODES[0], "start": "first:99999"}, "compacted"),
        ("", {"node": "here"}, "invalid"),
    ):
        with pytest.raises(Problem) as refused:
            next(service.client(role).watch(**query))
        assert refused.value.kind == kind, (role, query)
    assert client.get("status").body["streams"] == 0


def test_a_hearer_that_is_too_slow_is_cut_off() -> None:
    woken: list[int] = []
    channel = Channel(NODES[0], "", lambda: woken.append(1))
    channel.put([bytes(2 * BOUND)], first=True)
    channel.put([bytes(BOUND)])
    assert not channel.ended and channel.waiting == 3 * BOUND
    channel.put([b"x"])
    assert "too slow" in channel.ended and channel.take() == b""


def test_what_waits_is_taken_piece_by_piece() -> None:
    channel = Channel(NODES[0], "", lambda: None)
    lines = [b"x" * 999 + b"\n" for _ in range(1000)]
    channel.put(lines, first=True)
    found, waiting = [], [channel.waiting]
    while data := channel.take():
        found.append(data)
        waiting.append(channel.waiting)
    assert b"".join(found) == b"".join(lines) and waiting[-1] == 0 and sorted(waiting, reverse=True) == waiting
    assert max(map(len, found)) < PIECE + 1000 and all(each.endswith(b"\n") for each in found)
    channel.put([bytes(BOUND)])
    assert not channel.ended, "what it was told at first counts no more"


def test_who_keeps_too_much_waiting_is_cut_off_and_nobody_else(monkeypatch: pytest.MonkeyPatch) -> None:
    """By many streams of one identity, each within its bound."""
    registry = Remembered(0)
    registry.join(0)
    view = registry.local.view
    monkeypatch.setattr("netregistry.service.streams.TOGETHER", 100_000)
    streams, woken = Streams(view, 100), list[int]()
    hostile = [Channel(NODES[0], "", lambda: woken.append(1), Credential("reader", "mallory", "1", "a", 0.0)) for _ in range(10)]
    others = [Channel(NODES[0], "", lambda: None, Credential("reader", name, "1", "a", 0.0)) for name in ("ann", "bob")]
    for channel in (*hostile, *others):
        streams.open(view, channel, "")
        channel.take()
    for channel in others:
        channel.put([bytes(20_000)])
    for channel in hostile:
        channel.put([bytes(15_000)])
    streams.beat(view, [])
    assert not any(channel.ended for channel in others) and others[0].waiting == 20_000
    cut = [channel for channel in hostile if channel.ended]
    assert len(cut) == len(woken) == streams.cut == 6 and not any(channel.waiting for channel in cut)
    assert streams.count == 6 and sum(channel.waiting for channel in (*hostile, *others)) <= 100_000
    late = Channel(NODES[0], "", lambda: None, Credential("reader", "late", "1", "a", 0.0))
    streams.open(view, late, "")
    assert not late.ended and late.take()


def test_signs_of_life_are_given_in_parts() -> None:
    """Two thousand at once keep everybody else waiting for a fifth of a second."""
    registry = Remembered(0)
    registry.join(0)
    streams, channels = Streams(registry.local.view, 100), [Channel(NODES[0], "", lambda: None) for _ in range(95)]
    for channel in channels:
        streams.open(registry.local.view, channel, "")
        channel.take()
    parts = []
    for turn in range(30):
        due = streams.due(turn, 10)
        streams.beat(registry.local.view, due)
        parts.append([channels.index(channel) for channel in due])
        assert len(due) <= 10 and all(channel.take().count(b"\n") == 1 for channel in due)
    rounds = [[number for part in parts[begin : begin + 10] for number in part] for begin in (0, 10, 20)]
    assert rounds == [list(range(95))] * 3, "each once in ten turns"
    (late,) = [Channel(NODES[0], "", lambda: None)]
    streams.open(registry.local.view, late, "")
    assert late in [channel for turn in range(30, 41) for channel in streams.due(turn, 10)]
    alone = Streams(registry.local.view, 100)
    alone.open(registry.local.view, channels[0], "")
    assert [len(alone.due(100 + turn, 10)) for turn in range(12)] == [1, *[0] * 9, 1, 0], "no more often where there are few"


def test_streams_end_when_the_service_does(tmp_path: Path) -> None:
    with served(tmp_path) as service:
        service.join(0)
        stream = Client(service.path).watch(NODES[0])
        until_ready(stream)
    assert [line["event"] for line in stream if line["event"] != "ready"] == []


def test_streams_end_where_the_registry_is_read_anew() -> None:
    """What they were told is kept nowhere as a whole: they begin anew, and compare."""
    registry, woken = Remembered(0), []
    registry.join(0)
    streams, channel = Streams(registry.local.view, 10), Channel(NODES[0], "", lambda: woken.append(1))
    streams.open(registry.local.view, channel, "")
    streams.hear(registry.local.view, None)
    assert "anew" in channel.ended and woken and streams.count == 0


def test_no_stream_is_opened_after_the_last_one_was_ended(tmp_path: Path) -> None:
    """A request that waits its turn while the service stops would keep it from its end."""
    registry = Remembered(0)
    registry.join(0)
    streams = Streams(registry.local.view, 10)
    streams.open(registry.local.view, Channel(NODES[0], "", lambda: None), "")
    streams.ended = True
    with pytest.raises(Refused, match="stops"):
        streams.open(registry.local.view, Channel(NODES[0], "", lambda: None), "")
