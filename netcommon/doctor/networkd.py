"""Whether systemd-networkd leaves our rules and routes alone (networkd.conf(5))."""

from __future__ import annotations

import os
from collections.abc import Iterator

from netcommon.doctor.finding import Finding, Patient
from netcommon.install.targets import NETWORKD, networkd

#: Folders of drop-ins; a file hides those of the same name in later folders.
FOLDERS = ("/etc", "/run", "/usr/local/lib", "/usr/lib")

SETTINGS = {"ManageForeignRoutingPolicyRules": "policy rules", "ManageForeignRoutes": "routes"}


def check(patient: Patient) -> Iterator[Finding]:
    """A finding for each of the two settings that is not "no", where networkd runs or is enabled."""
    if not networkd(patient.root):
        return
    for setting, what in SETTINGS.items():
        value, source = effective(patient, setting)
        if value.lower() in ("no", "false", "n", "f", "off", "0"):
            yield Finding("ok", "networkd", f"{setting}={value} ({source})")
        else:
            now = f"{value} ({source})" if source else "yes by default"
            yield Finding(
                "error",
                "networkd",
                f"{setting} is {now}: systemd-networkd deletes our {what} when it starts",
                f"put {setting}=no below [Network] in {NETWORKD} (netcommon install does), then systemctl restart systemd-networkd",
            )


def effective(patient: Patient, setting: str) -> tuple[str, str]:
    """The last value of a setting of [Network], and the file that gives it; both "" where no file does."""
    value = source = ""
    for path in files(patient):
        for found in _values(patient.at(path), setting):
            value, source = found, path
    return value, source


def files(patient: Patient) -> list[str]:
    """networkd's configuration files in the order they are read: the main one, then the drop-ins by name."""
    main = next((path for folder in FOLDERS if os.path.isfile(patient.at(path := f"{folder}/systemd/networkd.conf"))), "")
    dropins: dict[str, str] = {}
    for folder in FOLDERS:
        try:
            names = os.listdir(patient.at(f"{folder}/systemd/networkd.conf.d"))
        except OSError:
            continue
        for name in names:
            if name.endswith(".conf"):
                dropins.setdefault(name, f"{folder}/systemd/networkd.conf.d/{name}")
    return ([main] if main else []) + [dropins[name] for name in sorted(dropins)]


def _values(path: str, setting: str) -> Iterator[str]:
    section = ""
    try:
        with open(path, encoding="utf-8", errors="replace") as stream:
            lines = stream.read().splitlines()
    except OSError:
        return
    for line in map(str.strip, lines):
        if line.startswith("["):
            section = line
        elif section == "[Network]" and not line.startswith(("#", ";")):
            name, equals, value = line.partition("=")
            if equals and name.strip() == setting:
                yield value.strip()
