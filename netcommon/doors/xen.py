"""The door of Xen: libxl calls a vif script for each device of a NIC (xl-network-configuration(5), its scripts' vif-common.sh).

    vif-ganeti online|offline type_if=vif    the paravirtual device vif<domid>.<devid>, named in the environment as vif
    vif-ganeti add|remove type_if=tap        QEMU's emulated twin of it, vif<domid>.<devid>-emu, named as INTERFACE

XENBUS_PATH is the device's place in xenstore, .../backend/vif/<domid>/<devid>. After ``online`` libxl waits, at most 40 seconds, for
hotplug-status there: "connected", or "error" with the reason in hotplug-error. What the NIC is stands in the file that Ganeti's Xen
driver writes (runtime.xen). Xenstore is reached by its commands: its protocol has no other stable client.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from netcommon.doors.call import Door, run
from netcommon.lifecycle.node import SHUTDOWN
from runtime import validate, xen
from runtime.environment import DownHint, generated_uuid, nic_from_environment, undescribed
from runtime.errors import OK, HostRefused, NetcommonError, NicInvalid, TryAgain, escaped
from runtime.nic import Nic

UP, DOWN = frozenset({"online", "add"}), frozenset({"offline", "remove"})

#: What xl calls a domain while it is moving in.
INCOMING = "--incoming"

#: Where the commands are if the caller's PATH does not say.
PATH = "/usr/sbin:/usr/bin:/sbin:/bin"


class Xenstore:
    """Xenstore by its commands, found on PATH."""

    def __init__(self, door: Door, environ: Mapping[str, str]) -> None:
        self._door = door
        self._environment = {os.fsencode(name): os.fsencode(value) for name, value in {"PATH": PATH, **environ}.items()}

    def read(self, path: str) -> str:
        """The value at ``path``. Raises HostRefused or TryAgain."""
        return self._run("xenstore-read", path)

    def write(self, *pairs: str) -> None:
        """Writes path, value, path, value, ... in one transaction. Raises HostRefused or TryAgain."""
        self._run("xenstore-write", *pairs)

    def _run(self, *argv: str) -> str:
        from netcommon import runner  # only Xen nodes pay for it

        done = runner.run(argv, self._environment, self._door.settings.service_timeout, 4096, self._door.clock.now)
        said = done.output.decode("utf-8", "surrogateescape").strip()
        if done.timed_out:
            raise TryAgain(f"{argv[0]} {argv[1]} {done.text}")
        if not done.ok:
            raise HostRefused(f"{argv[0]} {argv[1]} {done.text}" + (f": {escaped(said)}" if said else ""))
        return said


class Vif(NamedTuple):
    """One device of a NIC, as libxl names it."""

    device: str
    domain: int
    devid: int
    emulated: bool  #: QEMU's twin of the paravirtual device


def vif_of(action: str, environ: Mapping[str, str], arguments: Sequence[str]) -> Vif:
    """The device that the call is about. Raises NicInvalid."""
    given = dict(environ) | dict(word.split("=", 1) for word in arguments if "=" in word)
    name = given.get("vif") or given.get("dev") or ""
    kind = given.get("type_if") or ("tap" if action in ("add", "remove") else "vif")
    if kind not in ("vif", "tap"):
        raise NicInvalid("type_if", kind, "vif or tap")
    device = (given.get("INTERFACE") or name) if kind == "tap" else name
    if not device:
        raise NicInvalid("vif", "", "the name of the device")
    device = validate.interface(device, "vif")
    numbers = _numbers_of_path(given.get("XENBUS_PATH", "")) or _numbers_of_name(name or device)
    if numbers is None:
        raise NicInvalid("XENBUS_PATH", given.get("XENBUS_PATH", ""), ".../vif/DOMID/DEVID, or a device vifDOMID.DEVID")
    return Vif(device, *numbers, kind == "tap")


def _numbers_of_path(path: str) -> tuple[int, int] | None:
    parts = path.split("/")
    return _numbers(parts[-2], parts[-1]) if len(parts) > 2 and parts[-3] == "vif" else None


def _numbers_of_name(name: str) -> tuple[int, int] | None:
    domain, _dot, devid = name.removeprefix("vif").removesuffix("-emu").partition(".")
    return _numbers(domain, devid) if name.startswith("vif") else None


def _numbers(domain: str, devid: str) -> tuple[int, int] | None:
    good = all(text.isascii() and text.isdigit() and len(text) < 6 for text in (domain, devid))
    return (int(domain), int(devid)) if good else None


def xenbus_path(environ: Mapping[str, str]) -> str:
    """XENBUS_PATH, "" where there is none. Raises NicInvalid for what no command may be given."""
    path = environ.get("XENBUS_PATH", "")
    if path and (path.startswith("-") or not path.isascii() or not path.replace("/", "").replace("_", "").replace("-", "").isalnum()):
        raise NicInvalid("XENBUS_PATH", path, "a path in xenstore")
    return path


def nic_of(door: Door, vif: Vif, name: str, environ: Mapping[str, str]) -> Nic:
    """The NIC of a device, from the file of the domain ``name``. Raises NicInvalid and HostRefused.

    The emulated twin is a NIC of its own, so that each device is undone by itself.
    """
    instance = validate.instance(name.removesuffix(INCOMING), "the domain's name")
    stored = xen.read(door.paths, instance, vif.devid)
    if stored is None:
        raise HostRefused(f"Ganeti has written no file for NIC {vif.devid} of {instance} below {door.paths.xen_run}/nic")
    described = {**undescribed(environ), **stored, "INTERFACE": vif.device}
    if stored.get("MODE") == "bridged":
        described["BRIDGE"] = stored.get("LINK", "")
    nic = nic_from_environment(described)
    return nic._replace(uuid=generated_uuid(instance, nic.index, f"{nic.uuid} emulated"), index=None) if vif.emulated else nic


def vif(door: Door, environ: Mapping[str, str], argv: Sequence[str]) -> int:
    """ACTION and, as libxl says it, type_if=vif or type_if=tap."""
    action = argv[0] if argv else ""
    if action not in UP | DOWN:
        raise NicInvalid("ACTION", action, "one of online, offline, add, remove")
    if action in DOWN:
        return _offline(door, vif_of(action, environ, argv[1:]))
    path = xenbus_path(environ)
    store = Xenstore(door, environ)
    try:
        found = vif_of(action, environ, argv[1:])
        _online(door, found, store, environ)
        if path and not found.emulated:
            store.write(f"{path}/hotplug-status", "connected")
    except Exception as error:
        if path:
            _report(door, store, path, error)
        raise
    return OK


def _online(door: Door, found: Vif, store: Xenstore, environ: Mapping[str, str]) -> None:
    from netcommon.lifecycle.up import up

    node = door.node(strict=True)
    nic = nic_of(door, found, store.read(f"/local/domain/{found.domain}/name"), environ)
    call = door.call(nic=nic)
    if found.emulated and nic.mode == "routed":
        # one address has one route; Xen's own vif-route prefers the paravirtual device too
        call.log.info("left alone: the NIC's address is routed to its paravirtual device")
        return
    call.log.info(up(node, nic, call).text)


def _offline(door: Door, found: Vif) -> int:
    """By the device alone, whose name nothing else has had since the boot; Ganeti's file may be gone. libxl's word is final."""
    from netcommon.lifecycle.down import down

    node = door.node(strict=False)
    record = node.store.by_device(found.device)
    call = door.call(SHUTDOWN, nic=record.nic if record else None, final=True)
    call.log.info(down(node, DownHint(record.uuid if record else "", found.device), call).text)
    return OK


def _report(door: Door, store: Xenstore, path: str, error: BaseException) -> None:
    """Tells libxl, which would otherwise wait for its time limit."""
    text = str(error) or type(error).__name__
    try:
        store.write(f"{path}/hotplug-error", text[:1000], f"{path}/hotplug-status", "error")
    except NetcommonError as second:
        door.log.warning(f"xenstore was not told: {second}")


def main() -> None:
    """hooks/vif-ganeti."""
    run("vif-ganeti", vif)
