"""Say which /64 this node has to a registry that does not know the node, and give it up if that says so.

A registry that was restored from a copy of before the node's join does not know the node either: then the node keeps all of it, and the
registry, which hears of it, gives its /64 to nobody else. It goes only where the registry says that the node was forgotten (by TLS it
refuses the certificate for that reason), or that the /64 is another node's by now; never because no registry answers, or because an older
one knows nothing of this.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from netagent.sync.jobs import UNDERLAY
from netagent.sync.laid import DropUnderlay
from netagent.sync.messages import FORGOTTEN, Stray
from netagent.sync.sent import Looking

if TYPE_CHECKING:
    from collections.abc import Callable

    from netagent.sync.connection import Connection
    from netagent.sync.inbox import Inbox
    from netagent.sync.jobs import Jobs
    from netagent.sync.laid import Standing
    from netagent.sync.messages import Failure

ABLE = "underlay-prefix"  #: the service takes which /64 a node has
GONE = "gone"  #: the refusal by which it is this node's no more
UNKNOWN = "the registry knows no such node: netcommon registry node join lets it join"


class Strays:
    """See the module. ``request`` gives an id for a request, ``tell`` says something in the log."""

    def __init__(
        self, node: str, line: Connection, inbox: Inbox, jobs: Jobs, request: Callable[[], str], tell: Callable[[str], None]
    ) -> None:
        self._node, self._line, self._inbox, self._jobs = node, line, inbox, jobs
        self._request, self._tell = request, tell
        self._said = ""  # the epoch in which that was answered
        self._looks = False
        self._gone = ""  # why the node is to have nothing of it, by the service's word
        self._asking: Stray | None = None

    def unknown(self, now: float) -> None:
        """Take that the registry knows no such node."""
        self._line.stranger(UNKNOWN)
        self._gone = ""
        self._looks = self._line.can(ABLE, now) and self._said != self._line.epoch and self._asking is None

    def unless_forgotten(self, failure: Failure) -> Failure:
        """Give a failure as it is, but one by which the registry has forgotten the node, and lets it in no more, as no answer.

        Nothing can be said to it then, and nothing has to be: the node gives up what it has.
        """
        if failure.kind != FORGOTTEN:
            return failure
        self._looks, self._gone = self._looks or not self._gone, failure.text
        return failure._replace(kind="")

    def known(self) -> None:
        """Take that the registry knows the node, or that it is to be asked again."""
        self._looks, self._said, self._gone, self._asking = False, "", "", None

    def look(self) -> Looking | None:
        """Give the look at what the node has, where it is to be said."""
        looks, self._looks = self._looks, False
        return Looking((), underlay=True, stray=True) if looks else None

    def looked(self, found: Standing | None) -> None:
        """Take what the node has; None: that could not be told, and is looked at again when the registry is asked for the node again."""
        gone, self._gone = self._gone, self._gone if found is not None else ""
        if found is None:
            return
        if gone:
            if found.prefix:
                self._give_up(gone)
            return
        if not found.prefix:
            self._said = self._line.epoch
            return
        said = {"generation": found.generation, "addresses": list(found.addresses), "prefix": found.prefix, "epoch": found.epoch}
        self._asking = Stray(self._request(), {"after": f"{self._line.epoch}:0", "underlay": said})

    def asking(self) -> Stray | None:
        """Give what is to be said to the registry; nothing that was to be said to another one."""
        if self._asking is not None and self._asking.body["after"] != f"{self._line.epoch}:0":
            self._asking = None
        return self._asking

    def answered(self) -> None:
        """Take that the registry has heard it."""
        if self._asking is not None:
            prefix = self._asking.body["underlay"]["prefix"]
            self._tell(f"the registry does not know this node, and gives {prefix} to no other one: this node keeps it")
        self._asking, self._said = None, self._line.epoch

    def failed(self, failure: Failure) -> None:
        """Take that the registry has not done it: without an answer the same is said again."""
        asked = self._asking
        if failure.kind in ("", "busy", "unsure", "unavailable", "too-many") and not failure.lie:
            return
        self._asking = None
        if failure.kind == "epoch" or failure.lie or asked is None:
            return
        self._said = self._line.epoch
        if failure.kind == GONE:
            self._give_up(failure.text)

    def _give_up(self, why: str) -> None:
        self._tell(f"this node gives its part of the underlay up: {why}")
        self._inbox.underlay = None
        self._inbox.forget()
        self._jobs.put(DropUnderlay((UNDERLAY, self._node), f"{self._line.epoch}:0"))
