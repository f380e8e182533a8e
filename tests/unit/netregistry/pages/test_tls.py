"""The pages by TLS: for whoever has the certificate of a reader or an operator."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from aiohttp import web

from netregistry.pages.front import Pages
from tests.support.pages import page
from tests.support.registry import NODES
from tests.support.service import SECONDS
from tests.support.tls import Secured, Shown, secured


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    folder: Path = tmp_path_factory.mktemp("registry")
    with secured(folder) as found:
        yield found


ROLES = {"reader": ("bob", 200), "operator": ("ann", 200), "node": (NODES[0], 403), "importer": ("gnt.example.com", 403)}


@pytest.fixture(scope="module")
def paths(registry: Secured) -> list[str]:
    """Give every page that there is, by what is routed."""
    application = web.Application()
    Pages(registry.local.service).add_to(application)
    found = {str(route.resource.canonical) for route in application.router.routes() if route.resource is not None}
    return sorted(path.format(uuid=NODES[0], name="pages.js") for path in found)


@pytest.mark.parametrize("role", ROLES)
def test_who_may_look(registry: Secured, paths: list[str], role: str) -> None:
    name, status = ROLES[role]
    shown = registry.shown(registry.join(role, name))
    assert {"/", "/nics", f"/nodes/{NODES[0]}/history", "/live", "/static/pages.js"} < set(paths)
    for path in paths:
        if status == 403:
            assert registry.say("GET", path, None, shown, Accept="text/html").status == 403, path
        else:  # a list, or a stream, says what is wrong with the question; of a NIC that is not there, that it is not
            assert registry.say("GET", path, None, shown, Accept="text/html").status in (200, 400, 404), path


def test_who_has_no_certificate_is_told_how_to_get_one(registry: Secured) -> None:
    said = registry.say("GET", "/", None, Shown("", registry.trusted), Accept="text/html")
    assert said.status == 403 and "a certificate is needed for that: netcommon registry join URL TOKEN" in page(said.body).text


def test_whose_certificate_is_revoked_looks_no_more(registry: Secured, monkeypatch: pytest.MonkeyPatch) -> None:
    """An open page's stream ends too, within one sign of life."""
    monkeypatch.setattr("netregistry.pages.front.BEAT", 0.1)
    shown = registry.shown(registry.join("reader", "carl"))
    with registry.opened("/live?about=all", shown) as stream:
        assert stream.readline().startswith(b"event: ")
        registry.local.client().change("POST", "certificates/revoke", {"role": "reader", "name": "carl"})
        end = time.monotonic() + SECONDS
        while stream.readline():
            assert time.monotonic() < end, "it has no end"
    assert registry.say("GET", "/", None, shown, Accept="text/html").status == 403


def test_one_certificate_has_not_all_live_pages(registry: Secured, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("netregistry.pages.front.EACH", 2)
    bob, kim = (registry.shown(registry.join("reader", name)) for name in ("dora", "kim"))
    with registry.opened("/live?about=all", bob) as one, registry.opened("/live?about=all", bob) as two:
        assert one.readline() and two.readline()
        assert registry.say("GET", "/live?about=all", None, bob).status == 429
        with registry.opened("/live?about=all", kim) as hers:
            assert hers.readline().startswith(b"event: ")
