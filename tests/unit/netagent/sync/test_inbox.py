"""What the stream has told of this node, as it is kept for the agent's next start."""

from __future__ import annotations

import json
from typing import Any

import pytest

from netagent.sync.inbox import Inbox
from tests.support.nics import U1

NODE = "60c5bd2c-7f0e-4a7c-9d38-1b1cfb1e5b01"
VALUE = {"uuid": U1, "master": "ganeti:c1", "options": [{"name": "isolated", "value": "yes"}], "network": NODE, "tags": ["a", "b"]}


def told(**fields: Any) -> Inbox:
    """Give an inbox to which one NIC was told."""
    inbox = Inbox(NODE, lambda _uuid: True)
    inbox.begin()
    for line in ({"event": "enter", "what": "nic", "uuid": U1, "value": {**VALUE, **fields}}, {"event": "ready"}):
        inbox.line({"revision": "e:7", **line}, 100)
    return inbox


@pytest.mark.parametrize("fields", [{}, {"tags": []}, {"master": "registry"}, {"master": f"node:{NODE}", "instance": "web1"}], ids=str)
def test_what_is_kept_is_what_was_told(fields: dict[str, Any]) -> None:
    """So that nothing of it is done again, or undone, because the agent was restarted."""
    inbox, next_one = told(**fields), Inbox(NODE, lambda _uuid: True)
    next_one.load(json.loads(json.dumps(inbox.document())))
    assert next_one.nics == inbox.nics and next_one.nics[U1].wanted.network == NODE and next_one.ready == inbox.ready


@pytest.mark.parametrize("wrong", [{"tags": 7}, {"options": [["a"]]}, {"network": ..., "revision": "x"}, {"fields": 1}], ids=str)
def test_what_is_damaged_counts_for_nothing(wrong: dict[str, Any]) -> None:
    document = told().document()
    document["nics"][U1] |= wrong
    other = Inbox(NODE, lambda _uuid: True)
    other.load(document)
    assert other.nics == {} and other.ready is None
