"""Do to instances what an administrator has Ganeti do, and return when the registry shows it.

Each task may be killed at any point, and is then made again: what it has begun is on disk before it is done.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from mockcloud import stored, sysinfo
from mockcloud.instances.side import Side, interface
from mockcloud.instances.unfiled import take_left
from mockcloud.nodes import uuid_of
from mockcloud.stored import MOST_NICS, Begun, Interface, Vm, nic_uuid, vm_uuid
from netregistry.client import Problem
from netregistry.model.codec import read, write
from netregistry.model.nic import Nic
from runtime.errors import HostRefused, NetcommonError, NicInvalid, TryAgain, escaped

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping, Sequence

    from mockcloud.cloud import MockCloud
    from mockcloud.hypervisor import HookFailed, Hypervisor
    from mockcloud.stored import State

T = TypeVar("T")
SECONDS = 5.0  #: until the registry shows what was done
STEP = 0.05  #: seconds from one look to the next
BEGIN = 5.0  #: seconds until an agent that was started is in step with its registry
NAME = re.compile("[a-z0-9]([a-z0-9.-]{0,61}[a-z0-9])?", re.ASCII)
OUTSIDE = ("image", "images", "snapshot", "snapshots", "metadata")  #: what other clouds have, and this one has not


class NotShown(TryAgain):
    """The registry does not show what was done. It is done all the same, and nothing is undone."""

    advice = "mockcloud instance list says what is there; mockcloud status NODE how its agent stands"


class Placed(NamedTuple):
    """An instance, and the node that has it."""

    node: str
    vm: Vm


if TYPE_CHECKING:
    Steps = Generator[None, None, Placed]


def _latest(found: Sequence[Placed]) -> Placed:
    """Give the one place of several that counts: the latest of those where it has arrived."""
    return max(found, key=lambda each: (each.vm.state != "incoming", each.vm.moves))


class Instances:
    """The instances of a cloud. ``seconds``: until the registry shows what was done.

    A task whose name ends in "ing" is a generator: it yields whenever time is to pass, and returns what the one without gives. So many are
    done at once (mockcloud.instances.many).
    """

    def __init__(self, cloud: MockCloud, seconds: float = SECONDS) -> None:
        self._cloud, self._root, self._seconds = cloud, cloud.root, seconds
        self._registry = Side(cloud.registry.client())

    # -- looking

    def all(self) -> tuple[list[Placed], list[str]]:
        """Give all instances by name, and why files are left alone."""
        found, refused = dict[str, list[Placed]](), list[str]()
        for node in sysinfo.look(self._root).nodes:
            vms, left = stored.of_node(self._root, node.uuid)
            refused += left
            for vm in vms:
                found.setdefault(vm.uuid, []).append(Placed(node.uuid, vm))
        return sorted(map(_latest, found.values()), key=lambda each: each.vm.name), refused

    def find(self, name: str) -> Placed:
        """Give an instance. Raises NicInvalid where there is none of the name."""
        found = self._places(name) or self._places(name, anew=True)
        if not found:
            raise NicInvalid("INSTANCE", name, "the name of an instance: mockcloud instance list says which there are")
        if len(found) > 1:  # a move was cut off: those that have it no more see that when they start
            self._cloud.ready([each.node for each in found], BEGIN)
        return _latest(found)

    def _places(self, name: str, anew: bool = False) -> list[Placed]:
        """Give an instance on each node that has it. ``anew``: all folders are looked at, and not those alone where it is known to be."""
        nodes = self._cloud.vms.places(anew).get(vm_uuid(name), [])
        return [Placed(node, vm) for node in nodes if (vm := stored.kept(self._root, node, vm_uuid(name))) is not None]

    def node(self, name: str) -> str:
        """Give the UUID of a node, named by that or its hostname. Raises NicInvalid."""
        uuid = uuid_of(name)
        if not uuid or not sysinfo.there(self._root, uuid) or sysinfo.read(self._root, uuid) is None:
            raise NicInvalid("NODE", name, "the UUID or hostname of a node: mockcloud list says which there are")
        return uuid

    def shown(self, placed: Placed) -> dict[str, Any]:
        """Say how an instance is, by its node and by the registry."""
        nics = []
        for place, each in enumerate(placed.vm.interfaces):
            item = self._registry.item(each.nic.uuid)
            wanted = read(Nic, item["nic"]) if item else each.nic
            said = {"uuid": each.nic.uuid, "index": place, "mac": wanted.mac, "ip": wanted.ip, "mode": wanted.mode, "link": wanted.link}
            nics.append({**said, "vlan": wanted.vlan, "tap": each.tap, "shown": item["shown"]["state"] if item else "gone"})
        node = self._hostname(placed.node)
        return {"uuid": placed.vm.uuid, "name": placed.vm.name, "node": node, "state": placed.vm.state, "pid": placed.vm.pid, "nics": nics}

    # -- from nothing, and back

    def create(self, name: str, node: str, nics: Sequence[Mapping[str, str]], tags: Sequence[str] = ()) -> Placed:
        """Make an instance that is stopped; one that is refused leaves nothing. Raises NicInvalid, HostRefused, Problem."""
        if not NAME.fullmatch(name) or ".." in name:
            raise NicInvalid("INSTANCE", name, "1 to 63 of a-z, 0-9, '.' and '-', with a letter or digit at both ends")
        if len(nics) > MOST_NICS:
            raise NicInvalid("--nic", len(nics), f"at most {MOST_NICS} NICs")
        there = self.find(name) if self._places(name) else None
        if there is not None and (there.vm.state != "making" or there.node != node):
            raise HostRefused(f"there is an instance {name} on {self._hostname(there.node)}", "choose another name, or delete it")
        networks = self._registry.networks()
        bodies = [self._registry.body(each, networks) for each in nics]
        if there is not None:  # a call that was cut off has made NICs, which may be others than these
            self._unmade(there)
        else:
            self._nowhere(take_left(self._cloud, name, BEGIN))
        vm = Vm(vm_uuid(name), name, "making", numbers=len(nics))
        begun = self._keep(node, vm)
        try:
            made = [self._registry.nic(name, number, number, body, tags) for number, body in enumerate(bodies)]
        except Problem:
            self._unmade(begun)
            raise
        return self._keep(node, vm._replace(state="stopped", interfaces=tuple(interface(each, networks) for each in made)))

    def _unmade(self, placed: Placed) -> None:
        """Undo the creation of an instance that has never run. Raises Problem."""
        for number in range(placed.vm.numbers):
            self._registry.gone(f"nics/{nic_uuid(placed.vm.name, number)}")
        self._cloud.vms.forget(placed.node, placed.vm.uuid)

    def delete(self, name: str) -> None:
        """Delete an instance, stopping it first; or what it has left, whose file somebody has removed.

        Raises NicInvalid, HostRefused, Problem, NotShown.
        """
        if not self._places(name, anew=not self._places(name)) and (left := take_left(self._cloud, name, BEGIN)):
            return self._nowhere(left)
        placed = self.find(name)
        if placed.vm.runs:
            placed = self.stop(name)
        self._keep(placed.node, placed.vm._replace(state="deleting"))
        self._ready(placed.node).clean(placed.vm)
        self._after("OP_INSTANCE_REMOVE", placed.vm, placed.node)
        uuids = sorted(placed.vm.nics | {nic_uuid(name, number) for number in range(placed.vm.numbers)})
        for uuid in uuids:
            self._registry.gone(f"nics/{uuid}")
        self._cloud.vms.forget(placed.node, placed.vm.uuid)
        return self._nowhere(uuids)

    # -- running

    def start(self, name: str) -> Placed:
        """Start an instance as the registry wants its NICs now. Raises NicInvalid, HookFailed, HostRefused, NotShown."""
        return self._done(self.starting(name))

    def starting(self, name: str) -> Steps:
        """See ``start``."""
        placed = self._whole(self.find(name))
        if placed.vm.runs:
            self._ready(placed.node)
            return (yield from self._showing(placed))
        wanted = self._registry.anew(placed.vm)
        hypervisor, began = self._ready(placed.node), self._cloud.registry.now
        placed = self._keep(placed.node, hypervisor.start(placed.vm._replace(interfaces=wanted)))
        return (yield from self._showing(placed, began))

    def stop(self, name: str, ifdown: bool = False) -> Placed:
        """Stop an instance. Raises NicInvalid, HookFailed, HostRefused, NotShown."""
        placed = self._whole(self.find(name))
        placed = self._stopped(placed, ifdown)
        self._after("OP_INSTANCE_SHUTDOWN", placed.vm, placed.node)
        return self._shows(placed)

    def reboot(self, name: str) -> Placed:
        """Start an instance again as it was, without what has changed in the registry since. Raises as ``start``."""
        placed = self.find(name)
        if placed.vm.state != "rebooting":  # a call that was killed has stopped it
            placed = self._stopped(self._running(name), then="rebooting")
        began = self._cloud.registry.now
        try:
            placed = self._keep(placed.node, self._ready(placed.node).start(placed.vm))
        except NetcommonError:
            self._keep(placed.node, placed.vm._replace(state="stopped"))
            raise
        self._after("OP_INSTANCE_REBOOT", placed.vm, placed.node)
        return self._shows(placed, began)

    def crash(self, name: str) -> Placed:
        """Let an instance's QEMU be killed. Raises NicInvalid, HostRefused, NotShown."""
        placed = self._running(name)
        return self._shows(self._keep(placed.node, self._ready(placed.node).kill(placed.vm)))

    # -- elsewhere

    def migrate(self, name: str, target: str, fail: bool = False, blind: bool = False) -> Placed:
        """Migrate a running instance to another node, or let that fail at the end; one that is there stays as it is.

        ``blind``: go on, as Ganeti does, though the registry does not show that it is on its way.

        Raises NicInvalid, HookFailed, HostRefused, NotShown.
        """
        return self._done(self.migrating(name, target, fail, blind))

    def migrating(self, name: str, target: str, fail: bool = False, blind: bool = False) -> Steps:
        """See ``migrate``."""
        placed = self._running(name)
        if placed.node == target:
            self._ready(target)
            return (yield from self._showing(placed))
        source, to = self._ready(placed.node, target), self._ready(target)
        began = self._cloud.registry.now
        coming = to.incoming(placed.vm._replace(moves=placed.vm.moves + 1))
        self._cloud.vms.keep(target, coming)
        incoming = [each.nic for each in coming.interfaces if each.nic.mode != "routed"]
        try:
            yield from self._waiting(lambda: self._lack(incoming, target, ("incoming", "running")), blind)
            source.check()
            to.check()
        except NetcommonError:
            self._failed(coming, target, to)
            raise
        if fail:
            self._failed(coming, target, to)
            yield from self._waiting(lambda: self._lack([each.nic for each in coming.interfaces], target, ("", "stopped")))
            return (yield from self._showing(placed))
        left = source.leave(placed.vm)

        def arrived(vm: Vm) -> None:
            self._cloud.vms.keep(target, vm)
            source.clean(left)
            self._cloud.vms.forget(placed.node, placed.vm.uuid)

        here = Placed(target, to.finish(coming, arrived))
        self._after("OP_INSTANCE_MIGRATE", here.vm, placed.node, target)
        yield from self._waiting(lambda: self._lack([each.nic for each in here.vm.interfaces], placed.node, ("", "stopped")))
        return (yield from self._showing(here, began))

    def _failed(self, coming: Vm, target: str, to: Hypervisor) -> None:
        """Let a migration end with the guest where it was."""
        if not to.off:
            to.clean(to.kill(coming))
        self._cloud.vms.forget(target, coming.uuid)

    def failover(self, name: str, target: str, blind: bool = False) -> Placed:
        """Start an instance on another node, after stopping it where it was, unless that node has crashed. ``blind``: as for migrate.

        Raises NicInvalid, HookFailed, HostRefused, NotShown.
        """
        placed = self._whole(self.find(name))
        if placed.node == target:
            return self.start(name)
        nodes = [target]
        if placed.node not in self._cloud.off:
            placed = self._stopped(placed)
            self._until(lambda: self._lack([each.nic for each in placed.vm.interfaces], placed.node, ("", "stopped")), blind)
            nodes.insert(0, placed.node)
        self._cloud.vms.keep(target, placed.vm._replace(moves=placed.vm.moves + 1))
        self._cloud.vms.forget(placed.node, placed.vm.uuid)
        there = self.start(name)
        self._after("OP_INSTANCE_FAILOVER", there.vm, *nodes)
        return self._shows(there)

    # -- its NICs

    def plug(self, name: str, given: Mapping[str, str]) -> Placed:
        """Add a NIC, at once where the instance runs. Raises NicInvalid, HookFailed, HostRefused, Problem, NotShown."""
        said = f"plug {json.dumps(given, sort_keys=True)}"
        placed = self._whole(self.find(name), said)
        if placed.vm.begun is None or placed.vm.begun.nic not in placed.vm.nics:
            placed = self._plugged(placed, given, said)
        self._after("OP_INSTANCE_SET_PARAMS", placed.vm, placed.node)
        return self._ended(placed)

    def _plugged(self, placed: Placed, given: Mapping[str, str], said: str) -> Placed:
        name, number = placed.vm.name, placed.vm.numbers
        if len(placed.vm.interfaces) >= MOST_NICS:
            raise HostRefused(f"{name} has {MOST_NICS} NICs already", "unplug another one first")
        networks = self._registry.networks()
        body = self._registry.body(given, networks)
        for each in range(number):  # what a call that was killed has left
            if (uuid := nic_uuid(name, each)) not in placed.vm.nics and self._registry.item(uuid) is not None:
                self._registry.gone(f"nics/{uuid}")
        tags = placed.vm.interfaces[0].nic.tags if placed.vm.interfaces else ()
        begun = placed.vm._replace(numbers=number + 1, begun=Begun(said, nic_uuid(name, number)))
        placed = self._keep(placed.node, begun)  # before it is there: a deletion finds it
        made = interface(self._registry.nic(name, number, len(placed.vm.interfaces), body, tags), networks)
        try:
            vm = placed.vm._replace(interfaces=(*placed.vm.interfaces, made))
            vm = self._ready(placed.node).plug(placed.vm, made) if placed.vm.runs else vm
        except NetcommonError:
            self._registry.gone(f"nics/{made.nic.uuid}")
            raise
        return self._keep(placed.node, vm)

    def unplug(self, name: str, index: int, ifdown: bool = False) -> Placed:
        """Remove a NIC, at once where the instance runs. Raises NicInvalid, HookFailed, HostRefused, Problem, NotShown."""
        said = f"unplug {index}"
        placed = self._whole(self.find(name), said)
        if placed.vm.runs:
            self._ready(placed.node).by_itself(ifdown)
        uuid = placed.vm.begun.nic if placed.vm.begun is not None else self._at(placed, index).nic.uuid
        placed, failed = self._unplugged(self._keep(placed.node, placed.vm._replace(begun=Begun(said, uuid))), uuid, ifdown)
        if failed is not None:
            self._keep(placed.node, placed.vm._replace(begun=None))
            raise failed
        self._after("OP_INSTANCE_SET_PARAMS", placed.vm, placed.node)
        self._nowhere([uuid])
        return self._ended(placed)

    def _unplugged(self, placed: Placed, uuid: str, ifdown: bool = False) -> tuple[Placed, HookFailed | None]:
        """Do the rest of an unplug, as often as one likes; give the failure of its down, which stops nothing."""
        self._registry.gone(f"nics/{uuid}")
        failed = None
        if uuid in placed.vm.nics:
            kept = [each for each in placed.vm.interfaces if each.nic.uuid != uuid]
            vm = placed.vm._replace(interfaces=tuple(each._replace(nic=each.nic._replace(index=place)) for place, each in enumerate(kept)))
            if placed.vm.runs:
                vm, failed = self._ready(placed.node).unplug(placed.vm, uuid, ifdown)
            placed = self._keep(placed.node, vm)
        for each in placed.vm.interfaces:
            self._registry.patch(each.nic.uuid, {"index": each.nic.index})
        return placed, failed

    def _ended(self, placed: Placed) -> Placed:
        """Return when the registry shows what was begun of a NIC, which is then done."""
        placed = self._shows(placed)
        return self._keep(placed.node, placed.vm._replace(begun=None))

    def update(self, name: str, index: int | None, given: Mapping[str, str], add: Sequence[str] = (), remove: Sequence[str] = ()) -> Placed:
        """Change what is wanted of a NIC, and the tags of all of an instance's NICs. What a guest that runs cannot get it has at its
        next start. Raises NicInvalid, HostRefused, Problem, NotShown.
        """
        placed = self._whole(self.find(name))
        body = self._registry.body(given, self._registry.networks() if given.get("network") else {}, whole=False)
        one = self._at(placed, index).nic.uuid if index is not None else ""
        changed: dict[str, str] = {}
        for each in placed.vm.interfaces:
            wanted = read(Nic, self._registry.there(each.nic.uuid)["nic"])
            tags = [tag for tag in dict.fromkeys((*wanted.tags, *add)) if tag not in remove]
            fields = {**({"tags": tags} if tags != list(wanted.tags) else {}), **(body if each.nic.uuid == one else {})}
            if fields:
                changed[each.nic.uuid] = self._registry.patch(each.nic.uuid, fields)
        return self._applied(placed, changed)

    def change(self, name: str, index: int, options: Mapping[str, str]) -> Placed:
        """Change options of a NIC, at once where it runs; an empty value takes one away.

        Raises NicInvalid, HostRefused, Problem, NotShown.
        """
        placed = self._whole(self.find(name))
        uuid = self._at(placed, index).nic.uuid
        wanted = read(Nic, self._registry.there(uuid)["nic"])
        kept = [write(each) for each in wanted.options if each.name not in options]
        kept += [{"name": option, "value": value, "until": 0.0} for option, value in options.items() if value]
        return self._applied(placed, {uuid: self._registry.patch(uuid, {"options": kept})})

    # -- what tasks share

    def _ready(self, node: str, *others: str) -> Hypervisor:
        """Give the hypervisor of a node whose agent runs, and those of ``others``."""
        self._cloud.ready((node, *others), BEGIN)
        return self._cloud.hypervisors[node]

    def _after(self, code: str, vm: Vm, *nodes: str) -> None:
        """Let Ganeti's hook run on nodes after an operation."""
        for node in nodes:
            self._ready(node).after(code, vm)

    def _stopped(self, placed: Placed, ifdown: bool = False, then: State = "stopped") -> Placed:
        """Let an instance end where it is; ``then``: its state. Raises HookFailed for a down, and it has stopped; HostRefused."""
        vm, failed = self._ready(placed.node).stop(placed.vm, ifdown)
        placed = self._keep(placed.node, vm if failed is not None else vm._replace(state=then))
        if failed is not None:
            raise failed
        return placed

    def _keep(self, node: str, vm: Vm) -> Placed:
        self._cloud.vms.keep(node, vm)
        return Placed(node, vm)

    def _running(self, name: str) -> Placed:
        placed = self._whole(self.find(name))
        if not placed.vm.runs:
            raise HostRefused(f"{name} does not run: it is {placed.vm.state}", "start it first")
        return placed

    def _whole(self, placed: Placed, said: str = "") -> Placed:
        """Give an instance of which nothing is half done, but what was ``said``: a NIC that was half plugged or unplugged goes.

        Raises HostRefused for one that is half made or half deleted.
        """
        if placed.vm.state in ("making", "deleting"):
            done, word = ("made", "create") if placed.vm.state == "making" else ("deleted", "delete")
            raise HostRefused(f"{placed.vm.name} is half {done}", f"{word} it again")
        begun = placed.vm.begun
        if begun is None or begun.said == said:
            return placed
        if begun.said.startswith("unplug ") or begun.nic not in placed.vm.nics:
            placed, _failed = self._unplugged(placed, begun.nic)
        return self._keep(placed.node, placed.vm._replace(begun=None))

    def _at(self, placed: Placed, index: int) -> Interface:
        if not 0 <= index < len(placed.vm.interfaces):
            raise NicInvalid("INDEX", index, f"that of a NIC of {placed.vm.name}, which has {len(placed.vm.interfaces)}")
        return placed.vm.interfaces[index]

    def _hostname(self, node: str) -> str:
        found = sysinfo.read(self._root, node)
        return found.hostname if found is not None else node

    # -- until the registry shows it

    def _nowhere(self, uuids: Sequence[str]) -> None:
        """Return when NICs are nowhere."""
        self._until(lambda: next((f"{uuid} is {state}" for uuid in uuids if (state := self._registry.state(uuid))), ""))

    def _lack(self, nics: Sequence[Nic], node: str, states: Sequence[str]) -> str:
        """Say which NIC a node does not report in one of ``states``, where "" is no report; "" for none."""
        reported = self._registry.reported(node)
        for nic in nics:
            state = reported.get(nic.uuid, {}).get("state", "")
            if state not in states:
                where = f"{nic.instance}/{nic.index} ({nic.uuid}) on {self._hostname(node)}"
                return f"{where} is {state or 'not reported'}, and not {' or '.join(filter(None, states)) or 'gone'}"
        return ""

    def _shows(self, placed: Placed, began: float = 0.0) -> Placed:
        """Return when the registry shows an instance as it is. ``began``: when its NICs began to come up (seconds since the epoch)."""
        return self._done(self._showing(placed, began))

    def _showing(self, placed: Placed, began: float = 0.0) -> Steps:
        nics, states = [each.nic for each in placed.vm.interfaces], ("running",) if placed.vm.runs else ("", "stopped")
        yield from self._waiting(lambda: self._lack(nics, placed.node, states) or self._older(placed, began))
        return placed

    def _older(self, placed: Placed, began: float) -> str:
        """Say which NIC the registry has as it was before; "" for none."""
        reported = self._registry.reported(placed.node) if placed.vm.runs else {}
        for each in placed.vm.interfaces if placed.vm.runs else ():
            report = reported[each.nic.uuid]
            if report["tap"] != each.tap or report["since"] < began:
                return f"{each.nic.instance}/{each.nic.index} has {escaped(report['tap'])} since {report['since']:.3f}, and not {each.tap}"
        return ""

    def _applied(self, placed: Placed, changed: Mapping[str, str]) -> Placed:
        """Return when what was changed of NICs is in force, or pending; raise HostRefused where the node refuses it."""
        if placed.vm.runs and changed:
            self._ready(placed.node)
            self._until(lambda: next(filter(None, (self._not_applied(placed.node, *each) for each in changed.items())), ""))
            for uuid in changed:
                refused = self._registry.reports(uuid)[placed.node]["refused"]
                if refused:
                    raise HostRefused(f"the registry wants it, and {self._hostname(placed.node)} refuses: {refused}", "change it back")
        return placed

    def _not_applied(self, node: str, uuid: str, revision: str) -> str:
        report = self._registry.reports(uuid).get(node)
        if report is None:
            return f"{uuid} is not reported by {self._hostname(node)}"
        done = report["applied"] and int(report["applied"].rpartition(":")[2]) >= int(revision.rpartition(":")[2])
        return "" if done or report["refused"] else f"{uuid} has {report['applied'] or 'nothing'} applied, and not {revision}"

    def _until(self, lack: Callable[[], str], blind: bool = False) -> None:
        """Let time pass until nothing lacks. Raises NotShown, unless it is done ``blind``."""
        self._done(self._waiting(lack, blind))

    def _waiting(self, lack: Callable[[], str], blind: bool = False) -> Generator[None, None, None]:
        end = self._cloud.scheduler.now + self._seconds
        while missing := lack():
            if self._cloud.scheduler.now >= end:
                if blind:
                    return
                raise NotShown(f"after {self._seconds:g} s the registry does not show it: {missing}")
            yield

    def _done(self, steps: Generator[None, None, T]) -> T:
        """Do all of a task, and let time pass whenever it waits."""
        try:
            while True:
                next(steps)
                self._cloud.scheduler.passes(STEP)
        except StopIteration as done:
            found: T = done.value
            return found
