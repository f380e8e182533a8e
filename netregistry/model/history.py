"""Define what a registry keeps about its own changes: history, the ledger that numbers them, and its settings."""

from __future__ import annotations

from typing import Annotated, Any, Literal, NamedTuple

from netregistry.model import kinds
from netregistry.model.certificate import LONGEST
from netregistry.model.codec import Between

Role = Literal["operator", "importer", "node", "reader", "leader", "newcomer"]


class Identity(NamedTuple):
    """Who asks: an operator's name, an importer's cluster, a node's UUID. ``origin``: from where."""

    role: Role
    name: str = ""
    origin: str = ""


class Change(NamedTuple):
    """One key before and after; None: it was, or is, not there."""

    key: str
    before: Any
    after: Any


class Entry(NamedTuple):
    """One request that was done: what it changed, and what was answered, which a repeated request is answered too."""

    number: int  #: counts the requests that were done, without gap
    request: kinds.Uuid
    time: float
    who: Identity
    action: str
    target: str
    changes: tuple[Change, ...]
    status: int
    body: Any = None
    asked: str = ""  #: netregistry.core.asked: another request of the same id is none of its copies


class Ledger(NamedTuple):
    """The one key that every change of what is wanted tests and advances.

    ``number``: of the latest entry of the history; ``kept``: how many there are; ``floor``: milliseconds since the epoch; requests made by
    then are not remembered.
    """

    number: int = 0
    kept: int = 0
    floor: int = 0


class Clock(NamedTuple):
    """Since when the leader's clock has gone without a jump, as far as it knows, and when that was last so: of the one key "clock"."""

    since: kinds.Time = 0.0
    seen: kinds.Time = 0.0


class Settings(NamedTuple):
    """What an operator decides for the whole registry; times in seconds."""

    mac_prefix: kinds.MacPrefix = "02:6e:63"  #: of MACs that are allocated; locally administered
    quarantine: Annotated[float, Between(0, 31536000)] = 3600.0  #: before what was freed is given out again
    history_seconds: Annotated[float, Between(86400, 3153600000)] = 34560000.0
    history_entries: Annotated[int, Between(1000, 100_000_000)] = 1_000_000
    certificate_seconds: Annotated[float, Between(3600, LONGEST)] = 7776000.0  #: for which a certificate is good; 90 days
