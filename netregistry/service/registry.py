"""Run a registry for many who ask at once: everything that touches its store or view is done here, one after the other."""

from __future__ import annotations

import contextlib
import math
import os
import secrets
import tempfile
import time
from functools import partial
from typing import TYPE_CHECKING, Any, BinaryIO, Protocol, TypeVar

from netregistry.core import anybody
from netregistry.local import Local
from netregistry.model import keys
from netregistry.model.codec import Invalid, dump, read
from netregistry.model.history import Identity
from netregistry.refusal import Refused
from netregistry.request import ANY
from netregistry.roles import OPERATOR
from netregistry.rules.holders import JOIN, admitted, came_over, refused
from netregistry.rules.nodes import another
from netregistry.service import recent
from netregistry.service.answers import Compacted, Heartbeat
from netregistry.service.identity import ORIGIN
from netregistry.service.index import Index
from netregistry.service.issuing import Issuer
from netregistry.service.listings import Listings
from netregistry.service.queries import Reader
from netregistry.service.renewals import Renewals
from netregistry.service.shut_out import MEANWHILE, REVOKING, ShutOut
from netregistry.service.states import States
from netregistry.service.streams import Channel, Streams
from netregistry.service.written import Written
from netregistry.stores.base import Conflict, Damaged, Expect, Put, Unavailable, Unknown
from netregistry.stores.etcd import EtcdStore
from netregistry.stores.files import BACKUP
from netregistry.stores.sqlite import SqliteStore
from netregistry.transfer import filed
from runtime.errors import HostRefused, escaped

if TYPE_CHECKING:
    from collections.abc import Callable

    from netregistry.model.certificate import Credential
    from netregistry.request import Call, Response
    from netregistry.service.issuing import Ask
    from netregistry.service.limits import Limits
    from netregistry.service.queries import Answer as Shown
    from netregistry.stores.base import Batch, Store
    from netregistry.view import View

T = TypeVar("T")
LEADING = 10.0  #: seconds of the leader's lease
SIGNING = 0.5  #: seconds for which nodes that are no longer alive by their lease are given another one, before others have their turn
HELD_UP = 5.0  #: seconds between two looks at what is due, usually one
AT_ONCE = 50  #: holders who are noted by one commit to have come by their latest certificate
LETTING_IN = ("authorities", "certificates")  #: what decides on who is let in
ALIVE = 15.0  #: seconds of a node's lease: five signs of life may be lost


class Log(Protocol):
    """Where lines go: netcommon.log.Log."""

    def info(self, text: str) -> None: ...

    def warning(self, text: str) -> None: ...

    def error(self, text: str) -> None: ...


class Part(Protocol):
    """Keep what is made from a view as that is."""

    def hear(self, view: View, batch: Batch | None) -> None:
        """Take in what the view has taken in: one commit; None: all of it anew."""


class Registry:
    """A registry's core, with what is made from its view. All methods but ``backup`` are for one thread.

    ``now``: seconds since the epoch; ``passed``: seconds that no change of the clock touches; ``keys``: where those of authorities lie;
    ``token``: makes the name of a list that is read in parts, which nobody can guess. ``name``: under which it leads.
    """

    def __init__(
        self,
        store: Store,
        version: str,
        log: Log,
        limits: Limits,
        now: Callable[[], float] = time.time,
        passed: Callable[[], float] = time.monotonic,
        keys: str = "",
        token: Callable[[], str] = lambda: secrets.token_hex(16),
        name: str = "",
    ) -> None:
        self.store, self.log, self._passed = store, log, passed
        self._parts: tuple[Part, ...] = ()
        self.local = Local(store, now, name, self._heard, recent.BEFORE, passed)
        view = self.local.view
        self.index, self.states, self.streams = Index(view), States(view), Streams(view, limits.streams)
        self._parts = (self.index, self.states, self.streams)
        listings = Listings(passed, token)
        self.issuer = Issuer(self.local, keys)
        self._written, self._renewals, self._shut_out = Written(passed), Renewals(passed), ShutOut()
        self._came_over: dict[str, Credential] = {}  # by key: who has come by his latest certificate, which is to be written
        self.reader = Reader(lambda: self.local.view, now, self.index, self.states, store, listings, version)
        self.misplaced = 0  #: reports for another node
        self.other_authorities: Callable[[], None] = lambda: None  #: called when other ones count than before
        self._leader = 0  #: the lease
        self._leads_until = 0.0  # by ``passed``: the lease ends then, unless it is kept
        self._lives: dict[str, tuple[str, int, int]] = {}  # node -> incarnation, lease, and the revision at which it was written with that
        self._kept_at: dict[str, float] = {}  # node with a stream -> when that was last kept
        self.local.catch_up()  # what streams that an earlier service has begun are still to be told
        self._ticked = self._current = passed()
        if isinstance(store, SqliteStore):
            store.renew()  # nobody could be heard while all of it was read
        else:
            self.local.leader.wait(ALIVE)  # an etcd has ended leases that no service was there to keep

    @property
    def leads(self) -> bool:
        """Tell whether this service leads, as far as it knows: not when nobody could keep its lease for as long as that lasts."""
        return self._leader != 0 and self._passed() < self._leads_until

    def _heard(self, batch: Batch | None) -> None:
        for part in self._parts:
            part.hear(self.local.view, batch)
        changed = {keys.kind(change.key) for change in batch.changes} if self._parts and batch is not None else set()
        if "authorities" in changed:
            self.other_authorities()  # before any certificate of a new one is given out
        if not changed.isdisjoint(LETTING_IN):
            self.sift()

    def add(self, part: Part) -> None:
        """Let one more hear what the view takes in; it was made of the view as it is."""
        self._parts = (*self._parts, part)

    def answer(self, call: Call, who: Identity, one: Credential | None = None, how: Callable[[Ask], Response] | None = None) -> Response:
        """Answer a request that changes something. Raises Refused, Invalid; Unavailable without the store.

        ``one``: the certificate of who asks, which is to count when the request is done; ``how``: asks for what else belongs to it.

        A revocation that the store does not take, or does not answer, holds on this service all the same: who fills a store must not stay
        in by that.
        """
        kept = call.action != "report" and not call.dry_run
        self._written.check(who, kept)
        if renews := call.action == "certificate.renew" and not call.dry_run:
            self._renewals.check(who)
        if call.action == "authority.retire":
            with contextlib.suppress(Unavailable, HostRefused):
                self.note()
        before = self.local.written
        admit = anybody if one is None else partial(self.admit, one)
        ask = partial(self.local.answer, who=who, admit=admit)
        try:
            if how is None:
                response = ask(call)
            else:
                admit()  # before anything else of it is looked at
                response = how(ask)
        except (Unavailable, HostRefused) as error:
            if not self._held(call, who):
                raise
            raise Refused("unavailable", f"{error}; nothing of it is written: {MEANWHILE}") from None
        finally:
            wrote = self.local.written - before
            self._written.charge(who, wrote, kept)
            if renews and wrote:
                self._renewals.count(who)
        if response.status == 503:
            if self._held(call, who):
                return response._replace(body={**response.body, "detail": f"{response.body['detail']}; {MEANWHILE}"})
        elif self._shut_out.by(call) and not call.dry_run and (response.status < 300 or self._against_the_rules(call, who)):
            self._shut_out.answered(call)
        return response

    def _against_the_rules(self, call: Call, who: Identity) -> bool:
        """Tell whether a request to revoke is refused for what it asks, to somebody who may.

        That his own certificate counts no more, that he asked too late, or that he had read something else says nothing of whom it revokes.
        """
        try:
            self.local.core.planned(call._replace(match=ANY), who)
        except (Refused, Invalid):
            return who.role in OPERATOR
        return False

    def _held(self, call: Call, who: Identity) -> bool:
        """Shut out whom a request revokes that the store has not taken; tell whether it does.

        What the rules refuse, by what was known last, shuts nobody out.
        """
        if call.dry_run or call.action not in REVOKING:
            return False
        try:
            held = self._shut_out.hold(call, self.local.core.planned(call, who))
        except (Refused, Invalid):
            return False
        if held:
            self.sift()
        return held

    def catch_up(self) -> float:
        """Let the view take in what has been committed, by whomever; give for how many seconds it could not: what is shown is as old."""
        try:
            self.local.catch_up()
        except Damaged:
            raise
        except (Unavailable, HostRefused):  # an etcd that lets nobody in for now, too
            return self._passed() - self._current
        self._current = self._passed()
        return 0.0

    def look(self, name: str, uuid: str, wanted: dict[str, Any], who: Identity) -> tuple[Shown, float]:
        """Give what an endpoint that only looks shows to ``who``, and for how many seconds nobody knows whether it is so.

        Raises Refused, Unavailable.
        """
        age = self.catch_up()
        self.reader.whose = who.role, who.name or who.origin
        if name == "status":
            return self.reader.status(self.leads, self.streams.count, math.ceil(self.local.leader.held)), age
        if name in ("abilities", "settings"):
            return getattr(self.reader, name)(), age
        return getattr(self.reader, name)(uuid or wanted), age

    # -- certificates

    def admit(self, one: Credential) -> None:
        """Raise Refused where a certificate does not count, or no more."""
        admitted(self.local.view, one, self.local.core.now())
        self._shut_out.admit(one)

    def recognise(self, one: Credential, certificate: bytes) -> None:
        """Raise Refused where a certificate (DER) counts no more, or is not signed by the key of the authority that it names.

        The handshake takes whatever chain ends at one that counts: an authority whose key somebody else has may have signed another one
        under the name of its successor, and what that has signed would count on after it is retired.
        """
        self.admit(one)
        if not self.issuer.has_signed(one.authority, certificate):
            raise refused("foreign", f"the certificate of {one.role} {one.name} is not signed by the authority that it names: {JOIN}")
        if came_over(self.local.view, one):
            self._came_over[keys.certificate(one.role, one.name)] = one

    def note(self) -> None:
        """Write who has come by his latest certificate, of another authority than the one before. Raises Unavailable.

        An authority is retired by that. Where somebody else has changed a holder meanwhile it is noted when he comes again.
        """
        view, found = self.local.view, list(self._came_over)[:AT_ONCE]
        over = [key for key in found if came_over(view, self._came_over[key])]  # he may have been given another one since
        if over:
            tests = tuple(Expect(key, view.at(key)) for key in over)
            with contextlib.suppress(Conflict, Unknown):
                self.store.commit(tests, tuple(Put(key, dump(view.get(key)._replace(before=""))) for key in over))
            self.local.catch_up()
        for key in found:
            del self._came_over[key]

    def sift(self) -> None:
        """Cut the streams of those whose certificates count no more."""
        for channel in self.streams.all():
            try:
                if channel.credential is not None:
                    self.admit(channel.credential)
            except Refused as error:
                self.streams.revoked += 1
                self.log.warning(f"the stream of node {channel.node} is ended: {error.detail}")
                self.streams.close(channel, error.detail)

    # -- nodes

    def watch(
        self,
        who: Identity,
        wanted: dict[str, Any],
        wake: Callable[[], None],
        credential: Credential | None = None,
        silent: Callable[[], bool] = lambda: False,
    ) -> Channel:
        """Begin a stream, which lasts as long as the certificate, if it is by one. Raises Refused; Unavailable.

        ``silent``: tells whether the other side answers nothing that it is sent; a node is not alive by such a stream.
        """
        if credential is not None:
            self.admit(credential)
        node, incarnation = wanted["node"], wanted.get("incarnation", "")
        if who.role == "node":
            self._itself(who, node)
            if not incarnation:
                raise Refused("invalid", "a node's stream is its sign of life: it names its agent's incarnation", field="incarnation")
        elif incarnation:
            raise Refused("forbidden", "a sign of life is the node's alone", field="incarnation", master=f"node:{node}")
        self.local.catch_up()  # another service may have told it more
        if self.local.view.node(node) is None:
            raise Refused("missing", f"there is no node {node}")
        channel = Channel(node, incarnation, wake, credential, silent, bool(wanted.get("underlay")))
        if incarnation:
            self._sign_on(who, incarnation)
        self.streams.open(self.local.view, channel, wanted.get("from", ""))
        return channel

    def heartbeat(self, who: Identity, node: str, body: Any) -> float:
        """Take a sign of life; give for how many seconds it counts. Raises Refused, Invalid; Unavailable."""
        self._itself(who, node)
        self._sign_on(who, read(Heartbeat, body).incarnation)
        return ALIVE

    def _itself(self, who: Identity, node: str) -> None:
        if who.role != "node" or who.name != node:
            raise another(node, "speaks for")

    def _sign_on(self, who: Identity, incarnation: str) -> None:
        lease, key = self._lease(who.name, incarnation), keys.alive(who.name)
        ours = lease and self._lives[who.name][2] == self.local.view.at(key)  # or it was at another service since, whose lease it has
        if not (ours and self.store.keep(lease)):
            lease = self.local.sign_on(who, incarnation, ALIVE)
            self._lives[who.name] = incarnation, lease, self.local.view.at(key)

    def _lease(self, node: str, incarnation: str) -> int:
        """Give the lease of a node that is alive by it; 0 where it has none."""
        before = self._lives.get(node)
        return before[1] if before is not None and before[0] == incarnation and self.local.view.alive(node) is not None else 0

    def misplace(self, node: str) -> None:
        """Count and refuse reports for another node."""
        self.misplaced += 1
        raise another(node, "reports for")

    # -- by time

    def tick(self) -> None:
        """Do what is due: leases that end, the leader's work. Raises Unavailable."""
        before, self._ticked = self._ticked, self._passed()
        if why := self.local.leader.look():
            what = "ended options and quarantines stay for an hour or so, and nothing old is forgotten for a day"
            self.log.warning(f"{why}: {what}")
        if self._ticked - before > HELD_UP:  # by a disk, or by requests: thousands of nodes would be gone, and come back one by one
            self.log.warning(f"this service was held up for {self._ticked - before:.0f} s: nobody is taken for gone by that")
            if isinstance(self.store, SqliteStore):
                self.store.renew()
            else:
                self.local.leader.wait(ALIVE)
        if isinstance(self.store, SqliteStore):
            self.store.tick()
        asked = self._passed()  # before: the lease lasts from some moment behind
        if self._leader and not (self.store.keep(self._leader) and self.local.leader.is_elected(self.store.get(keys.LEADER))):
            self.log.warning("another service leads now, or this one was held up")
            self._leader = 0
        if not self._leader and self.store.get(keys.LEADER) is None:
            try:
                self._leader = self.local.run(self.local.leader.elected(LEADING))
            except Unavailable:  # one that is full gives no lease, and has room again only when it forgets
                self.local.catch_up()
                self.local.run(self.local.leader.forget())
                raise
        if self._leader:
            self._leads_until = asked + LEADING
            self.local.work()
        else:
            self.local.catch_up()
        self.note()

    def keep(self, parts: int = 1, late: float = 0.0) -> None:
        """Let nodes with an open stream stay alive: those first that were kept longest ago. ``parts``: calls that it takes for all.

        ``late``: seconds after which one is kept at once, however many are: what has to wait its turn here may be its last chance.
        """
        nodes, now, kept_at = self.streams.nodes(), self._passed(), self._kept_at
        leases = {node: self._lease(node, incarnation) for node, incarnation in nodes.items()}
        held = sorted((node for node in nodes if leases[node]), key=lambda node: kept_at.get(node, float("-inf")))
        most = -(-len(held) // parts)
        turn = [node for place, node in enumerate(held) if place < most or now - kept_at.get(node, now) >= late]
        kept = self.store.keep_all([leases[node] for node in turn])
        self._kept_at = {node: now if leases[node] in kept else kept_at.get(node, now) for node in held}
        gone = [node for node in nodes if not leases[node]] + [node for node in turn if leases[node] not in kept]
        for node in gone:
            try:
                self._sign_on(Identity("node", node, ORIGIN), nodes[node])
            except Refused as error:
                self.log.warning(f"node {node}: {error}")
                for channel in self.streams.of(node):
                    self.streams.close(channel, error.detail)
            if self._passed() >= now + SIGNING:  # those that are alive would be gone meanwhile, and nobody would be answered
                break

    def beat(self) -> None:
        """Keep nodes with an open stream alive, and give all streams a sign of life."""
        self.keep()
        self.streams.beat(self.local.view)

    # -- the whole

    def backup(self) -> BinaryIO:
        """Give a copy of the store, a file without a name: whatever happens, nothing of it stays. Raises Refused, Unavailable, HostRefused.

        It is made beside the registry's file; where an etcd keeps the registry, beside the folder of the authorities' keys.

        For any thread: requests are answered meanwhile.
        """
        store = self.store
        copy: Callable[[str], None]
        if isinstance(store, EtcdStore) and self.issuer.keys:
            beside, copy = self.issuer.keys, partial(filed, store)
        elif isinstance(store, SqliteStore) and store.path != ":memory:":
            beside, copy = store.path, store.backup
        else:
            raise Refused("missing", "this registry's store has a backup of its own kind")
        try:
            with tempfile.TemporaryDirectory(prefix=BACKUP, dir=os.path.dirname(os.path.abspath(beside))) as folder:
                copy(f"{folder}/registry.sqlite")
                return open(f"{folder}/registry.sqlite", "rb")
        except OSError as error:
            raise HostRefused(f"cannot make a copy beside {escaped(beside)}: {error.strerror}") from None

    def compact(self) -> Compacted:
        """Forget what was overwritten or removed up to now; give its sizes. Raises Refused, Unavailable."""
        self.local.catch_up()
        view = self.local.view
        if not isinstance(self.store, (SqliteStore, EtcdStore)):
            raise Refused("missing", "this registry's store is compacted by its own means")
        self.store.compact(view.revision)
        return Compacted(*self.store.shrink(), f"{view.epoch}:{view.revision}")

    def close(self) -> None:
        """Stop leading, end the streams, close the store."""
        self.streams.ended = True
        for channel in self.streams.all():
            channel.end("the service stops")
            channel.wake()
            self.streams.close(channel)
        try:
            if self._leader:
                self.store.revoke(self._leader)
        except (Unavailable, HostRefused) as error:
            self.log.warning(f"the leader's lease ends by itself: {error}")
        finally:
            self._leader = 0
            self.local.close()
            self.store.close()
