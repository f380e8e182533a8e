#!/usr/bin/env python3
"""Makes what docs/seeing.md shows from simulated nodes of 5, 50 and 300 NICs: docs/pictures/make.py [FOLDER]

Nothing of this machine is looked at, and no network is used. The same node gives the same bytes.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping
from datetime import UTC
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).resolve().parents[2]
if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))

from netcommon.cli.names import order  # noqa: E402 - after the path
from netcommon.host.facts import AF_INET, BridgeVlan, Link, OvsPort, Route  # noqa: E402
from netcommon.host.memory import MemoryHost  # noqa: E402
from netcommon.host.requests import SetLink  # noqa: E402
from netcommon.lifecycle.up import up  # noqa: E402
from netcommon.views import explain_text  # noqa: E402
from netcommon.views.document import document  # noqa: E402
from netcommon.views.dot import dot  # noqa: E402
from netcommon.views.explain import explained  # noqa: E402
from netcommon.views.gather import gather  # noqa: E402
from netcommon.views.mermaid import mermaid  # noqa: E402
from netcommon.views.model import NodeView  # noqa: E402
from netcommon.views.svg import svg  # noqa: E402
from netcommon.views.text import UNICODE, text  # noqa: E402
from runtime.environment import nic_from_environment  # noqa: E402
from tests.support.sim import Sim  # noqa: E402

SIZES = (5, 50, 300)
#: The commands whose output the page quotes, and the files that have it.
QUOTED = {"netcommon tree": "tree-5.txt", "netcommon explain mail1/0": "explain.txt"}
#: The NIC that is explained: it has drifted.
EXPLAINED = 3
#: When all of it was done, in seconds since the epoch.
WHEN = 1.8e9
NAMES = ("web", "db", "mail", "cache", "build", "proxy", "queue", "shop")
#: What the NICs of a node are, in turn: mode, link, VLAN, further tags.
KINDS = (
    ("bridged", "br-vlan", ".10", ""),
    ("bridged", "br-vlan", ".10", "netcommon:*:rate_in:100mbit netcommon:*:rate_out:50mbit"),
    ("routed", "guests", "", ""),
    ("bridged", "br-vlan", ".20", "netcommon:*:rate_in:200mbit"),
    ("openvswitch", "ovs-br", ".30", "netcommon:*:rate_out:20mbit"),
    ("bridged", "br-lan", "", "netcommon:*:isolated"),
    ("bridged", "br-vlan", ":10:20:30", "netcommon:*:spoof_guard:no"),
    ("routed", "guests", "", "netcommon:*:firewall:limited"),
    ("openvswitch", "ovs-br", ":40:41:42", ""),
    ("bridged", "br-lan", "", "netcommon:*:allow_mac_spoofing"),
)


def machine(folder: str, size: int) -> Sim:
    """A node with ``size`` NICs up, on bridges, Open vSwitch and a table; every nineteenth has drifted, the last one's device is gone."""
    sim = Sim(folder)
    sim.wall = WHEN
    host = sim.host = MemoryHost({"guests": 100})
    lan = host.add_bridge("br-lan", 1500)
    aware = host.add_bridge("br-vlan", 9000, vlan_filtering=True)
    for name, kind, master in (("eno1", "", lan), ("bond0", "bond", aware), ("eno2", "", None), ("eno3", "", None)):
        host.add_link(Link(0, name, kind, up=True, mtu=1500 if name == "eno1" else 9000, master=master.index if master else 0))
    for vid in (10, 20, 30):
        host.kernel.add_vlan(sim.index("bond0"), BridgeVlan(vid))
    host.add_ovs_bridge("ovs-br")
    host.switch.put(OvsPort("eno3", "ovs-br"))
    host.kernel.add_route(Route(AF_INET, 100, "0.0.0.0/0", sim.index("eno2"), 3, 0, "192.0.2.1"))
    guest, number = 0, 0
    for position in range(size):
        mode, link, vlan, tags = KINDS[position % len(KINDS)]
        name = f"{NAMES[guest % len(NAMES)]}{guest // len(NAMES) + 1}"
        device = f"tap{position}"
        host.add_tap(device, holder=1000 + guest)
        low, high = position % 250 + 1, position // 250
        up(
            sim.node,
            nic_from_environment(
                {
                    "INTERFACE": device,
                    "MODE": mode,
                    "LINK": link,
                    "VLAN": vlan,
                    "TAGS": tags,
                    "INSTANCE": name,
                    "INTERFACE_INDEX": str(number),
                    "INTERFACE_UUID": f"{position:08x}-0000-4000-8000-000000000000",
                    "MAC": f"aa:00:00:00:{high:02x}:{low:02x}",
                    "IP": f"10.{KINDS.index((mode, link, vlan, tags))}.{high}.{low}",
                }
            ),
            sim.call()._replace(door="kvm-ifup"),
        )
        guest, number = (guest, number + 1) if position % 9 in (1, 5) else (guest + 1, 0)
    _damage(sim, size)
    return sim


def _damage(sim: Sim, size: int) -> None:
    """What an administrator would want to see."""
    for position in range(3, size, 19):
        bridged = KINDS[position % len(KINDS)][0] == "bridged"
        tap = sim.index(f"tap{position}")
        sim.host.kernel.set_link(SetLink(tap, master=0) if bridged else SetLink(tap, up=False))
    if size > 5:
        sim.host.remove_link(f"tap{size - 1}")
        sim.host.add_link(Link(0, "tap900", "tun", up=True, master=sim.index("br-lan"), holders=1))


def seen(sim: Sim) -> NodeView:
    """The model of a node."""
    return gather(sim.node, sim.host.snapshot(), "node1.example.com", sorted(sim.records(), key=order))


def files(size: int) -> dict[str, str]:
    """What is made of one size: names and contents."""
    with TemporaryDirectory() as folder:
        sim = machine(folder, size)
        node, made = seen(sim), {}
        made[f"graph-{size}.svg"] = svg(node)
        if size == SIZES[0]:
            made[f"tree-{size}.txt"] = text(node) + "\n"
            made[f"tree-{size}.json"] = json.dumps(document(node), indent=2) + "\n"
            made[f"graph-{size}.dot"] = dot(node)
            made[f"graph-{size}.mmd"] = mermaid(node)
            records = {record.device: record for record in sim.records()}
            labels = {record.key: record.nic.label for record in records.values()}
            one = explained(sim.node, sim.host.snapshot(), records[f"tap{EXPLAINED}"], labels)
            made["explain.txt"] = explain_text.text(one, UNICODE, UTC) + "\n"
        return made


def quoted(page: str, made: Mapping[str, str]) -> str:
    """The page with what it quotes made anew: the indented lines below a command."""
    for command, name in QUOTED.items():
        shown = "".join(f"    {line}\n" if line else "\n" for line in made[name].splitlines())
        head = f"    $ {command}\n"
        old = re.search(re.escape(head) + r"(?:    .*\n|\n(?=    ))+", page)
        if old is not None:
            page = page[: old.start()] + head + shown + page[old.end() :]
    return page


def make(folder: Path) -> list[Path]:
    """Writes them all, and the examples of the page where it lies above the folder; returns the paths."""
    made = {name: content for size in SIZES for name, content in files(size).items()}
    page = folder.parent / "seeing.md"
    written = {folder / name: content for name, content in made.items()}
    if page.exists():
        written[page] = quoted(page.read_text("utf-8"), made)
    for path, content in written.items():
        path.write_text(content, "utf-8")
    return list(written)


if __name__ == "__main__":
    for path in make(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).resolve().parent):
        print(path)
