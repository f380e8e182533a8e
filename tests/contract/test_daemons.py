"""The node's own daemon, and signals to those of others: never to a process that only has the number."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from netcommon.host.api.requests import Hangup, StartDaemon, StopDaemon
from netcommon.host.simulated.host import MemoryHost
from tests.contract.worlds import World, do, told, view, wait_until

NAME = "communication"
DNSMASQ = "/usr/sbin/dnsmasq"
OPTIONS = ("--conf-file=/dev/null", "--pid-file={folder}/pid", "--port=0", "--bind-dynamic", "--interface=gnt.com.*", "--user=root")
FOLDER = Path("/run/netcommon/communication")


@pytest.fixture(autouse=True)
def nothing_left(world: World) -> Iterator[None]:
    yield
    do(world, StopDaemon(NAME))


def start(options: tuple[str, ...] = OPTIONS) -> StartDaemon:
    return StartDaemon(NAME, DNSMASQ, options)


def pid(world: World) -> int:
    found = view(world).daemon(NAME)
    return found.pid if found else 0


def kill(world: World, number: int) -> None:
    """Somebody kills the daemon."""
    if isinstance(world.host, MemoryHost):
        world.host.daemons.end(NAME)
    else:
        os.kill(number, signal.SIGKILL)
        wait_until(lambda: not pid(world))


def test_start_and_stop(world: World) -> None:
    assert view(world).program("dnsmasq") == DNSMASQ and view(world).program("no-such-program") == ""
    assert view(world).daemon(NAME) is None
    assert do(world, start()) == [0]
    found = view(world).daemon(NAME)
    assert found is not None and found.pid > 1 and (found.name, found.options) == (NAME, OPTIONS)
    assert do(world, StopDaemon(NAME)) == [0]
    assert view(world).daemon(NAME) is None
    assert do(world, StopDaemon(NAME)) == [0]


def test_started_again_it_stays_with_other_options_it_does_not(world: World) -> None:
    assert do(world, start(), start()) == [0, 0]
    first = pid(world)
    assert do(world, start()) == [0] and pid(world) == first
    other = (*OPTIONS, "--no-ping")
    assert do(world, start(other)) == [0]
    found = view(world).daemon(NAME)
    assert found is not None and found.options == other and found.pid != first


def test_a_killed_one_is_started_again(world: World) -> None:
    assert do(world, start()) == [0]
    first = pid(world)
    kill(world, first)
    assert view(world).daemon(NAME) is None
    assert do(world, start()) == [0] and pid(world) not in (0, first)


def test_hangup(world: World) -> None:
    """It goes on; where nobody runs, or the pid file is another program's, that is said."""
    assert told(world, Hangup(f"{NAME}/pid", "dnsmasq")).errno == errno.ESRCH
    assert do(world, start(), Hangup(f"{NAME}/pid", "dnsmasq")) == [0, 0]
    assert pid(world)
    assert told(world, Hangup(f"{NAME}/pid", "nfdhcpd")).errno == errno.ESRCH
    assert told(world, Hangup("/run/nothing.pid", "dnsmasq")).errno == errno.ESRCH
    kill(world, pid(world))
    assert told(world, Hangup(f"{NAME}/pid", "dnsmasq")).errno == errno.ESRCH


# What only a real machine has.


@pytest.mark.parametrize("world", [pytest.param("linux", id="linux")], indirect=True)
class TestProcesses:
    def test_a_start_that_fails_says_why(self, world: World) -> None:
        said = told(world, start((*OPTIONS, "--no-such-option")))
        assert said.errno == errno.EIO and f"{DNSMASQ} ended with status 1: dnsmasq: bad command line options" in said.text
        assert view(world).daemon(NAME) is None
        assert told(world, StartDaemon(NAME, "/usr/sbin/no-such-program", OPTIONS)).errno == errno.EIO

    def test_one_that_does_not_go_to_the_background_is_ended(self, world: World) -> None:
        """Within the service's time limit, and nothing of it is left."""
        assert told(world, start((*OPTIONS, "--keep-in-foreground"))).errno == errno.ETIMEDOUT
        assert view(world).daemon(NAME) is None

    def test_another_process_with_its_number_gets_no_signal(self, world: World) -> None:
        """Neither at a stop, nor at a start, nor at a hangup: it would die of each."""
        other = subprocess.Popen(["sleep", "60"])
        try:
            assert do(world, start(), StopDaemon(NAME)) == [0, 0]
            for path in (FOLDER / "pid", Path("/run/other.pid")):
                path.parent.mkdir(exist_ok=True)
                path.write_text(f"{other.pid}\n")
            assert view(world).daemon(NAME) is None
            assert told(world, Hangup(f"{NAME}/pid", "dnsmasq")).errno == errno.ESRCH
            assert told(world, Hangup("/run/other.pid", "dnsmasq")).errno == errno.ESRCH
            assert do(world, StopDaemon(NAME)) == [0]
            FOLDER.mkdir()
            (FOLDER / "pid").write_text(f"{other.pid}\n")
            assert do(world, start()) == [0]
            assert pid(world) != other.pid and other.poll() is None
        finally:
            other.kill()
            other.wait()

    @pytest.mark.parametrize("text", ["", "x", "-1", "0", "1" * 40, "99999999"])
    def test_a_pid_file_that_is_none(self, world: World, text: str) -> None:
        Path("/run/other.pid").write_text(text)
        assert told(world, Hangup("/run/other.pid", "dnsmasq")).errno == errno.ESRCH

    def test_a_dnsmasq_of_another_is_not_taken_for_ours(self, world: World) -> None:
        """With another pid file, it may be the site's own; SIGHUP it may get."""
        FOLDER.mkdir(parents=True)
        command = [DNSMASQ, *(option.replace("{folder}", "/run") for option in OPTIONS)]
        subprocess.run(command, check=True)
        site = int(Path("/run/pid").read_text())
        try:
            (FOLDER / "pid").write_text(f"{site}\n")
            assert view(world).daemon(NAME) is None
            assert do(world, Hangup("/run/pid", "dnsmasq"), start(), StopDaemon(NAME)) == [0, 0, 0]
            os.kill(site, 0)
        finally:
            os.kill(site, signal.SIGKILL)
