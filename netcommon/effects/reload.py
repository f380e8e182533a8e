"""A daemon reads its files again: dnsmasq(8) forgets a host that is gone, and sees one that was changed, at SIGHUP alone."""

from __future__ import annotations

import errno

from netcommon.effects.base import Effect
from netcommon.host.api.requests import Hangup
from runtime.errors import HostRefused
from runtime.typed import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from netcommon.effects.base import Scene


class ReloadFields(NamedTuple):
    """The fields of Reload."""

    pid_file: str
    program: str


class Reload(ReloadFields, Effect):
    """SIGHUP to the process of ``pid_file``, if that is ``program``. One that does not run reads its files when it starts."""

    __slots__ = ()

    def perform(self, scene: Scene) -> None:
        (said,) = scene.host.execute([Hangup(self.pid_file, self.program)], stop=False)
        if said.errno == errno.ESRCH:
            scene.log.info(f"not reloaded: {said.text}")
        elif not said.ok:
            raise HostRefused(f"{self.program} could not be told to read its files again: {said.text}")

    def describe(self) -> str:
        return f"kill -HUP $(cat {self.pid_file})  # {self.program}"
