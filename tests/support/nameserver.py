"""Knot DNS (Debian's package knot) for one test: zones in files of the test's own, updates only with a TSIG key.

The calling thread must be in a ``node.fresh()`` node. What the zones hold is read with kdig, by a transfer: an independent view.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.support.netns import run, wait_until

FOLDER = Path("/run/knot-test")
ADDRESS, PORT = "127.0.0.1", 53
KEY = "netcommon-updates"
SHARED = "c2VjcmV0IG9mIHRoZSB0ZXN0cyBvbmx5IQ=="
ALGORITHM = "hmac-sha256"

CONFIG = """
server:
    rundir: "{folder}"
    listen: {address}@{port}
database:
    storage: "{folder}"
key:
  - id: {key}
    algorithm: {algorithm}
    secret: {secret}
acl:
  - id: updates
    key: {key}
    action: [query, update, transfer]
  - id: reading
    address: 127.0.0.1
    action: transfer
template:
  - id: default
    storage: "{folder}"
    acl: [updates, reading]
    serial-policy: increment
zone:
{zones}
"""

ZONE = """$ORIGIN {zone}.
$TTL 3600
@ SOA ns.example.net. hostmaster.example.net. 1 3600 600 604800 300
@ NS ns.example.net.
{records}
"""


class NameServer:
    """A running knotd. ``key_file`` is what tsig-keygen would have written. A second one has another ``address``."""

    def __init__(self, zones: dict[str, str], address: str = ADDRESS) -> None:
        self.zones, self.address = zones, address
        self.process: subprocess.Popen[bytes] | None = None
        self.folder = FOLDER if address == ADDRESS else FOLDER.with_name(f"{FOLDER.name}-{address}")
        self.folder.mkdir(exist_ok=True)
        for zone, records in zones.items():
            (self.folder / f"{zone}.zone").write_text(ZONE.format(zone=zone, records=records))
        listed = "".join(f"  - domain: {zone}.\n    file: {zone}.zone\n" for zone in zones)
        values = {"folder": self.folder, "address": address, "port": PORT, "key": KEY, "algorithm": ALGORITHM, "secret": SHARED}
        (self.folder / "knot.conf").write_text(CONFIG.format(zones=listed, **values))
        self.key_file = self.folder / "dns.key"
        self.write_key(SHARED)

    @classmethod
    @contextlib.contextmanager
    def started(cls, zones: dict[str, str], address: str = ADDRESS) -> Iterator[NameServer]:
        """Starts knotd with ``zones`` (name -> records beside SOA and NS), and stops it at the end."""
        made = cls(zones, address)
        try:
            made.start()
            yield made
        finally:
            made.stop()

    def forbid_transfers(self) -> None:
        """From its next start on the key may query and update only."""
        config = self.folder / "knot.conf"
        config.write_text(config.read_text().replace("[query, update, transfer]", "[query, update]"))

    def write_key(self, secret: str, name: str = KEY) -> None:
        """The key file, readable by its owner alone."""
        self.key_file.write_text(f'key "{name}" {{\n\talgorithm {ALGORITHM};\n\tsecret "{secret}";\n}};\n')
        self.key_file.chmod(0o600)

    def start(self) -> None:
        """knotd; returns when it answers for every zone."""
        with open(self.folder / "log", "ab") as log:
            self.process = subprocess.Popen(
                ["/usr/sbin/knotd", "-c", str(self.folder / "knot.conf")], stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd="/"
            )
        wait_until(lambda: all("SOA" in self.dig(zone, "SOA") for zone in self.zones), 20, "knotd answers")

    def stop(self) -> None:
        """Ends it; what it holds is in its journal and comes back."""
        if self.process:
            self.process.send_signal(signal.SIGCONT)
            self.process.terminate()
            self.process.wait(30)
            self.process = None

    def freeze(self) -> None:
        """It takes connections (the kernel does) and never answers."""
        assert self.process
        os.kill(self.process.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        assert self.process
        os.kill(self.process.pid, signal.SIGCONT)

    def dig(self, *arguments: str) -> str:
        """kdig without TSIG, by TCP."""
        command = ["kdig", "+tcp", "+noall", "+answer", "+time=2", "+retry=0", f"@{self.address}", "-p", str(PORT), *arguments]
        return run(*command, check=False)

    def content(self, zone: str) -> list[str]:
        """Every record of the zone but SOA and NS of its apex, sorted: "name ttl TYPE value", names without the zone and final dot."""
        found = []
        for line in self.dig(zone, "AXFR").splitlines():
            words = line.split(None, 4)
            if len(words) == 5 and not line.startswith(";") and not (words[0] == f"{zone}." and words[3] in ("SOA", "NS")):
                name = words[0].removesuffix(f".{zone}.") if words[0] != f"{zone}." else "@"
                found.append(f"{name} {words[1]} {words[3]} {words[4]}")
        assert self.serial(zone), "the server does not answer"
        return sorted(found)

    def serial(self, zone: str) -> int:
        """The zone's serial number."""
        words = self.dig(zone, "SOA").split()
        return int(words[6]) if len(words) > 6 else 0

    def serials(self) -> list[int]:
        """Those of all zones."""
        return [self.serial(zone) for zone in self.zones]

    def updates(self) -> int:
        """How many updates it was sent, of whatever effect."""
        return (self.folder / "log").read_text().count("DDNS, processing")

    def update(self, zone: str, *lines: str) -> None:
        """An update by an independent program, knsupdate: ``lines`` such as "add mail 300 A 192.0.2.1"."""
        script = [f"server {self.address} {PORT}", f"zone {zone}.", f"origin {zone}.", *lines, "send", "answer", "quit"]
        said = run("knsupdate", "-v", "-y", f"{ALGORITHM}:{KEY}:{SHARED}", stdin="\n".join(script) + "\n")
        assert "NOERROR" in said, said


def settings(server: NameServer, zones: Sequence[str] = (), timeout: float = 5.0) -> str:
    """A settings file for it."""
    listed = ", ".join(f'"{zone}"' for zone in zones or server.zones)
    return f'[dns]\nservers = ["{server.address}:{PORT}"]\nzones = [{listed}]\nkey_file = "{server.key_file}"\ntimeout = {timeout}\n'
