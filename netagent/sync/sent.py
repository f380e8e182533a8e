"""Keep what the registry has from a node, and what is being looked at for the next report."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from netregistry.model.nic import Report


class Sent(NamedTuple):
    """One NIC as the registry has it from us. ``hash``: of all that was said; 0: not known. ``device``: on which it is up, "" for none.

    ``mode``, ``link``: as of a report, in which it is up.
    """

    state: str
    hash: int
    device: str = ""
    mode: str = ""
    link: str = ""


class Aside(NamedTuple):
    """Keep what the registry has refused by itself. ``said``: that; the hash of what there is on the node; None: that a NIC is gone."""

    why: str
    said: Sent | int | None


class Looking(NamedTuple):
    """Hold a look that is under way.

    ``owning``: for a change of what is wanted, not for reports; ``stray``: for a registry that does not know the node.
    """

    uuids: tuple[str, ...]
    about: bool = False
    underlay: bool = False
    owning: bool = False
    stray: bool = False


def sent_of(report: Report, counts: bool = True, endpoints: tuple[str, ...] = ()) -> Sent:
    """Give a report as the registry has it from us; ``counts``: what it says is known, and need not be told anew."""
    said = hash((report, endpoints) if endpoints else report)
    return Sent(report.state, (said or 1) if counts else 0, report.tap, report.mode or "", report.link)
