"""Do to a simulated node what Ganeti and QEMU do to a real one: files, processes, taps, and the calls of hooks.

How Ganeti does it: lib/hypervisor/hv_kvm/__init__.py, _ExecuteKVMRuntime, FinalizeMigrationDst, CleanupInstance. 3.0 calls nothing on the
way down, nor on the source of a migration: the agent sees that taps go. What 3.2 does is in mockcloud.ganeti.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

from mockcloud import ganeti, stored
from mockcloud.hardware import add
from mockcloud.stored import Interface
from mockcloud.sysinfo import NEW, OLD
from mockcloud.unread import processes, unread
from mockcloud.variables import variables
from netcommon.host.simulated.host import MemoryHost
from runtime.errors import HostRefused, NetcommonError
from runtime.folder import Folder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from mockcloud.hardware import External
    from mockcloud.node import MockNode
    from mockcloud.stored import Vm
    from netcommon.host.api.facts import Link

QEMU = "/usr/bin/qemu-system-x86_64"
FIRST = 10  #: the descriptor of the first tap
DAEMON = 2000  #: the process of ganeti-noded, which calls the hooks
PATH = "/usr/sbin:/usr/bin:/sbin:/bin"
NOTHING: Mapping[str, str] = MappingProxyType({})
FOLDERS = ("conf", "pid", "nic", "ctrl")


class HookFailed(NetcommonError):
    """A hook has ended with an error, and what was begun is undone. ``status``: the hook's."""

    def __init__(self, name: str, status: int, text: str) -> None:
        super().__init__(f"{name} has ended with {status}: {text.strip().removeprefix('netcommon: error: ')}")
        self.status = status


class NodeOff(HostRefused):
    """A node has crashed, and nothing can be done on it."""

    def __init__(self, name: str) -> None:
        super().__init__(f"{name} has crashed", "it has to boot first")


class Hypervisor:
    """Ganeti's node daemon and the QEMUs of one node. ``root``, ``folder``: of the cloud, and the node's UUID.

    ``version``: one of mockcloud.sysinfo.VERSIONS; ``hooked``: Ganeti's own hook is installed; ``off``: the node has crashed, and
    everything is refused.
    """

    def __init__(self, node: MockNode, root: str, folder: str, version: str = OLD, hooked: bool = False) -> None:
        self._machine, self._root, self._folder, self.off = node, root, folder, False
        self._version, self._hooked = version, hooked
        self._run, self._proc = node.paths.kvm_run, node.paths.proc
        self.counters = stored.counters(root, folder)

    @property
    def _node(self) -> MockNode:
        """The node. Raises NodeOff."""
        self.check()
        return self._machine

    def prepare(self) -> None:
        """Make the folders that are there once Ganeti is installed. Raises HostRefused."""
        for name in FOLDERS:
            with Folder.make(f"{self._run}/{name}"):
                pass
        with Folder.make(f"{self._proc}/self/ns") as folder:
            if not folder.exists("net"):
                folder.write("net", b"")

    # -- NICs of the node's own

    def attach(self, made: External) -> None:
        """Give the node a NIC of its own. Raises HostRefused."""
        host = self._node.machine
        if isinstance(host, MemoryHost):
            add(host, made.name, made.own)
        else:
            from mockcloud.namespace.building import add_own  # few nodes are so deep: it is slow to load

            add_own(host, made.name, made.own)

    def detach(self, name: str) -> None:
        """Take it away."""
        host = self._node.machine
        if isinstance(host, MemoryHost):
            host.remove_link(name)
        else:
            from mockcloud.namespace.building import remove

            remove(host, name)

    # -- one guest

    def start(self, vm: Vm) -> Vm:
        """Start a guest; give it as it runs. Raises HookFailed, after which it does not, HostRefused."""
        self.check()
        self._write_runtime(vm)
        return self._begin(vm, vm.interfaces, "running")

    def incoming(self, vm: Vm) -> Vm:
        """Start the QEMU that a guest migrates to: routed NICs have no up before it is here. Raises HookFailed, HostRefused."""
        return self._begin(vm, [each for each in vm.interfaces if each.nic.mode != "routed"], "incoming")

    def finish(self, vm: Vm, arrived: Callable[[Vm], object]) -> Vm:
        """Let a guest be here that was on its way; ``arrived`` is told. Raises HookFailed, and it is here all the same; HostRefused."""
        self.check()
        self._write_runtime(vm)
        failed, here = None, list[Interface]()
        for each in vm.interfaces:
            try:
                if each.nic.mode == "routed":
                    self._up(each, "post")
                here.append(each)
            except HookFailed as error:
                failed = error
                here.append(each._replace(unset=True))
        vm = vm._replace(state="running", interfaces=tuple(here))
        arrived(vm)
        if failed is not None:
            raise failed
        return vm

    def _begin(self, vm: Vm, up: Sequence[Interface], state: stored.State) -> Vm:
        vm = self._with_taps(vm)._replace(migrated=state == "incoming")
        names = {each.nic.uuid for each in up}
        try:
            for each in vm.interfaces:
                self._write_nic_file(vm, each)
                if each.nic.uuid in names:
                    self._up(each)
        except NetcommonError:
            self._let_go(vm.interfaces)
            raise
        self._write_process(vm)
        with Folder.make(f"{self._run}/pid") as folder:
            folder.write(vm.name, b"%d\n" % vm.pid, 0o644)
        return vm._replace(state=state)

    def kill(self, vm: Vm) -> Vm:
        """End QEMU, however; Ganeti's files stay. Raises NodeOff."""
        self.check()
        self._forget_process(vm.pid)
        self._let_go(vm.interfaces)
        return vm.crashed()

    def stop(self, vm: Vm, ifdown: bool = False) -> tuple[Vm, HookFailed | None]:
        """Let a guest end, if it runs, and clean up after it; give it as it is then, and the last failure of a down, which stops nothing.

        ``ifdown``: kvm-ifdown is called for each NIC (doc/design-ifdown.rst). Raises HostRefused.
        """
        self.by_itself(ifdown)
        before, failed = vm, None
        if vm.runs:
            failed = self._down(before)
            vm = self.kill(vm)
            failed = self._down(before) or failed
        for each in before.interfaces if ifdown and before.runs else ():
            try:
                self.hook("kvm-ifdown", each, "true")
            except HookFailed as error:
                failed = error
        self.clean(vm)
        return vm._replace(state="stopped"), failed

    def end(self, vm: Vm) -> None:
        """End the guest of an instance that has no file any more, and clean up after it. Raises NodeOff."""
        for pid, taps in processes(self._proc, {vm.uuid}).items():
            self._forget_process(pid)
            for tap in taps:
                self._node.machine.let_go(tap)
        self.clean(vm)

    def leave(self, vm: Vm) -> Vm:
        """End the QEMU of a guest that has migrated away. A down that fails is Ganeti's to say, and stops nothing."""
        self._down(vm)
        return self.kill(vm)

    def clean(self, vm: Vm) -> None:
        """Remove Ganeti's files of a guest that does not run here. Raises NodeOff."""
        self.check()
        for name in ("conf", "pid"):
            with Folder.make(f"{self._run}/{name}") as folder:
                folder.remove(vm.name if name == "pid" else f"{vm.name}.runtime")
        shutil.rmtree(f"{self._run}/nic/{vm.name}", ignore_errors=True)
        self._forget_process(vm.pid)

    # -- hotplug

    def plug(self, vm: Vm, interface: Interface) -> Vm:
        """Add a NIC to a guest that runs. Raises HookFailed, after which it has none."""
        made = self._tap(interface._replace(plugged=True), vm.pid)
        after = vm._replace(interfaces=(*vm.interfaces, made))
        try:
            self._write_nic_file(after, made)
            self._up(made)
        except NetcommonError:
            self._let_go([made])
            raise
        self._write_descriptors(after)
        self._write_runtime(after)
        return after

    def unplug(self, vm: Vm, uuid: str, ifdown: bool = False) -> tuple[Vm, HookFailed | None]:
        """Take a NIC from a guest that runs; give it as it is then, and the failure of its down, which stops nothing.

        Those behind it move up in Ganeti's list. Raises HostRefused.
        """
        self.by_itself(ifdown)
        gone = next(each for each in vm.interfaces if each.nic.uuid == uuid)
        kept = (each for each in vm.interfaces if each is not gone)
        after = vm._replace(interfaces=tuple(each._replace(nic=each.nic._replace(index=place)) for place, each in enumerate(kept)))
        self._let_go([gone])
        self._write_descriptors(after)
        self._write_runtime(after)
        with Folder.make(f"{self._run}/nic/{vm.name}") as folder:
            folder.remove(str(gone.nic.index))
        try:
            if ifdown:
                self.hook("kvm-ifdown", gone, "false")
        except HookFailed as error:
            return after, error
        return after, None

    # -- another process goes on with the node

    def resume(self, vms: Iterable[Vm]) -> None:
        """Let the guests of a node be there again, with their processes and taps, as they were when another process ended.

        A guest whose file somebody has edited is left alone: it has its process and its taps, and its agent goes on with them.

        Raises HostRefused where one has the device or the process of another: somebody has edited its file.
        """
        running = [vm for vm in vms if vm.runs]
        self._distinct(running)
        pids = {vm.pid for vm in running}
        others = {pid: taps for pid, taps in unread(self._root, self._folder, self._proc).items() if pid not in pids}
        for name in os.listdir(self._proc):  # of processes that the other one was in the middle of starting or ending
            if name.isdigit() and int(name) not in others:
                self._forget_process(int(name))
        with self._node.unheard():
            for vm in running:
                for each in vm.interfaces:
                    self._node.machine.add_tap(each.tap, vm.pid, index=each.device)
                self._write_process(vm)
            if others:
                self._leave_alone(others)
            self._node.resume()

    def _leave_alone(self, others: Mapping[int, Sequence[str]]) -> None:
        """Let processes have their taps, under the indices that the records of NICs name."""
        known = self._node.devices()
        for pid, taps in others.items():
            for tap in taps:
                with self._node.inside:
                    links = self._node.machine.view().links()
                if all(link.name != tap for link in links):
                    index = known.get(tap, 0)
                    if not index or any(link.index == index for link in links):
                        index = self._index(links)
                    self._node.machine.add_tap(tap, pid, index=index)

    def _distinct(self, running: Iterable[Vm]) -> None:
        with self._node.inside:
            links = self._node.machine.view().links()
        taken: set[str | int] = {*(link.name for link in links), *(link.index for link in links)}
        processes = set[int]()
        for vm in running:
            devices: set[str | int] = {*(each.tap for each in vm.interfaces), *(each.device for each in vm.interfaces)}
            if twice := [str(each) for each in (*sorted(devices & taken, key=str), *({vm.pid} & processes))]:
                raise HostRefused(f"{vm.name} has the device or process of another: {', '.join(twice)}", "put its file back, or remove it")
            taken |= devices
            processes.add(vm.pid)

    # -- taps and calls

    def check(self) -> None:
        """Raise NodeOff where the node has crashed."""
        if self.off:
            raise NodeOff(self._machine.name)

    def _with_taps(self, vm: Vm) -> Vm:
        pid = self.counters.pid
        self._count(pid=pid + 1)
        made: list[Interface] = []
        for each in vm.interfaces:
            made.append(self._tap(each._replace(plugged=False, unset=False), pid))
        return vm._replace(pid=pid, boot=self.counters.boot, interfaces=tuple(made))

    def _tap(self, interface: Interface, pid: int) -> Interface:
        """Open a tap, of the first name that is free and of an index that none had in this boot."""
        with self._node.inside:
            links = self._node.machine.view().links()
        index = self._index(links)
        taken = {link.name for link in links}
        name = next(name for number in range(len(taken) + 1) if (name := f"tap{number}") not in taken)
        self._node.machine.add_tap(name, pid, index=index)
        return interface._replace(tap=name, device=index)

    def _index(self, links: Iterable[Link]) -> int:
        index = max(self.counters.device, max(link.index for link in links) + 1)
        self._count(device=index + 1)
        return index

    def _count(self, **numbers: int) -> None:
        self.counters = self.counters._replace(**numbers)
        stored.count(self._root, self._folder, self.counters)

    def _let_go(self, interfaces: Iterable[Interface]) -> None:
        for each in interfaces:
            with self._node.inside:
                link = self._node.machine.view().link(each.tap) if each.tap else None
            if link is not None and link.index == each.device:
                self._node.machine.let_go(each.tap)

    def by_itself(self, ifdown: bool) -> None:
        """Raise HostRefused where kvm-ifdown is to be called, and this Ganeti knows none."""
        if ifdown and self._version != OLD:
            text = f"{self._version} on {self._node.name} calls kvm-nic-setup, and no kvm-ifdown"
            raise HostRefused(text, f"leave --ifdown out, or take a node of {OLD}")

    def _up(self, interface: Interface, phase: str = "") -> None:
        name, word, more = ganeti.up(self._version, interface, phase)
        self.hook(name, interface, word=word, more=more)

    def _down(self, vm: Vm) -> HookFailed | None:
        """Call what Ganeti 3.2 calls for each NIC of a guest that ends; give the last failure."""
        failed = None
        for each in vm.interfaces if self._version == NEW else ():
            name, word, more = ganeti.down(each)
            try:
                self.hook(name, each, word=word, more=more)
            except HookFailed as error:
                failed = error
        return failed

    def after(self, code: str, vm: Vm) -> None:
        """Let Ganeti's own hook be called after an operation, where it is installed. What it says goes into the log: it fails nothing."""
        if self._hooked:
            self._node.after(ganeti.operation(code, vm), DAEMON)

    def hook(self, name: str, interface: Interface, *words: str, word: str = "", more: Mapping[str, str] = NOTHING) -> None:
        """Call a hook as Ganeti does. ``word``: its first argument, if it is not the tap. Raises HookFailed."""
        environ = variables(interface.nic, interface.network, interface.tap)
        environ.setdefault("VLAN", "")
        if interface.nic.mode == "bridged":
            environ["BRIDGE"] = interface.nic.link
        if name == "kvm-ifdown":  # it is no NIC of the configuration any more
            environ.pop("TAGS", None)
        status, text = self._node.hook(name, DAEMON, (word or interface.tap, *words), {"PATH": PATH, **environ, **more})
        if status:
            raise HookFailed(f"{name} of {interface.nic.label} on {self._node.name}", status, text)

    # -- files

    def _write_runtime(self, vm: Vm) -> None:
        """Write conf/NAME.runtime (_SaveKVMRuntime): the command without NICs, NICs, parameters, disks."""
        nics = []
        for each in vm.interfaces:
            params = {"link": each.nic.link, "mode": each.nic.mode, "vlan": each.nic.vlan}
            nic: dict[str, object] = {"mac": each.nic.mac, "uuid": each.nic.uuid, "nicparams": params}
            nic["hvinfo"] = {"driver": "virtio-net-pci", "id": _id(each), "bus": "pci.0", "addr": "0x5"}
            nic |= {"ip": each.nic.ip} if each.nic.ip else {}
            nic |= {"name": each.nic.name} if each.nic.name else {}
            if each.network is not None:
                one = each.network
                said = {"name": one.name, "uuid": one.uuid, "network": one.subnet, "gateway": one.gateway, "network6": one.subnet6}
                said |= {"gateway6": one.gateway6, "mac_prefix": one.mac_prefix}
                nic |= {"network": one.uuid, "netinfo": {**{name: text for name, text in said.items() if text}, "tags": list(one.tags)}}
            nics.append(nic)
        with Folder.make(f"{self._run}/conf") as folder:
            folder.write(f"{vm.name}.runtime", json.dumps([_command(vm), nics, {}, []]).encode("ascii"))

    def _write_nic_file(self, vm: Vm, interface: Interface) -> None:
        with Folder.make(f"{self._run}/nic/{vm.name}") as folder:
            folder.write(str(interface.nic.index), interface.tap.encode())

    def _write_process(self, vm: Vm) -> None:
        words = _command(vm)
        for number, each in enumerate(each for each in vm.interfaces if not each.plugged):
            words += ["-netdev", f"type=tap,id={_id(each)},fd={FIRST + number}"]
            words += ["-device", f"virtio-net-pci,id={_id(each)},netdev={_id(each)},mac={each.nic.mac}"]
        words += ["-incoming", "tcp:0.0.0.0:8102"] if vm.migrated else []
        self._forget_process(vm.pid)
        with Folder.make(f"{self._proc}/{vm.pid}/ns") as folder:
            os.link(f"{self._proc}/self/ns/net", f"{folder.path}/net")
        with Folder.make(f"{self._proc}/{vm.pid}") as folder:
            folder.write("cmdline", "\0".join((*words, "")).encode(), 0o644)
        self._write_descriptors(vm)

    def _write_descriptors(self, vm: Vm) -> None:
        with Folder.make(f"{self._proc}/{vm.pid}/fdinfo") as folder:
            for name in folder.names():
                folder.remove(name)
            for number, each in enumerate(sorted(vm.interfaces, key=lambda each: each.plugged)):
                folder.write(str(FIRST + number), f"pos:\t0\nflags:\t0104002\niff:\t{each.tap}\n".encode(), 0o644)

    def _forget_process(self, pid: int) -> None:
        if pid:
            shutil.rmtree(f"{self._proc}/{pid}", ignore_errors=True)


def _id(interface: Interface) -> str:
    return f"nic-{interface.nic.uuid[:18]}"


def _command(vm: Vm) -> list[str]:
    return [QEMU, "-name", vm.name, "-m", "128", "-daemonize", "-uuid", vm.uuid]
