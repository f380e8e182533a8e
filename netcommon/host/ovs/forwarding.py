"""Tell by ovs-ofctl(8) how a bridge of Open vSwitch takes frames on: the configuration of its ports, and flows that are no guard's."""

from __future__ import annotations

import re

from netcommon.host.api.datapath import OvsForwarding
from netcommon.host.api.facts import FLOW_MARK, FLOW_MARK_MASK
from runtime.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from netcommon.host.api.facts import Flow
    from netcommon.host.ovs.ofctl import OpenFlow

MOST = 2000  #: flows of table 0 that are looked at: a bridge with more has somebody who looks after it
GUARDED = 65000  #: from this priority on our flows in table 0 are the guard's (netcommon.operations.flows)

PORT = re.compile(r"\s*([0-9]+)\(.*\): addr:")
CONFIG = re.compile(r"\s*config:\s+([A-Z_ ]+)$")


def forwarding(openflow: OpenFlow, bridge: str) -> OvsForwarding:
    """See View.ovs_forwarding. Raises TryAgain, HostRefused."""
    flows = openflow.flows_of_table(bridge, 0, MOST)
    taken = None if flows is None else frozenset(flow.port for flow in flows if _takes_on(flow))
    return OvsForwarding(tuple(_configured(openflow.shown(bridge))), taken)


def _configured(lines: Iterable[str]) -> Iterator[tuple[int, tuple[str, ...]]]:
    number = 0
    for line in lines:
        if line.lstrip().startswith("LOCAL("):
            number = 0
        elif found := PORT.match(line):
            number = int(found.group(1))
        elif number and (found := CONFIG.match(line)):
            yield number, tuple(found.group(1).split())


def _takes_on(flow: Flow) -> bool:
    match, _, actions = flow.text.rpartition("actions=")
    if actions == "drop":
        return False
    priority = next((field[9:] for field in match.replace(" ", ",").split(",") if field.startswith("priority=")), "")
    ours = flow.cookie & FLOW_MARK_MASK == FLOW_MARK
    # a guard's flow that has the frame looked up again; a site's own guard may send it on itself
    return not (ours and priority.isdecimal() and int(priority) >= GUARDED and "resubmit(" in actions)
