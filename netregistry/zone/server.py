"""Speak with one DNS server: zones are read by transfer (AXFR, RFC 5936), updates sent (RFC 2136), all signed (TSIG), by TCP.

TCP alone: an update of a hundred names does not fit into a datagram, and one that is lost on its way would have to be sent twice.
"""

from __future__ import annotations

from _socket import AF_INET6, inet_pton
from typing import TYPE_CHECKING, Any

from netcommon.dns import key, library
from netregistry.zone import mark
from netregistry.zone.plan import Entry, There
from netregistry.zone.publisher import Publisher

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import dns.update
    import dns.zone

    from netcommon.dns.server import Servers
    from netregistry.zone.plan import Message

SETTING = "registry.zone_key_file"
LONGEST = 120.0  #: seconds for one server to be brought whole
ADDRESSES = ("AAAA", "A", "CNAME")  #: types that stand at no name of the zone but as the registry has it
CUTS = ("NS", "DNAME")
INSTEAD = ("CNAME", "NS")  #: types beside which a server takes no mark, and says nothing (RFC 2136, 3.4.2.2)


class DnsServer:
    """Speak with a server ("ADDRESS:PORT") by the key in a file, which is read for each conversation: a new one counts at once.

    ``timeout``: seconds for each answer; ``now``: seconds by a steady clock. Raises SettingsInvalid, and HostRefused without dnspython.
    """

    def __init__(self, server: str, key_file: str, timeout: float, now: Callable[[], float]) -> None:
        secret = key.read(key_file, SETTING)
        library.find()
        from netcommon.dns.server import Servers  # it needs dnspython

        self._servers: Servers = Servers([server], secret, timeout, now() + LONGEST, now)

    def close(self) -> None:
        """Let the connection go."""
        self._servers.close()

    def read(self, zone: str) -> There:
        """Read a zone whole, and signed to its end. Raises NetcommonError, in one line with the remedy."""
        return there(self._servers.whole(zone), zone)

    def marked(self, zone: str) -> mark.Mark | None:
        """Ask for a zone's mark alone; None for none, or none that is alone. Raises NetcommonError, as ``read``."""
        found = list(self._servers.query(zone, mark.name_of(zone), "TXT") or ())
        return mark.read(_text(found[0])) if len(found) == 1 else None

    def send(self, zone: str, message: Message) -> bool:
        """Send an update; False: the zone's mark was another one, and nothing was done. Raises NetcommonError, as ``read``."""
        return self._servers.update(zone, update(zone, message))


def there(whole: dns.zone.Zone, zone: str) -> There:
    """Give what a plan needs of a zone that was read."""
    import dns.rdatatype as types

    place, least = mark.name_of(zone), zone.count(".") + 4  # labels of a name two below the zone, with the root's
    kinds = {types.from_text(kind): kind for kind in (*ADDRESSES, *CUTS)}
    found: dict[str, dict[str, tuple[int, tuple[str, ...]]]] = {}
    cuts, texts, strange = list[str](), list[tuple[str, ...]](), ""
    for owner, records in whole.iterate_rdatasets():
        kind = kinds.get(records.rdtype)
        if kind is None and records.rdtype != types.TXT:
            continue
        name = owner.to_text(omit_final_dot=True).lower()
        if kind is None:
            texts += [_text(each) for each in records] if name == place else []
        elif name == place and kind in INSTEAD:
            strange = f"{kind} records"
        elif kind in CUTS:
            cuts += [name] if name != zone or kind == "DNAME" else []
        elif len(owner.labels) >= least:
            found.setdefault(name, {})[kind] = records.ttl, tuple(each.to_text() for each in records)
    marks = [mark.read(each) for each in texts]
    if len(marks) > 1 or None in marks:
        strange = "TXT records of others"
    return There(marks[0] if marks and not strange else None, {name: _entry(sets) for name, sets in found.items()}, tuple(cuts), strange)


def _text(record: Any) -> tuple[str, ...]:
    """Give the strings of a TXT record."""
    return tuple(part.decode("latin-1") for part in record.strings)


def _entry(sets: dict[str, tuple[int, tuple[str, ...]]]) -> Entry:
    ttl, values = sets.get("AAAA", (0, ()))
    return Entry(values[0] if len(values) == 1 else "", ttl, tuple(kind for kind in ADDRESSES[1:] if kind in sets))


def update(zone: str, message: Message) -> dns.update.UpdateMessage:
    """Give an update as dnspython has it. Records are put into it by hand: to read each from text takes thrice as long."""
    from dns import rdataclass
    from dns.name import Name
    from dns.rdata import GenericRdata
    from dns.rdatatype import AAAA, NONE, from_text
    from dns.rrset import RRset
    from dns.update import UpdateMessage

    from netcommon.dns.server import absolute

    origin, place = absolute(zone), absolute(mark.name_of(zone))
    made, types = UpdateMessage(origin), {kind: from_text(kind) for kind in ADDRESSES}
    if message.before is None:
        made.absent(place, "TXT")
    else:
        made.present(place, "TXT", message.before.text)
    made.absent(place, "CNAME")  # beside one the mark would be dropped without a word, and the rest of it done
    for change in message.changes:
        name, address = change.name, change.address
        plain = "\\" not in name  # what somebody else has put there may have any octets in its labels
        owner = Name((*name.removesuffix(f".{zone}").encode().split(b"."), *origin.labels)) if plain else absolute(name)
        made.update += [RRset(owner, rdataclass.IN, types[kind], NONE, rdataclass.ANY) for kind in change.gone]
        if address:
            records = RRset(owner, rdataclass.IN, AAAA)
            records.add(GenericRdata(rdataclass.IN, AAAA, inet_pton(AF_INET6, address)), message.ttl)
            made.update.append(records)
    made.delete(place, "TXT")
    made.add(place, message.ttl, "TXT", message.after.text)
    return made


def publisher(servers: Sequence[str], key_file: str, timeout: float, now: Callable[[], float]) -> Publisher:
    """Give what keeps a zone at DNS servers, by the settings ``registry.zone_*``."""
    return Publisher(servers, lambda server: DnsServer(server, key_file, timeout, now), now)
