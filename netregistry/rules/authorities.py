"""Take authorities in and out: the newest one signs, and those before count until they are retired."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from netregistry.model import keys, kinds
from netregistry.model.certificate import Authority, Digest, Label
from netregistry.model.codec import Invalid, read, write
from netregistry.refusal import Refused
from netregistry.request import Done
from netregistry.rules.holders import authorities

if TYPE_CHECKING:
    from netregistry.draft import Draft
    from netregistry.request import Part

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

    One that was lost is no part of a chain: another one is taken in whatever rotation is under way, and ends that.
    """
    given = read(NewAuthority, part.body)
    wanted = Authority(given.id, given.fingerprint, given.certificate, given.cross, draft.now, given.until)
    there = authorities(draft.view, draft.now)
    if given.alone and given.cross:
        raise Invalid("alone", True, "false for an authority that the one before has signed: who has the key of that would go over")
    if not given.alone and len(there) >= (MOST if given.cross else MOST_BEFORE_LOST + 1):
        oldest = there[0].id
        raise Refused("in-use", f"{len(there)} authorities count: retire the older one first: netcommon registry authority retire {oldest}")
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
    """Let nothing count any more that an authority has signed."""
    key = keys.authority(part.target)
    there: Authority | None = draft.get(key)
    if there is None:
        raise Refused("missing", f"there is no authority {part.target!a:.40}: netcommon registry authority list")
    if [each.id for each in authorities(draft.view, draft.now)][-1:] == [there.id]:
        raise Refused("in-use", f"authority {there.id} is the one that signs: netcommon registry authority rotate makes another one first")
    draft.delete(key)
    return Done(200, key, write(there))
