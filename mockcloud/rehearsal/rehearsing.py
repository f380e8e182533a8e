"""Rehearse: bring NICs up on simulated hosts by the present settings, change them to the new ones, and tell what that comes to.

Both by the lifecycle that real nodes run. What ``netcommon change --dry-run`` would say of a NIC is asked first; a NIC that would become
another is then changed.
"""

from __future__ import annotations

import tempfile
from typing import TYPE_CHECKING, NamedTuple

from mockcloud.rehearsal import machine
from mockcloud.rehearsal.refusal import refusal
from mockcloud.variables import variables
from netcommon.lifecycle.change import Difference, change, unchanged
from netcommon.lifecycle.context import START, Call, Clock, open_node
from netcommon.lifecycle.execute import decode
from netcommon.lifecycle.push import keep, keep_network
from netcommon.lifecycle.up import up
from netcommon.log import recording
from netcommon.operations.file import NicFile
from netcommon.operations.network_file import NetworkFile
from netregistry.model.codec import write
from runtime import validate
from runtime.environment import nic_from_environment
from runtime.errors import NetcommonError
from runtime.networks import network_of
from runtime.paths import Paths
from runtime.registry_wanted import wanted_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from mockcloud.rehearsal.copied import Copy
    from mockcloud.rehearsal.refusal import Refusal
    from netcommon.host.simulated.host import MemoryHost
    from netcommon.lifecycle.context import Node
    from netcommon.operations.base import Operation
    from netcommon.settings.model import Settings
    from netregistry.model.nic import Nic

MOST = 500  #: NICs on one simulated host: a bridge takes 1023 ports
SECONDS = 30.0  #: that one call has

#: What is put into these the guest asks for: it has it when it asks anew.
ASKED_FOR = (NicFile, NetworkFile)
AT_START, AT_LEASE = "start", "lease"


class Foretold(NamedTuple):
    """Say what becomes of one NIC."""

    nic: Nic
    node: str  #: "" where nobody says on which it is
    running: bool
    device: str
    difference: Difference | None  #: None where it is refused
    refused: Refusal | None = None
    before: Refusal | None = None  #: why it does not even come up by the present settings
    warnings: tuple[str, ...] = ()
    requests: int = 0  #: to the simulated host, of the change
    seconds: float = 0.0  #: of CPU, of the change

    @property
    def changes(self) -> bool:
        """Tell whether anything on a host becomes another."""
        return self.difference is not None and self.difference.changes

    @property
    def recorded(self) -> bool:
        """Tell whether its record alone becomes another, such as by tags that nothing follows from."""
        return self.difference is not None and self.difference.any and not self.difference.changes

    @property
    def needs(self) -> tuple[str, ...]:
        """Say when its guest has all of it, where that is not at once: AT_START of the guest, AT_LEASE: when it asks anew by DHCP."""
        if not self.changes or self.difference is None:
            return ()
        one = self.difference
        told = any(isinstance(each, ASKED_FOR) for each in (*one.gone, *one.replaced, *one.made))
        return (() if self.running else (AT_START,)) + ((AT_LEASE,) if told and self.running else ())


class Task(NamedTuple):
    """NICs that are on one simulated host. ``node``: "" where nobody says on which node they are."""

    node: str
    nics: tuple[Nic, ...]
    before: Settings
    after: Settings


def rehearsable(nic: Nic) -> bool:
    """Tell whether a hypervisor brings the NIC up: it is an instance's, and somebody has said in which mode."""
    return nic.belongs == "instance" and bool(nic.mode)


def tasks(copy: Copy, before: Callable[[str], Settings], after: Callable[[str], Settings]) -> Iterator[Task]:
    """Part the NICs by hosts. ``before``, ``after``: a node's settings, by name; one "" has those of all that have none of their own.

    NICs of which nobody says where they are, are rehearsed by the settings of all.
    """
    by_node: dict[str, list[Nic]] = {}
    for nic in copy.nics:
        if rehearsable(nic):
            by_node.setdefault(copy.place(nic).node, []).append(nic)
    for node in sorted(by_node):
        nics = sorted(by_node[node], key=lambda nic: (nic.instance, -1 if nic.index is None else nic.index, nic.uuid))
        for first in range(0, len(nics), MOST):
            yield Task(node, tuple(nics[first : first + MOST]), before(node), after(node))


def rehearse(copy: Copy, task: Task, tags: Mapping[str, Sequence[str]], clock: Clock, number: int) -> Iterator[Foretold]:
    """Rehearse one host's NICs. ``tags``: the new tags, by instance; ``number``: the host's, from 1 on.

    The host and its records are gone at the end of it.
    """
    with tempfile.TemporaryDirectory(prefix="mockcloud-") as root:
        host = machine.made(number, machine.links_of(copy), copy.hardware.get(task.node), (task.before, task.after))
        node = open_node(Paths.under(root), task.before, clock, lambda *_: host, later=lambda *_: None)
        try:
            yield from _Rehearsal(copy, task, tags, node, host).run()
        finally:
            node.store.close()


class _Rehearsal:
    """One host's."""

    def __init__(self, copy: Copy, task: Task, tags: Mapping[str, Sequence[str]], node: Node, host: MemoryHost) -> None:
        self._copy, self._task, self._tags, self._host = copy, task, tags, host
        self._old, self._new = node, node._replace(settings=task.after)

    def run(self) -> Iterator[Foretold]:
        if self._copy.revision:
            for uuid in sorted({nic.network for nic in self._task.nics if nic.network in self._copy.networks}):
                keep_network(self._old, network_of(uuid, self._copy.revision, write(self._copy.networks[uuid])))
        down: dict[str, Refusal] = {}
        for place, nic in enumerate(self._task.nics):
            try:
                self._up(self._old, nic, f"tap{place}")
            except NetcommonError as error:
                down[nic.uuid] = refusal(error)
        for place, nic in enumerate(self._task.nics):
            if nic.uuid in down:
                yield self._not_up(nic, f"tap{place}", down[nic.uuid])
            else:
                yield self._changed(nic, f"tap{place}")

    def _call(self) -> tuple[Call, list[str]]:
        log, lines = recording()
        return Call(log, self._old.clock.now() + SECONDS, "kvm", START), lines

    def _up(self, node: Node, nic: Nic, device: str, tags: Sequence[str] | None = None) -> None:
        """Bring a NIC up, as its hypervisor does. Raises NetcommonError."""
        call, _lines = self._call()
        if self._copy.revision and (nic.options or nic.addresses or nic.network):
            keep(node, nic.uuid, wanted_of(self._copy.revision, write(nic)), call)
        said = variables(nic, self._copy.networks.get(nic.network), device) | ({} if tags is None else {"TAGS": " ".join(tags)})
        described = nic_from_environment(said)
        if self._host.kernel.named(device) is None:
            self._host.add_tap(device, holder=machine.PROCESS)
        up(node, described, call)

    def _of(self, nic: Nic, device: str, difference: Difference | None, **more: object) -> Foretold:
        place = self._copy.place(nic)
        return Foretold(nic, self._task.node, place.running, device, difference, **more)  # type: ignore[arg-type]

    def _changed(self, nic: Nic, device: str) -> Foretold:
        """Tell what a change of a NIC that is up comes to, and do it."""
        tags, told = self._tags.get(nic.instance), list[Difference]()
        call, lines = self._call()
        try:
            if tags is not None:
                validate.tags(" ".join(tags))
            change(self._new, nic.uuid, call, unchanged, tags, told.append)
            if not told[0].any:
                return self._of(nic, device, told[0], warnings=_warnings(lines))
            self._host.requests.clear()
            self._host.changes.clear()
            began = self._old.clock.cpu()
            call, lines = self._call()
            change(self._new, nic.uuid, call, unchanged, tags)
        except NetcommonError as error:
            return self._of(nic, device, None, refused=refusal(error), warnings=_warnings(lines))
        seconds, requests = self._old.clock.cpu() - began, len(self._host.requests)
        return self._of(nic, device, told[0], warnings=_warnings(lines), requests=requests, seconds=seconds)

    def _not_up(self, nic: Nic, device: str, why: Refusal) -> Foretold:
        """Tell whether a NIC that does not come up by the present settings would by the new ones."""
        try:
            self._up(self._new, nic, device, self._tags.get(nic.instance))
        except NetcommonError as error:
            return self._of(nic, device, None, refused=refusal(error), before=why)
        record = self._new.store.read(nic.uuid)
        made: tuple[Operation, ...] = () if record is None else tuple(decode(record)[0])
        return self._of(nic, device, Difference(device, (), (), (), made), before=why)


def _warnings(lines: Sequence[str]) -> tuple[str, ...]:
    return tuple(text for severity, _, text in (line.partition(": ") for line in lines) if severity in ("warning", "err", "error"))
