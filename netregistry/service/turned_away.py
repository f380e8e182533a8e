"""Count who was not let in, or was refused as whom he came, and say so in the log: once in a while for each reason and address."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from netregistry.service.registry import Log

#: By what is counted. "broken": the connection ended in the handshake; "none": no certificate where one is needed;
#: "cross-site": a browser asked for another site's page.
OF_CERTIFICATES = ("expired", "not-yet", "self-signed", "foreign", "revoked", "forgotten", "none")
OF_TOKENS = ("token-unknown", "token-used", "token-late", "token-other")
REASONS = (*OF_CERTIFICATES, *OF_TOKENS, "another", "cross-site", "no-tls", "broken", "busy", "not-ready")
EVERY = 600.0  #: seconds between two lines of one reason and address
REMEMBERED = 1000  #: lines
MOST, WHILE = 100, 60.0  #: lines in so many seconds, whatever the reasons and addresses


class TurnedAway:
    """Who was turned away. ``now``: monotonic seconds. Only for one thread."""

    def __init__(self, now: Callable[[], float], log: Log) -> None:
        self._now, self._log = now, log
        self._said: dict[tuple[str, str], float] = {}  # the oldest first
        self._since, self._lines = now(), 0
        self.counts = dict.fromkeys(REASONS, 0)

    def note(self, reason: str, address: str, what: str) -> None:
        """Count one, and say ``what``, unless that is ""."""
        self.counts[reason] += 1
        now, key = self._now(), (reason, address)
        if not what or now < self._said.get(key, float("-inf")) + EVERY:
            return
        if now >= self._since + WHILE:
            self._since, self._lines = now, 0
        self._lines += 1
        if self._lines > MOST:
            return
        self._said.pop(key, None)
        self._said[key] = now
        if len(self._said) > REMEMBERED:
            del self._said[next(iter(self._said))]
        self._log.warning(f"{address or 'somebody'} is refused: {what}")
