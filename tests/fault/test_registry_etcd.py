"""An etcd whose members are killed, stand still, compact and forget, and that lets in whom it knows: what a store makes of it."""

from __future__ import annotations

import contextlib
import itertools
import os
import resource
import shutil
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from netregistry.stores.base import Batch, Changed, Compacted, Conflict, Delete, Expect, Put, Unavailable, Unknown
from netregistry.stores.etcd import EtcdStore
from netregistry.stores.etcd_client import Client
from netregistry.stores.etcd_facts import Facts, begun, facts
from netregistry.stores.etcd_place import Endpoint
from netregistry.stores.etcd_watch import EtcdWatch
from runtime.errors import HostRefused
from tests.support.authority import authority
from tests.support.etcd import HOST, Cluster, free_ports, stopped, text
from tests.support.gateway import Answer, gateway
from tests.support.netns import slowness, wait_until

TOLD = 5.0  #: seconds within which it is told that there is no majority


@pytest.fixture
def one(etcds: dict[int, Cluster]) -> Cluster:
    etcds[1].anew()
    return etcds[1]


@pytest.fixture
def three(etcds: dict[int, Cluster]) -> Cluster:
    etcds[3].anew()
    return etcds[3]


@contextlib.contextmanager
def opened(cluster: Cluster) -> Iterator[EtcdStore]:
    with EtcdStore.create(cluster.place, "first") as store:
        yield store


def put(store: EtcdStore, key: str, value: bytes = b"") -> int:
    return store.commit([], [Put(key, value)])


def told(act: Callable[[], object]) -> float:
    """Give the seconds until it is told that nothing can be done now."""
    begun = time.monotonic()
    with pytest.raises((Unavailable, Unknown)):
        act()
    return time.monotonic() - begun


def again(act: Callable[[], object], seconds: float = 30) -> None:
    """Wait until something can be done again."""

    def works() -> bool:
        try:
            act()
        except (Unavailable, Unknown):
            return False
        return True

    wait_until(works, seconds, "it can be done again")


@pytest.mark.parametrize("harm", ["killed", "still"])
def test_no_majority_is_told_in_time_and_nobody_waits_for_it_twice(three: Cluster, harm: str) -> None:
    with opened(three) as store:
        before = put(store, "a", b"1")
        leader = three.leader()
        gone = [leader, next(member for member in three.members if member is not leader)]
        for member in gone:
            if harm == "killed":
                member.kill()
            else:
                member.signal(signal.SIGSTOP)
                wait_until(member.stands_still, 10, "it stands still")
        first = told(lambda: store.get("a"))
        assert first <= TOLD
        acts: list[Callable[[], object]] = [lambda: put(store, "b"), lambda: store.list(""), lambda: store.grant(10)]
        acts += [lambda: store.watch("", before + 1), lambda: store.compact(before), lambda: store.keep(1), lambda: store.revoke(1)]
        begun = time.monotonic()
        for act in acts:
            assert told(act) <= TOLD
        for _ in range(200):
            with contextlib.suppress(Unknown, Unavailable):
                put(store, "b")
        assert time.monotonic() - begun <= TOLD + 10, "200 who ask wait for one look a second, and not four seconds each"
        for member in gone:
            if harm == "killed":
                three.run(member)
            else:
                member.signal(signal.SIGCONT)
        again(lambda: store.get("a"))
        assert store.get("a").value == b"1"  # type: ignore[union-attr]
        again(lambda: put(store, "c"))


def test_a_minority_accepts_nothing_and_a_majority_goes_on(three: Cluster) -> None:
    """Ask the member that is left alone, and the two that are not."""
    with opened(three) as store:
        alone = three.leader()
        others = [member for member in three.members if member is not alone]
        with EtcdStore(three.place._replace(endpoints=(Endpoint(HOST, alone.client),))) as minority, stopped(*others):
            assert told(lambda: put(minority, "lost")) <= TOLD
        with stopped(alone):
            again(lambda: put(store, "kept"))
        again(lambda: store.get("kept"))
        assert store.get("kept") is not None


def test_the_leader_is_killed_under_writers_and_watchers(three: Cluster) -> None:
    """Each of four writers counts its key up by what it has read; a watch sees every revision once, and the end is what it was told."""
    with opened(three) as store, store.watch("", store.newest() + 1) as watch:
        stop, counts = threading.Event(), dict.fromkeys(range(4), 0)

        def write(number: int) -> None:
            with EtcdStore(three.place) as mine:
                while not stop.is_set():
                    try:
                        item = mine.get(f"k{number}")
                        there = (int(item.value), item.revision) if item else (0, 0)
                        counts[number] = max(counts[number], there[0])
                        mine.commit([Expect(f"k{number}", there[1])], [Put(f"k{number}", b"%d" % (there[0] + 1))])
                        counts[number] = there[0] + 1
                    except (Unknown, Unavailable, Conflict):
                        pass  # it is read what came of it

        writers = [threading.Thread(target=write, args=(number,)) for number in counts]
        for writer in writers:
            writer.start()
        seen: list[Batch] = []

        def listen(until: Callable[[], bool]) -> None:
            limit = time.monotonic() + 60
            while not until():
                assert time.monotonic() < limit
                with contextlib.suppress(Unavailable):
                    batch = watch.next(0.05)
                    seen.extend([batch] if batch.changes else [])

        for _round in range(3):
            wanted = sum(counts.values()) + 40
            listen(lambda wanted=wanted: sum(counts.values()) >= wanted)  # type: ignore[misc]
            victim = three.leader()
            victim.kill()
            wanted = sum(counts.values()) + 40
            listen(lambda wanted=wanted: sum(counts.values()) >= wanted)  # type: ignore[misc]
            three.run(victim)
        stop.set()
        for writer in writers:
            writer.join(30)
        newest: list[int] = []
        again(lambda: newest.append(store.newest()))
        listen(lambda: bool(seen) and seen[-1].revision >= newest[0])
        revisions = [batch.revision for batch in seen]
        assert revisions == list(range(revisions[0], newest[0] + 1)), "each revision once, and none is missing"
        values: dict[str, int] = {}
        for key, value in itertools.chain.from_iterable(batch.changes for batch in seen):
            assert value is not None and int(value) == values.get(key, 0) + 1, "each step once"
            values[key] = int(value)
        assert {key: b"%d" % value for key, value in values.items()} == three.keys(three.leader())
        assert all(values[f"k{number}"] >= count for number, count in counts.items()), "nothing acknowledged is lost"


def test_a_member_that_stands_still_holds_nobody_up_for_long(three: Cluster) -> None:
    with opened(three) as store, store.watch("", store.newest() + 1) as watch:
        asked = three.members[0]
        put(store, "a", b"1")
        assert watch.next(5.0).changes == (Changed("a", b"1"),)
        with stopped(asked):
            begun = time.monotonic()
            again(lambda: put(store, "b"))
            assert store.get("b") is not None and time.monotonic() - begun < 2 * TOLD
            batch = watch.next(0.0)
            assert batch.changes == (Changed("b", b""),)


def test_a_member_that_is_not_there_is_passed_over(one: Cluster) -> None:
    (port,) = free_ports(1)
    there = one.place.endpoints[0]
    with opened(one) as store:
        put(store, "a")
        with EtcdStore(one.place._replace(endpoints=(Endpoint(HOST, port), there))) as other:
            assert other.get("a") is not None


def test_a_service_of_thousands_of_connections_has_another_one_to_etcd(one: Cluster) -> None:
    """Keep a descriptor for each of them; select(2) takes none above 1023."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(4096, hard), hard))
    try:
        with contextlib.ExitStack() as stack:
            for _ in range(1100):
                stack.callback(os.close, os.open("/dev/null", os.O_RDONLY))
            with opened(one) as store, store.watch("", store.newest() + 1) as watch:
                done = put(store, "a")
                assert store.get("a") is not None and watch.next(5.0).revision == done
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_members_of_two_clusters_are_told_apart(one: Cluster, tmp_path: Path) -> None:
    (tmp_path / "another").mkdir()
    with Cluster(tmp_path / "another", 1, more=["--initial-cluster-token", "another"]) as another, opened(one) as store:
        put(store, "a")
        both = one.place._replace(endpoints=(*one.place.endpoints, *another.place.endpoints))
        with EtcdStore(both) as mixed:
            one.stop()
            with pytest.raises(Unavailable, match="answers for the cluster"):
                mixed.get("a")
            with pytest.raises(Unavailable, match="answers for the cluster"):
                put(mixed, "b")
            assert another.keys() == {}


def test_a_member_of_another_cluster_is_passed_over(three: Cluster, tmp_path: Path) -> None:
    """A member that was set up anew by itself: the two others go on, also once the first one was away."""
    (tmp_path / "another").mkdir()
    with Cluster(tmp_path / "another", 1, more=["--initial-cluster-token", "another"]) as another, opened(three) as store:
        put(store, "a")
        first, _second, third = three.place.endpoints
        with EtcdStore(three.place._replace(endpoints=(first, another.place.endpoints[0], third))) as mixed:
            with mixed.watch("", mixed.newest() + 1) as watch:
                three.members[0].kill()
                again(lambda: mixed.get("a"))
                for number in range(5):
                    put(mixed, "a", b"%d" % number)
                assert [watch.next(5.0).changes for _ in range(5)] == [(Changed("a", b"%d" % number),) for number in range(5)]
                three.start(three.members[0])
                put(mixed, "b")
            assert another.keys() == {}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("seconds", [0.7, 1.2])
def test_an_etcd_as_slow_as_before_is_heard_after_an_outage(one: Cluster, seconds: float) -> None:
    with gateway(one.members[0].client) as between:
        takes = seconds

        def slow(_path: str, answer: Answer) -> Answer:
            threading.Event().wait(takes)
            return answer

        EtcdStore.create(one.place, "first").close()
        with EtcdStore(one.place._replace(endpoints=(Endpoint(HOST, between.port),))) as store:
            between.harm = slow
            store.get("a")
            takes = 3.0
            told(lambda: store.get("a"))
            told(lambda: store.get("a"))
            takes = seconds
            again(lambda: store.get("a"), 15)


def test_an_etcd_that_has_begun_anew_is_another_though_it_counts_alike(tmp_path: Path) -> None:
    """Lose what it held, and make another registry in it by as many steps: the revision of what it says of itself is the same."""
    with Cluster(tmp_path, 1) as etcd, opened(etcd) as store, store.watch("", store.newest() + 1) as watch:
        put(store, "a", b"first")
        etcd.stop()
        shutil.rmtree(etcd.members[0].folder)
        etcd.start()
        with EtcdStore.create(etcd.place, "second") as other:
            put(other, "a", b"second")
            assert other.facts.revision == store.facts.revision
        held = etcd.keys()
        with pytest.raises(HostRefused, match="somebody else"):
            begun(store.client, Facts("third", True, "", 0), store.facts, clear=True)
        acts: list[Callable[[], object]] = [
            lambda: put(store, "b"),
            lambda: store.commit([Expect("a", store.facts.revision + 1)], [Put("a", b"third")]),
            lambda: store.commit([Expect("a", 0)], [Put("a", b"third")]),
            store.newest,
            lambda: watch.next(0.0),
        ]
        for act in acts:
            store._over = False  # what one finds out holds for all
            with pytest.raises(Unavailable, match="another than it was"):
                act()
            assert etcd.keys() == held
        with pytest.raises(Unavailable, match="another than it was"):
            put(store, "b")


@pytest.mark.sampled(2)
@pytest.mark.parametrize("before", [False, True], ids=["within-the-epoch", "to-before-the-epoch"])
@pytest.mark.parametrize("more", [0, 5, 12], ids=["behind", "as-far", "further"])
def test_an_etcd_that_goes_back_begins_a_new_epoch(tmp_path: Path, more: int, before: bool) -> None:
    """Its disk is put back to an earlier state under two services; somebody who starts then commits, to the number of before or further."""
    with Cluster(tmp_path / "etcd", 1) as etcd:
        member, kept = etcd.members[0], tmp_path / "kept"
        with opened(etcd) as first:
            for number in range(3):
                put(first, f"k{number}")
        etcd.stop()
        shutil.copytree(member.folder, kept)
        etcd.start()
        if before:
            with contextlib.closing(Client(etcd.place)) as client:
                begun(client, Facts("second", True, "", 0), facts(client))
        with EtcdStore(etcd.place) as store, EtcdStore(etcd.place) as other:
            watches = [each.watch("", each.newest() + 1) for each in (store, other)]
            for number in range(5):
                put(store, f"history/lost{number}")
            for watch in watches:
                while watch.next(0.0).changes:
                    pass
            etcd.stop()
            shutil.rmtree(member.folder)
            shutil.copytree(kept, member.folder)
            etcd.start()
            with EtcdStore(etcd.place) as new:
                for number in range(more):
                    put(new, f"history/new{number}")
                for each, watch in zip((store, other), watches, strict=True):
                    wait_until(lambda each=each, watch=watch: over(each, watch), 30, "it is noticed")  # type: ignore[misc]
                    with pytest.raises(Unavailable, match="another than it was"):
                        put(each, "history/mine")
                with pytest.raises(Unavailable, match="another than it was"):
                    put(new, "history/mine")  # which has seen nothing go back, but may have told nodes what they had known otherwise
            assert not [key for key in sorted(etcd.keys()) if "lost" in key or "mine" in key]
            with EtcdStore(etcd.place) as anew:
                assert anew.epoch not in ("first", "second", store.epoch) and anew.get("k0")


def over(store: EtcdStore, watch: EtcdWatch) -> bool:
    """Tell whether a store is found to be another one; nothing is told by it meanwhile."""
    with contextlib.suppress(Unavailable):
        assert not watch.next(0.0).changes
    return store.over


def test_a_watch_goes_on_behind_a_cut_and_repeats_nothing(one: Cluster) -> None:
    with opened(one) as store, store.watch("", store.newest() + 1) as watch:
        for number in range(10):
            put(store, f"k{number}")
            if number % 3 == 0:
                one.members[0].kill()
                one.start()
                again(lambda: store.get("k0"))
        assert [watch.next(0.0).changes[0].key for _ in range(10)] == [f"k{number}" for number in range(10)]
        assert not watch.next(0.0).changes


def test_the_sequence_of_issue_18089(one: Cluster) -> None:
    """A deletion at the revision that is compacted: etcd's own watch from there on is told nothing of it.

    https://github.com/etcd-io/etcd/issues/18089
    """
    with opened(one) as store:
        put(store, "a", b"1")
        before = put(store, "b", b"1")
        gone = store.commit([], [Delete("a")])
        watch = store.watch("", before)  # whose stream stands still while that is compacted
        store.compact(gone)
        with pytest.raises(Compacted) as refused:
            store.watch("", gone)
        assert refused.value.floor == gone
        late = put(store, "c", b"1")
        told, complete = [], True
        try:
            while (batch := watch.next(0.0)).changes:
                told.append(batch.revision)
        except Compacted:
            complete = False
        assert not complete or told == [before, gone, late]
        with store.watch("", gone + 1) as behind:
            assert behind.next(0.0).revision == late
        assert sorted(item.key for item in store.list("").items) == ["b", "c"] == sorted(one.keys())


def test_compaction_while_a_watcher_is_away(one: Cluster) -> None:
    with opened(one) as store, store.watch("", store.newest() + 1) as watch:
        put(store, "a", b"1")
        assert watch.next(5.0).changes
        one.members[0].kill()  # the stream is cut
        one.start()
        again(lambda: put(store, "a", b"2"))
        last = store.commit([], [Delete("a")])
        store.compact(last)
        with pytest.raises(Compacted) as refused:
            watch.next(0.0)
        assert refused.value.floor == last


@pytest.mark.parametrize("first", ["commit", "watch", "list"])
def test_a_store_whose_registry_was_replaced_does_nothing_more(one: Cluster, first: str) -> None:
    """Another registry, even of the same keys: what is planned by the one before must not count in it."""
    with opened(one) as store, store.watch("", store.newest() + 1) as watch, EtcdStore(one.place) as other:
        put(store, "a", b"1")
        assert watch.next(5.0).changes
        begun(other.client, Facts("second", True, "", 0), facts(other.client), clear=True)
        acts: dict[str, Callable[[], object]] = {
            "commit": lambda: put(store, "a", b"2"),
            "watch": lambda: watch.next(0.0),
            "list": lambda: store.watch("", store.list("").revision + 1),  # as who has to read all anew does
        }
        acts |= {"later list": lambda: store.list(""), "get": lambda: store.get("a"), "newest": store.newest}
        for act in (acts.pop(first), *acts.values()):
            with pytest.raises(Unavailable, match="another than it was"):
                act()
        assert one.keys() == {}
        with EtcdStore(one.place) as after:
            assert after.epoch == "second" and after.list("").items == ()


# -- who is let in


def auth(cluster: Cluster) -> None:
    """Let in whom etcd knows alone: root, and somebody who may read and write no key of the registry."""
    for name, password in (("root", "secret"), ("other", "secret")):
        cluster.ask("auth/user/add", {"name": name, "password": password})
    cluster.ask("auth/role/add", {"name": "elsewhere"})
    permission = {"permType": "READWRITE", "key": text(b"elsewhere/"), "range_end": text(b"elsewhere0")}
    cluster.ask("auth/role/grant", {"name": "elsewhere", "perm": permission})
    cluster.ask("auth/role/add", {"name": "root"})
    cluster.ask("auth/user/grant", {"user": "root", "role": "root"})
    cluster.ask("auth/user/grant", {"user": "other", "role": "elsewhere"})
    assert "error" not in cluster.ask("auth/enable", {})


def secret(folder: Path, text: str = "secret\n", mode: int = 0o600) -> str:
    file = folder / f"password-{text.strip()}-{mode:o}"
    file.write_text(text)
    file.chmod(mode)
    return str(file)


def test_user_and_password_and_a_token_that_ends(tmp_path: Path) -> None:
    with Cluster(tmp_path, 1, more=["--auth-token-ttl", "1"]) as cluster:
        auth(cluster)
        known = cluster.place._replace(user="root", password=secret(tmp_path))
        with EtcdStore.create(known, "first") as store:
            watch = store.watch("", store.newest() + 1)
            done = put(store, "a", b"1")
            token = store.client._token

            def ended() -> bool:
                return "error" in cluster.ask("kv/range", {"key": text(b"a")}, token=token)

            end = time.monotonic() + 3
            while time.monotonic() < end:  # each use of a token lets it begin anew
                time.sleep(0.05)
            assert ended()
            assert store.get("a") is not None and store.client._token != token
            assert watch.next(0.0) == Batch(done, (Changed("a", b"1"),))
            watch.close()
            store.client._token = token  # a watch does not say that a token has ended
            with store.watch("", done) as other:
                assert other.next(0.0).revision == done
            store.client._token = token
            store._begun({"key": "AA==", "range_end": "AA=="}).close()  # where it has ended right before
            assert store.client._token != token
        for wrong, what in (
            (known._replace(password=secret(tmp_path, "wrong")), "does not let 'root' in"),
            (known._replace(user="nobody", password=secret(tmp_path)), "does not let 'nobody' in"),
            (known._replace(user="other", password=secret(tmp_path)), "'other' may not do that"),
            (cluster.place, "lets nobody in without a user"),
        ):
            with pytest.raises(HostRefused, match=what):
                EtcdStore(wrong)


def test_users_change_where_tokens_say_of_which_state_they_are(tmp_path: Path) -> None:
    """With JSON web tokens etcd refuses all that were made before any user or role was changed."""
    key = rsa.generate_private_key(65537, 2048)
    private, public, plain = tmp_path / "private.pem", tmp_path / "public.pem", serialization.NoEncryption()
    private.write_bytes(key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, plain))
    public.write_bytes(key.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo))
    kind = f"jwt,pub-key={public},priv-key={private},sign-method=RS256,ttl=10m"
    with Cluster(tmp_path, 1, more=["--auth-token", kind]) as cluster:
        auth(cluster)
        with EtcdStore.create(cluster.place._replace(user="root", password=secret(tmp_path)), "first") as store:
            put(store, "a")
            token = store.client._token
            assert "error" not in cluster.ask("auth/user/add", {"name": "another", "password": "secret"}, token=token)
            put(store, "b")
            assert store.client._token != token and store.get("b") is not None


def test_a_user_where_nobody_is_asked_for_one(one: Cluster, tmp_path: Path) -> None:
    with pytest.raises(HostRefused, match="authentication is not enabled"):
        EtcdStore(one.place._replace(user="root", password=secret(tmp_path)))


def test_tls_with_a_certificate_on_both_sides(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ours, foreign = authority(tmp_path / "ours"), authority(tmp_path / "foreign")
    with Cluster(tmp_path, 1, ours) as cluster:
        with opened(cluster) as store, store.watch("", store.newest() + 1) as watch:
            done = put(store, "a", bytes(1 << 20))
            assert watch.next(5.0).revision == done and not watch.next(0.0).changes
        place = cluster.place
        with monkeypatch.context() as patched:
            patched.setattr("netregistry.stores.etcd.Client", partial(Client, told=0.5 * slowness()))  # asking again betters none
            for wrong, what in (
                (place._replace(ca=str(foreign / "ca.pem")), "certificate is not accepted"),
                (place._replace(cert=str(foreign / "cert.pem"), key=str(foreign / "key.pem")), "TLS fails"),
                (place._replace(cert="", key=""), "TLS fails"),
                (place._replace(ca="", cert="", key=""), "closed connection|reset by peer|is no JSON"),
            ):
                with pytest.raises(Unavailable, match=what):
                    EtcdStore(wrong)
        files = {name: tmp_path / f"{name}.pem" for name in ("ca", "cert", "key")}
        for name, file in files.items():
            shutil.copy(ours / f"{name}.pem", file)
        with EtcdStore(place._replace(ca=str(files["ca"]), cert=str(files["cert"]), key=str(files["key"]))) as store:
            for name, file in files.items():
                shutil.copy(foreign / f"{name}.pem", file)
            for connection in store.client._idle.pop(place.endpoints[0]):
                connection.close()
            with monkeypatch.context() as patched, pytest.raises(Unavailable, match="certificate is not accepted"):
                patched.setattr(store.client, "_told", 0.5 * slowness())
                store.get("a")
            for name, file in files.items():  # those that etcd accepts are found without a restart
                shutil.copy(ours / f"{name}.pem", file)
            again(lambda: store.get("a"))
        with pytest.raises(HostRefused, match="cannot use the certificate"):
            EtcdStore(place._replace(key=str(foreign / "key.pem")))
        elsewhere = authority(tmp_path / "elsewhere", "DNS:etcd.example.com")
    with contextlib.closing(Cluster(tmp_path, 1, elsewhere)) as cluster:
        cluster.run(cluster.members[0])
        wait_until(lambda: listens(cluster.members[0].client), 30, "it listens")
        with pytest.raises(Unavailable, match="certificate is not accepted"):
            EtcdStore(cluster.place)


def listens(port: int) -> bool:
    with socket.socket() as asking:
        return asking.connect_ex((HOST, port)) == 0


def test_nobody_there(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    place = Cluster(tmp_path, 1).place._replace(endpoints=(Endpoint(HOST, port),))
    assert told(lambda: EtcdStore(place)) <= TOLD
    with socket.create_server((HOST, port)):  # who takes connections, and says nothing
        assert told(lambda: EtcdStore(place)) <= TOLD
