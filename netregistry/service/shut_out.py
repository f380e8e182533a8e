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
    """Keep whom this service lets in no more, until which serial, and by which request."""

    def __init__(self) -> None:
        self._floors: dict[tuple[str, str], tuple[str, str]] = {}

    def hold(self, call: Call, draft: Draft) -> bool:
        """Shut out whom a request revokes, as it was planned; tell whether that is anybody."""
        holders: list[Holder | None] = [draft.get(key) for key in draft.written("certificates")]
        revoked = [holder for holder in holders if holder is not None and holder.revoked]
        for holder in revoked:
            whose = holder.role, holder.name
            self._floors.pop(whose, None)
            self._floors[whose] = holder.floor, asked(call)
            if len(self._floors) > MOST:
                del self._floors[next(iter(self._floors))]
        return bool(revoked)

    def answered(self, call: Call) -> None:
        """Let the registry say again who counts of those whom a request has shut out: it is done, or refused, now."""
        if self._floors:
            what = asked(call)
            self._floors = {whose: held for whose, held in self._floors.items() if held[1] != what}

    def admit(self, one: Credential) -> None:
        """Raise Refused for who is shut out. Who has joined again since is not."""
        floor, _what = self._floors.get((one.role, one.name), ("", ""))
        if one.serial <= floor:
            raise refused("revoked", f"the certificate of {one.role} {one.name} is revoked, and that cannot be written yet")
