"""Draw a short scenario from a seed: a few nodes and guests, what an administrator does to them, and what goes wrong meanwhile.

Each has at least three nodes, a migration and a fault; some have an underlay (mockcloud.explore.underlaid).
"""

from __future__ import annotations

import json
from random import Random
from typing import TYPE_CHECKING, Any

from mockcloud.explore.underlaid import has_one, underlaid
from mockcloud.scenarios.faults import FAULTS
from mockcloud.scenarios.file import Scenario, Step

if TYPE_CHECKING:
    from collections.abc import Sequence

#: Agents that compare and reap often: what takes minutes on a real node is part of a short run.
SETTINGS = """
[agent]
resync = 20
start_delay = 2
reap_interval = 3
reap_grace = 2
[registry]
compare_delay = 20
compare_interval = 60
[nic]
spoof_guard = true
"""
SETTLE = 70.0  #: seconds: a comparison with the registry, and what was refused is tried again
NETWORK = {"subnet": "192.0.2.0/24", "gateway": "192.0.2.254"}
SIX = {"subnet6": "2001:db8::/64", "gateway6": "2001:db8::ffff"}
BRIDGED, ROUTED = {"network": "blue"}, {"network": "blue", "mode": "routed", "link": "guests"}
#: What stands for each of these in some of the scenarios.
INSTEAD = {"bridged": {"network": "blue", "mode": "openvswitch", "link": "ovs0", "vlan": ".7:8"}, "routed": {**ROUTED, "network": "six"}}
NAMES = ("web1", "web2", "web3", "web4")
#: What an administrator does, and how often.
TASKS = {"migrate": 8, "change": 4, "stop": 3, "start": 3, "failover": 2, "crash": 2, "reboot": 1, "create": 2, "delete": 2, "plug": 1}
TASKS |= {"unplug": 1, "update": 1}
#: What goes wrong, and how often.
WRONG = {"partition": 5, "agent": 5, "slow": 3, "copies": 3, "events": 3, "node": 3, "hook": 2, "registry": 3, "restore": 2, "disk": 1}
WRONG |= {"clock": 1, "older": 1}
#: Options beside rates: what settings and operators may say of them.
OPTIONS: dict[str, tuple[str, ...]] = {
    "node_access": ("none", "icmp,tcp/22", "udp/53"),
    "firewall": ("limited", "protected"),
    "spoof_guard": ("false",),
    "allow_mcast_router": ("true",),
    "link_local": ("eui64",),
    "blackhole": ("true",),
    "gateway_arp": ("true",),
    "tap_mac": ("fe:00:00:00:00:01",),
    "rp_filter": ("strict", "loose"),
    "accept_local": ("true",),
    "gateway_link_local": ("true",),
    "isolated": ("true",),
    "static_fdb": ("true",),
    "dhcp": ("dnsmasq", "nfdhcpd"),
}
BY_SETTINGS = ("blackhole", "gateway_arp", "static_fdb", "dhcp", "rp_filter")  #: which of them settings may say
SOONEST, LATEST = 0.05, 4.0  #: seconds from one step to the next
LASTS = 0.5, 20.0  #: seconds of a fault


def draw(seed: int) -> Scenario:
    """Draw the scenario of a seed: the same at each time."""
    found = Drawing(seed).scenario()
    return underlaid(seed, found) if has_one(seed) else found


class Drawing:
    """Draw from a seed. ``nodes``: how many there are, of the sort ``profile``; ``names``: of the guests to which something is done."""

    def __init__(self, seed: int) -> None:
        self.chance = Random(f"explore {seed}")
        self._options = Random(f"options {seed}")  # of its own: whatever options there are, the steps of a seed are the same
        self.nodes = self.chance.choice((3, 3, 3, 4))
        self.profile = self._options.choice(("plain", "plain", "switched"))
        self.names: Sequence[str] = NAMES[:3]
        self.others: Sequence[str] = NAMES  # of which some may be made anew
        self._at = 0.0
        self._steps: list[Step] = []

    def scenario(self) -> Scenario:
        chance = self.chance
        for name in NAMES[: chance.choice((1, 2, 2, 3))]:
            self._add(Step("create", given=self.created(name)))
        wrong = self._kinds(WRONG, chance.randint(1, 4))
        if "restore" in wrong:
            self._add(Step("backup"))
        kinds = [*wrong, "migrate", *self._kinds(TASKS, chance.randint(2, 8))]
        chance.shuffle(kinds)
        for kind in kinds:
            self._at += chance.uniform(SOONEST, LATEST)
            self._add(self.fault(kind) if kind in WRONG else Step(kind, given=self.task(kind)))
        networks = {"blue": NETWORK, **({"six": SIX} if any("six" in str(step.given) for step in self._steps) else {})}
        return Scenario(self.nodes, self.profile, SETTINGS + self._settings(), SETTLE, networks, tuple(self._steps))

    def _settings(self) -> str:
        """Give options that all NICs have in every other scenario."""
        if self._options.random() < 0.5:
            return ""
        found = {name: self._options.choice(OPTIONS[name]) for name in BY_SETTINGS if self._options.random() < 0.5}
        return "".join(f"{name} = {value if value in ('true', 'false') else json.dumps(value)}\n" for name, value in found.items())

    def _add(self, step: Step) -> None:
        self._steps.append(step._replace(at=round(self._at, 2)))

    def _kinds(self, among: dict[str, int], number: int) -> Sequence[str]:
        return self.chance.choices(list(among), list(among.values()), k=number)

    def _node(self) -> str:
        return f"mock{self.chance.randint(1, self.nodes)}"

    # -- tasks

    def created(self, name: str) -> dict[str, Any]:
        """Draw an instance of a name."""
        nics = self.chance.choice(([BRIDGED], [ROUTED], [BRIDGED, ROUTED]))
        return {"name": name, "node": self._node(), "nics": [self._nic(each) for each in nics], "start": True}

    def _nic(self, usual: dict[str, str]) -> dict[str, str]:
        """Give the NIC or another one; where nodes have Open vSwitch, one of that too."""
        mode = usual.get("mode", "bridged")
        if self._options.random() < 0.7 or (mode == "bridged" and self.profile != "switched"):
            return usual
        return INSTEAD[mode]

    def task(self, kind: str) -> dict[str, Any]:
        """Draw what a task is done with."""
        chance, name = self.chance, self.chance.choice(self.names)
        match kind:
            case "create":
                return self.created(chance.choice(self.others))
            case "migrate":
                more = {"fail": True} if chance.random() < 0.2 else {}
                return {"name": "web*" if chance.random() < 0.2 else name, "node": "mock*", "blind": True, **more}
            case "failover":
                return {"name": name, "node": "mock*", "blind": True}
            case "change":
                value = f"{chance.randint(1, 99)}mbit" if chance.random() < 0.8 else ""
                option = chance.choice(("rate_in", "rate_out"))
                if self._options.random() < 0.6:
                    option = self._options.choice([*OPTIONS])
                    value = self._options.choice((*OPTIONS[option], *OPTIONS[option], ""))
                return {"name": name, "index": 0, "options": {option: value}}
            case "plug":
                return {"name": name, "fields": self._nic(chance.choice((BRIDGED, ROUTED)))}
            case "unplug":
                return {"name": name, "index": 0}
            case "update":
                return {"name": name, "add": [f"netcommon:*:rate_in:{chance.randint(1, 99)}mbit"]}
            case "stop":
                return {"name": name, **({"ifdown": True} if chance.random() < 0.3 else {})}
        return {"name": name}

    # -- faults

    def fault(self, kind: str) -> Step:
        """Draw a fault of a kind."""
        chance, fault = self.chance, FAULTS[kind]
        given: dict[str, Any] = {}
        for name, parameter in fault.takes.items():
            if parameter.choices:
                given[name] = chance.choice(parameter.choices)
            elif name in ("request", "number"):
                given[name] = chance.randint(1, 12)
            elif kind == "slow":
                given[name] = float(chance.choice((0.5, 3, 30)))
            elif kind == "clock":
                given[name] = float(chance.choice((-7200, -60, 60, 7200)))
            else:
                given[name] = round(chance.random() / 2, 2)
        nodes = chance.choice(("*", *(f"mock{number}" for number in range(1, self.nodes + 1)))) if fault.of_node else "*"
        drawn = Step(kind, given=given, nodes=nodes)
        return drawn._replace(lasts=round(chance.uniform(*LASTS), 2)) if fault.ends else drawn
