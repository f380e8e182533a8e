"""Keep a node's certificate good: renewed well before its end, and whenever another authority signs; what authorities count, too.

However short a certificate is good, a look falls soon after it is due, and several more into what is left of it then. Each look is
done aside, in a thread of its own, for the registry may be slow. The alarm is on while a certificate that ends soon cannot be renewed.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from netagent.surroundings import in_thread
from netregistry import credentials
from netregistry.client import Client
from runtime.errors import NetcommonError
from runtime.moment import local_time

if TYPE_CHECKING:
    from collections.abc import Callable

    from netagent.loop import Scheduler, Timer
    from netagent.observe.alarms import Alarms
    from netagent.observe.metrics import Metrics
    from netagent.surroundings import Aside
    from netcommon.lifecycle.context import Clock
    from netcommon.log import Log
    from netregistry.credentials import Credentials
    from netregistry.reach import Places

ALARM = "registry-certificate"
SECONDS = 20.0  #: for one answer
SOON = 1 / 6  #: of its time that a certificate has left, below which there is an alarm
SPREAD = 1 / 4  #: of what is left when it is due, within which it is renewed: not all nodes at once
AMONG = 1 / 6  #: of what is left, after which there is another look


class Pace(NamedTuple):
    """Seconds: up to so many until the first look, between two of them, after one that failed; each up to half as much more by chance.

    ``soonest``: between two looks at a certificate that ends soon.
    """

    first: float = 60.0
    every: float = 3600.0
    again: float = 300.0
    soonest: float = 90.0


class Renewal:
    """The renewal of one node's certificate. In the main thread, but for the looks. ``chance``: gives a number from 0 to 1."""

    def __init__(
        self,
        one: Credentials,
        places: Places,
        loop: Scheduler,
        clock: Clock,
        log: Log,
        alarms: Alarms,
        metrics: Metrics,
        chance: Callable[[], float],
        pace: Pace = Pace(),  # noqa: B008  # a value that never changes
        aside: Aside = in_thread,
    ) -> None:
        self.credentials, self._places, self._pace = one, places, pace
        self._loop, self._clock, self._log, self._alarms, self._metrics, self._chance = loop, clock, log, alarms, metrics, chance
        self._closed, self._aside = False, aside
        self._timer: Timer | None = loop.after(pace.first * chance(), self._look)

    def close(self) -> None:
        """End; a look that goes on is of no consequence here any more."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        self._alarms.clear(ALARM)

    def _look(self) -> None:
        self._timer = None
        self._aside("registry-renewal", self._looked)

    def _looked(self) -> None:
        """Ask, in a thread of its own where there are others."""
        one, why = self.credentials, ""
        try:
            with Client(self._places, seconds=SECONDS) as client:
                one = credentials.refresh(one, client, self._clock.wall())
        except NetcommonError as error:
            why = str(error)
        except Exception as error:  # whatever comes instead of an answer
            why = f"{type(error).__name__}: {error}"[:200]
        self._loop.tell(partial(self._done, one, why))

    def _done(self, one: Credentials, why: str) -> None:
        if self._closed:
            return
        if one.until != self.credentials.until:
            self._log.info(f"the certificate for the registry is renewed, until {local_time(one.until)}")
        self.credentials = one
        self._metrics.gauge("netcommon_registry_certificate_end_seconds", one.until)
        left = one.until - self._clock.wall()
        if why and left < (one.until - one.since) * SOON:
            self._alarms.set(ALARM, f"the certificate for the registry {'ends' if left > 0 else 'has ended'}, and is not renewed: {why}")
        elif not why:
            self._alarms.clear(ALARM)
        wait = self._pace.again if why else self._pace.every
        self._timer = self._loop.after(min(wait * (1 + self._chance() / 2), self._latest(one)), self._look)

    def _latest(self, one: Credentials) -> float:
        """Give in how many seconds to look at the latest: soon after the certificate is due, and then six times or more before its end."""
        now = self._clock.wall()
        if now < one.renewal:
            return one.renewal - now + (one.until - one.renewal) * SPREAD * self._chance()
        left = one.until - now
        return max(left * AMONG, self._pace.soonest) if left > 0 else self._pace.every
