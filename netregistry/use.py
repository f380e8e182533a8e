"""Tell which MACs and addresses guests have, as their nodes report: also those that their NICs want no more.

What a NIC that runs is to have is wanted at once, and the guest has it from its next start on; what an operator deletes may run on. So what
is given up may be in use, and is nobody else's until no report says so. A report knows no scope: it counts in that of its wanted NIC, and
where the claim remembers the NIC as the last one that had it. One of a NIC that is not wanted at all (the registry was restored from a copy
that is older) may be of any: what it has is not given out, and keeps nobody from asking for it.

Addresses that an option alone lets a guest have, beside its own, are not its own: several may share one. They are not given out, and keep
nobody from asking for them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from netregistry.model import keys

if TYPE_CHECKING:
    from collections.abc import Iterator

    from netregistry.draft import Draft
    from netregistry.model.nic import Nic
    from netregistry.view import View


def users(where: View | Draft, key: str, options: bool = False) -> Iterator[tuple[str, str]]:
    """Give the NICs that are reported with what is claimed at a key, and the node of each.

    ``options``: also those that have an address by an option alone, and those of which nobody knows in which scope they are.
    """
    _kind, scope, what = key.split("/", 2)
    claim, having = where.claim(key), where.using(what) if options else where.having(what)
    last = claim.last if claim is not None else ""
    for seen in (*having, *(() if options else _beside(where, last, what))):
        _seen, node, uuid = seen.split("/")
        if where.node(node) is None:
            continue  # it was forgotten: what it has reported counts no more
        nic = where.nic(uuid)
        if last == uuid or (nic.scope == scope if nic is not None else options):
            yield uuid, node


def _beside(where: View | Draft, uuid: str, what: str) -> Iterator[str]:
    """Give the keys of the reports by which a NIC has something by an option alone: of who had it before that counts too."""
    for seen in where.members("seen", uuid) if uuid else ():
        report = where.get(seen)
        if what in report.uses and what not in report.own:
            yield seen


def still(where: View | Draft, key: str) -> bool:
    """Tell whether any NIC is reported with what is claimed at a key."""
    return next(users(where, key), None) is not None


def has(where: View | Draft, key: str, uuid: str) -> bool:
    """Tell whether a NIC that had what is claimed at a key is reported with it."""
    what = key.split("/", 2)[2]
    reports = where.members("seen", uuid) if uuid else ()
    return any(what in where.get(seen).uses and where.node(seen.split("/")[1]) is not None for seen in reports)


def over(view: View) -> Iterator[str]:
    """Give the claims that were in use when they were given up, and are not any more: their quarantine begins."""
    for key in view.members("used"):
        if not still(view, key):
            yield key


def beyond(view: View, nic: Nic) -> Iterator[str]:
    """Give the claims of what a NIC is reported with and does not want, of what is its own or was."""
    wanted = frozenset(keys.claims(nic))
    for _node, report, _revision in view.seen(nic.uuid):
        for key in keys.own(nic.scope, report):
            if key not in wanted:
                yield key
    yield from view.members("kept", nic.uuid)
