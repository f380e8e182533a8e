"""Open streams while certificates are revoked, renewed, and the authority is rotated: real sockets, one thread for each.

Fifty of them in a full run.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from netregistry import credentials
from netregistry.client import Client, Problem
from netregistry.credentials import Credentials
from netregistry.service.limits import Limits
from runtime.errors import NetcommonError
from tests.support.sample import FULL
from tests.support.tls import Secured, secured

STREAMS = 50 if FULL else 10
BEAT = 1.0
HEARTBEAT = Limits().beat  #: as services have it
UUIDS = [f"{number:08x}-0000-4000-8000-000000000000" for number in range(1, STREAMS + 1)]


class Stream:
    """One stream, read in a thread of its own. ``ended``: when, 0 for not yet."""

    def __init__(self, one: Credentials) -> None:
        self.one, self.lines, self.ended = one, 0, 0.0
        self.client = Client(one.places(), seconds=20)
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        try:
            for _line in self.client.watch(self.one.name, incarnation=self.one.name):
                self.lines += 1
        except NetcommonError:
            pass
        self.ended = time.monotonic()


@pytest.fixture
def registry(tmp_path: Path) -> Iterator[Secured]:
    with secured(tmp_path, Limits(beat=BEAT, rate=10_000.0)) as found:
        yield found


@contextmanager
def streams(registry: Secured) -> Iterator[list[Stream]]:
    """Open a stream for each node; all have begun."""
    found = [Stream(registry.join("node", uuid)) for uuid in UUIDS]
    registry.local.until(lambda: all(each.lines for each in found))
    assert registry.local.service.registry.streams.count == STREAMS
    yield found


def goes_on(registry: Secured, found: list[Stream]) -> None:
    """Streams are told what is said from now on."""
    before = [each.lines for each in found]
    registry.local.until(lambda: all(each.lines > lines for each, lines in zip(found, before, strict=True)))
    assert not [each for each in found if each.ended]


def test_who_is_revoked_is_cut_within_one_heartbeat(registry: Secured) -> None:
    with streams(registry) as found:
        gone, left = found[::5], [each for place, each in enumerate(found) if place % 5]
        operator, latest = registry.local.client(), 0.0
        for each in gone:
            begun = time.monotonic()
            operator.change("POST", "certificates/revoke", {"role": "node", "name": each.one.name})
            registry.local.until(lambda each=each: each.ended)  # type: ignore[misc]
            latest = max(latest, each.ended - begun)
        assert latest < HEARTBEAT
        goes_on(registry, left)
        with registry.client(gone[0].one) as client, pytest.raises(NetcommonError, match="revoked"):
            client.get("")
        text = registry.local.say("GET", "/metrics").body.decode()
        assert f"netregistry_streams_revoked_total {len(gone)}" in text and f"netregistry_streams {len(left)}" in text


def test_the_authority_is_rotated_under_open_streams(registry: Secured) -> None:
    """Nobody is cut while both count. Who has renewed goes on when the old one is retired, who has not is cut and joins again."""
    with streams(registry) as found:
        (item,) = registry.local.client().get("authorities").body["items"]
        new = registry.rotate()
        goes_on(registry, found)
        renewed = []
        for each in found[1:]:
            with registry.client(each.one) as client:  # which knows the old one alone
                renewed.append(credentials.refresh(each.one, client, time.time()))
        assert {one.authority for one in renewed} == {new}
        goes_on(registry, found)
        with pytest.raises(Problem, match="1 of the latest"):
            registry.local.client().change("DELETE", f"authorities/{item['authority']['id']}")
        registry.local.client().change("DELETE", f"authorities/{item['authority']['id']}", force=True)
        registry.local.until(lambda: all(each.ended for each in found))  # all had begun by the old one
        again = [Stream(one) for one in renewed]
        registry.local.until(lambda: all(each.lines for each in again))
        with registry.client(found[0].one) as client, pytest.raises(NetcommonError) as caught:
            client.get("")
        assert "netcommon registry join URL TOKEN" in str(caught.value)
        goes_on(registry, again)
        assert registry.say("GET", "/v1", None, registry.shown(registry.join("node", found[0].one.name, new=False))).status == 200


def test_who_has_not_kept_his_renewed_certificate_is_not_out_without_a_word(registry: Secured) -> None:
    """The answer is lost, or the disk full: by what was granted he had one of the new authority, and by what he has he was out."""
    one = registry.join("node", UUIDS[0])
    (item,) = registry.local.client().get("authorities").body["items"]
    old = item["authority"]["id"]
    registry.rotate()
    with registry.client(one) as client:
        client.change("POST", "certificates")
        client.get("nodes")
    said = registry.local.client().get("certificates").body["items"]
    assert [(each["certificate"]["before"], each["certificate"]["authority"] == old) for each in said] == [(old, False)]
    with pytest.raises(Problem, match="1 of the latest"):
        registry.local.client().change("DELETE", f"authorities/{old}")
    with registry.client(one) as client:
        one = credentials.refresh(one, client, time.time())
    registry.local.client().change("DELETE", f"authorities/{old}")
    with registry.client(one) as client:
        client.get("nodes")
    registry.rotate()
    with registry.client(one) as client:
        one = credentials.refresh(one, client, time.time())
    registry.local.until(lambda: not registry.local.client().get("certificates").body["items"][0]["certificate"]["before"])


def test_certificates_are_renewed_under_open_streams(registry: Secured) -> None:
    with streams(registry) as found:
        for each in found:
            before = Path(each.one.folder, credentials.IDENTITY).read_text()
            with registry.client(each.one) as client:
                assert credentials.refresh(each.one, client, each.one.since) == each.one
                later = credentials.refresh(each.one, client, each.one.until - 60)
            key, certificate = Path(later.folder, credentials.IDENTITY).read_text().split("-----BEGIN CERTIFICATE-----")
            assert before.startswith(key) and certificate not in before and credentials.read(each.one.lib, "node") == later
        goes_on(registry, found)
        again = [Stream(each.one) for each in found]  # by what is on disk now
        registry.local.until(lambda: all(each.lines for each in again))


def test_a_stream_ends_with_its_certificate(registry: Secured) -> None:
    registry.local.client().change("PATCH", "settings", {"certificate_seconds": 3600.0})
    stream = Stream(registry.join("node", UUIDS[0]))
    registry.local.until(lambda: stream.lines > 0)
    core, late = registry.local.service.registry.local.core, time.time() + 3600.0
    core.now = lambda: late
    begun = time.monotonic()
    registry.local.until(lambda: stream.ended > 0)
    assert stream.ended - begun < HEARTBEAT
