"""Take authorities in and out: the newest one signs, and those before count until they are retired."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from netregistry.model import keys, kinds
from netregistry.model.certificate import Authority, Digest, Label
from netregistry.model.codec import Invalid, read, write
from netregistry.refusal import Refused
from netregistry.request import Done
from netregistry.rules.holders import authorities
from netregistry.rules.networks import forced
from runtime.moment import local_time

if TYPE_CHECKING:
    from netregistry.draft import Draft
    from netregistry.model.certificate import Holder
    from netregistry.request import Part

SHOWN = 10  #: of those who would be out
MOST = 2  #: a chain of three would not be known to who knows the first alone
MOST_BEFORE_LOST = 7  #: that count besides one which none before has signed: there is no chain, and a machine trusts 16 at most


class NewAuthority(NamedTuple):
    """An authority to be taken in: its fields, as in Authority. ``alone``: those before count no more from the same commit on."""

    id: Label
    fingerprint: Digest
    certificate: str
    cross: str = ""
    made: kinds.Time = 0.0
    until: kinds.Time = 0.0
    alone: bool = False


def add(draft: Draft, part: Part) -> Done:
    """Take in another authority, which signs from now on. Those before count until they are retired, or, where it is ``alone``, no more.

    One that the one before has not signed, since its key is lost, is taken in whatever rotation is under way: it is no part of a chain.
    """
    given = read(NewAuthority, part.body)
    wanted = Authority(given.id, given.fingerprint, given.certificate, given.cross, draft.now, given.until)
    there = authorities(draft.view, draft.now)
    if given.alone and given.cross:
        raise Invalid("alone", True, "false for an authority that the one before has signed: who has the key of that would go over")
    if not given.alone and len(there) >= (MOST if given.cross else MOST_BEFORE_LOST + 1):
        what = f"{len(there)} authorities count already, and {there[-1].id} signs since {local_time(there[-1].made)}"
        remedy = f"when certificate list shows {there[0].id} no more, retire that: netcommon registry authority retire {there[0].id}"
        raise Refused("in-use", f"{what}: a rotation is under way, and another one begins when that is over: {remedy}")
    if wanted.until <= draft.now:
        raise Invalid("until", wanted.until, "a time that is to come: the certificate has ended")
    if there and there[-1].made >= wanted.made:
        wanted = wanted._replace(made=there[-1].made + 0.001)  # a clock that was set back: the newest one signs
    key = keys.authority(wanted.id)
    if draft.get(key) is not None:
        raise Refused("exists", f"there is an authority {wanted.id} already", field="id")
    draft.put(key, wanted)
    for each in there if given.alone else ():
        draft.delete(keys.authority(each.id))
    return Done(201, key, write(wanted))


def retire(draft: Draft, part: Part) -> Done:
    """Let nothing count any more that an authority has signed. ``force``: also while somebody uses no certificate by another one."""
    key = keys.authority(part.target)
    there: Authority | None = draft.get(key)
    if there is None:
        raise Refused("missing", f"there is no authority {part.target!a:.40}: netcommon registry authority list")
    if [each.id for each in authorities(draft.view, draft.now)][-1:] == [there.id]:
        raise Refused("in-use", f"authority {there.id} is the one that signs: netcommon registry authority rotate makes another one first")
    if not forced(part) and (left := _left(draft, there)):
        names = ", ".join(left[:SHOWN]) + (f" and {len(left) - SHOWN} more" if len(left) > SHOWN else "")
        way = "they go over by themselves, agents within two hours" if _goes_over(draft) else "they cannot go over: its key is lost"
        what = (
            f"{len(left)} of the latest certificates are by authority {there.id}, or nobody has come by them yet instead of by one that is"
        )
        what = f"{what}, of {names}: who has them would be out, and join again"
        raise Refused("in-use", f"{what}; {way}; --force retires it all the same", count=len(left))
    draft.delete(key)
    return Done(200, key, write(there))


def _left(draft: Draft, authority: Authority) -> list[str]:
    """Give whose latest certificate is by an authority, and counts, or is not used yet where the one before is by it."""
    found: list[Holder] = [each for _key, each in sorted(draft.view.all("certificates").items())]
    by_it = [each for each in found if authority.id in (each.authority, each.before) and not each.revoked and each.until > draft.now]
    return [f"{each.role} {_called(draft, each)}" for each in by_it]


def _called(draft: Draft, holder: Holder) -> str:
    node = draft.view.node(holder.name) if holder.role == "node" else None
    return node.name if node is not None else holder.name


def _goes_over(draft: Draft) -> bool:
    """Tell whether who has a certificate by the authority before is given one by that which signs."""
    return bool(authorities(draft.view, draft.now)[-1].cross)
