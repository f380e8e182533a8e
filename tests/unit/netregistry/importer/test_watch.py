"""A configuration is followed as it lies on a disk, into a service that runs: replaced, cut short, another node's, and taken away."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from netcommon.dns import ganeti
from netcommon.process.notify import Notifier
from netregistry.client import Client
from netregistry.importer import watch
from netregistry.importer.asking import Asking
from netregistry.importer.configuration import LONGEST, parse
from netregistry.importer.ganeti_json import Unusable
from netregistry.importer.importer import Importer
from netregistry.importer.source import NotMaster, Source
from netregistry.importer.watch import Watcher
from netregistry.stores.files import bring_back
from netregistry.stores.sqlite import SqliteStore
from runtime.errors import HostRefused, NetcommonError
from tests.support.ganeti_configuration import CLUSTER, CLUSTER_UUID, MASTERS, NETWORKS, NICS, Cluster, GanetiNode
from tests.support.netns import wait_until
from tests.support.registry import NODES
from tests.support.service import Lines, Served, served

FIRST, SECOND = MASTERS
IN_TIME = 1.0  #: seconds within which a change is in the registry, as the documents say


class Following:
    """A node that follows its configuration in a thread."""

    def __init__(self, root: Path, service: Served, name: str = FIRST, absent: float = 5.0) -> None:
        self.node, self.log = GanetiNode(root, name), Lines()
        self.source = source(self.node, root)
        self._ended = os.pipe()
        self.importers: dict[str, Importer] = {}

        def importer(cluster: str) -> Importer:
            if cluster not in self.importers:
                self.importers[cluster] = Importer(Asking(service.client(f"importer:{cluster}"), cluster), absent)
            return self.importers[cluster]

        self._watcher = Watcher(self.source, importer, self._ended[0], Notifier({}), self.log)
        self._thread = threading.Thread(target=self._watcher.run)

    def start(self) -> None:
        self.node.start()
        self._thread.start()

    def end(self) -> None:
        os.write(self._ended[1], b".")
        self._thread.join(10.0)
        assert not self._thread.is_alive()
        self.node.stop()
        for each in self._ended:
            os.close(each)

    def alarms(self) -> list[str]:
        return [line for line in self.log.lines if "nothing is imported" in line or "not all" in line]


def source(node: GanetiNode, root: Path) -> Source:
    folder, sockets = str(node.folder), str(node.sockets)
    return Source(
        folder,
        str(root / "var/lib/netcommon"),
        lambda name: name == node.name,
        lambda cluster, name: ganeti.confirm(cluster, name, folder, sockets),
    )


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Served]:
    (tmp_path / "run").mkdir()
    with served(tmp_path / "run") as found:
        yield found


@pytest.fixture
def following(tmp_path: Path, service: Served) -> Iterator[Following]:
    found = Following(tmp_path / "node1", service)
    yield found
    found.end()


def small() -> Cluster:
    cluster = Cluster()
    cluster.network(NETWORKS[0], "blue")
    cluster.nic(NICS[0], network=NETWORKS[0], ip="192.0.2.9")
    return cluster


def nics(service: Served) -> dict[str, Any]:
    return {item["nic"]["uuid"]: item["nic"] for item in service.say("GET", "/v1/nics").body["items"]}


def importing(service: Served) -> str:
    """Give the node that imports."""
    return str(service.say("GET", "/v1/imports").body["items"][0]["imported"]["node"])


def seconds_until(condition: Any, limit: float = 15.0) -> float:
    begun = time.monotonic()
    wait_until(condition, limit)
    return time.monotonic() - begun


def test_a_change_is_there_within_a_second(following: Following, service: Served) -> None:
    cluster = small()
    following.node.write(cluster)
    following.start()
    wait_until(lambda: NICS[0] in nics(service), 10)
    took = []
    for number in range(10):
        cluster.instance("web1.example.com")["tags"] = [f"tag{number}"]
        cluster.changed()
        following.node.write(cluster)
        took.append(seconds_until(lambda tags=[f"tag{number}"]: nics(service)[NICS[0]]["tags"] == tags))
    assert median(took) < IN_TIME, took  # the machine may be busy with something else once
    assert following.alarms() == []


def test_what_is_removed_goes_within_six(following: Following, service: Served) -> None:
    cluster = small()
    following.node.write(cluster)
    following.start()
    wait_until(lambda: NICS[0] in nics(service), 10)
    cluster.remove(NICS[0])
    following.node.write(cluster)
    took = seconds_until(lambda: not nics(service))
    assert 4.9 < took < 5 + IN_TIME
    wait_until(lambda: any("1 deleted" in line for line in following.log.lines), 5)


def test_one_that_is_written_in_its_place(following: Following, service: Served) -> None:
    """Cut short first, as somebody's editor may do it: nothing is imported of that, and the whole one is."""
    cluster = small()
    following.node.write(cluster)
    following.start()
    wait_until(lambda: NICS[0] in nics(service), 10)
    cluster.nic(NICS[1])
    with following.node.file.open("wb") as stream:
        stream.write(cluster.data[: len(cluster.data) // 2])
        stream.flush()
        before = nics(service)
    wait_until(lambda: len(following.alarms()) == 1, 5)
    assert "not whole" in following.alarms()[0] and nics(service) == before
    following.node.file.write_bytes(b"")
    following.node.file.write_bytes(cluster.data)
    wait_until(lambda: NICS[1] in nics(service), 5)
    wait_until(lambda: any("imported again" in line for line in following.log.lines), 5)
    assert len(following.alarms()) == 1


def test_bad_ones_are_one_alarm_each_and_change_nothing(following: Following, service: Served) -> None:
    cluster = small()
    following.node.write(cluster)
    following.start()
    wait_until(lambda: NICS[0] in nics(service), 10)
    before = nics(service)
    cluster.nic(NICS[1])
    bad = [
        (lambda document: document.update(version=9), "version"),
        (lambda document: document.update(serial_no=1), "is older"),
        (lambda document: document["cluster"].update(uuid=NICS[5]), "another cluster of this name"),
        (lambda document: document["cluster"].update(cluster_name="other.example.com"), "a node of"),
        (lambda document: document["networks"][NETWORKS[0]].update(name="\x1b]0;x\x07"), "not as Ganeti"),
    ]
    for number, (change, said) in enumerate(bad, 1):
        other = small()
        other.document["serial_no"] = 100
        other.nic(NICS[1])
        change(other.document)
        following.node.write(other)
        wait_until(lambda number=number: len(following.alarms()) == number, 5)
        assert said in following.alarms()[-1]
        following.node.write(other)  # the same once more is no second alarm
        following.node.write(small())
        wait_until(lambda number=number: sum("imported again" in line for line in following.log.lines) == number, 5)
    assert len(following.alarms()) == len(bad)
    assert nics(service) == before
    following.node.file.unlink()
    cluster.document["serial_no"] = 200
    following.node.write(cluster)
    wait_until(lambda: NICS[1] in nics(service), 5)


def test_a_node_of_another_cluster_is_named_once(tmp_path: Path, service: Served) -> None:
    service.client().change("POST", "nodes", {"uuid": NODES[0], "name": "node7", "cluster": "prod"})
    with Client(service.path, f"importer:{CLUSTER}") as asked:
        Importer(Asking(asked, CLUSTER)).take(parse(small().data), (), 1.0)
    body = {"after": f"{service.client().get('').body['epoch']}:0", "nics": [{"nic": NICS[0], "state": "running"}]}
    service.client(f"node:{NODES[0]}").change("POST", f"nodes/{NODES[0]}/reports", body)
    following = Following(tmp_path / "node1", service)
    cluster = small()
    following.node.write(cluster)
    following.start()
    try:
        wait_until(lambda: any("node7: netcommon registry node set NODE cluster=" in line for line in following.log.lines), 10)
        cluster.nic(NICS[1])
        following.node.write(cluster)
        wait_until(lambda: NICS[1] in nics(service), 10)
        assert sum("node7" in line for line in following.log.lines) == 1 and following.alarms() == []
    finally:
        following.end()


def test_a_registry_that_is_away(tmp_path: Path) -> None:
    """It is one alarm, and what has changed meanwhile is imported when it is back."""
    (tmp_path / "run").mkdir()
    with served(tmp_path / "run") as service:
        following = Following(tmp_path / "node1", service)
        client = Client(str(tmp_path / "away/socket"), f"importer:{CLUSTER}")
        following.importers[CLUSTER] = Importer(Asking(client, CLUSTER))
    following.node.write(small())
    following.start()
    try:
        wait_until(lambda: len(following.alarms()) == 1, 5)
        (tmp_path / "away").mkdir()
        with served(tmp_path / "away") as service:
            wait_until(lambda: NICS[0] in nics(service), 10)
        assert len(following.alarms()) == 1
    finally:
        following.end()
        client.close()


def test_a_registry_that_was_restored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has what Ganeti says within seconds, though the configuration is as it was, and is not looked at meanwhile."""
    monkeypatch.setattr(watch, "EPOCH", 0.2)
    path, copy = str(tmp_path / "registry.sqlite"), str(tmp_path / "copy.sqlite")
    store = SqliteStore.create(path, "first")
    (tmp_path / "run").mkdir()
    following = None
    try:
        with served(tmp_path / "run", store=store) as service:
            store.backup(copy)
            following = Following(tmp_path / "node1", service)
            client = Client(service.path, f"importer:{CLUSTER}")
            following.importers[CLUSTER] = Importer(Asking(client, CLUSTER))
            following.node.write(small())
            following.start()
            wait_until(lambda: NICS[0] in nics(service), 10)
        store.close()
        bring_back(copy, path)
        with served(tmp_path / "run", store=SqliteStore(path)) as service:
            assert seconds_until(lambda: NICS[0] in nics(service)) < 5
        assert following.alarms() == [], "that it was away for a moment is nobody's business"
    finally:
        if following is not None:
            following.end()
            client.close()


def test_two_masters(tmp_path: Path, service: Served) -> None:
    """After a failover the new master imports at once; the old one, which does not know of it, changes nothing and says so once."""
    one, two = Following(tmp_path / "node1", service), Following(tmp_path / "node2", service, SECOND)
    cluster = small()
    for each in (one, two):
        each.node.write(cluster)
        each.start()
    try:
        wait_until(lambda: NICS[0] in nics(service), 10)
        wait_until((tmp_path / "node2/var/lib/netcommon/importer.json").exists, 5)
        isolated = Cluster(500)
        isolated.document["networks"], isolated.document["instances"] = cluster.document["networks"], {}
        isolated.nic(NICS[0], network=NETWORKS[0], ip="192.0.2.9")
        cluster.master(SECOND)
        two.node.write(cluster)
        wait_until(lambda: importing(service) == SECOND, 5)
        isolated.nic(NICS[3])
        one.node.write(isolated)
        wait_until(lambda: len(one.alarms()) == 1, 5)
        assert f"{SECOND} imports it" in one.alarms()[0]
        one.node.write(cluster)
        cluster.nic(NICS[4])
        two.node.write(cluster)
        wait_until(lambda: NICS[4] in nics(service), 5)
        assert set(nics(service)) == {NICS[0], NICS[4]} and two.alarms() == []
        assert not any("imported again" in line for line in one.log.lines), "it is no master, and imports nothing"
    finally:
        one.end()
        two.end()


# -- the node's side alone


@pytest.fixture
def node(tmp_path: Path) -> Iterator[GanetiNode]:
    found = GanetiNode(tmp_path)
    found.start()
    yield found
    found.stop()


def test_only_the_master_reads(node: GanetiNode, tmp_path: Path) -> None:
    reading = source(node, tmp_path)
    with pytest.raises(NotMaster):
        reading.read()
    cluster = small()
    node.write(cluster)
    assert reading.read()[1] == ()
    cluster.master(SECOND)
    node.write(cluster)
    with pytest.raises(NotMaster, match=SECOND):
        reading.read()
    serial = cluster.document["serial_no"]
    cluster.master(FIRST)
    node.write(cluster)
    assert source(node, tmp_path).read()[1] == ((MASTERS[SECOND], serial),)


def test_the_last_masters_that_were_seen_are_kept(node: GanetiNode, tmp_path: Path) -> None:
    """Each with the latest serial of its; of one that a version before this has kept, too."""
    cluster, kept = small(), tmp_path / "var/lib/netcommon/importer.json"
    kept.parent.mkdir()
    kept.write_text(json.dumps({"uuid": CLUSTER_UUID, "master": NICS[11], "serial": 1}))
    reading, seen = source(node, tmp_path), []
    others = [f"{number:08x}-9999-4999-8999-999999999999" for number in range(9)]
    for number, uuid in enumerate([*others, others[4]]):
        cluster.document["nodes"][uuid] = {"name": f"other{number}.example.com", "uuid": uuid}
        cluster.document["cluster"]["master_node"] = uuid
        cluster.changed()
        node.file.write_bytes(cluster.data)
        with pytest.raises(NotMaster):
            reading.read()
        seen.append((uuid, cluster.document["serial_no"]))
        if number == 0:
            assert json.loads(kept.read_text())["before"] == [{"master": NICS[11], "serial": 1}]
    cluster.master(FIRST)
    node.write(cluster)
    assert source(node, tmp_path).read()[1] == (*seen[1:4], *seen[5:])
    cluster.document["cluster"]["uuid"] = NICS[5]
    node.write(cluster)
    assert source(node, tmp_path).read()[1] == ()


def test_what_was_seen_is_read_with_care(node: GanetiNode, tmp_path: Path) -> None:
    node.write(small())
    kept = tmp_path / "var/lib/netcommon/importer.json"
    kept.parent.mkdir()
    for text in ("", "{", '{"uuid": 7}', "x" * 5000, '{"uuid":"13264fb6-0667-415f-9a43-786dc01cbf24","master":"x","serial":1}'):
        kept.write_text(text)
        assert source(node, tmp_path).read()[1] == ()


@pytest.mark.parametrize(
    ("file", "text", "said"),
    [
        ("ssconf_cluster_name", "other.example.com\n", "a node of other.example.com"),
        ("ssconf_cluster_name", "", "no cluster"),
        ("ssconf_master_node", f"{SECOND}\n", "ssconf_master_node"),
    ],
)
def test_what_else_there_is_must_confirm_it(node: GanetiNode, tmp_path: Path, file: str, text: str, said: str) -> None:
    node.write(small())
    (node.folder / file).write_text(text)
    with pytest.raises(HostRefused, match=said):
        source(node, tmp_path).read()


def test_without_its_daemons_nobody_is_the_master(node: GanetiNode, tmp_path: Path) -> None:
    node.write(small())
    node.stop()
    with pytest.raises(NetcommonError, match="no daemon"):
        source(node, tmp_path).read()


def test_what_is_no_file(node: GanetiNode, tmp_path: Path) -> None:
    reading = source(node, tmp_path)
    os.mkfifo(node.file)
    with pytest.raises(Unusable):
        reading.read()
    node.file.unlink()
    node.file.symlink_to("/etc/passwd")
    with pytest.raises(HostRefused, match="cannot read"):
        reading.read()
    node.file.unlink()
    with node.file.open("wb") as stream:
        stream.truncate(LONGEST + 1)
    with pytest.raises(Unusable, match="bytes"):
        reading.read()
