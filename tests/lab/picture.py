"""What is wanted of an instance's NICs (the registry), what is seen of them (the nodes' reports) and what kernels have, side by side."""

from __future__ import annotations

import contextlib
import json
import subprocess
import threading
import time
from collections.abc import Mapping
from typing import Any, NamedTuple

from netregistry.client import Client
from runtime.errors import NetcommonError
from tests.lab.nodes import PYTHON, Failed, Node

PAUSE = 0.1  #: seconds between two pictures
PARTS = ("wanted", "seen", "kernel")


class Expected(NamedTuple):
    """How one NIC is to be. ``node``: by name, on which it runs, "" for none; ``pending``: fields that wait for a restart."""

    mac: str
    ip: str
    at: tuple[str, ...]  #: what its tap is a port of, what is routed to it
    node: str = ""
    free: bool = False  #: whether its guest may send from any address
    pending: tuple[str, ...] = ()
    has: tuple[str, str] | None = None  #: the MAC and the IP that it runs with, where others are wanted


class Picture(NamedTuple):
    """All of it at one moment. ``nics``: by UUID; ``reports``: of nodes that are alive, by UUID and the node's name; ``kernel``: by the
    node's name and UUID.
    """

    nics: Mapping[str, Any]
    reports: Mapping[str, Mapping[str, Any]]
    kernel: Mapping[str, Mapping[str, Any]]
    names: Mapping[str, str]  #: of nodes, by UUID


class Kernel:
    """What tests.lab.kernel answers within a node."""

    def __init__(self, node: Node) -> None:
        command = node.command(PYTHON, "tests.lab.kernel")
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)

    def ask(self) -> dict[str, Any]:
        """Give what the node's kernel has; nothing where the node is dead. Raises ValueError for half an answer."""
        assert self._process.stdin and self._process.stdout
        try:
            self._process.stdin.write("\n")
            said: dict[str, Any] = json.loads(self._process.stdout.readline() or "{}")
        except BrokenPipeError:
            return {}
        return said

    def close(self) -> None:
        """End it; a dead node's has ended."""
        assert self._process.stdin
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        self._process.wait(60)


def taken(client: Client, kernels: Mapping[str, Kernel]) -> Picture:
    """Take a picture. Raises NetcommonError."""
    kernel = {name: one.ask() for name, one in kernels.items()}
    items = list(client.all("nodes"))
    nodes = {item["node"]["uuid"]: item["node"]["name"] for item in items}
    dead = {item["node"]["uuid"] for item in items if not item["alive"]}  # what they have said counts no more
    reports: dict[str, dict[str, Any]] = {}
    for item in client.all("reports"):
        if item["node"] not in dead:
            reports.setdefault(item["report"]["nic"], {})[nodes.get(item["node"], item["node"])] = item["report"]
    return Picture({item["nic"]["uuid"]: item for item in client.all("nics")}, reports, kernel, nodes)


def differences(picture: Picture, expected: Mapping[int, Expected]) -> dict[str, list[str]]:
    """Give what is not as it should be: part -> lines. ``expected``: by the NIC's index; there are no others."""
    found: dict[str, list[str]] = {part: [] for part in PARTS}
    wanted = {item["nic"]["index"]: item for item in picture.nics.values()}
    if set(wanted) != set(expected):
        found["wanted"].append(f"NICs {sorted(wanted)} are wanted, and not {sorted(expected)}")
    known = {item["nic"]["uuid"] for item in wanted.values()}
    found["seen"] += [f"{uuid} is reported and not wanted" for uuid in picture.reports if uuid not in known]
    for name, held in picture.kernel.items():
        found["kernel"] += [f"{name}: {each['tap']} of {uuid}, which is not wanted" for uuid, each in held.items() if uuid not in known]
    for index, item in wanted.items():
        if index in expected:
            _compare(picture, item, expected[index], found)
    return found


def _compare(picture: Picture, item: Mapping[str, Any], expected: Expected, found: dict[str, list[str]]) -> None:
    nic, shown = item["nic"], item["shown"]
    uuid, index = nic["uuid"], nic["index"]

    def same(part: str, what: str, is_: object, should: object) -> None:
        if is_ != should:
            found[part].append(f"{index}: {what} is {is_}, and not {should}")

    same("wanted", "MAC and IP", (nic["mac"], nic["ip"]), (expected.mac, expected.ip))
    same("wanted", "tag", any(tag.startswith(f"netcommon:{index}:allow_ip_spoofing") for tag in nic["tags"]), expected.free)
    has = expected.has or (expected.mac, expected.ip)
    there = {name: held[uuid] for name, held in picture.kernel.items() if uuid in held}
    running = {name: one for name, one in picture.reports.get(uuid, {}).items() if one["state"] != "stopped"}
    nodes = [expected.node] if expected.node else []
    same("kernel", "nodes", list(there), nodes)
    same("seen", "nodes of reports", list(running), nodes)
    if not expected.node:
        same("seen", "shown state is one of none", shown["state"] in ("stopped", "provisioning"), True)
        return
    same("seen", "shown state", shown["state"], "pending restart" if expected.pending else "running")
    same("seen", "shown nodes", [picture.names.get(node) for node in shown["nodes"]], nodes)
    same("seen", "pending", tuple(shown["pending"]), expected.pending)
    same("seen", "refused", shown["refused"], "")
    same("seen", "drift", shown["drift"], [])
    same("seen", "applied revision", shown["applied"], item["revision"])
    if expected.node in there:
        one = there[expected.node]
        same("kernel", "MAC", one["mac"], has[0])
        same("kernel", "at", tuple(one["at"]), expected.at)
        same("kernel", "free", one["free"], expected.free)
        if one["addresses"]:
            same("kernel", "addresses", one["addresses"], [has[1]])
    if expected.node in running:
        report = running[expected.node]
        same("seen", "tap", report["tap"], there.get(expected.node, {}).get("tap"))
        same("seen", "MAC and IP", (report["mac"], report["ip"]), has)
        free = any((each["name"], each["value"]) == ("allow_ip_spoofing", "true") for each in report["options"])
        same("seen", "option", free, expected.free)


def side_by_side(picture: Picture) -> str:
    """Give the picture as people read it: a line for each NIC."""
    rows = [("NIC", "wanted (registry)", "seen (reports)", "kernel")]
    for uuid, item in sorted(picture.nics.items(), key=lambda pair: pair[1]["nic"]["index"]):
        nic, shown = item["nic"], item["shown"]
        tags = " ".join(tag.removeprefix("netcommon:") for tag in nic["tags"])
        wanted = " ".join(
            filter(None, (nic["mac"], nic["ip"], f"{nic['mode']}:{nic['link']}{nic['vlan']}", tags, f"r{_short(item['revision'])}"))
        )
        seen = [
            " ".join(filter(None, (name, one["tap"], one["mac"], one["ip"], _options(one), f"r{_short(one['applied'])}")))
            for name, one in picture.reports.get(uuid, {}).items()
            if one["state"] != "stopped"
        ]
        state = shown["state"] + (f" ({', '.join(shown['pending'])})" if shown["pending"] else "")
        kernel = [
            " ".join([name, one["tap"], one["mac"], *one["at"], *one["addresses"], *(["any source"] if one["free"] else [])])
            for name, held in picture.kernel.items()
            if (one := held.get(uuid))
        ]
        rows.append((str(nic["index"]), wanted, "; ".join([state, *seen]), "; ".join(kernel) or "-"))
    widths = [max(len(row[place]) for row in rows) for place in range(3)]
    lines = ["    " + "  ".join([*(text.ljust(width) for text, width in zip(row, widths, strict=False)), row[3]]) for row in rows]
    return "\n".join(lines if len(rows) > 1 else ["    no NIC is wanted"])


def _short(revision: str) -> str:
    return revision.rpartition(":")[2]


def _options(report: Mapping[str, Any]) -> str:
    return ",".join(f"{each['name']}={each['value']}" for each in report["options"])


class Watching:
    """Takes pictures in a thread, and notes since when each part has been as ``expected``. Times are time.time."""

    def __init__(self, client: Client, kernels: Mapping[str, Kernel], expected: Mapping[int, Expected]) -> None:
        self._client, self._kernels, self._expected = client, kernels, expected
        self.since: dict[str, float] = {}  #: part -> since when
        self.last: Picture | None = None
        self.differences: dict[str, list[str]] = {}
        self.trouble = ""
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._follow, daemon=True)
        self._thread.start()

    def _follow(self) -> None:
        while not self._ended.wait(PAUSE):
            try:
                picture = taken(self._client, self._kernels)
            except (NetcommonError, ValueError, OSError) as error:  # a node may be dying, the registry be busy
                self.trouble = str(error)
                continue
            now = time.time()
            found = differences(picture, self._expected)
            since = {part: self.since.get(part, now) for part in PARTS if not found[part]}
            self.last, self.differences = picture, found
            self.since = since

    def agreed(self, seconds: float) -> dict[str, float]:
        """Wait until all parts agree, and give the time since when each does. Raises Failed."""
        limit = time.time() + seconds
        while len(since := self.since) < len(PARTS):
            if time.time() > limit:
                found = [f"{part}: {line}" for part, lines in self.differences.items() for line in lines]
                raise Failed(f"after {seconds:g} s they do not agree: {'; '.join(found) or self.trouble}")
            time.sleep(PAUSE / 2)
        return since

    def close(self) -> None:
        self._ended.set()
        self._thread.join()
