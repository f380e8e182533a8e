"""Who was let in while his certificate counted does nothing by it afterwards: not when his body comes late, nor when his turn does."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterator
from contextlib import closing
from http.client import HTTPSConnection
from pathlib import Path
from typing import Any

import pytest

from netregistry.authority import key_files, x509
from netregistry.model.certificate import Credential, Grant
from netregistry.model.history import Identity
from netregistry.refusal import Refused
from netregistry.request import Call, new_id
from netregistry.service.limits import Limits
from tests.support.registry import NODES, OPERATOR, Registry
from tests.support.service import SECONDS
from tests.support.tls import Secured, Shown, secured

MALLORY = Identity("operator", "mallory", "127.0.0.1")
TOKEN = {"id": "11111111", "proof": hashlib.sha256(b"secret").hexdigest(), "role": "operator", "name": "friend"}


@pytest.fixture
def secure(tmp_path: Path) -> Iterator[Secured]:
    with secured(tmp_path, Limits()) as found:
        yield found


class Begun:
    """A request whose body does not come yet. ``bodies``: that are waited for of this identity, with this one."""

    def __init__(self, registry: Secured, shown: Shown, target: str, who: tuple[str, str], bodies: int = 1) -> None:
        self._connection = HTTPSConnection("localhost", registry.port, timeout=SECONDS, context=shown.context())
        self._connection.putrequest("POST", target)
        self._connection.putheader("Content-Type", "application/json")
        self._connection.putheader("Transfer-Encoding", "chunked")
        self._connection.endheaders()
        doors = registry.local.service._bodies._coming._doors
        registry.local.until(lambda: len(doors.get(who, ())) == bodies)

    def end(self, body: Any) -> tuple[int, dict[str, Any], bool]:
        """Send the body; give the status, the answer, and whether the connection is ended."""
        data = b"" if body is None else json.dumps(body).encode()
        self._connection.send(b"".join((b"%x\r\n%s\r\n" % (len(data), data) if data else b"", b"0\r\n\r\n")))
        with closing(self._connection), self._connection.getresponse() as response:
            return response.status, json.loads(response.read()), response.headers.get("Connection") == "close"


def test_a_body_that_comes_after_the_revocation(secure: Secured) -> None:
    """Refuse what is asked: he would make himself another token, and be an operator again."""
    shown = secure.shown(secure.join("operator", "mallory"))
    begun = [Begun(secure, shown, target, ("operator", "mallory"), place) for place, target in enumerate(("/v1/tokens", "/v1/networks"), 1)]
    secure.local.client().change("POST", "certificates/revoke", {"role": "operator", "name": "mallory"})
    for request, body in zip(begun, (TOKEN, {"name": "evil"}), strict=True):
        status, problem, ended = request.end(body)
        assert (status, problem["reason"], ended) == (403, "revoked", True)
    view = secure.local.service.registry.local.view
    assert not view.all("networks") and "tokens/11111111" not in view.all("tokens")


def test_a_body_that_comes_after_a_stolen_authority_was_replaced(secure: Secured) -> None:
    """Refuse what is asked: the thief would have a certificate by the new one, or make one of his own the one that signs."""
    (item,) = secure.local.client().get("authorities").body["items"]
    stolen = x509.read_authority(item["authority"]["certificate"])
    key, now = x509.make_key(), time.time()
    grant = Grant("operator", "root", f"{int(now * 1000):012x}{'5' * 20}", now - 600, now + 86400, stolen.id)
    signed = x509.sign(grant, x509.read_request(x509.make_request(key)).key, key_files.key(secure.keys, stolen.id))
    Path(secure.folder, "thief.pem").write_text(key + signed)
    thief = Shown(f"{secure.folder}/thief.pem", secure.trusted)
    renewal = Begun(secure, thief, "/v1/certificates", ("operator", "root"))
    authority = Begun(secure, thief, "/v1/authorities", ("operator", "root"), 2)
    new, his = x509.make_authority(now), x509.make_authority(now).authority
    key_files.keep(secure.keys, new)
    secure.local.client().change("POST", "authorities", {"certificate": new.authority.certificate, "alone": True})
    for request, body in ((renewal, None), (authority, {"certificate": his.certificate})):
        status, problem, ended = request.end(body)
        assert (status, problem["reason"], ended) == (403, "foreign", True)
    assert [item["authority"]["id"] for item in secure.local.client().get("authorities").body["items"]] == [new.authority.id]


READ = [f"/v1/{what}" for what in ("tokens", "status", "export", "backup", "nics", "watch?node=" + NODES[0])]
PAGES = ["/", f"/nics/{NODES[0]}", "/history"]


@pytest.mark.parametrize(
    ("method", "target", "body"),
    [
        *(("GET", target, None) for target in (*READ, *PAGES, "/metrics", "/healthz")),
        ("POST", "/v1/compact", None),
        ("POST", "/v1/networks", {"name": "evil"}),
    ],
)
def test_who_is_revoked_while_he_waits_for_his_turn(secure: Secured, method: str, target: str, body: Any) -> None:
    registry = secure.local.service.registry
    shown, admit = secure.shown(secure.join("operator", "mallory")), registry.admit

    def admitted(one: Credential) -> None:
        admit(one)
        registry.admit = admit  # type: ignore[method-assign]
        call = Call(new_id(time.time(), 1), "certificate.revoke", "", {"role": "operator", "name": "mallory"})
        assert registry.answer(call, OPERATOR).status == 200

    registry.admit = admitted  # type: ignore[method-assign]
    said = secure.say(method, target, body, shown)
    why = said.body.decode() if isinstance(said.body, bytes) else said.body["detail"]  # of a page, of a problem
    assert said.status == 403 and "is revoked" in why
    assert not registry.local.view.all("networks")


def test_a_node_that_is_revoked_while_its_sign_of_life_comes(secure: Secured) -> None:
    one = secure.join("node", NODES[0])
    begun = Begun(secure, secure.shown(one), f"/v1/nodes/{NODES[0]}/heartbeat", ("node", NODES[0]))
    secure.local.client().change("POST", "certificates/revoke", {"role": "node", "name": NODES[0]})
    status, problem, ended = begun.end({"incarnation": NODES[1]})
    assert (status, problem["reason"], ended) == (403, "revoked", True)
    assert secure.local.service.registry.local.view.alive(NODES[0]) is None


def test_a_revocation_at_another_service_while_a_request_is_committed(registry: Registry) -> None:
    """Judge him anew with the plan. That he was refused is not remembered: by a certificate that counts he is heard."""
    counts = [True]

    def admit() -> None:
        if not counts[0]:
            raise Refused("certificate", "it is revoked", reason="revoked")

    call, core = registry.call("network.add", "", {"name": "blue"}), registry.local.core
    steps = core.answer(call, MALLORY, admit)
    commit = next(steps)
    registry.network("green")  # what another one commits advances the ledger, as a revocation does
    counts[0] = False
    with pytest.raises(StopIteration) as ended:
        effect = steps.send(registry.local.do(commit))
        while True:
            effect = steps.send(registry.local.do(effect))
    assert (ended.value.value.status, ended.value.value.body["reason"]) == (403, "revoked")
    assert [network.name for network in registry.local.view.all("networks").values()] == ["green"]
    counts[0] = True
    assert registry.local.answer(call, MALLORY, admit).status == 201
