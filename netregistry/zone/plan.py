"""Work out, without a server, which messages bring a zone from what a server has to what the registry wants.

Each message is one update (RFC 2136): the server does it as a whole or not at all, under the condition that the zone's mark is the one that
was read, or that the message before has written. A name's new address is in the same message as the end of its old one, so that no answer
has none of them, or both. Where there is more than one message holds, those whose names lead elsewhere go first, then new names, then those
that end; the mark says in between that the zone is on its way.
"""

from __future__ import annotations

from _socket import AF_INET6, inet_ntop, inet_pton
from ipaddress import IPv6Address, IPv6Network
from typing import NamedTuple

from netcommon.dns.names import is_label
from netregistry.zone.mark import Mark, name_of
from runtime.errors import HostRefused, escaped

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from netregistry.zone.unheard import Unheard

LONGEST = 253  #: characters of a name (RFC 1035, 2.3.4: 255 octets in a message)
LARGEST = 60_000  #: bytes of a message's changes; one over TCP has 65,535, of which its marks and signature take less than 5,000
RECORD = 10  #: bytes of a record beside its name and its data
ENDS = 2  #: bytes of a name beside its text, at most: its first length, and the root
ADDRESS = 16
ALIAS = "CNAME"


class Wanted(NamedTuple):
    """Say what a zone shall hold: at a generation of an epoch, by name in full, its address.

    ``owner``: which registry's it is, the same after a restore or a move. ``names`` is not changed after it was given; for one generation
    it is the same object. ``prefix``: in which all addresses are; a mark that has this for its owner is of an older version, and ours.
    ``former``: the zone was the registry's before, and may be somebody else's by now: only what leads into the prefix is ours there.
    ``unheard``: which names stay as they are at the server for now; None: none. ``before``: epochs that the registry had earlier.
    """

    zone: str
    owner: str
    epoch: str
    generation: int
    names: Mapping[str, str]
    ttl: int
    prefix: str = ""
    former: bool = False
    unheard: Unheard | None = None
    before: tuple[str, ...] = ()

    @property
    def about(self) -> Wanted:
        """Give it without names and their generation: what is refused of another one need not be of this one."""
        return self._replace(names={}, generation=0, unheard=None)

    @property
    def mark(self) -> Mark:
        return Mark(self.owner, self.epoch, self.generation)


class Entry(NamedTuple):
    """Say what a server has at a name: its address ("" for none or several) and time to live; ``others``: types that must not be there."""

    address: str
    ttl: int
    others: tuple[str, ...] = ()


class There(NamedTuple):
    """Say what a server has: the zone's mark, None for none; the entries of names two labels or more below it; where it is cut.

    ``strange``: records that stand where the mark would, and are none.
    """

    mark: Mark | None
    entries: Mapping[str, Entry]
    cuts: tuple[str, ...] = ()
    strange: str = ""


class Change(NamedTuple):
    """Give a name an address, or none for ""; ``types``: what is there, and goes in the same message."""

    name: str
    address: str
    types: tuple[str, ...] = ("AAAA",)

    @property
    def gone(self) -> tuple[str, ...]:
        """Give the types that go: an alias, too, which may have come since the zone was read.

        Beside one a server drops an address, and says nothing (RFC 2136, 3.4.2.2).
        """
        return (*self.types, ALIAS) if self.address and ALIAS not in self.types else self.types

    @property
    def size(self) -> int:
        """Give its bytes in a message, at most: each record with its whole name, which is shortened in the first 16 KiB alone.

        (RFC 1035, 4.1.4: what is further behind no pointer of 14 bits reaches.)
        """
        record = len(self.name) + ENDS + RECORD
        return len(self.gone) * record + (record + ADDRESS if self.address else 0)


class Message(NamedTuple):
    """Make one update: only where the zone's mark is ``before`` (None: where there is none), all ``changes``, and the mark ``after``."""

    before: Mark | None
    after: Mark
    changes: tuple[Change, ...]
    ttl: int


class Plan(NamedTuple):
    """Say what is to be sent, in this order; what cannot be published, and which records of others go, in one line each.

    ``held``: how many names stay otherwise than wanted.
    """

    messages: tuple[Message, ...]
    refused: tuple[str, ...] = ()
    others: tuple[str, ...] = ()
    held: int = 0


def planned(server: str, there: There, wanted: Wanted, known: bool) -> Plan:
    """Give what brings a server to what is wanted. ``known``: the zone there had a mark of this epoch before, in this process.

    As long as names stay as they are the mark says that the zone is on its way.

    Raises HostRefused where the zone is somebody else's, or further than the registry.
    """
    refused: list[str] = []
    mark = there.mark
    changes = _left(there, wanted, refused) if wanted.former else _changes(there, wanted, refused)
    if wanted.former and not changes and not _is_of(mark, wanted):
        return Plan((), tuple(refused))  # it is somebody else's by now, and has nothing of ours
    _ours(server, there, wanted, known)
    if mark is None and not wanted.former:
        _nobodys(server, there, wanted, changes)
    due = [each for each in changes if not _is_held(there, wanted, each)]
    held = len(changes) - len(due)
    end = wanted.mark.behind(mark)
    first = mark.part if mark is not None and mark._replace(part=0) == end else 0
    if not due and (mark == end or (held and first)):
        return Plan((), tuple(refused), held=held)
    parts = list(_parts(due)) or [()]
    messages, before = [], mark
    for number, part in enumerate(parts, 1):
        after = end if number == len(parts) and not held else end._replace(part=first + number)
        messages.append(Message(before, after, part, wanted.ttl))
        before = after
    return Plan(tuple(messages), tuple(refused), tuple(_others(due)), held)


def _is_held(there: There, wanted: Wanted, change: Change) -> bool:
    entry = there.entries.get(change.name)
    return wanted.unheard is not None and wanted.unheard.holds(change.name, entry.address if entry is not None else "", change.address)


def done(entries: dict[str, Entry], message: Message) -> None:
    """Take into ``entries`` what a message has changed."""
    for name, address, _types in message.changes:
        if address:
            entries[name] = Entry(address, message.ttl)
        else:
            entries.pop(name, None)


def _ours(server: str, there: There, wanted: Wanted, known: bool) -> None:
    """Raise HostRefused where a zone's mark says that it is not to be changed from here."""
    mark, zone = there.mark, wanted.zone
    where = f"zone {zone} of DNS server {server}"
    if there.strange:
        raise HostRefused(f"{where} has {there.strange} at {name_of(zone)}", "remove them there, or give the registry another zone")
    if mark is None:
        return
    if not _is_of(mark, wanted):
        raise HostRefused(
            f"{where} is published by another registry, {escaped(mark.owner)}; this one is {escaped(wanted.owner)}",
            f"give this one a zone of its own, or, if that one is no more, empty the zone, its mark {name_of(zone)} too",
        )
    if mark.epoch != wanted.epoch:
        # what was ours, of an epoch that we had before, and not taken from us since: the server has come back from a snapshot
        if known and (mark.over == wanted.epoch or mark.epoch not in wanted.before):
            raise HostRefused(
                f"{where} is published by another copy of this registry, of epoch {escaped(mark.epoch)}; this one has {wanted.epoch}",
                "end the service of the one that is not to count; netcommon registry status shows its epoch; if there is none, the server"
                " came back from a snapshot: systemctl restart netcommon-registry",
            )
    elif mark.generation > wanted.generation:
        raise HostRefused(
            f"{where} is at generation {mark.generation}, and this registry at {wanted.generation} of the same epoch",
            "another service that leads is ahead, and this one follows by itself; if there is none, the registry's file was put back"
            " by other means than netcommon registry restore: restore it by that",
        )


def _is_of(mark: Mark | None, wanted: Wanted) -> bool:
    return mark is not None and mark.owner in (wanted.owner, wanted.prefix)


def _nobodys(server: str, there: There, wanted: Wanted, changes: Sequence[Change]) -> None:
    """Raise HostRefused where a zone without a mark has names that would be changed, and that none has put there who has our prefix.

    A mark that somebody has removed by mistake is made again: nobody else gives names addresses of the underlay.
    """
    prefix = IPv6Network(wanted.prefix) if wanted.prefix else None
    touched = [(each.name, there.entries[each.name]) for each in changes if each.name in there.entries]
    foreign = [name for name, entry in touched if prefix is None or entry.others or not _within(entry.address, prefix)]
    if not foreign:
        return
    count, example = len(foreign), escaped(foreign[0])[1:-1]
    raise HostRefused(
        f"zone {wanted.zone} of DNS server {server} holds {count} names that no registry has put there, such as {example}",
        "the underlay's zone is to be one of its own: give it an empty one, or remove these names",
    )


def _within(address: str, prefix: IPv6Network) -> bool:
    return bool(address) and IPv6Address(address) in prefix


def _changes(there: There, wanted: Wanted, refused: list[str]) -> list[Change]:
    """Give what differs, what leads elsewhere first; say in ``refused`` what cannot be published."""
    moved, new, ended = list[Change](), list[Change](), list[Change]()
    ttl, entries = wanted.ttl, there.entries
    for name, address in wanted.names.items():
        entry = entries.get(name)
        if entry is not None and entry == (address, ttl, ()):
            continue
        why, canonical = _proper(name, address, wanted.zone, there.cuts)
        if why:
            refused.append(why)
        elif entry is None:
            new.append(Change(name, canonical))
        elif entry != (canonical, ttl, ()):
            moved.append(Change(name, canonical, ("AAAA", *entry.others)))
    for name, entry in entries.items():
        if name not in wanted.names and not _below(name, there.cuts):
            ended.append(Change(name, "", ("AAAA", *entry.others)))
    return moved + new + ended


def _left(there: There, wanted: Wanted, refused: list[str]) -> list[Change]:
    """Give what differs in a zone of before: nothing of others is touched, and nothing comes where no mark says that the zone is ours."""
    prefix = IPv6Network(wanted.prefix)
    ours = {name for name, entry in there.entries.items() if _within(entry.address, prefix)}
    still = _is_of(there.mark, wanted)
    made = (each for each in _changes(there, wanted, refused) if each.name in ours or (still and each.name not in there.entries))
    return [each._replace(types=("AAAA",)) for each in made]


def _others(changes: Sequence[Change]) -> Iterator[str]:
    """Say which records go that no registry has put there: those of other types, as far as they are known."""
    for each in changes:
        if len(each.types) > 1:
            values = " and ".join(each.types[1:])
            yield f"{values} records at {escaped(each.name)[1:-1]}"


def _proper(name: str, address: str, zone: str, cuts: Sequence[str]) -> tuple[str, str]:
    """Say in one line why a name is not published, "" for no reason; give its address in canonical form."""
    shown = f"the name {escaped(name)} is not published"
    labels = name.removesuffix(f".{zone}").split(".")
    if not name.endswith(f".{zone}") or len(labels) < 2:
        return f"{shown}: expected two labels or more below {zone}", ""
    if len(name) > LONGEST or not all(map(is_label, labels)):
        why = f"at most {LONGEST} characters, and labels of 1 to 63 small letters, digits and inner hyphens (RFC 1123)"
        return f"{shown}: it is no host name: expected {why}: rename the instance", ""
    if cut := _below(name, cuts):
        return f"{shown}: the zone is cut at {escaped(cut)}: remove the NS or DNAME records there", ""
    try:
        return "", inet_ntop(AF_INET6, inet_pton(AF_INET6, address))
    except (OSError, ValueError):
        return f"{shown}: its address {escaped(address)} is no IPv6 address", ""


def _below(name: str, cuts: Sequence[str]) -> str:
    """Give the cut at or above a name; "" for none."""
    return next((cut for cut in cuts if name == cut or name.endswith(f".{cut}")), "")


def _parts(changes: Sequence[Change]) -> Iterator[tuple[Change, ...]]:
    """Give changes in parts that go into one message each."""
    part, size = list[Change](), 0
    for change in changes:
        if part and size + change.size > LARGEST:
            yield tuple(part)
            part, size = [], 0
        part.append(change)
        size += change.size
    if part:
        yield tuple(part)
