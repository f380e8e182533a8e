"""Tell what the settings file says today, for work that makes NICs anew: the agent's own settings are those of its last reload."""

from __future__ import annotations

from typing import TYPE_CHECKING

from netcommon.settings.load import load
from runtime.errors import SettingsInvalid

if TYPE_CHECKING:
    from netcommon.settings.model import Settings
    from runtime.paths import Paths


class Todays:
    """The settings as a hook would read them now. For every thread."""

    def __init__(self, paths: Paths) -> None:
        self._paths = paths
        self._last: Settings | None = None

    def get(self, ours: Settings) -> Settings:
        """Read them. ``ours``: those of the last reload, which are returned where the file says the same, and marked where it is broken.

        Settings that are equal are one object, so that a worker opens nothing anew for them.
        """
        try:
            found = load(self._paths)
        except SettingsInvalid as error:
            found = ours._replace(broken=str(error))
        last = self._last
        if found == ours:
            return ours
        if last is None or found != last:
            self._last = last = found
        return last

    def usable(self, ours: Settings) -> Settings:
        """Read them, for what may not wait: ``ours`` where the file is broken."""
        found = self.get(ours)
        return ours if found.broken else found
