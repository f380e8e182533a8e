"""Tell whether somebody waits for a node: then it asks a registry that has not answered sooner than others do."""

from __future__ import annotations

from typing import TYPE_CHECKING

from netagent.sync.reading import revision_of

if TYPE_CHECKING:
    from netagent.sync.inbox import Inbox
    from netagent.sync.outbox import Outbox


def awaited(outbox: Outbox, inbox: Inbox) -> bool:
    """Tell whether guests' names may wait for this node: for what it has to say, or for an address that its stream has not told yet."""
    if inbox.underlay is None:
        return False
    return outbox.speaks or bool(outbox.after and (inbox.ready is None or inbox.ready.number < revision_of(outbox.after).number))
