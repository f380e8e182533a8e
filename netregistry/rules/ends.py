"""Do what is due by time: options that end, quarantines that are over, claims of networks that are gone. The leader asks for it.

Each does a part of what is due, as much as fits into one commit, and nothing where nothing is due: it may be asked for at any time, by
several at once.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

from netregistry import use
from netregistry.model.claim import Claim
from netregistry.model.codec import dump
from netregistry.model.kinds import FOREVER
from netregistry.model.nic import Nic
from netregistry.model.underlay import NodePrefix, Placement
from netregistry.request import Done
from netregistry.rules import holders, underlay
from netregistry.rules.claims import quarantined, settle
from netregistry.steady import SLACK
from netregistry.stores.base import LONGEST_VALUE
from runtime import validate

if TYPE_CHECKING:
    from collections.abc import Iterator

    from netregistry.draft import Draft
    from netregistry.request import Part
    from netregistry.view import View

AT_ONCE = 50  #: things changed by one commit: NICs may be large
BYTES = LONGEST_VALUE * 3 // 8  #: of NICs changed by one commit: its entry of the history has each of them twice


def options(draft: Draft, part: Part) -> Done:
    """Take the options away whose time is over."""
    ended = size = 0
    for key in draft.view.due(Nic, draft.now, AT_ONCE):
        nic: Nic = draft.get(key)
        size += len(dump(nic))
        if ended and size > BYTES:
            break
        draft.put(key, nic._replace(options=tuple(each for each in nic.options if not 0 < each.until <= draft.now)))
        ended += 1
    return Done(200, "", {"ended": ended})


def quarantine(draft: Draft, part: Part) -> Done:
    """Let what was freed be given out again when its quarantine is over.

    What can never be given out, as an address outside its network's subnets, is forgotten then.

    Where a NIC is reported with it, which may be found out only now, it has not begun: it begins when none is any more. None lasts longer
    from now on than the setting says: one that does began while the clock was fast, or the setting was another one.
    """
    view = draft.view
    ended = view.due(Claim, draft.now, AT_ONCE)
    for key in ended:
        claim: Claim = draft.get(key)
        settle(draft, key, claim._replace(until=FOREVER if use.still(view, key) else 0.0))
    begun = tuple(islice(use.over(view), AT_ONCE - len(ended)))
    for key in begun:
        draft.put(key, quarantined(draft, key, draft.get(key)))
    latest = draft.now + view.settings.quarantine
    long = view.far(Claim, latest + SLACK, AT_ONCE - len(ended) - len(begun))
    for key in long:
        claim = draft.get(key)
        draft.put(key, claim._replace(freed=min(claim.freed, draft.now), until=latest))
    return Done(200, "", {"ended": len(ended), "begun": len(begun), "shortened": len(long)})


def sweep(draft: Draft, part: Part) -> Done:
    """Delete the claims that are left of networks that are gone."""
    found = [key for _, key in zip(range(AT_ONCE), orphans(draft.view), strict=False)]
    for key in found:
        draft.delete(key)
    return Done(200, "", {"swept": len(found)})


def orphans(view: View) -> Iterator[str]:
    """Give the claims without holder whose network is gone."""
    for (scope,) in view.groups("unheld"):
        if validate.is_uuid(scope) and view.network(scope) is None:
            yield from view.members("unheld", scope)


def next_end(view: View) -> float:
    """Give the time at which ``wanted`` will have something that it has not now, if nothing changes and the clock is not set back."""
    return min(view.first_end(kind) for kind in (Nic, Claim, NodePrefix, Placement))


def wanted(view: View, now: float, ends: bool = True, forgets: bool = True) -> tuple[str, ...]:
    """Give the actions that there is something for. ``ends``, ``forgets``: the clock is one by which that may be done."""
    found = [action for kind, action in ((Nic, "options.end"), (Claim, "quarantine.end")) if ends and view.due(kind, now, 1)]
    far = now + view.settings.quarantine + SLACK
    if "quarantine.end" not in found and ends and (view.far(Claim, far, 1) or next(use.over(view), None) is not None):
        found.append("quarantine.end")
    if next(orphans(view), None) is not None:
        found.append("claims.sweep")
    if forgets and next(holders.over(view, now), None) is not None:
        found.append("certificates.sweep")
    if ends and view.underlay is not None and (next(underlay.over(view, now), None) is not None or underlay.far(view, now, 1)):
        found.append("underlay.end")
    if underlay.due(view, now):
        found.append("underlay.settle")
    return tuple(found)
