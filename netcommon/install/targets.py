"""Which doors each hypervisor expects where, and what stands in the way of putting them there."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import NamedTuple

from netcommon.install import versions, wrappers
from netcommon.install.manifest import SAVED
from netcommon.install.rooted import outside, placed, resolved
from netcommon.install.versions import PKGLIBDIR
from netcommon.scripts import site as custom
from netcommon.scripts.door_files import COLD
from netcommon.settings.load import load
from runtime.errors import HostRefused, SettingsInvalid
from runtime.paths import Paths

KINDS = ("ganeti", "qemu", "xen")

#: Ganeti's folder of the administrator's hooks.
HOOKS_DIR = "/etc/ganeti/hooks"

#: What libxl calls for Ganeti's instances; in the folder of Xen's own scripts.
VIF_GANETI = "/etc/xen/scripts/vif-ganeti"

#: The operations after which an instance's NICs may have lost their devices (Ganeti, doc/hooks.rst).
OPERATIONS = ("stop", "remove", "migrate", "failover", "modify", "reboot")

#: The operations after which an instance's names or addresses may be others (an export may remove the instance).
DNS_OPERATIONS = ("add", "rename", "modify", "remove", "export")

#: Ganeti calls it on every node at the end of `gnt-cluster upgrade`, which may have led its link to another version's scripts.
VERIFY = f"{HOOKS_DIR}/cluster-verify-post.d/netcommon"

#: What plain QEMU calls, by the door.
QEMU = {"kvm-ifup": "/etc/qemu-ifup", "kvm-ifdown": "/etc/qemu-ifdown"}

NETWORKD = "/etc/systemd/networkd.conf.d/netcommon.conf"


class Target(NamedTuple):
    """One file to be put in place."""

    path: str
    text: str
    mode: int = 0o755


def targets(kind: str, root: str, hooks: str) -> list[Target]:
    """Give what ``kind`` of install puts in place on the system below ``root``. Raises HostRefused or SettingsInvalid.

    The links of folders are followed; a file that is a link is replaced itself, never what it leads to, which others may use too.
    """
    made = {"ganeti": _ganeti, "qemu": _qemu, "xen": _xen}[kind](root, hooks)
    if networkd(root):
        made.append(Target(NETWORKD, wrappers.NETWORKD, 0o644))
    there = [target._replace(path=placed(root, target.path)) for target in made]
    return list({target.path: target for target in there}.values())  # two folders may be one: the same name, so the same door


def networkd(root: str) -> bool:
    """Whether systemd-networkd runs on the system, or is enabled."""
    wants = "/etc/systemd/system/multi-user.target.wants/systemd-networkd.service"
    return any(os.path.lexists(outside(root, path)) for path in ("/run/systemd/netif/state", wants))


def _ganeti(root: str, hooks: str) -> list[Target]:
    if not os.path.isfile(outside(root, resolved(root, PKGLIBDIR + "/kvm-ifup"))):
        raise HostRefused(f"{PKGLIBDIR}/kvm-ifup is not there: this is no Ganeti node")
    _ask_for_order(root, hooks)
    # 3.2 calls kvm-nic-setup; on 3.0 and 3.1 it lies ready for the upgrade.
    paths = [f"{PKGLIBDIR}/{door}" for door in versions.DOORS]
    made = [Target(path, wrapper(hooks, os.path.basename(path))) for path in dict.fromkeys((*paths, *versions.scripts(root)))]
    paths = [VERIFY, *(f"{HOOKS_DIR}/instance-{word}-post.d/netcommon" for word in OPERATIONS)]
    made += [Target(path, wrapper(hooks, "ganeti-hook")) for path in paths]
    if load(Paths.under(root.rstrip("/"))).dns_zones:
        dns = wrapper(hooks, "ganeti-dns-hook")
        made += [Target(f"{HOOKS_DIR}/instance-{word}-post.d/netcommon-dns", dns) for word in DNS_OPERATIONS]
    return made


def _ask_for_order(root: str, hooks: str) -> None:
    """A script that its author wrote to run instead of the built-in: only its owner knows whether it still shall."""
    paths = Paths.under(root.rstrip("/"))
    chosen = load(paths).custom_order
    found = [path for path in existing_scripts(paths, hooks) if not chosen]
    if found:
        raise SettingsInvalid(
            f"{' and '.join(found)}: written to run instead of the built-in network setup, as it is usual under that name. Say in "
            f'{paths.config} what shall hold from now on: [custom] order = "instead", or "after" if it adds to the built-in'
        )


def existing_scripts(paths: Paths, hooks: str) -> Iterator[str]:
    """The site's up scripts under Ganeti's names, our own doors left out."""
    for name in ("kvm-ifup-custom", "kvm-vif-bridge"):
        for script in custom.named(f"{paths.ganeti_etc}/{name}", hooks):
            yield script.path


def _qemu(root: str, hooks: str) -> list[Target]:
    return [Target(name, _choosing(hooks, door, name)) for door, name in QEMU.items()]


def _xen(root: str, hooks: str) -> list[Target]:
    if not os.path.isdir(outside(root, resolved(root, "/etc/xen/scripts"))):
        raise HostRefused("/etc/xen/scripts is not there: this is no Xen node")
    # Usually a symbolic link to Ganeti's own script, which stays as it is.
    return [Target(VIF_GANETI, wrapper(hooks, "vif-ganeti"))]


def _door(hooks: str, name: str, perl: str = "/usr/bin/perl") -> str:
    """The path of a door; where there is no Perl, of the one that does without the agent."""
    path, cold = (os.path.join(os.path.realpath(hooks), *parts) for parts in ((name,), (COLD, name)))
    path = path if os.access(perl, os.X_OK) or not os.path.exists(cold) else cold
    if not os.access(path, os.X_OK):
        raise HostRefused(f"{path} is not there, or not executable: the installation is not complete")
    if any(not char.isprintable() or char in "'\\" for char in path):
        raise HostRefused(f"{path!r}: a path with such characters cannot be written into a wrapper")
    return path


def wrapper(hooks: str, door: str) -> str:
    """A script that becomes our door; where that is the launcher, it itself: a shell before it would cost as much again as it takes."""
    path = _door(hooks, door)
    with open(path, encoding="utf-8") as stream:
        return wrappers.copied(stream.read(), path) or wrappers.starting(path)


def _choosing(hooks: str, door: str, path: str) -> str:
    """A script that becomes our door for taps that we know, and what stood here before for the others."""
    return wrappers.choosing(os.path.dirname(os.path.realpath(hooks)), _door(hooks, door), path + SAVED)
