"""Say why a request is refused: by a status of HTTP and a problem document (RFC 9457), and what was expected."""

from __future__ import annotations

from typing import Any

from runtime.errors import NetcommonError

#: What a problem's type ends in -> status, title.
KINDS: dict[str, tuple[int, str]] = {
    "invalid": (400, "Not what is expected"),
    "forbidden": (403, "Somebody else decides that"),
    "certificate": (403, "No certificate that counts"),
    "token": (403, "No token that counts"),
    "missing": (404, "Not there"),
    "method": (405, "Not done to that"),
    "taken": (409, "Taken"),
    "exists": (409, "There already"),
    "full": (409, "Nothing is left to give out"),
    "in-use": (409, "In use"),
    "fenced": (409, "Another configuration of this cluster is imported"),
    "twin": (409, "Another one says to be the same node"),
    "outdated": (409, "Not in time: the request was made too long ago, or at a time that is not yet"),
    "compacted": (410, "Not remembered so far back"),
    "stale": (412, "Changed since"),
    "epoch": (412, "Of another epoch"),
    "gone": (410, "Not the node's any more"),
    "too-large": (413, "Too much at once"),
    "media": (415, "Not JSON"),
    "match": (428, "Revision needed"),
    "too-many": (429, "Too many at once"),
    "fault": (500, "A fault of the service"),
    "unsure": (503, "Not answered: it may be done"),
    "busy": (503, "Try again"),
    "waiting": (503, "Not before every live node has reported"),
    "unavailable": (503, "The store cannot be used for now"),
}


class Refused(NetcommonError):
    """A request is refused, and has changed nothing (but "unsure", where nobody knows yet). ``more``: fields of the problem document."""

    def __init__(self, kind: str, detail: str, **more: Any) -> None:
        self.kind, self.detail, self.more = kind, detail, more
        self.code = KINDS[kind][0]
        super().__init__(detail)

    def problem(self) -> dict[str, Any]:
        """Give the document of media type application/problem+json."""
        return {"type": f"/v1/problems/{self.kind}", "title": KINDS[self.kind][1], "status": self.code, "detail": self.detail, **self.more}
