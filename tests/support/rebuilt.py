"""A node that is taken apart under its guests and made anew, piece by piece, and what is a fault meanwhile.

Judged by frames alone: honest ones that arrive, both ways and in both families, and forged ones that do not.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

from tests.support.agent import contention
from tests.support.netns import run, slowness, sysctl, wait_until
from tests.support.node import Node
from tests.support.ovs import RUN as OVS_RUN
from tests.support.ovs import OpenVswitch
from tests.support.rebuilding import OTHER_MAC, Guest, Guests, Outside, Watcher
from tests.support.rundoor import rundoor

WHOLE = 1.0  #: seconds after which everybody is connected again
FLUSHED = 0.1  #: seconds for which the guard may be gone after somebody has taken it away
STARTED = 0.3  #: and after ovs-vswitchd has started without its flows, which is itself at work then

TABLE = "100"
GATEWAY4, GATEWAY6 = "192.0.2.1", "2001:db8:f::1"
NODE4, NODE6 = "192.0.2.2", "2001:db8:f::2"
MAIN4, MAIN6 = ("203.0.113.1", "203.0.113.2/24"), ("2001:db8:e::1", "2001:db8:e::2/64")  #: there, and here
TAGS = "netcommon:*:spoof_guard netcommon:*:uplink_proxy:both"
#: Somebody's own firewall, with the line that such files begin with.
RULES = "flush ruleset\ntable inet filter {\n\tchain input {\n\t\ttype filter hook input priority 0\n\t}\n}\n"
#: Which world is at the other end of which uplink. "main" is where table main leads to, and no guest's.
UPLINKS = {"b": "up0", "r": "up1", "s": "up2", "main": "up3"}
UPLINK_MAC = "02:00:00:00:00:{:02x}"


class Rebuilt:
    """The node with its three guests, and what can be done to it. ``removed``: between taking away and making anew."""

    def __init__(self, node: Node, ovs: OpenVswitch, chance: Random) -> None:
        self.node, self.ovs, self.chance = node, ovs, chance
        self.faults: list[str] = []
        self.took: dict[str, float] = {}
        self.waited: list[Callable[[], float]] = [ovs.waited]  #: how long those who put a guard back have waited for a processor
        self.busy = 1.0  #: how much longer a second is here while others use the processors: the most of three times it is asked
        self.bared: list[tuple[float, float, float]] = []  #: from when to when, and how long the guard may be gone after that
        self.namespaces = {name: node.namespaced() for name in UPLINKS}
        for name in UPLINKS:
            self.uplink(name)
        node.forwarding(ipv6=True)
        node.bridge("br0", "up0")
        ovs.bridge("ovs0", "up2")
        self.routes()
        self.table()
        for family in ("-4", "-6"):
            run("ip", family, "rule", "add", "iif", "up1", "lookup", TABLE, "preference", "400")
        taps = {name: node.tap(f"tap-{name}") for name in "brs"}
        self.names = {name: tap.name for name, tap in taps.items()}
        macs = {name: f"aa:00:00:00:00:0{number}" for number, name in enumerate("brs", 1)}
        self.guests = [
            Guest(name, taps[name], macs[name], f"192.0.2.1{number}", f"2001:db8:f::1{number}", forged_mac=OTHER_MAC if name == "s" else "")
            for number, name in enumerate("brs", 1)
        ]
        for guest in self.guests:
            self.up(guest)
        routed = self.guests[1]
        self.guests[1] = routed._replace(gateway=Path(f"/sys/class/net/{routed.tap.name}/address").read_text().strip())
        worlds = {name: Outside(name, namespace) for name, namespace in self.namespaces.items()}
        self.watcher = Watcher(Guests(self.guests), worlds)

    def up(self, guest: Guest) -> None:
        mode, link = {"b": ("bridged", "br0"), "r": ("routed", TABLE), "s": ("openvswitch", "ovs0")}[guest.name]
        done = rundoor(
            "kvm-ifup",
            {
                "INTERFACE": guest.tap.name,
                "MODE": mode,
                "LINK": link,
                "IP": guest.ip4,
                "MAC": guest.mac,
                "VLAN": "",
                "INSTANCE": f"web-{guest.name}",
                "INTERFACE_INDEX": "0",
                "INTERFACE_UUID": f"{ord(guest.name):08x}-0667-415f-9a43-786dc01cbf24",
                "TAGS": f"{TAGS} netcommon:*:addresses:{guest.ip6}",
            },
        )
        assert done.status == 0, done

    # -- what the administrator makes

    def uplink(self, name: str) -> None:
        """The wire and what is at its other end."""
        device, world = UPLINKS[name], self.namespaces[name]
        number = list(UPLINKS).index(name)
        self.node.wire(device, world)
        run("ip", "link", "set", device, "address", UPLINK_MAC.format(number))
        for family in ("ipv4", "ipv6"):  # not their pauses are measured
            sysctl(f"net/{family}/neigh/{device}/proxy_delay", "0")
            pause = str(round(50 * slowness()))  # an advertisement that comes after three of them is not taken (ndisc_recv_na)
            sysctl(f"net/{family}/neigh/{device}/retrans_time_ms", pause)
            with world.entered():
                sysctl(f"net/{family}/neigh/eth0/retrans_time_ms", pause)
        gateways = (MAIN4[0], MAIN6[0]) if name == "main" else (GATEWAY4, GATEWAY6)
        for address, length in zip(gateways, (24, 64), strict=True):
            world.run("ip", "address", "add", f"{address}/{length}", "dev", "eth0", *(("nodad",) if ":" in address else ()))
        if name == "r":
            self.node.address(device, f"{NODE4}/24", f"{NODE6}/64")

    def routes(self) -> None:
        """Table main leads elsewhere."""
        self.node.address("up3", MAIN4[1], MAIN6[1])
        for family, (gateway, _address) in (("-4", MAIN4), ("-6", MAIN6)):
            run("ip", family, "route", "replace", "default", "via", gateway, "dev", "up3")

    def table(self) -> None:
        """The default routes of the guests' table."""
        for family, gateway in (("-4", GATEWAY4), ("-6", GATEWAY6)):
            run("ip", family, "route", "replace", "default", "via", gateway, "dev", "up1", "onlink", "table", TABLE)

    def pause(self) -> None:
        """As long as somebody who does this by hand, or a script, may take."""
        self.watcher.during(self.chance.choice((0.0, 0.05, 0.3, 1.0)))

    @contextlib.contextmanager
    def baring(self, seconds: float = FLUSHED) -> Iterator[None]:
        """Note that what is done takes the guard itself away: frames may leave until it is back, after ``seconds``."""
        before = time.monotonic()
        yield
        self.bared.append((before, time.monotonic(), seconds))

    # -- what is done

    def bridge_anew(self) -> None:
        run("ip", "link", "del", "br0")
        self.pause()
        self.node.bridge("br0", "up0")

    def uplink_leaves(self) -> None:
        run("ip", "link", "set", "up0", "nomaster")
        self.pause()
        run("ip", "link", "set", "up0", "master", "br0")

    def tap_leaves(self) -> None:
        run("ip", "link", "set", self.names["b"], "nomaster")

    def taps_go_down(self) -> None:
        for name in self.names.values():
            run("ip", "link", "set", name, "down")

    def uplink_anew(self, name: str) -> None:
        run("ip", "link", "del", UPLINKS[name])
        self.pause()
        self.uplink(name)
        if name == "b":
            run("ip", "link", "set", "up0", "master", "br0")
        elif name == "r":
            for family in ("-4", "-6"):
                run("ip", family, "rule", "del", "preference", "400", check=False)
                run("ip", family, "rule", "add", "iif", "up1", "lookup", TABLE, "preference", "400")
            self.table()

    def uplink_flaps(self) -> None:
        run("ip", "link", "set", "up1", "down")
        self.pause()
        run("ip", "link", "set", "up1", "up")
        run("ip", "-6", "address", "replace", f"{NODE6}/64", "dev", "up1", "nodad")
        self.table()

    def default_flaps(self) -> None:
        for family in ("-4", "-6"):
            run("ip", family, "route", "del", "default", "table", TABLE)
        self.pause()
        self.table()

    def table_flushed(self) -> None:
        for family in ("-4", "-6"):
            run("ip", family, "route", "flush", "table", TABLE)
        self.pause()
        self.table()

    def rules_flushed(self) -> None:
        """As networkd does at its start with rules that it does not know."""
        for family in ("-4", "-6"):
            run("ip", family, "rule", "del", "iif", self.names["r"], check=False)

    def rename(self, name: str) -> None:
        """As udev does, on a device that is up where the kernel lets it, else down for a moment."""
        before, after = self.names[name], f"other-{name}"
        for old, new in ((before, after), (after, before)):
            with self.baring():
                self.renamed(old, new)
            self.names[name] = new
            if new == after:
                self.whole(f"{old} is {new}")

    def renamed(self, old: str, new: str) -> None:
        run("ip", "link", "set", old, "name", new, check=False)
        while os.path.exists(f"/sys/class/net/{old}"):  # before Linux 6.? only what is down: the agent may have it up again sooner
            run("ip", "link", "set", old, "down")
            run("ip", "link", "set", old, "name", new, check=False)
            run("ip", "link", "set", new, "up", check=False)

    def bridge_renamed(self) -> None:
        self.renamed("br0", "br9")
        self.pause()
        self.renamed("br9", "br0")

    def uplink_renamed(self) -> None:
        self.renamed("up1", "up9")
        self.pause()
        self.renamed("up9", "up1")
        self.table()

    def nftables_flushed(self) -> None:
        with self.baring():
            run("nft", "flush", "ruleset")

    def nftables_reloaded(self) -> None:
        """Five times in a second, as a deployment may."""
        for _ in range(5):
            with self.baring():
                run("nft", "-f", "-", stdin=RULES)
            self.watcher.during(0.15)

    def guard_deleted(self) -> None:
        for line in run("nft", "list", "tables").splitlines():
            if "netcommon-guard" in line:
                with self.baring():
                    run("nft", "delete", *line.split())

    def switch_stopped(self) -> None:
        self.ovs.kill("ovs-vswitchd")
        self.pause()
        with self.baring(STARTED):
            self.ovs.start_switch()
        run("ip", "link", "set", "ovs0", "up")

    def switch_restarted(self) -> None:
        """As ovs-ctl does: its flows are saved, and restored while the switch waits for that (other_config:flow-restore-wait)."""
        saved = run("ovs-ofctl", "-O", "OpenFlow14", "dump-flows", "--no-names", "--no-stats", "ovs0")
        self.ovs.kill("ovs-vswitchd")
        self.ovs.vsctl("--no-wait", "set", "Open_vSwitch", ".", "other_config:flow-restore-wait=true")
        self.pause()
        self.ovs.start_switch()
        wait_until(lambda: "OFPT_FEATURES_REPLY" in run("ovs-ofctl", "show", "ovs0", check=False), 10, "the switch's OpenFlow socket")
        Path(f"{OVS_RUN}/saved").write_text(saved)
        run("ovs-ofctl", "-O", "OpenFlow14", "add-flows", "ovs0", f"{OVS_RUN}/saved")
        self.ovs.vsctl("remove", "Open_vSwitch", ".", "other_config", "flow-restore-wait")
        run("ip", "link", "set", "ovs0", "up")

    def database_restarted(self) -> None:
        """Whole is the switch when ovs-vswitchd has found its database, which it looks for after 1, 2, 4, then every 8 seconds.

        Until then its datapath in user space forwards nothing, with or without us (bridge_run in vswitchd/bridge.c returns early).
        """
        self.ovs.kill("ovsdb-server")
        self.pause()
        self.ovs.start_database()
        self.ovs.vsctl("--timeout=60", "set", "Open_vSwitch", ".", f"external_ids:found={time.monotonic()}")

    def flows_replaced(self) -> None:
        """By somebody who takes them for his own."""
        with self.baring():
            run("ovs-ofctl", "del-flows", "ovs0")
            run("ovs-ofctl", "add-flow", "ovs0", "priority=0,actions=NORMAL")

    def ovs_bridge_anew(self) -> None:
        self.ovs.vsctl("del-br", "ovs0")
        self.pause()
        self.ovs.bridge("ovs0", "up2")

    # -- how it is judged

    def ways(self) -> dict[str, Callable[[], None]]:
        """Give what can be done, by name."""
        return {
            "the bridge is made anew": self.bridge_anew,
            "the uplink leaves the bridge": self.uplink_leaves,
            "the tap leaves the bridge": self.tap_leaves,
            "the taps go down": self.taps_go_down,
            "the bridge's uplink is made anew": lambda: self.uplink_anew("b"),
            "the table's uplink is made anew": lambda: self.uplink_anew("r"),
            "the table's uplink goes down and up": self.uplink_flaps,
            "the table's default route flaps": self.default_flaps,
            "the table is flushed": self.table_flushed,
            "the rules are gone": self.rules_flushed,
            "the bridged tap is renamed": lambda: self.rename("b"),
            "the routed tap is renamed": lambda: self.rename("r"),
            "the bridge is renamed": self.bridge_renamed,
            "the table's uplink is renamed": self.uplink_renamed,
            "nftables is flushed": self.nftables_flushed,
            "nftables is reloaded five times": self.nftables_reloaded,
            "the guard's table is deleted": self.guard_deleted,
            "the switch stops and starts": self.switch_stopped,
            "the switch is restarted with its flows": self.switch_restarted,
            "the switch's database restarts": self.database_restarted,
            "the switch's flows are replaced": self.flows_replaced,
            "the switch's bridge is made anew": self.ovs_bridge_anew,
        }

    def whole(self, what: str) -> None:
        """Notes a fault where somebody is not connected within a second."""
        self.settle()
        now = time.monotonic()
        took, mute = self.watcher.whole(now, 8 * WHOLE)
        busy = self.busy = max(self.busy, contention())
        self.took[what] = max(self.took.get(what, 0.0), took / busy)
        if mute:
            self.faults.append(f"{what}: nothing came through {', '.join(mute)}")
        elif took > WHOLE * busy * slowness():
            self.faults.append(f"{what}: whole after {took:.2f} s")

    def do(self, what: str) -> None:
        """One rebuilding, judged."""
        self.busy, before = contention(), [each() for each in self.waited]
        self.watcher.look()
        self.watcher.forged.clear()
        self.bared.clear()
        self.ways()[what]()
        ended = time.monotonic()
        self.whole(what)
        self.watcher.during(0.2)
        busy = max(self.busy, contention()) * slowness()
        # What they were kept from doing; the instants at which busy is asked may have been quiet ones. A daemon that is new begins at 0.
        kept = sum(max(each() - earlier, 0.0) for each, earlier in zip(self.waited, before, strict=True))
        allowed = [(begun, end + max(seconds * busy, seconds + kept)) for begun, end, seconds in self.bared]
        self.watcher.during(max((end for _begun, end in allowed), default=0.0) - time.monotonic())  # what is late is this one's
        leaked = [sent for sent in self.watcher.forged if not any(begun <= sent.time <= end for begun, end in allowed)]
        for guest in {sent.guest for sent in leaked}:
            times = sorted(sent.time - ended for sent in leaked if sent.guest == guest)
            self.faults.append(
                f"{what}: {len(times)} forged frames of {guest} left, sent {times[0]:.3f} to {times[-1]:.3f} s after its end"
            )

    def settle(self) -> None:
        """Do what is needed once all is whole again: nothing, where an agent does it."""

    def close(self) -> None:
        self.watcher.close()


def rebuild(made: Rebuilt, seconds: float) -> int:
    """Each way once, in any order, and then at random until the time is over; how many there were."""
    made.whole("at first")
    assert made.faults == [], made.faults
    ways, until, count = sorted(made.ways()), time.monotonic() + seconds, 0
    made.chance.shuffle(ways)
    while ways or time.monotonic() < until:
        what = ways.pop() if ways else made.chance.choice(sorted(made.ways()))
        made.do(what)
        count += 1
    return count


def report(made: Rebuilt) -> None:
    for what, seconds in sorted(made.took.items(), key=lambda pair: pair[1]):
        print(f"{what}: whole after {seconds * 1e3:.0f} ms at most")
