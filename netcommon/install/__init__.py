"""Install our doors where a hypervisor expects them; keep what they replace, and put it back at the end."""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import nullcontext

from netcommon.install import manifest, unrecorded, versions
from netcommon.install.changes import Action, Run, Step, plan_step, run_command, take, undo, undo_action
from netcommon.install.exclusive import alone
from netcommon.install.manifest import Change, Installs
from netcommon.install.rooted import outside, placed
from netcommon.install.targets import KINDS, NETWORKD, targets
from netcommon.scripts.site import HOOKS
from runtime.errors import HostRefused

__all__ = ["KINDS", "Action", "install"]

BY_HAND = "leads to a door of ours, and no install has made the link: remove it before netcommon goes"


def install(
    kind: str,
    root: str = "/",
    dry_run: bool = False,
    uninstall: bool = False,
    hooks: str = HOOKS,
    run: Run = run_command,
    keeping: bool = False,
) -> list[Action]:
    """Installs or uninstalls one kind of door ("ganeti", "qemu", "xen") on the system below ``root``; what was, or would be, done.

    Installing twice changes nothing the second time. Everything is looked at before the first change, and each place once more right
    before its own; each change is on record before it is made, so a run that was killed is completed or taken back by the next. Where the
    record is lost, our files are found by their marker.
    ``keeping``: who calls has not been told to install, but found doors missing: nothing is done where they are not wanted any more.
    One run at a time; a dry run waits for nobody. Raises TryAgain where another one does not end, HostRefused where something is in the
    way, SettingsInvalid where the settings must first say what becomes of the site's own scripts.
    """
    if kind not in KINDS:
        raise HostRefused(f"{kind}: known are {', '.join(KINDS)}")
    mask = os.umask(0o022)  # folders are as /etc and /usr/lib are, whoever calls
    try:
        with nullcontext() if dry_run else alone(root):
            installs = manifest.read(root)
            if keeping and not installs.wanted(kind):
                return []
            if found := unrecorded.lost(root, installs):
                installs.update(found)  # first of all they are on record again
                if not dry_run:
                    manifest.write(root, installs)
            if kind == "ganeti" and not (dry_run or uninstall):
                _forget(root, installs, run)
            return (_uninstall if uninstall else _install)(kind, root, dry_run, installs, hooks, run)
    except OSError as error:
        raise HostRefused(f"{error.filename or root}: {error.strerror}") from None
    finally:
        os.umask(mask)


def _install(kind: str, root: str, dry_run: bool, installs: Installs, hooks: str, run: Run) -> list[Action]:
    recorded = _places(root, [change for changes in installs.values() for change in changes])
    steps = [plan_step(root, target, hooks, recorded.get(target.path)) for target in targets(kind, root, hooks)]
    if dry_run:
        return _said(kind, root, steps)
    mine = _places(root, installs.get(kind, ()))
    for step in steps:
        # A folder that another kind has made is needed by us too: the last of its users takes it away.
        shared = [change for change in recorded.values() if change.kind == "folder" and step.target.path.startswith(change.path + "/")]
        mine.update({change.path: change for change in (*shared, *step.changes)})
    if kind in installs.leaving:
        installs.leaving.remove(kind)
        manifest.write(root, installs)
    _record(root, installs, kind, mine)
    _compile(os.path.dirname(os.path.realpath(hooks)), run)
    done = []
    for planned in steps:
        # Things may be others by now: after a step before this one, where one name is a link to another, or by somebody else.
        step = plan_step(root, planned.target, hooks, recorded.get(planned.target.path))
        mine.update({change.path: change for change in step.changes})
        _record(root, installs, kind, mine)
        take(root, step, run)
        done.append(step)
    return _said(kind, root, done)


def _said(kind: str, root: str, steps: Iterable[Step]) -> list[Action]:
    """List the actions of the steps, each once, and what the administrator should know of them."""
    actions = list(dict.fromkeys(action for step in steps for action in step.actions))
    if any(action.path == NETWORKD and action.what == "write" for action in actions):
        actions.append(Action("note", NETWORKD, "takes effect when systemd-networkd starts next: systemctl restart systemd-networkd"))
    return actions + [Action("note", path, "is no longer called: kvm-nic-setup does its work") for path in _overrides(kind, root)]


def _places(root: str, changes: Iterable[Change]) -> dict[str, Change]:
    """Sort changes by where they are; versions up to 0.1.0 recorded a path with the links of its folders in it."""
    found = {}
    for change in changes:
        try:
            found[placed(root, change.path)] = change
        except HostRefused:
            found[change.path] = change
    return found


def _record(root: str, installs: Installs, kind: str, mine: dict[str, Change]) -> None:
    """Put the changes of ``kind`` on record, where they are not yet. Raises OSError."""
    changes = tuple(mine.values())
    if changes != installs.get(kind, ()):
        installs[kind] = changes
        manifest.write(root, installs)


def _forget(root: str, installs: Installs, run: Run) -> None:
    """Take our doors out of the folders of versions of Ganeti that are gone, which it would take for versions that are there."""
    gone = [change for change in installs.get("ganeti", ()) if versions.is_script(change.path) and versions.is_gone(root, change.path)]
    for change in gone:
        if undo(root, change, run).what == "remove":
            installs["ganeti"] = tuple(each for each in installs["ganeti"] if each != change)
            manifest.write(root, installs)


def _compile(library: str, run: Run) -> None:
    """Bytecode of what the doors load, in good time: a hook that has to make it takes three times as long. A failure is no harm."""
    folders = [path for name in ("runtime", "netcommon") if os.path.isdir(path := os.path.join(library, name))]
    if folders:
        run(["/usr/bin/python3", "-IS", "-m", "compileall", "-q", *folders])


def _uninstall(kind: str, root: str, dry_run: bool, installs: Installs, hooks: str, run: Run) -> list[Action]:
    """Take back what is on record for ``kind``, the last first, folders after what is in them.

    What cannot be taken back stays on record, with its folders, and keeps nothing else from it; the first error is raised at the end.
    First of all it is on record that nobody shall put the doors in place again: who finds some missing meanwhile, or after a run that was
    killed, would.
    """
    if not dry_run and installs.wanted(kind):
        installs.leaving.add(kind)
        manifest.write(root, installs)
    if not dry_run and not installs:
        manifest.write(root, installs)  # what an install left that was killed before its first change
    actions, errors = [], []
    mine = _places(root, installs.get(kind, ()))
    others = {place: name for name, theirs in installs.items() if name != kind for place in _places(root, theirs)}
    folders = sorted((place for place, change in mine.items() if change.kind == "folder"), reverse=True)
    for place in (*reversed([place for place in mine if place not in folders]), *folders):
        change = mine[place]
        if change.kind == "folder" and any(left.startswith(place + "/") for left in mine):
            continue
        try:
            if place in others:
                actions.append(Action("keep", change.path, f"serves {others[place]} too"))
            else:
                actions.append(undo_action(root, change) if dry_run else undo(root, change, run))
            del mine[place]
        except OSError as error:
            errors.append(error)
        if not dry_run:
            _record(root, installs, kind, mine)
    if errors:
        raise errors[0]
    return actions + [Action("note", path, BY_HAND) for path in unrecorded.by_hand(root, kind, hooks)]


def _overrides(kind: str, root: str) -> list[str]:
    """The site's per-mode scripts of Ganeti 3.2, which only its own kvm-nic-setup calls."""
    if kind != "ganeti":
        return []
    paths = [f"/etc/ganeti/network/{mode}/{word}" for mode in ("bridged", "routed", "openvswitch", "ext") for word in ("up", "down")]
    return [path for path in paths if os.access(outside(root, path), os.X_OK)]
