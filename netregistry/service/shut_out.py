"""Shut out whose revocation a store does not take, for it is full, or away: the service that was asked does so by its memory alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from netregistry.model.codec import read
from netregistry.rules.holders import Whose, last_serial, named, refused

if TYPE_CHECKING:
    from netregistry.model.certificate import Credential
    from netregistry.request import Call

MOST = 1000  #: holders
MEANWHILE = (
    "nothing of it is written: this service lets in none of its certificates meanwhile, others and this one after a restart do: ask again "
    "when there is room (netcommon registry compact), and each other service"
)


class ShutOut:
    """Whom this service lets in no more, until which serial."""

    def __init__(self) -> None:
        self._floors: dict[tuple[str, str], str] = {}

    def revoke(self, call: Call, now: float) -> bool:
        """Shut out whom a request would revoke; tell whether it would revoke anybody. Raises Invalid."""
        if call.dry_run or call.action not in ("certificate.revoke", "node.forget"):
            return False
        wanted = read(Whose, call.body) if call.action == "certificate.revoke" else Whose("node", call.target)
        whose = wanted.role, named(wanted.role, wanted.name)
        self._floors.pop(whose, None)
        self._floors[whose] = last_serial(now)
        if len(self._floors) > MOST:
            del self._floors[next(iter(self._floors))]
        return True

    def admit(self, one: Credential) -> None:
        """Raise Refused for who is shut out. Who has joined again since is not."""
        if one.serial <= self._floors.get((one.role, one.name), ""):
            raise refused("revoked", f"the certificate of {one.role} {one.name} is revoked, and that cannot be written yet")
