"""Shut out whose revocation a store does not take, for it is full, or away: the service that was asked does so by its memory alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from netregistry.core import asked
from netregistry.rules.holders import refused

if TYPE_CHECKING:
    from netregistry.draft import Draft
    from netregistry.model.certificate import Credential, Holder
    from netregistry.request import Call

MOST = 1000  #: holders
REVOKING = ("certificate.revoke", "node.forget", "batch")  #: actions by which somebody may be revoked
MEANWHILE = (
    "this service lets in none of its certificates meanwhile, others and this one after a restart may: ask again when the store answers "
    "(where it is full: netcommon registry compact), and each other service"
)


class ShutOut:
    """Keep whom this service lets in no more, until which serial, by what was asked, and by which request."""

    def __init__(self) -> None:
        self._floors: dict[tuple[str, str], tuple[str, str, str]] = {}

    def hold(self, call: Call, draft: Draft) -> bool:
        """Shut out whom a request revokes, as it was planned; tell whether that is anybody."""
        holders: list[Holder | None] = [draft.get(key) for key in draft.written("certificates")]
        revoked = [holder for holder in holders if holder is not None and holder.revoked]
        for holder in revoked:
            whose = holder.role, holder.name
            self._floors.pop(whose, None)
            self._floors[whose] = holder.floor, asked(call), call.id
            if len(self._floors) > MOST:
                del self._floors[next(iter(self._floors))]
        return bool(revoked)

    def by(self, call: Call) -> bool:
        """Tell whether anybody is shut out by what a request asks; not by one that is older than the one that did it."""
        return bool(self._of(call))

    def answered(self, call: Call) -> None:
        """Let the registry say again who counts of those whom a request has shut out: it is done, or refused by the rules, now."""
        for whose in self._of(call):
            del self._floors[whose]

    def _of(self, call: Call) -> list[tuple[str, str]]:
        what = asked(call) if self._floors else ""
        return [whose for whose, (_floor, by, since) in self._floors.items() if by == what and since <= call.id]

    def admit(self, one: Credential) -> None:
        """Raise Refused for who is shut out. Who has joined again since is not."""
        held = self._floors.get((one.role, one.name))
        if held is not None and one.serial <= held[0]:
            raise refused("revoked", f"the certificate of {one.role} {one.name} is revoked, and that cannot be written yet")
