"""netcommon top on the running kernel: what a guest really receives and sends, a real agent's figures, and a real terminal."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import signal
import struct
import subprocess
import termios
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from netcommon.host.linux.host import LinuxHost
from netcommon.views.live.rates import rate, read
from tests.kernel.test_doors_parallel import environment
from tests.support.agent import agent
from tests.support.bootstrap import ROOT, VENV
from tests.support.frames import BROADCAST, mac_bytes
from tests.support.netns import ask, run, wait_until
from tests.support.node import Node
from tests.support.rundoor import rundoor
from tests.support.tap import Tap

MAC = "aa:00:00:00:00:01"
BRIDGED = {"MODE": "bridged", "LINK": "br0", "IP": "10.0.0.5", "MAC": MAC, "INSTANCE": "web1", "INTERFACE_INDEX": "0"}
COMMAND = (str(VENV / "bin/python"), "-m", "netcommon.cli", "top")
SIZE = 1000  #: bytes of a frame
PATH = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"}
ENVIRONMENT = {**PATH, "TERM": "xterm", "LC_ALL": "C.UTF-8"}


@pytest.fixture
def tap(node: Node) -> Tap:
    node.bridge("br0")
    made = node.tap("tap0")
    assert rundoor("kvm-ifup", environment(**BRIDGED)).status == 0
    return made


def test_drops_of_a_limit_are_the_kernels(node: Node) -> None:
    """A guest with a limit (rate_in), to whom more is sent: what its queue drops is what tc(8) counts, and no device does."""
    node.bridge("br0")
    taps = [node.tap(name) for name in ("tap0", "tap1")]
    for number, tags in enumerate(("netcommon:*:rate_in:1mbit ", "")):
        said = environment(number, MODE="bridged", LINK="br0", IP="", TAGS=f"{tags}netcommon:*:spoof_guard:off")
        assert rundoor("kvm-ifup", said).status == 0
    wait_until(lambda: {each["state"] for each in ask("bridge", "-j", "link")} == {"forwarding"}, 5, "ports forward")
    host = LinuxHost()
    index = next(link.index for link in host.view().links() if link.name == "tap0")
    before = read(host.view(), 1.0)
    for _ in range(400):
        taps[1].send(mac_bytes(BROADCAST) + mac_bytes(MAC) + b"\x88\xb5" + bytes(SIZE))
    after = read(host.view(), 2.0)
    (queue,) = (each for each in ask("tc", "-s", "-j", "qdisc", "show", "dev", "tap0") if each["kind"] == "tbf")
    found = rate(before, after, index)
    assert found is not None and found.received_dropped == queue["drops"] > 0
    assert after.counters[index].sent_dropped == before.counters[index].sent_dropped


def frame(source: str) -> bytes:
    head = mac_bytes(BROADCAST) + mac_bytes(source) + b"\x08\x00"
    ip = struct.pack("!BBHHHBBH4s4s", 0x45, 0, SIZE - 14, 1, 0, 64, 17, 0, bytes((10, 0, 0, 5)), b"\xff" * 4)
    return (head + ip + struct.pack("!HHHH", 9, 9, SIZE - 34, 0)).ljust(SIZE, b"\0")


def asked(*arguments: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(run(*COMMAND, "--json", *arguments))
    return found


def test_counters_are_those_of_the_kernel(tap: Tap) -> None:
    """One dump has all devices; what the guest sends is what its tap receives."""
    host = LinuxHost()
    before = host.view().counters()
    dumps = host.netlink.dumps
    for _ in range(10):
        tap.send(frame(MAC))
    after = host.view().counters()
    assert host.netlink.dumps == dumps + 1
    (line,) = (each for each in run("ip", "-br", "link").splitlines() if each.startswith("tap0"))
    index = next(link.index for link in host.view().links() if link.name == "tap0")
    assert (line.split()[0], after[index].received_packets - before[index].received_packets) == ("tap0", 10)
    assert after[index].received_bytes - before[index].received_bytes == 10 * SIZE
    assert {link.index for link in host.view().links()} == set(after)
    host.close()


@pytest.mark.no_agent("starts agents of its own")
def test_rates_and_the_agents_figures(tap: Tap) -> None:
    """A guest that sends, frames that the guard drops, a hook's call: all of it in one picture."""
    with agent() as running:
        running.rested()
        assert rundoor("kvm-ifup", environment(**BRIDGED)).status == 0
        ended = threading.Event()

        def chatter() -> None:
            while not ended.wait(0.002):
                tap.send(frame(MAC))

        for _ in range(5):
            tap.send(frame("aa:00:00:00:00:99"))
        thread = threading.Thread(target=chatter)
        thread.start()
        try:
            said = asked("--interval", "1")
        finally:
            ended.set()
            thread.join()
    (one,) = said["nics"]
    assert (one["label"], one["device"], one["condition"], one["guard_dropped"]) == ("web1/0", "tap0", "good", 5)
    assert one["sent_packets"] > 5 and abs(one["sent_bits"] - one["sent_packets"] * SIZE * 8) < 1
    assert said["agent"]["running"] and said["states"] == {"up": 1}
    assert [(each["door"], each["mode"], each["number"], each["failed"]) for each in said["calls"]] == [("kvm-ifup", "bridged", 1, 0)]
    assert said["calls"][0]["mean"] > 0 and said["calls"][0]["half"] is not None


@contextmanager
def terminal(*arguments: str, rows: int = 24, columns: int = 100) -> Iterator[tuple[int, subprocess.Popen[bytes], list[str], list[Any]]]:
    """top on a terminal of its own: the other end, the process, what it has written so far, and how the terminal was before."""
    mine, its = pty.openpty()
    fcntl.ioctl(its, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
    before = termios.tcgetattr(its)
    process = subprocess.Popen((*COMMAND, *arguments), stdin=its, stdout=its, stderr=its, env=ENVIRONMENT, cwd="/", start_new_session=True)
    written: list[str] = []

    def take() -> None:
        while True:
            try:
                written.append(os.read(mine, 65536).decode("utf-8", "replace"))
            except OSError:
                return

    reader = threading.Thread(target=take, daemon=True)
    reader.start()
    try:
        yield mine, process, written, before
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()
        os.close(its)
        reader.join(5)
        os.close(mine)


def shown(written: list[str]) -> str:
    """What the last picture says, without colours."""
    return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", "".join(written).rpartition("\x1b[H")[2])


@pytest.mark.parametrize("end", ["q", "\x03", "SIGTERM"])
def test_on_a_terminal(tap: Tap, end: str) -> None:
    """It draws, sorts, follows the terminal's size, and gives the terminal back as it was, however it ends."""
    with terminal("--interval", "0.2") as (mine, process, written, before):
        wait_until(lambda: "web1/0" in shown(written) and "good" in shown(written), 20, repr("".join(written)))
        assert "by traffic" in shown(written) and not termios.tcgetattr(mine)[3] & (termios.ECHO | termios.ICANON | termios.ISIG)
        os.write(mine, b"s")
        wait_until(lambda: "by in" in shown(written), 10, shown(written))
        fcntl.ioctl(mine, termios.TIOCSWINSZ, struct.pack("HHHH", 12, 50, 0, 0))
        os.kill(process.pid, signal.SIGWINCH)
        wait_until(lambda: max(map(len, shown(written).split("\r\n"))) <= 50, 10, shown(written))
        assert len(shown(written).split("\r\n")) == 12
        process.send_signal(signal.SIGTERM) if end == "SIGTERM" else os.write(mine, end.encode())
        assert process.wait(20) == (128 + signal.SIGTERM if end == "SIGTERM" else 0)
        wait_until(lambda: "".join(written).endswith("\x1b[?7h\x1b[?25h\x1b[?1049l"), 5, repr(written[-1:]))
        assert termios.tcgetattr(mine) == before
