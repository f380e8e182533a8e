#!/usr/bin/env python3
"""Makes what docs/seeing.md shows from simulated nodes of 5, 50 and 300 NICs: docs/pictures/make.py [FOLDER]

Nothing of this machine is looked at, and no network is used. The same node gives the same bytes.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC
from pathlib import Path
from tempfile import TemporaryDirectory
from xml.sax.saxutils import escape

ROOT = Path(__file__).resolve().parents[2]
if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))

from netagent.index import entry_of  # noqa: E402
from netagent.observe.history import Journal  # noqa: E402
from netagent.observe.hook_reports import COLD, WARM, called  # noqa: E402
from netagent.observe.hook_stats import hooks  # noqa: E402 - after the path
from netagent.observe.metrics import Metrics  # noqa: E402
from netcommon.cli.names import order  # noqa: E402
from netcommon.host.api.facts import (  # noqa: E402
    AF_INET,
    BridgeVlan,
    Counters,
    Link,
    OvsPort,
    Route,
)
from netcommon.host.api.requests import SetLink  # noqa: E402
from netcommon.host.simulated.host import MemoryHost  # noqa: E402
from netcommon.lifecycle.up import up  # noqa: E402
from netcommon.views.explain import text as explain_text  # noqa: E402
from netcommon.views.explain.model import explained  # noqa: E402
from netcommon.views.live import top, top_text  # noqa: E402
from netcommon.views.live.events import event, line  # noqa: E402
from netcommon.views.live.hook_stats import calls  # noqa: E402
from netcommon.views.live.rates import Reading  # noqa: E402
from netcommon.views.topology.document import document  # noqa: E402
from netcommon.views.topology.dot import dot  # noqa: E402
from netcommon.views.topology.gather import examine, gather  # noqa: E402
from netcommon.views.topology.model import NodeView  # noqa: E402
from netcommon.views.topology.svg import svg  # noqa: E402
from netcommon.views.topology.text import ASCII, BOLD, UNICODE, text  # noqa: E402
from netcommon.views.trace import request as trace  # noqa: E402
from netcommon.views.trace import text as trace_text  # noqa: E402
from netcommon.views.trace.frame import FROM_GUEST, TO_GUEST, Wanted  # noqa: E402
from runtime.environment import nic_from_environment  # noqa: E402
from tests.support.sim import Sim  # noqa: E402

SIZES = (5, 50, 300)
#: Frames that are traced: the options of netcommon trace, the NIC, its way, what is wanted, and the file.
TRACED = (
    ("web1/0 --src 10.0.0.9", 0, FROM_GUEST, Wanted(source="10.0.0.9"), "trace-dropped.txt"),
    ("web1/0 --to guest", 0, TO_GUEST, Wanted(), "trace-bridged.txt"),
    ("db1/1 --dst 198.51.100.7", 2, FROM_GUEST, Wanted(target="198.51.100.7"), "trace-routed.txt"),
)
#: The commands whose output the page quotes, and the files that have it.
QUOTED = {"netcommon tree": "tree-5.txt", "netcommon explain mail1/0": "explain.txt"}
QUOTED |= {"netcommon top --once": "top.txt", "netcommon events --since 10m": "events.txt"}
QUOTED |= {f"netcommon trace {options}": name for options, *_, name in TRACED}
#: The terminal that top is pictured on, in columns and lines; a character's width and height; and colours by SGR parameter.
SCREEN, CELL = (108, 32), (7.8, 18)
COLOURS = {"2": "#8b949e", "31": "#ff7b72", "32": "#7ee787", "33": "#e3b341", top_text.REVERSE: "#1b1f24"}
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
    host.kernel.settings.write("net/ipv4/ip_forward", "1")
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
            records = {record.device: record for record in sim.records()}
            labels = {record.key: record.nic.label for record in records.values()}
            one = explained(sim.node, sim.host.snapshot(), records[f"tap{EXPLAINED}"], labels)
            made["explain.txt"] = explain_text.text(one, UNICODE, UTC) + "\n"
            made["top.txt"] = top_text.text(live(sim), "traffic", ASCII) + "\n"
            made |= {name: traced(sim, position, way, wanted) for _options, position, way, wanted, name in TRACED}
            made["events.txt"] = happened(sim)
        if size == SIZES[1]:
            made["top.svg"] = screenshot(top_text.screen(live(sim), "traffic", 0, *SCREEN, UNICODE._replace(colour=True)))
        return made


def live(sim: Sim) -> top.Top:
    """What top shows of it: traffic, calls and drops that are made up, conditions that are found."""
    view, records, found, known = sim.host.snapshot(), sorted(sim.records(), key=order), [], {}
    for record in records:
        found.append(top.looked(*examine(sim.node, view, record, known), view))
    before = {link.index: Counters() for link in view.links()}
    after = dict(before)
    for position, record in enumerate(records):
        size = 10 ** (position * 7 % 9)
        lost = 40 if position % 13 == 4 else 0
        after[record.ifindex] = Counters(size // 800 + 1, size // 500 + 1, size * 2, size * 3, 0, 0, 0, lost)
    now = {index: counters for index, counters in after.items() if index in before}
    metrics = Metrics()
    for number in range(120):
        called(metrics, "kvm-ifup", ("bridged", "routed")[number % 3 == 0], 69 if number == 7 else 0, 0.003 + number % 10 / 2000, WARM)
        called(metrics, "kvm-ifdown", "bridged", 0, 0.002, COLD if number % 40 == 0 else WARM)
    looks = [each._replace(guard=17) if each.record.device == "tap0" else each for each in found]
    rows = top.rows(looks, Reading(0.0, before), Reading(2.0, now))
    agent = top.Agent(True, "running for 3 d 4 h", ())
    states, conditions = top.counted(rows)
    seen = tuple(top.ordered(rows, "traffic"))
    return top.Top("node1.example.com", 2.0, 4.0, agent, calls(hooks(metrics)), states, conditions, (), seen)


def traced(sim: Sim, position: int, way: str, wanted: Wanted) -> str:
    """What trace says of a frame of the NIC on the tap of this number."""
    records, view = sim.records(), sim.host.snapshot()
    of = trace.subject(next(record for record in records if record.device == f"tap{position}"), records)
    path = trace.trace(view, of, way, trace.frame(view, of, way, wanted, {}), {})
    return trace_text.text(path, UNICODE) + "\n"


def happened(sim: Sim) -> str:
    """What an agent would have told of a few minutes on the node."""
    clock = [WHEN]
    journal = Journal(lambda: clock[0])
    journal.begin()
    by_device = {record.device: record for record in sim.records()}
    stories = (
        (31, lambda record: journal.became(None, entry_of(record)), "tap1"),
        (95, lambda record: journal.drifted(record, ["ip link set dev tap3 master br-vlan: it is a port of no bridge"]), "tap3"),
        (95, lambda record: journal.repaired(record, "mail1/0 on tap3: repaired ip link set dev tap3 master br-vlan"), "tap3"),
        (240, lambda record: journal.gone([entry_of(record)]), "tap4"),
        (240, lambda record: journal.undone(record, "nobody called a down for it"), "tap4"),
        (240, lambda record: journal.became(entry_of(record), None), "tap4"),
    )
    for seconds, tell, device in stories:
        clock[0] = WHEN + seconds
        tell(by_device[device])
    told = [event(one) for one in journal.since(0)["events"]]
    return "".join(line(one, UTC, ASCII) + "\n" for one in told)


def screenshot(lines: Sequence[str]) -> str:
    """A terminal's picture: painted lines (ECMA-48, 8.3.117) as SVG."""
    columns, rows = SCREEN
    width, height = columns * CELL[0] + 16, rows * CELL[1] + 16
    head = f'width="{width:g}" height="{height:g}" viewBox="0 0 {width:g} {height:g}" font-size="13"'
    made = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {head} font-family="DejaVu Sans Mono, Menlo, Consolas, monospace">',
        f'<rect width="{width:g}" height="{height:g}" rx="6" fill="#1b1f24"/>',
    ]
    for number, painted in enumerate(lines):
        made += _painted(painted, 8, 8 + number * CELL[1])
    return "\n".join([*made, "</svg>"]) + "\n"


def _painted(line: str, x: float, y: float) -> Iterator[str]:
    """The parts of one line, each at its place, in its colour."""
    code = ""
    for part in re.split(r"(\x1b\[[0-9;]*m)", line):
        if part.startswith("\x1b"):
            code = part[2:-1]
        elif part:
            room = len(part) * CELL[0]
            if code == top_text.REVERSE:
                yield f'<rect x="{x:g}" y="{y:g}" width="{room:g}" height="{CELL[1]}" fill="#d0d7de"/>'
            weight = ' font-weight="bold"' if code == BOLD else ""
            lead = f'<text x="{x:g}" y="{y + CELL[1] - 5:g}" fill="{COLOURS.get(code, "#d0d7de")}"{weight} xml:space="preserve" '
            yield f'{lead}textLength="{room:g}">{escape(part)}</text>'
            x += room


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
