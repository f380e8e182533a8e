"""Tell for how long the clock has been one to go by: what cannot be taken back is not done by one that has just jumped.

A battery that is empty, a date that is mistyped or a bad source of time may set a clock by years, and it is right again a moment later.
What has ended by such a clock would be gone for good: addresses in quarantine given out, options taken away, and who is revoked forgotten,
so that he is let in again. So the clock is held against one that nobody sets, look by look; and at a start against what is written, which
also says since when it had gone without a jump until shortly before: a service that is restarted each day would never forget anything.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from netregistry.model import keys
from netregistry.model.certificate import DAY
from netregistry.model.history import Clock
from netregistry.model.kinds import FOREVER
from runtime.moment import local_time

if TYPE_CHECKING:
    from collections.abc import Callable

    from netregistry.view import View

JUMP = 60.0  #: seconds by which the two may differ from one look to the next
AWAY = 3600.0  #: seconds for which no service may have looked: by as much it may have jumped meanwhile
HELD = 3600.0  #: seconds for which nothing ends by a clock that has jumped, at least
SLACK = 300.0  #: seconds by which a clock may be set back without a look at what was freed since
QUIET = DAY  #: seconds that a registry has usually something written in: a start later than that may be by a wrong clock


class Steady:
    """A clock (``now``: seconds since the epoch), held against one that nobody sets (``passed``); None: it is one to go by at any time."""

    def __init__(self, now: Callable[[], float], passed: Callable[[], float] | None) -> None:
        self._now, self._passed = now, passed
        self._seen = now(), passed() if passed is not None else 0.0
        self._since = self._seen[1]  # since then it has not jumped
        self._jumped = False
        self._ahead = 0.0  # by how much it has, and nobody has been told
        self._why = ""  # it is held to be wrong since the start, and nobody has been told

    def begin(self, written: float, kept: Clock | None = None) -> None:
        """Hold the clock, at the start, against the latest time that is ``written`` in the registry; 0: none is.

        ``kept``: since when it had gone without a jump, until when. What was written by a clock that had jumped says nothing for it: what
        may not end by it may not end after this start either.
        """
        if self._passed is None:
            return
        now = self._now()
        self._jumped = kept is not None and kept.jumped
        if written and not -JUMP <= now - written <= QUIET:
            self._jumped = True
            self._why = f"the latest that was written is of {local_time(written)}: the clock may be wrong"
        elif kept is not None and kept.since <= kept.seen and -JUMP <= now - kept.seen <= AWAY:
            self._since = min(self._since, self._passed() - (now - kept.since))

    @property
    def clock(self) -> Clock | None:
        """Give since when the clock has gone without a jump, as it is to be kept; None where nobody sets it."""
        self.look()
        if self._passed is None:
            return None
        since = max(self._seen[0] - (self._seen[1] - self._since), 0.0)
        return Clock(since, self._seen[0], self._jumped and not self._lasts(DAY))

    def look(self) -> None:
        """Look at both. To be done every second or so."""
        if self._passed is None:
            return
        seen = self._now(), self._passed()
        ahead = (seen[0] - self._seen[0]) - (seen[1] - self._seen[1])
        self._seen = seen
        if abs(ahead) > JUMP:
            self._since, self._jumped = seen[1], True
            self._ahead += ahead

    def told(self) -> str:
        """Say, once, why the clock is held to be wrong, since this was asked for the last time; "": it is not."""
        why = f"the clock was set by {self._ahead:+.0f} s" if self._ahead else self._why
        self._ahead, self._why = 0.0, ""
        return why

    def ends(self, quarantine: float) -> bool:
        """Tell whether options and quarantines may end: after a jump, when each quarantine has had its time by the other clock, too."""
        return self.held(quarantine) <= 0

    def held(self, quarantine: float) -> float:
        """Give for how many seconds no option or quarantine ends yet; 0: they do."""
        self.look()
        if not self._jumped or self._passed is None:
            return 0.0
        return max(max(HELD, min(quarantine, DAY)) - (self._passed() - self._since), 0.0)

    @property
    def forgets(self) -> bool:
        """Tell whether what ended long ago may be forgotten: that has time, so the clock is to have been one to go by for a day."""
        self.look()
        return self._lasts(DAY)

    def _lasts(self, seconds: float) -> bool:
        return self._passed is None or self._passed() - self._since >= seconds


def past(since: float, now: float) -> float:
    """Give a time as one to go by for what came first: one that is not yet is of a clock that was fast, and long ago."""
    return since if since <= now + SLACK else since - FOREVER


def written(view: View) -> float:
    """Give the latest time at which something was written that a view holds; 0 where nothing says."""
    times = [
        *(claim.freed for kind in ("macs", "addresses") for claim in view.all(kind).values()),
        *(nic.made for nic in view.all("nics").values()),
        *(reports.time for reports in view.all("reports").values()),
        *(node.joined for node in view.all("nodes").values()),
        *(holder.since for holder in view.all("certificates").values()),
        *(clock.seen for clock in view.all(keys.CLOCK).values()),
    ]
    return max(times, default=0.0)
