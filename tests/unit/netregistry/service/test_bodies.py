"""Bodies that would keep a service from everything else: deep ones, of many parts, long ones, and those of who has no certificate."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from netregistry.model.codec import Invalid
from netregistry.service import bodies
from tests.support.registry import NODES
from tests.support.tls import Shown, secured
from tests.unit.netregistry.model.test_codec import json_values

LENGTH = 1 << 20
HOSTILE = {
    "deep lists": b"[" + (b"[" * 38 + b"]" * 38 + b",") * (LENGTH // 77 - 2) + b"1]",
    "lists": b"[" + b"[]," * (LENGTH // 3 - 2) + b"1]",
    "objects": b"[" + b"{}," * (LENGTH // 3 - 2) + b"1]",
    "texts": b"[" + b'"",' * (LENGTH // 3 - 2) + b"1]",
    "too deep": b"[" * 41 + b"]" * 41,
    "too deep behind a text": b'["\\\\\\"[", ' + b'{"]":' * 40 + b"1" + b"}" * 40 + b"]",
}


@pytest.mark.parametrize("what", HOSTILE)
def test_nothing_is_built_of_what_has_too_much(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json, "loads", lambda *_a, **_k: pytest.fail("it was built"))
    with pytest.raises(Invalid):
        bodies.parsed(HOSTILE[what])


def test_what_may_be_is_taken() -> None:
    deep = b"[" * 40 + b"]" * 40
    for data in (deep, b'["' + b"[" * 100_000 + b'"]', b'["\\"' + b"[" * 50 + b'\\\\"]'):
        assert bodies.parsed(data) == json.loads(data)


@given(json_values)
@example(float("inf"))
def test_it_is_what_the_library_reads(value: Any) -> None:
    """But for Infinity, which is no JSON (RFC 8259, 6)."""
    data = json.dumps(value).encode()
    try:
        json.dumps(value, allow_nan=False)
    except ValueError:
        with pytest.raises(Invalid):
            bodies.parsed(data)
        return
    assert bodies.parsed(data) == json.loads(data)


@given(st.text(alphabet='[]{}"\\,:1 ', max_size=60))
def test_what_is_looked_over_is_what_is_read(text: str) -> None:
    """Nothing that the library takes is less deep to us than it is."""

    def depth(value: Any) -> int:
        inner = list(value.values()) if isinstance(value, dict) else value if isinstance(value, list) else None
        return 0 if inner is None else 1 + max(map(depth, inner), default=0)

    try:
        value = json.loads(text)
    except ValueError:
        return
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bodies, "DEEPEST", depth(value))
        bodies.look_over(text.encode())
        patch.setattr(bodies, "DEEPEST", depth(value) - 1)
        if depth(value):
            with pytest.raises(Invalid):
                bodies.look_over(text.encode())


def test_bodies_of_who_has_no_certificate_are_short_and_long_ones_keep_nobody_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[str] = []
    real = bodies.parsed

    def parsed(data: bytes) -> Any:
        threads.append(threading.current_thread().name.partition("_")[0])
        return real(data)

    monkeypatch.setattr(bodies, "parsed", parsed)
    with secured(tmp_path) as registry:
        anybody = Shown("", registry.trusted)
        threads.clear()
        said = registry.say("POST", "/v1/join", {"token": "x" * bodies.OF_NEWCOMERS}, anybody)
        assert said.status == 413 and str(bodies.OF_NEWCOMERS) in said.body["detail"] and threads == []
        node = registry.join("node", NODES[0])
        threads.clear()
        said = registry.say("POST", "/v1/nics", {"name": "x" * 900_000}, registry.shown(node))
        assert said.status == 400 and threads == ["bodies"]
