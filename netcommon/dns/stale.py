"""Find records of ours that no instance has any more: the marks of our cluster in the zones, held against Ganeti's configuration.

What an instance's removal owed the DNS lies on the node that was the master then. Once another node is, nobody does it. So all marks of the
zones are read, whole zones at a time, and nothing is taken for stale unless all of them were, nor unless the configuration is certain to be
this cluster's, and of now (netcommon.dns.ganeti.certain).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from netcommon.dns.ganeti import Certain
from netcommon.dns.names import MARK, zone_of
from netcommon.dns.records import Policy, wanted
from netcommon.dns.server import Servers
from netcommon.dns.store import Intent
from netcommon.dns.update import Mark, mark_in
from netcommon.log import Log
from runtime.errors import escaped


class Marked(NamedTuple):
    """A name that bears a mark."""

    name: str
    mark: Mark


def marked(servers: Servers, policy: Policy, cluster: str, log: Log) -> list[Marked]:
    """List the names in all zones that bear a mark of ``cluster``; warn of those where marks stand and something else is.

    Raises as Servers.transfer, where one zone cannot be read whole.
    """
    found, strange = [], list[str]()
    for zone in policy.zones:
        for name, records in servers.transfer(zone, "TXT").items():
            label, _, rest = name.partition(".")
            if label != MARK or zone_of(rest, policy.zones) != zone:
                continue
            mark = mark_in(records)
            if mark is None:
                strange.append(name)
            elif mark.cluster == cluster:
                found.append(Marked(rest, mark))
    if strange:
        more = f" and {len(strange) - 1} more" if len(strange) > 1 else ""
        log.warning(f"what stands at {escaped(min(strange))}{more} is no mark as we write it: left alone")
    return sorted(found)


def is_stale(one: Marked, known: Certain, intents: Mapping[str, Intent], policy: Policy) -> bool:
    """Tell whether what is at the name is no instance's: the instance is gone, or has no such name or address any more.

    What is on record as not done yet may need it, also under a name that the instance had before.
    """
    instance = one.mark.instance
    if any(not intent.done and instance in (name, *intent.former) for name, intent in intents.items()):
        return False
    if instance not in known.names:
        return not (instance in intents and intents[instance].guest.nics)
    guest = known.instances.guests.get(instance)
    return guest is not None and one.name not in wanted(guest, policy)


def by_instance(found: Iterable[Marked]) -> dict[str, list[Marked]]:
    """Group them by the instance that each mark names; forward names come before reverse ones."""
    made: dict[str, list[Marked]] = {}
    for one in found:
        made.setdefault(one.mark.instance, []).append(one)
    return made
