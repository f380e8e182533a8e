"""Give the names of the underlay to who publishes them, and note what name servers have, as long as this service leads."""

from __future__ import annotations

from typing import TYPE_CHECKING

from netregistry.core import CatchUp, Committed, Unanswered
from netregistry.model import keys
from netregistry.model.underlay import Zone
from netregistry.refusal import Refused
from netregistry.underlay import published
from netregistry.zone.plan import Wanted

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence

    from netregistry.core import Effect, Result
    from netregistry.draft import Commit
    from netregistry.model.underlay import Underlay
    from netregistry.service.registry import Registry
    from netregistry.stores.base import Batch
    from netregistry.view import View
    from netregistry.zone.publisher import Published
    from netregistry.zone.unheard import Unheard

ATTEMPTS = 20  #: of a commit that reports keep on overtaking
WAKING = frozenset(("zones", keys.UNDERLAY))  #: kinds of keys by which something else is to be published


class Naming:
    """Give what a registry wants of ``servers``. All methods are for the registry's turn; ``wake``: called when other names are wanted.

    ``virtual``: also names on nodes of a mock cloud. No service says so: those are for a mock cloud's own name servers alone.
    """

    def __init__(self, registry: Registry, servers: Sequence[str], virtual: bool = False) -> None:
        self._registry, self._servers, self._virtual = registry, tuple(servers), virtual
        self._given: Wanted | None = None
        self._changed: set[str] = set()  # names, as long as nodes have their time to say what they have
        self.wake: Callable[[], None] = lambda: None

    def hear(self, view: View, batch: Batch | None) -> None:
        """Take in what the view has taken in: one commit; None: all of it anew."""
        if not self._registry.local.leader.holds():
            waking = WAKING
            self._changed.clear()
        else:
            waking = WAKING | {"confirmed"}  # a node has spoken, for which names were held
            for change in batch.changes if batch is not None else ():
                if keys.kind(change.key) == "names":
                    self._changed.add(change.key.split("/", 2)[2])
        if batch is None or any(keys.kind(change.key) in waking for change in batch.changes):
            self.wake()

    def settle(self) -> None:
        """Let what is retired wait for the servers that there are, and for no others. Raises Refused, Unavailable."""
        if self._registry.leads:
            self._commit(lambda view, now: published.servers(view, self._servers, now))

    def wanted(self) -> Wanted | None:
        """Give what the zone shall hold; None where another service leads, or there is no zone. Raises Refused, Unavailable."""
        registry = self._registry
        if not registry.leads:
            return None
        registry.catch_up()
        view = registry.local.view
        underlay = view.underlay
        if underlay is None or not underlay.zone:
            return None
        self._commit(published.identified)  # before a zone is marked with it: it is to outlive whatever it is made from
        self.settle()  # before a name is published: what is retired waits for it from then on
        return self._made(registry.local.view, underlay)

    def left(self, server: str) -> tuple[Wanted, ...]:
        """Give what zones that were the underlay's before shall hold, those that a server does not have so. Raises Refused, Unavailable."""
        if not self._registry.leads:
            return ()
        self._registry.catch_up()
        view = self._registry.local.view
        underlay, others = view.underlay, published.others(view)
        behind = [zone for zone, each in others.items() if any(one.server == server for one in each.behind(view.epoch))]
        if underlay is None:
            return ()
        made = ((zone, others[zone], published.names(view, zone, self._virtual)) for zone in behind)
        whose, ttl, prefix, unheard = published.registry_id(view), underlay.ttl, underlay.prefix, self._unheard(view)
        return tuple(
            Wanted(zone, whose, view.epoch, there.generation, names, ttl, prefix, former=True, unheard=unheard, before=there.epochs)
            for zone, there, names in made
        )

    def published(self, found: Published) -> None:
        """Note that a server has a zone, unless names are held there. Raises Refused, Unavailable: it is to be told again."""
        if found.held:
            return
        self._registry.catch_up()
        self._commit(lambda view, now: published.noted(view, found.server, found.zone, found.generation, now))

    def _made(self, view: View, underlay: Underlay) -> Wanted:
        zone: Zone = view.get(keys.zone(underlay.zone)) or Zone()
        given = self._given
        whose, ttl, prefix, unheard = published.registry_id(view), underlay.ttl, underlay.prefix, self._unheard(view)
        made = Wanted(underlay.zone, whose, view.epoch, zone.generation, {}, ttl, prefix, unheard=unheard, before=zone.epochs)
        if given is None or given._replace(names={}) != made:
            same = given is not None and (given.zone, given.mark) == (made.zone, made.mark)
            names = given.names if given is not None and same else published.names(view, underlay.zone, self._virtual)
            self._given = given = made._replace(names=names)
        return given

    def _unheard(self, view: View) -> Unheard | None:
        return published.unheard(view, self._changed) if self._registry.local.leader.holds() else None

    def _commit(self, make: Callable[[View, float], Commit | None]) -> None:
        self._registry.local.run(self._committed(make))

    def _committed(self, make: Callable[[View, float], Commit | None]) -> Generator[Effect, Result, None]:
        core = self._registry.local.core
        for _ in range(ATTEMPTS):
            commit = make(core.view, core.now())
            if commit is None:
                return
            result = yield commit
            if isinstance(result, Committed):
                yield CatchUp(result.revision)
                return
            if isinstance(result, Unanswered):
                break
            yield CatchUp()
        raise Refused("busy", "what name servers have is not noted: the zone is changed all the time")
