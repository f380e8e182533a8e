"""Joining, where the other side is not the registry that made the token, or gives something else than was asked for."""

from __future__ import annotations

import http.server
import json
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from netregistry import credentials, joining
from netregistry.authority import x509
from runtime.errors import HostRefused, TryAgain

OURS, EVIL = x509.make_authority(time.time()), x509.make_authority(time.time())
UUID = "aaaaaaaa-0000-4000-8000-000000000001"


def padded() -> x509.Made:
    """Make an authority whose base64 ends in padding, where Python's decoder ends."""
    while True:
        made = x509.make_authority(time.time())
        if made.authority.certificate.rstrip().split("\n")[-2].endswith("="):
            return made


def answer(**more: Any) -> dict[str, Any]:
    now = time.time()
    said = {"role": "node", "name": UUID, "serial": "0", "since": now, "until": now + 1000, "authority": OURS.authority.id}
    return {**said, "certificate": OURS.authority.certificate, "authorities": [OURS.authority.certificate], **more}


@contextmanager
def service(folder: Path, by: x509.Made, authority: str, given: dict[str, Any], authorities: Any = ...) -> Iterator[tuple[str, list[Any]]]:
    """Be a service with a certificate ``by`` some authority; give its URL, and what it is told. ``authorities``: its whole answer."""
    told: list[Any] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def say(self, status: int, value: Any) -> None:
            data = json.dumps(value).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def do_GET(self) -> None:
            own = {"items": [{"authority": {"id": by.authority.id, "certificate": authority}, "signs": True}], "next": ""}
            self.say(200, own if authorities is ... else authorities)

        def do_POST(self) -> None:
            told.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.say(201, given)

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    class Server(http.server.ThreadingHTTPServer):
        def handle_error(self, *_: Any) -> None:
            """Say nothing of who does not trust it."""

    pem, _until = x509.make_service(["localhost"], by.authority, by.key, time.time())
    path = folder / "service.pem"
    path.write_text(pem)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(path)
    with Server(("127.0.0.1", 0), Handler) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield f"https://localhost:{server.server_port}", told
        finally:
            server.shutdown()
            thread.join(10)


def test_a_false_service_is_not_told_the_secret(tmp_path: Path) -> None:
    """It may say what authorities it likes: the true one is no secret, and its own may stand beside it in one text."""
    true = padded()
    token = joining.make("node", true.authority.fingerprint)
    first, second = true.authority.certificate, EVIL.authority.certificate
    for text in (
        first.strip() + "\n" + second,
        second + first,
        second,
        first + "\n\n" + second,
        first.replace("\n-----END", second + "\n-----END"),
    ):
        with service(tmp_path, EVIL, text, answer()) as (url, told):
            with pytest.raises(HostRefused, match="another fingerprint"):
                joining.join(str(tmp_path), [url], token, {"uuid": UUID})
            assert told == []
    assert not (tmp_path / credentials.FOLDER).exists()


@pytest.mark.parametrize(
    ("authorities", "words"),
    [
        (None, "another fingerprint"),
        (5, "another fingerprint"),
        ({}, "another fingerprint"),
        ({"items": {"authority": 1}}, "another fingerprint"),
        ({"items": [{}, None, 5, [], {"authority": []}, {"authority": {"certificate": 5}}]}, "another fingerprint"),
        ({"items": [{}] * 200_000}, "more than 102400 bytes"),
    ],
)
def test_whatever_a_false_service_says_is_refused_in_one_line(tmp_path: Path, authorities: Any, words: str) -> None:
    token = joining.make("node", OURS.authority.fingerprint)
    with service(tmp_path, EVIL, "", answer(), authorities) as (url, told):
        with pytest.raises((HostRefused, TryAgain), match=words):
            joining.join(str(tmp_path), [url], token, {"uuid": UUID})
        assert told == []


def test_who_joins_is_who_the_registry_says(tmp_path: Path) -> None:
    token = joining.make("node", OURS.authority.fingerprint)
    with service(tmp_path, OURS, OURS.authority.certificate, answer()) as (url, told):
        found = joining.join(str(tmp_path), [url], token, {"uuid": UUID})
    assert [each["secret"] for each in told] == [token.secret]
    assert found == credentials.read(str(tmp_path), "node") and (found.role, found.name) == ("node", UUID)
    assert (Path(found.folder) / credentials.AUTHORITIES).read_text() == OURS.authority.certificate


@pytest.mark.parametrize(
    "more",
    [
        {"role": "../../outside"},
        {"role": "operator"},
        {"name": "bbbbbbbb-0000-4000-8000-000000000001"},
        {"name": 1},
        {"name": "\x1b[2J"},
        {"since": float("nan")},
        {"until": "soon"},
        {"until": 10**400},
        {"authority": None},
        {"certificate": "-----BEGIN CERTIFICATE-----"},
        {"certificate": OURS.authority.certificate + EVIL.authority.certificate},
        {"certificate": OURS.authority.certificate + EVIL.key},
        {"authorities": [OURS.authority.certificate + EVIL.authority.certificate]},
        {"authorities": []},
        {"authorities": [OURS.authority.certificate] * 17},
        {"authorities": OURS.authority.certificate},
    ],
)
def test_what_was_not_asked_for_is_not_kept(tmp_path: Path, more: dict[str, Any]) -> None:
    lib = tmp_path / "lib" / "netcommon"
    lib.mkdir(parents=True)
    asked = "" if more.get("name") == "\x1b[2J" else UUID  # where the token says it, any that can be printed
    with pytest.raises(HostRefused):
        credentials.keep(str(lib), answer(**more), x509.make_key(), ["https://localhost:1"], "node", asked)
    assert [str(each) for each in tmp_path.rglob("*")] == [str(lib.parent), str(lib)]


class Asked:
    """Answers of a registry to who renews."""

    def __init__(self, authorities: list[str], issued: dict[str, Any]) -> None:
        self._authorities, self._issued = authorities, issued

    def get(self, _what: str) -> Any:
        items = [{"authority": {"id": OURS.authority.id, "certificate": each}, "signs": True} for each in self._authorities]
        return type("Said", (), {"body": {"items": items}})()

    def change(self, _method: str, _what: str) -> Any:
        return type("Said", (), {"body": self._issued})()

    def close(self) -> None:
        """Close nothing."""


def kept(folder: Path) -> dict[Path, bytes]:
    return {each: each.read_bytes() for each in folder.rglob("*") if each.is_file()}


@pytest.mark.parametrize("due", [True, False])
@pytest.mark.parametrize("elsewhere", [True, False])
def test_a_join_while_a_renewal_waits_for_its_answer_stays(tmp_path: Path, elsewhere: bool, due: bool) -> None:
    """Also one to the same registry at the same time: its key is another one. A registry that hangs is a reason to join elsewhere."""
    given, (here, url) = answer(), ("https://localhost:1", f"https://localhost:{1 + elsewhere}")
    one = credentials.keep(str(tmp_path), given, x509.make_key(), [here], "node", UUID)
    joined: list[Any] = []

    class Late(Asked):
        def get(self, what: str) -> Any:
            said = {**given, "authorities": [(EVIL if elsewhere else OURS).authority.certificate]}
            joined.extend((credentials.keep(str(tmp_path), said, x509.make_key(), [url], "node", UUID), kept(tmp_path)))
            return super().get(what)

    asked: Any = Late([OURS.authority.certificate], answer(until=one.until + 9))
    renewed = credentials.refresh(one, asked, one.until if due else one.since)
    assert [renewed, kept(tmp_path)] == joined


def test_a_renewal_is_written_when_a_join_beside_it_is_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = credentials.keep(str(tmp_path), answer(), x509.make_key(), ["https://localhost:1"], "node", UUID)
    write, begun, renewal = credentials._write, threading.Event(), threading.Event()

    def slowly(folder: Any, found: Any) -> None:
        if threading.current_thread() is joins:
            begun.set()
            assert renewal.wait(10)
        write(folder, found)

    class Late(Asked):
        def change(self, method: str, what: str) -> Any:
            assert begun.wait(10)
            threading.Timer(0.2, renewal.set).start()  # the renewal waits for the lock by then, and does not get it
            return super().change(method, what)

    monkeypatch.setattr(credentials, "_write", slowly)
    joined: list[Any] = []

    def join() -> None:
        joined.append(credentials.keep(str(tmp_path), answer(until=one.until + 5), x509.make_key(), ["https://localhost:2"], "node", UUID))

    joins = threading.Thread(target=join)
    joins.start()
    asked: Any = Late([OURS.authority.certificate], answer(until=one.until + 9))
    renewed = credentials.refresh(one, asked, one.until)
    joins.join(10)
    assert [renewed] == joined == [credentials.read(str(tmp_path), "node")]


@pytest.mark.parametrize(
    ("authorities", "more"),
    [
        ([OURS.authority.certificate + EVIL.authority.certificate], {}),
        ([OURS.authority.certificate, "nothing"], {}),
        ([OURS.authority.certificate], {"role": "../node"}),
        ([OURS.authority.certificate], {"name": "somebody else"}),
        ([OURS.authority.certificate], {"certificate": ""}),
    ],
)
def test_a_renewal_that_gives_something_else_changes_nothing(tmp_path: Path, authorities: list[str], more: dict[str, Any]) -> None:
    one = credentials.keep(str(tmp_path), answer(), x509.make_key(), ["https://localhost:1"], "node", UUID)
    before = {each: each.read_bytes() for each in tmp_path.rglob("*") if each.is_file()}
    with pytest.raises(HostRefused):
        credentials.refresh(one, Asked(authorities, answer(**more)), one.until)  # type: ignore[arg-type]
    assert {each: each.read_bytes() for each in tmp_path.rglob("*") if each.is_file()} == before
    again = credentials.refresh(one, Asked([OURS.authority.certificate], answer(until=one.until + 9)), one.until)  # type: ignore[arg-type]
    assert again.until == one.until + 9


@pytest.mark.parametrize(
    ("since", "until", "ours", "taken"),
    [
        (1, 9000, True, "refused"),
        (1, 9000, False, "refused"),
        (-600, -1, True, "no"),
        (-600, 100, True, "no"),
        (-600, -1, False, "no"),
        (-600, 100, False, "yes"),
        (-600, 9000, True, "yes"),
    ],
)
def test_a_worse_certificate_is_not_taken_in_place_of_a_good_one(
    tmp_path: Path, since: float, until: float, ours: bool, taken: str
) -> None:
    """By a service whose clock is fast, slow, or so slow that it has ended; of another authority a shorter one is."""
    one = credentials.keep(str(tmp_path), answer(), x509.make_key(), ["https://localhost:1"], "node", UUID)
    now, before = one.until - 200, kept(tmp_path)
    given = answer(since=now + since, until=now + until, authority=(OURS if ours else EVIL).authority.id)
    asked: Any = Asked([EVIL.authority.certificate], given)
    if taken == "refused":
        with pytest.raises(HostRefused, match="begins 1 s later"):
            credentials.refresh(one, asked, now)
    else:
        found = credentials.refresh(one, asked, now)
        assert (found == one) == (taken == "no")
    changed = {each.name for each, data in kept(tmp_path).items() if before[each] != data}
    assert changed >= {"authorities.pem"} and ("joined.json" in changed) == (taken == "yes")
