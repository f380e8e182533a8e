"""Rehearse an upgrade: compare what an earlier version has recorded of NICs that are up with what this version would do for them.

A record says what was done, and the planner what would be; a simulated host says which of that comes to anything.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from mockcloud.rehearsal import machine
from mockcloud.rehearsal.refusal import Refusal, refusal
from netcommon.lifecycle.execute import decode
from netcommon.lifecycle.record_upgrade import lacking
from netcommon.operations.base import intent
from netcommon.plan.planner import plan
from runtime.errors import NetcommonError
from runtime.record import UP, from_json

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mockcloud.rehearsal.copied import RecordFile
    from netcommon.host.api.host import View
    from netcommon.operations.base import Operation
    from netcommon.settings.model import Settings
    from runtime.record import Record


class Upgraded(NamedTuple):
    """Say what an upgrade comes to for one NIC that is up."""

    file: str
    node: str
    nic: str = ""  #: its label; "" where the record cannot be read
    uuid: str = ""
    schema: int = 0  #: of the record
    rewritten: bool = False  #: ``netcommon upgrade`` has something to fill in
    also: tuple[Operation, ...] = ()  #: what would be done, and was not
    no_more: tuple[Operation, ...] = ()  #: what was done, and would not be
    unknown: tuple[str, ...] = ()  #: kinds of operations that this version does not know: they stay until the version that does
    refused: Refusal | None = None

    @property
    def changes(self) -> bool:
        """Tell whether the NIC's next start, or ``netcommon change --all``, makes it another."""
        return bool(self.also or self.no_more)


def upgraded(file: RecordFile, settings: Settings) -> Upgraded | None:
    """Compare one record with what this version would do by ``settings``; None for a NIC that is not up."""
    found = Upgraded(file.name, file.node)
    try:
        record = from_json(file.data)
        record = record.before or record
        found = found._replace(nic=record.nic.label, uuid=record.uuid, schema=record.schema, rewritten=lacking(record))
        if record.state != UP or not record.operations:
            return None  # where nothing of ours was done, a script of the site's has done it instead
        known, unknown = decode(record)
        planned = plan(record.nic, settings)
    except NetcommonError as error:
        return found._replace(refused=refusal(error))
    done, wanted = ({intent(one) for one in part} for part in (known, planned))
    return found._replace(
        also=_coming_to_something(record, [one for one in planned if intent(one) not in done], settings),
        no_more=tuple(one for one in known if intent(one) not in wanted),
        unknown=tuple(str(stored.get("kind")) for stored in unknown),
    )


def _coming_to_something(record: Record, fresh: Sequence[Operation], settings: Settings) -> tuple[Operation, ...]:
    """Give those for which there is something to do on a host with what the NIC is on.

    The guard of an Open vSwitch bridge is planned for both of its datapaths, and which one a node has no record says: it is the one on
    which less differs.
    """
    nic = record.nic
    links = machine.Links(*(frozenset((nic.link,)) if nic.mode == mode and nic.link else frozenset() for mode in machine.MODES))
    found = tuple(fresh)
    for system in (False, True) if fresh and nic.mode == "openvswitch" else (False,) if fresh else ():
        host = machine.made(1, links, None, (settings,), system)
        host.add_tap(record.device, holder=machine.PROCESS)
        view = host.view()
        found = min(found, tuple(one for one in fresh if _comes_to_something(view, one)), key=len)
    return found


def _comes_to_something(view: View, planned: Operation) -> bool:
    try:
        return bool(planned.resolve(view, []))
    except NetcommonError:
        return True
