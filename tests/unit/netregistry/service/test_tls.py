"""The service by TLS, with real sockets and certificates: who gets in, who does not, and what both sides are told."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterator
from http.client import HTTPSConnection
from pathlib import Path

import pytest

from netregistry import credentials
from netregistry.authority import key_files, x509
from netregistry.client import Client, Problem
from netregistry.credentials import Credentials
from netregistry.reach import Places, TlsPlace
from netregistry.service.limits import Limits
from runtime.errors import NetcommonError
from tests.support.registry import NODES
from tests.support.service import SECONDS
from tests.support.tls import Secured, Shown, forged, forged_authority, free_port, secured, status_of


@pytest.fixture
def registry(tmp_path: Path) -> Iterator[Secured]:
    with secured(tmp_path) as found:
        yield found


def fails(registry: Secured, identity: str) -> str:
    """Ask with a certificate that must not be taken; give what our client says of it."""
    place = TlsPlace("localhost", registry.port, Shown(identity, registry.trusted).context)
    with pytest.raises(NetcommonError) as caught, Client(Places([place])) as client:
        client.get("nics")
    return str(caught.value)


def test_a_node_joins_and_asks(registry: Secured) -> None:
    node = registry.join("node", NODES[0])
    with registry.client(node) as client:
        assert client.get(f"nodes/{NODES[0]}").body["node"]["name"] == f"node-{NODES[0][:8]}"
        nic = client.change("POST", "nics", {"instance": "a", "index": 0, "found": True}).body
        assert nic["master"] == f"node:{NODES[0]}"
    entries = registry.local.client().get("history").body["items"]
    who = [(item["entry"]["who"]["role"], item["entry"]["who"]["origin"]) for item in entries]
    assert who[-2:] == [("newcomer", "127.0.0.1"), ("node", "127.0.0.1")]


def test_only_a_hash_of_a_token_is_kept(registry: Secured) -> None:
    label, secret = registry.token("reader", "ann")
    said = registry.say("POST", "/v1/join", registry.joining((label, secret), x509.make_key()), Shown("", registry.trusted))
    assert said.status == 201
    assert [key for key, value in registry.local.everything().items() if secret.encode() in value or secret in key] == []
    assert not [line for line in registry.lines if secret in line]
    assert all("proof" not in item for item in registry.local.client().get("tokens").body["items"])


@pytest.mark.parametrize(
    ("reason", "words"),
    [("expired", "has ended"), ("not-yet", "not taken"), ("self-signed", "no authority"), ("foreign", "no authority")],
)
def test_certificates_that_are_refused_in_the_handshake(registry: Secured, reason: str, words: str) -> None:
    """Both sides say why, in one line, and what helps."""
    (item,) = registry.local.client().get("authorities").body["items"]
    ours = item["authority"]["certificate"], key_files.key(registry.keys, item["authority"]["id"])
    stranger = x509.make_authority(1.8e9)
    identity = {
        "expired": lambda: forged(registry.folder, by=ours, end=-1.0),
        "not-yet": lambda: forged(registry.folder, by=ours, begin=600.0),
        "self-signed": lambda: forged(registry.folder),
        "foreign": lambda: forged(registry.folder, by=(stranger.authority.certificate, stranger.key)),
    }[reason]()
    said = fails(registry, identity)
    assert words in said and "netcommon registry join URL TOKEN" in said and "\n" not in said
    registry.local.until(lambda: registry.counted(reason) == 1)
    (line,) = [line for line in registry.lines if "is refused" in line]
    assert "127.0.0.1" in line and "netcommon registry token create" in line


def test_a_forged_issuer_name_is_of_no_use(registry: Secured) -> None:
    stranger = x509.make_authority(1.8e9)
    (item,) = registry.local.client().get("authorities").body["items"]
    name = f"netcommon registry authority {item['authority']['id']}"
    fails(registry, forged(registry.folder, by=(stranger.authority.certificate, stranger.key), issuer=name))
    registry.local.until(lambda: registry.counted("foreign") == 1)


def test_a_lost_key_signs_nothing_under_its_successors_name(registry: Secured) -> None:
    """Make an authority of the new one's name with it; what that signs would count on, on a connection that stayed open."""
    (item,) = registry.local.client().get("authorities").body["items"]
    old = item["authority"]["id"]
    lost = item["authority"]["certificate"], key_files.key(registry.keys, old)
    name = f"netcommon registry authority {registry.rotate()}"
    between = forged_authority(name, lost)
    shown = Shown(forged(registry.folder, by=between, more=between[0]), registry.trusted)
    ann = registry.client(registry.join("operator", "ann"))
    mallory = HTTPSConnection("localhost", registry.port, timeout=SECONDS, context=shown.context())
    with ann, contextlib.closing(mallory):
        ann.get("tokens")
        mallory.request("GET", "/v1/tokens")
        response = mallory.getresponse()
        assert (response.status, json.loads(response.read())["reason"]) == (403, "foreign") and response.will_close
        registry.local.client().change("DELETE", f"authorities/{old}")
        with pytest.raises(OSError):  # in the handshake
            mallory.request("GET", "/v1/tokens")
            mallory.getresponse()
        ann.get("tokens")


def test_a_certificate_of_a_service_is_none_of_a_client_and_the_other_way_round(registry: Secured) -> None:
    (item,) = registry.local.client().get("authorities").body["items"]
    authority = x509.read_authority(item["authority"]["certificate"])
    pem, _until = x509.make_service(["localhost"], authority, key_files.key(registry.keys, authority.id), 1.8e9)
    path = registry.folder / "service.pem"
    path.write_text(pem)
    fails(registry, str(path))
    registry.local.until(lambda: registry.counted("foreign") == 1)


def test_revoked(registry: Secured) -> None:
    node = registry.join("node", NODES[0])
    with registry.client(node) as client:
        client.get("")
        registry.local.client().change("POST", "certificates/revoke", {"role": "node", "name": NODES[0]})
        with pytest.raises(Problem) as caught:
            client.get("")  # on the connection that was open
        with registry.opened("/v1", registry.shown(node)) as response:
            assert response.status == 403 and response.read() and response.will_close, "nothing more will be done on it"
    assert caught.value.kind == "certificate" and "netcommon registry join URL TOKEN" in str(caught.value)
    assert registry.counted("revoked") == 2 and [line for line in registry.lines if "is refused" in line and "revoked" in line]


@pytest.mark.parametrize("again", [False, True])
def test_whoever_has_a_forgotten_nodes_certificate_is_told_that_and_nothing_else(registry: Secured, again: bool) -> None:
    """Refuse each request alike, and of a node that is there again by another certificate tell nobody that it was ever forgotten."""
    node, uuid, local = registry.join("node", NODES[0]), NODES[0], registry.local.client()
    registry.join("node", NODES[1])
    local.change("DELETE", f"nodes/{uuid}", match="*")
    if again:
        registry.join("node", uuid)
    looks = ("", "/nodes", f"/nodes/{uuid}", f"/nodes/{NODES[1]}", "/nics", "/underlay", f"/watch?node={uuid}&incarnation={uuid}")
    posts = (f"/nodes/{uuid}/reports", f"/nodes/{uuid}/heartbeat", "/nodes", "/certificates", "/batch")
    for method, place in [*(("GET", each) for each in looks), *(("POST", each) for each in posts)]:
        said = registry.say(method, f"/v1{place}", {} if method == "POST" else None, registry.shown(node))
        reason, why = ("revoked", "revoked") if again else ("forgotten", "revoked, since the node was forgotten")
        assert (said.status, said.body["reason"]) == (403, reason), place
        assert said.body.keys() == {"type", "title", "status", "detail", "reason"}, "nothing else of it"
        assert said.body["detail"].startswith(f"the certificate of node {uuid} is {why}: ") and said.headers["Connection"] == "close"
    assert [item["node"]["uuid"] for item in local.all("nodes")] == [*([uuid] if again else []), NODES[1]]


@pytest.mark.parametrize("reason", ["token-unknown", "token-used", "token-late", "token-other"])
def test_tokens_that_are_refused(registry: Secured, reason: str) -> None:
    anybody, token = Shown("", registry.trusted), registry.token("node")
    uuid = NODES[0]
    if reason == "token-unknown":
        token = token[0], "0" * 32
    elif reason == "token-used":
        assert registry.say("POST", "/v1/join", registry.joining(token, x509.make_key(), uuid), anybody).status == 201
        uuid = NODES[1]
    elif reason == "token-late":
        core, late = registry.local.service.registry.local.core, time.time() + 7200
        core.now = lambda: late
    else:
        registry.join("node", uuid)
    said = registry.say("POST", "/v1/join", registry.joining(token, x509.make_key(), uuid), anybody)
    assert (said.status, said.body["reason"]) == (403, reason) and "netcommon registry token create" in said.body["detail"]
    assert registry.counted(reason) == 1 and [line for line in registry.lines if "is refused" in line]


def test_a_node_that_reports_for_another(registry: Secured) -> None:
    one, _other = registry.join("node", NODES[0]), registry.join("node", NODES[1])
    body = {"after": f"{registry.local.store.epoch}:0", "nics": []}
    said = registry.say("POST", f"/v1/nodes/{NODES[1]}/reports", body, registry.shown(one))
    assert (said.status, said.body["master"]) == (403, f"node:{NODES[1]}")
    said = registry.say("GET", "/v1", None, registry.shown(one), Netcommon_Role=f"node:{NODES[1]}")
    assert (said.status, said.body["reason"]) == (403, "another")
    assert registry.say("GET", "/v1", None, registry.shown(one), Netcommon_Role="operator:root").status == 403
    assert registry.counted("another") == 3
    assert [line for line in registry.lines if "127.0.0.1 is refused: a node reports for itself alone" in line]


def test_the_next_address_is_asked_where_one_is_dead(registry: Secured) -> None:
    node = registry.join("node", NODES[0])
    dead = [f"https://localhost:{free_port()}", f"https://127.0.0.1:{free_port()}"]
    with Client(node.places([*dead, registry.url])) as client:
        assert client.get("").body["name"] == "netcommon registry"
        assert next(client.watch(NODES[0], incarnation=NODES[5]))["event"]
    with Client(node.places(dead)) as client, pytest.raises(NetcommonError) as caught:
        client.get("")
    assert all(each in str(caught.value) for each in dead)


def test_who_does_not_speak_tls_is_counted(registry: Secured) -> None:
    import socket

    with socket.create_connection(("127.0.0.1", registry.port)) as plain:
        plain.sendall(b"GET / HTTP/1.1\r\n\r\n")
        plain.settimeout(5)
        while plain.recv(100):
            pass
    registry.local.until(lambda: registry.counted("no-tls") == 1)


@pytest.mark.parametrize("ahead", [295.0, -295.0])
def test_clocks_that_are_five_minutes_apart(registry: Secured, ahead: float) -> None:
    """Everything is made by the service's clock: its own certificate, a new authority, a node's."""
    core = registry.local.service.registry.local.core
    core.now = lambda: time.time() + ahead
    (item,) = registry.local.client().get("authorities").body["items"]
    registry.rotate()
    registry.local.client().change("DELETE", f"authorities/{item['authority']['id']}")
    with registry.client(registry.join("node", NODES[0])) as client:
        assert client.get(f"nodes/{NODES[0]}").body["alive"] is False
        client.change("POST", "certificates")


def test_no_ticket_spares_anybody_the_look_at_his_certificate(registry: Secured) -> None:
    import socket
    import ssl

    context = registry.shown(registry.join("node", NODES[0])).context()
    with socket.create_connection(("localhost", registry.port)) as plain, context.wrap_socket(plain, server_hostname="localhost") as made:
        made.sendall(b"GET /v1 HTTP/1.1\r\nHost: localhost\r\n\r\n")
        made.recv(100)
        assert made.version() == "TLSv1.3" and (made.session is None or not made.session.has_ticket)
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    with socket.create_connection(("localhost", registry.port)) as plain, pytest.raises(ssl.SSLError):
        context.wrap_socket(plain, server_hostname="localhost")


def test_newcomers_keep_nobody_else_out(registry: Secured, monkeypatch: pytest.MonkeyPatch) -> None:
    """Connections without a certificate are so many at most, and do not last."""
    import socket

    from netregistry.service import tls

    monkeypatch.setattr(tls, "NEWCOMERS", 3)
    monkeypatch.setattr(tls, "STAY", 1.0)
    node, context = registry.join("node", NODES[0]), Shown("", registry.trusted).context()
    held = [context.wrap_socket(socket.create_connection(("localhost", registry.port)), server_hostname="localhost") for _ in range(6)]
    registry.local.until(lambda: registry.counted("busy") >= 3)
    with registry.client(node) as client:
        client.get("")
    for each in held:
        each.settimeout(20)
        with pytest.raises((OSError, AssertionError)):  # reset, or ended
            assert each.recv(1)
        each.close()
    assert registry.say("GET", "/v1", None, Shown("", registry.trusted)).status == 200


def test_who_says_nothing_keeps_nobody_out(registry: Secured, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither in the handshake nor, without a certificate, behind it: the longest waiting goes."""
    import socket

    from netregistry.service import tls

    monkeypatch.setattr(tls, "HANDSHAKES", 4)
    monkeypatch.setattr(tls, "NEWCOMERS", 2)
    node, context = registry.join("node", NODES[0]), Shown("", registry.trusted).context()
    silent = [socket.create_connection(("localhost", registry.port)) for _ in range(8)]
    with registry.client(node) as client:
        assert client.get("").body["name"] == "netcommon registry"
    silent += [context.wrap_socket(socket.create_connection(("localhost", registry.port)), server_hostname="localhost") for _ in range(4)]
    assert registry.join("reader", "ann").role == "reader"
    for each in silent:
        each.close()


def test_one_certificate_keeps_nobody_else_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither by connections, nor by many certificates of one identity: the longest there goes."""
    import socket

    from netregistry.service import serve, tls

    monkeypatch.setattr(tls, "OF_ONE", 3)
    monkeypatch.setattr(serve, "RESERVED", 6)
    with secured(tmp_path, Limits(connections=40, rate=10_000.0)) as registry, contextlib.ExitStack() as stack:
        lost = registry.join("node", NODES[0])
        other, again = registry.join("node", NODES[1]), registry.join("node", NODES[0], new=False)

        def opened(one: Credentials) -> socket.socket:
            return stack.enter_context(registry.connected(one))

        first = [opened(each) for each in (other, again)]
        assert [status_of(each) for each in first] == [200, 200]
        held = [opened(lost) for _ in range(6)]
        registry.local.until(lambda: registry.counted("busy") == 3)
        for each in held[:3]:
            with contextlib.suppress(ConnectionError):
                assert not each.recv(1)
        assert [status_of(each) for each in first] == [200, 200]
        mine = [again]

        def crowded() -> bool:
            """Open as many as one certificate may have, by one more certificate each time."""
            with registry.client(mine[-1]) as client, contextlib.suppress(NetcommonError):
                mine.append(credentials.refresh(mine[-1], client, mine[-1].until - 60))
            for _ in range(2):
                with contextlib.suppress(OSError):
                    opened(mine[-1])
            return registry.counted("busy") > 3

        registry.local.until(crowded)
        assert len(mine) > 5
        registry.local.until(lambda: lets_in(registry, other))
        assert status_of(first[0]) == 200


def lets_in(registry: Secured, one: Credentials) -> bool:
    with contextlib.suppress(NetcommonError), registry.client(one) as client:
        return bool(client.get("").body)
    return False


def test_who_is_revoked_uses_up_nothing_of_who_has_joined_again(tmp_path: Path) -> None:
    with secured(tmp_path, Limits(rate=0.001, burst=30.0)) as registry:
        old = registry.join("node", NODES[0])
        new = registry.join("node", NODES[0], new=False)
        said = [registry.say("GET", "/v1", None, registry.shown(old)).status for _ in range(32)]
        assert said == [403] * 30 + [429] * 2
        assert registry.say("GET", "/v1", None, registry.shown(new)).status == 200


def test_the_longest_there_of_the_most_goes() -> None:
    from netregistry.service.tls import crowding, origin

    assert crowding({"a": "1", "b": "2", "c": "2", "d": "3"}) == "b"
    assert origin("2001:db8::1") == origin("2001:db8::ffff:1") != origin("2001:db8:0:1::1") and origin("192.0.2.1") == "192.0.2.1"


def test_what_a_connection_takes(registry: Secured) -> None:
    """Thousands of nodes have two each: asyncio's own buffer alone would be 256 KiB of each."""
    import socket

    context = registry.shown(registry.join("node", NODES[0])).context()

    def resident() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * 4096

    def opened() -> socket.socket:
        made = context.wrap_socket(socket.create_connection(("localhost", registry.port)), server_hostname="localhost")
        made.sendall(b"GET /v1 HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert made.recv(100)
        return made

    opened().close()
    before, held = resident(), [opened() for _ in range(200)]
    taken = (resident() - before) / len(held)
    for each in held:
        each.close()
    assert taken < 160 << 10  # of both sides


def test_a_key_that_is_damaged_or_gone_signs_nothing_and_uses_up_no_token(registry: Secured) -> None:
    (path,) = Path(registry.keys).iterdir()
    key, token, anybody = path.read_text(), registry.token("reader", "ann"), Shown("", registry.trusted)
    body = registry.joining(token, x509.make_key())
    for damage in ("", "no key", x509.make_key(), None):
        path.unlink() if damage is None else path.write_text(damage)
        said = registry.say("POST", "/v1/join", body, anybody)
        assert said.status == 503 and "key" in said.body["detail"], said
    path.write_text(key)
    path.chmod(0o600)
    assert registry.say("POST", "/v1/join", body, anybody).status == 201


def test_a_certificate_that_was_made_while_the_clock_was_fast_is_made_anew(registry: Secured) -> None:
    """Its own: nobody would believe it before that time has come."""
    core, figures = registry.local.service.registry.local.core, registry.local.service.figures
    core.now = lambda: time.time() + 20 * 86400.0
    registry.local.until(lambda: figures.until > time.time() + 40 * 86400.0)
    core.now = time.time
    registry.local.until(lambda: figures.until < time.time() + 31 * 86400.0)
    assert registry.say("GET", "/v1", None, Shown("", registry.trusted)).status == 200


def test_a_service_that_ends_leaves_no_connection_open(tmp_path: Path) -> None:
    """Neither those that say farewell, nor those that hear nothing of it."""
    import gc
    import socket
    import warnings

    with secured(tmp_path) as registry:
        context, anybody = registry.shown(registry.join("node", NODES[0])).context(), Shown("", registry.trusted).context()
        held = [
            each.wrap_socket(socket.create_connection(("localhost", registry.port)), server_hostname="localhost")
            for each in (context, anybody) * 5
        ]
        for each in held:
            each.sendall(b"GET /v1 HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert each.recv(100)
        half = socket.create_connection(("localhost", registry.port))  # one that never begins its handshake
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        gc.collect()
    assert [str(each.message) for each in said if "unclosed" in str(each.message)] == []
    for each in (*held, half):
        each.close()
