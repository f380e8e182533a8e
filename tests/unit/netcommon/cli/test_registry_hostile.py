"""netcommon registry, answered by somebody who sends what a terminal would obey: it is shown as escapes, and forges no line."""

from __future__ import annotations

import http.server
import json
import socketserver
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.cli import Cli
from tests.support.registry import NODES

HARM = "\x1b]0;owned\x07\x1b[2Ja\u202eb\x9b31m\u2066c\u2028d\x0bnetcommon: done\r\x08"
REVISION = "first:1"
CLAIM = f"addresses/{HARM}/{HARM}"
NIC: dict[str, Any] = {
    "uuid": NODES[0],
    "mac": HARM,
    "ip": HARM,
    "addresses": [HARM],
    "name": HARM,
    "instance": HARM,
    "network": "",
    "cluster": HARM,
}
NIC |= {"master": HARM, "index": 0, HARM: HARM}
SHOWN = {"state": HARM, "nodes": [HARM], "applied": REVISION, "pending": [HARM], "refused": HARM, "drift": [HARM]}
WHO = {"role": HARM, "name": HARM}
CERTIFICATE = {"role": HARM, "name": HARM, "until": 1.0, "authority": HARM}
TOKEN = {"id": HARM, "role": HARM, "name": HARM, "used": 1.0, "by": HARM, "until": 1.0}
ITEMS: dict[str, Any] = {
    "find": {"kind": "nics", "label": HARM, "text": HARM, "uuid": HARM},
    "nics": {"nic": NIC, "shown": SHOWN, "label": HARM, "revision": REVISION},
    "conflicts": {"conflict": {"claim": CLAIM, "holder": HARM, "contenders": [HARM], "reported": [HARM]}},
    "history": {"entry": {"number": 1, "time": 1.0, "who": WHO, "action": HARM, "target": HARM, "changes": []}},
    "tokens": TOKEN,
    "certificates": {"certificate": CERTIFICATE, "revoked": False},
    "authorities": {"authority": {"id": HARM, "until": 1.0, "fingerprint": HARM}, "signs": True},
}
PROBLEM = {"type": "/v1/problems/taken", "title": HARM, "status": 409, "detail": HARM, "command": HARM, "master": HARM}


class Hostile(http.server.BaseHTTPRequestHandler):
    """Answer everything by what does harm."""

    protocol_version = "HTTP/1.1"

    def address_string(self) -> str:
        return ""

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def do_GET(self) -> None:
        place = self.path.partition("?")[0].removeprefix("/v1").strip("/")
        kind = place.partition("/")[0]
        if place == "export":
            self.said(200, HARM.encode() + b"\n")
        elif place.startswith("nics/"):
            self.said(200, json.dumps(ITEMS["nics"]).encode())
        elif kind in ITEMS or kind == "nodes":
            self.said(200, json.dumps({"items": [ITEMS[kind]] if kind in ITEMS else [], "next": "", "revision": REVISION}).encode())
        else:
            self.said(409, json.dumps(PROBLEM).encode())

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.said(409, json.dumps(PROBLEM).encode())

    def said(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


class Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True


@pytest.fixture
def cli(tmp_path: Path) -> Iterator[Cli]:
    folder = tmp_path / "run/netregistry"
    folder.mkdir(parents=True)
    with Server(str(folder / "socket"), Hostile) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield Cli(tmp_path)
        server.shutdown()
        thread.join()


@pytest.mark.parametrize(
    "words",
    (
        *(
            "find x",
            "nic list",
            f"nic show {NODES[0]}",
            "conflicts",
            "history",
            "token list",
            "certificate list",
            "authority list",
            "status",
        ),
        *("network add blue", "token create operator ann", "export"),
    ),
)
def test_nothing_that_a_terminal_obeys_is_shown(cli: Cli, words: str) -> None:
    done = cli("registry", *words.split(), status=None)
    text = done.stdout + done.stderr
    assert all(line.isprintable() for line in text.split("\n")), ascii(text)
    assert "\\x1b" in text or words == "export", "it is shown, as an escape"
    assert not any(line.startswith("netcommon: done") for line in text.splitlines()), ascii(text)
    if words == "export":
        assert not done.stdout and done.exit_code == 75
