"""Tell by ovs-ofctl(8) how a bridge of Open vSwitch takes frames on: the configuration of its ports, and flows that are no guard's."""

from __future__ import annotations

import re

from netcommon.host.api.datapath import OvsForwarding
from netcommon.host.api.facts import FLOW_MARK, FLOW_MARK_MASK
from netcommon.host.ovs.ofctl import FLAGS
from runtime.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from netcommon.host.api.facts import Flow
    from netcommon.host.ovs.ofctl import OpenFlow

MOST = 2000  #: flows of others in table 0 that are looked at: a bridge with more has somebody who looks after it
USUAL = 32768  #: the priority of a flow that names none
GUARDED = 65000  #: from this priority on our flows in table 0 are the guard's (netcommon.operations.flows)

#: Lines of flows with our mark that drop, or are the guard's and look a frame up again: they take nothing on, whatever else they say.
SILENT = re.compile(rf" cookie={FLOW_MARK >> 40:#x}[0-9a-f]{{10}}, .*(?:[ ]priority=65[0-9]{{3}}[, ].*resubmit\(| actions=drop$)")

PORT = re.compile(r"\s*([0-9]+)\(.*\): addr:")
CONFIG = re.compile(r"\s*config:\s+([A-Z_ ]+)$")


def forwarding(openflow: OpenFlow, bridge: str) -> OvsForwarding:
    """See View.ovs_forwarding. Raises TryAgain, HostRefused."""
    flows = openflow.flows_of_table(bridge, 0, MOST, lambda line: SILENT.match(line) is not None)
    shown = list(openflow.shown(bridge))
    taken = None if flows is None else frozenset(flow.port for flow in flows if _takes_on(flow))
    numbers = [int(found.group(1)) for line in shown if (found := PORT.match(line))]
    return OvsForwarding(tuple(_configured(shown)), taken, tuple(_dropped(flows or (), numbers)))


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
    fields, actions = _parts(flow)
    # a guard's flow that has the frame looked up again; a site's own guard may send it on itself
    return actions != "drop" and not (_ours(flow) and _priority(fields) >= GUARDED and "resubmit(" in actions)


def _dropped(flows: Sequence[Flow], numbers: Iterable[int]) -> Iterator[tuple[int, str]]:
    """Yield the ports of which a flow without another condition drops all, with its match: none that takes any on is of its priority."""
    taking, dropping = dict[int, int](), dict[int, tuple[int, str]]()
    for flow in flows:
        fields, actions = _parts(flow)
        if _takes_on(flow):
            taking[flow.port] = max(_priority(fields), taking.get(flow.port, -1))
        elif actions == "drop" and not _ours(flow) and all(each in FLAGS or each.startswith("priority=") for each in fields):
            port = f",in_port={flow.port}" if flow.port else ""
            dropping[flow.port] = max((_priority(fields), port), dropping.get(flow.port, (-1, "")))
    for number in numbers:
        priority, port = max(dropping.get(each, (-1, "")) for each in (0, number))
        if priority > max(taking.get(each, -1) for each in (0, number)):
            yield number, f"priority={priority}{port}"


def _parts(flow: Flow) -> tuple[list[str], str]:
    """Give what a flow of table 0 is for, word by word, without its port; and what it does."""
    match, _, actions = flow.text.rpartition("actions=")
    return [field for field in match.replace(" ", ",").split(",") if field], actions


def _priority(fields: Iterable[str]) -> int:
    value = next((field[9:] for field in fields if field.startswith("priority=")), "")
    return int(value) if value.isdecimal() else USUAL


def _ours(flow: Flow) -> bool:
    return flow.cookie & FLOW_MARK_MASK == FLOW_MARK
