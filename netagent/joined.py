"""Keep the node's side of a registry going while the node has joined one; nothing of it is loaded on a node that has not."""

from __future__ import annotations

from typing import TYPE_CHECKING

from netagent.surroundings import in_thread
from netcommon.lifecycle.context import Call
from runtime import membership
from runtime.errors import HostRefused, NetcommonError

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Mapping

    from netagent.dispatcher import Dispatcher
    from netagent.loop import Scheduler
    from netagent.reconcile.keyed_pool import Key
    from netagent.reconcile.workers import Worker
    from netagent.renewal import Renewal
    from netagent.state import State
    from netagent.surroundings import Aside
    from netagent.sync.driver import MakeSession, Sync
    from netcommon.log import Log
    from netcommon.settings.model import Settings
    from netregistry.credentials import Credentials
    from netregistry.reach import Places

DOOR = "registry"  #: who calls, where a NIC is changed for it
MEMBER = "registry-node"  #: the alarm: nobody can tell which node this is


class Joined:
    """The node's side of a registry, or none. In the main thread, but for ``status``.

    ``path``: of the registry's socket, "" the usual. ``session``, ``aside``: see netagent.surroundings.
    """

    def __init__(
        self,
        state: State,
        loop: Scheduler,
        jobs: Dispatcher,
        log: Log,
        chance: random.Random,
        path: str = "",
        session: MakeSession | None = None,
        aside: Aside = in_thread,
    ) -> None:
        self._state, self._loop, self._jobs, self._log, self._chance, self._path = state, loop, jobs, log, chance, path
        self._session, self._aside = session, aside
        self.underlay: Callable[[], None] = lambda: None  #: what is known of the underlay is another
        self._sync: Sync | None = None
        self._renewal: Renewal | None = None
        self._as: tuple[object, ...] = ()
        self._unusable = False

    def look(self) -> None:
        """Begin, or end, as the node has joined a registry or has not, and as the settings say."""
        settings = self._state.settings
        try:
            member = membership.read(self._state.paths) if settings.registry_sync else None
            found = self._credentials(member.uuid) if member is not None else None
        except NetcommonError as error:
            self._state.alarms.set(MEMBER, str(error))
            self._unusable = True
            return
        if self._unusable:
            self._state.alarms.clear(MEMBER)
            self._unusable = False
        addresses = () if found is None else settings.registry_addresses or found.addresses
        wanted = () if member is None else (member.uuid, addresses, *_asked(settings))
        if wanted == self._as:
            return
        self.close(0.0)
        self._as = wanted
        if member is not None:
            self._begin(member.uuid, settings, found, addresses)

    def _credentials(self, uuid: str) -> Credentials | None:
        """Read what the node shows a registry elsewhere; None: its registry is on this machine. Raises HostRefused."""
        from netregistry import credentials

        found = credentials.read(self._state.paths.lib, "node")
        if found is not None and found.name != uuid:
            what = f"the certificate for the registry is of node {found.name}, and this is {uuid}"
            raise HostRefused(what, "netcommon registry join URL TOKEN gets one of this node")
        return found

    def _begin(self, uuid: str, settings: Settings, found: Credentials | None, addresses: tuple[str, ...]) -> None:
        from netagent.sync.driver import Around, Sync  # what a node without a registry need not have in memory
        from netagent.sync.rules import Rules
        from netregistry.client import SOCKET

        state, usual = self._state, Rules()
        delay = settings.registry_compare_delay
        rules = Rules(
            first=usual.first if delay == "auto" else (float(delay), float(delay)),
            every=settings.registry_compare_interval,
            reap=settings.registry_reap,
            cap=settings.registry_reap_cap,
        )
        around = Around(self._loop, state.clock, self._log, state.alarms, state.metrics, self._jobs.work, self._call, self._session)
        around = around._replace(underlay=self.underlay)
        where: str | Places = self._path or SOCKET
        if found is not None:
            from netagent.renewal import Renewal

            where = found.places(addresses)
            renewing = (self._loop, state.clock, self._log, state.alarms, state.metrics, self._chance.random)
            self._renewal = Renewal(found, where, *renewing, aside=self._aside)
        self._sync = Sync(uuid, where, rules, around, state.folder, state.paths.lib, self._chance)
        self._log.info(f"this node speaks with its registry{' at ' + ', '.join(addresses) if addresses else ''} as {uuid}")
        self._sync.start()

    def _call(self, worker: Worker) -> Call:
        return Call(worker.log, self._state.clock.now() + self._state.settings.hook_timeout, DOOR)

    def marked(self, key: str) -> None:
        """Note that a record, or a definition, has changed."""
        if self._sync is not None:
            self._sync.marked(key.partition(".")[0])

    def coming(self) -> None:
        """Let those be looked at again whose guests are told to be on their way."""
        if self._sync is not None:
            self._sync.coming()

    def lost(self) -> None:
        """Note that events were lost: any NIC may have changed."""
        if self._sync is not None:
            self._sync.lost()

    def changed(self) -> None:
        """Note that something of the node may have changed."""
        if self._sync is not None:
            self._sync.changed()

    def underlaid(self) -> None:
        """Note that other addresses of the underlay are there than before, or that other guests are on their way here."""
        if self._sync is not None:
            self._sync.underlaid()

    def gone(self) -> None:
        """Note that a device has gone."""
        if self._sync is not None:
            self._sync.gone()

    def unworked(self, key: Key, error: Exception) -> None:
        """Note that a worker could not do what it was given."""
        if self._sync is not None:
            self._sync.unworked(key, str(error))

    def status(self) -> Mapping[str, object]:
        """Say how it stands. For any thread."""
        sync = self._sync
        return {} if sync is None else sync.status()

    def close(self, seconds: float) -> None:
        """End it, if there is one."""
        sync, self._sync, self._as = self._sync, None, ()
        renewal, self._renewal = self._renewal, None
        if renewal is not None:
            renewal.close()
        if sync is not None:
            sync.close(seconds)


def _asked(settings: Settings) -> tuple[object, ...]:
    return settings.registry_compare_delay, settings.registry_compare_interval, settings.registry_reap, settings.registry_reap_cap
