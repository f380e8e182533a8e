"""Decide who has a certificate that counts: what is granted, renewed and revoked.

What is signed is decided and kept here, and the signature made by who has the authority's key, after the commit: a copy of a request gives
a certificate of the same serial for the same key. So a token is used up in the same commit as what it gives.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from netregistry.model import keys, kinds
from netregistry.model.certificate import DAY, LONGEST, NO_SERIAL, SET_BACK, Digest, Forgotten, Grant, Holder, Holding, Person, Serial
from netregistry.model.codec import read, write
from netregistry.refusal import Refused
from netregistry.request import Done
from netregistry.roles import HOLDERS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from netregistry.draft import Draft
    from netregistry.model.certificate import Authority, Credential
    from netregistry.request import Part
    from netregistry.view import View

AT_ONCE = 50  #: things that one sweep removes
REMEMBERED = DAY  #: for which a token that is over is told from one that never was
JOIN = "netcommon registry token create on the registry's machine, then netcommon registry join URL TOKEN here"


class Renewing(NamedTuple):
    """By which certificate a renewal is asked for, of which authority, and the key (a hash of it) that it is for."""

    key: Digest
    serial: Serial
    authority: str


class Whose(NamedTuple):
    """Whose certificates are meant."""

    role: Holding
    name: str


class _Person(NamedTuple):
    name: Person


class _Node(NamedTuple):
    name: kinds.Uuid


class _Cluster(NamedTuple):
    name: kinds.Imported


NAMES: dict[str, Any] = {"operator": _Person, "reader": _Person, "importer": _Cluster, "node": _Node}


def named(role: str, name: str) -> str:
    """Read the name of a holder. Raises Invalid."""
    found: str = read(NAMES[role], {"name": name}).name
    return found


# -- who is let in


def admitted(view: View, one: Credential, now: float) -> None:
    """Raise Refused where a certificate does not count, or no more: with ``reason``, by which it is counted.

    A node whose certificate counted until it was forgotten is told so, and nothing else, as long as no node is there under its UUID: by
    that word it gives up what it has of the underlay.
    """
    what = f"the certificate of {one.role} {one.name}"
    if one.until <= now:
        raise refused("expired", f"{what} has ended {(now - one.until) / DAY:.1f} days ago: it joins again: {JOIN}")
    if one.authority not in {each.id for each in authorities(view, now)}:
        raise refused("foreign", f"{what} is of an authority that does not count here, or no more: it joins again: {JOIN}")
    holder: Holder | None = view.get(keys.certificate(one.role, one.name))
    if holder is not None and holder.forgot(one.serial) and view.node(one.name) is None:
        raise refused("forgotten", f"{what} is revoked, since the node was forgotten: if it should not be, it joins again: {JOIN}")
    _unrevoked(holder, what, one.serial, now)


def _unrevoked(holder: Holder | None, what: str, serial: str, now: float) -> None:
    """Raise Refused where a serial is revoked, or was never given.

    Who is revoked has none that counts, whatever its serial, until he joins again. One above the latest is known to a registry that was
    restored no more; one of a time that is to come (beyond how far clocks may be apart) was given by nobody.
    """
    if holder is not None and (holder.revoked or serial <= holder.floor):
        raise refused("revoked", f"{what} is revoked: if it should not be, it joins again: {JOIN}")
    if serial > (holder.serial if holder is not None else NO_SERIAL) and int(serial[:12], 16) > _milliseconds(now + SET_BACK):
        raise refused("foreign", f"{what} has a serial number that this registry has not given: it joins again: {JOIN}")


def refused(reason: str, detail: str, kind: str = "certificate") -> Refused:
    """Give the refusal of a certificate, or of a token, by a reason that is counted."""
    return Refused(kind, detail, reason=reason)


def authorities(view: View, now: float) -> list[Authority]:
    """Give the authorities that count, the newest last: that one signs."""
    found: list[Authority] = [each for each in view.all("authorities").values() if each.until > now]
    return sorted(found, key=lambda each: (each.made, each.id))


def signing(view: View, now: float) -> Authority:
    """Give the authority that signs. Raises Refused where there is none."""
    found = authorities(view, now)
    if not found:
        raise Refused("unavailable", "this registry has no authority: netcommon registry authority rotate, on its machine, makes one")
    return found[-1]


# -- what there is


def renew(draft: Draft, part: Part) -> Done:
    """Give who has a certificate another one for the same key. Those before count as long as they last."""
    wanted, who = read(Renewing, part.body), draft.who
    if who.role not in HOLDERS:
        raise Refused("forbidden", f"{who.role} has no certificate")
    what = f"the certificate of {who.role} {who.name}"
    _unrevoked(draft.get(keys.certificate(who.role, who.name)), what, wanted.serial, draft.now)  # in this commit: it may be on its way
    signs = signing(draft.view, draft.now)
    if wanted.authority not in {each.id for each in authorities(draft.view, draft.now)}:
        raise refused("foreign", f"{what} is of an authority that does not count here, or no more: it joins again: {JOIN}")
    if not signs.cross and wanted.authority != signs.id:
        # the key of the one before is lost, perhaps to somebody who signs by it what he likes
        raise refused("foreign", f"{what} is of an authority whose key is lost, and {signs.id} signs now: it joins again: {JOIN}")
    grant = granted(draft, who.role, named(who.role, who.name), voids=False, by=wanted.authority)  # type: ignore[arg-type]
    return Done(200, keys.certificate(who.role, who.name), write(grant))


def revoke(draft: Draft, part: Part) -> Done:
    """Let no certificate of somebody count that there is now."""
    wanted = read(Whose, part.body)
    name = named(wanted.role, wanted.name)
    holder = revoked(draft, wanted.role, name)
    return Done(200, keys.certificate(wanted.role, name), write(holder))


def revoked(draft: Draft, role: Holding, name: str, forgets: bool = False) -> Holder:
    """Revoke all certificates of somebody; also such as a registry that was restored knows nothing of.

    So it is kept until the last that can have been given by now has ended: what settings there were is not known either. ``forgets``: since
    the node is forgotten; of those that were revoked before nobody says so.
    """
    key = keys.certificate(role, name)
    last = last_serial(draft.now)
    holder: Holder = draft.get(key) or Holder(role, name, NO_SERIAL)
    floor = max(holder.serial, last)
    forgotten = Forgotten(holder.floor, floor) if forgets else holder.forgotten
    holder = holder._replace(serial=floor, floor=floor, kept=max(holder.kept, draft.now + LONGEST), forgotten=forgotten)
    draft.put(key, holder)
    return holder


def last_serial(now: float) -> str:
    """Give the last serial that can have been given by now."""
    return f"{_milliseconds(now):012x}{'f' * 20}"


def granted(draft: Draft, role: Holding, name: str, voids: bool, by: str = "") -> Grant:
    """Note what is to be signed. ``voids``: certificates of the same holder that were made before count no more.

    ``by``: the authority of the certificate by which it is asked for; "": by a token.
    """
    authority = signing(draft.view, draft.now)
    key = keys.certificate(role, name)
    before: Holder | None = draft.get(key)
    number = _milliseconds(draft.now) << 80 | draft.chance(1 << 80, key)
    if before is not None:
        number = max(number, int(before.serial, 16) + 1)
    until = min(draft.now + draft.view.settings.certificate_seconds, authority.until)
    grant = Grant(role, name, f"{number:032x}", draft.now - SET_BACK, until, authority.id)
    floor = f"{number - 1:032x}" if voids else before.floor if before is not None else NO_SERIAL
    kept = max(until, before.kept if before is not None else 0.0)
    uses = by
    if not by and authority.cross and before is not None and not voids and not before.revoked and before.until > draft.now:
        # who has joined before has that one, as long as the answer has not come; of a key that is lost he joins again in any case
        uses = before.before or before.authority
    uses = uses if uses != authority.id else ""
    draft.put(key, Holder(role, name, grant.serial, draft.now, until, authority.id, floor, kept, uses))
    return grant


def came_over(view: View, one: Credential) -> bool:
    """Tell whether somebody has come by his latest certificate, or a later one that a restored registry does not know, and nobody had yet.

    Another machine that is the same operator may come by an earlier one of the same authority: that says nothing of the latest.
    """
    holder: Holder | None = view.get(keys.certificate(one.role, one.name))
    return holder is not None and holder.before != "" and holder.authority == one.authority and holder.serial <= one.serial


def _milliseconds(now: float) -> int:
    return int(now * 1000) & (1 << 48) - 1


# -- by time


def sweep(draft: Draft, part: Part) -> Done:
    """Delete tokens and holders of certificates that ended long ago."""
    found = [key for _, key in zip(range(AT_ONCE), over(draft.view, draft.now), strict=False)]
    for key in found:
        draft.delete(key)
    return Done(200, "", {"swept": len(found)})


def over(view: View, now: float) -> Iterator[str]:
    """Give the keys of what has ended long ago; of no authority: they are few, and without one nobody is let in."""
    yield from (key for key, token in view.all("tokens").items() if token.until + REMEMBERED <= now)
    yield from (key for key, holder in view.all("certificates").items() if holder.kept + REMEMBERED <= now)
