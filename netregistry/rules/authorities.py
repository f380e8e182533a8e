"""Take authorities in and out: two count at most, and the newer one signs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from netregistry.model import keys
from netregistry.model.certificate import Authority
from netregistry.model.codec import Invalid, read, write
from netregistry.refusal import Refused
from netregistry.request import Done
from netregistry.rules.holders import authorities

if TYPE_CHECKING:
    from netregistry.draft import Draft
    from netregistry.request import Part

MOST = 2  #: a chain of three would not be known to who knows the first alone


def add(draft: Draft, part: Part) -> Done:
    """Take in another authority, which signs from now on. Those before count until they are retired."""
    wanted = read(Authority, part.body)._replace(made=draft.now)
    there = authorities(draft.view, draft.now)
    if len(there) >= MOST:
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
