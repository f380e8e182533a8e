"""Our files: the settings, who may write what, the site's scripts, the doors, and what is in quarantine."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator

from netcommon import extension_loader
from netcommon.doctor.finding import Finding, Patient
from netcommon.install import manifest, unrecorded, versions
from netcommon.install.rooted import resolved
from netcommon.install.targets import HOOKS_DIR, OPERATIONS, VIF_GANETI, existing_scripts
from netcommon.install.versions import PKGLIBDIR
from netcommon.scripts import site as custom
from netcommon.scripts.door_files import executables, is_door
from netcommon.settings.model import Settings
from runtime import membership
from runtime.errors import HostRefused, NetcommonError, SettingsInvalid
from runtime.folder import Folder
from runtime.kept import NETWORKS
from runtime.layout import OWED
from runtime.trust import distrust, distrust_folder

PYTHON = "/usr/bin/python3"


def python(interpreter: str = PYTHON) -> Iterator[Finding]:
    """The interpreter that the doors name in their first line."""
    program = "import sys; print('%d.%d' % sys.version_info[:2])"
    try:
        done = subprocess.run([interpreter, "-IS", "-c", program], capture_output=True, text=True, timeout=10, check=True)
        version = done.stdout.strip()
        old = tuple(map(int, version.split("."))) < (3, 11)
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        yield Finding("error", "python", f"{interpreter} cannot be run: {error}", "install python3")
        return
    if old:
        yield Finding("error", "python", f"{interpreter} is {version}: the doors need 3.11", "install python3 3.11 or later")
    else:
        yield Finding("ok", "python", f"{interpreter} is {version}")


def extensions(settings: Settings) -> Iterator[Finding]:
    """The site's modules that the settings name: each must load, and be root's alone."""
    for name in settings.extensions:
        try:
            own = ", ".join(kind.KIND for kind in extension_loader.operations(name))
        except NetcommonError as error:
            yield Finding("error", "extensions", str(error), "mend it, or NICs that need it will not come up (docs/extending.md)")
        else:
            yield Finding("ok", "extensions", f"{name} can be used" + (f"; its own operations: {own}" if own else ""))


def permissions(patient: Patient) -> Iterator[Finding]:
    """Nobody but root may write what runs as root, or what it believes."""
    for folder in (patient.paths.state, patient.paths.etc, patient.paths.definitions):
        if os.path.lexists(folder) and (reason := distrust_folder(folder)):
            yield Finding("error", "permissions", reason, f"chown root {folder} and the folders above it; chmod go-w")
    for folder, what in (
        (patient.paths.wanted, "options that were changed on this node count for nothing"),
        (f"{patient.paths.wanted}/{NETWORKS}", "what a registry says of networks counts for nothing"),
    ):
        try:
            kept = Folder.find(folder)
        except HostRefused as error:
            yield Finding("error", "permissions", f"{error}; {what}", f"make {folder} a folder: chown root, chmod 755")
        else:
            if kept is not None:
                kept.close()
    try:
        membership.read(patient.paths)
    except HostRefused as error:
        yield Finding("error", "permissions", str(error), "put the file back from a copy, or remove it and join the registry anew")
    try:
        os.listdir(patient.hooks)
    except OSError as error:
        yield Finding("error", "permissions", f"{patient.hooks}: {error.strerror}", "install the project anew")
        return
    for path in executables(patient.hooks):
        if reason := distrust(path):
            yield Finding(
                "error", "permissions", f"a door that runs as root: {reason}", "chown root, chmod go-w; or install below /usr/lib"
            )
            return
        if not os.stat(path).st_mode & 0o100:
            yield Finding("error", "permissions", f"{path} is not executable", f"chmod 755 {path}")


def writable(patient: Patient) -> Iterator[Finding]:
    """The file system of the records: without it nothing comes up and nothing goes down."""
    folder = patient.paths.state
    while not os.path.lexists(folder) and folder != "/":
        folder = os.path.dirname(folder)
    about = os.statvfs(folder)
    if about.f_flag & os.ST_RDONLY:
        text = f"{folder} is on a file system that is mounted read-only: records of NICs cannot be written"
        yield Finding("error", "records", text, f'mount -o remount,rw "$(findmnt -n -o TARGET -T {folder})"')
    elif not about.f_bavail or (about.f_files and not about.f_favail):
        what = "space" if not about.f_bavail else "inodes"
        text = f"the file system of {folder} has no {what} left: records of NICs cannot be written"
        yield Finding("error", "records", text, f"make room: df -h {folder}; df -i {folder}")


def scripts(patient: Patient) -> Iterator[Finding]:
    """The site's scripts that would be refused, and those that would run."""
    plan = custom.order(patient.paths, patient.settings, patient.hooks)
    for script in (*plan.up, *plan.down):
        if script.problem:
            yield Finding("error", "custom scripts", f"{script.path} is not run: {script.problem}", "chown root, chmod go-w")
        else:
            yield Finding("ok", "custom scripts", script.path)
    if not patient.settings.custom_order:
        for path in existing_scripts(patient.paths, patient.hooks):
            when = "instead of" if path.endswith("/kvm-vif-bridge") else "after"
            yield Finding(
                "warning",
                "custom scripts",
                f"{path} runs {when} the built-in, since the settings do not say",
                f'{patient.paths.config}: [custom] order = "after" or "instead"',
            )


def tables(patient: Patient) -> Iterator[Finding]:
    """The names of routing tables."""
    if not any(os.path.isfile(f"{folder}/rt_tables") for folder in patient.paths.iproute2):
        where = " or ".join(f"{folder}/rt_tables" for folder in patient.paths.iproute2)
        yield Finding("warning", "routing tables", f"no {where}: a routed NIC's LINK can be a number only", "install iproute2")


def doors(patient: Patient) -> Iterator[Finding]:
    """Whose scripts Ganeti and QEMU call, against what our install has on record."""
    installs = manifest.Installs()
    try:
        installs = manifest.read(patient.root)
    except NetcommonError as error:
        yield Finding("error", "doors", str(error), "move it away, then netcommon install again")
    else:
        lost = unrecorded.lost(patient.root, installs)
        for kind, found in lost.items():
            text = f"{manifest.FILE} was lost: files that netcommon install --{kind} has put in place, on no record: {len(found)}"
            yield Finding("warning", "doors", text, f"netcommon install --{kind}, which records them; --uninstall finds them too")
        installs.update(lost)
    told = {change.path for changes in installs.values() for change in changes}
    for kind in sorted(installs.leaving):
        text = f"netcommon install --{kind} --uninstall is at work, or was ended before its end: changes on record: {len(installs[kind])}"
        yield Finding("warning", "doors", text, f"netcommon install --{kind} --uninstall")
    for kind, changes in installs.items():
        for change in changes if installs.wanted(kind) else ():
            if change.kind == "file" and change.path.rsplit(".", 1)[-1] != "conf" and not is_door(patient.at(change.path), patient.hooks):
                text = f"{change.path} is no longer ours: a package upgrade, or somebody, has replaced it"
                yield Finding("error", "doors", text, f"netcommon install --{kind}")
    try:
        up = resolved(patient.root, f"{PKGLIBDIR}/kvm-ifup")
    except NetcommonError as error:
        yield Finding("error", "doors", str(error), "install Ganeti anew")
        return
    if not os.path.exists(patient.at(up)):
        yield Finding("info", "doors", "Ganeti is not there")
    elif is_door(patient.at(up), patient.hooks):
        yield Finding("ok", "doors", f"Ganeti's {up} is our door")
        for word in OPERATIONS if "ganeti" not in installs.leaving else ():
            folder = f"{HOOKS_DIR}/instance-{word}-post.d"
            if not any(is_door(f"{patient.at(folder)}/{name}", patient.hooks) for name in _names(patient.at(folder))):
                text = f"no hook of ours in {folder}: after {word} nothing takes the NICs down on Ganeti 3.0 and 3.1"
                yield Finding("warning", "doors", text, "netcommon install --ganeti")
    elif installs.wanted("ganeti") and up not in told:
        text = f"Ganeti calls {up}, which is no door of ours: its link was moved, as gnt-cluster upgrade does; NICs come up without us"
        yield Finding("error", "doors", text, "netcommon install --ganeti")
    elif "ganeti" not in installs and not _wired(patient):
        yield Finding("warning", "doors", f"Ganeti's {up} is not our door", "netcommon install --ganeti")
    for path in versions.scripts(patient.root) if installs.wanted("ganeti") else ():
        if path not in (up, *told) and not is_door(patient.at(path), patient.hooks):
            text = f"{path} is not our door: gnt-cluster upgrade to that version would have Ganeti call it"
            yield Finding("warning", "doors", text, "netcommon install --ganeti")
    for name in ("/etc/qemu-ifup", "/etc/qemu-ifdown"):
        if os.path.exists(patient.at(name)) and not is_door(patient.at(name), patient.hooks) and _names(patient.paths.definitions):
            yield Finding("info", "doors", f"{name} is not our door: it serves QEMUs started without script=", "netcommon install --qemu")


def xen(patient: Patient) -> Iterator[Finding]:
    """Whose vif script libxl calls for Ganeti's instances, where Xen's tools are. One that our install has on record is for ``doors``."""
    if not (os.path.isdir(patient.at(os.path.dirname(VIF_GANETI))) and os.path.isdir(patient.paths.ganeti_etc)):
        return
    if is_door(patient.at(VIF_GANETI), patient.hooks):
        yield Finding("ok", "doors", f"Xen's {VIF_GANETI} is our door")
    elif "xen" not in manifest.read(patient.root):
        text = f"Xen's {VIF_GANETI} is not our door: NICs of Ganeti's Xen instances are not ours"
        yield Finding("warning", "doors", text, "netcommon install --xen")


def _wired(patient: Patient) -> bool:
    """Whether the site calls our door under one of the names for its own scripts."""
    return any(is_door(f"{patient.paths.ganeti_etc}/{name}", patient.hooks) for name in ("kvm-vif-bridge", "kvm-ifup-custom"))


def quarantine(patient: Patient) -> Iterator[Finding]:
    """Records that did not parse, and what was owed to others."""
    for folder in (f"{patient.paths.state}/quarantine", *_nested(patient.paths.state)):
        for name in _names(folder):
            if name.startswith(OWED):
                text = "an address that was owed to a NIC, in a file that does not parse; that NIC may lack it"
                remedy = "netcommon repair --all gives it back; then delete the file"
            else:
                text = "a record that does not parse; what it made on the host may still be there, and what NICs add to uplinks stays"
                remedy = "netcommon gc undoes what bears our mark; then delete the file, or VLANs stay on uplinks for ever"
            yield Finding("warning", "quarantine", f"{folder}/{name}: {text}", remedy)


def _nested(state: str) -> list[str]:
    return [f"{state}/netns.d/{name}/quarantine" for name in _names(f"{state}/netns.d")]


def _names(folder: str) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []


def broken(error: SettingsInvalid) -> Iterator[Finding]:
    """The settings' errors, one each."""
    for line in str(error).splitlines():
        yield Finding("error", "settings", line, "mend the file: every up fails with status 78 until then")
