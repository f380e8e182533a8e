"""Performing effects (netcommon.effects.base): each by itself, and none of them fails the call."""

from __future__ import annotations

from netcommon.lifecycle.context import alive
from runtime.errors import NetcommonError
from runtime.record import UP
from runtime.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from netcommon.effects.base import Effect, Scene
    from netcommon.host.api.host import View
    from netcommon.lifecycle.context import Node
    from netcommon.log import Log
    from netcommon.operations.base import Operation
    from runtime.nic import Nic
    from runtime.record import Record


def arrived(
    node: Node, record: Record, log: Log, view: View | None = None, seen: View | None = None, first: bool = False, elsewhere: bool = True
) -> None:
    """Performs what the NIC of ``record`` has to tell, since it is up. Not under its locks: what is done again must not find them held.

    ``view``: the host as it is, from who has looked at it since; ``seen``: as it was just before the NIC came up. ``first``: it was not
    up before, so its guest knows nothing that could have changed. ``elsewhere``: whether others than the guest are told.
    """

    from netcommon.plan.planner import effects, told_guest  # a down has no plan

    try:
        found = effects(record.nic, node.settings) if elsewhere else []
        if not first:
            found += told_guest(record.nic, node.settings)
    except NetcommonError as error:
        log.warning(f"nobody was told: {error}")
        return
    found = [effect for effect in found if not (record.incoming and effect.exclusive())]
    perform(node, found, log, record, view, seen)


def perform(
    node: Node,
    found: Iterable[Effect],
    log: Log,
    record: Record | None = None,
    view: View | None = None,
    seen: View | None = None,
) -> None:
    """Performs each of ``found`` once, in order; a failure is a warning. ``record``: of the NIC whose arrival they tell."""
    unique = dict.fromkeys(found)
    if not unique:
        return
    scene = _scene(node, log, record, view, seen)
    for effect in unique:
        try:
            effect.perform(scene)
        except (NetcommonError, OSError) as error:
            log.warning(f"{effect.describe()}: {error}")
        except Exception as error:  # the NIC is up, or down, whatever is wrong with the telling
            log.warning(f"{effect.describe()}: {type(error).__name__}: {error}")


def _scene(node: Node, log: Log, record: Record | None, view: View | None, before: View | None = None) -> Scene:
    from netcommon.effects.base import Scene  # most NICs have none

    def later(delays: Sequence[float], action: Callable[[Scene], bool]) -> None:
        node.later(delays, lambda by, told, seen: action(_scene(by, _named(told, record), record, seen)), node, log)

    return Scene(node.host, node.paths, log, later, lambda: record is None or _current(node, record), view, before)


def _named(log: Log, record: Record | None) -> Log:
    return log if record is None else log.bind(record.nic.instance, record.nic.index, record.uuid, record.device)


def _current(node: Node, record: Record) -> bool:
    """Whether the NIC is up still, on the same device."""
    now = node.store.read(record.key)
    if now is None or now.state != UP:
        return False
    same = (now.device, now.ifindex, now.boot, now.netns) == (record.device, record.ifindex, record.boot, record.netns)
    return same and alive(node, node.host.view(), now)


def warn_dropped(view: View, nic: Nic, operations: Sequence[Operation], log: Log) -> None:
    """Say what the kernel drops of the guest's packets all the same; that it cannot be told keeps no NIC from its network."""
    if nic.mode != "routed":
        return
    from netcommon.operations.sysctl import dropped  # other modes do without

    try:
        for text, remedy in dropped(view, nic.interface, operations):
            log.warning(f"{text}: {remedy}")
    except NetcommonError as error:
        log.info(f"whether the kernel takes its packets is not known: {error}")
