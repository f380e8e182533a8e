"""What becomes of a NIC: Ganeti's script on one node, our doors on its twin, and all that is seen of it from outside."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from typing import Any, NamedTuple

from tests.kernel.differential import theirs
from tests.kernel.differential.environments import Environment
from tests.kernel.differential.events import Ear
from tests.kernel.differential.place import UPLINK_VIDS, scripts_ran
from tests.support.netns import ask, run
from tests.support.ovs import rows
from tests.support.rundoor import Outcome, rundoor
from tests.support.snapshot import Snapshot, diff, snapshot
from tests.support.tap import Tap

#: The guest side's MAC of every tap: the kernel would draw one by lot.
ADDRESS = "7e:00:00:00:00:07"


class Theirs(NamedTuple):
    """After Ganeti's script."""

    outcome: Outcome
    state: Snapshot
    lookups: dict[str, str]


class Ours(NamedTuple):
    """After each of our doors, in the order of the calls."""

    up: Outcome
    up_heard: list[str]  #: what the kernel and OVSDB announced of the first up
    state: Snapshot
    lookups: dict[str, str]
    again: Outcome  #: the second up
    again_heard: list[str]
    again_changed: list[str]  #: in the snapshot
    down: Outcome
    late: Outcome  #: the second down
    late_heard: list[str]
    left: list[str]  #: how the node differs from the one before the tap was made
    scripts: list[str]
    persistent_left: list[str]  #: the same for a tap that stays, from before the up till after the down


def tap(environment: Environment, persistent: bool = False) -> Tap:
    """A tap as QEMU makes it."""
    made = Tap(environment.tap, persistent)
    run("ip", "link", "set", "dev", made.name, "address", ADDRESS)
    return made


def leave(environment: Environment) -> None:
    """What an earlier guest left."""
    for command in environment.leftovers:
        run(*shlex.split(command))


def by_ganeti(environment: Environment) -> Theirs:
    """Runs Ganeti's script on this node, and tidies up after it, which it does not. It must be ``theirs.installed``."""
    leave(environment)
    made = tap(environment)
    outcome = theirs.kvm_ifup(dict(environment.variables))
    found = Theirs(outcome, snapshot(()), lookups(environment))
    made.close()
    theirs.end_dnsmasq()
    tidy(environment)
    return found


def by_us(environment: Environment, base: Snapshot) -> Ours:
    """Runs our doors on this node, which looks like ``base``: up, up again, down, down again; and once more with a tap that stays."""
    scripts_ran()
    leave(environment)
    if environment.kept:
        base = snapshot()
    made = tap(environment)
    up, up_heard = listened("kvm-ifup", environment.variables)
    state, seen = snapshot(), lookups(environment)
    again, again_heard = listened("kvm-ifup", environment.variables)
    again_changed = diff(state, snapshot())
    made.close()
    down = rundoor("kvm-ifdown", environment.down)
    late, late_heard = listened("kvm-ifdown", environment.down)
    left = diff(base, snapshot())
    ran = scripts_ran()
    persistent_left = _persistent(environment)
    tidy(environment)
    return Ours(up, up_heard, state, seen, again, again_heard, again_changed, down, late, late_heard, left, ran, persistent_left)


def _persistent(environment: Environment) -> list[str]:
    """The tap was made beforehand and outlives its guest, as libvirt's and many a site's do."""
    made = tap(environment, persistent=True)
    made.close()
    for state in ("up", "down"):  # an earlier guest's: at the first up the kernel gives a device its queueing discipline, for ever
        run("ip", "link", "set", "dev", environment.tap, state)
    bare = snapshot()
    held = Tap(environment.tap)
    up = rundoor("kvm-ifup", environment.variables)
    held.close()
    if up.status == 0:  # else nothing may have been done
        rundoor("kvm-ifdown", environment.down)
    left = diff(bare, snapshot())
    Tap(environment.tap, persistent=True).delete()
    scripts_ran()
    return left


def listened(door: str, variables: Any) -> tuple[Outcome, list[str]]:
    """Runs a door with an ear on the kernel and on OVSDB: what changed while it ran."""
    before = configurations()
    with Ear() as ear:
        outcome = rundoor(door, variables)
        heard = ear.heard()
    return outcome, heard + [f"OVSDB: {was} -> {now}" for was, now in [(before, configurations())] if was != now]


def configurations() -> tuple[int, int]:
    """next_cfg and cur_cfg of ovs-vswitchd.conf.db(5): a client that wants something done raises the first."""
    (row,) = rows("Open_vSwitch", ("next_cfg", "cur_cfg"))
    return row["next_cfg"], row["cur_cfg"]


def tidy(environment: Environment) -> None:
    """Removes by hand whatever is still there for the tap's name."""
    for family in ("-4", "-6"):
        while "iif " + environment.tap + " " in run("ip", family, "rule").replace("[detached] ", ""):
            run("ip", family, "rule", "del", "iif", environment.tap)
    run("ovs-vsctl", "--timeout=60", "--if-exists", "del-port", environment.tap)
    if environment.vm:
        (uplink,) = ask("bridge", "-j", "vlan", "show", "dev", "upv")
        for vid in {vlan["vlan"] for vlan in uplink["vlans"]} - set(UPLINK_VIDS):
            run("bridge", "vlan", "del", "dev", "upv", "vid", str(vid))
        run("bridge", "vlan", "add", "dev", "upv", "vid", "1", "pvid", "untagged")


def lookups(environment: Environment) -> dict[str, str]:
    """Where packets go, by ``ip route get`` (ip-route(8)): from the guest, from beyond the uplink to it, and from the node itself."""
    ip = environment.ip.partition("/")[0]
    found: dict[str, str] = {}
    for family, guest, beyond, nets in (
        ("-4", "10.77.31.200" if environment.ipv6 or not ip else ip, "192.0.2.1", ("198.51.100.9", "10.77.1.77")),
        ("-6", ip if environment.ipv6 else "fd77:31::200", "2001:db8::1", ("2001:db8:51::9", "fd77:1::77")),
    ):
        for target in (beyond, *nets):
            found[f"{family} guest to {target}"] = _get(family, target, "from", guest, "iif", environment.tap)
        found[f"{family} uplink to guest"] = _get(family, guest, "from", beyond, "iif", "eth3")
        found[f"{family} uplink to guest's neighbour"] = _get(family, _next(guest), "from", beyond, "iif", "eth3")
        found[f"{family} node to guest"] = _get(family, guest)
    return found


def _next(address: str) -> str:
    """The address after the guest's: a host route must not catch it, a prefix shall."""
    head, separator, last = address.rpartition(":" if ":" in address else ".")
    return f"{head}{separator}{int(last or '0', 16) + 1:x}" if ":" in address else f"{head}{separator}{int(last) + 1}"


def _get(family: str, *words: str) -> str:
    """What matters of one answer: type, gateway, device; for a refusal its text."""
    line = run("ip", family, "route", "get", *words, check=False).splitlines()[0].split()
    kept: Iterable[str] = (f"{word} {line[place + 1]}" for place, word in enumerate(line) if word in ("via", "dev"))
    if line[0] in ("RTNETLINK", "Error:"):
        return " ".join(line)
    kind = line[0] if line[0] in ("unreachable", "prohibit", "blackhole", "local", "broadcast") else "unicast"
    return " ".join([kind, *kept])


def compared(environment: Environment, their: Theirs, our: Ours) -> list[str]:
    """All that differs between the twins, one line each; "TAP" stands for the tap's name."""
    names = {0: "done"}
    statuses = [names.get(outcome.status, "refused") for outcome in (their.outcome, our.up)]
    if statuses[0] != statuses[1]:
        return [f"~ status: {statuses[0]} -> {statuses[1]}"]
    if statuses[1] == "refused":
        return []  # half of it stays with Ganeti; ours touched nothing, which is a test of its own
    state = {part: value for part, value in our.state.items() if part != "files"}
    before = {part: value for part, value in their.state.items() if part != "files"}
    lines = diff(before, state) + diff(their.lookups, our.lookups, "lookup")
    return [line.replace(environment.tap, "TAP") for line in lines]


def settled() -> Snapshot:
    """The node as it is before the first NIC, with the folders that the first record leaves."""
    first = tap(_FIRST)
    rundoor("kvm-ifup", _FIRST.variables)
    first.close()
    rundoor("kvm-ifdown", _FIRST.variables)
    tidy(_FIRST)  # what a broken down leaves is for the tests to find
    return snapshot()


_FIRST = Environment(
    "first",
    {
        "INTERFACE": "tap0",
        "MODE": "routed",
        "LINK": "gntroute",
        "IP": "10.77.31.250",
        "MAC": "aa:00:00:00:00:ff",
        "INSTANCE": "first.gnt.example",
        "INTERFACE_INDEX": "0",
        "INTERFACE_UUID": "00000000-0000-4000-8000-0000000000fe",
    },
)
