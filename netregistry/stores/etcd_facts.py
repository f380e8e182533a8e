"""Say in an etcd which registry it holds: one key, beside those of the registry, that every commit tests.

It names the epoch, whether the registry is whole, and where it was moved to. Whoever opens a registry reads it, at all members at first, so
that a member of another etcd is passed over wherever it is named.
"""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from netregistry.stores import etcd_answers as answers
from netregistry.stores.base import Damaged
from netregistry.stores.etcd_answers import Refusal, encoded
from runtime.errors import HostRefused, escaped

if TYPE_CHECKING:
    from netregistry.stores.etcd_answers import Document
    from netregistry.stores.etcd_client import Client
    from netregistry.stores.etcd_place import Endpoint, Place

KEYS = b"netcommon/registry/"
EPOCH = b"netcommon/epoch"
ALL = "AA=="  #: from the key "\0" on, as the end: all keys
SCHEMA = 1


class Facts(NamedTuple):
    """Hold what an etcd says of the registry in it. ``whole``: it is no copy that was not finished; ``source``: what it was copied from.

    ``moved``: where it was moved to, in which case ``epoch`` is the one that it has there, and it is not whole for any version.
    ``arrived``: it is there, and the etcd has been told so: what it holds itself is of then, and counts no more.
    ``came``: the file that it was moved from, and the machine of that; "" where it was made in the etcd, or by a version that did not say.
    """

    epoch: str
    whole: bool
    source: str
    revision: int  #: at which that was written: the first one of the epoch
    value: bytes = b""  #: as it is written there
    moved: str = ""
    arrived: bool = False
    came: str = ""

    @property
    def says(self) -> tuple[object, ...]:
        """Give all that is said, but not when and how it is written."""
        return self.epoch, self.whole, self.source, self.moved, self.arrived, self.came

    def holds(self, pair: answers.Pair | None) -> bool:
        """Tell whether this is still what the etcd says."""
        return pair is not None and (pair.revision, pair.value) == (self.revision, self.value)


def facts(client: Client) -> Facts | None:
    """Read what an etcd says of the registry in it; None where it says nothing. Raises Damaged, Unavailable, HostRefused.

    The first time all members are asked, so that one of another etcd is passed over wherever it is named. Raises HostRefused also where
    members of two etcds are named and nothing tells which is meant, or the etcds take themselves for one.
    """
    body, read = {"key": encoded(EPOCH)}, partial(_facts, client.place)
    try:
        if client.settled:
            return client.ask("/v3/kv/range", body, read)
        said, silent = client.survey("/v3/kv/range", body, read)
        if _apart(said):  # or it was written when some had been asked
            said, silent = client.survey("/v3/kv/range", body, read)
        if _apart(said):
            raise _several(client)
        holding = {cluster: found for cluster, found in said.values() if found is not None}
        clusters = set(holding) or {cluster for cluster, _found in said.values()}
        if len(clusters) > 1:
            each = "; ".join(f"{endpoint}: {_in_words(cluster, found)}" for endpoint, (cluster, found) in said.items())
            raise HostRefused(f"{client.place} are members of more than one etcd: {each}", "name the members of one etcd")
        for endpoint, (cluster, _found) in said.items():
            if cluster in clusters:
                client.settle(cluster, endpoint)
                break
        found = client.ask("/v3/kv/range", body, read)
    except Refusal as refused:
        raise HostRefused(f"{client.place} refuses it: {escaped(refused.message)}") from None
    if found is None and silent:
        client.silent = "; ".join(f"{endpoint}: {why}" for endpoint, why in silent.items())
    return found


def _apart(said: dict[Endpoint, tuple[int, Facts | None]]) -> bool:
    """Tell whether members which say that they are of one cluster hold different things: what each says, the majority of its etcd has."""
    return len(set(said.values())) > len({cluster for cluster, _found in said.values()})


def _several(client: Client) -> HostRefused:
    remedy = "name the members of one etcd; etcds that were started alone with the same settings have the same numbers"
    return HostRefused(f"{client.place} are etcds that do not hold the same, though each says that it is of the same cluster", remedy)


def _in_words(cluster: int, found: Facts | None) -> str:
    return f"cluster {cluster:x}, {f'a registry of epoch {escaped(found.epoch)}' if found is not None else 'no registry'}"


def _facts(place: Place, document: Document) -> Facts | None:
    """Read what is said at the key EPOCH. Raises Garbled, Damaged."""
    found = answers.pairs(document, low=EPOCH, high=EPOCH + b"\0", limit=1)
    if not found.pairs:
        return None
    pair = found.pairs[0]
    try:
        said = json.loads(pair.value)
        schema = said["schema"]
        made = Facts(said["epoch"], said["whole"], said["source"], pair.revision, pair.value, said.get("moved", ""))
        made = made._replace(arrived=said.get("arrived", False), came=said.get("came", ""))
        if [type(each) for each in (schema, *made)] != [int, str, bool, str, int, bytes, str, bool, str]:
            raise ValueError
    except (ValueError, KeyError, TypeError, RecursionError):
        raise Damaged(f"{place}: what is said of the registry cannot be read: {escaped(repr(pair.value))}") from None
    if schema > SCHEMA:
        raise Damaged(f"{place} was written by a newer version: its schema is {schema}, this one knows {SCHEMA}")
    return made


class Overtaken(HostRefused):
    """Say that an etcd was not as it was before, and that what was to be written there is not."""


def begun(client: Client, said: Facts, before: Facts | None = None, clear: bool = False) -> None:
    """Write what an etcd says of the registry in it, if it is as it was: ``before``; None: it holds nothing at all.

    ``clear``: remove all keys of the registry. Raises Overtaken where it is not, HostRefused where it holds something, or where not all
    members that answer hold it then; and TryAgain where no answer came: look again.
    """
    document: Document = {"schema": SCHEMA, "epoch": said.epoch, "whole": said.whole, "source": said.source}
    if said.moved:
        document["moved"] = said.moved
    if said.arrived:
        document["arrived"] = True
    if said.came:
        document["came"] = said.came
    put = {"request_put": {"key": encoded(EPOCH), "value": encoded(_written(document))}}
    nothing = {"target": "MOD", "key": ALL, "range_end": ALL, "mod_revision": "0"}
    body = {
        "compare": so_still(before) if before is not None else [nothing],
        "success": [*([{"request_delete_range": {"key": encoded(KEYS), "range_end": encoded(KEYS + b"\xff")}}] if clear else []), put],
    }
    try:
        done = client.ask("/v3/kv/txn", body, lambda found: answers.truth(found, "succeeded"), again=False)
    except Refusal as refused:
        raise HostRefused(f"{client.place} refuses it: {escaped(refused.message)}") from None
    if not done and before is not None:
        raise Overtaken(f"somebody else has begun with {client.place}, too")
    if not done:
        remedy = "a registry has an etcd of its own; one that was made there is left alone"
        raise HostRefused(f"{client.place} holds something already", remedy)
    if before is None:
        _held_by_all(client, document)


def _held_by_all(client: Client, document: Document) -> None:
    """See to it that what was just written is held by all members that answer; what was written is taken back where it is not.

    Three etcds that Debian's package has started have one number for their clusters, and one for their members
    (etcd's server/etcdserver/api/membership, computed from the settings). Raises HostRefused.
    """
    body = {"key": encoded(EPOCH)}
    said, _silent = client.survey("/v3/kv/range", body, partial(_facts, client.place))
    if _apart(said):
        written = {"target": "VALUE", "result": "EQUAL", "key": encoded(EPOCH), "value": encoded(_written(document))}
        client.ask("/v3/kv/txn", {"compare": [written], "success": [{"request_delete_range": body}]}, lambda _found: None)
        raise _several(client)


def _written(document: Document) -> bytes:
    return json.dumps(document).encode("ascii")


def so_still(said: Facts) -> list[Document]:
    """Give the tests that an etcd says still what it did."""
    return [
        compare(EPOCH, said.revision),
        {"target": "VALUE", "result": "EQUAL", "key": encoded(EPOCH), "value": encoded(said.value)},
    ]


def compare(name: bytes, revision: int) -> Document:
    """Give the test that a key of etcd's was last written at a revision; 0: it is not there."""
    return {"target": "MOD", "result": "EQUAL", "key": encoded(name), "mod_revision": str(revision)}
