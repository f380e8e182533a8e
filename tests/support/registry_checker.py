"""Judge a registry by its commits alone: bytes below keys, one commit after the other. Nothing here is of the registry's own code.

``Checker.commit`` is given each commit of a store in order, and raises AssertionError at the first that breaks a rule; ``finish`` compares
with what the clients were answered.
"""

from __future__ import annotations

import ipaddress
import json
from collections.abc import Iterable
from typing import Any

FOREVER = 1e11  # the end of a quarantine that has not begun
WANTED = ("networks/", "nics/", "nodes/", "macs/", "addresses/", "imports/", "settings")


class Checker:
    """The state that the commits so far have made. ``quarantine``: seconds."""

    def __init__(self, quarantine: float) -> None:
        self.state: dict[str, dict[str, Any]] = {}
        self.replayed: dict[str, Any] = {}  # what the history alone says that there is
        self.entries: dict[str, dict[str, Any]] = {}  # by request, also those that were trimmed
        self.reports: dict[str, list[str]] = {}  # by node: the requests that were taken
        self.number = 0
        self.revision = 0
        self.quarantine = quarantine

    def commit(self, revision: int, changes: Iterable[tuple[str, bytes | None]]) -> None:
        before = dict(self.state)
        assert revision > self.revision
        self.revision = revision
        changed = {key: None if value is None else json.loads(value) for key, value in changes if key != "leader"}
        for key, value in changed.items():
            if value is None:
                self.state.pop(key, None)
            else:
                self.state[key] = value
        self._history(changed)
        self._reports(changed)
        touched = {key for key in changed if key.startswith(("macs/", "addresses/"))}
        for key in changed:
            if key.startswith("nics/"):
                for each in (before.get(key), self.state.get(key)):
                    touched |= set(claims(each)) if each else set()
        for key in touched:
            self._claim(key, before.get(key), self.state.get(key))
            self._not_anothers(key, before)
            self._not_forgotten(key, before)
        for key in changed:
            if key.startswith("nics/") and key in self.state:
                self._nic(self.state[key])
                self._further(before.get(key), self.state[key])
        for key in changed:
            if key.startswith("networks/") and key not in self.state:
                uuid = key.partition("/")[2]
                left = [name for name, each in self.state.items() if name.startswith("nics/") and each.get("network") == uuid]
                assert left == [], "a network was deleted under its NICs"

    def _history(self, changed: dict[str, Any]) -> None:
        """Every change of what is wanted is in one new entry, with what was there before; numbers have no gap; no request is done twice."""
        made = {key: value for key, value in changed.items() if key.startswith("history/") and value is not None}
        wanted = {key for key in changed if key.startswith(WANTED)}
        assert len(made) <= 1
        if not made:
            assert wanted == set(), "a change without history"
            return
        ((key, entry),) = made.items()
        request = key.partition("/")[2]
        assert request == entry["request"] and request not in self.entries, "a request was done twice"
        self.entries[request] = entry
        self.number += 1
        assert entry["number"] == self.number == self.state["ledger"]["number"], "history has a gap"
        assert {each["key"] for each in entry["changes"]} == wanted, "history says something else than was changed"
        for each in entry["changes"]:
            name, after = each["key"], each["after"]
            assert each["before"] == self.replayed.get(name), "history does not follow on itself"
            stored = self.state.get(name)
            assert (after is None) == (stored is None)
            if after is None:
                self.replayed.pop(name, None)
            else:
                assert stored is not None and subset(stored, after)
                self.replayed[name] = after

    def _reports(self, changed: dict[str, Any]) -> None:
        for key, value in changed.items():
            if key.startswith("reports/") and value is not None:
                node = key.partition("/")[2]
                assert value["request"] not in self.reports.setdefault(node, []), "reports were taken twice"
                self.reports[node].append(value["request"])
            elif key.startswith("seen/"):
                node = key.split("/")[1]
                assert f"reports/{node}" in changed or (value is None and f"nodes/{node}" not in self.state), (
                    "a report without its node's commit"
                )

    def _claim(self, key: str, before: dict[str, Any] | None, after: dict[str, Any] | None) -> None:
        holders = ([after["holder"]] if after and after.get("holder") else []) + (list(after.get("contenders", ())) if after else [])
        assert len(set(holders)) == len(holders)
        wanting = [uuid for uuid, nic in self._nics(key) if key in claims(nic)]
        assert sorted(holders) == sorted(wanting), f"{key} is of {holders}, wanted by {wanting}"
        for other in holders[1:]:
            assert self.state[f"nics/{other}"].get("master", "registry") != "registry", "two of the registry's own have one address"
        if before and before.get("holder") and not holders:
            assert after is not None and after["freed"] > 0, "what was freed is forgotten"
            until = after["freed"] + self.quarantine if self.quarantine else 0
            assert after.get("until", 0) in (until, FOREVER)

    def _not_forgotten(self, key: str, before: dict[str, dict[str, Any]]) -> None:
        """Check that it is known whose something is as long as its guest has it by report: else other NICs are given it."""
        old, scope = before.get(key), key.split("/")[1]
        if old and old.get("last") and not self.state.get(key, {}).get("last") and (scope == "none" or f"networks/{scope}" in self.state):
            assert old["last"] not in users(before, key) or self.state.get(key, {}).get("holder") == old["last"], (
                f"{key} was forgotten, and {old['last']} is reported with it"
            )

    def _not_anothers(self, key: str, before: dict[str, dict[str, Any]]) -> None:
        """Check that no other NIC is given what a guest has by report; what exists already (a node's, an importer's) contends."""
        after, old = self.state.get(key) or {}, before.get(key) or {}
        holder = after.get("holder", "")
        if not holder or holder == old.get("holder") or holder in old.get("contenders", ()):
            return
        if self.state[f"nics/{holder}"].get("master", "registry") == "registry":
            having = users(before, key) - {holder}
            assert not having, f"{key} was given to {holder}, and {having} are reported with it"

    def _nics(self, key: str) -> list[tuple[str, dict[str, Any]]]:
        return [(name.partition("/")[2], each) for name, each in self.state.items() if name.startswith("nics/")]

    def _nic(self, nic: dict[str, Any]) -> None:
        if nic.get("instance"):
            mates = [each for each in self.state.values() if each.get("instance") == nic["instance"] and "uuid" in each]
            primary = [each for each in mates if each.get("primary") and each.get("cluster", "") == nic.get("cluster", "")]
            assert len(primary) <= 1, "two primary NICs of one instance"

    def _further(self, before: dict[str, Any] | None, nic: dict[str, Any]) -> None:
        """Check that Ganeti, which knows nothing of a NIC's further addresses, takes none along to where it is somebody else's."""
        network = nic.get("network")
        if not nic.get("master", "").startswith("ganeti:") or before is None or not network or network == before.get("network"):
            return
        said = self.state[f"networks/{network}"]
        own = {said.get("gateway"), said.get("gateway6")}
        if "subnet" in said:
            own |= {str(ipaddress.ip_network(said["subnet"])[place]) for place in (0, -1)}
        for each in nic.get("addresses", ()):
            assert self.state[f"addresses/{network}/{each}"].get("holder") == nic["uuid"], f"{each} is somebody else's in {network}"
            assert each not in own, f"{each} is the network's own"

    def finish(self, answered: dict[str, tuple[int, Any]]) -> None:
        """``answered``: of requests for changes: status and body."""
        for request, (status, body) in answered.items():
            if status < 300:
                assert request in self.entries, "an acknowledged request is lost"
                assert self.entries[request].get("body") == body
            elif status < 500:
                assert request not in self.entries, "a refused request was done"
        wanted = {key: value for key, value in self.state.items() if key.startswith(WANTED)}
        assert wanted.keys() == self.replayed.keys(), "history does not lead to what there is"
        assert all(subset(value, self.replayed[key]) for key, value in wanted.items())

    def settled(self) -> None:
        """Check that, when the leader has done all that is due, no quarantine waits for the end of a report that there is not."""
        for key, claim in self.state.items():
            if key.startswith(("macs/", "addresses/")) and claim.get("until") == FOREVER:
                assert not claim.get("holder") and users(self.state, key), f"the quarantine of {key} does not begin"

    def to_give(self, network: str) -> str | None:
        """The IPv4 address that is to be given out next in a small network without ranges, found by looking at each; None: none."""
        said = self.state[f"networks/{network}"]
        subnet = ipaddress.ip_network(said["subnet"])
        free: list[tuple[float, int, str]] = []
        for host in subnet.hosts():
            claim = self.state.get(f"addresses/{network}/{host}")
            key = f"addresses/{network}/{host}"
            if str(host) == said.get("gateway") or users(self.state, key) or unknown(self.state, str(host)):
                continue
            if claim is None:
                return str(host)
            if not (claim.get("holder") or claim.get("reserved") or claim.get("until")):
                free.append((claim["freed"], int(host), str(host)))
        return min(free)[2] if free else None


def users(state: dict[str, dict[str, Any]], key: str) -> set[str]:
    """NICs that joined nodes report with what is claimed at ``key``, in its scope or since they had it last; found by looking at each."""
    _kind, scope, what = key.split("/", 2)
    found = set()
    for name, report in state.items():
        if not name.startswith("seen/") or report["state"] == "stopped" or f"nodes/{name.split('/')[1]}" not in state:
            continue
        if what in (report.get("mac"), report.get("ip")):
            nic = state.get(f"nics/{report['nic']}")
            here = nic is not None and (nic.get("network") or nic.get("cluster") or "none") == scope
            if here or state.get(key, {}).get("last") == report["nic"]:
                found.add(report["nic"])
    return found


def unknown(state: dict[str, dict[str, Any]], what: str) -> bool:
    """Tell whether a NIC that nobody wants is reported with something: it may be of any network, so this is not given out in any."""
    return any(
        name.startswith("seen/")
        and report["state"] != "stopped"
        and what in (report.get("mac"), report.get("ip"))
        and f"nodes/{name.split('/')[1]}" in state
        and f"nics/{report['nic']}" not in state
        for name, report in state.items()
    )


def claims(nic: dict[str, Any]) -> list[str]:
    scope = nic.get("network") or nic.get("cluster") or "none"
    found = [f"macs/{scope}/{nic['mac']}"] if nic.get("mac") else []
    return found + [f"addresses/{scope}/{each}" for each in sorted({*nic.get("addresses", ()), *([nic["ip"]] if nic.get("ip") else [])})]


def subset(stored: Any, said: Any) -> bool:
    """What is stored leaves out what has its default."""
    if isinstance(stored, dict) and isinstance(said, dict):
        return all(name in said and subset(each, said[name]) for name, each in stored.items())
    if isinstance(stored, list) and isinstance(said, list):
        return len(stored) == len(said) and all(map(subset, stored, said))
    return bool(stored == said)
