"""Judge an underlay by the commits of its registry alone. Nothing here is of the registry's own code.

``Checker.commit`` is given each commit in order, and raises AssertionError at the first that breaks a rule: one prefix, one node; one name,
one address, which its node has confirmed; no name without an address while it moves; no address twice, and none back before its time.
"""

from __future__ import annotations

import ipaddress
import json
from collections.abc import Iterable
from typing import Any

RESERVED = 0x1_0000


class Checker:
    """The state that the commits so far have made. ``site``: the underlay's prefix; ``rests``: seconds of quarantine."""

    def __init__(self, site: str, rests: float) -> None:
        self.site, self.rests = ipaddress.IPv6Network(site), rests
        self.state: dict[str, Any] = {}
        self.given: dict[str, tuple[str, str, str]] = {}  # address -> key, kind, node: as long as its prefix is one node's
        self.steps = 0
        self.now = 0.0

    def commit(self, changes: Iterable[tuple[str, bytes | None]]) -> None:
        before = dict(self.state)
        changed = {key: None if value is None else json.loads(value) for key, value in changes if key != "leader"}
        for key, value in changed.items():
            if value is None:
                self.state.pop(key, None)
            else:
                self.state[key] = value
        for key in changed:
            kind = key.partition("/")[0]
            if kind == "prefixes":
                self._prefix(key, before.get(key), self.state.get(key))
            elif kind == "endpoints":
                self._placement(key, before.get(key), self.state.get(key))
            elif kind == "zones":
                assert self.state[key]["generation"] >= before.get(key, {}).get("generation", 0)
        if any(key.startswith(("names/", "endpoints/")) for key in changed):
            self._names(before, changed)

    def _prefix(self, key: str, before: dict[str, Any] | None, after: dict[str, Any] | None) -> None:
        if after is None:
            assert before is not None and before["freed"] > 0, "a prefix was taken from a node that has it"
            assert self.now >= before["freed"] + self.rests, "a prefix is free before its time"
            node = key.partition("/")[2]
            self.given = {address: one for address, one in self.given.items() if one[2] != node}
            return
        network = ipaddress.IPv6Network(after["prefix"])
        assert network.prefixlen == 64 and network.subnet_of(self.site)
        twins = [other for other, value in self.state.items() if other.startswith("prefixes/") and value["prefix"] == after["prefix"]]
        assert twins == [key], f"{after['prefix']} is of {twins}"
        if before is not None:
            assert after["prefix"] == before["prefix"], "a node has another prefix"
            assert after.get("next", RESERVED) >= before.get("next", RESERVED), "the counter goes back"
            assert after.get("generation", 1) > before.get("generation", 1), "the generation does not advance"

    def _placement(self, key: str, before: dict[str, Any] | None, after: dict[str, Any] | None) -> None:
        self.steps += 1
        old = {each["address"]: each for each in (before or {}).get("endpoints", ())}
        new = {each["address"]: each for each in (after or {}).get("endpoints", ())}
        if after is not None:
            assert len(new) == len(after["endpoints"]), "one address twice"
            assert after.get("generation", 0) > (before or {}).get("generation", 0) or before is None
        for address, each in new.items():
            node = self.state.get(f"prefixes/{each['node']}")
            if address not in old:
                assert node is not None, "an address of a node that has no prefix"
                number = int(ipaddress.IPv6Address(address)) - int(ipaddress.IPv6Network(node["prefix"])[0])
                assert RESERVED <= number < 1 << 64, f"{address} is reserved, or not of its node"
                assert address not in self.given, f"{address} is given a second time"
                self.given[address] = key, each["kind"], each["node"]
                assert each.get("state", "wanted") == "wanted", "an address is there before its node was told"
            elif each.get("state", "wanted") == "there" != old[address].get("state", "wanted"):
                said = self.state.get(f"confirmed/{each['node']}", {}).get("there", {}).get("addresses", ())
                assert address in said, f"{address} counts as there, and its node has not confirmed it"
            elif each.get("state", "wanted") != old[address].get("state", "wanted"):
                allowed = {"wanted": ("retired",), "there": ("retired",), "retired": ("leaving",), "leaving": ()}
                assert each["state"] in allowed[old[address].get("state", "wanted")], "a step that there is not"
                if each["state"] == "leaving":
                    assert self.now >= old[address]["since"] + self.rests, f"{address} leaves before its time"
        for address in old.keys() - new.keys():
            each = old[address]
            assert each.get("state", "wanted") == "leaving", f"{address} is forgotten and was not told to go"
            said = self.state.get(f"confirmed/{each['node']}", {}).get("there", {})
            if f"nodes/{each['node']}" in self.state:
                assert address not in said.get("addresses", ()), f"{address} is forgotten, and is there still"
                assert said.get("generation", 0) >= each["generation"], f"{address} is forgotten by what its node said before it was told"

    def _names(self, before: dict[str, Any], changed: dict[str, Any]) -> None:
        """Check that each name leads to one address, of an endpoint that is there, and that none which moves leads nowhere."""
        there: dict[str, dict[str, Any]] = {}
        for key, value in self.state.items():
            if key.startswith("endpoints/"):
                there |= {each["address"]: {**each, "of": value} for each in value.get("endpoints", ())}
        for key, name in self.state.items():
            if key.startswith("names/"):
                each = there.get(name["address"])
                assert each is not None and each.get("state") == "there", f"{key} leads to {name['address']}, which is not there"
                assert each["node"] == name["node"]
                migrating = "-migrating." in key
                assert each["node"] == each["of"].get("incoming" if migrating else "leads"), f"{key} leads to another node"
        for key, value in changed.items():
            if key.startswith("names/"):
                zone = self.state[f"zones/{key.split('/')[1]}"]
                assert zone["generation"] > before.get(f"zones/{key.split('/')[1]}", {}).get("generation", 0), "names without a generation"
                if value is not None:
                    assert value["generation"] == zone["generation"]
                elif "-migrating." not in key:
                    one = before[key]
                    left = self.state.get(f"endpoints/{one.get('cluster') or 'none'}/{one['instance']}", {})
                    live = [each for each in left.get("endpoints", ()) if each.get("state", "wanted") in ("wanted", "there")]
                    assert all(each["node"] != left.get("leads", "") for each in live), f"{key} goes, and its guest is somewhere"
