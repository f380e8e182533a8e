"""Say in which order a NIC becomes another: what goes first, what is made, and what goes last (netcommon.lifecycle.execute does it)."""

from __future__ import annotations

from netcommon.lifecycle.execute import Among
from runtime.typed import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from netcommon.host.api.host import View
    from netcommon.operations.base import Operation


class Leaving(NamedTuple):
    """Say when what is wanted no more is reverted, while a NIC becomes another."""

    early: tuple[Operation, ...] = ()  #: makes room for what comes
    late: tuple[Operation, ...] = ()  #: leads to the guest, or decides where its frames go
    confining: tuple[Operation, ...] = ()  #: keeps the guest to its own: it stays if what the guest had beside it could not be removed
    delivering: tuple[Operation, ...] = ()  #: brings to the guest what it gets no other way until then


def stages(
    shut: Sequence[Operation], leaving: Leaving, make: Callable[[], Sequence[Operation]]
) -> Iterator[tuple[bool, Sequence[Operation]]]:
    """Give the one order in which a NIC becomes another: True with what is applied, False with what is reverted.

    Its device goes down where it must, what is wanted no more makes room, what ``make`` says by then comes, and last goes what has kept
    the guest to its own meanwhile, or has led to it.
    """
    yield True, shut
    yield False, leaving.early
    yield True, make()
    yield False, leaving.late
    yield False, leaving.confining
    yield False, leaving.delivering


def networks(operations: Iterable[Operation]) -> set[tuple[object, ...]]:
    """Give the networks in which the NIC's device is by its operations (Operation.network); a family more or less changes none."""
    return {one.network() for one in operations if one.network()}


def part(view: View, outdated: Sequence[Operation], wanted: Sequence[Operation], moves: bool) -> Leaving:
    """Part what makes room from what goes last: as long as the device is up, that keeps the guest to its own, or leads to it.

    Of what is ``outdated`` the place of which something ``wanted`` takes neither goes: it is another by then. ``moves``: the network
    changes too; then the device is down meanwhile, and what was of its former port goes before it leaves that, and its VLANs.
    """
    early: list[Operation] = []
    late: list[Operation] = []
    confining: list[Operation] = []
    delivering: list[Operation] = []
    for one in Among(wanted).leaves(outdated):
        lasts = bool(one.unbroken() or one.leads_to())
        if one.effective(view).confines() and (lasts or not moves):
            confining.append(one)
        elif one.delivers() and not moves:
            delivering.append(one)
        else:
            (late if lasts else early).append(one)
    return Leaving(tuple(early), tuple(late), tuple(confining), tuple(delivering))
