"""All but a few named modules of a mock node are those of a real one."""

from __future__ import annotations

import ast
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from netagent.surroundings import REAL
from netcommon.settings.model import Settings
from runtime.record import from_json
from tests.support.mock_nodes import Cluster
from tests.support.rooms import PRODUCT

#: What is replaced -> what a real node has there. At most eight: whoever needs one more mends what is in its way instead.
REPLACED = {
    "mockcloud.replaced.scheduler": "netagent.loop, and the clock",
    "mockcloud.replaced.pool": "netagent.reconcile.keyed_pool",
    "mockcloud.replaced.sources": "netagent.sources: rtnetlink, nft_events, ovs_events, flow_events",
    "mockcloud.replaced.watcher": "runtime.inotify",
    "mockcloud.replaced.locks": "runtime.locks",
    "mockcloud.replaced.transport": "netagent.sync.session's threads; netregistry.service.http and serve, where it is in this process",
    "mockcloud.replaced.process": "netagent.service, netagent.logs, netagent.scripts",
    "netcommon.host.simulated": "netcommon.host.linux",
}
#: What an agent is given -> whence it has it here; "": nothing there is, since there is one thread and a process of many nodes.
GIVEN = {
    "make_loop": "mockcloud.replaced.scheduler",
    "make_pool": "mockcloud.replaced.pool",
    "make_host": "netcommon.host.simulated.host",
    "sources": "mockcloud.replaced.sources",
    "watcher": "mockcloud.replaced.watcher",
    "dial": "mockcloud.replaced.sources",
    "make_gates": "",
    "locking": "mockcloud.replaced.locks",
    "make_parse": "runtime.record",
    "make_launcher": "mockcloud.replaced.process",
    "make_session": "mockcloud.replaced.transport.session",
    "aside": "mockcloud.replaced.pool",
    "trim": "",
}


def whence(thing: Any) -> str:
    """Name the module that a function, a class or a value is of."""
    if isinstance(thing, partial):
        thing = thing.func
    if isinstance(owner := getattr(thing, "__self__", None), object) and owner is not None:
        return type(owner).__module__
    return thing.__module__ if hasattr(thing, "__qualname__") else type(thing).__module__


def test_what_an_agent_is_given_is_of_the_named_modules(tmp_path: Path) -> None:
    cluster = Cluster(str(tmp_path), 1, 1, registry=True)
    node = cluster.nodes[0]
    around = node.around()
    found = {name: whence(given) for name, given in around._asdict().items() if given != getattr(REAL, name) and name != "frugal"}
    made = {
        "make_host": whence(around.make_host(node.paths, Settings(), node.state.clock)),
        "make_parse": whence(around.make_parse()),
        "make_launcher": whence(around.make_launcher({})),
        "watcher": whence(around.watcher()),
        "dial": whence(around.dial.database),
    }
    nothing = {"make_gates": around.make_gates(), "trim": around.trim()}  # type: ignore[func-returns-value]
    assert set(nothing.values()) == {None}
    assert {**found, **made, **dict.fromkeys(nothing, "")} == GIVEN
    assert around.make_parse() is from_json
    cluster.close()


def test_they_are_eight_at_most_and_all_are_used() -> None:
    assert len(REPLACED) <= 8
    there = {".".join(source.module.split(".")[:3]) for source in PRODUCT if source.module.startswith("mockcloud.replaced.")}
    assert there == {name for name in REPLACED if name.startswith("mockcloud.")}
    used = {name for name in REPLACED if any(one.startswith(name) for one in (*GIVEN.values(), "mockcloud.replaced.process"))}
    assert used == set(REPLACED)


def set_elsewhere(tree: ast.AST) -> list[str]:
    """Name what a module sets in another one."""
    modules = {
        alias.asname or alias.name.partition(".")[0] for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            modules |= {alias.asname or alias.name for alias in node.names}
    found = []
    for node in ast.walk(tree):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AugAssign | ast.AnnAssign) else []
        found += [
            ast.unparse(each) for each in targets if isinstance(each, ast.Attribute) and ast.unparse(each).partition(".")[0] in modules
        ]
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ("setattr", "object.__setattr__"):
            found.append(ast.unparse(node))
    return found


@pytest.mark.parametrize(
    "source", [source for source in PRODUCT if source.module.startswith("mockcloud")], ids=lambda source: source.module
)
def test_nothing_is_replaced_behind_anybodys_back(source: Any) -> None:
    assert set_elsewhere(source.tree) == []


@pytest.mark.parametrize(
    "line", ["import time; time.sleep = print", "from netagent.agent import Agent; Agent.start = None", "setattr(x, 'y', 1)"]
)
def test_who_does_is_seen(line: str) -> None:
    assert len(set_elsewhere(ast.parse(line))) == 1
