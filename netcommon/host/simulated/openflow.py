"""OpenFlow of a simulated node's Open vSwitch: flows are texts, which meet no packets."""

from __future__ import annotations

import errno

from netcommon.host.api.facts import FLOW_MARK, FLOW_MARK_MASK, Flow
from netcommon.host.api.host import DONE, Answer
from netcommon.host.api.requests import PutFlows
from netcommon.host.simulated.events import GONE, MADE
from runtime.errors import SettingsInvalid, TryAgain
from runtime.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from netcommon.host.api.datapath import OvsForwarding
    from netcommon.host.api.requests import DeleteFlows
    from netcommon.host.simulated.events import Telling
    from netcommon.host.simulated.ovs import Switch


class Tables:
    """The flows of all bridges. They are ovs-vswitchd's, and go with it."""

    def __init__(self, switch: Switch, tell: Telling) -> None:
        self.all: list[Flow] = []
        self.forwarding: dict[str, OvsForwarding] = {}  #: of bridges that are not as new ones are
        self._switch, self._tell = switch, tell

    def flows(self, bridge: str, cookie: int = 0) -> list[Flow]:
        """See View. Raises TryAgain."""
        mask = 0 if cookie else ~FLOW_MARK_MASK
        return [flow for flow in self._of(bridge) if flow.cookie & ~mask == (cookie or FLOW_MARK)]

    def flows_from(self, bridge: str, port: int) -> list[Flow]:
        """See View. Raises TryAgain."""
        return [flow for flow in self._of(bridge) if flow.port == port]

    def forwarding_of(self, bridge: str) -> OvsForwarding:
        """See View.ovs_forwarding. Raises TryAgain."""
        from netcommon.host.api.datapath import OvsForwarding

        self._of(bridge)
        return self.forwarding.get(bridge, OvsForwarding())

    def _of(self, bridge: str) -> list[Flow]:
        condition = self._switch.condition
        if not condition.there or bridge not in self._switch.bridges:
            return []
        if not condition.switch:
            raise TryAgain("the simulated ovs-vswitchd does not answer")
        return [flow for flow in self.all if flow.bridge == bridge]

    def texts(self, flows: Sequence[str]) -> list[str]:
        """See View.flow_texts; of OpenFlow's language it knows only that a flow has actions."""
        for flow in flows:
            match, actions, _ = flow.partition("actions=")
            if not actions or any(word in match for word in ("in_port=", "cookie=")):
                raise SettingsInvalid(f"these are no flows: {flow}")
        return [flow.replace(",actions=", " actions=").replace("table=0,", "") for flow in flows]

    def execute(self, request: PutFlows | DeleteFlows) -> Answer:
        """Carries it out."""
        condition = self._switch.condition
        if not condition.there or request.bridge not in self._switch.bridges:
            return Answer(errno.ENOENT, f"flows of {request.bridge}: there is no such bridge")
        if not condition.switch:
            return Answer(errno.ETIMEDOUT, f"flows of {request.bridge}: ovs-vswitchd did not answer")
        port = self._switch.real(request.port) if isinstance(request, PutFlows) else None
        if isinstance(request, PutFlows) and (port is None or port.bridge != request.bridge or port.ofport < 1):
            return Answer(errno.EIO, f"flows of {request.port} on {request.bridge}: unknown port")
        made = (
            [Flow(request.bridge, request.cookie, port.ofport, text) for text in request.flows]
            if isinstance(request, PutFlows) and port
            else []
        )
        for flow in [flow for flow in self.all if (flow.bridge, flow.cookie) == (request.bridge, request.cookie)]:
            self.all.remove(flow)
            self._tell(GONE, flow)
        for flow in made:
            self.add(flow)
        return DONE

    def add(self, flow: Flow) -> None:
        """Add a flow of whoever."""
        self.all.append(flow)
        self._tell(MADE, flow)

    def sweep(self, bridge: str) -> None:
        """Delete all flows of a bridge, as ``ovs-ofctl del-flows`` does."""
        for flow in [flow for flow in self.all if flow.bridge == bridge]:
            self.all.remove(flow)
            self._tell(GONE, flow)

    def restart(self) -> None:
        """ovs-vswitchd ends and starts again: no flow is left, and the ports get new numbers."""
        self.all = []
        self._switch.restart()
