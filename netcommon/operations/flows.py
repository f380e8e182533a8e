"""OpenFlow flows of a NIC's port of Open vSwitch, made by templates (ovs-ofctl(8), ovs-actions(7))."""

from __future__ import annotations

from netcommon.host.api.facts import FLOW_MARK, FLOW_MARK_MASK
from netcommon.host.api.requests import DeleteFlows, PutFlows
from netcommon.operations.base import Operation, Owned
from netcommon.operations.guard.flows import GUARD, guard_flows, in_front, unchanged
from netcommon.operations.link import device_link
from netcommon.operations.ovs import running, standing
from runtime.errors import HostRefused, SettingsInvalid, TemplateInvalid
from runtime.names import digest
from runtime.typed import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from netcommon.host.api.facts import Flow, OvsBridge
    from netcommon.host.api.host import View
    from netcommon.host.api.requests import Request

#: In table 0 the guard's flows have priorities from here on, and no other of a NIC's has.
GUARDED = 65000

#: What is printed before the match of a flow of somebody else's, and is no part of it.
FLAGS = frozenset({"send_flow_rem", "check_overlap", "reset_counts", "no_packet_counts", "no_byte_counts"})
LASTING = frozenset({"idle_timeout", "hard_timeout", "importance"})

#: Bits of a cookie that are the NIC's.
BITS = 40


def cookie_of(owner: str, device: str) -> int:
    """The cookie of a NIC's flows: our mark, and 40 bits of a hash of its UUID and device: those of 5000 NICs collide once in 90,000 nodes.

    The device is in it since for a while two can bear one UUID: the one that goes, and the one that comes.
    """
    return FLOW_MARK | int.from_bytes(digest(f"{owner} {device}")[: BITS // 8], "big")


class FlowsFields(NamedTuple):
    """The fields of Flows."""

    device: str
    bridge: str
    owner: str  #: the NIC's UUID
    templates: tuple[str, ...]
    words: tuple[tuple[str, str], ...] = ()  #: what the templates are given: words by name; "" is false in a template
    lists: tuple[tuple[str, tuple[str, ...]], ...] = ()  #: and lists of words
    ifindex: int = 0
    switch: str = ""  #: the real bridge, where ``bridge`` is a VLAN of it
    flows: tuple[str, ...] = ()  #: as Open vSwitch prints them, without cookie and in_port
    names: tuple[str, ...] = ()  #: of each flow: under which name what it meets is counted, "" for none
    left: tuple[str, ...] = ()  #: those of ``flows`` that are not put: one of somebody else's stands in the place of each


class Flows(FlowsFields, Operation):
    """The port has these flows, all with our cookie and for frames from this port. They go with ovs-vswitchd, and are drift then.

    What the templates make is on the record, so that repair does not depend on what they say by then.
    """

    __slots__ = ()
    KIND = "flows"
    REPAIRED = "OpenFlow flows"
    MIGRATION = "for packets from and to the port"
    CHOSEN = frozenset({"ifindex", "switch", "flows", "names", "left"})
    BEFORE = frozenset[str]()

    def one_of_device(self) -> bool:
        return True

    @property
    def cookie(self) -> int:
        return cookie_of(self.owner, self.device)

    def anywhere(self) -> Operation:
        return self._replace(bridge="", lists=tuple(each for each in self.lists if each[0] != "vlans"))

    def confines(self) -> str:
        return "its addresses"

    def renamed(self, before: str, now: str) -> Operation:
        words = tuple((name, now if (name, word) == ("device", before) else word) for name, word in self.words)
        return self._replace(device=now, words=words) if self.device == before else self

    def resolve(self, view: View, warnings: list[str]) -> Sequence[Operation]:
        link, switch = device_link(view, self.device), _switch(view, self.bridge)
        if switch.controlled:
            warnings.append(f"{switch.name} has a controller, which may remove the flows of {self.device}: let it do the guarding too")
        if self.flows:
            left = tuple(flow for flow, _match in self._others(view, switch.name, self.flows) if not _guards(flow))
            return [self._replace(ifindex=link.index, switch=switch.name, left=left)]
        made = [(name, flow) for template in self.templates for name, flow in self._render(template, view)]
        names, flows = tuple(name for name, _ in made), tuple(flow for _, flow in made)
        self._refuse_others(view, switch.name, flows)
        return [self._replace(ifindex=link.index, switch=switch.name, flows=flows, names=names)]

    def _refuse_others(self, view: View, switch: str, flows: Sequence[str]) -> None:
        """Raise HostRefused where a flow of a site's template would take the place of somebody else's, which nobody would give back."""
        for _flow, match in self._others(view, switch, flows):
            raise self._refusal(switch, match)

    def _refusal(self, switch: str, match: str) -> HostRefused:
        return HostRefused(
            f"{switch} has a flow of somebody else's with the match and priority of one of {' '.join(self.templates)}: {match}",
            f'ovs-ofctl --strict del-flows {switch} "{match.partition(",")[2]}", or take another priority in the template',
        )

    def _others(self, view: View, switch: str, flows: Sequence[str]) -> list[tuple[str, str]]:
        """Pair each of ``flows`` in the place of which one of somebody else's stands with the cookie and match of that.

        A port that is not there yet has no flows of anybody's, and where ours are there no other is. The guard's alone are not looked for:
        nobody else has their matches, and it would cost each NIC a process.
        """
        port = standing(view, self.device, self.bridge, self.owner) if self.templates != (GUARD,) else None
        if port is None:
            return []
        there = {flow.text for flow in view.flows(switch, self.cookie) if flow.port == port.ofport}
        wanted = {_match(flow): flow for flow in flows if flow not in there}
        others = [flow for flow in view.flows_from(switch, port.ofport) if flow.cookie & FLOW_MARK_MASK != FLOW_MARK] if wanted else []
        taken = [(flow.cookie, _match(flow.text)) for flow in others if _match(flow.text) in wanted]
        return [(wanted[at], ",".join(filter(None, [f"cookie={cookie:#x}", f"in_port={self.device}", at]))) for cookie, at in taken]

    def hindered(self, view: View) -> str:
        """Tell of somebody else's flow, where nothing but those in the places of which one stands is missing."""
        port = standing(view, self.device, self.bridge, self.owner) if self.templates != (GUARD,) else None
        if port is None:
            return ""
        there = {flow.text for flow in view.flows(self.switch, self.cookie) if flow.port == port.ofport}
        missing = [flow for flow in (self.flows if set(self.flows) <= there else _reprinted(view, self.flows)) if flow not in there]
        taken = dict(self._others(view, self.switch, missing)) if missing else {}
        if not missing or any(flow not in taken or _guards(flow) for flow in missing):
            return ""
        return str(self._refusal(self.switch, taken[missing[0]]))

    def _render(self, template: str, view: View) -> list[tuple[str, str]]:
        """The flows of one template, each after its name. Raises TemplateInvalid."""
        if template == GUARD and unchanged(view.template(GUARD)):
            return list(guard_flows(self._given(view), dict(self.lists)))
        from netcommon.templates import render  # takes longer than all the rest

        variables: dict[str, object] = {**self._given(view), **{name: list(words) for name, words in self.lists}}
        lines = [line.strip() for line in render(template, variables, view.template).splitlines()]
        prefix = "" if template == GUARD else template.removeprefix("ovs/").removesuffix(".j2") + "."
        named = [_named(line, prefix) for line in lines if line and not line.startswith("#")]
        try:
            flows = view.flow_texts(tuple(flow for _, flow in named))
        except SettingsInvalid as error:
            raise TemplateInvalid(f"template {template}: {error}") from None
        for flow in flows:
            if template != GUARD and _priority(flow) >= GUARDED:
                raise TemplateInvalid(f"template {template}: {flow}: priorities of table 0 from {GUARDED} on are the spoof guard's")
        return [(name, flow) for (name, _), flow in zip(named, flows, strict=True)]

    def _given(self, view: View) -> dict[str, str]:
        """The words for a template; one depends on who forwards for the bridge."""
        return {**dict(self.words), "in_front": "yes" if GUARD in self.templates and in_front(view, self.bridge) else ""}

    def apply(self) -> Sequence[Request]:
        return [PutFlows(self.switch, self.device, self.cookie, tuple(flow for flow in self.flows if flow not in self.left))]

    def differs(self, view: View) -> str:
        port = standing(view, self.device, self.bridge, self.owner)
        if port is None:
            running(view)
            return "the port is gone"  # or will be made anew, with another number
        found = view.flows(self.switch, self.cookie)
        now = [flow.text for flow in found if flow.port == port.ofport]
        wanted = self.flows if set(self.flows) <= set(now) else _reprinted(view, self.flows)
        missing = [flow for flow in wanted if flow not in now]
        strange = len(found) - sum(flow in wanted for flow in now)
        words = [f"{len(missing)} of its {len(self.flows)} flows are missing"] if missing else []
        for _flow, match in self._others(view, self.switch, missing) if missing else ():
            words.append(f"a flow of somebody else's stands in the place of one: {match}")
        words += [f"{strange} flows are there that are not its own"] if strange else []
        return ", ".join(words)

    def revert(self, view: View) -> Sequence[Request]:
        """FlowsEnd does it, after the port has gone."""
        return []

    def counters(self, view: View) -> Sequence[tuple[str, int]]:
        """How many packets were met by the flows of each name."""
        met = {flow.text: flow.packets for flow in view.flows(self.switch, self.cookie)}
        known = self.flows if set(self.flows) <= set(met) else _reprinted(view, self.flows)
        found: dict[str, int] = {}
        for name, flow in zip(self.names, known, strict=True):
            if name:
                found[name] = found.get(name, 0) + met.get(flow, 0)
        return tuple(found.items())

    def identity(self) -> str:
        return f"flows {self.switch} {self.cookie:#x}"

    def place(self) -> str:
        return self.identity()

    def sentence(self) -> str:
        return f"Open vSwitch has the flows of {', '.join(self.templates)} for what the guest sends."

    def describe(self) -> str:
        templates = " ".join(self.templates)
        return f"ovs-ofctl --bundle add-flows {self.switch or self.bridge} <{templates}> cookie={self.cookie:#x} in_port={self.device}"

    def undo(self) -> str:
        return "nothing: they go after the port"

    @classmethod
    def owned(cls, view: View) -> Iterable[Owned]:
        found: dict[tuple[str, int], Flow] = {}
        for switch in view.ovs_switches():
            found.update({(switch.name, flow.cookie): flow for flow in view.flows(switch.name)})
        if not found:
            return
        ports = {(_real(view, port.bridge), port.ofport): port.name for port in view.ovs_ports()}
        for (bridge, cookie), flow in found.items():
            text = f"OpenFlow flows of {bridge} with cookie {cookie:#x}"
            yield Owned(f"flows {bridge} {cookie:#x}", text, (DeleteFlows(bridge, cookie),), device=ports.get((bridge, flow.port), ""))


class FlowsEndFields(NamedTuple):
    """The fields of FlowsEnd."""

    device: str
    bridge: str
    owner: str  #: the NIC's UUID
    switch: str = ""  #: as in Flows


class FlowsEnd(FlowsEndFields, Operation):
    """Before the port, so that its undoing comes after that of the port: the flows are deleted.

    What the guest has sent may wait in the switch to be looked at; it meets the flows as long as there is a port it came from.
    """

    __slots__ = ()
    KIND = "flows-end"
    REPAIRED = "their end, after that of the port"
    MIGRATION = "the end of those, after the port's"
    CHOSEN = frozenset({"switch"})
    BEFORE = frozenset[str]()

    def one_of_device(self) -> bool:
        return True

    @property
    def cookie(self) -> int:
        return cookie_of(self.owner, self.device)

    def resolve(self, view: View, warnings: list[str]) -> Sequence[Operation]:
        return [self._replace(switch=_switch(view, self.bridge).name)]

    def apply(self) -> Sequence[Request]:
        return []

    def differs(self, view: View) -> str:
        return ""

    def revert(self, view: View) -> Sequence[Request]:
        return [DeleteFlows(self.switch, self.cookie)] if self.switch else []

    def identity(self) -> str:
        """That of the flows: they are on record until they are deleted."""
        return f"flows {self.switch} {self.cookie:#x}"

    def place(self) -> str:
        return f"flows-end {self.switch} {self.cookie:#x}"

    def sentence(self) -> str:
        return "When the port goes, its flows go after it."

    def describe(self) -> str:
        return f"nothing yet: the flows of {self.device} go when its port has gone"

    def undo(self) -> str:
        return f"ovs-ofctl del-flows {self.switch or self.bridge} cookie={self.cookie:#x}/-1"


def _match(flow: str) -> str:
    """Table, priority and match of a flow: two with the same are one, whatever their time-outs and flags."""
    fields = flow.rpartition("actions=")[0].replace(" ", ",").split(",")
    return ",".join(field for field in fields if field and field not in FLAGS and field.partition("=")[0] not in LASTING)


def _reprinted(view: View, flows: Sequence[str]) -> Sequence[str]:
    """Flows as the Open vSwitch of now prints them, which need not be the one that was asked, or written of, when they were made."""
    try:
        return view.flow_texts(tuple(",actions=".join(flow.rsplit(" actions=", 1)) for flow in flows))
    except SettingsInvalid:
        return flows


def _switch(view: View, bridge: str) -> OvsBridge:
    """The real bridge that ``bridge`` is or is a VLAN of. Raises HostRefused."""
    switch = view.ovs_switch(bridge)
    if switch is None:
        running(view)
        raise HostRefused(f"Open vSwitch bridge {bridge} does not exist", "create it, or correct the NIC's LINK")
    return switch


def _real(view: View, bridge: str) -> str:
    switch = view.ovs_switch(bridge)
    return switch.name if switch else ""


def _named(line: str, prefix: str) -> tuple[str, str]:
    """The name before a flow, "" for none, and the flow."""
    name, colon, flow = line.partition(": ")
    return (prefix + name, flow.strip()) if colon and name and set(name) <= set("abcdefghijklmnopqrstuvwxyz0123456789-") else ("", line)


def _guards(flow: str) -> bool:
    """Tell whether a flow, as it is printed, is the spoof guard's: a guest is not left without one of these for somebody else's."""
    return _priority(flow.replace(" actions=", ",actions=")) >= GUARDED


def _priority(flow: str) -> int:
    """The priority of a flow of table 0, -1 for one of another table."""
    fields = dict(field.partition("=")[::2] for field in flow.partition("actions=")[0].strip().split(","))
    return -1 if "table" in fields else int(fields.get("priority", "32768"))
