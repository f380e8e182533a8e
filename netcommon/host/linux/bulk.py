"""Requests for many NICs at once: what each of them asks for next goes in one message of the kernel, or one transaction of nftables."""

from __future__ import annotations

import errno

from netcommon.host.api.host import NOT_TRIED, held_up
from netcommon.host.api.requests import RTNETLINK, DeleteFlows, NftChange, OvsChange, PutFlows, service
from netcommon.host.linux.sockets import merged
from runtime.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from netcommon.host.api.host import Answer
    from netcommon.host.api.requests import Request
    from netcommon.host.linux.sockets import Sockets

    Unit = Sequence[Request]  #: what goes in one message

FlowChange = (PutFlows, DeleteFlows)


def execute_each(host: Sockets, lists: Sequence[Sequence[Request]], stop: bool) -> list[list[Answer]]:
    """See netcommon.host.api.host.Host."""
    answers: list[list[Answer]] = [[] for _ in lists]
    left = {number: units for number, requests in enumerate(lists) if (units := _units(requests))}
    while left:
        wave: dict[int, Unit] = {}
        for number, units in left.items():
            while units and held_up(units[-1][0], lists[number], answers[number]):
                answers[number] += [NOT_TRIED] * len(units.pop())
            if units:
                wave[number] = units.pop()
        for number, said in zip(wave, _answers(host, list(wave.values()), stop), strict=True):
            answers[number] += said
            if stop and any(not each.ok for each in said):
                answers[number] += [NOT_TRIED] * sum(map(len, left[number]))
                left[number].clear()
        left = {number: units for number, units in left.items() if units}
    return answers


def _units(requests: Sequence[Request]) -> list[list[Request]]:
    """The units of one list, the first one last. Neighbouring changes of one link are one, as ``execute`` has it."""
    return merged(requests)[::-1]


def _answers(host: Sockets, wave: Sequence[Unit], stop: bool) -> list[list[Answer]]:
    """What became of each unit of a wave."""
    answers: list[list[Answer]] = [[] for _ in wave]
    kernel = [number for number, unit in enumerate(wave) if service(unit[0]) == RTNETLINK]
    said = iter(host.send([wave[number] for number in kernel], stop))
    for number in kernel:
        answers[number] = [next(said) for _ in wave[number]]
    filters = [(number, change) for number, unit in enumerate(wave) for change in unit if isinstance(change, NftChange)]
    for number, answer in _filtered(host, filters):
        answers[number] = [answer]
    for kinds, together in ((OvsChange, _ports), (FlowChange, _flows)):
        numbers = [number for number, unit in enumerate(wave) for change in unit if isinstance(change, kinds)]
        if len(numbers) > 1:
            for number, answer in zip(numbers, together(host, [wave[number][0] for number in numbers]), strict=True):
                answers[number] = [answer]
    for number, unit in enumerate(wave):
        if not answers[number]:
            answers[number] = [host.service(service(request)).execute(request) for request in unit]
    return answers


def _filtered(host: Sockets, changes: Sequence[tuple[int, NftChange]]) -> list[tuple[int, Answer]]:
    """One transaction for all; if that is refused, which says nothing of the others, one for each."""
    if len(changes) > 1:
        steps = tuple(step for _number, change in changes for step in change.steps)
        said = host.nftables.execute(changes[0][1]._replace(steps=steps))
        if said.ok or said.errno == errno.ETIMEDOUT:
            return [(number, said) for number, _change in changes]
    return [(number, host.nftables.execute(change)) for number, change in changes]


def _ports(host: Sockets, changes: Sequence[Any]) -> list[Answer]:
    from netcommon.host.ovs.bulk import execute_all  # few nodes have Open vSwitch

    return execute_all(host.ovsdb, changes)


def _flows(host: Sockets, changes: Sequence[Any]) -> list[Answer]:
    return host.openflow().execute_all(changes)
