"""The door of Xen: libxl calls a vif script for each device of a NIC (xl-network-configuration(5); libxl's libxl_linux.c).

    vif-ganeti online|offline type_if=vif    the paravirtual device vif<domid>.<devid>, in the environment as vif
    vif-ganeti add|remove type_if=tap        QEMU's emulated twin of it, vif<domid>.<devid>-emu, in the environment as INTERFACE

For an HVM domain it makes both calls, first vif, then tap, and gives both names each time. XENBUS_PATH is the device's place in
xenstore, backend/vif/<domid>/<devid>. It waits at most 40 seconds for the script to end; on failure it shows what is in hotplug-error
there. The kernel's netback lets the guest connect once hotplug-status is "connected". What the NIC is stands in the file that Ganeti's
Xen driver writes (runtime.xen). See docs/xen.md.
"""

from __future__ import annotations

import os
import sys

from netcommon.doors.call import end_due, run
from netcommon.doors.xenstore import Xenstore
from netcommon.lifecycle.context import POST, SHUTDOWN
from netcommon.scripts import site as custom
from runtime import validate, xen
from runtime.environment import DownHint, emulated_uuid, nic_from_environment, undescribed
from runtime.errors import OK, HostRefused, Interrupted, NetcommonError, NicInvalid
from runtime.typed import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import NoReturn

    from netcommon.doors.call import Door
    from runtime.nic import Nic

UP, DOWN = frozenset({"online", "add"}), frozenset({"offline", "remove"})

#: The actions of each kind of device; another pair means nothing to do, as in vif-common.sh.
ACTIONS = {"vif": frozenset({"online", "offline"}), "tap": frozenset({"add", "remove"})}

#: What xl adds to the name of a domain while it moves in, and libxl to the guest's name for its stub domain.
INCOMING, STUB = "--incoming", "-dm"

#: Of the emulated twin's device.
EMULATED = "-emu"

#: Set for vif-custom to the device it is called for: called by it, we do the built-in part and do not call it again.
CUSTOM = "NETCOMMON_VIF_CUSTOM"

#: How much of a failure is told (characters): with the paths around it, it fits into one message of xenstore's protocol.
TOLD = 1000


class Vif(NamedTuple):
    """One device of a NIC, as libxl names it."""

    device: str
    domain: int
    devid: int
    emulated: bool  #: QEMU's twin of the paravirtual device
    path: str  #: of the paravirtual device in xenstore, where libxl looks for the outcome of both calls


def vif_of(kind: str, given: Mapping[str, str]) -> Vif:
    """The device that the call is about; ``kind`` is vif or tap. Raises NicInvalid."""
    variable = "INTERFACE" if kind == "tap" else "vif"
    device = given.get(variable, "")
    if not device:
        raise NicInvalid(variable, "", "the name of the device")
    validate.interface(device, variable)
    path = xenbus_path(given)
    named, placed = _numbers_of_name(device), _numbers_of_path(path)
    numbers = placed or named
    if numbers is None or (named or numbers) != numbers:
        raise NicInvalid("XENBUS_PATH", path, f".../vif/DOMID/DEVID of the device {device}")
    return Vif(device, *numbers, kind == "tap", path or f"backend/vif/{numbers[0]}/{numbers[1]}")


def _numbers_of_path(path: str) -> tuple[int, int] | None:
    parts = path.split("/")
    return _numbers(parts[-2], parts[-1]) if len(parts) > 2 and parts[-3] == "vif" else None


def _numbers_of_name(name: str) -> tuple[int, int] | None:
    domain, _dot, devid = name.removeprefix("vif").removesuffix(EMULATED).partition(".")
    return _numbers(domain, devid) if name.startswith("vif") else None


def _numbers(domain: str, devid: str) -> tuple[int, int] | None:
    good = all(text.isascii() and text.isdigit() and len(text) < 6 for text in (domain, devid))
    return (int(domain), int(devid)) if good else None


def xenbus_path(given: Mapping[str, str]) -> str:
    """XENBUS_PATH, "" where there is none. Raises NicInvalid for what no command may be given."""
    path = given.get("XENBUS_PATH", "")
    if path and (path.startswith("-") or not path.isascii() or not path.replace("/", "").replace("_", "").replace("-", "").isalnum()):
        raise NicInvalid("XENBUS_PATH", path, "a path in xenstore")
    return path


class Domain(NamedTuple):
    """Whose device it is."""

    instance: str
    stub: bool = False  #: it is the domain in which the QEMU of the instance runs
    arriving: bool = False  #: it comes from another node, where it does not run any more


def domain_of(store: Xenstore, number: int) -> Domain:
    """What xenstore says of the domain ``number``. Raises NicInvalid, HostRefused and TryAgain."""
    name, stub = store.read(f"/local/domain/{number}/name"), False
    if name.endswith(STUB):
        target = store.value(f"/local/domain/{number}/target")  # an instance may be called web-dm too, but it has no target
        if target.isascii() and target.isdigit():
            name, stub = store.read(f"/local/domain/{int(target)}/name"), True
    return Domain(validate.instance(name.removesuffix(INCOMING), "the domain's name"), stub, name.endswith(INCOMING))


def nic_of(door: Door, vif: Vif, domain: Domain, store: Xenstore, environ: Mapping[str, str]) -> Nic:
    """The NIC of a device, from the file that Ganeti has written. Raises NicInvalid, HostRefused and TryAgain.

    One NIC of an HVM domain has two devices, each with a record of its own, so that each is undone by itself: the twin's UUID is made
    from the NIC's, and it takes no part in "which record is NIC 0".
    """
    file = f"{door.paths.xen_run}/nic/{domain.instance}/{vif.devid}"
    stored = xen.read(door.paths, domain.instance, vif.devid)
    if stored is None:
        raise HostRefused(f"Ganeti has written no file {file}: it does so when it starts an instance, and not for a live migration")
    mac = store.value(f"{vif.path}/mac").lower()
    if not mac:
        raise HostRefused(f"xenstore has no device at {vif.path}")
    if not domain.stub and mac != stored.get("MAC", "").lower():
        raise HostRefused(f"{file} is about another NIC: it says MAC {stored.get('MAC', '')}, and {vif.device} has {mac}")
    described = {**undescribed(environ), **stored, "INTERFACE": vif.device, "XENBUS_PATH": vif.path}
    if stored.get("MODE") == "bridged":
        described["BRIDGE"] = stored.get("LINK", "")
    nic = nic_from_environment(described)
    if not (vif.emulated or domain.stub):
        return nic
    return nic._replace(uuid=emulated_uuid(domain.instance, nic.index, nic.uuid), index=None)


def vif(door: Door, environ: Mapping[str, str], argv: Sequence[str]) -> int:
    """ACTION and, as libxl says it, type_if=vif or type_if=tap. Words with "=" are variables that count before the environment's."""
    given = {**environ, **dict(word.split("=", 1) for word in argv if "=" in word)}
    action = next((word for word in argv if "=" not in word), "")
    script = _site_script(door, given)
    try:
        called = _called_for(action, given)
    except NicInvalid:
        if script is None:
            raise
        called = None  # it is the script's to say
    if called and action in DOWN:
        _offline(door, called)
    if script is not None:
        return _hand_over(door, script, called if action in UP else None, {**environ, CUSTOM: _guard(given)}, argv)
    if called and action in UP:
        _online(door, called, environ)
    return OK


def _called_for(action: str, given: Mapping[str, str]) -> Vif | None:
    """The device; None where the call asks for nothing, as udev's rules of old made them. Raises NicInvalid."""
    kind = given.get("type_if") or "vif"
    if kind not in ACTIONS:
        raise NicInvalid("type_if", kind, "vif or tap")
    if action not in UP | DOWN:
        raise NicInvalid("ACTION", action, "one of online, offline, add, remove")
    return vif_of(kind, given) if action in ACTIONS[kind] else None


def _online(door: Door, found: Vif, environ: Mapping[str, str]) -> None:
    from netcommon.lifecycle.up import up

    store = Xenstore(door, environ)
    try:
        node = door.node(strict=True)
        domain = domain_of(store, found.domain)
        nic = nic_of(door, found, domain, store, environ)
        call = door.call(phase=POST if domain.arriving else "", nic=nic)
        if nic.mode == "routed" and (found.emulated or domain.stub):
            # one address has one route of ours; the paravirtual device has it
            call.log.warning("left alone: the address is routed to the paravirtual device, so a guest without its driver is not reached")
        else:
            call.log.info(up(node, nic, call).text)
        if not found.emulated:
            store.write(f"{found.path}/hotplug-status", "connected")
    except (Exception, Interrupted) as error:
        _report(door, store, found.path, error)
        raise
    end_due(node, call)  # of other NICs: libxl has its answer


def _offline(door: Door, found: Vif) -> None:
    """By the device alone, whose name nothing else has had since the boot; Ganeti's file may be gone. libxl's word is final.

    What cannot be undone stays on its record, for gc, and is no failure: libxl would leave a detached device in xenstore for ever.
    """
    from netcommon.lifecycle.down import down

    try:
        node = door.node(strict=False)
        record = node.store.by_device(found.device)
        call = door.call(SHUTDOWN, nic=record.nic if record else None, final=True)
        call.log.info(down(node, DownHint(record.uuid if record else "", found.device), call).text)
    except (NetcommonError, Interrupted) as error:
        door.log.error(f"{error}; what is left is on record, for gc")


def _report(door: Door, store: Xenstore, path: str, error: BaseException) -> None:
    """Tells libxl why, as vif-common.sh's "fatal" does."""
    text = str(error) or type(error).__name__
    try:
        there = bool(store.value(f"{path}/mac"))
    except NetcommonError:
        there = True  # nobody knows
    if not there:
        door.log.warning(f"xenstore was not told: it has no device at {path}")  # writing there would make a piece of one
        return
    try:
        store.write(f"{path}/hotplug-error", text[:TOLD], f"{path}/hotplug-status", "error")
    except NetcommonError as second:
        door.log.warning(f"xenstore was not told: {second}")


def _guard(given: Mapping[str, str]) -> str:
    return given.get("vif") or given.get("INTERFACE") or "-"


def _site_script(door: Door, given: Mapping[str, str]) -> custom.Script | None:
    """The site's vif-custom, which Ganeti's own vif-ganeti becomes whenever there is one; None where it has called us itself."""
    if given.get(CUSTOM) == _guard(given):
        return None
    return next(custom.named(f"{door.paths.xen_etc}/scripts/vif-custom", custom.HOOKS), None)


def _hand_over(door: Door, script: custom.Script, up: Vif | None, environ: Mapping[str, str], argv: Sequence[str]) -> int:
    """Becomes the site's script, with the arguments and the environment that we were called with.

    Where that cannot be: raises HostRefused, and tells libxl, if ``up`` names a device; at a down it is only logged.
    """
    try:
        if script.problem:
            raise HostRefused(f"{script.path} is not run: {script.problem}")
        door.log.info(f"{script.path} takes over")
        become(script.path, argv, environ)
    except HostRefused as error:
        if up is None:
            door.log.error(str(error))
            return OK
        _report(door, Xenstore(door, environ), up.path, error)
        raise


def become(program: str, argv: Sequence[str], environ: Mapping[str, str]) -> NoReturn:
    """Replaces this process, whose timer would end the other program: that one's time limit is libxl's. Raises HostRefused."""
    import signal

    signal.setitimer(signal.ITIMER_REAL, 0)
    for number in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores them, and what is ignored stays so: execve(2)
        signal.signal(number, signal.SIG_DFL)
    try:
        os.execve(program, [program, *argv], dict(environ))  # noqa: S606  no shell
    except OSError as error:
        raise HostRefused(f"{program}: {error.strerror}") from None


def main() -> None:
    """hooks/vif-ganeti."""
    run("vif-ganeti", vif, leaving=not DOWN.isdisjoint(sys.argv[1:]))
