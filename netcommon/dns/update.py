"""Brings the records of one name to what is wanted, and touches no other's.

A name of ours has a mark: one TXT record at _netcommon.NAME that says which cluster's which instance it belongs to. Each name is
changed by one update (RFC 2136), which the server carries out as a whole or not at all, under the condition that the mark is the one
that was read, or, for a name that bears none, that neither the name nor its mark is in use. So two writers cannot overwrite each other,
and an answer that was lost does no harm: what there is is read before anything is sent.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

import dns.rrset
import dns.update

from netcommon.dns.names import canonical, hostname, is_zone, mark_of, reverse, zone_of
from netcommon.dns.records import Policy, Sets, types_at
from netcommon.dns.server import Servers, absolute
from runtime.errors import HostRefused, NicInvalid, TryAgain, escaped

#: An update whose conditions no longer hold is thought over so often.
ATTEMPTS = 4

WORD = "netcommon"

#: By type, the time to live and the values.
TimedSets = Mapping[str, tuple[int, frozenset[str]]]


class Mark(NamedTuple):
    """Whose a name is."""

    cluster: str
    instance: str

    @property
    def strings(self) -> tuple[str, str, str]:
        """The TXT record's strings."""
        return WORD, f"cluster={self.cluster}", f"instance={self.instance}"

    @property
    def text(self) -> str:
        """The TXT record's strings in a zone file's spelling."""
        return " ".join(f'"{string}"' for string in self.strings)


def mark_in(records: Collection[Any]) -> Mark | None:
    """The mark that TXT records of one name are; None where they are something else."""
    if len(records) != 1:
        return None
    strings = [part.decode("ascii", "replace") for one in records for part in one.strings]
    if len(strings) != 3:
        return None
    mark = Mark(strings[1].removeprefix("cluster="), strings[2].removeprefix("instance="))
    # Only what we would write ourselves is our mark: the condition of an update names it word for word. Names need no escapes.
    return mark if is_zone(mark.cluster) and _is_hostname(mark.instance) and strings == list(mark.strings) else None


def _is_hostname(text: str) -> bool:
    try:
        return hostname(text, "mark") == text
    except NicInvalid:
        return False


class Taken(HostRefused):
    """A name is somebody else's: of another instance or cluster, or in use without a mark."""


class Found(NamedTuple):
    """What there is at a name: its mark, if any, and, where it is read, the time to live and the values of each type of ours."""

    mark: Mark | None
    sets: TimedSets


class Zones:
    """The zones as the servers have them; what was read is kept until it is changed."""

    def __init__(self, servers: Servers, policy: Policy, dry_run: bool = False) -> None:
        """``dry_run``: nothing is sent, and what would be is said."""
        self.servers, self.policy, self._dry_run = servers, policy, dry_run
        self._found: dict[str, Found] = {}

    def find(self, name: str, ours: Collection[Mark]) -> Found:
        """The mark of ``name``, and its records if the mark is one of ``ours``. Raises as Servers.query."""
        if name not in self._found:
            mark = self._mark(name)
            self._found[name] = Found(mark, self._sets(name) if mark in ours else {})
        return self._found[name]

    def pointed_at(self, name: str, ours: Collection[Mark]) -> set[str]:
        """The reverse names of the addresses that ``name`` has, if it is ours: what else may have been made for it."""
        sets = self.find(name, ours).sets
        return {reverse(address) for kind in ("A", "AAAA") if kind in sets for address in sets[kind][1]}

    def settle(self, name: str, wanted: Sets, owner: Mark, former: Collection[Mark]) -> str:
        """Makes the records of ``name`` those ``wanted``, none for {}; says what was done, "" for nothing.

        ``owner`` is the instance's mark, ``former`` those of names it had before. Raises HostRefused where the name is another's and
        something else is wanted there; else as Servers.update.
        """
        ours = {owner, *former}
        for _ in range(ATTEMPTS):
            found = self.find(name, ours)
            if found.mark is not None and found.mark in ours:
                done = self._change(name, found.mark, found.sets, wanted, owner)
            elif not wanted:
                return ""
            elif found.mark is not None:
                raise Taken(f"{name} belongs to instance {found.mark.instance} of cluster {found.mark.cluster}")
            else:
                done = self._claim(name, wanted, owner)
            if done is not None:
                return done
            del self._found[name]
            if found.mark is None and self.find(name, ours).mark is None:
                return self._foreign(name, wanted)
            if found.mark is not None and self._query(name, "CNAME") is not None:
                raise Taken(f"{name} should be {told(wanted)}, but somebody has made it a CNAME")
        raise TryAgain(f"{name} is being changed by others all the time")

    def _change(self, name: str, mark: Mark, sets: TimedSets, wanted: Sets, owner: Mark) -> str | None:
        ttl = self.policy.ttl
        if wanted and mark == owner and sets == {kind: (ttl, values) for kind, values in wanted.items()}:
            return ""
        message = self._message(name)
        message.present(absolute(mark_of(name)), "TXT", mark.text)
        if wanted:
            # Beside a CNAME the server would drop our records without a word (RFC 2136, 3.4.2.2).
            message.absent(absolute(name), "CNAME")
        for kind in types_at(name):
            message.delete(absolute(name), kind)
        message.delete(absolute(mark_of(name)), "TXT")
        return self._send(name, message, wanted, owner)

    def _claim(self, name: str, wanted: Sets, owner: Mark) -> str | None:
        if self._dry_run and (self._sets(name) or self._query(name, "CNAME") is not None):
            return self._foreign(name, wanted)  # what of other types is there only the server's own look would tell
        message = self._message(name)
        message.absent(absolute(name))
        message.absent(absolute(mark_of(name)))
        return self._send(name, message, wanted, owner)

    def _message(self, name: str) -> dns.update.UpdateMessage:
        return dns.update.UpdateMessage(absolute(zone_of(name, self.policy.zones)))

    def _send(self, name: str, message: dns.update.UpdateMessage, wanted: Sets, owner: Mark) -> str | None:
        """What was done; None where the conditions did not hold."""
        for kind, values in sorted(wanted.items()):
            for value in sorted(values):
                message.add(absolute(name), self.policy.ttl, kind, value + "." if kind == "PTR" else value)
        if wanted:
            message.add(absolute(mark_of(name)), self.policy.ttl, "TXT", owner.text)
        if self._dry_run:
            return f"{name} would be {told(wanted)}" if wanted else f"{name} would be removed"
        if not self.servers.update(zone_of(name, self.policy.zones), message):
            return None
        self._found.pop(name, None)
        return f"{name} is now {told(wanted)}" if wanted else f"{name} removed"

    def _foreign(self, name: str, wanted: Sets) -> str:
        """For a name that is in use and not ours: "" where it is as wanted all the same, and stays as it is. Raises HostRefused."""
        sets = {kind: values for kind, (_ttl, values) in self._sets(name).items()}
        if sets == wanted:
            return ""
        there = told(sets) if sets else "records of other types"
        raise Taken(f"{name} should be {told(wanted)}, but is in use and bears no mark of ours: {there}")

    def _mark(self, name: str) -> Mark | None:
        return mark_in(list(self._query(mark_of(name), "TXT") or ()))

    def _sets(self, name: str) -> dict[str, tuple[int, frozenset[str]]]:
        found = {}
        for kind in types_at(name):
            if (rrset := self._query(name, kind)) is not None:
                found[kind] = (rrset.ttl, frozenset(_value(kind, rdata.to_text()) for rdata in rrset))
        return found

    def _query(self, name: str, kind: str) -> dns.rrset.RRset | None:
        return self.servers.query(zone_of(name, self.policy.zones), name, kind)


def _value(kind: str, text: str) -> str:
    return text.lower().rstrip(".") if kind == "PTR" else canonical(text)


def told(sets: Sets) -> str:
    """Records in words: "A 192.0.2.1, AAAA 2001:db8::1"."""
    return ", ".join(f"{kind} {escaped(value)[1:-1]}" for kind, values in sorted(sets.items()) for value in sorted(values))
