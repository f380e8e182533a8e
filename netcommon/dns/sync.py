"""One run: what a hook tells, or what is asked for, is put on record, then brought into the zones; what failed before is tried again."""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set
from typing import TYPE_CHECKING, NamedTuple

from netcommon.dns import key, library
from netcommon.dns.guest import Event, Guest
from netcommon.dns.names import is_reverse, zone_of
from netcommon.dns.records import Policy, Sets, names_of, wanted
from netcommon.dns.store import Intent, Store
from netcommon.log import Log
from netcommon.settings.model import Settings
from runtime.errors import HostRefused, NetcommonError, SettingsInvalid

if TYPE_CHECKING:
    from netcommon.dns.ganeti import Certain, Instances
    from netcommon.dns.stale import Marked


class Outcome(NamedTuple):
    """What became of one instance: what was done, and what could not be, each in words or as the error."""

    instance: str
    done: tuple[str, ...] = ()
    errors: tuple[NetcommonError, ...] = ()


def policy(settings: Settings) -> Policy:
    """What the settings say of names and records."""
    return Policy(settings.dns_zones, settings.dns_domain, settings.dns_other_nics, settings.dns_eui64, settings.dns_ttl)


class Run:
    """One run, until ``deadline`` by ``now`` (monotonic seconds). ``instances`` reads Ganeti's configuration, None where it is not here.
    ``dry_run``: nothing is written, neither on record nor into the zones, and what would be done is said.

    Raises SettingsInvalid where the settings do not suffice, HostRefused where there is no dnspython.
    """

    def __init__(
        self,
        settings: Settings,
        store: Store,
        log: Log,
        deadline: float,
        now: Callable[[], float],
        instances: Callable[[], Instances | None],
        dry_run: bool = False,
    ) -> None:
        if not settings.dns_servers:
            raise SettingsInvalid("dns.zones are given, but no dns.servers")
        self._cluster, self._policy, self._store, self._log = settings.dns_cluster, policy(settings), store, log
        self._read, self._said = instances, set[str]()
        self._dry_run = dry_run
        self._key = key.read(settings.dns_key_file)
        library.find()
        from netcommon.dns.server import Servers  # it needs dnspython

        self._servers = Servers(settings.dns_servers, self._key, settings.dns_timeout, deadline, now)

    def close(self) -> None:
        """Lets the connection go."""
        self._servers.close()

    def apply(self, instances: Sequence[str], refreshed: Sequence[str] = ()) -> list[Outcome]:
        """Brings what is on record for ``instances`` into the zones, then what Ganeti has now of those ``refreshed``.

        Those that no server is left for are not begun. An instance whose name or address another had is tried again after that one
        may have let go of it.
        """
        outcomes: dict[str, Outcome] = {}
        for name in dict.fromkeys((*instances, *refreshed)):
            if outcomes and not self._servers.answering:
                break
            outcomes[name] = self._one(name, name not in instances)
        if any(outcome.done for outcome in outcomes.values()) and not self._dry_run:
            for name, outcome in outcomes.items():
                if any(isinstance(error, HostRefused) for error in outcome.errors):
                    again = self._one(name, False)
                    outcomes[name] = again._replace(done=outcome.done + again.done)
        return list(outcomes.values())

    def remove_stale(self, certain: Callable[[], Certain], only: str = "") -> list[Outcome]:
        """Removes the records of our cluster's that no instance has any more, those of instance ``only`` if one is named.

        ``certain`` reads the configuration, and raises where that cannot be relied on; it is asked again before each instance's, under its
        lock, since one may have been made meanwhile. Raises where anything is uncertain, or a zone could not be read whole: then nothing
        was removed.
        """
        from netcommon.dns.stale import by_instance, is_stale, marked

        known = certain()
        self._say(known.instances)
        found = marked(self._servers, self._policy, self._cluster or known.cluster, self._log)
        intents, outcomes = self._intents(), list[Outcome]()
        for name, names in by_instance(one for one in found if not only or one.mark.instance == only).items():
            if not any(is_stale(one, known, intents, self._policy) for one in names):
                continue
            try:
                with self._store.locked(name):
                    known = certain()
                    intents = self._intents()
                    outcomes.append(self._removed(name, [one for one in names if is_stale(one, known, intents, self._policy)]))
            except NetcommonError as error:
                outcomes.append(Outcome(name, (), (error,)))
        return outcomes

    def _removed(self, instance: str, stale: Sequence[Marked]) -> Outcome:
        from netcommon.dns.update import Zones

        zones = Zones(self._servers, self._policy, self._dry_run)
        done: list[str] = []
        try:
            done += [text for one in stale if (text := zones.settle(one.name, {}, one.mark, ()))]
        except NetcommonError as error:
            return Outcome(instance, tuple(done), (error,))
        for text in () if self._dry_run else done:
            self._log.bind(instance).info(f"{text}: no instance has it")
        return Outcome(instance, tuple(done))

    def _intents(self) -> dict[str, Intent]:
        return {name: intent for name in self._store.names() if (intent := self._store.read(name))}

    def _refresh(self, name: str) -> Intent | None:
        """Bring up to date what is on record: another node may have been the master meanwhile, or an operation ended half way.

        Returns what is on record then, or would be.
        """
        known, old = self._read(), self._store.read(name)
        if known is None:
            return old
        self._say(known)
        guest = known.guests.get(name)
        if guest is None:
            if old is None or known.may_have(name):
                return old  # of an instance that is there, and cannot be read, nothing is known
            guest = Guest(name, old.guest.cluster)
        if self._dry_run:
            return Intent(guest, tuple(sorted({*(old.names if old else ()), *wanted(guest, self._policy)})), old.former if old else ())
        record(self._store, Event(guest), self._policy)
        return self._store.read(name)

    def _say(self, known: Instances) -> None:
        """Log what of the configuration is passed over, once."""
        for text in known.passed_over:
            if text not in self._said:
                self._said.add(text)
                self._log.warning(text)

    def _one(self, name: str, refreshed: bool) -> Outcome:
        """Works on one instance under its lock."""
        try:
            with self._store.locked(name):
                intent = self._refresh(name) if refreshed else self._store.read(name)
                if intent is None:
                    return Outcome(name)
                outcome = self._settled(intent)
                if self._dry_run:
                    return outcome
                self._store.finish(intent, _after(intent, outcome, self._policy))
        except NetcommonError as error:
            outcome = Outcome(name, (), (error,))
        log = self._log.bind(name)
        for text in outcome.done:
            log.info(text)
        return outcome

    def _settled(self, intent: Intent) -> Outcome:
        from netcommon.dns.update import Mark, Taken, Zones

        guest = intent.guest
        cluster = self._cluster or guest.cluster
        owner = Mark(cluster, guest.name)
        # A name that is in use again has an intent of its own, and what bears its mark is that one's.
        former = {Mark(cluster, name) for name in intent.former if self._store.read(name) is None}
        zones = Zones(self._servers, self._policy, self._dry_run)
        records = wanted(guest, self._policy)
        done: list[str] = []
        errors: list[NetcommonError] = []
        try:
            names = {name for name in (*records, *intent.names) if zone_of(name, self._policy.zones)}
            names |= {name for one in (guest.name, *intent.former) for name in names_of(one, self._policy) if self._is_ours(name)}
            for name in sorted(name for name in names if not is_reverse(name)):
                names |= {one for one in zones.pointed_at(name, {owner, *former}) if self._is_ours(one)}
        except NetcommonError as error:
            return Outcome(guest.name, (), (error,))
        taken: set[str] = set()
        for name in sorted(names, key=lambda name: (is_reverse(name), name)):  # a PTR comes after the name that it leads to
            try:
                if text := zones.settle(name, _without(records.get(name, {}), taken), owner, former):
                    done.append(text)
            except NetcommonError as error:
                errors.append(error)
                if isinstance(error, Taken):
                    taken.add(name)
                if not self._servers.answering:
                    break
        return Outcome(guest.name, tuple(done), tuple(errors))

    def _is_ours(self, name: str) -> bool:
        return bool(zone_of(name, self._policy.zones))


def _without(sets: Sets, taken: Set[str]) -> Sets:
    """``sets`` without a PTR to a name that is another's: that name does not lead back, and who asks for the address finds another host."""
    left = {kind: values - taken if kind == "PTR" else values for kind, values in sets.items()}
    return {kind: values for kind, values in left.items() if values}


def record(store: Store, event: Event, policy: Policy) -> None:
    """Puts what ``event`` wants on record, before anything is sent. Raises NicInvalid, before anything is written."""
    guest = event.guest
    records = wanted(guest, policy)
    old = store.read(guest.name)
    names, former = set(old.names if old else ()), list(old.former if old else ())
    for other in (intent for name in store.names() if (intent := store.read(name)) and guest.name in intent.former):
        # The name's earlier holder has left work behind; what bears the mark of this name is from now on ours to tidy up.
        names |= set(other.names)
    if event.former and (before := store.read(event.former) or Intent(Guest(event.former, guest.cluster))):
        # Should we die before the next line but one, the old name is tidied up by itself.
        store.write(before._replace(guest=before.guest._replace(nics=()), done=False))
        names |= set(before.names)
        former = [*former, *before.former, event.former]
    former = [name for name in dict.fromkeys(former) if name != guest.name]
    store.write(Intent(guest, tuple(sorted({*names, *records})), tuple(former)))
    if event.former:
        store.remove(event.former)


def pending(store: Store) -> list[str]:
    """The instances on record for which not all is done."""
    return [name for name in store.names() if (intent := store.read(name)) and not intent.done]


def _after(intent: Intent, outcome: Outcome, policy: Policy) -> Intent | None:
    """What is on record after the work: None where nothing is left to know."""
    if outcome.errors:
        return intent._replace(error=str(outcome.errors[0]))
    records = wanted(intent.guest, policy)
    return Intent(intent.guest, tuple(sorted(records)), done=True) if intent.guest.nics else None
