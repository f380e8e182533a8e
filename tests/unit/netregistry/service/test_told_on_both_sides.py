"""Refuse who may not come in, or not as whom he comes: each is refused, counted, and told in one line on both sides, with what helps."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from netagent.sync.messages import Answered, Failed, Send
from netagent.sync.session import Session
from netregistry import credentials, joining
from netregistry.authority import key_files, x509
from netregistry.client import Client
from netregistry.reach import Places, TlsPlace
from runtime.errors import NetcommonError
from tests.support.registry import NODES
from tests.support.tls import Secured, Shown, forged, secured

INCARNATION = NODES[5]


@pytest.fixture
def registry(tmp_path: Path) -> Iterator[Secured]:
    with secured(tmp_path) as found:
        yield found


class Row(NamedTuple):
    """One kind of input. ``reason``: by which it is counted; ``act``: gives what its side is told; what is said on either side."""

    reason: str
    act: Callable[[Secured], str]
    here: tuple[str, ...]
    there: tuple[str, ...]


JOIN, TOKEN = "netcommon registry join URL TOKEN", "netcommon registry token create"


def ours(registry: Secured) -> tuple[str, str]:
    (item,) = registry.local.client().get("authorities").body["items"]
    return item["authority"]["certificate"], key_files.key(registry.keys, item["authority"]["id"])


def shows(registry: Secured, identity: str) -> str:
    """Ask with a certificate."""
    place = TlsPlace("localhost", registry.port, Shown(identity, registry.trusted).context)
    with pytest.raises(NetcommonError) as caught, Client(Places([place])) as client:
        client.get("nics")
    return str(caught.value)


def foreign(registry: Secured) -> str:
    stranger = x509.make_authority(1.8e9)
    return shows(registry, forged(registry.folder, by=(stranger.authority.certificate, stranger.key)))


def revoked(registry: Secured) -> str:
    node = registry.join("node", NODES[0])
    registry.local.client().change("POST", "certificates/revoke", {"role": "node", "name": NODES[0]})
    with pytest.raises(NetcommonError) as caught, registry.client(node) as client:
        client.get("")
    return str(caught.value)


def forgotten(registry: Secured) -> str:
    node = registry.join("node", NODES[0])
    registry.local.client().change("DELETE", f"nodes/{NODES[0]}")
    with pytest.raises(NetcommonError) as caught, registry.client(node) as client:
        client.get("")
    return str(caught.value)


def joins(registry: Secured, token: joining.Token, number: int, name: str = "") -> str:
    """Join as a node does; give what it is told, "" where it is let in."""
    lib = registry.folder / f"lib-{number}-{time.monotonic_ns()}"
    lib.mkdir()
    try:
        joining.join(str(lib), [registry.url], token, {"uuid": NODES[number], "name": name or f"n{number}"})
    except NetcommonError as error:
        return str(error)
    return ""


def token(registry: Secured) -> joining.Token:
    label, secret = registry.token("node")
    certificate = registry.local.client().get("authorities").body["items"][-1]["authority"]["certificate"]
    return joining.Token("node", label, secret, hashlib.sha256(credentials.encoded(certificate)).hexdigest())


def twice(registry: Secured) -> str:
    one = token(registry)
    assert joins(registry, one, 0) == ""
    return joins(registry, one, 1)


def late(registry: Secured) -> str:
    one = token(registry)
    core, then = registry.local.service.registry.local.core, time.time() + 7200
    core.now = lambda: then
    return joins(registry, one, 0)


def unknown(registry: Secured) -> str:
    return joins(registry, token(registry)._replace(secret="0" * 32), 0)


def of_another(registry: Secured) -> str:
    assert joins(registry, token(registry), 0) == ""
    return joins(registry, token(registry), 0)


def for_another(method: str, place: str, body: object) -> Callable[[Secured], str]:
    """Let a node ask for another one."""

    def act(registry: Secured) -> str:
        one, _other = registry.join("node", NODES[0]), registry.join("node", NODES[1])
        with pytest.raises(NetcommonError) as caught, registry.client(one) as client:
            client.change(method, place.format(NODES[1]), body)
        return str(caught.value)

    return act


def watches_for_another(registry: Secured) -> str:
    one, _other = registry.join("node", NODES[0]), registry.join("node", NODES[1])
    with pytest.raises(NetcommonError) as caught, registry.client(one) as client:
        next(client.watch(NODES[1], incarnation=INCARNATION))
    return str(caught.value)


ANOTHER = ("itself alone", NODES[1], JOIN)
ROWS = {
    "expired": Row("expired", lambda found: shows(found, forged(found.folder, by=ours(found), end=-1.0)), ("has ended", JOIN), (TOKEN,)),
    "not yet": Row("not-yet", lambda found: shows(found, forged(found.folder, by=ours(found), begin=600.0)), ("not taken", JOIN), (TOKEN,)),
    "self-signed": Row("self-signed", lambda found: shows(found, forged(found.folder)), ("no authority", JOIN), (TOKEN,)),
    "foreign": Row("foreign", foreign, ("no authority", JOIN), (TOKEN,)),
    "revoked": Row("revoked", revoked, ("revoked", JOIN), ("revoked", JOIN)),
    "forgotten": Row("forgotten", forgotten, ("forgotten", JOIN), ("forgotten", JOIN)),
    "none": Row("none", lambda found: shows(found, ""), ("a certificate is needed", JOIN), ("a certificate is needed", JOIN)),
    "a token that is none": Row("token-unknown", unknown, ("no such token", TOKEN), ("no such token", TOKEN)),
    "a token used twice": Row("token-used", twice, ("has been used", TOKEN), ("has been used", TOKEN)),
    "a token used late": Row("token-late", late, ("has ended", TOKEN), ("has ended", TOKEN)),
    "a token for new nodes": Row("token-other", of_another, ("has joined already", TOKEN), ("has joined already", TOKEN)),
    "reports for another": Row("another", for_another("POST", "nodes/{}/reports", {"after": "a:0", "nics": []}), ANOTHER, ANOTHER),
    "lives for another": Row("another", for_another("POST", "nodes/{}/heartbeat", {"incarnation": INCARNATION}), ANOTHER, ANOTHER),
    "names another": Row("another", for_another("PATCH", "nodes/{}", {"name": "mine"}), ANOTHER, ANOTHER),
    "watches for another": Row("another", watches_for_another, ANOTHER, ANOTHER),
}


@pytest.mark.parametrize("what", ROWS)
def test_it_is_refused_counted_and_told_on_both_sides(registry: Secured, what: str) -> None:
    row, held = ROWS[what], registry.local.everything
    before = registry.counted(row.reason)
    said = row.act(registry)
    registry.local.until(lambda: registry.counted(row.reason) == before + 1)
    (line,) = [line for line in registry.lines if "is refused" in line]
    assert all(words in said for words in row.here) and said.isprintable(), said
    assert all(words in line for words in ("127.0.0.1", *row.there)) and line.isprintable(), line
    assert not [key for key in held() if key.startswith("seen/")]


def test_an_agent_that_reports_for_another_says_so(registry: Secured) -> None:
    """Say in the alarm what the registry has said, in one line (netagent.sync.machine: "registry-node")."""
    one, _other = registry.join("node", NODES[0]), registry.join("node", NODES[1])
    told: list[object] = []
    session = Session(one.places(), NODES[1], INCARNATION, lambda event, _stream: told.append(event), lambda: False)
    session.ask(Send(INCARNATION, {"after": f"{registry.local.store.epoch}:0", "nics": []}))
    registry.local.until(lambda: bool(told))
    session.close(5.0)
    (event,) = told
    assert not isinstance(event, Answered) and isinstance(event, Failed)
    assert event.failure.kind == "forbidden" and JOIN in event.failure.text and event.failure.text.isprintable()
    assert registry.counted("another") == 1
