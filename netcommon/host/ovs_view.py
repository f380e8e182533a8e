"""What a live view tells of Open vSwitch: its database's rows, and its bridges' flows."""

from __future__ import annotations

import os

from runtime.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from netcommon.host.facts import Flow, OvsBridge, OvsPort, OvsShaper
    from netcommon.host.linux import LinuxHost
    from netcommon.host.openflow import OpenFlow


class OvsView:
    """The part of a live view that is about bridges and flows of Open vSwitch."""

    _host: LinuxHost

    def ovs_held(self, name: str) -> OvsPort | None:
        return self._host.ovsdb.held(name) if os.path.exists(self._host.paths.ovsdb) else None

    def ovs_switch(self, name: str) -> OvsBridge | None:
        return self._host.ovsdb.switch(name)

    def ovs_switches(self) -> Sequence[OvsBridge]:
        return self._host.ovsdb.switches()

    def ovs_shapers(self) -> Sequence[OvsShaper]:
        return self._host.ovsdb.shapers()

    def ovs_away(self) -> bool:
        return self._host.ovsdb.away()

    def flows(self, bridge: str, cookie: int = 0) -> Sequence[Flow]:
        return openflow(self._host).flows(bridge, cookie)

    def flow_texts(self, flows: Sequence[str]) -> Sequence[str]:
        return openflow(self._host).texts(flows)


def openflow(host: LinuxHost) -> OpenFlow:
    """The service "openflow" of ``host``; ovs-vswitchd has its sockets beside the database's."""
    from netcommon.host.openflow import OpenFlow  # few NICs have flows

    database = host.ovsdb
    return OpenFlow(os.path.dirname(host.paths.ovsdb), database.patience, host.clock, database.numbers, database.restored, host.paths.proc)
