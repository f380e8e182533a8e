"""Puts our doors where a hypervisor expects them, keeps what they replace, and takes everything back."""

from __future__ import annotations

import os

from netcommon.custom import HOOKS
from netcommon.install import manifest
from netcommon.install.changes import Action, Run, plan_step, run_command, take, undo, undo_action
from netcommon.install.manifest import Installs
from netcommon.install.rooted import outside
from netcommon.install.targets import KINDS, NETWORKD, targets
from runtime.errors import HostRefused

__all__ = ["KINDS", "Action", "install"]


def install(
    kind: str,
    root: str = "/",
    dry_run: bool = False,
    uninstall: bool = False,
    hooks: str = HOOKS,
    run: Run = run_command,
) -> list[Action]:
    """Installs or uninstalls one kind of door ("ganeti", "qemu", "xen") on the system below ``root``; what was, or would be, done.

    Installing twice changes nothing the second time. Everything is looked at before the first change, and each change is on record
    before it is made, so a run that was killed is completed or taken back by the next. Raises HostRefused where something is in the
    way, SettingsInvalid where the settings must first say what becomes of the site's own scripts.
    """
    if kind not in KINDS:
        raise HostRefused(f"{kind}: known are {', '.join(KINDS)}")
    installs = manifest.read(root)
    try:
        return _uninstall(kind, root, dry_run, installs, run) if uninstall else _install(kind, root, dry_run, installs, hooks, run)
    except OSError as error:
        raise HostRefused(f"{error.filename or root}: {error.strerror}") from None


def _install(kind: str, root: str, dry_run: bool, installs: Installs, hooks: str, run: Run) -> list[Action]:
    recorded = {change.path: change for changes in installs.values() for change in changes}
    steps = [plan_step(root, target, hooks, recorded.get(target.path)) for target in targets(kind, root, hooks)]
    actions = [action for step in steps for action in step.actions]
    actions = list(dict.fromkeys(actions))
    if any(action.path == NETWORKD and action.what == "write" for action in actions):
        actions.append(Action("note", NETWORKD, "takes effect when systemd-networkd starts next: systemctl restart systemd-networkd"))
    actions += [Action("note", path, "is no longer called: kvm-nic-setup does its work") for path in _overrides(kind, root)]
    if dry_run:
        return actions
    mine = {change.path: change for change in installs.get(kind, ())}
    for step in steps:
        # A folder that another kind has made is needed by us too: the last of its users takes it away.
        shared = [change for change in recorded.values() if change.kind == "folder" and step.target.path.startswith(change.path + "/")]
        mine.update({change.path: change for change in (*shared, *step.changes)})
    if tuple(mine.values()) != installs.get(kind, ()):
        manifest.write(root, {**installs, kind: tuple(mine.values())})
    _compile(os.path.dirname(os.path.realpath(hooks)), run)
    for step in steps:
        take(root, step, run)
    return actions


def _compile(library: str, run: Run) -> None:
    """Bytecode of what the doors load, in good time: a hook that has to make it takes three times as long. A failure is no harm."""
    folders = [path for name in ("runtime", "netcommon") if os.path.isdir(path := os.path.join(library, name))]
    if folders:
        run(["/usr/bin/python3", "-IS", "-m", "compileall", "-q", *folders])


def _uninstall(kind: str, root: str, dry_run: bool, installs: Installs, run: Run) -> list[Action]:
    actions = []
    changes = list(installs.get(kind, ()))
    others = {change.path: name for name, theirs in installs.items() if name != kind for change in theirs}
    while changes:
        change = changes.pop()
        if change.path in others:
            actions.append(Action("keep", change.path, f"serves {others[change.path]} too"))
        else:
            actions.append(undo_action(root, change) if dry_run else undo(root, change, run))
        if not dry_run:
            manifest.write(root, {**installs, kind: tuple(changes)})
    if not dry_run and not installs:
        manifest.write(root, {})  # what an install left that was killed before its first change
    return actions


def _overrides(kind: str, root: str) -> list[str]:
    """The site's per-mode scripts of Ganeti 3.2, which only its own kvm-nic-setup calls."""
    if kind != "ganeti":
        return []
    paths = [f"/etc/ganeti/network/{mode}/{word}" for mode in ("bridged", "routed", "openvswitch", "ext") for word in ("up", "down")]
    return [path for path in paths if os.access(outside(root, path), os.X_OK)]
