#!/usr/bin/env python3
"""Take the picture of docs/registry-pages.md: a registry with nodes, networks and NICs, in a browser: docs/pictures/pages.py [FILE]

Chromium takes it (tests/setup browser). Nothing of this machine is looked at; times are those of the day.
"""

from __future__ import annotations

import sys
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).resolve().parents[2]
if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))

from tests.support.browser import browser, forwarded  # noqa: E402 - after the path
from tests.support.registry import NODES  # noqa: E402
from tests.support.service import Served, served  # noqa: E402

PICTURE = ROOT / "docs/pictures/registry-pages.png"
TYPED = "mail1"
HEIGHT = 440
#: A network's name, its subnets, and the instances in it.
NETWORKS = {
    "production": ({"subnet": "192.0.2.0/26", "subnet6": "2001:db8:1::/64", "gateway": "192.0.2.1", "vlan": 12}, ("web", 24)),
    "mail": ({"subnet": "198.51.100.0/28", "gateway": "198.51.100.1"}, ("mail", 12)),
    "backup": ({"subnet": "203.0.113.0/24"}, ("store", 5)),
}


def fill(service: Served) -> None:
    """Write what is to be seen."""
    client = service.client()
    nodes = [service.join(number) for number in range(len(NODES))]
    for number, node in enumerate(nodes):
        client.change("PATCH", f"nodes/{NODES[number]}", {"name": f"host{number + 1}"})
        node.change("POST", f"nodes/{NODES[number]}/heartbeat", {"incarnation": NODES[number]})
    made = []
    for name, (fields, (instance, count)) in NETWORKS.items():
        network = client.change("POST", "networks", {"name": name, **fields}).body["uuid"]
        given = ["ipv4", "ipv6"] if "subnet6" in fields else ["ipv4"]
        for number in range(1, count + 1):
            body = {"network": network, "instance": f"{instance}{number}.example.com", "index": 0, "allocate": given, "owner": "ann"}
            made.append(client.change("POST", "nics", body).body)
    now = service.service.registry.local.core.now()
    for number, node in enumerate(nodes):
        reports = [
            {
                "nic": nic["uuid"],
                "state": "stopped" if place % 11 == 5 else "running",
                "tap": f"tap{place}",
                "since": now - place * 977,
                "mac": nic["mac"],
                "ip": nic["ip"],
            }
            for place, nic in enumerate(made)
            if place % len(nodes) == number and place % 13 != 12
        ]
        node.change("POST", f"nodes/{NODES[number]}/reports", {"after": "first:0", "nics": reports, "about": {"version": "1.2"}})


def main(arguments: list[str]) -> int:
    """Take the picture, or another one into another file."""
    with TemporaryDirectory() as folder, served(Path(folder)) as service, browser() as chromium:
        fill(service)
        with forwarded(str(Path(folder) / "pages")) as port:
            page = chromium.page()
            page.go(f"http://localhost:{port.port}/networks")
            page.until("document.getElementById('live').textContent === 'Live'")
            page.run("document.getElementById('text').focus()")
            page.type(TYPED)
            page.until("document.querySelectorAll('#found a').length > 3")
            page.picture(Path(arguments[0]) if arguments else PICTURE, HEIGHT)
            page.go("about:blank")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
