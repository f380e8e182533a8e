"""Read settings files of a copy and new ones, as a node reads its own, and tell in which settings two differ."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from mockcloud.settings_file import loaded
from netcommon.settings import parse
from netcommon.settings.model import Settings
from netcommon.settings.parse import Effective, Loaded

if TYPE_CHECKING:
    from mockcloud.rehearsal.copied import SettingsFile

#: What takes a setting, by the table that it stands in, other than NICs: what has to be done for it.
RELOAD, RESTART = "systemctl reload netcommon-agent", "systemctl restart netcommon-registry"
#: Settings of [registry] that its service takes, at its start; the others are the agent's.
OF_SERVICE = frozenset(("registry.store", "registry.listen", "registry.names"))
OF_SERVICE |= {"registry.zone_servers", "registry.zone_key_file", "registry.zone_timeout"}
OF_AGENT = ("agent.", "registry.", "repair.", "log.", "underlay.")
OF_NICS = ("nic.", "networks.")
#: Options of NICs by which the agent tells the registry what a guest has, as they were at its last reload.
TOLD = frozenset(("addresses", "prefixes", "eui64", "endpoints"))


class Differs(NamedTuple):
    """One setting that differs: its place, both values, where the new one comes from, and what takes it besides NICs ("": nothing)."""

    key: str
    before: str
    after: str
    source: str  #: "new.toml:3", or "default"
    needs: str


class Given(NamedTuple):
    """Settings as they count, and each with its source."""

    settings: Settings
    effective: tuple[Effective, ...]
    left_out: tuple[str, ...] = ()  #: extensions of the site's, whose code a copy does not have


def load(file: SettingsFile | None) -> Given:
    """Read a file's settings; without one they are the defaults. Raises SettingsInvalid, which names each line."""
    read = Loaded() if file is None else loaded(file.name, file.data)
    settings = read.settings
    return Given(settings._replace(extensions={}), tuple(parse.effective(read)), tuple(sorted(settings.extensions)))


def differing(before: Given, after: Given) -> list[Differs]:
    """List the settings that differ, in the schema's order; one that only one of both names differs from its default, or from nothing."""
    old, new = ({each.key: each for each in given.effective} for given in (before, after))
    found = []
    for key in dict.fromkeys((*new, *old)):
        was, now = (_text(part[key].value) if key in part else "" for part in (old, new))
        if was != now:
            found.append(Differs(key, was, now, new[key].source if key in new else "not in it", needs(key)))
    return found


def _text(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return (" ".join(map(str, value)) if isinstance(value, tuple) else str(value)) or "none"


def needs(key: str) -> str:
    """Say what takes a setting besides hooks, which read it anew each time: the command that lets it; "" for none."""
    if key in OF_SERVICE:
        return RESTART
    told = key.startswith(OF_NICS) and key.rpartition(".")[2] in TOLD
    return RELOAD if told or key.startswith(OF_AGENT) else ""
