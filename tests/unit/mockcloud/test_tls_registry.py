"""Nodes of a mock cloud with a registry elsewhere: each joins by a token, and goes by a certificate of its own."""

from __future__ import annotations

import json
import os
import select
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from mockcloud import elsewhere
from mockcloud.cloud import MockCloud
from mockcloud.instances.tasks import SECONDS as SHOWN
from mockcloud.instances.tasks import Instances
from mockcloud.invariants import fitting
from mockcloud.own_service import named
from mockcloud.replaced.transport import connection, link
from mockcloud.replaced.transport import session as transport
from mockcloud.sysinfo import node_uuid
from netregistry import credentials
from netregistry.client import Problem
from netregistry.reach import NoAddress
from netregistry.service.limits import Limits
from runtime.errors import HostRefused
from runtime.paths import Paths
from tests.support.mock_nodes import standing, until
from tests.support.netns import slowness
from tests.support.tls import Secured, secured

NODES = 3
FIRST, SECOND, THIRD = node_uuid(1), node_uuid(2), node_uuid(3)


@pytest.fixture
def registry(tmp_path: Path) -> Iterator[Secured]:
    folder = tmp_path / "service"
    folder.mkdir()
    with secured(folder, Limits(beat=1.0, rate=10_000.0)) as found:
        yield found


def opened(registry: Secured, root: Path, home: str) -> MockCloud:
    return MockCloud(str(root), service=registry.url, home=home)


@pytest.fixture
def home(registry: Secured) -> str:
    """Give the folder of a machine that has joined as an operator."""
    return registry.join("operator", "me").lib


@pytest.fixture
def cloud(registry: Secured, home: str, tmp_path: Path) -> Iterator[MockCloud]:
    made = opened(registry, tmp_path / "cloud", home)
    try:
        made.create(NODES)
        made.network("blue", {"subnet": "192.0.2.0/24"})
        made.start(0.0)
        until(made, lambda: standing(made) == ["in step"] * NODES, "all agents are in step")
        yield made
    finally:
        made.close()


def shown(cloud: MockCloud, node: str) -> Any:
    return credentials.read(cloud.nodes[node].paths.lib, "node")


def test_each_node_goes_by_its_own_certificate(cloud: MockCloud, registry: Secured) -> None:
    for node in cloud.nodes:
        one = shown(cloud, node)
        assert one.name == node and one.addresses == (registry.url,)
        assert os.stat(one.folder).st_mode & 0o777 == 0o700
    keys = {Path(shown(cloud, node).folder, credentials.IDENTITY).read_text() for node in cloud.nodes}
    assert len(keys) == NODES
    asked = registry.local.client()
    assert asked.get("status").body["streams"] == NODES
    assert {each["node"]["kind"] for each in asked.all("nodes")} == {"virtual"}
    assert {each["by"] for each in asked.all("tokens") if each["role"] == "node"} == {f"node {node}" for node in cloud.nodes}
    threads = [each.name for each in threading.enumerate() if "renewal" in each.name]
    assert threads == []


def test_an_instance_is_made_moved_and_deleted(cloud: MockCloud) -> None:
    instances = Instances(cloud, SHOWN * slowness())
    instances.create("web1", FIRST, [{"network": "blue"}, {"network": "blue", "mode": "routed", "link": "guests"}])
    assert [each["shown"] for each in instances.shown(instances.start("web1"))["nics"]] == ["running", "running"]
    assert instances.migrate("web1", SECOND).node == SECOND and fitting(cloud) == []
    instances.delete("web1")
    assert fitting(cloud) == []


def test_a_node_that_is_revoked_is_cut_off_alone_and_joins_again(cloud: MockCloud, registry: Secured, home: str) -> None:
    registry.local.client().change("POST", "certificates/revoke", {"role": "node", "name": FIRST})
    until(cloud, lambda: standing(cloud) == ["away", "in step", "in step"], "one is away")
    lib = cloud.nodes[FIRST].paths.lib
    cloud.stop([FIRST])
    Path(credentials.read(lib, "node").folder, credentials.JOINED).unlink()  # type: ignore[union-attr]
    cloud.registry.join(FIRST, "mock1", Paths.under(lib.removesuffix("/var/lib/netcommon")))
    cloud.start(0.0)
    until(cloud, lambda: sorted(standing(cloud)) == ["in step"] * NODES, "it has joined again")


def test_a_node_without_what_it_has_joined_with_is_made_anew(cloud: MockCloud, registry: Secured) -> None:
    """No mock node is joined again by hand: each remedy is to delete it, and make another one."""
    files = {node: Path(shown(cloud, node).folder) for node in cloud.nodes}
    registry.local.client().change("POST", "certificates/revoke", {"role": "node", "name": FIRST})
    until(cloud, lambda: standing(cloud)[0] == "away", "it is away")
    assert str(cloud.status(FIRST)["registry"]).endswith(": delete it, and make another one")
    cloud.stop([SECOND, THIRD])
    (files[SECOND] / credentials.IDENTITY).write_text("x")
    (files[THIRD] / credentials.JOINED).write_text("{")
    cloud.start(0.0)
    until(cloud, lambda: "cannot be used" in str(cloud.status(SECOND)["registry"]), "it says what is wrong")
    assert str(cloud.status(SECOND)["registry"]).endswith(": delete it, and make another one")
    assert list(cloud.failed) == [THIRD] and cloud.failed[THIRD].endswith(f"in {files[THIRD]}: delete it, and make another one")


def test_a_certificate_is_not_renewed_while_its_node_is_cut_off(cloud: MockCloud) -> None:
    done: list[str] = []
    cloud.registry.wire.cut[FIRST] = "answers"
    for node in FIRST, SECOND:
        cloud.nodes[node].around().aside("registry-renewal", partial(done.append, node))
    cloud.scheduler.passes(1.2)
    assert done == [SECOND]
    cloud.registry.wire.cut.clear()
    until(cloud, lambda: done == [SECOND, FIRST], "it is asked when the node is no more")


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let streams be over soon when nothing comes: the service gives a sign of life each second."""
    monkeypatch.setattr(transport, "SILENT", 3.0 * slowness())


@pytest.mark.usefixtures("impatient")
def test_what_was_cut_off_comes_back(cloud: MockCloud) -> None:
    cloud.registry.wire.cut[FIRST] = "both"
    until(cloud, lambda: standing(cloud)[0] == "away", "it is away", 60.0)
    cloud.registry.wire.cut.clear()
    until(cloud, lambda: standing(cloud) == ["in step"] * NODES, "it is back", 60.0)


def test_an_address_that_is_silent_is_passed_over(cloud: MockCloud, registry: Secured, monkeypatch: pytest.MonkeyPatch) -> None:
    """One takes no connection and refuses none, one refuses; the service is at the last one."""
    with ExitStack() as stack:
        closed = stack.enter_context(socket.socket())
        closed.bind(("127.0.0.1", 0))
        found = [(socket.AF_INET, socket.SOCK_STREAM, 0, "", each) for each in (full(stack), closed.getsockname())]
        found += socket.getaddrinfo("localhost", registry.port, type=socket.SOCK_STREAM)
        monkeypatch.setattr(link, "socket", SimpleNamespace(**{**vars(socket), "getaddrinfo": lambda *_given, **_more: found}))
        monkeypatch.setattr(connection, "CONNECTING", 0.2)
        cloud.stop([FIRST])
        cloud.start(0.0)
        until(cloud, lambda: standing(cloud) == ["in step"] * NODES, "it has found the address that answers", 15.0)


def full(stack: ExitStack) -> Any:
    """Give an address at which connections wait to be accepted, as many as may: the kernel drops what asks for another (listen(2))."""
    made = stack.enter_context(socket.socket())
    made.bind(("127.0.0.1", 0))
    made.listen(0)
    for _ in range(100):
        asking = stack.enter_context(socket.socket())
        asking.setblocking(False)
        asking.connect_ex(made.getsockname())
        if not select.select([], [asking], [], 0.2)[1]:
            return made.getsockname()
    raise AssertionError("all are let in")


def test_another_process_goes_on_and_nodes_are_deleted_with_their_certificates(registry: Secured, home: str, tmp_path: Path) -> None:
    cloud = opened(registry, tmp_path / "cloud", home)
    cloud.create(1)
    cloud.close()
    again = MockCloud(str(tmp_path / "cloud"), home=home)
    assert again.service == registry.url
    one = credentials.read(f"{again.root}/servers/{FIRST}/var/lib/netcommon", "node")
    assert one is not None
    with registry.client(one) as asked:
        assert asked.get("").body
        again.delete([FIRST])
        with pytest.raises(Problem):
            asked.get("nodes")
    assert not list(registry.local.client().all("nodes"))
    again.create(1)
    again.close()


def due(home: str) -> tuple[Path, str]:
    """Let the certificate of an operator be due for renewal; give its file, and what that says then."""
    path = Path(home, credentials.FOLDER, "operator", credentials.JOINED)
    said = json.loads(path.read_text())
    path.write_text(json.dumps({**said, "since": said["since"] - 9 * (said["until"] - said["since"])}))
    return path, path.read_text()


def test_the_operators_certificate_is_renewed(registry: Secured, tmp_path: Path, home: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """On this machine nothing but mockcloud may be used, or be used for longer than it lasts."""
    monkeypatch.setattr(elsewhere, "LOOK", 0.2)
    path, before = due(home)
    cloud = opened(registry, tmp_path / "cloud", home)
    try:
        assert path.read_text() != before
        path, before = due(home)
        until(cloud, lambda: path.read_text() != before, "it is renewed while it is used")
        path.unlink()
        cloud.scheduler.passes(0.5)
        assert cloud.list() == [], "what cannot be renewed is used to its end"
    finally:
        cloud.close()


def test_who_is_no_operator_is_refused(registry: Secured, tmp_path: Path, home: str) -> None:
    for lib in (str(tmp_path), registry.join("reader", "you").lib):
        with pytest.raises(HostRefused, match="this machine is no operator of the registry at"):
            opened(registry, tmp_path / "cloud", lib)
    with pytest.raises(HostRefused, match="no operator"):
        MockCloud(str(tmp_path / "cloud"), service="https://localhost:1", home=home)


@pytest.mark.parametrize(
    ("url", "place"),
    [("https://a.example", "https://a.example:8931"), ("https://[2001:db8::1]:5", "https://[2001:db8::1]:5"), ("etcd:3", "etcd:3")],
)
def test_what_names_a_registry(url: str, place: str) -> None:
    assert named(url) == place
    with pytest.raises(NoAddress):
        named("https://a.example/x")
