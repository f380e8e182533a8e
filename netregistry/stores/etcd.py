"""Keep a registry in an etcd of its own (3.4 and later): one member or several, which go on as long as most of them do.

Keys are as everywhere, below ``netcommon/registry/``. One more, ``netcommon/epoch``, says which epoch it is; every commit tests that it is
as it was when the store was opened, so a service that has not heard of a move or a restore changes nothing in what came after it. Its value
is tested beside its revision: an etcd that has begun anew counts from the beginning.

What etcd does otherwise than SQLite, and what becomes of it here (netregistry.stores.base says what holds for both):

* A commit has at most 128 operations there, and 1.5 MiB. What is more is refused before it is sent; nothing is ever split.
* It remembers nothing of how far it was compacted, but says so when it is asked for what lies before. What is older than the epoch counts
  as forgotten, too.
* A lease has whole seconds, two at least, and is ended up to a second late.
* A watch that is open may go on to tell what a compaction has taken, since it had it before.
"""

from __future__ import annotations

import contextlib
import math
import secrets
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, NoReturn, Self

from netregistry.stores import etcd_answers as answers
from netregistry.stores.base import (
    LONGEST_LEASE,
    Ahead,
    Changed,
    Compacted,
    Conflict,
    Damaged,
    Delete,
    Expect,
    Item,
    Listing,
    Put,
    Unavailable,
    Unknown,
    checked,
    checked_key,
    checked_prefix,
)
from netregistry.stores.etcd_answers import Garbled, Refusal, encoded
from netregistry.stores.etcd_client import Client, TooLarge
from netregistry.stores.etcd_facts import ALL, EPOCH, KEYS, Facts, Overtaken, begun, compare, facts, so_still
from netregistry.stores.etcd_stream import Cut, Stream
from netregistry.stores.etcd_watch import EtcdWatch
from runtime.errors import HostRefused, escaped

if TYPE_CHECKING:
    from collections.abc import Sequence

    from netregistry.stores.etcd_answers import Document, Range
    from netregistry.stores.etcd_place import Place

AT_ONCE = 1000  #: items that one request asks for
AT_A_TIME = 8  #: leases that are kept
FIRST = 1.5  #: seconds for the first line of a stream
FUTURE, COMPACTED = "etcdserver: mvcc: required revision is a future revision", "etcdserver: mvcc: required revision has been compacted"
NO_LEASE = "etcdserver: requested lease not found"
FORBIDDEN = "permission denied"


class EtcdStore:
    """A store in an etcd."""

    def __init__(self, place: Place) -> None:
        """Open what ``create`` has made. Raises HostRefused, Damaged, Unavailable."""
        client = Client(place)
        try:
            self._open(client, facts(client))
        except BaseException:
            client.close()
            raise

    def _open(self, client: Client, found: Facts | None, unfinished: bool = False) -> None:
        place = client.place
        if found is None and client.silent:  # those that answer may be of another etcd
            raise Unavailable(f"there is no registry in {place}, as far as it answers: {client.silent}")
        if found is None:
            raise HostRefused(f"there is no registry in {place}", "netcommon registry init makes one, netcommon registry move brings one")
        if found.moved and not unfinished:
            remedy = "start the service there; netcommon registry move --to brings it here again"
            raise HostRefused(f"the registry in {place} was moved to {escaped(found.moved)}", remedy)
        if not found.whole and not unfinished:  # whoever is at it may finish it
            remedy = "wait for it, or begin it again: netcommon registry move, or restore"
            raise Unavailable(f"a copy to {place} is not finished: {remedy}")
        self.client, self._facts = client, found
        self._watches: list[EtcdWatch] = []
        self._over = False  # it has become another registry
        self._why = "it was moved or restored, or its etcd has gone back"

    @classmethod
    def create(cls, place: Place, epoch: str) -> EtcdStore:
        """Make a store that holds nothing, and open it. Raises HostRefused where the etcd holds anything; Unavailable."""
        client = Client(place)
        try:
            facts(client)  # which also sees to it that all members are of one etcd
            begun(client, Facts(epoch, True, "", 0))
            made = cls.__new__(cls)
            made._open(client, facts(client))
        except BaseException:
            client.close()
            raise
        return made

    @classmethod
    def unfinished(cls, client: Client) -> EtcdStore:
        """Open what is being copied to. Raises HostRefused, Damaged, Unavailable."""
        made = cls.__new__(cls)
        made._open(client, facts(client), unfinished=True)
        return made

    @property
    def epoch(self) -> str:
        """Give the epoch that was there when it was opened."""
        return self._facts.epoch

    @property
    def facts(self) -> Facts:
        """Give what the etcd said of the registry when it was opened: each commit tests that this is so still."""
        return self._facts

    @property
    def over(self) -> bool:
        """Tell whether it was found to have become another registry: nothing of this one counts any more."""
        return self._over

    # -- reading

    def get(self, key: str) -> Item | None:
        """As netregistry.stores.base.Store says; so do all methods below."""
        name = KEYS + checked_key(key).encode()
        found = self._range({"key": encoded(name)}, name, name + b"\0", 1)
        return Item(key, found.pairs[0].value, found.pairs[0].revision) if found.pairs else None

    def list(self, prefix: str, after: str = "", limit: int = 0, revision: int = 0) -> Listing:
        low, high = checked_prefix(prefix).encode(), prefix.encode() + b"\x7f"
        if after and after >= prefix:
            low = checked_prefix(after).encode() + b"\0"
        items: list[Item] = []
        at_once = AT_ONCE
        while True:
            most = min(limit - len(items), at_once) if limit else at_once
            try:
                found = self._items(low, high, most, revision)
            except TooLarge:
                if most == 1:
                    raise HostRefused(f"{self.client.place} gives more for one key than any store holds") from None
                at_once = max(most // 4, 1)
                continue
            items += [_item(pair) for pair in found.pairs]
            revision = revision or found.revision
            if not found.more or (limit and len(items) >= limit):
                return Listing(tuple(items), revision, found.more)
            low = found.pairs[-1].key.removeprefix(KEYS) + b"\0"

    def _items(self, low: bytes, high: bytes, limit: int, revision: int) -> Range:
        first, last = KEYS + low, KEYS + high
        if first >= last:  # etcd takes a range that ends before it begins for a single key
            first = last
        body = {"key": encoded(first), "range_end": encoded(last + b"\0"), "limit": str(limit)}
        return self._range(body, first, last + b"\0", limit, revision)

    def _range(self, body: Document, low: bytes, high: bytes, limit: int, revision: int = 0) -> Range:
        """Read keys. Raises Ahead, Compacted for a revision that etcd, or the epoch, has not."""
        if self._over:
            raise self.another_epoch()
        if revision:
            if revision < self._facts.revision:
                raise Compacted(self._facts.revision)
            body = {**body, "revision": str(revision)}
        try:
            return self.client.ask("/v3/kv/range", body, partial(answers.pairs, low=low, high=high, limit=limit))
        except Refusal as refused:
            if revision and refused.message == FUTURE:
                raise Ahead(revision, self.newest()) from None
            if revision and refused.message == COMPACTED:
                raise Compacted(self._floor(revision + 1)) from None
            raise self._refused(refused) from None

    def newest(self) -> int:
        """Give the newest revision that a majority has. Raises Unavailable also where it is another epoch."""
        found = self._range({"key": encoded(EPOCH)}, EPOCH, EPOCH + b"\0", 1)
        there = found.pairs[0] if found.pairs else None
        if not self._facts.holds(there):
            if found.revision < self._facts.revision or (there is not None and there.revision < self._facts.revision):
                self._gone_back(self._facts.revision, found.revision)  # to before this epoch
            raise self.another_epoch()
        return found.revision

    # -- changing

    def commit(self, tests: Sequence[Expect], changes: Sequence[Put | Delete]) -> int:
        checked(tests, changes)
        if self._over:
            raise self.another_epoch()
        names = [EPOCH, *(KEYS + test.key.encode() for test in tests)]
        body = {
            "compare": [*so_still(self._facts), *(compare(name, test.revision) for name, test in zip(names[1:], tests, strict=True))],
            "success": [_operation(change) for change in changes],
            "failure": [{"request_range": {"key": encoded(name), "keys_only": name != EPOCH}} for name in names],
        }
        try:
            done = self.client.ask("/v3/kv/txn", body, partial(_done, changes=changes, names=names), again=False)
        except Refusal as refused:
            if refused.message == NO_LEASE:
                raise ValueError(f"{changes[0].key}: a lease of the commit is not there") from None
            raise self._refused(refused) from None
        except TooLarge:
            raise Unknown(f"{self.client.place}: it may be done or not: its answer is too large") from None
        if isinstance(done, int):
            return done
        epoch, *pairs = done
        if not self._facts.holds(epoch):
            self.newest()  # which says why
            raise self.another_epoch()
        for test, pair in zip(tests, pairs, strict=True):
            there = pair.revision if pair is not None else 0
            if there != test.revision:
                raise Conflict(test.key, there)
        raise Unavailable(f"{self.client.place} has done nothing, though all that was tested holds")

    def compact(self, revision: int) -> None:
        if revision < self._facts.revision:
            raise Compacted(self._facts.revision)
        try:
            self.client.ask("/v3/kv/compaction", {"revision": str(revision)}, answers.revision)
        except Refusal as refused:
            if refused.message == FUTURE:
                raise Ahead(revision, self.newest()) from None
            if refused.message != COMPACTED:
                raise self._refused(refused) from None
            if (floor := self._floor(revision)) > revision:
                raise Compacted(floor) from None

    def shrink(self) -> tuple[int, int]:
        """Give the bytes that the member asked has on disk, and those in use: `etcdctl defrag` frees the others. Raises Unavailable."""
        sizes = ("dbSize", "dbSizeInUse")
        before, after = self.client.ask("/v3/maintenance/status", {}, lambda found: [answers.number(found, size) for size in sizes])
        return before, after

    def _floor(self, least: int) -> int:
        """Give the revision of the latest compaction, ``least`` at least: only a watch of what is gone is told it. Raises Unavailable."""
        try:
            stream = self._begun({"key": encoded(EPOCH), "start_revision": "1"})
        except Compacted as compacted:
            return max(compacted.floor, least)
        try:
            while True:
                line = stream.line(FIRST)
                if line is None:
                    return least  # the member does not know of it yet
                result = self.client.own(answers.mapping(answers.document(line), "result"))
                if floor := answers.number(result, "compact_revision"):
                    return max(floor, least)
        except (Cut, Garbled) as error:
            raise Unavailable(f"{self.client.place}: {error}") from None
        finally:
            stream.close()

    # -- watching

    def watch(self, prefix: str, start: int) -> EtcdWatch:
        below = KEYS + checked_prefix(prefix).encode()

        def change(key: bytes, value: bytes | None) -> Changed | None:
            if key == EPOCH:
                raise self.another_epoch()
            return Changed(_key(key), value) if key.startswith(below) else None

        made = EtcdWatch(self._stream, self.newest, change, self.client.own, self.client.next_member, self._gone_back, start)
        self._watches = [*(watch for watch in self._watches if not watch.ended), made]
        return made

    def _stream(self, start: int, told: tuple[bytes, bytes] | None = None) -> Stream:
        """Begin a stream of all that was done from a revision on. Raises Compacted, Ahead, Unavailable.

        ``told``: a key and its value that the revision before has written: another one has been given that number where it has not.
        """
        if start <= self._facts.revision:
            raise Compacted(self._facts.revision)
        try:  # how etcd says that what is before has been forgotten, or has not been
            found = self._range({"key": encoded(EPOCH)}, EPOCH, EPOCH + b"\0", 1, start - 1)
            if not self._facts.holds(found.pairs[0] if found.pairs else None):
                self.newest()  # which says why
                raise self.another_epoch()
            if told is not None:
                key, value = told
                there = self._range({"key": encoded(key)}, key, key + b"\0", 1, start - 1)
                if [(pair.value, pair.revision) for pair in there.pairs] != [(value, start - 1)]:
                    self._gone_back(start - 1, there.revision)
        except Ahead as ahead:
            raise Ahead(start, ahead.newest) from None
        return self._begun({"key": ALL, "range_end": ALL, "start_revision": str(start), "progress_notify": True, "fragment": True})

    def _gone_back(self, known: int, newest: int) -> NoReturn:
        """End, for etcd has not, or not any more, what it has told up to revision ``known``; its newest is ``newest``.

        Revisions of this epoch mean two things from now on, and what came after is lost: so it begins another one, as a restore does. Of
        several services the first does so. Raises Unavailable; also where nothing can be written for now: then it is tried again.
        """
        found = facts(self.client)
        if found is not None and found.whole and not found.source.startswith(f"{self.epoch}:"):
            with contextlib.suppress(Overtaken):  # another service has done it
                begun(self.client, Facts(secrets.token_hex(4), True, f"{self.epoch}:{known}", 0, came=found.came), found)
        self._why = f"it has gone back from revision {known} to {newest} or before, and what came after is lost"
        raise self.another_epoch()

    def _begun(self, request: Document) -> Stream:
        """Begin a watch, and hear that it has begun. Raises Compacted, Unavailable, HostRefused."""
        why = ""
        for _ in range(2):
            try:
                stream = self.client.stream("/v3/watch", {"create_request": request})
            except Refusal as refused:
                raise self._refused(refused) from None
            try:
                self._heard(stream)
            except (Cut, Garbled) as error:
                stream.close()
                why = f"{stream.where}: {error}"
                self.client.forget_token()  # it may have ended, which etcd's versions say in one way or another, if at all
                if FORBIDDEN not in why:
                    self.client.next_member(stream.where)
            except BaseException:
                stream.close()
                raise
            else:
                return stream
        if FORBIDDEN in why:
            raise HostRefused(f"{self.client.place}: {escaped(self.client.place.user)} may not watch all keys: {why}")
        raise Unavailable(f"{self.client.place}: {why}")

    def _heard(self, stream: Stream) -> None:
        """Hear that a watch has begun. Etcd says so, with status 200, also of one that it ends at once. Raises Cut, Garbled, Compacted."""
        line = stream.line(FIRST)
        if line is None:
            raise Cut("it does not say that the watch has begun")
        message = answers.document(line)
        if "error" in message:
            raise Cut(answers.refusal(message).message)
        result = self.client.own(answers.mapping(message, "result"))
        if not answers.truth(result, "created"):
            raise Garbled("it does not say that the watch has begun")
        if answers.truth(result, "canceled"):
            if floor := answers.number(result, "compact_revision"):
                raise Compacted(floor)
            raise Cut(f"it has ended the watch: {escaped(result.get('cancel_reason', ''))}")

    # -- leases

    def grant(self, seconds: float) -> int:
        if not 0 < seconds <= LONGEST_LEASE:
            raise ValueError(f"a lease of {seconds} seconds: more than 0 and at most {LONGEST_LEASE}")
        try:
            return self.client.ask("/v3/lease/grant", {"TTL": str(math.ceil(seconds))}, lambda found: answers.number(found, "ID", 1))
        except Refusal as refused:
            raise self._refused(refused) from None

    def keep(self, lease: int) -> bool:
        def left(found: Document) -> int:
            if answers.number(found, "ID", 1) != lease:
                raise Garbled("it speaks of another lease")
            return answers.number(found, "TTL")

        try:
            return self.client.ask("/v3/lease/keepalive", {"ID": str(lease)}, left) > 0
        except Refusal as refused:
            if refused.message == NO_LEASE:
                return False
            raise self._refused(refused) from None

    def keep_all(self, leases: Sequence[int]) -> frozenset[int]:
        with ThreadPoolExecutor(AT_A_TIME, "keep") as pool:  # each waits for etcd, which answers many at once
            return frozenset(lease for lease, kept in zip(leases, pool.map(self.keep, leases), strict=True) if kept)

    def revoke(self, lease: int) -> None:
        try:
            self.client.ask("/v3/lease/revoke", {"ID": str(lease)}, answers.revision)
        except Refusal as refused:
            if refused.message != NO_LEASE:
                raise self._refused(refused) from None

    # -- the end

    def close(self) -> None:
        for watch in self._watches:
            watch.close()
        self.client.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def another_epoch(self) -> Unavailable:
        """Note that the etcd holds another registry than was opened, and give what says so."""
        self._over = True
        what = f"the registry in {self.client.place} is another than it was: {self._why}"
        return Unavailable(f"{what}; a service ends, and is started anew on what is there")

    def _refused(self, refused: Refusal) -> HostRefused:
        return HostRefused(f"{self.client.place} refuses it: {escaped(refused.message)}")


def _operation(change: Put | Delete) -> Document:
    key = encoded(KEYS + change.key.encode())
    if isinstance(change, Delete):
        return {"request_delete_range": {"key": key}}
    return {"request_put": {"key": key, "value": encoded(change.value)} | ({"lease": str(change.lease)} if change.lease else {})}


def _done(found: Document, changes: Sequence[Put | Delete], names: Sequence[bytes]) -> int | tuple[answers.Pair | None, ...]:
    """Read what became of a commit: its revision, or what there is of each key that was tested. Raises Garbled."""
    done, each = answers.truth(found, "succeeded"), answers.sequence(found, "responses")
    kinds = ["response_put" if isinstance(change, Put) else "response_delete_range" for change in changes]
    if [*map(list, each)] != [[kind] for kind in (kinds if done else ["response_range"] * len(names))]:
        raise Garbled("it does not say of each operation what became of it")
    if done:
        return answers.revision(found)
    ranges = (answers.pairs(answers.mapping(one, "response_range"), name, name + b"\0", 1) for one, name in zip(each, names, strict=True))
    return tuple(one.pairs[0] if one.pairs else None for one in ranges)


def _item(pair: answers.Pair) -> Item:
    return Item(_key(pair.key), pair.value, pair.revision)


def _key(name: bytes) -> str:
    """Give a key as all stores have it. Raises Damaged for one that none has."""
    try:
        return checked_key(name.removeprefix(KEYS).decode("ascii"))
    except ValueError:
        raise Damaged(f"etcd has a key that no registry has: {escaped(repr(name))}") from None
