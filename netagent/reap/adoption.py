"""NICs of Ganeti's instances that have no record come under management (netcommon.lifecycle.adopt), at the agent's start and when
Ganeti's files change; and what was owed to a guest that has arrived by a migration is done.

Nothing is guessed: a NIC whose tap is not certain is left alone, which is said once, and looked at again while that is so.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable

from netcommon.lifecycle.adopt import ADOPTED, ALREADY, FAILED, STOPPED, Adoption, adopt
from netcommon.lifecycle.check import repair
from netcommon.lifecycle.context import ADOPT, Call, Node, about
from netcommon.lifecycle.migration import arrived
from netcommon.lifecycle.record_upgrade import backfill, lacking
from netcommon.lifecycle.unguarded import UNGUARDED
from runtime import ganeti
from runtime.errors import NetcommonError
from runtime.folder import Folder
from runtime.nic import Nic
from runtime.paths import Paths
from runtime.record import UP

#: When an instance's files were last changed: its runtime file, its pid file, its folder of nic files.
Changed = tuple[float, float, float]


class Adopter:
    """The instances that this agent has looked at. Every thread may ask it; it looks at one after the other."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._settled: dict[str, Changed] = {}  #: by instance: nothing is left to be done while its files stay so
        self._told: dict[tuple[str, str, str], str] = {}  #: what was left alone, and why

    def run(self, node: Node, call: Call, instances: Iterable[str] | None = None) -> list[Adoption]:
        """Looks at ``instances``, validated names whose files have changed; None: at all whose files have, or of which something is left.

        Returns what was adopted and what was not; NICs on record are not told of. Never raises NetcommonError; says all in the log.
        """
        with self._lock:
            return self._run(node, call, instances)

    def _run(self, node: Node, call: Call, instances: Iterable[str] | None) -> list[Adoption]:
        found: list[Adoption] = []
        try:
            changed = _changed(node.paths)
        except NetcommonError as error:
            call.log.error(f"Ganeti's files cannot be read: {error}")
            return found
        for gone in self._settled.keys() - changed.keys():
            del self._settled[gone]
        for key in [key for key in self._told if key[0] not in changed]:
            del self._told[key]
        for instance in changed if instances is None else [name for name in instances if name in changed]:
            if instances is None and self._settled.get(instance) == changed[instance]:
                continue
            self._settled.pop(instance, None)
            made = self._instance(node, instance, call)
            if made is not None:
                found += made
                if all(one.action in (ADOPTED, ALREADY) for one in made):
                    self._settled[instance] = changed[instance]
        return found

    def _instance(self, node: Node, instance: str, call: Call) -> list[Adoption] | None:
        """What became of its NICs without a record; None where something is to be tried again."""
        runtime = ganeti.read_runtime(node.paths, instance)
        if runtime is None:
            return None
        try:
            records = [node.store.read(nic.identity(instance)) for nic in runtime.nics]
        except NetcommonError as error:  # a newer version's record: its NIC is not ours to judge
            return self._say([Adoption(instance, "", "", "", FAILED, str(error))], call)
        good = True
        for record in filter(None, records):
            try:
                if record.state == UP and arrived(node, record):
                    named = about(_limited(node, call), record)
                    named.log.info(repair(node, record.key, named).text)
            except NetcommonError as error:
                about(call, record).log.error(f"what was owed is not done: {error}")
                good = False
        if all(record is not None and record.door != ADOPT for record in records) and not runtime.problems:
            return [] if good else None
        made = adopt(node, lambda nic: _about_nic(_limited(node, call), nic), [instance])
        return self._say([one for one in made if one.action != ALREADY], call) if good else None

    def _say(self, made: list[Adoption], call: Call) -> list[Adoption]:
        """Puts it in the log; what was left alone for the same reason before, not again."""
        for one in made:
            log = call.log.bind(one.instance, int(one.nic) if one.nic.isdigit() else None, one.uuid, one.device)
            key = (one.instance, one.nic, one.uuid)
            if one.action == ADOPTED:
                self._told.pop(key, None)
                say = log.warning if UNGUARDED in one.why else log.info
                say(f"adopted, it had no record: {one.device} ({one.why})")
            elif self._told.get(key) != one.why:
                self._told[key] = one.why
                if one.action == STOPPED:  # Ganeti's files stay until it has seen that
                    log.info(f"nothing to adopt, {one.action}: {one.why}")
                else:
                    log.warning(f"not adopted, {one.action}: {one.why}")
        return made


def fill(node: Node, call: Call) -> int:
    """Backfills every record that an earlier version has written, at the agent's start. Returns how many got something."""
    filled = 0
    for record in node.store.each([]):
        try:
            filled += bool(lacking(record) and backfill(node, record.key, _limited(node, call)))
        except NetcommonError as error:
            about(call, record).log.warning(f"its record stays as an earlier version wrote it: {error}")
    return filled


def _limited(node: Node, call: Call) -> Call:
    """``call`` with one hook's time limit from now."""
    return call._replace(deadline=min(call.deadline, node.clock.now() + node.settings.hook_timeout))


def _about_nic(call: Call, nic: Nic) -> Call:
    return call._replace(log=call.log.bind(nic.instance, nic.index, nic.uuid, nic.interface))


def _changed(paths: Paths) -> dict[str, Changed]:
    """Every instance that has a runtime file here, and when its files were last changed. Raises HostRefused."""
    names = ganeti.instances(paths)
    times = []
    for name, end in (("conf", ".runtime"), ("pid", ""), ("nic", "")):
        folder = Folder.find(f"{paths.kvm_run}/{name}", ours=False)
        if folder is None:
            times.append([0.0] * len(names))
        else:
            with folder:
                times.append([folder.modified(instance + end) for instance in names])
    return dict(zip(names, zip(*times, strict=True), strict=True))
