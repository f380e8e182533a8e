"""A gateway that answers no etcd's answers, before a whole service: whoever asks that is told what is wrong, and nobody an empty answer."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from netregistry.client import Client, Problem, request_id
from runtime.errors import TryAgain
from tests.support.etcd import HOST, Cluster
from tests.support.gateway import Answer, Gateway, gateway
from tests.support.netns import wait_until
from tests.support.registry_process import Registry

TOLD = 5.0  #: seconds within which it is told
WATCH = "a watch that is ended"
PAGE = b"<html><body>502 Bad Gateway</body></html>"


class Harm(NamedTuple):
    """Hold what is answered instead, and what is said of it."""

    act: Callable[[str, Answer], Answer]
    says: str


def ended(path: str, answer: Answer) -> Answer:
    """End a watch, with status 200, as etcd does for one that may not be."""
    if path != "/v3/watch":
        return answer
    header = json.loads(answer.data)["result"]["header"]
    line = {"result": {"header": header, "created": True, "canceled": True, "cancel_reason": "etcdserver: no such thing"}}
    return answer._replace(data=json.dumps(line).encode() + b"\n")


HARMS = {
    "a page": Harm(lambda _path, _answer: Answer(200, "text/html", PAGE), "text/html"),
    "a page as an error": Harm(lambda _path, _answer: Answer(502, "text/html", PAGE), "502"),
    "half": Harm(lambda _path, answer: answer._replace(data=answer.data[: len(answer.data) // 2]), "no JSON|not all of it"),
    "cut off": Harm(lambda _path, answer: answer._replace(cut=len(answer.data) // 2), "IncompleteRead|not all of it|ended"),
    "nothing": Harm(lambda _path, answer: answer._replace(data=b""), "no JSON|ended|end"),
    "an empty object": Harm(lambda _path, answer: answer._replace(data=b"{}"), "header|result"),
    WATCH: Harm(ended, "ended the watch|ends every watch"),
}


@pytest.fixture
def between(etcds: dict[int, Cluster]) -> Iterator[Gateway]:
    etcds[1].anew()
    with gateway(etcds[1].members[0].client) as made:
        yield made


@pytest.fixture
def registry(between: Gateway, tmp_path: Path) -> Iterator[Registry]:
    made = Registry(tmp_path / "one", f"etcd://{HOST}:{between.port}")
    made.command("init")
    made.start()
    yield made
    made.kill()


@pytest.mark.sampled(2)
@pytest.mark.parametrize("what", [what for what in HARMS if what != WATCH])
def test_it_is_named_and_no_answer_is_empty(registry: Registry, between: Gateway, etcds: dict[int, Cluster], what: str) -> None:
    harm = HARMS[what]
    with registry.client() as asked:
        asked.change("POST", "networks", {"name": "blue", "subnet": "192.0.2.0/24"})
        between.harm = harm.act
        said: list[str] = []
        for _ in range(3):
            begun = time.monotonic()
            with pytest.raises(Problem) as refused:
                asked.change("POST", "networks", {"name": "green", "subnet": "198.51.100.0/24"}, dry_run=True)
            assert refused.value.code == 503 and time.monotonic() - begun <= TOLD
            said.append(str(refused.value))
            try:
                assert names(asked) == ["blue"], "what is known is shown, and nothing else"
            except Problem as problem:
                assert problem.code == 503
                said.append(str(problem))
        assert all(f"{HOST}:{between.port}" in text and re.search(harm.says, text) for text in said), said
        between.harm = None
        wait_until(lambda: works(asked), 30, "it goes on by itself")
        assert sorted(names(asked)) == ["blue", "red"] == sorted(json.loads(value)["name"] for value in networks(etcds[1]))


def test_what_was_done_and_is_told_by_no_watch(registry: Registry, between: Gateway, etcds: dict[int, Cluster]) -> None:
    """Etcd does what it is asked, and ends each watch with status 200: what was done is acknowledged, and nothing is planned behind it."""
    with registry.client() as asked:
        asked.change("POST", "networks", {"name": "blue", "subnet": "192.0.2.0/24"})
        between.harm, key = ended, request_id()
        done = asked.change("POST", "networks", {"name": "green", "subnet": "198.51.100.0/24"}, key=key)
        begun = time.monotonic()
        with pytest.raises(Problem) as refused:
            asked.change("POST", "networks", {"name": "green", "subnet": "203.0.113.0/24"})
        assert refused.value.code == 503 and time.monotonic() - begun <= TOLD
        assert re.search(HARMS[WATCH].says, str(refused.value)) and f"{HOST}:{between.port}" in str(refused.value)
        assert set(names(asked)) <= {"blue", "green"} and "blue" in names(asked)
        between.harm = None
        wait_until(lambda: works(asked), 30, "it goes on by itself")
        again = asked.change("POST", "networks", {"name": "green", "subnet": "198.51.100.0/24"}, key=key)
        assert (again.body, again.revision) == (done.body, done.revision), "it was done once"
        assert sorted(names(asked)) == ["blue", "green", "red"] == sorted(json.loads(value)["name"] for value in networks(etcds[1]))


@pytest.mark.sampled(4)
@pytest.mark.parametrize("what", HARMS)
def test_a_service_does_not_begin_by_it(registry: Registry, between: Gateway, what: str) -> None:
    registry.kill()
    between.harm = HARMS[what].act
    refused = registry.command("serve", check=False)
    assert refused.returncode == TryAgain.status and re.search(HARMS[what].says, refused.stderr), refused.stderr
    assert f"{HOST}:{between.port}" in refused.stderr and len(refused.stderr.strip().splitlines()) <= 2, refused.stderr


def names(asked: Client) -> list[str]:
    return [item["network"]["name"] for item in asked.all("networks")]


def networks(etcd: Cluster) -> list[bytes]:
    return [value for key, value in etcd.keys().items() if key.startswith("networks/")]


def works(asked: Client) -> bool:
    try:
        asked.change("POST", "networks", {"name": "red", "subnet": "203.0.113.0/24"})
    except Problem as problem:
        return problem.kind == "taken"  # it was done, and not answered
    return True
