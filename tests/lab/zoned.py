"""Put around the laboratory's nodes what a site has for an underlay: a name server on the wire, routes to nodes, forwarders of consoles.

Nothing of it is a service of the machine: Knot (Debian's package knot) is a process in the wire's namespaces, with its files in ``out``.
"""

from __future__ import annotations

import json
import os
import subprocess
import threading
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from tests.lab.cluster import STARTED, Member, Process
from tests.lab.nodes import PYTHON, Node, until
from tests.support.bootstrap import ROOT, VENV
from tests.support.nameserver import ALGORITHM, CONFIG, KEY, SHARED, ZONE

SERVER, PORT = "10.77.0.9", 53  #: the wire's own address
SITE, NAMES = "fd12:3456:789a::/48", "hosts.example.com"
CONSOLE = 5900  #: the forwarder's port
CONSOLES = str(ROOT / "examples/endpoints/consoles")
LINK = "fd77:f::{}"  #: addresses on the wire's segment for the routes; the wire is 9
SCRIPTS = "/etc/netcommon/ifup.d"
#: One of the site's scripts: it notes which NIC's instance it was told of, and where its console is. $1: where it is put, $2: its notes.
NOTING = """
mkdir -p "$1"
printf '#!/bin/sh\\necho "$INSTANCE $NETCOMMON_ENDPOINT_CONSOLE_ADDRESS" >>%s\\n' "$2" >"$1/50-lab"
chmod 755 "$1/50-lab"
"""
HERE = f"import sys; sys.path.insert(0, {str(ROOT)!r}); from tests.lab import asking; sys.exit(asking.main(sys.argv[1:]))"


def prepared(out: str) -> str:
    """Write Knot's files, with a zone that holds nothing yet; give what the registry has to know of it, as a part of config.toml."""
    folder = f"{out}/knot"
    os.makedirs(folder, exist_ok=True)
    values = {"folder": folder, "address": SERVER, "port": PORT, "key": KEY, "algorithm": ALGORITHM, "secret": SHARED}
    for name, text in {
        f"{NAMES}.zone": ZONE.format(zone=NAMES, records=""),
        "knot.conf": CONFIG.format(zones=f"  - domain: {NAMES}.\n    file: {NAMES}.zone\n", **values),
        "key": f'key "{KEY}" {{\n\talgorithm {ALGORITHM};\n\tsecret "{SHARED}";\n}};\n',
    }.items():
        with open(f"{folder}/{name}", "w", encoding="ascii") as file:
            file.write(text)
    os.chmod(f"{folder}/key", 0o600)
    return f'[registry]\nzone_servers = ["{SERVER}:{PORT}"]\nzone_key_file = "{folder}/key"\n'


class Zoned:
    """All of it. ``out``: where ``prepared`` has written."""

    def __init__(self, wire: Node, out: str) -> None:
        self._wire, self._out = wire, out
        self._knot: Process | None = None
        self._forwarders: dict[str, tuple[Member, str, Process]] = {}

    def start(self) -> None:
        """Let the name server answer. Raises Failed."""
        # a bridge has its address from a port: when that goes, as a dead node's does, it takes another, and nobody reaches Knot for a while
        with open(self._wire.path("/sys/class/net/seg0/address"), encoding="ascii") as file:
            self._wire.run("ip", "link", "set", "seg0", "address", file.read().strip())
        self._knot = Process(self._wire, f"{self._out}/knot.log", "/usr/sbin/knotd", "-c", f"{self._out}/knot/knot.conf")
        self._wire.run("ip", "-6", "address", "add", f"{LINK.format(9)}/64", "dev", "seg0", "nodad")
        until("Knot answers", STARTED, lambda: "SOA" in self.dig(NAMES, "SOA"))

    def served(self, node: Member, prefix: str) -> None:
        """Let the site's routers send a prefix to a node, and the node forward consoles. Raises Failed."""
        own = LINK.format(node.name[-1])
        node.run("ip", "-6", "address", "add", f"{own}/64", "dev", "eth0", "nodad")
        self._wire.run("ip", "-6", "route", "replace", prefix, "via", own)
        forwarder = Process(node, f"{self._out}/consoles-{node.name}.log", "/usr/bin/python3", CONSOLES, "--port", str(CONSOLE))
        self._forwarders[node.name] = node, prefix, forwarder
        node.run("sh", "-c", NOTING, "-", SCRIPTS, f"{self._out}/told-{node.name}")

    def lost(self, name: str) -> None:
        """Note that a node is dead, and its forwarder with it."""
        self._forwarders.pop(name)[2].end()

    def stop(self) -> None:
        """Take it away."""
        for node, prefix, forwarder in self._forwarders.values():
            forwarder.end()
            node.attempt("ip", "-6", "address", "del", f"{LINK.format(node.name[-1])}/64", "dev", "eth0")
            self._wire.attempt("ip", "-6", "route", "del", prefix)
            node.attempt("rm", "-r", SCRIPTS)
        self._wire.attempt("ip", "-6", "address", "del", f"{LINK.format(9)}/64", "dev", "seg0")
        if self._knot:
            self._knot.end()

    def told(self, name: str, instance: str) -> list[str]:
        """Give where an instance's console is by what scripts of a node's ups were told, one after the other; "" where nothing was told."""
        path = f"{self._out}/told-{name}"
        if not os.path.exists(path):
            return []
        with open(path, encoding="ascii") as file:
            return [line.partition(" ")[2].strip() for line in file if line.split()[0] == instance]

    def dig(self, *words: str) -> str:
        """Give what kdig, which is no program of ours, is answered by TCP."""
        said = self._wire.attempt("kdig", f"@{SERVER}", "+tcp", "+noall", "+answer", "+time=2", "+retry=0", *words)
        return said.stdout

    def addresses(self, name: str) -> list[str]:
        """Give a name's addresses, as kdig is told them."""
        found = [line.split() for line in self.dig(f"{name}.", "AAAA").splitlines()]
        return sorted(words[4] for words in found if words[3:4] == ["AAAA"])

    def console(self, address: str, seconds: float) -> str:
        """Give the MAC that a guest says at its console; "" for none."""
        return self._wire.run(PYTHON, "tests.lab.console", address, str(CONSOLE), f"{seconds:g}").strip()


def held(node: Member) -> list[str]:
    """Give the addresses of the site's prefix that a node's kernel has, as ip(8) says; none of a node that is dead."""
    if node.dead:
        return []
    found = json.loads(node.run("ip", "-6", "-j", "address", "show", "scope", "global"))
    every = [each.get("local", "") for item in found for each in item.get("addr_info", ())]
    return sorted(each for each in every if each.startswith(SITE.removesuffix("::/48")))


class Said(NamedTuple):
    """Give what was answered of a name from a moment on."""

    at: float
    rcode: str
    addresses: tuple[str, ...]


class Answers:
    """Give what tests.lab.asking tells of names. Times are time.monotonic."""

    def __init__(self, wire: Node, names: Sequence[str]) -> None:
        command = wire.command(str(VENV / "bin/python"), "-c", HERE, SERVER, *names)
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.said: Mapping[str, list[Said]] = {name: [] for name in names}
        self.total: dict[str, Any] = {}
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()
        until("each name is answered", STARTED, lambda: all(self.said.values()))

    def _read(self) -> None:
        assert self._process.stdout
        for text in self._process.stdout:
            line = json.loads(text)
            if "name" in line:
                self.said[line["name"]].append(Said(line["at"], line["rcode"], tuple(line["addresses"])))
            else:
                self.total = line

    def now(self, name: str) -> tuple[str, ...]:
        """Give the latest answer."""
        return self.said[name][-1].addresses

    def close(self) -> None:
        """End it; ``total`` is known then."""
        assert self._process.stdin
        self._process.stdin.close()
        self._process.wait(STARTED)
        self._thread.join()
