"""The Ganeti hook that keeps instances' names in the DNS (docs/dns.md): runs after instance-add, -rename, -modify, -remove and -export.

Ganeti runs hooks on the master and on the instance's nodes; this one acts on the master alone. After any other operation that a site
links it to, it tries again what failed before.
"""

from __future__ import annotations

from netcommon.dns.ganeti import FOLDER as GANETI
from netcommon.dns.ganeti import configured, is_master
from netcommon.dns.guest import event
from netcommon.dns.store import FOLDER, Store
from netcommon.dns.sync import Run, pending, policy, record
from netcommon.doors.call import limit, run
from netcommon.settings.load import load
from runtime.errors import OK
from runtime.locks import Locks
from runtime.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from netcommon.doors.call import Door
    from runtime.errors import NetcommonError
    from runtime.folder import Folder


def hook(door: Door, environ: Mapping[str, str], _argv: Sequence[str] = ()) -> int:
    """Brings the instance's records up to date, then what is left from before. A hook's failure fails nothing in Ganeti.

    The status is that of the first error about the instance itself; errors about others are warnings in the log.
    """
    if environ.get("GANETI_OBJECT_TYPE", "INSTANCE") != "INSTANCE" or environ.get("GANETI_HOOKS_PHASE", "post") != "post":
        return OK
    if not is_master(environ.get("GANETI_MASTER", ""), GANETI):
        return OK
    settings = load(door.paths)
    if not settings.dns_zones:
        return OK
    deadline = door.started + settings.hook_timeout
    limit(deadline - door.clock.now())
    told = event(environ)
    store = Store(FOLDER, lambda folder: _locks(door, folder, deadline))
    if told:
        record(store, told, policy(settings))
    mine = [told.guest.name] if told else []
    others = [name for name in pending(store) if name not in mine]
    errors: list[NetcommonError] = []
    if mine or others:
        work = Run(settings, store, door.log, deadline, door.clock.now, lambda: configured(GANETI))
        try:
            for outcome in work.apply(mine, others):
                log = door.log.bind(outcome.instance)
                for error in outcome.errors:
                    if outcome.instance in mine:
                        log.error(str(error))
                        errors.append(error)
                    else:
                        log.warning(f"left from before: {error}")
        finally:
            work.close()
    for problem in store.problems:
        door.log.warning(problem)
    return errors[0].status if errors else OK


def _locks(door: Door, folder: Folder, deadline: float) -> Locks:
    return Locks(folder, deadline, door.clock.now, door.clock.sleep)


def main() -> None:
    """hooks/ganeti-dns-hook."""
    run("ganeti-dns-hook", hook)
