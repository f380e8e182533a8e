"""Name endpoints: INSTANCE.KIND.ZONE, and INSTANCE-migrating.KIND.ZONE on the node to which the guest comes. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from netregistry.model.underlay import Endpoint, Placement

MIGRATING = "-migrating"  #: behind the instance's name
LONGEST, LABEL = 253, 63  #: characters of a name, and of one of its labels (RFC 1035, 2.3.4)
LETTERS = frozenset("abcdefghijklmnopqrstuvwxyz0123456789-")


def made(instance: str, kind: str, zone: str, migrating: bool = False) -> str:
    """Make a name; "" where that would be no host's (RFC 1123, 2.1), or there is no zone."""
    name = f"{instance}{MIGRATING if migrating else ''}.{kind}.{zone}"
    if not zone or not name.isascii() or len(name) > LONGEST:
        return ""
    labels = name.lower().split(".")
    fits = all(0 < len(each) <= LABEL and LETTERS.issuperset(each) and "-" not in (each[0], each[-1]) for each in labels)
    return ".".join(labels) if fits else ""


def instances(name: str, zone: str) -> tuple[str, ...]:
    """Give the instances, in lower case, that a name can be of: of INSTANCE-migrating it may be the migration's, or the guest's own."""
    called = name.removesuffix(f".{zone.lower()}").rpartition(".")[0]
    return (called, called.removesuffix(MIGRATING)) if called.endswith(MIGRATING) else (called,)


def of(placement: Placement, each: Endpoint, zone: str) -> str:
    """Give the name that is to lead to an endpoint; "" for none."""
    if each.state != "there" or each.node not in (placement.leads, placement.incoming):
        return ""
    return made(placement.instance, each.kind, zone, migrating=each.node != placement.leads)


def wanted(placement: Placement, zone: str) -> dict[str, Endpoint]:
    """Give all names of a placement, and to which endpoint each leads."""
    return {name: each for each in placement.endpoints if (name := of(placement, each, zone))}


def wrong(placement: Placement, zone: str) -> Iterator[str]:
    """Say which endpoints have no name because it would be no host's."""
    for kind in dict.fromkeys(each.kind for each in placement.endpoints if each.live) if zone else ():
        for migrating in (False, True):
            if not made(placement.instance, kind, zone, migrating):
                shown = f"{placement.instance}{MIGRATING if migrating else ''}.{kind}.{zone}"
                yield f"{shown!a:.300} is no name of a host: letters, digits and hyphens, {LABEL} in a label, {LONGEST} in all"
                break
