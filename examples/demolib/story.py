"""The demonstration itself, told from the first NIC's definition to the last leftover's removal."""

from __future__ import annotations

import json
import re
import subprocess
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from examples.demolib import show
from examples.demolib.guest import Guest
from examples.demolib.image import Image
from examples.demolib.place import Place
from examples.demolib.plans import PLANS
from examples.demolib.show import Failed
from tests.support.netns import run
from tests.support.snapshot import Snapshot, diff, snapshot

#: Guests that end without a word; the others are asked to.
KILLED = ("mail", "shop")

#: Seconds. Plain emulation on a busy machine needs patience; two seconds is the rule.
BOOT, SHUTDOWN, DEVICES = 60.0, 30.0, 10.0


class Story:
    """The steps in their order; each raises Failed where what it shows is not what was promised."""

    def __init__(self, root: Path, image: Image, place: Place) -> None:
        self.root, self.place = root, place
        self.guests = [Guest(plan, image, root / "hooks") for plan in PLANS]

    def tell(self) -> None:
        """All of it. Raises Failed."""
        show.heading("The NICs, defined beforehand: QEMU tells its scripts nothing but a device's name")
        for guest in self.guests:
            show.line(f"{guest.plan.name}: {guest.plan.mode}, {guest.plan.says}")
            self.netcommon("define", *guest.plan.definition)
        self.netcommon("plan", "tap1", quiet=False)
        before = _settled(snapshot())
        self._boot()
        self._ping()
        show.heading("What runs")
        self.netcommon("list", quiet=False)
        self.netcommon("check", quiet=False)
        self._repair()
        self._stop()
        self._kill()
        self._compare(before, _settled(snapshot()))

    def netcommon(self, *arguments: str, quiet: bool = True, status: int | None = 0) -> str:
        """Runs and shows a command; its standard output. Raises Failed where it ends with another ``status`` (None: any)."""
        show.command(f"netcommon {' '.join(arguments)}")
        done = subprocess.run([self.root / ".venv/bin/netcommon", *arguments], capture_output=True, text=True, timeout=120, check=False)
        if not quiet or done.stderr:
            show.output(done.stdout + done.stderr)
        if status is not None and done.returncode != status:
            raise Failed(f"netcommon {arguments[0]} ended with exit status {done.returncode}")
        return done.stdout

    def _boot(self) -> None:
        show.heading(f"{len(self.guests)} guests boot, by plain emulation, all at once")
        show.command(f"qemu-system-x86_64 ... -netdev {self.guests[0].netdev}")
        for guest in self.guests:
            guest.start()
        waiting = list(self.guests)
        while waiting:
            for guest in list(waiting):
                if guest.said("up "):
                    waiting.remove(guest)
                    show.line(f"{guest.plan.name} is up after {guest.age:.1f} s on {guest.plan.tap}, as {guest.plan.inner}")
                elif guest.ended():
                    raise Failed(f"{guest.plan.name}: QEMU ended with status {guest.status()}")
                elif guest.age > BOOT:
                    raise Failed(f"{guest.plan.name} did not boot within {BOOT:.0f} s")
            time.sleep(0.05)

    def _ping(self) -> None:
        show.heading("Everybody pings everybody")
        failed = []
        for guest in self.guests:
            target, host, world = guest.plan.inner, *guest.plan.pings
            if not _within(BOOT, partial(guest.said, "ready")):
                raise Failed(f"{guest.plan.name} did not finish its pings")
            lost = guest.unanswered()
            results = [("node -> guest", _ping(run, target)), ("outside -> guest", _ping(self.place.outside.run, target))]
            results += [("guest -> node", _word(host in lost)), ("guest -> outside", _word(world in lost))]
            good = all(text != "lost" for _, text in results)
            show.verdict(good, f"{guest.plan.name:<5}{guest.plan.mode:<12}" + "   ".join(f"{name}: {text}" for name, text in results))
            failed += [] if good else [guest.plan.name]
        if failed:
            raise Failed(f"pings without an answer: {', '.join(failed)}")

    def _repair(self) -> None:
        show.heading("Somebody deletes the rule of a routed guest; check sees it, repair mends it")
        mail = self._guest("mail")
        show.command(f"ip rule delete iif {mail.plan.tap}")
        run("ip", "rule", "delete", "iif", mail.plan.tap)
        self.netcommon("check", quiet=False, status=None)
        self.netcommon("repair", "mail/0", quiet=False)
        self.netcommon("check")
        good = bool(re.search(rf"iif {mail.plan.tap}\b", run("ip", "rule")))
        show.verdict(good, f"the rule is there again, and {mail.plan.name} answers: {_ping(self.place.outside.run, mail.plan.inner)}")
        if not good:
            raise Failed("the rule was not repaired")

    def _stop(self) -> None:
        stopped = [guest for guest in self.guests if guest.plan.name not in KILLED]
        show.heading(f"{', '.join(guest.plan.name for guest in stopped)}: power button; QEMU ends and calls the downscript")
        for guest in stopped:
            guest.press_power_button()
        for guest in stopped:
            if not _within(SHUTDOWN, guest.ended):
                raise Failed(f"{guest.plan.name} did not end within {SHUTDOWN:.0f} s")
            show.line(f"{guest.plan.name} ended, status {guest.status()}")
            if guest.status() != 0:
                raise Failed(f"{guest.plan.name}: QEMU ended with status {guest.status()}")
        self.netcommon("list", quiet=False)
        self._records(set(KILLED), "only what still runs is on record")

    def _kill(self) -> None:
        show.heading(f"{', '.join(KILLED)}: SIGKILL; nobody calls anything")
        killed = [self._guest(name) for name in KILLED]
        for guest in killed:
            guest.kill()
        if not _within(DEVICES, lambda: not any(Path("/sys/class/net", guest.plan.tap).exists() for guest in killed)):
            raise Failed("the taps did not go with their QEMU")
        show.line("what the kernel and Open vSwitch keep, and the next guest of that name would get:")
        left = _leftovers({guest.plan.tap for guest in killed})
        show.output("\n".join(left))
        if len(left) < len(killed):
            raise Failed("a killed guest left nothing, so there is nothing to show")
        self.netcommon("check", quiet=False, status=None)
        self.netcommon("gc", "--dry-run", quiet=False)
        self.netcommon("gc", quiet=False)
        self.netcommon("list", quiet=False)
        self._records(set(), "nothing is on record")

    def _records(self, expected: set[str], text: str) -> None:
        """Compares the records with the instances expected, by the command's JSON."""
        found = {row["nic"].partition("/")[0] for row in json.loads(self.netcommon("list", "--json"))["nics"] if row["state"] != "defined"}
        show.verdict(found == expected, text)
        if found != expected:
            raise Failed(f"on record: {', '.join(sorted(found)) or 'nothing'}")

    def _compare(self, before: Snapshot, after: Snapshot) -> None:
        show.heading("The node after the last guest, compared with the node before the first")
        for part in before:
            difference = diff(before[part], after[part])
            show.verdict(not difference, part if not difference else f"{part} differ")
            show.output("\n".join(difference))
        if diff(before, after):
            raise Failed("the node is not as it was")

    def _guest(self, name: str) -> Guest:
        return next(guest for guest in self.guests if guest.plan.name == name)

    def explain(self) -> None:
        """What to look at after a failure."""
        for guest in self.guests:
            show.trouble(f"{guest.plan.name}: QEMU and the hooks it called", guest.read("log"))
            show.trouble(f"{guest.plan.name}: console", "\n".join(guest.read("console").splitlines()[-20:]))
        show.trouble("the journal", "\n".join(self.place.journal))


def _settled(state: Snapshot) -> Snapshot:
    """The snapshot without the folders, and the note on this namespace, that the first hook on a node makes and that stay."""
    files: dict[str, str] = state["files"]
    return {**state, "files": {path: text for path, text in files.items() if not text.startswith("d") and "/netns." not in path}}


def _leftovers(taps: set[str]) -> list[str]:
    """Rules and ports of devices that are gone, as ip(8) and ovs-vsctl(8) see them."""
    rules = [f"ip rule: {line}" for line in run("ip", "rule").splitlines() if any(re.search(rf"\biif {tap}\b", line) for tap in taps)]
    return rules + [f"ovs-vsctl list-ports ovs0: {port}" for port in run("ovs-vsctl", "list-ports", "ovs0").split() if port in taps]


def _ping(runner: Callable[..., str], target: str) -> str:
    """The first answer's time within ten tries, "lost" without one."""
    for _ in range(10):
        if found := re.search(r"time=([\d.]+) ms", runner("ping", "-n", "-c", "1", "-W", "1", target, check=False)):
            return f"{float(found[1]):.1f} ms"
    return "lost"


def _word(lost: bool) -> str:
    return "lost" if lost else "answered"


def _within(seconds: float, condition: Callable[[], bool]) -> bool:
    """Whether ``condition`` becomes true in time."""
    limit = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > limit:
            return False
        time.sleep(0.05)
    return True


def main(root: Path, image: Image) -> int:
    """Tells the story in the namespaces the caller made; the exit status."""
    show.heading("A node in namespaces of its own: br0, ovs0, a table for routed guests, and a world outside")
    with Place() as place:
        for source in sorted((root / "examples/demolib/scripts").iterdir()):
            folder, _, name = source.name.partition("-")
            place.script(source, f"{folder}.d", name)
        story = Story(root, image, place)
        try:
            story.tell()
        except (Failed, AssertionError, subprocess.TimeoutExpired, OSError) as failure:
            show.verdict(False, str(failure))
            story.explain()
            return 1
        show.heading("What the journal was told of mail; of the others as much")
        show.output("\n".join(line for line in place.journal if "instance=mail " in line))
        show.heading("Done: every ping answered, and nothing left behind")
    return 0
