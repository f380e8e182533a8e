"""Which NIC a down call means. A wrong guess is worse than no action: whatever contradicts a candidate rules it out.

1. By UUID, where one is given: no other NIC's record is ever taken then, whatever the device is called (Ganeti 3.2 passes NICs with
   other NICs' taps). The device only chooses between the records of one NIC that has come up twice.
2. By device name, unless the record's instance or MAC differs from what the call says.
3. By instance and index, only if Ganeti's runtime file gives the record's UUID for that index: indices shift.
4. Otherwise the NIC may have been brought up before we were installed: Ganeti's own files then give a candidate without a record,
   which the caller must check against the kernel (the tap's MAC, the process that holds it) before it touches anything.
"""

from __future__ import annotations

from runtime import ganeti
from runtime.environment import nic_from_environment
from runtime.errors import NicInvalid, escaped
from runtime.typed import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from runtime.environment import DownHint
    from runtime.nic import Nic
    from runtime.paths import Paths
    from runtime.record import Record
    from runtime.store import Store

UUID, DEVICE, INDEX, GANETI, NOTHING = "uuid", "device", "index", "ganeti", "nothing"


class Found(NamedTuple):
    """The record, or the NIC that has none but is in Ganeti's files; neither where the call names no NIC that we know."""

    record: Record | None
    nic: Nic | None
    how: str  #: one of UUID, DEVICE, INDEX, GANETI, NOTHING
    notes: list[str]  #: what was considered and why it was not taken, one line each


def find(store: Store, paths: Paths, hint: DownHint) -> Found:
    """The NIC that ``hint`` means. Reads only. Raises RecordTooNew, and HostRefused where our files cannot be read."""
    notes = list(hint.complaints)
    if hint.uuid:
        record = _by_uuid(store, hint, notes)
        if record is not None:
            return Found(record, None, UUID, notes)
        notes.append(f"no record of NIC {hint.uuid}")
    else:
        record = _without_uuid(store, paths, hint, notes)
        if record is not None:
            how = DEVICE if record.device == hint.device else INDEX
            return Found(record, None, UUID if record.uuid == hint.generated else how, notes)
    nic = _from_ganeti(paths, hint, notes)
    if nic is None:
        return Found(None, None, NOTHING, notes)
    if store.exists(nic.uuid):
        # it has a record, and what the call says was against it above
        notes.append(f"Ganeti's files say NIC {nic.uuid}, but its record says otherwise: left alone")
        return Found(None, None, NOTHING, notes)
    on_device = store.by_device(nic.interface)
    if on_device is not None:
        notes.append(f"Ganeti's files say NIC {nic.uuid} on {nic.interface}, which is NIC {on_device.uuid} by its record: left alone")
        return Found(None, None, NOTHING, notes)
    return Found(None, nic, GANETI, notes)


def _by_uuid(store: Store, hint: DownHint, notes: list[str]) -> Record | None:
    record = store.read(hint.uuid)
    if not hint.device or (record is not None and record.device == hint.device):
        return record
    on_device = store.by_device(hint.device)
    if on_device is not None and on_device.uuid == hint.uuid:
        return on_device  # came up elsewhere since; this is the earlier one
    if record is not None:
        notes.append(f"NIC {hint.uuid} is on {escaped(record.device)}, not on {escaped(hint.device)} as the call says: the UUID counts")
    elif on_device is not None:
        notes.append(f"{escaped(hint.device)} is now NIC {on_device.uuid} ({on_device.nic.label}): left alone")
    return record


def _without_uuid(store: Store, paths: Paths, hint: DownHint, notes: list[str]) -> Record | None:
    if hint.generated:
        record = store.read(hint.generated)
        if record is not None and _fits(record, hint, notes):
            return record
    if hint.device:
        record = store.by_device(hint.device)
        if record is not None and _fits(record, hint, notes):
            return record
    if not hint.instance or hint.index is None:
        return None
    record = store.by_instance(hint.instance, hint.index)
    if record is None or not _fits(record, hint, notes):
        return None
    runtime = ganeti.read_runtime(paths, hint.instance)
    now = runtime.uuid_at(hint.index) if runtime is not None else ""
    if now != record.uuid:
        notes.append(
            f"index {hint.index} of {escaped(hint.instance)} was NIC {record.uuid}, Ganeti now has {now or 'none'} there: left alone"
        )
        return None
    return record


def _fits(record: Record, hint: DownHint, notes: list[str]) -> bool:
    """Does nothing that the call says contradict the record?"""
    said = (("device", hint.device, record.device), ("instance", hint.instance, record.nic.instance), ("MAC", hint.mac, record.nic.mac))
    for what, given, known in said:
        if given and known and given != known:
            notes.append(f"NIC {record.uuid} ({record.nic.label}) has {what} {escaped(known)}, the call says {escaped(given)}: not it")
            return False
    return True


def _from_ganeti(paths: Paths, hint: DownHint, notes: list[str]) -> Nic | None:
    instance = hint.instance or _instance_of(paths, hint.device, notes)
    runtime = ganeti.read_runtime(paths, instance) if instance else None
    if runtime is None:
        return None
    notes += runtime.problems
    files = ganeti.nic_files(paths, instance)
    if hint.uuid:
        found = runtime.by_uuid(hint.uuid)
        # an index file may be another NIC's: without a file of its own, only the call itself says the device
        device = files.get(hint.uuid, hint.device)
        if hint.device and device != hint.device:
            notes.append(f"NIC {hint.uuid} is on {escaped(device)} by Ganeti's file, not on {escaped(hint.device)}: the UUID counts")
    else:
        found, device = _by_position(runtime, files, hint)
    if found is None or not device:
        notes.append(f"Ganeti's files of {escaped(instance)} do not tell which NIC is meant")
        return None
    try:
        nic = nic_from_environment(found.environment(instance, device))
    except NicInvalid as error:
        notes.append(f"Ganeti's files of {escaped(instance)}: {error}")
        return None
    if hint.mac and nic.mac != hint.mac:
        notes.append(f"Ganeti's files say NIC {nic.uuid} with MAC {nic.mac}, the call says {hint.mac}: left alone")
        return None
    return nic


def _by_position(runtime: ganeti.Runtime, files: dict[str, str], hint: DownHint) -> tuple[ganeti.RuntimeNic | None, str]:
    """The NIC by the file that names its device, or by its index; and its device."""
    if hint.device:
        names = [name for name, tap in files.items() if tap == hint.device]
        by_uuid = [nic for name in names if (nic := runtime.by_uuid(name.lower())) is not None]
        if by_uuid:
            return (by_uuid[0] if len(by_uuid) == 1 else None), hint.device
        positions = {int(name) for name in names if name.isdigit()}
        if hint.index is not None:
            positions.add(hint.index)
        if len(positions) == 1:
            (position,) = positions
            return (runtime.nics[position] if position < len(runtime.nics) else None), hint.device
        return None, hint.device
    if hint.index is None or hint.index >= len(runtime.nics):
        return None, ""
    found = runtime.nics[hint.index]
    return found, files.get(found.uuid.lower()) or files.get(str(hint.index), "")


def _instance_of(paths: Paths, device: str, notes: list[str]) -> str:
    """The one instance whose nic/ files name ``device``; "" where none or several do."""
    names = ganeti.instances_with_tap(paths, device) if device else []
    if len(names) > 1:
        notes.append(f"Ganeti's files name {escaped(device)} for several instances ({', '.join(names)}): left alone")
    return names[0] if len(names) == 1 else ""
