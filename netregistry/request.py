"""Define a request as it comes in, and its answer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from netregistry.model import kinds
from netregistry.refusal import Refused

if TYPE_CHECKING:
    from netregistry.draft import Draft

#: In place of a revision: whichever it is.
ANY = "*"


class Call(NamedTuple):
    """One request.

    ``id``: a UUID of version 7 (RFC 9562, 5.7), whose time is that at which the request was made: the same id is the same request, however
    often it comes. ``match``: EPOCH:REVISION at which what is changed was read, or "*".
    """

    id: kinds.Uuid
    action: str
    target: str = ""
    body: Any = None
    match: str = ""
    dry_run: bool = False


class Part(NamedTuple):
    """One of the requests of a batch."""

    action: str
    target: str = ""
    body: Any = None
    match: str = ""


class Response(NamedTuple):
    """An answer: HTTP's status, a body for JSON, and the revision (EPOCH:REVISION) of what was written; "" for none."""

    status: int
    body: Any = None
    revision: str = ""


class Done(NamedTuple):
    """What a rule answers. ``key``: of the object that it is about."""

    status: int
    key: str
    body: Any = None


def matched(draft: Draft, key: str, match: str) -> None:
    """Raise Refused where a thing is not at the revision at which it was read."""
    if match == ANY:
        return
    if not match:
        shown = draft.view.shown_revision(key)
        raise Refused("match", f"say at which revision you have read it (If-Match): it is at {shown} now, or {ANY}", revision=shown)
    wanted, at = revision(draft.view.epoch, match), draft.view.at(key)
    # what an earlier part of the same batch has written was judged by that part
    if wanted != at and not draft.touched(key):
        detail = f"it was changed since {match}: it is at {draft.view.shown_revision(key)} now"
        raise Refused("stale", detail, revision=draft.view.shown_revision(key))


def revision(epoch: str, text: str) -> int:
    """Give the number of EPOCH:REVISION. Raises Refused for another epoch, and for what is none."""
    begun, colon, number = text.rpartition(":")
    if not colon or not (number.isascii() and number.isdecimal() and len(number) <= 18):
        raise Refused("invalid", f"a revision is EPOCH:NUMBER: {text!a:.80}", field="match")
    if begun != epoch:
        raise Refused("epoch", f"the registry is in epoch {epoch}, not {begun!a:.80}: list anew what you know of it", epoch=epoch)
    return int(number)


def made(request: str) -> int:
    """Give the time at which a request was made, milliseconds since the epoch: its id says it. Raises Refused for another kind of id."""
    digits = request.replace("-", "")
    if len(digits) != 32 or digits[12] != "7" or digits[16] not in "89ab":
        raise Refused("invalid", f"a request's id is a UUID of version 7 (RFC 9562): {request!a:.80}", field="id")
    return int(digits[:12], 16)


def new_id(seconds: float, chance: int) -> str:
    """Make a request's id: ``seconds`` since the epoch, and 74 bits by chance."""
    chance &= (1 << 74) - 1
    value = int(seconds * 1000) << 80 | 7 << 76 | (chance >> 62) << 64 | 2 << 62 | chance & (1 << 62) - 1
    digits = f"{value:032x}"
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))
